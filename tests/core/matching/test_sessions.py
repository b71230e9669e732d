"""Where a session is at home: by its token, or by what was chosen before."""

from dataclasses import replace

import pytest

from tessera.core.filters.session_affinity import SessionAffinityFilter
from tessera.core.matching import sessions
from tessera.core.matching.sessions import (
    EncodedEndpointHeader,
    SessionIds,
    SessionIdSource,
    endpoint_named,
    session_token,
)
from tessera.core.rng import SeededRng
from tessera.core.scorers.session_affinity import SessionAffinityScorer

RNG = SeededRng(0, "r")


def table(build, *numbers):
    return [build.candidate(endpoint=replace(build.endpoint(number), name=f"pod-{number}")) for number in numbers]


def by_id(cls, **fields):
    return cls(strategy="session_id", **fields)


def asking(build, session=None, at=0.0, **fields):
    headers = {} if session is None else {"x-session-id": session}
    return build.priced(headers=headers, at=at, **fields)


def bind(build, plugin, session, winner, candidates, at=0.0, **fields):
    stage = build.stage(candidates, winner=winner, profile=fields.pop("profile", "default"))
    plugin.record(build.decision(asking(build, session, at), *fields.pop("before", ()), stage, at=at, **fields))


def test_a_session_stays_where_it_was_sent_first(build):
    here, there, other = candidates = table(build, 1, 2, 3)
    scorer, keeper = by_id(SessionAffinityScorer), by_id(SessionAffinityFilter)
    assert keeper.keep(asking(build, "s"), candidates, RNG) == candidates
    for plugin in (scorer, keeper):
        bind(build, plugin, "s", 1, candidates)
        bind(build, plugin, "s", 0, candidates)
    assert scorer.score(asking(build, "s"), candidates) == [0.0, 1.0, 0.0]
    assert keeper.keep(asking(build, "s"), candidates, RNG) == [there]
    for nobody in ("t", None, ""):
        assert keeper.keep(asking(build, nobody), candidates, RNG) == candidates
        assert scorer.score(asking(build, nobody), candidates) == [0.0] * 3
    assert keeper.keep(asking(build, "s"), [here, other], RNG) == [here, other]


def test_a_session_moves_when_its_endpoint_is_no_candidate(build):
    candidates = table(build, 1, 2, 3)
    keeper = by_id(SessionAffinityFilter)
    bind(build, keeper, "s", 1, candidates)
    bind(build, keeper, "s", 0, [candidates[0], candidates[2]])
    assert keeper.keep(asking(build, "s"), candidates, RNG) == candidates[:1]


def test_a_session_is_forgotten_after_its_time(build):
    candidates = table(build, 1, 2)
    keeper = by_id(SessionAffinityFilter, session_id_config=SessionIds(eviction_ttl_seconds=10))
    bind(build, keeper, "s", 1, candidates, at=0.0)
    bind(build, keeper, "s", 0, candidates, at=10.0)
    assert keeper.keep(asking(build, "s", 20.0), candidates, RNG) == candidates[1:]
    assert keeper.keep(asking(build, "s", 20.1), candidates, RNG) == candidates
    bind(build, keeper, "t", 0, candidates, at=20.1)
    assert len(keeper._sessions) == 1


def test_sessions_are_bounded(build, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    candidates = table(build, 1, 2)
    keeper = by_id(SessionAffinityFilter)
    for name in "abcade":
        bind(build, keeper, name, 0, candidates)
    kept = [name for name in "abcde" if len(keeper.keep(asking(build, name), candidates, RNG)) == 1]
    assert kept == ["a", "d", "e"]


def test_the_profile_whose_choice_counts(build):
    candidates = table(build, 1, 2)
    before = [build.stage(candidates, winner=0, profile="prefill")]
    keeper = by_id(SessionAffinityFilter, profile_name="prefill")
    bind(build, keeper, "s", 1, candidates, before=before, profile="decode")
    assert keeper.keep(asking(build, "s"), candidates, RNG) == candidates[:1]
    keeper = by_id(SessionAffinityFilter, profile_name="encode")
    bind(build, keeper, "s", 1, candidates)
    assert len(keeper._sessions) == 0


def test_sources_are_tried_in_order(build):
    candidates = table(build, 1, 2)
    ids = SessionIds(sources=(SessionIdSource(attribute="session-id"), SessionIdSource(header="X-Request-Id")))
    keeper = by_id(SessionAffinityFilter, session_id_config=ids)
    keeper.record(build.decision(build.priced(session_id="s"), build.stage(candidates, winner=1)))
    assert keeper.keep(build.priced(headers={"x-request-id": "s"}), candidates, RNG) == candidates[1:]
    asked = build.priced(session_id="t", headers={"x-request-id": "s"})
    assert keeper.keep(asked, candidates, RNG) == candidates


def test_a_token_names_its_endpoint(build):
    candidates = table(build, 1, 2)
    assert session_token(candidates[1].endpoint) == "ZGVmYXVsdC9wb2QtMg=="
    asked = build.priced(headers={"x-session-token": "ZGVmYXVsdC9wb2QtMg=="})
    assert SessionAffinityFilter().keep(asked, candidates, RNG) == candidates[1:]
    assert SessionAffinityScorer().score(asked, candidates) == [0.0, 1.0]
    assert SessionAffinityFilter().keep(asked, candidates[:1], RNG) == candidates[:1]
    elsewhere = EncodedEndpointHeader(header="X-Session-Id")
    assert SessionAffinityFilter(encoded_endpoint_header_config=elsewhere).keep(asked, candidates, RNG) == candidates


def test_an_endpoint_without_a_name_has_a_token(build):
    assert endpoint_named(session_token(build.endpoint(1))) == "default/10.0.0.1:8000"


@pytest.mark.parametrize("token", [None, "", "%%%", "/w==", "a" * 5000, "é", "YQ"])
def test_what_is_no_token_names_nobody(token):
    assert endpoint_named(token) is None


TOKEN, IDS = "encodedEndpointHeaderConfig.header", "sessionIdConfig.sources"


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({}, [(TOKEN, "x-session-token")]),
        ({"encoded_endpoint_header_config": EncodedEndpointHeader(header="X-Mine")}, [(TOKEN, "X-Mine")]),
        ({"strategy": "session_id"}, [(f"{IDS}[0].header", "x-session-id")]),
        (
            {
                "strategy": "session_id",
                "session_id_config": SessionIds(sources=(SessionIdSource(attribute="a"), SessionIdSource(header="b"))),
            },
            [(f"{IDS}[1].header", "b")],
        ),
    ],
)
def test_its_headers_are_some_to_keep(fields, read):
    for cls in (SessionAffinityFilter, SessionAffinityScorer):
        assert list(cls(**fields).headers_read()) == read


def answered(build, plugin, served, *, stages=None, **fields):
    candidates = table(build, 1, 2)
    stages = stages or [build.stage(candidates, winner=0)]
    return plugin.answer_headers(build.decision(None, *stages, **fields), candidates[served].endpoint)


def test_an_answer_s_token_names_who_served(build):
    elsewhere = EncodedEndpointHeader(header="X-Mine")
    for cls in (SessionAffinityFilter, SessionAffinityScorer):
        assert answered(build, cls(), 0) == {"x-session-token": "ZGVmYXVsdC9wb2QtMQ=="}
        assert answered(build, cls(), 1) == {"x-session-token": "ZGVmYXVsdC9wb2QtMg=="}
        plugin = cls(encoded_endpoint_header_config=elsewhere)
        assert answered(build, plugin, 1) == {"x-mine": "ZGVmYXVsdC9wb2QtMg=="}
        assert list(plugin.headers_written()) == [(TOKEN, "X-Mine")]
        assert [path for path, _ in plugin.cautions()] == ["strategy"]


def test_the_token_of_another_profile_names_what_that_picked(build):
    stages = [build.stage(table(build, 1, 2), winner=0, profile=name) for name in ("prefill", "decode")]
    keeper = SessionAffinityFilter(profile_name="prefill")
    assert answered(build, keeper, 1, stages=stages) == {"x-session-token": "ZGVmYXVsdC9wb2QtMQ=="}
    assert answered(build, SessionAffinityFilter(profile_name="decode"), 1, stages=stages) == {
        "x-session-token": "ZGVmYXVsdC9wb2QtMg=="
    }
    nobody = [build.stage(table(build, 1, 2), winner=None, profile="prefill"), stages[1]]
    assert answered(build, keeper, 1, stages=nobody) == {}
    assert answered(build, SessionAffinityFilter(profile_name="encode"), 1, stages=stages) == {}


def test_sessions_by_id_write_nothing(build):
    for cls in (SessionAffinityFilter, SessionAffinityScorer):
        assert answered(build, by_id(cls), 1) == {}
        assert list(by_id(cls).headers_written()) == []
        assert list(by_id(cls).cautions()) == []
