"""What do an engine's KV event batches say? From bytes, and to bytes.

A batch is msgpack: ``[timestamp, [event, ...], data_parallel_rank]``. An event is a
map with a ``type`` (vLLM 0.24 and later), or an array that begins with the type; a
batch may hold both. Source: vLLM 0.32, ``vllm/distributed/kv_events.py``.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct

from tessera.core.facts import ExtraKey, ExtraKeysOfBlock, KVCleared, KVEvent, KVRemoved, KVStored
from tessera.core.matching.block_keys import block_key

MAX_BATCH_BYTES: Final = 16 << 20
"""Twice what a million tokens in one event take."""
MAX_EVENTS: Final = 65_536
"""Events of one batch."""
MAX_RANK: Final = 4095
"""Data-parallel engines behind one endpoint, less one."""
MAX_BLOCK_SIZE: Final = 1 << 20
MAX_NAME_CHARS: Final = 1024
"""Characters of an adapter's name, a tier or a kind."""

_Hash = Annotated[int, Meta(ge=0)] | Annotated[bytes, Meta(min_length=8, max_length=64)]
_Name = Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | None
_DEFAULT_TIER = "gpu"


class _Stored(Struct, tag="BlockStored", omit_defaults=True, gc=False):
    block_hashes: tuple[_Hash, ...]
    parent_block_hash: _Hash | None
    token_ids: tuple[Annotated[int, Meta(ge=0)], ...]
    block_size: Annotated[int, Meta(ge=1, le=MAX_BLOCK_SIZE)]
    # The engine writes these three even where they are null, older ones end before them.
    lora_id: Any = UNSET
    medium: Any = UNSET
    lora_name: Any = UNSET
    extra_keys: tuple[tuple[Any, ...] | None, ...] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: _Name = None


class _Removed(Struct, tag="BlockRemoved", omit_defaults=True, gc=False):
    block_hashes: tuple[_Hash, ...]
    medium: Any = UNSET
    group_idx: int | None = None


class _Cleared(Struct, tag="AllBlocksCleared", gc=False):
    pass


class _StoredArray(_Stored, tag="BlockStored", array_like=True, omit_defaults=False, gc=False):
    pass


class _RemovedArray(_Removed, tag="BlockRemoved", array_like=True, omit_defaults=False, gc=False):
    pass


class _ClearedArray(_Cleared, tag="AllBlocksCleared", array_like=True, gc=False):
    pass


_Map = _Stored | _Removed | _Cleared
_Array = _StoredArray | _RemovedArray | _ClearedArray


E = TypeVar("E")


class _Batch(Struct, Generic[E], array_like=True, gc=False):
    ts: float
    events: list[E]
    data_parallel_rank: Any = None


_decoders: tuple[msgspec.msgpack.Decoder[_Batch[Any]], ...] = (
    msgspec.msgpack.Decoder(_Batch[_Map]),
    msgspec.msgpack.Decoder(_Batch[_Array]),
)
_raw_batches = msgspec.msgpack.Decoder(_Batch[Raw])
_events: tuple[msgspec.msgpack.Decoder[Any], ...] = (msgspec.msgpack.Decoder(_Map), msgspec.msgpack.Decoder(_Array))
_encoder = msgspec.msgpack.Encoder()
_FAULTS = (msgspec.MsgspecError, RecursionError, TypeError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True, kw_only=True)
class KVBatch:
    """What one message said."""

    events: tuple[KVEvent, ...]
    ts: float
    """The engine's clock, Unix seconds."""
    rank: int
    num_skipped: int = 0
    """Events of a kind that we do not know, or that are not as their kind should be."""


def decode_batch(payload: bytes, *, at: float, endpoint_id: str, rank: int | None = None) -> KVBatch:
    """The events of one message. Unknown fields and unknown kinds of event are skipped.

    Args:
        payload: at most ``MAX_BATCH_BYTES``.
        at: seconds on the driver's clock.
        endpoint_id: whose events they are.
        rank: the engine's; nothing: as the batch says.

    Raises:
        ValueError: no batch of events, or one beyond the limits.
    """
    if len(payload) > MAX_BATCH_BYTES:
        raise ValueError(f"a batch of {len(payload)} bytes, expected at most {MAX_BATCH_BYTES}")
    batch, num_skipped = _decode(payload)
    if len(batch.events) > MAX_EVENTS:
        raise ValueError(f"a batch of {len(batch.events)} events, expected at most {MAX_EVENTS}")
    if rank is None:
        said = batch.data_parallel_rank
        rank = said if type(said) is int and 0 <= said <= MAX_RANK else 0
    events = tuple([_fact(event, at, endpoint_id, rank) for event in batch.events])
    return KVBatch(events=events, ts=batch.ts, rank=rank, num_skipped=num_skipped)


def encode_batch(events: Iterable[KVEvent], *, ts: float, rank: int = 0, as_arrays: bool = False) -> bytes:
    """A batch as an engine of today publishes it, or with ``as_arrays`` as an older one does."""
    kinds = (_StoredArray, _RemovedArray, _ClearedArray) if as_arrays else (_Stored, _Removed, _Cleared)
    wire = [_wire(event, *kinds) for event in events]
    return _encoder.encode([ts, wire, rank])


def _decode(payload: bytes) -> tuple[_Batch[Any], int]:
    """The batch and how many of its events were skipped."""
    for decoder in _decoders:
        # Something in it may be unknown: event by event then.
        with suppress(*_FAULTS):
            return decoder.decode(payload), 0
    try:
        raw = _raw_batches.decode(payload)
        if len(raw.events) > MAX_EVENTS:
            raise ValueError(f"{len(raw.events)} events, at most {MAX_EVENTS}")
    except _FAULTS as error:
        raise ValueError(f"no batch of KV events: {error}") from None
    known = [event for each in raw.events if (event := _known_event(each)) is not None]
    return _Batch[Any](raw.ts, known, raw.data_parallel_rank), len(raw.events) - len(known)


def _known_event(raw: Raw) -> Any:
    """The event; nothing where we know no such event."""
    for decoder in _events:
        with suppress(*_FAULTS):
            return decoder.decode(raw)
    return None


def _fact(event: Any, at: float, endpoint_id: str, rank: int) -> KVEvent:
    if isinstance(event, _Stored):
        parent = event.parent_block_hash
        return KVStored(
            at=at,
            endpoint_id=endpoint_id,
            rank=rank,
            block_hashes=_keys(event.block_hashes),
            parent_block_hash=None if parent is None else block_key(parent),
            token_ids=event.token_ids,
            block_size=event.block_size,
            extra_keys=_extra_keys(event.extra_keys),
            tier=_tier(event.medium),
            lora=_adapter(event),
            group=event.group_idx,
            attention=event.kv_cache_spec_kind,
        )
    if isinstance(event, _Removed):
        return KVRemoved(
            at=at,
            endpoint_id=endpoint_id,
            rank=rank,
            block_hashes=_keys(event.block_hashes),
            tier=_tier(event.medium),
            group=event.group_idx,
        )
    return KVCleared(at=at, endpoint_id=endpoint_id, rank=rank)


def _keys(hashes: Sequence[int | bytes]) -> tuple[int, ...]:
    return tuple([each if type(each) is int else block_key(each) for each in hashes])


def _extra_keys(blocks: tuple[tuple[Any, ...] | None, ...] | None) -> tuple[ExtraKeysOfBlock | None, ...] | None:
    if blocks is None or not any(blocks):
        return blocks
    return tuple([None if block is None else tuple(map(_extra_key, block)) for block in blocks])


def _extra_key(key: Any) -> ExtraKey | None:
    if isinstance(key, list):
        is_media = len(key) == 2 and isinstance(key[0], str) and type(key[1]) is int
        return (key[0], key[1]) if is_media else None
    return key if isinstance(key, str | bytes) else None


def _tier(medium: Any) -> str:
    return medium[:MAX_NAME_CHARS].lower() if isinstance(medium, str) else _DEFAULT_TIER


def _adapter(event: _Stored) -> str | None:
    """The adapter's name; where an older engine gives only a number, a name that no request has."""
    if isinstance(event.lora_name, str) and event.lora_name:
        return event.lora_name[:MAX_NAME_CHARS]
    return f"\0{event.lora_id}"[:MAX_NAME_CHARS] if isinstance(event.lora_id, int) else None


def _wire(event: KVEvent, stored: type[_Stored], removed: type[_Removed], cleared: type[_Cleared]) -> Struct:
    if isinstance(event, KVStored):
        return stored(
            block_hashes=event.block_hashes,
            parent_block_hash=event.parent_block_hash,
            token_ids=event.token_ids,
            block_size=event.block_size,
            lora_id=None,
            medium=event.tier.upper(),
            lora_name=event.lora,
            extra_keys=event.extra_keys,
            group_idx=event.group,
            kv_cache_spec_kind=event.attention,
        )
    if isinstance(event, KVRemoved):
        return removed(block_hashes=event.block_hashes, medium=event.tier.upper(), group_idx=event.group)
    return cleared()
