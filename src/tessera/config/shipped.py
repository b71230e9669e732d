"""Where are the example files that come with the package?"""

from pathlib import Path

import tessera
from tessera.core.errors import ConfigError, Problem


def shipped(name: str) -> Path:
    """The example of that name: inside an installed package, else beside the sources of a checkout.

    Raises:
        ConfigError: there is no such example; the message lists those that there are.
    """
    package = Path(tessera.__file__).parent
    folders = (package / "examples", package.parent.parent / "examples")
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    known = sorted({path.name for folder in folders for path in folder.glob("*.yaml")})
    raise ConfigError([Problem("", f"no example {name!r}; there are {', '.join(known) or 'none'}")])
