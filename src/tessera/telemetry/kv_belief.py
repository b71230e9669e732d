"""How far is what we believed of the engines' KV caches from what they had?

An engine counts whole blocks, and never a prompt's last token, which it computes in
any case. A belief is brought to that before it is compared, so that a right one has no
error: taken as a share of the prompt's price, of that share of the engine's own count
of the prompt the whole blocks before the last token.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter

from tessera.core.facts import Load, PrefixMatch
from tessera.core.matching.divided import prefill_apart
from tessera.core.types import Candidate, Decision, Ending, Outcome, Usage

BLOCK_SIZE: Final = 16
"""Tokens of a block where an endpoint's page does not say it: vLLM's default."""
LABELS: Final = ("producer", "basis")


class KVBeliefMetrics:
    """Six counters for each producer of prefix matches, by whether the match was exact; all in the engine's tokens.

    Over any span of time, predicted less cached over prompt tokens is the bias, and
    over- plus underestimated over prompt tokens the mean error, both as shares of a
    prompt. What lies in a tier that weighs less than 1 is predicted at its weight.

    Counted are requests whose ``usage`` tells cached tokens (vLLM: ``--enable-prompt-tokens-details``),
    against the endpoint that served. Left out are those with several prompts or choices,
    of which engines tell only one's cached tokens, and those with a prefill stage of
    their own, whose answer does not say which of two engines it speaks of.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the families."""

        def counter(name: str, text: str) -> Counter:
            return Counter(f"tessera_kv_belief_{name}_total", text, LABELS, registry=registry)

        self._requests = counter("requests", "Requests whose cached tokens by usage were compared with the belief.")
        self._prompt = counter("prompt_tokens", "Their prompt tokens by usage.")
        self._predicted = counter("predicted_tokens", "Of them those that were believed cached where they were sent.")
        self._cached = counter("cached_tokens", "Of them those that were cached, by usage.")
        self._over = counter("overestimated_tokens", "Tokens that were believed cached and were not.")
        self._under = counter("underestimated_tokens", "Tokens that were cached and not believed so.")

    def settled(self, outcome: Outcome) -> None:
        """Compare each producer's match for the endpoint that served with what its engine told."""
        decision, usage = outcome.decision, outcome.usage
        if decision is None or usage is None or outcome.ending is not Ending.FINISHED:
            return
        cached = usage.cached_tokens
        if cached is None or usage.prompt_tokens <= 0 or not _is_of_one_engine(decision):
            return
        row = _served_by(decision, outcome.endpoint)
        if row is None:
            return
        cached = min(cached, usage.prompt_tokens)
        for (kind, producer), match in row.facts.items():
            if kind is not PrefixMatch or match.num_total_tokens <= 0:
                continue
            labels = (producer, "exact" if match.is_exact else "approximate")
            predicted = _predicted(match, decision, usage, _block_size(row))
            self._requests.labels(*labels).inc()
            self._prompt.labels(*labels).inc(usage.prompt_tokens)
            self._predicted.labels(*labels).inc(predicted)
            self._cached.labels(*labels).inc(cached)
            self._over.labels(*labels).inc(max(0, predicted - cached))
            self._under.labels(*labels).inc(max(0, cached - predicted))


def _is_of_one_engine(decision: Decision) -> bool:
    """Whether an answer's cached tokens are those of the one prompt on the one engine that served it."""
    prefill = prefill_apart(decision)
    return decision.request.num_engine_requests == 1 and prefill in (None, decision.primary_stage)


def _served_by(decision: Decision, served: str | None) -> Candidate | None:
    """The endpoint that served, the winner where nobody says, as the decision saw it."""
    stage = decision.primary_stage
    endpoint_id = served or (stage.winner.id if stage.winner else None)
    return next((each for each in stage.candidates if each.endpoint.id == endpoint_id), None)


def _block_size(row: Candidate) -> int:
    load = row.facts.get((Load, Load.producer))
    return (load and load.block_size) or BLOCK_SIZE


def _predicted(match: PrefixMatch, decision: Decision, usage: Usage, block_size: int) -> int:
    """The cached tokens that the engine would tell if the belief were right."""
    of = match.num_total_tokens if match.is_exact else max(decision.priced.num_prompt_tokens, match.num_total_tokens)
    tokens = match.num_matched_tokens * usage.prompt_tokens // of
    return min(tokens, usage.prompt_tokens - 1) // block_size * block_size
