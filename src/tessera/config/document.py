"""Is this text a document that may be looked at, and what plain data is it?

YAML or JSON in, dicts, lists, strings, numbers, booleans and None out. The text is
read as a stream of events, so nesting costs no stack, and an alias is a reference
to the same object, so a bomb of aliases costs nothing until it is counted and
refused. Scalars mean what they mean to llm-d's decoder: ``yes`` is true, ``1e3`` is a
number, ``2026-01-01`` and ``1:30`` are strings.
"""

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tessera.config.paths import join, reading_order
from tessera.config.yaml_tree import MAX_DEPTH, MAX_NODES, STRING_TAG, TOO_MANY, read_yaml, resolve
from tessera.core.errors import ConfigError, Problem

MAX_BYTES = 1 << 20
"""A longer document is refused unread."""
MAX_PROBLEMS = 100
"""Problems that are told at once; the rest waits for the next run."""


def read_file(path: Path) -> str:
    """The text of a file of at most ``MAX_BYTES``.

    Raises:
        ConfigError: there is no such file, or it is too large or not UTF-8.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _refusal(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(raw) > MAX_BYTES:
        raise _refusal(f"{path} is larger than {MAX_BYTES} bytes; is it the right file?")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refusal(f"{path} is not UTF-8: byte {error.start} is 0x{raw[error.start]:02x}") from error


def parse(text: str) -> Any:
    """The plain data of a YAML or JSON text, checked as by ``check``.

    Raises:
        ConfigError: not one document, or a key twice, or beyond a limit.
    """
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _refusal(f"the document is larger than {MAX_BYTES} bytes")
    problems: list[Problem] = []
    data = _read(text, problems)
    if problems:
        raise ConfigError(problems[:MAX_PROBLEMS])
    return check(data)


def check(data: Any) -> Any:
    """``data`` as it is, where it is plain: finite, of JSON's types, within depth and number of values.

    Raises:
        ConfigError: something in it is not.
    """
    problems: list[Problem] = []
    stack = [("", 1, data)]
    num_nodes = 0
    while stack:
        path, depth, value = stack.pop()
        num_nodes += 1
        if num_nodes > MAX_NODES:
            raise _refusal(TOO_MANY)
        if depth > MAX_DEPTH:
            raise ConfigError([Problem(path, f"nested deeper than {MAX_DEPTH} levels")])
        if isinstance(value, dict):
            for key, each in value.items():
                if not isinstance(key, str) or _is_broken(key):
                    problems.append(Problem(path, f"key {key!r} is not text"))
                else:
                    stack.append((join(path, key), depth + 1, each))
        elif isinstance(value, list):
            stack.extend((f"{path}[{index}]", depth + 1, each) for index, each in enumerate(value))
        elif (fault := _fault(value)) is not None:
            problems.append(Problem(path, fault))
    if problems:
        raise ConfigError(sorted(problems, key=reading_order)[:MAX_PROBLEMS])
    return data


def dump(data: Any) -> str:
    """YAML that ``parse`` reads as ``data`` again."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _refusal(message: str) -> ConfigError:
    return ConfigError([Problem("", message)])


def _is_broken(text: str) -> bool:
    """Whether the text holds half a surrogate pair, which no UTF-8 can carry."""
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def _fault(value: Any) -> str | None:
    """Why a scalar cannot stand in a configuration."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if -(1 << 63) <= value < 1 << 63 else "got a number of more than 64 bits"
    if isinstance(value, float):
        return None if value - value == 0 else f"got {value}, expected a finite number"
    if isinstance(value, str):
        return "got text with half a surrogate pair, expected Unicode" if _is_broken(value) else None
    return f"got a {type(value).__name__}, expected a mapping, a list, text, a number, a boolean or null"


def _read(text: str, problems: list[Problem]) -> Any:
    twice: list[Problem] = []
    if text.lstrip().startswith("{"):
        # JSON goes first: it has line ends in text, tabs and surrogate pairs that YAML reads otherwise or not at all.
        with suppress(ValueError, RecursionError):
            data = _read_json(text, twice)
            if not twice:
                return data
    try:
        return read_yaml(text, problems)
    except (yaml.YAMLError, ValueError) as error:
        raise (ConfigError(twice[:MAX_PROBLEMS]) if twice else _refusal(_syntax(error))) from error


def _syntax(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "context", None) or " ".join(str(error).split())[:200]
    return f"not YAML at line {mark.line + 1}, column {mark.column + 1}: {what}" if mark else f"not YAML: {what}"


def _read_json(text: str, problems: list[Problem]) -> Any:
    def gather(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(key for key, _ in pairs)
        problems.extend(Problem(join("", key), "key stands twice") for key, count in counts.items() if count > 1)
        return dict(pairs)

    return json.loads(text, object_pairs_hook=gather)


_LINE_ENDS = frozenset("\r\x85\u2028\u2029\ufeff")
"""Characters that only double quotes carry unchanged."""


class _Dumper(yaml.SafeDumper):
    """Writes each list and mapping out, and quotes whatever ``resolve`` would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.Node:
        """Text, in quotes where it looks like something else."""
        is_plain = isinstance(resolve(text), str) and not _LINE_ENDS.intersection(text)
        style = None if is_plain else '"'
        return self.represent_scalar(STRING_TAG, text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)
