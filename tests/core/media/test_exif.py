"""Is the orientation the one that the engine's image library would find?"""

import struct
from base64 import b64encode
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.core.media.exif import UPRIGHT, in_exif, in_memory, in_xmp, orientation, spans
from tessera.core.media.window import Window

Exif = Callable[..., bytes]


def found(block: bytes) -> int | None:
    return in_exif(in_memory(block))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [3, 4, 6, 8, 9, 13])
def test_integers_of_every_kind(exif_block: Exif, order: str, kind: int) -> None:
    assert found(exif_block(6, order=order, kind=kind)) == 6


def test_bytes_are_no_integers(exif_block: Exif) -> None:
    assert found(exif_block(6, kind=1)) == UPRIGHT


def test_the_first_of_two_values_counts(exif_block: Exif) -> None:
    assert found(exif_block(6, count=2)) == 6


def test_values_elsewhere_in_the_block() -> None:
    directory = struct.pack("<HHHIII", 1, 0x0112, 3, 3, 26, 0)
    block = b"II*\0\x08\0\0\0" + directory + struct.pack("<HHH", 8, 1, 1)
    assert found(block) == 8
    assert found(block[:-1]) is None


def test_an_entry_without_value_or_of_an_unheard_kind_is_passed_over() -> None:
    entries = struct.pack("<" + "HHII" * 3, 0x0112, 3, 0, 5, 0x0112, 99, 1, 5, 0x0112, 3, 1, 7)
    assert found(b"II*\0\x08\0\0\0\x03\0" + entries) == 7


def test_the_directory_may_stand_anywhere(exif_block: Exif) -> None:
    block = exif_block(6)
    moved = block[:4] + struct.pack("<I", 5000) + bytes(4992) + block[8:]
    assert found(moved) == 6
    assert found(block[:4] + struct.pack("<I", 2**32 - 1) + block[8:]) is None


@pytest.mark.parametrize("num_before", [0, 62, 63, 64, 65, 200])
def test_long_directories_are_read_in_pieces(exif_block: Exif, num_before: int) -> None:
    assert found(exif_block(5, num_before=num_before)) == 5


def test_damage(exif_block: Exif) -> None:
    block = exif_block(6)
    assert found(b"") is None
    assert found(b"Exif\0\0") is None
    for broken in (b"II*", b"II*\0\x08", b"II+\0\x08\0\0\0", b"ABCDEFGH", b"Exif\0\0Exif\0\0Exif\0\0" + block):
        assert found(broken) == UPRIGHT
    assert found(block[:10]) is None
    for mark in (b"MM*\0", b"MM\0+"):
        assert found(mark + exif_block(6, order=">")[4:]) == 6


@settings(max_examples=100, deadline=None)
@given(block=st.binary(max_size=200), order=st.sampled_from([b"II*\0\x08\0\0\0", b"MM\0*\0\0\0\x08"]))
def test_no_block_is_an_error(block: bytes, order: bytes) -> None:
    assert isinstance(orientation(in_memory(order + block), in_memory(block)), int)


@pytest.mark.parametrize("at", [0, 8180, 8185, 8191, 8192, 16_370])
def test_xmp_is_found_across_pieces(at: int) -> None:
    assert in_xmp(in_memory(b" " * at + b'tiff:Orientation="6"')) == 6
    assert in_xmp(in_memory(b" " * at + b"<tiff:Orientation>3</tiff:Orientation>")) == 3


def test_the_first_statement_of_xmp_counts() -> None:
    assert in_xmp(in_memory(b'tiff:Orientation="x" tiff:Orientation="6" tiff:Orientation="1"')) == 6
    assert in_xmp(in_memory(b"<tiff:Orientation/>")) is None


@settings(max_examples=100, deadline=None)
@given(
    content=st.binary(min_size=30, max_size=30),
    cuts=st.lists(st.integers(0, 30), min_size=2, max_size=6).map(sorted),
    offset=st.integers(0, 40),
    length=st.integers(0, 40),
)
def test_parts_are_read_as_one_block(content: bytes, cuts: list[int], offset: int, length: int) -> None:
    window = Window(b64encode(content).decode())
    window.verify()
    parts = [(start, end - start) for start, end in pairwise(cuts)]
    block = content[cuts[0] : cuts[-1]]
    assert spans(window, parts)(offset, length) == block[offset : offset + length]
