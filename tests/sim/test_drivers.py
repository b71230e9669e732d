"""The heap and the live driver: told the same things at the same times, the router decides the same."""

import pytest

from tessera.live.extproc.budget import BodyBudget
from tessera.live.open_requests import LogEntry
from tessera.live.service import RouterService
from tessera.sim import run as run_module
from tessera.sim.gateway import Gateway
from tessera.sim.run import play, runs_of


class NotedGateway(Gateway):
    """A gateway that notes what it was told, and what it decided."""

    told: list[tuple] = []
    chosen: list[tuple] = []

    def decide(self, request):
        server = super().decide(request)
        self.told.append((request.at, "decide", request))
        self.chosen.append((request.request_id, server.endpoint.id))
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


@pytest.mark.parametrize("config", ["llm-d-multimodal", "least-request", "power-of-two", "examples/quickstart.yaml"])
async def test_the_live_service_decides_as_the_simulated_gateway(small, config, monkeypatch):
    monkeypatch.setattr(run_module, "Gateway", NotedGateway)
    monkeypatch.setattr(NotedGateway, "told", [])
    monkeypatch.setattr(NotedGateway, "chosen", [])
    scenario = small(endpoints=3, rates="[20]", policies=f"[{{config: {config}, first_token: body}}]")
    (run,) = runs_of(scenario, [4])
    play(run)

    now = 0.0
    loaded = run.policy.load(scenario.folder)
    service = RouterService(
        loaded.router,
        loaded.profile,
        seed=4,
        budget=BodyBudget(limit_bytes=1 << 30, per_body_bytes=1 << 26),
        expects_log=True,
        clock=lambda: now,
        wall_clock=lambda: now,
    )
    chosen = []
    for at, what, told in NotedGateway.told:
        now = max(now, at)
        match what:
            case "observe":
                service.observe(told)
            case "decide":
                decision = service.decide(told, now, shows_body=True)
                chosen.append((told.request_id, decision.primary_stage.winner.id))
            case "first":
                service.response_began(told)
            case "end":
                request_id, usage = told
                usage = type(usage)(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)
                endpoint = dict(chosen)[request_id]
                service.stream_ended(request_id, is_early=False, was_held=True)
                service.logged(LogEntry(request_id=request_id, status=200, endpoint=endpoint, usage=usage))
    service.close()
    assert len(chosen) == 220
    assert chosen == NotedGateway.chosen
    assert len({endpoint for _, endpoint in chosen}) == 3
