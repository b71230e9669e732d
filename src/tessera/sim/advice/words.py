"""How is an answer put, in sentences that a person can act on?"""

from collections.abc import Iterator
from typing import Final

from tessera.engine.costs import Costs
from tessera.engine.profiles import ENCODER_PARALLEL_FRACTION
from tessera.sim.advice.advice import SEEDS, Advice, Question
from tessera.sim.advice.candidates import Kind
from tessera.sim.advice.demand import prompt_seconds
from tessera.sim.advice.log import FEW, Measured
from tessera.sim.advice.ranking import MODEL_ERROR, Result, beats

FLAG: Final = "--mm-encoder-tp-mode data"
"""What to try before any split."""
_SAVED: Final = 1 - ENCODER_PARALLEL_FRACTION


def caption(question: Question) -> str:
    """How far to trust it."""
    how = "is the fitted one" if question.base.is_fitted else "is derived from data sheets, measured by nobody"
    return (
        "a model, not a measurement: fitted to one published table (llm-d, Qwen3-VL-32B on 16 H200, all aggregated); "
        f"profile {question.base.name} {how}; splits and the network between servers were measured by nobody"
    )


def objectives(advice: Advice) -> str:
    """What counts as sustained, exactly."""
    kept = advice.setting.objectives
    origin = "as asked" if advice.question.ttft_s else "twice that of an idle aggregated fleet + 0.2 s"
    return (
        f"sustained: 90th percentile of TTFT below {kept.ttft_s:.2f} s ({origin}) "
        f"and mean over requests of their mean TPOT below {kept.tpot_s * 1000:g} ms"
    )


def verdict(advice: Advice) -> str:
    """The answer in a line or two."""
    ranking, best = advice.ranking, advice.ranking.recommended
    plain = ranking.aggregated
    if not best.rate:
        return (
            f"no topology of {advice.question.num_gpus} GPUs keeps the objectives at any rate that was tried; an idle "
            f"aggregated server needs {advice.setting.idle_ttft_s:.2f} s to the first token"
        )
    if best.candidate.kind is Kind.AGGREGATED:
        can = "sustains" if best.candidate.topology.num_decode == 1 else "sustain"
        said = f"Stay aggregated: {_servers(best)} {can} {best.rate:.3g} req/s, and no split goes further."
    else:
        said = (
            f"{best.candidate.kind.value}, {_servers(best)}: {best.rate:.3g} req/s, "
            f"{best.rate / plain.rate - 1:+.0%} against {plain.rate:.3g} aggregated."
            if plain.rate
            else f"{best.candidate.kind.value}, {_servers(best)}: {best.rate:.3g} req/s; aggregated keeps no rate."
        )
    ties = [each for each in ranking.ties if each.rate > 0]
    if ties:
        names = ", ".join(f"{each.name} ({each.rate:.3g})" for each in ties)
        said += (
            f" A tie with {names}: less than {MODEL_ERROR:.1%} between them, which the model cannot tell, or not under "
            "every seed. The simpler one is taken."
        )
    return said


def first_try(advice: Advice) -> str:
    """The flag that costs nothing, before anything is divided."""
    ranking = advice.ranking
    parallel = ranking.named("aggregated-encoder-data")
    if parallel is None:
        return (
            f"Try first, before any split: {FLAG} on aggregated servers; with one GPU a server, as here, it changes "
            "nothing, so it comes into play only with two or more."
        )
    best, plain = ranking.recommended, ranking.aggregated
    said = (
        f"Try first, before any split: {FLAG} on aggregated servers. Assumed, measured by nobody, to save "
        f"{_SAVED:.0%} of encoder time; then {parallel.rate:.3g} req/s"
    )
    said += f" ({parallel.rate / plain.rate - 1:+.0%})" if plain.rate else ""
    if best.candidate.kind is Kind.AGGREGATED:
        return said + "."
    if beats(best, parallel):
        return said + ", less than the split."
    return said + ", as far as the split or further: measure the flag, and split only if it saves less."


def why(advice: Advice) -> Iterator[str]:
    """What a request costs, and what each kind of topology runs out of."""
    demand, base = advice.setting.demand, advice.question.base
    saving = f", assumed to save {_SAVED:.0%} too" if base.num_gpus > 1 else ""
    tokens = f"{demand.num_new_tokens:,.0f} new of {demand.num_prompt_tokens:,.0f} prompt tokens"
    yield (
        f"One request ({demand.num_new_items:.3g} new pictures, {tokens}, {demand.num_output_tokens:.0f} out) costs a "
        f"server of {base.num_gpus} GPUs {demand.encode_s:.3f} s to encode and {demand.prefill_s:.3f} s to prefill: "
        f"encode is {demand.ratio:.2f} of prefill. An encoder on one GPU needs {demand.encoder_s:.3f} s{saving}."
    )
    floor_s = Costs(base).fixed_s(1)
    stalls = [
        f"{title} {prompt_seconds(result.candidate.topology, demand):.3f} s"
        for title, result in _by_kind(advice)
        if not result.candidate.topology.num_prefill
    ]
    yield (
        f"While a prompt is computed, the answers on its server stand still (alone, a token takes "
        f"{floor_s * 1000:.1f} ms): {', '.join(stalls)} for each request; nothing where prefill is apart."
    )
    for title, result in _by_kind(advice):
        yield f"{title}, {_servers(result)}: {_limit(result)}"


def _by_kind(advice: Advice) -> Iterator[tuple[str, Result]]:
    for kind in Kind:
        result = advice.ranking.best_of(kind)
        if result is not None:
            yield kind.value, result


def _limit(result: Result) -> str:
    bound = result.candidate.bound
    where = "" if bound.pool == "all" else f" of {bound.pool}"
    causes = {
        "encoder": f"its encoders are full at {bound.rate:.3g} req/s",
        "GPU": f"GPU time{where} is used up at {bound.rate:.3g} req/s",
        "TPOT": f"prompts stretch TPOT to the limit at {bound.rate:.3g} req/s",
        "CPU": f"the CPUs that unpack pictures and stream tokens{where} are full at {bound.rate:.3g} req/s",
    }
    tpot = f", TPOT {result.tpot_s * 1000:.0f} ms there" if result.tpot_s is not None else ""
    broken = f"; {result.broken} breaks first" if result.broken else ""
    return f"by arithmetic {causes[bound.cause]}; simulated {result.rate:.3g}{tpot}{broken}."


def what_would_change(advice: Advice) -> Iterator[str]:
    """Sizes and objectives at which the answer is another."""
    yield from _by_size(advice)
    yield from _by_tpot(advice)
    rate = advice.question.asked.rate
    best = advice.ranking.recommended
    if rate and best.rate:
        need = "covers" if best.rate >= rate else "does not cover"
        why = "the busiest minute's" if advice.question.asked.measured else "the asked"
        num_gpus = advice.question.num_gpus
        yield f"{best.name} {need} {why} {rate:.3g} req/s, {best.rate / rate:.2f} times that, on {num_gpus} GPUs."


def _by_size(advice: Advice) -> Iterator[str]:
    if not advice.points:
        return
    first, last = advice.points[0].variant, advice.points[-1].variant
    found = advice.crossover
    if found is not None:
        below, above = found.below.variant.label, found.above.variant.label
        split = found.above.split
        assert split is not None, "the size above was won by a split"
        yield (
            f"Picture size: encoders of their own do not pay at {below} (encode {found.below.ratio:.2f} of prefill), "
            f"but do at {above} ({found.above.ratio:.2f}; {split.name} "
            f"{split.rate / found.above.aggregated.rate - 1:+.0%}) and beyond; the rates are equal at about "
            f"{found.num_pixels / 1e6:.1f} megapixels."
            if found.above.aggregated.rate
            else f"Picture size: between {below} and {above} aggregated servers cease to keep the objectives."
        )
    elif all(point.is_won for point in advice.points):
        yield f"Picture size: encoders of their own pay at every size tried, {first.label} to {last.label}."
    else:
        yield f"Picture size: encoders of their own do not pay up to {last.label}, the largest tried."


def _by_tpot(advice: Advice) -> Iterator[str]:
    apart = advice.ranking.best_of(Kind.E_P_D) or advice.ranking.best_of(Kind.P_D)
    if apart is None or advice.crowded is None or advice.crowded.tpot_mean_s is None or apart.tpot_s is None:
        return
    crowded_s = advice.crowded.tpot_mean_s
    if apart.tpot_s < crowded_s:
        yield (
            f"TPOT: {apart.candidate.kind.value} ({apart.name}) keeps it flat, {apart.tpot_s * 1000:.0f} ms up to its "
            f"{apart.rate:.3g} req/s, where aggregated servers are at {crowded_s * 1000:.0f} ms. If answers must come "
            f"faster than that ({apart.tpot_s * 1000:.0f} to {crowded_s * 1000:.0f} ms a token), it goes further."
        )


def measured(found: Measured) -> Iterator[str]:
    """What a log said."""
    left_out = f"; {found.num_left_out} with clips or sounds are left out" if found.num_left_out else ""
    few = "; so few say little" if found.num_requests < FEW else ""
    yield f"Measured: {found.num_requests:,} requests in {found.span_s:,.0f} s{left_out}{few}."
    if found.mean_rate is not None and found.busiest_rate is not None:
        yield f"Rates: {found.mean_rate:.3g} req/s on the mean, {found.busiest_rate:.3g} in the busiest minute."
    sizes = ", ".join(f"{size} {share:.0%}" for size, share in found.sizes) or "none"
    unsized = f"; {found.num_unsized} of unknown size are squares of their tokens" if found.num_unsized else ""
    yield f"Pictures: {found.pictures_mean:.3g} a request; sizes {sizes}{unsized}."
    text = "" if found.has_text else " (Decisions do not name texts: each counts as new)"
    yield (
        f"Reuse: {found.picture_reuse:.0%} of the pictures were sent before. Text: "
        f"{found.text_tokens_mean:,.0f} tokens{text}. Answers: {found.output_tokens_mean:,.0f} tokens on the mean, "
        f"{found.output_tokens_p90:,.0f} at p90."
    )


def _servers(result: Result) -> str:
    """The split, in words."""
    topology = result.candidate.topology
    each = topology.gpus_per_server
    if result.candidate.kind is Kind.AGGREGATED:
        return f"{_several(topology.num_decode)} of {each} GPU{'s' * (each > 1)}"
    parts = []
    if topology.num_encode:
        parts.append(f"{topology.num_encode} encoders of 1 GPU")
    if topology.num_prefill:
        parts.append(f"{topology.num_prefill} prefill and {topology.num_decode} decode servers of {each}")
    else:
        does = "prefills and decodes" if topology.num_decode == 1 else "prefill and decode"
        parts.append(f"{_several(topology.num_decode)} of {each} that {does}")
    return " + ".join(parts)


def _several(number: int) -> str:
    return f"{number} server{'s' * (number != 1)}"


def seeds_of(question: Question) -> str:
    """Under which seeds."""
    return ", ".join(map(str, question.seeds or SEEDS))
