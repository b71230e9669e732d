"""Who gets the request? Profiles of filters, weighted scorers and a picker, run over one table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tessera.core.facts import Load, Table
from tessera.core.plugin import Filter, Handler, Picker, Scorer
from tessera.core.rng import Rng
from tessera.core.types import Candidate, Endpoint, FactKey, Note, PricedRequest, Rejection, Stage
from tessera.core.work import MAX_TOLD_CHARS, EncodePlan, Work

_TOO_LONG = Note(
    f"who encodes what would take more than {MAX_TOLD_CHARS} characters of a header: items are dealt out in turn",
    guess="encode-plan-too-long",
)


_LOAD: FactKey = (Load, Load.producer)
STALE_METRICS = "stale-metrics"
"""Stands among the filters' names for endpoints that do not answer their scrape."""


@dataclass(frozen=True, slots=True)
class _Filtered:
    """What a profile's filters leave of a table."""

    left: Table
    dropped_by: dict[int, str]
    """Name of the filter, by the candidate's ``id()``."""
    notes: dict[str, Note]
    rejection: Rejection | None


@dataclass(frozen=True, slots=True)
class Profile:
    """A named pipeline: filters in order, scorers with weights, one picker."""

    name: str
    filters: tuple[Filter, ...]
    scorers: tuple[tuple[Scorer, float], ...]
    picker: Picker


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Runs the profiles that the handler asks for.

    An endpoint that does not answer its scrape is passed over as long as at least half of those
    that a profile's filters would leave do answer. With fewer it is likelier that pages are
    slow everywhere than that most servers are gone, and who answers must not get the traffic of
    all. Source of the half: Envoy's ``healthy_panic_threshold``.
    """

    profiles: Mapping[str, Profile]
    handler: Handler
    num_fallbacks: int = 2
    """Endpoints listed behind the winners."""

    def schedule(
        self, request: PricedRequest, candidates: Sequence[Candidate], rng: Rng
    ) -> tuple[tuple[Stage, ...], Rejection | None]:
        """Every stage that ran, and why nobody was chosen where nobody was."""
        table = Table(candidates)
        names = tuple(self.profiles)
        done: dict[str, Stage] = {}
        rejection: Rejection | None = None
        primary = self.handler.primary(request, names)
        while (name := self.handler.next_profile(request, names, done)) is not None:
            narrowed = self.handler.narrowed(request, name, done)
            done[name], refused = self._run(self.profiles[name], narrowed, table, rng)
            if done[name].work is Work.ENCODE and (won := done[name].winners):
                done[name] = replace(done[name], encodes=done[name].encodes or _dealt_out(request, won))
            if refused and name == primary:
                rejection = refused
                break
        return tuple(done.values()), rejection

    def _run(
        self, profile: Profile, request: PricedRequest, candidates: Table, rng: Rng
    ) -> tuple[Stage, Rejection | None]:
        filtered = _kept(profile, request, candidates, rng)
        left, dropped_by, notes = filtered.left, filtered.dropped_by, filtered.notes
        columns, totals = _score(profile, request, left)
        work = self.handler.work_of(profile.name)
        shares = profile.picker.share_out(request, left, totals, rng) if work is Work.ENCODE and left else None
        won = list(dict.fromkeys(shares.values())) if shares else None
        winners, runner_up, fallbacks = self._take(profile.picker, request, left, totals, rng, won)
        encodes = _told(shares, left, fallbacks) if shares else None
        if shares and encodes is None:
            notes[profile.picker.name] = _TOO_LONG
        stage = Stage(
            profile=profile.name,
            candidates=candidates,
            filtered_by=tuple(map(dropped_by.get, map(id, candidates))) if dropped_by else (None,) * len(candidates),
            scored=tuple([place for place, each in enumerate(candidates) if id(each) not in dropped_by]),
            columns=columns,
            totals=tuple(totals),
            winners=winners,
            runner_up=runner_up,
            fallbacks=fallbacks,
            notes=notes,
            work=work,
            encodes=encodes,
        )
        return stage, filtered.rejection

    def _take(
        self,
        picker: Picker,
        request: PricedRequest,
        left: Sequence[Candidate],
        totals: Sequence[float],
        rng: Rng,
        won: list[int] | None,
    ) -> tuple[tuple[Endpoint, ...], Endpoint | None, tuple[Endpoint, ...]]:
        if not left:
            return (), None, ()
        won = picker.pick(request, left, totals, rng) if won is None else won
        winners = tuple(left[index].endpoint for index in won)
        endpoints = [left[index].endpoint for index in _best_behind(won, totals, max(1, self.num_fallbacks), rng)]
        return winners, endpoints[0] if endpoints else None, tuple(endpoints[: self.num_fallbacks])


def _kept(profile: Profile, request: PricedRequest, candidates: Table, rng: Rng) -> _Filtered:
    """What the filters leave, of the endpoints that answer their scrape where these are enough."""
    filtered = _filtered(profile, request, candidates, rng)
    if not _silent(filtered.left):
        return filtered
    passed_over = dict.fromkeys(_silent(candidates), STALE_METRICS)
    if len(passed_over) == len(candidates):
        return filtered
    answering = Table([each for each in candidates if id(each) not in passed_over])
    among = _filtered(profile, request, answering, rng)
    if not among.left or 2 * len(among.left) < len(filtered.left):
        return filtered
    return replace(among, dropped_by={**passed_over, **filtered.dropped_by, **among.dropped_by})


def _silent(candidates: Table) -> list[int]:
    """The ``id()`` of each candidate whose load is looked at and not known."""
    return [id(each) for each in candidates if (load := each.facts.get(_LOAD)) is not None and load.at is None]


def _filtered(profile: Profile, request: PricedRequest, candidates: Table, rng: Rng) -> _Filtered:
    left = candidates
    dropped_by: dict[int, str] = {}
    notes: dict[str, Note] = {}
    rejection = None
    for each in profile.filters:
        kept = each.keep(request, left, rng)
        if note := each.explain(request, left, kept):
            notes[each.name] = note
        if left and not kept:
            what = f"filter {each.name!r} of profile {profile.name!r} left none of {len(left)} endpoints"
            message = note.text if note else what
            rejection = Rejection(reason=each.rejection, filter=each.name, message=message)
        if len(kept) != len(left):
            stay = set(map(id, kept))
            dropped_by |= {id(candidate): each.name for candidate in left if id(candidate) not in stay}
            left = Table([candidate for candidate in left if id(candidate) in stay])
    return _Filtered(left, dropped_by, notes, rejection)


def _told(shares: Mapping[str, int], left: Sequence[Candidate], spares: Sequence[Endpoint]) -> EncodePlan | None:
    """The plan of a picker that shares items out; nothing where it is too long to be told."""
    by_item = {name: left[index].endpoint.id for name, index in shares.items()}
    num_chars = sum(len(each) + 6 for each in by_item.values())
    plan = EncodePlan(by_item, tuple([each.id for each in spares]), is_told=True)
    return plan if num_chars <= MAX_TOLD_CHARS else None


def _dealt_out(request: PricedRequest, winners: Sequence[Endpoint]) -> EncodePlan:
    """What an endpoint does that knows its encoders alone: item i of all the distinct ones goes to encoder i mod n.

    Source: llm-d's routing sidecar.
    """
    items = enumerate(request.distinct_items())
    return EncodePlan({each.identifier: winners[index % len(winners)].id for index, each in items})


def _best_behind(won: Sequence[int], totals: Sequence[float], limit: int, rng: Rng) -> list[int]:
    """At most ``limit`` indices of those not in ``won``, best total first.

    Equal totals are drawn by lot: one endpoint's traffic must not all fall on the
    same neighbour when it fails.
    """
    rest = dict(enumerate(totals))
    for index in won:
        rest.pop(index, None)
    best: list[int] = []
    while rest and len(best) < limit:
        top = max(rest.values())
        tied = [index for index, total in rest.items() if total == top]
        best.append(tied[rng.below(len(tied))])
        del rest[best[-1]]
    return best


def _score(
    profile: Profile, request: PricedRequest, left: Sequence[Candidate]
) -> tuple[dict[str, tuple[float, ...]], list[float]]:
    """One column a scorer, clamped to 0..1, and the weighted sums; NaN counts as 0."""
    columns: dict[str, tuple[float, ...]] = {}
    weighted: list[Sequence[float]] = [[0.0] * len(left)]
    for scorer, weight in profile.scorers if left else ():
        column = scorer.score(request, left)
        assert len(column) == len(left), f"{scorer.name} gave {len(column)} scores for {len(left)} candidates"
        if [score for score in column if not 0.0 <= score <= 1.0]:
            column = list(map(_clamped, column))
        columns[scorer.name] = tuple(column)
        weighted.append(column if weight == 1.0 else [weight * score for score in column])
    return columns, list(map(sum, zip(*weighted, strict=True)))


def _clamped(score: float) -> float:
    if 0.0 <= score <= 1.0:
        return score
    return 1.0 if score > 1.0 else 0.0
