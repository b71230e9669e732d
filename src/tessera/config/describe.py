"""What can be configured? Every type that YAML may declare, with its parameters, from its source alone."""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from tessera.config.blocks import block_of, element_of, fields_of, plain_hint
from tessera.config.declarations import DECLARATIONS
from tessera.config.discover import discover
from tessera.config.legacy import OLD_TYPES
from tessera.config.llmd_types import LLMD_TYPES
from tessera.config.plan import PluginClass
from tessera.config.quantities import AsQuantity
from tessera.config.schema import RoutingSpec
from tessera.core.plugin import GoDuration, Plugin, Producer, Range, configurable_types


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One key of YAML."""

    name: str
    """The whole way from the plugin's ``parameters``: ``estimate.image.mode``, ``engineConfigs[].name``."""
    type: str
    """What it takes, in words: ``integer``, ``text``, ``dynamic or static``, ``list of text``."""
    default: str
    """As YAML writes it; ``required`` where it must be given, empty for a block or a list."""
    bounds: str
    """``at least 1``; empty where there are none."""
    text: str
    """The docstring below the field, one paragraph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One type that YAML may declare."""

    kind: str
    type: str
    aliases: tuple[str, ...]
    module: str
    text: str
    """The class's docstring, dedented."""
    parameters: tuple[Parameter, ...]
    reads: tuple[str, ...]
    """Facts that it cannot work without, and their default producers: ``Load (core-metrics-extractor)``."""
    optional_reads: tuple[str, ...]
    """Facts that it uses where they are there."""
    produces: str
    """The fact that a producer makes; empty for anything else."""


def describe_types(*, of_package: str = "") -> tuple[Described, ...]:
    """Every type by kind and name; only those whose module starts with ``of_package``."""
    discover()
    plugins = {cls.type: cls for cls in configurable_types().values()}
    classes: list[PluginClass] = [*plugins.values(), *DECLARATIONS.values()]
    found = [_describe(cls) for cls in classes if cls.__module__.startswith(of_package)]
    return tuple(sorted(found, key=lambda each: (each.kind, each.type)))


def describe_type(type_name: str) -> Described | None:
    """One type by its name or an alias."""
    discover()
    cls = configurable_types().get(type_name) or DECLARATIONS.get(type_name)
    return _describe(cls) if cls else None


def describe_routing() -> tuple[Parameter, ...]:
    """The keys of ``routing``."""
    return _parameters(RoutingSpec)


def types_we_lack() -> Mapping[str, str]:
    """Kind of each of llm-d's types that Tessera does not have, by type name; older names that it reads aside."""
    discover()
    ours = configurable_types().keys() | DECLARATIONS.keys() | OLD_TYPES
    return MappingProxyType({name: kind for name, kind in LLMD_TYPES.items() if name not in ours})


def _describe(cls: PluginClass) -> Described:
    plugin = cls if issubclass(cls, Plugin) else None
    return Described(
        kind=cls.kind,
        type=cls.type,
        aliases=plugin.aliases if plugin else (),
        module=cls.__module__,
        text=inspect.cleandoc(cls.__doc__ or ""),
        parameters=_parameters(cls),
        reads=_facts(plugin.reads) if plugin else (),
        optional_reads=_facts(plugin.optional_reads) if plugin else (),
        produces=cls.produces.__name__ if issubclass(cls, Producer) else "",
    )


def _facts(facts: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(f"{fact.__name__} ({fact.producer})" for fact in facts)


def _parameters(block: type, prefix: str = "") -> tuple[Parameter, ...]:
    """The keys of a block, each followed by those of the block that it holds."""
    found: list[Parameter] = []
    texts = _field_texts(block)
    fields = [field for field in dataclasses.fields(block) if field.init]
    for field, (key, hint) in zip(fields, fields_of(block).items(), strict=True):
        inner = block_of(hint)
        element = None if inner else element_of(hint)
        nested = inner or (block_of(element) if element is not None else None)
        name = f"{prefix}{key}"
        found.append(
            Parameter(
                name=name,
                type=_type_words(hint),
                default=_default(field, hint),
                bounds=_bounds(hint),
                text=texts.get(field.name, ""),
            )
        )
        if nested is not None:
            found += _parameters(nested, f"{name}." if inner else f"{name}[].")
    return tuple(found)


def _metadata(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _type_words(hint: Any) -> str:
    if any(isinstance(each, GoDuration) for each in _metadata(hint)):
        return "duration"
    if AsQuantity in _metadata(hint):
        return "quantity"
    plain = plain_hint(hint)
    origin, element = get_origin(plain), element_of(plain)
    if block_of(plain) is not None:
        return "block"
    if origin in {Union, UnionType, Literal}:
        return " or ".join(str(each) if origin is Literal else _type_words(each) for each in get_args(plain))
    if element is not None:
        of = "blocks" if block_of(element) else _type_words(element)
        return f"mapping to {of}" if origin in {dict, Mapping} else f"list of {of}"
    return _WORDS.get(plain, "anything")


_WORDS = {int: "integer", float: "number", str: "text", bool: "true or false"}


def _default(field: dataclasses.Field[Any], hint: Any) -> str:
    if field.default is field.default_factory is dataclasses.MISSING:
        return "required"
    value = field.default
    if value is dataclasses.MISSING or value is None or isinstance(value, (tuple, dict)) or block_of(hint) is not None:
        return ""
    if any(isinstance(each, GoDuration) for each in _metadata(hint)):
        return f"{value:g}s" if value >= 1 or value == 0 else f"{value * 1000:g}ms"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return '""' if value == "" else str(value)


def _bounds(hint: Any) -> str:
    words = []
    for each in _metadata(hint):
        if isinstance(each, Range):
            pairs = (("at least", each.ge), ("more than", each.gt), ("at most", each.le))
            words += [f"{word} {value}" for word, value in pairs if value is not None]
    return ", ".join(words)


@cache
def _field_texts(block: type) -> Mapping[str, str]:
    """The docstrings below a class's fields, those of the classes it comes from included."""
    texts: dict[str, str] = {}
    for cls in reversed(block.__mro__):
        if dataclasses.is_dataclass(cls):
            texts |= _texts_in(cls)
    return texts


def _texts_in(cls: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):  # a class made at run time has no source
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    texts = {}
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = " ".join(inspect.cleandoc(text).split())
    return texts
