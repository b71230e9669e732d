"""Which endpoint does which part of a decided request's work?"""

from tessera.core.types import Candidate, Decision, Outcome, PricedItem, Stage
from tessera.core.work import Work


def prefill_apart(decision: Decision) -> Stage | None:
    """The stage whose winner computes the prompt for another endpoint, if one does."""
    stage = decision.stage_of(Work.PREFILL)
    return stage if stage is not None and not _repeats_primary(decision, stage) else None


def computing_stage(decision: Decision) -> Stage:
    """The stage whose winner computes the prompt: prefill's where it is another endpoint's, else the primary one."""
    return prefill_apart(decision) or decision.primary_stage


def working_stages(decision: Decision) -> list[Stage]:
    """The stages that chose somebody, but for a prefill that found whom decode has found: that is one request there."""
    return [each for each in decision.stages if each.winners and not _repeats_primary(decision, each)]


def kv_stages(decision: Decision) -> list[Stage]:
    """The stages whose winners will hold the prompt's KV.

    Who computes it holds it, and who decodes gets all of it before it starts and keeps
    it in its own prefix cache.
    """
    stages = working_stages(decision)
    return [each for each in stages if each.profile == decision.primary or each.work is Work.PREFILL]


def sent_away(decision: Decision) -> dict[str, tuple[PricedItem, ...]]:
    """Endpoint id -> the distinct items that it encodes for the one that computes the prompt; prompt order."""
    stage = decision.stage_of(Work.ENCODE)
    if stage is None:
        return {}
    items = decision.priced.distinct_items()
    if stage.encodes is None:
        return {stage.winners[0].id: items}
    by_item = stage.encodes.by_item
    found: dict[str, tuple[PricedItem, ...]] = {}
    for each in items:
        if encoder := by_item.get(each.identifier):
            found[encoder] = (*found.get(encoder, ()), each)
    return found


def encoder_of(decision: Decision) -> dict[str, str]:
    """Identifier of each distinct item that is encoded apart -> endpoint id."""
    return {each.identifier: encoder for encoder, items in sent_away(decision).items() for each in items}


def kept_items(decision: Decision) -> tuple[PricedItem, ...]:
    """The distinct items that nobody else encodes, prompt order."""
    items, away = decision.priced.distinct_items(), encoder_of(decision)
    return tuple([each for each in items if each.identifier not in away]) if away else items


def row_of(decision: Decision, endpoint_id: str) -> Candidate | None:
    """An endpoint as the decision saw it."""
    rows = (each for stage in decision.stages for each in stage.candidates)
    return next((each for each in rows if each.endpoint.id == endpoint_id), None)


def _repeats_primary(decision: Decision, stage: Stage) -> bool:
    primary = decision.primary_stage
    if stage is primary or stage.work is not Work.PREFILL or primary.winner is None or stage.winner is None:
        return False
    return stage.winner.id == primary.winner.id


def prefill_failed(outcome: Outcome) -> bool:
    """Whether it was told that a prefill apart was tried and not done: who serves has computed the prompt then."""
    told = [each for each in outcome.stages if each.stage is Work.PREFILL]
    return bool(told) and not any(each.is_done for each in told)
