"""Does a configuration that loads make sense? What an operator would want to know before the traffic does."""

from collections.abc import Iterator

from tessera.config.load import LoadedConfig
from tessera.core.errors import Problem
from tessera.core.facts import Load
from tessera.core.plugin import Plugin
from tessera.core.scheduler import Profile


def advice(config: LoadedConfig) -> list[Problem]:
    """What loads and runs, and still cannot be meant; each with its path in the effective configuration."""
    running = config.router.scheduler.profiles
    profiles = list(running.values())
    found: list[Problem] = []
    for index, spec in enumerate(config.effective["schedulingProfiles"]):
        if spec["name"] in running:
            found += _of_scorers(running[spec["name"]], f"schedulingProfiles[{index}]")
    if config.data_layer.metrics is None:
        readers = sorted({each.name for profile in profiles for each in _plugins(profile) if Load in each.reads})
        if readers:
            what = f"no metrics page is read, so {', '.join(readers)} cannot tell endpoints apart"
            found.append(Problem("dataLayer", what))
    return found


def _of_scorers(profile: Profile, path: str) -> Iterator[Problem]:
    if not profile.scorers:
        yield Problem(path, "no scorer: every endpoint is as good as another, and the picker decides")
    elif not any(weight for _, weight in profile.scorers):
        yield Problem(path, "every scorer weighs 0: every endpoint is as good as another, and the picker decides")
    for scorer, weight in profile.scorers:
        if weight < 0:
            yield Problem(path, f"{scorer.name} weighs {weight:g}: it prefers what it rates worst")
    names = [scorer.name for scorer, _ in profile.scorers]
    for name in dict.fromkeys(each for each in names if names.count(each) > 1):
        yield Problem(path, f"{name} is listed {names.count(name)} times: its weights add up")


def _plugins(profile: Profile) -> Iterator[Plugin]:
    yield from profile.filters
    yield from (scorer for scorer, _ in profile.scorers)
    yield profile.picker
