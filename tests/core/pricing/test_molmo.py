"""Do Molmo's settings come from its files?"""

import pytest

from tessera.core.family import Count, ModelFiles, Refused
from tessera.core.pricing.molmo import Molmo

FILES = ModelFiles(
    config={"architectures": ["MolmoForCausalLM"]},
    preprocessor={
        "base_image_input_size": [336, 336],
        "image_patch_size": 14,
        "image_token_length_h": 12,
        "image_token_length_w": 12,
        "max_crops": 12,
        "overlap_margins": [4, 4],
    },
)


def test_from_the_published_files():
    assert Molmo.matches(FILES)
    assert Molmo.from_files(FILES) == {
        "base_image_input_size": 336,
        "image_patch_size": 14,
        "overlap_margins": (4, 4),
        "max_crops": 12,
        "image_token_length": 12,
    }
    assert Molmo.from_files(ModelFiles()) == {}


@pytest.mark.parametrize(
    "margins", [[4], [4, 4, 4], [-1, 4], [2**40, 4], [True, 4], ["4", 4], [4.0, 4.0], 4, None, [12, 12]]
)
def test_margins_that_leave_no_tile_are_not_believed(margins):
    assert Molmo.from_files(ModelFiles(preprocessor={"overlap_margins": margins})) == {}


def test_a_request_cannot_change_it():
    assert Molmo.from_kwargs({"max_crops": 1}) == {}


def test_a_small_image_is_counted_twice():
    small = Count(num_tokens=2 * (2 + 13 * 12), num_embeds=2 * 144)
    for size in [(1, 1), (111, 5000), (5000, 111), (112, 112), (336, 336)]:
        assert Molmo().image(*size) == small
    assert isinstance(Molmo().image(0, 1), Refused)


def test_margins_are_not_tiles():
    # 336 is one window of 224 and both margins of 56; a second window adds its 8 tokens less what it lost.
    assert Molmo().image(337, 336) == Count(num_tokens=158 + 2 + 21 * 12, num_embeds=144 + 20 * 12)
    assert Molmo().image(336, 337) == Count(num_tokens=158 + 2 + 13 * 20, num_embeds=144 + 20 * 12)
    assert Molmo().image(785, 336) == Count(num_tokens=158 + 2 + 37 * 12, num_embeds=144 + 36 * 12)


def test_a_side_of_exactly_the_margins():
    # vLLM divides by zero here, and chooses by the other side alone.
    assert Molmo().image(112, 5000) == Count(num_tokens=158 + 2 + 13 * 100, num_embeds=144 + 12 * 100)
