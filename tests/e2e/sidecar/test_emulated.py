"""That emulated pools with a sidecar answer as one emulated server does, and go on when any of them dies."""

import asyncio
import base64
import io
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import aiohttp
import pytest
from PIL import Image

from .conftest import CHAT

MODEL = "qwen3-vl-32b"
ENCODER = ("--role", "encode", "--profile", "h200-tp1-qwen3-vl-32b-encoder")
LOAD_S = 1.0
"""How long clients ask before and after a server is killed."""


def picture(seed, size=(1280, 720)):
    """A data URL, other pixels for each seed."""
    buffer = io.BytesIO()
    Image.new("RGB", size, (seed % 256, seed // 256 % 256, 77)).save(buffer, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def chat(*pictures, **fields):
    content = [*pictures, {"type": "text", "text": "What is it?"}]
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 8,
        "temperature": 0,
        **fields,
    }


class Process:
    """One command of ours in a process of its own."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "tessera.cli.main", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ)
        self.ports = json.loads(self.process.stdout.readline())["ports"]

    @property
    def id(self):
        return f"127.0.0.1:{self.ports['http']}"

    def get(self, path, port="http"):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[port]}{path}", timeout=10) as answer:
            return answer.read()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self):
        self.process.terminate()
        self.process.wait(20)
        self.process.stdout.close()


@contextmanager
def pools(*, engine, num_encoders=3, with_prefiller=False):
    """Encoders, perhaps a prefiller, an engine with a sidecar before it, and one server that does everything."""
    started = []

    def start(*arguments):
        started.append(Process(*arguments))
        return started[-1]

    def emulate(*arguments):
        return start("emulate", "--port", "0", "--speed", "5", *arguments)

    try:
        encoders = [emulate(*ENCODER) for _ in range(num_encoders)]
        prefiller = emulate("--role", "prefill") if with_prefiller else None
        server = emulate("--role", engine)
        flags = ["--port", "0", "--bind", "127.0.0.1", "--metrics-port", "-1", "--ec-connector", "ec-nixl"]
        sidecar = start("sidecar", *flags, "--model-server-port", str(server.ports["http"]))
        headers = {"x-encoder-hosts-ports": ",".join(each.id for each in encoders)}
        if prefiller:
            headers["x-prefiller-host-port"] = prefiller.id
        yield encoders, prefiller, server, sidecar, headers, emulate("--role", "all")
    finally:
        for each in reversed(started):
            each.stop()


async def ask(client, server, body, headers=None):
    async with client.post(f"http://{server.id}{CHAT}", json=body, headers=headers) as answer:
        return answer.status, await answer.read()


def told(answer):
    """What a client reads of an answer: words and usage."""
    content = json.loads(answer)
    usage = content["usage"]
    return content["choices"][0]["message"], content["choices"][0]["finish_reason"], usage


@pytest.mark.parametrize(("engine", "with_prefiller"), [("prefill-decode", False), ("decode", True)])
async def test_answers_are_those_of_one_server_and_items_are_encoded_once(engine, with_prefiller):
    distinct = [picture(seed) for seed in range(8)]
    body = chat(*distinct, distinct[0], distinct[3], distinct[3])
    with pools(engine=engine, with_prefiller=with_prefiller) as (encoders, _, _, sidecar, headers, alone):
        async with aiohttp.ClientSession() as client:
            status, answer = await ask(client, sidecar, body, headers)
            assert status == 200
            assert told(answer) == told((await ask(client, alone, body))[1])
        jobs = [job for encoder in encoders for job in json.loads(encoder.get("/emulator/requests"))["requests"]]
        names = [item["identifier"] for job in jobs for item in job["items"]]
        assert len(names) == len(set(names)) == 8
        assert max(job["start"] for job in jobs) < min(job["end"] for job in jobs)


@pytest.mark.parametrize("killed", ["encoder", "prefiller", "engine"])
async def test_under_load_every_request_has_an_end_whoever_dies(killed):
    with pools(engine="decode", num_encoders=2, with_prefiller=True) as (
        encoders,
        prefiller,
        server,
        sidecar,
        headers,
        _,
    ):
        statuses, ends, asking = [], [], True

        async def clients(number):
            count = 0
            while asking:
                count += 1
                pictures = [picture(1000 * number + 2 * count + index, (640, 480)) for index in range(2)]
                body = chat(*pictures, stream=bool(count % 2))
                status, answer = await ask(client, sidecar, body, headers)
                statuses.append(status)
                ends.append(answer[-14:] if count % 2 and status == 200 else b"data: [DONE]\n\n")

        async with aiohttp.ClientSession() as client:
            running = [asyncio.create_task(clients(number)) for number in range(4)]
            await asyncio.sleep(LOAD_S)
            num_before = len(statuses)
            {"encoder": encoders[0], "prefiller": prefiller, "engine": server}[killed].kill()
            await asyncio.sleep(LOAD_S)
            asking = False
            async with asyncio.timeout(20):
                await asyncio.gather(*running)
        assert num_before > 0
        assert set(statuses[:num_before]) == {200}
        assert set(ends) == {b"data: [DONE]\n\n"}
        page = sidecar.get("/metrics", "metrics").decode()
        assert "tessera_sidecar_requests_in_flight 0.0" in page
        if killed == "engine":
            assert set(statuses[num_before:]) <= {200, 502, 503}
        else:
            assert set(statuses) == {200}
            stage = "encode" if killed == "encoder" else "prefill"
            counter = "retried" if killed == "encoder" else "fell_back"
            assert re.search(
                rf'tessera_sidecar_{counter}_total{{cause="(unreachable|cut)",stage="{stage}"}} [1-9]', page
            )
