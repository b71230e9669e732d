"""What is asked of each stage's server, made from what the client asked?"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tessera.core.flow.connectors.protocols import EC_PARAMS, KV_PARAMS
from tessera.core.flow.document import Document, edited, fields_of, value_of
from tessera.core.flow.events import Cause
from tessera.core.flow.media_items import MediaItem
from tessera.core.flow.shapes import CHAT, Shape

_NOT_FOR_ENCODERS: Final = frozenset(
    {
        *(
            "n",
            "best_of",
            "use_beam_search",
            "min_tokens",
            "stream_options",
            "echo",
            "suffix",
            "stop",
            "stop_token_ids",
        ),
        *("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"),
        *("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"),
        *("logprobs", "top_logprobs", "prompt_logprobs", "logit_bias", "bad_words", "allowed_token_ids"),
        *("return_token_ids", "return_tokens_as_token_ids", "documents", "audio", "modalities", "prediction"),
        *("add_generation_prompt", "continue_final_message", "truncate_prompt_tokens", "chat_template_kwargs"),
        *("chat_template", "multi_modal_uuids", "tokens", "cache_hit_threshold", "thinking_token_budget"),
        *(EC_PARAMS, KV_PARAMS),
    }
)
"""Fields of a chat completion that ask for an answer, which an encoder does not give, or speak of the whole prompt."""
_FOR_ENCODERS: Final = ("model", "mm_processor_kwargs", "media_io_kwargs", "priority")
"""What an encoder is told of a body that is no chat completion."""
MAX_FIELD_BYTES: Final = 64 << 10
"""A larger field is not given to encoders: a body of many pictures would be multiplied by it."""
_TRUE, _FALSE, _ONE = b"true", b"false", b"1"


def encode_leg(document: Document, shape: Shape, item: MediaItem) -> bytes:
    """A chat completion of one token with that item alone; what changes the item's name in the engine stays.

    The item must have a part.
    """
    assert item.part is not None, "an item without content cannot be encoded elsewhere"
    if shape is CHAT:
        names = [name for name in document.fields if name not in _NOT_FOR_ENCODERS and name != "messages"]
    else:
        names = [name for name in _FOR_ENCODERS if name in document.fields]
    given = {name: document.fields[name] for name in names}
    fields = {name: raw for name, raw in given.items() if document.length_of(raw) <= MAX_FIELD_BYTES}
    changes: dict[str, bytes | None] = {
        "messages": b'[{"role":"user","content":[' + item.part + b"]}]",
        "max_tokens": _ONE,
        "stream": _FALSE,
    }
    if "max_completion_tokens" in fields:
        changes["max_completion_tokens"] = _ONE
    if item.uuid_beside:
        changes["multi_modal_uuids"] = msgspec.json.encode({item.modality: [item.uuid_beside]})
    return document.restored(edited(fields, changes))


def why_not_prefill_apart(document: Document, shape: Shape) -> Cause | None:
    """Why the prompt must be prefilled where it is decoded; nothing where it may be prefilled elsewhere."""
    if not document.is_readable:
        return Cause.UNREAD
    sampling = _sampling(document, shape)
    counts = [value_of(sampling.get(name, b"")) for name in ("n", "best_of")]
    if any(count not in (None, 1) for count in counts) or _has_several_prompts(document, shape):
        return Cause.SEVERAL_SEQUENCES
    return None


def _has_several_prompts(document: Document, shape: Shape) -> bool:
    prompt: Any = value_of(document.fields.get("prompt", b"")) if shape.name == "completions" else None
    return isinstance(prompt, list) and len(prompt) > 1 and not all(type(each) is int for each in prompt)


def prefill_leg(document: Document, shape: Shape, changes: Mapping[str, bytes | None]) -> bytes:
    """The client's request for one token, not streamed, with the connectors' changes."""
    short: dict[str, bytes | None] = {"stream": _FALSE, **dict.fromkeys(shape.dropped)}
    sampling = _sampling(document, shape)
    limits: dict[str, bytes | None] = {shape.limit: _ONE, "min_tokens": None}
    limits |= {name: _ONE for name in shape.other_limits if name in sampling}
    short |= {shape.sampling: edited(sampling, limits)} if shape.sampling else limits
    return document.with_changes({**short, **changes})


def is_streamed(document: Document) -> bool:
    """Whether the client wants its answer as events."""
    return bytes(document.fields.get("stream", b"")) == _TRUE


def _sampling(document: Document, shape: Shape) -> Mapping[str, msgspec.Raw]:
    return fields_of(document.fields.get(shape.sampling, b"")) if shape.sampling else document.fields
