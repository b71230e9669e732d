"""Are boxes found where they lie, and nowhere else?"""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.core.media.boxes import Box, boxes
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.window import MAX_STEPS, Window

Open = Callable[..., Window]


def box(kind: bytes, payload: bytes = b"") -> bytes:
    return struct.pack(">I", 8 + len(payload)) + kind + payload


def refusal(window: Window, start: int, end: int) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        list(boxes(window, start, end))
    return gave_up.value.reason


def test_short_and_long_heads(window_of: Open) -> None:
    content = box(b"aaaa", b"12345") + struct.pack(">I4sQ", 1, b"bbbb", 18) + b"67" + box(b"cccc")
    found = list(boxes(window_of(content), 0, len(content)))
    assert found == [Box(b"aaaa", 8, 13), Box(b"bbbb", 29, 31), Box(b"cccc", 39, 39)]


def test_a_length_of_zero_reaches_to_the_end(window_of: Open) -> None:
    window = window_of(b"xx" + box(b"aaaa") + b"\0\0\0\0bbbb" + bytes(10) + b"yy")
    assert list(boxes(window, 2, 28)) == [Box(b"aaaa", 10, 10), Box(b"bbbb", 18, 28)]


def test_nothing_lies_in_nothing(window_of: Open) -> None:
    assert list(boxes(window_of(b"abc"), 1, 1)) == []
    assert list(boxes(window_of(b""), 0, 0)) == []


def test_a_box_beyond_the_content_is_seen_and_then_missed(window_of: Open) -> None:
    window = window_of(struct.pack(">I", 100) + b"mdat1234")
    walk = boxes(window, 0, window.num_bytes)
    assert next(walk) == Box(b"mdat", 8, 100)
    with pytest.raises(Unsized) as gave_up:
        next(walk)
    assert gave_up.value.reason is Reason.TRUNCATED_HEADER


def test_damage(window_of: Open) -> None:
    for head in (b"\0\0\0\2aaaa", b"\0\0\0\7aaaa", struct.pack(">I4sQ", 1, b"aaaa", 15)):
        assert refusal(window_of(head + bytes(50)), 0, 40) is Reason.BAD_HEADER
    assert refusal(window_of(struct.pack(">I", 41) + b"aaaa" + bytes(50)), 0, 40) is Reason.BAD_HEADER
    assert refusal(window_of(struct.pack(">I4sQ", 1, b"aaaa", 2**63) + bytes(50)), 0, 40) is Reason.BAD_HEADER
    for cut in range(8):
        assert refusal(window_of(box(b"aaaa")[:cut]), 0, 8) is Reason.TRUNCATED_HEADER


def test_endless_boxes_end_at_the_step_limit(window_of: Open) -> None:
    content = box(b"free") * 10_000
    window = window_of(content)
    assert refusal(window, 0, len(content)) is Reason.HEADER_LIMIT
    assert window.num_steps == MAX_STEPS
    assert window.bytes_read == 8 * MAX_STEPS


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=120), start=st.integers(0, 20), end=st.integers(0, 140))
def test_a_walk_goes_forward_or_gives_up(content: bytes, start: int, end: int) -> None:
    window, at = Window(content), start
    try:
        for found in boxes(window, start, end):
            assert at + 8 <= found.start <= found.end
            at = found.end
    except Unsized:
        pass
