"""Which servers do the headers name for encode and prefill?"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from tessera.core.errors import RequestError
from tessera.core.headers import ENCODE_PLAN, ENCODERS, PLAN_HEADERS, PREFILLER

MAX_VALUE_CHARS: Final = 32 << 10
"""Characters of one header."""
MAX_HOSTS: Final = 256
"""Servers that one header may name."""
MAX_ITEM_INDEX: Final = 4095

_HOST_PORT = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")
_INDEX = re.compile(r"[0-9]{1,4}")
_NOBODY: Final[Mapping[int, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where the stages of one request may run; an empty plan runs everything here."""

    placed: Mapping[int, str] | None = None
    """Encoder by index of the distinct item in prompt order; an absent one is encoded here. ``None``: by ``hosts``."""
    hosts: tuple[str, ...] = ()
    """llm-d's list: item i goes to ``hosts[i % len(hosts)]``."""
    spares: tuple[str, ...] = ()
    """Encoders that are asked only when another one failed."""
    prefillers: tuple[str, ...] = ()
    """In the order to try."""
    encoders: tuple[str, ...] = field(init=False)
    """Every encoder, the planned ones first, each once."""

    def __post_init__(self) -> None:
        planned = self.hosts if self.placed is None else self.placed.values()
        object.__setattr__(self, "encoders", tuple(dict.fromkeys([*planned, *self.spares])))

    def encoder_of(self, index: int) -> str | None:
        """The encoder of the distinct item with that index; nothing where it is encoded here."""
        if self.placed is not None:
            return self.placed.get(index)
        return self.hosts[index % len(self.hosts)] if self.hosts else None

    def allowed(self, is_allowed: Callable[[str], bool]) -> "Plan":
        """The plan without the servers that may not be asked; an item whose encoder went is given to the others."""
        placed = self.placed
        if placed is not None:
            others = tuple(host for host in self.encoders if is_allowed(host))
            moved = {
                index: host if is_allowed(host) else others[index % len(others)]
                for index, host in placed.items()
                if others
            }
            placed = moved
        return replace(
            self,
            placed=placed,
            hosts=tuple(filter(is_allowed, self.hosts)),
            spares=tuple(filter(is_allowed, self.spares)),
            prefillers=tuple(filter(is_allowed, self.prefillers)),
        )


def read_plan(headers: Mapping[str, str]) -> Plan:
    """The plan in a request's headers, names in lower case; repeated headers are joined with commas.

    >>> plan = read_plan({"x-tessera-encode-plan": "0=10.0.0.1:80,2=10.0.0.2:80;alt=10.0.0.3:80"})
    >>> [plan.encoder_of(index) for index in range(3)], plan.spares
    (['10.0.0.1:80', None, '10.0.0.2:80'], ('10.0.0.3:80',))
    >>> read_plan({"x-encoder-hosts-ports": "10.0.0.1:80, 10.0.0.2:80"}).encoder_of(2)
    '10.0.0.1:80'

    Raises:
        RequestError: a header that is too long, or does not say what it should.
    """
    placed, spares = _encode_plan(_value(headers, ENCODE_PLAN))
    hosts = _hosts(ENCODERS, _value(headers, ENCODERS)) if placed is None else ()
    return Plan(
        placed=placed,
        hosts=hosts,
        spares=spares,
        prefillers=tuple(dict.fromkeys(_hosts(PREFILLER, _value(headers, PREFILLER)))),
    )


def _value(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if len(value) > MAX_VALUE_CHARS:
        raise _refused(name, f"{len(value)} characters, at most {MAX_VALUE_CHARS} are read; name fewer servers")
    return value.strip()


def _encode_plan(value: str) -> tuple[Mapping[int, str] | None, tuple[str, ...]]:
    if not value:
        return None, ()
    items, _, rest = value.partition(";")
    placed: dict[int, str] = {}
    for entry in filter(None, map(str.strip, items.split(","))):
        index, equals, host = entry.partition("=")
        if not equals or not _INDEX.fullmatch(index) or int(index) > MAX_ITEM_INDEX:
            raise _refused(ENCODE_PLAN, f"{entry[:80]!r}, expected an item's index, =, ip:port")
        if int(index) in placed:
            raise _refused(ENCODE_PLAN, f"item {index} twice, expected one encoder for each item")
        placed[int(index)] = _host(ENCODE_PLAN, host)
    if len(set(placed.values())) > MAX_HOSTS:
        raise _refused(ENCODE_PLAN, f"more than {MAX_HOSTS} servers")
    if rest and not rest.startswith("alt="):
        raise _refused(ENCODE_PLAN, f"{rest[:80]!r} behind the items, expected alt=ip:port,ip:port")
    return placed or _NOBODY, tuple(dict.fromkeys(_hosts(ENCODE_PLAN, rest.removeprefix("alt="))))


def _hosts(name: str, value: str) -> tuple[str, ...]:
    entries = [entry for entry in map(str.strip, value.split(",")) if entry]
    if len(entries) > MAX_HOSTS:
        raise _refused(name, f"{len(entries)} servers, at most {MAX_HOSTS}")
    return tuple(_host(name, entry) for entry in entries)


def _host(name: str, text: str) -> str:
    found = _HOST_PORT.fullmatch(text)
    if not found or not 0 < int(found[1]) <= 65535:
        raise _refused(name, f"{text[:80]!r}, expected ip:port with a port from 1 to 65535")
    return text


def _refused(name: str, seen: str) -> RequestError:
    return RequestError(f"the header {name} holds {seen}", code="invalid_header", param=name)


def joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The plan's headers among a request's, names in lower case, repeated ones joined with commas."""
    kept: dict[str, list[str]] = {}
    for name, value in pairs:
        if name.lower() in PLAN_HEADERS:
            kept.setdefault(name.lower(), []).append(value)
    return {name: ",".join(values) for name, values in kept.items()}
