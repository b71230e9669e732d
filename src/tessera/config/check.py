"""Does a configuration that loads make sense? What an operator would want to know before the traffic does."""

from collections.abc import Collection, Iterator
from pathlib import Path

from tessera.config.load import LoadedConfig
from tessera.config.model_folder import read_model_files
from tessera.core.errors import Problem
from tessera.core.facts import Load
from tessera.core.family import Count, Family
from tessera.core.filters.prefix_cache_affinity import PrefixCacheAffinityFilter
from tessera.core.matching.session_plugin import SessionPlugin
from tessera.core.parts import MediaItem, Modality, Prompt
from tessera.core.plugin import Filter, Plugin
from tessera.core.pricing.robust import median
from tessera.core.pricing.served_model import served_model
from tessera.core.pricing.token import TokenProducer
from tessera.core.scheduler import Profile
from tessera.core.types import InferenceRequest


def advice(config: LoadedConfig) -> list[Problem]:
    """What loads and runs, and still cannot be meant; each with its path in the effective configuration."""
    running = config.router.scheduler.profiles
    profiles = list(running.values())
    found: list[Problem] = []
    for index, spec in enumerate(config.effective["schedulingProfiles"]):
        if spec["name"] in running:
            found += _of_scorers(running[spec["name"]], f"schedulingProfiles[{index}]")
    gates = {id(each): each for profile in profiles for each in profile.filters}
    found += [problem for each in gates.values() if (problem := _of_gate(each))]
    sessions = {id(each): each for profile in profiles for each in _plugins(profile) if isinstance(each, SessionPlugin)}
    found += [problem for each in sessions.values() if (problem := _of_session(each, running))]
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


WIDE_GATE_MS = 5000
"""A sticky endpoint that may be further behind than this starves: with a hot prefix the 90th percentile of the time
to first token was 0.5 s at 5,000 ms and 20 s at 18,000. Source: our simulation, 8 servers, Zipf 1.1, 40 requests a
second."""


def _of_gate(gate: Filter) -> Problem | None:
    if not isinstance(gate, PrefixCacheAffinityFilter) or gate.affinity_threshold <= 0:
        return None
    penalty = gate.max_ttft_penalty_ms
    if 0 < penalty <= WIDE_GATE_MS:
        return None
    until = f"until it is {penalty / 1000:g} s behind the others" if penalty else "however far it is behind the others"
    what = f"got {penalty:g}: a popular prefix stays with one endpoint {until}, which starves it; 2000 suits most loads"
    return Problem(f"{gate.name}.parameters.maxTTFTPenaltyMs", what)


def _of_session(plugin: SessionPlugin, profiles: Collection[str]) -> Problem | None:
    name = plugin.profile_name
    if not name or name in profiles:
        return None
    what = f"no profile {name!r} runs, so no session is ever bound; there are {', '.join(profiles)}"
    return Problem(f"{plugin.name}.parameters.profileName", what)


def _plugins(profile: Profile) -> Iterator[Plugin]:
    yield from profile.filters
    yield from (scorer for scorer, _ in profile.scorers)
    yield profile.picker


TYPICAL_SIZES = ((224, 224), (640, 480), (1280, 720), (1920, 1080), (2480, 3508), (3840, 2160), (100, 2000))
"""Pictures by which an estimator is compared with a model: icons, photos, a scan, a screen, a banner."""
MAX_ERROR = 0.2
"""Typical error from which an estimator does not fit."""


def fit(config: LoadedConfig, model_dir: Path) -> list[Problem]:
    """Where the configuration cannot fit the model whose files are in ``model_dir``.

    Raises:
        ConfigError: the files cannot be read.
    """
    files, missing = read_model_files(model_dir)
    found = [Problem("--model-dir", f"{model_dir} has no {name}; published defaults stand in") for name in missing]
    served = served_model({"path": str(model_dir)}, files)
    if served is None:
        names = ", ".join(files.architectures) or "none"
        what = f"no family prices this model (architectures: {names}): nothing to compare"
        return [*found, Problem("--model-dir", what)]
    pricer = config.router.pricer
    if isinstance(pricer, TokenProducer) and (problem := _estimator(pricer, served.family, model_dir)):
        found.append(problem)
    return found


def _estimator(pricer: TokenProducer, family: Family, model_dir: Path) -> Problem | None:
    """Whether pictures are priced as the model counts them."""
    errors: list[float] = []
    shown = ""
    for width, height in TYPICAL_SIZES:
        count = family.image(width, height)
        if not isinstance(count, Count):
            continue
        true = count.num_tokens + count.num_wrapper_tokens
        priced = _price(pricer, width, height)
        errors.append(abs(priced - true) / max(1, true))
        if (width, height) == (1280, 720):
            shown = f"a 1280x720 picture is priced {priced} tokens, {family.type} counts {true}; "
    if not errors or median(errors) <= MAX_ERROR:
        return None
    what = f"{shown}the typical error is {median(errors):.0%}. Set estimate: {{model: {{path: {model_dir}}}}}"
    return Problem("token-producer.parameters.estimate", what)


def _price(pricer: TokenProducer, width: int, height: int) -> int:
    item = MediaItem(modality=Modality.IMAGE, format=None, identifier="check", width=width, height=height)
    prompt: Prompt = (item,)
    request = InferenceRequest(request_id="check", at=0.0, wall_at=0.0, dialect="chat", prompts=(prompt,))
    return pricer.price(request).num_prompt_tokens
