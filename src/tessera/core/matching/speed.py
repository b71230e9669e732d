"""How fast are the endpoints, beside the rates that were configured? Learned from first tokens.

Text and media apart: requests without media work draw a line from uncached tokens to
seconds; what that line leaves of a request with media work is the media's. By medians over
short memories, so that one report in ten may lie as it likes, and within a factor of 16 of
what was configured. The line is drawn through pairs of requests that lie half the memory
apart in size, each pair's slope weighed by how far apart it lies.

Source: P. Sen, "Estimates of the regression coefficient based on Kendall's tau", 1968, with
the pairs of H. Theil's incomplete method and the weights of L. Jaeckel, "Estimating
regression coefficients by minimizing the dispersion of the residuals", 1972.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Final

from tessera.core.pricing.robust import median, weighted_median

MAX_GROUPS: Final = 64
"""Groups of endpoints; the least recently heard of is forgotten first."""
NUM_SAMPLES: Final = 128
"""Requests of a kind, with media work or without, that are remembered of a group."""
MAX_AGE: Final = 1024
"""Requests of its kind after which one is forgotten, however rare its size."""
TOKENS_UNIT: Final = 64
"""Requests of fewer uncached tokens are alike: a repeated prompt leaves less than a block or two."""
MAX_UNITS: Final = 1 << 20
"""Sizes beyond are of one class."""
MIN_SAMPLES: Final = 32
"""Requests of a kind before anything is believed of it."""
MIN_REACH_TOKENS: Final = 500
"""How far apart the prompts' uncached tokens must lie, the outer tenths left out, for their line to have a slope:
26 ms of prefill at 19,500 tokens a second, where a step of other requests' decodes takes up to 20."""
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


class _Spread:
    """At most 128 samples, none older than the last 1,024, of as many sizes as there are.

    A sample that finds no room takes that of the oldest in the class of sizes that has most,
    so that who asks the same all day long does not push out what others teach. A class is an
    octave.
    """

    __slots__ = ("_classes", "_num_seen", "_unit")

    def __init__(self, unit: float) -> None:
        """Remember nothing; sizes below ``unit`` are of one class."""
        self._unit = unit
        self._num_seen = 0
        self._classes: dict[int, deque[tuple[int, Sample]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._classes.values()))

    def __iter__(self) -> Iterator[Sample]:
        return (sample for kept in self._classes.values() for _, sample in kept)

    def add(self, size: float, sample: Sample) -> None:
        """Remember a sample of that size."""
        self._num_seen += 1
        octave = int(min(size / self._unit, MAX_UNITS)).bit_length()
        self._classes.setdefault(octave, deque()).append((self._num_seen, sample))
        for kept in self._classes.values():
            while kept and kept[0][0] <= self._num_seen - MAX_AGE:
                kept.popleft()
        if len(self) > NUM_SAMPLES:
            max(self._classes.values(), key=len).popleft()


@dataclass(slots=True)
class _Group:
    text: _Spread = field(default_factory=lambda: _Spread(TOKENS_UNIT))
    """Requests without media work, by their uncached tokens."""
    media: _Spread = field(default_factory=lambda: _Spread(MIN_MEDIA_S))
    """Requests with media work, by its configured seconds."""


class SpeedLearning:
    """What first tokens have taught, by group of endpoints.

    Where a group's requests without media work are too few or too alike for a slope, one
    factor for text and media is learned of those with media work; where these are too few
    as well, the configured slope holds unless it says more seconds than were seen. Memory:
    64 groups of at most 256 samples.
    """

    def __init__(self, prefill_s_per_token: float, fixed_s: float) -> None:
        """Know nothing but what is configured."""
        self._prefill_s = prefill_s_per_token
        self._configured = Speed(fixed_s=fixed_s)
        self._groups: OrderedDict[str, _Group] = OrderedDict()
        self._speeds: dict[str, Speed] = {}
        """Of groups that were asked for since they last learned."""

    def of(self, group: str) -> Speed:
        """What to reckon with in a group; drawn up anew when it is asked for behind new samples, in 0.2 ms at most."""
        if group not in self._groups:
            return self._configured
        if group not in self._speeds:
            self._speeds[group] = self._speed(self._groups[group])
        return self._speeds[group]

    def groups(self) -> Iterator[tuple[str, Speed, int]]:
        """(group, what is known of it, first tokens that it stands on) of each that was heard of."""
        for name, group in self._groups.items():
            yield name, self.of(name), len(group.text) + len(group.media)

    def add(self, sample: Sample) -> None:
        """Learn from one first token; one that can teach nothing is passed over."""
        is_media_heard = sample.media_s == 0 or MIN_MEDIA_S <= sample.media_s < inf
        if not 0 < sample.ttft_s <= MAX_TTFT_S or sample.num_tokens < 0 or not is_media_heard:
            return
        group = self._groups.setdefault(sample.group, _Group())
        self._groups.move_to_end(sample.group)
        self._speeds.pop(sample.group, None)
        if len(self._groups) > MAX_GROUPS:
            forgotten, _ = self._groups.popitem(last=False)
            self._speeds.pop(forgotten, None)
        if sample.media_s == 0:
            group.text.add(sample.num_tokens, sample)
        else:
            group.media.add(sample.media_s, sample)

    def _speed(self, group: _Group) -> Speed:
        slope = self._prefill_factor(group.text)
        prefill = self._one_factor(group) if slope is None else slope
        fixed_s = self._fixed(group.text, prefill)
        is_apart = slope is not None and len(group.media) >= MIN_SAMPLES
        media = self._media_factor(group.media, prefill, fixed_s) if is_apart else prefill
        return Speed(prefill_factor=prefill, media_factor=media, fixed_s=fixed_s)

    def _one_factor(self, group: _Group) -> float:
        """Of all work, where texts draw no line: by requests with media work, else what texts leave room for."""
        if len(group.media) >= MIN_SAMPLES:
            work = ((each, each.media_s + each.num_tokens * self._prefill_s) for each in group.media)
            fixed_s = self._configured.fixed_s
            return _bounded(weighted_median(((each.ttft_s - fixed_s) / work_s, work_s) for each, work_s in work))
        if len(group.text) < MIN_SAMPLES:
            return 1.0
        work = ((each, each.num_tokens * self._prefill_s) for each in group.text if each.num_tokens)
        room = weighted_median((each.ttft_s / work_s, work_s) for each, work_s in work)
        return _bounded(min(1.0, room or 1.0))

    def _prefill_factor(self, text: _Spread) -> float | None:
        """By the slope from uncached tokens to seconds, if there is one."""
        points = sorted((each.num_tokens, each.ttft_s) for each in text)
        outer = len(points) // 10
        if len(points) < MIN_SAMPLES or points[-1 - outer][0] - points[outer][0] < MIN_REACH_TOKENS:
            return None
        pairs = zip(points, points[(len(points) + 1) // 2 :], strict=False)
        slopes = (((y2 - y1) / (x2 - x1), x2 - x1) for (x1, y1), (x2, y2) in pairs if x2 > x1)
        return _bounded(weighted_median(slopes) / self._prefill_s)

    def _fixed(self, text: _Spread, prefill_factor: float) -> float:
        """What prefill leaves of requests without media work."""
        if len(text) < MIN_SAMPLES:
            return self._configured.fixed_s
        left = median(each.ttft_s - each.num_tokens * self._prefill_s * prefill_factor for each in text)
        return min(max(left, 0.0), MAX_FIXED_S)

    def _media_factor(self, media: _Spread, prefill_factor: float, fixed_s: float) -> float:
        """By what prefill and the fixed part leave of requests with media work."""
        per_token = self._prefill_s * prefill_factor
        ratios = (
            ((each.ttft_s - fixed_s - each.num_tokens * per_token) / each.media_s, each.media_s) for each in media
        )
        return _bounded(weighted_median(ratios))


def _bounded(factor: float) -> float:
    return min(max(factor, 1 / MAX_FACTOR), MAX_FACTOR)
