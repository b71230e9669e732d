"""How much memory does Tessera hold beyond the bodies in flight?

    python bench/memory.py [--write bench/results/memory.json]

``tessera serve --envoy`` in front of four endpoints that answer at once; 300 clients
send an 8 MB chat with one picture each, all at the same instant. Measured is the
growth of Tessera's resident memory from idle to its peak (VmHWM of /proc/PID/status),
beside the most bytes of bodies that were in flight. Linux only.
"""

import asyncio
import contextlib
import json
import multiprocessing
import re
import tempfile
from pathlib import Path
from typing import Any

from bodies import PICTURE_8_MB, all_bodies
from extproc import NUM_ENDPOINTS, playing, serve_command, serving
from report import arguments, as_text, headed, keep
from traffic import play_endpoints

NUM_CLIENTS = 300
_KB = re.compile(r"^(VmHWM|VmRSS):\s+(\d+) kB$", re.MULTILINE)


def memory_bytes(pid: int) -> dict[str, int]:
    """Resident now and at its peak."""
    return {name: int(number) * 1024 for name, number in _KB.findall(Path(f"/proc/{pid}/status").read_text())}


async def send(port: int, request: bytes, go: asyncio.Event) -> int:
    """The status of one answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await go.wait()
    writer.write(request)
    await writer.drain()
    line = await reader.readline()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return int(line.split()[1])


async def storm(port: int, body: bytes) -> list[int]:
    """The statuses of all clients, which begin together."""
    fields = f"host: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
    request = f"POST /v1/chat/completions HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body
    go = asyncio.Event()
    clients = [asyncio.create_task(send(port, request, go)) for _ in range(NUM_CLIENTS)]
    await asyncio.sleep(1)
    go.set()
    return list(await asyncio.gather(*clients))


def run() -> dict[str, Any]:
    """One storm; sizes in bytes."""
    body = all_bodies()[PICTURE_8_MB]
    with contextlib.ExitStack() as stack:
        ports = stack.enter_context(playing(play_endpoints, NUM_ENDPOINTS)).recv()
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        entries = [{"name": f"e{n}", "address": "127.0.0.1", "port": str(port)} for n, port in enumerate(ports)]
        endpoints = Path(folder, "endpoints.yaml")
        endpoints.write_text(json.dumps({"endpoints": entries}))
        served = stack.enter_context(serving(serve_command("BUFFERED", endpoints)))
        idle = memory_bytes(served.picker_pid)["VmRSS"]
        statuses = asyncio.run(storm(served.ports["envoy"], body))
        peak = memory_bytes(served.picker_pid)["VmHWM"]
    bodies = NUM_CLIENTS * len(body)
    return {
        "num_clients": NUM_CLIENTS,
        "body_bytes": len(body),
        "bodies_bytes": bodies,
        "idle_bytes": idle,
        "growth_bytes": peak - idle,
        "growth_over_bodies": round((peak - idle) / bodies, 3),
        "statuses": {str(status): statuses.count(status) for status in sorted(set(statuses))},
    }


def main() -> None:
    parser = arguments(__doc__)
    args = parser.parse_args()
    result = {
        **headed("resident memory beyond idle, over the bytes of all bodies sent at once; target: 1.2 at most"),
        **run(),
    }
    print(as_text(result))
    keep(result, args.write)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main()
