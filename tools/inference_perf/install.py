"""Install inference-perf, llm-d's load generator, in an environment of its own outside the tree.

python tools/inference_perf/install.py FOLDER

It needs Python 3.12 or newer, which need not be the one that Tessera runs on: looked for are this interpreter, the
commands ``python3.12`` and so on of the PATH, and pyenv's versions. Where there is none, this says so and ends with
status 3. FOLDER/env takes about 600 MB; what was made already by the same versions is kept.
"""

import argparse
import glob
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
INFERENCE_PERF = "inference-perf==0.7.0"
CONSTRAINTS = HERE / "constraints.txt"
"""Versions that were seen to work together."""
OLDEST = (3, 12)
NEWEST = (3, 19)
"""No later command name is looked for."""
NO_PYTHON = 3
"""Exit status where nothing can be installed because no Python is new enough."""
ASK_VERSION = "import ensurepip, sys, venv; print(*sys.version_info[:2])"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="its subfolder env becomes the environment")
    folder = parser.parse_args().folder.expanduser().resolve()
    stamp = folder / "installed"
    if stamp.exists() and stamp.read_text() == _fingerprint():
        return
    found = sorted({(version, path) for path in candidates() if (version := version_of(path)) >= OLDEST})
    if not found:
        print("no Python of 3.12 or newer with venv and ensurepip in the PATH or under pyenv", file=sys.stderr)
        sys.exit(NO_PYTHON)
    env = folder / "env"
    subprocess.run([found[0][1], "-m", "venv", "--clear", env], check=True)
    pip = (env / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
    subprocess.run([*pip, "-c", CONSTRAINTS, INFERENCE_PERF], check=True)
    stamp.write_text(_fingerprint())


def candidates() -> Iterator[str]:
    """Interpreters that may be new enough."""
    yield sys.executable
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        if path := shutil.which(f"python3.{minor}"):
            yield path
    pyenv = os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv"
    yield from glob.glob(f"{pyenv}/versions/*/bin/python3")


def version_of(path: str) -> tuple[int, ...]:
    """Of an interpreter that can make environments; (0, 0) where it cannot, or is none.

    A command of the PATH may be pyenv's, which fails for a version that is not switched on.
    """
    try:
        asked = subprocess.run([path, "-c", ASK_VERSION], capture_output=True, text=True, check=True, timeout=30)
        return tuple(int(number) for number in asked.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return (0, 0)


def _fingerprint() -> str:
    """What an installation depends on."""
    texts = b"".join(each.read_bytes() for each in (Path(__file__), CONSTRAINTS))
    return f"{hashlib.sha256(texts).hexdigest()}\n"


if __name__ == "__main__":
    main()
