"""Small values of the spine for tests: endpoints, requests, tables, a whole router."""

import os

import pytest
from hypothesis import settings

from tessera.config.discover import discover
from tessera.core.facts import EncoderMatch, EndpointState, FleetView, InFlightLoad, Load, PrefixMatch
from tessera.core.handlers.single_profile import SingleProfileHandler
from tessera.core.matching.inflight_load import InflightLoadProducer
from tessera.core.parts import MediaItem, Modality, TextPart
from tessera.core.pickers.max_score import MaxScorePicker
from tessera.core.pricing.token import TokenProducer
from tessera.core.router import Router
from tessera.core.scheduler import Profile, Scheduler
from tessera.core.scorers.active_request import ActiveRequestScorer
from tessera.core.scorers.kv_cache_utilization import KVCacheUtilizationScorer
from tessera.core.scorers.queue import QueueScorer
from tessera.core.scorers.token_load import TokenLoadScorer
from tessera.core.types import (
    Basis,
    Candidate,
    Decision,
    Endpoint,
    InferenceRequest,
    PricedItem,
    PricedRequest,
    Stage,
)
from tessera.core.work import Work

from .models import write_model

# A busy machine is no fault of the code under test.
settings.register_profile("tessera", deadline=None)
settings.register_profile("deep", deadline=None, max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tessera"))
# Before the first request is read: which dialect a path has is asked once.
discover()


class Build:
    """Makes one of each, with defaults for everything that a test does not care about."""

    @staticmethod
    def endpoint(number=1, *, role=None, port=8000, **labels):
        if role is not None:
            labels["llm-d.ai/role"] = role
        return Endpoint(address=f"10.0.0.{number}", port=port, labels=labels)

    def candidate(self, number=1, *, load=None, in_flight=None, match=None, endpoint=None):
        facts = {
            (Load, Load.producer): load or Load(),
            (InFlightLoad, InFlightLoad.producer): in_flight or InFlightLoad(),
            (EncoderMatch, EncoderMatch.producer): EncoderMatch(identifiers=frozenset()),
        }
        if match is not None:
            facts[PrefixMatch, PrefixMatch.producer] = match
        return Candidate(endpoint or self.endpoint(number), facts)

    def loads(self, **columns):
        """Candidates whose Load has these columns: ``loads(num_waiting=[1, 2])``."""
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return [self.candidate(number, load=Load(at=0.0, **row)) for number, row in enumerate(rows, 1)]

    def in_flight(self, **columns):
        """Candidates whose InFlightLoad has these columns."""
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return [self.candidate(number, in_flight=InFlightLoad(**row)) for number, row in enumerate(rows, 1)]

    @staticmethod
    def request(request_id="r1", **fields):
        return InferenceRequest(**{"request_id": request_id, "at": 0.0, "wall_at": 0.0, "dialect": "chat"} | fields)

    def text_request(self, num_tokens=1, request_id="r1", **fields):
        """A request of one text of so many tokens."""
        return self.request(request_id, prompts=((TextPart(num_bytes=4 * num_tokens),),), **fields)

    def priced(self, num_text_tokens=0, items=(), **fields):
        return PricedRequest(request=self.request(**fields), items=tuple(items), num_text_tokens=num_text_tokens)

    @staticmethod
    def media(modality=Modality.IMAGE, identifier="m", **fields):
        return MediaItem(**{"modality": modality, "format": None, "identifier": identifier} | fields)

    def item(self, num_tokens=10, *, num_embeds=None, index=0, identifier="m", num_bytes=0, num_wrapper_tokens=0):
        return PricedItem(
            index=index,
            item=self.media(identifier=identifier, num_bytes=num_bytes),
            num_tokens=num_tokens,
            num_embeds=num_tokens if num_embeds is None else num_embeds,
            num_wrapper_tokens=num_wrapper_tokens,
            rule_basis=Basis.EXACT,
            size_basis=Basis.EXACT,
        )

    def stage(self, candidates, winner=0, profile="default", **fields):
        """A stage in which the candidate of that index won and all others follow; its profile names its work."""
        won = (candidates[winner].endpoint,) if winner is not None else ()
        rest = tuple(c.endpoint for c in candidates if c.endpoint not in won)
        given = {
            "profile": profile,
            "candidates": tuple(candidates),
            "filtered_by": (None,) * len(candidates),
            "scored": tuple(range(len(candidates))),
            "columns": {},
            "totals": (0.0,) * len(candidates),
            "winners": won,
            "runner_up": rest[0] if rest else None,
            "fallbacks": rest[:2],
            "work": next((work for work in Work if work == profile), None),
        }
        return Stage(**given | fields)

    def decision(self, priced=None, *stages, **fields):
        priced = priced or self.priced()
        stages = stages or (self.stage([self.candidate(1), self.candidate(2)]),)
        return Decision(**{"priced": priced, "at": 0.0, "stages": stages, "primary": stages[-1].profile} | fields)

    @staticmethod
    def view(endpoints, load=None):
        return FleetView(tuple(EndpointState(each, load or Load()) for each in endpoints))

    @staticmethod
    def router(scorers=None, filters=(), picker=None, *, pricer=None, num_fallbacks=2):
        """A router of one profile; without ``scorers`` those of the quickstart, with its weights."""
        if scorers is None:
            scorers = (
                (TokenLoadScorer(), 2.0),
                (ActiveRequestScorer(), 1.0),
                (QueueScorer(), 1.0),
                (KVCacheUtilizationScorer(), 1.0),
            )
        ledger = InflightLoadProducer()
        profile = Profile("default", tuple(filters), tuple(scorers), picker or MaxScorePicker())
        scheduler = Scheduler({"default": profile}, SingleProfileHandler(), num_fallbacks)
        return Router(pricer=pricer or TokenProducer(), producers=(ledger,), scheduler=scheduler, memories=(ledger,))


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A folder with the files of a small model; see models.py."""
    folder = tmp_path_factory.mktemp("model")
    write_model(folder)
    return folder


@pytest.fixture(scope="session")
def build():
    return Build()
