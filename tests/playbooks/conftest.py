"""A conversation on one ext_proc stream: ``play >> what arrives``, ``play << what must leave``.

Whatever leaves must be asserted before the next message comes, and before the
test ends. An ``Ask`` is answered with ``decide`` or ``refuse``, ``ResponseHeaders`` with
``respond``.
"""

from dataclasses import dataclass

import msgspec
import pytest

from tessera.live.extproc import ext_proc_pb2 as pb
from tessera.live.extproc.budget import BodyBudget
from tessera.live.extproc.handler import Ask, ResponseBegan, ResponseHeaders, Send, StreamHandler

MODES = pb.ProcessingMode
DESTINATION = "x-gateway-destination-endpoint"


@dataclass(frozen=True)
class Continue:
    """An empty answer to a message of that kind."""

    kind: str


@dataclass(frozen=True)
class Route:
    """The answer to ``kind`` that carries the destination."""

    kind: str
    destination: str
    request_id: str = "r1"
    extra: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Added:
    """The answer to a response's headers, with more of them."""

    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Piece:
    """A piece of a body that is handed on."""

    kind: str
    body: bytes
    is_last: bool


@dataclass(frozen=True)
class Refusal:
    """An answer of our own."""

    status: int
    code: str
    type: str
    reason: str | None = None
    retry_after: str | None = None


def plain(command):
    """A command as a value that compares and prints well."""
    if not isinstance(command, Send):
        return command
    answer = command.message
    kind = answer.WhichOneof("response")
    if kind == "immediate_response":
        return refusal(answer.immediate_response)
    inner = getattr(answer, kind)
    common = inner.response if hasattr(inner, "response") else pb.CommonResponse()
    streamed = common.body_mutation.streamed_response
    if common.body_mutation.HasField("streamed_response"):
        assert not common.HasField("header_mutation")
        return Piece(kind, streamed.body, streamed.end_of_stream)
    if not common.HasField("header_mutation"):
        assert answer == pb.ProcessingResponse(**{kind: type(inner)()})
        return Continue(kind)
    return added(common) if kind == "response_headers" else route(answer, kind, common)


def added(common):
    options = common.header_mutation.set_headers
    assert all(each.append_action == pb.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD for each in options)
    assert not common.clear_route_cache
    assert not common.header_mutation.remove_headers
    return Added(tuple((each.header.key, each.header.raw_value.decode()) for each in options))


def route(answer, kind, common):
    options = common.header_mutation.set_headers
    assert all(each.append_action == pb.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD for each in options)
    assert common.clear_route_cache
    headers = {each.header.key: each.header.raw_value.decode() for each in options}
    metadata = answer.dynamic_metadata
    destination = headers.pop(DESTINATION)
    assert metadata["envoy.lb"][DESTINATION] == destination
    removed = tuple(sorted(common.header_mutation.remove_headers))
    return Route(kind, destination, metadata["tessera"]["id"], tuple(sorted(headers.items())), removed)


def refusal(answer):
    error = msgspec.json.decode(answer.body)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    headers = {each.header.key: each.header.raw_value.decode() for each in answer.headers.set_headers}
    assert headers.pop("content-type") == "application/json"
    reason, retry_after = headers.pop("x-llm-d-request-dropped-reason", None), headers.pop("retry-after", None)
    assert headers == {}
    return Refusal(answer.status.code, error["code"], error["type"], reason, retry_after)


class Playbook:
    """One stream, and what has left it and was not asserted yet."""

    def __init__(self, *, limit_bytes=1 << 30, per_body_bytes=64 << 20):
        self.budget = BodyBudget(limit_bytes=limit_bytes, per_body_bytes=per_body_bytes)
        self.handler = StreamHandler(self.budget)
        self.left = []
        self.at = 0.0

    def __rshift__(self, message):
        assert self.left == [], "something left that nobody expected"
        # Over the wire and back, as a gateway would send it.
        self.handle(self.handler.receive(pb.ProcessingRequest.FromString(message.SerializeToString()), self.at))
        return self

    def __lshift__(self, expected):
        assert self.left, f"nothing left, expected {expected}"
        assert self.left.pop(0) == expected
        return self

    def handle(self, commands):
        self.left += [plain(command) for command in commands]

    def ask(self, body, *, guess=None, subset=None):
        """What must leave is an Ask with this body."""
        asked = self.left.pop(0)
        assert isinstance(asked, Ask)
        assert (asked.body, asked.guess, asked.subset) == (body, guess, subset)
        return asked

    def decide(self, *destinations, **extra):
        assert self.left == []
        self.handle(self.handler.decided(destinations or ("10.0.0.1:80",), "r1", extra, self.at))

    def respond(self, **headers):
        assert self.left == []
        self.handle(self.handler.responded(headers))

    def refuse(self, error):
        assert self.left == []
        self.handle(self.handler.refused(error))

    def end(self):
        """The stream is over: nothing was left unasserted, nothing of a body is held."""
        assert self.left == []
        self.handler.drop()
        assert self.budget.held_bytes == 0

    @staticmethod
    def headers(mode="BUFFERED", path="/v1/chat/completions", *, method="POST", end=False, at_once=False, **options):
        """The first message of a stream; ``extra``, ``subset`` and ``response_mode`` are options."""
        pairs = [(":method", method), (":path", path), *options.get("extra", ())]
        message = pb.ProcessingRequest(
            request_headers=pb.HttpHeaders(
                headers=pb.HeaderMap(
                    headers=[pb.HeaderValue(key=key, raw_value=value.encode()) for key, value in pairs]
                ),
                end_of_stream=end,
            ),
            protocol_config=pb.ProtocolConfiguration(
                request_body_mode=MODES.BodySendMode.Value(mode),
                response_body_mode=MODES.BodySendMode.Value(options.get("response_mode", "NONE")),
                send_body_without_waiting_for_header_response=at_once,
            ),
        )
        if "subset" in options:
            message.metadata_context.filter_metadata["envoy.lb.subset_hint"].update(
                {"x-gateway-destination-endpoint-subset": options["subset"]}
            )
        return message

    @staticmethod
    def body(data, *, end=True):
        return pb.ProcessingRequest(request_body=pb.HttpBody(body=data, end_of_stream=end))

    @staticmethod
    def trailers():
        return pb.ProcessingRequest(request_trailers=pb.HttpTrailers())

    @staticmethod
    def response_headers(status="200", *, as_text=False, metadata=None, attributes=None):
        value = pb.HeaderValue(key=":status", **({"value": status} if as_text else {"raw_value": status.encode()}))
        message = pb.ProcessingRequest(response_headers=pb.HttpHeaders(headers=pb.HeaderMap(headers=[value])))
        if metadata is not None:
            message.metadata_context.filter_metadata["envoy.lb"].update(metadata)
        if attributes is not None:
            message.attributes["envoy.filters.http.ext_proc"].update(attributes)
        return message

    @staticmethod
    def response_body(data, *, end=False):
        return pb.ProcessingRequest(response_body=pb.HttpBody(body=data, end_of_stream=end))

    @staticmethod
    def response_trailers():
        return pb.ProcessingRequest(response_trailers=pb.HttpTrailers())

    Added, Continue, Route, Piece, Refusal = Added, Continue, Route, Piece, Refusal
    ResponseBegan, ResponseHeaders = ResponseBegan, ResponseHeaders


@pytest.fixture(scope="session")
def playbook():
    """The class, for tests that play several conversations."""
    return Playbook


@pytest.fixture
def play():
    """One conversation, which must have been asserted to its end."""
    one = Playbook()
    yield one
    one.end()
