"""How many tokens does an image cost in Mistral Small 3.x and its successors?"""

from typing import Annotated

from tessera.core.family import ModelFiles, number, section
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.pixtral import Pixtral
from tessera.core.pricing.sizes import MAX_SIDE


@plugin("mistral-small-3")
class MistralSmall3(Pixtral):
    """Mistral Small 3.1 and 3.2, Ministral 3, Mistral Large 3: Pixtral's rule with tokens of 28 x 28 pixels.

    Source: published params.json and preprocessor_config.json of Mistral Small 3.1.

    >>> MistralSmall3().image(1280, 720).num_tokens, MistralSmall3().image(1, 1).num_tokens
    (1222, 2)
    >>> MistralSmall3().image(2602, 2649).num_tokens, MistralSmall3(rounding="round").image(2602, 2649).num_tokens
    (3025, 3080)
    """

    architectures = frozenset({"Mistral3ForConditionalGeneration"})
    model_names = ("mistral-small-3", "magistral-small", "ministral-3", "mistral-large-3")

    patch_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 14
    """Pixels along a side of one encoder patch."""
    spatial_merge_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 2
    """Patches along a side that are merged into one token."""
    longest_edge: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 1540
    """Pixels of the longer side that are not shrunk."""

    @classmethod
    def matches(cls, files: ModelFiles) -> bool:
        """Mistral's class of the third generation, or a params.json whose encoder merges patches."""
        merge = number(section(files.params, "vision_encoder"), "spatial_merge_size") or 1
        return bool(cls.architectures.intersection(files.architectures)) or (not files.architectures and merge > 1)
