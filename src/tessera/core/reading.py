"""What does a request ask? The dialect by its path, the body's parts measured, the body let go."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from tessera.core.dialects.json_body import KWARGS_UNREAD
from tessera.core.draft import Draft, DraftMedia, DraftPart, DraftText, DraftTokens
from tessera.core.errors import RequestError
from tessera.core.headers import MAX_HEADER_CHARS, positive_number
from tessera.core.media.digests import text_digests, token_digests
from tessera.core.media.identity import Naming
from tessera.core.media.mm_hash import HashFactors
from tessera.core.media.probe import Steps, probe
from tessera.core.media.spelling import Spellings
from tessera.core.parts import Part, TextPart, TokenPart
from tessera.core.plugin import Dialect, registered
from tessera.core.types import InferenceRequest, ModelProfile, Objective

OPAQUE = "opaque"
"""The dialect of a request that is routed unread."""

PATH_HEADERS = (":path", "x-original-path", "x-forwarded-path")


@lru_cache(maxsize=1024)
def dialect_of(path: str) -> Dialect | None:
    """The dialect that claims the longest suffix of the path, query left out.

    >>> dialect_of("/unknown") is None
    True
    """
    clean = path.split("?", 1)[0].rstrip("/")
    claims = [(suffix, cls) for cls in registered(Dialect).values() for suffix in cls.paths if clean.endswith(suffix)]
    return max(claims, key=lambda claim: len(claim[0]))[1]() if claims else None


def dialect_for(headers: Mapping[str, str], profile: ModelProfile) -> Dialect | None:
    """The dialect of a request; nothing for what is routed unread: another method, an unknown path."""
    if headers.get(":method", "POST").upper() != "POST":
        return None
    for name in PATH_HEADERS:
        if (path := headers.get(name)) and len(path) <= MAX_HEADER_CHARS and (dialect := dialect_of(path)):
            return dialect if profile.dialects is None or dialect.type in profile.dialects else None
    return None


def read_request(
    body: bytes | None,
    headers: Mapping[str, str],
    profile: ModelProfile,
    *,
    request_id: str,
    at: float,
    wall_at: float,
) -> tuple[InferenceRequest, Draft]:
    """The request and its Draft; the request holds no byte of the body.

    ``body`` is nothing where the gateway keeps it: the request is routed unread then.

    Raises:
        RequestError: the body is none that an engine could read, or holds more
            media items than ``profile`` allows.
    """
    dialect = dialect_for(headers, profile)
    draft = dialect.parse(body, profile, headers) if dialect and body is not None else Draft(dialect=OPAQUE)
    _bound_parts(draft, profile)
    steps, naming, spellings = Steps(), naming_of(draft, profile), Spellings()
    if profile.renders_prompts and draft.unrendered is None:
        # The prompt will be tokenised as a whole.
        profile = replace(profile, tokenizer=None)
    request = InferenceRequest(
        request_id=request_id,
        at=at,
        wall_at=wall_at,
        dialect=draft.dialect,
        model=draft.model,
        engine_model=profile.engine_model,
        prompts=tuple(
            tuple(_measure(part, profile, naming, steps, spellings) for part in prompt) for prompt in draft.prompts
        ),
        cache_salt=draft.cache_salt,
        lora=draft.model if draft.model in profile.adapters else None,
        stream=draft.stream,
        max_output_tokens=draft.max_output_tokens,
        num_choices=draft.num_choices,
        session_id=draft.session_id,
        mm_processor_kwargs=draft.mm_processor_kwargs,
        media_io_kwargs=draft.media_io_kwargs,
        objective=_objective(headers),
        headers={name: text[:MAX_HEADER_CHARS] for name, text in headers.items() if name in profile.kept_headers},
        body_bytes=len(body or b""),
        guesses=tuple(draft.guesses),
    )
    return request, draft


def _bound_parts(draft: Draft, profile: ModelProfile) -> None:
    num_parts = sum(len(prompt) for prompt in draft.prompts)
    num_items = sum(isinstance(part, DraftMedia) for prompt in draft.prompts for part in prompt)
    for what, count, limit, code in (
        ("media items", num_items, profile.max_items, "too_many_media_items"),
        ("parts", num_parts, profile.max_parts, "too_many_parts"),
    ):
        if count > limit:
            message = f"the request carries {count} {what}, at most {limit} are accepted; split it"
            raise RequestError(message, status=400, code=code)


def naming_of(draft: Draft, profile: ModelProfile) -> Naming:
    """What names the draft's items, beside the items."""
    factors = HashFactors(
        engine_model=profile.engine_model if profile.names_as_engine else "",
        algorithm=profile.mm_hasher_algorithm,
        server_media_io_kwargs=profile.media_io_kwargs,
        media_io_kwargs=draft.media_io_kwargs,
        mm_processor_kwargs=draft.mm_processor_kwargs,
        is_complete=not any(guess.startswith(KWARGS_UNREAD) for guess in draft.guesses),
    )
    return Naming(factors, profile.url_keys_ignored)


def _measure(part: DraftPart, profile: ModelProfile, naming: Naming, steps: Steps, spellings: Spellings) -> Part:
    if isinstance(part, DraftText):
        text = part.text if isinstance(part.text, bytes) else part.text.encode("utf-8", "surrogatepass")
        if part.role:
            text = part.role.encode("utf-8", "surrogatepass") + text
        return TextPart(num_bytes=len(text), num_tokens=_count(part, profile), digests=text_digests(text))
    if isinstance(part, DraftTokens):
        return TokenPart(num_tokens=len(part.token_ids), digests=token_digests(part.token_ids))
    item = probe(part, naming=naming, uses_pillow=profile.uses_pillow, steps=steps)
    return replace(item, is_respelled=True) if spellings.is_other(item.identifier, part) else item


def _count(part: DraftText, profile: ModelProfile) -> int | None:
    """Tokens of the text alone: roles and markers belong to the chat template."""
    if profile.tokenizer is None:
        return None
    text = part.text.decode("utf-8", "replace") if isinstance(part.text, bytes) else part.text
    return profile.tokenizer.count(text)


def _objective(headers: Mapping[str, str]) -> Objective:
    """The SLOs and the fairness id of llm-d's headers, in their new and old spelling."""
    fairness = headers.get("x-llm-d-inference-fairness-id") or headers.get("x-gateway-inference-fairness-id")
    return Objective(
        fairness_id=fairness[:MAX_HEADER_CHARS] if fairness else None,
        ttft_slo_s=_milliseconds(headers.get("x-llm-d-slo-ttft-ms") or headers.get("x-slo-ttft-ms")),
        tpot_slo_s=_milliseconds(headers.get("x-llm-d-slo-tpot-ms") or headers.get("x-slo-tpot-ms")),
    )


def _milliseconds(text: str | None) -> float | None:
    value = positive_number(text, largest=86_400_000.0)
    return value / 1000 if value is not None else None
