"""Which rule is the served model's, with which settings, and how sure is that?

Order of authority: the request's ``mm_processor_kwargs``, the server's, what the
operator writes beside the family, the model's own files, published defaults.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from tessera.core.family import Family, ModelFiles
from tessera.core.media.mm_hash import ALGORITHMS
from tessera.core.plugin import camel, registered
from tessera.core.types import Basis

MAX_VARIANTS = 64
"""Sets of request-level settings whose family is kept."""
GUESSED = "family-guessed"
UNHEARD = "kwargs-unheard"
NOT_SETTINGS = ("family", "path", "engineModel", "mmProcessorKwargs", "mediaIoKwargs", "mmHasherAlgorithm")
"""Keys of ``estimate.model`` that are no processor setting."""


@dataclass(slots=True)
class ServedModel:
    """A family with its settings."""

    family: Family
    basis: Basis
    reason: str | None = None
    """Why the rule is not known better, where it is not."""
    _variants: dict[str, "ServedModel"] = field(default_factory=dict)

    def for_request(self, kwargs: Mapping[str, Any], media_io: Mapping[str, Any]) -> "ServedModel":
        """The model as a request's ``mm_processor_kwargs`` and ``media_io_kwargs`` change it."""
        if not kwargs and not media_io:
            return self
        key = repr((sorted(kwargs.items(), key=_name), sorted(media_io.items(), key=_name)))
        # Other threads ask too: what one clears, another must not miss.
        variant = self._variants.get(key)
        if variant is None:
            if len(self._variants) >= MAX_VARIANTS:
                self._variants.clear()
            changes = self.family.from_media_io_kwargs(media_io) | self.family.from_kwargs(kwargs)
            variant = ServedModel(_changed(self.family, changes), self.basis, self.reason)
            variant = self._variants[key] = variant.told(kwargs)
        return variant

    def told(self, kwargs: Mapping[str, Any]) -> "ServedModel":
        """The same, no better than declared where the rule does not hear all of these ``mm_processor_kwargs``."""
        if not unheard(type(self.family), kwargs):
            return self
        return replace(self, basis=max(self.basis, Basis.DECLARED), reason=self.reason or UNHEARD)


def _name(entry: tuple[str, Any]) -> str:
    return entry[0]


def _changed(family: Family, changes: Mapping[str, Any]) -> Family:
    """The same family with other settings, also where they contradict each other: the engine takes them too."""
    now = {each.name: getattr(family, each.name) for each in fields(family)}  # type: ignore[arg-type]
    return type(family)(**(now | dict(changes)))


def unheard(family: type[Family], kwargs: Mapping[str, Any]) -> list[str]:
    """The ``mm_processor_kwargs`` that a family's rule does not hear: they may change what the engine counts.

    >>> from tessera.core.pricing.qwen_vl import Qwen3VL
    >>> unheard(Qwen3VL, {"max_pixels": 4096, "merge_size": 1, "size": {"longest_edge": 4096, "height": 32}})
    ['merge_size', 'size.height']
    """
    single = [(str(key), {key: value}) for key, value in kwargs.items() if not isinstance(value, Mapping)]
    inner = [
        (f"{key}.{name}", {key: {name: each}})
        for key, value in kwargs.items()
        if isinstance(value, Mapping)
        for name, each in value.items()
    ]
    return [name for name, alone in (*single, *inner) if not family.from_kwargs(alone)]


def spellings(family: type[Family]) -> dict[str, str]:
    """Setting names as YAML may write them (``minPixels``, or ``min_pixels`` as model files do) -> field names."""
    names = sorted(family.parameters())
    return {camel(name): name for name in names} | {name: name for name in names}


def family_of(files: ModelFiles) -> type[Family] | None:
    """The family whose rule a model with these files uses."""
    return next((cls for cls in registered(Family).values() if cls.matches(files)), None)


def problems_of(choice: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with ``estimate.model``, before any file is read: (key, message)."""
    name, path = choice.get("family"), choice.get("path")
    families = registered(Family)
    if name is None and path is None:
        yield "", "names neither a family nor a path; write {path: DIR} or {family: NAME}"
        return
    if path is not None and (not isinstance(path, str) or not path):
        yield "path", f"got {path!r}, expected the folder of the model's files"
    yield from _problems_of_engine(choice)
    if name is None:
        return
    if not isinstance(name, str) or name not in families:
        yield "family", f"got {name!r}, expected one of {', '.join(families)}"
        return
    settings = spellings(families[name])
    for key in choice.keys() - settings.keys() - set(NOT_SETTINGS):
        yield key, f"family {name} has no such setting; it has {', '.join(sorted(set(settings.values())))}"


def _problems_of_engine(choice: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with what the engine was started with."""
    if not isinstance(choice.get("engineModel", ""), str):
        yield "engineModel", f"got {choice['engineModel']!r}, expected text"
    algorithm = choice.get("mmHasherAlgorithm", "blake3")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        yield "mmHasherAlgorithm", f"got {algorithm!r}, expected one of {', '.join(ALGORITHMS)}"
    for key in ("mmProcessorKwargs", "mediaIoKwargs"):
        if not isinstance(choice.get(key, {}), Mapping):
            yield key, f"got {choice[key]!r}, expected a mapping"
            return
    for modality, kwargs in choice.get("mediaIoKwargs", {}).items():
        if not isinstance(kwargs, Mapping):
            yield f"mediaIoKwargs.{modality}", f"got {kwargs!r}, expected a mapping"


def family_chosen(choice: Mapping[str, Any], files: ModelFiles | None) -> type[Family] | None:
    """The family that is named, else the one that the files speak of, if one is known."""
    name = choice.get("family")
    return registered(Family)[name] if isinstance(name, str) else family_of(files) if files else None


def overrides_of(choice: Mapping[str, Any], family: type[Family]) -> dict[str, Any]:
    """What the operator writes beside the family, by field name."""
    names = spellings(family)
    return {names[key]: value for key, value in choice.items() if key in names}


def served_model(
    choice: Mapping[str, Any], files: ModelFiles | None, overrides: Mapping[str, Any] | None = None
) -> ServedModel | None:
    """The model that ``estimate.model`` means; nothing where its files name no family that is known.

    The rule is exact where both the architecture and the processor's settings come
    from the model's own files.

    Args:
        choice: has no problem by ``problems_of``.
        files: the model's own, where ``path`` names them.
        overrides: ``overrides_of`` the choice, decoded; as they stand where nothing is given.
    """
    family = family_chosen(choice, files)
    if family is None:
        return None
    settings: dict[str, Any] = family.from_files(files) if files else {}
    settings |= overrides_of(choice, family) if overrides is None else overrides
    for key, read in (("mediaIoKwargs", family.from_media_io_kwargs), ("mmProcessorKwargs", family.from_kwargs)):
        kwargs = choice.get(key)
        settings |= read(kwargs) if isinstance(kwargs, Mapping) else {}
    made = family(**settings)
    name = choice.get("family")
    kwargs = choice.get("mmProcessorKwargs") or {}
    if files is None:
        return ServedModel(made, Basis.DECLARED).told(kwargs)
    if family.needs_processor and not files.has_processor:
        return ServedModel(made, Basis.DECLARED, "no-processor-config").told(kwargs)
    return ServedModel(made, Basis.EXACT if name is None or family.matches(files) else Basis.DECLARED).told(kwargs)


@lru_cache(maxsize=256)
def guess(model_name: str) -> ServedModel | None:
    """The family that a served model's name speaks of, with its published settings; nothing for an unknown name.

    >>> served = guess("Qwen/Qwen3-VL-32B-Instruct-FP8")
    >>> served.family.type, served.basis.word, served.reason
    ('qwen3-vl', 'default', 'family-guessed')
    >>> guess("my-model") is None
    True
    """
    lowered = model_name[:256].lower().replace("_", "-")
    fits = [(part, cls) for cls in registered(Family).values() for part in cls.model_names if part in lowered]
    if not fits:
        return None
    _, family = max(fits, key=lambda fit: len(fit[0]))
    return ServedModel(family(), Basis.DEFAULT, GUESSED)
