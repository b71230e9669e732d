"""``tessera simulate``: a table for people, JSON for programs, plain words for what is wrong."""

import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from tessera.cli import simulate
from tessera.cli.main import app
from tessera.cli.simulate import _COLUMNS, _numbers, _print_report

SCENARIO = """
description: a small fleet
endpoints: 2
workload: {type: shared-prefix, num_groups: 4, num_prompts_per_group: 2, question_tokens: 20, output_tokens: 5}
load: {mode: points, rates: [2, 4], duration_s: 5}
policies: [random, round-robin]
seeds: 2
published:
  - {policy: random, figure: output_tokens_per_s, rates: [2], values: [1000], within: 0.1}
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)], env={"COLUMNS": "80"})


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO)
    return path


def test_json_has_every_run_and_the_means(scenario):
    result = run(scenario, "--jobs", "1", "--format", "json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [(each["policy"], each["rate"]) for each in report["means"]] == [
        ("random", 2.0),
        ("random", 4.0),
        ("round-robin", 2.0),
        ("round-robin", 4.0),
    ]
    assert len(report["runs"]) == 8
    assert report["means"][0]["num_requests"] == 10
    assert report["published"][0]["is_within"] is False


def test_a_table_with_the_figures_and_the_published_cells(scenario):
    result = run(scenario, "--jobs", "1", "--seeds", "1", "--policy", "random", "--policy", "tessera-multimodal")
    assert result.exit_code == 0, result.output
    for word in ("small", "seeds 0", "tok/s", "p50 s", "random", "tessera-multimodal", "a model"):
        assert word in result.stdout
    assert "…" not in result.stdout, "in a terminal of 80 columns no figure is cut"
    assert "0 of 1 cells within their bounds" in result.stdout
    assert "beyond: random output_tokens_per_s at 2 req/s: -9" in result.stdout


def test_by_the_package_s_name_processes_do_not_begin_anew(scenario):
    command = [sys.executable, "-m", "tessera", "simulate", str(scenario), "--jobs", "2", "--format", "json"]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    assert len(json.loads(told)["runs"]) == 8


def test_neither_hashes_of_names_nor_processes_change_a_byte(tmp_path):
    """Pictures come and go in an encoder cache that is too small, on servers that are asked too much."""
    path = tmp_path / "busy.yaml"
    path.write_text(
        "{description: d, endpoints: 2, workload: {type: photos, num_photos: 4, catalogue: 40}, "
        "load: {mode: points, rates: [6, 8], duration_s: 10}, seeds: 1, "
        "policies: [tessera-multimodal, llm-d-multimodal]}"
    )
    command = [sys.executable, "-m", "tessera", "simulate", str(path), "--format", "json"]
    told = [
        subprocess.run(
            [*command, "--jobs", str(jobs)],
            check=True,
            capture_output=True,
            timeout=300,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
        ).stdout
        for jobs, hash_seed in ((1, "1"), (1, "2"), (2, "3"))
    ]
    assert told[0] == told[1] == told[2]


def test_80_columns_cut_no_figure_short():
    mean = dict.fromkeys((figure for figure, _ in _COLUMNS.values()), 0.5)
    mean |= {"policy": "bounded-load-consistent-hash", "rate": 60.0, "num_failed": 1200.0, "tpot_mean_s": 0.1015}
    mean |= {"output_tokens_per_s": 12345.0, "ttft_p50_s": 123.456, "ttft_p90_s": 234.567, "good_requests_per_s": 43.7}
    report = {"scenario": "small", "num_endpoints": 8, "profile": "h200-tp2-qwen3-vl-32b", "is_fitted": True}
    console = Console(width=80, record=True, file=io.StringIO())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(simulate, "out", console)
        _print_report(report | {"seeds": [0], "means": [mean], "published": []})
    told = console.export_text()
    assert max(map(len, told.splitlines())) <= 80
    for figure in ("60", "12,345", "43.70", "1200.0", "123.456", "234.567", "101.5"):
        assert figure in told
    assert "…" not in told
    names = "".join(line.partition(" ")[0] for line in told.splitlines() if line[:1] not in ("", " ", "─"))
    assert "bounded-load-consistent-hash" in names, "a long name goes on in the next line"


def test_policies_rates_and_seeds_may_be_chosen(scenario, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(Path("examples/quickstart.yaml").read_text())
    arguments = ("--policy", mine, "--policy", "random", "--rates", "3", "--seeds", "4:5", "--format", "json")
    report = json.loads(run(scenario, *arguments).stdout)
    assert [each["name"] for each in report["policies"]] == ["mine", "random"]
    assert report["seeds"] == [4, 5]
    assert {each["rate"] for each in report["runs"]} == {3.0}
    # Random is the scenario's own, mine reads first tokens as the generated Envoy shows them.
    assert [each["first_token"] for each in report["policies"]] == ["counter", "counter"]


def test_the_list_names_scenarios_and_policies():
    result = run("--list")
    assert result.exit_code == 0
    for name in ("article", "never-repeated", "kubernetes-service", "llm-d-multimodal"):
        assert name in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a scenario"),
        (("articl",), "did you mean 'article'?"),
        (("article", "--policy", "nobody"), "no policy"),
        (("article", "--rates", "5:80:0"), "expected numbers as 5 or 5,10 or 5:80:5"),
        (("article", "--rates", "many"), "expected numbers"),
        (("article", "--rates", "0"), "got 0, expected requests/s above 0, at most 10,000"),
        (("article", "--rates=-1"), "got -1, expected requests/s above 0"),
        (("article", "--rates", "20000"), "got 20000, expected requests/s above 0, at most 10,000"),
        (("article", "--rates", "nan"), "expected numbers"),
        (("article", "--rates", "1e999"), "expected numbers"),
        (("article", "--rates", ""), "expected numbers"),
        (("article", "--rates", "5,5"), "5 stands twice"),
        (("article", "--seeds", "1,nan"), "expected a number of seeds"),
        (("article", "--seeds", "1,inf"), "expected a number of seeds"),
        (("article", "--seeds", "1,1"), "one of them twice"),
        (("article", "--policy", "random", "--policy", "random"), "'random' stands twice"),
        (("article", "replay", "--plot", "."), "expected a file, such as figures.png"),
        (("topology", "2x4k", "--plot", "x.png"), "--plot: is not for topologies"),
        (("article", "--seeds", "0"), "expected a number of seeds"),
        (("article", "--seeds", "5:2"), "expected a number of seeds or a range as 10:14"),
        (("article", "--seeds", "1.5"), "expected a number of seeds"),
        (("article", "--seeds", "-3:1"), "expected a number of seeds"),
    ],
)
def test_what_cannot_be_run_is_said_plainly(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("40", (40,)),
        ("5,20", (5, 20)),
        ("5:20:5", (5, 10, 15, 20)),
        ("1:3", (1, 2, 3)),
        ("0.1:0.3:0.1", (0.1, 0.2, 0.3)),
    ],
)
def test_ranges_have_their_end_in_them(text, numbers):
    assert _numbers(text, "--rates") == pytest.approx(numbers)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_end_with_a_command_that_is_killed(tmp_path):
    path = tmp_path / "long.yaml"
    path.write_text(SCENARIO.replace("duration_s: 5", "duration_s: 50000"))
    command = [sys.executable, "-m", "tessera.cli.main", "simulate", str(path), "--jobs", "2"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 60
            while len(workers := workers_of(process.pid)) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            handles = [os.pidfd_open(worker) for worker in workers]
        finally:
            process.kill()
    assert len(handles) == 2
    for handle in handles:
        # Readable once the process has ended.
        assert select.select([handle], [], [], 30)[0] == [handle]
        os.close(handle)


def test_a_command_that_is_interrupted_ends_at_once_and_says_nothing_of_its_workers(tmp_path):
    path = tmp_path / "long.yaml"
    path.write_text(SCENARIO.replace("duration_s: 5", "duration_s: 50000"))
    command = [sys.executable, "-m", "tessera", "simulate", str(path), "--jobs", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            deadline = time.monotonic() + 60
            while not all(map(ignores_interrupts, started := workers_of(process.pid))) or len(started) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGINT)
            _, told = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in told


def ignores_interrupts(pid: int) -> bool:
    """Whether a worker is set up."""
    (line,) = re.findall(r"SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(line, 16) >> (signal.SIGINT - 1) & 1)


def workers_of(pid: int) -> list[int]:
    """The processes in which a command runs its runs."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in children if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]


def test_a_picture_of_each_scenario(scenario, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(SCENARIO)
    result = run(scenario, "--jobs", "1", "--seeds", "1", "--plot", tmp_path / "one.png")
    assert result.exit_code == 0, result.output
    result = run(scenario, other, "--jobs", "1", "--seeds", "1", "--plot", tmp_path / "two.svg")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.glob("*.[ps][nv]g")) == ["one.png", "two-other.svg", "two-small.svg"]


def test_what_cannot_be_drawn_is_told_before_anything_runs(scenario, tmp_path):
    result = run(scenario, "--plot", tmp_path / "one.gif")
    assert result.exit_code == 2
    assert "--plot: got 'one.gif', expected a name that ends in" in result.output
    result = run(scenario, scenario, "--plot", tmp_path / "one.png")
    assert result.exit_code == 2
    assert "one name" in result.output
