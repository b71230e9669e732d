"""One LRU for each endpoint: bounded in weight, equal to a naive model, and gone with its endpoint."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tessera.core.facts import Joined, Left, Load, Scraped
from tessera.core.matching.held_media import HeldMedia, has_failed
from tessera.core.types import Ending, Outcome

CAPACITY = 10


def scraped(endpoint_id, started_at=None, count=None):
    return Scraped(at=1.0, endpoint_id=endpoint_id, load=Load(), process_start_at=started_at, num_first_tokens=count)


def held(*entries, capacity=CAPACITY):
    made = HeldMedia(capacity)
    for request, (name, weight) in enumerate(entries):
        made.enter("a", {name: weight}, f"r{request}")
    return made


def test_the_least_recently_used_makes_room_by_weight():
    made = held(("x", 4), ("y", 3), ("z", 3))
    assert (list(made.names("a")), made.weight("a")) == (["x", "y", "z"], 10)
    made.enter("a", {"x": 4}, "again")
    made.enter("a", {"w": 1}, "new")
    assert (list(made.names("a")), made.weight("a")) == (["z", "x", "w"], 8)


def test_who_holds_which_of_these_names():
    made = held(("x", 1), ("y", 1))
    made.enter("b", {"y": 1}, "r")
    assert made.held_of(["y", "x", "z"], ["b", "a", "unknown"]) == [
        (True, False, False),
        (True, True, False),
        (False, False, False),
    ]
    assert made.held_of([], ["a", "unknown"]) == [(), ()]
    assert made.held_of(["x"], []) == []


def test_a_name_weighs_at_least_1_and_at_most_the_whole_cache():
    made = held(("x", 0), ("y", 0))
    assert made.weight("a") == 2
    made.enter("a", {"huge": 1000}, "r")
    assert (list(made.names("a")), made.weight("a")) == (["huge"], CAPACITY)


def test_an_other_weight_replaces_the_old_one():
    assert held(("x", 4), ("x", 6)).weight("a") == 6


def test_asking_is_no_use():
    made = held(("x", 5), ("y", 5))
    assert "x" in made.names("a")
    made.enter("a", {"z": 1}, "r")
    assert list(made.names("a")) == ["y", "z"]


def test_endpoints_do_not_share():
    made = held(("x", 1))
    assert (list(made.names("b")), made.weight("b")) == ([], 0)
    assert made.knows("a")
    assert not made.knows("b")
    assert made.is_held("x")
    assert not made.is_held("y")


def test_only_what_nobody_used_since_is_withdrawn():
    made = held(("x", 1), ("y", 1))
    made.enter("a", {"x": 1}, "later")
    made.withdraw("a", ["x", "y", "z"], "r0")
    made.withdraw("b", ["x"], "r0")
    assert list(made.names("a")) == ["y", "x"]
    made.withdraw("a", ["x"], "later")
    assert (list(made.names("a")), made.weight("a")) == (["y"], 1)


@pytest.mark.parametrize(
    ("scrapes", "is_cleared"),
    [
        ([(5.0, None)], False),
        ([(5.0, None), (5.0, None)], False),
        ([(5.0, None), (6.0, None)], True),
        ([(5.0, None), (None, None), (6.0, None)], True),
        ([(None, 3), (None, 3)], False),
        ([(None, 3), (None, 4)], False),
        ([(None, 3), (None, 2)], True),
        ([(None, 3), (None, None), (None, 2)], True),
    ],
)
def test_another_process_holds_nothing(build, scrapes, is_cleared):
    made = HeldMedia(CAPACITY)
    endpoint = build.endpoint(1)
    made.observe(Joined(at=0.0, endpoint=endpoint))
    for scrape in scrapes[:-1]:
        assert made.observe(scraped(endpoint.id, *scrape)) == []
    made.enter(endpoint.id, {"x": 3}, "r")
    assert made.observe(scraped(endpoint.id, *scrapes[-1])) == (["x"] if is_cleared else [])
    assert made.weight(endpoint.id) == (0 if is_cleared else 3)


def test_who_leaves_takes_everything_along(build):
    made = HeldMedia(CAPACITY)
    endpoint = build.endpoint(1)
    made.enter(endpoint.id, {"x": 1, "y": 1}, "r")
    assert made.observe(Left(at=0.0, endpoint=endpoint)) == ["x", "y"]
    assert made.observe(Left(at=0.0, endpoint=endpoint)) == []
    assert made.observe(scraped(endpoint.id, 1.0, 1)) == []
    assert not made.knows(endpoint.id)


def test_an_endpoint_that_comes_again_with_other_labels_keeps_what_it_holds(build):
    made = HeldMedia(CAPACITY)
    made.enter(build.endpoint(1).id, {"x": 1}, "r")
    assert made.observe(Joined(at=0.0, endpoint=build.endpoint(1, role="decode"))) == []
    assert list(made.names(build.endpoint(1).id)) == ["x"]


def test_ten_thousand_joins_and_leaves_leave_nothing_behind(build):
    made = HeldMedia(CAPACITY)
    for number in range(10_000):
        endpoint = build.endpoint(number % 250, port=number + 1)
        made.observe(Joined(at=0.0, endpoint=endpoint))
        made.enter(endpoint.id, {"x": 1}, "r")
        made.observe(scraped(endpoint.id, 1.0, number))
        made.observe(Left(at=0.0, endpoint=endpoint))
    assert made._caches == {}


@pytest.mark.parametrize(
    ("ending", "status", "failed"),
    [
        (Ending.FINISHED, 200, False),
        (Ending.FINISHED, None, False),
        (Ending.FINISHED, 399, False),
        (Ending.FINISHED, 400, True),
        (Ending.FAILED, 200, True),
        (Ending.ABORTED, None, False),
    ],
)
def test_what_counts_as_failed(ending, status, failed):
    assert has_failed(Outcome(request_id="r", ending=ending, status=status, finished_at=0.0)) is failed


class Caches(RuleBasedStateMachine):
    """Any order of uses, withdrawals, scrapes and churn, beside lists that are searched from their start."""

    def __init__(self):
        super().__init__()
        self.made = HeldMedia(CAPACITY)
        self.model = {}
        self.starts = {}

    numbers = st.integers(1, 3)
    names = st.sampled_from("abcdefgh")

    @rule(number=numbers, name=names, weight=st.integers(0, 12), request=st.sampled_from(["r1", "r2"]))
    def enter(self, number, name, weight, request):
        endpoint_id = self.build.endpoint(number).id
        self.made.enter(endpoint_id, {name: weight}, request)
        rows = [row for row in self.model.setdefault(endpoint_id, []) if row[0] != name]
        rows.append((name, min(max(weight, 1), CAPACITY), request))
        while sum(row[1] for row in rows) > CAPACITY:
            rows.pop(0)
        self.model[endpoint_id] = rows

    @rule(number=numbers, name=names, request=st.sampled_from(["r1", "r2"]))
    def withdraw(self, number, name, request):
        endpoint_id = self.build.endpoint(number).id
        self.made.withdraw(endpoint_id, [name], request)
        if endpoint_id in self.model:
            rows = self.model[endpoint_id]
            self.model[endpoint_id] = [row for row in rows if (row[0], row[2]) != (name, request)]

    @rule(number=numbers, started_at=st.sampled_from([None, 1.0, 2.0]))
    def scrape(self, number, started_at):
        endpoint_id = self.build.endpoint(number).id
        before = self.starts.get(endpoint_id)
        gone = self.made.observe(scraped(endpoint_id, started_at))
        if endpoint_id not in self.model or started_at is None:
            assert gone == []
            return
        if before not in {None, started_at}:
            assert gone == [row[0] for row in self.model[endpoint_id]]
            self.model[endpoint_id] = []
        self.starts[endpoint_id] = started_at

    @rule(number=numbers, joins=st.booleans())
    def churn(self, number, joins):
        endpoint = self.build.endpoint(number)
        if joins:
            self.made.observe(Joined(at=0.0, endpoint=endpoint))
            self.model.setdefault(endpoint.id, [])
        else:
            self.made.observe(Left(at=0.0, endpoint=endpoint))
            self.model.pop(endpoint.id, None)
            self.starts.pop(endpoint.id, None)

    @invariant()
    def equals_the_lists(self):
        assert set(self.made._caches) == set(self.model)
        for endpoint_id, rows in self.model.items():
            assert list(self.made.names(endpoint_id)) == [row[0] for row in rows]
            assert self.made.weight(endpoint_id) == sum(row[1] for row in rows) <= CAPACITY


def test_any_order_of_events(build):
    machine = type("Machine", (Caches,), {"build": build})
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=30))


def test_less_room_forgets_the_oldest_and_takes_no_more():
    made = held(("x", 4), ("y", 3), ("z", 3))
    made.enter("b", {"x": 10}, "r")
    made.resize("a", 0.65, 0.1)
    assert (list(made.names("a")), made.weight("a"), made.room("a")) == (["y", "z"], 6, 6)
    made.enter("a", {"w": 3}, "new")
    assert list(made.names("a")) == ["z", "w"]
    made.enter("a", {"huge": 50}, "new")
    assert (list(made.names("a")), made.weight("a")) == (["huge"], 6)
    assert (made.room("b"), list(made.names("b"))) == (10, ["x"])


def test_room_stays_between_the_least_fraction_and_all_of_it():
    made = held(("x", 1))
    made.resize("a", 0.001, 0.25)
    assert made.room("a") == 2
    made.resize("a", 1000.0, 0.25)
    assert made.room("a") == CAPACITY
    made.resize("unknown", 0.5, 0.25)
    assert not made.knows("unknown")


def test_a_new_process_begins_with_all_of_its_room():
    made = held(("x", 1))
    made.resize("a", 0.5, 0.1)
    made.observe(scraped("a", started_at=1.0))
    made.observe(scraped("a", started_at=2.0))
    assert (made.room("a"), list(made.names("a"))) == (CAPACITY, [])
