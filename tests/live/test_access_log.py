"""What Envoy's access log says, and what it may say without being believed."""

import pytest

from tessera.core.types import Usage
from tessera.live.access_log import read_entries
from tessera.live.extproc import access_log_pb2 as pb
from tessera.live.open_requests import LogEntry

FAILURES = [
    "upstream_connection_failure",
    "upstream_connection_termination",
    "upstream_remote_reset",
    "upstream_protocol_error",
    "upstream_retry_limit_exceeded",
    "no_healthy_upstream",
]


def entry(request_id="r1", *, usage=None, flags=(), address=None, status=None, **common):
    made = pb.HTTPAccessLogEntry(common_properties=pb.AccessLogCommon(**common))
    if request_id is not None:
        made.common_properties.metadata.filter_metadata["tessera"].update({"id": request_id})
    if usage is not None:
        made.common_properties.metadata.filter_metadata["tessera.usage"].update(usage)
    if address is not None:
        socket = made.common_properties.upstream_remote_address.socket_address
        socket.address, socket.port_value = address
    if status is not None:
        made.response.response_code.value = status
    for flag in flags:
        setattr(made.common_properties.response_flags, flag, True)
    return made


def read(*entries):
    message = pb.StreamAccessLogsMessage(http_logs=pb.StreamAccessLogsMessage.HTTPAccessLogEntries(log_entry=entries))
    return list(read_entries(pb.StreamAccessLogsMessage.FromString(message.SerializeToString())))


def only(**fields):
    (found,) = read(entry(**fields))
    return found


def test_a_whole_entry():
    found = only(
        status=200,
        address=("10.0.0.2", 8000),
        usage={"prompt_tokens": 900, "completion_tokens": 7, "cached_tokens": 64},
        upstream_request_attempt_count=2,
        custom_tags={"first_body_us": "1500000"},
    )
    assert found == LogEntry(
        request_id="r1",
        status=200,
        endpoint="10.0.0.2:8000",
        usage=Usage(prompt_tokens=900, completion_tokens=7, cached_tokens=64),
        first_body_s=1.5,
        num_attempts=2,
    )


def test_an_entry_that_says_nothing():
    assert only() == LogEntry(request_id="r1")


def test_requests_that_we_did_not_decide_and_half_way_entries_are_passed_over():
    strange = entry(None)
    strange.common_properties.metadata.filter_metadata["tessera"].update({"id": 7})
    found = read(entry(None), strange, entry("r2", intermediate_log_entry=True), entry("r3"))
    assert [each.request_id for each in found] == ["r3"]
    assert list(read_entries(pb.StreamAccessLogsMessage())) == []


def test_reading_changes_nothing_in_the_message():
    message = entry(None)
    before = message.SerializeToString()
    read(message)
    assert message.SerializeToString() == before


@pytest.mark.parametrize(("status", "expected"), [(0, None), (503, 503), (None, None)])
def test_the_status(status, expected):
    assert only(status=status).status == expected


def test_an_endpoint_in_version_six():
    assert only(address=("fd00::1", 8000)).endpoint == "[fd00::1]:8000"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 5}, Usage(prompt_tokens=5)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage(prompt_tokens=0, completion_tokens=0)),
        ({"completion_tokens": 3}, None),
        ({"prompt_tokens": "5"}, None),
        ({"prompt_tokens": -1}, None),
        ({"prompt_tokens": float(1 << 40)}, Usage(prompt_tokens=1 << 40)),
        ({"prompt_tokens": float((1 << 40) + 1)}, None),
        ({"prompt_tokens": True}, None),
        ({"prompt_tokens": None}, None),
        ({"prompt_tokens": float("nan")}, None),
        ({"prompt_tokens": float("inf")}, None),
        ({"prompt_tokens": 5, "cached_tokens": "x", "completion_tokens": -3}, Usage(prompt_tokens=5)),
        (
            {"prompt_tokens": 31, "cache_read_tokens": 32, "cache_written_tokens": 64},
            Usage(prompt_tokens=127, cached_tokens=32),
        ),
        ({"prompt_tokens": 31, "cache_read_tokens": 0}, Usage(prompt_tokens=31, cached_tokens=0)),
        ({"prompt_tokens": 31, "cache_written_tokens": 64}, Usage(prompt_tokens=95)),
        ({"cache_read_tokens": 32}, None),
        ({}, None),
    ],
)
def test_usage(usage, expected):
    assert only(usage=usage).usage == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0.0), ("250000", 0.25), ("", None), ("-5", None), ("1e6", None), ("٣", None), ("9" * 16, None), ("x", None)],
)
def test_the_first_body_byte(text, expected):
    assert only(custom_tags={"first_body_us": text}).first_body_s == expected


@pytest.mark.parametrize("flag", FAILURES)
def test_the_endpoint_failed(flag):
    found = only(flags=[flag])
    assert (found.upstream_failed, found.client_left) == (True, False)


@pytest.mark.parametrize("flag", ["downstream_connection_termination", "downstream_remote_reset"])
def test_the_client_left(flag):
    found = only(flags=[flag])
    assert (found.upstream_failed, found.client_left) == (False, True)


def test_no_route_is_nobodys_failure():
    found = only(flags=["no_route_found"])
    assert (found.upstream_failed, found.client_left) == (False, False)
