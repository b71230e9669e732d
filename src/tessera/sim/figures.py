"""How well did it go? Figures of one stage, and their means over seeds."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, median
from typing import Any, Final

from tessera.core.types import Ending
from tessera.engine.events import CacheCounters, EngineFacts
from tessera.sim.client import Sent
from tessera.sim.load import StageRecord

GOOD_TTFT_S: Final = 1.0
"""A good answer's first token comes within this."""
GOOD_TPOT_S: Final = 0.050
"""A good answer's further tokens take no longer than this on average."""
CLOSE_FACTOR: Final = 1.5
"""A prediction is close that is off by no more than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What came of a stage. Times are of requests that finished."""

    num_requests: float
    """Requests sent."""
    num_finished: float
    num_failed: float
    """Requests that were given up, refused or rejected."""
    output_tokens_per_s: float
    """Tokens of finished answers from the first request's start to the last one's end, as inference-perf counts."""
    good_requests_per_s: float
    """Requests with TTFT <= 1 s and mean TPOT <= 50 ms, for each second of the stage: goodput."""
    ttft_p50_s: float | None
    """Seconds to the first token, median; nothing where no request finished."""
    ttft_p90_s: float | None
    tpot_mean_s: float | None
    """Mean over requests of the mean seconds for each token after the first."""
    prefix_hit_fraction: float | None
    """Share of the prompt tokens that the KV caches held; nothing where they were asked for none."""
    encoder_hit_fraction: float | None
    """Share of the media items outside of KV hits that the encoder caches held."""
    processor_hit_fraction: float | None
    """Share of the media items that the processor caches held."""
    most_requests_fraction: float
    """Share of the stage's requests that the busiest server got."""
    ttft_prediction_ratio_p50: float | None = None
    """Predicted over simulated seconds to the first token, median; nothing where the policy predicts none."""
    ttft_prediction_close_fraction: float | None = None
    """Share of those requests in which they are within a factor of 1.5 of each other."""
    ttft_prediction_error_mean_s: float | None = None
    """Mean of predicted less simulated seconds, without the sign."""


FIGURES: Final = tuple(field.name for field in fields(Figures))
"""Names of the figures, in the order of reports."""


def figures_of(record: StageRecord) -> Figures:
    """The figures of a stage whose requests are all over.

    Raises:
        AssertionError: a request is neither finished nor failed.
    """
    lost = [each.id for each in record.sent if each.ending is None]
    assert not lost, f"{len(lost)} requests are neither finished nor failed, {lost[0]} for one"
    done = [each for each in record.sent if each.ending is Ending.FINISHED]
    ttfts = sorted(each.ttft_s for each in done if each.ttft_s is not None)
    tpots = [each.tpot_s for each in done if each.tpot_s is not None]
    good = [each for each in done if (each.ttft_s or 0.0) <= GOOD_TTFT_S and (each.tpot_s or 0.0) <= GOOD_TPOT_S]
    ended = max((each.ended_at for each in record.sent if each.ended_at is not None), default=0.0)
    lasted = ended - min((each.sent_at for each in record.sent), default=0.0)
    tokens = sum(each.num_output_tokens for each in done)
    places = Counter(each.endpoint_id for each in record.sent if each.endpoint_id is not None)
    return Figures(
        num_requests=len(record.sent),
        num_finished=len(done),
        num_failed=len(record.sent) - len(done),
        output_tokens_per_s=tokens / lasted if lasted > 0 else 0.0,
        good_requests_per_s=len(good) / record.stage.duration_s,
        ttft_p50_s=quantile(ttfts, 0.5),
        ttft_p90_s=quantile(ttfts, 0.9),
        tpot_mean_s=fmean(tpots) if tpots else None,
        prefix_hit_fraction=_hits(record, lambda facts: facts.prefix_cache),
        encoder_hit_fraction=_hits(record, lambda facts: facts.encoder_cache),
        processor_hit_fraction=_hits(record, lambda facts: facts.processor_cache),
        most_requests_fraction=max(places.values(), default=0) / max(1, places.total()),
        **_predictions(done),
    )


def _predictions(done: Sequence[Sent]) -> dict[str, float]:
    """How near predictions of first tokens came; empty where there are none."""
    pairs = [(each.predicted_ttft_s, each.ttft_s) for each in done]
    known = [(predicted, seen) for predicted, seen in pairs if predicted is not None and seen is not None and seen > 0]
    if not known:
        return {}
    ratios = sorted(predicted / seen for predicted, seen in known)
    close = sum(1 / CLOSE_FACTOR <= ratio <= CLOSE_FACTOR for ratio in ratios)
    return {
        "ttft_prediction_ratio_p50": median(ratios),
        "ttft_prediction_close_fraction": close / len(ratios),
        "ttft_prediction_error_mean_s": fmean(abs(predicted - seen) for predicted, seen in known),
    }


def quantile(ordered: Sequence[float], fraction: float) -> float | None:
    """The value at that place of a sorted column, between two values by their distance; nothing for an empty one.

    >>> quantile([1.0, 2.0, 4.0], 0.5), quantile([1.0, 2.0], 0.9)
    (2.0, 1.9)
    """
    if not ordered:
        return None
    place = fraction * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def mean(several: Iterable[Figures]) -> Figures:
    """The mean of each figure over seeds, those left out that are not known."""
    listed = list(several)
    means: dict[str, Any] = {}
    for name in FIGURES:
        known = [value for each in listed if (value := getattr(each, name)) is not None]
        means[name] = fmean(known) if known else None
    return Figures(**means)


def _hits(record: StageRecord, of: Callable[[EngineFacts], CacheCounters]) -> float | None:
    """Hits over queries of one cache, all servers together, from the stage's start to its last answer."""
    pairs = [(of(before), of(after)) for before, after in zip(record.facts_before, record.facts_after, strict=True)]
    queried = sum(after.num_queried - before.num_queried for before, after in pairs)
    hit = sum(after.num_hit - before.num_hit for before, after in pairs)
    return hit / queried if queried else None
