"""What must leave for a request that is turned away, and that the budget of bodies gets its own back."""

import msgspec
import pytest

from tessera.core.errors import DropReason, EndpointError, Rejected, RequestError

BODY_MODES = ["BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED", "STREAMED"]
TOO_LARGE = (413, "request_too_large", "invalid_request_error")
NO_ROOM = (503, "rejected-saturated", "service_unavailable_error", "rejected-saturated", "1")


def begin(play, mode="BUFFERED", **options):
    play >> play.headers(mode, at_once=True, **options)
    if mode.startswith("BUFFERED"):
        play << play.Continue("request_headers")


SERVICE = "service_unavailable_error"
OURS = (500, "router_error", "internal_server_error")


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (RequestError("no JSON"), (400, "invalid_request_error", "invalid_request_error")),
        (RequestError("too many", status=413, code="request_too_large"), TOO_LARGE),
        (
            Rejected(DropReason.NO_ENDPOINTS, "m"),
            (503, "rejected-no-endpoints", SERVICE, "rejected-no-endpoints"),
        ),
        (
            Rejected(DropReason.SATURATED, "m", retry_after_s=2),
            (429, "rejected-saturated", "rate_limit_error", "rejected-saturated", "2"),
        ),
        (AssertionError("a secret"), OURS),
        (EndpointError("10.0.0.1:80", "encode", "a secret", retryable=True), OURS),
    ],
)
@pytest.mark.parametrize("mode", BODY_MODES)
def test_each_kind_of_error_has_its_answer(play, mode, error, refusal):
    begin(play, mode)
    play >> play.body(b"{}")
    play.ask(b"{}")
    play.refuse(error)
    play << play.Refusal(*refusal)
    assert play.budget.held_bytes == 0


def test_the_error_has_openais_shape_and_tells_no_secret(playbook):
    play = playbook()
    begin(play)
    play.handler.receive(play.body(b"{}"), 0.0)
    (command,) = play.handler.refused(RequestError('say "hé"', param="messages"))
    answer = command.message.immediate_response
    assert answer.body.decode() == (
        '{"error":{"message":"say \\"hé\\"","type":"invalid_request_error",'
        '"param":"messages","code":"invalid_request_error"}}'
    )
    assert answer.details == "invalid_request_error"
    (command,) = playbook().handler.refused(KeyError("a secret"))
    assert b"secret" not in command.message.SerializeToString()


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RequestError("m"), 400, "invalid_request_error"),
        (RequestError("m", status=413, code="request_too_large"), 413, "request_too_large"),
        (Rejected(DropReason.SATURATED, "m", retry_after_s=2), 429, "rate_limit_error"),
        (Rejected(DropReason.NO_ENDPOINTS, "m"), 503, "overloaded_error"),
        (AssertionError("a secret"), 500, "api_error"),
    ],
)
@pytest.mark.parametrize(
    "options",
    [
        {"path": "/v1/messages"},
        {"path": "/v1/messages/count_tokens?beta=true"},
        {"path": "/rewritten", "extra": [("x-original-path", "/v1/messages/")]},
    ],
)
def test_an_anthropic_client_gets_anthropics_shape(playbook, options, error, status, kind):
    play = playbook()
    play.handler.receive(play.headers(**options), 0.0)
    (command,) = play.handler.refused(error)
    answer = command.message.immediate_response
    body = msgspec.json.decode(answer.body)
    message = "m" if status != 500 else "the router failed on this request; its log says why"
    assert body == {"type": "error", "error": {"type": kind, "message": message}}
    assert answer.status.code == status
    names = {each.header.key for each in answer.headers.set_headers}
    assert ("x-llm-d-request-dropped-reason" in names) is isinstance(error, Rejected)


@pytest.mark.parametrize("mode", BODY_MODES)
def test_a_refused_stream_gets_no_further_answer(play, mode):
    begin(play, mode)
    play >> play.body(b"{}")
    play.ask(b"{}")
    play.refuse(RequestError("no"))
    play << play.Refusal(400, "invalid_request_error", "invalid_request_error")
    play >> play.body(b"more")
    play >> play.trailers()
    play >> play.response_headers("400")
    assert not play.handler.ended_early(0.0)


class TestTooLarge:
    @pytest.mark.parametrize("mode", BODY_MODES)
    def test_by_content_length_before_a_byte_has_come(self, playbook, mode):
        play = playbook(per_body_bytes=100)
        play >> play.headers(mode, at_once=True, extra=[("content-length", "101")])
        play << play.Refusal(*TOO_LARGE)
        play.end()

    @pytest.mark.parametrize("mode", ["FULL_DUPLEX_STREAMED", "STREAMED"])
    def test_by_the_bytes_that_come(self, playbook, mode):
        play = playbook(per_body_bytes=100)
        begin(play, mode, extra=[("content-length", "7")])
        play >> play.body(b"x" * 60, end=False)
        assert play.budget.held_bytes == 60
        play >> play.body(b"x" * 41, end=False)
        play << play.Refusal(*TOO_LARGE)
        play >> play.body(b"x")
        play.end()

    def test_by_a_buffered_body(self, playbook):
        play = playbook(per_body_bytes=100)
        begin(play)
        play >> play.body(b"x" * 101)
        play << play.Refusal(*TOO_LARGE)
        play.end()

    def test_the_limit_itself_is_accepted(self, playbook):
        play = playbook(per_body_bytes=100)
        begin(play, extra=[("content-length", "100")])
        play >> play.body(b"x" * 100)
        play.ask(b"x" * 100)
        play.decide()
        play << play.Route("request_body", "10.0.0.1:80")
        play.end()

    @pytest.mark.parametrize("text", ["", "-5", "abc", "1e9", "٣", "9" * 20])
    def test_a_strange_content_length_says_nothing(self, playbook, text):
        play = playbook(per_body_bytes=100)
        begin(play, extra=[("content-length", text)])
        assert play.budget.held_bytes == 0
        play.end()


class TestBudget:
    def test_what_is_announced_is_charged_before_it_comes(self, playbook):
        play = playbook(limit_bytes=100)
        begin(play, extra=[("content-length", "60")])
        assert play.budget.held_bytes == 60
        play >> play.body(b"x" * 60)
        assert play.budget.held_bytes == 60
        play.ask(b"x" * 60)
        play.decide()
        play << play.Route("request_body", "10.0.0.1:80")
        assert play.budget.held_bytes == 0

    def test_a_full_budget_turns_away_at_the_headers(self, playbook):
        play = playbook(limit_bytes=100)
        assert play.budget.take(41)
        play >> play.headers(extra=[("content-length", "60")])
        play << play.Refusal(*NO_ROOM)
        assert play.budget.held_bytes == 41

    def test_a_full_budget_turns_away_while_bytes_come(self, playbook):
        play = playbook(limit_bytes=100)
        begin(play, "FULL_DUPLEX_STREAMED")
        play >> play.body(b"x" * 50, end=False)
        assert play.budget.take(30)
        play >> play.body(b"x" * 21, end=False)
        play << play.Refusal(*NO_ROOM)
        assert play.budget.held_bytes == 30

    def test_a_stream_that_breaks_off_gives_back(self, playbook):
        play = playbook()
        begin(play, "FULL_DUPLEX_STREAMED", extra=[("content-length", "1000")])
        play >> play.body(b"x" * 50, end=False)
        assert play.budget.held_bytes == 1000
        for _ in range(2):
            play.handler.drop()
            assert play.budget.held_bytes == 0

    def test_a_refusal_while_the_answer_is_awaited_gives_back(self, playbook):
        play = playbook()
        begin(play, "STREAMED", extra=[("content-length", "7")])
        play >> play.body(b"x" * 50)
        play.ask(b"x" * 50)
        assert play.budget.held_bytes == 50
        play.refuse(RequestError("no"))
        assert play.budget.held_bytes == 0

    def test_many_tiny_chunks_are_held_as_one_block(self, playbook):
        play = playbook()
        begin(play, "FULL_DUPLEX_STREAMED")
        for _ in range(5000):
            play >> play.body(b"xy", end=False)
        assert play.budget.held_bytes == 10_000
        play >> play.body(b"")
        play.ask(b"xy" * 5000)

    def test_it_never_gives_back_more_than_it_took(self, playbook):
        budget = playbook(limit_bytes=10).budget
        assert budget.take(10)
        assert not budget.take(1)
        budget.give(10)
        with pytest.raises(AssertionError, match="1 bytes given back of 0"):
            budget.give(1)
