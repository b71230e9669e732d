"""Does Gemma 3 price every picture alike, and cut long ones where it is told to?"""

import pytest

from tessera.core.family import AudioInfo, Count, ModelFiles, Refused
from tessera.core.pricing.gemma3 import Gemma3, Gemma3n

FILES = ModelFiles(
    config={"architectures": ["Gemma3ForConditionalGeneration"], "mm_tokens_per_image": 256},
    preprocessor={
        "do_pan_and_scan": None,
        "image_seq_length": 256,
        "pan_and_scan_max_num_crops": None,
        "size": {"height": 896, "width": 896},
    },
    processor={"image_seq_length": 256, "processor_class": "Gemma3Processor"},
)


def test_from_the_published_files():
    assert Gemma3.matches(FILES)
    assert Gemma3.from_files(FILES) == {"image_seq_length": 256}
    assert Gemma3n.matches(ModelFiles(config={"architectures": ["Gemma3nForConditionalGeneration"]}))
    assert Gemma3n.from_files(ModelFiles(processor={"image_seq_length": 64, "audio_seq_length": 100})) == {
        "image_seq_length": 64,
        "audio_seq_length": 100,
    }


def test_the_processor_goes_before_config_json():
    files = ModelFiles(config={"mm_tokens_per_image": 64}, processor={"image_seq_length": 128})
    assert Gemma3.from_files(files) == {"image_seq_length": 128}


def test_pan_and_scan_in_kwargs():
    assert Gemma3.from_kwargs({"do_pan_and_scan": True}) == {"do_pan_and_scan": True}
    nested = {"do_pan_and_scan": True, "images_kwargs": {"do_pan_and_scan": False, "pan_and_scan_max_num_crops": 8}}
    assert Gemma3.from_kwargs(nested) == {"do_pan_and_scan": False, "pan_and_scan_max_crops": 8}
    assert Gemma3.from_kwargs({"do_pan_and_scan": 1, "pan_and_scan_max_num_crops": 1 << 30}) == {}
    assert Gemma3.from_kwargs({"pan_and_scan_min_ratio_to_activate": 1.5}) == {"pan_and_scan_min_ratio": 1.5}


def crops(width, height, **settings):
    count = Gemma3(do_pan_and_scan=True, **settings).image(width, height)
    return count.num_embeds // 256 - 1


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [
        (1_199, 1_000, 0),  # below 1.2
        (1_200, 1_000, 2),
        (2_500, 1_000, 3),  # 2.5 + 0.5
        (9_000, 1_000, 4),
        (1_000, 9_000, 4),
        (600, 256, 2),  # 600 // 256
        (511, 400, 2),  # crops of 256
        (510, 400, 0),  # crops of 255
        (2_000, 255, 0),
    ],
)
def test_crops(width, height, expected):
    assert crops(width, height) == expected


def test_other_crops():
    assert crops(9_000, 1_000, pan_and_scan_max_crops=8) == 8
    assert crops(1_100, 1_000, pan_and_scan_min_ratio=1.1) == 2
    assert crops(510, 400, pan_and_scan_min_crop_size=100) == 2


def test_the_sentence_around_crops_is_a_wrapper():
    assert Gemma3(do_pan_and_scan=True).image(9_000, 1_000) == Count(
        num_tokens=5 * 260, num_embeds=5 * 256, num_wrapper_tokens=20
    )
    assert Gemma3(do_pan_and_scan=True).image(100, 100).num_wrapper_tokens == 0


def test_an_empty_sound_is_refused():
    assert isinstance(Gemma3n().audio(AudioInfo(duration_s=0.0)), Refused)
