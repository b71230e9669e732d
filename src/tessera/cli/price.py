"""``tessera price``: what does this request, picture or clip cost in tokens, and how well is that known?"""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from tessera.cli.options import (
    ConfigOption,
    Format,
    FormatOption,
    HeaderOption,
    out,
    parse_headers,
    print_json,
    read_config,
    said_plainly,
)
from tessera.config.discover import discover
from tessera.core.draft import DraftMedia
from tessera.core.errors import ConfigError, Problem
from tessera.core.media.probe import probe
from tessera.core.parts import MediaItem, Modality
from tessera.core.pricing.estimate import DURATION_HEADER, FPS_HEADER, RESOLUTION_HEADER
from tessera.core.pricing.token import Estimate, TokenProducer
from tessera.core.router import Router
from tessera.core.types import InferenceRequest, ModelProfile, PricedRequest
from tessera.telemetry.records import item_record

_SIZE = re.compile(r"(\d{1,6})x(\d{1,6})", re.ASCII | re.IGNORECASE)
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
    header: HeaderOption = None,
    image: Annotated[list[str] | None, typer.Option(help="A picture by its size, 1280x720. May be repeated.")] = None,
    video: Annotated[str | None, typer.Option(help="A clip as WIDTHxHEIGHT@FPSxSECONDS, 1280x720@24x10.")] = None,
    audio: Annotated[float | None, typer.Option(help="A sound by its length in seconds.")] = None,
    batch: Annotated[Path | None, typer.Option(help="A file with one request body a line.", show_default=False)] = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """Price a request in tokens without sending it.

    Beside each price stands what llm-d's rule would say, and how well the price is
    known: exact, learned, declared or default.

        tessera price --image 1280x720 --family qwen3-vl

        tessera price photo.jpg request.json --config my.yaml
    """
    with said_plainly():
        discover()
        producer = _producer(config, family)
        headers = parse_headers(header)
        if batch:
            records = [_record(producer, producer.price(each)) for each in _requests_of_batch(batch, headers)]
            _print_batch(records, format_)
            return
        request = _request(inputs or [], headers, image or [], video, audio)
        record = _record(producer, producer.price(request))
    if format_ is Format.JSON:
        print_json(record)
    else:
        _print_table(record)


def _producer(config: Path | None, family: str | None) -> TokenProducer:
    if family is None:
        pricer = read_config(config, ignore_missing=True).router.pricer
        assert isinstance(pricer, TokenProducer), "token-producer is the only pricer"
        return pricer
    if config is not None:
        raise ConfigError([Problem("--family", "stands beside --config; give one of the two")])
    producer = TokenProducer(estimate=Estimate(model={"family": family}))
    if problems := [Problem("--family", message) for _, message in producer.check()]:
        raise ConfigError(problems)
    return producer


def _request(
    inputs: list[Path], headers: dict[str, str], images: list[str], video: str | None, audio: float | None
) -> InferenceRequest:
    bodies = [path for path in inputs if path.suffix.lower() == ".json"]
    if len(bodies) > 1:
        raise ConfigError([Problem("", f"{len(bodies)} request bodies; price one at a time, or many with --batch")])
    headers = headers | _video_headers(video)
    request = _read(bodies[0].read_bytes(), headers) if bodies else _read(b"{}", headers)
    extra = [_file_item(path) for path in inputs if path not in bodies]
    extra += [_image_item(text) for text in images]
    if video is not None:
        extra.append(_bare_item(Modality.VIDEO))
    if audio is not None:
        extra.append(_bare_item(Modality.AUDIO, duration_s=audio))
    if not bodies and not extra:
        raise ConfigError([Problem("", "nothing to price: name a file, or give --image, --video, --audio or --batch")])
    return InferenceRequest(
        request_id=request.request_id,
        at=0.0,
        wall_at=0.0,
        dialect=request.dialect,
        model=request.model,
        prompts=(*request.prompts, tuple(extra)) if extra else request.prompts,
        headers=request.headers,
        mm_processor_kwargs=request.mm_processor_kwargs,
        body_bytes=request.body_bytes,
    )


def _read(body: bytes, headers: dict[str, str]) -> InferenceRequest:
    """A body whose API is told by its fields, unless a ``:path`` header says it."""
    path = headers.get(":path") or ("/v1/completions" if _is_completion(body) else "/v1/chat/completions")
    request, _ = Router.read(body, {**headers, ":path": path}, ModelProfile(), request_id="price", at=0.0, wall_at=0.0)
    return request


def _is_completion(body: bytes) -> bool:
    try:
        fields = json.loads(body)
    except ValueError:
        return False
    return isinstance(fields, dict) and "prompt" in fields and "messages" not in fields


def _requests_of_batch(path: Path, headers: dict[str, str]) -> Iterator[InferenceRequest]:
    with path.open("rb") as lines:
        for line in lines:
            if line.strip():
                yield _read(line, headers)


def _file_item(path: Path) -> MediaItem:
    content = path.read_bytes()
    return probe(DraftMedia(modality=Modality.IMAGE, base64=base64.b64encode(content).decode()))


def _image_item(text: str) -> MediaItem:
    size = _SIZE.fullmatch(text)
    if size is None or not int(size[1]) or not int(size[2]):
        raise ConfigError([Problem("--image", f"got {text!r}, expected WIDTHxHEIGHT such as 1280x720")])
    return _bare_item(Modality.IMAGE, width=int(size[1]), height=int(size[2]))


def _video_headers(text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    clip = _CLIP.fullmatch(text)
    if clip is None:
        raise ConfigError(
            [Problem("--video", f"got {text!r}, expected WIDTHxHEIGHT@FPSxSECONDS such as 1280x720@24x10")]
        )
    return {RESOLUTION_HEADER: clip[1], FPS_HEADER: clip[2], DURATION_HEADER: clip[3]}


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
        "family": producer.family_name,
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
        table.add_row(*(str(cell) for cell in cells))
    out.print(table)


def _print_table(record: dict[str, Any]) -> None:
    rule = record["family"] or "llm-d's estimate"
    table = Table(title=f"{record['model'] or 'a request'}, priced by {rule}")
    for name in ("item", "size", "tokens", "embeds", "wrapper", "llm-d says", "basis", "reason"):
        table.add_column(name, justify="right" if name in {"tokens", "embeds", "wrapper", "llm-d says"} else "left")
    for item in record["items"]:
        size = f"{item['width']}x{item['height']}" if item["width"] else "unknown"
        kind = f"{item['index']} {item['format'] or item['modality']}"
        counts = [str(item[name]) for name in ("num_tokens", "num_embeds", "num_wrapper_tokens", "llmd_num_tokens")]
        basis = f"{item['basis']} (rule {item['rule_basis']}, size {item['size_basis']})"
        table.add_row(kind, size, *counts, basis, item["reason"] or "")
    if record["items"]:
        out.print(table)
    out.print(f"text {record['num_text_tokens']} tokens, prompt [bold]{record['num_prompt_tokens']}[/bold] tokens")
