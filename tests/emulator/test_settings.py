"""Are settings that no server could have refused before it starts?"""

import math

import pytest

from tessera.core.errors import ConfigError
from tessera.emulator import EmulatorSettings, ServiceTime


def test_the_defaults_are_the_documented_server() -> None:
    settings = EmulatorSettings(model="m")
    assert settings.num_cache_tokens == 730_000
    assert settings.service_time.prompt_s(15_928, 0) == 1.0


def test_every_problem_is_named() -> None:
    with pytest.raises(ConfigError) as refused:
        EmulatorSettings(model="m", block_size=0, service_time=ServiceTime(speed=0.0, decode_step_s=math.nan))
    assert [problem.path for problem in refused.value.problems] == [
        "block_size",
        "service_time.decode_step_s",
        "service_time.speed",
    ]
