"""Which chat template does the engine take from a model's folder, and which names of special tokens does it give it?

Source: vLLM 0.32, ``renderers/hf.py``; transformers 5.19, ``processing_utils.py`` and ``tokenization_utils_base.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tessera.config.model_folder import NAMES, TOKENIZER_CONFIG, read_json_if_there, read_text

MAX_NAMED_TEMPLATES = 64
"""Files of ``chat_templates`` that are looked at."""
_DEFAULT = "default"
_WITH_TOOLS = "tool_use"


@dataclass(frozen=True, slots=True)
class TemplateFiles:
    """The chat templates of a model folder, and the tokenizer's special tokens."""

    plain: str | None
    """For conversations without tools: the processor's, else the tokenizer's."""
    with_tools: str | None
    """For conversations with tools: the tokenizer's."""
    special_tokens: Mapping[str, str]
    """By the names under which templates know them."""
    told: frozenset[str]
    """Names of special tokens of which the files say at least that there is none."""


def read_templates(folder: Path) -> TemplateFiles:
    """The chat templates that the engine takes from a model's folder.

    Raises:
        ConfigError: a file cannot be read.
    """
    config = read_json_if_there(folder / TOKENIZER_CONFIG)
    files = dict(_template_files(folder))
    tokenizers = files or _configured(config.get("chat_template"))
    default = tokenizers.get(_DEFAULT)
    has_processor = any((folder / NAMES[key]).is_file() for key in ("preprocessor", "processor"))
    special = _special_tokens(folder, config)
    return TemplateFiles(
        plain=_processors(folder, files, default) if has_processor else default,
        with_tools=tokenizers.get(_WITH_TOOLS) or default,
        special_tokens={name: text for name, token in special.items() if (text := _text_of(token)) is not None},
        told=frozenset(special),
    )


def _template_files(folder: Path) -> Mapping[str, str]:
    """The templates that are files of their own, by name."""
    shared = folder / "chat_template.jinja"
    named = sorted((folder / "chat_templates").glob("*.jinja"))
    files = {path.stem: read_text(path) for path in islice(named, MAX_NAMED_TEMPLATES)}
    return files | ({_DEFAULT: read_text(shared)} if shared.is_file() else {})


def _processors(folder: Path, files: Mapping[str, str], tokenizers: str | None) -> str | None:
    """The processor's template, else the tokenizer's; nothing where it has several, which the engine cannot use."""
    if (configured := read_json_if_there(folder / NAMES["processor"]).get("chat_template")) is not None:
        return _text_of(configured)
    if (legacy := _text_of(read_json_if_there(folder / "chat_template.json").get("chat_template"))) is not None:
        return legacy
    if files:
        return files[_DEFAULT] if files.keys() == {_DEFAULT} else None
    return tokenizers


def _configured(template: Any) -> Mapping[str, str]:
    """The templates of tokenizer_config.json, by name: one that is the default, or several."""
    if isinstance(template, list):
        named = {each.get("name"): _text_of(each.get("template")) for each in template if isinstance(each, dict)}
        return {name: text for name, text in named.items() if isinstance(name, str) and text is not None}
    text = _text_of(template)
    return {} if text is None else {_DEFAULT: text}


def _special_tokens(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the files say of special tokens that have a name, those of the model's own among them."""
    given = dict(config)
    if "added_tokens_decoder" not in config:
        given |= read_json_if_there(folder / "special_tokens_map.json")
    extra = given.get("extra_special_tokens")
    named = {name: token for name, token in given.items() if name.endswith("_token")}
    return named | (extra if isinstance(extra, dict) else {})


def _text_of(value: Any) -> str | None:
    """A text, or that of an added token with its flags."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) and text else None
