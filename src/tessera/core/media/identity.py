"""What will the engine call this item? The client's uuid, else a hash of the content, else of the link."""

from typing import Final

from tessera.core.draft import DraftMedia
from tessera.core.media.digests import ContentHash, text_hash
from tessera.core.media.window import Window

MAX_UUID_CHARS: Final = 1024
"""A longer uuid is known by its hash, so that indexes of identifiers stay bounded."""
NOBODY: Final = "none"
"""The identifier of a part that carries nothing at all."""


def identifier(media: DraftMedia, window: Window | None) -> str:
    """The item's name; ``window`` is its content, poured here, or nothing where it has none.

    One content has one identifier, however it is spelt: base64 alphabet, padding,
    white space, percent-encoding and the head of a data URI do not count.
    """
    uuid = client_uuid(media)
    if uuid is not None:
        return uuid
    if window is not None:
        return content_identifier(window)
    return url_key(media.url) if media.url else NOBODY


def client_uuid(media: DraftMedia) -> str | None:
    """The uuid that the client gave, verbatim up to ``MAX_UUID_CHARS``; an empty one is none."""
    if not media.uuid:
        return None
    return media.uuid if len(media.uuid) <= MAX_UUID_CHARS else f"uuid:{text_hash(media.uuid)}"


def content_identifier(window: Window) -> str:
    """The hash of the decoded bytes; ``raw:`` and the hash of the string where it cannot be decoded."""
    poured = window.pour(ContentHash)
    return poured.hexdigest() if poured is not None else f"raw:{text_hash(window.content)}"


def url_key(url: str) -> str:
    """What a link is known by: its own hash, since it is not fetched."""
    return f"url:{text_hash(url)}"
