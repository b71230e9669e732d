import dataclasses

import pytest

from tessera.config.load import load_data, load_text
from tessera.core.errors import ConfigError
from tessera.core.plugin import Handler, Producer, Scorer, plugin

LACKED = "predicted-latency-producer"
"""A type of llm-d that needs a service beside it; Tessera is not to have it."""


def paths(problems):
    return [each.path for each in problems]


@pytest.fixture
def with_lacked(config):
    profiles = [{"name": "default", "plugins": [{"pluginRef": LACKED}, {"pluginRef": "queue-scorer", "weight": 2}]}]
    return config(LACKED, "queue-scorer", schedulingProfiles=profiles)


def test_a_type_that_llm_d_has_and_we_lack_is_named_as_such(with_lacked):
    loaded = load_data(with_lacked)
    (missing,) = loaded.missing_plugins
    assert dataclasses.astuple(missing) == ("plugins[0]", LACKED, LACKED)
    assert str(missing) == f"plugins[0].type: llm-d has {LACKED}; Tessera does not have it yet"
    assert loaded.warnings == ()
    assert [s.name for s, _ in loaded.router.scheduler.profiles["default"].scorers] == ["queue-scorer"]


def test_it_stays_in_the_effective_configuration(with_lacked):
    loaded = load_data(with_lacked)
    again = load_text(loaded.effective_yaml())
    assert loaded.effective["plugins"][0]["type"] == LACKED
    assert again.effective == loaded.effective
    assert again.missing_plugins == loaded.missing_plugins
    assert again.additions == ()


def test_it_is_dropped_with_its_references_where_it_is_ignored(with_lacked):
    loaded = load_data(with_lacked, ignore_missing=True)
    assert loaded.missing_plugins == ()
    assert paths(loaded.warnings) == ["plugins[0].type"]
    assert LACKED not in loaded.effective_yaml()
    assert loaded.effective["schedulingProfiles"][0]["plugins"][1] == {"pluginRef": "queue-scorer", "weight": 2}
    assert load_text(loaded.effective_yaml()).missing_plugins == ()


def test_every_kind_of_reference_goes_with_it(config):
    data = config(
        "latency-slo-admitter",
        {"type": "dcgm-data-source", "name": "d"},
        {"type": "dcgm-extractor", "name": "x"},
        {"type": "sglanghttp-parser", "name": "p"},
        {"type": "multicluster-file-discovery", "name": "f"},
        {"type": "local-syncer", "name": "s"},
        {"type": "program-aware-fairness", "name": "fair"},
        "metrics-data-source",
        dataLayer={
            "sources": [
                {"pluginRef": "d", "extractors": [{"pluginRef": "x"}]},
                {"pluginRef": "metrics-data-source", "extractors": [{"pluginRef": "x"}]},
            ],
            "discovery": {"pluginRef": "f"},
            "crossReplicaSyncerPluginRef": "s",
        },
        requestHandler={"parsers": [{"pluginRef": "p"}, {"pluginRef": "openai-parser"}]},
        flowControl={"priorityBands": [{"priority": 1, "fairnessPolicyRef": "fair"}]},
    )
    kept = load_data(data)
    assert len(kept.missing_plugins) == 7
    assert kept.parsers == ("openai-parser",)
    assert kept.data_layer.discovery is None
    assert load_text(kept.effective_yaml()).effective == kept.effective
    ignored = load_data(data, ignore_missing=True)
    assert ignored.effective["dataLayer"] == {"sources": [{"pluginRef": "metrics-data-source", "extractors": []}]}
    assert ignored.effective["requestHandler"] == {"parsers": [{"pluginRef": "openai-parser"}]}
    assert ignored.effective["flowControl"]["priorityBands"] == [{"priority": 1}]
    assert load_text(ignored.effective_yaml()).effective == ignored.effective


@pytest.mark.parametrize("ignore_missing", [False, True])
def test_without_its_handler_the_profile_that_faces_the_client_runs_alone(config, monkeypatch, ignore_missing):
    monkeypatch.setattr("tessera.config.plan.LLMD_TYPES", {"newer-profile-handler": "handler"})
    profiles = [
        {"name": "encode", "plugins": [{"pluginRef": "encode-filter"}]},
        {"name": "decode", "plugins": [{"pluginRef": "decode-filter"}]},
    ]
    data = config("newer-profile-handler", "encode-filter", "decode-filter", schedulingProfiles=profiles)
    loaded = load_data(data, ignore_missing=ignore_missing)
    assert list(loaded.router.scheduler.profiles) == ["decode"]
    assert loaded.router.scheduler.handler.type == "single-profile-handler"
    assert any("only profile 'decode' runs" in each.message for each in loaded.warnings)
    assert load_text(loaded.effective_yaml()).effective == loaded.effective


def test_whatever_reads_from_a_missing_plugin_is_dropped_with_it(config, registry):
    class Guess:
        producer = "guesser"

    class Echo:
        producer = "echo-producer"

    @plugin("echo-producer")
    class EchoProducer(Producer):
        """Reads what a missing plugin would produce."""

        produces = Echo

        def reads_of(self):
            return ((Guess, LACKED),)

    @plugin("echo-scorer", reads=(Echo,))
    class EchoScorer(Scorer):
        """Reads the one above."""

    profiles = [{"name": "p", "plugins": [{"pluginRef": "echo-scorer"}, {"pluginRef": "queue-scorer"}]}]
    data = config("echo-scorer", LACKED, "queue-scorer", schedulingProfiles=profiles)
    loaded = load_data(data)
    assert [s.name for s, _ in loaded.router.scheduler.profiles["p"].scorers] == ["queue-scorer"]
    assert loaded.router.producers == ()
    assert {each.message for each in loaded.warnings} == {
        f"'echo-producer' is dropped: it reads from {LACKED!r}, which is not there",
        "'echo-scorer' is dropped: it reads from 'echo-producer', which is not there",
    }
    ignored = load_data(data, ignore_missing=True)
    added = ["cached-media-filter", "max-score-picker"]
    assert [each["type"] for each in ignored.effective["plugins"][:3]] == ["queue-scorer", *added]


def test_a_handler_that_reads_from_a_missing_plugin_is_stood_in_for(config, registry):
    class Guess:
        producer = LACKED

    @plugin("guess-handler", reads=(Guess,))
    class GuessHandler(Handler):
        """Needs what is missing."""

    profiles = [{"name": "a"}, {"name": "b"}]
    loaded = load_data(config("guess-handler", LACKED, schedulingProfiles=profiles))
    assert list(loaded.router.scheduler.profiles) == ["a"]


def test_other_problems_are_told_beside_it(config):
    with pytest.raises(ConfigError) as caught:
        load_data(config(LACKED, "queue-scorrer"), ignore_missing=True)
    assert paths(caught.value.problems) == ["plugins[1].type"]
