"""Does the reader get what the configuration says of the engine?"""

import pytest

from tessera.config.load import load_data
from tessera.core.errors import ConfigError

BLACK = {"image": {"rgba_background_color": [0, 0, 0]}}


def producer(**parameters):
    return {"type": "token-producer", "parameters": parameters}


def of_model(**settings):
    return producer(estimate={"model": {"family": "qwen3-vl"} | settings})


def test_what_names_media_items(config):
    told = of_model(engineModel="Qwen/Qwen3-VL-8B-Instruct", mmHasherAlgorithm="sha256", mediaIoKwargs=BLACK)
    told["parameters"]["urlKeysIgnored"] = ["sig", "X-Amz-Signature"]
    loaded = load_data(config(told))
    profile = loaded.profile
    assert loaded.warnings == ()
    assert profile.engine_model == "Qwen/Qwen3-VL-8B-Instruct"
    assert profile.mm_hasher_algorithm == "sha256"
    assert profile.media_io_kwargs == BLACK
    assert profile.url_keys_ignored == {"sig", "X-Amz-Signature"}


def test_what_names_media_items_where_little_is_said(config):
    for entry in (of_model(), producer(), producer(urlKeysIgnored=[])):
        profile = load_data(config(entry)).profile
        assert (profile.engine_model, profile.mm_hasher_algorithm, profile.media_io_kwargs) == ("", "blake3", {})
        assert profile.url_keys_ignored == frozenset()


@pytest.mark.parametrize(
    ("settings", "key", "message"),
    [
        ({"mmHasherAlgorithm": "md5"}, "mmHasherAlgorithm", "got 'md5', expected one of blake3, sha256, sha512"),
        ({"mmHasherAlgorithm": ["blake3"]}, "mmHasherAlgorithm", "got ['blake3'], expected one of"),
        ({"mediaIoKwargs": {"image": 3}}, "mediaIoKwargs.image", "got 3, expected a mapping"),
        ({"mediaIoKwargs": 3}, "mediaIoKwargs", "got 3, expected a mapping"),
    ],
)
def test_what_the_engine_would_refuse(config, settings, key, message):
    with pytest.raises(ConfigError) as caught:
        load_data(config(of_model(**settings)))
    (problem,) = caught.value.problems
    assert problem.path == f"plugins[0].parameters.estimate.model.{key}"
    assert message in problem.message


def test_a_modality_that_there_is_not(config):
    (warning,) = load_data(config(of_model(mediaIoKwargs={"images": {}}))).warnings
    assert warning.path == "plugins[0].parameters.estimate.model.mediaIoKwargs"
    assert warning.message == "no modality is called images; there are image, video, audio"
