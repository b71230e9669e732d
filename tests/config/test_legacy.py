import copy

import pytest

from tessera.config.legacy import API_VERSIONS, modernise
from tessera.core.errors import Problem


def one(type_name, parameters=None, **entry):
    """The only plugin of a configuration, rewritten, and the warnings."""
    data = {"plugins": [{"type": type_name, "parameters": parameters or {}, **entry}]}
    before = copy.deepcopy(data)
    made, warnings = modernise(data)
    assert data == before
    return made["plugins"][0], warnings


@pytest.mark.parametrize("version", API_VERSIONS)
def test_each_accepted_version_becomes_ours(version):
    made, warnings = modernise({"apiVersion": version})
    assert made["apiVersion"] == "llm-d.ai/v1alpha1"
    assert [each.path for each in warnings] == (["apiVersion"] if version.startswith("inference.") else [])


def test_an_unknown_version_is_left_for_the_schema():
    assert modernise({"apiVersion": "v2"})[0]["apiVersion"] == "v2"


def test_parser_is_folded():
    made, warnings = modernise({"parser": {"pluginRef": "a"}})
    assert made == {"requestHandler": {"parsers": [{"pluginRef": "a"}]}}
    assert [each.path for each in warnings] == ["parser"]
    made, _ = modernise({"parser": {"pluginRef": "a"}, "requestHandler": {"parsers": [{"pluginRef": "b"}]}})
    assert made == {"requestHandler": {"parsers": [{"pluginRef": "b"}]}}
    assert modernise({"parser": None})[0] == {}


def test_saturation_detector_is_folded():
    made, warnings = modernise({"saturationDetector": {"pluginRef": "a"}, "flowControl": None})
    assert made == {"flowControl": {"saturationDetector": {"pluginRef": "a"}}}
    assert [each.path for each in warnings] == ["saturationDetector"]
    made, warnings = modernise(
        {"saturationDetector": {"pluginRef": "a"}, "flowControl": {"saturationDetector": {"pluginRef": "b"}}}
    )
    assert made == {"flowControl": {"saturationDetector": {"pluginRef": "b"}}}
    assert "ignored" in warnings[0].message


def test_a_deprecated_type_keeps_the_name_by_which_it_is_referred_to():
    entry, warnings = one("tokenizer")
    assert entry == {"type": "token-producer", "name": "tokenizer", "parameters": {}}
    assert warnings == [Problem("plugins[0].type", "tokenizer is deprecated; write token-producer")]
    assert one("by-label-selector", {"matchLabels": {"a": "b"}}, name="x")[0] == {
        "type": "label-selector-filter",
        "name": "x",
        "parameters": {"matchLabels": {"a": "b"}},
    }


def test_by_label_becomes_a_selector_where_a_selector_can_say_it():
    entry, _ = one("by-label", {"label": "zone", "validValues": ["a", "b"]})
    requirement = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    assert entry == {
        "type": "label-selector-filter",
        "name": "by-label",
        "parameters": {"matchExpressions": [requirement]},
    }
    entry, warnings = one("by-label", {"label": "zone", "validValues": ["a"], "allowsNoLabel": True})
    assert entry["type"] == "by-label"
    assert warnings == []


def test_the_old_precise_scorer_becomes_a_producer_and_a_scorer_bound_to_it():
    made, warnings = modernise({"plugins": [{"type": "precise-prefix-cache-scorer", "parameters": {"a": 1}}]})
    bound = {"prefixMatchInfoProducerName": "precise-prefix-cache-producer"}
    assert made["plugins"] == [
        {"type": "prefix-cache-scorer", "name": "precise-prefix-cache-scorer", "parameters": bound},
        {"type": "precise-prefix-cache-producer", "parameters": {"a": 1}},
    ]
    assert [each.path for each in warnings] == ["plugins[0].type"]


def test_the_old_precise_scorer_is_bound_to_a_producer_that_is_there():
    producer = {"type": "precise-prefix-cache-producer", "name": "p"}
    made, _ = modernise({"plugins": [{"type": "precise-prefix-cache-scorer"}, producer]})
    assert made["plugins"][0]["parameters"] == {"prefixMatchInfoProducerName": "p"}
    assert made["plugins"][1:] == [producer]


@pytest.mark.parametrize(
    ("type_name", "old", "new"),
    [
        ("mm-embeddings-cache-producer", {"cacheSizeInMB": 2048}, {"cacheSizeInMBPerServer": 2048}),
        ("approx-prefix-cache-producer", {"blockSize": 16}, {"blockSizeTokens": 16}),
        (
            "precise-prefix-cache-producer",
            {"tokenProcessorConfig": {"blockSize": 16}},
            {"tokenProcessorConfig": {"blockSizeTokens": 16}},
        ),
        (
            "disagg-profile-handler",
            {"decodeProfile": "d", "encodeDeciderPluginName": "e"},
            {"profiles": {"decode": "d"}, "deciders": {"encode": "e"}},
        ),
    ],
)
def test_old_keys_are_read_as_the_new_ones(type_name, old, new):
    entry, warnings = one(type_name, old)
    assert entry["parameters"] == new
    assert [each.path.startswith("plugins[0].parameters.") for each in warnings] == [True] * len(old)


def test_an_old_key_beside_the_new_one_is_left_to_be_refused():
    parameters = {"cacheSizeInMB": 1, "cacheSizeInMBPerServer": 2}
    assert one("mm-embeddings-cache-producer", parameters) == (
        {"type": "mm-embeddings-cache-producer", "parameters": parameters},
        [],
    )


@pytest.mark.parametrize(
    ("parameters", "penalty"),
    [
        ({"maxTokensInFlightPenalty": 286_704}, 18_000),
        ({"maxTokensInFlightPenalty": 567_036, "peakPrefillThroughput": 15_751}, 36_000),
        ({"maxTokensInFlightPenalty": 286_704, "peakPrefillThroughput": None}, 18_000),
        ({"maxTokensInFlightPenalty": 1}, 1),
        ({"maxTokensInFlightPenalty": 0}, 0),
        ({"maxTokensInFlightPenalty": -7}, -1),
        ({"maxTokensInFlightPenalty": 1e308, "peakPrefillThroughput": 1e-300}, 10**15),
    ],
)
def test_the_penalty_in_tokens_becomes_one_in_time(parameters, penalty):
    entry, warnings = one("prefix-cache-affinity-filter", parameters)
    assert entry["parameters"]["maxTTFTPenaltyMs"] == penalty
    assert "maxTokensInFlightPenalty" not in entry["parameters"]
    assert [each.path for each in warnings] == ["plugins[0].parameters.maxTokensInFlightPenalty"]


def test_a_penalty_that_is_no_number_is_left_to_be_refused():
    parameters = {"maxTokensInFlightPenalty": "many"}
    assert one("prefix-cache-affinity-filter", parameters)[0]["parameters"] == parameters


@pytest.mark.parametrize("value", [0, -1, 0.0])
@pytest.mark.parametrize(
    ("type_name", "path"),
    [
        ("max-score-picker", "maxNumOfEndpoints"),
        ("random-picker", "maxNumOfEndpoints"),
        ("weighted-random-picker", "maxNumOfEndpoints"),
        ("token-load-scorer", "queueThresholdTokens"),
        ("mm-embeddings-cache-producer", "cacheSizeInMBPerServer"),
        ("token-producer", "estimate.image.dynamic.factor"),
        ("token-producer", "estimate.image.static.staticToken"),
        ("token-producer", "estimate.image.defaultResolution.width"),
        ("token-producer", "estimate.video.frames.sampled.sampleFPS"),
        ("token-producer", "estimate.video.frames.strided.frameStride"),
    ],
)
def test_zero_or_less_means_the_default_to_llm_d(type_name, path, value):
    *way, key = path.split(".")
    parameters = {key: value}
    for step in reversed(way):
        parameters = {step: parameters}
    entry, warnings = one(type_name, parameters)
    assert [each.path for each in warnings] == [f"plugins[0].parameters.{path}"]
    block = entry["parameters"]
    for step in way:
        block = block[step]
    assert block == {}


def test_zero_is_no_limit_where_it_says_so():
    parameters = {"estimate": {"video": {"maxVideoTokens": 0, "frames": {"minFrames": 0, "maxFrames": -1}}}}
    entry, warnings = one("token-producer", parameters)
    assert entry["parameters"] == {"estimate": {"video": {"maxVideoTokens": 0, "frames": {"minFrames": 0}}}}
    assert [each.path for each in warnings] == ["plugins[0].parameters.estimate.video.frames.maxFrames"]


@pytest.mark.parametrize(("value", "kept"), [(1.5, False), (-0.1, False), (0, True), (1, True), (True, True)])
def test_a_busy_score_outside_its_range_means_the_default(value, kept):
    assert one("active-request-scorer", {"maxBusyScore": value})[0]["parameters"] == (
        {"maxBusyScore": value} if kept else {}
    )


def test_render_services_are_ignored_and_the_warning_says_what_to_set():
    entry, warnings = one("token-producer", {"modelName": "m", "vllm": {"http": "u"}, "udsTokenizerConfig": {}})
    assert entry["parameters"] == {}
    assert {each.path for each in warnings} == {
        f"plugins[0].parameters.{key}" for key in ("modelName", "vllm", "udsTokenizerConfig")
    }
    assert all("tokenizer: {path: ...}" in each.message for each in warnings)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"plugins": None},
        {"plugins": 3},
        {"plugins": [None, 3, {}, {"type": 3}, {"type": "tokenizer", "parameters": 3, "name": 5}]},
        {"parser": 3, "requestHandler": 4, "saturationDetector": [], "flowControl": 5, "apiVersion": []},
        {"plugins": [{"type": "by-label", "parameters": []}, {"type": "precise-prefix-cache-scorer", "name": []}]},
        {"plugins": [{"type": "token-producer", "parameters": {"estimate": [], "vllm": None}}]},
        {"plugins": [{"type": "precise-prefix-cache-producer", "parameters": {"tokenProcessorConfig": 3}}]},
    ],
)
def test_any_shape_is_stood(data):
    modernise(data)


def test_the_old_handler_of_two_stages_is_one_of_three():
    data = {
        "plugins": [
            {"type": "pd-profile-handler", "parameters": {"prefillProfile": "p", "primaryPort": 8000}},
            {"type": "decode-filter"},
        ]
    }
    made, warnings = modernise(data)
    assert made["plugins"] == [
        {
            "type": "disagg-profile-handler",
            "name": "pd-profile-handler",
            "parameters": {"profiles": {"prefill": "p"}, "deciders": {"prefill": "prefix-based-pd-decider"}},
        },
        {"type": "decode-filter"},
        {"type": "prefix-based-pd-decider"},
    ]
    told = [each.path for each in warnings]
    assert "plugins[0].type" in told
    assert "plugins[0].parameters.primaryPort" in told
    named = {"type": "pd-profile-handler", "parameters": {"deciderPluginName": "mine"}}
    made, _ = modernise({"plugins": [named]})
    assert [each.get("parameters") for each in made["plugins"]] == [{"deciders": {"prefill": "mine"}}]
