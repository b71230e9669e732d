"""What does an answer look like as JSON? The same bytes for the same question."""

from dataclasses import asdict
from typing import Any

from tessera.engine.profiles import ENCODER_PARALLEL_FRACTION
from tessera.sim.advice import words
from tessera.sim.advice.advice import Advice
from tessera.sim.advice.search import STEP
from tessera.sim.sidecar import Hops


def report_of(advice: Advice) -> dict[str, Any]:
    """The answer, what it rests on and every rate that was tried."""
    question, setting, asked = advice.question, advice.setting, advice.question.asked
    hops = Hops()
    return {
        "workload": asked.name,
        "description": asked.description,
        "measured": asked.measured.as_json() if asked.measured else None,
        "num_gpus": question.num_gpus,
        "profile": question.base.name,
        "is_fitted": question.base.is_fitted,
        "objectives": {
            "ttft_p90_s": setting.objectives.ttft_s,
            "tpot_mean_s": setting.objectives.tpot_s,
            "is_ttft_by_idle_fleet": question.ttft_s is None,
        },
        "idle_ttft_s": setting.idle_ttft_s,
        "recommended": advice.name,
        "ties": [each.name for each in advice.ranking.ties],
        "verdict": words.verdict(advice),
        "try_first": words.first_try(advice),
        "why": list(words.why(advice)),
        "what_would_change": list(words.what_would_change(advice)),
        "demand": asdict(setting.demand),
        "ranking": [each.as_json() for each in advice.ranking.results],
        "pruned": [{"topologies": list(each.names), "reason": each.reason} for each in setting.candidates.pruned],
        "sizes": [point.as_json() for point in advice.points],
        "crossover": None
        if advice.crossover is None
        else {
            "below": advice.crossover.below.variant.label,
            "above": advice.crossover.above.variant.label,
            "num_pixels": round(advice.crossover.num_pixels),
        },
        "search": {
            "seeds": list(question.seeds),
            "rate_step": STEP,
            "num_requests": question.trial.num_requests,
            "min_duration_s": question.trial.min_duration_s,
        },
        "assumed": {
            "encoder_data_parallel_time_fraction": ENCODER_PARALLEL_FRACTION,
            "network_bytes_per_s": question.base.network.bytes_per_s,
            "transfer_latency_s": question.base.network.latency_s,
            "hop_s": hops.network_s,
            "sidecar_leg_s": hops.sidecar_s,
        },
        "caption": words.caption(question),
    }
