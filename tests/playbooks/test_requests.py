"""What must leave for a request, in each body mode of the gateway."""

import hashlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

BODY = b'{"model":"m","messages":[]}'
EVERY_MODE = ["NONE", "STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED"]


class TestBuffered:
    @pytest.mark.parametrize("mode", ["BUFFERED", "BUFFERED_PARTIAL"])
    def test_headers_go_on_at_once_and_the_body_carries_the_destination(self, play, mode):
        play >> play.headers(mode)
        play << play.Continue("request_headers")
        play >> play.body(BODY)
        asked = play.ask(BODY)
        assert asked.headers == {":method": "POST", ":path": "/v1/chat/completions"}
        play.decide("10.0.0.1:80", "10.0.0.2:80")
        play << play.Route("request_body", "10.0.0.1:80,10.0.0.2:80")
        assert play.budget.held_bytes == 0

    def test_trailers_come_behind_a_body_that_did_not_say_that_it_ends(self, play):
        play >> play.headers()
        play << play.Continue("request_headers")
        play >> play.body(BODY, end=False)
        play.ask(BODY)
        play.decide()
        play << play.Route("request_body", "10.0.0.1:80")
        play >> play.trailers()
        play << play.Continue("request_trailers")

    def test_a_body_that_did_not_fit_the_gateway_is_routed_unread(self, play):
        play >> play.headers("BUFFERED_PARTIAL")
        play << play.Continue("request_headers")
        play >> play.body(BODY[:9], end=False)
        play.ask(None, guess="body-cut")
        play.decide()
        play << play.Route("request_body", "10.0.0.1:80")

    def test_a_gateway_that_says_nothing_of_its_modes_buffers(self, play):
        message = play.headers()
        message.ClearField("protocol_config")
        play >> message
        play << play.Continue("request_headers")
        play >> play.body(BODY)
        play.ask(BODY)
        play.decide()
        play << play.Route("request_body", "10.0.0.1:80")

    def test_further_headers_are_set_beside_the_destination(self, play):
        play >> play.headers()
        play << play.Continue("request_headers")
        play >> play.body(BODY)
        play.ask(BODY)
        play.decide("10.0.0.1:80", **{"x-tessera-encode-plan": "0=10.0.0.9:80"})
        play << play.Route("request_body", "10.0.0.1:80", extra=(("x-tessera-encode-plan", "0=10.0.0.9:80"),))


class TestFullDuplex:
    def test_nothing_leaves_before_the_body_is_complete(self, play):
        play >> play.headers("FULL_DUPLEX_STREAMED")
        play >> play.body(BODY[:5], end=False)
        play >> play.body(b"", end=False)
        play >> play.body(BODY[5:], end=False)
        play >> play.body(b"", end=True)
        play.ask(BODY)
        play.decide()
        play << play.Route("request_headers", "10.0.0.1:80")
        play << play.Piece("request_body", BODY, True)

    def test_trailers_end_the_body(self, play):
        play >> play.headers("FULL_DUPLEX_STREAMED")
        play >> play.body(BODY, end=False)
        play >> play.trailers()
        play.ask(BODY)
        play.decide()
        play << play.Route("request_headers", "10.0.0.1:80")
        play << play.Piece("request_body", BODY, False)
        play << play.Continue("request_trailers")

    def test_trailers_without_a_body(self, play):
        play >> play.headers("FULL_DUPLEX_STREAMED")
        play >> play.trailers()
        play.ask(b"")
        play.decide()
        play << play.Route("request_headers", "10.0.0.1:80")
        play << play.Piece("request_body", b"", False)
        play << play.Continue("request_trailers")

    def test_20_mb_are_handed_on_in_pieces_with_identical_bytes(self, playbook):
        block = hashlib.shake_128(b"tessera").digest(1 << 20)
        body = block * 20 + b"rest"
        play = playbook()
        play >> play.headers("FULL_DUPLEX_STREAMED", extra=[("content-length", str(len(body)))])
        for start in range(0, len(body), 65_536):
            play >> play.body(body[start : start + 65_536], end=start + 65_536 >= len(body))
        assert play.budget.held_bytes == len(body)
        assert play.ask(body).body == body
        play.decide()
        play << play.Route("request_headers", "10.0.0.1:80")
        pieces, play.left = play.left, []
        assert {piece.kind for piece in pieces} == {"request_body"}
        assert max(len(piece.body) for piece in pieces) == 62_000
        assert [piece.is_last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
        assert b"".join(piece.body for piece in pieces) == body
        play.end()

    @pytest.mark.parametrize(("size", "sizes"), [(61_999, [61_999]), (62_000, [62_000]), (62_001, [62_000, 1])])
    def test_pieces_at_their_limit(self, play, size, sizes):
        play >> play.headers("FULL_DUPLEX_STREAMED")
        play >> play.body(b"x" * size)
        play.ask(b"x" * size)
        play.decide()
        play << play.Route("request_headers", "10.0.0.1:80")
        for number, each in enumerate(sizes, 1):
            play << play.Piece("request_body", b"x" * each, number == len(sizes))


class TestStreamed:
    def test_a_body_that_does_not_wait_is_answered_chunk_by_chunk_behind_the_headers(self, play):
        play >> play.headers("STREAMED", at_once=True)
        play >> play.body(BODY[:5], end=False)
        play >> play.body(BODY[5:9], end=False)
        play >> play.body(BODY[9:])
        play.ask(BODY)
        play.decide()
        play << play.Route("request_headers", "10.0.0.1:80")
        for _ in range(3):
            play << play.Continue("request_body")

    def test_its_trailers_are_answered_last(self, play):
        play >> play.headers("STREAMED", at_once=True)
        play >> play.body(BODY, end=False)
        play >> play.trailers()
        play.ask(BODY)
        play.decide()
        play << play.Route("request_headers", "10.0.0.1:80")
        play << play.Continue("request_body")
        play << play.Continue("request_trailers")

    def test_a_body_that_waits_for_the_headers_answer_is_not_seen_in_time(self, play):
        play >> play.headers("STREAMED")
        play.ask(None, guess="body-not-sent")
        play.decide()
        play << play.Route("request_headers", "10.0.0.1:80")
        play >> play.body(BODY[:5], end=False)
        play << play.Continue("request_body")
        play >> play.body(BODY[5:])
        play << play.Continue("request_body")
        play >> play.trailers()
        play << play.Continue("request_trailers")


def test_a_gateway_that_sends_no_body(play):
    play >> play.headers("NONE")
    play.ask(None, guess="body-not-sent")
    play.decide()
    play << play.Route("request_headers", "10.0.0.1:80")


@pytest.mark.parametrize("mode", EVERY_MODE)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_headers_that_end_the_request_are_decided_at_once(play, mode, method):
    play >> play.headers(mode, "/v1/models", method=method, end=True)
    play.ask(b"")
    play.decide()
    play << play.Route("request_headers", "10.0.0.1:80")


@pytest.mark.parametrize("mode", EVERY_MODE)
@pytest.mark.parametrize(("path", "method"), [("/tokenize", "POST"), ("/v1/chat/completions", "PUT")])
def test_a_body_on_an_unknown_path_passes_unread(play, mode, path, method):
    play >> play.headers(mode, path, method=method, extra=[("content-length", "999999999999")])
    play.ask(b"")
    play.decide()
    play << play.Route("request_headers", "10.0.0.1:80")
    assert play.budget.held_bytes == 0
    if mode == "NONE":
        return
    for data, is_last in [(b"x" * 5, False), (b"y" * 62_001, True)]:
        play >> play.body(data, end=is_last)
        if mode != "FULL_DUPLEX_STREAMED":
            play << play.Continue("request_body")
        elif is_last:
            play << play.Piece("request_body", data[:62_000], False)
            play << play.Piece("request_body", data[62_000:], True)
        else:
            play << play.Piece("request_body", data, False)
    play >> play.trailers()
    play << play.Continue("request_trailers")


class TestHeaders:
    def test_names_are_in_lower_case_and_text_values_count(self, play):
        message = play.headers(extra=[("X-Mixed-Case", "ü")])
        message.request_headers.headers.headers.add(key="x-text", value="plain")
        message.request_headers.headers.headers.add(key="x-bytes", raw_value=b"\xff")
        play >> message
        play << play.Continue("request_headers")
        play >> play.body(BODY)
        asked = play.ask(BODY)
        assert asked.headers["x-mixed-case"] == "ü"
        assert asked.headers["x-text"] == "plain"
        assert asked.headers["x-bytes"] == "\ufffd"
        play.decide()
        play << play.Route("request_body", "10.0.0.1:80")

    @pytest.mark.parametrize("mode", ["BUFFERED", "FULL_DUPLEX_STREAMED", "NONE"])
    def test_client_copies_of_our_headers_are_removed(self, play, mode):
        forged = [
            ("x-gateway-destination-endpoint", "6.6.6.6:80"),
            ("X-Prefiller-Host-Port", "6.6.6.6:80"),
            ("x-encoder-hosts-ports", "6.6.6.6:80"),
            ("x-kv-cache-source-host-port", "6.6.6.6:80"),
            ("x-tessera-encode-plan", "0=6.6.6.6:80"),
            ("x-tessera-other", "1"),
            ("x-request-id", "stays"),
        ]
        play >> play.headers(mode, "/tokenize", extra=forged)
        play.ask(b"")
        play.decide("10.0.0.1:80", **{"x-tessera-encode-plan": "0=10.0.0.9:80"})
        removed = ("x-encoder-hosts-ports", "x-kv-cache-source-host-port", "x-prefiller-host-port", "x-tessera-other")
        extra = (("x-tessera-encode-plan", "0=10.0.0.9:80"),)
        play << play.Route("request_headers", "10.0.0.1:80", extra=extra, removed=removed)

    @pytest.mark.parametrize(
        ("subset", "expected"),
        [
            (["10.0.0.1:80", "10.0.0.2:80"], ("10.0.0.1:80", "10.0.0.2:80")),
            ("10.0.0.1:80, 10.0.0.2:80", ("10.0.0.1:80", "10.0.0.2:80")),
            ([], ()),
            ("", ()),
            (["10.0.0.1:80", 3, None, " "], ("10.0.0.1:80",)),
            (None, ()),
            (7, ()),
        ],
    )
    def test_the_gateways_subset(self, play, subset, expected):
        play >> play.headers("NONE", subset=subset)
        play.ask(None, guess="body-not-sent", subset=expected)
        play.decide()
        play << play.Route("request_headers", "10.0.0.1:80")

    def test_other_metadata_is_no_subset(self, play):
        message = play.headers("NONE")
        message.metadata_context.filter_metadata["envoy.lb"].update({"x-gateway-destination-endpoint-subset": "x"})
        message.metadata_context.filter_metadata["envoy.lb.subset_hint"].update({"other": "x"})
        play >> message
        play.ask(None, guess="body-not-sent", subset=None)
        play.decide()
        play << play.Route("request_headers", "10.0.0.1:80")


@given(
    body=st.binary(max_size=300),
    cuts=st.lists(st.integers(0, 300), max_size=8),
    mode=st.sampled_from(["FULL_DUPLEX_STREAMED", "STREAMED"]),
    ends_in_trailers=st.booleans(),
)
def test_a_body_cut_anywhere_asks_the_same(playbook, body, cuts, mode, ends_in_trailers):
    play = playbook()
    play >> play.headers(mode, at_once=True)
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    for number, (start, stop) in enumerate(pairwise(edges), 2):
        play >> play.body(body[start:stop], end=number == len(edges) and not ends_in_trailers)
    if ends_in_trailers:
        play >> play.trailers()
    play.ask(body)
    play.decide()
    play << play.Route("request_headers", "10.0.0.1:80")
    sent = b"".join(piece.body for piece in play.left if isinstance(piece, play.Piece))
    assert sent == (body if mode == "FULL_DUPLEX_STREAMED" else b"")
    play.left.clear()
    play.end()


def test_no_message_may_come_between_an_ask_and_its_answer(playbook):
    play = playbook()
    play >> play.headers("NONE")
    play.ask(None, guess="body-not-sent")
    with pytest.raises(AssertionError, match="before its predecessor's Ask"):
        play >> play.body(BODY)


def test_a_stream_that_is_only_observed_gets_no_answer(play):
    message = play.headers()
    message.observability_mode = True
    play >> message


def test_a_second_headers_message_is_passed_over(play):
    play >> play.headers()
    play << play.Continue("request_headers")
    play >> play.headers(path="/other")
    play >> play.body(BODY)
    assert play.ask(BODY).headers[":path"] == "/v1/chat/completions"
    play.decide()
    play << play.Route("request_body", "10.0.0.1:80")
