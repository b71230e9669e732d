"""The heap and the live driver: told the same things at the same times, the router decides the same."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessera.live.extproc.budget import BodyBudget
from tessera.live.open_requests import LogEntry
from tessera.live.service import RouterService
from tessera.sim import run as run_module
from tessera.sim.gateway import Gateway
from tessera.sim.policies import shipped_policies
from tessera.sim.run import play, runs_of

from .conftest import WORKLOAD


class NotedGateway(Gateway):
    """A gateway that notes what it was told, and what it decided."""

    told: list[tuple] = []
    chosen: list[tuple] = []

    def decide(self, request):
        server = super().decide(request)
        self.told.append((request.at, "decide", request))
        self.chosen.append((request.request_id, server.endpoint.id if server else None))
        return server

    def first_token(self, request_id, at):
        super().first_token(request_id, at)
        self.told.append((at, "first", request_id))

    def ended(self, request_id, ending, at, *, first_token_at=None, usage=None):
        super().ended(request_id, ending, at, first_token_at=first_token_at, usage=usage)
        self.told.append((at, "end", (request_id, usage)))

    def _observe(self, event):
        super()._observe(event)
        self.told.append((event.at, "observe", event))


POLICIES = ["examples/quickstart.yaml", *shipped_policies()]
ANEW = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
"""``small`` makes a new scenario each time."""
WORKLOADS = (
    WORKLOAD,
    "{type: photos, order: question-first, catalogue: 8, closing_tokens: 16, output_tokens: 20}",
    "{type: documents, num_pages: 1, output_tokens: 20}",
)
ASKED = {
    "config": st.sampled_from(POLICIES),
    "workload": st.sampled_from(WORKLOADS),
    "rate": st.sampled_from([2, 8, 20]),
    "endpoints": st.integers(1, 4),
    "seed": st.integers(0, 10_000),
}


@pytest.mark.parametrize("config", POLICIES)
def test_the_live_service_decides_as_the_simulated_gateway(small, config):
    chosen = assert_same_decisions(small, config=config, workload=WORKLOAD, rate=20, endpoints=3, seed=4)
    assert len(chosen) == 220
    assert len({endpoint for _, endpoint in chosen}) == 3


@settings(ANEW, max_examples=12)
@given(**ASKED)
def test_it_does_for_whatever_is_asked(small, config, workload, rate, endpoints, seed):
    assert_same_decisions(small, config=config, workload=workload, rate=rate, endpoints=endpoints, seed=seed)


@pytest.mark.slow
@settings(ANEW, max_examples=200)
@given(**ASKED)
def test_it_does_in_many_more_examples(small, config, workload, rate, endpoints, seed):
    assert_same_decisions(small, config=config, workload=workload, rate=rate, endpoints=endpoints, seed=seed)


def assert_same_decisions(small, *, config, workload, rate, endpoints, seed):
    """What was chosen: (request, endpoint) in the order of decisions; no endpoint where the fleet was full."""
    policies = f"[{{config: {config}, first_token: body}}]"
    scenario = small(endpoints=endpoints, rates=f"[{rate}]", policies=policies, workload=workload)
    (run,) = runs_of(scenario, [seed])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "Gateway", NotedGateway)
        patch.setattr(NotedGateway, "told", [])
        patch.setattr(NotedGateway, "chosen", [])
        play(run)
        told, expected = NotedGateway.told, NotedGateway.chosen
    chosen = asyncio.run(told_live(run, told))
    assert len(chosen) == sum(stage.num_requests for stage in run.stages)
    assert chosen == expected
    return chosen


async def told_live(run, everything):
    """What the live service chooses that is told the same at the same times."""
    now = 0.0
    loaded = run.policy.load(run.scenario.folder)
    service = RouterService(
        loaded.router,
        loaded.profile,
        seed=run.seed,
        budget=BodyBudget(limit_bytes=1 << 30, per_body_bytes=1 << 26),
        expects_log=True,
        clock=lambda: now,
        wall_clock=lambda: now,
    )
    chosen = []
    for at, what, told in everything:
        now = max(now, at)
        match what:
            case "observe":
                service.observe(told)
            case "decide":
                decision = service.decide(told, now, shows_body=True)
                winner = None if decision.rejection else decision.primary_stage.winner.id
                chosen.append((told.request_id, winner))
                if decision.rejection:
                    service.stream_ended(told.request_id, is_early=False, was_held=True)
            case "first":
                service.response_began(told)
            case "end":
                request_id, usage = told
                usage = type(usage)(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)
                endpoint = dict(chosen)[request_id]
                service.stream_ended(request_id, is_early=False, was_held=True)
                service.logged(LogEntry(request_id=request_id, status=200, endpoint=endpoint, usage=usage))
    service.close()
    return chosen
