"""What must leave an ext_proc stream for what has arrived on it? No sockets, no clock, no waiting.

``receive`` eats the gateway's messages, ``decided`` and ``refused`` the answers to
``Ask``, ``responded`` that to ``ResponseHeaders``; each returns commands in the order
to carry them out. The body mode is taken from the gateway's first message:

- BUFFERED: headers are let through at once, the whole body arrives in one
  message, and the answer to it carries the destination.
- FULL_DUPLEX_STREAMED: nothing is answered until the body is complete; then the
  headers with the destination, then the body again in pieces.
- STREAMED: as FULL_DUPLEX_STREAMED without the echo where the gateway sends the
  body without waiting; else, and for NONE, the headers alone decide.

A GET or an unknown path is decided at its headers in every mode.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from io import SEEK_END, BytesIO

from tessera.core.errors import DropReason, Rejected, RequestError
from tessera.core.headers import STAGES
from tessera.core.reading import dialect_for
from tessera.core.types import ModelProfile
from tessera.live.extproc import answers
from tessera.live.extproc import ext_proc_pb2 as pb
from tessera.live.extproc.budget import BodyBudget
from tessera.live.extproc.names import (
    ATTRIBUTES,
    DESTINATION_SERVED,
    LB_NAMESPACE,
    STRIPPED_NAMES,
    STRIPPED_PREFIX,
    UPSTREAM_ADDRESS,
)

SUBSET_NAMESPACE = "envoy.lb.subset_hint"
SUBSET_KEY = "x-gateway-destination-endpoint-subset"
EARLY_END_S = 1.0
"""A FULL_DUPLEX_STREAMED stream that ends sooner than this after our last body answer did not end with the response."""

_MODES = pb.ProcessingMode


@dataclass(frozen=True, slots=True)
class Send:
    """Put a message on the stream."""

    message: pb.ProcessingResponse


@dataclass(frozen=True, slots=True)
class Ask:
    """Read and decide; then call ``decided`` or ``refused``, before the next message is handed in."""

    body: bytes | None
    """Nothing where the gateway keeps it, or has sent only a part."""
    headers: Mapping[str, str]
    subset: tuple[str, ...] | None
    guess: str | None = None
    """Why there is no body, where one was expected."""


@dataclass(frozen=True, slots=True)
class ResponseHeaders:
    """The response's headers came; call ``responded``, before the next message is handed in."""

    status: int | None
    """Nothing where the gateway says none that is a number."""
    served: str | None = None
    """``ip:port`` that the gateway says it used; nothing where it does not say."""
    stages: str | None = None
    """What the answer says of how each stage ended; nothing where it does not say."""


@dataclass(frozen=True, slots=True)
class ResponseBegan:
    """The first bytes of the response's body came."""


Command = Send | Ask | ResponseHeaders | ResponseBegan


class _Phase(Enum):
    HEADERS = auto()
    BODY = auto()
    ASKED = auto()
    ROUTED = auto()
    REFUSED = auto()


class StreamHandler:
    """One ext_proc stream, which is one HTTP request."""

    def __init__(self, budget: BodyBudget, profile: ModelProfile | None = None) -> None:
        self._budget = budget
        self._profile = profile or ModelProfile()
        self._phase = _Phase.HEADERS
        self._request_mode = _MODES.BUFFERED
        self._response_mode = _MODES.NONE
        self._sends_body_at_once = False
        self._headers: dict[str, str] = {}
        self._subset: tuple[str, ...] | None = None
        self._body = BytesIO()
        self._num_chunks = 0
        self._num_bytes = 0
        self._charged = 0
        self._has_trailers = False
        self._body_came = False
        self._last_body_answer_at: float | None = None
        self._saw_response = False
        self._says_stages = False
        self._began = False

    def receive(self, message: pb.ProcessingRequest, at: float) -> list[Command]:
        """The commands for one message of the gateway, which came at ``at``."""
        kind = message.WhichOneof("request")
        if message.HasField("protocol_config"):
            self._request_mode = message.protocol_config.request_body_mode
            self._response_mode = message.protocol_config.response_body_mode
            self._sends_body_at_once = message.protocol_config.send_body_without_waiting_for_header_response
        if self._phase is _Phase.REFUSED or message.observability_mode:
            return []
        assert self._phase is not _Phase.ASKED, "a message came before its predecessor's Ask was answered"
        match kind:
            case "request_headers":
                return self._on_headers(message)
            case "request_body":
                return self._on_body(message.request_body, at)
            case "request_trailers":
                return self._on_trailers(at)
            case "response_headers" | "response_body" | "response_trailers":
                self._saw_response = True
                return list(self._on_response(kind, message))
            case _:
                return []

    def decided(
        self, destinations: tuple[str, ...], request_id: str, extra: Mapping[str, str], at: float
    ) -> list[Command]:
        """The commands that carry a decision to the gateway."""
        self._phase = _Phase.ROUTED
        in_body = self._body_came and self._request_mode in (_MODES.BUFFERED, _MODES.BUFFERED_PARTIAL)
        stripped = [name for name in self._headers if _is_ours(name)]
        answer = answers.route(destinations, request_id, extra, stripped=stripped, in_body=in_body)
        commands: list[Command] = [Send(answer)]
        if self._body_came and not in_body:
            commands += self._hand_on_body(at)
        self.drop()
        return commands

    def refused(self, error: Exception) -> list[Command]:
        """The commands that answer the client ourselves."""
        self._phase = _Phase.REFUSED
        self.drop()
        is_anthropic = answers.speaks_anthropic(self._headers)
        return [Send(answers.refuse(error, in_anthropics_shape=is_anthropic))]

    def responded(self, headers: Mapping[str, str]) -> list[Command]:
        """The commands that let a response's headers through, with these added and without what is for us."""
        return [Send(answers.add_to_response(headers, removed=[STAGES] if self._says_stages else []))]

    def drop(self) -> None:
        """The body is not needed any more: hold nothing of it, owe the budget nothing."""
        self._body = BytesIO()
        self._budget.give(self._charged)
        self._charged = 0

    @property
    def shows_response_body(self) -> bool:
        """Whether the gateway sends response bodies as they come."""
        return self._response_mode in (_MODES.STREAMED, _MODES.FULL_DUPLEX_STREAMED)

    def ended_early(self, at: float) -> bool:
        """Whether the stream's end at ``at`` may not be the response's end: see EARLY_END_S."""
        return 0 <= self._silent_s(at) < EARLY_END_S

    def was_held(self, at: float) -> bool:
        """Whether the gateway kept a silent FULL_DUPLEX_STREAMED stream open, as it does for its response's end."""
        return self._silent_s(at) >= EARLY_END_S

    def _silent_s(self, at: float) -> float:
        """Seconds since our last body answer without a response phase; negative where that tells nothing."""
        is_duplex = self._request_mode == _MODES.FULL_DUPLEX_STREAMED
        answered_at = self._last_body_answer_at
        return -1.0 if not is_duplex or self._saw_response or answered_at is None else at - answered_at

    def _on_headers(self, message: pb.ProcessingRequest) -> list[Command]:
        if self._phase is not _Phase.HEADERS:
            return []
        self._headers = {
            header.key.lower(): header.raw_value.decode("utf-8", "replace") or header.value
            for header in message.request_headers.headers.headers
        }
        self._subset = _subset(message)
        if message.request_headers.end_of_stream or dialect_for(self._headers, self._profile) is None:
            return self._ask(b"")
        if self._request_mode == _MODES.NONE:
            return self._ask(None, guess="body-not-sent")
        if self._request_mode == _MODES.STREAMED and not self._sends_body_at_once:
            return self._ask(None, guess="body-not-sent")
        if refusal := self._charge_declared():
            return self.refused(refusal)
        self._phase = _Phase.BODY
        if self._request_mode in (_MODES.BUFFERED, _MODES.BUFFERED_PARTIAL):
            return [Send(answers.CONTINUE_HEADERS)]
        return []

    def _on_body(self, body: pb.HttpBody, at: float) -> list[Command]:
        if self._phase is not _Phase.BODY:
            return self._pass_body(body, at)
        self._body_came = True
        self._num_chunks += 1
        self._num_bytes += len(body.body)
        if refusal := self._charge(self._num_bytes):
            return self.refused(refusal)
        self._keep(body.body)
        is_partial = self._request_mode == _MODES.BUFFERED_PARTIAL and not body.end_of_stream
        if body.end_of_stream or self._request_mode in (_MODES.BUFFERED, _MODES.BUFFERED_PARTIAL):
            return self._ask(None, guess="body-cut") if is_partial else self._ask(self._body.getvalue())
        return []

    def _on_trailers(self, at: float) -> list[Command]:
        """Trailers end a body that did not say so itself."""
        if self._phase is _Phase.BODY:
            self._has_trailers = True
            self._body_came = self._request_mode == _MODES.FULL_DUPLEX_STREAMED or self._body_came
            return self._ask(self._body.getvalue())
        return [Send(answers.CONTINUE_TRAILERS)]

    def _pass_body(self, body: pb.HttpBody, at: float) -> list[Command]:
        """A body that decides nothing: its headers did."""
        if self._request_mode != _MODES.FULL_DUPLEX_STREAMED:
            return [Send(answers.CONTINUE_BODY)]
        self._last_body_answer_at = at
        return [Send(piece) for piece in answers.echo_request_body(body.body, end_of_stream=body.end_of_stream)]

    def _hand_on_body(self, at: float) -> list[Command]:
        """The body behind a decided headers answer."""
        commands: list[Command]
        if self._request_mode == _MODES.FULL_DUPLEX_STREAMED:
            self._last_body_answer_at = at
            echo = answers.echo_request_body(self._body.getvalue(), end_of_stream=not self._has_trailers)
            commands = [Send(piece) for piece in echo]
        else:
            commands = [Send(answers.CONTINUE_BODY)] * self._num_chunks
        if self._has_trailers:
            commands.append(Send(answers.CONTINUE_TRAILERS))
        return commands

    def _on_response(self, kind: str, message: pb.ProcessingRequest) -> Iterator[Command]:
        if kind == "response_headers":
            stages = _stages(message.response_headers)
            self._says_stages = stages is not None
            yield ResponseHeaders(_status(message.response_headers), _served(message), stages)
        elif kind == "response_trailers":
            yield Send(answers.CONTINUE_RESPONSE_TRAILERS)
        else:
            body = message.response_body
            if body.body and not self._began:
                self._began = True
                yield ResponseBegan()
            if self._response_mode == _MODES.FULL_DUPLEX_STREAMED:
                echo = answers.echo_response_body(body.body, end_of_stream=body.end_of_stream)
                yield from (Send(piece) for piece in echo)
            else:
                yield Send(answers.CONTINUE_RESPONSE_BODY)

    def _ask(self, body: bytes | None, guess: str | None = None) -> list[Command]:
        self._phase = _Phase.ASKED
        return [Ask(body=body, headers=self._headers, subset=self._subset, guess=guess)]

    def _charge_declared(self) -> Exception | None:
        """Charge what content-length announces, so that a flood is refused before it is held."""
        text = self._headers.get("content-length", "")
        return self._charge(int(text)) if text.isascii() and text.isdigit() and len(text) < 20 else None

    def _charge(self, num_bytes: int) -> Exception | None:
        if num_bytes > self._budget.per_body_bytes:
            return RequestError(
                f"the body has {num_bytes} bytes or more, at most {self._budget.per_body_bytes} are accepted "
                "(routing.maxBodyBytes); send smaller media or links",
                status=413,
                code="request_too_large",
            )
        more = num_bytes - self._charged
        if more <= 0:
            return None
        if not self._budget.take(more):
            message = f"bodies in flight fill the {self._budget.limit_bytes} bytes of routing.maxBodiesInFlightBytes"
            return Rejected(DropReason.SATURATED, message, retry_after_s=1, status=503)
        self._charged = num_bytes
        return None

    def _keep(self, chunk: bytes) -> None:
        """Hold a chunk: a body in one chunk is held uncopied, one in many as a single block, however small they are."""
        if self._num_chunks == 1:
            self._body = BytesIO(chunk)
            self._body.seek(0, SEEK_END)
        else:
            self._body.write(chunk)


def _is_ours(name: str) -> bool:
    """Whether only we may set this header: a client's copy could send the endpoint's sidecar where it likes."""
    return name in STRIPPED_NAMES or name.startswith(STRIPPED_PREFIX)


def _status(response: pb.HttpHeaders) -> int | None:
    for header in response.headers.headers:
        if header.key == ":status":
            text = header.raw_value or header.value.encode()
            return int(text) if text.isdigit() and len(text) == 3 else None
    return None


def _stages(response: pb.HttpHeaders) -> str | None:
    """The report of the answer's stages; several headers of that name are one list, as HTTP has it."""
    found = [each for each in response.headers.headers if each.key.lower() == STAGES]
    texts = [each.raw_value.decode("utf-8", "replace") or each.value for each in found]
    return ",".join(texts) if texts else None


def _served(message: pb.ProcessingRequest) -> str | None:
    """Who served: by Envoy's load balancer, in the gateways' common word for it; else by Envoy's own attribute."""
    for known, space, key in (
        (message.metadata_context.filter_metadata, LB_NAMESPACE, DESTINATION_SERVED),
        (message.attributes, ATTRIBUTES, UPSTREAM_ADDRESS),
    ):
        # A protobuf map makes what it is asked for, so ask whether it is there first.
        if space in known and key in known[space] and isinstance(value := known[space][key], str) and value:
            return value
    return None


def _subset(message: pb.ProcessingRequest) -> tuple[str, ...] | None:
    """The endpoints that the gateway allows, from its metadata; nothing where it does not restrict."""
    known = message.metadata_context.filter_metadata
    if SUBSET_NAMESPACE not in known or SUBSET_KEY not in known[SUBSET_NAMESPACE]:
        return None
    value = known[SUBSET_NAMESPACE][SUBSET_KEY]
    entries = value.split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else ()
    return tuple(entry.strip() for entry in entries if isinstance(entry, str) and entry.strip())
