"""What will the engine call this item? Its media hash or the client's uuid; else a hash of the content or the link."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import unquote_plus

from tessera.core.draft import DraftMedia
from tessera.core.media.digests import text_hash
from tessera.core.media.mm_hash import HashFactors

MAX_UUID_CHARS: Final = 1024
"""A longer uuid is known by its hash, so that indexes of identifiers stay bounded."""
NOBODY: Final = "none"
"""The identifier of a part that carries nothing at all."""


class Name(NamedTuple):
    """An item's name."""

    identifier: str
    is_exact: bool = False
    """Whether it is letter for letter the engine's own."""


@dataclass(frozen=True, slots=True)
class Naming:
    """By which rules the items of one request are named."""

    factors: HashFactors = field(default_factory=HashFactors)
    url_keys_ignored: frozenset[str] = frozenset()
    """Keys of a link's query that do not tell one picture from another, signatures for example."""


def client_uuid(media: DraftMedia) -> str | None:
    """The uuid that the client gave, verbatim up to ``MAX_UUID_CHARS``; an empty one is none."""
    if not media.uuid:
        return None
    return media.uuid if len(media.uuid) <= MAX_UUID_CHARS else f"uuid:{text_hash(media.uuid)}"


def uuid_name(media: DraftMedia, factors: HashFactors) -> Name | None:
    """The name of an item with a uuid: the uuid, or its hash where the engine makes one; nothing without a uuid.

    The uuid of an item whose place among token ids is told is the engine's own name for it.
    """
    uuid = client_uuid(media)
    if uuid is None or media.uuid is None:
        return None
    if media.has_other_uuid:
        return Name(uuid)
    if media.num_tokens_declared is not None or not factors.has_kwargs(media.modality):
        return Name(uuid, is_exact=uuid == media.uuid)
    hashed = factors.uuid_hash(media.modality, media.uuid)
    return Name(uuid) if hashed is None else Name(hashed, is_exact=True)


def link_name(media: DraftMedia, naming: Naming) -> Name:
    """The name of an item without uuid and without content."""
    return Name(url_key(media.url, naming.url_keys_ignored) if media.url else NOBODY)


def raw_name(content: str) -> Name:
    """The name of content that cannot be decoded: a hash of the string."""
    return Name(f"raw:{text_hash(content)}")


def url_key(url: str, keys_ignored: Collection[str] = ()) -> str:
    """What a link is known by: its own hash, since it is not fetched; ``keys_ignored`` of its query do not count.

    >>> url_key("https://example.com/a.png?sig=1&v=2", {"sig"}) == url_key("https://example.com/a.png?v=2")
    True
    """
    return f"url:{text_hash(_without(url, keys_ignored) if keys_ignored else url)}"


def _without(url: str, keys: Collection[str]) -> str:
    """The URL without these keys of its query, and without the question mark where none is left."""
    place, hash_mark, fragment = url.partition("#")
    path, _, query = place.partition("?")
    kept = [pair for pair in query.split("&") if pair and unquote_plus(pair.partition("=")[0]) not in keys]
    return path + ("?" + "&".join(kept) if kept else "") + hash_mark + fragment
