"""What does a router do in virtual time? The live router's own, told what live tells it, when live would tell it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tessera.core.facts import FirstToken, FleetEvent, Joined, Scraped
from tessera.core.fleet import Fleet
from tessera.core.flow.stage_reports import read_report
from tessera.core.matching.first_token import NUM_SCRAPES, FirstTokenTracker, predicted_first_token_at, predicted_ttft_s
from tessera.core.rng import SeededRng
from tessera.core.router import Router
from tessera.core.types import Decision, Ending, Endpoint, FirstTokenSource, InferenceRequest, Outcome, Usage
from tessera.core.work import StageEnded
from tessera.sim.servers import Server


class Gateway:
    """Decides, and keeps the router's ledgers as ``live.service`` does.

    Load is reserved at the decision and given back at the first token and the end. Pages
    are observed when somebody asks for a decision: in between nobody would know.
    """

    def __init__(
        self, router: Router, servers: Sequence[Server], *, seed: int, source: FirstTokenSource, tells_cached: bool
    ) -> None:
        """A router that knows its endpoints and nothing else.

        Args:
            router: its memories belong to this run.
            servers: the pool.
            seed: ties break by it and the request's id.
            source: how first tokens are learned; ``COUNTER`` falls back to predictions where live would.
            tells_cached: whether usage tells cached tokens (vLLM's ``--enable-prompt-tokens-details``).
        """
        self._router = router
        self._servers = {server.endpoint.id: server for server in servers}
        self._seed = seed
        self._source = source
        self._tells_cached = tells_cached
        self._fleet = Fleet()
        self._tracker = FirstTokenTracker()
        self._decisions: dict[str, Decision] = {}
        self._stages: dict[str, tuple[StageEnded, ...]] = {}
        """Of open requests: what their answers said of their stages."""
        for server in servers:
            self._observe(Joined(at=0.0, endpoint=server.endpoint))

    @property
    def num_open(self) -> int:
        """Requests between their decision and their end."""
        return len(self._decisions)

    def decide(self, request: InferenceRequest) -> Server | None:
        """Who gets the request, at its own instant; nothing where it is rejected."""
        self._look(request.at)
        rng = SeededRng(self._seed, request.request_id)
        decision = self._router.decide(request, self._fleet.view(), request.at, rng)
        if decision.rejection is not None:
            self._router.settle(Outcome(request_id=request.request_id, ending=Ending.REJECTED, finished_at=request.at))
            return None
        winner = _winner(decision)
        self._decisions[request.request_id] = decision
        self._tracker.sent(
            request.request_id,
            winner.id,
            request.at,
            request.num_engine_requests,
            predicted_first_token_at(decision),
            has_body=self._source is FirstTokenSource.BODY,
        )
        return self._servers[winner.id]

    def predicted_ttft_s(self, request_id: str) -> float | None:
        """Seconds from an open request's decision to its first token, as the router foresees them, if it does."""
        return predicted_ttft_s(self._decisions[request_id])

    def first_token(self, request_id: str, at: float) -> None:
        """The first chunk of an answer passes."""
        if self._source is FirstTokenSource.BODY and (event := self._tracker.seen(request_id, at)):
            self._router.observe(event)

    def headers_of(self, request_id: str) -> Mapping[str, str]:
        """What the router adds to the headers of an open request."""
        return self._router.request_headers(self._decisions[request_id])

    def stages_told(self, request_id: str, text: str, at: float) -> None:
        """An answer's headers pass, and say how its stages ended."""
        if request_id not in self._decisions:
            return
        self._stages[request_id] = events = read_report(text, request_id, at)
        for event in events:
            self._router.observe(event)

    def ended(
        self,
        request_id: str,
        ending: Ending,
        at: float,
        *,
        first_token_at: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        """A request is over; the access log tells when its first token came."""
        decision = self._decisions.pop(request_id)
        self._tracker.ended(request_id, at, was_answered=ending is Ending.FINISHED)
        if usage is not None and not self._tells_cached:
            usage = Usage(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)
        self._router.settle(
            Outcome(
                request_id=request_id,
                ending=ending,
                decision=decision,
                status=200 if ending is Ending.FINISHED else None,
                endpoint=_winner(decision).id,
                usage=usage,
                first_token_at=first_token_at,
                first_token_source=None if first_token_at is None else FirstTokenSource.BODY,
                finished_at=at,
                stages=self._stages.pop(request_id, ()),
            )
        )

    def _look(self, at: float) -> None:
        """Read the pages that were scraped since the last decision, oldest first, and release what is due."""
        with_counter = self._source is FirstTokenSource.COUNTER
        pages = [page for server in self._servers.values() if (page := server.scraped(with_counter=with_counter))]
        for page in sorted(pages, key=lambda page: page.at):
            if with_counter:
                self._fill_in(page)
            self._observe(page)
        self._release(self._tracker.due(at))

    def _fill_in(self, page: Scraped) -> None:
        """Scrapes that nobody looked at count in the tracker's median: as many as it has room for, with this load."""
        skipped = self._servers[page.endpoint_id].num_skipped
        for _ in range(min(skipped, NUM_SCRAPES)):
            self._tracker.observe(replace(page, num_first_tokens=None))

    def _observe(self, event: FleetEvent) -> None:
        self._fleet.apply(event)
        self._router.observe(event)
        self._release(self._tracker.observe(event))

    def _release(self, events: Sequence[FirstToken]) -> None:
        for event in events:
            self._router.observe(event)


def _winner(decision: Decision) -> Endpoint:
    winner = decision.primary_stage.winner
    assert winner is not None, "a decision without rejection has a winner"
    return winner
