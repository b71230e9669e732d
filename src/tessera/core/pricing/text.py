"""How many tokens is the text of a request? A quarter of its bytes, as llm-d counts."""

from tessera.core.parts import MediaItem, Prompt, TokenPart
from tessera.core.types import InferenceRequest

BYTES_PER_TOKEN = 4


def num_text_tokens(request: InferenceRequest) -> int:
    """Text tokens of all prompts, media left out; client-sent token ids count as they are.

    ``ceil(bytes / 4)`` over each stretch of text between two media items, because
    llm-d pads its stream to whole tokens where a media item begins.
    """
    return sum(_prompt_tokens(prompt) for prompt in request.prompts)


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
