"""What makes token ids of prompts, where a plugin compares them with the engine's?"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from tessera.config.chat_templates import TemplateFiles, read_templates
from tessera.config.model_folder import (
    NAMES,
    TOKENIZER,
    TOKENIZER_CONFIG,
    read_json_if_there,
    read_text,
    read_tokenizer,
)
from tessera.config.plan import Plan
from tessera.core.errors import ConfigError, Problem
from tessera.core.family import Placeholder
from tessera.core.parts import Modality
from tessera.core.pricing.token import TokenizerChoice, TokenProducer
from tessera.core.rendering.chat_template import ChatTemplate
from tessera.core.rendering.prompt import PromptRenderer
from tessera.core.tokenizer import TextTokenizer

_FORMATS = {"auto": None, "string": False, "openai": True}


def tokenizer_of(plan: Plan, choice: TokenizerChoice, folder: Path, path: str) -> TextTokenizer | None:
    """The tokenizer that ``choice`` names; what is wrong with it becomes a problem at ``path``."""
    try:
        return TextTokenizer(read_tokenizer(folder / choice.path))
    except ConfigError as error:
        plan.problems += [Problem(f"{path}.path", each.message) for each in error.problems]
    except ValueError as error:
        plan.problem(f"{path}.path", str(error))
    return None


def renderer_of(
    plan: Plan, pricer: TokenProducer, choice: TokenizerChoice, tokenizer: TextTokenizer, folder: Path, path: str
) -> PromptRenderer | None:
    """What renders and tokenises prompts, and nothing where the engine does that otherwise, which is a warning.

    A missing template is a warning too, a wrong one a problem at ``path``.
    """
    place = folder / choice.path
    model = place if place.is_dir() else place.parent
    try:
        if (why := _why_not_followed(model, tokenizer)) is not None:
            plan.warn(f"{path}.path", f"{why}: prompts match approximately")
            return None
        renderer = read_renderer(choice, tokenizer, pricer.placeholders, folder)
        told = read_templates(model).told
    except ConfigError as error:
        plan.problems += [Problem(path, each.message) for each in error.problems]
        return None
    except ValueError as error:
        plan.problem(path, str(error))
        return None
    if renderer.template is None and renderer.tool_template is None:
        missing = "no chat template is there: chat completions match approximately; name the model's folder"
        plan.warn(f"{path}.path", missing)
    templates = [each for each in (renderer.template, renderer.tool_template) if each is not None]
    asked = {name for template in templates for name in template.variables if name.endswith("_token")}
    if untold := sorted(asked - told - choice.chat_template_kwargs.keys()):
        absent = f"the chat template asks for {', '.join(untold)}, of which {TOKENIZER_CONFIG} says nothing"
        plan.warn(f"{path}.path", f"{absent}: taken as empty, which may not be what the engine does")
    return renderer


def read_renderer(
    choice: TokenizerChoice, tokenizer: TextTokenizer, placeholders: Mapping[Modality, Placeholder], folder: Path
) -> PromptRenderer:
    """What renders and tokenises prompts, with the chat templates that ``choice`` names relative to ``folder``.

    Raises:
        ConfigError: a file cannot be read.
        ValueError: a template is not Jinja.
    """
    place = folder / choice.path
    files = read_templates(place if place.is_dir() else place.parent)
    templates = dict(_templates(choice, folder, files))
    return PromptRenderer(
        tokenizer=tokenizer,
        template=templates.get("plain"),
        tool_template=templates.get("with_tools"),
        placeholders=placeholders,
        template_kwargs=choice.chat_template_kwargs,
        wraps_parts=_FORMATS[choice.content_format],
    )


def _templates(choice: TokenizerChoice, folder: Path, files: TemplateFiles) -> Iterator[tuple[str, ChatTemplate]]:
    """The compiled templates; none of them where a tokenizer.json stands alone."""
    sources = {"plain": files.plain, "with_tools": files.with_tools}
    if choice.chat_template is not None:
        sources = dict.fromkeys(sources, read_text(folder / choice.chat_template))
    elif not (folder / choice.path).is_dir():
        return
    for name, source in sources.items():
        if source is not None:
            yield name, ChatTemplate(source, special_tokens=files.special_tokens, strftime=_strftime)


_OWN_RENDERERS = (
    *("GptOssForCausalLM", "MoonshotKimiaForCausalLM", "KimiK3ForConditionalGeneration", "DeepseekV32ForCausalLM"),
    *("DeepseekV4ForCausalLM", "DeepseekV4ForConditionalGeneration", "DeepseekV41ForCausalLM"),
    *("InklingForCausalLM", "InklingForConditionalGeneration"),
)
"""Architectures whose prompts vLLM 0.32 writes in code of its own."""
_FAST_CLASSES = frozenset({None, "PreTrainedTokenizerFast", "TokenizersBackend"})
"""Tokenizer classes that are tokenizer.json; transformers builds others anew, with the tokens that it is told."""


def _why_not_followed(folder: Path, tokenizer: TextTokenizer) -> str | None:
    """Why the engine makes other tokens than these files say, where that can be seen."""
    if (folder / "tekken.json").is_file() or any(folder.glob("tokenizer.model.v*")):
        return "the engine takes Mistral's own tokenizer, whose file is there, and no chat template"
    named = read_json_if_there(folder / NAMES["config"]).get("architectures")
    if own := [name for name in named if name in _OWN_RENDERERS] if isinstance(named, list) else []:
        return f"the engine writes prompts of {own[0]} in code of its own"
    config = read_json_if_there(folder / TOKENIZER_CONFIG)
    if config.get("split_special_tokens"):
        return f"{TOKENIZER_CONFIG} has split_special_tokens, which is not followed"
    declared = config.get("added_tokens_decoder")
    if isinstance(declared, dict):
        is_whole = config.get("tokenizer_class") not in _FAST_CLASSES
        if (other := tokenizer.other_added_token(declared, is_whole=is_whole)) is not None:
            return f"{TOKENIZER_CONFIG} and {TOKENIZER} do not agree on the added token {other!r}"
    return None


def _strftime(form: str, wall_at: float) -> str:
    return datetime.fromtimestamp(wall_at).strftime(form)
