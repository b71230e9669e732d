"""What is told of a scenario's runs? Plain data, the same bytes for the same seeds."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from tessera.sim.figures import Figures, mean
from tessera.sim.run import Row
from tessera.sim.scenario import Scenario

DIGITS: Final = 6
"""Significant digits of a figure."""


def report_of(scenario: Scenario, seeds: Sequence[int], rows: Sequence[Row]) -> dict[str, Any]:
    """Each run's figures, their means over seeds, and how far these are from what was published.

    The order is that of the scenario, whatever that of ``rows``.
    """
    spec = scenario.document
    by_place = {(row.policy, row.rate, row.seed): row.figures for row in rows}
    means: dict[tuple[str, float], Figures] = {}
    for policy in scenario.policies:
        for rate in spec.load.rates:
            of_seeds = [by_place[policy.title, rate, seed] for seed in seeds]
            means[policy.title, rate] = mean(of_seeds)
    return {
        "scenario": scenario.name,
        "description": spec.description,
        "profile": scenario.profile.name,
        "is_fitted": scenario.profile.is_fitted,
        "num_endpoints": len(spec.roles),
        "seeds": list(seeds),
        "policies": [{"name": policy.title, "first_token": policy.first_token} for policy in scenario.policies],
        "means": [{"policy": title, "rate": rate} | _rounded(each) for (title, rate), each in means.items()],
        "published": _compared(scenario, means),
        "runs": [
            {"policy": policy.title, "rate": rate, "seed": seed} | _rounded(by_place[policy.title, rate, seed])
            for policy in scenario.policies
            for rate in spec.load.rates
            for seed in seeds
        ],
    }


def _compared(scenario: Scenario, means: dict[tuple[str, float], Figures]) -> list[dict[str, Any]]:
    """Each published cell that was simulated, with the error: simulated over published, less 1."""
    cells = []
    for column in scenario.document.published:
        for rate, value in zip(column.rates, column.values, strict=True):
            figures = means.get((column.policy, rate))
            simulated = getattr(figures, column.figure) if figures else None
            if simulated is None:
                continue
            error = simulated / value - 1
            cells.append(
                {
                    "policy": column.policy,
                    "rate": rate,
                    "figure": column.figure,
                    "published": value,
                    "simulated": _short(simulated),
                    "error": round(error, 4),
                    "within": column.within,
                    "is_within": abs(error) <= column.within,
                }
            )
    return cells


def _rounded(figures: Figures) -> dict[str, float | None]:
    return {name: _short(value) for name, value in asdict(figures).items()}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")
