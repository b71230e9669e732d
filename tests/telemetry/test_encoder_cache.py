"""Counts of media items that found their embeddings, by who served."""

import dataclasses

import pytest

from tessera.core.facts import EncoderMatch
from tessera.core.media.size import Reason
from tessera.core.parts import Modality
from tessera.core.types import Candidate, Ending, Outcome
from tessera.telemetry.metrics import Metrics


def row(build, number, *names, producer=EncoderMatch.producer):
    return Candidate(build.endpoint(number), {(EncoderMatch, producer): EncoderMatch(identifiers=frozenset(names))})


def priced_of(build, *names):
    items = [build.item(10, identifier=name, index=i) for i, name in enumerate(names)]
    video = build.media(Modality.VIDEO, "clip")
    nothing = build.media(identifier="none", reason=Reason.NO_CONTENT)
    more = [dataclasses.replace(build.item(10, index=9), item=each) for each in (video, nothing)]
    return build.priced(5, [*items, *more])


def settled(decision, served=None, ending=Ending.FINISHED):
    metrics = Metrics()
    metrics.settled(
        Outcome(request_id="r1", ending=ending, decision=decision, endpoint=served, status=200, finished_at=1.0)
    )
    return {
        (sample.name.removeprefix("llm_d_epp_encoder_cache_"), *sorted(sample.labels.values())): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if "encoder_cache" in sample.name
        and not sample.name.endswith("_created")
        and not sample.name.endswith("_bucket")
    }


NOTHING = {("hit_ratio_count",): 0.0, ("hit_ratio_sum",): 0.0}


@pytest.mark.parametrize(
    ("served", "hits"),
    [
        ("10.0.0.1:8000", {("hits_total", "10.0.0.1:8000", "image"): 1.0}),
        (None, {("hits_total", "10.0.0.1:8000", "image"): 1.0}),
        (
            "10.0.0.2:8000",
            {("hits_total", "10.0.0.2:8000", "image"): 2.0, ("hits_total", "10.0.0.2:8000", "video"): 1.0},
        ),
        ("10.0.0.3:8000", {}),
    ],
)
def test_hits_are_those_of_who_served(build, served, hits):
    rows = [row(build, 1, "a"), row(build, 2, "a", "b", "clip", "none"), row(build, 3)]
    values = settled(build.decision(priced_of(build, "a", "b", "a"), build.stage(rows)), served)
    queries = {("queries_total", "image"): 2.0, ("queries_total", "video"): 1.0}
    ratio = {("hit_ratio_count",): 1.0, ("hit_ratio_sum",): pytest.approx(sum(hits.values()) / 3)}
    assert values == queries | hits | ratio


def test_an_encode_stage_serves_the_encoder(build):
    encode = build.stage([row(build, 1, "a", "b", "clip")], profile="encode")
    decode = build.stage([row(build, 2)], profile="decode")
    values = settled(build.decision(priced_of(build, "a", "b"), encode, decode), "10.0.0.2:8000")
    assert values["hits_total", "10.0.0.1:8000", "image"] == 2.0
    assert values["hit_ratio_sum",] == 1.0


def test_a_named_producers_belief_counts(build):
    stage = build.stage([row(build, 1, "a", producer="mine")])
    assert settled(build.decision(priced_of(build, "a"), stage))["hits_total", "10.0.0.1:8000", "image"] == 1.0


def test_nothing_is_counted_where_nothing_is_believed_asked_or_served(build):
    known = build.stage([row(build, 1, "a")])
    unknown = build.stage([Candidate(build.endpoint(1), {})])
    nobody = build.stage([row(build, 1, "a")], None)
    assert settled(build.decision(priced_of(build, "a"), unknown)) == NOTHING
    assert settled(build.decision(priced_of(build, "a"), nobody)) == NOTHING
    assert settled(build.decision(build.priced(5), known)) == NOTHING
    assert settled(build.decision(priced_of(build, "a"), known), "10.0.0.9:8000") == NOTHING
    assert settled(build.decision(priced_of(build, "a"), known), ending=Ending.FAILED) == NOTHING
    assert settled(None, ending=Ending.CANCELLED) == NOTHING
