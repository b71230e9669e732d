"""How large is a PNM? The first two numbers of its text header, comments left out.

A number must be ended by white space, or it may have been cut. Comments may stand
anywhere, inside a number too.

Source: the netpbm format pages; ``PpmImagePlugin`` of Pillow 13 for what is accepted.
"""

import re
from typing import Final

from tessera.core.media.colour import ColourMode
from tessera.core.media.size import Reason, Size, Unsized, check_sides
from tessera.core.media.window import Window

NAME: Final = "pnm"
MAX_HEADER_BYTES: Final = 16 * 1024
"""Bytes of header, comments included; writers put there a line or two."""

_FIRST_BYTES = 256
_MAGIC_BYTES = 7
_MAGIC = re.compile(rb"P(?:[1-6]|f|yP|yRGBA|yCMYK)(?=[ \t-\r])|P0CMYK")
_COMMENT = rb"#[^\r\n]*+[\r\n]"
_NUMBER = re.compile(rb"(?:[ \t-\r]|%b)*+((?:[^ \t-\r#]|%b)++)[ \t-\r]" % (_COMMENT, _COMMENT))
_COMMENTS = re.compile(_COMMENT)
_MAX_DIGITS = 10
_BITS = (b"P1", b"P4")
_FLOATS = b"Pf"
_MODES = {b"P3": ColourMode.RGB, b"P6": ColourMode.RGB, b"PyRGBA": ColourMode.RGBA}


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is a PNM: PBM, PGM, PPM, PFM or Pillow's own kinds."""
    return _MAGIC.match(first_bytes) is not None


def size(window: Window) -> Size:
    """The size of the picture.

    Raises:
        Unsized: the header says none.
    """
    magic = _MAGIC.match(window.read(0, _MAGIC_BYTES))
    assert magic is not None, "the first bytes were matched"
    num_numbers = 2 if magic[0] in _BITS else 3
    numbers = _numbers(window.read(0, _FIRST_BYTES), magic.end(), num_numbers)
    if numbers is None:
        numbers = _numbers(window.read(0, MAX_HEADER_BYTES), magic.end(), num_numbers)
    if numbers is None:
        is_cut = window.num_bytes <= MAX_HEADER_BYTES
        raise Unsized(Reason.TRUNCATED_HEADER if is_cut else Reason.HEADER_LIMIT)
    width, height = _integer(numbers[0]), _integer(numbers[1])
    check_sides(width, height)
    if magic[0] not in (*_BITS, _FLOATS) and not 0 < _integer(numbers[2]) < 65_536:
        raise Unsized(Reason.BAD_HEADER)
    return Size(width, height)


def mode(window: Window) -> ColourMode | None:
    """The colours that the first bytes state, whatever the depth."""
    magic = _MAGIC.match(window.read(0, _MAGIC_BYTES))
    assert magic is not None, "the first bytes were matched"
    return _MODES.get(magic[0], ColourMode.OTHER)


def _numbers(header: bytes, at: int, num_numbers: int) -> list[bytes] | None:
    """So many numbers from that offset; nothing where the header ends before."""
    numbers = []
    for _ in range(num_numbers):
        match = _NUMBER.match(header, at)
        if match is None:
            return None
        number = _COMMENTS.sub(b"", match[1])
        if len(number) > _MAX_DIGITS:
            raise Unsized(Reason.BAD_HEADER)
        numbers.append(number)
        at = match.end()
    return numbers


def _integer(digits: bytes) -> int:
    try:
        return int(digits)
    except ValueError:
        raise Unsized(Reason.BAD_HEADER) from None
