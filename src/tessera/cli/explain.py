"""``tessera explain``: where would this request go, and why? Nothing is routed."""

import dataclasses
import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tessera.cli.decision_table import print_decision
from tessera.cli.options import (
    ConfigOption,
    Format,
    FormatOption,
    HeaderOption,
    err,
    parse_headers,
    print_json,
    read_config,
    said_plainly,
)
from tessera.config.endpoints import read_endpoints_file
from tessera.core.errors import ConfigError, Problem
from tessera.core.facts import UNKNOWN_LOAD, EndpointState, FleetView, Load
from tessera.core.rng import SeededRng
from tessera.core.router import Router
from tessera.live.metrics_page import ENGINES, read_page
from tessera.live.token_memo import TokenMemo
from tessera.telemetry.records import decision_record

_LOAD_FIELDS = {field.name: field for field in dataclasses.fields(Load) if field.name != "at"}


def explain(
    request: Annotated[Path, typer.Argument(help="A request body (.json).", show_default=False)],
    endpoints: Annotated[Path, typer.Option(help="The endpoints file.", show_default=False)],
    config: ConfigOption = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            help="JSON object keyed ip:port, each a Load's fields (num_waiting, ...) or {page: PATH}.",
            show_default=False,
        ),
    ] = None,
    header: HeaderOption = None,
    path: Annotated[str, typer.Option(help="The request's path.")] = "/v1/chat/completions",
    request_id: Annotated[str, typer.Option(help="Ties break as they did for this id.")] = "explain",
    format_: FormatOption = Format.TABLE,
) -> None:
    """Show where a request would go: every endpoint, every score, who was filtered and why.

    Without --metrics the endpoints' load is unknown, as in the first instants of a router.

        tessera explain request.json --endpoints endpoints.yaml --config my.yaml
    """
    with said_plainly():
        loaded = read_config(config, ignore_missing=True)
        listed, problems = read_endpoints_file(endpoints)
        loads = _read_loads(metrics) if metrics else {}
        headers = {":path": path, **parse_headers(header)}
        profile = dataclasses.replace(loaded.profile, uses_pillow=True)
        body, now = request.read_bytes(), time.time()
        asked, draft = Router.read(body, headers, profile, request_id=request_id, at=0.0, wall_at=now)
        prompt = loaded.router.tokenise(asked, draft, TokenMemo()) if loaded.router.renderer else None
        view = FleetView(tuple(EndpointState(each, loads.get(each.id, UNKNOWN_LOAD)) for each in listed))
        decision = loaded.router.choose(asked, view, 0.0, SeededRng(loaded.routing.seed, request_id), prompt)
    for problem in problems:
        err.print(f"[yellow]warning[/yellow]: {endpoints}: {problem}")
    record = decision_record(decision)
    if format_ is Format.JSON:
        print_json(record)
    else:
        print_decision(record)


def _read_loads(path: Path) -> dict[str, Load]:
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise ConfigError([Problem(str(path), f"not JSON: {error}")]) from None
    if not isinstance(document, dict):
        raise ConfigError([Problem(str(path), "expected an object keyed ip:port")])
    return {endpoint_id: _load(value, f"{path}: {endpoint_id}", path.parent) for endpoint_id, value in document.items()}


def _load(value: Any, place: str, folder: Path) -> Load:
    if isinstance(value, dict) and isinstance(value.get("page"), str):
        page = (folder / value["page"]).read_bytes()
        return read_page(page, ENGINES[value.get("engine", "vllm")], 0.0).load
    if not isinstance(value, dict) or not value.keys() <= _LOAD_FIELDS.keys():
        raise ConfigError([Problem(place, f"expected {{page: PATH}} or fields of {', '.join(_LOAD_FIELDS)}")])
    if not all(_fits(name, each) for name, each in value.items()):
        raise ConfigError([Problem(place, "expected numbers of 0 or more, and lists of names for LoRA adapters")])
    fields: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in value.items()}
    return Load(**fields, at=0.0)


def _fits(name: str, value: Any) -> bool:
    if name in {"running_loras", "waiting_loras"}:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    return isinstance(value, int | float) and value >= 0
