"""How long is a sound for an audio encoder: in samples, in mel frames?"""

from typing import Final

from tessera.core.family import AudioInfo, Refused

MAX_DURATION_S = 1e6
"""Seconds above which a header is not believed: 11 days."""
HOP = 160
"""Samples between two mel frames, at 16 kHz. Source: transformers 5.18.0, WhisperFeatureExtractor."""

NO_SOUND: Final = Refused("a sound without a sample")
"""What every family answers to a sound without length."""


def num_samples(info: AudioInfo) -> int:
    """Samples at 16 kHz, at most those of 11 days; 0 where the duration is nonsense."""
    return AudioInfo(duration_s=min(info.duration_s, MAX_DURATION_S)).num_samples_16k if info.duration_s > 0 else 0


def num_mel_frames(info: AudioInfo) -> int:
    """``ceil(samples / 160)``: a hundred a second.

    >>> num_mel_frames(AudioInfo(duration_s=10)), num_mel_frames(AudioInfo(duration_s=float("nan")))
    (1000, 0)
    """
    return -(-num_samples(info) // HOP)
