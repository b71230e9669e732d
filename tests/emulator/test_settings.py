"""Are settings that no server could have refused before it starts?"""

import math
from dataclasses import replace

import pytest

from tessera.core.errors import ConfigError
from tessera.emulator import EmulatorSettings
from tessera.engine.profiles import PROFILES


def test_the_defaults_are_the_documented_server() -> None:
    settings = EmulatorSettings(model="m")
    assert settings.num_cache_tokens == 738_000
    assert (settings.profile.is_fitted, settings.max_model_len, settings.engine_model) == (True, 262_144, "m")


def test_the_context_is_no_longer_than_the_kv_cache() -> None:
    profile = replace(PROFILES["h200-tp2-qwen3-vl-32b"], num_blocks=100)
    assert EmulatorSettings(model="m", profile=profile).max_model_len == 1600
    assert EmulatorSettings(model="m", profile=profile, max_model_len=1600).max_model_len == 1600
    with pytest.raises(ConfigError, match=r"max_model_len: is 1601, expected a number in 1\.\.1600"):
        EmulatorSettings(model="m", profile=profile, max_model_len=1601)


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan, math.inf])
def test_every_problem_is_named(speed: float) -> None:
    with pytest.raises(ConfigError) as refused:
        EmulatorSettings(model="m", port=65_536, speed=speed, num_answer_tokens=0)
    assert [problem.path for problem in refused.value.problems] == ["port", "speed", "num_answer_tokens"]
