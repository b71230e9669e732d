"""Are settings read in their order, and nonsense left out?"""

import pytest

from tessera.core.family import ModelFiles
from tessera.core.pricing.processor_settings import (
    feature_extractor,
    first_number,
    for_video,
    pixel_limits,
    positive,
    scoped,
    size_limits,
)


def test_pixel_names_go_before_size():
    size = {"shortest_edge": 4, "longest_edge": 9}
    assert pixel_limits({"size": size}) == {"min_pixels": 4, "max_pixels": 9}
    assert pixel_limits({"size": size, "min_pixels": 5}) == {"min_pixels": 5, "max_pixels": 9}
    assert size_limits({"size": size, "min_pixels": 5}) == {"min_pixels": 4, "max_pixels": 9}
    assert for_video(pixel_limits({"max_pixels": 7})) == {"video_max_pixels": 7}


@pytest.mark.parametrize("value", [0, -1, 1.5, 1 << 40, True, None, "9", [9], {"a": 1}, float("nan"), float("inf")])
def test_nonsense_is_no_limit(value):
    assert pixel_limits({"min_pixels": value, "size": {"longest_edge": value}}) == {}
    assert pixel_limits({"size": value}) == {}


def test_a_scope_goes_before_the_flat_keys():
    kwargs = {"max_pixels": 1, "fps": 2, "images_kwargs": {"max_pixels": 3}, "videos_kwargs": 7}
    assert scoped(kwargs, "images_kwargs")["max_pixels"] == 3
    assert scoped(kwargs, "images_kwargs")["fps"] == 2
    assert scoped(kwargs, "videos_kwargs")["max_pixels"] == 1


def test_numbers_above_zero():
    assert positive({"a": {"b": 1}}, "a", "b") == 1.0
    assert [positive({"a": value}, "a") for value in (0, -1, "1", [1.0], None, 1 << 40, float("inf"))] == [None] * 7


def test_the_first_of_a_list():
    assert [first_number({"a": value}, "a") for value in (2, [2, 3], (2,))] == [2, 2, 2]
    assert [first_number({"a": value}, "a") for value in ([], ["2"], "2", {}, [[2]])] == [None] * 5


def test_the_feature_extractor_may_stand_in_either_file():
    nested = {"feature_extractor": {"chunk_length": 30, "hop_length": 160}}
    assert feature_extractor(ModelFiles(processor=nested))["chunk_length"] == 30
    both = feature_extractor(ModelFiles(processor=nested, preprocessor={"chunk_length": 300}))
    assert both == {"chunk_length": 300, "hop_length": 160}
