"""What does OpenAI's Responses API ask?

``input`` is a string or a list of items: messages, calls and their outputs, earlier
reasoning. What a server keeps for the client (``previous_response_id``, references)
is in the prompt too, but not in the body: a guess says so.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Final

import msgspec

from tessera.core.dialects.content_parts import (
    Piece,
    Unread,
    carries_token_ids,
    message,
    piece_of,
    pieces_of,
    sifted,
    tools_run,
)
from tessera.core.dialects.json_body import (
    count_of,
    encoded,
    media_kwargs,
    name_of,
    optional_text,
    read_json,
    text_of,
)
from tessera.core.dialects.responses_chat import is_continued, messages_of, tools_of
from tessera.core.draft import Draft, DraftChat, DraftPart, Undrafted
from tessera.core.headers import NO_HEADERS
from tessera.core.plugin import Dialect, plugin
from tessera.core.types import ModelProfile

_EFFORTS: Final = (None, "none", "minimal", "low", "medium", "high", "xhigh", "max")


class ResponsesBody(msgspec.Struct):
    """The fields of a Responses body that a router reads; everything else is skipped unread."""

    model: Any = None
    input: Any = None
    instructions: Any = None
    tools: msgspec.Raw = msgspec.Raw()
    stream: Any = None
    max_output_tokens: Any = None
    cache_salt: Any = None
    previous_response_id: Any = None
    previous_input_messages: Any = None
    conversation: Any = None
    reasoning: Any = None
    truncation: Any = "disabled"
    chat_template_kwargs: Any = None
    kv_transfer_params: Any = None
    mm_processor_kwargs: Any = None
    media_io_kwargs: Any = None


@plugin("responses")
class ResponsesDialect(Dialect):
    """OpenAI's ``/v1/responses``."""

    paths: ClassVar = ("/responses",)

    def parse(self, body: bytes, profile: ModelProfile, headers: Mapping[str, str] = NO_HEADERS) -> Draft:
        """One prompt: the raw tools, the instructions, then each item of ``input``."""
        asked, guesses = read_json(body, ResponsesBody, profile)
        parts, unread = sifted(_parts(asked))
        processor, io, left_out = media_kwargs(asked.mm_processor_kwargs, asked.media_io_kwargs)
        if asked.previous_response_id is not None or asked.conversation is not None:
            guesses = [*guesses, "conversation-unread"]
        return Draft(
            dialect="responses",
            model=name_of(asked.model),
            prompts=[[*tools_run(asked.tools), *parts]],
            stream=asked.stream is True,
            max_output_tokens=count_of(asked.max_output_tokens),
            cache_salt=optional_text(asked.cache_salt),
            mm_processor_kwargs=processor,
            media_io_kwargs=io,
            guesses=[*guesses, *unread, *left_out],
            chat=partial(_chat, asked),
            adds_special_tokens=True,
            unrendered=_unrendered(asked),
        )


def _chat(asked: ResponsesBody) -> DraftChat:
    continues = is_continued(asked.input)
    return DraftChat(
        messages=messages_of(asked.instructions, asked.input),
        tools=tools_of(asked.tools),
        chat_template_kwargs=asked.chat_template_kwargs,
        add_generation_prompt=not continues,
        continue_final_message=continues,
        reasoning_effort=_effort(asked.reasoning),
        has_ordered_calls=False,
    )


def _effort(reasoning: Any) -> str | None:
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else reasoning
    if effort not in _EFFORTS:
        raise Undrafted("option")
    return effort


def _unrendered(asked: ResponsesBody) -> str | None:
    """Why the prompt is not the body's items alone, where it is not."""
    kept = (asked.previous_response_id, asked.conversation, asked.previous_input_messages)
    if any(each is not None for each in kept) or asked.truncation != "disabled":
        return "option"
    return "option" if carries_token_ids(asked.kv_transfer_params) else None


def _parts(asked: ResponsesBody) -> Iterator[DraftPart | Unread]:
    if instructions := text_of(asked.instructions):
        yield from message("system", [instructions])
    if isinstance(asked.input, str):
        yield from message("user", [asked.input])
        return
    previous = ""
    for item in asked.input if isinstance(asked.input, list) else ():
        if isinstance(item, dict):
            role, pieces = _item(item)
            # The engine makes one message of an assistant's reasoning, words and calls.
            yield from message("" if role == previous == "assistant" else role, pieces)
            previous = role


def _item(item: dict[str, Any]) -> tuple[str, Iterable[Piece]]:
    """The role that an item has in the prompt, and what it holds."""
    kind = text_of(item.get("type"))
    if kind in {"", "message"}:
        return text_of(item.get("role")), pieces_of(item.get("content"))
    if kind == "reasoning":
        return "assistant", _reasoning(item)
    if kind in {"function_call", "custom_tool_call", "mcp_call"}:
        return "assistant", [text_of(item.get("name")), _argument(item), text_of(item.get("output"))]
    if kind.endswith("_call_output"):
        output = item.get("output")
        return "tool", [piece_of(output)] if isinstance(output, dict) else pieces_of(output)
    return "", [Unread("item")]


def _argument(item: dict[str, Any]) -> str:
    given = item.get("arguments", item.get("input"))
    return given if isinstance(given, str) else encoded(given) if given is not None else ""


def _reasoning(item: dict[str, Any]) -> list[Piece]:
    """The words of earlier reasoning, else of its summary; what is encrypted is no text."""
    words = [piece for piece in pieces_of(item.get("content")) if piece]
    return words or list(pieces_of(item.get("summary")))
