from tessera.core.entrance import addresses_of, reached_at
from tessera.core.handlers.data_parallel_profile import DataParallelProfileHandler


def test_the_rank_is_named_and_reached_through_the_shared_port(build):
    handler = DataParallelProfileHandler(primary_port=9000)
    rank, other = (build.candidate(endpoint=build.endpoint(1, port=port)) for port in (8003, 8001))
    assert handler.entrance(rank.endpoint) == "10.0.0.1:9000"
    decision = build.decision(None, build.stage([rank, other]), entrance="10.0.0.1:9000")
    assert handler.request_headers(decision) == {"x-data-parallel-host-port": "10.0.0.1:8003"}
    assert addresses_of(decision) == ("10.0.0.1:9000",)
    assert reached_at(decision, "10.0.0.1:9000") == "10.0.0.1:8003"
    assert reached_at(decision, "10.0.0.9:9000") == "10.0.0.9:9000"


def test_without_an_entrance_everybody_is_reached_at_the_own_address(build):
    decision = build.decision(None, build.stage([build.candidate(1), build.candidate(2)]))
    assert addresses_of(decision) == ("10.0.0.1:8000", "10.0.0.2:8000")
    assert reached_at(decision, "10.0.0.1:8000") == "10.0.0.1:8000"


def test_one_profile_runs_once(build):
    handler, request = DataParallelProfileHandler(), build.priced()
    assert handler.next_profile(request, ("only",), {}) == "only"
    assert list(handler.check_profiles(("only",))) == []
    ((path, message),) = handler.check_profiles(("a", "b"))
    assert (path, message) == ("primaryPort", "the handler runs one profile, and there are a, b; leave one")
