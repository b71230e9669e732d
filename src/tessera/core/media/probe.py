"""What is this media part? Its format, size and identity, from a bounded look at what it carries.

``FORMATS`` is the seam: a format is a module with ``NAME``, ``matches`` and ``size``.
The first bytes decide; what the client or a MIME type claims is never believed.
"""

from typing import Protocol

from tessera.core.draft import DraftMedia
from tessera.core.media import gif, jpeg, png, webp
from tessera.core.media.identity import client_uuid, identifier, url_key
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.window import Window, is_data_uri
from tessera.core.parts import MediaItem, Modality


class Format(Protocol):
    """A module that reads one format's headers."""

    @property
    def NAME(self) -> str:  # noqa: N802
        """What ``MediaItem.format`` says."""

    def matches(self, first_bytes: bytes, /) -> bool:
        """Whether content is of this format, from its first ``SNIFF_BYTES``."""

    def size(self, window: Window, /) -> Size:
        """The size as displayed; raises Unsized where the header says none."""


FORMATS: tuple[Format, ...] = (png, jpeg, gif, webp)
"""Image formats, asked in this order."""
SNIFF_BYTES = 16
"""First bytes by which a format is known."""


def probe(media: DraftMedia) -> MediaItem:
    """The item, whatever the strings of ``media`` hold: nothing is raised, ignorance has a ``reason``.

    Content is read once for its identity and its length; of its decoded bytes, the
    parsers look at ``window.MAX_BYTES`` at most, in ``window.MAX_STEPS`` steps.
    """
    content = _content(media)
    return _absent(media) if content is None else _present(media, Window(content))


def _content(media: DraftMedia) -> str | None:
    """The string that holds the item's bytes, if one does."""
    if media.base64 is not None:
        return media.base64
    return media.url if media.url and is_data_uri(media.url) else None


def _absent(media: DraftMedia) -> MediaItem:
    reason = Reason.LINK if media.url else Reason.UUID_ONLY if media.uuid else Reason.NO_CONTENT
    return MediaItem(
        modality=media.modality,
        format=None,
        identifier=identifier(media, None),
        uuid=client_uuid(media),
        url_key=url_key(media.url) if media.url else None,
        has_content=False,
        reason=reason,
    )


def _present(media: DraftMedia, window: Window) -> MediaItem:
    name, uuid = identifier(media, window), client_uuid(media)
    if uuid is not None:
        window.verify()
    found, size, reason = None, None, window.reason
    if reason is None:
        found, size, reason = _look(window) if media.modality is Modality.IMAGE else _UNREAD
    return MediaItem(
        modality=media.modality,
        format=found.NAME if found else None,
        identifier=name,
        uuid=uuid,
        width=size.width if size else None,
        height=size.height if size else None,
        num_bytes=window.num_bytes,
        reason=reason,
    )


Look = tuple[Format | None, Size | None, Reason | None]
"""What a look at the headers shows: the format, and the size or why there is none."""
_UNREAD: Look = (None, None, Reason.UNREAD_MODALITY)


def _look(window: Window) -> Look:
    first_bytes = window.read(0, SNIFF_BYTES)
    found = next((known for known in FORMATS if known.matches(first_bytes)), None)
    if found is None:
        return None, None, Reason.UNKNOWN_FORMAT
    try:
        return found, found.size(window), None
    except Unsized as gave_up:
        return found, None, gave_up.reason
