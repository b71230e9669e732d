"""Which plugins are there? Every module of the plugin folders, and whatever is installed beside us."""

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec

from tessera.core.errors import ConfigError, Problem

PLUGIN_FOLDERS = ("filters", "scorers", "pickers", "deciders", "handlers", "matching", "pricing", "dialects")
"""Folders of ``tessera.core`` whose modules are imported."""
ENTRY_POINTS = "tessera.plugins"
"""Entry-point group of plugins that come in other packages; each names a module or a class."""


@cache
def discover() -> None:
    """Import every plugin module, so that each class has registered itself; once a process.

    Raises:
        ConfigError: an installed package's plugin cannot be imported, or takes a name that is taken.
    """
    for folder in PLUGIN_FOLDERS:
        package = f"tessera.core.{folder}"
        spec = find_spec(package)
        for module in pkgutil.iter_modules(spec.submodule_search_locations if spec else []):
            importlib.import_module(f"{package}.{module.name}")
    problems = []
    for each in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: (each.name, each.value)):
        try:
            each.load()
        except (
            Exception,
            SystemExit,
        ) as error:  # whatever a stranger's module does, the operator must learn whose it is
            package = f" of package {each.dist.name}" if each.dist else ""
            what = f"{type(error).__name__}: {error}"
            problems.append(Problem("", f"plugin {each.name!r}{package} cannot be loaded from {each.value}: {what}"))
    if problems:
        raise ConfigError(problems)
