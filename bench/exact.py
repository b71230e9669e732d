"""What does exact mode cost: from a gateway's messages to the destination, chat template and tokenizer included?

    python bench/exact.py [--model-dir DIR] [--write bench/results/exact.json]

A chat with three 720p JPEGs of about 100 KB and 1,300 tokens of text goes through the
sans-IO handler: headers and body in, read, rendered, tokenised, keys computed, matched
against 8 endpoints, decided, answered. Once all of its text is new, once the 1,000 tokens
of its system prompt were seen before. Beside it the same requests by the same road
without token ids, and rendering and tokenising alone, also of 100,000 tokens of text.
``DIR`` holds a model's config.json, tokenizer.json and chat template with the
vocabulary of Qwen3-VL; ``make test-vllm`` makes one. The thread's CPU time, medians
over rounds that take turns; the peer's render service does 9 requests a second.

Then the whole road, as ``extproc.py`` measures it: a real Envoy, ``tessera serve`` in exact
mode and beside it with the same configuration without token ids, endpoints that answer at
once and publish no events, and clients that send one such request again and again.
"""

import argparse
import contextlib
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from bodies import MODEL, jpeg
from extproc import Way, fleet, measure, serve_command, serving, table, with_windows
from report import arguments, as_text, headed, keep
from tessera.config.load import LoadedConfig, load_data
from tessera.core.facts import EndpointState, FleetView, Joined, KVStored
from tessera.core.matching.block_keys import BlockHasher, HashAlgorithm, block_key
from tessera.core.rng import SeededRng
from tessera.core.router import Router
from tessera.core.types import Endpoint
from tessera.live.extproc import ext_proc_pb2 as pb
from tessera.live.extproc.budget import BodyBudget
from tessera.live.extproc.handler import Ask, StreamHandler
from tessera.live.memory import keep_large_blocks
from tessera.live.token_memo import TokenMemo

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
MODEL_DIR = Path(os.environ.get("TESSERA_VLLM_DIR") or CACHE / "tessera-vllm") / "tiny-qwen3-vl"
"""The model that ``make test-vllm`` makes."""
NUM_ENDPOINTS = 8
BLOCK_SIZE = 16
NUM_ROUNDS = 60
NUM_WARM = 5
PICTURE_CHARS = 133_500
SYSTEM_WORDS, QUESTION_WORDS, LONG_WORDS = 800, 230, 78_000
"""Words that make about 1,000, 300 and 100,000 tokens."""
PATH = "/v1/chat/completions"
TARGET_MS = 3.3
BODY = "3 pictures, 1,300 tokens"


def config_of(model_dir: Path | None) -> dict[str, Any]:
    """Exact mode with the model's files; approximate without."""
    estimate = {"model": {"path": str(model_dir)} if model_dir else {"family": "qwen3-vl"}}
    producer = "precise-prefix-cache-producer" if model_dir else "approx-prefix-cache-producer"
    priced: dict[str, Any] = {"estimate": estimate}
    if model_dir:
        priced["tokenizer"] = {"path": str(model_dir)}
        estimate["model"]["engineModel"] = MODEL
    parameters = {"prefixMatchInfoProducerName": producer}
    return {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [
            {"type": "token-producer", "parameters": priced},
            {"type": producer},
            {"type": "prefix-cache-scorer", "parameters": parameters},
            {"type": "token-load-scorer"},
        ],
        "schedulingProfiles": [
            {
                "name": "default",
                "plugins": [{"pluginRef": "prefix-cache-scorer"}, {"pluginRef": "token-load-scorer"}],
            }
        ],
    }


def first_block(endpoint: Endpoint) -> KVStored:
    """The event of a prompt's first block, by vLLM's default algorithm and seed."""
    ids = tuple(range(BLOCK_SIZE))
    hashes = BlockHasher(HashAlgorithm.SHA256).hashes(ids, BLOCK_SIZE)
    return KVStored(
        at=0.0,
        endpoint_id=endpoint.id,
        block_hashes=tuple(map(block_key, hashes)),
        token_ids=ids,
        block_size=BLOCK_SIZE,
    )


class Road:
    """A handler for each request, and what it asks answered in this thread."""

    def __init__(self, config: LoadedConfig) -> None:
        self.config = config
        self._budget = BodyBudget(limit_bytes=1 << 30, per_body_bytes=1 << 26)
        self._memo = TokenMemo()
        self._ids = map("r{}".format, count())
        endpoints = [Endpoint(address=f"10.0.0.{number}", port=8000) for number in range(NUM_ENDPOINTS)]
        for endpoint in endpoints:
            config.router.observe(Joined(at=0.0, endpoint=endpoint))
        # What an engine with vLLM's defaults says first: from then on keys are computed as it computes them.
        config.router.observe(first_block(endpoints[0]))
        self._view = FleetView(tuple(map(EndpointState, endpoints)))
        self.num_tokens = 0

    def serve(self, head: pb.ProcessingRequest, body: pb.ProcessingRequest) -> None:
        """One request, from its messages to its answer."""
        handler = StreamHandler(self._budget, self.config.profile)
        handler.receive(head, 0.0)
        (ask,) = handler.receive(body, 0.0)
        assert isinstance(ask, Ask), "the whole body has come"
        router = self.config.router
        request_id = next(self._ids)
        request, draft = Router.read(
            ask.body, ask.headers, self.config.profile, request_id=request_id, at=0.0, wall_at=0.0
        )
        prompt = router.tokenise(request, draft, self._memo) if router.renderer else None
        assert prompt is None or prompt.reason is None, f"not tokenised: {prompt and prompt.reason}"
        decision = router.decide(request, self._view, 0.0, SeededRng(0, request_id), prompt)
        self.num_tokens = decision.priced.num_prompt_tokens
        handler.decided(tuple(each.id for each in decision.destinations), request_id, {}, 0.0)


def words(rng: random.Random, num_words: int) -> str:
    """Words that no request had before."""
    return " ".join(f"{rng.choice(WORDS)}{rng.randrange(100) if rng.random() < 0.1 else ''}" for _ in range(num_words))


TEXT = """
the of to a in is that for it was on are as with they be at one have this from by hot word but harbour crane gull
picture question describe weather number colour boat people morning light
"""
WORDS = TEXT.split()


def messages(system: str, question: str, pictures: list[str]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{each}"}} for each in pictures
    ]
    user = {"role": "user", "content": [*parts, {"type": "text", "text": question}]}
    return [{"role": "system", "content": system}, user]


def body_of(chat: list[dict[str, Any]]) -> bytes:
    return msgspec.json.encode({"model": MODEL, "messages": chat, "max_tokens": 300, "stream": True})


def message_of(body: bytes) -> pb.ProcessingRequest:
    return pb.ProcessingRequest(request_body=pb.HttpBody(body=body, end_of_stream=True))


def head_of() -> pb.ProcessingRequest:
    headers = [(":method", "POST"), (":path", PATH), ("content-type", "application/json")]
    values = [pb.HeaderValue(key=name, raw_value=value.encode()) for name, value in headers]
    return pb.ProcessingRequest(request_headers=pb.HttpHeaders(headers=pb.HeaderMap(headers=values)))


def timed_ms(call: Callable[[], object]) -> float:
    before = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - before) / 1e6


def rounds(model_dir: Path) -> Iterator[dict[str, float]]:
    """Milliseconds of each way, in turn."""
    rng = random.Random(1)
    exact, plain = Road(load_data(config_of(model_dir))), Road(load_data(config_of(None)))
    pictures = [jpeg(rng, (1280, 720), PICTURE_CHARS) for _ in range(3)]
    system, head = words(rng, SYSTEM_WORDS), head_of()
    renderer, profile = exact.config.router.renderer, exact.config.profile
    assert renderer is not None
    for _ in range(NUM_ROUNDS):
        new = message_of(body_of(messages(words(rng, SYSTEM_WORDS), words(rng, QUESTION_WORDS), pictures)))
        seen = message_of(body_of(messages(system, words(rng, QUESTION_WORDS), pictures)))
        times = {
            "exact_new_ms": timed_ms(partial(exact.serve, head, new)),
            "approximate_new_ms": timed_ms(partial(plain.serve, head, new)),
            "exact_seen_ms": timed_ms(partial(exact.serve, head, seen)),
            "num_tokens": exact.num_tokens,
        }
        for name, num_words in (("tokenise_new_ms", QUESTION_WORDS + SYSTEM_WORDS), ("tokenise_long_ms", LONG_WORDS)):
            if name == "tokenise_long_ms" and rng.random() > 0.2:
                continue
            content = body_of([{"role": "user", "content": words(rng, num_words)}])
            asked = Router.read(content, {":path": PATH}, profile, request_id="t", at=0.0, wall_at=0.0)
            times[name] = timed_ms(partial(renderer.tokens, asked[1], (), TokenMemo(), 0.0))
        yield times


def end_to_end(model_dir: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The whole road in exact mode and without, by number of clients."""
    rng = random.Random(1)
    pictures = [jpeg(rng, (1280, 720), PICTURE_CHARS) for _ in range(3)]
    body = body_of(messages(words(rng, SYSTEM_WORDS), words(rng, QUESTION_WORDS), pictures))
    with contextlib.ExitStack() as stack:
        _, endpoints, clients = stack.enter_context(fleet({BODY: body}))
        ways = []
        for name, folder in (("approximate", None), ("exact", model_dir)):
            config = endpoints.with_name(f"{name}.yaml")
            config.write_text(json.dumps(config_of(folder)))
            served = stack.enter_context(serving(serve_command("BUFFERED", endpoints, config)))
            ways.append(Way(name, served, served.ports["envoy"], counts=True))
        cells = list(measure(ways, clients, args, [(BODY, 1), (BODY, 8)]))
        served = ways[-1].serving
        counts = {"num_decided": served.num_decided(), "num_approximate": served.counted("tessera_untokenised_total")}
        return {"cells": cells, "exact": counts}


def main() -> None:
    parser = with_windows(arguments(__doc__))
    parser.add_argument("--model-dir", type=Path, default=MODEL_DIR, help="a model's files with Qwen3-VL's vocabulary")
    args = parser.parse_args()
    keep_large_blocks()
    found: dict[str, list[float]] = {}
    for index, times in enumerate(rounds(args.model_dir)):
        for name, value in times.items() if index >= NUM_WARM else ():
            found.setdefault(name, []).append(value)
    medians = {name: round(statistics.median(values), 3) for name, values in found.items()}
    slowest = medians["exact_new_ms"]
    result = {
        **headed("CPU of a request in exact mode"),
        "num_endpoints": NUM_ENDPOINTS,
        "target_ms": TARGET_MS,
        **medians,
        "requests_per_core_s": round(1000 / slowest),
        "end_to_end": end_to_end(args.model_dir.resolve(), args),
    }
    print(table(result["end_to_end"]["cells"]))
    print(as_text({**result, "end_to_end": result["end_to_end"]["exact"]}))
    keep(result, args.write)


if __name__ == "__main__":
    main()
