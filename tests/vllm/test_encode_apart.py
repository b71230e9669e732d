"""Do two real engines and the sidecar answer as one engine does, when pictures are encoded apart?"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from .case import MODEL
from .engine import Engine
from .pictures import image, picture
from .result import RESULT

pytestmark = pytest.mark.vllm
CHAT = "/v1/chat/completions"
ENCODE_TIMEOUT_S = 3.0
STORED = "encoder_cache.safetensors"
"""The file of an item's embeddings, in a folder of its name. Source: ``ECExampleConnector`` of vLLM 0.32."""
PICTURE = picture(size=(1280, 720), seed=7)


@dataclass
class Apart:
    """An encoder, the engine that uses what it encoded, and the sidecar before the engine."""

    encoder: Engine
    engine: Engine
    port: int
    metrics_port: int
    store: Path

    def sidecar(self, body: bytes) -> tuple[dict[str, Any], str]:
        """Answer and stages of a request whose pictures the encoder is to encode."""
        return post(self.port, body, {"x-encoder-hosts-ports": f"127.0.0.1:{self.encoder.port}"})

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as page:
            lines = [line for line in page.read().decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def post(port: int, body: bytes, headers: dict[str, str]) -> tuple[dict[str, Any], str]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{CHAT}", body, {"content-type": "application/json", **headers}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer), answer.headers.get("x-tessera-stages", "")


def asked(name: str, **fields: Any) -> bytes:
    """A chat about the picture under a name of its own, so that no cache knows it."""
    content = [image(PICTURE, uuid=name), {"type": "text", "text": "Describe the picture."}]
    shared = {"model": MODEL, "temperature": 0, "max_tokens": 8, "logprobs": True, "top_logprobs": 3}
    return json.dumps({**shared, "messages": [{"role": "user", "content": content}], **fields}).encode()


def logprobs(answer: dict[str, Any]) -> list[list[tuple[str, float]]]:
    tokens = answer["choices"][0]["logprobs"]["content"]
    return [[(top["token"], round(top["logprob"], 4)) for top in token["top_logprobs"]] for token in tokens]


@contextmanager
def sidecar(engine_port: int) -> Iterator[dict[str, int]]:
    flags = ["--port", "0", "--bind", "127.0.0.1", "--metrics-port", "-1", "--ec-connector", "ec-example"]
    flags += ["--model-server-port", str(engine_port), "--encode-timeout", f"{ENCODE_TIMEOUT_S}s"]
    command = [sys.executable, "-m", "tessera.cli.main", "sidecar", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["ports"]
        finally:
            process.terminate()
            process.wait(10)


@pytest.fixture(scope="module")
def apart(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    folder = tmp_path_factory.mktemp("apart")
    store = folder / "store"
    store.mkdir()

    def engine(role: str, *arguments: str) -> Engine:
        storage = {"shared_storage_path": str(store)}
        config = {"ec_connector": "ECExampleConnector", "ec_role": role, "ec_connector_extra_config": storage}
        told = ("--ec-transfer-config", json.dumps(config), *arguments)
        return Engine(model.parent / "env", model, folder / f"{role}.log", told, tells_events=False)

    with (
        engine("ec_producer", "--no-enable-prefix-caching", "--mm-encoder-only") as encoder,
        engine("ec_consumer") as consumer,
        sidecar(consumer.port) as ports,
    ):
        yield Apart(encoder, consumer, ports["http"], ports["metrics"], store)


def test_answers_are_those_of_one_engine_and_the_encoder_may_go(apart: Apart) -> None:
    run, kept = uuid.uuid4().hex[:8], []

    def told(question: str, holds: bool) -> None:
        kept.append({"question": question, "holds": holds})
        assert holds, question

    own, _ = post(apart.engine.port, asked(f"own-{run}"), {})
    answer, stages = apart.sidecar(asked(f"apart-{run}"))
    told("the encoder encoded it", stages.startswith(f"encode=127.0.0.1:{apart.encoder.port},1,200,"))
    told("its embeddings are in the store", (apart.store / f"apart-{run}" / STORED).exists())
    told("log-probabilities are those of the engine alone", logprobs(answer) == logprobs(own))
    told("usage is that of the engine alone", answer["usage"] == own["usage"])

    post(apart.encoder.port, asked(f"zero-{run}", max_tokens=1, logprobs=False, top_logprobs=None), {})
    _zero(apart.store / f"zero-{run}" / STORED)
    changed, _ = post(apart.port, asked(f"zero-{run}"), {})
    told("the engine skips its encoder: what is in the store decides", logprobs(changed) != logprobs(own))

    answer, _ = apart.sidecar(asked(f"again-{run}"))
    told("again and again", logprobs(answer) == logprobs(own))

    apart.encoder.signalled(signal.SIGSTOP)
    took, answer = _timed(lambda: apart.sidecar(asked(f"stopped-{run}"))[0])
    told("an encoder that stands still is waited for once", took >= ENCODE_TIMEOUT_S)
    told("then the engine encodes", logprobs(answer) == logprobs(own))

    killer = threading.Timer(1.0, apart.encoder.signalled, [signal.SIGKILL])
    killer.start()
    took, answer = _timed(lambda: apart.sidecar(asked(f"killed-{run}"))[0])
    killer.join()
    told("an encoder that dies in the middle is not waited for", took < ENCODE_TIMEOUT_S + 5)
    told("then the engine encodes, too", logprobs(answer) == logprobs(own))
    answer, _ = apart.sidecar(asked(f"gone-{run}"))
    told("and when it is gone", logprobs(answer) == logprobs(own))
    metrics = apart.metrics()
    causes = {
        cause: metrics[f'tessera_sidecar_fell_back_total{{cause="{cause}",stage="encode"}}']
        for cause in ("late", "cut", "unreachable")
    }
    told("and the counters name each cause", causes == {"late": 1, "cut": 1, "unreachable": 1})
    _keep(apart, kept)


def _timed(work: Callable[[], dict[str, Any]]) -> tuple[float, dict[str, Any]]:
    began = time.monotonic()
    answer = work()
    return time.monotonic() - began, answer


def _zero(path: Path) -> None:
    """Overwrite the tensors of a safetensors file: eight bytes of the header's length, the header, the data."""
    content = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    content[start:] = bytes(len(content) - start)
    path.write_bytes(content)


def _keep(apart: Apart, checks: list[dict[str, Any]]) -> None:
    if not (place := os.environ.get(RESULT)):
        return
    result = {
        "command": "make test-vllm",
        "question": "Do two real engines and the sidecar answer as one engine does?",
        "date": datetime.now(UTC).date().isoformat(),
        "vllm": apart.engine.version(),
        "connector": "ECExampleConnector",
        "checks": checks,
    }
    Path(place).with_name("vllm_apart.json").write_text(json.dumps(result, indent=2) + "\n")
