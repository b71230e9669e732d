import pytest

from tessera.core.deciders.always_disagg_multimodal import AlwaysDisaggMultimodalDecider
from tessera.core.deciders.always_disagg_pd import AlwaysDisaggPDDecider
from tessera.core.handlers.disagg_profile import DisaggProfileHandler, StageDeciders, StageProfiles
from tessera.core.plugin import Decider
from tessera.core.work import EncodePlan, Work

ALL = ("decode", "prefill", "encode")
BOTH = StageDeciders(prefill="p", encode="e")


class Never(Decider):
    """No."""

    def wants(self, request, computing):
        return False


class Looking(Decider):
    """Yes, of the first item; and notes whom it would spare."""

    def __init__(self):
        self.seen = []

    def wants(self, request, computing):
        self.seen.append(computing.profile)
        return True

    def items(self, request, computing):
        return request.distinct_items()[:1]


def made(deciders=BOTH, *, pd=None, encode=None, **parameters):
    handler = DisaggProfileHandler(deciders=deciders, **parameters)
    handler.bind({"p": pd or AlwaysDisaggPDDecider(), "e": encode or AlwaysDisaggMultimodalDecider()})
    return handler


def run(build, handler, *, items=2, profiles=ALL, nobody=()):
    """The profiles that ran, in order, and their stages."""
    request = build.priced(10, [build.item(identifier=f"i{index}", index=index) for index in range(items)])
    done, row = {}, build.candidate()
    while (name := handler.next_profile(request, profiles, done)) is not None:
        assert name not in done
        done[name] = build.stage([row], None if name in nobody else 0, profile=name)
    return list(done)


@pytest.mark.parametrize(
    ("deciders", "items", "expected"),
    [
        (StageDeciders(), 2, ["decode"]),
        (StageDeciders(encode="e"), 2, ["decode", "encode"]),
        (StageDeciders(encode="e"), 0, ["decode"]),
        (StageDeciders(prefill="p"), 2, ["decode", "prefill"]),
        (BOTH, 2, ["decode", "prefill", "encode"]),
        (BOTH, 0, ["decode", "prefill"]),
    ],
)
def test_the_stages_that_have_deciders_and_a_reason(build, deciders, items, expected):
    assert run(build, made(deciders), items=items) == expected


def test_a_decider_that_says_no(build):
    assert run(build, made(pd=Never())) == ["decode", "encode"]
    assert run(build, made(encode=Never())) == ["decode", "prefill"]


def test_a_stage_without_profile_does_not_run(build):
    assert run(build, made(), profiles=("decode", "encode")) == ["decode", "encode"]


def test_nothing_runs_where_nobody_decodes(build):
    assert run(build, made(), nobody=("decode",)) == ["decode"]
    assert run(build, made(StageDeciders(encode="e"), stage_order="prefill-first"), nobody=("decode",)) == [
        "prefill",
        "decode",
    ]


def test_an_optional_stage_may_find_nobody(build):
    assert run(build, made(), nobody=("prefill", "encode")) == ["decode", "prefill", "encode"]


@pytest.mark.parametrize("order", ["prefill-first", "prefill_first", "prefillfirst"])
def test_prefill_first_always_prefills(build, order):
    handler = made(StageDeciders(encode="e"), stage_order=order)
    assert run(build, handler) == ["prefill", "decode", "encode"]
    assert run(build, handler, items=0) == ["prefill", "decode"]
    assert run(build, handler, profiles=("decode", "encode")) == ["decode", "encode"]


def test_encode_is_decided_by_who_computes_the_prompt(build):
    looking = Looking()
    run(build, made(encode=looking))
    run(build, made(encode=looking), nobody=("prefill",))
    run(build, made(StageDeciders(encode="e"), encode=looking))
    assert looking.seen == ["prefill", "decode", "decode"]


def test_encoders_see_only_what_is_to_be_encoded_apart(build):
    request = build.priced(10, [build.item(identifier=name, index=index) for index, name in enumerate("ab")])
    handler = made(encode=Looking())
    done = {"decode": build.stage([build.candidate()], profile="decode")}
    assert [each.identifier for each in handler.narrowed(request, "encode", done).items] == ["a"]
    assert handler.narrowed(request, "decode", done) is request


def test_the_profiles_may_have_other_names(build):
    names = StageProfiles(decode="d", prefill="p", encode="e")
    handler = made(profiles=names)
    assert run(build, handler, profiles=("e", "d", "p")) == ["d", "p", "e"]
    assert handler.primary(build.priced(), ("e", "d", "p")) == "d"
    assert [handler.work_of(name) for name in "dpe"] == [Work.DECODE, Work.PREFILL, Work.ENCODE]
    assert handler.work_of("decode") is None


def decided(build, **stages):
    rows = [build.candidate(number) for number in (1, 2, 3)]
    items = [build.item(identifier=name, index=index) for index, name in enumerate("abac")]
    made_of = [build.stage(rows, winner, profile=name) for name, winner in stages.items()]
    return build.decision(build.priced(10, items), *made_of, primary="decode"), rows


def test_whom_the_decode_endpoint_is_to_ask(build):
    decision, _ = decided(build, decode=0, prefill=1, encode=2)
    assert made().request_headers(decision) == {
        "x-prefiller-host-port": "10.0.0.2:8000",
        "x-encoder-hosts-ports": "10.0.0.3:8000",
    }
    decision, _ = decided(build, decode=0, prefill=None, encode=None)
    assert made().request_headers(decision) == {}
    # Who decodes is not asked to prefill for itself.
    decision, _ = decided(build, decode=0, prefill=0)
    assert made().request_headers(decision) == {}


def test_all_winners_of_encode_are_named(build):
    decision, rows = decided(build, decode=0)
    both = (rows[1].endpoint, rows[2].endpoint)
    encode = build.stage(rows, profile="encode", winners=both)
    decision = build.decision(decision.priced, encode, *decision.stages)
    assert made().request_headers(decision) == {"x-encoder-hosts-ports": "10.0.0.2:8000,10.0.0.3:8000"}


@pytest.mark.parametrize(
    ("spares", "expected"),
    [
        ((), "0=10.0.0.3:8000,2=10.0.0.2:8000"),
        (("10.0.0.9:1", "[fd::1]:2"), "0=10.0.0.3:8000,2=10.0.0.2:8000;alt=10.0.0.9:1,[fd::1]:2"),
    ],
)
def test_the_plan_counts_distinct_items_and_leaves_out_what_stays(build, spares, expected):
    decision, rows = decided(build, decode=0)
    plan = EncodePlan({"a": "10.0.0.3:8000", "c": "10.0.0.2:8000"}, spares, is_told=True)
    encode = build.stage(rows, 2, profile="encode", encodes=plan)
    decision = build.decision(decision.priced, encode, *decision.stages)
    assert made().request_headers(decision)["x-tessera-encode-plan"] == expected


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"stage_order": "prefill-first", "deciders": BOTH}, "deciders.prefill"),
        ({"profiles": StageProfiles(prefill="decode")}, "profiles"),
    ],
)
def test_what_cannot_be_meant_is_a_problem(parameters, path):
    assert [where for where, _ in DisaggProfileHandler(**parameters).check()] == [path]


@pytest.mark.parametrize(
    ("profiles", "paths"),
    [
        (ALL, []),
        (("prefill", "encode"), ["profiles.decode"]),
        (("decode", "encode"), ["deciders.prefill"]),
        (("a",), ["profiles.decode", "deciders.prefill", "deciders.encode"]),
    ],
)
def test_profiles_that_are_not_there_are_problems(profiles, paths):
    assert [where for where, _ in made().check_profiles(profiles)] == paths
