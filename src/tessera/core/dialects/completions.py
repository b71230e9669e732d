"""What does an OpenAI text completion ask?

``prompt`` is a string, an array of strings, an array of token ids, or an array of
such arrays; each string or id list is a prompt of its own with its own prefix.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from tessera.core.dialects.json_body import count_of, name_of, optional_text, read_json
from tessera.core.draft import Draft, DraftPart, DraftText, DraftTokens
from tessera.core.headers import NO_HEADERS
from tessera.core.plugin import Dialect, plugin
from tessera.core.types import ModelProfile

MAX_PROMPTS = 1024
"""Prompts of one request that are looked at; the engine sees them all."""
MAX_CHOICES = 1024


class CompletionBody(msgspec.Struct):
    """The fields of a text completion that a router reads; everything else is skipped unread."""

    model: Any = None
    prompt: Any = None
    stream: Any = None
    max_tokens: Any = None
    n: Any = None
    cache_salt: Any = None
    prompt_embeds: msgspec.Raw = msgspec.Raw()
    add_special_tokens: Any = None
    truncate_prompt_tokens: Any = None


@plugin("completions")
class CompletionsDialect(Dialect):
    """OpenAI's ``/v1/completions``."""

    paths: ClassVar = ("/completions",)

    def parse(self, body: bytes, profile: ModelProfile, headers: Mapping[str, str] = NO_HEADERS) -> Draft:
        """One prompt for each string or id list."""
        completion, guesses = read_json(body, CompletionBody, profile)
        prompts = _prompts(completion.prompt)
        if len(prompts) > MAX_PROMPTS:
            guesses = [*guesses, f"prompts-unread:{len(prompts) - MAX_PROMPTS}"]
        has_embeds = bytes(memoryview(completion.prompt_embeds)[:4]) not in {b"", b"null"}
        if has_embeds:
            guesses = [*guesses, "part-unread:prompt_embeds"]
        return Draft(
            dialect="completions",
            model=name_of(completion.model),
            prompts=prompts[:MAX_PROMPTS],
            stream=completion.stream is True,
            max_output_tokens=count_of(completion.max_tokens),
            num_choices=count_of(completion.n, MAX_CHOICES) or 1,
            cache_salt=optional_text(completion.cache_salt),
            guesses=guesses,
            adds_special_tokens=completion.add_special_tokens is not False,
            unrendered="option" if has_embeds or _changes(completion) else None,
        )


def _changes(completion: CompletionBody) -> bool:
    """Whether an option changes the prompt in a way that is not followed."""
    is_odd = not isinstance(completion.add_special_tokens, bool | None)
    return is_odd or completion.truncate_prompt_tokens is not None


def _prompts(prompt: Any) -> list[list[DraftPart]]:
    if isinstance(prompt, str):
        return [[DraftText(text=prompt)]]
    if not isinstance(prompt, list) or not prompt:
        return []
    if all(type(token) is int for token in prompt):
        return [[DraftTokens(token_ids=prompt)]]
    return [each for item in prompt if isinstance(item, str | list) for each in _prompts_of_item(item)]


def _prompts_of_item(item: str | list[Any]) -> list[list[DraftPart]]:
    if isinstance(item, list) and not all(type(token) is int for token in item):
        return []
    return _prompts(item)
