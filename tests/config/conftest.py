"""Configurations in few words, and a registry that a test may add to."""

from typing import Any

import pytest

from tessera.config.discover import discover
from tessera.core import plugin

HEAD = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"}


@pytest.fixture
def config() -> Any:
    """Makes a configuration of plugins (types or entries) and sections."""

    def make(*plugins: str | dict[str, Any], **sections: Any) -> dict[str, Any]:
        entries = [{"type": each} if isinstance(each, str) else each for each in plugins]
        return {**HEAD, "plugins": entries, **sections}

    return make


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    """The registry of plugin types; what a test adds is gone after it."""
    discover()
    copy = dict(plugin._REGISTRY)
    monkeypatch.setattr(plugin, "_REGISTRY", copy)
    return copy
