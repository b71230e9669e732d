"""Do the settings of Idefics3 come from its files?"""

from tessera.core.family import Count, ModelFiles, Refused
from tessera.core.pricing.idefics3 import Idefics3

FILES = ModelFiles(
    config={
        "architectures": ["Idefics3ForConditionalGeneration"],
        "scale_factor": 2,
        "vision_config": {"image_size": 364, "patch_size": 14},
    },
    preprocessor={
        "do_image_splitting": True,
        "max_image_size": {"longest_edge": 364},
        "size": {"longest_edge": 1456},
    },
    processor={"image_seq_len": 169},
)


def test_from_the_published_files():
    assert Idefics3.matches(FILES)
    published = {"longest_edge": 1456, "max_image_size": 364, "image_seq_len": 169, "do_image_splitting": True}
    assert Idefics3.from_files(FILES) == published
    assert Idefics3.from_files(ModelFiles(config=FILES.config, preprocessor=FILES.preprocessor)) == published


def test_what_a_tile_costs_follows_from_config_json_only_where_it_is_whole():
    vision = {"image_size": 14, "patch_size": 14}
    assert Idefics3.from_files(ModelFiles(config={"vision_config": vision, "scale_factor": 10**9})) == {}
    assert Idefics3.from_files(ModelFiles(config={"vision_config": vision})) == {}


def test_from_a_request():
    asked = {"size": {"longest_edge": 728}, "max_image_size": {"longest_edge": 182}, "do_image_splitting": False}
    found = {"longest_edge": 728, "max_image_size": 182, "do_image_splitting": False}
    assert Idefics3.from_kwargs(asked) == found
    assert Idefics3.from_kwargs({"size": {"longest_edge": 2**40}, "max_image_size": 0, "do_image_splitting": 0}) == {}


def test_rows_and_columns_are_not_the_same():
    assert Idefics3().image(100, 100) == Count(num_tokens=17 * 169 + 2 * 16 + 4 + 3, num_embeds=17 * 169)
    assert Idefics3().image(400, 100) == Count(num_tokens=5 * 169 + 2 * 4 + 1 + 3, num_embeds=5 * 169)
    assert Idefics3().image(100, 400) == Count(num_tokens=5 * 169 + 2 * 4 + 4 + 3, num_embeds=5 * 169)


def test_an_odd_side_is_made_even():
    # 1456 wide makes 1093 high, 1094 when even: one row more than 1092 = 3 x 364.
    assert Idefics3().image(1456, 1092) == Count(num_tokens=13 * 169 + 2 * 12 + 3 + 3, num_embeds=13 * 169)
    assert Idefics3().image(1456, 1093) == Count(num_tokens=17 * 169 + 2 * 16 + 4 + 3, num_embeds=17 * 169)


def test_no_tiles():
    assert Idefics3(do_image_splitting=False).image(4000, 3000) == Count(num_tokens=172, num_embeds=169)
    assert Idefics3(longest_edge=364).image(4000, 3000) == Count(num_tokens=172, num_embeds=169)
    assert isinstance(Idefics3().image(0, 0), Refused)


def test_no_side_above_4096_pixels():
    assert Idefics3(longest_edge=65_536, max_image_size=1024).image(1, 1).num_embeds == 17 * 169
