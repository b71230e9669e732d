"""How many tokens does an image cost in SmolVLM?"""

from typing import Annotated, ClassVar

from tessera.core.plugin import Range, plugin
from tessera.core.pricing.idefics3 import Idefics3
from tessera.core.pricing.sizes import MAX_SIDE


@plugin("smolvlm")
class SmolVLM(Idefics3):
    """SmolVLM and SmolVLM2, 2.2B: the rule of Idefics3 with tiles of 384 pixels and 81 tokens.

    The first SmolVLM has the class of Idefics3: its files say what differs.
    Source: published preprocessor_config.json of HuggingFaceTB/SmolVLM2-2.2B-Instruct.

    >>> SmolVLM().image(1280, 720)
    Count(num_tokens=1083, num_embeds=1053, num_wrapper_tokens=0)
    """

    architectures = frozenset({"SmolVLMForConditionalGeneration"})
    model_names: ClassVar[tuple[str, ...]] = ("smolvlm",)

    longest_edge: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 1536
    """Pixels to which the longer side is scaled (``size.longest_edge``)."""
    max_image_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 384
    """Pixels along a side of one tile (``max_image_size.longest_edge``)."""
    image_seq_len: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 81
    """Embeddings of one tile."""


@plugin("smolvlm-500m", aliases=("smolvlm-256m",))
class SmolVLM500M(SmolVLM):
    """SmolVLM and SmolVLM2, 256M and 500M: the rule of Idefics3 with tiles of 512 pixels and 64 tokens.

    Known by name only: a model's files say the same to ``smolvlm``.

    >>> SmolVLM500M().image(1280, 720)
    Count(num_tokens=862, num_embeds=832, num_wrapper_tokens=0)
    """

    architectures = frozenset()
    model_names = ("smolvlm-256m", "smolvlm-500m", "smolvlm2-256m", "smolvlm2-500m")

    longest_edge: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 2048
    """Pixels to which the longer side is scaled (``size.longest_edge``)."""
    max_image_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 512
    """Pixels along a side of one tile (``max_image_size.longest_edge``)."""
    image_seq_len: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 64
    """Embeddings of one tile."""
