"""What does vLLM's generate API ask: token ids, and the media that stand in them?

A prompt that was rendered elsewhere comes with ``features``: each item's identifier,
as the engine will call it, and the span of placeholder ids that it takes. Their
tensors (``kwargs_data``, ``mm_metadata``) are skipped unread. ``content_parts`` holds
raw media instead, whose placeholders the engine has still to widen.
Source: ``scale_out/token_in_token_out/protocol.py`` of vLLM.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import msgspec

from tessera.core.dialects.content_parts import Unread, piece_of, sifted
from tessera.core.dialects.json_body import count_of, name_of, optional_text, read_json
from tessera.core.draft import Draft, DraftMedia, DraftPart, DraftTokens
from tessera.core.headers import NO_HEADERS
from tessera.core.parts import Modality
from tessera.core.plugin import Dialect, plugin
from tessera.core.types import ModelProfile

MAX_CHOICES = 1024


class GenerateBody(msgspec.Struct):
    """The fields of a generate body that a router reads; everything else is skipped unread."""

    model: Any = None
    token_ids: Any = None
    features: msgspec.Raw = msgspec.Raw()
    content_parts: Any = None
    sampling_params: Any = None
    stream: Any = None
    cache_salt: Any = None


class Features(msgspec.Struct):
    """Names and places of the media in ``token_ids``, by modality."""

    mm_hashes: Any = None
    mm_placeholders: Any = None


class _Span(NamedTuple):
    """Where an item stands in the token ids."""

    offset: int
    length: int
    modality: Modality
    name: str


@plugin("generate")
class GenerateDialect(Dialect):
    """vLLM's ``/inference/v1/generate``."""

    paths: ClassVar = ("/inference/v1/generate",)

    def parse(self, body: bytes, profile: ModelProfile, headers: Mapping[str, str] = NO_HEADERS) -> Draft:
        """One prompt: the ids between the placeholders, and each item in place of its own."""
        asked, guesses = read_json(body, GenerateBody, profile)
        spans, unread = _spans(asked.features, profile.max_items)
        media, unknown = sifted(_content_parts(asked.content_parts))
        ids = asked.token_ids if _are_ids(asked.token_ids) else []
        sampling = asked.sampling_params if isinstance(asked.sampling_params, dict) else {}
        return Draft(
            dialect="generate",
            model=name_of(asked.model),
            # Where raw media stand among the ids is not known: in front, different media never look like one prefix.
            prompts=[[*media, *_prompt(ids, spans)]] if ids or media else [],
            stream=asked.stream is True,
            max_output_tokens=count_of(sampling.get("max_tokens")),
            num_choices=count_of(sampling.get("n"), MAX_CHOICES) or 1,
            cache_salt=optional_text(asked.cache_salt),
            guesses=[*guesses, *unread, *unknown],
            # The places of raw media, and of features without a name or a place of their own, are not known.
            unrendered="placeholders" if media or unread or unknown or not _fit(spans, len(ids)) else None,
        )


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int for number in value)


def _content_parts(parts: Any) -> Iterator[DraftPart | Unread]:
    """The media of ``content_parts``; its words are in the token ids already."""
    for part in parts if isinstance(parts, list) else ():
        piece = piece_of(part)
        if not isinstance(piece, str):
            yield piece


def _spans(raw: msgspec.Raw, max_items: int) -> tuple[list[_Span], list[str]]:
    """The items that have a name and a place, by place; a guess with the number of those that have not both.

    One more than ``max_items`` are enough: the request is refused then.
    """
    try:
        features = msgspec.json.decode(raw, type=Features | None) if memoryview(raw).nbytes else None
    except (msgspec.DecodeError, RecursionError):
        return [], ["features-unread"]
    if features is None:
        return [], []
    hashes = features.mm_hashes if isinstance(features.mm_hashes, dict) else {}
    places = features.mm_placeholders if isinstance(features.mm_placeholders, dict) else {}
    spans: list[_Span] = []
    num_items = 0
    for modality, names in hashes.items():
        ranges = places.get(modality)
        num_items += len(names) if isinstance(names, list) else 1
        if isinstance(names, list) and isinstance(ranges, list) and modality in _MODALITIES:
            found = (_span(Modality(modality), *pair) for pair in zip(names, ranges, strict=False))
            spans += islice((span for span in found if span is not None), max_items + 1)
    num_unread = num_items - len(spans)
    return sorted(spans), [f"features-unread:{num_unread}"] if num_unread else []


_MODALITIES = frozenset(Modality)


def _span(modality: Modality, name: Any, place: Any) -> _Span | None:
    offset = place.get("offset") if isinstance(place, dict) else None
    length = count_of(place.get("length")) if isinstance(place, dict) else None
    known = optional_text(name)
    if type(offset) is not int or offset < 0 or length is None or known is None or known != name:
        return None
    return _Span(offset, length, modality, known)


def _fit(spans: list[_Span], num_ids: int) -> bool:
    """Whether the spans, by place, lie behind each other and within the prompt."""
    ends = [0, *(span.offset + span.length for span in spans)]
    return ends[-1] <= num_ids and all(end <= span.offset for end, span in zip(ends, spans, strict=False))


def _prompt(ids: list[int], spans: list[_Span]) -> Iterator[DraftPart]:
    """Ids and items in prompt order; every id counts once, also where spans overlap or end behind the prompt."""
    at = 0
    for span in spans:
        start = min(max(at, span.offset), len(ids))
        end = min(max(start, span.offset + span.length), len(ids))
        if start > at:
            yield DraftTokens(token_ids=ids[at:start])
        yield DraftMedia(
            modality=span.modality,
            uuid=span.name,
            num_tokens_declared=end - start,
            placeholder_ids=ids[start:end],
        )
        at = end
    if at < len(ids):
        yield DraftTokens(token_ids=ids[at:])
