"""The table of profiles."""

from dataclasses import replace

import pytest

from tessera.engine.profiles import H200, L40S, PROFILES, QWEN3_VL_32B, derived
from tessera.engine.roles import Role

FITTED = PROFILES["h200-tp2-qwen3-vl-32b"]


def test_names() -> None:
    assert all(profile.name == name for name, profile in PROFILES.items())
    assert [profile for profile in PROFILES.values() if profile.is_fitted] == [FITTED]
    assert {profile.hardware.name for profile in PROFILES.values()} == {"h200", "h100", "a100", "l40s"}
    assert {profile.model.name for profile in PROFILES.values()} == {"qwen3-vl-32b", "qwen3-vl-8b"}


def test_the_memory_arithmetic_gives_what_was_fitted() -> None:
    assert FITTED.num_blocks == 46_125
    assert derived(H200, 2, QWEN3_VL_32B).num_blocks == pytest.approx(46_125, rel=0.001)


def test_derived() -> None:
    profile = derived(L40S, 4, QWEN3_VL_32B)
    assert not profile.is_fitted
    assert (profile.max_num_batched_tokens, profile.max_num_seqs) == (2048, 256)
    # 0.92 x 4 x 48.3 GB - 66.7 GB - 4 x 2.15 GB = 102.4 GB of 262,144 bytes a token.
    assert profile.num_blocks * 16 == pytest.approx(390_800, rel=0.001)
    assert profile.encoder_cache_embeds == 16_384
    assert profile.efficiency.step_s == FITTED.efficiency.step_s


def test_a_step_has_fewer_launches_with_fewer_layers() -> None:
    assert PROFILES["h200-tp1-qwen3-vl-8b"].efficiency.step_s == pytest.approx(9.2e-3 * 36 / 64)


def test_every_derived_profile_holds_a_prompt() -> None:
    with_kv = [profile for profile in PROFILES.values() if profile.role is not Role.ENCODE]
    assert all(profile.num_blocks * profile.block_size > 100_000 for profile in with_kv)


def test_sequences_beyond_the_budget_are_refused() -> None:
    with pytest.raises(ValueError, match="max_num_seqs 9, expected 1 to max_num_batched_tokens 8"):
        replace(FITTED, max_num_batched_tokens=8, max_num_seqs=9)
    assert replace(FITTED, max_num_batched_tokens=8, max_num_seqs=8).max_num_seqs == 8


def test_a_cache_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="0 blocks of 16 tokens"):
        replace(FITTED, num_blocks=0)
    assert replace(FITTED, processor_cache_bytes=0).processor_cache_bytes == 0
