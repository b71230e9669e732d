"""What the decorator does to a class, and what it refuses."""

import json
from dataclasses import field
from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

import tessera.core.plugin as plugin_module
from tessera.core.facts import Load
from tessera.core.plugin import (
    GoDuration,
    Range,
    Scorer,
    camel,
    configurable_types,
    params,
    plugin,
    registered,
    seconds,
)


def test_two_spellings_of_a_name():
    spelt = {
        "max_num_of_endpoints": "maxNumOfEndpoints",
        "sample_fps": "sampleFPS",
        "default_source_fps": "defaultSourceFPS",
        "max_ttft_penalty_ms": "maxTTFTPenaltyMs",
        "cache_size_in_mb_per_server": "cacheSizeInMBPerServer",
        "kv_cache_util_threshold": "kvCacheUtilThreshold",
        "headroom": "headroom",
    }
    assert {name: camel(name) for name in spelt} == spelt


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0.0), ("200ms", 0.2), ("5s", 5.0), ("1h30m", 5400.0), ("1.5s", 1.5), (".5s", 0.5),
        ("10us", 1e-5), ("2µs", 2e-6),
    ],
)  # fmt: skip
def test_durations_as_go_writes_them(text, expected):
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "5", "-5s", "5 s", "s", "1h30", "5sec", "1.2.3s", "x5s", "5s\n", "1s" * 33])
def test_other_durations_are_refused(text):
    with pytest.raises(ValueError, match="expected a duration"):
        seconds(text)


@pytest.fixture(autouse=True)
def _registry_of_its_own(monkeypatch):
    monkeypatch.setattr(plugin_module, "_REGISTRY", dict(plugin_module._REGISTRY))


def test_a_class_without_docstring_is_refused():
    with pytest.raises(TypeError, match="needs a docstring"):

        @plugin("undocumented-scorer")
        class Undocumented(Scorer):
            pass

    assert "undocumented-scorer" not in registered(Scorer)


@pytest.mark.parametrize("word", ["queue-scorer", "by-label-selector"])
def test_a_taken_name_is_refused(word):
    with pytest.raises(TypeError, match="is taken by tessera"):

        @plugin(word)
        class Thief(Scorer):
            """Wants another's name."""


def test_fields_are_keyword_parameters_decoded_strictly():
    @params
    class Block:
        """A nested block."""

        half_life: Annotated[float, GoDuration()] = 1.0
        """Until half is gone."""

    @plugin("strict-test-scorer", reads=(Load,), aliases=("strict-test-alias",))
    class Strict(Scorer):
        """Takes parameters."""

        max_items: Annotated[int, Range(ge=1, le=9)] = 3
        """A bounded number."""
        cap: Annotated[int, Range(ge=0)] | None = None
        """Perhaps a number."""
        block: Block = field(default_factory=Block)
        """Nested."""

    assert Strict(max_items=4).max_items == 4
    with pytest.raises(TypeError):
        Strict(4)
    adapter = TypeAdapter(Strict)

    def decode(parameters):
        return adapter.validate_json(json.dumps(parameters))

    made = decode({"maxItems": 9, "cap": 0, "block": {"halfLife": "250ms"}})
    assert (made.max_items, made.cap, made.block.half_life) == (9, 0, 0.25)
    for wrong in ({"maxItems": 10}, {"maxItems": 0}, {"maxItems": "3"}, {"max_items": 3}, {"cap": -1}, {"x": 1}):
        with pytest.raises(ValidationError):
            decode(wrong)
    assert registered(Scorer)["strict-test-alias"] is registered(Scorer)["strict-test-scorer"] is Strict
    assert made.reads_of() == ((Load, "core-metrics-extractor"),)
    assert (Strict.type, made.name) == ("strict-test-scorer", "strict-test-scorer")


def test_dialects_and_families_are_not_for_yaml():
    types = configurable_types()
    assert "queue-scorer" in types
    assert "chat" not in types
    assert "qwen3-vl" not in types
