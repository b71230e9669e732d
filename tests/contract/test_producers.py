"""What every producer holds to, whatever it remembers."""

import pytest

from tessera.config.discover import discover
from tessera.core.facts import FirstToken, Joined, Left, Load, Scraped
from tessera.core.plugin import Producer, registered
from tessera.core.types import Ending, FirstTokenSource, Outcome
from tessera.core.work import StageEnded, Work

discover()

PRODUCERS = {cls.type: cls for cls in registered(Producer).values()}
every_producer = pytest.mark.parametrize("type_name", PRODUCERS)


@every_producer
def test_one_fact_for_each_endpoint_and_asking_changes_nothing(type_name, build):
    producer = PRODUCERS[type_name]()
    request = build.priced(100, items=[build.item(identifier="m0")])
    endpoints = [build.endpoint(number) for number in (1, 2, 3)]
    producer.record(build.decision(request))
    facts = producer.match(request, endpoints)
    assert [type(fact) for fact in facts] == [producer.produces] * 3
    assert producer.match(request, endpoints[::-1])[::-1] == facts
    assert producer.match(request, []) == []


@every_producer
def test_takes_every_event_in_any_order(type_name, build):
    producer = PRODUCERS[type_name]()
    endpoint = build.endpoint(1)
    decision = build.decision()
    request_id = decision.request.request_id
    outcome = Outcome(request_id=request_id, ending=Ending.FINISHED, decision=decision, finished_at=3.0)
    producer.settle(Outcome(request_id="unknown", ending=Ending.CANCELLED, finished_at=0.0))
    producer.observe(FirstToken(at=0.0, request_id="unknown", source=FirstTokenSource.BODY))
    producer.observe(Left(at=0.0, endpoint=endpoint))
    producer.record(decision)
    for told in ("unknown", request_id):
        for stage in Work:
            fields = {"stage": stage, "endpoint_id": endpoint.id, "status": 200, "seconds": 0.1, "num_items": 1}
            producer.observe(StageEnded(at=1.0, request_id=told, **fields))
    producer.observe(Scraped(at=1.0, endpoint_id=endpoint.id, load=Load()))
    producer.observe(Joined(at=1.0, endpoint=endpoint))
    producer.observe(Left(at=1.0, endpoint=endpoint))
    producer.observe(FirstToken(at=2.0, request_id=request_id, source=FirstTokenSource.PREDICTED))
    producer.settle(outcome)
    producer.settle(outcome)
    assert len(producer.match(decision.priced, [endpoint])) == 1
    producer.close()
