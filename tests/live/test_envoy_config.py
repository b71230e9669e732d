"""The generated configuration, without starting Envoy."""

import json
from pathlib import Path

import pytest

from tessera.core.errors import ConfigError
from tessera.live.envoy import BodyMode, EnvoySettings, envoy_config
from tessera.live.envoy_clusters import endpoints_config, write_endpoints


def route(settings: EnvoySettings) -> dict[str, object]:
    manager = envoy_config(settings)["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]
    return manager["typed_config"]["route_config"]["virtual_hosts"][0]["routes"][0]["route"]  # type: ignore[no-any-return]


def test_there_are_as_many_retries_as_fallbacks_and_only_for_what_no_endpoint_worked_on() -> None:
    policy = route(EnvoySettings(num_retries=5))["retry_policy"]
    assert isinstance(policy, dict)
    assert policy["num_retries"] == 5
    assert policy["retry_on"] == "connect-failure,refused-stream,reset-before-request,retriable-status-codes"
    assert policy["retriable_status_codes"] == [503]


def test_the_body_limit_bounds_every_buffer() -> None:
    resources = envoy_config(EnvoySettings(max_body_bytes=1234, access_log_address="127.0.0.1:9003"))
    parts = [*resources["static_resources"]["listeners"], *resources["static_resources"]["clusters"]]
    assert [each["name"] for each in parts] == ["tessera", "endpoints", "ext_proc", "access_log"]
    assert {each["per_connection_buffer_limit_bytes"] for each in parts} == {1234}


def test_an_endpoints_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.json"
    write_endpoints(path, [("127.0.0.1", 8000)])
    write_endpoints(path, [("127.0.0.1", 8001), ("::1", 8002)])
    assert json.loads(path.read_text()) == endpoints_config([("127.0.0.1", 8001), ("::1", 8002)])
    assert [each.name for each in tmp_path.iterdir()] == ["endpoints.json"]


def test_every_value_that_envoy_could_not_use_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        EnvoySettings(
            endpoints=[("127.0.0.1", 8000), ("vllm-0.vllm", 8000)],
            max_body_bytes=2**32,
            listen_address="localhost",
            ext_proc_address="tessera",
        )
    assert [problem.path for problem in raised.value.problems] == [
        "endpoints[1]",
        "max_body_bytes",
        "listen_address",
        "ext_proc_address",
    ]


@pytest.mark.parametrize(
    ("shows", "mode", "options"),
    [
        (False, "SKIP", {"receiving_namespaces": {"untyped": ["envoy.lb", "tessera"]}}),
        (
            True,
            "SEND",
            {
                "forwarding_namespaces": {"untyped": ["envoy.lb"]},
                "receiving_namespaces": {"untyped": ["envoy.lb", "tessera"]},
            },
        ),
    ],
)
@pytest.mark.parametrize("body_mode", list(BodyMode))
def test_responses_are_shown_to_us_only_where_somebody_looks(
    shows: bool, mode: str, options: dict[str, object], body_mode: BodyMode
) -> None:
    settings = EnvoySettings(shows_response_headers=shows, body_mode=body_mode)
    manager = envoy_config(settings)["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]
    (ext_proc,) = [each for each in manager["typed_config"]["http_filters"] if each["name"] == "ext_proc"]
    assert ext_proc["typed_config"]["processing_mode"]["response_header_mode"] == mode
    assert ext_proc["typed_config"]["processing_mode"]["response_trailer_mode"] == "SEND"
    assert ext_proc["typed_config"]["metadata_options"] == options
