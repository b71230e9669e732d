"""What does a picture cost in PaliGemma?"""

from typing import Annotated, Any, ClassVar

from tessera.core.family import Count, Family, ModelFiles, Refused, known, number
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.sizes import NO_AREA


@plugin("paligemma")
class PaliGemma(Family):
    """PaliGemma and PaliGemma 2: 256, 1,024 or 4,096 tokens a picture, for the models of 224, 448 and 896 pixels.

    Source: transformers 5.18.0, PaliGemmaProcessor; vLLM 0.32.0, paligemma.py.
    """

    image_seq_length: Annotated[int, Range(ge=1)] = 256
    """Embeddings of a picture: ``(image_size / patch_size) ** 2``."""

    needs_processor: ClassVar[bool] = False
    architectures: ClassVar[frozenset[str]] = frozenset({"PaliGemmaForConditionalGeneration"})
    model_names: ClassVar[tuple[str, ...]] = ("paligemma",)

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """The patches of ``vision_config``, else what the processor's file says.

        >>> PaliGemma.from_files(ModelFiles(config={"vision_config": {"image_size": 448, "patch_size": 14}}))
        {'image_seq_length': 1024}
        """
        size, patch = number(files.vision, "image_size"), number(files.vision, "patch_size")
        grid = size // patch if size and patch else 0
        return known(
            image_seq_length=grid * grid
            or number(files.processor, "image_seq_length")
            or number(files.image, "image_seq_length")
        )

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """The same for every picture.

        >>> PaliGemma().image(1280, 720)
        Count(num_tokens=256, num_embeds=256, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        return Count(num_tokens=self.image_seq_length, num_embeds=self.image_seq_length)
