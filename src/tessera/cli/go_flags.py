"""How are flags read that were written for a program in Go?"""

from collections.abc import Iterator
from typing import Any, Final

import typer
from typer.core import TyperCommand

TRUE_WORDS: Final = frozenset({"true", "1", "t", "T", "TRUE", "True"})
FALSE_WORDS: Final = frozenset({"false", "0", "f", "F", "FALSE", "False"})
"""What Go takes for truth and falsehood."""


class GoFlagsCommand(TyperCommand):
    """A command whose switches may also be written ``--name=true`` and ``--name=false``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments with Go's switches spelt as ours."""
        return super().parse_args(ctx, list(self._spelt(args)))

    def _spelt(self, args: list[str]) -> Iterator[str]:
        switches: dict[str, Any] = {
            name: each for each in self.params if getattr(each, "is_flag", False) for name in each.opts
        }
        for argument in args:
            name, equals, word = argument.partition("=")
            if not equals or name not in switches:
                yield argument
            elif word in TRUE_WORDS:
                yield name
            elif word in FALSE_WORDS:
                yield from switches[name].secondary_opts[:1]
            else:
                raise typer.BadParameter(f"got {word!r}, expected true or false", param_hint=name)


def split_list(texts: list[str] | None) -> list[str]:
    """The entries of a flag that may be repeated and may hold commas.

    >>> split_list(["a,b", " c "])
    ['a', 'b', 'c']
    """
    return [entry.strip() for text in texts or () for entry in text.split(",") if entry.strip()]
