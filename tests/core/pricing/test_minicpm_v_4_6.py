"""Do the settings of MiniCPM-V 4.6 come from its files?"""

from tessera.core.family import Count, ModelFiles, Refused
from tessera.core.pricing.minicpm_v_4_6 import MiniCPMV46

FILES = ModelFiles(
    config={"architectures": ["MiniCPMV4_6ForConditionalGeneration"]},
    preprocessor={
        "max_slice_nums": 9,
        "scale_resolution": 448,
        "patch_size": 14,
        "slice_mode": True,
        "downsample_mode": "16x",
        "use_image_id": True,
    },
)


def test_from_the_published_files():
    assert MiniCPMV46.matches(FILES)
    assert MiniCPMV46.from_files(FILES) == dict(FILES.preprocessor)
    assert MiniCPMV46.from_files(ModelFiles()) == {}


def test_from_a_request():
    assert MiniCPMV46.from_kwargs({"max_slice_nums": 4, "images_kwargs": {"downsample_mode": "4x"}}) == {
        "max_slice_nums": 4,
        "downsample_mode": "4x",
    }
    assert MiniCPMV46.from_kwargs({"max_slice_nums": 10**9, "downsample_mode": ["4x"], "use_image_id": 1}) == {}


def test_one_view():
    assert MiniCPMV46().image(448, 448) == Count(num_tokens=64 + 2 + 3, num_embeds=64)
    assert MiniCPMV46(use_image_id=False).image(448, 448) == Count(num_tokens=64 + 2, num_embeds=64)
    assert MiniCPMV46(downsample_mode="4x").image(448, 448) == Count(num_tokens=256 + 2 + 3, num_embeds=256)
    assert MiniCPMV46(slice_mode=False).image(1344, 1344) == Count(num_tokens=64 + 2 + 3, num_embeds=64)
    assert isinstance(MiniCPMV46().image(0, 448), Refused)


def test_slices_and_the_line_ends_between_their_rows():
    assert MiniCPMV46().image(1344, 1344) == Count(num_tokens=10 * (64 + 2) + 2 + 3, num_embeds=640)
    # 40 cells in the whole image, 64 in each of four slices side by side: no line end.
    count = MiniCPMV46().image(1792, 448)
    assert count == Count(num_tokens=64 + 2 + 3 + 4 * (64 + 2), num_embeds=64 + 4 * 64)


def test_a_tall_image_takes_rows_a_wide_one_columns():
    tall, wide = MiniCPMV46().image(448, 1792), MiniCPMV46().image(1792, 448)
    assert isinstance(tall, Count)
    assert isinstance(wide, Count)
    assert tall.num_embeds == wide.num_embeds
    assert tall.num_tokens == wide.num_tokens + 3
