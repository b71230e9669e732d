"""``tessera plugins``: which plugin types are there, and what are their parameters?"""

import dataclasses
import difflib
from itertools import groupby
from typing import Annotated

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tessera.cli.options import Format, FormatOption, out, print_json, said_plainly
from tessera.config.describe import Described, describe_types
from tessera.core.errors import ConfigError, Problem

WIDEST_TYPE = 28
"""Characters of the type column, so that the kinds line up."""


def plugins(
    type_name: Annotated[
        str | None,
        typer.Argument(metavar="[TYPE]", help="One type, with its manual and all parameters.", show_default=False),
    ] = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """List every plugin type that a configuration may declare, or one of them with its parameters.

    tessera plugins

    tessera plugins token-load-scorer
    """
    with said_plainly():
        types = describe_types()
        chosen = [each for each in types if type_name in (None, each.type, *each.aliases)]
        if not chosen:
            near = difflib.get_close_matches(type_name or "", [each.type for each in types])
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise ConfigError([Problem("", f"no plugin type {type_name!r}{hint}; `tessera plugins` lists them")])
    if format_ is Format.JSON:
        print_json([dataclasses.asdict(each) for each in chosen])
    elif type_name is None:
        _print_list(chosen)
    else:
        _print_one(chosen[0])


def _print_list(types: list[Described]) -> None:
    for kind, group in groupby(types, key=lambda each: each.kind):
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        table.add_column(no_wrap=True, style="bold", min_width=WIDEST_TYPE)
        table.add_column()
        for each in group:
            table.add_row(each.type, _first_sentence(each.text))
        out.print(f"[dim]{kind}[/dim]")
        out.print(table)
    out.print("[dim]`tessera plugins TYPE` shows one with its parameters[/dim]")


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n", maxsplit=1)[0].split()).replace("``", "")


def _print_one(described: Described) -> None:
    out.print(f"[bold]{described.type}[/bold] ({described.kind}), in {described.module}\n")
    out.print(described.text + "\n", markup=False)
    if described.aliases:
        out.print(f"also called {', '.join(described.aliases)}", markup=False)
    if described.reads:
        out.print(f"reads {', '.join(described.reads)}", markup=False)
    if described.optional_reads:
        out.print(f"uses, where it is there, {', '.join(described.optional_reads)}", markup=False)
    out.print("parameters" if described.parameters else "no parameters", style="dim")
    for parameter in described.parameters:
        takes = f"{parameter.type}, {parameter.bounds}" if parameter.bounds else parameter.type
        default = f" [dim]default {parameter.default}[/dim]" if parameter.default else ""
        out.print(f"  [bold]{escape(parameter.name)}[/bold] {escape(takes)}{default}")
        if parameter.text:
            out.print(Padding(Text(parameter.text.replace("``", "")), (0, 0, 0, 6)))
