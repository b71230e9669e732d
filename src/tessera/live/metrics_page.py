"""What does an engine's metrics page say?

Only the handful of series that an engine's table names are looked for; the page is
never parsed as a whole. Everything an endpoint sends is bounded: see the limits below.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tessera.core.errors import ConfigError, Problem
from tessera.core.facts import Load

MAX_PAGE_BYTES = 4 << 20
"""A larger page says nothing. vLLM 0.32's is 56 KB for one engine and one model."""
MAX_LINES = 2048
"""Lines that start with a family's name and are looked at; a page with more says nothing of that family."""
MAX_LABELS_BYTES = 256 << 10
"""Bytes between the braces of one family's lines; vLLM's longest line has 1 KB."""
MAX_LORAS = 1024
"""Names of one list of LoRA adapters that are read."""

_MAX_NUMBER_BYTES = 64
_MAX_COUNT = float(1 << 53)
_FRACTION_SLACK = 1e-3
"""A usage of 1.0004 is a rounding of 1; a usage of 50 is a percentage, or nonsense."""

# Possessive quantifiers: the time stays linear and no stack grows on hostile lines.
_SAMPLE = re.compile(rb'(?:\{([^"{}\n]*+(?:"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"[^"{}\n]*+)*+)\})?[ \t]++([^ \t\r\n]++)')
_LABEL = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"')
_FAMILY = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def _escaped(value: str) -> bytes:
    """A label's value as a page spells it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").encode()


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """The series of one family, or those of them that carry certain labels."""

    family: str
    """The sample's whole name, ``_count`` of a histogram included."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels that a series must have, with their values."""
    line_start: bytes = field(init=False, repr=False, compare=False)
    wanted: frozenset[tuple[bytes, bytes]] = field(init=False, repr=False, compare=False)
    """``labels`` as they are spelled on a page, escapes included."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "line_start", b"\n" + self.family.encode())
        wanted = frozenset((name.encode(), _escaped(value)) for name, value in self.labels)
        object.__setattr__(self, "wanted", wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Under which names an engine says how loaded it is; ``None`` where it does not say it."""

    name: str
    """The value of the endpoint's engine-type label."""
    num_waiting: MetricSpec | None = None
    num_running: MetricSpec | None = None
    kv_usage: MetricSpec | None = None
    """Share of KV blocks in use, 0..1."""
    cache_info: MetricSpec | None = None
    """An info series that carries the cache's geometry as label values."""
    block_size_label: str = ""
    num_blocks_label: str = ""
    num_cache_tokens_label: str = ""
    block_size: MetricSpec | None = None
    """Tokens a block holds, where it is a series of its own; read before ``cache_info``."""
    num_blocks: MetricSpec | None = None
    lora_info: MetricSpec | None = None
    """An info series whose labels list adapters and whose value is when it was so; the latest one counts."""
    num_first_tokens: MetricSpec | None = None
    """A counter that grows by one with each first token."""
    process_start: MetricSpec | None = MetricSpec("process_start_time_seconds")


ENGINES: Mapping[str, EngineSpec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            EngineSpec(
                name="vllm",
                num_waiting=MetricSpec("vllm:num_requests_waiting"),
                num_running=MetricSpec("vllm:num_requests_running"),
                kv_usage=MetricSpec("vllm:kv_cache_usage_perc"),
                cache_info=MetricSpec("vllm:cache_config_info"),
                block_size_label="block_size",
                num_blocks_label="num_gpu_blocks",
                num_cache_tokens_label="kv_cache_size_tokens",
                lora_info=MetricSpec("vllm:lora_requests_info"),
                num_first_tokens=MetricSpec("vllm:time_to_first_token_seconds_count"),
            ),
            EngineSpec(
                name="sglang",
                num_waiting=MetricSpec("sglang:num_queue_reqs"),
                num_running=MetricSpec("sglang:num_running_reqs"),
                kv_usage=MetricSpec("sglang:token_usage"),
                cache_info=MetricSpec("sglang:cache_config_info"),
                block_size_label="page_size",
                num_blocks_label="num_pages",
                num_first_tokens=MetricSpec("sglang:time_to_first_token_seconds_count"),
            ),
            EngineSpec(
                name="trtllm-serve",
                num_waiting=MetricSpec("trtllm_num_requests_waiting"),
                num_running=MetricSpec("trtllm_num_requests_running"),
                kv_usage=MetricSpec("trtllm_kv_cache_utilization"),
                block_size=MetricSpec("trtllm_kv_cache_tokens_per_block"),
                num_blocks=MetricSpec("trtllm_kv_cache_max_blocks"),
            ),
            EngineSpec(
                name="triton-tensorrt-llm",
                num_waiting=MetricSpec("nv_trt_llm_request_metrics", (("request_type", "waiting"),)),
                num_running=MetricSpec("nv_trt_llm_request_metrics", (("request_type", "scheduled"),)),
                kv_usage=MetricSpec("nv_trt_llm_kv_cache_block_metrics", (("kv_cache_block_type", "fraction"),)),
                block_size=MetricSpec("nv_trt_llm_kv_cache_block_metrics", (("kv_cache_block_type", "tokens_per"),)),
                num_blocks=MetricSpec("nv_trt_llm_kv_cache_block_metrics", (("kv_cache_block_type", "max"),)),
            ),
            EngineSpec(
                name="triton",
                num_waiting=MetricSpec("nv_inference_pending_request_count"),
                num_running=MetricSpec("nv_inference_exec_count"),
            ),
        )
    }
)
"""Engines by the value of their endpoint's label. Source: llm-d-router ``core-metrics-extractor``, August 2026."""


@dataclass(frozen=True, slots=True)
class PageReading:
    """What one page said."""

    load: Load
    num_first_tokens: int | None
    """Running count of first tokens, summed over the page's engines."""
    process_start_at: float | None
    """Unix seconds."""

    @property
    def says_load(self) -> bool:
        """Whether the page has at least one of the series by which load is told."""
        load = self.load
        return not (load.num_waiting is load.num_running is load.kv_usage_fraction is None)


def metric_spec(text: str, path: str = "") -> MetricSpec:
    """The series that ``family{label=value,...}`` means; values may stand in double quotes.

    ``path`` is where the text stands in the configuration.

    Raises:
        ConfigError: the text is no such thing.

    >>> metric_spec("nv_trt_llm_request_metrics{request_type=waiting}").labels
    (('request_type', 'waiting'),)
    """

    def refuse(why: str) -> ConfigError:
        return ConfigError([Problem(path, f"{text!r} {why}; expected family or family{{label=value,...}}")])

    family, brace, rest = text.strip().partition("{")
    family = family.strip()
    if not _FAMILY.fullmatch(family):
        raise refuse("does not start with a metric's name")
    if not brace:
        return MetricSpec(family)
    if not rest.endswith("}") or "{" in rest or "}" in rest[:-1]:
        raise refuse("has braces that do not close at its end")
    labels: dict[str, str] = {}
    for pair in rest[:-1].split(","):
        name, equals, value = (each.strip() for each in pair.partition("="))
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1]
        if not equals or not _LABEL_NAME.fullmatch(name) or not value or "=" in value or '"' in value:
            raise refuse(f"has {pair.strip()!r} where label=value belongs")
        if name in labels:
            raise refuse(f"names the label {name!r} twice")
        labels[name] = value
    return MetricSpec(family, tuple(labels.items()))


def read_page(page: bytes, engine: EngineSpec, at: float) -> PageReading:
    """What ``page``, whose scrape began ``at``, says; a field is ``None`` where it is absent or garbage.

    Several series of one family come from several engines or models behind one port:
    waiting, running, blocks, cache tokens and first tokens are summed, usage is the
    mean, the block size must be the same in all, and the latest process start counts.
    One bad value among them makes the whole field ``None``. Never raises.
    """
    if len(page) > MAX_PAGE_BYTES:
        return PageReading(Load(at=at), None, None)
    if not page.startswith(b"#"):
        page = b"\n" + page
    usage = _values(page, engine.kv_usage)
    mean = sum(usage) / len(usage) if usage else None
    geometry = _Geometry(page, engine)
    running, waiting, max_loras = _loras(page, engine.lora_info)
    started = _values(page, engine.process_start)
    load = Load(
        num_waiting=_total(_values(page, engine.num_waiting)),
        num_running=_total(_values(page, engine.num_running)),
        kv_usage_fraction=min(1.0, mean) if mean is not None and mean <= 1.0 + _FRACTION_SLACK else None,
        block_size=geometry.block_size,
        num_blocks=geometry.num_blocks,
        num_cache_tokens=geometry.num_cache_tokens,
        running_loras=running,
        waiting_loras=waiting,
        max_loras=max_loras,
        at=at,
    )
    return PageReading(load, _total(_values(page, engine.num_first_tokens)), max(started) if started else None)


class _Geometry:
    """How large the KV cache is, from label values or from series."""

    def __init__(self, page: bytes, engine: EngineSpec) -> None:
        rows: list[dict[bytes, bytes]] = [
            dict(_LABEL.findall(each)) for each, _ in _samples(page, engine.cache_info) or ()
        ]
        self.block_size = _same(_values(page, engine.block_size) or _column(rows, engine.block_size_label))
        self.num_blocks = _total(_values(page, engine.num_blocks) or _column(rows, engine.num_blocks_label))
        self.num_cache_tokens = _total(_column(rows, engine.num_cache_tokens_label))


def _loras(page: bytes, spec: MetricSpec | None) -> tuple[tuple[str, ...], tuple[str, ...], int | None]:
    """Running adapters, waiting ones, and how many fit; an old state's series stays on the page beside the new one."""
    rows = [(value, labels) for labels, raw in _samples(page, spec) or () if (value := _number(raw)) is not None]
    if not rows:
        return (), (), None
    labels = dict(_LABEL.findall(max(rows, key=lambda row: row[0])[1]))
    most = _number(labels.get(b"max_lora", b""))
    running, waiting = (labels.get(name, b"") for name in (b"running_lora_adapters", b"waiting_lora_adapters"))
    return _names(running), _names(waiting), int(most) if most is not None else None


def _names(text: bytes) -> tuple[str, ...]:
    """The names of a comma-separated list, at most ``MAX_LORAS``."""
    names = text.decode("utf-8", "replace").split(",", MAX_LORAS)[:MAX_LORAS]
    return tuple(name.strip() for name in names if name.strip())


def _column(rows: list[dict[bytes, bytes]], label: str) -> list[float] | None:
    """One label's values as numbers."""
    numbers = [_number(row.get(label.encode(), b"")) for row in rows] if label else []
    known = [number for number in numbers if number is not None]
    return known if known and len(known) == len(numbers) else None


def _values(page: bytes, spec: MetricSpec | None) -> list[float] | None:
    """The numbers of the series that ``spec`` means; nothing where there are none, or a bad one."""
    numbers: list[float] = []
    for _, raw in _samples(page, spec) or ():
        number = _number(raw)
        if number is None:
            return None
        numbers.append(number)
    return numbers or None


def _samples(page: bytes, spec: MetricSpec | None) -> list[tuple[bytes, bytes]] | None:
    """(labels, value) of each series that ``spec`` means, as spelled; nothing beyond the limits."""
    if spec is None:
        return None
    found: list[tuple[bytes, bytes]] = []
    num_bytes = 0
    for labels, value in _lines(page, spec.line_start):
        num_bytes += len(labels or b"")
        if labels is None or num_bytes > MAX_LABELS_BYTES:
            return None
        if not spec.wanted or spec.wanted <= set(_LABEL.findall(labels)):
            found.append((labels, value))
    return found


def _lines(page: bytes, line_start: bytes) -> Iterator[tuple[bytes | None, bytes]]:
    """(labels, value) of each line of a family; labels are ``None`` where there are too many lines.

    The lines of a family stand together, so the search ends where the next family begins.
    """
    width = len(line_start)
    position = page.find(line_start)
    end = -1
    for _ in range(MAX_LINES):
        if position < 0:
            return
        sample = _SAMPLE.match(page, position + width)
        if sample:
            if end < 0:
                end = page.find(b"\n# TYPE ", position)
                end = len(page) if end < 0 else end
            yield sample[1] or b"", sample[2]
        position = page.find(line_start, position + width, end if end >= 0 else len(page))
    yield None, b""


def _number(raw: bytes) -> float | None:
    """A finite number from 0 to 2**53, or nothing."""
    if len(raw) > _MAX_NUMBER_BYTES:
        return None
    try:
        number = float(raw)
    except ValueError:
        return None
    return number if 0.0 <= number <= _MAX_COUNT else None


def _total(numbers: list[float] | None) -> int | None:
    return int(sum(numbers)) if numbers else None


def _same(numbers: list[float] | None) -> int | None:
    return int(numbers[0]) if numbers and min(numbers) == max(numbers) else None
