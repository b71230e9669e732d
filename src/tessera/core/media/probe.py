"""What is this media part? Its format, size and identity, from a bounded look at what it carries.

``FORMATS``, ``VIDEO_FORMATS`` and ``AUDIO_FORMATS`` are the seams: a format is a module
with ``NAME``, ``matches`` and ``size``, ``clip`` or ``sound``.
The first bytes decide; what the client or a MIME type claims is never believed.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from tessera.core.draft import DraftMedia
from tessera.core.media import (
    avi,
    avif,
    bmp,
    flac,
    gif,
    ico,
    jpeg,
    jpeg2000,
    mp3,
    mp4,
    ogg,
    pillow,
    png,
    pnm,
    qoi,
    tiff,
    wav,
    webm,
    webp,
)
from tessera.core.media.colour import ColourMode
from tessera.core.media.digests import ContentHash
from tessera.core.media.identity import Name, Naming, client_uuid, link_name, raw_name, url_key, uuid_name
from tessera.core.media.mm_hash import MediaHash
from tessera.core.media.refused import REFUSED
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.timed import Clip, Sound
from tessera.core.media.window import MAX_STEPS, Window, is_data_uri
from tessera.core.parts import MediaItem, Modality


class Known(Protocol):
    """A module that knows one format."""

    @property
    def NAME(self) -> str:  # noqa: N802
        """What ``MediaItem.format`` says."""

    def matches(self, first_bytes: bytes, /) -> bool:
        """Whether content is of this format, from its first ``SNIFF_BYTES``."""


class Format(Known, Protocol):
    """A module that reads one picture format's headers."""

    def size(self, window: Window, /) -> Size:
        """The size as displayed; raises Unsized where the header says none."""

    def mode(self, window: Window, /) -> ColourMode | None:
        """The colours as loaded, where the header is enough to know them; after ``size``, raises as it."""


class ClipFormat(Known, Protocol):
    """A module that reads one video container's headers."""

    def clip(self, window: Window, /) -> Clip:
        """Size and length; raises Unsized where there are no pictures in it."""


class SoundFormat(Known, Protocol):
    """A module that reads one audio container's headers."""

    def sound(self, window: Window, /) -> Sound:
        """Length and rate; raises Unsized where there is no sound in it."""


FORMATS: tuple[Format, ...] = (png, jpeg, webp, gif, avif, bmp, tiff, ico, jpeg2000, pnm, qoi, *REFUSED)
"""Image formats, asked in this order; last those that are known and refused."""
VIDEO_FORMATS: tuple[ClipFormat, ...] = (mp4, webm, avi, gif)
"""Containers of moving pictures."""
AUDIO_FORMATS: tuple[SoundFormat, ...] = (wav, flac, ogg, mp4, webm, mp3)
"""Containers of sound; last the one whose first bytes say least."""
SNIFF_BYTES = 64
"""First bytes by which a format is known."""


class Steps:
    """What is left of the parser steps of one request, over all of its items."""

    __slots__ = ("left",)

    def __init__(self, left: int = 4 * MAX_STEPS) -> None:
        self.left = left


PLAIN = Naming()
"""No engine is known: what has content is named by a hash of it."""


def probe(
    media: DraftMedia, *, naming: Naming = PLAIN, uses_pillow: bool = False, steps: Steps | None = None
) -> MediaItem:
    """The item, whatever the strings of ``media`` hold: nothing is raised, ignorance has a ``reason``.

    Content is read once for its identity and its length; of its decoded bytes, the
    parsers look at ``window.MAX_BYTES`` at most, in ``window.MAX_STEPS`` steps (twice,
    where base64 turns out not to be clean). A picture that none of them knows is left
    to Pillow with ``uses_pillow``, which is not for event loops; without, its reason
    is ``slow-format``. ``steps`` bounds the items of a request together: a thousand
    hostile pictures cost what four do.

    A picture is named by the engine's media hash where ``naming`` has the engine's
    model and the header shows the colours; else by a hash of the content.
    """
    content = _content(media)
    if content is None:
        return _absent(media, naming)
    window = Window(content, max_steps=MAX_STEPS if steps is None else max(1, min(MAX_STEPS, steps.left)))
    item = _present(media, window, naming, uses_pillow=uses_pillow)
    if steps is not None:
        steps.left -= window.num_steps + window.num_steps_in_vain
    return item


def _content(media: DraftMedia) -> str | bytes | memoryview | None:
    """What holds the item's bytes, if anything does: a string, or the bytes themselves."""
    if media.content is not None:
        return media.content
    if media.base64 is not None:
        return media.base64
    return media.url if media.url and is_data_uri(media.url) else None


def _absent(media: DraftMedia, naming: Naming) -> MediaItem:
    name = uuid_name(media, naming.factors) or link_name(media, naming)
    reason = Reason.LINK if media.url else Reason.UUID_ONLY if media.uuid else Reason.NO_CONTENT
    return MediaItem(
        modality=media.modality,
        format=None,
        identifier=name.identifier,
        is_identity_exact=name.is_exact,
        uuid=client_uuid(media),
        url_key=url_key(media.url, naming.url_keys_ignored) if media.url else None,
        has_content=False,
        num_tokens_declared=media.num_tokens_declared,
        reason=reason,
    )


def _present(media: DraftMedia, window: Window, naming: Naming, *, uses_pillow: bool) -> MediaItem:
    name = uuid_name(media, naming.factors)
    if name is not None:
        window.verify()
        seen = _seen(media, window, uses_pillow=uses_pillow)
    else:
        name, seen = _hashed(media, window, naming, uses_pillow=uses_pillow)
    return MediaItem(
        modality=media.modality,
        format=seen.name,
        identifier=name.identifier,
        is_identity_exact=name.is_exact,
        uuid=client_uuid(media),
        num_bytes=window.num_bytes,
        reason=seen.reason,
        **_fields(seen.found),
    )


def _hashed(media: DraftMedia, window: Window, naming: Naming, *, uses_pillow: bool) -> tuple[Name, "Look"]:
    """The name of content and what its headers show: these first, since the hash may begin with the colours."""
    wants_mode = media.modality is Modality.IMAGE and bool(naming.factors.engine_model)
    seen = Look()

    def begin() -> ContentHash | MediaHash:
        nonlocal seen
        seen = _seen(media, window, uses_pillow=uses_pillow, wants_mode=wants_mode)
        return (naming.factors.image_hash(window.num_bytes, seen.mode) if seen.mode else None) or ContentHash()

    poured = window.pour(begin)
    if poured is None:
        return raw_name(window.content), Look(reason=Reason.EMBEDS if media.is_embeds else window.reason)
    return Name(poured.hexdigest(), is_exact=isinstance(poured, MediaHash) and not media.has_other_uuid), seen


def _fields(found: Size | Clip | Sound | None) -> dict[str, Any]:
    """What a parser found, by the item's names."""
    match found:
        case Size(width, height):
            return {"width": width, "height": height}
        case Clip(width, height, num_frames, _, duration_s):
            return {"width": width, "height": height, "num_frames": num_frames, "duration_s": duration_s}
        case Sound(duration_s, sample_rate, num_channels):
            return {"duration_s": duration_s, "sample_rate": sample_rate, "num_channels": num_channels}
    return {}


class Look(NamedTuple):
    """What a look at the headers shows."""

    name: str | None = None
    """The format's."""
    found: Size | Clip | Sound | None = None
    reason: Reason | None = None
    """Why something is missing."""
    mode: ColourMode | None = None
    """A picture's colours, where they were wanted and are known."""


def _seen(media: DraftMedia, window: Window, *, uses_pillow: bool, wants_mode: bool = False) -> Look:
    reason = Reason.EMBEDS if media.is_embeds else window.reason
    if reason is not None:
        return Look(reason=reason)
    first_bytes = window.read(0, SNIFF_BYTES)
    match media.modality:
        case Modality.IMAGE:
            return _picture(window, first_bytes, uses_pillow=uses_pillow, wants_mode=wants_mode)
        case Modality.VIDEO:
            return _timed(window, first_bytes, ((each, each.clip) for each in VIDEO_FORMATS))
        case Modality.AUDIO:
            return _timed(window, first_bytes, ((each, each.sound) for each in AUDIO_FORMATS))


def _picture(window: Window, first_bytes: bytes, *, uses_pillow: bool, wants_mode: bool) -> Look:
    name = None
    try:
        for known in FORMATS:
            if known.matches(first_bytes):
                name = known.NAME
                size = known.size(window)
                return Look(name, size, mode=_mode(window, known) if wants_mode else None)
        if not first_bytes:
            raise Unsized(Reason.UNKNOWN_FORMAT)
        if not uses_pillow:
            raise Unsized(Reason.SLOW_FORMAT)
        name, size, mode = pillow.look(window)
        return Look(name, size, mode=mode)
    except Unsized as gave_up:
        return Look(name, reason=gave_up.reason)


def _mode(window: Window, known: Format) -> ColourMode | None:
    try:
        return known.mode(window)
    except Unsized:
        return None


def _timed(
    window: Window, first_bytes: bytes, formats: Iterable[tuple[Known, Callable[[Window], Clip | Sound]]]
) -> Look:
    """A look at a clip or a sound: ``formats`` are asked in their order, each with what reads it."""
    for known, read in formats:
        if known.matches(first_bytes):
            try:
                found = read(window)
            except Unsized as gave_up:
                return Look(_named(known, gave_up.reason), reason=gave_up.reason)
            return Look(known.NAME, found, found.reason)
    return Look(reason=Reason.UNKNOWN_FORMAT)


def _named(known: Known, reason: Reason) -> str | None:
    """The format's name; a container without a track of the right kind is of no format for this part."""
    return None if reason is Reason.UNKNOWN_FORMAT else known.NAME
