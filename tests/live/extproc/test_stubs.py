"""The committed gRPC stubs are what tools/generate_protos.py makes."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_stubs_are_current(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "generate_protos.py", tmp_path], check=True)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*_pb2.py*"))
    committed = sorted(
        path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*_pb2.py*") if path.suffix != ".pyc"
    )
    assert made == committed
    for path in made:
        assert (tmp_path / path).read_text() == (ROOT / "src" / path).read_text()
