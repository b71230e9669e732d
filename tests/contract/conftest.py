"""What every contract suite needs: all plugin modules imported, and one table with every fact known."""

import pytest

from tessera.config.discover import discover
from tessera.core.facts import EncoderMatch, FirstTokenCost, InFlightLoad, Load, PrefixMatch, ProcessorMatch
from tessera.core.types import Candidate, Endpoint

discover()

ROLES = (None, "decode", "prefill", "encode", "both", "encode-prefill-decode", "nonsense")


@pytest.fixture(scope="session")
def table():
    """Makes a candidate of a number and a row of drawn values (see ``rows`` in the suites)."""

    def make(number, row):
        waiting, running, usage, requests, tokens, matched = row
        role = ROLES[number % len(ROLES)]
        endpoint = Endpoint(
            address=f"10.0.{number // 250}.{number % 250 + 1}",
            port=8000,
            labels={} if role is None else {"llm-d.ai/role": role},
        )
        at = None if waiting is None and running is None and usage is None else 0.0
        facts = {
            Load: Load(num_waiting=waiting, num_running=running, kv_usage_fraction=usage, at=at),
            InFlightLoad: InFlightLoad(
                num_requests=requests, num_uncached_tokens=tokens, num_items=requests, encode_embeds=tokens
            ),
            PrefixMatch: PrefixMatch(num_matched_tokens=matched, num_total_tokens=100),
            EncoderMatch: EncoderMatch(identifiers=frozenset({"m0"} if matched > 50 else ())),
            ProcessorMatch: ProcessorMatch(identifiers=frozenset({"m0"} if matched > 50 else ())),
            FirstTokenCost: FirstTokenCost(queued_s=tokens / 1e4, prefill_s=(100 - matched) / 1e4),
        }
        return Candidate(endpoint, {(kind, kind.producer): fact for kind, fact in facts.items()})

    return make
