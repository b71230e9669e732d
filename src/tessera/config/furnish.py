"""What do plugins and the reader need from the files that ``path:`` parameters name?

``core`` opens no file: they are read here, bounded, and handed over.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tessera.config.blocks import decode
from tessera.config.exact_mode import renderer_of, tokenizer_of
from tessera.config.header_names import check_written, kept_headers
from tessera.config.model_folder import read_model_files
from tessera.config.plan import Plan
from tessera.core.errors import ConfigError, Problem
from tessera.core.parts import Modality
from tessera.core.plugin import camel
from tessera.core.pricing.served_model import family_chosen, overrides_of, unheard
from tessera.core.pricing.token import TokenProducer
from tessera.core.router import Router
from tessera.core.types import ModelProfile

NO_TOKENIZER = (
    "absent: requests carry no token ids, and precise matching is approximate; "
    "write {path: DIR}, the folder of the served model's tokenizer and chat template"
)


def furnish(plan: Plan, router: Router, profile: ModelProfile, folder: Path) -> tuple[Router, ModelProfile]:
    """Read what the pricer names, relative to ``folder``; the router and the profile with what they need.

    What is wrong becomes a problem of the plan; a file that is missing, a warning.
    """
    profile = replace(profile, kept_headers=kept_headers(plan))
    check_written(plan)
    pricer = router.pricer
    if not isinstance(pricer, TokenProducer):
        return router, profile
    place = plan.declared[pricer.name].path if pricer.name in plan.declared else "token-producer"
    choice = pricer.estimate.model if pricer.estimate else None
    compares = any(each.names_as_engine for each in (*router.producers, *router.memories))
    profile = replace(profile, url_keys_ignored=frozenset(pricer.url_keys_ignored), names_as_engine=compares)
    if choice:
        _served_model(plan, pricer, choice, folder, f"{place}.parameters.estimate.model")
        profile = replace(
            profile,
            engine_model=choice.get("engineModel") or "",
            mm_hasher_algorithm=choice.get("mmHasherAlgorithm") or profile.mm_hasher_algorithm,
            media_io_kwargs=choice.get("mediaIoKwargs") or {},
        )
    if pricer.tokenizer is not None:
        path = f"{place}.parameters.tokenizer"
        tokenizer = tokenizer_of(plan, pricer.tokenizer, folder, path)
        profile = replace(profile, tokenizer=tokenizer)
        if tokenizer is not None and compares:
            router = replace(router, renderer=renderer_of(plan, pricer, pricer.tokenizer, tokenizer, folder, path))
            profile = replace(profile, renders_prompts=router.renderer is not None)
    elif compares:
        plan.warn(f"{place}.parameters.tokenizer", NO_TOKENIZER)
    return router, profile


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
    if ignored := unheard(family, choice.get("mmProcessorKwargs") or {}):
        nothing = f"changes nothing in how {family.type} is priced: {', '.join(ignored)}"
        plan.warn(f"{path}.mmProcessorKwargs", f"{nothing}; no price of media is exact, since the engine heeds it")
    if unknown := [str(key) for key in choice.get("mediaIoKwargs") or {} if key not in set(Modality)]:
        nothing = f"no modality is called {', '.join(unknown)}; there are {', '.join(Modality)}"
        plan.warn(f"{path}.mediaIoKwargs", nothing)
    if made is not None:
        pricer.furnish(files, {name: getattr(made, name) for name in given})
