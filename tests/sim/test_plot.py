"""A picture of a report: the same bytes, every figure, and plain words where it cannot be drawn."""

import re
import xml.etree.ElementTree as ET

import pytest

from tessera.core.errors import ConfigError
from tessera.sim.plot import MAX_POLICIES, check, draw
from tessera.sim.report import report_of
from tessera.sim.run import perform, runs_of

pytest.importorskip("matplotlib")


@pytest.fixture
def report(small):
    def make(rates="[2, 4]", published="", policies="[random, round-robin]"):
        scenario = small(policies=policies, mode="points", rates=rates, extra=published)
        rows = [row for _, found in perform(runs_of(scenario, [0]), 1) for row in found]
        return report_of(scenario, [0], rows)

    return make


def words(path):
    """The texts of an SVG: matplotlib draws glyphs, and keeps each text in a comment."""
    return re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8"))


def test_a_line_for_each_policy_in_a_panel_for_each_figure(report, tmp_path):
    draw(report(), tmp_path / "a.svg")
    shown = words(tmp_path / "a.svg")
    for word in ("output tokens/s", "failed requests", "TTFT p50, s", "TTFT p90, s", "mean TPOT, ms", "random"):
        assert word in shown
    assert any("a model, not a measurement" in word for word in shown)
    assert "published (hollow)" not in shown
    ET.parse(tmp_path / "a.svg")


def test_one_rate_has_a_bar_for_each_policy_and_what_was_published(report, tmp_path):
    cells = "published: [{policy: random, figure: ttft_p50_s, rates: [4], values: [0.5], within: 0.1}]"
    draw(report("[4]", cells), tmp_path / "a.svg")
    shown = words(tmp_path / "a.svg")
    assert {"round-robin", "published (hollow)"} <= set(shown)
    assert "requests/s asked for" not in shown


def test_predictions_have_a_row_where_a_policy_makes_them(report, tmp_path):
    title = "predicted / simulated TTFT, median"
    draw(report(), tmp_path / "without.svg")
    assert title not in words(tmp_path / "without.svg")
    draw(report(policies="[random, tessera-multimodal]"), tmp_path / "with.svg")
    assert {title, "TTFT predicted within a factor of 1.5, %"} <= set(words(tmp_path / "with.svg"))


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_report_gives_the_same_bytes(report, tmp_path, suffix):
    drawn = report()
    for name in ("a", "b"):
        draw(drawn, tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def test_figures_that_are_nothing_and_figures_that_are_0_are_drawn(report, tmp_path):
    drawn = report()
    for row in drawn["means"]:
        row.update(ttft_p50_s=None, ttft_p90_s=None, encoder_hit_fraction=None, output_tokens_per_s=0.0)
    draw(drawn, tmp_path / "a.svg")
    assert words(tmp_path / "a.svg").count("none") == 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.jpg", r"got 'a.jpg', expected a name that ends in .png, .svg, .pdf"),
        ("missing/a.png", "No such file or directory"),
        ("folder.png", "it is a folder"),
    ],
)
def test_where_nothing_can_be_drawn_is_said_before_the_runs(tmp_path, name, said):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ConfigError, match=said):
        check(tmp_path / name)
    assert [each.name for each in tmp_path.iterdir()] == ["folder.png"], "trying leaves nothing behind"


def test_more_policies_than_can_be_told_apart(tmp_path):
    check(tmp_path / "a.png", MAX_POLICIES)
    with pytest.raises(ConfigError, match="at most 63 can be told apart"):
        check(tmp_path / "a.png", MAX_POLICIES + 1)


def test_without_matplotlib_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs matplotlib, which is not installed: pip install"):
        check(tmp_path / "a.png")
