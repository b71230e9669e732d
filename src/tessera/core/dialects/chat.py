"""What does an OpenAI chat completion ask?

Roles and text parts in prompt order, tool calls with the message they belong to,
media parts as vLLM takes them. Parts of unknown type and fields of unexpected
type are passed over, not refused: the engine says what it thinks of them.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from tessera.core.dialects.json_body import (
    bounded_mapping,
    count_of,
    encoded,
    name_of,
    optional_text,
    read_json,
    text_of,
)
from tessera.core.draft import Draft, DraftMedia, DraftPart, DraftText
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


@plugin("chat")
class ChatDialect(Dialect):
    """OpenAI's ``/v1/chat/completions``, with vLLM's extra media parts."""

    paths: ClassVar = ("/chat/completions",)

    def parse(self, body: bytes, profile: ModelProfile) -> Draft:
        """One prompt: the raw tools first, then each message's role, text, tool calls and media."""
        chat, guesses = read_json(body, ChatBody, profile)
        parts: list[DraftPart] = []
        tools = bytes(chat.tools)
        if tools and tools != b"null":
            parts.append(DraftText(text=tools))
        for message in chat.messages if isinstance(chat.messages, list) else ():
            if isinstance(message, dict):
                parts.extend(_message_parts(message))
        kwargs = bounded_mapping(chat.mm_processor_kwargs)
        if isinstance(chat.mm_processor_kwargs, dict) and len(kwargs) < len(chat.mm_processor_kwargs):
            guesses = [*guesses, f"kwargs-unread:{len(chat.mm_processor_kwargs) - len(kwargs)}"]
        return Draft(
            dialect="chat",
            model=name_of(chat.model),
            prompts=[parts],
            stream=chat.stream is True,
            max_output_tokens=count_of(chat.max_completion_tokens) or count_of(chat.max_tokens),
            num_choices=count_of(chat.n, MAX_CHOICES) or 1,
            cache_salt=optional_text(chat.cache_salt),
            session_id=optional_text(chat.session_id),
            mm_processor_kwargs=kwargs,
            guesses=guesses,
        )


def _message_parts(message: dict[str, Any]) -> Iterator[DraftPart]:
    role = text_of(message.get("role"))
    content = message.get("content")
    calls = _tool_calls(message.get("tool_calls"))
    if isinstance(content, str):
        yield DraftText(role=role, text=content + calls)
        return
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and (media := media_part(part)) is not None:
            if role:
                yield DraftText(role=role, text="")
                role = ""
            yield media
        elif text := _part_text(part):
            yield DraftText(role=role, text=text)
            role = ""
    if role or calls:
        yield DraftText(role=role, text=calls)


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return text_of(part)
    return text_of(part.get("text")) or text_of(part.get("refusal")) or text_of(part.get("thinking"))


def _tool_calls(calls: Any) -> str:
    """Names and arguments of an assistant message's tool calls, as the template would print them."""
    if not isinstance(calls, list):
        return ""
    functions = [call.get("function") for call in calls if isinstance(call, dict)]
    names = [(function.get("name"), function.get("arguments")) for function in functions if isinstance(function, dict)]
    return "".join(text_of(name) + _arguments(arguments) for name, arguments in names)


def _arguments(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else encoded(arguments) if arguments is not None else ""


_MEDIA_KEYS = {
    "image_url": Modality.IMAGE,
    "video_url": Modality.VIDEO,
    "audio_url": Modality.AUDIO,
}


def media_part(part: dict[str, Any]) -> DraftMedia | None:
    """The media of a content part, if it is one that vLLM takes.

    The kind is chosen by which key exists, as vLLM does, so a part without
    ``type`` counts too, and so does a URL given as a plain string.
    """
    uuid = optional_text(part.get("uuid"))
    for key, modality in _MEDIA_KEYS.items():
        if key in part:
            value = part[key]
            url = value.get("url") if isinstance(value, dict) else value
            return DraftMedia(modality=modality, url=url if isinstance(url, str) else None, uuid=uuid)
    if "input_audio" in part:
        audio = part["input_audio"]
        data = audio.get("data") if isinstance(audio, dict) else None
        kind = audio.get("format") if isinstance(audio, dict) else None
        return DraftMedia(
            modality=Modality.AUDIO,
            base64=data if isinstance(data, str) else None,
            format=optional_text(kind),
            uuid=uuid,
        )
    return None
