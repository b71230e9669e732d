"""What is read, what is read a second time, and what is refused."""

import contextlib
import json
import math

import msgspec
import pytest

from tessera.core.dialects.json_body import (
    MAX_MAPPING_CHARS,
    bounded_mapping,
    count_of,
    encoded,
    name_of,
    optional_text,
    read_json,
    text_of,
)
from tessera.core.errors import RequestError
from tessera.core.types import ModelProfile


class Simple(msgspec.Struct):
    """Fields as the dialects have them."""

    tools: msgspec.Raw = msgspec.Raw()
    n: object = None
    s: object = None


def read(body, **limits):
    return read_json(body, Simple, ModelProfile(**limits))


def test_what_msgspec_reads_is_read_once_and_left_raw():
    value, guesses = read(b'{"tools": [1,  2], "n": 3, "unknown": {"deep": [null]}}')
    assert (bytes(value.tools), value.n, guesses) == (b"[1,  2]", 3, [])


@pytest.mark.parametrize(
    ("body", "n"),
    [(b'{"n":1,"n":2}', 2), (b'{"x":NaN,"x":1,"n":1,"n":2}', 2)],
)
def test_of_a_repeated_key_the_last_counts(body, n):
    assert read(body)[0].n == n


@pytest.mark.parametrize(
    ("body", "s"),
    [
        (b'{"s":"a","n":NaN}', "a"),
        (b'{"s":"a","n":-Infinity}', "a"),
        (b'{"s":"a","n":1e999}', "a"),
        (b'{"s":"\\ud800"}', "\ud800"),
        (b'{"s":"\xed\xa0\x80"}', "\ud800"),
        ('{"s":"ü"}'.encode("utf-8-sig"), "ü"),
        ('{"s":"ü"}'.encode("utf-16"), "ü"),
        ('{"s":"plain"}'.encode("utf-16-le"), "plain"),
        ('{"s":"ü"}'.encode("utf-32-be"), "ü"),
    ],
)
def test_what_only_python_reads_is_read_again_and_marked(body, s):
    value, guesses = read(body)
    assert (value.s, guesses) == (s, ["body-reread"])


def test_raw_fields_survive_the_second_reading():
    value, _ = read(b'{"tools":[{"a":"\\ud800"}],"n":NaN}')
    assert json.loads(bytes(value.tools)) == [{"a": "\ud800"}]
    assert math.isnan(value.n)


@pytest.mark.parametrize("body", [b'{"s":"\\/"}', b'{"s":"/"}', b'{"s":"\\u002f"}'])
def test_three_spellings_of_a_slash(body):
    assert read(body)[0].s == "/"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"{'a':1}", "not valid JSON"),
        (b'{"a":1} x', "not valid JSON"),
        (b'{"a":"\x01"}', "not valid JSON"),
        (b'{"n":' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"s":"\xff"}', "not valid UTF-8: invalid start byte at byte 6"),
        (b'{"s":"\xc3"}', "not valid UTF-8"),
        (b'{"never looked at":"\xff"}', "not valid UTF-8"),
        (b'{"tools":["\xff"]}', "not valid UTF-8"),
        (b"[]", "JSON array, expected an object"),
        (b'[{"n":1}]', "JSON array, expected an object"),
        (b'"text"', "JSON string, expected an object"),
        (b"3", "JSON number, expected an object"),
        (b"-1.5e3", "JSON number, expected an object"),
        (b"true", "JSON boolean, expected an object"),
        (b"null", "JSON null, expected an object"),
        (b"NaN", "JSON number, expected an object"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"tools":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    ],
)
def test_what_no_engine_could_read_is_a_400(body, message):
    with pytest.raises(RequestError, match=message) as caught:
        read(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_request_error")


def test_a_message_holds_nothing_of_the_body():
    with pytest.raises(RequestError) as caught:
        read(b'{"secret prompt": "my text"')
    assert "secret" not in caught.value.message
    assert "my text" not in caught.value.message


@pytest.mark.parametrize(
    ("filler", "limits"),
    [("[]", {"max_structure": 400_001}), ("{}", {"max_structure": 400_001}), ("0", {"max_values": 399_998})],
)
def test_too_many_values_are_a_413(filler, limits):
    body = ('{"x":[' + ",".join([filler] * 400_000) + "]}").encode() + b" " * (1 << 20)
    with pytest.raises(RequestError, match="send fewer values") as caught:
        read(body, **limits)
    assert (caught.value.status, caught.value.code) == (413, "request_too_large")
    read(body, **{name: limit + 1 for name, limit in limits.items()})


def test_a_small_body_is_not_counted():
    assert read(b'{"s":' + b"[" * 10 + b"]" * 10 + b"}", max_structure=1, max_values=0)[1] == []


def test_what_could_just_be_read_may_be_too_deep_to_write():
    depth = 100
    while True:
        value = None
        try:
            value = msgspec.json.decode(b"[" * depth + b"]" * depth)
        except RecursionError:
            break
        with contextlib.suppress(RequestError):
            assert encoded(value).count("[") == depth
        depth += 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1),
        (0, None),
        (-1, None),
        (True, None),
        (1.0, None),
        ("1", None),
        (None, None),
        (1 << 31, 1 << 31),
        (1 << 32, None),
    ],
)
def test_a_count_is_a_positive_whole_number(value, expected):
    assert count_of(value) == expected


def test_texts_and_names():
    assert [text_of(value) for value in ("a", None, 3, ["a"], "")] == ["a", "", "", "", ""]
    assert [optional_text(value) for value in ("a", None, 3, "", "x" * 1024, "x" * 1025)] == [
        "a", None, None, None, "x" * 1024, None,
    ]  # fmt: skip
    assert name_of("x" * 2000) == "x" * 1024
    assert (name_of("a\ud800b"), optional_text("\udfff"), name_of("ü\0")) == ("a?b", "?", "ü\0")


class TestBoundedMapping:
    def test_keeps_scalars_and_shallow_values(self):
        kwargs = {"min_pixels": 1, "size": {"shortest_edge": 9}, "f": 0.5, "b": True, "z": None, "m": [[1, 2], [3]]}
        assert bounded_mapping(kwargs) == kwargs

    @pytest.mark.parametrize("value", [None, 3, "text", [1], True])
    def test_is_empty_for_what_is_no_object(self, value):
        assert bounded_mapping(value) == {}

    @pytest.mark.parametrize(
        "hostile",
        [
            "x" * 10_000,
            list(range(65)),
            [[["too deep"]]],
            [["x" * 200] * 60] * 60,
            {"y" * 10_000: 1},
            {"a": {"y" * 10_000: 1}},
            [10**4000] * 3,
            dict.fromkeys(map(str, range(65))),
        ],
    )
    def test_leaves_out_what_is_large(self, hostile):
        assert bounded_mapping({"before": 1, "hostile": hostile, "after": 2}) == {"before": 1, "after": 2}

    def test_is_bounded_as_a_whole(self):
        kept = bounded_mapping({f"k{n}": "x" * 1000 for n in range(64)})
        assert 1 <= len(kept) <= 8
        assert len(json.dumps(kept)) <= 2 * MAX_MAPPING_CHARS
        assert len(bounded_mapping({f"k{n}": n for n in range(1000)})) == 64
        assert bounded_mapping({"y" * 10_000: 1}) == {}
