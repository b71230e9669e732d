import pytest

from tessera.core.headers import KEPT_HEADERS, positive_number, why_not_kept, why_not_written


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10", 10.0), ("0.5", 0.5), ("1e1", 10.0), ("10.1", None), ("0", None), ("-1", None), ("", None),
        ("inf", None), ("-inf", None), ("nan", None), ("1e999", None), ("1e12", None), ("ten", None), (None, None),
        ("5" * 33, None), ("0." + "0" * 30 + "1", None),
    ],
)  # fmt: skip
def test_a_number_within_bounds_or_nothing(text, expected):
    assert positive_number(text, largest=10.0) == expected


@pytest.mark.parametrize("name", [*sorted(KEPT_HEADERS), "x-tenant", "X-User.Tier_2", "traceparent", "a" * 128])
def test_a_header_that_may_be_kept(name):
    assert why_not_kept(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "authorization", "Proxy-Authorization", "cookie", "Set-Cookie", "x-api-key", "X-Goog-Api-Key", "x-apikey",
        "x-auth-token", "X-Amz-Security-Token", "x-client-secret", "x-password", "x-forwarded-client-cert",
    ],
)  # fmt: skip
def test_what_opens_a_door_may_not(name):
    assert why_not_kept(name) == (
        f"{name} carries credentials, and Tessera keeps none; name a header that says no more than it must"
    )


@pytest.mark.parametrize("name", ["", ":path", "a b", "x:y", "é", "x\n", "a" * 129])
def test_what_is_no_header_may_neither_be_kept_nor_written(name):
    assert why_not_kept(name) == why_not_written(name) == f"got {name[:64]!r}, expected the name of a header"


def test_an_answer_s_own_headers_may_not_be_written():
    for name in ("Content-Length", "content-type", "Transfer-Encoding", "connection", "Set-Cookie", "retry-after"):
        assert why_not_written(name) == f"{name} tells clients how to read the answer; name a header of its own"
    assert [why_not_written(name) for name in ("x-session-token", "X-Endpoint", "authorization")] == [None] * 3
