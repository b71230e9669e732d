"""What is the least that a picker on grpc.aio can cost? One that parses the JSON and answers with the next endpoint.

    python bench/bare_server.py PORT [PORT ...]

The PORTs are endpoints on loopback. Starts an Envoy with the configuration that
``tessera serve`` generates, answers its ext_proc questions with prepared messages and
drops its access log. ``bench/extproc.py`` starts it and compares; it prints the same
JSON line as ``tessera serve``.
"""

import asyncio
import itertools
import json
import signal
import sys
from typing import Any

import grpc
import msgspec
import uvloop

from tessera.core.dialects.chat import ChatBody
from tessera.live.envoy import LISTENER, EnvoySettings, envoy_config
from tessera.live.envoy_process import EnvoyProcess
from tessera.live.extproc import answers
from tessera.live.extproc import ext_proc_pb2 as pb
from tessera.live.extproc.names import ACCESS_LOG_METHOD, EXT_PROC_METHOD
from tessera.live.memory import keep_large_blocks


class BareServer(grpc.GenericRpcHandler):
    """ext_proc in BUFFERED mode, and an access log that nobody reads."""

    def __init__(self, endpoints: list[str]) -> None:
        routes = [answers.route((each,), "", {}, in_body=True).SerializeToString() for each in endpoints]
        self._routes = itertools.cycle(routes)
        self._methods: dict[str, Any] = {
            EXT_PROC_METHOD: grpc.stream_stream_rpc_method_handler(self._process, pb.ProcessingRequest.FromString),
            ACCESS_LOG_METHOD: grpc.stream_unary_rpc_method_handler(self._access_log),
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._methods.get(handler_call_details.method)

    async def _process(self, _: Any, context: Any) -> None:
        go_on = answers.CONTINUE_HEADERS.SerializeToString()
        while (message := await context.read()) is not grpc.aio.EOF:
            if message.HasField("request_body"):
                msgspec.json.decode(message.request_body.body, type=ChatBody)
                await context.write(next(self._routes))
            else:
                await context.write(go_on)

    async def _access_log(self, messages: Any, _: Any) -> bytes:
        async for _message in messages:
            pass
        return b""


async def main(ports: list[int]) -> None:
    """Serve until SIGTERM."""
    limits = [(f"grpc.max_{way}_message_length", 1 << 27) for way in ("receive", "send")]
    server = grpc.aio.server(options=[*limits, ("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((BareServer([f"127.0.0.1:{port}" for port in ports]),))
    grpc_port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    endpoints = [("127.0.0.1", port) for port in ports]
    settings = EnvoySettings(listen_port=0, ext_proc_address=f"127.0.0.1:{grpc_port}", endpoints=endpoints)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    envoy = await EnvoyProcess.start(envoy_config(settings), concurrency=settings.concurrency)
    try:
        keep_large_blocks()
        print(json.dumps({"ready": True, "ports": {"envoy": envoy.ports[LISTENER]}}), flush=True)
        await stopping.wait()
    finally:
        await envoy.stop()
        await server.stop(None)


if __name__ == "__main__":
    uvloop.run(main([int(port) for port in sys.argv[1:]]))
