"""Where in a document does something stand, in words that an operator can follow?"""

import json
import re

from tessera.core.errors import Problem


def join(path: str, key: str) -> str:
    """The path of a key below ``path``.

    >>> join("plugins[2]", "type"), join("", "kind"), join("labels", "llm-d.ai/role")
    ('plugins[2].type', 'kind', 'labels["llm-d.ai/role"]')
    """
    if not re.fullmatch(r"[\w-]{1,80}", key):
        return f"{path}[{json.dumps(key[:80])}]"
    return f"{path}.{key}" if path else key


def reading_order(problem: Problem) -> tuple[str | int, ...]:
    """A key that sorts problems by their path, ``plugins[2]`` before ``plugins[10]``."""
    return tuple(int(each) if each.isdecimal() else each for each in re.split(r"(\d{1,9})", problem.path))
