import sys
from importlib.metadata import EntryPoint

import pytest

from tessera.config import discover as module
from tessera.config.discover import PLUGIN_FOLDERS, discover
from tessera.core.errors import ConfigError
from tessera.core.plugin import Plugin, configurable_types, registered


@pytest.fixture
def installed(monkeypatch, tmp_path, registry):
    """Plays that a package is installed whose module has this source."""

    def install(source, *, name="theirs"):
        (tmp_path / f"{name}_plugin.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        entry = EntryPoint(name, f"{name}_plugin", module.ENTRY_POINTS)
        monkeypatch.setattr(module, "entry_points", lambda group: [entry])
        monkeypatch.delitem(sys.modules, f"{name}_plugin", raising=False)

    yield install
    for name in [each for each in sys.modules if each.endswith("_plugin") and "." not in each]:
        del sys.modules[name]


SCORER = '''
from tessera.core.plugin import Scorer, plugin

@plugin("{type}")
class Theirs(Scorer):
    """Theirs."""
'''


def test_every_module_of_the_plugin_folders_is_imported():
    discover()
    folders = {
        cls.__module__.split(".")[2] for cls in registered(Plugin).values() if cls.__module__.startswith("tessera")
    }
    assert folders <= set(PLUGIN_FOLDERS)
    assert {"queue-scorer", "max-score-picker", "token-producer", "decode-filter"} <= configurable_types().keys()


def test_an_installed_plugin_is_found(installed, config):
    installed(SCORER.replace("{type}", "their-scorer"))
    discover.__wrapped__()
    assert "their-scorer" in configurable_types()


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        (
            SCORER.replace("{type}", "queue-scorer"),
            "TypeError: plugin type 'queue-scorer' of theirs_plugin is taken by",
        ),
    ],
)
def test_a_broken_package_is_named(installed, source, what):
    installed(source)
    with pytest.raises(ConfigError) as caught:
        discover.__wrapped__()
    assert str(caught.value).startswith(f"plugin 'theirs' cannot be loaded from theirs_plugin: {what}")
