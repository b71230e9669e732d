"""The road of a request: read, tokenise, price, match, schedule, record; later, settle.

This is the one place where the stages are strung together. Live traffic, the
simulator, ``tessera explain`` and the benchmarks all call these methods.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tessera.core.draft import Draft
from tessera.core.errors import DropReason
from tessera.core.facts import UNKNOWN_LOAD, FleetEvent, FleetView, Load
from tessera.core.matching.divided import computing_stage, encoder_of
from tessera.core.plugin import Plugin, Pricer, Producer
from tessera.core.reading import read_request
from tessera.core.rendering.prompt import PromptRenderer, PromptTokens, TokenMemo
from tessera.core.rendering.unrendered import Reason, Unrendered
from tessera.core.rng import Rng
from tessera.core.scheduler import Scheduler
from tessera.core.types import (
    Basis,
    Candidate,
    Decision,
    Endpoint,
    FactKey,
    Finding,
    InferenceRequest,
    ModelProfile,
    Outcome,
    PricedRequest,
    Rejection,
    Stage,
)
from tessera.core.work import Work

_OPTIONAL = (Work.ENCODE, Work.PREFILL)
STALE_AFTER_S = 2.0
"""A scrape older than this is not believed; llm-d's ``--metrics-staleness-threshold``."""


@dataclass(frozen=True, slots=True)
class Router:
    """Everything that decides, put together by ``config``."""

    pricer: Pricer
    producers: tuple[Producer, ...]
    scheduler: Scheduler
    memories: tuple[Plugin, ...]
    """Every plugin that is told of decisions, outcomes and the fleet; producers before what reads them."""
    renderer: PromptRenderer | None = None
    """What makes token ids of prompts; nothing outside exact mode."""
    stale_after_s: float = STALE_AFTER_S
    advising: tuple[Plugin, ...] = ()
    """Every plugin that adds headers to requests."""
    answering: tuple[Plugin, ...] = ()
    """Every plugin that adds headers to answers; where there is one, gateways must show us answers' headers."""

    @staticmethod
    def read(
        body: bytes | None,
        headers: Mapping[str, str],
        profile: ModelProfile,
        *,
        request_id: str,
        at: float,
        wall_at: float,
    ) -> tuple[InferenceRequest, Draft]:
        """What the request asks. Pure and thread-safe; raises RequestError for what no engine could read.

        ``body`` is nothing where the gateway keeps it: the request is routed unread then.
        """
        return read_request(body, headers, profile, request_id=request_id, at=at, wall_at=wall_at)

    def tokenise(self, request: InferenceRequest, draft: Draft, memo: TokenMemo) -> PromptTokens:
        """The prompt as the engine will see it, and what producers need of it; or why that is not known.

        Pure but for ``memo``, and thread-safe. ``draft`` is what ``read`` gave with the request.
        """
        if self.renderer is None:
            return PromptTokens(reason=Reason.NO_RENDERER)
        items = self.pricer.rule_prices(request)
        try:
            prompt = self.renderer.tokens(draft, items, memo, request.wall_at)
        except Unrendered as unrendered:
            return PromptTokens(reason=unrendered.reason)
        priced = _tokenised(PricedRequest(request=request), prompt)
        keys = {key: found for producer in self.producers for key, found in producer.prepare(priced).items()}
        return replace(prompt, block_keys=keys)

    def weigh(self, request: InferenceRequest, prompt: PromptTokens | None = None) -> PricedRequest:
        """The price of ``request``, by its token ids where ``prompt`` has them. A question: it changes nothing."""
        priced = self.pricer.price(request)
        return priced if prompt is None else _tokenised(priced, prompt)

    def decide(
        self, request: InferenceRequest, view: FleetView, at: float, rng: Rng, prompt: PromptTokens | None = None
    ) -> Decision:
        """Choose, and remember the choice: load is reserved before the next request is looked at.

        ``prompt`` is what ``tokenise`` gave, where it was asked.
        """
        decision = self.choose(request, view, at, rng, prompt)
        if decision.rejection is None:
            self._tell(lambda memory: memory.record(decision))
        return decision

    def choose(
        self, request: InferenceRequest, view: FleetView, at: float, rng: Rng, prompt: PromptTokens | None = None
    ) -> Decision:
        """The Decision for ``request``; nothing is remembered, so asking twice gives the same answer."""
        priced = self.weigh(request, prompt)
        endpoints, loads, guesses = self._allowed(request, view, at)
        candidates = self._match(priced, endpoints, loads)
        primary = self.scheduler.handler.primary(priced, tuple(self.scheduler.profiles))
        guesses += [f"{each.reason}:{each.index}" for each in priced.items if each.reason]
        guesses += [f"approximate:{priced.untokenised}"] if priced.untokenised else []
        stages, rejection = self.scheduler.schedule(priced, candidates, rng)
        guesses += dict.fromkeys(note.guess for stage in stages for note in stage.notes.values() if note.guess)
        guesses += [f"no-{each.work}-endpoint" for each in stages if each.work in _OPTIONAL and not each.winners]
        if not candidates:
            of = f" of the {len(request.subset)} that the gateway allows" if request.subset is not None else ""
            rejection = Rejection(reason=DropReason.NO_ENDPOINTS, filter=None, message=f"the pool has no endpoint{of}")
        decision = Decision(
            priced=priced,
            at=at,
            stages=stages,
            primary=primary,
            plan={each.profile: ",".join([one.id for one in each.winners]) for each in stages if each.winners},
            guesses=(*request.guesses, *guesses),
            rejection=rejection,
            entrance=self._entrance(stages, primary),
        )
        encoders = {} if rejection else _encoders(decision)
        return replace(decision, plan={**decision.plan, **encoders}) if encoders else decision

    def observe(self, event: FleetEvent) -> None:
        """Tell every memory that the fleet changed; raises as ``settle``."""
        self._tell(lambda memory: memory.observe(event))

    def settle(self, outcome: Outcome) -> list[Finding]:
        """Tell every memory what came of a request; exactly once a request.

        Raises:
            ExceptionGroup: what memories raised, after all of them were told: one
                plugin's fault must not leave another's ledger open.
        """
        findings: list[Finding] = []
        self._tell(lambda memory: findings.extend(memory.settle(outcome)))
        return findings

    def answer_headers(self, decision: Decision, served: Endpoint) -> dict[str, str]:
        """What to add to the headers of the answer that ``served`` gives; of two values for one name, the first."""
        found: dict[str, str] = {}
        for plugin in self.answering:
            found = {**plugin.answer_headers(decision, served), **found}
        assert all(text.isascii() and text.isprintable() for text in found.values()), "a header's value is one line"
        return found

    def request_headers(self, decision: Decision) -> dict[str, str]:
        """What to add to the headers of a request that was not rejected; of two values for one name, the first."""
        found: dict[str, str] = {}
        for plugin in self.advising:
            found = {**plugin.request_headers(decision), **found}
        assert all(text.isascii() and text.isprintable() for text in found.values()), "a header's value is one line"
        return found

    def close(self) -> None:
        """Close every plugin; raises as ``settle``."""
        self._tell(lambda memory: memory.close())

    def _tell(self, say: Callable[[Plugin], object]) -> None:
        faults: list[Exception] = []
        for memory in self.memories:
            try:
                say(memory)
            except Exception as fault:
                fault.add_note(f"in plugin {memory.name!r}")
                faults.append(fault)
        if faults:
            raise ExceptionGroup("plugins failed", faults)

    def _entrance(self, stages: Sequence[Stage], primary: str) -> str | None:
        winner = next((each.winner for each in stages if each.profile == primary), None)
        return self.scheduler.handler.entrance(winner) if winner is not None else None

    def _allowed(
        self, request: InferenceRequest, view: FleetView, at: float
    ) -> tuple[list[Endpoint], list[Load], list[str]]:
        """The endpoints that the gateway's subset allows and their loads, old scrapes replaced by ignorance."""
        states = view.endpoints
        if request.subset is not None:
            hosts = {entry.rsplit(":", 1)[0].strip("[]") for entry in request.subset}
            states = tuple(s for s in states if s.endpoint.id in request.subset or s.endpoint.address in hosts)
        loads, oldest = [state.load for state in states], at - self.stale_after_s
        stale = [row for row, load in enumerate(loads) if load.at is None or load.at < oldest]
        for row in stale:
            loads[row] = UNKNOWN_LOAD
        guesses = [f"stale-metrics:{len(stale)}/{len(loads)}"] if stale else []
        return [state.endpoint for state in states], loads, guesses

    def _match(self, priced: PricedRequest, endpoints: Sequence[Endpoint], loads: Sequence[Load]) -> list[Candidate]:
        """A table row for each endpoint: its load and one fact from each producer."""
        load_key: FactKey = (Load, Load.producer)
        facts: list[dict[FactKey, Any]] = [{load_key: load} for load in loads]
        candidates = list(map(Candidate, endpoints, facts))
        for producer in self.producers:
            key = (producer.produces, producer.name)
            for row, fact in zip(facts, producer.derive(priced, candidates), strict=True):
                row[key] = fact
        return candidates


def _encoders(decision: Decision) -> dict[str, str]:
    """Where media is encoded apart: who encodes each item, by its index."""
    away = encoder_of(decision)
    if not away:
        return {}
    here = computing_stage(decision).winners[0].id
    return {str(each.index): away.get(each.identifier, here) for each in decision.priced.items}


def _tokenised(priced: PricedRequest, prompt: PromptTokens) -> PricedRequest:
    """The price with the prompt's token ids, which leave nothing to guess; or with the reason why there are none."""
    if prompt.reason is not None:
        return replace(priced, untokenised=prompt.reason)
    media = sum(item.num_tokens + item.num_wrapper_tokens for item in prompt.items)
    return replace(
        priced,
        items=prompt.items,
        num_text_tokens=max(0, len(prompt.token_ids) - media),
        text_basis=Basis.EXACT,
        num_template_tokens=0,
        token_ids=prompt.token_ids,
        spans=prompt.spans,
        block_keys=prompt.block_keys,
    )
