"""When did a request's prompt end and its answer begin, and how do we know?

Three sources, the best that there is: the first chunk of the answer's body, where the
gateway shows it to us; else the engine's own count of first tokens; else a predicted
time. The tracker is told everything, the time included, and makes ``FirstToken`` events.
"""

import statistics
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field

from tessera.core.facts import (
    FirstToken,
    FirstTokenCost,
    FleetEvent,
    InFlightLoad,
    Joined,
    Left,
    Scraped,
    num_uncached_tokens,
)
from tessera.core.matching.divided import computing_stage, prefill_apart, row_of, sent_away
from tessera.core.matching.encode_shares import cost_s
from tessera.core.types import Decision, FirstTokenSource
from tessera.core.work import Work

NUM_SCRAPES = 20
"""Scrapes whose median number of foreign requests is looked at; with fewer the counter is not used."""
MAX_FOREIGN = 2.0
"""Requests of others that an endpoint may have before its counter is not ours to read."""
MAX_FOREIGN_FRACTION = 0.05
"""The same as a share of our own requests; the larger of the two holds."""
COUNTER_STALE_AFTER_S = 2.0
"""A counter that was not scraped for so long is not waited for."""
MAX_PREDICTION_S = 600.0
"""A prediction further ahead than this is cut to it."""
OVERDUE_S = 60.0
"""How long behind its prediction a request may wait for a trusted counter."""
PREFILL_TOKENS_PER_S = 15_928.0
"""Rate behind a prediction where no producer predicts costs. Source: llm-d's default ``peakPrefillThroughput``."""


def predicted_first_token_at(decision: Decision) -> float:
    """When a request's first token is expected: by the cost where its prompt is computed, else by the tokens there.

    Media that is encoded apart is encoded before, by all encoders at once.
    """
    stage = computing_stage(decision)
    assert stage.winner is not None, "a decision without rejection has a winner"
    candidate = stage.candidate_of(stage.winner)
    cost = candidate.fact(FirstTokenCost, FirstTokenCost.producer)
    if cost is not None:
        encoded_s, away = 0.0, sent_away(decision)
        for encoder, items in away.items():
            if (row := row_of(decision, encoder)) is not None:
                ahead_s = row[FirstTokenCost].queued_s
                encoded_s = max(encoded_s, ahead_s + sum(cost_s(item, row) for item in items))
        spared_s = sum(cost.rates.encode_s(item) for items in away.values() for item in items)
        return decision.at + cost.ttft_s - min(cost.encode_s, spared_s) + encoded_s
    ahead = candidate.fact(InFlightLoad, InFlightLoad.producer)
    queued = ahead.num_uncached_tokens if ahead else 0
    return decision.at + (queued + num_uncached_tokens(decision.priced, candidate)) / PREFILL_TOKENS_PER_S


def predicted_ttft_s(decision: Decision, served: str | None = None) -> float | None:
    """Seconds from the decision to the first token, as costs foresee them where a request was ``served``.

    Where stages are apart, for those that were chosen. Nothing where no producer predicts
    costs, and where nobody of the candidates served. ``served`` is an endpoint's id; the
    winner is taken where it is left out.
    """
    stage = decision.primary_stage
    served = served or (stage.winner.id if stage.winner else None)
    row = next((each for each in stage.candidates if each.endpoint.id == served), None)
    cost = row.fact(FirstTokenCost, FirstTokenCost.producer) if row is not None else None
    if cost is None:
        return None
    is_apart = decision.stage_of(Work.ENCODE) or prefill_apart(decision)
    return predicted_first_token_at(decision) - decision.at if is_apart else cost.ttft_s


@dataclass(slots=True)
class _Request:
    """One request in flight."""

    serial: int
    endpoint: "_Endpoint"
    sent_at: float
    num_engine_requests: int
    num_uncounted: int
    """Engine requests whose first token no increment has covered."""
    prediction: tuple[float, int, str] | None
    """Its entry in the endpoint's predictions; nothing where the body will tell."""
    ended_at: float | None = None
    """When it ended with an answer whose first tokens are not all counted yet."""


@dataclass(slots=True)
class _Endpoint:
    """What is known of one endpoint's counter, and our requests there."""

    id: str
    is_member: bool = False
    passes_body: bool = False
    """Whether the newest request's body is shown to us."""
    num_in_flight: int = 0
    """Engine requests of ours that have not ended."""
    unreleased: dict[str, _Request] = field(default_factory=dict)
    """Requests before their first token, oldest first."""
    uncounted: dict[int, _Request] = field(default_factory=dict)
    """Requests of which first tokens are still to be counted, oldest first: also those released or ended already."""
    ended: list[_Request] = field(default_factory=list)
    """Those of ``uncounted`` that have ended."""
    covered: dict[str, _Request] = field(default_factory=dict)
    """Unreleased requests that were counted while the counter was not trusted."""
    predictions: list[tuple[float, int, str]] = field(default_factory=list)
    """(predicted at, serial number, request id) of the unreleased, soonest first."""
    foreign: deque[int] = field(default_factory=lambda: deque(maxlen=NUM_SCRAPES))
    """By how much running + waiting exceeded our own in flight at each of the last scrapes."""
    median_foreign: float = 0.0
    count: int | None = None
    """The engine's count of first tokens at the last scrape that told it."""
    process_start_at: float | None = None
    trusted_until: float = float("-inf")
    """When the last count grows stale."""
    counted_to: float = float("-inf")
    """When the scrape of the last count began."""

    @property
    def is_ours(self) -> bool:
        """Whether nothing speaks for others' requests in the counter, however short it has been looked at."""
        return self.median_foreign <= max(MAX_FOREIGN, MAX_FOREIGN_FRACTION * self.num_in_flight)

    def trusts_counter(self, at: float) -> bool:
        """Whether the counter's increments are ours."""
        is_known = len(self.foreign) == NUM_SCRAPES and self.count is not None and at < self.trusted_until
        return is_known and self.is_ours

    def forget_counter(self) -> None:
        self.foreign.clear()
        self.count = None
        self.process_start_at = None
        self.trusted_until = float("-inf")
        self.counted_to = float("-inf")
        self.forget_debts()

    def forget_debts(self) -> None:
        """Let go what no later increment stands for as far as is known: of others' first tokens we cannot tell ours."""
        self.uncounted = {request.serial: request for request in self.unreleased.values()}
        self.ended.clear()


class FirstTokenTracker:
    """Says once for each request that its first token has come, and from which source that is known.

    - **body**: a request sent with ``has_body`` is released by ``seen`` and by nothing else.
    - **counter**: an increment of d releases the d oldest unreleased engine requests that
      were sent before the scrape began (a request goes when all of its engine requests
      are covered). It is used for an endpoint while all of this holds: the counter was
      told within the last 2 s and has not fallen, the process is the same, and in the
      median of the last 20 scrapes running + waiting exceeded our own requests in flight
      at that time by at most max(2, 5 % of ours). An increment that finds nobody is dropped.
      Who was released by prediction, by its body or by its end before the counter told of
      its first token still has that increment to itself: a younger request must not get it.
    - **predicted**: everywhere else ``due`` releases a request when its predicted time
      has come.

    No request waits for ever: without ``has_body`` it is released at the latest 60 s
    after its predicted time, which counts as at most 600 s after it was sent, though
    the counter be trusted; with ``has_body``, until ``ended``, which comes exactly once
    a request.

    Memory: one entry for each request between ``sent`` and ``ended``, and where its answer
    ended before the count of its first token, until the next scrape that tells a count
    (kept only while the last one is not 2 s old); 20 numbers for each endpoint between
    ``Joined`` and ``Left``. Times are seconds on the driver's clock.
    """

    def __init__(self) -> None:
        self._requests: dict[str, _Request] = {}
        self._endpoints: dict[str, _Endpoint] = {}
        self._at = float("-inf")
        self._num_sent = 0

    def __len__(self) -> int:
        """Requests that were sent and have not ended."""
        return len(self._requests)

    def sent(
        self,
        request_id: str,
        endpoint_id: str,
        at: float,
        num_engine_requests: int,
        predicted_at: float,
        *,
        has_body: bool = False,
    ) -> None:
        """A request went to an endpoint; its id is not in flight already.

        ``num_engine_requests`` is choices x prompts. ``has_body`` says that the answer's
        body is going to be shown to us while it is generated.
        """
        assert request_id not in self._requests, f"request {request_id} is sent twice"
        self._at = max(self._at, at)
        self._num_sent += 1
        endpoint = self._endpoints.setdefault(endpoint_id, _Endpoint(endpoint_id))
        prediction = None
        if not has_body:
            prediction = (min(predicted_at, at + MAX_PREDICTION_S), self._num_sent, request_id)
            insort(endpoint.predictions, prediction)
        num = max(1, num_engine_requests)
        request = _Request(self._num_sent, endpoint, at, num, num_uncounted=num, prediction=prediction)
        self._requests[request_id] = endpoint.unreleased[request_id] = endpoint.uncounted[request.serial] = request
        endpoint.num_in_flight += num
        endpoint.passes_body = has_body

    def seen(self, request_id: str, at: float) -> FirstToken | None:
        """A chunk of the answer's body passed; an event where it is the first sign of an answer."""
        self._at = max(self._at, at)
        request = self._requests.get(request_id)
        if request is None or request_id not in request.endpoint.unreleased:
            return None
        return self._release(request_id, request, at, FirstTokenSource.BODY)

    def ended(self, request_id: str, at: float, *, was_answered: bool = False) -> None:
        """The request ended at ``at``; what is held for it is dropped.

        ``was_answered`` says that its endpoint gave the whole answer, so that each of its
        engine requests had a first token, counted already or by the next scrape.
        """
        request = self._requests.pop(request_id, None)
        if request is None:
            return
        endpoint = request.endpoint
        self._remove(request_id, request)
        is_due = was_answered and endpoint.counted_to < at < endpoint.trusted_until
        if request.num_uncounted and is_due:
            request.ended_at = at
            endpoint.ended.append(request)
        else:
            endpoint.uncounted.pop(request.serial, None)
        endpoint.num_in_flight -= request.num_engine_requests
        self._drop_idle(endpoint)

    def observe(self, event: FleetEvent) -> list[FirstToken]:
        """Learn from a scrape, or that an endpoint came or left; the releases that follow."""
        self._at = max(self._at, event.at)
        match event:
            case Joined():
                self._endpoints.setdefault(event.endpoint.id, _Endpoint(event.endpoint.id)).is_member = True
            case Left() if endpoint := self._endpoints.get(event.endpoint.id):
                endpoint.is_member = False
                endpoint.forget_counter()
                self._drop_idle(endpoint)
            case Scraped() if endpoint := self._endpoints.get(event.endpoint_id):
                return self._count(endpoint, event)
        return []

    def due(self, at: float) -> list[FirstToken]:
        """The releases of predictions that have run out."""
        self._at = max(self._at, at)
        events = []
        for endpoint in self._endpoints.values():
            grace_s = OVERDUE_S if endpoint.trusts_counter(at) else 0.0
            while endpoint.predictions and endpoint.predictions[0][0] + grace_s <= at:
                request_id = endpoint.predictions[0][2]
                events.append(self._release(request_id, self._requests[request_id], at, FirstTokenSource.PREDICTED))
        return events

    def next_due(self) -> float | None:
        """The earliest time at which ``due`` would release a request, as far as is known now.

        Any other call may change the answer. Cost: a look at each endpoint.
        """
        times = []
        for endpoint in self._endpoints.values():
            if endpoint.predictions:
                soonest = endpoint.predictions[0][0]
                if endpoint.trusts_counter(self._at):
                    soonest = min(soonest + OVERDUE_S, max(soonest, endpoint.trusted_until))
                times.append(soonest)
        return min(times, default=None)

    def source_of(self, endpoint_id: str) -> FirstTokenSource:
        """The source in use for the endpoint at the latest time told, by its newest request."""
        endpoint = self._endpoints.get(endpoint_id)
        if endpoint is not None and endpoint.passes_body:
            return FirstTokenSource.BODY
        if endpoint is not None and endpoint.trusts_counter(self._at):
            return FirstTokenSource.COUNTER
        return FirstTokenSource.PREDICTED

    def _count(self, endpoint: _Endpoint, event: Scraped) -> list[FirstToken]:
        """Take in a scrape; the releases that the counter's increment stands for."""
        known = (event.process_start_at, endpoint.process_start_at)
        has_restarted = None not in known and known[0] != known[1]
        count, before = event.num_first_tokens, endpoint.count
        if has_restarted or (count is not None and before is not None and count < before):
            endpoint.forget_counter()
            before = None
        if event.process_start_at is not None:
            endpoint.process_start_at = event.process_start_at
        load = event.load
        if load.num_running is not None and load.num_waiting is not None:
            endpoint.foreign.append(load.num_running + load.num_waiting - endpoint.num_in_flight)
            endpoint.median_foreign = statistics.median(endpoint.foreign)
        if count is None:
            return []
        # Asked before the count is renewed: what a long silence hid was released by prediction.
        is_trusted = endpoint.trusts_counter(event.at)
        endpoint.count = count
        endpoint.trusted_until = event.at + COUNTER_STALE_AFTER_S
        endpoint.counted_to = event.at if load.at is None else load.at
        if before is None or load.at is None or not endpoint.is_ours:
            endpoint.forget_debts()
            return []
        self._cover(endpoint, count - before, began_at=load.at)
        if not is_trusted:
            return []
        complete = list(endpoint.covered.items())
        return [self._release(request_id, each, event.at, FirstTokenSource.COUNTER) for request_id, each in complete]

    def _cover(self, endpoint: _Endpoint, num_tokens: int, *, began_at: float) -> None:
        """Give ``num_tokens`` first tokens to the oldest engine requests, released or not.

        A request whose body will tell takes its own and stays. What ended before the
        scrape began has no further increment to come.
        """
        complete = []
        for request in endpoint.uncounted.values():
            if num_tokens == 0 or request.sent_at >= began_at:
                break
            taken = min(num_tokens, request.num_uncounted)
            request.num_uncounted -= taken
            num_tokens -= taken
            if request.num_uncounted == 0:
                complete.append(request)
        for request in complete:
            del endpoint.uncounted[request.serial]
            if request.prediction is not None and (request_id := request.prediction[2]) in endpoint.unreleased:
                endpoint.covered[request_id] = request
        for request in endpoint.ended:
            if request.ended_at is not None and request.ended_at < began_at:
                endpoint.uncounted.pop(request.serial, None)
        endpoint.ended = [request for request in endpoint.ended if request.serial in endpoint.uncounted]

    def _release(self, request_id: str, request: _Request, at: float, source: FirstTokenSource) -> FirstToken:
        self._remove(request_id, request)
        return FirstToken(at=at, request_id=request_id, source=source)

    def _remove(self, request_id: str, request: _Request) -> None:
        """Take the request from among the unreleased, if it is there."""
        request.endpoint.covered.pop(request_id, None)
        if request.endpoint.unreleased.pop(request_id, None) and request.prediction is not None:
            del request.endpoint.predictions[bisect_left(request.endpoint.predictions, request.prediction)]

    def _drop_idle(self, endpoint: _Endpoint) -> None:
        if not endpoint.is_member and endpoint.num_in_flight == 0:
            del self._endpoints[endpoint.id]
