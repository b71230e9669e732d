"""Is an item written as an earlier one of its request was? Who hashes no content tells items apart by that."""

from typing import Final

from tessera.core.draft import DraftMedia

MAX_DATA_HEAD_CHARS: Final = 512
"""Characters of a ``data:`` URL in which its comma is looked for."""


class Spellings:
    """The items of one request by their identifiers.

    Nothing is copied or hashed of an item whose identifier comes once. Memory: references to
    the draft's strings, and of identifiers that come again what stands for them in the body.
    """

    __slots__ = ("_first", "_known")

    def __init__(self) -> None:
        self._first: dict[str, DraftMedia] = {}
        self._known: dict[str, set[tuple[str, str]]] = {}

    def is_other(self, identifier: str, media: DraftMedia) -> bool:
        """Whether items with that identifier came before, and none of them was written like this one."""
        first = self._first.setdefault(identifier, media)
        if first is media:
            return False
        known = self._known.setdefault(identifier, {_spelling(first)})
        num_known = len(known)
        known.add(_spelling(media))
        return len(known) > num_known


def _spelling(media: DraftMedia) -> tuple[str, str]:
    """Modality, and the client's uuid, else the base64 text, else the link: as the sidecar tells items apart."""
    text = media.uuid or media.base64
    if text is None:
        text = media.url or ""
        if text.startswith("data:"):
            text = text[text.find(",", 0, MAX_DATA_HEAD_CHARS) + 1 :]
    return media.modality, text
