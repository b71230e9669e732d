"""Are the formats that the engine refuses known by name, and nothing else taken for one?"""

import struct
from typing import Any

import pytest

from tessera.core.draft import DraftMedia
from tessera.core.media.probe import FORMATS, SNIFF_BYTES, probe
from tessera.core.media.refused import REFUSED
from tessera.core.parts import Modality

SAMPLES = {
    "heic": [
        b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
        b"\0\0\0\x18ftypheix\0\0\0\0mif1heic",
        b"\0\0\0\x18ftyphevc\0\0\0\0mif1hevc",
        b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic",
        b"\0\0\0\x14ftypmsf1\0\0\0\0hevc",
    ],
    "isobmff": [b"\0\0\0\x18ftypisom\0\0\0\0isomavif", b"\0\0\0\x14ftypqt  \0\0\0\0qt  "],
    "jpegxl": [b"\xff\x0a\x7a\x12", b"\0\0\0\x0cJXL \r\n\x87\n"],
    "svg": [
        b"<svg xmlns='http://www.w3.org/2000/svg' width='317' height='203'/>",
        b"\xef\xbb\xbf<?xml version='1.0'?><svg/>",
        b"\n\t <!-- made by hand --><svg/>",
        b"<!DOCTYPE svg [<!ENTITY a 'a'>]>",
    ],
    "eps": [b"%!PS-Adobe-3.0 EPSF-3.0\n", b"\xc5\xd0\xd3\xc6\x1e\0\0\0"],
    "pdf": [b"%PDF-1.7\n"],
    "wmf": [b"\xd7\xcd\xc6\x9a\0\0", struct.pack("<I", 1) + bytes(36) + b" EMF"],
    "hdf5": [b"\x89HDF\r\n\x1a\n"],
    "bufr": [b"BUFR\0\0\0\4"],
    "grib": [b"GRIB\0\0\0\1"],
}


@pytest.mark.parametrize(("name", "content"), [(name, each) for name, all_ in SAMPLES.items() for each in all_])
@pytest.mark.parametrize("uses_pillow", [False, True])
def test_each_has_its_name_and_a_reason(name: str, content: bytes, *, uses_pillow: bool) -> None:
    content += bytes(100)
    item = probe(DraftMedia(modality=Modality.IMAGE, content=content), uses_pillow=uses_pillow)
    assert (item.format, item.width, item.height, item.reason) == (name, None, None, "refused-format")


def test_every_one_of_them_is_tested() -> None:
    assert [known.NAME for known in REFUSED] == list(SAMPLES)


def test_no_accepted_picture_is_taken_for_one(sample: dict[str, Any], sample_bytes: bytes) -> None:
    first = next((known for known in FORMATS if known.matches(sample_bytes[:SNIFF_BYTES])), None)
    if sample["expect"]["accept"]:
        assert first not in REFUSED


@pytest.mark.parametrize("content", [b"< svg", b"<html>", b"svg", b"\xff\x0b", b"%P", b"GRIB\0\0\0\2", b""])
def test_what_is_none_of_them(content: bytes) -> None:
    assert not any(known.matches(content) for known in FORMATS)
