"""Does the demo show what it promises, and leave nothing behind?"""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.envoy]


def demo(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tessera.cli.main", "demo", "--servers", "2", "--speed", "4", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "COLUMNS": "120"}
    )


def test_it_ends_with_both_passes_and_one_decision_explained() -> None:
    process = demo("--requests", "24", "--rate", "12")
    said, _ = process.communicate(timeout=90)
    assert process.returncode == 0, said
    assert re.search(r"round robin .* 24 .* 0 ", said)
    assert re.search(r"Tessera .* 24 .* 0 ", said)
    assert "One decision, explained" in said
    assert "winner" in said


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine to paste the line into")
def test_keep_prints_a_line_that_works_and_ctrl_c_ends_it() -> None:
    process = demo("--requests", "4", "--rate", "20", "--keep")
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        curl = next(line for line in lines if line.startswith("curl "))
        answer = subprocess.run(
            ["bash", "-c", curl.replace("curl", "curl -sf", 1)], capture_output=True, text=True, check=False
        )
        assert answer.returncode == 0, answer.stderr
        assert '"prompt_tokens"' in answer.stdout
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
        assert "everything that the demo started is gone" in rest
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait(10)
