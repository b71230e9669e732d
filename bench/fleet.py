"""Where is the shipped policy better than llm-d's, and where is it worse? Every scenario, in the model of the fleet.

    python bench/fleet.py [--quick] [--write bench/results/fleet.json]
    python bench/fleet.py --read bench/results/fleet.json [--table] [--draw docs/fleet.svg]

``tessera-multimodal`` against ``llm-d-multimodal`` on the same seeds, which nobody looked at
while the policy was chosen; and at one point of each scenario all other shipped policies,
and ours behind a gateway that shows it the answers' bodies, with two of those seeds. A
model, not a measurement: its engine is fitted to one published table.
"""

import argparse
import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from report import arguments, as_text, headed, keep
from tessera.sim.policies import named, shipped_policies
from tessera.sim.report import report_of
from tessera.sim.run import perform, runs_of
from tessera.sim.scenario import Scenario, load_scenario

PEER, OURS, BODY = "llm-d-multimodal", "tessera-multimodal", "tessera-multimodal (body)"
SEEDS = range(50, 55)
"""Of the comparison with the peer."""
NUM_OTHER_SEEDS = 2
"""Of the others: collapsed fleets are slow to simulate."""
KEPT = ("output_tokens_per_s", "good_requests_per_s", "ttft_p50_s", "ttft_p90_s", "tpot_mean_s", "num_failed")
AIM, BOUND = 1.05, 1.10
"""How much worse ours may be below saturation: what is aimed at, and at most."""


@dataclass(frozen=True)
class Points:
    """A scenario's rates, and the one at which everything is compared."""

    scenario: str
    rates: tuple[float, ...]
    shown: float


GRID = (
    Points("never-repeated", (30, 40, 45, 50, 55, 60), 60),
    Points("never-repeated-sustained", (45, 60), 60),
    Points("zipf-groups", (20, 30, 40), 40),
    Points("photos-first", (40, 60), 60),
    Points("question-first", (20, 28, 36, 44), 44),
    Points("three-photos", (8, 10, 12, 16), 16),
    Points("documents", (2, 3), 3),
    Points("mixed", (5, 8, 11), 11),
    Points("heavy-tail", (8, 12, 16), 16),
    Points("heavy-tail-links", (8, 12, 16), 16),
)


def compare(points: Points, seeds: range) -> dict[str, Any]:
    """The peer and ours at every rate of a scenario, seed by seed."""
    scenario = load_scenario(points.scenario).with_policies([PEER, OURS]).with_rates(points.rates)
    report = _report(scenario, seeds)
    return {
        "rates": _rows(report["means"], ("rate", "policy")),
        "runs": _rows(report["runs"], ("rate", "policy", "seed")),
    }


def compare_all(points: Points, seeds: range) -> list[dict[str, Any]]:
    """All other policies at the one rate."""
    others = [name for name in shipped_policies() if name not in (PEER, OURS)]
    scenario = load_scenario(points.scenario).with_rates((points.shown,)).with_policies(others)
    body = replace(named(OURS), name=BODY, first_token="body")
    scenario = replace(scenario, policies=(*scenario.policies, body))
    return _rows(_report(scenario, seeds)["means"], ("rate", "policy"))


def _report(scenario: Scenario, seeds: range) -> dict[str, Any]:
    runs = runs_of(scenario, seeds)
    rows = []
    for number, (_, found) in enumerate(perform(runs, os.cpu_count() or 1), 1):
        rows += found
        print(f"\r{scenario.name}: {number} of {len(runs)} runs ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return report_of(scenario, seeds, rows)


def _rows(found: list[dict[str, Any]], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{key: row[key] for key in (*keys, *KEPT)} for row in found]


def verdicts(by_scenario: dict[str, Any]) -> list[dict[str, Any]]:
    """Ours over the peer at each point: TTFT p90 and goodput, and whether the point is below saturation.

    A rate is below saturation where both have a p90 of no more than twice theirs at the
    scenario's lowest rate and 0.2 s, there and at all lower rates.
    """
    found = []
    for name, compared in by_scenario.items():
        rows = {(row["rate"], row["policy"]): row for row in compared["rates"]}
        rates = sorted({rate for rate, _ in rows})
        is_below = True
        for rate in rates:
            peer, ours = rows[rate, PEER], rows[rate, OURS]
            limits = [2 * rows[rates[0], each]["ttft_p90_s"] + 0.2 for each in (PEER, OURS)]
            is_below &= peer["ttft_p90_s"] <= limits[0] and ours["ttft_p90_s"] <= limits[1]
            p90 = ours["ttft_p90_s"] / peer["ttft_p90_s"]
            goodput = _ratio(ours["good_requests_per_s"], peer["good_requests_per_s"])
            tokens = ours["output_tokens_per_s"] / peer["output_tokens_per_s"]
            found.append(
                {
                    "scenario": name,
                    "rate": rate,
                    "is_below_saturation": is_below,
                    "ttft_p90_ratio": round(p90, 3),
                    "goodput_ratio": goodput,
                    "output_tokens_ratio": round(tokens, 3),
                    "is_worse": is_below and (p90 > AIM or (goodput is not None and goodput < 1 / AIM)),
                    "is_beyond_bound": is_below and (p90 > BOUND or (goodput is not None and goodput < 1 / BOUND)),
                }
            )
    return found


def _ratio(ours: float, peer: float) -> float | None:
    """Nothing where neither serves one request in ten seconds well."""
    return round(ours / peer, 3) if min(ours, peer) >= 0.1 else None


def table(result: dict[str, Any]) -> str:
    """The points of the README, in Markdown."""
    lines = [
        "| scenario @ requests/s | TTFT p90, s: llm-d | Tessera | better by | output tokens/s, Tessera over llm-d |",
        "|---|---|---|---|---|",
    ]
    for points in GRID:
        compared = result["scenarios"].get(points.scenario)
        if compared is None:
            continue
        rows = {row["policy"]: row for row in compared["rates"] if row["rate"] == points.shown}
        peer, ours = rows[PEER], rows[OURS]
        p90s = peer["ttft_p90_s"], ours["ttft_p90_s"]
        tokens = ours["output_tokens_per_s"] / peer["output_tokens_per_s"] - 1
        lines.append(
            f"| {points.scenario} @ {points.shown:g} | {p90s[0]:.2f} | {p90s[1]:.2f} | {_times(p90s[0] / p90s[1])} "
            f"| {tokens:+.1%} |"
        )
    return "\n".join(lines)


def _times(ratio: float) -> str:
    """As many digits as say something."""
    return f"{ratio:.{2 if ratio < 2 else 1 if ratio < 10 else 0}f}x"


def draw(result: dict[str, Any], path: Path) -> None:
    """TTFT p90 of three policies at one point of each scenario."""
    from tessera.sim.plot import COLOURS, MARKERS, canvas, save

    shown = {PEER: "llm-d multimodal", "bounded-load-consistent-hash": "bounded-load hashing", OURS: "Tessera"}
    points = [each for each in GRID if each.scenario in result["scenarios"]]
    with canvas() as figure:
        figure.set_size_inches(9, 0.42 * len(points) + 1.6)
        axes = figure.subplots()
        for index, (policy, label) in enumerate(shown.items()):
            values = [_p90(result, each, policy) for each in points]
            axes.plot(
                values, range(len(points)), linestyle="none", marker=MARKERS[index], color=COLOURS[index], label=label
            )
        axes.set_yticks(range(len(points)), [f"{each.scenario} @ {each.shown:g} req/s" for each in points])
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xticks([0.2, 0.5, 1, 2, 5, 10, 20, 50], ["0.2", "0.5", "1", "2", "5", "10", "20", "50"])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("TTFT p90, s; 8 servers of 2 H200 with Qwen3-VL-32B: a model, not a measurement")
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.13), ncols=len(shown))
        save(figure, path, "TTFT p90 of three policies in ten scenarios; simulated")


def _p90(result: dict[str, Any], points: Points, policy: str) -> float:
    compared = result["scenarios"][points.scenario]
    rows = [*compared["rates"], *compared["others"]]
    return next(row["ttft_p90_s"] for row in rows if row["policy"] == policy and row["rate"] == points.shown)


def measure(grid: tuple[Points, ...], num_seeds: int) -> dict[str, Any]:
    """Everything, scenario by scenario."""
    by_scenario = {}
    for points in grid:
        seeds = range(SEEDS.start, SEEDS.start + num_seeds)
        compared = compare(points, seeds)
        others = compare_all(points, range(SEEDS.start, SEEDS.start + min(num_seeds, NUM_OTHER_SEEDS)))
        by_scenario[points.scenario] = {"shown": points.shown, **compared, "others": others}
    found = verdicts(by_scenario)
    return {
        **headed("ours over llm-d's on paired seeds; target below saturation: no more than 5 % worse, 10 % at most"),
        "seeds": {"comparison": num_seeds, "others": min(num_seeds, NUM_OTHER_SEEDS), "from": SEEDS.start},
        "worst_ttft_p90_ratio": max(
            (each["ttft_p90_ratio"] for each in found if each["is_below_saturation"]), default=None
        ),
        "worse_than_aim": [each for each in found if each["is_worse"]],
        "meets_bound": not any(each["is_beyond_bound"] for each in found),
        "ratios": found,
        "scenarios": by_scenario,
    }


def main() -> None:
    parser: argparse.ArgumentParser = arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, the lowest rate of three short scenarios")
    parser.add_argument("--read", type=Path, help="take a result from there instead of simulating")
    parser.add_argument("--table", action="store_true", help="print the README's table")
    parser.add_argument("--draw", type=Path, help="draw the README's picture there")
    args = parser.parse_args()
    if args.read:
        result = json.loads(args.read.read_text())
    else:
        quick = tuple(Points(each.scenario, each.rates[:1], each.rates[0]) for each in GRID[-4:-1])
        result = measure(quick if args.quick else GRID, 1 if args.quick else len(SEEDS))
        keep(result, args.write)
    print(table(result) if args.table else as_text({key: value for key, value in result.items() if key != "scenarios"}))
    if args.draw:
        draw(result, args.draw)


if __name__ == "__main__":
    main()
