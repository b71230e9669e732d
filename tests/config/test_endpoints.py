from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.config.document import dump
from tessera.config.endpoints import read_endpoints, read_endpoints_file
from tessera.core.errors import ConfigError, Problem
from tessera.core.types import Endpoint

ALL = """
endpoints:
- name: a
  namespace: prod
  address: 10.0.0.1
  port: "8000"
  labels: {llm-d.ai/role: decode}
  metricsPort: 9000
  kvEventsPort: "5557"
  kvReplayPort: 5558
"""


def test_every_key_is_read():
    (endpoint,), problems = read_endpoints(ALL)
    assert problems == []
    assert endpoint == Endpoint(
        address="10.0.0.1",
        port=8000,
        name="a",
        namespace="prod",
        labels={"llm-d.ai/role": "decode"},
        metrics_port=9000,
        kv_events_port=5557,
        kv_replay_port=5558,
    )
    assert endpoint.labels == {"llm-d.ai/role": "decode"}
    assert endpoint.id == "10.0.0.1:8000"


def test_an_address_and_a_port_are_enough():
    (endpoint,), _ = read_endpoints('{"endpoints": [{"address": "2001:DB8:0::1", "port": 80}]}')
    assert endpoint == Endpoint(address="2001:db8::1", port=80)
    assert (endpoint.id, endpoint.namespace, endpoint.name) == ("[2001:db8::1]:80", "default", "")


@pytest.mark.parametrize(
    ("entry", "path", "message"),
    [
        ("{port: 80}", ".address", "missing, expected text"),
        ("{address: 10.0.0.1}", ".port", "missing, expected an integer"),
        (
            "{address: localhost, port: 80}",
            ".address",
            "got 'localhost', expected an IPv4 or IPv6 address; host names are not looked up",
        ),
        (
            "{address: 'fe80::1%eth0', port: 80}",
            ".address",
            "got 'fe80::1%eth0', expected an IPv4 or IPv6 address; host names are not looked up",
        ),
        ("{address: 10.0.0.1, port: 0}", ".port", "got 0, expected at least 1"),
        ("{address: 10.0.0.1, port: '65536'}", ".port", "got 65536, expected at most 65535"),
        ("{address: 10.0.0.1, port: http}", ".port", "got 'http', expected an integer"),
        ("{address: 10.0.0.1, port: true}", ".port", "got true, expected an integer"),
        ("{address: 10.0.0.1, port: 80, labels: {a: 1}}", ".labels.a", "got 1, expected text"),
        ("{address: 10.0.0.1, port: 80, metricsPort: -1}", ".metricsPort", "got -1, expected at least 1"),
        ("7", "", "got 7, expected a mapping"),
    ],
)
def test_an_invalid_endpoint_is_skipped_with_its_problem(entry, path, message):
    endpoints, problems = read_endpoints(f"endpoints: [{entry}, {{address: 10.0.0.2, port: 80}}]")
    assert [each.id for each in endpoints] == ["10.0.0.2:80"]
    assert problems == [Problem(f"endpoints[0]{path}", message)]


def test_an_unknown_key_is_told_with_the_one_that_may_be_meant():
    endpoints, (problem,) = read_endpoints("endpoints: [{address: 10.0.0.1, port: 80, metricPort: 3}]")
    assert endpoints == []
    assert problem.path == "endpoints[0].metricPort"
    assert problem.message.startswith("unknown key; did you mean 'metricsPort'?")


def test_one_address_and_port_counts_once():
    entries = "{address: '::1', port: 80, name: a}, {address: '0:0::1', port: '80', name: b}"
    endpoints, problems = read_endpoints(f"endpoints: [{entries}]")
    assert [each.name for each in endpoints] == ["a"]
    assert problems == [Problem("endpoints[1]", "[::1]:80 stands twice; the first one counts")]


@pytest.mark.parametrize("text", ["endpoints:", "endpoints: []", '{"endpoints": null}'])
def test_a_pool_may_be_empty(text):
    assert read_endpoints(text) == ([], [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "got null, expected a mapping with a list named endpoints"),
        ("{}", "got a mapping of nothing, expected a mapping with a list named endpoints"),
        ("[]", "got a list, expected a mapping with a list named endpoints"),
        ("endpoint: []", "got a mapping of endpoint, expected a mapping with a list named endpoints"),
        ("endpoints: {a: 1}", "endpoints: got a mapping, expected a list"),
        ("endpoints: []\nendpoint: []", "endpoint: unknown key; did you mean 'endpoints'?"),
        ("endpoints: [", "not YAML at line 2, column 1: did not find expected node content"),
    ],
)
def test_an_invalid_file_is_an_error(text, problem):
    with pytest.raises(ConfigError) as caught:
        read_endpoints(text)
    assert str(caught.value).startswith(problem.partition(" line 2")[0])


def test_a_file_is_read(tmp_path: Path):
    (tmp_path / "e.yaml").write_text(ALL)
    assert [each.name for each in read_endpoints_file(tmp_path / "e.yaml")[0]] == ["a"]
    with pytest.raises(ConfigError, match="cannot read"):
        read_endpoints_file(tmp_path / "absent.yaml")


values = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["10.0.0.1", "::1", "80", 80])
)
keys = st.sampled_from(["address", "port", "name", "namespace", "labels", "metricsPort", "kvEventsPort", "x"])
entries = st.dictionaries(keys, values | st.dictionaries(st.text(max_size=3), values), max_size=8)


@given(st.dictionaries(st.just("endpoints") | st.text(max_size=3), st.lists(entries | values, max_size=5) | values))
@settings(deadline=None)
def test_any_document_gives_endpoints_and_problems_or_a_config_error(data):
    try:
        text = dump(data)
        endpoints, _ = read_endpoints(text)
    except (ConfigError, UnicodeEncodeError):
        return
    assert len({each.id for each in endpoints}) == len(endpoints)
