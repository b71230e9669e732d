"""What is one request to a real engine?"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MODEL = "tiny-qwen3-vl"
"""The name under which the engine serves its model."""
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
_TELLING: dict[str, dict[str, Any]] = {
    MESSAGES: {"max_tokens": 4},
    RESPONSES: {"max_output_tokens": 4, "enable_response_messages": True},
}
"""What makes answers short, and bring the engine's own token ids where they can, to say where two prompts part."""


@dataclass(frozen=True)
class Case:
    """A request whose blocks are predicted, and compared with what the engine stores."""

    name: str
    path: str
    fields: dict[str, Any]
    """The body, but for what every body has."""
    may_decline: bool = False
    """Whether the router may say that it cannot know the tokens; it may never be wrong."""

    @property
    def body(self) -> bytes:
        """The JSON as it is sent."""
        telling = _TELLING.get(self.path, {"max_tokens": 4, "return_token_ids": True})
        shared = {"model": MODEL, "temperature": 0, **telling}
        return json.dumps({**shared, **self.fields}, ensure_ascii=False).encode()


def user(*content: Any, **fields: Any) -> dict[str, Any]:
    """A user's message: one string as a string, anything else as a list of parts."""
    return message("user", *content, **fields)


def message(role: str, *content: Any, **fields: Any) -> dict[str, Any]:
    if len(content) == 1 and (content[0] is None or isinstance(content[0], str)):
        return {"role": role, "content": content[0], **fields}
    return {"role": role, "content": [text(each) if isinstance(each, str) else each for each in content], **fields}


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def chat(name: str, *messages: dict[str, Any], may_decline: bool = False, **fields: Any) -> Case:
    return Case(name, CHAT, {"messages": list(messages), **fields}, may_decline)


def completion(name: str, prompt: str | Sequence[Any], *, may_decline: bool = False, **fields: Any) -> Case:
    return Case(name, COMPLETIONS, {"prompt": prompt, **fields}, may_decline)


def messages(name: str, *messages: dict[str, Any], may_decline: bool = False, **fields: Any) -> Case:
    """A request to Anthropic's Messages API."""
    return Case(name, MESSAGES, {"messages": list(messages), **fields}, may_decline)


def responses(name: str, *items: Any, may_decline: bool = False, **fields: Any) -> Case:
    """A request to OpenAI's Responses API: a string as it is, anything else as a list of items."""
    given = items[0] if len(items) == 1 and isinstance(items[0], str) else list(items)
    return Case(name, RESPONSES, {"input": given, **fields}, may_decline)


def prose(num_sentences: int, seed: int = 0) -> str:
    """Sentences that differ from one another and from seed to seed; about 14 tokens each."""
    things = ("lamp", "kettle", "bridge", "orchard", "window", "violin", "harbour")
    return " ".join(
        f"Item {seed}-{number} is a {things[(number * 5 + seed) % 7]} that weighs {number * number + seed} grams."
        for number in range(num_sentences)
    )
