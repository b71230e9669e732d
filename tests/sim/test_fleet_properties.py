"""Whatever a small fleet is asked: nothing is lost, tokens and blocks add up, and time does not go back."""

from itertools import islice

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessera.core.types import Ending
from tessera.engine.profiles import PROFILES
from tessera.sim.kernel import Kernel
from tessera.sim.policies import shipped_policies
from tessera.sim.prompts import Prompts
from tessera.sim.run import family_of, play, runs_of
from tessera.sim.servers import Server

PROFILE = PROFILES["h200-tp2-qwen3-vl-32b"]
WORKLOADS = (
    "{type: shared-prefix, num_groups: 6, num_prompts_per_group: 3, question_tokens: 40, output_tokens: 20}",
    "{type: documents, num_pages: 2, output_tokens: 30}",
    "{type: photos, order: question-first, catalogue: 4, closing_tokens: 16, output_tokens: 20}",
    "{type: heavy-tail, output_tokens: 1}",
)
ANEW = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
"""``small`` makes a new scenario each time."""


@st.composite
def fleets(draw):
    """(fields of ``small``, seed): a policy and its first-token source, a workload, a fleet and its clients."""
    policy = draw(st.sampled_from(shipped_policies()))
    source = draw(st.sampled_from(["body", "counter", "predicted"]))
    delay_s = draw(st.sampled_from([0.0, 0.02]))
    patience_s = draw(st.sampled_from([None, None, 0.3, 1.5]))
    client = f"client: {{timeout_s: {patience_s}}}\n" if patience_s else ""
    fields = {
        "policies": f"[{{config: {policy}, first_token: {source}}}]",
        "workload": draw(st.sampled_from(WORKLOADS)),
        "endpoints": draw(st.integers(1, 4)),
        "rates": draw(st.sampled_from(["[2]", "[6, 12]"])),
        "extra": f"network_delay_s: {delay_s}\n{client}",
    }
    return fields, draw(st.integers(0, 10_000))


@settings(ANEW, max_examples=25)
@given(drawn=fleets())
def test_a_fleet_loses_nothing(small, drawn):
    assert_nothing_is_lost(small, *drawn)


@pytest.mark.slow
@settings(ANEW, max_examples=400)
@given(drawn=fleets())
def test_a_fleet_loses_nothing_in_many_more_examples(small, drawn):
    assert_nothing_is_lost(small, *drawn)


def assert_nothing_is_lost(small, fields, seed):
    scenario = small(**fields)
    (run,) = runs_of(scenario, [seed])
    with pytest.MonkeyPatch.context() as patch:
        instants, servers = watched(patch)
        records = play(run)
    assert instants == sorted(instants)
    refused = [Ending.REJECTED] if "tessera-overload" in fields["policies"] else []
    for record in records:
        assert len(record.sent) == record.stage.num_requests
        for each in record.sent:
            assert each.ending in (Ending.FINISHED, Ending.ABORTED, *refused), "the pool is never empty"
            assert each.sent_at <= each.ended_at
            assert each.ending is not Ending.FINISHED or each.sent_at < each.first_at <= each.ended_at
    # Not those of the last stage: an engine is through with who gave up a step later.
    last = [server.facts() for server in servers]
    assert_nothing_stays(last)
    for before, after in ((record.facts_before, record.facts_after) for record in records):
        for was, now in zip(before, after, strict=True):
            assert_counters_grow(was, now)
    done = [each for record in records for each in record.sent if each.ending is Ending.FINISHED]
    num_generated = sum(facts.num_generation_tokens for facts in last)
    if all(each.ending is Ending.FINISHED for record in records for each in record.sent):
        assert num_generated == sum(each.num_output_tokens for each in done)
        assert sum(facts.num_prompt_tokens for facts in last) == num_prompt_tokens(run, scenario)
        assert sum(facts.num_first_tokens for facts in last) == len(done)
    else:
        assert num_generated >= sum(each.num_output_tokens for each in done)


def watched(patch):
    """The instants at which the kernel acts, as they come, and the servers of the fleet."""
    instants, servers = [], []
    asked, made = Kernel.at, Server.__init__

    def at(kernel, when, action):
        def act():
            instants.append(kernel.now)
            action()

        asked(kernel, when, act)

    def make(server, *args, **options):
        made(server, *args, **options)
        servers.append(server)

    patch.setattr(Kernel, "at", at)
    patch.setattr(Server, "__init__", make)
    return instants, servers


def assert_nothing_stays(facts):
    """No request, and no block that a request holds: what is left is cached, or empty."""
    for each in facts:
        assert (each.num_running, each.num_waiting, each.num_deferred) == (0, 0, 0)
        assert each.kv_usage_fraction == 0.0


def assert_counters_grow(was, now):
    for cache in ("prefix_cache", "encoder_cache", "processor_cache"):
        before, after = getattr(was, cache), getattr(now, cache)
        assert before.num_queried <= after.num_queried
        assert before.num_hit <= after.num_hit <= after.num_queried
    assert was.num_generation_tokens <= now.num_generation_tokens
    assert was.num_prompt_tokens <= now.num_prompt_tokens
    assert now.num_cached_prompt_tokens <= now.num_prompt_tokens


def num_prompt_tokens(run, scenario):
    """Of all that was asked, counted from the workload itself."""
    prompts = Prompts(run.policy.load(scenario.folder).profile, PROFILE.model.name, family_of(PROFILE))
    workload = scenario.workload.make(str(run.seed))
    asks = (ask for index, stage in enumerate(run.stages) for ask in islice(workload.asks(index), stage.num_requests))
    return sum(segment.num_tokens for ask in asks for segment in prompts.see(ask).segments)
