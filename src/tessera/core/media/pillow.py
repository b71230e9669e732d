"""How large is a picture that no parser of ours knows? Pillow reads its header; never on an event loop.

Of the formats that the engine accepts, these are the rare ones: TGA, DDS, PSD, ICNS
and so on. Only ``Image.open`` is called, so no pixel is decoded; but that is the
Python code of some thirty plugins, which was not written for hostile bytes. So it
sees the content through the same bounded window as every parser, read by read, and
whatever it raises is a reason. It is imported when it is first asked, in 0.1 s.

Source: the list of formats in ``vllm/multimodal/media/image.py`` of vLLM 0.32.0.
"""

import io
from typing import IO, Final, cast

from tessera.core.media.colour import ColourMode
from tessera.core.media.size import Reason, Size, Unsized, check_sides
from tessera.core.media.window import Window

FORMATS: Final = (
    *("BLP", "CUR", "DCX", "DDS", "DIB", "FITS", "FLI", "FTEX", "GBR", "ICNS", "IM", "IPTC", "MCIDAS"),
    *("MSP", "PCD", "PCX", "PIXAR", "PSD", "SGI", "SPIDER", "SUN", "TGA", "XBM", "XPM", "XVTHUMB"),
)
"""What the engine accepts beside our own formats and IMT, in the engine's order."""
MAX_READS: Final = 1024
"""Reads of one picture, by all plugins together."""
MAX_IMT_BYTES: Final = 2048
"""Length of an IMT's text header, whose reader in Pillow takes time with the square of its lines."""

_LINE_BYTES = 128
_CHANGES_WHEN_LOADED = "icns"
"""The only format whose pictures do not keep, when they are loaded, the mode that they have when they are opened."""


def look(window: Window) -> tuple[str, Size, ColourMode | None]:
    """The format's name in lower case, the size as displayed, and the colours where the header is enough to know them.

    Raises:
        Unsized: Pillow is not installed, knows no size, or reads too much.
    """
    window.allow(MAX_READS)
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise Unsized(Reason.NEEDS_PILLOW) from None
    try:
        try:
            picture = Image.open(cast(IO[bytes], _Content(window)), formats=FORMATS)
        except UnidentifiedImageError:
            picture = Image.open(io.BytesIO(_text_header(window)), formats=("IMT",))
        name, mode, (width, height) = picture.format, picture.mode, picture.size
    except Unsized:
        raise
    except UnidentifiedImageError:
        raise Unsized(Reason.UNKNOWN_FORMAT) from None
    except Image.DecompressionBombError:
        raise Unsized(Reason.TOO_MANY_PIXELS) from None
    except Exception:
        # Plugins raise whatever their reading of damaged bytes happens to raise.
        raise Unsized(Reason.BAD_HEADER) from None
    if name is None or not isinstance(width, int) or not isinstance(height, int):
        raise Unsized(Reason.BAD_HEADER)
    check_sides(width, height)
    return name.lower(), Size(width, height), _mode(name.lower(), mode)


def _mode(name: str, mode: str) -> ColourMode | None:
    if name == _CHANGES_WHEN_LOADED:
        return None
    return ColourMode(mode) if mode in {"RGB", "RGBA"} else ColourMode.OTHER


def _text_header(window: Window) -> bytes:
    """What ends with a form feed, as the header of an IMT does; empty where there is none."""
    header, feed, _ = window.read(0, MAX_IMT_BYTES).partition(b"\x0c")
    return header + feed if feed else b""


class _Content:
    """The window as a file that Pillow can read; every read is a step."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._at = 0

    def tell(self) -> int:
        """The offset of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go somewhere, as in a ``BytesIO``."""
        if whence == io.SEEK_SET and offset < 0:
            raise ValueError("an offset before the start")
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._window.num_bytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, num_bytes: int = -1) -> bytes:
        """The next bytes, to the end where ``num_bytes`` is negative."""
        data = self._window.read(self._at, self._window.num_bytes if num_bytes < 0 else num_bytes)
        self._at += len(data)
        return data

    def readline(self, num_bytes: int = -1) -> bytes:
        """The next line with its end, not longer than ``num_bytes`` where that is not negative."""
        line = b""
        while num_bytes < 0 or len(line) < num_bytes:
            wanted = _LINE_BYTES if num_bytes < 0 else min(_LINE_BYTES, num_bytes - len(line))
            piece = self._window.read(self._at, wanted)
            end = piece.find(b"\n") + 1
            line += piece[:end] if end else piece
            self._at += end or len(piece)
            if end or not piece:
                break
        return line

    def close(self) -> None:
        """Nothing is open."""
