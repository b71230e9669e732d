"""What does a content part hold: text, media, or what nobody here reads?

The parts of OpenAI's APIs as vLLM takes them. Parts of unknown type and fields of
unexpected type are passed over, not refused: the engine says what it thinks of them.
Source: ``chat_utils.py`` of vLLM 0.32 for which part is what.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tessera.core.dialects.json_body import optional_text, text_of
from tessera.core.draft import DraftMedia, DraftPart, DraftText
from tessera.core.parts import Modality


@dataclass(frozen=True, slots=True)
class Unread:
    """Content that is neither text nor media: it weighs nothing, and a guess says that it was there."""

    kind: str
    """One of a few words of ours, never the client's."""


Piece = str | DraftMedia | Unread

_URLS = {"image_url": Modality.IMAGE, "audio_url": Modality.AUDIO, "video_url": Modality.VIDEO}
_EMBEDS = {"image_embeds": Modality.IMAGE, "audio_embeds": Modality.AUDIO, "video_embeds": Modality.VIDEO}
_KEYS = ("image_url", *_EMBEDS, "prompt_embeds", "audio_url", "input_audio", "video_url")
"""The order in which vLLM looks for a key where ``type`` does not decide."""
_TEXTS = frozenset({"text", "input_text", "output_text", "refusal", "thinking", "tool_reference"})
_FILES = frozenset({"file", "input_file"})
_TYPES = _TEXTS | _FILES | {*_KEYS, "input_image"}


def tools_run(tools: msgspec.Raw) -> list[DraftPart]:
    """The raw bytes of ``tools`` as the run that stands before every message; none for none."""
    raw = bytes(tools)
    return [DraftText(text=raw)] if raw and raw != b"null" else []


def carries_token_ids(kv_transfer_params: Any) -> bool:
    """Whether they hold the prompt's token ids, which the engine takes instead of what it would render."""
    return isinstance(kv_transfer_params, dict) and kv_transfer_params.get("prompt_token_ids") is not None


def message(role: str, pieces: Iterable[Piece]) -> Iterator[DraftPart | Unread]:
    """The parts of one message: its role counts with its first text, and stands alone before leading media."""
    for piece in pieces:
        if isinstance(piece, str):
            if piece:
                yield DraftText(role=role, text=piece)
                role = ""
            continue
        if role and isinstance(piece, DraftMedia):
            yield DraftText(role=role, text="")
            role = ""
        yield piece
    if role:
        yield DraftText(role=role, text="")


def sifted(parts: Iterable[DraftPart | Unread]) -> tuple[list[DraftPart], list[str]]:
    """The parts that weigh something, and one guess for each kind that is not read."""
    kept: list[DraftPart] = []
    unread: dict[str, None] = {}
    for part in parts:
        if isinstance(part, Unread):
            unread[f"part-unread:{part.kind}"] = None
        else:
            kept.append(part)
    return kept, list(unread)


def pieces_of(content: Any) -> Iterator[Piece]:
    """The pieces of a message's content: a string, or a list of parts."""
    if isinstance(content, list):
        for part in content:
            yield piece_of(part)
    else:
        yield text_of(content)


def piece_of(part: Any) -> Piece:
    """What one part holds; the empty string where it is none that we know.

    ``type`` decides where it is known; where it is not, or a uuid stands beside it,
    the key that exists decides, as in vLLM: parts without ``type`` count too.
    """
    if not isinstance(part, dict):
        return text_of(part)
    kind = _kind(part)
    if kind in _FILES:
        return _file(kind, part)
    if kind == "prompt_embeds":
        return Unread(kind)
    media = _media(kind, part) if kind not in _TEXTS else None
    return media or _text(kind, part)


def link_of_file(file_id: Any) -> str | None:
    """What a file that somebody else keeps is known by: a link as good as another, which is not fetched either."""
    return f"file-id:{file_id}" if isinstance(file_id, str) and file_id else None


def _kind(part: dict[str, Any]) -> str:
    said = text_of(part.get("type"))
    if said in _TYPES and part.get("uuid") is None:
        return said
    return next((key for key in _KEYS if key in part), said)


def _text(kind: str, part: dict[str, Any]) -> str:
    if kind == "tool_reference":
        return text_of(part.get("name"))
    return text_of(part.get("text")) or text_of(part.get("refusal")) or text_of(part.get("thinking"))


def _media(kind: str, part: dict[str, Any]) -> DraftMedia | None:
    """The media of a part of that kind; one that says nothing but its type is none without a uuid."""
    if kind == "input_image":
        url = _url(part.get("image_url")) or link_of_file(part.get("file_id"))
        return _named(DraftMedia(modality=Modality.IMAGE, url=url), part)
    if kind not in part and optional_text(part.get("uuid")) is None:
        return None
    value = part.get(kind)
    if kind in _URLS:
        return _named(DraftMedia(modality=_URLS[kind], url=_url(value)), part)
    if kind in _EMBEDS:
        return _named(DraftMedia(modality=_EMBEDS[kind], base64=_tensor(value), is_embeds=True), part)
    if kind == "input_audio":
        audio = value if isinstance(value, dict) else {}
        data = audio.get("data")
        sound = DraftMedia(
            modality=Modality.AUDIO,
            base64=data if isinstance(data, str) else None,
            format=optional_text(audio.get("format")),
        )
        return _named(sound, part)
    return None


def _named(media: DraftMedia, part: dict[str, Any]) -> DraftMedia:
    """The media with the part's uuid."""
    uuid = part.get("uuid")
    media.uuid = optional_text(uuid)
    media.has_other_uuid = uuid is not None and uuid != media.uuid
    return media


def _url(value: Any) -> str | None:
    """A URL as a string, or in an object under ``url``."""
    url = value.get("url") if isinstance(value, dict) else value
    return url if isinstance(url, str) else None


def _tensor(value: Any) -> str | None:
    """Base64 of one tensor, or of several under their names, in the order of the names."""
    if isinstance(value, dict):
        return "".join(value[name] for name in sorted(value) if isinstance(value[name], str)) or None
    return value if isinstance(value, str) else None


def _file(kind: str, part: dict[str, Any]) -> Piece:
    """A picture, where the file is a data URI that says so; any other file is not read."""
    file = part.get("file") if kind == "file" else part
    data = file.get("file_data") if isinstance(file, dict) else None
    if isinstance(data, str) and data[:64].lstrip().lower().startswith("data:image/"):
        return _named(DraftMedia(modality=Modality.IMAGE, url=data), part)
    return Unread(kind)
