"""What does Anthropic's Messages API ask?

System text first, then each message's blocks in document order, but what tools found
in front of the rest, as the engine has it. Blocks of unknown type and fields of
unexpected type are passed over, not refused.
Source: Anthropic's Messages API; ``entrypoints/anthropic`` of vLLM 0.32 for what it makes of it.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Final

import msgspec

from tessera.core.dialects.content_parts import (
    Piece,
    Unread,
    carries_token_ids,
    link_of_file,
    message,
    sifted,
    tools_run,
)
from tessera.core.dialects.json_body import count_of, encoded, name_of, optional_text, read_json, text_of
from tessera.core.dialects.messages_chat import BILLING_HEADER, messages_of, tools_of
from tessera.core.draft import Draft, DraftChat, DraftMedia, DraftPart, Undrafted
from tessera.core.headers import NO_HEADERS
from tessera.core.parts import Modality
from tessera.core.plugin import Dialect, plugin
from tessera.core.types import ModelProfile

MAX_NESTING: Final = 4
"""Blocks within blocks: a picture in a document in a tool's result is the third."""
_EFFORTS: Final = (None, "low", "medium", "high", "xhigh", "max")


class MessagesBody(msgspec.Struct):
    """The fields of a Messages body that a router reads; everything else is skipped unread."""

    model: Any = None
    system: Any = None
    messages: Any = None
    tools: msgspec.Raw = msgspec.Raw()
    stream: Any = None
    max_tokens: Any = None
    cache_salt: Any = None
    thinking: Any = None
    output_config: Any = None
    chat_template_kwargs: Any = None
    kv_transfer_params: Any = None


@plugin("messages")
class MessagesDialect(Dialect):
    """Anthropic's ``/v1/messages``; ``/v1/messages/count_tokens`` is routed unread."""

    paths: ClassVar = ("/messages",)

    def parse(self, body: bytes, profile: ModelProfile, headers: Mapping[str, str] = NO_HEADERS) -> Draft:
        """One prompt: the raw tools, the system text, then each message's text, calls, results and media."""
        asked, guesses = read_json(body, MessagesBody, profile)
        parts, unread = sifted(_parts(asked))
        return Draft(
            dialect="messages",
            model=name_of(asked.model),
            prompts=[[*tools_run(asked.tools), *parts]],
            stream=asked.stream is True,
            max_output_tokens=count_of(asked.max_tokens),
            cache_salt=optional_text(asked.cache_salt),
            guesses=[*guesses, *unread],
            chat=partial(_chat, asked),
            unrendered="option" if carries_token_ids(asked.kv_transfer_params) else None,
        )


def _chat(asked: MessagesBody) -> DraftChat:
    return DraftChat(
        messages=messages_of(asked.system, asked.messages),
        tools=tools_of(asked.tools),
        chat_template_kwargs=asked.chat_template_kwargs,
        reasoning_effort=_effort(asked.output_config),
        is_thinking_disabled=_is_disabled(asked.thinking),
        merges_systems=True,
    )


def _effort(output_config: Any) -> str | None:
    effort = output_config.get("effort") if isinstance(output_config, dict) else output_config
    if effort not in _EFFORTS:
        raise Undrafted("option")
    return effort


def _is_disabled(thinking: Any) -> bool:
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if thinking is not None and kind not in ("disabled", "enabled", "adaptive"):
        raise Undrafted("option")
    return kind == "disabled"


def _parts(asked: MessagesBody) -> Iterator[DraftPart | Unread]:
    if system := _system(asked.system):
        yield from message("system", system)
    for each in asked.messages if isinstance(asked.messages, list) else ():
        if isinstance(each, dict):
            role, content = text_of(each.get("role")), each.get("content")
            if role == "user" and isinstance(content, list):
                content = sorted(content, key=lambda block: not _is_result(block))
            yield from message(role, _system(content) if role == "system" else _pieces(content))


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _system(content: Any) -> list[Piece]:
    """System text, wherever it stands, without what changes with every request."""
    if isinstance(content, list):
        content = [block for block in content if not _text(block).startswith(BILLING_HEADER)]
    return [piece for piece in _pieces(content) if piece]


def _text(block: Any) -> str:
    return text_of(block.get("text")) if isinstance(block, dict) else text_of(block)


def _pieces(content: Any, depth: int = 1) -> Iterator[Piece]:
    """What a string or a list of blocks holds; blocks nested deeper than ``MAX_NESTING`` are not read."""
    if not isinstance(content, list):
        yield text_of(content)
    elif depth > MAX_NESTING:
        yield Unread("nested")
    else:
        for block in content:
            yield from _block(block, depth) if isinstance(block, dict) else [text_of(block)]


def _block(block: dict[str, Any], depth: int) -> Iterator[Piece]:
    match block.get("type"):
        case "text":
            yield text_of(block.get("text"))
        case "thinking":
            yield text_of(block.get("thinking"))
        case "tool_use":
            given = block.get("input")
            called = encoded(given) if given is not None else ""
            yield text_of(block.get("id")) + text_of(block.get("name")) + called
        case "tool_result" | "search_result":
            yield from _pieces(block.get("content"), depth + 1)
        case "image":
            yield from _image(block.get("source"))
        case "document":
            yield from _document(block.get("source"), depth)


def _image(source: Any) -> Iterator[Piece]:
    """A picture by its URL, by the id of a file that the server keeps, else by its base64."""
    if not isinstance(source, dict):
        return
    match source.get("type"):
        case "url":
            url = source.get("url")
            yield DraftMedia(modality=Modality.IMAGE, url=url if isinstance(url, str) else None)
        case "file":
            yield DraftMedia(modality=Modality.IMAGE, url=link_of_file(source.get("file_id")))
        case _:
            data = source.get("data")
            claim = optional_text(source.get("media_type"))
            yield DraftMedia(modality=Modality.IMAGE, base64=data if isinstance(data, str) else None, format=claim)


def _document(source: Any, depth: int) -> Iterator[Piece]:
    """The words of a document of words; a PDF is neither text nor a picture."""
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "text":
        yield text_of(source.get("data"))
    elif kind == "content":
        yield from _pieces(source.get("content"), depth + 1)
    else:
        yield Unread("document")
