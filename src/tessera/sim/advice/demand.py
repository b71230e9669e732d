"""What does one request ask of each stage, in seconds of a server, and how far would that let a topology go?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from typing import Final

from tessera.config.load import load_file
from tessera.engine.costs import Costs, num_prefill_pairs
from tessera.engine.front_end import MAX_STREAMING_FRACTION
from tessera.engine.profiles import EngineProfile, encoder_of, with_parallel_encoder
from tessera.engine.requests import MediaSegment, Segment
from tessera.sim.prompts import Prompts, Seen
from tessera.sim.run import family_of
from tessera.sim.topology import FOLDER, Topology
from tessera.sim.workload import WorkloadType

NUM_SAMPLED: Final = 400
"""Requests that are looked at; content that the first half has shown counts as cached in the second."""
MAX_BUSY_FRACTION: Final = 0.9
"""Of a pool's time: beyond it queues grow without end within a minute or two. Seen in the simulator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Of one request on the mean, where whatever was seen before is still cached somewhere and found there."""

    num_items: float
    """Pictures."""
    num_new_items: float
    """Pictures that nobody has seen before."""
    num_prompt_tokens: float
    num_new_tokens: float
    """Prompt tokens behind what prompts before it have begun with too."""
    num_output_tokens: float
    encode_s: float
    """Server seconds where the prompt is computed too."""
    parallel_encode_s: float
    """The same with ``--mm-encoder-tp-mode data``."""
    encoder_s: float
    """Server seconds on one that only encodes, one picture a step."""
    prefill_s: float
    """Server seconds that the prompt adds to a step of decodes."""
    prepare_s: float
    """CPU seconds of a server that gets the pictures: unpacking, resizing."""
    token_s: float
    """CPU seconds of streaming the answer."""

    @property
    def ratio(self) -> float:
        """Encode in parts of prefill; 0 where no prompt is computed."""
        return self.encode_s / self.prefill_s if self.prefill_s else 0.0


def demand_of(workload: WorkloadType, base: EngineProfile) -> Demand:
    """The means over the second half of ``NUM_SAMPLED`` requests.

    Raises:
        ConfigError: the model refuses a picture.
    """
    prompts = Prompts(load_file(FOLDER / "aggregated.yaml").profile, base.model.name, family_of(base))
    asks = islice(workload.make("0").asks(0), NUM_SAMPLED)
    rows = list(_rows([prompts.see(ask) for ask in asks], base))
    rows = rows[len(rows) // 2 :]
    return Demand(**{name: fmean(row[name] for row in rows) for name in rows[0]})


def _rows(seen: Sequence[Seen], base: EngineProfile) -> Iterator[dict[str, float]]:
    """The demand of each request in turn."""
    whole, parallel, apart = Costs(base), Costs(with_parallel_encoder(base)), Costs(encoder_of(base))
    items_seen: set[str] = set()
    prefixes_seen: set[tuple[object, ...]] = set()
    front = base.front_end
    decode_s = whole.fixed_s(1)
    for each in seen:
        num_cached, fresh = _uncached(each.segments, items_seen, prefixes_seen)
        items = [segment for segment in each.segments if isinstance(segment, MediaSegment)]
        num_prompt = sum(segment.num_tokens for segment in each.segments)
        num_new = num_prompt - num_cached
        yield {
            "num_items": len(items),
            "num_new_items": len(fresh),
            "num_prompt_tokens": num_prompt,
            "num_new_tokens": num_new,
            "num_output_tokens": each.num_output_tokens,
            "encode_s": whole.encode_s(fresh),
            "parallel_encode_s": parallel.encode_s(fresh),
            "encoder_s": sum(apart.encode_s([item]) for item in fresh),
            "prefill_s": whole.fixed_s(num_new, num_prefill_pairs(num_cached, num_new)) - decode_s,
            "prepare_s": front.request_s + front.item_s * len(items) + sum(map(whole.processing_s, fresh)),
            "token_s": front.token_s * each.num_output_tokens,
        }


def _uncached(
    segments: Sequence[Segment], items_seen: set[str], prefixes_seen: set[tuple[object, ...]]
) -> tuple[int, list[MediaSegment]]:
    """(tokens that an earlier prompt has begun with too, new pictures behind them); both are seen from now on."""
    num_cached, prefix, is_cached = 0, 0, True
    fresh: dict[str, MediaSegment] = {}
    for segment in segments:
        prefix = hash((prefix, segment.content))
        is_cached = is_cached and (prefix,) in prefixes_seen
        prefixes_seen.add((prefix,))
        if is_cached:
            num_cached += segment.num_tokens
        elif isinstance(segment, MediaSegment) and segment.identifier not in items_seen:
            fresh[segment.identifier] = segment
    items_seen.update(fresh)
    total = sum(segment.num_tokens for segment in segments)
    # An engine computes the last token in any case.
    return min(num_cached, total - 1), list(fresh.values())


@dataclass(frozen=True, slots=True)
class Bound:
    """How far arithmetic lets one topology go: no queues, perfect placement."""

    rate: float
    """Requests a second at which the first pool is full, or tokens come at the limit."""
    pool: str
    """Which: ``encode``, ``prefill`` or ``decode``; ``all`` where one does everything."""
    cause: str
    """What fills it: ``encoder``, ``GPU``, ``TPOT`` or ``CPU``."""


def bound_of(topology: Topology, demand: Demand, base: EngineProfile, tpot_s: float) -> Bound:
    """The least of what each pool of a topology can do while tokens come every ``tpot_s`` on the mean."""
    return min(_bounds(topology, demand, base, tpot_s), key=lambda bound: bound.rate)


def _bounds(topology: Topology, demand: Demand, base: EngineProfile, tpot_s: float) -> Iterator[Bound]:
    num_answering = topology.num_decode
    name = "decode" if topology.num_prefill else "prefill-decode" if topology.num_encode else "all"
    if topology.num_encode and demand.encoder_s:
        busy_s = max(demand.encoder_s, demand.prepare_s)
        cause = "encoder" if demand.encoder_s >= demand.prepare_s else "CPU"
        yield Bound(MAX_BUSY_FRACTION * topology.num_encode / busy_s, "encode", cause)
    prompt_s = prompt_seconds(topology, demand)
    if topology.num_prefill:
        yield Bound(MAX_BUSY_FRACTION * topology.num_prefill / prompt_s, "prefill", "GPU")
        yield Bound(MAX_BUSY_FRACTION * topology.num_prefill / demand.prepare_s, "prefill", "CPU")
        prompt_s = 0.0
    elif prompt_s:
        yield Bound(MAX_BUSY_FRACTION * num_answering / prompt_s, name, "GPU")
    yield Bound(num_answering * _decoding_rate(prompt_s, demand, base, tpot_s), name, "TPOT")
    prepare_s = base.front_end.request_s if topology.decodes_bare else demand.prepare_s
    yield Bound(num_answering * _cpu_rate(prepare_s, demand.token_s), name, "CPU")


def _cpu_rate(prepare_s: float, token_s: float) -> float:
    """Requests a second that one server's CPU prepares while it streams, which takes nine tenths of it at most."""
    shared = MAX_BUSY_FRACTION / (prepare_s + MAX_BUSY_FRACTION * token_s)
    crowded = MAX_BUSY_FRACTION * (1 - MAX_STREAMING_FRACTION) / prepare_s
    return max(shared, crowded)


def prompt_seconds(topology: Topology, demand: Demand) -> float:
    """Server seconds for one prompt of whoever computes it, its pictures too where nobody else encodes them."""
    if topology.num_encode:
        return demand.prefill_s
    encode_s = demand.parallel_encode_s if topology.has_parallel_encoder else demand.encode_s
    return demand.prefill_s + encode_s


def tpot_s_at(rate: float, prompt_s: float, demand: Demand, base: EngineProfile, tpot_s: float) -> float:
    """Mean seconds a token of one server at ``rate``, where batches are as large as they get at ``tpot_s``.

    A step of the batch, stretched by the share of time in which prompts hold it up.
    """
    costs = Costs(base)
    batch = max(1.0, rate * demand.num_output_tokens * tpot_s)
    context = demand.num_prompt_tokens + demand.num_output_tokens / 2
    step_s = costs.fixed_s(int(batch)) + batch * context * costs.kv_s
    free = 1.0 - rate * prompt_s
    return step_s / free if free > 0 else float("inf")


def _decoding_rate(prompt_s: float, demand: Demand, base: EngineProfile, tpot_s: float) -> float:
    """Requests a second of one server at which a token takes ``tpot_s``."""
    low, high = 0.0, 1000.0
    for _ in range(40):
        middle = (low + high) / 2
        if tpot_s_at(middle, prompt_s, demand, base, tpot_s) <= tpot_s:
            low = middle
        else:
            high = middle
    return low
