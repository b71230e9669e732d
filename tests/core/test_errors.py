import pytest

from tessera.core.errors import ConfigError, DropReason, EndpointError, Problem, Rejected, RequestError, TesseraError


def test_every_problem_is_named_with_its_path():
    error = ConfigError([Problem("plugins[2].type", "got 'x'"), Problem("", "no profile")])
    assert str(error) == "plugins[2].type: got 'x'\nno profile"
    assert len(error.problems) == 2


@pytest.mark.parametrize(
    ("reason", "word", "status"),
    [
        (DropReason.NO_ENDPOINTS, "rejected-no-endpoints", 503),
        (DropReason.SATURATED, "rejected-saturated", 429),
        (DropReason.SHUTTING_DOWN, "rejected-shutting-down", 503),
    ],
)
def test_llmds_words_and_their_status(reason, word, status):
    assert (reason, reason.status) == (word, status)
    assert Rejected(reason, "m").status == status
    assert Rejected(reason, "m", status=500).status == 500


def test_every_error_on_purpose_is_one_of_ours():
    error = RequestError("too big", status=413, code="request_too_large", param="messages")
    assert (error.status, error.code, error.param, str(error)) == (413, "request_too_large", "messages", "too big")
    remote = EndpointError("10.0.0.1:80", "encode", "refused", retryable=True)
    assert str(remote) == "10.0.0.1:80 failed at encode: refused"
    assert all(isinstance(each, TesseraError) for each in (error, remote, ConfigError([])))
