"""What do a model's own files say? The few that a price depends on, read from a folder and bounded."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tessera.core.errors import ConfigError, Problem
from tessera.core.family import ModelFiles

MAX_JSON_BYTES = 4 << 20
MAX_TOKENIZER_BYTES = 128 << 20
NAMES = {
    "config": "config.json",
    "preprocessor": "preprocessor_config.json",
    "processor": "processor_config.json",
    "video_preprocessor": "video_preprocessor_config.json",
    "params": "params.json",
}
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"


def read_model_files(folder: Path) -> tuple[ModelFiles, list[str]]:
    """The files of a model folder, and the names of those that should be there and are not.

    Raises:
        ConfigError: the folder is not there, holds none of the files, or one of them cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError([Problem("", f"{folder} is no folder; expected one with {', '.join(NAMES.values())}")])
    found = {key: _read_json(folder / name) for key, name in NAMES.items() if (folder / name).is_file()}
    if not found:
        raise ConfigError([Problem("", f"{folder} has none of {', '.join(NAMES.values())}")])
    files = ModelFiles(**found)
    needed = [] if files.params else ["config"]
    needed += [] if files.has_processor else ["preprocessor"]
    return files, [NAMES[key] for key in needed if key not in found]


def read_tokenizer(path: Path) -> bytes:
    """The bytes of a tokenizer.json, given itself or by its folder.

    Raises:
        ConfigError: it is not there or is larger than 128 MiB.
    """
    file = path / TOKENIZER if path.is_dir() else path
    return _read(file, MAX_TOKENIZER_BYTES)


def read_text(path: Path) -> str:
    """A text of a model's files, a chat template for example.

    Raises:
        ConfigError: it cannot be read, is larger than 4 MiB, or is not UTF-8.
    """
    try:
        return _read(path, MAX_JSON_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ConfigError([Problem("", f"{path} is not UTF-8: {error.reason} at byte {error.start}")]) from None


def read_json_if_there(path: Path) -> Mapping[str, Any]:
    """The object in a file of a model's; an empty one where there is no such file.

    Raises:
        ConfigError: it cannot be read, is larger than 4 MiB, or holds no JSON object.
    """
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
