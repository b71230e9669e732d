"""Whatever the data, there is a configuration or a ConfigError."""

from copy import deepcopy
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.config.describe import describe_types
from tessera.config.document import parse
from tessera.config.llmd_types import LLMD_TYPES
from tessera.config.load import load_data, load_text
from tessera.core.errors import ConfigError

EXAMPLES = Path(__file__).parents[2] / "examples"
SAMPLES = [parse(path.read_text()) for path in sorted(EXAMPLES.glob("*.yaml")) if not path.name.startswith("endpoints")]
TYPES = sorted({each.type for each in describe_types(of_package="tessera.")} | LLMD_TYPES.keys())
KEYS = sorted(
    {part for each in describe_types(of_package="tessera.") for p in each.parameters for part in p.name.split(".")}
    | {"pluginRef", "name", "type", "parameters", "weight", "plugins", "vllm", "blockSize", "cacheSizeInMB"}
)
SECTIONS = [
    *("apiVersion", "kind", "featureGates", "plugins", "schedulingProfiles", "dataLayer", "flowControl"),
    *("requestHandler", "saturationDetector", "parser", "routing", "other"),
]

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from([*TYPES, "default", "decode", "llm-d.ai/v1", "EndpointPickerConfig", "64Mi", "5s", "", 0, -1]),
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
entries = st.fixed_dictionaries(
    {},
    optional={"type": st.sampled_from(TYPES) | leaves, "name": st.sampled_from("abc") | leaves, "parameters": values},
)
lines = st.fixed_dictionaries({}, optional={"pluginRef": st.sampled_from([*TYPES, *"abc"]), "weight": leaves})
profiles = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["decode", "encode", "p"]) | leaves,
        "plugins": st.lists(lines | values, max_size=4),
    },
)
sound_entries = st.fixed_dictionaries({"type": st.sampled_from(TYPES)})
references = st.fixed_dictionaries({"pluginRef": st.sampled_from([*TYPES, *"abc"])})
configurations = st.fixed_dictionaries(
    {"apiVersion": st.just("llm-d.ai/v1alpha1") | leaves, "kind": st.just("EndpointPickerConfig") | leaves},
    optional={
        "plugins": st.lists(entries | sound_entries | values, max_size=8) | values,
        "schedulingProfiles": st.lists(profiles, max_size=3) | values,
        "dataLayer": st.fixed_dictionaries({"sources": st.lists(references, max_size=2)}) | values,
        "flowControl": values,
        "requestHandler": st.fixed_dictionaries({"parsers": st.lists(references, max_size=3)}) | values,
        "saturationDetector": references | values,
        "parser": references | values,
        "featureGates": st.lists(st.sampled_from(["flowControl", "flowControl=false", "x"])) | values,
        "routing": values,
    },
)


def loads_or_says_why(data):
    for ignore_missing in (False, True):
        try:
            loaded = load_data(data, ignore_missing=ignore_missing)
        except ConfigError as error:
            told = [each for each in error.problems if each.message]
        else:
            told = [load_text(loaded.effective_yaml(), ignore_missing=ignore_missing).effective == loaded.effective]
        assert told
        assert all(told)


@given(st.dictionaries(st.sampled_from(SECTIONS) | st.text(max_size=4), values, max_size=6) | values)
@settings(deadline=None)
def test_any_data(data):
    loads_or_says_why(data)


@given(configurations)
@settings(deadline=None)
def test_anything_that_looks_like_a_configuration(data):
    loads_or_says_why(data)


@st.composite
def sound_configurations(draw):
    """Plugins of any types, and profiles that refer to them; what is wrong is how they go together."""
    types = draw(st.lists(st.sampled_from(TYPES), max_size=8, unique=True))
    handlers = [each for each in types if each.endswith("handler")]
    plugins = [{"type": each} for each in types if each not in handlers[1:]]
    for each in plugins:
        if draw(st.booleans()):
            each["name"] = f"my-{each['type']}"
        if each["type"] == "file-discovery":
            each["parameters"] = {"path": "x"}
    names = [each.get("name", each["type"]) for each in plugins]
    line = st.fixed_dictionaries({"pluginRef": st.sampled_from(names)}, optional={"weight": st.integers(0, 9)})
    profiles = st.lists(st.lists(line, max_size=4, unique_by=lambda each: each["pluginRef"]), max_size=3)
    data = {"apiVersion": "llm-d.ai/v1", "kind": "EndpointPickerConfig", "plugins": plugins}
    if names and (drawn := draw(profiles)):
        data["schedulingProfiles"] = [{"name": name, "plugins": each} for name, each in zip("abc", drawn, strict=False)]
    parsers = [name for name, each in zip(names, plugins, strict=True) if each["type"].endswith("-parser")]
    if parsers:
        data["parser"] = {"pluginRef": draw(st.sampled_from(parsers))}
    return data


@given(sound_configurations())
@settings(deadline=None)
def test_any_plugins_in_any_profiles(data):
    loads_or_says_why(data)


def places(data):
    """Every (container, key) of a tree, in order."""
    found, stack = [], [data]
    while stack:
        here = stack.pop()
        for key in list(here) if isinstance(here, dict) else range(len(here)):
            found.append((here, key))
            if isinstance(here[key], (dict, list)):
                stack.append(here[key])
    return found


@given(st.sampled_from(SAMPLES), st.lists(st.tuples(st.integers(0, 10**6), values | st.just("drop")), max_size=4))
@settings(deadline=None)
def test_a_sample_with_anything_changed_in_it(sample, changes):
    data = deepcopy(sample)
    for place, value in changes:
        found = places(data)
        if not found:
            break
        here, key = found[place % len(found)]
        if value == "drop":
            del here[key]
        else:
            here[key] = value
    loads_or_says_why(data)
