"""What does a picture cost in Kimi-VL and Kimi-K2.5?"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from tessera.core.family import Count, Family, ModelFiles, Refused, VideoInfo, known, number, section
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.processor_settings import first_number
from tessera.core.pricing.smart_resize import LARGEST_SIDE, no_sides

NUM_WRAPPER_TOKENS = 4
"""The chat template's start, the word ``image``, a mark of content, and the end."""


@plugin("kimi-vl")
class KimiVL(Family):
    """Kimi-VL: cells of 28 x 28 pixels, at most about ``in_token_limit / 4`` of them; nothing is scaled up.

    A picture of more than ``in_token_limit`` whole patches is scaled down to as many,
    then padded to whole cells. One of less than a patch in height or width is never
    scaled down. Kimi-VL-A3B-Thinking-2506 has a limit of 16,384.
    Source: preprocessor_config.json of the published models; vLLM 0.32.0, kimi_vl.py.
    """

    patch_size: Annotated[int, Range(ge=1)] = 14
    """Pixels along a side of one encoder patch."""
    merge_size: Annotated[int, Range(ge=1)] = 2
    """Patches along a side that are merged into one token (``merge_kernel_size``)."""
    in_token_limit: Annotated[int, Range(ge=1)] = 4_096
    """Patches of a picture at most."""

    architectures: ClassVar[frozenset[str]] = frozenset({"KimiVLForConditionalGeneration"})
    model_names: ClassVar[tuple[str, ...]] = ("kimi-vl",)

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """Everything from the image processor's file.

        >>> KimiVL.from_files(ModelFiles(preprocessor={"in_token_limit": 16384, "merge_kernel_size": [2, 2]}))
        {'merge_size': 2, 'in_token_limit': 16384}
        """
        image = files.image
        return known(
            patch_size=number(image, "patch_size"),
            merge_size=first_number(image, "merge_kernel_size"),
            in_token_limit=number(image, "in_token_limit"),
        )

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """``columns x rows`` cells, each one token and one embedding; swapping the sides changes nothing.

        >>> KimiVL().image(1280, 720)
        Count(num_tokens=1075, num_embeds=1075, num_wrapper_tokens=4)
        """
        if not (0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE):
            return no_sides(width, height)
        patches = (width // self.patch_size) * (height // self.patch_size)
        if patches > self.in_token_limit:
            scale = math.sqrt(self.in_token_limit / patches)
            width, height = int(width * scale), int(height * scale)
        return self._padded(width, height)

    def _padded(self, width: int, height: int) -> Count:
        unit = self.patch_size * self.merge_size
        cells = -(-width // unit) * -(-height // unit)
        return Count(num_tokens=cells, num_embeds=cells, num_wrapper_tokens=NUM_WRAPPER_TOKENS)


@plugin("kimi-k2.5", aliases=("kimi-k2.6",))
class KimiK25(KimiVL):
    """Kimi-K2.5 and K2.6: as Kimi-VL with 16,384 patches, 512 a side; clips are not priced.

    A clip is cut into chunks by code that comes with the model and is not known here.
    Source: transformers 5.18.0, Kimi_K25ImageProcessor; vLLM 0.32.0,
    kimi_k25_vision_fused.py.
    """

    in_token_limit: Annotated[int, Range(ge=1)] = 16_384
    """Patches of a picture at most (``in_patch_limit``, ``max_patches``)."""
    side_limit: Annotated[int, Range(ge=1)] = 512
    """Patches of a side at most (``patch_limit_on_one_side``, ``size.max_height``)."""

    architectures: ClassVar[frozenset[str]] = frozenset({"KimiK25ForConditionalGeneration"})
    model_names: ClassVar[tuple[str, ...]] = ("kimi-k2.5", "kimi-k2.6")

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """``media_proc_cfg`` of the model's own processor, or the settings of transformers'.

        >>> KimiK25.from_files(ModelFiles(preprocessor={"media_proc_cfg": {"in_patch_limit": 4096}}))
        {'in_token_limit': 4096}
        """
        image = files.image
        own = section(image, "media_proc_cfg") or image
        return known(
            patch_size=number(own, "patch_size"),
            merge_size=first_number(own, "merge_kernel_size") or number(own, "merge_size"),
            in_token_limit=number(own, "in_patch_limit") or number(own, "max_patches"),
            side_limit=number(own, "patch_limit_on_one_side") or number(own, "size", "max_height"),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Nothing: vLLM hands this processor no kwargs."""
        return {}

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """``columns x rows`` cells, each one token and one embedding; swapping the sides changes nothing.

        >>> KimiK25().image(1280, 720)
        Count(num_tokens=1196, num_embeds=1196, num_wrapper_tokens=4)
        """
        if not (0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE):
            return no_sides(width, height)
        patches = max(1, width // self.patch_size) * max(1, height // self.patch_size)
        longest = self.side_limit * self.patch_size
        scale = min(1.0, math.sqrt(self.in_token_limit / patches), longest / width, longest / height)
        new_width, new_height = max(1, int(width * scale)), max(1, int(height * scale))
        return self._padded(min(new_width, longest), min(new_height, longest))

    def video(self, info: VideoInfo) -> Count | Refused:
        """Refused: the rule is not known here."""
        return Refused("the rule for clips comes with the model's own code")
