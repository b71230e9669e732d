import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.core.facts import FirstToken, Joined, Left, Load, Scraped
from tessera.core.matching.first_token import FirstTokenTracker
from tessera.core.types import Endpoint, FirstTokenSource

A = Endpoint(address="10.0.0.1", port=8000)
B = Endpoint(address="10.0.0.2", port=8000)
BODY, COUNTER, PREDICTED = FirstTokenSource.BODY, FirstTokenSource.COUNTER, FirstTokenSource.PREDICTED


def scraped(at, count, *, running=0, waiting=0, began=None, start=1.0, endpoint=A):
    began = at - 0.01 if began is None else began
    load = Load(num_running=running, num_waiting=waiting, at=began)
    return Scraped(at=at, endpoint_id=endpoint.id, load=load, num_first_tokens=count, process_start_at=start)


def trusted(count=100, running=0, in_flight=0):
    """A tracker that has seen 20 scrapes of A, the last at 1.0 s, and has had so many requests in flight since 0 s."""
    tracker = FirstTokenTracker()
    tracker.observe(Joined(at=0.0, endpoint=A))
    for k in range(in_flight):
        tracker.sent(f"r{k}", A.id, 0.0, 1, 9.0)
    for k in range(1, 21):
        assert tracker.observe(scraped(k * 0.05, count, running=running)) == []
    return tracker


def released(events):
    return [event.request_id for event in events]


def test_without_a_counter_the_prediction_releases_at_its_time():
    tracker = FirstTokenTracker()
    tracker.sent("r1", A.id, 0.0, 1, 0.5)
    tracker.sent("r2", B.id, 0.0, 1, 0.3)
    assert tracker.next_due() == 0.3
    assert tracker.due(0.29) == []
    assert tracker.due(0.3) == [FirstToken(at=0.3, request_id="r2", source=PREDICTED)]
    assert tracker.next_due() == 0.5
    assert released(tracker.due(9.0)) == ["r1"]
    assert tracker.next_due() is None
    assert tracker.source_of(A.id) is PREDICTED


def test_an_increment_of_two_releases_the_two_oldest():
    tracker = trusted(count=100)
    for k, name in enumerate(("r1", "r2", "r3")):
        tracker.sent(name, A.id, 1.01 + k * 0.01, 1, 1.2)
    assert tracker.source_of(A.id) is COUNTER
    assert tracker.observe(scraped(1.1, 102, running=3)) == [
        FirstToken(at=1.1, request_id="r1", source=COUNTER),
        FirstToken(at=1.1, request_id="r2", source=COUNTER),
    ]
    assert tracker.observe(scraped(1.15, 102, running=3)) == []
    assert released(tracker.observe(scraped(1.2, 103, running=3))) == ["r3"]


def test_a_request_sent_while_the_scrape_was_under_way_is_not_covered_by_it():
    tracker = trusted(count=100)
    tracker.sent("early", A.id, 1.02, 1, 9.0)
    tracker.sent("late", A.id, 1.03, 1, 9.0)
    assert released(tracker.observe(scraped(1.1, 102, running=2, began=1.03))) == ["early"]
    assert tracker.observe(scraped(1.15, 102, running=2)) == [], "an increment that finds nobody is dropped"
    assert released(tracker.observe(scraped(1.2, 103, running=2))) == ["late"]


def test_a_request_goes_when_all_of_its_engine_requests_are_covered():
    tracker = trusted(count=0)
    tracker.sent("three", A.id, 1.01, 3, 9.0)
    tracker.sent("one", A.id, 1.02, 1, 9.0)
    assert tracker.observe(scraped(1.1, 2, running=4)) == []
    assert released(tracker.observe(scraped(1.15, 4, running=4))) == ["three", "one"]


def test_predictions_wait_while_the_counter_is_trusted_but_not_for_ever():
    tracker = trusted()
    tracker.sent("r1", A.id, 1.0, 1, 1.2)
    assert tracker.due(2.99) == []
    assert tracker.next_due() == 3.0, "the last scrape at 1.0 is stale then"
    for k in range(21, 1240):
        tracker.observe(scraped(k * 0.05, 100, running=1))
        if k * 0.05 < 61.2:
            assert tracker.due(k * 0.05) == []
    assert released(tracker.due(61.95)) == ["r1"], "60 s behind its prediction"


def test_a_prediction_counts_as_ten_minutes_at_most():
    tracker = FirstTokenTracker()
    tracker.sent("r1", A.id, 5.0, 1, 1e9)
    assert tracker.next_due() == 605.0


def test_a_silent_counter_hands_over_to_predictions_and_its_backlog_is_dropped():
    tracker = trusted(count=100)
    tracker.sent("r1", A.id, 1.0, 1, 1.2)
    assert released(tracker.due(3.0)) == ["r1"]
    tracker.sent("r2", A.id, 3.1, 1, 9.0)
    assert tracker.source_of(A.id) is PREDICTED
    assert tracker.observe(scraped(3.2, 101, running=1)) == [], "that was r1's"
    assert tracker.source_of(A.id) is COUNTER
    assert released(tracker.observe(scraped(3.25, 102, running=1))) == ["r2"]


def test_the_first_token_of_who_was_released_by_prediction_is_nobody_elses():
    """r1 is released at 3.0 by prediction, its first token comes at 3.22 and r2's at 3.28."""
    tracker = trusted(count=100)
    tracker.sent("r1", A.id, 1.0, 1, 1.2)
    assert released(tracker.due(3.0)) == ["r1"]
    tracker.sent("r2", A.id, 3.1, 1, 9.0)
    assert tracker.observe(scraped(3.2, 100, running=2)) == []
    assert tracker.source_of(A.id) is COUNTER
    assert tracker.observe(scraped(3.25, 101, running=2)) == [], "r1's, though it was released before"
    assert tracker.observe(scraped(3.3, 102, running=2)) == [FirstToken(at=3.3, request_id="r2", source=COUNTER)]


def test_an_answer_that_ended_between_two_scrapes_keeps_its_first_token():
    """r1's first token comes at 1.06 and its last at 1.08, before the scrape that counts them; r2's comes at 1.12."""
    tracker = trusted(count=100)
    tracker.sent("r1", A.id, 1.01, 1, 9.0)
    tracker.sent("r2", A.id, 1.02, 1, 9.0)
    tracker.ended("r1", 1.08, was_answered=True)
    assert tracker.observe(scraped(1.1, 101, running=1)) == []
    assert released(tracker.observe(scraped(1.15, 102, running=1))) == ["r2"]


def test_an_answer_that_ended_before_a_scrape_has_nothing_to_come_behind_it():
    tracker = trusted(count=100)
    tracker.sent("r1", A.id, 1.01, 1, 9.0)
    tracker.sent("r2", A.id, 1.02, 1, 9.0)
    tracker.ended("r1", 1.08, was_answered=True)
    assert tracker.observe(scraped(1.1, 100, running=1)) == [], "r1's first token was lost: no increment told of it"
    assert released(tracker.observe(scraped(1.15, 101, running=1))) == ["r2"]


def test_an_end_that_is_told_behind_the_scrape_that_counted_it_keeps_nothing():
    """The access log comes late: r1 ended at 1.04, the scrape of 1.05 found no increment, the end is told after it."""
    tracker = trusted(count=100)
    tracker.sent("r1", A.id, 1.01, 1, 9.0)
    tracker.sent("r2", A.id, 1.02, 1, 9.0)
    assert tracker.observe(scraped(1.06, 100, running=1)) == []
    tracker.ended("r1", 1.04, was_answered=True)
    assert released(tracker.observe(scraped(1.1, 101, running=1))) == ["r2"]


def test_a_body_that_told_first_keeps_the_counters_increment_from_others():
    tracker = trusted(count=100)
    tracker.sent("r1", A.id, 1.01, 1, 9.0, has_body=True)
    tracker.sent("r2", A.id, 1.02, 1, 9.0)
    assert tracker.seen("r1", 1.06) is not None
    assert tracker.observe(scraped(1.1, 101, running=2)) == []
    assert released(tracker.observe(scraped(1.15, 102, running=2))) == ["r2"]


def test_what_was_counted_before_the_counter_was_trusted_is_not_waited_for():
    """r1's first token comes with the 10th scrape; from the 20th on the counter is trusted, and r2's comes after."""
    tracker = FirstTokenTracker()
    tracker.observe(Joined(at=0.0, endpoint=A))
    tracker.sent("r1", A.id, 0.0, 1, 0.3)
    for k in range(1, 21):
        assert tracker.observe(scraped(k * 0.05, 0 if k < 10 else 1, running=1)) == []
        assert released(tracker.due(k * 0.05)) == (["r1"] if k == 6 else [])
    tracker.sent("r2", A.id, 1.01, 1, 9.0)
    assert released(tracker.observe(scraped(1.1, 2, running=2))) == ["r2"]


def test_increments_that_may_be_others_free_nobody_and_leave_nothing_to_wait_for():
    """With 3 foreign requests an increment tells nothing; once they are gone, r2's first increment is its own."""
    tracker = trusted(count=100, running=3)
    tracker.sent("r1", A.id, 1.01, 1, 1.02)
    assert released(tracker.due(1.02)) == ["r1"]
    assert tracker.observe(scraped(1.05, 101, running=4)) == []
    for k in range(11):
        assert tracker.observe(scraped(1.1 + k * 0.05, 101, running=1)) == []
    tracker.sent("r2", A.id, 1.61, 1, 9.0)
    assert released(tracker.observe(scraped(1.65, 102, running=2))) == ["r2"]


@pytest.mark.parametrize(("foreign", "source"), [(2, COUNTER), (3, PREDICTED)])
def test_two_foreign_requests_are_borne_and_three_are_not(foreign, source):
    tracker = trusted(running=10 + foreign, in_flight=10)
    assert tracker.source_of(A.id) is source
    assert len(tracker.observe(scraped(1.1, 104, running=10 + foreign))) == (4 if source is COUNTER else 0)


@pytest.mark.parametrize(("foreign", "source"), [(5, COUNTER), (6, PREDICTED)])
def test_of_a_hundred_requests_five_may_be_foreign(foreign, source):
    tracker = trusted(running=100 + foreign, in_flight=100)
    assert tracker.source_of(A.id) is source


def test_a_load_that_falls_is_no_foreign_load():
    """What was running a second ago is compared with what was ours then, not with what is ours now."""
    tracker = trusted(running=20, in_flight=20)
    for k in range(15):
        tracker.ended(f"r{k}", 1.0)
        assert tracker.source_of(A.id) is COUNTER
    assert released(tracker.observe(scraped(1.05, 105, running=5))) == [f"r{k}" for k in range(15, 20)]


def test_the_median_of_running_and_waiting_decides_not_one_scrape():
    tracker = trusted(running=0)
    for k in range(10):
        tracker.observe(scraped(1.05 + k * 0.05, 100, running=20, waiting=20))
    assert tracker.source_of(A.id) is PREDICTED, "the median of ten 0 and ten 40 is 20"
    tracker = trusted(running=0)
    for k in range(9):
        tracker.observe(scraped(1.05 + k * 0.05, 100, running=20, waiting=20))
    assert tracker.source_of(A.id) is COUNTER


def test_nineteen_scrapes_are_not_enough():
    tracker = FirstTokenTracker()
    tracker.observe(Joined(at=0.0, endpoint=A))
    for k in range(1, 20):
        tracker.observe(scraped(k * 0.05, 100))
    assert tracker.source_of(A.id) is PREDICTED
    tracker.observe(scraped(1.0, 100))
    assert tracker.source_of(A.id) is COUNTER


@pytest.mark.parametrize("again", [scraped(1.1, 99, running=1), scraped(1.1, 101, running=1, start=2.0)])
def test_a_fallen_counter_or_another_process_starts_over(again):
    tracker = trusted(count=100)
    tracker.sent("r1", A.id, 1.01, 1, 1.3)
    assert tracker.observe(again) == []
    assert tracker.source_of(A.id) is PREDICTED
    assert tracker.next_due() == 1.3
    for k in range(1, 20):
        tracker.observe(scraped(1.1 + k * 0.05, 101, running=1, start=again.process_start_at))
    assert tracker.source_of(A.id) is COUNTER


def test_a_page_without_numbers_changes_nothing():
    tracker = trusted(count=100)
    tracker.sent("r1", A.id, 1.01, 1, 9.0)
    empty = Scraped(at=1.05, endpoint_id=A.id, load=Load(at=1.04))
    assert tracker.observe(empty) == []
    assert tracker.source_of(A.id) is COUNTER
    assert released(tracker.observe(scraped(1.1, 101, running=1))) == ["r1"]


def test_a_body_releases_at_its_first_chunk_and_nothing_else_does():
    tracker = trusted(count=100)
    tracker.sent("r1", A.id, 1.0, 1, 1.2, has_body=True)
    assert tracker.source_of(A.id) is BODY
    assert tracker.next_due() is None
    assert tracker.observe(scraped(1.1, 101, running=1)) == []
    assert tracker.due(1e6) == []
    assert tracker.seen("r1", 1.3) == FirstToken(at=1.3, request_id="r1", source=BODY)
    assert tracker.seen("r1", 1.4) is None


def test_a_body_request_takes_its_own_part_of_an_increment():
    tracker = trusted(count=100)
    tracker.sent("with-body", A.id, 1.01, 1, 9.0, has_body=True)
    tracker.sent("r2", A.id, 1.02, 1, 9.0)
    assert tracker.observe(scraped(1.1, 101, running=2)) == []
    assert released(tracker.observe(scraped(1.15, 102, running=2))) == ["r2"]


def test_a_chunk_that_comes_unexpected_is_the_best_source_still():
    tracker = trusted()
    tracker.sent("r1", A.id, 1.0, 1, 1.2)
    assert tracker.seen("r1", 1.1).source is BODY
    assert tracker.due(100.0) == []


def test_what_ended_is_never_released():
    tracker = trusted(count=100)
    tracker.sent("r1", A.id, 1.01, 1, 1.2)
    tracker.sent("r2", A.id, 1.02, 1, 1.2)
    tracker.ended("r1", 1.05)
    tracker.ended("r1", 1.05)
    assert tracker.seen("r1", 1.05) is None
    assert released(tracker.observe(scraped(1.1, 101, running=1))) == ["r2"]
    assert tracker.due(99.0) == []


def test_an_endpoint_that_left_is_forgotten_with_its_last_request():
    tracker = trusted(count=100)
    tracker.sent("r1", A.id, 1.01, 1, 1.2)
    tracker.observe(Left(at=1.05, endpoint=A))
    assert tracker.observe(scraped(1.1, 101, running=1)) == []
    assert released(tracker.due(1.2)) == ["r1"]
    tracker.ended("r1", 1.25)
    assert not tracker._endpoints
    assert tracker.observe(scraped(1.3, 101)) == []
    assert not tracker._endpoints, "a scrape that comes late makes no endpoint"


def test_one_id_is_in_flight_once():
    tracker = FirstTokenTracker()
    tracker.sent("r1", A.id, 0.0, 1, 1.0)
    with pytest.raises(AssertionError, match="r1 is sent twice"):
        tracker.sent("r1", B.id, 0.1, 1, 1.0)


kinds = st.sampled_from(["send"] * 6 + ["send-body"] + ["scrape"] * 6 + ["see", "end", "due", "join", "leave", "fall"])
pauses = st.sampled_from([0.0, 0.01, 0.01, 0.05, 0.05, 1.0, 3.0, 70.0])
steps = st.lists(st.tuples(kinds, st.integers(0, 5), st.sampled_from([A, B]), pauses), min_size=30, max_size=150)


@given(steps=steps)
def test_each_request_is_released_at_most_once_and_nothing_is_held_behind_its_end(steps):
    tracker = trusted(count=0)
    at, serial, count, events = 1.0, 0, 0, []
    flying: dict[str, float] = {}
    with_body = set()
    for kind, n, endpoint, pause in steps:
        at += pause
        name = list(flying)[n % len(flying)] if flying else "nobody"
        if kind in ("send", "send-body"):
            serial += 1
            flying[f"r{serial}"] = at + n / 10
            if kind == "send-body":
                with_body.add(f"r{serial}")
            tracker.sent(f"r{serial}", endpoint.id, at, n, at + n / 10, has_body=kind == "send-body")
        elif kind == "see":
            event = tracker.seen(name, at)
            events += [event] if event else []
        elif kind == "end":
            tracker.ended(name, at, was_answered=n % 2 == 0)
            flying.pop(name, None)
        elif kind == "due":
            events += tracker.due(at)
            overdue = [name for name, due_at in flying.items() if name not in with_body and due_at + 60 < at]
            assert set(overdue) <= {event.request_id for event in events}
        elif kind in ("join", "leave"):
            tracker.observe((Joined if kind == "join" else Left)(at=at, endpoint=endpoint))
        else:
            count = 0 if kind == "fall" else count + n
            for _ in range(20 if n == 0 else 1):
                events += tracker.observe(scraped(at, count, began=at, endpoint=endpoint))
        assert len(tracker) == len(flying)
        due_at = tracker.next_due()
        if due_at is None or due_at > at:
            assert tracker.due(at) == []
    names = [event.request_id for event in events]
    assert len(names) == len(set(names))
    for name in list(flying):
        tracker.ended(name, at, was_answered=True)
    for endpoint in (A, B):
        tracker.observe(Left(at=at, endpoint=endpoint))
    assert len(tracker) == 0
    assert tracker._endpoints == {}
    assert tracker.next_due() is None
