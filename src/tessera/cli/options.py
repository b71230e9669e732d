"""Which options do several commands share, and how do errors reach a person?"""

import contextlib
import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from tessera.config.load import LoadedConfig, load_file
from tessera.config.shipped import shipped
from tessera.core.errors import ConfigError, RequestError


class Format(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="A table for people, or JSON for programs.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="EndpointPickerConfig in YAML or JSON; without it, examples/tessera-multimodal.yaml.",
        show_default=False,
    ),
]
ModelDirOption = Annotated[
    Path | None,
    typer.Option(help="A folder with the served model's config.json and preprocessor files.", show_default=False),
]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", "-H", help="A request header, `name: value`. May be repeated.")
]

DEFAULT_CONFIG = "tessera-multimodal.yaml"
"""The example that is used when no configuration is given."""

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


@contextlib.contextmanager
def said_plainly() -> Iterator[None]:
    """Print what an operator must change, each problem with its path, and leave with exit code 2."""
    try:
        yield
    except ConfigError as error:
        for problem in error.problems:
            place = f"[bold]{escape(problem.path)}[/bold]: " if problem.path else ""
            err.print(f"[red]error[/red]: {place}", end="")
            err.print(problem.message, markup=False, soft_wrap=True)
        raise typer.Exit(2) from None
    except RequestError as error:
        err.print("[red]error[/red]: the request would be refused: ", end="")
        err.print(f"{error.status} {error.message}", markup=False, soft_wrap=True)
        raise typer.Exit(2) from None
    except OSError as error:
        err.print("[red]error[/red]: ", end="")
        place = f"{error.filename}: " if error.filename else ""
        err.print(f"{place}{error.strerror or error}", markup=False, soft_wrap=True)
        raise typer.Exit(2) from None


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def read_config(path: Path | None, *, ignore_missing: bool = False) -> LoadedConfig:
    """The configuration of a file, or the one that is used when none is given."""
    return load_file(path or shipped(DEFAULT_CONFIG), ignore_missing=ignore_missing)


def parse_headers(texts: list[str] | None) -> dict[str, str]:
    """``name: value`` texts as a mapping, names in lower case."""
    headers = {}
    for text in texts or ():
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise typer.BadParameter(f"{text!r} is no header; write it as `name: value`", param_hint="--header")
        headers[name.strip().lower()] = value.strip()
    return headers
