"""What does a decision look like on a terminal? It is read from the Decision's record."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from tessera.cli.options import out

MIN_COLUMNS = 4
"""Endpoints that a table shows side by side, however narrow the terminal is."""
_HEAD_CHARS, _COLUMN_CHARS = 24, 16
_CACHES = {"EncoderMatch": "encoder", "ProcessorMatch": "processor"}
"""Facts of what caches hold of media, and what the caches are called."""

Record = dict[str, Any]
Line = tuple[str, list[str]]
"""A row of the table: its head, and one cell for each endpoint."""


def print_decision(record: Record) -> None:
    """The decision as tables: what the request weighs, then its stages, endpoints side by side."""
    priced = record["priced"]
    out.print(
        f"[bold]{escape(record['request_id'])}[/bold] {priced['dialect']} {escape(priced['model'])}: "
        f"{priced['num_prompt_tokens']} prompt tokens = {priced['num_text_tokens']} text + {len(priced['items'])} items"
    )
    for item in priced["items"]:
        size = f"{item['width']}x{item['height']}" if item["width"] else "size unknown"
        out.print(f"  {item['index']} {item['modality']} {size}: {item['num_tokens']} tokens, {item['basis']}")
    num_items = len({item["identifier"] for item in priced["items"]})
    for stage in record["stages"]:
        for table in _stage_tables(stage, num_items):
            out.print(table)
        for name, text in stage["notes"].items():
            out.print(f"{name}: {text}", markup=False, soft_wrap=True)
        if stage["winner"] is None:
            continue
        behind = escape(", ".join(stage["fallbacks"])) or "nobody"
        out.print(f"winner [bold green]{escape(stage['winner'])}[/bold green], then {behind}")
    for line in _plan(record):
        out.print(line, markup=False, soft_wrap=True)
    if record["guesses"]:
        out.print("guessed: " + ", ".join(record["guesses"]), style="yellow", markup=False, soft_wrap=True)
    if rejection := record["rejection"]:
        out.print(f"rejected: {rejection['reason']}: {rejection['message']}", style="red", markup=False)


def _plan(record: Record) -> Iterator[str]:
    """Who does what, where more than one endpoint does: the stages in one line, then a line for each that encodes."""
    items = {key: value for key, value in record["plan"].items() if key.isdigit()}
    stages = {key: value for key, value in record["plan"].items() if key not in items}
    if len(stages) < 2:
        return
    yield "plan: " + ", ".join(f"{name} at {endpoints.replace(',', ' and ')}" for name, endpoints in stages.items())
    by_endpoint: dict[str, list[str]] = {}
    for index, endpoint in items.items():
        by_endpoint.setdefault(endpoint, []).append(index)
    for endpoint, indices in by_endpoint.items():
        is_here = all(endpoint not in value.split(",") for name, value in stages.items() if name in _encoding(record))
        which = f"{'items' if len(indices) > 1 else 'item'} {', '.join(indices)}"
        yield f"  {which} encoded at {endpoint}" + (", where the prompt is computed" if is_here else "")


def _encoding(record: Record) -> set[str]:
    return {stage["profile"] for stage in record["stages"] if stage["work"] == "encode"}


def _stage_tables(stage: Record, num_items: int) -> Iterator[Table]:
    """As many endpoints a table as fit the terminal; a number that is cut off says nothing."""
    rows = stage["candidates"]
    each = max(MIN_COLUMNS, (out.width - _HEAD_CHARS) // _COLUMN_CHARS)
    for start in range(0, max(1, len(rows)), each):
        yield _table(stage, rows[start : start + each], num_items)


def _table(stage: Record, rows: Sequence[Record], num_items: int) -> Table:
    table = Table(title=f"profile {stage['profile']}")
    table.add_column("", overflow="fold")
    for name, row in zip(_short([row["endpoint"] for row in rows]), rows, strict=True):
        style = "bold green" if row["endpoint"] == stage["winner"] else ""
        table.add_column(escape(name), justify="right", style=style, overflow="fold")
    names = list(next((row["scores"] for row in stage["candidates"] if row["scores"]), {}))
    for head, cells in _lines(rows, names, num_items):
        table.add_row(escape(head), *map(escape, cells))
    return table


def _short(names: list[str]) -> list[str]:
    """The endpoints' names, ports on a line of their own; the ports alone where they share one address."""
    hosts = {name.rpartition(":")[0] for name in names}
    if len(hosts) == 1 and len(names) > 1:
        return [":" + name.rpartition(":")[2] for name in names]
    return ["\n:".join(name.rsplit(":", 1)) for name in names]


def _lines(rows: Sequence[Record], scorers: Sequence[str], num_items: int) -> Iterator[Line]:
    """What is known of the endpoints, what each scorer makes of it, and what came of it."""
    for head, fact, field in (
        ("waiting", "Load", "num_waiting"),
        ("running", "Load", "num_running"),
        ("KV in use", "Load", "kv_usage_fraction"),
        ("in flight", "InFlightLoad", "num_requests"),
        ("queued tokens", "InFlightLoad", "num_uncached_tokens"),
    ):
        yield head, [_number(row["facts"].get(fact, {}).get(field)) for row in rows]
    yield from _held(rows, num_items)
    if any("FirstTokenCost" in row["facts"] for row in rows):
        for head, field in (
            ("queued s", "queued_s"),
            ("prefill s", "prefill_s"),
            ("encode s", "encode_s"),
            ("processing s", "processing_s"),
            ("predicted TTFT s", "ttft_s"),
        ):
            yield head, [_number(row["facts"].get("FirstTokenCost", {}).get(field)) for row in rows]
    for name in scorers:
        yield name.removesuffix("-scorer"), [_number(row["scores"].get(name)) for row in rows]
    yield "total", [_number(row["total"]) for row in rows]
    yield "filtered by", [row["filtered_by"] or "" for row in rows]


def _held(rows: Sequence[Record], num_items: int) -> Iterator[Line]:
    """What the caches are believed to hold of this request; producers by name where one fact has several."""
    keys = [key.partition("/") for key in (rows[0]["facts"] if rows else ())]
    kinds = [kind for kind, _, _ in keys]
    for kind, slash, producer in keys:
        facts = [row["facts"].get(kind + slash + producer, {}) for row in rows]
        of = f" ({producer or 'default'})" if kinds.count(kind) > 1 else ""
        if kind == "PrefixMatch":
            basis = "exact" if any(fact.get("is_exact") for fact in facts) else "approximate"
            for what in ("text", "media"):
                tokens = [fact.get(f"num_matched_{what}_tokens") for fact in facts]
                yield f"cached {what}, {basis}{of}", list(map(_number, tokens))
        elif kind in _CACHES and num_items:
            yield f"{_CACHES[kind]} holds{of}", [f"{len(fact.get('identifiers', ()))} of {num_items}" for fact in facts]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}"
