"""What do plugins and the reader need from the files that ``path:`` parameters name?

``core`` opens no file: they are read here, bounded, and handed over.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tessera.config.blocks import decode
from tessera.config.model_folder import read_model_files, read_tokenizer
from tessera.config.plan import Plan
from tessera.core.errors import ConfigError, Problem
from tessera.core.plugin import camel
from tessera.core.pricing.served_model import family_chosen, overrides_of
from tessera.core.pricing.token import TokenProducer
from tessera.core.router import Router
from tessera.core.tokenizer import TextCounter
from tessera.core.types import ModelProfile


def furnish(plan: Plan, router: Router, profile: ModelProfile, folder: Path) -> ModelProfile:
    """Read what the pricer names, relative to ``folder``; the profile with what reading needs of it.

    What is wrong becomes a problem of the plan; a file that is missing, a warning.
    """
    pricer = router.pricer
    if not isinstance(pricer, TokenProducer):
        return profile
    place = plan.declared[pricer.name].path if pricer.name in plan.declared else "token-producer"
    choice = pricer.estimate.model if pricer.estimate else None
    if choice:
        _served_model(plan, pricer, choice, folder, f"{place}.parameters.estimate.model")
        if isinstance(choice.get("engineModel"), str):
            profile = replace(profile, engine_model=choice["engineModel"])
    if pricer.tokenizer is not None:
        path = f"{place}.parameters.tokenizer.path"
        try:
            profile = replace(profile, tokenizer=TextCounter(read_tokenizer(folder / pricer.tokenizer.path)))
        except ConfigError as error:
            plan.problems += [Problem(path, each.message) for each in error.problems]
        except ValueError as error:
            plan.problem(path, str(error))
    return profile


def _served_model(plan: Plan, pricer: TokenProducer, choice: Mapping[str, Any], folder: Path, path: str) -> None:
    files = None
    if isinstance(choice.get("path"), str):
        try:
            files, missing = read_model_files(folder / choice["path"])
        except ConfigError as error:
            plan.problems += [Problem(f"{path}.path", each.message) for each in error.problems]
            return
    family = family_chosen(choice, files)
    if family is None:
        names = ", ".join(files.architectures) if files else ""
        message = f"no family prices this model (architectures: {names or 'none'}); name one: {{family: NAME}}"
        plan.problem(f"{path}.path", message)
        return
    if files is not None:
        for name in missing if family.needs_processor else []:
            stand_in = (
                f"{folder / choice['path']} has no {name}: published defaults stand in, which may not be the model's"
            )
            plan.warn(f"{path}.path", stand_in)
    given = overrides_of(choice, family)
    made, problems = decode(family, {camel(name): value for name, value in given.items()}, path)
    plan.problems += problems
    for key, read in (("mmProcessorKwargs", family.from_kwargs), ("mediaIoKwargs", family.from_media_io_kwargs)):
        if (kwargs := choice.get(key)) and not read(kwargs):
            plan.warn(f"{path}.{key}", f"changes nothing in how {family.type} is priced: {', '.join(map(str, kwargs))}")
    if "mmHasherAlgorithm" in choice:
        plan.warn(f"{path}.mmHasherAlgorithm", "accepted and without effect yet: identifiers are hashes of ours")
    if made is not None:
        pricer.furnish(files, {name: getattr(made, name) for name in given})
