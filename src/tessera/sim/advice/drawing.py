"""How is an answer drawn? Rates of the topologies, what load does to TPOT, and where the answer turns."""

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tessera.sim.advice.advice import Advice
from tessera.sim.advice.candidates import Kind
from tessera.sim.advice.ranking import Result
from tessera.sim.plot import COLOURS, canvas, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOUR_OF: Final = dict(zip(Kind, COLOURS, strict=False))
_ASSUMED: Final = "#9fbfd8"
_GREY: Final = "#707070"


def draw_advice(advice: Advice, path: Path) -> None:
    """Draw it; with the same matplotlib the same answer gives the same bytes.

    Raises:
        OSError: the file cannot be written.
    """
    with canvas() as figure:
        panels = [_draw_ranking, _draw_tpot, *([_draw_sizes] if advice.points else [])]
        figure.set_size_inches(5.2 * len(panels), 4.6)
        grid = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, draw in zip(grid, panels, strict=True):
            draw(axes, advice)
        question, kept = advice.question, advice.setting.objectives
        how = "fitted" if question.base.is_fitted else "derived, measured by nobody"
        figure.suptitle(
            f"{question.asked.name}: {advice.name} on {question.num_gpus} GPUs, {question.base.name} ({how}); "
            f"p90 TTFT < {kept.ttft_s:.2f} s, mean TPOT < {kept.tpot_s * 1000:g} ms; a model, not a measurement",
            fontsize=11,
        )
        save(figure, path)


def _draw_ranking(axes: "Axes", advice: Advice) -> None:
    results = advice.ranking.results
    for place, result in enumerate(results):
        least, most = result.spread
        bar: dict[str, Any] = {"hatch": "//", "edgecolor": "white"} if result.is_assumed else {}
        axes.barh(-place, result.rate, height=0.68, color=_colour(result), **bar, zorder=2)
        axes.plot([least, most], [-place, -place], color="#202020", linewidth=1.2, zorder=3)
        is_best = result is advice.ranking.recommended
        axes.annotate(
            f"{result.rate:.3g}",
            (most, -place),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            fontweight="bold" if is_best else "normal",
        )
    labels = [f"{each.name}{' (assumed)' if each.is_assumed else ''}" for each in results]
    axes.set_yticks([-place for place in range(len(results))], labels)
    for label, result in zip(axes.get_yticklabels(), results, strict=True):
        label.set_fontweight("bold" if result is advice.ranking.recommended else "normal")
    axes.axvline(advice.ranking.aggregated.rate, color=_GREY, linestyle=":", linewidth=1.0, zorder=1)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, max((each.spread[1] for each in results), default=1.0) * 1.15 or 1.0)
    axes.set_xlabel("requests/s; the line is from the least to the most of the seeds")
    axes.set_title("how far each topology goes", fontsize=10)


def _draw_tpot(axes: "Axes", advice: Advice) -> None:
    """Every rate that was tried and came to its end, of the best of each kind."""
    limit = advice.setting.objectives.tpot_s * 1000
    for kind in Kind:
        result = advice.ranking.best_of(kind)
        if result is None:
            continue
        tried = [each for edge in result.edges for each in edge.tried if each.tpot_mean_s is not None]
        if kind is Kind.AGGREGATED and advice.crowded is not None and advice.crowded.tpot_mean_s is not None:
            tried.append(advice.crowded)
        rows = sorted((each.rate, (each.tpot_mean_s or 0.0) * 1000) for each in tried)
        if not rows:
            continue
        rates, tpots = zip(*rows, strict=True)
        axes.plot(rates, tpots, color=_COLOUR_OF[kind], marker="o", linestyle="none", alpha=0.75, label=result.name)
    axes.axhline(limit, color=_GREY, linestyle=":", linewidth=1.0)
    axes.set_ylim(0, limit * 1.7)
    axes.set_xlim(left=0)
    axes.set_xlabel("requests/s, those near each edge; a point for each seed")
    axes.set_ylabel("mean TPOT, ms")
    axes.set_title("what load does to TPOT", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _draw_sizes(axes: "Axes", advice: Advice) -> None:
    """Rates in parts of the plain aggregated one's, so that sizes can be compared."""
    pixels = [point.variant.num_pixels / 1e6 for point in advice.points]
    split = [_share(point.split, point.aggregated) for point in advice.points]
    parallel = [_share(point.parallel, point.aggregated) for point in advice.points]
    axes.axhline(1.0, color=_COLOUR_OF[Kind.AGGREGATED], linewidth=1.4, label="aggregated")
    axes.plot(pixels, split, color=_COLOUR_OF[Kind.E_PD], marker="s", label="encoders of their own (best split)")
    if any(point.parallel is not None for point in advice.points):
        label = "aggregated, --mm-encoder-tp-mode data (assumed)"
        axes.plot(pixels, parallel, color=_COLOUR_OF[Kind.AGGREGATED], marker="o", linestyle="--", label=label)
    for point, at, share in zip(advice.points, pixels, split, strict=True):
        if point.split is not None:
            axes.annotate(
                point.split.name, (at, share), (0, -13), textcoords="offset points", ha="center", fontsize=7.5
            )
    if advice.crossover is not None:
        at = advice.crossover.num_pixels / 1e6
        axes.axvline(at, color=_GREY, linestyle=":", linewidth=1.0)
        place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axes.annotate(f"{at:.1f} MP", (at, 0.02), (3, 0), fontsize=8, **place)
    axes.set_xscale("log")
    axes.set_xticks(pixels, [point.variant.label for point in advice.points], fontsize=8)
    axes.minorticks_off()
    shown = [each for each in (*split, *parallel, 1.0) if not isnan(each)]
    axes.set_ylim(min(shown) - 0.12, max(shown) + 0.1)
    axes.margins(x=0.12)
    axes.set_xlabel("size of each picture")
    axes.set_ylabel("max requests/s in parts of aggregated")
    axes.set_title("where the answer turns", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _share(result: Result | None, plain: Result) -> float:
    """In parts of the plain rate; no number where there is none, which matplotlib leaves out."""
    return float("nan") if result is None or not plain.rate else result.rate / plain.rate


def _colour(result: Result) -> str:
    return _ASSUMED if result.is_assumed else _COLOUR_OF[result.candidate.kind]
