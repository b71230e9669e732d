"""What is to be served, and how well? A short YAML file, or a log of requests from which it is measured."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from tessera.config import document
from tessera.config.blocks import decode, seen
from tessera.core.errors import ConfigError, Problem
from tessera.core.plugin import Range
from tessera.sim.advice.log import Measured, read_log
from tessera.sim.content import MAX_SIDE
from tessera.sim.workload import WorkloadType, block
from tessera.sim.workloads.repeats import Repeats

LOG_SUFFIXES: Final = (".jsonl", ".ndjson")
"""A file with another name is YAML."""

_SIZE: Final = re.compile(r"([0-9]{1,6})\s*[xX]\s*([0-9]{1,6})")

Tokens = Annotated[int, Range(ge=1, le=100_000)]
Seconds = Annotated[float, Range(gt=0, le=3600)]
Milliseconds = Annotated[float, Range(gt=0, le=60_000)]


@block
class ObjectivesSpec:
    """What a sustained rate must keep."""

    ttft: Seconds | None = None
    """Seconds that the 90th percentile of the time to the first token stays below; absent: twice that of an idle
    aggregated fleet + 0.2 s."""
    tpot: Milliseconds | None = None
    """Milliseconds that the mean time for each further token stays below; absent: 50."""


@block
class WorkloadSpec:
    """A workload file."""

    description: str = ""
    """What it is, in a line."""
    pictures: Annotated[int, Range(ge=0, le=64)] = 1
    """Of each request."""
    size: str = "1280x720"
    """Of each picture, pixels: WIDTHxHEIGHT."""
    reuse: Annotated[float, Range(ge=0, le=1)] = 0.0
    """Share of the requests whose pictures, in the same order, were sent before."""
    system_tokens: Tokens = 1
    """Text that all requests begin with."""
    prompt_tokens: Tokens
    """New text of each request, behind the pictures."""
    output_tokens: Tokens
    """Of each answer."""
    rate: Annotated[float, Range(gt=0, le=10_000)] | None = None
    """Requests a second that must be served; absent: nobody says."""
    objectives: ObjectivesSpec = ObjectivesSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question."""

    name: str
    description: str
    workload: WorkloadType
    num_pictures: float
    """Of a request, on the mean."""
    size: tuple[int, int]
    """Pixels of a picture, or of the typical one."""
    rate: float | None
    """Requests a second that must be served."""
    ttft_s: float | None
    """As the file says; the command line may say otherwise."""
    tpot_s: float | None
    measured: Measured | None = None
    """What a log says; nothing where a person said it."""


def read_question(path: Path, output_tokens: int | None = None) -> Asked:
    """What a file asks.

    Args:
        path: ``.jsonl`` or ``.ndjson`` is a log of requests, anything else YAML.
        output_tokens: length of the answers where a log does not say it.

    Raises:
        ConfigError: every problem of it, each with its place.
    """
    if path.suffix.lower() in LOG_SUFFIXES:
        return _asked_by_log(path, output_tokens)
    if output_tokens is not None:
        raise ConfigError([Problem("--output-tokens", "is for logs; in YAML say output_tokens")])
    return parse_question(document.read_file(path), path.stem)


def parse_question(text: str, name: str) -> Asked:
    """What a YAML text asks; raises as ``read_question``."""
    data: Any = document.parse(text)
    if not isinstance(data, dict):
        expected = "a mapping with pictures, size, prompt_tokens and output_tokens"
        raise ConfigError([Problem("", f"got {seen(data)}, expected {expected}; a log of requests is a .jsonl file")])
    made, problems = decode(WorkloadSpec, data, "")
    size = _size_of(made.size if made is not None else data.get("size", WorkloadSpec.size))
    if size is None:
        seen_size = seen(data.get("size"))
        problems.append(Problem("size", f"got {seen_size}, expected WIDTHxHEIGHT, 1 to {MAX_SIDE} pixels a side"))
    if made is None or size is None or problems:
        raise ConfigError(problems)
    objectives = made.objectives
    return Asked(
        name=name,
        description=made.description,
        workload=Repeats(
            num_pictures=made.pictures,
            width=size[0],
            height=size[1],
            reuse=made.reuse,
            system_tokens=made.system_tokens,
            question_tokens=made.prompt_tokens,
            output_tokens=made.output_tokens,
        ),
        num_pictures=made.pictures,
        size=size,
        rate=made.rate,
        ttft_s=objectives.ttft,
        tpot_s=None if objectives.tpot is None else objectives.tpot / 1000,
    )


def _asked_by_log(path: Path, output_tokens: int | None) -> Asked:
    replay, measured = read_log(path, output_tokens)
    return Asked(
        name=path.stem,
        description="",
        workload=replay,
        num_pictures=measured.pictures_mean,
        size=measured.typical_size,
        rate=measured.busiest_rate,
        ttft_s=None,
        tpot_s=None,
        measured=measured,
    )


def _size_of(text: Any) -> tuple[int, int] | None:
    """(width, height); nothing where that is none.

    >>> _size_of("3840x2160"), _size_of("4K")
    ((3840, 2160), None)
    """
    found = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        return None
    width, height = int(found[1]), int(found[2])
    return (width, height) if min(width, height) >= 1 and max(width, height) <= MAX_SIDE else None
