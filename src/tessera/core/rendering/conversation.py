"""What does vLLM hand to a chat template for these messages?

Media become ``{"type": "image"}`` and the like, or their placeholder's text where the
template takes strings; tool calls' arguments become objects; everything else that a
client may write on a message is dropped. A shape that the engine would refuse, or that
is not followed here, is Unrendered: its prompt is not guessed.

Source: vLLM 0.32, ``renderers/chat_utils.py`` and ``renderers/hf.py``, read and run.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tessera.core.parts import Modality
from tessera.core.rendering.unrendered import Reason, Unrendered

BILLING_HEADER: Final = "x-anthropic-billing-header"
"""System text that begins so loses its first line: it holds a number that changes with every request."""

_TEXT_KEYS: Final = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
_MEDIA: Final = {
    "image_url": Modality.IMAGE,
    "input_image": Modality.IMAGE,
    "image_embeds": Modality.IMAGE,
    "audio_embeds": Modality.AUDIO,
    "video_embeds": Modality.VIDEO,
    "audio_url": Modality.AUDIO,
    "input_audio": Modality.AUDIO,
    "video_url": Modality.VIDEO,
}
_BY_KEY: Final = (
    *("image_url", "image_embeds", "audio_embeds", "video_embeds", "audio_url", "input_audio", "video_url"),
)
"""The order in which the engine looks for a key where a part has no type, or a uuid."""
_NOT_FOLLOWED: Final = frozenset({"image_pil", "prompt_embeds", "tool_reference"})
_PART_FIELDS: Final = frozenset(
    {"type", "text", "refusal", "thinking", "closed", "name", "uuid", "data", "file", "image_pil"}
    | {"prompt_cache_breakpoint", *_BY_KEY}
)
"""Fields that the engine knows of some kind of part; others, ``detail`` too, reach the template as they are."""

Message = dict[str, Any]


def conversation(
    messages: Sequence[Any],
    *,
    wraps_parts: bool,
    placeholders: Mapping[Modality, str],
    knows_developer: bool,
    orders_calls: bool = True,
) -> list[Message]:
    """The messages as a template sees them.

    Args:
        messages: a chat completion's.
        wraps_parts: whether contents are lists of parts (``ChatTemplate.wraps_parts``); else one string each.
        placeholders: what stands for an item of a modality in such a string.
        knows_developer: whether the template speaks of the role ``developer``.
        orders_calls: whether the fields of tool calls are put in the engine's order.

    Raises:
        Unrendered: with ``Reason.MESSAGE``.
    """
    if not messages:
        raise Unrendered(Reason.MESSAGE)
    made = [_message(each, placeholders if not wraps_parts else None, orders_calls=orders_calls) for each in messages]
    if not knows_developer and any(each["role"] == "developer" for each in made):
        return _one_system([_system(each) if each["role"] == "developer" else each for each in made])
    return made


def tool_definitions(tools: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    """The request's ``tools`` as the engine hands them to a template; nothing for none.

    Raises:
        Unrendered: a tool of another kind than a function.
    """
    return None if tools is None else [_tool(each) for each in tools]


def _tool(tool: Any) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type", "function") == "function" else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Unrendered(Reason.MESSAGE)
    if tool.get("defer_loading") is not None or function.get("defer_loading") is not None:
        raise Unrendered(Reason.OPTION)
    made = {key: function.get(key) for key in ("name", "description", "parameters")}
    kinds = {"description": str, "parameters": dict, "strict": bool}
    if any(function.get(key) is not None and not isinstance(function[key], kind) for key, kind in kinds.items()):
        # The engine refuses it, or reads a truth value from it.
        raise Unrendered(Reason.MESSAGE)
    if function.get("strict") is not None:
        made["strict"] = function["strict"]
    return {"type": "function", "function": made}


def _message(message: Any, placeholders: Mapping[Modality, str] | None, *, orders_calls: bool) -> Message:
    """One message; ``placeholders`` where its content is to be a string."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Unrendered(Reason.MESSAGE)
    role = message["role"]
    parts = _parts(message.get("content"))
    if role == "system":
        parts = list(_without_billing(parts))
    pieces = [piece for part in parts if (piece := _piece(part)) is not None]
    made: Message = {"role": role, "content": pieces if placeholders is None else _string(pieces, placeholders)}
    if role == "assistant":
        made.update(_of_assistant(message, orders_calls=orders_calls))
    elif role == "tool":
        made["content"] = _of_tool(made["content"])
        if "tool_call_id" in message:
            made["tool_call_id"] = message["tool_call_id"]
    elif role == "developer":
        made["tools"] = message.get("tools")
    for key in ("name", "task"):
        if isinstance(message.get(key), str):
            made[key] = message[key]
    return made


def _parts(content: Any) -> list[Any]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return content
    raise Unrendered(Reason.MESSAGE)


def _without_billing(parts: Sequence[Any]) -> Iterator[Any]:
    for part in parts:
        is_text = isinstance(part, dict) and part.get("type") == "text"
        text = part if isinstance(part, str) else part.get("text") if is_text else None
        if not isinstance(text, str) or not text.startswith(BILLING_HEADER):
            yield part
        elif rest := text.partition("\n")[2]:
            yield rest if isinstance(part, str) else {**part, "text": rest}


def _piece(part: Any) -> dict[str, Any] | None:
    """A part as a template that takes lists sees it; nothing for a text of nothing."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        raise Unrendered(Reason.MESSAGE)
    kind = part.get("type")
    if kind is None or part.get("uuid") is not None:
        kind = next((key for key in _BY_KEY if key in part), None)
    if not isinstance(kind, str):
        raise Unrendered(Reason.MESSAGE)
    further = {key: value for key, value in part.items() if key not in _PART_FIELDS}
    if kind in _MEDIA and not _NOT_FOLLOWED & part.keys():
        return {"type": _MEDIA[kind].value, **further}
    if kind not in _TEXT_KEYS:
        raise Unrendered(Reason.MESSAGE)
    text = part.get(_TEXT_KEYS[kind])
    if text is None and kind in ("text", "refusal"):
        return None
    if not isinstance(text, str):
        raise Unrendered(Reason.MESSAGE)
    return {"type": "text", "text": text, **further}


def _string(pieces: Sequence[dict[str, Any]], placeholders: Mapping[Modality, str]) -> str:
    """The texts that say anything, and in front of them the placeholders that the client has not written itself."""
    text = "\n".join(piece["text"] for piece in pieces if piece["type"] == "text" and piece["text"])
    media = [Modality(piece["type"]) for piece in pieces if piece["type"] != "text"]
    if any(modality not in placeholders for modality in media):
        raise Unrendered(Reason.ITEM_LAYOUT)
    # By modality, in the order in which each comes first.
    missing = list[str]()
    for placeholder, count in Counter(placeholders[each] for each in sorted(media, key=media.index)).items():
        num_written = text.count(placeholder)
        if num_written > count:
            raise Unrendered(Reason.PLACEHOLDERS)
        missing += [placeholder] * (count - num_written)
    return "\n".join([*missing, text] if text else missing)


def _of_tool(content: Any) -> Any:
    """A tool's result: one string where it is text alone."""
    if isinstance(content, str) or any(piece["type"] != "text" for piece in content):
        return content
    return "\n".join(piece["text"] for piece in content)


def _of_assistant(message: Mapping[str, Any], *, orders_calls: bool) -> Iterator[tuple[str, Any]]:
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise Unrendered(Reason.MESSAGE)
    if calls:
        yield "tool_calls", [_call(each, orders_fields=orders_calls) for each in calls]
    reasoning = message.get("reasoning")
    reasoning = message.get("reasoning_content") if reasoning is None else reasoning
    if reasoning is not None:
        yield "reasoning", reasoning
        yield "reasoning_content", reasoning


def _call(call: Any, *, orders_fields: bool) -> dict[str, Any]:
    """A tool call, its arguments as an object; with ``orders_fields`` its fields in the engine's order."""
    function = call.get("function") if isinstance(call, dict) and call.get("type", "function") == "function" else None
    if not isinstance(function, dict):
        raise Unrendered(Reason.MESSAGE)
    named = {**function, "arguments": _arguments(function.get("arguments"))}
    if not orders_fields:
        return {**call, "function": named}
    return _in_order({**call, "function": _in_order(named, "arguments", "name")}, "id", "function", "type")


def _in_order(given: Mapping[str, Any], *first: str) -> dict[str, Any]:
    """The same with the fields of a schema first, as far as they are there."""
    return {key: given[key] for key in first if key in given} | dict(given)


def _arguments(given: Any) -> dict[str, Any]:
    """What the engine makes of anything but a JSON object is an empty one."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return {}
    return given if isinstance(given, dict) else {}


def _system(message: Message) -> Message:
    return {key: "system" if key == "role" else value for key, value in message.items() if key != "tools"}


def _one_system(messages: list[Message]) -> list[Message]:
    """All system messages as one, in front, where one of them stands elsewhere."""
    places = [index for index, each in enumerate(messages) if each["role"] == "system"]
    if places in ([], [0]):
        return messages
    contents = [_joined(messages[index]["content"]) for index in places]
    merged = {"role": "system", "content": "\n\n".join(filter(None, contents))}
    return [merged, *(each for each in messages if each["role"] != "system")]


def _joined(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(piece["text"] for piece in content if "text" in piece)
