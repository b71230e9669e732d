import pytest

from tessera.core.headers import positive_number


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
