from tessera.core.facts import UNKNOWN_LOAD, FirstToken, Joined, Left, Load, Scraped
from tessera.core.fleet import Fleet
from tessera.core.types import FirstTokenSource

LOAD = Load(num_waiting=3, at=1.0)


def states(fleet):
    return [(each.endpoint.id, each.load) for each in fleet.view().endpoints]


def scraped(endpoint, load=LOAD):
    return Scraped(at=1.0, endpoint_id=endpoint.id, load=load)


def test_endpoints_come_are_scraped_and_go(build):
    fleet, one, two = Fleet(), build.endpoint(1), build.endpoint(2)
    assert states(fleet) == []
    fleet.apply(Joined(at=0.0, endpoint=one))
    fleet.apply(Joined(at=0.0, endpoint=two))
    fleet.apply(scraped(two))
    assert states(fleet) == [(one.id, UNKNOWN_LOAD), (two.id, LOAD)]
    assert fleet.endpoints == (one, two)
    fleet.apply(Left(at=0.0, endpoint=one))
    fleet.apply(Left(at=0.0, endpoint=one))
    assert states(fleet) == [(two.id, LOAD)]


def test_new_labels_keep_the_load_and_leaving_forgets_it(build):
    fleet = Fleet()
    fleet.apply(Joined(at=0.0, endpoint=build.endpoint(1)))
    fleet.apply(scraped(build.endpoint(1)))
    fleet.apply(Joined(at=0.0, endpoint=build.endpoint(1, role="decode")))
    (state,) = fleet.view().endpoints
    assert (state.load, state.endpoint.labels) == (LOAD, {"llm-d.ai/role": "decode"})
    fleet.apply(Left(at=0.0, endpoint=build.endpoint(1)))
    fleet.apply(Joined(at=0.0, endpoint=build.endpoint(1)))
    assert fleet.view().endpoints[0].load is UNKNOWN_LOAD


def test_a_view_is_never_edited_and_is_the_same_until_something_changes(build):
    fleet = Fleet()
    empty = fleet.view()
    fleet.apply(Joined(at=0.0, endpoint=build.endpoint(1)))
    view = fleet.view()
    assert empty.endpoints == ()
    fleet.apply(FirstToken(at=0.0, request_id="r", source=FirstTokenSource.BODY))
    fleet.apply(scraped(build.endpoint(9)))
    assert fleet.view() is view
    fleet.apply(scraped(build.endpoint(1)))
    assert view.endpoints[0].load is UNKNOWN_LOAD
    assert fleet.view().endpoints[0].load is LOAD
