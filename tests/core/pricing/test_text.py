import pytest

from tessera.core.parts import TextPart, TokenPart
from tessera.core.pricing.text import num_text_tokens
from tessera.core.types import Basis


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ((), 0),
        ([[0]], 0),
        ([[1]], 1),
        ([[4]], 1),
        ([[5]], 2),
        ([[3, 5]], 2),
        ([[3, "media", 5]], 1 + 2),
        ([["media", 5, 3, "media", "media", 1]], 2 + 1),
        ([[5], [5]], 2 + 2),
        ([["media"]], 0),
    ],
)
def test_a_quarter_of_the_bytes_padded_where_a_picture_stands(build, prompts, expected):
    made = [
        tuple(build.media() if part == "media" else TextPart(num_bytes=part) for part in prompt) for prompt in prompts
    ]
    has_text = any(isinstance(part, int) for prompt in prompts for part in prompt)
    basis = Basis.DEFAULT if has_text else Basis.EXACT
    assert num_text_tokens(build.request(prompts=tuple(made))) == (expected, basis)


def test_token_ids_count_as_they_are(build):
    prompts = ((TokenPart(num_tokens=17),), (TextPart(num_bytes=3), TokenPart(num_tokens=2), TextPart(num_bytes=3)))
    assert num_text_tokens(build.request(prompts=prompts)) == (17 + 2 + 2, Basis.DEFAULT)


def test_what_a_tokenizer_counted_is_exact_where_it_counted_all(build):
    counted = TextPart(num_bytes=100, num_tokens=7)
    request = build.request(prompts=((counted, build.media(), counted), (TokenPart(num_tokens=3),)))
    assert num_text_tokens(request) == (17, Basis.EXACT)
    partly = build.request(prompts=((counted, TextPart(num_bytes=100)),))
    assert num_text_tokens(partly) == (50, Basis.DEFAULT)
