"""Which chat does the engine make of an Anthropic conversation?

The results of tools become messages of their own in front of the user's, and their
pictures one message more; thinking becomes reasoning. What the engine refuses, and what
hangs on its clock, is Undrafted.

Source: vLLM 0.32, ``entrypoints/anthropic/serving.py``, read and run.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from tessera.core.dialects.json_body import list_of
from tessera.core.draft import Undrafted

BILLING_HEADER: Final = "x-anthropic-billing-header"
"""System blocks that begin so hold a number of the client's that changes with every request; engines drop them."""
_BLOCKS: Final = ("text", "image", "thinking", "redacted_thinking", "tool_use", "tool_result")
_FIELDS: Final[dict[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("text", "thinking", "id", "tool_use_id", "name"), str),
    **dict.fromkeys(("source", "input"), dict),
    "content": (str, list),
}
"""What a block's fields are, where they are there and not null."""
_IMAGE: Final = {"type": "image_url", "image_url": None}

Message = dict[str, Any]
Block = dict[str, Any]


def messages_of(system: Any, messages: Any) -> list[Message]:
    """A chat completion's messages; system text that stands between others stays there.

    Raises:
        Undrafted: the engine refuses them, or they are not followed here.
    """
    if not isinstance(messages, list):
        raise Undrafted
    # Dropped in blocks and later messages only: in front, the engine's renderer takes its first line away.
    text = system if isinstance(system, str) else _system_text([] if system is None else system)
    made: list[Message] = [{"role": "system", "content": text}] if text else []
    for message in messages:
        made += _converted(message)
    return made


def tools_of(raw: msgspec.Raw) -> list[dict[str, Any]] | None:
    """A chat completion's tools; nothing for none.

    Raises:
        Undrafted: the engine refuses them.
    """
    tools = list_of(raw)
    return None if tools is None else [_tool(each) for each in tools]


def _tool(tool: Any) -> dict[str, Any]:
    schema = tool.get("input_schema") if isinstance(tool, dict) else None
    if not isinstance(schema, dict):
        raise Undrafted
    named = {key: tool.get(key) for key in ("name", "description", "strict", "defer_loading")}
    return {"type": "function", "function": {**named, "parameters": {**schema, "type": schema.get("type", "object")}}}


def _converted(message: Any) -> Iterator[Message]:
    role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
    if not isinstance(content, str | list):
        raise Undrafted
    match role:
        case "system":
            if text := _system_text([{"type": "text", "text": content}] if isinstance(content, str) else content):
                yield {"role": role, "content": text}
        case "user" | "assistant" if isinstance(content, str):
            yield {"role": role, "content": content}
        case "user":
            blocks = _checked(content)
            for block in blocks:
                if block["type"] == "tool_result":
                    yield from _result(block)
            if parts := [part for block in blocks for part in _part(block)]:
                yield {"role": role, "content": _flat(parts)}
        case "assistant":
            yield _assistants(_checked(content))
        case _:
            raise Undrafted


def _checked(blocks: Sequence[Any]) -> list[Block]:
    for block in blocks:
        if not isinstance(block, dict) or block.get("type") not in _BLOCKS:
            raise Undrafted
        if any(block.get(name) is not None and not isinstance(block[name], kind) for name, kind in _FIELDS.items()):
            raise Undrafted
    return list(blocks)


def _system_text(blocks: Any) -> str:
    """The words of a system's blocks, without what changes with every request."""
    if not isinstance(blocks, list):
        raise Undrafted
    texts = [block["text"] for block in _checked(blocks) if block["type"] == "text" and block.get("text")]
    return "".join(text for text in texts if not text.startswith(BILLING_HEADER))


def _part(block: Block) -> Iterator[dict[str, Any]]:
    if block["type"] == "text" and block.get("text"):
        yield {"type": "text", "text": block["text"]}
    elif block["type"] == "image" and block.get("source"):
        yield _IMAGE


def _flat(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """The parts, or the text where it is all there is."""
    text = parts[0].get("text")
    return text if len(parts) == 1 and text is not None else parts


def _assistants(blocks: Sequence[Block]) -> Message:
    made: Message = {"role": "assistant"}
    thoughts = [
        block["thinking"] for block in blocks if block["type"] == "thinking" and block.get("thinking") is not None
    ]
    if thoughts:
        made["reasoning"] = "".join(thoughts)
    if calls := [_call(block) for block in blocks if block["type"] == "tool_use"]:
        made["tool_calls"] = calls
    if parts := [part for block in blocks for part in (*_part(block), *_quoted(block))]:
        made["content"] = _flat(parts)
    return made


def _call(block: Block) -> dict[str, Any]:
    if not block.get("id"):
        # The engine makes one of its clock.
        raise Undrafted
    function = {"name": block.get("name") or "", "arguments": block.get("input") or {}}
    return {"id": block["id"], "type": "function", "function": function}


def _quoted(block: Block) -> Iterator[dict[str, Any]]:
    """A tool's result among an assistant's words."""
    if block["type"] == "tool_result":
        content = block.get("content") or ""
        if not isinstance(content, str):
            # The engine writes it as Python does.
            raise Undrafted
        yield {"type": "text", "text": f"Tool result: {content}"}


def _result(block: Block) -> Iterator[Message]:
    """A tool's words, and its pictures as if the user had sent them."""
    content = block.get("content") or ""
    inner = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts: list[str] = []
    num_images = 0
    for each in inner:
        match each:
            case {"type": "text"} if isinstance(text := each.get("text", ""), str):
                texts.append(text)
            case {"type": "image", "source": dict() as source}:
                num_images += source.get("type") != "url" or bool(source.get("url"))
            case {"type": "text" | "image" | "tool_reference"}:
                raise Undrafted
            case dict():
                # Documents and the like: the engine leaves them out.
                pass
            case _:
                raise Undrafted
    yield {"role": "tool", "tool_call_id": block.get("tool_use_id") or "", "content": "\n".join(texts)}
    if num_images:
        yield {"role": "user", "content": [_IMAGE] * num_images}
