"""What is a prompt made of? Text, token ids and media items, as far as a router keeps them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Modality(StrEnum):
    """What kind of media an item is."""

    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """A run of prompt text: its length and the digests that identify it."""

    num_bytes: int
    """UTF-8 bytes of the run, role included."""
    num_tokens: int | None = None
    """What the model's tokenizer counts, where there is one."""
    digests: bytes = b""
    """xxh3 64-bit digests of its 64-byte chunks, 8 little-endian bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPart:
    """A run of prompt token ids that the client sent as numbers."""

    num_tokens: int
    digests: bytes = b""
    """One xxh3 64-bit digest for each 16 ids, 8 little-endian bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaItem:
    """One picture, clip or sound of a request, as far as its bytes' headers tell."""

    modality: Modality
    format: str | None
    """``png``, ``jpeg``, ``mp4``, ``wav``, ...; nothing where the bytes are unknown or absent."""
    identifier: str
    """What the engine will call it: the client's uuid, else a hash of the content, else of the URL."""
    is_identity_exact: bool = False
    """Whether the identifier is letter for letter the engine's own; else it is only ours."""
    uuid: str | None = None
    url_key: str | None = None
    """A hash of the URL where the item is only a link."""
    has_content: bool = True
    """Whether the request carries the bytes."""
    width: int | None = None
    """Pixels, as displayed."""
    height: int | None = None
    duration_s: float | None = None
    num_frames: int | None = None
    sample_rate: int | None = None
    """Samples a second, of a sound."""
    num_channels: int | None = None
    num_bytes: int = 0
    """Length of the decoded content, 0 for a link."""
    num_tokens_declared: int | None = None
    """Prompt positions that a client which sends token ids says the item takes; never more than the ids it sent."""
    reason: str | None = None
    """Why the size is not known, where it is not."""
    is_respelled: bool = False
    """Whether an item of this identifier came before, and none that was written like this one: another link to
    the same, the same bytes in another base64. Who hashes no content takes it for an item of its own."""


class TextTokens(Protocol):
    """Counts the tokens of a text; thread-safe."""

    def count(self, text: str) -> int | None:
        """Tokens of ``text``; nothing where they cannot be counted."""


Part = TextPart | TokenPart | MediaItem
Prompt = tuple[Part, ...]
