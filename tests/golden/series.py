"""What is one series of golden vectors, and which rule must meet it?"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Series:
    """All cases under ``key`` of ``file``, which ``family_type`` with ``overrides`` must count exactly."""

    file: str
    """Name of the golden file, without ``.json``."""
    key: str
    """Where the cases stand in it."""
    family_type: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the series, where they are not the family's published ones."""
    kind: Literal["image", "video", "audio"] = "image"
    num_images: int = 1
    """Images of the prompt."""
    tokens: str = "tokens"
    """The key of a case that holds the prompt tokens; a case without it is checked for its embeddings alone."""
    embeds: str = "embeds"
    """The key of a case that holds the encoder rows, where it has them."""
    constant_tokens: int | None = None
    """Prompt tokens of every case, where the file does not say them."""

    @property
    def name(self) -> str:
        """What pytest calls it."""
        return "-".join([self.file, self.key, self.family_type] + ([self.tokens] if self.tokens != "tokens" else []))
