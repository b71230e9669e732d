"""Are the digests those of xxh3 over 64 bytes and over 16 ids, in little-endian order, and bounded?"""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from tessera.core.media.digests import (
    CHUNK_BYTES,
    CHUNK_IDS,
    MAX_DIGESTS,
    ContentHash,
    text_digests,
    text_hash,
    token_digests,
)


def by_hand(data: bytes, size: int) -> bytes:
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(xxh3_64_intdigest(chunk).to_bytes(8, "little") for chunk in chunks)


def test_pinned_values() -> None:
    assert text_digests(b"").hex() == ""
    assert text_digests(b"a").hex() == "1f4e961eb632c6e6"
    assert text_digests(b"x" * 64).hex() == "4412f8acf6b99c26"
    assert token_digests([]) == b""
    assert token_digests([1]).hex() == text_digests(b"\1" + bytes(7)).hex()


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=3000), repeat=st.integers(1, 6))
def test_text_is_cut_every_64_bytes_from_its_start(data: bytes, repeat: int) -> None:
    assert text_digests(data * repeat) == by_hand(data * repeat, CHUNK_BYTES)


@settings(max_examples=100, deadline=None)
@given(ids=st.lists(st.integers(0, 2**64 - 1), max_size=200), repeat=st.integers(1, 12))
def test_ids_are_cut_every_16(ids: list[int], repeat: int) -> None:
    packed = struct.pack(f"<{len(ids)}Q", *ids) * repeat
    assert token_digests(ids * repeat) == by_hand(packed, CHUNK_IDS * 8)


def test_ids_count_modulo_2_to_the_64() -> None:
    assert token_digests([-1, 2**70 + 5]) == token_digests([2**64 - 1, 5])


def test_a_longer_text_keeps_its_whole_chunks() -> None:
    text = bytes(range(256)) * 3
    assert text_digests(text + b"more").startswith(text_digests(text))


def test_digests_of_one_run_are_bounded() -> None:
    text = bytes(MAX_DIGESTS * CHUNK_BYTES)
    assert len(text_digests(text)) == 8 * MAX_DIGESTS
    assert text_digests(text + b"tail") == text_digests(text)
    ids = [7] * (MAX_DIGESTS * CHUNK_IDS)
    assert len(token_digests(ids)) == 8 * MAX_DIGESTS
    assert token_digests([*ids, 1, 2, 3]) == token_digests(ids)


def test_content_in_pieces_is_one_content() -> None:
    state = ContentHash()
    for piece in (b"ab", b"", b"c"):
        state.update(piece)
    assert state.hexdigest() == xxh3_128_hexdigest(b"abc") == "06b05ab6733a618578af5f94892f3950"


@pytest.mark.parametrize("text", ["", "abc", "caf\u00e9", "\u6f22" * 500_000, "a" * 1_048_577])
def test_text_is_hashed_as_utf_8(text: str) -> None:
    assert text_hash(text) == xxh3_128_hexdigest(text.encode())


def test_a_lone_surrogate_has_a_hash() -> None:
    assert text_hash("\ud800") == xxh3_128_hexdigest(b"\xed\xa0\x80")
