"""What do the engines' own block keys cost: to compute, to match, and to keep by their events?

    python bench/blocks.py [--write bench/results/blocks.json]

Keys are computed from token ids, for a multimodal prompt of 4,000 tokens (three images of
880) and for 100,000 tokens of text, in blocks of 16, with each of the engine's hash
algorithms. The short prompt is matched against 64 endpoints of which each holds a part of
it beside 20,000 other blocks, by the whole plugin, keys included. Events go from bytes to
the index: two blocks stored for one removed, each event as vLLM publishes it, in direct
mode and chained anew; then once more in direct mode by the router's own road, from a
publisher's socket on. Thread CPU time, of the socket's road that of the event loop's
thread; medians over rounds that take turns.
"""

import asyncio
import random
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import uvloop
import zmq

from report import arguments, as_text, headed, keep
from tessera.config.load import load_text
from tessera.core.facts import Joined, KVRemoved, KVStored
from tessera.core.matching.block_keys import BlockHasher, HashAlgorithm, MediaSpan, block_key, extra_keys_of
from tessera.core.matching.kv_wire import decode_batch, encode_batch
from tessera.core.matching.precise_prefix_cache import PrecisePrefixCacheProducer
from tessera.core.parts import MediaItem, Modality
from tessera.core.types import Basis, Endpoint, InferenceRequest, ItemSpan, PricedItem, PricedRequest
from tessera.live.kv_feed import KVFeed

BLOCK_SIZE = 16
NUM_TOKENS, NUM_LONG_TOKENS = 4000, 100_000
IMAGE_TOKENS = 880
OFFSETS = (20, 1000, 2000)
VOCABULARY = 151_000
PLACEHOLDER = 151_655
NUM_ENDPOINTS = 64
ENDPOINTS = [Endpoint(address=f"10.0.0.{number}", port=8000) for number in range(1, NUM_ENDPOINTS + 1)]
NUM_OTHER_BLOCKS = 20_000
"""Blocks of other prompts that each endpoint holds: a cache of 320,000 tokens."""
EVENTS_A_BATCH = 50
NUM_EVENTS = 15_000
SEED = "0"
CONFIG = f"""
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {{type: precise-prefix-cache-producer, parameters: {{hashSeed: "{SEED}"}}}}
- {{type: prefix-cache-scorer, parameters: {{prefixMatchInfoProducerName: precise-prefix-cache-producer}}}}
schedulingProfiles:
- {{name: default, plugins: [{{pluginRef: prefix-cache-scorer}}]}}
"""
TARGETS = {"keys_ms": 2.0, "long_keys_ms": 30.0, "match_ms": 2.0, "events_per_s": 50_000}


def make_ids(num_tokens: int, offsets: tuple[int, ...] = ()) -> list[int]:
    rng = random.Random(num_tokens)
    ids = [rng.randrange(VOCABULARY) for _ in range(num_tokens)]
    for offset in offsets:
        ids[offset : offset + IMAGE_TOKENS] = [PLACEHOLDER] * IMAGE_TOKENS
    return ids


def make_request() -> PricedRequest:
    items = tuple(
        PricedItem(
            index=index,
            item=MediaItem(modality=Modality.IMAGE, format="jpeg", identifier=f"{index:064x}"),
            num_tokens=IMAGE_TOKENS,
            num_embeds=IMAGE_TOKENS,
            rule_basis=Basis.EXACT,
            size_basis=Basis.EXACT,
        )
        for index in range(len(OFFSETS))
    )
    return PricedRequest(
        request=InferenceRequest(request_id="r", at=0.0, wall_at=0.0, dialect="chat"),
        items=items,
        token_ids=make_ids(NUM_TOKENS, OFFSETS),
        spans=tuple(ItemSpan(index, offset, IMAGE_TOKENS) for index, offset in enumerate(OFFSETS)),
    )


def cpu_ms(work: Callable[[], object], num_calls: int) -> float:
    before = time.thread_time_ns()
    for _ in range(num_calls):
        work()
    return (time.thread_time_ns() - before) / num_calls / 1e6


def keys_of(request: PricedRequest, hasher: BlockHasher) -> tuple[int, ...]:
    ids = request.token_ids or ()
    spans = [MediaSpan(request.items[each.index].identifier, each.offset, each.num_tokens) for each in request.spans]
    extra = extra_keys_of(spans, len(ids) // BLOCK_SIZE, BLOCK_SIZE)
    return tuple(map(block_key, hasher.hashes(ids, BLOCK_SIZE, extra)))


def keys() -> dict[str, dict[str, float]]:
    short = make_request()
    long = replace(short, items=(), spans=(), token_ids=make_ids(NUM_LONG_TOKENS))
    result = {}
    for algorithm in HashAlgorithm:
        hasher = BlockHasher(algorithm, SEED)
        keys_of(short, hasher)
        result[str(algorithm)] = {
            "keys_ms": cpu_ms(lambda hasher=hasher: keys_of(short, hasher), 50),
            "long_keys_ms": cpu_ms(lambda hasher=hasher: keys_of(long, hasher), 3),
        }
    return result


def stored(endpoint_id: str, ids: list[int], hasher: BlockHasher, request: PricedRequest | None = None) -> KVStored:
    hashes = keys_of(request, hasher) if request else tuple(map(block_key, hasher.hashes(ids, BLOCK_SIZE)))
    num_blocks = len(ids) // BLOCK_SIZE
    return KVStored(
        at=0.0,
        endpoint_id=endpoint_id,
        block_hashes=hashes[:num_blocks],
        token_ids=tuple(ids[: num_blocks * BLOCK_SIZE]),
        block_size=BLOCK_SIZE,
    )


def make_producers() -> dict[str, PrecisePrefixCacheProducer]:
    """The whole prompt is held by every endpoint in the worst case, by each a part of its own in the usual one."""
    hasher, rng = BlockHasher(seed=SEED), random.Random(2)
    whole = keys_of(make_request(), hasher)
    made = {}
    for name, parts in (("partly", range(NUM_ENDPOINTS)), ("wholly", [NUM_ENDPOINTS] * NUM_ENDPOINTS)):
        made[name] = producer = PrecisePrefixCacheProducer(hash_seed=SEED)
        for endpoint, part in zip(ENDPOINTS, parts, strict=True):
            producer.observe(Joined(at=0.0, endpoint=endpoint))
            producer.observe(stored(endpoint.id, make_ids(BLOCK_SIZE), hasher))
            producer.index.store(endpoint.id, 0, (rng.getrandbits(64) for _ in range(NUM_OTHER_BLOCKS)))
            # An engine's events bring keys of their own, which are equal and not the same.
            producer.index.store(endpoint.id, 0, (int(str(key)) for key in whole[: len(whole) * part // NUM_ENDPOINTS]))
    return made


def match(producers: dict[str, PrecisePrefixCacheProducer]) -> dict[str, float]:
    request, result = make_request(), {}
    for name, producer in producers.items():
        assert sum(fact.num_matched_tokens > 0 for fact in producer.match(request, ENDPOINTS)) >= NUM_ENDPOINTS - 1

        def ask(producer: PrecisePrefixCacheProducer = producer) -> None:
            producer.match(replace(request), ENDPOINTS)

        result[f"{name}_held_ms"] = cpu_ms(ask, 20)
    return result


def make_payloads(endpoint_id: str) -> list[bytes]:
    """Batches of events of one engine: two blocks stored for one removed."""
    rng, hasher, kept, payloads = random.Random(1), BlockHasher(seed=SEED), list[int](), list[bytes]()
    for _ in range(NUM_EVENTS // EVENTS_A_BATCH):
        events: list[KVStored | KVRemoved] = []
        while len(events) < EVENTS_A_BATCH:
            event = stored(endpoint_id, [rng.randrange(VOCABULARY) for _ in range(BLOCK_SIZE)], hasher)
            events.append(replace(event, extra_keys=(None,), group=0, attention="full_attention"))
            kept += event.block_hashes
            if len(events) % 3 == 2:
                removed = kept.pop(rng.randrange(len(kept)))
                events.append(KVRemoved(at=0.0, endpoint_id=endpoint_id, block_hashes=(removed,), group=0))
        payloads.append(encode_batch(events, ts=0.0))
    return payloads


def ingest(payloads: list[bytes], endpoint: Endpoint) -> dict[str, float]:
    result = {}
    for mode, seed in (("direct", SEED), ("rechained", "another")):
        producer = PrecisePrefixCacheProducer(hash_seed=seed)
        producer.observe(Joined(at=0.0, endpoint=endpoint))
        before, num_events = time.thread_time_ns(), 0
        for payload in payloads:
            events = decode_batch(payload, at=0.0, endpoint_id=endpoint.id, rank=0).events
            num_events += len(events)
            for event in events:
                producer.observe(event)
        result[f"{mode}_events_per_s"] = num_events / ((time.thread_time_ns() - before) / 1e9)
        assert set(producer.key_modes().values()) == {mode}
    result["from_socket_events_per_s"] = uvloop.run(hear(payloads))
    return result


def publish(payloads: list[bytes], ports: list[int], has_port: threading.Event) -> None:
    """An engine that has all its batches ready when somebody subscribes."""
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.setsockopt(zmq.SNDHWM, 0)
        ports.append(socket.bind_to_random_port("tcp://127.0.0.1"))
        has_port.set()
        socket.recv()
        for number, payload in enumerate(payloads):
            socket.send_multipart([b"kv@", number.to_bytes(8, "big"), payload])


async def hear(payloads: list[bytes]) -> float:
    """Events a second of the loop's CPU time, from the socket to the index."""
    ports: list[int] = []
    has_port = threading.Event()
    threading.Thread(target=publish, args=(payloads, ports, has_port)).start()
    has_port.wait()
    router = load_text(CONFIG).router
    faults: list[str] = []
    feed = KVFeed(router, clock=time.monotonic, failed=faults.append)
    endpoint = Endpoint(address="127.0.0.1", port=8000, kv_events_port=ports[0])
    joined = Joined(at=0.0, endpoint=endpoint)
    router.observe(joined)
    before = time.thread_time_ns()
    feed.observe(joined)
    while told(feed, "tessera_kv_batches_total") < len(payloads):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    rate = told(feed, "tessera_kv_events_total") / ((time.thread_time_ns() - before) / 1e9)
    assert told(feed, "tessera_kv_gaps_total") == len(faults) == 0
    await feed.close()
    return rate


def told(feed: KVFeed, name: str) -> float:
    return next(sum(number for _, number in rows) for family, _, _, rows in feed.gauges() if family == name)


def medians(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        key: medians([each[key] for each in rounds])
        if isinstance(rounds[0][key], dict)
        else float(f"{statistics.median(each[key] for each in rounds):.3g}")
        for key in rounds[0]
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--num-rounds", type=int, default=5)
    args = parser.parse_args()
    endpoint = ENDPOINTS[0]
    payloads = make_payloads(endpoint.id)
    producers = make_producers()
    rounds = [
        {"keys": keys(), "match": match(producers), "events": ingest(payloads, endpoint)}
        for _ in range(args.num_rounds)
    ]
    figures = medians(rounds)
    result = {
        **headed("CPU of exact matching from token ids"),
        "targets": TARGETS,
        "block_size": BLOCK_SIZE,
        "num_endpoints": NUM_ENDPOINTS,
        "num_other_blocks": NUM_OTHER_BLOCKS,
        **figures,
        "meets_targets": all(
            each["keys_ms"] < TARGETS["keys_ms"] and each["long_keys_ms"] < TARGETS["long_keys_ms"]
            for each in figures["keys"].values()
        )
        and all(each < TARGETS["match_ms"] for each in figures["match"].values())
        and all(each > TARGETS["events_per_s"] for each in figures["events"].values()),
    }
    print(as_text(result))
    keep(result, args.write)


if __name__ == "__main__":
    main()
