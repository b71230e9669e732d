"""What does a request for a transcript or a translation of a sound ask?

The sound is a file of a multipart form, carried as it is. The prompt holds it, then
the words that the client adds, whatever the order of the fields.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from tessera.core.dialects.json_body import MAX_NAME_CHARS, count_of, name_of, optional_text
from tessera.core.dialects.multipart import FormPart, boundary_of, form_parts
from tessera.core.draft import Draft, DraftMedia, DraftPart, DraftText
from tessera.core.headers import MAX_HEADER_CHARS, NO_HEADERS
from tessera.core.parts import Modality
from tessera.core.plugin import Dialect, plugin
from tessera.core.types import ModelProfile

NO_BOUNDARY = "no-boundary"
"""The guess of a body whose content-type names no boundary: it is routed unread."""
_TRUE = frozenset({"true", "t", "1", "on", "yes", "y"})
_MAX_VALUE_BYTES = 4 * MAX_NAME_CHARS
_MAX_DIGITS = 10


@plugin("transcriptions")
class TranscriptionsDialect(Dialect):
    """OpenAI's ``/v1/audio/transcriptions`` and ``/v1/audio/translations``."""

    paths: ClassVar = ("/audio/transcriptions", "/audio/translations")

    def parse(self, body: bytes, profile: ModelProfile, headers: Mapping[str, str] = NO_HEADERS) -> Draft:
        """One prompt: the sound, the client's prompt, the language. Of a repeated field the last counts."""
        boundary = boundary_of(headers.get("content-type", "")[:MAX_HEADER_CHARS])
        if boundary is None:
            return Draft(dialect="transcriptions", guesses=[NO_BOUNDARY])
        fields = {part.name: part for part in form_parts(body, boundary)}
        return Draft(
            dialect="transcriptions",
            model=name_of(_value(fields, "model")),
            prompts=[list(_prompt(fields))],
            stream=_value(fields, "stream").strip().lower() in _TRUE,
            max_output_tokens=_number(_value(fields, "max_completion_tokens")),
        )


def _prompt(fields: Mapping[str, FormPart]) -> Iterator[DraftPart]:
    if (file := fields.get("file")) is not None:
        yield DraftMedia(modality=Modality.AUDIO, content=file.content, format=optional_text(file.type))
    for name in ("prompt", "language"):
        if (words := fields.get(name)) is not None and words.content:
            yield DraftText(text=bytes(words.content))


def _value(fields: Mapping[str, FormPart], name: str) -> str:
    """The start of a field's text; empty where there is no such field."""
    part = fields.get(name)
    return bytes(part.content[:_MAX_VALUE_BYTES]).decode("utf-8", "replace") if part is not None else ""


def _number(text: str) -> int | None:
    is_number = len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit()
    return count_of(int(text)) if is_number else None
