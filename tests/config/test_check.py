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
