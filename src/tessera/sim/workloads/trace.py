"""What was asked once, as a file tells it? One JSON object a line."""

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Annotated, Any, Final

from tessera.config.blocks import decode
from tessera.core.plugin import Range
from tessera.sim.content import MAX_SIDE, Ask, Image, Message, Text
from tessera.sim.workload import Workload, WorkloadType, block, workload

MAX_LINES: Final = 1_000_000
MAX_LINE_CHARS: Final = 1 << 20
MAX_AT_S: Final = 1_000_000_000
"""Thirty years: a file of Unix times is meant to begin at 0."""

Tokens = Annotated[int, Range(ge=1, le=10_000_000)]
Side = Annotated[int, Range(ge=1, le=MAX_SIDE)]


@block
class TracePart:
    """Text or a picture, by a name that stands for its content."""

    text: str | None = None
    tokens: Tokens = 1
    """Of a text."""
    image: str | None = None
    width: Side = 1
    """Of a picture, pixels."""
    height: Side = 1
    is_link: bool = False
    """Whether the picture is sent as a link."""

    def __post_init__(self) -> None:
        if (self.text is None) == (self.image is None):
            raise ValueError("a part is either {text: NAME, tokens: N} or {image: NAME, width: W, height: H}")


@block
class TraceMessage:
    """One message."""

    role: str
    parts: tuple[TracePart, ...]


@block
class TraceLine:
    """One request."""

    at: Annotated[float, Range(ge=0, le=MAX_AT_S)]
    """Seconds since the trace's start, never falling."""
    output_tokens: Tokens
    messages: tuple[TraceMessage, ...]


@workload("trace")
class Trace(WorkloadType):
    """Requests of a JSONL file in their order, from the start again behind the last.

    Each line is ``{"at": 0.5, "output_tokens": 100, "messages": [{"role": "user", "parts":
    [{"image": "a", "width": 1280, "height": 720}, {"text": "q", "tokens": 50}]}]}``. Names
    stand for content: no trace holds a prompt. ``spacing: recorded`` keeps its rhythm,
    stretched to the rates of the scenario. At most 1,000,000 lines of 1 MiB.
    """

    path: str
    """The file, relative to the scenario's."""

    def __post_init__(self) -> None:
        _read(self.path)

    def gaps(self) -> tuple[float, ...]:
        """Seconds before each request of the trace."""
        return _read(self.path)[1]

    def make(self, seed: str) -> Workload:
        """The trace, whatever the seed."""
        return _Trace(_read(self.path)[0])


class _Trace:
    def __init__(self, asks: tuple[Ask, ...]) -> None:
        self._asks = asks

    def asks(self, stage: int) -> Iterator[Ask]:
        """Its requests, again and again."""
        return cycle(self._asks)


@lru_cache(maxsize=8)
def _read(path: str) -> tuple[tuple[Ask, ...], tuple[float, ...]]:
    """The requests of a trace, and the gaps before them; raises ValueError for what is none."""
    asks: list[Ask] = []
    times = [0.0]
    sizes: dict[str, tuple[int, int]] = {}
    try:
        with Path(path).open(encoding="utf-8") as file:
            for number, text in enumerate(
                islice(iter(lambda: file.readline(MAX_LINE_CHARS + 1), ""), MAX_LINES + 1), 1
            ):
                if number > MAX_LINES or len(text) > MAX_LINE_CHARS:
                    raise ValueError(f"line {number}: at most {MAX_LINES:,} lines of {MAX_LINE_CHARS:,} characters")
                at, ask = ask_of(number, parsed(number, text))
                if at < times[-1]:
                    raise ValueError(f"line {number}: at is {at:g}, before that of the line above")
                _check_sizes(number, ask, sizes)
                times.append(at)
                asks.append(ask)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if not asks:
        raise ValueError(f"{path} holds no request")
    return tuple(asks), tuple(later - sooner for sooner, later in pairwise(times))


def _check_sizes(number: int, ask: Ask, sizes: dict[str, tuple[int, int]]) -> None:
    """A name stands for one picture, so that engine and router take the same for the same."""
    for part in (part for message in ask.messages for part in message.parts):
        if isinstance(part, Image):
            size = part.width, part.height
            known = sizes.setdefault(part.key, size)
            if known != size:
                what = f"picture {part.key!r} is {size[0]}x{size[1]} and was {known[0]}x{known[1]} before"
                raise ValueError(f"line {number}: {what}; give each picture a name of its own")


def parsed(number: int, text: str) -> Any:
    """What a line holds; raises ValueError where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"line {number} is no JSON") from None


def ask_of(number: int, data: Any) -> tuple[float, Ask]:
    """When a line was asked, and what; raises ValueError with every problem of it."""
    line, problems = decode(TraceLine, data, f"line {number}")
    if line is None:
        raise ValueError("; ".join(str(problem) for problem in problems))
    messages = tuple(Message(each.role, tuple(map(_part, each.parts))) for each in line.messages)
    if not any(message.parts for message in messages):
        raise ValueError(f"line {number} asks nothing")
    return line.at, Ask(messages, line.output_tokens)


def _part(part: TracePart) -> Text | Image:
    if part.text is not None:
        return Text(part.text, part.tokens)
    assert part.image is not None, "a part that is no text is a picture"
    return Image(part.image, part.width, part.height, is_link=part.is_link)
