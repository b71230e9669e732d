"""Which headers are kept of a request, by what the plugins name."""

import pytest

from tessera.config.load import load_data
from tessera.core.errors import ConfigError
from tessera.core.headers import KEPT_HEADERS
from tessera.core.router import Router


def by_ids(*names, kind="filter"):
    sources = [{"header": name} for name in names]
    parameters = {"strategy": "session_id", "sessionIdConfig": {"sources": sources}}
    return {"type": f"session-affinity-{kind}", "parameters": parameters}


def by_label(name):
    return {"type": "header-label-affinity-scorer", "parameters": {"headerName": name, "labelKey": "team"}}


def kept(data):
    return load_data(data).profile.kept_headers - KEPT_HEADERS


def problems(data):
    with pytest.raises(ConfigError) as caught:
        load_data(data)
    return {each.path: each.message for each in caught.value.problems}


def test_without_plugins_that_name_any_there_are_some(config):
    assert load_data(config("queue-scorer")).profile.kept_headers == KEPT_HEADERS
    assert {"x-session-token", "x-session-id", "x-request-id"} <= KEPT_HEADERS


def test_headers_that_plugins_name_are_kept_whatever_their_case(config):
    token = {"encodedEndpointHeaderConfig": {"header": "X-My-Token"}}
    scorer = {"type": "session-affinity-scorer", "parameters": token}
    data = config(by_ids("x-user", "X-Request-Id", "x-team"), scorer, by_label("X-Team"))
    assert kept(data) == {"x-user", "x-my-token", "x-team"}


def test_they_reach_a_plugin_that_asks_for_them(config):
    loaded = load_data(config(by_ids("X-User")))
    headers = {":method": "POST", ":path": "/v1/chat/completions", "x-user": "u" * 2000, "x-team": "t"}
    asked, _ = Router.read(b"{}", headers, loaded.profile, request_id="r", at=0.0, wall_at=0.0)
    assert asked.headers == {"x-user": "u" * 1024}


@pytest.mark.parametrize("name", ["Authorization", "cookie", "proxy-authorization", "X-Api-Key"])
def test_credentials_are_a_problem_with_its_path(config, name):
    found = problems(config(by_ids("x-user", name), by_label(name)))
    assert found.keys() == {
        "plugins[0].parameters.sessionIdConfig.sources[1].header",
        "plugins[1].parameters.headerName",
    }
    assert all(message.startswith(f"{name} carries credentials, and Tessera keeps none") for message in found.values())


def test_a_name_that_is_none_is_a_problem_too(config):
    token = {"encodedEndpointHeaderConfig": {"header": ""}}
    found = problems(config({"type": "session-affinity-filter", "parameters": token}, by_label(":path")))
    assert found == {
        "plugins[0].parameters.encodedEndpointHeaderConfig.header": "got '', expected the name of a header",
        "plugins[1].parameters.headerName": "got ':path', expected the name of a header",
    }


def test_they_are_bounded(config):
    names = [f"x-{number}" for number in range(32)]
    assert kept(config(by_ids(*names, "prefer", "X-31"), by_label("x-7"))) == set(names)
    assert problems(config(by_ids(*names), by_label("x-32"))) == {
        "plugins[1].parameters.headerName": (
            "x-32 is one header too many: at most 32 may be named, all plugins together"
        )
    }


def test_who_writes_into_answers_is_asked(config):
    router = load_data(config("queue-scorer", "session-affinity-filter", by_ids("x-user", kind="scorer"))).router
    assert [each.type for each in router.answering] == ["session-affinity-filter"]
    assert load_data(config("queue-scorer", by_ids("x-user"))).router.answering == ()


def test_who_stands_in_no_profile_is_not(config):
    profiles = [{"name": "default", "plugins": [{"pluginRef": "queue-scorer"}]}]
    data = config("queue-scorer", "session-affinity-filter", schedulingProfiles=profiles)
    assert load_data(data).router.answering == ()


def test_what_an_answer_is_read_by_may_not_be_written(config):
    token = {"encodedEndpointHeaderConfig": {"header": "Content-Length"}}
    found = problems(config({"type": "session-affinity-filter", "parameters": token}))
    assert found == {
        "plugins[0].parameters.encodedEndpointHeaderConfig.header": (
            "Content-Length tells clients how to read the answer; name a header of its own"
        )
    }
