"""In which colours does the engine's image library load a picture? Known from the header, or not at all."""

from enum import StrEnum


class ColourMode(StrEnum):
    """The library's mode of a loaded picture, as far as it decides whether the engine converts it."""

    RGB = "RGB"
    RGBA = "RGBA"
    OTHER = "other"
    """Certainly neither of the two: grey, palette, CMYK, 16 bits a sample, ..."""
