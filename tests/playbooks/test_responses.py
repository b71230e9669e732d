"""What must leave for a response: every phase is answered, whatever the gateway chooses to send."""

import pytest

MODES = ["NONE", "STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED"]


def routed(play, response_mode="NONE", request_mode="BUFFERED"):
    play >> play.headers(request_mode, "/tokenize", end=True, response_mode=response_mode)
    play.ask(b"")
    play.decide()
    play << play.Route("request_headers", "10.0.0.1:80")
    return play


@pytest.mark.parametrize("request_mode", MODES)
@pytest.mark.parametrize("response_mode", MODES)
def test_headers_and_trailers_in_every_mode(play, request_mode, response_mode):
    routed(play, response_mode, request_mode)
    play >> play.response_headers("200")
    play << play.ResponseHeaders(200)
    play.respond()
    play << play.Continue("response_headers")
    play >> play.response_trailers()
    play << play.Continue("response_trailers")


@pytest.mark.parametrize("response_mode", ["STREAMED", "BUFFERED", "BUFFERED_PARTIAL"])
def test_a_body_is_let_through_and_its_first_bytes_are_told_once(play, response_mode):
    routed(play, response_mode)
    play >> play.response_body(b"")
    play << play.Continue("response_body")
    play >> play.response_body(b"data: 1\n\n")
    play << play.ResponseBegan()
    play << play.Continue("response_body")
    play >> play.response_body(b"data: 2\n\n", end=True)
    play << play.Continue("response_body")


def test_a_full_duplex_body_is_handed_on_in_pieces(play):
    routed(play, "FULL_DUPLEX_STREAMED")
    play >> play.response_body(b"x" * 62_001)
    play << play.ResponseBegan()
    play << play.Piece("response_body", b"x" * 62_000, False)
    play << play.Piece("response_body", b"x", False)
    play >> play.response_body(b"y" * 62_001, end=True)
    play << play.Piece("response_body", b"y" * 62_000, False)
    play << play.Piece("response_body", b"y", True)


def test_a_full_duplex_body_that_ends_empty(play):
    routed(play, "FULL_DUPLEX_STREAMED")
    play >> play.response_body(b"", end=True)
    play << play.Piece("response_body", b"", True)


@pytest.mark.parametrize("request_mode", MODES)
def test_headers_may_be_added_in_every_mode(play, request_mode):
    play >> play.headers(request_mode, at_once=True)
    play.left.clear()
    if request_mode != "NONE":
        play >> play.body(b"{}")
        play.left.clear()
    play.decide("10.0.0.1:80", "10.0.0.2:80")
    play.left.clear()
    play >> play.response_headers(metadata={SERVED: "10.0.0.2:80"})
    play << play.ResponseHeaders(200, "10.0.0.2:80")
    play.respond(**{"x-session-token": "dA=="})
    play << play.Added((("x-session-token", "dA=="),))


SERVED = "x-gateway-destination-endpoint-served"
ADDRESS = "upstream.address"


@pytest.mark.parametrize(
    ("told", "served"),
    [
        ({}, None),
        ({"metadata": {SERVED: "10.0.0.2:80"}}, "10.0.0.2:80"),
        ({"metadata": {SERVED: "[::1]:80"}, "attributes": {ADDRESS: "10.0.0.1:80"}}, "[::1]:80"),
        ({"metadata": {"x-gateway-destination-endpoint": "10.0.0.1:80"}, "attributes": {ADDRESS: "a:1"}}, "a:1"),
        ({"metadata": {SERVED: 7.0}, "attributes": {ADDRESS: ""}}, None),
    ],
)
def test_who_served_as_far_as_the_gateway_says(play, told, served):
    routed(play)
    play >> play.response_headers("404", **told)
    play << play.ResponseHeaders(404, served)
    play.respond()
    play << play.Continue("response_headers")


@pytest.mark.parametrize(
    ("text", "status"), [("503", 503), ("200", 200), ("", None), ("abc", None), ("²", None), ("2" * 5000, None)]
)
@pytest.mark.parametrize("as_text", [True, False])
def test_the_status(play, text, status, as_text):
    routed(play)
    play >> play.response_headers(text, as_text=as_text)
    play << play.ResponseHeaders(status)
    play.respond()
    play << play.Continue("response_headers")


def test_a_response_without_status_or_request(play):
    """A gateway's own answer passes here too, before any body has come."""
    play >> play.headers()
    play << play.Continue("request_headers")
    message = play.response_headers()
    message.response_headers.headers.headers[0].key = "server"
    play >> message
    play << play.ResponseHeaders(None)
    play.respond()
    play << play.Continue("response_headers")


EARLY = [
    # mode, response phase seen, seconds after the last body answer, early?
    ("FULL_DUPLEX_STREAMED", False, 0.0, True),
    ("FULL_DUPLEX_STREAMED", False, 0.999, True),
    ("FULL_DUPLEX_STREAMED", False, 1.0, False),
    ("FULL_DUPLEX_STREAMED", True, 0.0, False),
    ("BUFFERED", False, 0.0, False),
    ("BUFFERED", True, 0.0, False),
    ("STREAMED", False, 0.0, False),
    ("BUFFERED_PARTIAL", False, 0.0, False),
]


@pytest.mark.parametrize(("mode", "saw_response", "after_s", "is_early"), EARLY)
def test_when_a_stream_has_ended_too_early_to_be_the_end(playbook, mode, saw_response, after_s, is_early):
    play = playbook()
    play.at = 5.0
    play >> play.headers(mode, at_once=True)
    play.left.clear()
    play >> play.body(b"{}")
    play.ask(b"{}")
    play.at = 10.0
    play.decide()
    play.left.clear()
    if saw_response:
        play >> play.response_headers()
    assert play.handler.ended_early(10.0 + after_s) is is_early


def test_a_stream_without_body_answer_is_never_early(playbook):
    play = playbook()
    play >> play.headers("FULL_DUPLEX_STREAMED", end=True)
    assert not play.handler.ended_early(0.0)
    play.ask(b"")
    play.decide()
    assert not play.handler.ended_early(0.0)


def test_a_body_that_passes_unread_is_a_body_answer(playbook):
    play = playbook()
    play >> play.headers("FULL_DUPLEX_STREAMED", "/tokenize")
    play.ask(b"")
    play.decide()
    play.left.clear()
    play.at = 3.0
    play >> play.body(b"x")
    assert play.handler.ended_early(3.5)
    assert not play.handler.ended_early(4.0)
