"""What should a workload be served with? Everything that is simulated for an answer, in its order."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field, replace
from typing import Final

from tessera.engine.profiles import EngineProfile
from tessera.sim.advice.asked import Asked
from tessera.sim.advice.candidates import Candidate, Candidates, Kind, candidates_of
from tessera.sim.advice.crossover import Crossover, Point, Variant, crossover_of, variants_of
from tessera.sim.advice.demand import Demand, demand_of
from tessera.sim.advice.ranking import Ranking, Result, rank
from tessera.sim.advice.search import Edge, Objectives, Search, Trial, Tried, find_edge, try_rate
from tessera.sim.max_rate import MAX_TPOT_S, ttft_limit_s
from tessera.sim.topology import idle_ttft_s
from tessera.sim.workers import workers

SEEDS: Final = (0, 1, 2)
"""Of pictures, texts and gaps, the same for every topology."""
_NUM_ANSWERS: Final = 1.5
"""How often the time of a whole answer, at the limit of TPOT, passes before anything is measured: with less than one,
batches are still growing, and TPOT looks better than it is."""
_MAX_WARM_S: Final = 120.0
"""However loose the limit is."""
_NUM_SPLITS: Final = 1
"""Splits with encoders that are tried at each other size: the one that arithmetic lets go furthest."""
_NUM_SEEDS_ELSEWHERE: Final = 2
"""Of the seeds, at each other size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, with all that is needed to answer it."""

    asked: Asked
    base: EngineProfile
    """What a server with a language model is."""
    num_gpus: int
    ttft_s: float | None = None
    """Nothing: twice that of an idle fleet + 0.2 s, for each size of pictures."""
    tpot_s: float = MAX_TPOT_S
    seeds: tuple[int, ...] = SEEDS
    trial: Trial = field(default_factory=Trial)
    has_crossover: bool = True


@dataclass(frozen=True, slots=True)
class Setting:
    """One size of pictures: what a request asks for, what must hold, who is compared."""

    variant: Variant
    idle_ttft_s: float
    """Of aggregated servers that do nothing else."""
    objectives: Objectives
    demand: Demand
    candidates: Candidates

    def searches(self, question: Question, chosen: Sequence[Candidate], seeds: Sequence[int]) -> list[Search]:
        """One for each candidate and seed."""
        answer_s = self.demand.num_output_tokens * self.objectives.tpot_s
        trial = replace(question.trial, min_warm_s=min(_NUM_ANSWERS * answer_s, _MAX_WARM_S))
        return [
            Search(
                topology=each.topology,
                workload=self.variant.workload,
                base=question.base,
                objectives=self.objectives,
                trial=trial,
                seed=seed,
                guess=each.bound.rate,
            )
            for each in chosen
            for seed in seeds
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The answer."""

    question: Question
    setting: Setting
    """Of the workload as it is."""
    ranking: Ranking
    points: tuple[Point, ...]
    """By size, the smallest first."""
    crossover: Crossover | None
    crowded: Tried | None
    """What comes of plain aggregated servers at the rate up to which the best E/P/D goes."""

    @property
    def name(self) -> str:
        """Of the recommended topology."""
        return self.ranking.recommended.name


def setting_of(question: Question, variant: Variant) -> Setting:
    """What is compared at one size of pictures.

    Raises:
        ConfigError: the model refuses a picture.
    """
    demand = demand_of(variant.workload, question.base)
    idle_s = idle_ttft_s(variant.workload, question.base)
    objectives = Objectives(question.ttft_s or ttft_limit_s(idle_s), question.tpot_s)
    candidates = candidates_of(question.num_gpus, question.base, demand, question.tpot_s)
    return Setting(variant, idle_s, objectives, demand, candidates)


def advise(question: Question, num_jobs: int, advance: Callable[[int, int], None]) -> Advice:
    """The answer; the same for the same question, however many processes find it.

    Args:
        question: what is asked.
        num_jobs: processes; 1: this one alone.
        advance: told after each search how many of how many are done.

    Raises:
        ConfigError: the model refuses a picture.
    """
    variants = variants_of(question.asked) if question.has_crossover else variants_of(question.asked)[:0]
    own = Variant(question.asked.workload, question.asked.size, is_own=True)
    setting = setting_of(question, own)
    others = [setting_of(question, each) for each in variants if not each.is_own]
    chosen = [setting.candidates.chosen, *(_tried_elsewhere(each.candidates) for each in others)]
    seeds = [question.seeds, *(question.seeds[:_NUM_SEEDS_ELSEWHERE] for _ in others)]
    settings = [setting, *others]
    searches = [
        search
        for each, candidates, those in zip(settings, chosen, seeds, strict=True)
        for search in each.searches(question, candidates, those)
    ]
    edges = iter(_find(searches, num_jobs, advance))
    results = [
        [Result(candidate, tuple(next(edges) for _ in those)) for candidate in candidates]
        for candidates, those in zip(chosen, seeds, strict=True)
    ]
    ranking = rank(results[0])
    points = [_point(each, found) for each, found in zip(settings, results, strict=True)]
    points.sort(key=lambda point: point.variant.num_pixels)
    is_with_points = len(points) > 1
    return Advice(
        question=question,
        setting=setting,
        ranking=ranking,
        points=tuple(points) if is_with_points else (),
        crossover=crossover_of(points) if is_with_points else None,
        crowded=_crowded(question, setting, ranking),
    )


def _tried_elsewhere(candidates: Candidates) -> tuple[Candidate, ...]:
    """Aggregated servers and the likeliest splits with encoders."""
    whole = [each for each in candidates.chosen if each.kind is Kind.AGGREGATED]
    splits = [each for each in candidates.chosen if each.kind is Kind.E_PD]
    return (*whole, *splits[:_NUM_SPLITS])


def _point(setting: Setting, results: Sequence[Result]) -> Point:
    ranking = rank(results)
    return Point(
        setting.variant,
        setting.demand.ratio,
        ranking.aggregated,
        ranking.named("aggregated-encoder-data"),
        ranking.best_of(Kind.E_PD),
    )


def _crowded(question: Question, setting: Setting, ranking: Ranking) -> Tried | None:
    """TPOT of plain aggregated servers where three stages apart end: an objective below it turns the answer."""
    apart = ranking.best_of(Kind.E_P_D) or ranking.best_of(Kind.P_D)
    if apart is None or not apart.rate:
        return None
    aggregated = ranking.aggregated.candidate
    # No first token counts as late: the run must come to its end.
    free = replace(setting, objectives=Objectives(float("inf"), question.tpot_s))
    search = free.searches(question, [aggregated], question.seeds[:1])[0]
    return try_rate(search, apart.rate)


def _find(searches: Sequence[Search], num_jobs: int, advance: Callable[[int, int], None]) -> list[Edge]:
    """The edge of each search, in their order."""
    found: dict[int, Edge] = {}
    for place, edge in _edges(searches, num_jobs):
        found[place] = edge
        advance(len(found), len(searches))
    return [found[place] for place in range(len(searches))]


def _edges(searches: Sequence[Search], num_jobs: int) -> Iterator[tuple[int, Edge]]:
    if num_jobs <= 1 or len(searches) <= 1:
        for place, search in enumerate(searches):
            yield place, find_edge(search)
        return
    with workers(num_jobs) as pool:
        pending = {pool.submit(find_edge, search): place for place, search in enumerate(searches)}
        for done in as_completed(pending):
            yield pending[done], done.result()
