"""How many tokens is the text of a request? What the tokenizer counted, else a quarter of its bytes, as llm-d says."""

from tessera.core.parts import MediaItem, Prompt, TextPart, TokenPart
from tessera.core.types import Basis, InferenceRequest

BYTES_PER_TOKEN = 4


def num_text_tokens(request: InferenceRequest) -> tuple[int, Basis]:
    """Text tokens of all prompts, media left out, and how well they are known.

    Exact where every run of text was counted by the model's tokenizer, and for token
    ids. Otherwise ``ceil(bytes / 4)`` over each stretch of text between two media
    items, because llm-d pads its stream to whole tokens where a media item begins.
    """
    texts = [part for prompt in request.prompts for part in prompt if isinstance(part, TextPart)]
    counted = [part.num_tokens for part in texts if part.num_tokens is not None]
    if len(counted) == len(texts):
        ids = sum(part.num_tokens for prompt in request.prompts for part in prompt if isinstance(part, TokenPart))
        return sum(counted) + ids, Basis.EXACT
    return sum(_prompt_tokens(prompt) for prompt in request.prompts), Basis.DEFAULT


def num_text_bytes(request: InferenceRequest) -> int:
    """UTF-8 bytes of all text."""
    return sum(part.num_bytes for prompt in request.prompts for part in prompt if isinstance(part, TextPart))


def _prompt_tokens(prompt: Prompt) -> int:
    total = 0
    stretch = 0
    for part in prompt:
        if isinstance(part, MediaItem):
            total += -(-stretch // BYTES_PER_TOKEN)
            stretch = 0
        elif isinstance(part, TokenPart):
            total += part.num_tokens
        else:
            stretch += part.num_bytes
    return total + -(-stretch // BYTES_PER_TOKEN)
