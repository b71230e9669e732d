from tessera.core.handlers.single_profile import SingleProfileHandler


def test_runs_the_only_profile_once(build):
    handler, request = SingleProfileHandler(), build.priced()
    assert handler.next_profile(request, ("only",), {}) == "only"
    assert handler.next_profile(request, ("only",), {"only": build.stage([build.candidate()])}) is None
    assert handler.primary(request, ("only",)) == "only"
