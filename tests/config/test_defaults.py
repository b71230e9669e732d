"""Where does the filter for media that is named and not sent stand, if the file does not say?"""

import pytest

from tessera.config.load import load_data, load_text

CACHED = "cached-media-filter"


def filters(loaded, profile="p"):
    return [each.type for each in loaded.router.scheduler.profiles[profile].filters]


def of_profile(config, *types):
    entries = [{"pluginRef": each} for each in types]
    return load_data(config(*types, schedulingProfiles=[{"name": "p", "plugins": entries}]))


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], [CACHED]),
        (["queue-scorer"], [CACHED]),
        (["utilization-detector"], [CACHED, "utilization-detector"]),
        (["decode-filter", "utilization-detector"], ["decode-filter", CACHED, "utilization-detector"]),
        (
            ["queue-scorer", "decode-filter", "label-selector-filter"],
            ["decode-filter", "label-selector-filter", CACHED],
        ),
        (["utilization-detector", "decode-filter"], [CACHED, "utilization-detector", "decode-filter"]),
        (["utilization-detector", CACHED], ["utilization-detector", CACHED]),
    ],
)
def test_first_behind_role_and_label_where_the_file_does_not_place_it(config, types, expected):
    loaded = of_profile(config, *types)
    assert filters(loaded) == expected
    is_added = CACHED not in types
    assert any(CACHED in each for each in loaded.additions) is is_added
    assert load_text(loaded.effective_yaml()).additions == ()


def test_one_memory_serves_every_profile(config):
    profiles = [{"name": name, "plugins": [{"pluginRef": "queue-scorer"}]} for name in ("prefill", "decode")]
    loaded = load_data(config("queue-scorer", "disagg-profile-handler", schedulingProfiles=profiles))
    assert [row["plugins"][0]["pluginRef"] for row in loaded.effective["schedulingProfiles"]] == [CACHED] * 2
    assert sum(each.type == CACHED for each in loaded.router.memories) == 1
