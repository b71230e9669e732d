"""``tessera advise``: a whole answer at a small scale, and plain words for what is wrong."""

import json
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tessera.cli import advise as command
from tessera.cli.main import app
from tessera.config.endpoints import read_endpoints_file
from tessera.config.load import load_file
from tessera.sim.advice.advice import Question
from tessera.sim.advice.search import Trial

WORKLOAD = """
description: large scans
pictures: 1
size: 3840x2160
prompt_tokens: 60
output_tokens: 20
rate: 1
"""
EXAMPLES = Path(__file__).parents[2] / "examples" / "workloads"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["advise", *map(str, arguments)], env={"COLUMNS": "80"})


@pytest.fixture(name="workload")
def _workload(tmp_path: Path) -> Path:
    path = tmp_path / "scans.yaml"
    path.write_text(WORKLOAD)
    return path


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of a few requests under one seed."""
    trial = Trial(num_requests=8, min_duration_s=2.0)
    monkeypatch.setattr(command, "Question", partial(Question, seeds=(0,), trial=trial))


@pytest.mark.usefixtures("_small")
def test_an_answer_as_json_and_its_files(workload: Path, tmp_path: Path) -> None:
    folder, plot = tmp_path / "deployment", tmp_path / "advice.svg"
    asked = (workload, "--gpus", "4", "--tpot", "40", "--format", "json", "--jobs", "1")
    result = run(*asked, "--out", folder, "--plot", plot)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["num_gpus"], report["profile"], report["is_fitted"]) == (4, "h200-tp2-qwen3-vl-32b", True)
    # Latency 27, CPU 4 + 4 + 243; step, prefill and encoder: 9 + 0.46 s + 0.46 s. Doubled, and 0.2 s.
    assert report["objectives"]["ttft_p90_s"] == pytest.approx(2 * report["idle_ttft_s"] + 0.2)
    assert report["idle_ttft_s"] == pytest.approx(1.21, abs=0.05)
    assert report["objectives"]["tpot_mean_s"] == pytest.approx(0.04)
    rates = {each["topology"]: each["max_rate"] for each in report["ranking"]}
    assert rates.keys() == {"aggregated", "aggregated-encoder-data", "2e+1pd", "1p+1d"}
    assert list(rates.values()) == sorted(rates.values(), reverse=True)
    assert all(0 < rate < 5 for rate in rates.values())
    assert report["try_first"].startswith("Try first, before any split: --mm-encoder-tp-mode data")
    assert "Assumed, measured by nobody, to save 25%" in report["try_first"]
    assert report["recommended"] in rates.keys() - {"aggregated-encoder-data"}
    assert [each["size"] for each in report["sizes"]] == ["1280x720", "1920x1080", "2560x1440", "3840x2160"]
    assert "fitted to one published table" in report["caption"]
    for config in folder.glob("*/router.yaml"):
        assert load_file(config).missing_plugins == ()
    for listed in folder.glob("*/endpoints.yaml"):
        assert read_endpoints_file(listed)[1] == []
    assert (folder / "1-aggregated" / "servers.sh").is_file()
    assert "<svg" in plot.read_text()


def test_a_log_is_measured_and_what_was_measured_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(num_requests=8, min_duration_s=1.0)
    monkeypatch.setattr(command, "Question", partial(Question, seeds=(0,), trial=trial, has_crossover=False))
    path = tmp_path / "log.jsonl"
    parts = [{"image": "a", "width": 3840, "height": 2160}, {"text": "q", "tokens": 100}]
    lines = [{"at": at, "output_tokens": 30, "messages": [{"role": "user", "parts": parts}]} for at in (0, 2, 4)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run(path, "--gpus", "2", "--jobs", "1", "--ttft", "1.5", "--format", "table")
    assert result.exit_code == 0, result.output
    for words in (
        "Measured: 3 requests in 4 s; so few say little.",
        "Rates: 0.5 req/s on the mean, 0.5 in the busiest minute.",
        "sizes 3840x2160 100%",
        "Reuse: 67% of the pictures were sent before.",
        "90th percentile of TTFT below 1.50 s (as asked)",
        "Stay aggregated: 1 server",
        "--mm-encoder-tp-mode data",
        "a model, not a measurement",
    ):
        assert words in result.stdout
    assert "…" not in result.stdout, "nothing is cut in 80 columns"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--profile", "h200-tp2-qwen3-vl-32"), "did you mean 'h200-tp2-qwen3-vl-32b'"),
        (("--profile", "h200-tp1-qwen3-vl-32b-encoder"), "no plain server is named"),
        (("--gpus", "1"), "--gpus: got 1, one server of h200-tp2-qwen3-vl-32b has 2"),
        (("--ttft", "0"), "--ttft: got 0, expected more than nothing"),
        (("--tpot", "nan"), "--tpot: got nan"),
        (("--plot", "advice.doc"), "--plot: got 'advice.doc'"),
        (("--out", str(EXAMPLES)), "is not empty; name another folder, or add --force"),
        (("--output-tokens", "5"), "--output-tokens: is for logs"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_simulated(
    workload: Path, arguments: tuple[str, ...], problem: str
) -> None:
    result = run(workload, *arguments)
    assert result.exit_code == 2
    assert problem in " ".join(result.output.split())


def test_the_same_bytes_each_time_however_many_processes(workload: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(num_requests=4, min_duration_s=1.0)
    monkeypatch.setattr(command, "Question", partial(Question, seeds=(0, 1), trial=trial, has_crossover=False))
    asked = (workload, "--gpus", "3", "--format", "json", "--jobs")
    alone = run(*asked, "1")
    assert alone.exit_code == 0, alone.output
    assert run(*asked, "2").stdout == alone.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pictures", "size", "prompt", "output", "kind"),
    [
        (3, "1280x720", 300, 300, "aggregated"),
        (10, "1920x1080", 60, 150, "aggregated"),
        (2, "3840x2160", 60, 150, "E/PD"),
    ],
)
def test_advice_for_a_32b_model(
    tmp_path: Path, pictures: int, size: str, prompt: int, output: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aggregated at 720p and 1080p, E/PD at 4K; E/P/D keeps TPOT flat; the flag is named first."""
    monkeypatch.setattr(command, "Question", partial(Question, has_crossover=False))
    path = tmp_path / "workload.yaml"
    path.write_text(f"{{pictures: {pictures}, size: {size}, prompt_tokens: {prompt}, output_tokens: {output}}}")
    result = run(path, "--format", "json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    results = {each["topology"]: each for each in report["ranking"]}
    assert results[report["recommended"]]["kind"] == kind
    assert report["try_first"].startswith("Try first, before any split: --mm-encoder-tp-mode data")
    apart = [each for each in report["ranking"] if each["kind"] == "E/P/D"]
    assert apart
    for each in apart:
        tpots = [tried["tpot_mean_s"] for edge in each["edges"] for tried in edge["tried"]]
        assert max(tpot for tpot in tpots if tpot is not None) < 0.022
    if size == "3840x2160":
        assert report["recommended"] == "6e+5pd"
    else:
        assert "Stay aggregated" in report["verdict"]
