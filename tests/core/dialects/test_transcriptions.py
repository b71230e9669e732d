"""What a form asks that has a sound in it."""

import pytest

from tessera.core.dialects.transcriptions import TranscriptionsDialect
from tessera.core.draft import DraftMedia, DraftText
from tessera.core.errors import RequestError
from tessera.core.media.digests import ContentHash
from tessera.core.parts import MediaItem, Modality, TextPart
from tessera.core.reading import dialect_of
from tessera.core.router import Router
from tessera.core.types import ModelProfile

TYPE = {"content-type": "multipart/form-data; boundary=xx"}
SOUND = b"RIFF\x24\0\0\0WAVE" + bytes(range(256))


def form(**fields):
    parts = []
    for name, content in fields.items():
        file = '; filename="a.wav"\r\nContent-Type: audio/wav' if isinstance(content, bytes) else ""
        data = content if isinstance(content, bytes) else content.encode()
        parts.append(f'--xx\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode() + data + b"\r\n")
    return b"".join(parts) + b"--xx--\r\n"


def parse(body, headers=TYPE):
    return TranscriptionsDialect().parse(body, ModelProfile(), headers)


def test_the_sound_then_the_words_whatever_the_order_of_the_fields():
    draft = parse(form(language="en", prompt="Names: Ada.", model="whisper", file=SOUND, stream="true"))
    sound = DraftMedia(modality=Modality.AUDIO, content=SOUND, format="audio/wav")
    assert draft.prompts == [[sound, DraftText(text=b"Names: Ada."), DraftText(text=b"en")]]
    assert (draft.dialect, draft.model, draft.stream, draft.guesses) == ("transcriptions", "whisper", True, [])
    assert parse(form(file=SOUND, prompt="")).prompts == [[sound]]


@pytest.mark.parametrize(
    ("value", "stream"), [("True", True), ("1", True), ("false", False), ("0", False), ("", False)]
)
def test_whether_the_answer_is_streamed(value, stream):
    assert parse(form(file=SOUND, stream=value)).stream is stream


@pytest.mark.parametrize(
    ("value", "limit"),
    [("7", 7), ("0", None), ("-1", None), ("7.5", None), ("٣", None), ("9" * 5000, None), ("", None)],
)
def test_the_limit_of_the_answer(value, limit):
    assert parse(form(file=SOUND, max_completion_tokens=value)).max_output_tokens == limit


def test_a_form_without_a_sound_is_the_engines_affair():
    assert parse(form(model="m")).prompts == [[]]
    assert parse(b"--xx--").prompts == [[]]


@pytest.mark.parametrize("headers", [{}, {"content-type": "application/json"}, {"content-type": "multipart/form-data"}])
def test_a_body_without_boundary_is_not_read(headers):
    draft = parse(b"anything", headers)
    assert (draft.prompts, draft.guesses) == ([], ["no-boundary"])


def test_a_malformed_form_is_a_400():
    with pytest.raises(RequestError) as caught:
        parse(b"--xx\r\n")
    assert caught.value.status == 400


def test_of_a_repeated_field_the_last_counts():
    assert parse(form(model="a", file=SOUND)[:-8] + form(model="b")).model == "b"


def test_a_sound_is_known_by_its_bytes_and_is_no_text():
    headers = {":path": "/v1/audio/translations", ":method": "POST"} | TYPE
    body = form(file=SOUND, prompt="Ada")
    request, _ = Router.read(body, headers, ModelProfile(), request_id="r", at=0.0, wall_at=0.0)
    item, words = request.prompts[0]
    hashed = ContentHash()
    hashed.update(SOUND)
    assert isinstance(item, MediaItem)
    assert (item.modality, item.identifier, item.num_bytes) == (Modality.AUDIO, hashed.hexdigest(), len(SOUND))
    assert item.has_content
    assert isinstance(words, TextPart)
    assert (words.num_bytes, request.body_bytes) == (3, len(body))


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/audio/translations?x=1"])
def test_its_paths(path):
    assert type(dialect_of(path)) is TranscriptionsDialect
