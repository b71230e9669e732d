"""How do gateways reach us? grpc.aio, one server for ext_proc and the access log.

Nothing is decided here: messages are handed to a Stream, entries to the service.
"""

import logging
import os
from collections.abc import AsyncIterator
from typing import Any

# gRPC would complain on standard error whenever this process starts another one.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

import grpc

from tessera.core.errors import ConfigError, Problem
from tessera.live.access_log import read_entries
from tessera.live.extproc import access_log_pb2, ext_proc_pb2
from tessera.live.extproc.names import ACCESS_LOG_METHOD, EXT_PROC_METHOD
from tessera.live.service import RouterService
from tessera.live.stream import Stream

_log = logging.getLogger("tessera.extproc")

FRAME_BYTES = 1 << 20
"""Room for what surrounds a body in one message."""


class GrpcServer:
    """The gRPC side of a router."""

    def __init__(self, service: RouterService) -> None:
        self._service = service
        limit = min(service.budget.per_body_bytes + FRAME_BYTES, (1 << 31) - 1)
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                ("grpc.so_reuseport", 0),
            ]
        )
        self._server.add_generic_rpc_handlers((_Handlers(service),))

    async def start(self, address: str, port: int) -> int:
        """Listen; the port that was given or that the system chose. Raises ConfigError where it cannot be had."""
        try:
            bound = self._server.add_insecure_port(f"{address}:{port}")
        except RuntimeError:
            advice = "another program has the port, or the address is not this machine's; choose another, or port 0"
            message = f"cannot listen on {address}:{port} for ext_proc and the access log: {advice}"
            raise ConfigError([Problem("", message)]) from None
        await self._server.start()
        return bound

    async def stop(self, grace_s: float) -> None:
        """Take no new stream; end the open ones after ``grace_s``."""
        await self._server.stop(grace_s)


class _Handlers(grpc.GenericRpcHandler):
    """The two methods, by path."""

    def __init__(self, service: RouterService) -> None:
        self._service = service
        self._methods = {
            EXT_PROC_METHOD: grpc.stream_stream_rpc_method_handler(
                self._process,
                request_deserializer=ext_proc_pb2.ProcessingRequest.FromString,
                response_serializer=ext_proc_pb2.ProcessingResponse.SerializeToString,
            ),
            ACCESS_LOG_METHOD: grpc.stream_unary_rpc_method_handler(
                self._access_log,
                request_deserializer=access_log_pb2.StreamAccessLogsMessage.FromString,
                response_serializer=access_log_pb2.StreamAccessLogsResponse.SerializeToString,
            ),
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call, or nothing for an unknown method."""
        return self._methods.get(handler_call_details.method)

    async def _process(self, _: Any, context: Any) -> None:
        stream = Stream(self._service)
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                answers = stream.receive(message)
                del message
                for answer in await answers:
                    await context.write(answer)
        finally:
            stream.closed()

    async def _access_log(
        self, messages: AsyncIterator[access_log_pb2.StreamAccessLogsMessage], context: Any
    ) -> access_log_pb2.StreamAccessLogsResponse:
        async for message in messages:
            for entry in read_entries(message):
                try:
                    self._service.logged(entry)
                except Exception:
                    _log.exception("an access-log entry failed")
                    self._service.metrics.failed("access_log")
        return access_log_pb2.StreamAccessLogsResponse()
