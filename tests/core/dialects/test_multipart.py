"""Which forms are read, which are refused, and how far a hostile one is followed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.core.dialects.multipart import MAX_HEAD_BYTES, MAX_PARTS, boundary_of, form_parts
from tessera.core.errors import RequestError


def form(*parts, boundary=b"b", end=b"--b--\r\n"):
    """Each part as its headers and its content."""
    return b"".join(b"--" + boundary + b"\r\n" + head + b"\r\n\r\n" + body + b"\r\n" for head, body in parts) + end


def head(name, *more):
    return b"\r\n".join([b'Content-Disposition: form-data; name="' + name + b'"', *more])


def read(body, boundary=b"b"):
    return [(part.name, bytes(part.content)) for part in form_parts(body, boundary)]


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=b", b"b"),
        ('Multipart/Form-Data ; charset=utf-8; Boundary="a b:c"', b"a b:c"),
        ("multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxk", b"----WebKitFormBoundary7MA4YWxk"),
        ('multipart/form-data; x="; boundary=no"; boundary=yes', b"yes"),
        ("multipart/form-data; boundary=first; boundary=second", b"first"),
        ("multipart/form-data", None),
        ("multipart/form-data; boundary=", None),
        ('multipart/form-data; boundary=""', None),
        ("multipart/form-data; boundary=" + "b" * 71, None),
        ('multipart/form-data; boundary="b\r\nc"', None),
        ("multipart/form-data; boundary=é", None),
        ("multipart/mixed; boundary=b", None),
        ("application/json; boundary=b", None),
        ("", None),
    ],
)
def test_the_boundary_stands_in_the_content_type(content_type, boundary):
    assert boundary_of(content_type) == boundary


def test_fields_and_files_in_order():
    body = form(
        (head(b"model"), b"whisper"),
        (
            b'content-disposition:form-data;filename="name=x; name=y";  name=file\r\nCONTENT-TYPE: audio/wav; x=y',
            b"\0\xff\r\n",
        ),
        (head(b"empty"), b""),
    )
    assert read(body) == [("model", b"whisper"), ("file", b"\0\xff\r\n"), ("empty", b"")]
    assert [part.type for part in form_parts(body, b"b")] == [None, "audio/wav", None]


def test_a_files_bytes_are_not_copied():
    body = form((head(b"file"), b"x" * 1000))
    (part,) = form_parts(body, b"b")
    assert part.content.obj is body


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"--b--", []),
        (b"--b--\r\nepilogue --b\r\n", []),
        (b"preamble\r\n" + form((head(b"a"), b"1")), [("a", b"1")]),
        (b"\r\n" + form((head(b"a"), b"1")), [("a", b"1")]),
        (b"--bc\r\n" + form((head(b"a"), b"1")), [("a", b"1")]),
        (form((head(b"a"), b"\r\n--bc\r\n--b \r\n--b-")), [("a", b"\r\n--bc\r\n--b \r\n--b-")]),
        (form((b"X: y", b"nameless"), (b"", b""), (head(b"a"), b"1")), [("a", b"1")]),
        (form((b"", b"no headers")), []),
        (form((b'Content-Disposition: form-data; name="unclosed', b"1")), [("unclosed", b"1")]),
        (form((b"Content-Disposition: form-data; name=\xff", b"1")), [("\ufffd", b"1")]),
    ],
)
def test_forms_that_are_read(body, expected):
    assert read(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no form",
        b"--b",
        b"--b\r\n",
        b"--b-",
        b"--c\r\n" + head(b"a") + b"\r\n\r\n1\r\n--c--",
        b"--b\n" + head(b"a") + b"\n\n1\n--b--\n",
        form((head(b"a"), b"1"), end=b""),
        form((head(b"a"), b"1"), end=b"--b"),
        form((head(b"a"), b"1"), end=b"--b\r\n"),
        b"--b\r\nno end of headers\r\n--b--",
        form((head(b"a", b"X: " + b"y" * MAX_HEAD_BYTES), b"1")),
    ],
)
def test_forms_that_are_refused(body):
    with pytest.raises(RequestError, match="no multipart form") as caught:
        read(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_request_error")


def test_parts_are_bounded():
    parts = [(head(b"a"), b"")] * MAX_PARTS
    assert len(read(form(*parts))) == MAX_PARTS
    with pytest.raises(RequestError, match="more than 64 parts"):
        read(form(*parts, (b"", b"")))


def test_headers_are_bounded():
    padding = MAX_HEAD_BYTES - len(head(b"a", b"X: ")) - 2
    assert read(form((head(b"a", b"X: " + b"y" * padding), b"1"))) == [("a", b"1")]
    with pytest.raises(RequestError, match="within 8192 bytes"):
        read(form((head(b"a", b"X: " + b"y" * (padding + 3)), b"1")))


def test_separators_that_are_content_are_followed_to_a_number():
    with pytest.raises(RequestError, match="boundary is missing"):
        read(form((head(b"a"), b"\r\n--bx" * 100_000)))


def test_a_header_full_of_openings_is_looked_at_once():
    hostile = b';a="' * (MAX_HEAD_BYTES // 4 - 20)
    assert read(form((b"Content-Disposition: form-data" + hostile, b"1"))) == []
    assert boundary_of("multipart/form-data" + ';x="' * 10_000) is None


@settings(max_examples=200, deadline=None)
@given(
    parts=st.lists(st.tuples(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.binary(max_size=80)), max_size=5),
    boundary=st.from_regex(r"[A-Za-z0-9'()+_,./:=?-]{8,40}", fullmatch=True),
)
def test_what_is_written_is_read(parts, boundary):
    mark = boundary.encode()
    if any(mark in content for _, content in parts):
        return
    body = form(*((head(name.encode()), content) for name, content in parts), boundary=mark, end=b"--" + mark + b"--")
    assert read(body, mark) == [(name, content) for name, content in parts]
    assert boundary_of(f'multipart/form-data; boundary="{boundary}"') == mark


@settings(max_examples=200, deadline=None)
@given(
    pieces=st.lists(
        st.sampled_from(
            [b"--b", b"\r\n--b", b"\r\n", b"\r\n\r\n", b"--", b"-", b'Content-Disposition: form-data; name="a"']
        )
        | st.binary(max_size=6),
        max_size=30,
    )
)
def test_only_a_request_error_leaves(pieces):
    body = b"".join(pieces)
    try:
        parts = form_parts(body, b"b")
    except RequestError:
        return
    assert sum(len(part.content) for part in parts) <= len(body)
