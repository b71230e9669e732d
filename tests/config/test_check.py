import pytest

from tessera.config.check import advice
from tessera.config.load import load_data
from tessera.core.errors import Problem


def advice_on(config, *weights, **sections):
    plugins = [{"type": "queue-scorer", "name": f"s{index}"} for index, _ in enumerate(weights)]
    entries = [{"pluginRef": f"s{index}", "weight": weight} for index, weight in enumerate(weights)]
    return advice(load_data(config(*plugins, schedulingProfiles=[{"name": "p", "plugins": entries}], **sections)))


def test_a_sound_configuration_gets_none(config):
    assert advice_on(config, 1, 0, 2.5) == []


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((), "no scorer: every endpoint is as good as another, and the picker decides"),
        ((0, 0), "every scorer weighs 0: every endpoint is as good as another, and the picker decides"),
        ((1, -2), "s1 weighs -2: it prefers what it rates worst"),
    ],
)
def test_weights_that_cannot_be_meant(config, weights, message):
    assert advice_on(config, *weights) == [Problem("schedulingProfiles[0]", message)]


def test_a_scorer_that_is_listed_twice(config):
    profiles = [{"name": "p", "plugins": [{"pluginRef": "queue-scorer"}] * 2}]
    assert advice(load_data(config("queue-scorer", schedulingProfiles=profiles))) == [
        Problem("schedulingProfiles[0]", "queue-scorer is listed 2 times: its weights add up")
    ]


def test_scorers_of_metrics_that_nobody_reads(config):
    assert advice_on(config, 1, dataLayer={"injectDefaults": False}) == [
        Problem("dataLayer", "no metrics page is read, so s0 cannot tell endpoints apart")
    ]


def gate(config, **parameters):
    plugins = ({"type": "prefix-cache-affinity-filter", "name": "gate", "parameters": parameters}, "queue-scorer")
    return load_data(config("approx-prefix-cache-producer", *plugins))


@pytest.mark.parametrize(
    ("parameters", "seen"),
    [
        ({}, "got 18000: a popular prefix stays with one endpoint until it is 18 s behind the others"),
        ({"maxTTFTPenaltyMs": 5001}, "got 5001: a popular prefix stays with one endpoint until it is 5.001 s behind"),
        ({"maxTTFTPenaltyMs": 0}, "got 0: a popular prefix stays with one endpoint however far it is behind"),
        ({"maxTTFTPenaltyMs": 5000}, None),
        ({"affinityThreshold": 0}, None),
    ],
)
def test_a_gate_so_wide_that_a_hot_prefix_starves_an_endpoint(config, parameters, seen):
    found = advice(gate(config, **parameters))
    assert [each.path for each in found] == (["gate.parameters.maxTTFTPenaltyMs"] if seen else [])
    assert all(each.message.startswith(seen) for each in found)


def test_a_gate_in_two_profiles_is_told_of_once(config):
    handler = {"type": "disagg-profile-handler"}
    entries = [{"pluginRef": "prefix-cache-affinity-filter"}, {"pluginRef": "queue-scorer"}]
    profiles = [{"name": name, "plugins": entries} for name in ("prefill", "decode")]
    data = config(
        "approx-prefix-cache-producer",
        "prefix-cache-affinity-filter",
        "queue-scorer",
        handler,
        schedulingProfiles=profiles,
    )
    assert len(advice(load_data(data))) == 1


def test_a_predictor_that_is_not_there_is_a_warning(config):
    loaded = gate(config, ttftSource="latencyPredictor")
    assert [each.path for each in loaded.warnings] == ["plugins[1].parameters.ttftSource"]
    assert "there is no latency predictor yet" in loaded.warnings[0].message


@pytest.mark.parametrize(("name", "paths"), [("", []), ("default", []), ("decode", ["mine.parameters.profileName"])])
@pytest.mark.parametrize("kind", ["filter", "scorer"])
def test_sessions_of_a_profile_that_does_not_run(config, kind, name, paths):
    entry = {"name": "mine", "type": f"session-affinity-{kind}", "parameters": {"profileName": name}}
    found = advice(load_data(config("queue-scorer", entry)))
    assert [each.path for each in found] == paths
    assert all(
        each.message == "no profile 'decode' runs, so no session is ever bound; there are default" for each in found
    )
