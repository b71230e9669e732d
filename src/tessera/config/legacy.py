"""How was it spelled before? Older configurations, rewritten to today's keys, each with a warning.

Only this file knows history. It works on plain data before anything is decoded, so
it must stand any shape: what it does not recognise it leaves for the strict
decoder to refuse. A rewrite never overrides the new spelling where both are there.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from tessera.config.blocks import seen
from tessera.config.paths import join
from tessera.config.schema import API_VERSION
from tessera.core.errors import Problem

API_VERSIONS = ("llm-d.ai/v1alpha1", "llm-d.ai/v1", "inference.networking.x-k8s.io/v1alpha1")
"""Accepted versions; the last is deprecated in llm-d, the second is that of its newest guides."""

_RENAMED_TYPES = {
    "tokenizer": "token-producer",
    "by-label-selector": "label-selector-filter",
    "pd-profile-handler": "disagg-profile-handler",
}
OLD_TYPES = frozenset({*_RENAMED_TYPES, "precise-prefix-cache-scorer"})
"""Type names of llm-d's that are read as newer ones, whatever their parameters."""
_PD_DECIDER = "prefix-based-pd-decider"
"""What ``pd-profile-handler`` asks where it names nobody."""
_PD_IGNORED: Mapping[str, str] = {
    "primaryPort": "ports are those of the endpoints file",
    "prefixPluginType": "the decider knows which prefix matches count",
    "prefixPluginName": "the decider knows which prefix matches count",
    "prefixMatchInfoProducerName": f"it is a parameter of {_PD_DECIDER}",
}

_RENAMED_KEYS: Mapping[str, Mapping[str, str]] = {
    "approx-prefix-cache-producer": {"blockSize": "blockSizeTokens"},
    "mm-embeddings-cache-producer": {"cacheSizeInMB": "cacheSizeInMBPerServer"},
    "precise-prefix-cache-producer": {"tokenProcessorConfig.blockSize": "tokenProcessorConfig.blockSizeTokens"},
    "disagg-profile-handler": {
        "decodeProfile": "profiles.decode",
        "prefillProfile": "profiles.prefill",
        "encodeProfile": "profiles.encode",
        "prefillDeciderPluginName": "deciders.prefill",
        "deciderPluginName": "deciders.prefill",
        "encodeDeciderPluginName": "deciders.encode",
    },
}

_NO_RENDER = (
    "no render service is called: remove it; for exact tokens set tokenizer: {path: ...} to a tokenizer.json "
    "or a model folder"
)
_IGNORED_KEYS: Mapping[str, Mapping[str, str]] = {
    "token-producer": {"vllm": _NO_RENDER, "modelName": _NO_RENDER, "udsTokenizerConfig": _NO_RENDER},
}

_VIDEO = "estimate.video"
_ZERO_IS_DEFAULT: Mapping[str, tuple[str, ...]] = {
    "token-producer": (
        "estimate.image.dynamic.factor",
        "estimate.image.static.staticToken",
        "estimate.image.defaultResolution.width",
        "estimate.image.defaultResolution.height",
        f"{_VIDEO}.defaultResolution.width",
        f"{_VIDEO}.defaultResolution.height",
        f"{_VIDEO}.defaultDuration",
        f"{_VIDEO}.tokensPerFrame.dynamic.factor",
        f"{_VIDEO}.tokensPerFrame.static.numTokensPerFrame",
        f"{_VIDEO}.frames.sampled.sampleFPS",
        f"{_VIDEO}.frames.sampled.temporalPatchSize",
        f"{_VIDEO}.frames.strided.frameStride",
        f"{_VIDEO}.frames.strided.defaultSourceFPS",
    ),
    "token-load-scorer": ("queueThresholdTokens",),
    "mm-embeddings-cache-producer": ("cacheSizeInMBPerServer",),
    "max-score-picker": ("maxNumOfEndpoints",),
    "random-picker": ("maxNumOfEndpoints",),
    "weighted-random-picker": ("maxNumOfEndpoints",),
}
_NEGATIVE_IS_DEFAULT: Mapping[str, tuple[str, ...]] = {
    "token-producer": (f"{_VIDEO}.frames.minFrames", f"{_VIDEO}.frames.maxFrames", f"{_VIDEO}.maxVideoTokens"),
}
_OUTSIDE_0_1_IS_DEFAULT: Mapping[str, tuple[str, ...]] = {"active-request-scorer": ("maxBusyScore",)}

_PEAK_PREFILL_THROUGHPUT = 15_928
"""Tokens a second: the default of ``prefix-cache-affinity-filter``."""

Warnings = list[Problem]


def modernise(data: Mapping[str, Any]) -> tuple[dict[str, Any], Warnings]:
    """The configuration in today's spelling, and a warning for each thing that was rewritten.

    ``data`` is plain (``document.check``) and stays as it is.
    """
    made: dict[str, Any] = json.loads(json.dumps(data))
    warnings: Warnings = []
    _api_version(made, warnings)
    _fold_parser(made, warnings)
    _fold_detector(made, warnings)
    entries = made.get("plugins")
    if isinstance(entries, list):
        for index, entry in enumerate(list(entries)):
            if isinstance(entry, dict) and isinstance(entry.get("type"), str):
                _entry(entry, entries, f"plugins[{index}]", warnings)
    return made, warnings


def _api_version(data: dict[str, Any], warnings: Warnings) -> None:
    version = data.get("apiVersion")
    if version in API_VERSIONS:
        if version == API_VERSIONS[-1]:
            warnings.append(Problem("apiVersion", f"{version} is deprecated; write {API_VERSION}"))
        data["apiVersion"] = API_VERSION


def _fold_parser(data: dict[str, Any], warnings: Warnings) -> None:
    old = data.pop("parser", None)
    handler = _block(data, "requestHandler") if old is not None else None
    if handler is None:
        return
    if handler.get("parsers"):
        warnings.append(Problem("parser", "ignored beside requestHandler.parsers; remove it"))
    else:
        handler["parsers"] = [old]
        warnings.append(Problem("parser", "deprecated; write requestHandler: {parsers: [{pluginRef: ...}]}"))


def _fold_detector(data: dict[str, Any], warnings: Warnings) -> None:
    old = data.pop("saturationDetector", None)
    flow_control = _block(data, "flowControl") if old is not None else None
    if flow_control is None:
        return
    if flow_control.get("saturationDetector"):
        warnings.append(Problem("saturationDetector", "ignored beside flowControl.saturationDetector; remove it"))
    else:
        flow_control["saturationDetector"] = old
        warnings.append(Problem("saturationDetector", "deprecated; move it below flowControl"))


def _block(data: dict[str, Any], key: str) -> dict[str, Any] | None:
    """The mapping at ``key``, made where there is none; nothing where something else is there."""
    if data.get(key) is None:
        data[key] = {}
    block = data[key]
    return block if isinstance(block, dict) else None


def _entry(entry: dict[str, Any], entries: list[Any], path: str, warnings: Warnings) -> None:
    if entry["type"] == "pd-profile-handler":
        _pd_handler(entry, entries, path, warnings)
    _type(entry, path, warnings)
    if entry["type"] == "precise-prefix-cache-scorer":
        _split_precise_scorer(entry, entries, path, warnings)
    parameters = entry.get("parameters")
    if not isinstance(parameters, dict):
        return
    path = f"{path}.parameters"
    type_name = entry["type"]
    for key, why in _IGNORED_KEYS.get(type_name, {}).items():
        if key in parameters:
            del parameters[key]
            warnings.append(Problem(join(path, key), f"ignored, {why}"))
    for old, new in _RENAMED_KEYS.get(type_name, {}).items():
        _rename(parameters, old, new, path, warnings)
    if type_name == "prefix-cache-affinity-filter":
        _token_penalty(parameters, path, warnings)
    _drop(parameters, _ZERO_IS_DEFAULT.get(type_name, ()), lambda value: value <= 0, path, warnings)
    _drop(parameters, _NEGATIVE_IS_DEFAULT.get(type_name, ()), lambda value: value < 0, path, warnings)
    _drop(parameters, _OUTSIDE_0_1_IS_DEFAULT.get(type_name, ()), lambda value: not 0 <= value <= 1, path, warnings)


def _type(entry: dict[str, Any], path: str, warnings: Warnings) -> None:
    old = entry["type"]
    parameters = entry.get("parameters") or {}
    if old in _RENAMED_TYPES:
        entry["type"] = _RENAMED_TYPES[old]
    elif old == "by-label" and isinstance(parameters, dict) and not parameters.get("allowsNoLabel"):
        # With allowsNoLabel it means "one of these values or none", which no selector can say.
        requirement = {"key": parameters.get("label"), "operator": "In", "values": parameters.get("validValues")}
        rest = {key: value for key, value in parameters.items() if key not in _BY_LABEL}
        entry["type"], entry["parameters"] = "label-selector-filter", rest | {"matchExpressions": [requirement]}
    else:
        return
    entry["name"] = entry.get("name") or old
    warnings.append(Problem(f"{path}.type", f"{old} is deprecated; write {entry['type']}"))


def _pd_handler(entry: dict[str, Any], entries: list[Any], path: str, warnings: Warnings) -> None:
    """The old handler of two stages always had a decider."""
    parameters = entry.get("parameters") or {}
    if not isinstance(parameters, dict):
        return
    for key, why in _PD_IGNORED.items():
        if parameters.pop(key, None) is not None:
            warnings.append(Problem(f"{path}.parameters.{key}", f"ignored: {why}; remove it"))
    if not parameters.get("deciderPluginName") and "deciders" not in parameters:
        parameters["deciderPluginName"] = _PD_DECIDER
        names = [each.get("name") or each.get("type") for each in entries if isinstance(each, dict)]
        if _PD_DECIDER not in names:
            entries.append({"type": _PD_DECIDER})
    entry["parameters"] = parameters


_BY_LABEL = {"label", "validValues", "allowsNoLabel"}


def _split_precise_scorer(entry: dict[str, Any], entries: list[Any], path: str, warnings: Warnings) -> None:
    """The old scorer that held its own producer becomes a producer and a scorer bound to it."""
    producer = "precise-prefix-cache-producer"
    declared = [each for each in entries if isinstance(each, dict) and each.get("type") == producer]
    name = (declared[0].get("name") or producer) if declared else producer
    if not declared:
        entries.append({"type": producer, "parameters": entry.get("parameters") or {}})
    entry["name"] = entry.get("name") or entry["type"]
    entry["type"] = "prefix-cache-scorer"
    entry["parameters"] = {"prefixMatchInfoProducerName": name}
    where = f"{name} and a prefix-cache-scorer with prefixMatchInfoProducerName: {name}"
    warnings.append(Problem(f"{path}.type", f"precise-prefix-cache-scorer is deprecated; write {where}"))


def _rename(parameters: dict[str, Any], old: str, new: str, path: str, warnings: Warnings) -> None:
    old_block, old_key = _reach(parameters, old)
    if old_block is None or old_key not in old_block:
        return
    new_block, new_key = _reach(parameters, new, make=True)
    if new_block is None or new_key in new_block:
        return
    new_block[new_key] = old_block.pop(old_key)
    warnings.append(Problem(f"{path}.{old}", f"read as {new}; write that"))


def _token_penalty(parameters: dict[str, Any], path: str, warnings: Warnings) -> None:
    """``maxTokensInFlightPenalty`` in tokens is ``maxTTFTPenaltyMs / 1000 * peakPrefillThroughput``."""
    old, new = "maxTokensInFlightPenalty", "maxTTFTPenaltyMs"
    tokens = parameters.get(old)
    peak = parameters.get("peakPrefillThroughput")
    peak = _PEAK_PREFILL_THROUGHPUT if peak is None else peak
    if new in parameters or not _is_number(tokens) or not _is_number(peak) or peak <= 0:
        return
    del parameters[old]
    # Zero milliseconds means "always stick", which a small penalty must not become.
    penalty = max(1, round(min(tokens * 1000 / peak, 1e15))) if tokens > 0 else round(max(tokens, -1))
    parameters[new] = penalty
    warnings.append(Problem(f"{path}.{old}", f"read as {new}: {penalty} at {seen(peak)} tokens a second; write that"))


def _drop(
    parameters: dict[str, Any],
    keys: tuple[str, ...],
    means_default: Callable[[float], bool],
    path: str,
    warnings: Warnings,
) -> None:
    for each in keys:
        block, key = _reach(parameters, each)
        value = block.get(key) if block is not None else None
        if block is not None and _is_number(value) and means_default(value):
            del block[key]
            what = f"got {seen(value)}, which llm-d takes as its default; the default is used, remove the key"
            warnings.append(Problem(f"{path}.{each}", what))


def _reach(parameters: dict[str, Any], dotted: str, *, make: bool = False) -> tuple[dict[str, Any] | None, str]:
    """The mapping that holds the last key of a dotted path, and that key; nothing where the way is barred."""
    *way, key = dotted.split(".")
    block: Any = parameters
    for step in way:
        if make and isinstance(block, dict) and block.get(step) is None:
            block[step] = {}
        block = block.get(step) if isinstance(block, dict) else None
    return (block, key) if isinstance(block, dict) else (None, key)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
