"""What is a plugin? A class whose fields are its YAML parameters, and one decorator.

``@plugin("queue-scorer", reads=(Load,))`` makes the class a keyword-only dataclass,
refuses a class without docstring and a type name that is taken, and notes what the
loader must know. Discovery walks the plugin folders and the entry-point group
``tessera.plugins``; nothing else has to be edited.
"""

import dataclasses
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform

from tessera.core.draft import Draft
from tessera.core.errors import DropReason
from tessera.core.facts import FleetEvent
from tessera.core.headers import NO_HEADERS
from tessera.core.rng import Rng
from tessera.core.types import (
    Candidate,
    Decision,
    Endpoint,
    Finding,
    InferenceRequest,
    ModelProfile,
    Note,
    Outcome,
    PricedItem,
    PricedRequest,
    Stage,
)
from tessera.core.work import Work


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of a numeric parameter, for ``Annotated[int, Range(ge=1)]``."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """The source's schema with these bounds: pydantic's hook, which needs no import of it."""
        bounds = {name: value for name in ("ge", "gt", "le") if (value := getattr(self, name)) is not None}
        schema = handler(source)
        inner = schema["schema"] if schema["type"] == "nullable" else schema
        if inner["type"] not in {"int", "float"}:
            raise TypeError(f"Range bounds numbers; put it before what makes them a {inner['type']} schema")
        inner.update(bounds)
        return schema


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TERM = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def seconds(text: str) -> float:
    """The seconds of a duration as llm-d's YAML writes it.

    Raises:
        ValueError: not a Go duration without sign.

    >>> seconds("200ms"), seconds("1h30m"), seconds("0")
    (0.2, 5400.0, 0.0)
    """
    terms = _TERM.findall(text)
    if text == "0":
        return 0.0
    if len(text) > 64 or not terms or "".join(number + unit for number, unit in terms) != text:
        raise ValueError(f"got {text!r}, expected a duration such as 200ms, 5s or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in terms)


class GoDuration:
    """Marks seconds that YAML writes as a duration: ``Annotated[float, GoDuration()]``."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """A string that becomes seconds: pydantic's hook, which needs no import of it."""
        return {
            "type": "function-after",
            "function": {"type": "no-info", "function": seconds},
            "schema": {"type": "str", "strict": True},
        }


ACRONYMS = {"fps": "FPS", "ttft": "TTFT", "ttl": "TTL", "mb": "MB", "gb": "GB", "kv": "KV"}
"""Words that llm-d's keys write in capitals, where they are not the first."""
IRREGULAR = {"eviction_ttl_seconds": "evictionTtlSeconds"}
"""Keys of llm-d's that keep to no rule."""


def camel(name: str) -> str:
    """The YAML spelling of a parameter.

    >>> camel("max_num_of_endpoints"), camel("sample_fps"), camel("kv_events_config")
    ('maxNumOfEndpoints', 'sampleFPS', 'kvEventsConfig')
    """
    first, *rest = name.split("_")
    return IRREGULAR.get(name) or first + "".join(ACRONYMS.get(word, word.capitalize()) for word in rest)


STRICT: dict[str, Any] = {
    "extra": "forbid",
    "strict": True,
    "alias_generator": camel,
    "use_attribute_docstrings": True,
}
"""How ``config`` decodes parameters: unknown keys refused, no coercion, camelCase names."""

C = TypeVar("C")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def params(cls: type[C]) -> type[C]:
    """A nested block of parameters: a frozen keyword-only dataclass that decodes strictly."""
    cls.__pydantic_config__ = STRICT  # type: ignore[attr-defined]
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)


FactTypes = tuple[type, ...]
NamedFacts = tuple[tuple[type, str], ...]
"""Facts and the names of the producers they come from."""
NamedHeaders = Iterable[tuple[str, str]]
"""Names of headers in any case, each behind the path of the parameter that gives it; empty where none does."""


class Plugin:
    """A part that YAML, a path or a model's config selects by its type name."""

    kind: ClassVar[str]
    """The word for what it is: ``filter``, ``scorer``, ..."""
    type: ClassVar[str]
    """The name in YAML, letter for letter llm-d's where llm-d has it."""
    reads: ClassVar[FactTypes] = ()
    """Facts it cannot work without; the loader adds their default producers."""
    optional_reads: ClassVar[FactTypes] = ()
    """Facts that it uses where their producer is configured."""
    aliases: ClassVar[tuple[str, ...]] = ()
    names_as_engine: ClassVar[bool] = False
    """Whether it compares items with what the engine itself says of them, by the engine's identifiers."""
    configurable: ClassVar[bool] = True
    """Whether YAML may declare it."""

    name: str
    """The instance's name in YAML, the type where YAML gives none."""

    def reads_of(self) -> NamedFacts:
        """Facts this instance cannot work without, with their producers' names.

        A ``...ProducerName`` parameter redirects a fact: override this then.
        """
        return tuple((fact, fact.producer) for fact in self.reads)  # type: ignore[attr-defined]

    def optional_reads_of(self) -> NamedFacts:
        """Facts this instance uses where they are there, with their producers' names."""
        return tuple((fact, fact.producer) for fact in self.optional_reads)  # type: ignore[attr-defined]

    def headers_read(self) -> NamedHeaders:
        """Headers of requests that this instance looks at; they are kept of each request, cut to 1,024 characters."""
        return ()

    def headers_written(self) -> NamedHeaders:
        """Headers that ``answer_headers`` may give; where there are any, the gateway must show us answers' headers."""
        return ()

    def check(self) -> Iterator[tuple[str, str]]:
        """Problems that only the whole set of parameters shows: (parameter path, message)."""
        return iter(())

    def cautions(self) -> Iterable[tuple[str, str]]:
        """What works, but not as the parameters may suggest: (parameter path, message)."""
        return ()

    def observe(self, event: FleetEvent) -> None:
        """Learn that the fleet changed."""

    def record(self, decision: Decision) -> None:
        """Learn what was chosen."""

    def settle(self, outcome: Outcome) -> Sequence[Finding]:
        """Learn what came of it; exactly once a request."""
        return ()

    def answer_headers(self, decision: Decision, served: Endpoint) -> Mapping[str, str]:
        """Headers for the answer that ``served`` gives to the client. A question: it changes nothing."""
        return {}

    def request_headers(self, decision: Decision) -> Mapping[str, str]:
        """Headers for the endpoint that gets the request, which no client may set. A question: it changes nothing."""
        return {}

    def close(self) -> None:
        """Give back what the plugin holds."""


class Filter(Plugin):
    """Keeps some of the candidates, in their order."""

    kind = "filter"
    rejection: ClassVar[DropReason] = DropReason.NO_ENDPOINTS
    """What to tell the client when this filter leaves nobody."""

    def keep(self, request: PricedRequest, candidates: Sequence[Candidate], rng: Rng) -> list[Candidate]:
        """An ordered sub-list of ``candidates``."""
        raise NotImplementedError

    def explain(
        self, request: PricedRequest, candidates: Sequence[Candidate], kept: Sequence[Candidate]
    ) -> Note | None:
        """Why ``keep`` kept these of them, where that is worth a sentence. A question: it changes nothing."""
        return None


class Scorer(Plugin):
    """Rates candidates."""

    kind = "scorer"

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score in 0..1 for each candidate, same order; higher is better."""
        raise NotImplementedError


class Picker(Plugin):
    """Takes the winners."""

    kind = "picker"

    def pick(
        self, request: PricedRequest, candidates: Sequence[Candidate], totals: Sequence[float], rng: Rng
    ) -> list[int]:
        """Indices of the winners, best first; at least one where there is a candidate."""
        raise NotImplementedError

    def share_out(
        self, request: PricedRequest, candidates: Sequence[Candidate], totals: Sequence[float], rng: Rng
    ) -> Mapping[str, int] | None:
        """Identifier of each distinct item -> index of who gets it; nothing from a picker for whole requests.

        Of a stage that encodes, this is asked instead of ``pick``.
        """
        return None


class Handler(Plugin):
    """Says which profiles run, in which order, and whose winner gets the client's request."""

    kind = "handler"

    def next_profile(self, request: PricedRequest, profiles: Sequence[str], done: Mapping[str, Stage]) -> str | None:
        """The next profile to run, or nothing when the decision is complete."""
        raise NotImplementedError

    def primary(self, request: PricedRequest, profiles: Sequence[str]) -> str:
        """The profile whose winner receives the client's request; raises RequestError where the client names none."""
        raise NotImplementedError

    def entrance(self, winner: Endpoint) -> str | None:
        """``ip:port`` through which the winner alone is reached; nothing where that is its own."""
        return None

    def work_of(self, profile: str) -> Work | None:
        """The part of the work that a profile's winners do; nothing where they do all of it."""
        return None

    def narrowed(self, request: PricedRequest, profile: str, done: Mapping[str, Stage]) -> PricedRequest:
        """The request as a profile sees it: with those of its items that concern it."""
        return request

    def deciders_named(self) -> Iterable[tuple[str, str]]:
        """Names of the deciders that it asks, each behind the path of its parameter."""
        return ()

    def bind(self, deciders: Mapping[str, "Decider"]) -> None:
        """Take the deciders that ``deciders_named`` names, by their names."""

    def check_profiles(self, profiles: Sequence[str]) -> Iterable[tuple[str, str]]:
        """Problems with the profiles that there are: (parameter path, message)."""
        return ()


class Decider(Plugin):
    """Says whether an optional stage is worth it."""

    kind = "decider"

    def wants(self, request: PricedRequest, computing: Stage) -> bool:
        """Whether the stage should run; else the winner of ``computing``, at least one, does its work too."""
        raise NotImplementedError

    def items(self, request: PricedRequest, computing: Stage) -> tuple[PricedItem, ...]:
        """The distinct items that the stage should get, prompt order, where it runs."""
        return request.distinct_items()


class Pricer(Plugin):
    """Says what a request weighs."""

    kind = "pricer"

    def price(self, request: InferenceRequest) -> PricedRequest:
        """The request with its items and its text in tokens."""
        raise NotImplementedError

    def rule_prices(self, request: InferenceRequest) -> tuple[PricedItem, ...]:
        """The request's items by rule alone, nothing learned. Thread-safe; none where the pricer has no rules."""
        return ()


class Producer(Plugin):
    """Makes one fact of each endpoint for one request, from its own memory."""

    kind = "producer"
    produces: ClassVar[Any]
    """The fact's class."""

    def match(self, request: PricedRequest, endpoints: Sequence[Endpoint]) -> list[Any]:
        """One fact for each endpoint, same order. A question: it changes nothing."""
        raise NotImplementedError

    def derive(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[Any]:
        """As ``match``, where facts follow from those that the producers before this one made: candidates hold them."""
        return self.match(request, [candidate.endpoint for candidate in candidates])

    def prepare(self, request: PricedRequest) -> Mapping[Hashable, tuple[int, ...]]:
        """What ``match`` will need of the request's token ids, for ``PricedRequest.block_keys``.

        Called in a worker thread, while other methods run: it reads nothing that they change in place.
        """
        return {}


class Dialect(Plugin):
    """One API shape: where the text and the media are in a body."""

    kind = "dialect"
    configurable = False
    paths: ClassVar[tuple[str, ...]]
    """Path suffixes that speak it; the longest that fits wins."""

    def parse(self, body: bytes, profile: ModelProfile, headers: Mapping[str, str] = NO_HEADERS) -> Draft:
        """What the body asks; raises RequestError where no engine could read it.

        ``headers`` are the request's, names in lower case: a multipart body's boundary stands there.
        """
        raise NotImplementedError


P = TypeVar("P", bound=Plugin)
_REGISTRY: dict[tuple[bool, str], type[Plugin]] = {}


@dataclass_transform(kw_only_default=True)
def plugin(
    type_name: str,
    *,
    reads: tuple[type, ...] = (),
    optional_reads: tuple[type, ...] = (),
    aliases: tuple[str, ...] = (),
) -> Callable[[type[P]], type[P]]:
    """Make a class a plugin of that type name.

    Raises:
        TypeError: the class has no docstring, or its type name is taken.
    """

    def decorate(cls: type[P]) -> type[P]:
        if not (cls.__doc__ or "").strip():
            raise TypeError(f"plugin {type_name}: {cls.__qualname__} needs a docstring, it is the user's manual")
        cls.type = type_name
        cls.reads = reads
        cls.optional_reads = optional_reads
        cls.aliases = aliases
        cls.name = type_name
        cls.__pydantic_config__ = STRICT  # type: ignore[attr-defined]
        made = dataclasses.dataclass(kw_only=True, eq=False)(cls)
        for word in (type_name, *aliases):
            taken = _REGISTRY.get((cls.configurable, word))
            if taken is not None and taken.__qualname__ != cls.__qualname__:
                raise TypeError(f"plugin type {word!r} of {cls.__module__} is taken by {taken.__module__}")
            _REGISTRY[cls.configurable, word] = made
        return made

    return decorate


B = TypeVar("B", bound=Plugin)


def registered(base: type[B]) -> dict[str, type[B]]:
    """Every plugin class of that kind by type name, aliases included, sorted by name."""
    found = {word: cls for (_, word), cls in _REGISTRY.items() if issubclass(cls, base)}
    return dict(sorted(found.items()))


def configurable_types() -> dict[str, type[Plugin]]:
    """Every plugin class that YAML may declare, by type name, aliases included."""
    return {word: cls for word, cls in registered(Plugin).items() if cls.configurable}
