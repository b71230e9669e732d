"""What is kept of a comparison with a real engine?"""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .engine import BLOCK_SIZE, HASH_SEED, MAX_MODEL_LEN, Engine

RESULT = "TESSERA_VLLM_RESULT"
"""Names the file in which it is kept; nothing: it is not."""


def keep(engine: Engine, rows: list[dict[str, Any]]) -> None:
    """Write the comparison where the run was told to."""
    if not (place := os.environ.get(RESULT)):
        return
    result = {
        "command": "make test-vllm",
        "question": "Are a prompt's tokens and blocks, and what of them is cached, what the engine says?",
        "date": datetime.now(UTC).date().isoformat(),
        "vllm": engine.version(),
        "python": platform.python_version(),
        "block_size": BLOCK_SIZE,
        "hash_seed": HASH_SEED,
        "max_model_len": MAX_MODEL_LEN,
        **_sums(rows),
    }
    head = json.dumps(result, indent=2).removesuffix("\n}")
    lines = ",\n".join(f"    {json.dumps(each)}" for each in rows)
    Path(place).write_text(f'{head},\n  "requests": [\n{lines}\n  ]\n}}\n')


def _sums(rows: list[dict[str, Any]]) -> dict[str, int]:
    compared = [each for each in rows if "declined" not in each]
    return {
        "requests_sent": len(rows),
        "requests_compared": len(compared),
        "requests_with_faults": sum("faults" in each for each in compared),
        "tokens": sum(each["engine_tokens"] or 0 for each in compared),
        "blocks_predicted": sum(each["blocks_predicted"] for each in compared),
        "blocks_found": sum(each["blocks_found"] for each in compared),
    }
