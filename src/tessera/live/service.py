"""The live router: what every socket of this process tells and asks.

It reads, decides, keeps the ledgers honest and counts. All methods belong to the
event loop's thread; only ``Router.read`` of large bodies, and of pictures that Pillow
has to look at, runs in a pool.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from secrets import token_hex
from typing import Any

from tessera.core.entrance import reached_at
from tessera.core.facts import FirstToken, FleetEvent
from tessera.core.fleet import Fleet
from tessera.core.flow.stage_reports import read_report
from tessera.core.matching.first_token import FirstTokenTracker, predicted_first_token_at
from tessera.core.media.size import Reason
from tessera.core.parts import MediaItem
from tessera.core.rendering.prompt import PromptTokens
from tessera.core.rng import SeededRng
from tessera.core.router import Router
from tessera.core.types import Decision, Ending, Endpoint, FirstTokenSource, InferenceRequest, ModelProfile, Outcome
from tessera.live.extproc.budget import BodyBudget
from tessera.live.extproc.handler import Ask
from tessera.live.gauges import RouterGauges, pricing_table
from tessera.live.open_requests import LogEntry, OpenRequests
from tessera.live.tokenising import Tokenising
from tessera.telemetry.metrics import Gauges, Metrics, Server
from tessera.telemetry.records import DecisionLog

INLINE_BYTES = 256 << 10
"""Bodies up to this are read on the loop (about 0.1 ms); larger ones in the pool."""
INLINE_TOKENISED_BYTES = 8 << 10
"""The same where text is tokenised, at about 1 ms for 10 KB."""
INLINE_COMMAS = 1024
"""Commas of a body that is read on the loop: each may end a part, at up to 10 microseconds, or a picture at 100."""
READ_THREADS = 2
MAX_LOGGED_GUESSES = 8
"""Guesses in a request's log line; ``/debug`` has them all."""
TICK_S = 0.02
"""How often waits are looked at."""

_log = logging.getLogger("tessera.requests")


class RouterService:
    """One router on the wall clock."""

    def __init__(
        self,
        router: Router,
        profile: ModelProfile,
        *,
        seed: int,
        budget: BodyBudget,
        expects_log: bool = False,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.router = router
        self.profile = profile
        self.budget = budget
        self.clock = clock
        self.fleet = Fleet()
        self.metrics = metrics or Metrics()
        self.decisions = DecisionLog()
        self.open = OpenRequests(self._settle, ended_early=self._ended_early, expects_log=expects_log)
        self.first_tokens = FirstTokenTracker()
        self.on_outcome: Callable[[Outcome], None] | None = None
        """Called with every outcome, after the ledgers and the metrics know it."""
        self._seed = seed
        self._wall_clock = wall_clock
        self._ids = (f"{prefix}{number:x}" for prefix in (token_hex(4) + "-",) for number in count())
        self._predicted: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="read")
        self.tokenising = Tokenising(router, self.metrics.failed) if router.renderer else None
        """Nothing outside exact mode."""
        self._warned_early = False
        self._holds_streams = False
        gauges = RouterGauges(
            fleet=self.fleet,
            router=router,
            first_tokens=self.first_tokens,
            open=self.open,
            budget=budget,
            clock=clock,
        )
        self.metrics.add_gauges(Gauges(gauges))

    def new_id(self) -> str:
        """An id that no other request of this process has."""
        return next(self._ids)

    def observe(self, event: FleetEvent) -> None:
        """The fleet changed: an endpoint came, left, or was scraped."""
        self.fleet.apply(event)
        self._guarded("observe", lambda: self.router.observe(event))
        self._guarded("observe", lambda: self._infer_first_tokens(event))

    def _infer_first_tokens(self, event: FleetEvent) -> None:
        for first in self.first_tokens.observe(event):
            self._first_token(first)
        self._release_due()

    async def read(self, ask: Ask, request_id: str) -> tuple[InferenceRequest, PromptTokens | None]:
        """What a request asks, and in exact mode its prompt's token ids; raises RequestError.

        Small bodies are read here, and once more in the pool where a picture is of a
        format that only Pillow knows; large ones are read in the pool at once.
        """
        read = partial(
            Router.read,
            ask.body,
            ask.headers,
            request_id=request_id,
            at=self.clock(),
            wall_at=self._wall_clock(),
        )
        counts_text = self.profile.tokenizer is not None and not self.profile.renders_prompts
        inline_bytes = INLINE_TOKENISED_BYTES if counts_text else INLINE_BYTES
        body = ask.body or b""
        is_small = len(body) <= inline_bytes and body.count(b",") <= INLINE_COMMAS
        found = read(self.profile) if is_small else None
        if found is None or _has_slow_format(found[0]):
            profile = replace(self.profile, uses_pillow=True)
            found = await asyncio.get_running_loop().run_in_executor(self._pool, read, profile)
        request, draft = found
        guesses = (*request.guesses, ask.guess) if ask.guess else request.guesses
        request = replace(request, subset=ask.subset, guesses=guesses)
        return request, await self.tokenising.tokens(request, draft) if self.tokenising else None

    def decide(
        self,
        request: InferenceRequest,
        opened_at: float,
        *,
        prompt: PromptTokens | None = None,
        shows_body: bool = False,
    ) -> Decision:
        """Choose the endpoints of a request that arrived at ``opened_at``, and reserve its load.

        Args:
            request: as ``read`` gave it.
            opened_at: when its stream was opened.
            prompt: its token ids, as ``read`` gave them.
            shows_body: whether the gateway will show us the answer's body as it streams.
        """
        at = self.clock()
        rng = SeededRng(self._seed, request.request_id)
        decision = self.router.decide(request, self.fleet.view(), at, rng, prompt)
        self.decisions.add(decision)
        self.metrics.decided(decision, self.clock() - at)
        if decision.rejection is None:
            self._follow(decision, opened_at, at, shows_body=shows_body and request.stream)
        return decision

    def serves(self, engine_model: str, adapters: frozenset[str]) -> None:
        """The engines' own name of the model that they serve, empty where they disagree; and of its adapters."""
        self.profile = replace(self.profile, engine_model=engine_model, adapters=adapters)

    def responded(self, decision: Decision, status: int | None, served: str | None) -> Mapping[str, str]:
        """The headers of a response were seen on its stream: what plugins add to them.

        Nothing to an answer of 500 or more: nobody should come back for another.

        Args:
            decision: of that request.
            status: nothing where it is not known.
            served: ``ip:port`` that the gateway says it used; where it does not say, the winner is taken for it.
        """
        self.open.responded(decision.request.request_id, status, served)
        if not self.router.answering or status is None or status >= 500:
            return {}
        endpoint = (
            decision.primary_stage.winner if served is None else _candidate(decision, reached_at(decision, served))
        )
        self.metrics.answered(Server.STRANGER if endpoint is None else Server.SAID if served else Server.ASSUMED)
        headers: dict[str, str] = {}
        if endpoint is not None:
            self._guarded("answer", lambda: headers.update(self.router.answer_headers(decision, endpoint)))
        return headers

    def stages_told(self, request_id: str, text: str) -> None:
        """An answer says how its stages ended; what cannot be read is counted, and nothing of it believed."""
        try:
            events = read_report(text, request_id, self.clock())
        except ValueError as error:
            _log.debug("request %s: its stages are not told: %s", request_id, error)
            self.metrics.stages.unreadable()
            return
        if self.open.stages_told(request_id, events):
            for event in events:
                self.metrics.stages.ended(event)
                self._guarded("observe", partial(self.router.observe, event))

    def response_began(self, request_id: str) -> None:
        """The first bytes of a response's body were seen on its stream."""
        now = self.clock()
        self.open.first_token(request_id, FirstTokenSource.BODY, now)
        if first := self.first_tokens.seen(request_id, now):
            self._first_token(first)

    def stream_ended(self, request_id: str, *, is_early: bool, was_held: bool) -> None:
        """The stream of a decided request is over.

        Args:
            request_id: ours.
            is_early: it ended so soon after our last answer that the response may not have.
            was_held: the gateway kept it open for longer than that, so it does keep streams open.
        """
        self._holds_streams |= was_held
        self.open.stream_ended(
            request_id,
            self.clock(),
            is_early=is_early and not self._holds_streams,
            predicted_first_at=self._predicted.get(request_id, 0.0),
        )

    def pricing_table(self) -> list[dict[str, Any]]:
        """How far the price is from what engines count, one row for each model and modality."""
        return pricing_table(self.router)

    def logged(self, entry: LogEntry) -> None:
        """The proxy's access log told of a request."""
        if entry.stages is not None and not self.open.knows_stages(entry.request_id):
            self.stages_told(entry.request_id, entry.stages)
        self.open.logged(entry, self.clock())

    async def run_timers(self) -> None:
        """Release and settle what nobody else will; runs until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            self._guarded("timers", self._release_due)
            self._guarded("timers", lambda: self.open.settle_due(self.clock()))

    def close(self) -> None:
        """Settle everything and let go."""
        self.open.settle_all(self.clock())
        self.router.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self.tokenising:
            self.tokenising.close()

    def _follow(self, decision: Decision, opened_at: float, at: float, *, shows_body: bool) -> None:
        """Wait for the first token and the end of a request that was just sent."""
        request = decision.request
        stage = decision.primary_stage
        assert stage.winner is not None, "a decision without rejection has a winner"
        predicted_at = predicted_first_token_at(decision)
        self._predicted[request.request_id] = predicted_at
        self.open.decided(decision, opened_at)
        num_engine_requests = request.num_engine_requests
        self.first_tokens.sent(
            request.request_id, stage.winner.id, at, num_engine_requests, predicted_at, has_body=shows_body
        )

    def _release_due(self) -> None:
        for event in self.first_tokens.due(self.clock()):
            self._first_token(event)

    def _first_token(self, event: FirstToken) -> None:
        self.open.first_token(event.request_id, event.source, event.at)
        self._guarded("observe", lambda: self.router.observe(event))

    def _settle(self, outcome: Outcome) -> None:
        self.first_tokens.ended(outcome.request_id, outcome.finished_at, was_answered=_was_answered(outcome))
        self._predicted.pop(outcome.request_id, None)
        self._guarded("metrics", lambda: self.metrics.settled(outcome))
        self._guarded("settle", lambda: self._tell_outcome(outcome))
        if _log.isEnabledFor(logging.INFO):
            _log.info(" ".join(f"{name}={value}" for name, value in _log_fields(outcome)))

    def _tell_outcome(self, outcome: Outcome) -> None:
        if self.on_outcome:
            self.on_outcome(outcome)
        for finding in self.router.settle(outcome):
            _log.warning(finding.message)

    def _guarded(self, where: str, work: Callable[[], None]) -> None:
        """Do what must not end a task that serves every request; its fault is logged and counted."""
        try:
            work()
        except Exception:
            _log.exception("%s failed", where)
            self.metrics.failed(where)

    def _ended_early(self) -> None:
        self.metrics.streams_ended_early.inc()
        if not self._warned_early:
            self._warned_early = True
            _log.warning(
                "an ext_proc stream ended before its response: the gateway must send response trailers "
                "(processing_mode response_trailer_mode: SEND), or load is released by the access log or by guess"
            )


def _candidate(decision: Decision, endpoint_id: str) -> Endpoint | None:
    candidates = decision.primary_stage.candidates
    return next((each.endpoint for each in candidates if each.endpoint.id == endpoint_id), None)


def _was_answered(outcome: Outcome) -> bool:
    """Whether the winner itself gave the whole answer, so that its engine has counted a first token."""
    winner = outcome.decision.primary_stage.winner if outcome.decision else None
    is_served = outcome.ending is Ending.FINISHED and (outcome.status or 200) < 400
    return is_served and winner is not None and winner.id == outcome.endpoint


def _has_slow_format(request: InferenceRequest) -> bool:
    """Whether a picture was left unread because only Pillow may know its format."""
    parts = (part for prompt in request.prompts for part in prompt)
    return any(isinstance(part, MediaItem) and part.reason == Reason.SLOW_FORMAT for part in parts)


def _log_fields(outcome: Outcome) -> Iterator[tuple[str, object]]:
    """One line per request: no body, no prompt, no URL."""
    yield "request_id", outcome.request_id
    yield "ending", outcome.ending
    yield "status", outcome.status
    if outcome.refusal:
        yield "refusal", outcome.refusal
    if decision := outcome.decision:
        request = decision.request
        yield "client_request_id", repr(request.headers.get("x-request-id"))
        yield "dialect", request.dialect
        yield "model", repr(request.model)
        yield "num_items", len(decision.priced.items)
        yield "num_prompt_tokens", decision.priced.num_prompt_tokens
        yield "endpoint", outcome.endpoint
        yield "duration_s", round(outcome.finished_at - request.at, 4)
        if outcome.first_token_at is not None:
            yield "ttft_s", round(outcome.first_token_at - request.at, 4)
            yield "ttft_source", outcome.first_token_source
        if outcome.usage:
            yield "usage_prompt_tokens", outcome.usage.prompt_tokens
        if decision.guesses:
            yield "guesses", ",".join(decision.guesses[:MAX_LOGGED_GUESSES])
            if (num_more := len(decision.guesses) - MAX_LOGGED_GUESSES) > 0:
                yield "num_guesses_more", num_more
