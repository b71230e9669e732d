"""What makes token ids of prompts, where a plugin compares them with the engine's?"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from tessera.config.model_folder import read_template, read_templates, read_tokenizer
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
    """What renders and tokenises prompts; a missing template is a warning, a wrong one a problem at ``path``."""
    try:
        renderer = read_renderer(choice, tokenizer, pricer.placeholders, folder)
    except ConfigError as error:
        plan.problems += [Problem(path, each.message) for each in error.problems]
        return None
    except ValueError as error:
        plan.problem(path, str(error))
        return None
    if renderer.template is None and renderer.tool_template is None:
        missing = "no chat template is there: chat completions match approximately; name the model's folder"
        plan.warn(f"{path}.path", missing)
    return renderer


def read_renderer(
    choice: TokenizerChoice, tokenizer: TextTokenizer, placeholders: Mapping[Modality, Placeholder], folder: Path
) -> PromptRenderer:
    """What renders and tokenises prompts, with the chat templates that ``choice`` names relative to ``folder``.

    Raises:
        ConfigError: a file cannot be read.
        ValueError: a template is not Jinja.
    """
    templates = dict(_templates(choice, folder))
    return PromptRenderer(
        tokenizer=tokenizer,
        template=templates.get("plain"),
        tool_template=templates.get("with_tools"),
        placeholders=placeholders,
        template_kwargs=choice.chat_template_kwargs,
        wraps_parts=_FORMATS[choice.content_format],
    )


def _templates(choice: TokenizerChoice, folder: Path) -> Iterator[tuple[str, ChatTemplate]]:
    """The compiled templates; none of them where a tokenizer.json stands alone."""
    place = folder / choice.path
    files = read_templates(place if place.is_dir() else place.parent)
    sources = {"plain": files.plain, "with_tools": files.with_tools}
    if choice.chat_template is not None:
        sources = dict.fromkeys(sources, read_template(folder / choice.chat_template))
    elif not place.is_dir():
        return
    for name, source in sources.items():
        if source is not None:
            yield name, ChatTemplate(source, special_tokens=files.special_tokens, strftime=_strftime)


def _strftime(form: str, wall_at: float) -> str:
    return datetime.fromtimestamp(wall_at).strftime(form)
