"""Which plugins of the file do we lack, and what is the file without them?"""

from dataclasses import dataclass
from typing import Any

from tessera.config.defaults import client_profile
from tessera.config.plan import Plan


@dataclass(frozen=True, slots=True)
class MissingPlugin:
    """A declared plugin whose type llm-d has and we do not."""

    path: str
    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.path}.type: {self.message}"

    @property
    def message(self) -> str:
        """What an operator should know of it."""
        return f"llm-d has {self.type}; Tessera does not have it yet"


def missing_plugins(plan: Plan) -> tuple[MissingPlugin, ...]:
    """The declared plugins whose types llm-d has and we do not."""
    return tuple(MissingPlugin(each.path, each.name, each.type) for each in plan.declared.values() if each.is_missing)


def without_missing(data: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """The configuration without what cannot run, and without everything that refers to it."""
    gone = {each.name for each in plan.declared.values() if each.is_missing or not each.is_ready}
    kept = {key: _pruned(value, gone) for key, value in data.items() if key != "plugins"}
    plugins = data.get("plugins") or []
    kept["plugins"] = [each for each in plugins if (each.get("name") or each["type"]) not in gone]
    if any(each.name in gone for each in plan.of_kind("handler")) and len(plan.profiles) > 1:
        client = client_profile(tuple(plan.profiles))
        kept["schedulingProfiles"] = [each for each in kept["schedulingProfiles"] if each["name"] == client]
    return kept


_GONE = object()


def _pruned(value: Any, gone: set[str]) -> Any:
    """A section without references to what is gone; a block that is only such a reference goes with it."""
    if isinstance(value, list):
        return [kept for each in value if (kept := _pruned(each, gone)) is not _GONE]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("pluginRef"), str) and value["pluginRef"] in gone:
        return _GONE
    refs = {key for key, each in value.items() if key.endswith("Ref") and isinstance(each, str) and each in gone}
    pairs = ((key, _pruned(each, gone)) for key, each in value.items() if key not in refs)
    return {key: each for key, each in pairs if each is not _GONE}
