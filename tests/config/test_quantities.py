import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.config.quantities import quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("64Mi", 64 << 20),
        ("4Gi", 4 << 30),
        ("1G", 10**9),
        ("1.5Ki", 1536),
        ("0.1", 1),
        ("100m", 1),
        ("1000m", 1),
        ("1001m", 2),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("7Ei", 7 << 60),
        ("-1Ki", -1024),
        ("+5", 5),
        ("5.", 5),
        (".5k", 500),
    ],
)
def test_a_quantity_is_a_whole_number(text, number):
    assert quantity(text) == number


@pytest.mark.parametrize(
    "text", ["", "Mi", "4 GB", "4GB", "64mi", "1e999", "0x10", "٣", "1" * 65, "8Ei", "1e99", "--1", "1.2.3"]
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"^got "):
        quantity(text)


@given(st.text(st.sampled_from("0123456789.+-eEkKMGTPEim "), max_size=70))
def test_any_text_is_a_number_of_64_bits_or_refused(text):
    with contextlib.suppress(ValueError):
        assert abs(quantity(text)) < 1 << 63
