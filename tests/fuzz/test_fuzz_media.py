"""Does a minute of fuzzing find content that the look at a media part cannot bear?"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SECONDS = 60
HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed: it has no wheel for this machine")
def test_no_content_makes_the_probe_raise(tmp_path: Path) -> None:
    command = [sys.executable, HERE / "fuzz_media.py", str(SECONDS), tmp_path, HERE.parent / "images"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS * 3 + 60, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
