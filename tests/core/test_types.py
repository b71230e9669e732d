import dataclasses

import pytest

from tessera.core.facts import InFlightLoad, PrefixMatch
from tessera.core.parts import TextPart
from tessera.core.types import Basis, Candidate, Endpoint, PricedItem


def test_the_weaker_basis_counts(build):
    fields = {"index": 0, "item": build.media(), "num_tokens": 1, "num_embeds": 1}
    item = PricedItem(**fields, rule_basis=Basis.DECLARED, size_basis=Basis.EXACT)
    assert item.basis is Basis.DECLARED
    assert PricedItem(**fields, rule_basis=Basis.DECLARED, size_basis=Basis.DEFAULT).basis is Basis.DEFAULT
    assert [basis.word for basis in sorted(Basis)] == ["exact", "learned", "declared", "default"]


def test_a_prompt_has_every_item_and_the_encoder_each_once(build):
    items = [
        build.item(100, num_embeds=90, num_wrapper_tokens=2, index=0, identifier="a"),
        build.item(50, num_wrapper_tokens=2, index=1, identifier="b"),
        build.item(100, num_embeds=90, num_wrapper_tokens=2, index=2, identifier="a"),
    ]
    priced = dataclasses.replace(build.priced(7, items), num_template_tokens=5)
    assert priced.num_prompt_tokens == 7 + 5 + 102 + 52 + 102
    assert priced.num_embeds == 90 + 50
    assert [item.index for item in priced.distinct_items()] == [0, 1]
    assert build.priced().distinct_items() == ()


@pytest.mark.parametrize(("num_prompts", "n", "expected"), [(0, 1, 1), (1, 3, 3), (4, 2, 8)])
def test_the_engine_makes_choices_times_prompts(build, num_prompts, n, expected):
    prompts = ((TextPart(num_bytes=1),),) * num_prompts
    assert build.request(prompts=prompts, num_choices=n).num_engine_requests == expected


def test_an_endpoint_is_known_by_address_and_port():
    assert Endpoint(address="10.0.0.1", port=80).id == "10.0.0.1:80"
    assert Endpoint(address="fd00::1", port=80).id == "[fd00::1]:80"
    assert len({Endpoint(address="10.0.0.1", port=80, labels={"a": "b"}), Endpoint(address="10.0.0.1", port=81)}) == 2


def test_a_fact_is_known_by_type_and_producer(build):
    match = PrefixMatch(num_matched_tokens=1, num_total_tokens=2)
    candidate = Candidate(build.endpoint(), {(PrefixMatch, "precise"): match})
    assert candidate.fact(PrefixMatch, "precise") is match
    assert candidate.fact(PrefixMatch, PrefixMatch.producer) is None
    with pytest.raises(KeyError):
        candidate[InFlightLoad]


def test_a_decision_lists_winners_then_fallbacks_of_the_primary_stage(build):
    candidates = [build.candidate(n) for n in (1, 2, 3, 4)]
    decision = build.decision(None, build.stage(candidates[:1], profile="encode"), build.stage(candidates, 2))
    assert [e.address[-1] for e in decision.destinations] == ["3", "1", "2"]
    assert decision.primary_stage.winner is candidates[2].endpoint
    assert decision.primary_stage.candidate_of(build.endpoint(2)) is candidates[1]
    assert build.decision(None, build.stage(candidates, None)).primary_stage.winner is None


def test_values_of_the_spine_are_frozen(build):
    decision = build.decision()
    for value in (decision, decision.priced, decision.request, decision.primary_stage, build.endpoint(), build.item()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, None)
        assert not hasattr(value, "__dict__")
