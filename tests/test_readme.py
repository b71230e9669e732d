"""That the readme says what was found."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_its_table_of_policies_is_that_of_the_committed_result():
    command = [sys.executable, "bench/fleet.py", "--read", "bench/results/fleet.json", "--table"]
    table = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert table.count("\n") > 10
    assert table in (ROOT / "README.md").read_text()
