"""The order of things in a profile's run, and what its Stage keeps of it."""

import math
from collections import Counter
from itertools import pairwise

import pytest

from tessera.core.errors import DropReason
from tessera.core.handlers.single_profile import SingleProfileHandler
from tessera.core.pickers.max_score import MaxScorePicker
from tessera.core.plugin import Filter, Handler, Picker, Scorer
from tessera.core.rng import SeededRng
from tessera.core.scheduler import Profile, Scheduler
from tessera.core.types import Note
from tessera.core.work import Work


class Only(Filter):
    """Keeps the candidates of these indices of what it is given."""

    def __init__(self, name, *indices, rejection=DropReason.NO_ENDPOINTS):
        self.name, self.indices, self.rejection = name, indices, rejection
        self.was_given = []

    def keep(self, request, candidates, rng):
        self.was_given.append(len(candidates))
        return [each for index, each in enumerate(candidates) if index in self.indices]


class Scores(Scorer):
    """Gives these scores."""

    def __init__(self, name, *scores):
        self.name, self.scores = name, list(scores)

    def score(self, request, candidates):
        return self.scores


class Takes(Picker):
    """Takes these indices."""

    name = "takes"

    def __init__(self, *indices):
        self.indices = list(indices)

    def pick(self, request, candidates, totals, rng):
        return self.indices


@pytest.fixture(scope="session")
def run(build):
    def run(num, filters=(), scorers=(), picker=None, *, num_fallbacks=2, seed=0):
        candidates = [build.candidate(number + 1) for number in range(num)]
        profile = Profile("default", tuple(filters), tuple(scorers), picker or MaxScorePicker())
        scheduler = Scheduler({"default": profile}, SingleProfileHandler(), num_fallbacks)
        stages, rejection = scheduler.schedule(build.priced(), candidates, SeededRng(seed, "r"))
        assert [stage.profile for stage in stages] == ["default"]
        assert stages[0].candidates == tuple(candidates)
        return stages[0], rejection

    return run


def numbers(endpoints):
    return [int(endpoint.address.rsplit(".", 1)[1]) for endpoint in endpoints]


def test_filters_run_in_order_and_each_sees_what_the_last_one_left(run):
    first, second, third = Only("first", 0, 2, 3, 4), Only("second", 1, 3), Only("third", 0, 1)
    stage, rejection = run(5, [first, second, third])
    assert [each.was_given for each in (first, second, third)] == [[5], [4], [2]]
    assert stage.filtered_by == ("second", "first", None, "second", None)
    assert stage.scored == (2, 4)
    assert rejection is None


def test_the_order_stays_whatever_order_a_filter_answers_in(run):
    backwards = Only("backwards")
    backwards.keep = lambda request, candidates, rng: candidates[:0:-1]
    stage, _ = run(4, [backwards], [(Scores("a", 0.1, 0.2, 0.3), 1.0)])
    assert (stage.scored, stage.filtered_by) == ((1, 2, 3), ("backwards", None, None, None))
    assert numbers(stage.winners) == [4]


def test_the_filter_that_left_nobody_is_named_and_later_ones_drop_nobody(run):
    picker = Takes(0)
    stage, rejection = run(3, [Only("a", 0), Only("b", rejection=DropReason.SATURATED), Only("c")], picker=picker)
    assert stage.filtered_by == ("b", "a", "a")
    assert (rejection.filter, rejection.reason) == ("b", DropReason.SATURATED)
    assert "'b'" in rejection.message
    assert "left none of 1" in rejection.message
    assert (stage.winner, stage.winners, stage.runner_up, stage.fallbacks) == (None, (), None, ())
    assert (stage.scored, stage.totals, stage.columns) == ((), (), {})


class Explains(Only):
    """Says how many of how many it kept."""

    def explain(self, request, candidates, kept):
        return Note(f"kept {len(kept)} of {len(candidates)}", "lot") if len(kept) < len(candidates) else None


def test_the_stage_keeps_what_filters_say_of_themselves(run):
    stage, _ = run(3, [Only("silent", 0, 1, 2), Explains("all", 0, 1, 2), Explains("some", 0, 2)])
    assert stage.notes == {"some": Note("kept 2 of 3", "lot")}


def test_the_filter_that_left_nobody_says_why_if_it_can(run):
    _, rejection = run(3, [Explains("some", 0), Explains("none")])
    assert (rejection.filter, rejection.message) == ("none", "kept 0 of 1")


def test_an_empty_pool_is_no_filters_fault(run):
    stage, rejection = run(0, [Only("a")], [(Scores("s"), 1.0)])
    assert rejection is None
    assert stage.winners == ()


def test_totals_are_weighted_sums_of_the_columns(run):
    stage, _ = run(3, [], [(Scores("a", 1.0, 0.5, 0.0), 2.0), (Scores("b", 0.0, 0.25, 1.0), 3.0)])
    assert stage.columns == {"a": (1.0, 0.5, 0.0), "b": (0.0, 0.25, 1.0)}
    assert stage.totals == (2.0, 1.75, 3.0)
    assert numbers(stage.winners + stage.fallbacks) == [3, 1, 2]


def test_scores_are_clamped_and_nan_counts_nothing(run):
    scores = Scores("a", 1.5, -0.5, math.nan, math.inf, -math.inf, 0.5)
    stage, _ = run(6, [], [(scores, 2.0)])
    assert stage.columns["a"] == (1.0, 0.0, 0.0, 1.0, 0.0, 0.5)
    assert stage.totals == (2.0, 0.0, 0.0, 2.0, 0.0, 1.0)


def test_a_scorer_of_the_wrong_length_is_a_fault_of_this_request(run):
    with pytest.raises(AssertionError, match="a gave 2 scores for 3 candidates"):
        run(3, [], [(Scores("a", 1.0, 1.0), 1.0)])


def test_columns_and_totals_are_those_of_who_was_left(run):
    stage, _ = run(4, [Only("f", 1, 3)], [(Scores("a", 0.25, 0.5), 1.0)])
    assert (stage.scored, stage.totals) == ((1, 3), (0.25, 0.5))
    assert numbers(stage.winners) == [4]


def test_the_list_has_the_winner_and_two_behind_it_by_total(run):
    stage, _ = run(5, [], [(Scores("a", 0.1, 0.9, 0.3, 0.7, 0.5), 1.0)])
    assert numbers(stage.winners) == [2]
    assert numbers([stage.runner_up]) == [4]
    assert numbers(stage.fallbacks) == [4, 5]


@pytest.mark.parametrize(("num_fallbacks", "expected"), [(0, []), (1, [2]), (9, [2, 1])])
def test_as_many_fallbacks_as_configured_and_always_a_runner_up(run, num_fallbacks, expected):
    scores = (Scores("a", 0.1, 0.5, 0.9), 1.0)
    stage, _ = run(3, [], [scores], num_fallbacks=num_fallbacks)
    assert numbers(stage.fallbacks) == expected
    assert numbers([stage.runner_up]) == [2]


def test_fallbacks_stand_behind_every_winner_and_may_have_more_than_they(run):
    stage, _ = run(4, [], [(Scores("a", 0.1, 0.9, 0.8, 0.7), 1.0)], Takes(0, 3))
    assert numbers(stage.winners) == [1, 4]
    assert numbers([stage.runner_up]) == [2]
    assert numbers(stage.fallbacks) == [2, 3]


def test_a_single_endpoint_has_nobody_behind_it(run):
    stage, _ = run(1)
    assert (stage.runner_up, stage.fallbacks) == (None, ())


def test_ties_for_the_first_fallback_are_drawn_by_lot(run):
    """Also where others stand between the tied ones."""
    scores = (Scores("a", 0.5, 0.1, 0.2, 0.5, 0.9, 0.5), 1.0)
    firsts = Counter(numbers(run(6, [], [scores], seed=seed)[0].fallbacks)[0] for seed in range(3000))
    assert set(firsts) == {1, 4, 6}
    assert all(870 < count < 1130 for count in firsts.values())


def test_without_scorers_chance_decides_everything(run):
    stages = [run(4, seed=seed)[0] for seed in range(2000)]
    assert all(stage.totals == (0.0,) * 4 for stage in stages)
    for place in (lambda s: s.winner, lambda s: s.fallbacks[0], lambda s: s.fallbacks[1]):
        counts = Counter(numbers([place(stage)])[0] for stage in stages)
        assert all(390 < counts[number] < 610 for number in (1, 2, 3, 4))


def test_one_seed_gives_one_answer(run):
    assert run(8, seed=5)[0].fallbacks == run(8, seed=5)[0].fallbacks


class TwoProfiles(Handler):
    """An optional stage, then the one that serves the client."""

    def next_profile(self, request, profiles, done):
        return next((name for name in ("encode", "decode") if name not in done), None)

    def primary(self, request, profiles):
        return "decode"


@pytest.mark.parametrize(("broken", "is_rejected"), [("encode", False), ("decode", True)])
def test_only_the_primary_profile_can_reject(build, broken, is_rejected):
    profiles = {
        name: Profile(name, (Only("none"),) if name == broken else (), (), MaxScorePicker())
        for name in ("encode", "decode")
    }
    stages, rejection = Scheduler(profiles, TwoProfiles()).schedule(
        build.priced(), [build.candidate(1)], SeededRng(0, "r")
    )
    assert [stage.profile for stage in stages] == ["encode", "decode"]
    assert [stage.winner is None for stage in stages] == [stage.profile == broken for stage in stages]
    assert (rejection is not None) is is_rejected


def test_fallbacks_fall_in_total(run):
    stage, _ = run(6, [], [(Scores("a", 0.3, 0.1, 0.2, 0.6, 0.5, 0.4), 1.0)], num_fallbacks=5)
    totals = dict(enumerate(stage.totals, 1))
    order = [totals[number] for number in numbers(stage.winners + stage.fallbacks)]
    assert all(better > worse for better, worse in pairwise(order))


class SharesOut(Takes):
    """Gives each item to the index of its place."""

    def share_out(self, request, candidates, totals, rng):
        return {each.identifier: index % len(candidates) for index, each in enumerate(request.distinct_items())}


class Encodes(SingleProfileHandler):
    """Its only profile encodes."""

    def work_of(self, profile):
        return Work.ENCODE


def encoded(build, picker, num_items, num=3):
    rows = [build.candidate(number) for number in range(1, num + 1)]
    items = [build.item(identifier=f"i{index % 4}", index=index) for index in range(num_items)]
    if num_items > 10:
        items = [build.item(identifier=f"i{index}", index=index) for index in range(num_items)]
    scheduler = Scheduler({"encode": Profile("encode", (), (), picker)}, Encodes())
    (stage,), _ = scheduler.schedule(build.priced(1, items), rows, SeededRng(0, "r"))
    return stage


def test_an_encoder_of_a_picker_for_whole_requests_gets_all_and_several_in_turn(build):
    one, two = encoded(build, Takes(1), 5).encodes, encoded(build, Takes(2, 0), 5).encodes
    assert one.by_item == dict.fromkeys(("i0", "i1", "i2", "i3"), "10.0.0.2:8000")
    assert list(two.by_item.values()) == ["10.0.0.3:8000", "10.0.0.1:8000"] * 2
    assert (one.is_told, two.is_told) == (False, False)


def test_a_picker_that_shares_out_is_asked_instead_and_the_rest_are_spares(build):
    stage = encoded(build, SharesOut(2), 2, num=4)
    assert [each.id for each in stage.winners] == ["10.0.0.1:8000", "10.0.0.2:8000"]
    assert stage.encodes.by_item == {"i0": "10.0.0.1:8000", "i1": "10.0.0.2:8000"}
    assert stage.encodes.is_told
    assert set(stage.encodes.spares) == {"10.0.0.3:8000", "10.0.0.4:8000"}


def test_a_plan_that_no_header_holds_is_not_told(build):
    # An item takes 13 characters of address and 6 around it: 368 are 6,992.
    assert encoded(build, SharesOut(0), 368).encodes.is_told
    stage = encoded(build, SharesOut(0), 369)
    assert not stage.encodes.is_told
    assert stage.notes["takes"].guess == "encode-plan-too-long"
    assert [each.id for each in stage.winners] == ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"]
    assert list(stage.encodes.by_item.items())[:4:3] == [("i0", "10.0.0.1:8000"), ("i3", "10.0.0.1:8000")]
