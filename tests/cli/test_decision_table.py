"""What an operator reads of a decision."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tessera.cli import decision_table
from tessera.core.facts import EncoderMatch, InFlightLoad, Load, PrefixMatch
from tessera.core.types import Candidate, Note
from tessera.core.work import EncodePlan
from tessera.telemetry.records import decision_record

PRECISE = "precise-prefix-cache-producer"


@pytest.fixture
def shown(monkeypatch):
    """Prints a decision; its lines without the frames, spaces squeezed."""

    def show(decision, width=80):
        page = io.StringIO()
        monkeypatch.setattr(decision_table, "out", Console(file=page, width=width, highlight=False))
        decision_table.print_decision(decision_record(decision))
        lines = page.getvalue().splitlines()
        assert all(len(line) <= width for line in lines if line.startswith(("│", "┃")))
        return [" ".join(line.replace("│", "|").split()) for line in lines]

    return show


def match(text, media, *, is_exact=False):
    return PrefixMatch(
        num_matched_tokens=text + media,
        num_total_tokens=1000,
        num_matched_text_tokens=text,
        num_matched_media_tokens=media,
        is_exact=is_exact,
    )


def row(build, number, *, prefix=None, exact=None, held=None):
    facts = {(Load, Load.producer): Load(num_waiting=number, num_running=2, kv_usage_fraction=0.5)}
    if prefix is not None:
        facts[PrefixMatch, PrefixMatch.producer] = prefix
    if exact is not None:
        facts[PrefixMatch, PRECISE] = exact
    facts[InFlightLoad, InFlightLoad.producer] = InFlightLoad(num_requests=3, num_uncached_tokens=4000)
    if held is not None:
        facts[EncoderMatch, EncoderMatch.producer] = EncoderMatch(identifiers=frozenset(held))
    return Candidate(build.endpoint(number), facts)


def decided(build, rows, *identifiers):
    items = [build.item(100, identifier=name, index=index) for index, name in enumerate(identifiers)]
    return build.decision(build.priced(5, items), build.stage(rows))


def test_what_each_endpoint_holds_of_the_request(build, shown):
    rows = [
        row(build, 1, prefix=match(2016, 900), held=["a"]),
        row(build, 2, prefix=match(16, 0), held=["a", "b"]),
        row(build, 3, prefix=match(0, 0), held=[]),
    ]
    lines = shown(decided(build, rows, "a", "b", "a"))
    assert "| cached text, approximate | 2,016 | 16 | 0 |" in lines
    assert "| cached media, approximate | 900 | 0 | 0 |" in lines
    assert "| encoder holds | 1 of 2 | 2 of 2 | 0 of 2 |" in lines
    assert "| waiting | 1 | 2 | 3 |" in lines
    assert "| queued tokens | 4,000 | 4,000 | 4,000 |" in lines
    assert "| KV in use | 0.5000 | 0.5000 | 0.5000 |" in lines
    assert "winner 10.0.0.1:8000, then 10.0.0.2:8000, 10.0.0.3:8000" in lines


def test_an_exact_match_says_so_and_two_producers_go_by_their_names(build, shown):
    alone = [row(build, number, exact=match(32, number, is_exact=True)) for number in (1, 2)]
    assert "| cached media, exact | 1 | 2 |" in shown(decided(build, alone))
    both = [row(build, number, prefix=match(8, 0), exact=match(32, 0, is_exact=True)) for number in (1, 2)]
    lines = shown(decided(build, both))
    assert "| cached text, approximate (default) | 8 | 8 |" in lines
    assert f"| cached text, exact ({PRECISE}) | 32 | 32 |" in lines


def test_what_nobody_knows_or_asks_has_no_line(build, shown):
    page = "\n".join(shown(decided(build, [row(build, 1, held=[])])))
    assert "cached" not in page
    assert "encoder" not in page


def test_a_large_fleet_is_shown_whole_at_any_width(build, shown):
    rows = [row(build, number, held=["a"] * (number == 9)) for number in range(1, 11)]
    for width, at_once in ((80, [4, 4, 2]), (104, [5, 5])):
        lines = shown(decided(build, rows, "a"), width)
        held = [line.split("|")[2:-1] for line in lines if line.startswith("| encoder holds")]
        assert [len(each) for each in held] == at_once
        assert [cell.strip() for each in held for cell in each] == ["0 of 1"] * 8 + ["1 of 1", "0 of 1"]


def test_an_empty_fleet_and_what_filters_say(build, shown):
    stage = replace(build.stage([row(build, 1)]), notes={"gate": Note("kept 1: " + "because " * 20)})
    lines = shown(build.decision(None, stage, guesses=("link:0",)))
    assert f"gate: kept 1: {'because ' * 19}because" in lines
    assert "guessed: link:0" in lines
    nobody = build.router().choose(build.request(), build.view([]), 0.0, None)
    assert "rejected: rejected-no-endpoints: the pool has no endpoint" in shown(nobody)


def test_the_plan_says_who_does_what(build, shown):
    rows = [row(build, number) for number in range(1, 5)]
    items = [build.item(100, identifier=name, index=index) for index, name in enumerate("aba")]
    encode = build.stage(rows, 2, "encode", encodes=EncodePlan({"a": "10.0.0.3:8000"}, is_told=True))
    stages = (build.stage(rows, 0, "decode"), build.stage(rows, 1, "prefill"), encode)
    plan = {"decode": "10.0.0.1:8000", "prefill": "10.0.0.2:8000", "encode": "10.0.0.3:8000"}
    plan |= {"0": "10.0.0.3:8000", "1": "10.0.0.2:8000", "2": "10.0.0.3:8000"}
    lines = shown(build.decision(build.priced(5, items), *stages, primary="decode", plan=plan))
    at = lines.index("plan: decode at 10.0.0.1:8000, prefill at 10.0.0.2:8000, encode at 10.0.0.3:8000")
    assert lines[at + 1 : at + 3] == [
        "items 0, 2 encoded at 10.0.0.3:8000",
        "item 1 encoded at 10.0.0.2:8000, where the prompt is computed",
    ]


def test_one_endpoint_for_everything_needs_no_plan(build, shown):
    decision = build.decision(build.priced(5), build.stage([row(build, 1)]), plan={"default": "10.0.0.1:8000"})
    assert not any(line.startswith("plan") for line in shown(decision))
