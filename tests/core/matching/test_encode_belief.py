"""Who holds an item that was encoded apart, by what was decided and by what was told."""

import pytest

from tessera.core.facts import Joined
from tessera.core.matching.mm_embeddings_cache import MMEmbeddingsCacheProducer
from tessera.core.types import Ending, Outcome
from tessera.core.work import EncodePlan, StageEnded, Work

DECODE, PREFILL, FIRST, SECOND, SPARE, OTHER = (f"10.0.0.{number}:8000" for number in range(1, 7))
PLAN = EncodePlan({"a": FIRST, "b": SECOND}, (SPARE,), is_told=True)


class Belief:
    """One request of three items: two sent to encoders, one kept."""

    def __init__(self, build, *, has_prefill=True):
        self.producer = MMEmbeddingsCacheProducer()
        rows = [build.candidate(number) for number in range(1, 7)]
        self.endpoints = [row.endpoint for row in rows]
        for endpoint in self.endpoints:
            self.producer.observe(Joined(at=0.0, endpoint=endpoint))
        items = [build.item(10, identifier=name, index=index) for index, name in enumerate("abc")]
        stages = [build.stage(rows, 0, "decode"), build.stage(rows, 1, "prefill")][: 1 + has_prefill]
        stages.append(build.stage(rows, 2, "encode", encodes=PLAN))
        self.decision = build.decision(build.priced(10, items), *stages, primary="decode")
        self.events = []
        self.producer.record(self.decision)

    def told(self, endpoint_id, status=200, num_items=1, stage=Work.ENCODE):
        fields = {"endpoint_id": endpoint_id, "status": status, "num_items": num_items, "stage": stage}
        self.events.append(StageEnded(at=1.0, request_id="r1", seconds=0.1, **fields))
        self.producer.observe(self.events[-1])

    def ended(self, status=200, served=DECODE):
        fields = {"ending": Ending.FINISHED, "status": status, "endpoint": served, "finished_at": 2.0}
        self.producer.settle(Outcome(request_id="r1", decision=self.decision, stages=tuple(self.events), **fields))

    @property
    def held(self):
        facts = self.producer.match(self.decision.priced, self.endpoints)
        return {each.id: "".join(sorted(fact.identifiers)) for each, fact in zip(self.endpoints, facts, strict=True)}


def holding(**held):
    names = {"decode": DECODE, "prefill": PREFILL, "first": FIRST, "second": SECOND, "spare": SPARE, "other": OTHER}
    return {endpoint: held.get(name, "") for name, endpoint in names.items()}


@pytest.fixture
def belief(build):
    return Belief(build)


def test_expected_where_they_were_sent_and_the_rest_where_the_prompt_is_computed(build, belief):
    assert belief.held == holding(first="a", second="b", prefill="c")
    assert Belief(build, has_prefill=False).held == holding(first="a", second="b", decode="c")


def test_what_was_encoded_is_held_by_who_got_it_too(belief):
    belief.told(FIRST)
    assert belief.held == holding(first="a", second="b", prefill="ac")
    belief.told(SECOND)
    belief.ended()
    assert belief.held == holding(first="a", second="b", prefill="abc")


@pytest.mark.parametrize(("status", "num_items"), [(503, 1), (0, 0), (200, 0)])
def test_what_failed_is_held_by_who_did_it_instead(belief, status, num_items):
    belief.told(SECOND, status, num_items)
    assert belief.held == holding(first="a", prefill="c")
    belief.told(FIRST)
    belief.ended()
    assert belief.held == holding(first="a", prefill="abc")


def test_a_spare_that_did_it_holds_it(belief):
    belief.told(SECOND, 503)
    belief.told(FIRST)
    belief.told(SPARE)
    belief.ended()
    assert belief.held == holding(first="a", spare="b", prefill="abc")


def test_nobody_knows_what_a_stranger_encoded_that_nobody_lost(belief):
    belief.told(SPARE)
    belief.told(FIRST)
    belief.told(SECOND)
    belief.ended()
    assert belief.held == holding(first="a", second="b", prefill="abc")


def test_an_encoder_that_a_report_leaves_out_did_nothing(belief):
    belief.told(PREFILL, stage=Work.PREFILL, num_items=0)
    assert belief.held == holding(first="a", second="b", prefill="c")
    belief.ended()
    assert belief.held == holding(prefill="abc")


def test_without_a_report_everything_stays_as_expected(belief):
    belief.ended()
    assert belief.held == holding(first="a", second="b", prefill="c")


def test_a_prefill_that_failed_was_done_by_who_served(belief):
    belief.told(FIRST)
    belief.told(SECOND)
    belief.told(PREFILL, 500, 0, Work.PREFILL)
    belief.ended()
    assert belief.held[DECODE] == "c"
    assert "c" not in belief.held[PREFILL]


def test_a_request_that_failed_has_computed_nothing_of_its_own(belief):
    belief.told(FIRST)
    belief.ended(status=500)
    assert belief.held == holding(first="a", prefill="a")


def test_nothing_is_kept_of_a_request_that_is_over(belief):
    belief.told(FIRST)
    belief.ended()
    assert belief.producer._apart == {}
    before = belief.held
    belief.told(SECOND, 503)
    assert belief.held == before
