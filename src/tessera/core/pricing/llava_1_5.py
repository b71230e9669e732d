"""How many tokens does an image cost in LLaVA 1.5?"""

from typing import Annotated, Any, Literal

from tessera.core.family import Count, Family, ModelFiles, Refused, known, section
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.sizes import MAX_SIDE, NO_AREA, side, square

Strategy = Literal["default", "full"]
"""Which rows of the encoder are used: all but the first, or all."""


@plugin("llava-1.5")
class Llava15(Family):
    """LLaVA 1.5, and every model of its class around a CLIP or SigLIP encoder: a constant.

    Source: config.json and processor_config.json of llava-hf/llava-1.5-7b-hf;
    transformers 5.18.0, LlavaProcessor.
    """

    architectures = frozenset({"LlavaForConditionalGeneration"})
    model_names = ("llava-1.5", "llava-v1.5")

    image_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 336
    """Pixels along a side of what the encoder sees."""
    patch_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 14
    """Pixels along a side of one encoder patch."""
    num_additional_image_tokens: Annotated[int, Range(ge=0, le=1)] = 1
    """Rows of the encoder that are no patch: 1 for CLIP's class token, 0 for SigLIP."""
    vision_feature_select_strategy: Strategy = "default"
    """``default`` leaves out the encoder's first row, ``full`` uses all."""

    @classmethod
    def matches(cls, files: ModelFiles) -> bool:
        """LLaVA's class, unless its encoder is Pixtral's."""
        return super().matches(files) and files.vision.get("model_type") != "pixtral"

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """``vision_config`` and the strategy of config.json, else the processor's files."""
        return known(
            image_size=side(files.vision, "image_size") or square(files.image, "crop_size"),
            patch_size=side(files.vision, "patch_size") or side(files.processor, "patch_size"),
            num_additional_image_tokens=num_additional_image_tokens(files),
            vision_feature_select_strategy=select_strategy(files),
        )

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """The patches of one square, whatever the image's size.

        >>> Llava15().image(1280, 720)
        Count(num_tokens=576, num_embeds=576, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        rows = (self.image_size // self.patch_size) ** 2 + self.num_additional_image_tokens
        used = max(1, rows - (self.vision_feature_select_strategy == "default"))
        return Count(num_tokens=used, num_embeds=used)


def select_strategy(files: ModelFiles) -> Strategy | None:
    """Which rows of the encoder are used, as config.json or processor_config.json says."""
    for each in (files.config, files.processor):
        match each.get("vision_feature_select_strategy"):
            case "default":
                return "default"
            case "full":
                return "full"
    return None


def num_additional_image_tokens(files: ModelFiles) -> int | None:
    """Rows of the encoder that are no patch, by the kind of encoder, else as the processor's file says."""
    by_encoder = {"clip_vision_model": 1, "siglip_vision_model": 0}
    model_type = section(files.config, "vision_config").get("model_type")
    if isinstance(model_type, str) and model_type in by_encoder:
        return by_encoder[model_type]
    said = files.processor.get("num_additional_image_tokens")
    return said if said in (0, 1) and isinstance(said, int) else None
