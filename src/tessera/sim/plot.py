"""How is a report drawn? A panel for each figure against the request rate, a line for each policy.

Matplotlib comes with the extra ``plot`` and is imported only when something is drawn.
"""

import importlib.util
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tessera.core.errors import ConfigError, Problem
from tessera.sim.figures import CLOSE_FACTOR, GOOD_TPOT_S, GOOD_TTFT_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

SUFFIXES: Final = (".png", ".svg", ".pdf")
"""What a picture may be; its file's name says which."""
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
"""Told apart by colour-blind eyes too: Okabe and Ito (https://jfly.uni-koeln.de/color/), without yellow, which
is hard to see on white."""
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "p", "h")
"""Their number has no divisor in common with that of the colours: 63 policies look different."""
MAX_POLICIES: Final = len(COLOURS) * len(MARKERS)
"""Policies in one picture."""


@dataclass(frozen=True, slots=True)
class _Panel:
    figure: str
    title: str
    scale: float = 1.0
    """What a figure is multiplied by, to be in the unit of the title."""
    is_log: bool = False
    limit: float | None = None
    """A bound that goodput asks for, or where there is no error, in the unit of the title."""
    most: float | None = None
    """The largest value that there can be."""


_PANELS: Final = (
    _Panel("output_tokens_per_s", "output tokens/s"),
    _Panel("good_requests_per_s", f"good requests/s (TTFT ≤ {GOOD_TTFT_S:g} s, TPOT ≤ {GOOD_TPOT_S * 1000:g} ms)"),
    _Panel("num_failed", "failed requests"),
    _Panel("ttft_p50_s", "TTFT p50, s", is_log=True, limit=GOOD_TTFT_S),
    _Panel("ttft_p90_s", "TTFT p90, s", is_log=True, limit=GOOD_TTFT_S),
    _Panel("tpot_mean_s", "mean TPOT, ms", scale=1000, limit=GOOD_TPOT_S * 1000),
    _Panel("prefix_hit_fraction", "KV cache hits, % of prompt tokens", scale=100, most=100),
    _Panel("encoder_hit_fraction", "encoder cache hits, % of items asked for", scale=100, most=100),
    _Panel("processor_hit_fraction", "processor cache hits, % of items", scale=100, most=100),
)
_PREDICTIONS: Final = (
    _Panel("ttft_prediction_ratio_p50", "predicted / simulated TTFT, median", limit=1.0),
    _Panel(
        "ttft_prediction_close_fraction", f"TTFT predicted within a factor of {CLOSE_FACTOR:g}, %", scale=100, most=100
    ),
    _Panel("ttft_prediction_error_mean_s", "mean of |predicted - simulated TTFT|, ms", scale=1000),
)
"""A row of their own, where a policy predicts."""
_NUM_COLUMNS: Final = 3
_NUM_LEGEND_COLUMNS: Final = 5
_ROOM: Final = 1.12
"""How far an axis reaches beyond its largest value."""


def check(path: Path, num_policies: int = 1) -> None:
    """See to it that a picture can be drawn there, before minutes are spent on what it shows.

    Raises:
        ConfigError: a suffix that is no picture's, a folder in which nothing can be written, more
            than ``MAX_POLICIES``, or no matplotlib.
    """
    problems = []
    if path.suffix.lower() not in SUFFIXES:
        problems.append(f"got {path.name!r}, expected a name that ends in {', '.join(SUFFIXES)}")
    elif reason := _unwritable(path):
        problems.append(f"cannot write {str(path)!r}: {reason}")
    if num_policies > MAX_POLICIES:
        problems.append(f"got {num_policies} policies, at most {MAX_POLICIES} can be told apart; name some by --policy")
    if importlib.util.find_spec("matplotlib") is None:
        problems.append("needs matplotlib, which is not installed: pip install 'tessera-router[plot]'")
    if problems:
        raise ConfigError([Problem("--plot", each) for each in problems])


def _unwritable(path: Path) -> str:
    """Why no file can be written there; empty where one can. It is tried: permissions alone do not tell."""
    if path.is_dir():
        return "it is a folder"
    try:
        if path.exists():
            with path.open("ab"):
                return ""
        with tempfile.TemporaryFile(dir=path.parent):
            return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw what ``report_of`` has made; with the same matplotlib the same report gives the same bytes.

    Lines against the rates, or, where there is one rate only, a bar for each policy, and a
    point where the axis is logarithmic. What was published is a hollow marker.

    Raises:
        OSError: the file cannot be written.
    """
    with canvas() as figure:
        policies = [policy["name"] for policy in report["policies"]]
        panels = _PANELS + _PREDICTIONS * any(_has_predicted(row) for row in report["means"])
        num_rows = len(panels) // _NUM_COLUMNS
        is_one_rate = len({row["rate"] for row in report["means"]}) == 1
        row_height = max(2.6, 0.9 + 0.22 * len(policies)) if is_one_rate else 2.6
        figure.set_size_inches(13, num_rows * row_height + 1.4)
        grid = figure.subplots(num_rows, _NUM_COLUMNS, squeeze=False)
        for index, panel in enumerate(panels):
            axes = grid[index // _NUM_COLUMNS][index % _NUM_COLUMNS]
            cells = [cell for cell in report["published"] if cell["figure"] == panel.figure]
            if is_one_rate:
                _draw_one_rate(axes, panel, report["means"], cells, policies)
                axes.tick_params(labelleft=index % _NUM_COLUMNS == 0)
            else:
                _draw_rates(axes, panel, report["means"], cells, policies)
            axes.set_title(panel.title, fontsize=10)
        if not is_one_rate:
            for axes in grid[-1]:
                axes.set_xlabel("requests/s asked for")
        _add_legend(figure, policies, is_with_lines=not is_one_rate, is_compared=bool(report["published"]))
        figure.suptitle(_title(report), fontsize=12)
        save(figure, path)


def _has_predicted(row: dict[str, Any]) -> bool:
    """Whether a policy predicted at that rate."""
    return row[_PREDICTIONS[0].figure] is not None


@contextmanager
def canvas() -> "Iterator[Figure]":
    """An empty figure in a style that no one's own settings change."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # A fixed salt, so that names inside of an SVG are the same every time.
        matplotlib.rcParams.update({"svg.hashsalt": "tessera", "font.size": 9, "axes.spines.top": False})
        matplotlib.rcParams.update({"axes.spines.right": False, "axes.grid": True, "grid.color": "#e4e4e4"})
        matplotlib.rcParams.update({"axes.axisbelow": True, "lines.linewidth": 1.4, "lines.markersize": 4.5})
        yield Figure(layout="constrained")


def save(figure: "Figure", path: Path, description: str | None = None) -> None:
    """Write a figure without the time or the program that wrote it; an SVG keeps ``description``."""
    kind = path.suffix.lower()
    silent: dict[str, dict[str, str | None]] = {
        ".png": {"Software": None},
        ".svg": {"Date": None, "Creator": None, "Description": description},
        ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    figure.savefig(path, format=kind[1:], dpi=130, metadata=silent[kind])


def _draw_rates(axes: "Axes", panel: _Panel, rows: Sequence[dict[str, Any]], cells: Any, policies: list[str]) -> None:
    rates = sorted({row["rate"] for row in rows})
    for index, policy in enumerate(policies):
        own = sorted((row for row in rows if row["policy"] == policy), key=lambda row: row["rate"])
        values = [_value(row[panel.figure], panel) for row in own]
        axes.plot([row["rate"] for row in own], values, **_look(index), zorder=3)
        seen = [cell for cell in cells if cell["policy"] == policy]
        published = [cell["published"] * panel.scale for cell in seen]
        axes.plot([cell["rate"] for cell in seen], published, **_hollow(index), zorder=2)
    axes.set_xlim(0, rates[-1] * 1.03)
    if panel.figure == "good_requests_per_s":
        axes.plot([0, rates[-1]], [0, rates[-1]], **_BOUND)
        axes.annotate("all", (rates[-1], rates[-1]), fontsize=8, color="#707070", ha="right", va="bottom")
    if panel.is_log and _has_any(panel, rows, cells):
        axes.set_yscale("log")
        _as_log(axes.yaxis)
    else:
        axes.set_ylim(0, _top(panel, rows, cells))
    if panel.limit is not None and axes.get_ylim()[0] < panel.limit < axes.get_ylim()[1]:
        axes.axhline(panel.limit, **_BOUND)
    _say_if_none(axes, panel, rows)


def _draw_one_rate(
    axes: "Axes", panel: _Panel, rows: Sequence[dict[str, Any]], cells: Any, policies: list[str]
) -> None:
    places = {policy: -index for index, policy in enumerate(policies)}
    for row in rows:
        index, value = policies.index(row["policy"]), _value(row[panel.figure], panel)
        if math.isnan(value):
            continue
        if panel.is_log:
            axes.plot([value], [-index], **_look(index), zorder=3)
        else:
            axes.barh(-index, value, height=0.7, color=_look(index)["color"], zorder=2)
        axes.annotate(
            f"{value:.3g}" if value < 1000 else f"{value:,.0f}",
            (value, -index),
            (5, 0),
            textcoords="offset points",
            fontsize=8,
            va="center",
            zorder=4,
        )
    for cell in cells:
        index = policies.index(cell["policy"])
        axes.plot([cell["published"] * panel.scale], [-index], **_hollow(index), zorder=3)
    axes.set_yticks(list(places.values()), list(places))
    axes.set_ylim(-len(policies) + 0.4, 0.6)
    axes.grid(visible=False, axis="y")
    if panel.is_log and _has_any(panel, rows, cells):
        axes.set_xscale("log")
        _as_log(axes.xaxis)
        axes.margins(x=0.25)
    else:
        axes.set_xlim(0, _top(panel, rows, cells) * _ROOM)
    if panel.limit is not None and axes.get_xlim()[0] < panel.limit < axes.get_xlim()[1]:
        axes.axvline(panel.limit, **_BOUND)
    _say_if_none(axes, panel, rows)


_BOUND: Final[dict[str, Any]] = {"color": "#707070", "linestyle": ":", "linewidth": 1.0, "zorder": 1}
"""How bounds are drawn."""


def _look(index: int) -> dict[str, Any]:
    """Colour and marker of the policy at that place."""
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}


def _hollow(index: int) -> dict[str, Any]:
    """The same marker, larger and empty."""
    return _look(index) | {"linestyle": "none", "markerfacecolor": "none", "markersize": 8.5, "markeredgewidth": 1.1}


def _value(value: float | None, panel: _Panel) -> float:
    """In the unit of the panel; no number where there is none, which matplotlib leaves out."""
    return float("nan") if value is None else value * panel.scale


def _has_any(panel: _Panel, rows: Sequence[dict[str, Any]], cells: Any) -> bool:
    """Whether there is a value above 0 to be shown: a logarithmic axis needs one."""
    return bool(cells) or any(row[panel.figure] for row in rows)


def _top(panel: _Panel, rows: Sequence[dict[str, Any]], cells: Any) -> float:
    """Where a linear axis ends."""
    shown = [_value(row[panel.figure], panel) for row in rows] + [cell["published"] * panel.scale for cell in cells]
    largest = max((each for each in shown if not math.isnan(each)), default=0.0) * _ROOM
    return min(largest or 1.0, panel.most or math.inf)


def _as_log(axis: "Axis") -> None:
    """Powers of ten with 2 and 5 between them, written as people write seconds."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _say_if_none(axes: "Axes", panel: _Panel, rows: Sequence[dict[str, Any]]) -> None:
    if all(row[panel.figure] is None for row in rows):
        axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", va="center", color="#707070")


def _add_legend(figure: "Figure", policies: list[str], *, is_with_lines: bool, is_compared: bool) -> None:
    """Which look is whose; names stand at the bars already where there is one rate."""
    from matplotlib.lines import Line2D

    shown = [Line2D([], [], label=name, **_look(index)) for index, name in enumerate(policies)] if is_with_lines else []
    if is_compared:
        hollow: dict[str, Any] = _hollow(0) | {"color": "#404040"}
        shown.append(Line2D([], [], label="published (hollow)", **hollow))
    if shown:
        figure.legend(handles=shown, loc="outside lower center", ncols=_NUM_LEGEND_COLUMNS, frameon=False)


def _title(report: dict[str, Any]) -> str:
    how = "fitted" if report["is_fitted"] else "derived, measured by nobody"
    fleet = f"{report['num_endpoints']} x {report['profile']} ({how})"
    return f"{report['scenario']}: {fleet}, {len(report['seeds'])} seeds; a model, not a measurement"
