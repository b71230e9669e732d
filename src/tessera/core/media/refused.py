"""Which pictures are known for what they are and refused by the engine? HEIC, SVG, JPEG XL and the like.

They are no mystery to anybody who reads the reason, and cost no look by Pillow.

Source: the list of formats in ``vllm/multimodal/media/image.py`` of vLLM 0.32.0, which leaves these out.
"""

import re
from dataclasses import dataclass
from typing import Final

from tessera.core.media.colour import ColourMode
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.window import Window


@dataclass(frozen=True, slots=True)
class RefusedFormat:
    """A format that has a name and first bytes, and no size."""

    NAME: str
    first_bytes: re.Pattern[bytes]

    def matches(self, first_bytes: bytes) -> bool:
        """Whether content that starts so is of this format."""
        return self.first_bytes.match(first_bytes) is not None

    def size(self, _: Window) -> Size:
        """Never one.

        Raises:
            Unsized: always.
        """
        raise Unsized(Reason.REFUSED_FORMAT)

    def mode(self, _: Window) -> ColourMode | None:
        """Never one either."""
        return None


_FIRST_BYTES = {
    "heic": rb".{4}ftyp(?:he[iv][cmsx]|mif1|msf1)",
    "isobmff": rb".{4}ftyp",
    "jpegxl": rb"\xff\x0a|\0\0\0\x0cJXL \r\n\x87\n",
    "svg": rb"(?:\xef\xbb\xbf)?\s*<(?:svg|\?xml|!--|!DOCTYPE)",
    "eps": rb"%!PS|\xc5\xd0\xd3\xc6",
    "pdf": rb"%PDF-",
    "wmf": rb"\xd7\xcd\xc6\x9a\0\0|\x01\0\0\0.{36} EMF",
    "hdf5": rb"\x89HDF\r\n\x1a\n",
    "bufr": rb"BUFR",
    "grib": rb"GRIB.{3}\x01",
}
"""By name. AVIF is asked before ``heic``, which shares two brands with it."""

REFUSED: Final = tuple(RefusedFormat(name, re.compile(start, re.DOTALL)) for name, start in _FIRST_BYTES.items())
"""Asked in this order, after every format that is read."""
