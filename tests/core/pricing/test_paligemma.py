"""Does PaliGemma's price come from its picture size?"""

import pytest

from tessera.core.family import Count, ModelFiles
from tessera.core.pricing.paligemma import PaliGemma


@pytest.mark.parametrize(("size", "tokens"), [(224, 256), (448, 1_024), (896, 4_096)])
def test_from_the_published_files(size, tokens):
    files = ModelFiles(
        config={
            "architectures": ["PaliGemmaForConditionalGeneration"],
            "vision_config": {"image_size": size, "patch_size": 14},
        },
        preprocessor={"image_seq_length": tokens, "size": {"height": size, "width": size}},
    )
    assert PaliGemma.matches(files)
    for known in (files, ModelFiles(config=files.config), ModelFiles(preprocessor=files.preprocessor)):
        family = PaliGemma(**PaliGemma.from_files(known))
        assert family.image(1_280, 720) == Count(num_tokens=tokens, num_embeds=tokens)


def test_files_without_a_size():
    config = {"vision_config": {"image_size": 10, "patch_size": 14}}
    assert PaliGemma.from_files(ModelFiles(config=config)) == {}
    assert PaliGemma.from_files(ModelFiles(processor={"image_seq_length": 64})) == {"image_seq_length": 64}
