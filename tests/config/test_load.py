from pathlib import Path

import pytest

from tessera.config.declarations import CoreMetricsExtractor, EngineConfig, FileDiscovery, MetricsDataSource
from tessera.config.load import load_data, load_file, load_text
from tessera.config.schema import RoutingSpec
from tessera.core.filters.concurrency_detector import ConcurrencyDetector
from tessera.core.filters.utilization_detector import UtilizationDetector
from tessera.core.types import ModelProfile


def profile_of(loaded, name="default"):
    """Names of a profile's filters, its scorers with weights, and its picker."""
    profile = loaded.router.scheduler.profiles[name]
    return [each.name for each in profile.filters], [(each.name, w) for each, w in profile.scorers], profile.picker.name


def names(plugins):
    return [each.name for each in plugins]


def paths(problems):
    return [each.path for each in problems]


def test_an_empty_configuration_gets_everything(config):
    loaded = load_data(config())
    assert profile_of(loaded) == (["cached-media-filter"], [], "max-score-picker")
    assert loaded.router.scheduler.handler.type == "single-profile-handler"
    assert loaded.router.scheduler.num_fallbacks == 2
    assert loaded.router.pricer.name == "token-producer"
    assert loaded.profile == ModelProfile(
        names_as_engine=False,
        dialects=frozenset({"chat", "completions", "responses", "transcriptions", "messages", "generate"}),
    )
    assert loaded.routing == RoutingSpec()
    assert loaded.parsers == ("openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser")
    assert loaded.feature_gates == {"flowControl": False, "haPopulateNonLeaderDatastore": True}
    assert isinstance(loaded.saturation_detector, UtilizationDetector)
    assert loaded.data_layer.metrics == MetricsDataSource()
    assert loaded.data_layer.engines == CoreMetricsExtractor()
    assert loaded.data_layer.discovery is None
    assert loaded.warnings == loaded.missing_plugins == ()
    assert len(loaded.additions) == 8


def test_without_profiles_one_holds_everything_as_declared(config):
    loaded = load_data(config("queue-scorer", "decode-filter", "random-picker", "load-aware-scorer", "encode-filter"))
    assert profile_of(loaded) == (
        ["decode-filter", "encode-filter", "cached-media-filter"],
        [("queue-scorer", 1.0), ("load-aware-scorer", 1.0)],
        "random-picker",
    )


def test_a_profile_without_picker_gets_the_first_that_is_declared(config):
    profiles = [{"name": "default", "plugins": [{"pluginRef": "queue-scorer"}]}]
    declared = ("queue-scorer", {"type": "random-picker", "name": "a"}, "max-score-picker")
    loaded = load_data(config(*declared, schedulingProfiles=profiles))
    assert profile_of(loaded) == (["cached-media-filter"], [("queue-scorer", 1.0)], "a")
    assert paths(loaded.warnings) == ["plugins[2]"]


def test_weights_default_to_one_and_order_is_kept(config):
    entries = [
        {"pluginRef": "b", "weight": 2.5},
        {"pluginRef": "f"},
        {"pluginRef": "a"},
        {"pluginRef": "c", "weight": 0},
    ]
    loaded = load_data(
        config(
            {"type": "queue-scorer", "name": "a"},
            {"type": "queue-scorer", "name": "b"},
            {"type": "load-aware-scorer", "name": "c"},
            {"type": "decode-filter", "name": "f"},
            schedulingProfiles=[{"name": "p", "plugins": entries}],
        )
    )
    assert profile_of(loaded, "p") == (
        ["f", "cached-media-filter"],
        [("b", 2.5), ("a", 1.0), ("c", 0.0)],
        "max-score-picker",
    )


def test_a_default_producer_is_added_for_what_is_read(config):
    loaded = load_data(config("token-load-scorer"))
    assert names(loaded.router.producers) == ["inflight-load-producer"]
    assert names(loaded.router.memories) == ["cached-media-filter", "token-producer", "inflight-load-producer"]
    assert "producer 'inflight-load-producer': 'token-load-scorer' reads InFlightLoad" in loaded.additions


def test_a_named_producer_is_used_and_none_is_added(config):
    loaded = load_data(
        config(
            {"type": "token-load-scorer", "parameters": {"inFlightLoadProducerName": "mine"}},
            {"type": "inflight-load-producer", "name": "mine"},
        )
    )
    assert names(loaded.router.producers) == ["mine"]


def test_a_renamed_producer_does_not_serve_the_default_name(config):
    loaded = load_data(config("token-load-scorer", {"type": "inflight-load-producer", "name": "mine"}))
    assert names(loaded.router.producers) == ["mine", "inflight-load-producer"]


def test_parameters_reach_the_plugin(config):
    loaded = load_data(
        config(
            {"type": "token-load-scorer", "name": "s", "parameters": {"queueThresholdTokens": 7}}, "max-score-picker"
        )
    )
    (scorer, _), *_ = loaded.router.scheduler.profiles["default"].scorers
    assert (scorer.name, scorer.queue_threshold_tokens) == ("s", 7)


def test_each_load_has_memories_of_its_own(config):
    first, second = (load_data(config("active-request-scorer")) for _ in range(2))
    assert first.router.producers[0] is not second.router.producers[0]


def test_routing_takes_quantities(config):
    routing = {"fallbacks": 4, "maxBodyBytes": "1Mi", "maxBodiesInFlightBytes": "1G", "seed": 9}
    loaded = load_data(config(routing=routing))
    assert loaded.routing == RoutingSpec(fallbacks=4, max_body_bytes=1 << 20, max_bodies_in_flight_bytes=10**9, seed=9)
    assert loaded.router.scheduler.num_fallbacks == 4


def test_feature_gates(config):
    gates = ["haPopulateNonLeaderDatastore = False ", "flowControl"]
    loaded = load_data(config(featureGates=gates))
    assert loaded.feature_gates == {"flowControl": True, "haPopulateNonLeaderDatastore": False}
    assert paths(loaded.warnings) == ["featureGates"]


def test_parsers_may_be_named_by_type_or_declared(config):
    handler = {
        "parsers": [{"pluginRef": "mine"}, {"pluginRef": "passthrough-parser"}, {"pluginRef": "vllmhttp-parser"}]
    }
    loaded = load_data(config({"type": "openai-parser", "name": "mine"}, requestHandler=handler))
    assert loaded.parsers == ("openai-parser", "passthrough-parser", "vllmhttp-parser")
    assert [str(each) for each in loaded.warnings] == [
        "requestHandler.parsers: 'vllmhttp-parser' is never asked: 'passthrough-parser' before it claims every path"
    ]


def test_a_second_parser_of_one_type_is_never_asked(config):
    handler = {"parsers": [{"pluginRef": "openai-parser"}, {"pluginRef": "mine"}]}
    loaded = load_data(config({"type": "openai-parser", "name": "mine"}, requestHandler=handler))
    assert loaded.parsers == ("openai-parser",)
    assert "is never asked" in loaded.warnings[0].message


def test_the_detector_may_be_named_by_type_or_declared(config):
    loaded = load_data(config(saturationDetector={"pluginRef": "concurrency-detector"}))
    assert isinstance(loaded.saturation_detector, ConcurrencyDetector)
    assert names(loaded.router.producers) == ["inflight-load-producer"]
    assert paths(loaded.warnings) == ["saturationDetector"]
    mine = {"type": "utilization-detector", "name": "mine", "parameters": {"queueDepthThreshold": 9}}
    profiles = [{"name": "p", "plugins": []}]
    flow = {"saturationDetector": {"pluginRef": "mine"}}
    loaded = load_data(config(mine, flowControl=flow, schedulingProfiles=profiles))
    assert loaded.saturation_detector.queue_depth_threshold == 9
    assert profile_of(loaded, "p") == (["cached-media-filter"], [], "max-score-picker")
    assert loaded.warnings == ()


def test_declared_metrics_plugins_are_wired_when_no_source_is_listed(config):
    engines = [{"name": "mine", "queuedRequestsSpec": "a:b"}]
    loaded = load_data(
        config(
            {"type": "metrics-data-source", "name": "m", "parameters": {"path": "/x", "interval": "100ms", "port": 9}},
            {"type": "core-metrics-extractor", "name": "e", "parameters": {"engineConfigs": engines}},
        )
    )
    assert loaded.data_layer.metrics == MetricsDataSource(path="/x", interval=0.1, port=9)
    assert loaded.data_layer.engines.engine_configs == (EngineConfig(name="mine", queued_requests_spec="a:b"),)
    assert loaded.warnings == ()


def test_without_injected_defaults_no_metrics_are_read(config):
    loaded = load_data(config("queue-scorer", dataLayer={"injectDefaults": False}))
    assert loaded.data_layer.metrics is None


def test_sources_and_discovery_are_taken_as_listed(config):
    sources = [
        {"pluginRef": "models-data-source", "extractors": [{"pluginRef": "models-data-extractor"}]},
        {"pluginRef": "endpoint-notification-source", "extractors": [{"pluginRef": "inflight-load-producer"}]},
        {"pluginRef": "metrics-data-source", "extractors": [{"pluginRef": "core-metrics-extractor"}]},
    ]
    loaded = load_data(
        config(
            "models-data-source",
            "models-data-extractor",
            "endpoint-notification-source",
            "metrics-data-source",
            "core-metrics-extractor",
            "inflight-load-producer",
            {"type": "file-discovery", "parameters": {"path": "e.yaml", "watchFile": True}},
            dataLayer={"sources": sources, "discovery": {"pluginRef": "file-discovery"}},
        )
    )
    assert loaded.data_layer.discovery == FileDiscovery(path="e.yaml", watch_file=True)
    assert loaded.data_layer.models is not None
    assert loaded.warnings == ()
    assert not any("source" in each for each in loaded.additions)


@pytest.mark.parametrize(
    ("sections", "path", "part"),
    [
        ({"flowControl": {"maxRequests": "5k"}}, "flowControl", "feature gate flowControl is off"),
        (
            {"dataLayer": {"crossReplicaSyncerPluginRef": "queue-scorer"}},
            "dataLayer.crossReplicaSyncerPluginRef",
            "ignored",
        ),
        ({"dataLayer": {"peerDiscovery": {"pluginRef": "queue-scorer"}}}, "dataLayer.peerDiscovery", "ignored"),
        (
            {"schedulingProfiles": [{"name": "p", "plugins": [{"pluginRef": "inflight-load-producer"}]}]},
            "schedulingProfiles[0].plugins[0]",
            "works without being listed",
        ),
        (
            {"schedulingProfiles": [{"name": "p", "plugins": [{"pluginRef": "decode-filter", "weight": 2}]}]},
            "schedulingProfiles[0].plugins[0].weight",
            "only scorers are weighted",
        ),
        ({"schedulingProfiles": [{"name": "p"}]}, "plugins[0]", "declared and used nowhere"),
    ],
)
def test_what_has_no_effect_is_a_warning(config, sections, path, part):
    loaded = load_data(config("queue-scorer", "inflight-load-producer", "decode-filter", **sections))
    assert any(each.path == path and part in each.message for each in loaded.warnings), loaded.warnings


def test_two_pricers_are_a_warning_and_the_first_is_asked(config):
    loaded = load_data(config({"type": "token-producer", "name": "a"}, "tokenizer"))
    assert loaded.router.pricer.name == "a"
    assert paths(loaded.warnings) == ["plugins[1].type", "plugins[1]"]


def test_the_effective_configuration_loads_to_the_same(config):
    loaded = load_data(
        config(
            "token-load-scorer",
            {"type": "tokenizer", "parameters": {"estimate": {"image": {"dynamic": {"factor": 0}}}}},
            {"type": "decode-filter", "name": "yes"},
            apiVersion="inference.networking.x-k8s.io/v1alpha1",
            featureGates=["flowControl=F"],
            parser={"pluginRef": "openai-parser"},
            routing=None,
            dataLayer={"sources": None},
        )
    )
    again = load_text(loaded.effective_yaml())
    assert again.effective == loaded.effective
    assert again.additions == again.warnings == ()
    assert again.router.scheduler.num_fallbacks == loaded.router.scheduler.num_fallbacks
    assert loaded.effective["schedulingProfiles"] == [
        {
            "name": "default",
            "plugins": [
                {"pluginRef": "token-load-scorer", "weight": 1.0},
                {"pluginRef": "yes"},
                {"pluginRef": "cached-media-filter"},
                {"pluginRef": "max-score-picker"},
            ],
        }
    ]


def test_a_file_in_json_is_read_too(config, tmp_path: Path):
    import json

    (tmp_path / "c.json").write_text(json.dumps(config("queue-scorer")))
    assert profile_of(load_file(tmp_path / "c.json"))[1] == [("queue-scorer", 1.0)]


@pytest.mark.parametrize(
    ("parser", "dialects"),
    [
        ("passthrough-parser", set()),
        ("openai-parser", {"chat", "completions", "responses", "transcriptions"}),
        ("anthropic-parser", {"messages"}),
        ("vllmhttp-parser", {"generate"}),
    ],
)
def test_only_configured_parsers_read_bodies(parser, dialects) -> None:
    text = f"""
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{{type: random-picker}}, {{type: {parser}}}]
requestHandler: {{parsers: [{{pluginRef: {parser}}}]}}
"""
    assert load_text(text).profile.dialects == dialects


def test_precise_matching_without_a_tokenizer_is_told_to_be_approximate(config):
    loaded = load_data(config("precise-prefix-cache-producer"))
    (told,) = [each for each in loaded.warnings if each.path.endswith("tokenizer")]
    assert "requests carry no token ids" in told.message
    assert loaded.router.renderer is None
    assert loaded.profile.names_as_engine
