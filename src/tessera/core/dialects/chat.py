"""What does an OpenAI chat completion ask?

Roles and text parts in prompt order, tool calls with the message they belong to,
media parts as vLLM takes them. Fields of unexpected type are passed over, not
refused: the engine says what it thinks of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import msgspec

from tessera.core.dialects.content_parts import Unread, carries_token_ids, message, pieces_of, sifted, tools_run
from tessera.core.dialects.json_body import (
    count_of,
    encoded,
    list_of,
    media_kwargs,
    name_of,
    optional_text,
    read_json,
    text_of,
)
from tessera.core.draft import Draft, DraftChat, DraftMedia, DraftPart, Undrafted
from tessera.core.headers import NO_HEADERS
from tessera.core.parts import Modality
from tessera.core.plugin import Dialect, plugin
from tessera.core.types import ModelProfile

MAX_CHOICES = 1024


class ChatBody(msgspec.Struct):
    """The fields of a chat completion that a router reads; everything else is skipped unread."""

    model: Any = None
    messages: Any = None
    tools: msgspec.Raw = msgspec.Raw()
    stream: Any = None
    max_completion_tokens: Any = None
    max_tokens: Any = None
    n: Any = None
    cache_salt: Any = None
    session_id: Any = None
    mm_processor_kwargs: Any = None
    media_io_kwargs: Any = None
    multi_modal_uuids: Any = None
    documents: Any = None
    chat_template: Any = None
    chat_template_kwargs: Any = None
    add_generation_prompt: Any = None
    continue_final_message: Any = None
    reasoning_effort: Any = None
    add_special_tokens: Any = None
    truncate_prompt_tokens: Any = None
    kv_transfer_params: Any = None


@plugin("chat")
class ChatDialect(Dialect):
    """OpenAI's ``/v1/chat/completions``, with vLLM's extra media parts.

    ``multi_modal_uuids`` of the body (``{"image": ["a", null]}``) names, in prompt
    order, the items of a modality that have no uuid of their own.
    """

    paths: ClassVar = ("/chat/completions",)

    def parse(self, body: bytes, profile: ModelProfile, headers: Mapping[str, str] = NO_HEADERS) -> Draft:
        """One prompt: the raw tools first, then each message's role, text, tool calls and media."""
        chat, guesses = read_json(body, ChatBody, profile)
        messages = chat.messages if isinstance(chat.messages, list) else []
        found = (part for each in messages if isinstance(each, dict) for part in _message_parts(each))
        parts, unread = sifted(found)
        num_named = _name(parts, chat.multi_modal_uuids)
        processor, io, left_out = media_kwargs(chat.mm_processor_kwargs, chat.media_io_kwargs)
        return Draft(
            dialect="chat",
            model=name_of(chat.model),
            prompts=[[*tools_run(chat.tools), *parts]],
            stream=chat.stream is True,
            max_output_tokens=count_of(chat.max_completion_tokens) or count_of(chat.max_tokens),
            num_choices=count_of(chat.n, MAX_CHOICES) or 1,
            cache_salt=optional_text(chat.cache_salt),
            session_id=optional_text(chat.session_id),
            mm_processor_kwargs=processor,
            media_io_kwargs=io,
            guesses=[*guesses, *unread, *left_out],
            chat=partial(_asked_of_template, chat, messages),
            # An engine that passes the names over calls the items by their hashes.
            unrendered="item-name" if num_named else _unrendered(chat),
        )


def _asked_of_template(chat: ChatBody, messages: list[Any]) -> DraftChat:
    tools = list_of(chat.tools)
    if tools == []:
        raise Undrafted
    return DraftChat(
        messages=messages,
        tools=tools,
        documents=chat.documents,
        chat_template=chat.chat_template,
        chat_template_kwargs=chat.chat_template_kwargs,
        add_generation_prompt=chat.add_generation_prompt,
        continue_final_message=chat.continue_final_message,
        reasoning_effort=chat.reasoning_effort,
    )


def _unrendered(chat: ChatBody) -> str | None:
    """Why the prompt is not its messages alone, or not for certain, where that is so."""
    switches = (chat.add_generation_prompt, chat.continue_final_message, chat.add_special_tokens)
    if not all(isinstance(switch, bool | None) for switch in switches):
        # The engine reads a truth value from many a thing.
        return "option"
    changes = chat.add_special_tokens or chat.truncate_prompt_tokens is not None
    return "option" if changes or carries_token_ids(chat.kv_transfer_params) else None


def _message_parts(each: dict[str, Any]) -> Iterator[DraftPart | Unread]:
    content = each.get("content")
    calls = _tool_calls(each.get("tool_calls"))
    pieces = [content + calls] if isinstance(content, str) else [*pieces_of(content), calls]
    return message(text_of(each.get("role")), pieces)


def _tool_calls(calls: Any) -> str:
    """Names and arguments of an assistant message's tool calls, as the template would print them."""
    if not isinstance(calls, list):
        return ""
    functions = [call.get("function") for call in calls if isinstance(call, dict)]
    names = [(function.get("name"), function.get("arguments")) for function in functions if isinstance(function, dict)]
    return "".join(text_of(name) + _arguments(arguments) for name, arguments in names)


def _arguments(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else encoded(arguments) if arguments is not None else ""


def _name(parts: Iterable[DraftPart], uuids: Any) -> int:
    """Give media without a uuid the one that ``multi_modal_uuids`` has at its place among its modality; how many."""
    if not isinstance(uuids, dict):
        return 0
    lists = {modality: uuids.get(modality) for modality in Modality}
    queues = {modality: iter(names) for modality, names in lists.items() if isinstance(names, list)}
    num_named = 0
    for part in parts:
        if isinstance(part, DraftMedia) and part.modality in queues:
            name = optional_text(next(queues[part.modality], None))
            num_named += part.uuid is None and name is not None
            part.uuid = part.uuid or name
    return num_named
