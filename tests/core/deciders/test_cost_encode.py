"""Worked by hand with encoders that take 1 s for an item of 100 embeddings, 0.1 s to prepare and 0.5 s to send it."""

from dataclasses import replace

import pytest

from tessera.core.deciders.cost_encode import CostEncodeDecider
from tessera.core.facts import EncoderMatch, FirstTokenCost, MediaRates, PrefixMatch, ProcessorMatch
from tessera.core.media.size import Reason
from tessera.core.types import Candidate

RATES = MediaRates(
    encode_s_per_item=0.0,
    encode_s_per_embed=0.01,
    encode_s_per_embed_squared=0.0,
    processing_s_per_megapixel=0.1e6 / (100 * 1024),
)
DECIDER = {"fixed_s": 0.2, "transfer_bytes_per_embed": 1000, "transfer_bytes_per_s": 200_000.0}


def row(build, number, role, *, queued=0.0, held="", covered=0, prepared=""):
    facts = {
        (FirstTokenCost, FirstTokenCost.producer): FirstTokenCost(queued_s=queued, rates=RATES),
        (EncoderMatch, EncoderMatch.producer): EncoderMatch(identifiers=frozenset(held)),
        (ProcessorMatch, ProcessorMatch.producer): ProcessorMatch(identifiers=frozenset(prepared)),
        (PrefixMatch, PrefixMatch.producer): PrefixMatch(
            num_matched_tokens=covered, num_total_tokens=1000, num_matched_media_tokens=covered
        ),
    }
    return Candidate(build.endpoint(number, role=role), facts)


def request_of(build, names):
    return build.priced(10, [build.item(100, identifier=name, index=index) for index, name in enumerate(names)])


@pytest.mark.parametrize(
    ("names", "queued_here", "queued_there", "expected"),
    [
        # Apart takes 0.2 + 1.1 + 0.5 = 1.8 s, here 1 s: only behind more than 0.8 s of work it is sooner.
        ("a", 0.0, 0.0, False),
        ("a", 0.79, 0.0, False),
        ("a", 0.81, 0.0, True),
        # What an encoder has in flight comes on top.
        ("a", 0.81, 0.02, False),
        # Two at once on two encoders: 0.2 + 1.1 + 1.0 = 2.3 s against 2 s.
        ("ab", 0.0, 0.0, False),
        ("ab", 0.31, 0.0, True),
        # The same picture twice is one.
        ("aa", 0.79, 0.0, False),
    ],
)
def test_only_where_the_first_token_comes_sooner(build, names, queued_here, queued_there, expected):
    rows = [
        row(build, 1, "decode", queued=queued_here),
        row(build, 2, "encode", queued=queued_there),
        row(build, 3, "encode-prefill", queued=queued_there),
        row(build, 4, "prefill"),
    ]
    request = request_of(build, names)
    assert CostEncodeDecider(**DECIDER).wants(request, build.stage(rows)) is expected


def test_without_the_spreading_picker_one_encoder_does_all(build):
    rows = [row(build, 1, "decode", queued=0.31), row(build, 2, "encode"), row(build, 3, "encode")]
    # 0.2 + 2.2 + 1.0 = 3.4 s against 0.31 + 2.
    assert not CostEncodeDecider(spreads=False, **DECIDER).wants(request_of(build, "ab"), build.stage(rows))
    rows[0] = row(build, 1, "decode", queued=1.41)
    assert CostEncodeDecider(spreads=False, **DECIDER).wants(request_of(build, "ab"), build.stage(rows))


def test_what_is_held_or_covered_here_stays(build):
    # The first item lies in the KV match, the second in the encoder cache.
    here = row(build, 1, "decode", queued=9.0, held="b", covered=100)
    decider, stage = CostEncodeDecider(**DECIDER), build.stage([here, row(build, 2, "encode")])
    request = request_of(build, "abcc")
    assert [each.identifier for each in decider.items(request, stage)] == ["c"]
    assert decider.wants(request, stage)
    assert not decider.wants(request_of(build, "ab"), stage)
    assert not decider.wants(request_of(build, ""), stage)


def test_what_an_encoder_holds_costs_only_the_way(build):
    # 0.2 + 0.5 = 0.7 s against 1 s.
    rows = [row(build, 1, "decode"), row(build, 2, "encode", held="a"), row(build, 3, "encode")]
    assert CostEncodeDecider(**DECIDER).wants(request_of(build, "a"), build.stage(rows))
    # Prepared there already, and behind 0.75 s here: 1.7 s against 1.75 s.
    rows = [row(build, 1, "decode", queued=0.75), row(build, 2, "encode", prepared="a")]
    assert CostEncodeDecider(**DECIDER).wants(request_of(build, "a"), build.stage(rows))


def test_without_encoders_the_stage_runs_and_says_so(build):
    stage = build.stage([row(build, 1, "encode-prefill-decode"), row(build, 2, "decode"), row(build, 3, None)])
    assert CostEncodeDecider(**DECIDER).wants(request_of(build, "a"), stage)


@pytest.mark.parametrize("reason", [Reason.NO_CONTENT, Reason.UUID_ONLY])
def test_what_is_not_sent_cannot_be_encoded_elsewhere(build, reason):
    request = request_of(build, "ab")
    unsent = replace(request.items[0], item=build.media(identifier="a", reason=reason))
    request = build.priced(10, [unsent, request.items[1]])
    stage = build.stage([row(build, 1, "decode", queued=9.0), row(build, 2, "encode")])
    assert [each.identifier for each in CostEncodeDecider(**DECIDER).items(request, stage)] == ["b"]
