"""What does a log of requests say of sizes, reuse, lengths and rates, and how is it asked again?

A line is a request of a trace (``sim/workloads/trace.py``) or a Decision as Tessera tells
it (``/debug/decisions/{request-id}``, ``tessera explain --format json``).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import isfinite, isqrt
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Final

from tessera.core.errors import ConfigError, Problem
from tessera.sim.content import MAX_SIDE, Ask, Image, Message, Text
from tessera.sim.figures import quantile
from tessera.sim.workload import Workload, WorkloadType
from tessera.sim.workloads.trace import MAX_LINE_CHARS, ask_of, parsed

MAX_REQUESTS: Final = 100_000
"""Lines of a log; each takes about 1 KB."""
MAX_ITEMS: Final = 1024
"""Pictures of a request, as many as the router reads."""
BUSY_S: Final = 60.0
"""The busiest time of this length is what a fleet is built for."""
FEW: Final = 100
"""With fewer requests than these the measured shares say little."""
_PIXELS_PER_EMBED: Final = 32 * 32
"""Of Qwen3-VL: a picture of unknown size is taken to be a square of as many embeddings."""
_SHOWN_SIZES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a log says."""

    num_requests: int
    num_left_out: int
    """Requests with clips or sounds, which are not simulated."""
    num_unsized: int
    """Pictures whose size nobody knew: a square of their tokens stands for them."""
    span_s: float
    """From the first request to the last."""
    mean_rate: float | None
    """Requests a second; nothing where all came at one instant."""
    busiest_rate: float | None
    """Of the busiest minute."""
    pictures_mean: float
    """Of a request."""
    sizes: tuple[tuple[str, float], ...]
    """The most frequent sizes and their shares of the pictures."""
    typical_size: tuple[int, int]
    """The median by pixels."""
    picture_reuse: float
    """Share of the pictures that an earlier request has sent too."""
    has_text: bool
    """Whether texts have names, so that a repeated one is known; Decisions hold none."""
    text_tokens_mean: float
    output_tokens_mean: float
    output_tokens_p90: float

    def as_json(self) -> dict[str, Any]:
        """As ``tessera advise --format json`` tells it."""
        return {
            "num_requests": self.num_requests,
            "num_left_out": self.num_left_out,
            "num_unsized_pictures": self.num_unsized,
            "span_s": self.span_s,
            "mean_rate": self.mean_rate,
            "busiest_minute_rate": self.busiest_rate,
            "pictures_per_request": self.pictures_mean,
            "sizes": [{"size": size, "share": share} for size, share in self.sizes],
            "picture_reuse": self.picture_reuse,
            "knows_text": self.has_text,
            "text_tokens_mean": self.text_tokens_mean,
            "output_tokens_mean": self.output_tokens_mean,
            "output_tokens_p90": self.output_tokens_p90,
        }


@dataclass(frozen=True)
class Replay(WorkloadType):
    """The requests of a log in their order; behind the last from the first again, with content that is new then."""

    recorded: tuple[Ask, ...]
    scale: float = 1.0
    """What the sides of every picture are multiplied with."""

    def make(self, seed: str) -> Workload:
        """The log from a place that the seed chooses."""
        return _Replay(self, seed)


class _Replay:
    def __init__(self, spec: Replay, seed: str) -> None:
        self._spec = spec
        self._seed = seed
        self._next = Random(f"{seed}/start").randrange(len(spec.recorded))

    def asks(self, stage: int) -> Iterator[Ask]:
        """What comes next; a stage goes on where the one before it has ended."""
        recorded = self._spec.recorded
        while True:
            turn, place = divmod(self._next, len(recorded))
            self._next += 1
            yield _renamed(recorded[place], f"{self._seed}-{turn}", self._spec.scale)


def _renamed(ask: Ask, name: str, scale: float) -> Ask:
    def part(each: Text | Image) -> Text | Image:
        if isinstance(each, Text):
            return replace(each, key=f"{name}-{each.key}")
        width, height = (scaled_side(side, scale) for side in (each.width, each.height))
        return replace(each, key=f"{name}-{each.key}", width=width, height=height)

    messages = tuple(replace(message, parts=tuple(map(part, message.parts))) for message in ask.messages)
    return replace(ask, messages=messages)


def scaled_side(side: int, scale: float) -> int:
    """A side that is longer or shorter, as far as pictures go.

    >>> scaled_side(1280, 1.5), scaled_side(16000, 2)
    (1920, 16384)
    """
    return min(max(1, round(side * scale)), MAX_SIDE)


def read_log(path: Path, output_tokens: int | None = None) -> tuple[Replay, Measured]:
    """A log's requests in order of their arrival, and what they say.

    Args:
        path: JSON lines, at most ``MAX_REQUESTS`` of 1 MiB.
        output_tokens: length of the answers that a Decision, made before them, cannot know.

    Raises:
        ConfigError: a line that is neither kind, or no request.
    """
    rows: list[tuple[float, Ask]] = []
    counts: Counter[str] = Counter()
    try:
        with path.open(encoding="utf-8") as file:
            lines = islice(iter(lambda: file.readline(MAX_LINE_CHARS + 1), ""), MAX_REQUESTS + 1)
            for number, text in enumerate(lines, 1):
                if number > MAX_REQUESTS or len(text) > MAX_LINE_CHARS:
                    most = f"at most {MAX_REQUESTS:,} lines of {MAX_LINE_CHARS:,} characters are read"
                    raise ValueError(f"line {number}: {most}; give the busiest part of the log")
                if text.strip():
                    rows += _row(number, parsed(number, text), output_tokens, counts)
    except UnicodeDecodeError:
        raise ConfigError([Problem(str(path), "is not UTF-8")]) from None
    except ValueError as error:
        raise ConfigError([Problem(str(path), str(error))]) from None
    if not rows:
        raise ConfigError([Problem(str(path), "holds no request that can be simulated: text and pictures")])
    rows.sort(key=lambda row: row[0])
    return Replay(tuple(ask for _, ask in rows)), _measure(rows, counts)


def _row(number: int, data: Any, output_tokens: int | None, counts: Counter[str]) -> list[tuple[float, Ask]]:
    """The request of a line, none where it cannot be simulated; raises ValueError for what is none."""
    if not isinstance(data, dict) or not ("messages" in data or "priced" in data):
        wanted = "a trace's {at, output_tokens, messages} or a Decision's {wall_at, priced}"
        raise ValueError(f"line {number}: expected a JSON object, {wanted}")
    if "messages" in data:
        return [ask_of(number, data)]
    if output_tokens is None:
        raise ValueError(f"line {number}: a Decision does not know how long its answer became; give --output-tokens")
    counts["decisions"] += 1
    try:
        found = _decided(data, f"text-{number}", output_tokens, counts)
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError):
        wanted = f"wall_at (Unix seconds) and priced with num_text_tokens and items, at most {MAX_ITEMS}"
        raise ValueError(f"line {number}: no whole Decision; expected {wanted}") from None
    counts["left out"] += found is None
    return [] if found is None else [found]


def _decided(data: dict[str, Any], text: str, output_tokens: int, counts: Counter[str]) -> tuple[float, Ask] | None:
    """When a Decision's request came and what it asked, its pictures first and then new text of that name; nothing
    where it has clips or sounds. What is no Decision raises whatever it happens to."""
    at, priced = float(data["wall_at"]), data["priced"]
    items = list(priced["items"])
    if len(items) > MAX_ITEMS or not isfinite(at):
        raise ValueError
    if any(item["modality"] != "image" for item in items):
        return None
    pictures = [_picture(item, counts) for item in items]
    num_text = min(max(1, int(priced["num_text_tokens"])), 10_000_000)
    return at, Ask((Message("user", (*pictures, Text(text, num_text))),), output_tokens)


def _picture(item: dict[str, Any], counts: Counter[str]) -> Image:
    if item["width"] and item["height"]:
        width, height = int(item["width"]), int(item["height"])
    else:
        counts["unsized"] += 1
        width = height = isqrt(max(1, int(item["num_embeds"])) * _PIXELS_PER_EMBED)
    width, height = (scaled_side(max(side, 1), 1) for side in (width, height))
    return Image(str(item["identifier"])[:256], width, height)


def _measure(rows: Sequence[tuple[float, Ask]], counts: Counter[str]) -> Measured:
    times = [at for at, _ in rows]
    asks = [ask for _, ask in rows]
    parts = [[part for message in ask.messages for part in message.parts] for ask in asks]
    pictures = [[part for part in each if isinstance(part, Image)] for each in parts]
    flat = sorted((picture for each in pictures for picture in each), key=lambda each: each.width * each.height)
    sizes = Counter(f"{picture.width}x{picture.height}" for picture in flat)
    typical = flat[len(flat) // 2] if flat else Image("", 1280, 720)
    outputs = sorted(float(ask.num_output_tokens) for ask in asks)
    span_s = times[-1] - times[0]
    most = sorted(sizes.items(), key=lambda row: (-row[1], row[0]))[:_SHOWN_SIZES]
    return Measured(
        num_requests=len(rows),
        num_left_out=counts["left out"],
        num_unsized=counts["unsized"],
        span_s=round(span_s, 3),
        mean_rate=(len(rows) - 1) / span_s if span_s > 0 else None,
        busiest_rate=_busiest(times) if span_s > 0 else None,
        pictures_mean=fmean(map(len, pictures)),
        sizes=tuple((size, number / len(flat)) for size, number in most),
        typical_size=(typical.width, typical.height),
        picture_reuse=_reuse(pictures),
        has_text=not counts["decisions"],
        text_tokens_mean=fmean(sum(part.num_tokens for part in each if isinstance(part, Text)) for each in parts),
        output_tokens_mean=fmean(outputs),
        output_tokens_p90=quantile(outputs, 0.9) or 0.0,
    )


def _reuse(requests: Sequence[Sequence[Image]]) -> float:
    """Share of the pictures that stood in an earlier request; 0 where there are none."""
    known: set[str] = set()
    num_known = num_all = 0
    for pictures in requests:
        keys = {each.key for each in pictures}
        num_known += len(keys & known)
        num_all += len(keys)
        known |= keys
    return num_known / num_all if num_all else 0.0


def _busiest(times: Sequence[float]) -> float:
    """Requests a second of the busiest minute; of the whole log where that is shorter.

    >>> _busiest([0.0, 1.0, 2.0, 100.0, 200.0])
    0.05
    """
    if times[-1] - times[0] <= BUSY_S:
        return (len(times) - 1) / (times[-1] - times[0])
    return max(bisect_left(times, at + BUSY_S) - place for place, at in enumerate(times)) / BUSY_S
