"""``tessera advise``: should encode, prefill and decode be divided for this workload, and how?"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tessera.cli.options import Format, FormatOption, err, out, print_json, said_plainly
from tessera.config.blocks import nearest
from tessera.core.errors import ConfigError, Problem
from tessera.engine.profiles import PROFILES, EngineProfile
from tessera.engine.roles import Role
from tessera.sim.advice import words
from tessera.sim.advice.advice import Advice, Question, advise
from tessera.sim.advice.asked import Asked, read_question
from tessera.sim.advice.candidates import MAX_GPUS, Pruned
from tessera.sim.advice.deploy import check_folder, write_deployment
from tessera.sim.advice.drawing import draw_advice
from tessera.sim.advice.ranking import Result, servers_of
from tessera.sim.advice.report import report_of
from tessera.sim.max_rate import MAX_TPOT_S
from tessera.sim.plot import check
from tessera.sim.topology import BASE, NUM_GPUS

BASES: Final = {
    name: profile
    for name, profile in PROFILES.items()
    if profile.role is Role.ALL and profile.efficiency.vit_time_fraction == 1.0
}
"""Profiles of plain servers, of which every topology is made."""

MAX_NAMES: Final = 6
"""Of topologies in one line."""

WorkloadArgument = Annotated[
    Path,
    typer.Argument(help="A short YAML file (examples/workloads), or a log of requests, .jsonl.", show_default=False),
]
GpusOption = Annotated[int, typer.Option("--gpus", help="GPUs to divide.", min=1, max=MAX_GPUS)]
TTFTOption = Annotated[
    float | None,
    typer.Option(
        "--ttft",
        help="Seconds that the 90th percentile of TTFT must stay below; without it, twice an idle fleet's + 0.2.",
        show_default=False,
    ),
]
TPOTOption = Annotated[
    float | None,
    typer.Option("--tpot", help="Milliseconds that mean TPOT must stay below; without it, 50.", show_default=False),
]
ProfileOption = Annotated[
    str, typer.Option("--profile", help="Hardware and model of a server: " + ", ".join(BASES) + ".")
]
OutputTokensOption = Annotated[
    int | None,
    typer.Option(
        help="Tokens of each answer, for a log of Decisions, which do not know it.",
        min=1,
        max=100_000,
        show_default=False,
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", help="Write what to deploy into this folder: engines, sidecars, router.", show_default=False),
]
PlotOption = Annotated[
    Path | None,
    typer.Option(
        help="Draw the rates and the crossover: .png, .svg or .pdf. Needs the extra `plot`.", show_default=False
    ),
]


def advise_command(
    workload: WorkloadArgument,
    gpus: GpusOption = NUM_GPUS,
    ttft: TTFTOption = None,
    tpot: TPOTOption = None,
    profile: ProfileOption = BASE.name,
    output_tokens: OutputTokensOption = None,
    out_: OutOption = None,
    force: Annotated[bool, typer.Option("--force", help="Let --out overwrite files.")] = False,
    plot: PlotOption = None,
    jobs: Annotated[int | None, typer.Option(help="Processes; as many as there are cores.", min=1)] = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """Say how a number of GPUs should be divided for a workload: aggregated, E/PD, P/D or E/P/D, and why.

    Every way that arithmetic does not rule out is simulated with the router's own code. Told are
    the highest rates that keep the objectives, what bounds them, what to try before any
    split, and which size of pictures would turn the answer. It is a model.

        tessera advise examples/workloads/documents-4k.yaml

        tessera advise examples/workloads/photos-720p.yaml --gpus 8 --tpot 30

        tessera advise requests.jsonl --out deployment --plot advice.png
    """
    with said_plainly():
        asked = read_question(workload, output_tokens)
        question = question_of(asked, gpus, ttft, tpot, profile)
        if plot is not None:
            check(plot)
        if out_ is not None:
            check_folder(out_, force=force)
        advice = _found(question, jobs or os.cpu_count() or 1)
        if plot is not None:
            draw_advice(advice, plot)
            err.print(f"drawn: {plot}", markup=False)
        for path in write_deployment(advice, out_) if out_ is not None else ():
            err.print(f"written: {path}", markup=False)
    if format_ is Format.JSON:
        print_json(report_of(advice))
    else:
        _print(advice)


def question_of(asked: Asked, gpus: int, ttft: float | None, tpot: float | None, profile: str) -> Question:
    """The question of a file and the command line, which goes before the file.

    Raises:
        ConfigError: no such profile, too few GPUs for a server, or objectives that nothing keeps.
    """
    problems = []
    base: EngineProfile | None = BASES.get(profile)
    if base is None:
        near = nearest(profile, list(BASES)) or f"; there are {', '.join(BASES)}"
        problems.append(Problem("--profile", f"no plain server is named {profile!r}{near}"))
    elif gpus < base.num_gpus:
        problems.append(Problem("--gpus", f"got {gpus}, one server of {base.name} has {base.num_gpus}"))
    for option, value in (("--ttft", ttft), ("--tpot", tpot)):
        if value is not None and not 0 < value < float("inf"):
            problems.append(Problem(option, f"got {value:g}, expected more than nothing"))
    if base is None or problems:
        raise ConfigError(problems)
    tpot_s = asked.tpot_s if tpot is None else tpot / 1000
    return Question(
        asked=asked,
        base=base,
        num_gpus=gpus,
        ttft_s=asked.ttft_s if ttft is None else ttft,
        tpot_s=MAX_TPOT_S if tpot_s is None else tpot_s,
    )


def _found(question: Question, num_jobs: int) -> Advice:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("advise", total=None)
        return advise(question, num_jobs, lambda done, total: progress.update(task, completed=done, total=total))


def _print(advice: Advice) -> None:
    question, asked = advice.question, advice.question.asked
    if asked.measured is not None:
        _print_lines("", words.measured(asked.measured))
    described = asked.description or ("a log of requests" if asked.measured else "")
    out.print(f"{asked.name}: {described}" if described else asked.name, markup=False, style="bold", soft_wrap=True)
    out.print(words.objectives(advice), markup=False, soft_wrap=True)
    _print_ranking(advice)
    _print_lines("", [words.verdict(advice)], style="bold")
    _print_lines("", [words.first_try(advice)])
    _print_lines("why", words.why(advice))
    _print_lines("what would change the answer", words.what_would_change(advice))
    if advice.points:
        _print_sizes(advice)
    _print_lines("not simulated", (_pruned(each) for each in advice.setting.candidates.pruned))
    out.print(words.caption(question), markup=False, style="dim", soft_wrap=True)


def _print_ranking(advice: Advice) -> None:
    question = advice.question
    title = f"{question.num_gpus} GPUs, {question.base.name}; mean of seeds {words.seeds_of(question)}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=0, show_edge=False)
    for heading in ("topology", "servers x\nGPUs", "max\nreq/s", "by seed", "gain", "TPOT\nthere"):
        table.add_column(heading)
    for column in table.columns[2:]:
        column.justify = "right"
    for column in table.columns:
        column.no_wrap = True
    for result in advice.ranking.results:
        is_best = result is advice.ranking.recommended
        name = f"[bold]{result.name}[/bold]" if is_best else result.name
        rate = f"[bold]{result.rate:.3g}[/bold]" if is_best else f"{result.rate:.3g}"
        table.add_row(
            f"{name} *" if result.is_assumed else name,
            _split(result),
            rate,
            "-".join(f"{each:.3g}" for each in dict.fromkeys(result.spread)),
            _against(result, advice),
            "-" if result.tpot_s is None else f"{result.tpot_s * 1000:.0f} ms",
        )
    table.caption = "gain: against aggregated; * assumed to save encoder time"
    out.print(table)


def _against(result: Result, advice: Advice) -> str:
    plain = advice.ranking.aggregated
    if result is plain or not plain.rate:
        return ""
    tie = ", a tie" if result in advice.ranking.ties and advice.ranking.recommended is plain else ""
    return f"{result.rate / plain.rate - 1:+.0%}{tie}"


def _split(result: Result) -> str:
    rows = servers_of(result.candidate.topology)
    return " + ".join(f"{row['servers']}x{row['gpus_each']}" for row in rows)


def _print_sizes(advice: Advice) -> None:
    table = Table(title="max req/s by size", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for heading in ("pictures", "encode/prefill", "aggregated", "flag *", "encoders apart", ""):
        table.add_column(heading)
    for point in advice.points:
        size = point.variant.label
        split = point.split
        table.add_row(
            f"[bold]{size}[/bold]" if point.variant.is_own else size,
            f"{point.ratio:.2f}",
            f"{point.aggregated.rate:.3g}",
            "-" if point.parallel is None else f"{point.parallel.rate:.3g}",
            "-" if split is None else f"{split.rate:.3g} ({split.name})",
            "pays" if point.is_won else "",
        )
    out.print(table)


def _pruned(pruned: Pruned) -> str:
    """A few names and why."""
    names = ", ".join(pruned.names[:MAX_NAMES])
    more = len(pruned.names) - MAX_NAMES
    return f"{names}{f' and {more} more' if more > 0 else ''}: {pruned.reason}"


def _print_lines(title: str, lines: Iterable[str], style: str = "") -> None:
    listed = list(lines)
    if title and listed:
        out.print(f"[bold]{title}[/bold]")
    for line in listed:
        out.print(f"- {line}" if title else line, markup=False, style=style, soft_wrap=True)
