"""Is a media part what the manifest says, and ignorance a reason, for every string there is?"""

from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_hexdigest

from tessera.core.draft import DraftMedia
from tessera.core.media import pillow
from tessera.core.media.probe import Steps, probe
from tessera.core.media.size import Reason
from tessera.core.parts import MediaItem, Modality

Part = Callable[..., DraftMedia]
NAMES = {
    ".png": "png",
    ".jpg": "jpeg",
    ".gif": "gif",
    ".webp": "webp",
    ".bmp": "bmp",
    ".tif": "tiff",
    ".avif": "avif",
    ".jp2": "jpeg2000",
    ".j2k": "jpeg2000",
    ".qoi": "qoi",
    ".tga": "tga",
    ".dds": "dds",
    ".sgi": "sgi",
    ".psd": "psd",
}
"""Formats by the suffix of the samples' names."""
MAGICS = [b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", b"\xff\xd8\xff", b"GIF89a", b"BM", b"II*\0"]


def inline(content: bytes) -> DraftMedia:
    return DraftMedia(modality=Modality.IMAGE, url=f"data:image/jpeg;base64,{b64encode(content).decode()}")


def test_each_picture_has_the_manifests_size_or_refusal(sample: dict[str, Any], sample_bytes: bytes) -> None:
    item = probe(inline(sample_bytes), uses_pillow=True)
    expect = sample["expect"]
    if expect["accept"]:
        name = NAMES.get("." + sample["file"].rsplit(".", 1)[1], item.format)
        assert (item.format, item.width, item.height, item.reason) == (name, expect["w"], expect["h"], None)
    else:
        assert (item.width, item.height) == (None, None)
        assert item.reason
    assert item.num_bytes == sample["bytes"] == len(sample_bytes)
    assert item.identifier == xxh3_128_hexdigest(sample_bytes)
    assert item.has_content


def test_on_an_event_loop_some_pictures_wait_for_pillow(sample: dict[str, Any], sample_bytes: bytes) -> None:
    whole, quick = probe(inline(sample_bytes), uses_pillow=True), probe(inline(sample_bytes))
    if whole.format and whole.format.upper() in pillow.FORMATS:
        assert quick == replace(whole, format=None, width=None, height=None, reason="slow-format")
    else:
        assert quick == whole


TEXTS = st.one_of(
    st.none(),
    st.text(max_size=60),
    st.text(st.characters(categories=["Cs", "L", "P"]), max_size=20),
    st.builds("data:{};base64,{}".format, st.text(max_size=10), st.text(max_size=40)),
    st.builds("data:,{}".format, st.text("%0aF\\xé", max_size=30)),
    st.builds(lambda head, rest: b64encode(head + rest).decode(), st.sampled_from(MAGICS), st.binary(max_size=80)),
    st.text("ABab01+/-_=% \n", max_size=40),
)


@settings(max_examples=100, deadline=None)
@given(modality=st.sampled_from(Modality), url=TEXTS, base64=TEXTS, uuid=TEXTS, claim=TEXTS)
def test_no_string_is_an_error(
    modality: Modality, url: str | None, base64: str | None, uuid: str | None, claim: str | None
) -> None:
    item = probe(DraftMedia(modality=modality, url=url, base64=base64, uuid=uuid, format=claim))
    assert item.modality is modality
    assert item.identifier
    assert (item.width is None) == (item.height is None)
    knows_all = item.duration_s is not None if modality is Modality.AUDIO else item.width is not None
    knows_all = knows_all and (modality is not Modality.VIDEO or item.num_frames is not None)
    assert knows_all == (item.reason is None)
    assert item.num_bytes == 0 or item.has_content


def test_what_the_client_claims_is_not_believed(picture: Callable[[str], bytes], image: Part) -> None:
    text = b64encode(picture("png_rgba.png")).decode()
    plain = probe(image(f"data:image/png;base64,{text}"))
    for url in (f"data:video/mp4;base64,{text}", f"data:;base64,{text}", f"DATA:image/svg+xml;BASE64,{text}"):
        assert probe(image(url)) == plain
    assert probe(image(base64=text, format="wav")) == plain
    assert (plain.format, plain.width, plain.height) == ("png", 317, 203)


@pytest.mark.parametrize(
    "url", ["https://example.com/a.png", "http://x", "file:///a.png", "ftp://x", "iVBORw0KGgo", "?"]
)
def test_links_are_not_followed(image: Part, url: str) -> None:
    key = f"url:{xxh3_128_hexdigest(url.encode())}"
    assert probe(image(url)) == MediaItem(
        modality=Modality.IMAGE, format=None, identifier=key, url_key=key, has_content=False, reason="link"
    )


def test_a_uuid_names_what_the_engine_is_to_hold(image: Part) -> None:
    only = MediaItem(
        modality=Modality.IMAGE,
        format=None,
        identifier="sku-7",
        is_identity_exact=True,
        uuid="sku-7",
        has_content=False,
        reason="uuid-only",
    )
    assert probe(image(uuid="sku-7")) == only
    linked = probe(image("https://example.com/a.png", uuid="sku-7"))
    assert (linked.identifier, linked.reason, linked.has_content) == ("sku-7", "link", False)
    assert linked.url_key == f"url:{xxh3_128_hexdigest(b'https://example.com/a.png')}"


def test_a_uuid_beside_content_changes_only_the_name(picture: Callable[[str], bytes]) -> None:
    for text in (b64encode(picture("jpeg_exif_o6.jpg")).decode(), b64encode(b"no picture").decode() + "\n", "!"):
        plain = probe(DraftMedia(modality=Modality.IMAGE, base64=text))
        named = probe(DraftMedia(modality=Modality.IMAGE, base64=text, uuid="sku-7"))
        assert named == replace(plain, identifier="sku-7", is_identity_exact=True, uuid="sku-7")


def test_nothing_at_all(image: Part) -> None:
    for part in (image(), image(""), image(uuid="")):
        item = probe(part)
        assert (item.identifier, item.reason, item.has_content) == ("none", "no-content", False)


@pytest.mark.parametrize("modality", [Modality.VIDEO, Modality.AUDIO])
def test_sounds_and_clips_have_a_name_and_a_length(modality: Modality) -> None:
    item = probe(DraftMedia(modality=modality, base64="YWJj", format="wav"))
    assert item == MediaItem(
        modality=modality,
        format=None,
        identifier="06b05ab6733a618578af5f94892f3950",
        num_bytes=3,
        reason="unknown-format",
    )
    assert probe(DraftMedia(modality=modality, url="https://example.com/a.mp4")).reason == "link"


@pytest.mark.parametrize(
    ("content", "form", "reason"),
    [
        (b"", None, "unknown-format"),
        (b"no picture at all", None, "slow-format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg' width='4' height='3'/>", "svg", "refused-format"),
        (b"\xff\xd8\xff\xe0", "jpeg", "truncated-header"),
        (b"\xff\xd8\xff" + b"\xff" * (4 << 20), "jpeg", "header-limit"),
        (b"GIF89a\0\0\0\0\0\0\0,\0\0\0\0\0\0\0\0\0", "gif", "bad-header"),
        (MAGICS[0] + b"\0\0\xea\x60\0\0\xea\x60\x08\2\0\0\0", "png", "too-many-pixels"),
    ],
)
def test_ignorance_has_a_reason(content: bytes, form: str | None, reason: str) -> None:
    item = probe(inline(content))
    assert (item.format, item.width, item.height, item.reason) == (form, None, None, reason)
    assert item.num_bytes == len(content)


def test_what_cannot_be_decoded_keeps_a_name(image: Part) -> None:
    item = probe(image("data:image/png;base64,iVBOR?"))
    assert item.identifier == f"raw:{xxh3_128_hexdigest(b'data:image/png;base64,iVBOR?')}"
    assert (item.has_content, item.num_bytes, item.reason) == (True, 0, "bad-base64")


def test_content_beats_a_link_beside_it(image: Part) -> None:
    item = probe(image("https://example.com/a.png", base64="YWJj"))
    assert (item.has_content, item.num_bytes, item.url_key) == (True, 3, None)


def test_the_items_of_a_request_share_their_steps() -> None:
    segments = b"\xff\xd8" + b"\xff\xfe\x00\x02" * 900
    media = DraftMedia(modality=Modality.IMAGE, base64=b64encode(segments).decode())
    steps = Steps(2000)
    reasons = [probe(media, steps=steps).reason for _ in range(8)]
    assert reasons[0] == Reason.TRUNCATED_HEADER
    assert reasons[-1] == Reason.HEADER_LIMIT
    assert steps.left <= 0
    photo = DraftMedia(modality=Modality.IMAGE, base64="iVBORw0KGgo=")
    assert probe(photo, steps=steps).reason == Reason.HEADER_LIMIT


def test_the_steps_of_a_look_in_vain_count() -> None:
    """Content that is not clean base64 is looked at twice, and never more often."""
    segments = b"\xff\xd8" + b"\xff\xfe\x00\x02" * 300
    clean = b64encode(segments).decode()
    used = []
    for text in (clean, clean + "\n"):
        steps = Steps()
        item = probe(DraftMedia(modality=Modality.IMAGE, base64=text), steps=steps)
        assert item.reason == Reason.TRUNCATED_HEADER
        used.append(Steps().left - steps.left)
    assert used[0] == 302
    assert 302 < used[1] <= 604
