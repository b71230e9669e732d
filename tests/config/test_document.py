import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tessera.config import yaml_tree
from tessera.config.document import MAX_BYTES, MAX_PROBLEMS, check, dump, parse, read_file
from tessera.core.errors import ConfigError, Problem

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
words = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    [
        "yes",
        "1e3",
        "0x1F",
        "1:30",
        "<<",
        "~",
        "2026-01-01",
        ".inf",
        "- a",
        "a: b",
        "#",
        "|",
        "0o7",
        "007",
        "",
        "\x85",
        "=",
    ]
)
trees = st.recursive(
    scalars | words, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4)
)


def problems_of(text: str) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: yes", True),
        ("a: Off", False),
        ("a: 017", 15),
        ("a: 0o17", 15),
        ("a: 1_000", 1000),
        ("a: -0x10", -16),
        ("a: 1e3", 1000.0),
        ("a: .5", 0.5),
        ("a: 09", 9.0),
        ("a: 1:30", "1:30"),
        ("a: 2026-01-01", "2026-01-01"),
        ("a: '1'", "1"),
        ("a: !!str 5", "5"),
        ("a: 0x_", "0x_"),
        ("a:", None),
        ("a: |\n  x\n  y\n", "x\ny\n"),
        ('{"a":\t1}', 1),
        ('{"a": "\\ud83d\\ude00\\/"}', "😀/"),
        ("x: &x {k: 1}\na: {<<: *x, l: 2}", {"k": 1, "l": 2}),
        ("x: &x {k: 1}\na: {k: 3, <<: *x}", {"k": 3}),
        ("x: &x {k: 1}\na: {<<: *x, k: 3}", {"k": 3}),
        ("x: &x {k: 1}\ny: &y {k: 2, m: 3}\na: {<<: [*x, *y]}", {"k": 1, "m": 3}),
        ('a: {"<<": 1}', {"<<": 1}),
    ],
)
def test_scalars_mean_what_they_mean_to_llm_d(text, value):
    assert parse(text)["a"] == value


def test_keys_are_text_as_written():
    assert parse("1: a\ntrue: b\n~: c") == {"1": "a", "true": "b", "~": "c"}


def test_a_key_that_stands_twice_is_told_with_its_path():
    assert problems_of("a: {b: [{c: 1, c: 2}]}\nd: 1\nd: 2") == [
        Problem("a.b[0].c", "key stands twice"),
        Problem("d", "key stands twice"),
    ]


def test_a_key_that_stands_twice_in_json_that_yaml_cannot_read():
    assert problems_of('{"a":\t1, "b": "\\ud83d\\ude00", "a": 2}') == [Problem("a", "key stands twice")]


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("a: [1", "", "not YAML at line 2, column 1: did not find expected ',' or ']'"),
        ("a: *b", "", "not YAML at line 1, column 4: no anchor &b"),
        ("a: 1\n---\nb: 2", "", "more than one document, expected one; remove what follows '---'"),
        ("? [a]\n: 1", "", "a key is a list or a mapping, expected text"),
        ("a: {<<: 3}", "a", "<< takes an alias of a mapping, or a list of them"),
        ("a: !!python/name:os.system x", "a", "tag tag:yaml.org,2002:python/name:os.system is not allowed"),
        ("a: [.nan]", "a[0]", "got nan, expected a finite number"),
        ("a: 1e999", "a", "got inf, expected a finite number"),
        ("a: 99999999999999999999", "a", "got a number of more than 64 bits"),
        ('{"a": "\\ud83d"}', "a", "got text with half a surrogate pair, expected Unicode"),
    ],
)
def test_refusals_name_the_place(text, path, message):
    assert problems_of(text) == [Problem(path, message)]


def test_a_document_of_exactly_the_limit_is_read():
    text = "a: 1 #"
    assert parse(text + "x" * (MAX_BYTES - len(text))) == {"a": 1}
    assert problems_of(text + "x" * (MAX_BYTES - len(text) + 1)) == [
        Problem("", "the document is larger than 1048576 bytes")
    ]


def test_the_limit_counts_bytes():
    assert problems_of("a: " + "é" * (MAX_BYTES // 2))[0].message == "the document is larger than 1048576 bytes"


@pytest.mark.parametrize("opening", ["[", "{", "- "])
def test_deep_nesting_is_refused(opening):
    with pytest.raises(ConfigError, match=r"nested deeper than 32 levels|nesting depth|not allowed"):
        parse(opening * 100_000)


def test_depth_counts_every_level():
    assert parse("[" * 31 + "1" + "]" * 31) is not None
    assert "nested deeper than 32" in problems_of("[" * 32 + "1" + "]" * 32)[0].message


def test_deep_json_is_refused():
    assert "ne" in problems_of('{"\\ud83d\\ude00":' + '{"a":' * 100_000)[0].message


def test_a_bomb_of_aliases_is_refused():
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 20)]
    assert problems_of("\n".join(lines)) == [Problem("", yaml_tree.TOO_MANY)]


def test_a_bomb_of_merges_is_refused():
    keys = ", ".join(f"k{i}: 1" for i in range(1000))
    assert problems_of(f"a: &a {{{keys}}}\nb: [{', '.join(['{<<: *a}'] * 1000)}]") == [Problem("", yaml_tree.TOO_MANY)]


def test_a_list_that_holds_itself_is_refused():
    assert "nested deeper" in problems_of("&a [*a]")[0].message


def test_too_many_values_are_refused():
    assert problems_of("[" + "1," * 200_001 + "1]") == [Problem("", yaml_tree.TOO_MANY)]
    assert problems_of("[" + "1," * 100_000 + "1]") == [Problem("", yaml_tree.TOO_MANY)]


def test_problems_are_bounded():
    assert len(problems_of("\n".join(["a: 1"] * 1000))) == MAX_PROBLEMS


@pytest.mark.parametrize(
    "value", [{1: 2}, {"a": {1, 2}}, [b"x"], {"a": object()}, float("inf"), "\ud800", {"\udfff": 1}]
)
def test_only_plain_data_is_looked_at(value):
    with pytest.raises(ConfigError):
        check(value)


def test_a_file_that_cannot_be_read_is_the_operator_s_business(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file or directory"):
        read_file(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match=r"cannot read .*: Is a directory"):
        read_file(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    with pytest.raises(ConfigError, match="is not UTF-8: byte 3 is 0xe9"):
        read_file(tmp_path / "latin.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="is larger than 1048576 bytes"):
        read_file(tmp_path / "large.yaml")


def test_a_byte_order_mark_is_skipped(tmp_path: Path):
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfa: 1")
    assert parse(read_file(tmp_path / "a.yaml")) == {"a": 1}


@given(trees)
@settings(deadline=None)
def test_what_is_dumped_is_read_again(tree):
    assert parse(dump(tree)) == tree


@given(trees)
@example("a\x85\u2028b")
@settings(deadline=None)
def test_json_is_read_as_itself(tree):
    document = {"a": tree}
    assert parse(json.dumps(document)) == document
    assert parse(json.dumps(document, ensure_ascii=False)) == document


@given(st.text() | st.text(st.sampled_from("{}[]:,-?&*!|>'\"%@` \n\tabc<~#1")))
@settings(deadline=None)
def test_any_text_is_data_or_a_config_error(text):
    with contextlib.suppress(ConfigError):
        check(parse(text))
