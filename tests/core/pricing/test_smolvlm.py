"""Do the three SmolVLMs differ as their files do?"""

import pytest

from tessera.core.family import Count, ModelFiles
from tessera.core.pricing.idefics3 import Idefics3
from tessera.core.pricing.smolvlm import SmolVLM, SmolVLM500M


def files_of(architecture, *, edge, tile, patch_size, scale_factor):
    """A published model's files, without ``image_seq_len``."""
    return ModelFiles(
        config={
            "architectures": [architecture],
            "scale_factor": scale_factor,
            "vision_config": {"image_size": tile, "patch_size": patch_size},
        },
        preprocessor={"max_image_size": {"longest_edge": tile}, "size": {"longest_edge": edge}},
    )


V1 = files_of("Idefics3ForConditionalGeneration", edge=1536, tile=384, patch_size=14, scale_factor=3)
V2 = files_of("SmolVLMForConditionalGeneration", edge=1536, tile=384, patch_size=14, scale_factor=3)
V2_500M = files_of("SmolVLMForConditionalGeneration", edge=2048, tile=512, patch_size=16, scale_factor=4)


@pytest.mark.parametrize(
    ("files", "family", "like"),
    [(V1, Idefics3, SmolVLM), (V2, SmolVLM, SmolVLM), (V2_500M, SmolVLM, SmolVLM500M)],
)
def test_the_files_say_which_it_is(files, family, like):
    assert [each for each in (Idefics3, SmolVLM, SmolVLM500M) if each.matches(files)] == [family]
    assert family(**family.from_files(files)).image(640, 480) == like().image(640, 480)


def test_only_names_tell_the_small_ones_apart():
    assert SmolVLM.model_names == ("smolvlm",)
    assert all(name.startswith("smolvlm") and len(name) > len("smolvlm") for name in SmolVLM500M.model_names)


def test_the_worst_case_is_a_square():
    assert SmolVLM().image(1, 1) == Count(num_tokens=17 * 81 + 2 * 16 + 4 + 3, num_embeds=17 * 81)
    assert SmolVLM500M().image(1, 1) == Count(num_tokens=17 * 64 + 2 * 16 + 4 + 3, num_embeds=17 * 64)
