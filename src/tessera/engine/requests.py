"""What is an engine asked? A prompt as segments whose content has a name, and how much to generate."""

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class TextSegment:
    """A run of prompt text. Two prompts share it where all before it is the same too.

    Raises:
        ValueError: it has no tokens.
    """

    key: int
    """Stands for the content, 64 bits: the same content has the same key and the same number of tokens."""
    num_tokens: int
    """At least 1."""

    def __post_init__(self) -> None:
        if self.num_tokens < 1:
            raise ValueError(f"a text segment of {self.num_tokens} tokens, expected at least 1")

    @property
    def content(self) -> tuple[int | str, int]:
        """What the KV cache compares."""
        return self.key, self.num_tokens


@dataclass(frozen=True, slots=True)
class MediaSegment:
    """One picture, clip or sound of a prompt.

    Raises:
        ValueError: it has no tokens or no embeddings, or a negative size.
    """

    identifier: str
    """What the caches call it: the same content has the same identifier."""
    num_tokens: int
    """Prompt positions, the processor's own markers included; at least 1."""
    num_embeds: int
    """Rows that the encoder computes and its cache stores; at least 1."""
    width: int = 0
    """Pixels as sent, before the processor resizes; 0 for a sound."""
    height: int = 0
    num_bytes: int = 0
    """What the processor cache stores; 0: derived from pixels and embeddings (``costs.processed_bytes``)."""
    num_frames: int = 1
    """Frames that the processor samples from a clip; 1 for a picture or a sound."""

    def __post_init__(self) -> None:
        if self.num_tokens < 1 or self.num_embeds < 1 or self.num_frames < 1:
            raise ValueError(
                f"a media segment of {self.num_tokens} tokens, {self.num_embeds} embeddings and "
                f"{self.num_frames} frames, expected at least 1 of each"
            )
        if min(self.width, self.height, self.num_bytes) < 0:
            raise ValueError(f"a media segment of {self.width}x{self.height} and {self.num_bytes} bytes")

    @property
    def content(self) -> tuple[int | str, int]:
        """What the KV cache compares."""
        return self.identifier, self.num_tokens


Segment = TextSegment | MediaSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What of a request another server has done, or will go on with.

    Raises:
        ValueError: a number below 0.
    """

    fetched: frozenset[str] = frozenset()
    """Identifiers of items whose embeddings lie elsewhere: they are read from there instead of being encoded."""
    bare: frozenset[str] = frozenset()
    """Identifiers of items that came without content: nothing to process, nothing to encode."""
    num_remote_tokens: int = 0
    """First tokens of the prompt whose KV a peer keeps: it is pulled, beyond what the own cache has."""
    kv_lease_s: float | None = None
    """How long the prompt's KV is kept behind the answer for a peer to pull; nothing: not at all."""

    def __post_init__(self) -> None:
        if self.num_remote_tokens < 0 or (self.kv_lease_s or 0) < 0:
            raise ValueError(
                f"a handover of {self.num_remote_tokens} tokens and a lease of {self.kv_lease_s} s, expected 0 or more"
            )


ALONE: Final = Handover()
"""One server does all of it."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A request as an engine sees it. It generates exactly ``num_output_tokens`` for each choice.

    One that only encodes generates nothing and is done when its items are encoded.

    Raises:
        ValueError: an empty prompt, or nothing to generate.
    """

    request_id: str
    """Unlike that of any other request that the engine still has."""
    segments: tuple[Segment, ...]
    """In prompt order, at least one."""
    num_output_tokens: int
    """Of each choice, at least 1."""
    num_choices: int = 1
    """Answers to the same prompt (``n``): each is a sequence of its own in the batch; at least 1."""
    handover: Handover = ALONE
    """What others do of it."""
    num_prompt_tokens: int = field(init=False)
    """Sum over the segments."""

    def __post_init__(self) -> None:
        if not self.segments:
            raise ValueError(f"request {self.request_id} has an empty prompt")
        if self.num_output_tokens < 1 or self.num_choices < 1:
            raise ValueError(
                f"request {self.request_id} asks for {self.num_choices} answers of {self.num_output_tokens} "
                "tokens, expected at least 1 of each"
            )
        object.__setattr__(self, "num_prompt_tokens", sum(segment.num_tokens for segment in self.segments))
