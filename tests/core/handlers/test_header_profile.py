import pytest

from tessera.core.errors import RequestError
from tessera.core.handlers.header_profile import HeaderProfileHandler

NAMES = ("encode", "prefill", "decode")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [({}, "decode"), ({"epp-profile": "encode"}, "encode"), ({"epp-profile": " prefill "}, "prefill")],
)
def test_the_profile_that_the_header_names(build, headers, expected):
    handler, request = HeaderProfileHandler(), build.priced(headers=headers)
    assert handler.primary(request, NAMES) == handler.next_profile(request, NAMES, {}) == expected
    done = {expected: build.stage([build.candidate()], profile=expected)}
    assert handler.next_profile(request, NAMES, done) is None
    assert handler.work_of(expected) is None


def test_the_only_profile_whatever_the_header_says(build):
    assert HeaderProfileHandler().primary(build.priced(headers={"epp-profile": "nope"}), ("only",)) == "only"


def test_a_name_that_is_no_profile_is_refused(build):
    handler = HeaderProfileHandler(header_name="X-Stage")
    assert list(handler.headers_read()) == [("headerName", "X-Stage")]
    with pytest.raises(RequestError, match="header X-Stage names the profile 'e', expected one of decode, encode, pr"):
        handler.primary(build.priced(headers={"x-stage": "e"}), NAMES)


def test_the_default_must_be_there():
    assert list(HeaderProfileHandler().check_profiles(NAMES)) == []
    ((path, message),) = HeaderProfileHandler(default_profile="d").check_profiles(NAMES)
    assert (path, message.startswith("got 'd', which is no profile")) == ("defaultProfile", True)
