"""Which chat does the engine make of the items of a Responses request?

An assistant's reasoning, words and calls that follow one another become one message,
as long as it has none of the kind yet. What the engine refuses is Undrafted.

Source: vLLM 0.32, ``entrypoints/openai/responses``, read and run.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from tessera.core.dialects.json_body import list_of
from tessera.core.draft import Undrafted

_ROLES: Final = ("user", "system", "developer")
_OPEN: Final = ("in_progress", "incomplete")
_PAYLOAD: Final = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The freeform text payload for this tool."}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The parameters of the function as which the engine shows a tool of free text."""

Message = dict[str, Any]


def messages_of(instructions: Any, given: Any) -> list[Message]:
    """A chat completion's messages.

    Raises:
        Undrafted: the engine refuses them, or they are not followed here.
    """
    made: list[Message] = []
    if instructions:
        made.append({"role": "system", "content": _string(instructions)})
    if isinstance(given, str):
        return [*made, {"role": "user", "content": given}]
    for item in _listed(given):
        _add(made, item)
    return made


def is_continued(given: Any) -> bool:
    """Whether the last item is a message that its author has not ended, which the answer continues."""
    last = given[-1] if isinstance(given, list) and given else None
    if not isinstance(last, dict) or last.get("type", "message") not in ("message", "reasoning"):
        return False
    return last.get("status") in _OPEN


def tools_of(raw: msgspec.Raw) -> list[dict[str, Any]] | None:
    """A chat completion's tools; nothing for none.

    Raises:
        Undrafted: the engine refuses them, or they are of a kind that is not followed here.
    """
    tools = list_of(raw)
    if tools is None and raw:
        raise Undrafted
    return [shown for each in tools for shown in _shown(each)] if tools else None


def _shown(tool: Any) -> Iterator[dict[str, Any]]:
    match tool:
        case {"type": "function"}:
            keys = ("name", "description", "parameters", "strict", "defer_loading")
            yield {"type": "function", "function": {key: tool.get(key) for key in keys}}
        case {"type": "custom", "name": name} if tool.get("format") in (None, {"type": "text"}):
            function = {"name": name, "description": tool.get("description"), "parameters": _PAYLOAD}
            yield {"type": "function", "function": {**function, "defer_loading": tool.get("defer_loading")}}
        case {"type": str() as kind} if kind not in ("custom", "namespace"):
            # Searches and the like, which no template sees.
            pass
        case _:
            raise Undrafted


def _add(made: list[Message], item: Any) -> None:
    """Put an item behind the messages, or into the last of them."""
    if not isinstance(item, dict):
        raise Undrafted
    match item.get("type", "message"):
        case "message" if item.get("role") == "assistant":
            _fill(made, "content", _words(item.get("content")))
        case "message" if item.get("role") in _ROLES:
            made.append({**item, "content": _content(item.get("content"))})
        case "reasoning":
            _fill(made, "reasoning", _reasoning(item))
        case "function_call":
            _call(made, item, _string(item.get("arguments")))
        case "custom_tool_call":
            _call(made, item, {"input": _string(item.get("input"))})
        case "function_call_output" | "custom_tool_call_output":
            content = _content(item.get("output"), has_default_detail=False)
            made.append({"role": "tool", "content": content, "tool_call_id": item.get("call_id")})
        case _:
            raise Undrafted


def _fill(made: list[Message], key: str, text: str) -> None:
    """The text in the last message, where that is an assistant's without one; else in a message of its own."""
    if made and made[-1]["role"] == "assistant" and made[-1].get(key) is None:
        made[-1][key] = text
    else:
        made.append({"role": "assistant", key: text})


def _call(made: list[Message], item: Message, arguments: Any) -> None:
    if item.get("namespace") is not None:
        raise Undrafted
    function = {"name": _string(item.get("name")), "arguments": arguments}
    call = {"id": _string(item.get("call_id")), "function": function, "type": "function"}
    if not made or made[-1]["role"] != "assistant":
        made.append({"role": "assistant"})
    made[-1].setdefault("tool_calls", []).append(call)


def _words(content: Any) -> str:
    """Of an assistant's message of several parts the engine takes the first."""
    if isinstance(content, str):
        return content
    first = _listed(content)[0] if content else None
    if not isinstance(first, dict) or first.get("type") not in ("output_text", "input_text"):
        raise Undrafted
    return _string(first.get("text"))


def _reasoning(item: Message) -> str:
    """The first words of earlier reasoning, else of its summary."""
    if item.get("encrypted_content"):
        raise Undrafted
    summary = _texts(item.get("summary"), "summary_text")
    content = _texts(item.get("content") or [], "reasoning_text")
    return next(iter([*content, *summary]), "")


def _texts(parts: Any, kind: str) -> list[str]:
    listed = _listed(parts)
    if not all(isinstance(part, dict) and part.get("type") == kind for part in listed):
        raise Undrafted
    return [_string(part.get("text")) for part in listed]


def _content(content: Any, *, has_default_detail: bool = True) -> str | list[Any]:
    """A message's content: text and pictures, which all say in what detail they are wanted."""
    if isinstance(content, str):
        return content
    return [_part(each, has_default_detail=has_default_detail) for each in _listed(content)]


def _part(part: Any, *, has_default_detail: bool) -> dict[str, Any]:
    match part:
        case {"type": "input_text", "text": str()}:
            return {**part}
        case {"type": "input_image"} if isinstance(part.get("image_url"), str | None):
            if has_default_detail or "detail" in part:
                # The engine's own type has these two in front of what else a template may see.
                first = {key: part[key] for key in ("detail", "file_id") if key in part}
                return {"detail": "auto", **first, **part}
    raise Undrafted


def _listed(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise Undrafted
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise Undrafted
    return value
