"""What does inference-perf send, and what does it report? Its shared-prefix workload with pictures, and its runs."""

import json
import os
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

NUM_IMAGES = 3
NUM_GROUPS = 12
NUM_PROMPTS_PER_GROUP = 15
NUM_OUTPUT_TOKENS = 60
STAGES = ((3, 20), (6, 20))
"""Requests a second, and for how many seconds."""
NUM_REQUESTS = sum(rate * seconds for rate, seconds in STAGES)
LETTERS = "abcdefghijklmnop"
TIMEOUT_S = 300


def write_tokenizer(folder: Path) -> Path:
    """A model folder with 4,096 words of a space and three letters, each a token.

    A token is 4 bytes, as the emulator counts text.
    """
    words = ("".join((" ", *letters)) for letters in product(LETTERS, repeat=3))
    vocabulary = {word: number for number, word in enumerate(("?", *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(f" [{LETTERS}]{{3}}"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder


def workload(url: str, model: str, tokenizer: Path, reports: Path) -> dict[str, Any]:
    """The published workload of llm-d's guide to multimodal serving, with fewer groups and shorter answers.

    The pictures of a group are before its text, the same bytes in each of its prompts; each
    stage begins with the first prompt again. Answers have 60 tokens instead of 300, because
    every one passes four processes on the same cores.
    """
    images = {
        "count": {"type": "fixed", "min": NUM_IMAGES, "max": NUM_IMAGES, "mean": NUM_IMAGES},
        "insertion_point": 0.0,
        "representation": "png",
        "resolutions": [{"resolution": "720p", "weight": 1.0}],
    }
    return {
        "api": {"type": "chat", "streaming": True},
        "server": {"type": "vllm", "model_name": model, "base_url": url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(tokenizer)},
        "data": {
            "type": "shared_prefix",
            "shared_prefix": {
                "num_groups": NUM_GROUPS,
                "num_prompts_per_group": NUM_PROMPTS_PER_GROUP,
                "system_prompt_len": 100,
                "question_len": 1200,
                "output_len": NUM_OUTPUT_TOKENS,
                "seed": 7,
                "multimodal": {"image": images},
            },
        },
        "load": {
            "type": "constant",
            "interval": 1,
            "num_workers": 2,
            "worker_max_concurrency": 100,
            "base_seed": 12345,
            "stages": [{"rate": rate, "duration": seconds} for rate, seconds in STAGES],
        },
        "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": False}},
        "storage": {"local_storage": {"path": str(reports)}},
    }


def run(env: Path, config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Its reports by name: ``summary``, ``stage_0`` and so on."""
    path = folder / "workload.yaml"
    path.write_text(yaml.safe_dump(config))
    done = subprocess.run(
        [env / "bin" / "inference-perf", "--config_file", path],
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    suffix = "_lifecycle_metrics.json"
    reports = Path(config["storage"]["local_storage"]["path"]).rglob(f"*{suffix}")
    return {report.name.removesuffix(suffix): json.loads(report.read_text()) for report in reports}


def trimmed(report: dict[str, Any]) -> dict[str, Any]:
    """What of one report is worth keeping: means, medians and 90th percentiles, in its own words."""
    load, done, failures = report["load_summary"], report["successes"], report["failures"]
    return {
        "requested_rate": load.get("requested_rate"),
        "achieved_rate": load.get("achieved_rate"),
        "sent": load["count"],
        "schedule_delay": _kept(load["schedule_delay"]),
        "successes": done["count"],
        "failures": failures["count"],
        "latency": {name: _kept(column) for name, column in done["latency"].items() if column},
        "throughput": {name: _short(value) for name, value in done["throughput"].items()},
        "images_per_request": done["image"]["count"]["mean"],
        "pixels_per_image": done["image"]["pixels"]["mean"],
        "prompt_tokens": {name: done["prompt_tokens"][name] for name in ("total", "cached", "uncached", "mean")},
        "output_tokens": {name: done["output_tokens"][name] for name in ("total", "mean")},
    }


def _kept(column: dict[str, float]) -> dict[str, float]:
    return {name: _short(column[name]) for name in ("mean", "median", "p90", "max")}


def _short(value: float) -> float:
    return float(f"{value:.4g}")
