"""``tessera simulate topology``: which way to divide 16 GPUs among encode, prefill and decode goes furthest?"""

from collections.abc import Sequence
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tessera.cli.options import Format, err, out, print_json
from tessera.config.blocks import nearest
from tessera.core.errors import ConfigError, Problem
from tessera.engine.profiles import ENCODER_PARALLEL_FRACTION
from tessera.sim.max_rate import MAX_RATE, MAX_TPOT_S, Cell, find_cells
from tessera.sim.topology import AGGREGATED, BASE, NUM_GPUS, TOPOLOGIES, WORKLOADS, Trial

TOPOLOGY: Final = "topology"
"""In place of a scenario's name."""
MAX_SEEDS: Final = 100


def compare_topologies(
    names: Sequence[str],
    seeds: str | None,
    num_jobs: int,
    format_: Format,
) -> None:
    """Find and print the rates of the named topologies under the named workloads, of all where none is named.

    Raises:
        ConfigError: a name is unknown, or there are too many seeds.
    """
    workloads, topologies = _chosen(names)
    trial = Trial(seeds=_seeds(seeds))
    pairs = [(workload, topology) for workload in workloads for topology in topologies]
    cells: list[Cell] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(TOPOLOGY, total=len(pairs))
        for cell in find_cells(pairs, trial, num_jobs):
            cells.append(cell)
            progress.advance(task)
    cells.sort(key=lambda cell: pairs.index((cell.workload, cell.topology)))
    if format_ is Format.JSON:
        print_json(_report(cells, trial))
    else:
        _print_table(cells, workloads, topologies, trial)


def _chosen(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The workloads and topologies that are named; all of a kind of which none is."""
    known = [*WORKLOADS, *TOPOLOGIES]
    for name in names:
        if name not in known:
            near = nearest(name, known) or f"; there are {', '.join(known)}"
            raise ConfigError([Problem(TOPOLOGY, f"no workload and no topology is named {name!r}{near}")])
    workloads = [name for name in WORKLOADS if name in names] or list(WORKLOADS)
    topologies = [name for name in TOPOLOGIES if name in names] or list(TOPOLOGIES)
    return workloads, topologies


def _seeds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return Trial().seeds
    if text.isdecimal() and 0 < int(text) <= MAX_SEEDS:
        return tuple(range(int(text)))
    raise ConfigError([Problem("--seeds", f"got {text!r}, expected a number of seeds, 1 to {MAX_SEEDS}")])


def _assumptions(trial: Trial) -> dict[str, float]:
    """What nobody has measured and the rates stand on."""
    return {
        "encoder_data_parallel_time_fraction": ENCODER_PARALLEL_FRACTION,
        "network_bytes_per_s": BASE.network.bytes_per_s,
        "transfer_latency_s": BASE.network.latency_s,
        "hop_s": trial.hops.network_s,
        "sidecar_leg_s": trial.hops.sidecar_s,
    }


def _report(cells: Sequence[Cell], trial: Trial) -> dict[str, Any]:
    return {
        "num_gpus": NUM_GPUS,
        "profile": BASE.name,
        "seeds": list(trial.seeds),
        "max_tpot_s": MAX_TPOT_S,
        "highest_rate_tried": MAX_RATE,
        "assumed": _assumptions(trial),
        "cells": [cell.as_json() for cell in cells],
    }


def _print_table(cells: Sequence[Cell], workloads: Sequence[str], topologies: Sequence[str], trial: Trial) -> None:
    table = Table(box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("topology", overflow="fold")
    by_place = {(cell.workload, cell.topology): cell for cell in cells}
    best = {workload: max(cell.max_rate for cell in cells if cell.workload == workload) for workload in workloads}
    for workload in workloads:
        idle_s = by_place[workload, topologies[0]].idle_ttft_s
        table.add_column(f"{workload}\nidle {idle_s:.3f}", justify="right", no_wrap=True)
    for topology in topologies:
        row = [by_place[workload, topology] for workload in workloads]
        table.add_row(topology, *(_shown(cell, is_best=cell.max_rate == best[cell.workload]) for cell in row))
    out.print(f"{NUM_GPUS} GPUs, {BASE.name}: requests/s with")
    out.print("p90 TTFT < 2 x idle aggregated servers' + 0.2 s / and mean TPOT < 50 ms")
    out.print(table)
    out.print(f"a model, not a measurement; seeds {', '.join(map(str, trial.seeds))}")
    shown = ", ".join(f"{name} {value:g}" for name, value in _assumptions(trial).items())
    out.print(f"assumed, measured by nobody: {shown}")
    if AGGREGATED.name in topologies and AGGREGATED.name != topologies[-1]:
        out.print("before encoders of their own, try --mm-encoder-tp-mode data (aggregated-encoder-data)")


def _shown(cell: Cell, *, is_best: bool) -> str:
    text = f"{_rate(cell.ttft_max_rate)}/{_rate(cell.max_rate)}"
    return f"[bold]{text}[/bold]" if is_best else text


def _rate(rate: float) -> str:
    return f"{rate:.0f}+" if rate >= MAX_RATE else f"{rate:.3g}"
