"""Is a sound's length whole and bounded, whatever its header says?"""

import pytest

from tessera.core.family import AudioInfo
from tessera.core.pricing.sound import num_mel_frames, num_samples


@pytest.mark.parametrize(
    ("seconds", "samples", "mel"), [(10, 160_000, 1_000), (0.999, 15_984, 100), (2.345, 37_520, 235)]
)
def test_samples_and_mel_frames(seconds, samples, mel):
    assert num_samples(AudioInfo(duration_s=seconds)) == samples
    assert num_mel_frames(AudioInfo(duration_s=seconds)) == mel


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("-inf"), 1e-9])
def test_no_sound(seconds):
    assert num_samples(AudioInfo(duration_s=seconds)) == 0


@pytest.mark.parametrize("seconds", [1e7, 1e300, float("inf")])
def test_a_length_that_is_not_believed(seconds):
    assert num_samples(AudioInfo(duration_s=seconds)) == 16_000_000_000
