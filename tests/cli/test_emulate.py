"""Does ``tessera emulate`` start the server that its options describe?"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from typer.testing import CliRunner

from tessera.cli.main import app
from tessera.engine.profiles import PROFILES


@contextmanager
def emulating(*options: str) -> Iterator[dict[str, int]]:
    """The ports of a server that runs meanwhile."""
    command = [sys.executable, "-m", "tessera.cli.main", "emulate", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        assert line["ready"] is True
        yield line["ports"]
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait(10)


def test_a_profile_a_model_folder_and_kv_events(model_folder: Path) -> None:
    name = "l40s-tp1-qwen3-vl-8b"
    options = ["--profile", name, "--speed", "50", "--model-dir", str(model_folder), "--kv-events-port", "0"]
    with emulating(*options, "--hash-seed", "3", "--prefix-caching-hash-algo", "sha256_cbor") as ports:
        assert sorted(ports) == ["http", "kv_events", "kv_replay"]
        url = f"http://127.0.0.1:{ports['http']}"
        assert httpx.get(f"{url}/v1/models").json()["data"][0]["id"] == "qwen3-vl-8b"
        page = httpx.get(f"{url}/metrics").text
        assert f'num_gpu_blocks="{PROFILES[name].num_blocks}"' in page
        assert 'prefix_caching_hash_algo="sha256_cbor"' in page
        body = {"messages": [{"role": "user", "content": "x" * 100}], "max_tokens": 1}
        usage = httpx.post(f"{url}/v1/chat/completions", json=body).json()["usage"]
        # A byte is a token of this folder's tokenizer: "<|im_start|>user\n", the text, the end, "assistant\n".
        assert usage["prompt_tokens"] == 6 + 100 + 2 + 11
        taken = CliRunner().invoke(app, ["emulate", "--port", str(ports["http"])])
        assert taken.exit_code == 2
        assert f"127.0.0.1:{ports['http']}: Address already in use" in taken.stderr


def test_a_picture_that_nobody_has_ends_the_process() -> None:
    command = [sys.executable, "-m", "tessera.cli.main", "emulate", "--port", "0", "--role", "prefill-decode"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{json.loads(process.stdout.readline())['ports']['http']}"
        picture = {"type": "image_embeds", "image_embeds": {"image_grid_thw": [1, 44, 80]}, "uuid": "never-stored"}
        body = {"messages": [{"role": "user", "content": [picture]}], "max_tokens": 1}
        assert httpx.post(f"{url}/v1/chat/completions", json=body).status_code == 500
        assert process.wait(30) == 1
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health")
        assert process.stderr is not None
        assert "The engine is dead" in process.stderr.read()
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--profile", "h300"), r"--profile: got 'h300', expected one of h200-tp2-qwen3-vl-32b, "),
        (("--model-dir", "/nowhere"), r"/nowhere is no folder"),
        (
            ("--profile", "h200-tp1-qwen3-vl-32b-encoder", "--role", "decode"),
            r"--role: got 'decode', but h200-tp1-qwen3-vl-32b-encoder has no language model",
        ),
        (("--speed", "inf"), "should be less than or equal to 1000000"),
        (("--speed", "nan"), "should be less than or equal to 1000000"),
        (("--kv-lease-s", "inf"), "should be less than or equal to 1000000000"),
        (("--embeddings-folder", __file__), "File exists; name a folder that encoders may write into"),
        (("--hash-seed", "0"), "--hash-seed: is of KV events, which are not published; add --kv-events-port"),
        (("--kv-replay-port", "0"), "--kv-replay-port: is of KV events"),
        (("--prefix-caching-hash-algo", "sha256"), "--prefix-caching-hash-algo: is of KV events"),
    ],
)
def test_what_cannot_be_emulated_is_said_before_it_starts(options: tuple[str, ...], problem: str) -> None:
    result = CliRunner().invoke(app, ["emulate", "--port", "0", *options], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert re.search(problem, result.stderr)
