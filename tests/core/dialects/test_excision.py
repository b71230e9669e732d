"""Is a body read the same whether its long strings are cut out or not?"""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.core.dialects.chat import ChatBody
from tessera.core.dialects.excision import MIN_BODY_BYTES, MIN_BYTES, Excised
from tessera.core.dialects.json_body import read_json
from tessera.core.errors import RequestError
from tessera.core.types import ModelProfile

LONG = "data:image/png;base64," + "QUJD" * (MIN_BYTES // 3)
PADDING = {"padding": "x" * MIN_BODY_BYTES}
"""What makes a body large enough to be cut."""


def read(body: bytes) -> ChatBody:
    return read_json(body, ChatBody, ModelProfile())[0]


def plainly(body: bytes) -> ChatBody:
    return msgspec.json.decode(body, type=ChatBody)


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": LONG}}]}],
        [{"role": "user", "content": LONG}],
        [{"role": "user", "content": f'he said "{LONG}" and "{LONG}'}],
        [{"role": "user", "content": LONG + '\\" \\ "data:' + "x" * MIN_BYTES}],
        [{LONG: LONG, "a": [LONG, LONG + "/" * MIN_BYTES]}],
        [{"content": "data:short"}, {"content": "data:" + "y" * MIN_BYTES + "\u00e9"}],
        LONG,
    ],
)
@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_the_same_values_come_out(messages, ensure_ascii) -> None:
    fields = {"model": "m", "messages": messages, "tools": [{"a": LONG}], **PADDING}
    body = json.dumps(fields, ensure_ascii=ensure_ascii).encode()
    ours, theirs = read(body), plainly(body)
    assert ours.messages == theirs.messages
    assert bytes(ours.tools) == bytes(theirs.tools)


def test_long_strings_are_cut_out_and_escaped_ones_are_not() -> None:
    body = json.dumps({"messages": [LONG, LONG.replace("/", "\\/")], **PADDING}).encode()
    excised = Excised(body, 8)
    assert excised.num_segments == 1
    assert len(excised.rest) < len(body) - len(LONG) + 100
    many = json.dumps([LONG] * 5 + [PADDING]).encode()
    assert Excised(json.dumps([LONG]).encode(), 3).num_segments == 0
    assert Excised(many, 3).num_segments == 3


def test_a_stand_in_cannot_be_forged() -> None:
    forged = json.dumps({"messages": ["data:,00000000000000000000000000000000-0", LONG], **PADDING}).encode()
    assert read(forged).messages == plainly(forged).messages


def test_a_cut_body_is_refused_as_ever() -> None:
    body = json.dumps({**PADDING, "messages": [LONG]}).encode()
    for cut in (len(body) - 1, len(body) - 4, MIN_BYTES, 30):
        with pytest.raises(RequestError):
            read(body[:cut])


def test_a_string_that_is_not_utf8_is_refused() -> None:
    body = b'{"messages": ["data:' + b"a" * MIN_BODY_BYTES + b"\xff" + b'"]}'
    with pytest.raises(RequestError, match="UTF-8"):
        read(body)


@given(st.lists(st.text('"\\/datx:,{}[]é\n', max_size=12), max_size=8), st.integers(0, 7))
def test_odd_texts_around_a_long_string(texts, place) -> None:
    texts = [*texts[:place], LONG, *texts[place:]]
    for ensure_ascii in (True, False):
        body = json.dumps({"messages": ["".join(texts), texts], **PADDING}, ensure_ascii=ensure_ascii).encode()
        assert read(body).messages == plainly(body).messages


def test_lengths_and_contents_are_those_of_the_strings_that_were_cut_out():
    long, longer = (f"data:{letter * length}" for letter, length in (("x", 300 << 10), ("y", 400 << 10)))
    body = json.dumps({"a": [long, longer, long], "b": "data:short"}).encode()
    excised = Excised(body, 10)
    assert excised.num_segments == 3
    assert excised.length_of(excised.rest) == len(body)
    assert excised.restore_raw(excised.rest) == body
    assert excised.length_of(b'"data:short"') == 12
    stand_ins = json.loads(excised.rest)["a"]
    assert [excised.content_of(each) for each in stand_ins] == [long.encode(), longer.encode(), long.encode()]
    assert excised.content_of("data:\u00e9") == "data:\u00e9".encode()
