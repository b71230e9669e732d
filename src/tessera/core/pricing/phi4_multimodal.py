"""How many tokens do images and sounds cost in Phi-4-multimodal?"""

from collections.abc import Mapping
from typing import Annotated, Any

from tessera.core.family import AudioInfo, Count, Family, ModelFiles, Refused, known, number, section
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.closest_aspect import closest_aspect
from tessera.core.pricing.processor_settings import scoped
from tessera.core.pricing.sizes import MAX_SIDE, MAX_TILES, NO_AREA, num_tiles, square
from tessera.core.pricing.sound import HOP, num_samples

PATCH_SIZE = 14
"""Pixels along a side of one encoder patch."""
WINDOW_SAMPLES = 400
"""Samples of one audio frame, at 16 kHz."""


@plugin("phi4-multimodal")
class Phi4Multimodal(Family):
    """Phi-4-multimodal: the whole image as one tile, then the part of a canvas of tiles that the image fills.

    Where Hugging Face's processor refuses a needle of an image, vLLM counts on,
    and so does this rule.
    Source: preprocessor_config.json of microsoft/Phi-4-multimodal-instruct;
    transformers 5.18.0, Phi4MultimodalImageProcessor; vLLM 0.32.0, phi4mm.py.
    """

    architectures = frozenset({"Phi4MMForCausalLM", "Phi4MultimodalForCausalLM"})
    model_names = ("phi-4-multimodal", "phi-4-mm")

    image_size: Annotated[int, Range(ge=2 * PATCH_SIZE, le=MAX_SIDE)] = 448
    """Pixels along a side of one tile."""
    dynamic_hd: Annotated[int, Range(ge=1, le=MAX_TILES)] = 36
    """Most tiles of an image, the whole one not counted."""
    audio_compression_rate: Annotated[int, Range(ge=1)] = 8
    """Audio frames that are merged into one token."""

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """preprocessor_config.json; the audio compression also from ``embd_layer`` of config.json."""
        size = square(files.image, "size")
        return known(
            image_size=size if size is not None and size >= 2 * PATCH_SIZE else None,
            dynamic_hd=num_tiles(files.image, "dynamic_hd"),
            audio_compression_rate=number(files.preprocessor, "audio_compression_rate")
            or number(section(files.config, "embd_layer"), "audio_embd_layer", "compression_rate"),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``dynamic_hd``."""
        return known(dynamic_hd=num_tiles(scoped(kwargs, "images_kwargs"), "dynamic_hd"))

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """The whole image, a separator, what the image fills of the canvas, and a line end for each row of both.

        >>> Phi4Multimodal().image(1280, 720)
        Count(num_tokens=1596, num_embeds=1596, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        grid = self.image_size // PATCH_SIZE // 2
        columns, rows = self._filled(width, height)
        tokens = grid * grid + grid + 1 + rows * columns + rows
        return Count(num_tokens=tokens, num_embeds=tokens)

    def audio(self, info: AudioInfo) -> Count | Refused:
        """12.5 tokens a second.

        >>> Phi4Multimodal().audio(AudioInfo(duration_s=10.0))
        Count(num_tokens=125, num_embeds=125, num_wrapper_tokens=0)
        """
        samples = num_samples(info)
        if samples < WINDOW_SAMPLES:
            return Refused(f"a sound of {samples} samples is shorter than one frame of {WINDOW_SAMPLES}")
        frames = (samples - WINDOW_SAMPLES) // HOP + 1
        tokens = -(-frames // self.audio_compression_rate)
        return Count(num_tokens=tokens, num_embeds=tokens)

    def _filled(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of pairs of patches that are not only padding."""
        tile = self.image_size
        columns, rows = -(-width // tile), -(-height // tile)
        if columns * rows > self.dynamic_hd:
            columns, rows = closest_aspect(width, height, tile=tile, least=1, most=self.dynamic_hd)
        across, down = columns * tile / width, rows * tile / height
        pad_x = pad_y = 0
        if across < down:
            pad_y = rows * tile - int(height * across)
        else:
            pad_x = columns * tile - int(width * down)
        patches = tile // PATCH_SIZE
        return (columns * patches - pad_x // PATCH_SIZE + 1) // 2, (rows * patches - pad_y // PATCH_SIZE + 1) // 2
