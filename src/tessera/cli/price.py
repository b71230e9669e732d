"""``tessera price``: what does this request, picture or clip cost in tokens, and how well is that known?"""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from tessera.cli.options import (
    ConfigOption,
    Format,
    FormatOption,
    HeaderOption,
    ModelDirOption,
    err,
    out,
    parse_headers,
    print_json,
    read_config,
    said_plainly,
)
from tessera.config.discover import discover
from tessera.config.model_folder import TOKENIZER, read_model_files, read_tokenizer
from tessera.core.draft import Draft, DraftMedia
from tessera.core.errors import ConfigError, Problem, RequestError
from tessera.core.media import gif
from tessera.core.media.identity import Naming
from tessera.core.media.probe import probe
from tessera.core.parts import MediaItem, Modality
from tessera.core.pricing.estimate import DURATION_HEADER, FPS_HEADER, MAX_DURATION_S, RESOLUTION_HEADER
from tessera.core.pricing.token import Estimate, TokenProducer
from tessera.core.reading import naming_of
from tessera.core.router import Router
from tessera.core.tokenizer import TextTokenizer
from tessera.core.types import InferenceRequest, ModelProfile, PricedRequest
from tessera.live.token_memo import TokenMemo
from tessera.telemetry.records import item_record

_SIZE = re.compile(r"(\d{1,6})x(\d{1,6})", re.ASCII | re.IGNORECASE)
_WAV_BYTES_PER_S, _WAV_HEAD_BYTES = 32_000, 44
"""Of a sound that is known by its length alone: 16 kHz, 16 bits, one channel, which is what llm-d's rule would see."""
_CLIP = re.compile(r"(\d{1,6}x\d{1,6})@(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)", re.ASCII | re.IGNORECASE)


def price(
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A request body (.json), or media files; several files make one request.", show_default=False
        ),
    ] = None,
    config: ConfigOption = None,
    family: Annotated[
        str | None, typer.Option(help="A model family instead of a config's rule: qwen3-vl, qwen2.5-vl, ...")
    ] = None,
    model_dir: ModelDirOption = None,
    header: HeaderOption = None,
    path: Annotated[
        str | None, typer.Option(help="The request's path; without it, the body's fields tell.", show_default=False)
    ] = None,
    image: Annotated[list[str] | None, typer.Option(help="A picture by its size, 1280x720. May be repeated.")] = None,
    video: Annotated[str | None, typer.Option(help="A clip as WIDTHxHEIGHT@FPSxSECONDS, 1280x720@24x10.")] = None,
    audio: Annotated[float | None, typer.Option(help="A sound by its length in seconds.")] = None,
    batch: Annotated[Path | None, typer.Option(help="A file with one request body a line.", show_default=False)] = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """Price a request in tokens without sending it.

    Beside each price stands what llm-d's rule would say, and how well the price is
    known: exact, learned, declared or default. Text is counted by the tokenizer that the
    configuration or the model's folder has, and pictures are named as the engine names
    them where the configuration says what it calls its model (engineModel).

        tessera price --image 1280x720 --family qwen3-vl

        tessera price photo.jpg request.json --config my.yaml
    """
    with said_plainly():
        discover()
        served = _served(config, family, model_dir)
        headers = parse_headers(header) | ({":path": path} if path else {})
        if batch:
            records = [_record(served.producer, each) for each in _priced_batch(batch, headers, served)]
            _print_batch(records, format_)
            return
        media = _bare_items(image or [], video, audio)
        record = _record(served.producer, _priced(inputs or [], headers | _video_headers(video), served, media))
    if format_ is Format.JSON:
        print_json(record)
    else:
        _print_table(record)


@dataclass(frozen=True, slots=True)
class _Served:
    """What a request is read and priced by."""

    producer: TokenProducer
    profile: ModelProfile
    router: Router | None = None
    """Of a configuration in exact mode."""
    memo: TokenMemo = field(default_factory=TokenMemo)
    """Of all the requests: one may send a picture, a later one only its uuid."""

    def price(self, request: InferenceRequest, draft: Draft) -> PricedRequest:
        """The price, by the prompt's token ids where they can be had."""
        if self.router is None:
            return self.producer.price(request)
        prompt = self.router.tokenise(request, draft, self.memo)
        if prompt.reason is not None:
            err.print(f"[yellow]warning[/yellow]: the prompt is not tokenised as the engine does it: {prompt.reason}")
        return self.router.weigh(request, prompt)


def _served(config: Path | None, family: str | None, model_dir: Path | None) -> _Served:
    """What prices requests, and how they are read: as ``serve`` does, with Pillow, and the engine's names if known."""
    given = [name for name, value in (("--config", config), ("--family", family), ("--model-dir", model_dir)) if value]
    if len(given) > 1:
        raise ConfigError([Problem("", f"{' and '.join(given)} stand beside each other; give one of them")])
    if family is None and model_dir is None:
        loaded = read_config(config, ignore_missing=True)
        pricer = loaded.router.pricer
        assert isinstance(pricer, TokenProducer), "token-producer is the only pricer"
        # Text is counted by itself too: where the prompt cannot be tokenised, that is the next best.
        profile = replace(loaded.profile, uses_pillow=True, names_as_engine=True, renders_prompts=False)
        return _Served(pricer, profile, loaded.router if loaded.router.renderer else None)
    producer = TokenProducer(estimate=Estimate(model={"family": family} if family else {"path": str(model_dir)}))
    if problems := [Problem("--family", message) for _, message in producer.check()]:
        raise ConfigError(problems)
    if model_dir is not None:
        files, missing = read_model_files(model_dir)
        for name in missing:
            err.print(f"[yellow]warning[/yellow]: {model_dir} has no {name}: published defaults stand in for it")
        if not producer.furnish(files):
            names = ", ".join(files.architectures) or "none"
            raise ConfigError([Problem("--model-dir", f"no family prices this model (architectures: {names})")])
    return _Served(producer, ModelProfile(uses_pillow=True, tokenizer=_tokenizer(model_dir) if model_dir else None))


def _tokenizer(model_dir: Path) -> TextTokenizer | None:
    if not (model_dir / TOKENIZER).is_file():
        return None
    try:
        return TextTokenizer(read_tokenizer(model_dir))
    except ValueError as error:
        raise ConfigError([Problem("--model-dir", f"{model_dir / TOKENIZER}: {error}")]) from None


def _bare_items(images: list[str], video: str | None, audio: float | None) -> list[MediaItem]:
    """What is known by its size or its length alone."""
    items = [_image_item(text) for text in images]
    if video is not None:
        items.append(_clip_item(video))
    if audio is not None:
        items.append(_sound_item(audio))
    return items


def _priced(inputs: list[Path], headers: dict[str, str], served: _Served, bare: list[MediaItem]) -> PricedRequest:
    """The price of the body with the files behind it, and behind these what is known without bytes."""
    bodies = [path for path in inputs if path.suffix.lower() == ".json"]
    if len(bodies) > 1:
        raise ConfigError([Problem("", f"{len(bodies)} request bodies; price one at a time, or many with --batch")])
    request, draft = _read(bodies[0].read_bytes() if bodies else b"{}", headers, served.profile)
    naming = naming_of(draft, served.profile)
    extra = [_file_item(path, naming) for path in inputs if path not in bodies] + bare
    if not bodies and not extra:
        raise ConfigError([Problem("", "nothing to price: name a file, or give --image, --video, --audio or --batch")])
    if extra:
        return served.producer.price(replace(request, prompts=(*request.prompts, tuple(extra))))
    return served.price(request, draft)


def _read(body: bytes, headers: dict[str, str], profile: ModelProfile) -> tuple[InferenceRequest, Draft]:
    """A body whose API is told by its fields, unless a ``:path`` header says it."""
    fields = {**headers, ":path": headers.get(":path") or _path_of(body)}
    return Router.read(body, fields, profile, request_id="price", at=0.0, wall_at=time.time())


_PATHS = {"prompt": "/v1/completions", "input": "/v1/responses", "token_ids": "/inference/v1/generate"}
"""The API by the field that only it has."""
_ANTHROPICS_TYPES = frozenset({"image", "document", "tool_use", "tool_result", "thinking"})
"""Types of its content blocks that no chat part has."""


def _path_of(body: bytes) -> str:
    """The path of a body that says none: ``messages`` are a chat's, where they do not look like Anthropic's."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return "/v1/chat/completions"
    if "messages" in fields:
        return "/v1/messages" if _is_anthropics(fields) else "/v1/chat/completions"
    return next((path for field, path in _PATHS.items() if field in fields), "/v1/chat/completions")


def _is_anthropics(fields: dict[str, Any]) -> bool:
    """Whether ``system`` stands beside the messages, or a part of one has a type that only Anthropic's API has."""
    messages = fields["messages"] if isinstance(fields["messages"], list) else []
    contents = [each.get("content") for each in messages if isinstance(each, dict)]
    parts = [part for content in contents if isinstance(content, list) for part in content if isinstance(part, dict)]
    types = {part.get("type") for part in parts if isinstance(part.get("type"), str)}
    return "system" in fields or bool(types & _ANTHROPICS_TYPES)


def _priced_batch(path: Path, headers: dict[str, str], served: _Served) -> Iterator[PricedRequest]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield served.price(*_read(line, headers, served.profile))
            except RequestError as error:
                message = f"the request would be refused: {error.status} {error.message}"
                raise ConfigError([Problem(f"{path}:{number}", message)]) from None


def _file_item(path: Path, naming: Naming) -> MediaItem:
    """What the first bytes say, whatever the name: a clip, a sound, else a picture; a GIF is a picture."""
    content = path.read_bytes()
    for modality in (Modality.VIDEO, Modality.AUDIO):
        item = probe(DraftMedia(modality=modality, content=content), naming=naming)
        if item.format not in {None, gif.NAME}:
            return item
    return probe(DraftMedia(modality=Modality.IMAGE, content=content), naming=naming, uses_pillow=True)


def _image_item(text: str) -> MediaItem:
    size = _SIZE.fullmatch(text)
    if size is None or not int(size[1]) or not int(size[2]):
        raise ConfigError([Problem("--image", f"got {text!r}, expected WIDTHxHEIGHT such as 1280x720")])
    return _bare_item(Modality.IMAGE, width=int(size[1]), height=int(size[2]))


def _clip_item(text: str) -> MediaItem:
    size, fps, seconds = _clip_fields(text)
    num_frames = round(fps * seconds)
    if not num_frames:
        raise ConfigError([Problem("--video", f"got {text!r}, less than one frame")])
    width, height = (int(side) for side in size.lower().split("x"))
    known = {"width": width, "height": height, "num_frames": num_frames, "duration_s": num_frames / fps}
    return _bare_item(Modality.VIDEO, **known)


def _video_headers(text: str | None) -> dict[str, str]:
    """The clip as a client of llm-d would declare it, so that llm-d's rule is asked about the same clip."""
    if text is None:
        return {}
    size, fps, seconds = _clip_fields(text)
    return {RESOLUTION_HEADER: size, FPS_HEADER: str(fps), DURATION_HEADER: str(seconds)}


def _clip_fields(text: str) -> tuple[str, float, float]:
    """Size, frames a second and seconds."""
    clip = _CLIP.fullmatch(text)
    if clip is None or not all(float(value) for value in re.split("[x@]", text.lower())):
        raise ConfigError(
            [Problem("--video", f"got {text!r}, expected WIDTHxHEIGHT@FPSxSECONDS such as 1280x720@24x10")]
        )
    return clip[1], float(clip[2]), float(clip[3])


def _sound_item(seconds: float) -> MediaItem:
    if not 0 < seconds <= MAX_DURATION_S:
        raise ConfigError([Problem("--audio", f"got {seconds}, expected seconds, at most {MAX_DURATION_S:.0f}")])
    num_bytes = round(seconds * _WAV_BYTES_PER_S) + _WAV_HEAD_BYTES
    return _bare_item(Modality.AUDIO, duration_s=seconds, num_bytes=num_bytes)


def _bare_item(modality: Modality, **known: Any) -> MediaItem:
    return MediaItem(modality=modality, format=None, identifier="none", has_content=False, **known)


def _record(producer: TokenProducer, priced: PricedRequest) -> dict[str, Any]:
    headers = priced.request.headers
    items = [
        item_record(each) | {"llmd_num_tokens": producer.llmd_estimate(each.item, headers).num_tokens}
        for each in priced.items
    ]
    return {
        "model": priced.request.model,
        "family": producer.family_name(priced.request),
        "items": items,
        "num_text_tokens": priced.num_text_tokens,
        "num_prompt_tokens": priced.num_prompt_tokens,
    }


def _print_batch(records: list[dict[str, Any]], format_: Format) -> None:
    if format_ is Format.JSON:
        print_json(records)
        return
    table = Table("request", "model", "items", "text tokens", "prompt tokens", title=f"{len(records)} requests")
    for index, record in enumerate(records):
        cells = (index, record["model"], len(record["items"]), record["num_text_tokens"], record["num_prompt_tokens"])
        table.add_row(*(escape(str(cell)) for cell in cells))
    out.print(table)


def _print_table(record: dict[str, Any]) -> None:
    rule = record["family"] or "llm-d's estimate"
    title = f"{escape(record['model']) or 'a request'}, priced by {rule}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    numbers = ("tokens", "embeds", "wrapper", "llm-d")
    for name in ("item", "size", *numbers, "rule is", "size is"):
        table.add_column(name, justify="right" if name in numbers else "left", no_wrap=True)
    for item in record["items"]:
        size = [f"{item['width']}x{item['height']}"] if item["width"] else []
        size += [f"{item['duration_s']:.1f} s"] if item["duration_s"] is not None else []
        kind = f"{item['index']} {item['format'] or item['modality']}"
        counts = [str(item[name]) for name in ("num_tokens", "num_embeds", "num_wrapper_tokens", "llmd_num_tokens")]
        known = (item["rule_basis"], item["size_basis"])
        table.add_row(kind, " ".join(size) or "unknown", *counts, *known)
    if record["items"]:
        out.print(table)
    for reason, indices in _reasons(record["items"]).items():
        out.print(f"{reason}: item {', '.join(indices)}", markup=False)
    out.print(f"text {record['num_text_tokens']} tokens, prompt [bold]{record['num_prompt_tokens']}[/bold] tokens")


def _reasons(items: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Why prices are not known better -> the items of which that holds."""
    found: dict[str, list[str]] = {}
    for item in items:
        if item["reason"]:
            found.setdefault(item["reason"], []).append(str(item["index"]))
    return found
