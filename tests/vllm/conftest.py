"""One real engine for the whole session, where one is installed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .engine import Engine

FOLDER = "TESSERA_VLLM_DIR"
"""Names the folder that ``tools/real_vllm/install.py`` filled."""


@pytest.fixture(scope="session")
def model() -> Path:
    """The served model's folder."""
    folder = os.environ.get(FOLDER)
    if not folder or not (Path(folder) / "installed").exists():
        pytest.skip(f"no real vLLM: {FOLDER} names no folder that has one; `make test-vllm` installs it")
    return Path(folder).expanduser().resolve() / "tiny-qwen3-vl"


@pytest.fixture(scope="session")
def engine(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine(model.parent / "env", model, tmp_path_factory.mktemp("vllm") / "server.log") as running:
        yield running
