"""Writes docs/plugins from the plugins themselves: one page a kind, and an index.

python tools/plugin_docs.py docs/plugins
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from tessera.config.describe import Described, Parameter, describe_routing, describe_types, types_we_lack

KINDS = {
    "filter": ("Filters", "Each keeps some of the endpoints, in their order."),
    "scorer": ("Scorers", "Each rates every endpoint from 0 to 1; a profile adds up the ratings times their weights."),
    "picker": ("Pickers", "One a profile: it takes the winners."),
    "handler": (
        "Profile handlers",
        "One a configuration: it says which profiles run and whose winner gets the request.",
    ),
    "decider": ("Deciders", "Each says whether an optional stage is worth it."),
    "pricer": ("Pricers", "What a request weighs in tokens."),
    "producer": ("Producers", "Each knows something of every endpoint, and remembers what it needs for that."),
    "parser": ("Parsers", "Which bodies are read, by the request's path."),
    "source": ("Data sources", "Where data about endpoints comes from."),
    "extractor": ("Extractors", "What is taken from a data source."),
    "request hook": ("Request hooks", "What llm-d does beside its stages."),
    "discovery": ("Discovery", "Where the endpoints come from."),
}
"""Title and first sentence of each kind's page, in the order of the index."""


def write_docs(folder: Path) -> None:
    """Write every page, and remove pages of kinds that are gone."""
    pages = make_pages()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


def make_pages() -> dict[str, str]:
    """Every page's text by its file name."""
    kinds = list(KINDS)
    found = sorted(describe_types(of_package="tessera."), key=lambda each: (kinds.index(each.kind), each.type))
    by_kind = {kind: tuple(each) for kind, each in groupby(found, key=lambda each: each.kind)}
    pages = {f"{_file(kind)}.md": "\n".join(_page(kind, each)) for kind, each in by_kind.items()}
    return {"index.md": "\n".join(_index(by_kind)), **pages}


def _index(by_kind: dict[str, tuple[Described, ...]]) -> Iterator[str]:
    yield "# Plugins\n"
    yield "Made from the plugins' own docstrings by `make docs`; change those, not these pages."
    for kind, found in by_kind.items():
        yield f"\n## {KINDS[kind][0]}\n"
        yield from (f"- [`{each.type}`]({_file(kind)}.md#{each.type}): {_first_sentence(each.text)}" for each in found)
    yield "\n## routing\n"
    yield "Keys of `routing`, a section of Tessera's own:\n"
    yield from _table(describe_routing())
    yield "\n## What llm-d has and Tessera has not yet\n"
    yield "`tessera check` warns of these; `tessera serve` needs `--ignore-missing-plugins` to start without them.\n"
    lacking = sorted(types_we_lack().items(), key=lambda each: (each[1], each[0]))
    for kind, names in groupby(lacking, key=lambda each: each[1]):
        yield f"- {kind}: {', '.join(f'`{name}`' for name, _ in names)}"
    yield ""


def _file(kind: str) -> str:
    return kind.replace(" ", "-")


def _page(kind: str, found: Sequence[Described]) -> Iterator[str]:
    title, about = KINDS[kind]
    yield f"# {title}\n\n{about}"
    for each in found:
        yield f"\n## {each.type}\n"
        yield _markdown(each.text)
        yield ""
        if each.aliases:
            yield f"- also written: {', '.join(f'`{alias}`' for alias in each.aliases)}"
        if each.produces:
            yield f"- produces: {each.produces}"
        if each.reads:
            yield f"- reads: {', '.join(each.reads)}"
        if each.optional_reads:
            yield f"- reads where it is there: {', '.join(each.optional_reads)}"
        yield f"- source: `src/{each.module.replace('.', '/')}.py`"
        if each.parameters:
            yield ""
            yield from _table(each.parameters)
    yield ""


def _table(parameters: Sequence[Parameter]) -> Iterator[str]:
    yield "| parameter | type | default | meaning |"
    yield "|---|---|---|---|"
    for each in parameters:
        kind = f"{each.type}, {each.bounds}" if each.bounds else each.type
        default = each.default if each.default in {"", "required"} else f"`{each.default}`"
        yield f"| `{each.name}` | {_cell(kind)} | {_cell(default)} | {_cell(_markdown(each.text))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _markdown(text: str) -> str:
    """Docstring markup as Markdown."""
    return text.replace("``", "`")


def _first_sentence(text: str) -> str:
    first = " ".join(_markdown(text).split("\n\n", 1)[0].split())
    return first.split(". ", 1)[0].rstrip(".")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: plugin_docs.py FOLDER")
    write_docs(Path(sys.argv[1]))
