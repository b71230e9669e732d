import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest

from tessera.config.describe import Parameter, describe_routing, describe_type, describe_types, types_we_lack
from tessera.core.plugin import GoDuration, Range, Scorer, params, plugin

ROOT = Path(__file__).parents[2]


def by_name(parameters):
    return {each.name: each for each in parameters}


def test_every_type_says_what_it_is():
    for each in describe_types(of_package="tessera."):
        assert each.text, each.type
        assert each.module.startswith("tessera.")


@pytest.mark.parametrize("each", describe_types(of_package="tessera."), ids=lambda each: each.type)
def test_every_parameter_says_what_it_means(each):
    assert [parameter.name for parameter in each.parameters if not parameter.text] == []


def test_parameters_are_told_as_yaml_has_them():
    found = by_name(describe_type("token-producer").parameters)
    assert found["estimate.image.mode"] == Parameter(
        name="estimate.image.mode",
        type="dynamic or static",
        default="dynamic",
        bounds="",
        text=found["estimate.image.mode"].text,
    )
    factor = found["estimate.image.dynamic.factor"]
    assert (factor.type, factor.default, factor.bounds) == ("integer", "1024", "at least 1")
    assert found["estimate.video.frames.sampled.sampleFPS"].bounds == "more than 0"
    assert by_name(describe_type("file-discovery").parameters)["path"].default == "required"
    assert by_name(describe_type("metrics-data-source").parameters)["interval"].default == "50ms"
    assert by_name(describe_type("core-metrics-extractor").parameters)["engineConfigs[].name"].default == "required"
    assert by_name(describe_routing())["maxBodyBytes"].type == "quantity"


def test_facts_and_aliases_are_told():
    found = describe_type("token-load-scorer")
    assert found.reads == ("InFlightLoad (inflight-load-producer)",)
    assert found.optional_reads == ("PrefixMatch (approx-prefix-cache-producer)",)
    assert describe_type("inflight-load-producer").produces == "InFlightLoad"
    assert describe_type("by-label-selector").type == "label-selector-filter"
    assert describe_type("no-such-type") is None


def test_a_stranger_s_plugin_is_described_and_kept_out_of_our_pages(registry):
    @params
    class Block:
        """A block."""

        wait: Annotated[float, GoDuration()] = 90.0
        """How long
        to wait."""

    @plugin("their-scorer", aliases=("theirs",))
    class TheirScorer(Scorer):
        """Theirs."""

        share: Annotated[float, Range(ge=0, le=1)] = 0.5
        """A share."""
        blocks: tuple[Block, ...] = ()
        by_name: dict[str, int] | None = None

    found = describe_type("theirs")
    assert [(each.name, each.type, each.default, each.bounds, each.text) for each in found.parameters] == [
        ("share", "number", "0.5", "at least 0, at most 1", "A share."),
        ("blocks", "list of blocks", "", "", ""),
        ("blocks[].wait", "duration", "90s", "", "How long to wait."),
        ("byName", "mapping to integer", "", "", ""),
    ]
    assert "their-scorer" in {each.type for each in describe_types()}
    assert "their-scorer" not in {each.type for each in describe_types(of_package="tessera.")}


def test_what_we_lack_is_told_with_its_kind():
    lacked = types_we_lack()
    assert lacked["predicted-latency-producer"] == "producer"
    assert "queue-scorer" not in lacked
    assert "openai-parser" not in lacked
    assert "pd-profile-handler" not in lacked


def test_the_pages_are_current(tmp_path: Path):
    script = ROOT / "tools" / "plugin_docs.py"
    subprocess.run([sys.executable, script, tmp_path], check=True, timeout=60)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "docs" / "plugins").glob("*.md")}
    assert made == kept, "docs/plugins is not what the plugins say: run `make docs`"
