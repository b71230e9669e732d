"""How fast are the endpoints, beside the rates that were configured? Learned from first tokens.

Text and media apart: requests without media work draw a line from uncached tokens to
seconds; what that line leaves of a request with media work is the media's. By medians over
short memories, so that one report in ten may lie as it likes, and within a factor of 16 of
what was configured.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tessera.core.pricing.robust import Line, Ring

MAX_GROUPS: Final = 64
"""Groups of endpoints; the least recently heard of is forgotten first."""
NUM_RATIOS: Final = 128
"""Requests with media work that are remembered of a group."""
MIN_SAMPLES: Final = 32
"""Requests of a kind before anything is believed of it."""
MIN_REACH_TOKENS: Final = 1000
"""How far apart the prompts' uncached tokens must lie for their line to have a slope."""
MIN_MEDIA_S: Final = 0.02
"""Media work below this drowns in what else a first token waits for: a step takes 0.02 s."""
MAX_FACTOR: Final = 16.0
"""What is learned stays within this factor of what was configured."""
MAX_TTFT_S: Final = 60.0
"""Longer is no work of a request that was alone."""
MAX_FIXED_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A first token that waited for nobody."""

    group: str
    """Label of endpoints of one speed."""
    num_tokens: int
    """Prompt tokens that were computed for it."""
    media_s: float
    """Encoding and preparing, by the configured rates; 0 where caches spared all of it."""
    ttft_s: float
    """Measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What the configured rates are multiplied with."""

    prefill_factor: float = 1.0
    """Seconds of prefill for each configured one."""
    media_factor: float = 1.0
    """Seconds of encoding and preparing for each configured one."""
    fixed_s: float
    """What every request takes."""


@dataclass(slots=True)
class _Group:
    text: Line = field(default_factory=Line)
    """Uncached tokens and seconds of requests without media work."""
    texts: Ring = field(default_factory=lambda: Ring(NUM_RATIOS))
    """What configured prefill leaves of those: the fixed part, where the line has no slope."""
    media: Ring = field(default_factory=lambda: Ring(NUM_RATIOS))
    """Seconds that are the media's over those configured; of requests with media work."""
    whole: Ring = field(default_factory=lambda: Ring(NUM_RATIOS))
    """Seconds beyond the fixed part over all that was configured, of the same requests."""


class SpeedLearning:
    """What first tokens have taught, by group of endpoints.

    Where a group's requests without media work are too few or too alike for a slope, the
    configured one holds; where there are none, one factor for text and media is learned of
    those with media. Memory: 64 groups of at most 512 numbers.
    """

    def __init__(self, prefill_s_per_token: float, fixed_s: float) -> None:
        """Know nothing but what is configured."""
        self._prefill_s = prefill_s_per_token
        self._configured = Speed(fixed_s=fixed_s)
        self._groups: OrderedDict[str, _Group] = OrderedDict()
        self._speeds: dict[str, Speed] = {}

    def of(self, group: str) -> Speed:
        """What to reckon with in a group."""
        return self._speeds.get(group, self._configured)

    def groups(self) -> Iterator[tuple[str, Speed, int]]:
        """(group, what is known of it, first tokens that it stands on) of each that was heard of."""
        for name, group in self._groups.items():
            yield name, self.of(name), len(group.text) + len(group.media)

    def add(self, sample: Sample) -> None:
        """Learn from one first token; one that can teach nothing is passed over."""
        if not 0 < sample.ttft_s <= MAX_TTFT_S or sample.num_tokens < 0 or 0 < sample.media_s < MIN_MEDIA_S:
            return
        group = self._groups.setdefault(sample.group, _Group())
        self._groups.move_to_end(sample.group)
        if len(self._groups) > MAX_GROUPS:
            forgotten, _ = self._groups.popitem(last=False)
            self._speeds.pop(forgotten, None)
        if sample.media_s == 0:
            group.text.add(sample.num_tokens, sample.ttft_s)
            group.texts.add(sample.ttft_s - sample.num_tokens * self._prefill_s)
        else:
            self._add_media(group, sample)
        self._speeds[sample.group] = self._speed(group)

    def _add_media(self, group: _Group, sample: Sample) -> None:
        text = self._text(group)
        prefill_s = sample.num_tokens * self._prefill_s
        beyond_s = sample.ttft_s - text.fixed_s
        group.media.add(_bounded((beyond_s - prefill_s * text.prefill_factor) / sample.media_s))
        group.whole.add(_bounded(beyond_s / (sample.media_s + prefill_s)))

    def _text(self, group: _Group) -> Speed:
        """Prefill and the fixed part, by requests without media work."""
        if len(group.text) < MIN_SAMPLES:
            return self._configured
        if group.text.reach() < MIN_REACH_TOKENS:
            return Speed(fixed_s=_fixed(group.texts.median()))
        return Speed(prefill_factor=_bounded(group.text.slope / self._prefill_s), fixed_s=_fixed(group.text.intercept))

    def _speed(self, group: _Group) -> Speed:
        text = self._text(group)
        if len(group.media) < MIN_SAMPLES:
            factor = text.prefill_factor
            return Speed(prefill_factor=factor, media_factor=factor, fixed_s=text.fixed_s)
        if len(group.text) < MIN_SAMPLES:
            factor = group.whole.median()
            return Speed(prefill_factor=factor, media_factor=factor, fixed_s=text.fixed_s)
        return Speed(prefill_factor=text.prefill_factor, media_factor=group.media.median(), fixed_s=text.fixed_s)


def _bounded(factor: float) -> float:
    return min(max(factor, 1 / MAX_FACTOR), MAX_FACTOR)


def _fixed(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_FIXED_S)
