"""How is a real vLLM started on this machine, asked, and listened to?"""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec
import zmq

from .case import MODEL, Case

BLOCK_SIZE = 32
"""Tokens in a KV block; the CPU kernels take no multiple of less."""
HASH_SEED = "0"
MAX_MODEL_LEN = 16_384
START_S = 400.0
"""How long a start may take. Most of it is imports, on a busy machine minutes of them."""
STOP_S = 40.0
QUIET_S = 0.2
"""A silence that ends a request's events. What comes later still counts, for the next request."""


@dataclass(frozen=True)
class Answer:
    """What came back for one request."""

    status: int
    content: dict[str, Any]

    @property
    def num_prompt_tokens(self) -> int | None:
        usage = self._usage
        if "prompt_tokens" in usage:
            return int(usage["prompt_tokens"])
        # Of Anthropic's three counts each leaves out what the others have.
        counts = (usage.get(name, 0) for name in ("cache_read_input_tokens", "cache_creation_input_tokens"))
        return usage["input_tokens"] + sum(counts) if usage else None

    @property
    def num_cached_tokens(self) -> int | None:
        """Tokens of the prompt that the engine did not have to compute."""
        usage = self._usage
        details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
        return details["cached_tokens"] if details else usage.get("cache_read_input_tokens")

    @property
    def token_ids(self) -> list[list[int]]:
        """The engine's own token ids, of each prompt, where the answer has them."""
        if (ids := self.content.get("prompt_token_ids")) is not None:
            return [ids]
        if (inputs := self.content.get("input_messages")) is not None:
            return [each["tokens"] for each in inputs]
        return [each["prompt_token_ids"] for each in self.content.get("choices", []) if each.get("prompt_token_ids")]

    @property
    def _usage(self) -> dict[str, Any]:
        return self.content.get("usage") or {}


@dataclass
class Engine:
    """One vLLM server with a tiny Qwen3-VL on loopback ports of its own, and its KV events; a context manager."""

    env: Path
    """The virtual environment that has it."""
    model: Path
    log: Path
    """Where its output goes."""
    arguments: tuple[str, ...] = ()
    """Further ones of the command line."""
    tells_events: bool = True
    stored: set[int] = field(default_factory=set)
    """Every block hash it ever stored."""
    messages: list[bytes] = field(default_factory=list)
    """Those of the last request, as they were sent."""

    def __enter__(self) -> Self:
        self.port = _free_port()
        self._events = zmq.Context.instance().socket(zmq.SUB)
        self._events.subscribe(b"")
        # The engine connects to us: it would bind no address but all of them.
        events_port = self._events.bind_to_random_port("tcp://127.0.0.1")
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command(events_port),
                env=_environment(self.env),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + STOP_S
        while self._process.poll() is None and time.monotonic() < deadline:
            # The signal is lost while the engine is still starting, so it is sent again.
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        # An engine that was killed leaves a process behind that keeps its accounts.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._events.close(0)

    def ask(self, case: Case, timeout_s: float = 120.0) -> Answer:
        """Send a request; afterwards ``messages`` are its events and ``stored`` has grown by them."""
        url = f"http://127.0.0.1:{self.port}{case.path}"
        request = urllib.request.Request(url, case.body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as response:
                answer = Answer(response.status, json.load(response))
        except urllib.error.HTTPError as error:
            answer = Answer(error.code, json.load(error))
        self.messages = []
        self.listen(QUIET_S)
        return answer

    def listen(self, quiet_s: float) -> None:
        """Take in events until none came for so long."""
        while self._events.poll(int(quiet_s * 1000)):
            _, _, payload = self._events.recv_multipart()
            _, events, *_ = msgspec.msgpack.decode(payload)
            self.messages.append(payload)
            for event in events:
                if event["type"] == "BlockStored":
                    self.stored.update(event["block_hashes"])

    def signalled(self, number: signal.Signals) -> None:
        """Stop it for a while, let it go on, or kill it."""
        self._process.send_signal(number)

    def version(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/version", timeout=10) as response:
            return str(json.load(response)["version"])

    def _command(self, events_port: int) -> list[str]:
        events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://127.0.0.1:{events_port}"}
        told = ("--kv-events-config", json.dumps(events)) if self.tells_events else ()
        # Bounds the dummy picture of the start-up only: larger ones are accepted.
        limits = {"image": {"count": 8, "width": 640, "height": 480}, "video": 0}
        return [
            *("nice", str(self.env / "bin" / "vllm"), "serve", str(self.model), "--served-model-name", MODEL),
            *("--host", "127.0.0.1", "--port", str(self.port), "--enforce-eager"),
            *("--max-model-len", str(MAX_MODEL_LEN), "--max-num-batched-tokens", "8192", "--max-num-seqs", "8"),
            *("--block-size", str(BLOCK_SIZE), "--enable-prompt-tokens-details"),
            *("--limit-mm-per-prompt", json.dumps(limits), *told),
            *("--distributed-executor-backend", "uni", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
            *self.arguments,
        ]

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if (code := self._process.poll()) is not None:
                raise RuntimeError(f"vLLM ended with {code} while it started: see {self.log}")
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2):
                return
            time.sleep(0.5)
        raise RuntimeError(f"vLLM is not up after {START_S:.0f} s: see {self.log}")


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def _environment(env: Path) -> dict[str, str]:
    """This process's, with what keeps the engine small, quiet, off the network and equal in its hashes."""
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "PATH": f"{env / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONHASHSEED": HASH_SEED,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # Else the executor becomes a process of its own again.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
