"""How does the served model count pictures and write prompts? By its own files."""

from pathlib import Path
from typing import NamedTuple

from tessera.config.discover import discover
from tessera.config.exact_mode import read_renderer
from tessera.config.model_folder import read_model_files, read_tokenizer
from tessera.core.errors import ConfigError, Problem
from tessera.core.family import Family
from tessera.core.pricing.served_model import served_model
from tessera.core.pricing.token import TokenizerChoice
from tessera.core.rendering.prompt import PromptRenderer
from tessera.core.tokenizer import TextTokenizer


class PromptRules(NamedTuple):
    """What a model's folder says of its prompts."""

    family: Family
    renderer: PromptRenderer


def read_prompt_rules(folder: Path) -> PromptRules:
    """The rules in a model's folder: config.json, the processor's settings, tokenizer.json, a chat template.

    Raises:
        ConfigError: a file is missing or cannot be used, or no family prices the model.
    """
    discover()
    files, missing = read_model_files(folder)
    served = served_model({"path": str(folder)}, files)
    if served is None or missing:
        names = ", ".join(files.architectures) or "none"
        lacks = f"has no {', '.join(missing)}" if missing else f"is of no family that is known (architectures: {names})"
        raise ConfigError([Problem("", f"{folder} {lacks}; its prompts cannot be told from it")])
    family, choice = served.family, TokenizerChoice(path=str(folder.resolve()))
    try:
        tokenizer = TextTokenizer(read_tokenizer(folder))
        renderer = read_renderer(choice, tokenizer, family.placeholders, folder)
    except ValueError as error:
        raise ConfigError([Problem("", f"{folder}: {error}")]) from None
    return PromptRules(family, renderer)
