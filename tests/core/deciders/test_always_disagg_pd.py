from tessera.core.deciders.always_disagg_pd import AlwaysDisaggPDDecider


def test_always(build):
    assert AlwaysDisaggPDDecider().wants(build.priced(), build.stage([build.candidate()]))
