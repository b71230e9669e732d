"""What do a model's own files say? The few that a price depends on, read from a folder and bounded."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tessera.core.errors import ConfigError, Problem
from tessera.core.family import ModelFiles

MAX_JSON_BYTES = 4 << 20
MAX_TOKENIZER_BYTES = 128 << 20
_NAMES = {
    "config": "config.json",
    "preprocessor": "preprocessor_config.json",
    "processor": "processor_config.json",
    "video_preprocessor": "video_preprocessor_config.json",
    "params": "params.json",
}
TOKENIZER = "tokenizer.json"


def read_model_files(folder: Path) -> tuple[ModelFiles, list[str]]:
    """The files of a model folder, and the names of those that should be there and are not.

    Raises:
        ConfigError: the folder is not there, holds none of the files, or one of them cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError([Problem("", f"{folder} is no folder; expected one with {', '.join(_NAMES.values())}")])
    found = {key: _read_json(folder / name) for key, name in _NAMES.items() if (folder / name).is_file()}
    if not found:
        raise ConfigError([Problem("", f"{folder} has none of {', '.join(_NAMES.values())}")])
    files = ModelFiles(**found)
    needed = [] if files.params else ["config"]
    needed += [] if files.has_processor else ["preprocessor"]
    return files, [_NAMES[key] for key in needed if key not in found]


def read_tokenizer(path: Path) -> bytes:
    """The bytes of a tokenizer.json, given itself or by its folder.

    Raises:
        ConfigError: it is not there or is larger than 128 MiB.
    """
    file = path / TOKENIZER if path.is_dir() else path
    return _read(file, MAX_TOKENIZER_BYTES)


@dataclass(frozen=True, slots=True)
class TemplateFiles:
    """The chat templates of a model folder, and the tokenizer's special tokens."""

    plain: str | None
    """For conversations without tools: the processor's."""
    with_tools: str | None
    """For conversations with tools: the tokenizer's."""
    special_tokens: Mapping[str, str]


def read_templates(folder: Path) -> TemplateFiles:
    """The chat templates that the engine takes from a model's folder.

    Without tools vLLM asks the processor first, which is ``chat_template`` in
    processor_config.json, chat_template.json, then chat_template.jinja; then, as with
    tools, the tokenizer: chat_template.jinja, then ``chat_template`` in
    tokenizer_config.json, one or several by name.
    Source: vLLM 0.32, ``renderers/hf.py``; transformers 5.19.

    Raises:
        ConfigError: a file cannot be read.
    """
    tokenizer = _read_json_if_there(folder / "tokenizer_config.json")
    shared = folder / "chat_template.jinja"
    jinja = read_template(shared) if shared.is_file() else None
    processor = _text(_read_json_if_there(folder / _NAMES["processor"]).get("chat_template"))
    processor = processor or _text(_read_json_if_there(folder / "chat_template.json").get("chat_template")) or jinja
    named = tokenizer.get("chat_template")
    if jinja is not None:
        named = jinja
    several = (
        {each.get("name"): each.get("template") for each in named if isinstance(each, dict)}
        if isinstance(named, list)
        else {}
    )
    default = _text(named) or _text(several.get("default"))
    has_processor = any((folder / _NAMES[key]).is_file() for key in ("preprocessor", "processor"))
    special = {key: _special(tokenizer.get(key)) for key in _SPECIAL_TOKENS}
    return TemplateFiles(
        plain=(processor if has_processor else None) or default,
        with_tools=_text(several.get("tool_use")) or default,
        special_tokens={key: token for key, token in special.items() if token is not None},
    )


def read_template(path: Path) -> str:
    """The text of a chat template's file.

    Raises:
        ConfigError: it cannot be read, or is not UTF-8.
    """
    try:
        return _read(path, MAX_JSON_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ConfigError([Problem("", f"{path} is not UTF-8: {error.reason} at byte {error.start}")]) from None


_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def _special(token: Any) -> str | None:
    return _text(token.get("content")) if isinstance(token, dict) else _text(token)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _read_json_if_there(path: Path) -> Mapping[str, Any]:
    return _read_json(path) if path.is_file() else {}


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(_read(path, MAX_JSON_BYTES))
    except (ValueError, RecursionError) as error:
        raise ConfigError([Problem("", f"{path} is not JSON: {error}")]) from None
    if not isinstance(value, dict):
        raise ConfigError([Problem("", f"{path} holds a JSON {type(value).__name__}, expected an object")])
    return value


def _read(path: Path, limit: int) -> bytes:
    try:
        size = path.stat().st_size
        if size > limit:
            raise ConfigError([Problem("", f"{path} has {size} bytes, at most {limit} are read")])
        return path.read_bytes()
    except OSError as error:
        raise ConfigError([Problem("", f"{path} cannot be read: {error.strerror}")]) from None
