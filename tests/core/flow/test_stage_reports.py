"""What an answer may say of its stages, and what is not believed."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.core.flow.stage_reports import MAX_REPORTS, read_report
from tessera.core.work import StageEnded, Work

PART = "encode=10.0.0.1:80,2,200,0.125"


def test_each_part_is_an_event_failures_first():
    text = "encode=10.0.0.1:8000,2,200,0.125; encode=[fd00::1]:8000,1,503,2;prefill=10.0.1.1:8000,0,200,1.5;"
    first, second, third = read_report(text, "r1", 7.0)
    assert first == StageEnded(
        at=7.0,
        request_id="r1",
        stage=Work.ENCODE,
        endpoint_id="[fd00::1]:8000",
        status=503,
        seconds=2.0,
        num_items=1,
    )
    assert (second.endpoint_id, second.num_items, second.status, second.seconds) == ("10.0.0.1:8000", 2, 200, 0.125)
    assert (third.stage, third.endpoint_id, third.is_done) == (Work.PREFILL, "10.0.1.1:8000", True)
    assert [each.is_done for each in (first, second)] == [False, True]


def test_nothing_and_the_most_that_is_read():
    assert read_report("", "r", 0.0) == ()
    assert read_report("decode=localhost:8200,0,200,0.1", "r", 0.0)[0].endpoint_id == "localhost:8200"
    assert len(read_report(";".join([PART] * MAX_REPORTS), "r", 0.0)) == MAX_REPORTS
    assert read_report("decode=10.0.0.1:80,1024,599,86400", "r", 0.0)[0].seconds == 86_400


@pytest.mark.parametrize(
    "text",
    [
        "encode",
        "encode=",
        "train=10.0.0.1:80,2,200,0.1",
        "encode=10.0.0.1:80,2,200",
        "encode=10.0.0.1:80,2,200,0.1,5",
        "encode=host name:80,2,200,0.1",
        "encode=http://host:80,2,200,0.1",
        "encode=10.0.0.1,2,200,0.1",
        "encode=10.0.0.1:80,-2,200,0.1",
        "encode=10.0.0.1:80,1025,200,0.1",
        "encode=10.0.0.1:80,2,600,0.1",
        "encode=10.0.0.1:80,2,200,86401",
        "encode=10.0.0.1:80,2,200,nan",
        "encode=10.0.0.1:80,2,200,1e9",
        "encode=10.0.0.1:80,2,200,-1",
        "encode=10.0.0.1:80,٢,200,1",
        f"{PART},{PART}",
        ";".join([PART] * (MAX_REPORTS + 1)),
        PART + ";" * 9000,
        f"{PART};nonsense",
    ],
)
def test_of_what_is_no_report_nothing_is_believed(text):
    with pytest.raises(ValueError, match=r"^got "):
        read_report(text, "r", 0.0)


@given(st.text(max_size=200) | st.lists(st.sampled_from([PART, "=", ",", ";", "encode", "9", "."])).map("".join))
def test_only_value_errors_leave(text):
    events = ()
    with contextlib.suppress(ValueError):
        events = read_report(text, "r", 0.0)
    assert len(events) <= MAX_REPORTS
