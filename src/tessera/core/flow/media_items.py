"""Which media has a body, each once, as an encoder would be asked for it?

Items are told apart by their uuid, else by what they hold: the same bytes under two
spellings of a ``data:`` head are one item, two links are two. A router that knows better, by the
content's hash, counts as we do (``core/media/spelling.py``).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from tessera.core.dialects.content_parts import piece_of
from tessera.core.dialects.json_body import optional_text
from tessera.core.draft import DraftMedia
from tessera.core.errors import RequestError
from tessera.core.flow.document import Document, fields_of, list_of, value_of
from tessera.core.media.spelling import MAX_DATA_HEAD_CHARS

MAX_ITEMS: Final = 1024
"""Media parts of one request, as in the router."""
MAX_NESTING: Final = 4
"""Blocks within blocks of Anthropic's messages."""

_SOUND_FEATURES: Final = "input_audio_features"
"""An encoder's output by another name. Source: Qwen2.5-Omni and Qwen3-Omni in vLLM 0.32."""
_ENCODED_KINDS = frozenset({"image_url", "input_image", "video_url", "audio_url", "input_audio"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaItem:
    """One distinct item."""

    modality: str
    part: bytes | None
    """The content part of a chat completion that holds it, long strings cut out; nothing where there is
    nothing to encode: a bare uuid, a tensor, a file that somebody else keeps."""
    uuid_beside: str | None = None
    """Its name, where that stands beside the messages and not in the part."""


@dataclass(frozen=True, slots=True)
class _Found:
    media: DraftMedia
    raw: msgspec.Raw | None
    """The part as the client wrote it, where it is one of a chat completion."""
    is_bare: bool = False
    """Whether it stands for a tensor and holds none."""


def media_items(dialect: str, document: Document) -> list[MediaItem]:
    """The distinct items in prompt order.

    Raises:
        RequestError: as ``checked_media``.
    """
    queues = _names_beside(document)
    items: dict[tuple[str, str | bytes], MediaItem] = {}
    for found in checked_media(dialect, document):
        media = found.media
        # A place among the names is used up also by an item that has a name of its own.
        beside = optional_text(next(queues.get(media.modality, iter(())), None))
        name = media.uuid or beside
        key = (media.modality, name or _content(media, document))
        if key not in items:
            items[key] = MediaItem(
                modality=media.modality,
                part=_part(found),
                uuid_beside=beside if beside and not media.uuid else None,
            )
    return list(items.values())


def checked_media(dialect: str, document: Document) -> list[_Found]:
    """Every media part in prompt order, also those that come twice.

    Raises:
        RequestError: more than 1,024 media parts; or a part that stands for an encoder's output without
            bringing it: an engine that lacks it too would die. Source: a vLLM 0.32 with an encoder-cache
            connector, seen.
    """
    parts = list(islice(_found(dialect, document), MAX_ITEMS + 1))
    if len(parts) > MAX_ITEMS:
        message = f"the request carries more than {MAX_ITEMS} media items; split it"
        raise RequestError(message, code="too_many_media_items")
    for found in parts:
        if found.is_bare:
            kind = f"{found.media.modality}_embeds"
            raise RequestError(f"a part of type {kind} holds no tensor; send the tensor or the media itself")
    return parts


def _names_beside(document: Document) -> dict[str, Iterator[Any]]:
    named = value_of(document.fields.get("multi_modal_uuids", b""))
    entries = named.items() if isinstance(named, dict) else ()
    return {modality: iter(names) for modality, names in entries if isinstance(names, list)}


def _content(media: DraftMedia, document: Document) -> bytes:
    if media.base64 is not None:
        return media.base64.encode("utf-8", "surrogatepass")
    content = document.content_of(media.url or "")
    if content.startswith(b"data:"):
        comma = content.find(b",", 0, MAX_DATA_HEAD_CHARS)
        return content[comma + 1 :]
    return content


def _part(found: _Found) -> bytes | None:
    media = found.media
    has_content = media.url is not None or media.base64 is not None
    if media.is_embeds or not has_content or (media.url or "").startswith("file-id:"):
        return None
    if found.raw is not None:
        return bytes(found.raw)
    url = media.url if media.url is not None else f"data:{media.format or 'image/jpeg'};base64,{media.base64}"
    return msgspec.json.encode({"type": "image_url", "image_url": {"url": url}})


def _found(dialect: str, document: Document) -> Iterator[_Found]:
    fields = document.fields
    match dialect:
        case "chat":
            for message in list_of(fields.get("messages", b"")):
                yield from _parts(list_of(fields_of(message).get("content", b"")))
        case "responses":
            for item in list_of(fields.get("input", b"")):
                yield from _of_response_item(fields_of(item))
        case "messages":
            for message in list_of(fields.get("messages", b"")):
                yield from _of_blocks(value_of(fields_of(message).get("content", b"")))
        case "generate":
            yield from _parts(list_of(fields.get("content_parts", b"")))
        case _:
            pass


def _of_response_item(item: dict[str, msgspec.Raw]) -> Iterator[_Found]:
    output = item.get("output", b"")
    yield from _parts(list_of(item.get("content", b"")))
    yield from _parts(list_of(output) or ([msgspec.Raw(output)] if fields_of(output) else []))


def _parts(raws: Iterable[msgspec.Raw]) -> Iterator[_Found]:
    for raw in raws:
        part = value_of(raw)
        piece = piece_of(part)
        if isinstance(piece, DraftMedia):
            is_chat = any(kind in part for kind in _ENCODED_KINDS) or part.get("type") in _ENCODED_KINDS
            yield _Found(piece, raw if is_chat else None, _is_bare(piece, part))


def _is_bare(media: DraftMedia, part: dict[str, Any]) -> bool:
    """Whether the part says what a tensor is like but holds none, as ``{"image_grid_thw": [1, 44, 80]}`` does.

    What it is like may be tensors too: only the names by which engines know an encoder's output count.
    """
    entries = part.get(f"{media.modality}_embeds") if media.is_embeds else None
    if not isinstance(entries, dict):
        return False
    return not any(isinstance(entries.get(name), str) for name in (f"{media.modality}_embeds", _SOUND_FEATURES))


def _of_blocks(content: Any, depth: int = 1) -> Iterator[_Found]:
    """The pictures of Anthropic's blocks; what tools found stands in front of the rest, as the engine has it."""
    if not isinstance(content, list) or depth > MAX_NESTING:
        return
    blocks = [block for block in content if isinstance(block, dict)]
    for block in sorted(blocks, key=lambda each: each.get("type") != "tool_result"):
        source = block.get("source")
        match block.get("type"):
            case "image" if isinstance(source, dict):
                yield _Found(_picture(source), None)
            case "tool_result" | "search_result":
                yield from _of_blocks(block.get("content"), depth + 1)
            case "document" if isinstance(source, dict) and source.get("type") == "content":
                yield from _of_blocks(source.get("content"), depth + 1)
            case _:
                pass


def _picture(source: dict[str, Any]) -> DraftMedia:
    url, data = source.get("url"), source.get("data")
    media = piece_of({"type": "image_url", "image_url": url if source.get("type") == "url" else None})
    assert isinstance(media, DraftMedia)
    if source.get("type") == "base64" and isinstance(data, str):
        media.base64, media.format = data, optional_text(source.get("media_type"))
    return media
