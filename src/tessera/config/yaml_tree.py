"""What plain data do a YAML text's events make up?"""

import re
from collections.abc import Hashable
from contextlib import suppress
from typing import Any

import yaml

from tessera.config.paths import join
from tessera.core.errors import ConfigError, Problem

MAX_DEPTH = 32
"""Nested lists and mappings; llm-d's deepest sample has 8."""
MAX_NODES = 100_000
"""Values of a document, each alias counted as often as it is used."""
TOO_MANY = f"more than {MAX_NODES} values, aliases counted as often as they are used"
STRING_TAG = "tag:yaml.org,2002:str"

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOLS = {
    spelling: value
    for word, value in {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.items()
    for spelling in (word, word.capitalize(), word.upper())
}
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)", re.ASCII)
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_TAGS = {f"tag:yaml.org,2002:{word}" for word in ("str", "int", "float", "bool", "null", "map", "seq")}
_MERGE = "<<"


def read_yaml(text: str, problems: list[Problem]) -> Any:
    """The data of one YAML document; keys that stand twice and tags that are not plain become problems.

    Raises:
        ConfigError: more than one document, or beyond a limit.
        yaml.YAMLError, ValueError: not YAML.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(problems)
    for event in yaml.parse(text, Loader=loader):
        builder.take(event)
    return builder.root


class _Open:
    """A list or mapping that has not ended yet."""

    def __init__(self, path: str, data: dict[str, Any] | list[Any]) -> None:
        self.path = path
        self.data = data
        self.key: str | None = None
        self.is_merge = False
        """Whether ``key`` is an unquoted ``<<``."""
        self.merges: list[Any] = []
        """Mappings, and lists of them, whose keys are taken in where the mapping has none of its own."""

    def path_of_next(self) -> str:
        if isinstance(self.data, list):
            return f"{self.path}[{len(self.data)}]"
        return self.path if self.key is None else join(self.path, self.key)


class _Builder:
    """Puts a stream of YAML events together."""

    def __init__(self, problems: list[Problem]) -> None:
        self.root: Any = None
        self._problems = problems
        self._open: list[_Open] = []
        self._anchors: dict[str, Any] = {}
        self._num_documents = 0
        self._num_merged = 0
        self._num_values = 0

    def take(self, event: yaml.Event) -> None:
        """Add one event."""
        match event:
            case yaml.DocumentStartEvent():
                self._num_documents += 1
                if self._num_documents > 1:
                    what = "more than one document, expected one; remove what follows '---'"
                    raise ConfigError([Problem("", what)])
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._start(event, {} if isinstance(event, yaml.MappingStartEvent) else [])
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._merge(self._open.pop())
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.AliasEvent():
                self._alias(event)

    def _start(self, event: Any, data: dict[str, Any] | list[Any]) -> None:
        path = self._open[-1].path_of_next() if self._open else ""
        if event.tag is not None and event.tag not in _TAGS:
            self._problems.append(Problem(path, f"tag {event.tag} is not allowed"))
        if len(self._open) >= MAX_DEPTH:
            raise ConfigError([Problem(path, f"nested deeper than {MAX_DEPTH} levels")])
        if event.anchor:
            self._anchors[event.anchor] = data
        self._add(data)
        self._open.append(_Open(path, data))

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        parent = self._open[-1] if self._open else None
        if parent is not None and isinstance(parent.data, dict) and parent.key is None:
            value: Any = event.value
            parent.is_merge = event.implicit[0] and value == _MERGE
        elif event.tag is not None and event.tag not in _TAGS:
            self._problems.append(Problem(parent.path_of_next() if parent else "", f"tag {event.tag} is not allowed"))
            value = None
        else:
            is_text = event.tag == STRING_TAG or (event.tag is None and not event.implicit[0])
            value = event.value if is_text else resolve(event.value)
        if event.anchor:
            self._anchors[event.anchor] = value
        self._add(value)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise yaml.MarkedYAMLError(problem=f"no anchor &{event.anchor}", problem_mark=event.start_mark)
        self._add(self._anchors[event.anchor])

    def _add(self, value: Any) -> None:
        """Put a value where the stream stands: as the root, an element, a key or a key's value."""
        self._num_values += 1
        if self._num_values > 2 * MAX_NODES:
            raise ConfigError([Problem("", TOO_MANY)])
        if not self._open:
            self.root = value
            return
        parent = self._open[-1]
        if isinstance(parent.data, list):
            parent.data.append(value)
        elif parent.key is None:
            if not isinstance(value, Hashable):
                raise ConfigError([Problem(parent.path, "a key is a list or a mapping, expected text")])
            parent.key = str(value)
        else:
            key, parent.key = parent.key, None
            if parent.is_merge:
                parent.is_merge = False
                parent.merges.append(value)
            elif key in parent.data:
                self._problems.append(Problem(join(parent.path, key), "key stands twice"))
            else:
                parent.data[key] = value

    def _merge(self, ended: _Open) -> None:
        """``<<: *anchor``: once a mapping has ended, so that its own keys go first."""
        for value in ended.merges:
            for source in value if isinstance(value, list) else [value]:
                if not isinstance(source, dict) or source is ended.data or not isinstance(ended.data, dict):
                    raise ConfigError([Problem(ended.path, "<< takes an alias of a mapping, or a list of them")])
                self._num_merged += len(source)
                if self._num_merged > MAX_NODES:
                    raise ConfigError([Problem("", TOO_MANY)])
                ended.data.update({key: each for key, each in source.items() if key not in ended.data})


def resolve(text: str) -> Any:
    """What an unquoted scalar means.

    >>> [resolve(text) for text in ("yes", "0x10", "1e3", "1:30", "2026-01-01", "~")]
    [True, 16, 1000.0, '1:30', '2026-01-01', None]
    """
    if text in _NULL:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if len(text) <= 400 and _INTEGER.fullmatch(text):
        digits = text.replace("_", "")
        with suppress(ValueError):
            return int(digits, 8 if re.fullmatch(r"[-+]?0[0-7]+", digits) else 0)
    if len(text) <= 400 and _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text
