"""How many tokens do images and clips cost in InternVL in Hugging Face's format?"""

from collections.abc import Mapping
from typing import Any, ClassVar

from tessera.core.family import ModelFiles, known
from tessera.core.plugin import plugin
from tessera.core.pricing.internvl import InternVL
from tessera.core.pricing.processor_settings import scoped
from tessera.core.pricing.sizes import flag, fraction, num_tiles, side, square


@plugin("internvl-hf")
class InternVLHF(InternVL):
    """InternVL 3 and 3.5 in Hugging Face's format, and Intern-S1: the rule of InternVL, its settings in other files.

    ``crop_to_patches`` of preprocessor_config.json is not read, since the
    processor turns it on whatever the file says.
    Source: transformers 5.18.0, GotOcr2ImageProcessor and InternVLProcessor; vLLM 0.32.0, interns1.py.

    >>> InternVLHF().image(1280, 720)
    Count(num_tokens=2306, num_embeds=2304, num_wrapper_tokens=0)
    """

    architectures = frozenset({"InternVLForConditionalGeneration", "InternS1ForConditionalGeneration"})
    model_names = ("intern-s1",)

    frame_break_tokens: ClassVar[int] = 1
    """A line end between two frames."""

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """preprocessor_config.json, and ``vision_config`` of config.json."""
        return known(
            image_size=square(files.image, "size") or side(files.vision, "image_size"),
            patch_size=side(files.vision, "patch_size"),
            downsample_ratio=fraction(files.config, "downsample_ratio"),
            min_dynamic_patch=num_tiles(files.image, "min_patches"),
            max_dynamic_patch=num_tiles(files.image, "max_patches"),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``min_patches``, ``max_patches``, ``crop_to_patches``."""
        given = scoped(kwargs, "images_kwargs")
        return known(
            min_dynamic_patch=num_tiles(given, "min_patches"),
            max_dynamic_patch=num_tiles(given, "max_patches"),
            dynamic_image_size=flag(given, "crop_to_patches"),
        )
