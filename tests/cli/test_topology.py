"""``tessera simulate topology``: a table for people, JSON for programs, plain words for what is wrong."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from tessera.cli import topology as command
from tessera.cli.main import app
from tessera.sim.max_rate import Cell
from tessera.sim.topology import TOPOLOGIES, WORKLOADS, Trial

SHORT = Trial(min_duration_s=5.0, max_duration_s=10.0, num_requests=20, seeds=(0,))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", "topology", *arguments], env={"COLUMNS": "80"})


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of a few requests."""
    monkeypatch.setattr(command, "Trial", lambda **given: SHORT)


@pytest.mark.usefixtures("_short")
def test_json_has_every_cell_and_what_was_assumed() -> None:
    result = run("20x1080p", "2e+7pd", "aggregated", "--jobs", "1", "--format", "json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [(cell["workload"], cell["topology"]) for cell in report["cells"]] == [
        ("20x1080p", "aggregated"),
        ("20x1080p", "2e+7pd"),
    ]
    assert (report["num_gpus"], report["profile"]) == (16, "h200-tp2-qwen3-vl-32b")
    assert report["assumed"]["encoder_data_parallel_time_fraction"] == 0.75
    for cell in report["cells"]:
        assert 0 < cell["max_rate"] <= cell["ttft_max_rate"] < 60
        assert cell["tried"] == sorted(cell["tried"], key=lambda each: each["rate"])


@pytest.mark.usefixtures("_short")
def test_a_table_says_that_it_is_a_model_and_what_to_try_first() -> None:
    result = run("20x1080p", "aggregated", "4e+4p+2d", "--jobs", "1")
    assert result.exit_code == 0, result.output
    for word in ("20x1080p", "aggregated", "4e+4p+2d", "a model, not a measurement", "assumed, measured by nobody"):
        assert word in result.stdout
    assert "--mm-encoder-tp-mode data" in result.stdout


def test_the_table_of_everything_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(pairs: list[tuple[str, str]], trial: Trial, num_jobs: int) -> Iterator[Cell]:
        for workload, name in pairs:
            yield Cell(
                workload=workload, topology=name, idle_ttft_s=2.545, ttft_max_rate=54.75, max_rate=0.938, tried=()
            )

    monkeypatch.setattr(command, "find_cells", at_once)
    lines = run().stdout.splitlines()
    assert "4e+4p+2d-bare-decode    54.8/0.938 54.8/0.938 54.8/0.938 54.8/0.938 54.8/0.938" in lines, "nothing is cut"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("2x8k",), "no workload and no topology is named '2x8k'"),
        (("--policy", "random"), "--policy: is not for topologies"),
        (("--rates", "5"), "--rates: is not for topologies"),
        (("--seeds", "0"), "--seeds: got '0', expected a number of seeds"),
    ],
)
def test_what_does_not_belong_here_is_said(arguments: tuple[str, ...], problem: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_the_list_names_topologies_and_workloads() -> None:
    listed = CliRunner().invoke(app, ["simulate", "--list"], env={"COLUMNS": "200"}).stdout
    assert all(name in listed for name in (*TOPOLOGIES, *WORKLOADS))
