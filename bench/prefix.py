"""What does the approximate prefix index cost, in time and in memory?

    python bench/prefix.py [--write bench/results/prefix.json]

A chat of 4,000 tokens (three images and a long text) and a text of 100,000: the atoms
with their keys, the match against a fleet, and the entry of the prompt for its
endpoint. The match is measured where everybody holds the whole prompt, which is the
most work there is, and where each endpoint holds a part of its own length. Medians of
the thread's CPU time. Then what an entry weighs, with full shelves of other prompts,
and how long it takes to forget such an endpoint.
"""

import random
import statistics
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from report import arguments, as_text, headed, keep
from tessera.core.facts import Joined, Left, Load, PrefixMatch
from tessera.core.matching.approx_prefix_cache import ApproxPrefixCacheProducer
from tessera.core.matching.atoms import chains
from tessera.core.matching.prefix_index import PrefixIndex
from tessera.core.media.digests import text_digests
from tessera.core.parts import MediaItem, Modality, Part, TextPart
from tessera.core.types import (
    Basis,
    Candidate,
    Decision,
    Endpoint,
    InferenceRequest,
    PricedItem,
    PricedRequest,
    Stage,
)

FLEETS = (1, 8, 64, 256)
TARGET_MS, TARGET_FLEET = 2.0, 64
MULTIMODAL, LONG = "4,000 tokens, 3 images", "100,000 tokens of text"
NUM_ROUNDS = {MULTIMODAL: 400, LONG: 40}
NUM_SHELVES, SHELF_TOKENS, PROMPT_ATOMS = 8, 500_000, 250
NO_LIMIT = 1 << 40


def text(rng: random.Random, num_tokens: int) -> TextPart:
    """A run of random bytes, four for each token."""
    data = rng.randbytes(4 * num_tokens)
    return TextPart(num_bytes=len(data), digests=text_digests(data))


def priced(prompt: list[Part], tokens_per_item: int) -> PricedRequest:
    request = InferenceRequest(
        request_id="r", at=0.0, wall_at=0.0, dialect="chat", model="org/vlm", prompts=(tuple(prompt),)
    )
    media = [part for part in prompt if isinstance(part, MediaItem)]
    items = tuple(
        PricedItem(
            index=index,
            item=item,
            num_tokens=tokens_per_item,
            num_embeds=tokens_per_item,
            rule_basis=Basis.EXACT,
            size_basis=Basis.EXACT,
        )
        for index, item in enumerate(media)
    )
    num_bytes = sum(part.num_bytes for part in prompt if isinstance(part, TextPart))
    return PricedRequest(request=request, items=items, num_text_tokens=num_bytes // 4)


def prompts() -> dict[str, PricedRequest]:
    rng = random.Random(7)
    media = [MediaItem(modality=Modality.IMAGE, format="png", identifier=rng.randbytes(16).hex()) for _ in range(3)]
    parts: list[Part] = [text(rng, 900), *media, text(rng, 1000)]
    made = {MULTIMODAL: priced(parts, 700), LONG: priced([text(rng, 100_000)], 0)}
    assert [each.num_prompt_tokens for each in made.values()] == [4000, 100_000]
    return made


def fleet(size: int) -> list[Endpoint]:
    return [Endpoint(address=f"10.0.{n // 250}.{n % 250 + 1}", port=8000) for n in range(size)]


def decision_of(asked: PricedRequest, endpoint: Endpoint) -> Decision:
    facts = {(Load, Load.producer): Load(num_cache_tokens=SHELF_TOKENS)}
    stage = Stage(
        profile="default",
        candidates=(Candidate(endpoint, facts),),
        filtered_by=(None,),
        scored=(0,),
        columns={},
        totals=(0.0,),
        winners=(endpoint,),
        runner_up=None,
        fallbacks=(),
    )
    return Decision(priced=asked, at=0.0, stages=(stage,), primary="default")


def shorter(asked: PricedRequest, share: float) -> PricedRequest:
    """A prompt with another ending: of its last run only a share."""
    *rest, last = asked.request.prompts[0]
    assert isinstance(last, TextPart)
    kept = int(last.num_bytes * share) // 64 * 64
    prompt: tuple[Part, ...] = (*rest, TextPart(num_bytes=kept, digests=last.digests[: kept // 8]))
    tokens = asked.num_text_tokens - (last.num_bytes - kept) // 4
    return replace(asked, request=replace(asked.request, prompts=(prompt,)), num_text_tokens=tokens)


def median_us(call: Callable[[int], object], num_rounds: int) -> float:
    times = []
    for number in range(num_rounds):
        before = time.thread_time_ns()
        call(number)
        times.append((time.thread_time_ns() - before) / 1000)
    return round(statistics.median(times), 1)


def matched_by(asked: PricedRequest, endpoints: list[Endpoint], holds: Callable[[int], float], rounds: int) -> float:
    """Atoms and match against a fleet of which each endpoint holds a share of the prompt, microseconds."""
    producer = ApproxPrefixCacheProducer()
    for number, endpoint in enumerate(endpoints):
        producer.record(decision_of(shorter(asked, holds(number)), endpoint))
    # Another object each time: the producer keeps the atoms of the one it saw last.
    again = [replace(asked) for _ in range(rounds)]
    facts: list[PrefixMatch] = producer.match(asked, endpoints)
    assert facts[0].num_matched_tokens > 0
    return median_us(lambda number: producer.match(again[number], endpoints), rounds)


def measure(name: str, asked: PricedRequest) -> dict[str, Any]:
    rounds = NUM_ROUNDS[name]
    by_fleet = {}
    for size in FLEETS:
        endpoints = fleet(size)
        by_fleet[str(size)] = {
            "all_hold_it_us": matched_by(asked, endpoints, lambda _: 1.0, rounds),
            "each_holds_a_part_us": matched_by(asked, endpoints, lambda n, size=size: (n + 1) / size, rounds),
        }
    producer, endpoint = ApproxPrefixCacheProducer(), fleet(1)[0]
    decision = decision_of(asked, endpoint)
    return {
        "num_prompt_tokens": asked.num_prompt_tokens,
        "num_atoms": len(chains(asked, NO_LIMIT)[0].keys),
        "num_rounds": rounds,
        "atoms_us": median_us(lambda _: chains(asked, NO_LIMIT), rounds),
        "record_us": median_us(lambda _: producer.record(decision), rounds),
        "atoms_and_match_by_num_endpoints": by_fleet,
    }


def memory() -> dict[str, Any]:
    """Bytes of an entry where nobody shares anything, and the time to forget a full endpoint."""
    rng = random.Random(7)
    index = PrefixIndex()
    tracemalloc.start()
    for shelf in range(NUM_SHELVES):
        for _ in range(SHELF_TOKENS // 16 // PROMPT_ATOMS + 10):
            keys = [rng.getrandbits(64) for _ in range(PROMPT_ATOMS)]
            index.insert(f"10.0.0.{shelf}:8000", keys, [16] * PROMPT_ATOMS, SHELF_TOKENS)
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    entries = sum(index.num_entries(f"10.0.0.{shelf}:8000") for shelf in range(NUM_SHELVES))
    assert entries == NUM_SHELVES * (SHELF_TOKENS // 16)
    return {
        "entries": entries,
        "bytes_per_entry": round(grown / entries, 1),
        "bytes_per_cache_token": round(grown / entries / 16, 1),
        "remove_us": median_us(lambda number: index.remove(f"10.0.0.{number}:8000"), NUM_SHELVES),
    }


def churn() -> float:
    producer, endpoint = ApproxPrefixCacheProducer(), fleet(1)[0]

    def once(_: int) -> None:
        producer.observe(Joined(at=0.0, endpoint=endpoint))
        producer.observe(Left(at=0.0, endpoint=endpoint))

    return median_us(once, 1000)


def main() -> None:
    parser = arguments(__doc__)
    args = parser.parse_args()
    by_prompt = {name: measure(name, asked) for name, asked in prompts().items()}
    result = {
        **headed(f"atoms and match of {MULTIMODAL}; target: under {TARGET_MS} ms at {TARGET_FLEET} endpoints"),
        "by_prompt": by_prompt,
        "memory": memory(),
        "join_and_leave_us": churn(),
    }
    figures = by_prompt[MULTIMODAL]["atoms_and_match_by_num_endpoints"][str(TARGET_FLEET)]
    result["meets_target"] = max(figures.values()) < 1000 * TARGET_MS
    print(as_text(result))
    keep(result, args.write)


if __name__ == "__main__":
    main()
