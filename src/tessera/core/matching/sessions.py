"""Which endpoint does a request's session belong to: by the token it carries, or by what is remembered of its id?"""

from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from tessera.core.media.digests import text_hash
from tessera.core.plugin import NamedHeaders, Range, params
from tessera.core.types import Candidate, Decision, Endpoint, InferenceRequest, Stage

MAX_SESSIONS: Final = 65_536
"""Sessions that are remembered; the least recently used goes first. About 250 bytes each."""
_MAX_TOKEN_CHARS = 1024
_NEEDS_GATEWAY = (
    "answers carry the token only where the gateway sends us their headers (ext_proc response_header_mode: SEND; Envoy "
    "as Tessera configures it does), and name the endpoint that was chosen where the gateway does not say which served "
    "(metadata x-gateway-destination-endpoint-served of envoy.lb, or attribute upstream.address)"
)

Strategy = Literal["encoded_endpoint_header", "session_id"]


@params
class EncodedEndpointHeader:
    """Where the token stands that names an endpoint."""

    header: str = "x-session-token"
    """The header, of requests and of answers."""


@params
class SessionIdSource:
    """Where a session's id stands; one of the two."""

    header: str = ""
    """A header of the request."""
    attribute: str = ""
    """An attribute of the request: whatever its name, the ``session_id`` of the body."""
    producer: str = ""
    """Accepted for compatibility."""


@params
class SessionIds:
    """How sessions are known by their ids."""

    sources: tuple[SessionIdSource, ...] = (SessionIdSource(header="x-session-id"),)
    """Where to look, the first that is there counts."""
    eviction_ttl_seconds: Annotated[int, Range(ge=1)] = 300
    """From a session's last request until it is forgotten."""
    eviction_sweep_seconds: Annotated[int, Range(ge=1)] = 10
    """Accepted for compatibility; a session's age is looked at whenever it is asked for."""


def session_token(endpoint: Endpoint) -> str:
    """What names an endpoint in a header: base64 of ``namespace/name``, of its ``ip:port`` where it has no name."""
    return b64encode(_full_name(endpoint).encode()).decode()


def endpoint_named(token: str | None) -> str | None:
    """The ``namespace/name`` that a token holds; nothing where it is none."""
    if not token or len(token) > _MAX_TOKEN_CHARS:
        return None
    try:
        return b64decode(token, validate=True).decode()
    except ValueError:
        return None


def session_id(request: InferenceRequest, ids: SessionIds) -> str | None:
    """A hash of the session's id; nothing where the request names none."""
    for source in ids.sources:
        found = request.headers.get(source.header.lower()) if source.header else request.session_id
        if found:
            return text_hash(found)
    return None


@dataclass(slots=True)
class Sessions:
    """Remembers, or reads from the request, where each session is at home.

    Memory: ``MAX_SESSIONS`` sessions, none older than the time that ``ids`` allows once
    a later one is recorded.
    """

    strategy: Strategy
    token: EncodedEndpointHeader
    ids: SessionIds
    profile: str
    """The profile whose pick is remembered; empty: the primary one."""
    _bound: OrderedDict[str, tuple[str, float]] = field(default_factory=OrderedDict)
    """Endpoint id and last use by session, least recently used first."""

    def __len__(self) -> int:
        """Sessions that are remembered."""
        return len(self._bound)

    def headers_read(self) -> NamedHeaders:
        """Where a request's session stands: the token's header, or those of ids."""
        if self.strategy == "encoded_endpoint_header":
            yield "encodedEndpointHeaderConfig.header", self.token.header
            return
        for index, source in enumerate(self.ids.sources):
            if source.header:
                yield f"sessionIdConfig.sources[{index}].header", source.header

    def headers_written(self) -> NamedHeaders:
        """Where an answer's token stands, if there are tokens."""
        if self.strategy == "encoded_endpoint_header":
            yield "encodedEndpointHeaderConfig.header", self.token.header

    def cautions(self) -> Iterator[tuple[str, str]]:
        """What depends on the gateway: (parameter path, message)."""
        if self.strategy == "encoded_endpoint_header":
            yield "strategy", _NEEDS_GATEWAY

    def home(self, request: InferenceRequest, candidates: Sequence[Candidate]) -> Candidate | None:
        """The candidate that the request's session belongs to, if it is among them."""
        if self.strategy == "session_id":
            bound = self._endpoint_of(session_id(request, self.ids), request.at)
            return next((each for each in candidates if each.endpoint.id == bound), None) if bound else None
        name = endpoint_named(request.headers.get(self.token.header.lower()))
        return next((each for each in candidates if _full_name(each.endpoint) == name), None) if name else None

    def answer_headers(self, decision: Decision, served: Endpoint) -> dict[str, str]:
        """The token of who served, or of what ``profile`` picked where it is not the one that faces the client."""
        stage = self._stage(decision)
        if self.strategy != "encoded_endpoint_header" or stage is None:
            return {}
        home = served if stage.profile == decision.primary else stage.winner
        return {self.token.header.lower(): session_token(home)} if home else {}

    def record(self, decision: Decision) -> None:
        """Bind the session to its endpoint, or keep the one it has while that is among the candidates."""
        session = session_id(decision.request, self.ids) if self.strategy == "session_id" else None
        stage = self._stage(decision)
        if session is None or stage is None or stage.winner is None:
            return
        bound, at = self._endpoint_of(session, decision.at), decision.at
        is_there = any(stage.candidates[index].endpoint.id == bound for index in stage.scored)
        self._bound[session] = (bound if bound is not None and is_there else stage.winner.id, at)
        self._bound.move_to_end(session)
        while self._bound:
            _, used_at = next(iter(self._bound.values()))
            if len(self._bound) <= MAX_SESSIONS and at - used_at <= self.ids.eviction_ttl_seconds:
                break
            self._bound.popitem(last=False)

    def _stage(self, decision: Decision) -> Stage | None:
        wanted = self.profile or decision.primary
        return next((stage for stage in decision.stages if stage.profile == wanted), None)

    def _endpoint_of(self, session: str | None, at: float) -> str | None:
        bound = self._bound.get(session) if session is not None else None
        return bound[0] if bound and at - bound[1] <= self.ids.eviction_ttl_seconds else None


def _full_name(endpoint: Endpoint) -> str:
    return f"{endpoint.namespace}/{endpoint.name or endpoint.id}"
