"""How does a benchmark say what was run and where, and where does its result go?"""

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any


def arguments(text: str | None) -> argparse.ArgumentParser:
    """A parser with ``--write``, described by the first line of the benchmark's docstring ``text``."""
    parser = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    parser.add_argument("--write", type=Path, help="where to keep the result, as JSON")
    return parser


def headed(question: str) -> dict[str, Any]:
    """How every result begins: the command as it was given, the question, the machine."""
    return {
        "command": " ".join(["python", f"bench/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "question": question,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def keep(result: dict[str, Any], path: Path | None) -> None:
    """Write a result to ``path``, if there is one."""
    if path:
        path.write_text(as_text(result))


def as_text(result: dict[str, Any]) -> str:
    """A result as it is printed and kept."""
    return json.dumps(result, indent=2) + "\n"
