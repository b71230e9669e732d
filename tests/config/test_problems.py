import pytest

from tessera.config.load import load_data, load_text
from tessera.core.errors import ConfigError, Problem

READS_MINE = {"type": "token-load-scorer", "parameters": {"inFlightLoadProducerName": "mine"}}


def problems_of(data):
    with pytest.raises(ConfigError) as caught:
        load_data(data)
    return list(caught.value.problems)


def profile(*refs, name="p"):
    return {"name": name, "plugins": [{"pluginRef": ref} for ref in refs]}


def test_all_problems_are_told_at_once(config):
    data = config(
        {"type": "queue-scorrer"},
        {"type": "max-score-picker", "name": "p"},
        {"type": "token-producer", "parameters": {"estimate": {"image": {"mode": "dynamc"}}}},
        {"name": "p", "type": "random-picker"},
        {"typ": "queue-scorer"},
        {"type": "token-load-scorer", "parameters": {"queueTresholdTokens": 1}},
        apiVersion="v7",
        featureGates=["flowcontrol"],
        schedulngProfiles=[],
        schedulingProfiles=[profile("queue-scorrer", "que-scorer", "p", "token-load-scorer"), {"plugins": 3}],
        routing={"fallbacks": -1},
    )
    assert [(each.path, each.message) for each in problems_of(data)] == [
        (
            "apiVersion",
            "got 'v7', expected 'llm-d.ai/v1alpha1' or 'llm-d.ai/v1' or 'inference.networking.x-k8s.io/v1alpha1'",
        ),
        ("featureGates[0]", "unknown feature gate 'flowcontrol'; did you mean 'flowControl'?"),
        ("plugins[0].type", "unknown type 'queue-scorrer'; did you mean 'queue-scorer'?"),
        ("plugins[2].parameters.estimate.image.mode", "got 'dynamc', expected 'dynamic' or 'static'"),
        ("plugins[3].name", "'p' is the name of plugins[1] too; change one of them"),
        ("plugins[4].typ", "unknown key; did you mean 'type'? keys here: name, parameters, type"),
        ("plugins[4].type", "missing, expected text"),
        (
            "plugins[5].parameters.queueTresholdTokens",
            "unknown key; did you mean 'queueThresholdTokens'? keys here: inFlightLoadProducerName, "
            "queueThresholdTokens",
        ),
        ("routing.fallbacks", "got -1, expected at least 0"),
        (
            "schedulingProfiles[0].plugins[1].pluginRef",
            "no plugin is named 'que-scorer'; did you mean 'queue-scorrer'?",
        ),
        ("schedulingProfiles[1].name", "missing, expected text"),
        ("schedulingProfiles[1].plugins", "got 3, expected a list"),
        (
            "schedulngProfiles",
            "unknown key; did you mean 'schedulingProfiles'? keys here: apiVersion, dataLayer, featureGates, "
            "flowControl, kind, plugins, requestHandler, routing, schedulingProfiles",
        ),
    ]


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_only_a_mapping_is_a_configuration(data):
    assert problems_of(data)[0].message.endswith("expected a mapping with apiVersion, kind and plugins")


def test_version_and_kind_are_required():
    assert [each.path for each in problems_of({})] == ["apiVersion", "kind"]
    assert problems_of({"apiVersion": "llm-d.ai/v1", "kind": "Pod"}) == [
        Problem("kind", "got 'Pod', expected 'EndpointPickerConfig'")
    ]


@pytest.mark.parametrize(
    ("plugins", "sections", "problem"),
    [
        (
            ["queue-scorer"],
            {"schedulingProfiles": [profile("queue-scorer"), profile("queue-scorer")]},
            ("schedulingProfiles[1].name", "two profiles are named 'p'; change one of them"),
        ),
        (
            ["max-score-picker", "random-picker"],
            {"schedulingProfiles": [profile("max-score-picker", "random-picker")]},
            ("schedulingProfiles[0].plugins[1]", "'max-score-picker' and 'random-picker' are both pickers; keep one"),
        ),
        (
            ["max-score-picker", "random-picker"],
            {},
            ("schedulingProfiles[0]", "'max-score-picker' and 'random-picker' are both pickers; keep one"),
        ),
        (
            ["single-profile-handler", {"type": "single-profile-handler", "name": "b"}],
            {},
            ("plugins[1]", "'b' is a second profile handler beside 'single-profile-handler'; keep one"),
        ),
        (
            ["single-profile-handler", "disagg-profile-handler"],
            {},
            (
                "plugins[1]",
                "'disagg-profile-handler' is a second profile handler beside 'single-profile-handler'; keep one",
            ),
        ),
        (
            [],
            {"schedulingProfiles": [profile(name="a"), profile(name="b")]},
            (
                "schedulingProfiles",
                "got 2 profiles and no handler; declare a profile handler such as disagg-profile-handler, or keep one "
                "profile",
            ),
        ),
        (
            ["single-profile-handler"],
            {"schedulingProfiles": [profile(name="a"), profile(name="b")]},
            ("schedulingProfiles", "got 2 profiles, single-profile-handler runs one; keep one"),
        ),
        (
            [],
            {"schedulingProfiles": [profile("queue-scorer")]},
            (
                "schedulingProfiles[0].plugins[0].pluginRef",
                "no plugin is named 'queue-scorer'; add {type: queue-scorer} to plugins",
            ),
        ),
        (
            [],
            {"schedulingProfiles": [profile("mine")]},
            ("schedulingProfiles[0].plugins[0].pluginRef", "no plugin is named 'mine'; declare it under plugins"),
        ),
        (
            [],
            {"schedulingProfiles": [profile("")]},
            ("schedulingProfiles[0].plugins[0].pluginRef", "got '', expected text of at least 1 characters"),
        ),
        (
            ["queue-scorer"],
            {"requestHandler": {"parsers": [{"pluginRef": "queue-scorer"}]}},
            ("requestHandler.parsers[0].pluginRef", "'queue-scorer' is a scorer, expected a parser"),
        ),
        (
            ["queue-scorer"],
            {"flowControl": {"saturationDetector": {"pluginRef": "queue-scorer"}}},
            (
                "flowControl.saturationDetector.pluginRef",
                "'queue-scorer' is a queue-scorer, expected a detector such as utilization-detector",
            ),
        ),
        (
            ["decode-filter"],
            {"flowControl": {"saturationDetector": {"pluginRef": "decode-filter"}}},
            (
                "flowControl.saturationDetector.pluginRef",
                "'decode-filter' is a decode-filter, expected a detector such as utilization-detector",
            ),
        ),
        (
            ["queue-scorer"],
            {"dataLayer": {"sources": [{"pluginRef": "queue-scorer"}]}},
            ("dataLayer.sources[0].pluginRef", "'queue-scorer' is a scorer, expected a source"),
        ),
        (
            ["metrics-data-source", "models-data-extractor"],
            {
                "dataLayer": {
                    "sources": [
                        {"pluginRef": "metrics-data-source", "extractors": [{"pluginRef": "models-data-extractor"}]}
                    ]
                }
            },
            (
                "dataLayer.sources[0].extractors[0].pluginRef",
                "'models-data-extractor' reads a models-data-source, 'metrics-data-source' is a metrics-data-source",
            ),
        ),
        (
            ["metrics-data-source", "core-metrics-extractor", {"type": "core-metrics-extractor", "name": "b"}],
            {
                "dataLayer": {
                    "sources": [
                        {
                            "pluginRef": "metrics-data-source",
                            "extractors": [{"pluginRef": "core-metrics-extractor"}, {"pluginRef": "b"}],
                        }
                    ]
                }
            },
            (
                "dataLayer.sources[0].extractors[1].pluginRef",
                "a second extractor of type core-metrics-extractor on this source; keep one",
            ),
        ),
        (
            ["metrics-data-source"],
            {"dataLayer": {"sources": [{"pluginRef": "metrics-data-source"}] * 2}},
            ("dataLayer.sources[1].pluginRef", "source 'metrics-data-source' is listed twice; keep one"),
        ),
        (
            ["queue-scorer"],
            {"dataLayer": {"discovery": {"pluginRef": "queue-scorer"}}},
            ("dataLayer.discovery.pluginRef", "'queue-scorer' is a scorer, expected a discovery"),
        ),
        ([{"type": "file-discovery"}], {}, ("plugins[0].parameters.path", "missing, expected text")),
        (
            [{"type": "decode-filter", "parameters": {"role": "x"}}],
            {},
            ("plugins[0].parameters.role", "unknown key; no keys are known here"),
        ),
        (
            [{"type": "label-selector-filter", "parameters": {"matchExpressions": [{"key": "a", "operator": "In"}]}}],
            {},
            (
                "plugins[0].parameters.matchExpressions[0].values",
                "In takes at least one value, got 0",
            ),
        ),
        (
            [],
            {"featureGates": ["flowControl=maybe"]},
            ("featureGates[0]", "got 'flowControl=maybe', expected flowControl=true or flowControl=false"),
        ),
        (
            [],
            {"routing": {"maxBodyBytes": 100, "maxBodiesInFlightBytes": 99}},
            ("routing.maxBodiesInFlightBytes", "got 99, expected at least maxBodyBytes, 100"),
        ),
        (
            [],
            {"flowControl": {"priorityBands": [{"priority": 1}, {"priority": 2}, {"priority": 1}]}},
            ("flowControl.priorityBands[2].priority", "a second band of priority 1"),
        ),
        ([], {"flowControl": {"maxBytes": "-1"}}, ("flowControl.maxBytes", "got -1, expected at least 0")),
        (
            [],
            {"flowControl": {"usageLimitPolicyPluginRef": "mine"}},
            ("flowControl.usageLimitPolicyPluginRef", "no plugin is named 'mine'; declare it under plugins"),
        ),
        (
            [READS_MINE, "inflight-load-producer"],
            {},
            (
                "plugins[0]",
                "'token-load-scorer' reads InFlightLoad of 'mine', expected one of inflight-load-producer",
            ),
        ),
        (
            [{"type": "token-load-scorer", "parameters": {"inFlightLoadProducerName": "queue-scorer"}}, "queue-scorer"],
            {},
            (
                "plugins[0]",
                "'token-load-scorer' reads InFlightLoad, which 'queue-scorer' does not produce: it is a queue-scorer",
            ),
        ),
        (
            [{"type": "queue-scorer", "name": "token-producer"}],
            {},
            ("plugins[0]", "a token-producer has to be added, but queue-scorer has its name; rename that"),
        ),
    ],
)
def test_each_rule_has_its_problem(config, plugins, sections, problem):
    assert problems_of(config(*plugins, **sections)) == [Problem(*problem)]


def test_policies_of_llm_d_may_be_named_undeclared(config):
    bands = [{"priority": 1, "fairnessPolicyRef": "round-robin-fairness-policy"}]
    load_data(config(flowControl={"usageLimitPolicyPluginRef": "static-usage-limit-policy", "priorityBands": bands}))


def test_duplicate_keys_of_the_text_are_refused():
    with pytest.raises(ConfigError, match=r"plugins\[0\]\.type: key stands twice"):
        load_text("plugins:\n- type: a\n  type: b\n")


def test_a_hopeless_file_is_not_read_to_its_end(config):
    assert len(problems_of(config(*["x"] * 5000))) == 100
    assert len(problems_of(config(*[f"kind-{n}" for n in range(5000)]))) == 100
