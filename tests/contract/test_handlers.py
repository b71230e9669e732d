"""What every profile handler holds to: it comes to an end, and names a profile that exists."""

import pytest

from tessera.config.discover import discover
from tessera.core.plugin import Handler, registered

discover()

HANDLERS = {cls.type: cls for cls in registered(Handler).values()}


@pytest.mark.parametrize("type_name", HANDLERS)
def test_runs_each_profile_at_most_once_and_ends(type_name, build):
    handler, profiles, done = HANDLERS[type_name](), ("decode",), {}
    assert handler.primary(build.priced(), profiles) in profiles
    while (name := handler.next_profile(build.priced(), profiles, done)) is not None:
        assert name in profiles
        assert name not in done
        done[name] = build.stage([build.candidate()], profile=name)
    assert handler.primary(build.priced(), profiles) in done
