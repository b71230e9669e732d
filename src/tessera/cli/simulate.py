"""``tessera simulate``: what would a fleet do under this load, with this policy?"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tessera.cli.options import Format, FormatOption, err, out, print_json, said_plainly
from tessera.cli.topology import TOPOLOGY, compare_topologies
from tessera.core.errors import ConfigError, Problem
from tessera.sim.plot import check, draw
from tessera.sim.policies import shipped_policies
from tessera.sim.report import report_of
from tessera.sim.run import Row, perform, runs_of
from tessera.sim.scenario import Scenario, load_scenario, shipped_scenarios
from tessera.sim.topology import TOPOLOGIES, WORKLOADS

MAX_STEPS = 1000
"""Numbers that one range may stand for."""
ScenariosArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Shipped scenarios or scenario files; or `topology`, and the workloads and topologies to compare.",
        show_default=False,
    ),
]
PolicyOption = Annotated[
    list[str] | None,
    typer.Option(help="A policy's name or a configuration file; may be repeated.", show_default=False),
]

PlotOption = Annotated[
    Path | None,
    typer.Option(
        help="Draw the figures against the rates: a .png, .svg or .pdf; of several scenarios, one file each, "
        "OUT-SCENARIO.png. Needs the extra `plot`.",
        show_default=False,
    ),
]


def simulate(
    scenarios: ScenariosArgument = None,
    policy: PolicyOption = None,
    rates: Annotated[
        str | None, typer.Option(help="Requests/s: 40, or 5,20,40, or 5:80:5 (from, to, step).", show_default=False)
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="How many seeds, or 10:14 for those from 10 to 14.", show_default=False)
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List scenarios and policies, and stop.")] = False,
    plot: PlotOption = None,
    jobs: Annotated[int | None, typer.Option(help="Processes; as many as there are cores.", min=1)] = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """Run scenarios in virtual time: the router's own code against a model of its engines.

    Reported are means over the seeds. It is a model: fitted to one published table, and
    right about others as far as its scenario says.

        tessera simulate article

        tessera simulate never-repeated --policy my.yaml --rates 40:60:10

        tessera simulate question-first --plot question-first.png

        tessera simulate topology 2x4k
    """
    with said_plainly():
        if list_:
            _print_list()
            return
        if scenarios and scenarios[0] == TOPOLOGY:
            for option, given in (("--policy", policy), ("--rates", rates), ("--plot", plot)):
                if given is not None:
                    why = "is not for topologies: each pool has its policy, rates are found, and a table is printed"
                    raise ConfigError([Problem(option, why)])
            compare_topologies(scenarios[1:], seeds, jobs or os.cpu_count() or 1, format_)
            return
        if not scenarios:
            raise ConfigError([Problem("", "name a scenario or a file; --list shows what is shipped")])
        chosen = [_changed(load_scenario(name), policy, rates) for name in scenarios]
        pictures = _pictures(plot, chosen)
        reports = [_run(each, _seeds(seeds, each), jobs or os.cpu_count() or 1) for each in chosen]
        _draw(reports, pictures)
    if format_ is Format.JSON:
        print_json(reports if len(reports) > 1 else reports[0])
        return
    for report in reports:
        _print_report(report)


def _pictures(path: Path | None, scenarios: Sequence[Scenario]) -> list[Path]:
    """Where each scenario is drawn; nothing where none is.

    Raises:
        ConfigError: something cannot be drawn there, or two scenarios would have one file.
    """
    if path is None:
        return []
    if not path.name:
        raise ConfigError([Problem("--plot", f"got {str(path)!r}, expected a file, such as figures.png")])
    found = [path if len(scenarios) == 1 else path.with_stem(f"{path.stem}-{each.name}") for each in scenarios]
    if len(set(found)) < len(found):
        raise ConfigError([Problem("--plot", "two of the scenarios have one name; draw them one by one")])
    for scenario, each in zip(scenarios, found, strict=True):
        check(each, len(scenario.policies))
    return found


def _draw(reports: Sequence[dict[str, Any]], pictures: Sequence[Path]) -> None:
    for report, path in zip(reports, pictures, strict=False):
        draw(report, path)
        err.print(f"drawn: {path}", markup=False)


def _changed(scenario: Scenario, policies: list[str] | None, rates: str | None) -> Scenario:
    if policies:
        scenario = scenario.with_policies(policies)
    return scenario if rates is None else scenario.with_rates(_numbers(rates, "--rates"))


def _seeds(text: str | None, scenario: Scenario) -> list[int]:
    if text is None:
        return list(range(scenario.document.seeds))
    if text.isdecimal() and 0 < int(text) <= MAX_STEPS:
        return list(range(int(text)))
    found = _numbers(text, "--seeds") if ":" in text or "," in text else ()
    if not found or any(each != int(each) or each < 0 for each in found):
        raise ConfigError([Problem("--seeds", f"got {text!r}, expected a number of seeds or a range as 10:14")])
    if len(set(found)) < len(found):
        raise ConfigError([Problem("--seeds", f"got {text!r}, one of them twice; name each seed once")])
    return [int(each) for each in found]


def _numbers(text: str, option: str) -> tuple[float, ...]:
    """The numbers that ``5``, ``5,10`` or ``5:80:5`` stand for; a range has its end in it."""
    try:
        if ":" not in text:
            found = tuple(float(each) for each in text.split(","))
            if all(map(math.isfinite, found)):
                return found
        else:
            first, last, step = ([float(each) for each in text.split(":")] + [1.0])[:3]
            number = (last - first) / step
            if step > 0 and 0 <= number < MAX_STEPS and text.count(":") <= 2:
                return tuple(round(first + n * step, 9) for n in range(int(number + 1e-9) + 1))
    except (ValueError, ArithmeticError):
        pass
    expected = "a number of seeds or a range as 10:14" if option == "--seeds" else "numbers as 5 or 5,10 or 5:80:5"
    raise ConfigError([Problem(option, f"got {text!r}, expected {expected}")])


def _run(scenario: Scenario, seeds: Sequence[int], num_jobs: int) -> dict[str, Any]:
    runs = runs_of(scenario, seeds)
    rows: list[Row] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(scenario.name, total=sum(run.num_requests for run in runs))
        for run, found in perform(runs, num_jobs):
            rows += found
            progress.advance(task, run.num_requests)
    return report_of(scenario, seeds, rows)


def _print_list() -> None:
    table = Table("scenario", "what it shows", "policies", title="scenarios")
    for name in shipped_scenarios():
        scenario = load_scenario(name)
        table.add_row(name, scenario.document.description, str(len(scenario.policies)))
    out.print(table)
    out.print("policies: " + ", ".join(shipped_policies()))
    out.print(f"topology: {', '.join(TOPOLOGIES)}; with {', '.join(WORKLOADS)}", markup=False)


_COLUMNS = {
    "tok/s": ("output_tokens_per_s", "{:,.0f}"),
    "good": ("good_requests_per_s", "{:.2f}"),
    "fail": ("num_failed", "{:.1f}"),
    "TTFT\np50 s": ("ttft_p50_s", "{:.3f}"),
    "\np90 s": ("ttft_p90_s", "{:.3f}"),
    "TPOT\nms": ("tpot_mean_s", "{:.1f}"),
    "KV\n%": ("prefix_hit_fraction", "{:.0f}"),
    "enc.\n%": ("encoder_hit_fraction", "{:.0f}"),
    "proc.\n%": ("processor_hit_fraction", "{:.0f}"),
    "most\n%": ("most_requests_fraction", "{:.0f}"),
}
"""By heading: the figure and how it is written. All fit 80 characters beside the name of a policy."""
_HUNDREDTHS = "_fraction"
"""How figures end that are shown in per cent."""
_MILLISECONDS = ("tpot_mean_s",)
_LEGEND = """rate: requests/s; tok/s: of answers; good: requests/s with TTFT <= 1 s and
TPOT <= 50 ms; fail: requests that failed at the client; KV, enc., proc.: hits
of the three caches; most: share of all requests at the busiest endpoint"""


def _print_report(report: dict[str, Any]) -> None:
    seeds = report["seeds"]
    how = "fitted" if report["is_fitted"] else "derived, measured by nobody"
    title = f"{report['scenario']}: {report['num_endpoints']} x {report['profile']} ({how}), seeds {_span(seeds)}"
    table = Table(title=title, caption="a model, not a measurement", box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("policy", overflow="fold")
    for heading in ("rate", *_COLUMNS):
        table.add_column(heading, justify="right", no_wrap=True)
    last = None
    for row in report["means"]:
        if last not in (None, row["policy"]):
            table.add_section()
        shown = "" if row["policy"] == last else escape(row["policy"])
        last = row["policy"]
        table.add_row(shown, f"{row['rate']:g}", *(_cell(row, *column) for column in _COLUMNS.values()))
    out.print(table)
    out.print(_LEGEND, style="dim")
    if report["published"]:
        _print_published(report["published"])


def _print_published(cells: list[dict[str, Any]]) -> None:
    """What was published, what the model says, and the error of each cell."""
    policies = dict.fromkeys(cell["policy"] for cell in cells)
    figures = dict.fromkeys(cell["figure"] for cell in cells)
    by_place = {(cell["policy"], cell["rate"], cell["figure"]): cell for cell in cells}
    for policy in policies:
        table = Table("req/s", title=f"{policy}: simulated (published, error)")
        for figure in figures:
            table.add_column(figure, justify="right")
        for rate in dict.fromkeys(cell["rate"] for cell in cells if cell["policy"] == policy):
            row = [_compared(by_place.get((policy, rate, figure))) for figure in figures]
            table.add_row(f"{rate:g}", *row)
        out.print(table)
    beyond = [cell for cell in cells if not cell["is_within"]]
    out.print(f"{len(cells) - len(beyond)} of {len(cells)} cells within their bounds")
    for cell in beyond:
        what = f"{cell['policy']} {cell['figure']} at {cell['rate']:g} req/s: {cell['error']:+.1%}"
        out.print(f"beyond: {what}, bound {cell['within']:.0%}", style="red", markup=False)


def _compared(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "-"
    form = "{:,.0f}" if cell["figure"] == "output_tokens_per_s" else "{:.3f}"
    text = f"{form.format(cell['simulated'])} ({form.format(cell['published'])}, {cell['error']:+.1%})"
    return text if cell["is_within"] else f"[red]{text}[/red]"


def _cell(row: dict[str, Any], figure: str, form: str) -> str:
    value = row[figure]
    if value is None:
        return "-"
    scale = 100 if figure.endswith(_HUNDREDTHS) else 1000 if figure in _MILLISECONDS else 1
    return form.format(value * scale)


def _span(seeds: list[int]) -> str:
    is_range = len(seeds) > 1 and seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]} to {seeds[-1]}" if is_range else ", ".join(map(str, seeds))
