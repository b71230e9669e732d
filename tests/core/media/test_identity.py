"""Has one picture one name, and has what is no picture a name too?"""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_hexdigest

from tessera.core.draft import DraftMedia
from tessera.core.media.identity import MAX_UUID_CHARS, Naming, client_uuid, url_key
from tessera.core.media.mm_hash import HashFactors
from tessera.core.media.probe import PLAIN, probe
from tessera.core.parts import MediaItem, Modality

Part = Callable[..., DraftMedia]
QWEN = Naming(HashFactors(engine_model="Qwen/Qwen3-VL-32B-Instruct"))


@st.composite
def spelt(draw: st.DrawFn, content: bytes) -> str:
    """The content in a random spelling."""
    encode = draw(st.sampled_from([b64encode, urlsafe_b64encode]))
    text = encode(content).decode()
    if draw(st.booleans()):
        text = text.rstrip("=")
    width = draw(st.sampled_from([0, 4, 64, 76, 77]))
    if width:
        newline = draw(st.sampled_from(["\n", "\r\n", " ", "\n\t"]))
        text = newline.join(text[at : at + width] for at in range(0, len(text), width))
    if draw(st.booleans()):
        text = quote(text, safe=draw(st.sampled_from(["", "/", "+", "\n "])))
    head = draw(
        st.sampled_from(["", "data:image/png;base64,", "data:,", "DATA:;Base64,", "data:text/html;x=y;base64,"])
    )
    return f"data:,{quote(content, safe='')}" if head == "data:," else head + text


def named(naming: Naming = PLAIN, **fields: object) -> MediaItem:
    """The item of an image part."""
    return probe(DraftMedia(modality=Modality.IMAGE, **fields), naming=naming)  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(data=st.data(), content=st.binary(max_size=500))
def test_one_content_has_one_name(data: st.DataObject, content: bytes) -> None:
    item = named(base64=data.draw(spelt(content)))
    assert (item.identifier, item.num_bytes) == (xxh3_128_hexdigest(content), len(content))
    assert not item.is_identity_exact


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from(["png_rgba.png", "jpeg_cmyk.jpg", "jpeg_exif_o6.jpg", "avif_alpha.avif"]))
def test_one_picture_has_one_name_in_the_engine(
    data: st.DataObject, picture: Callable[[str], bytes], name: str
) -> None:
    content = picture(name)
    plain = named(QWEN, content=content)
    assert plain.is_identity_exact
    assert len(plain.identifier) == 64
    assert named(QWEN, base64=data.draw(spelt(content))) == plain


@settings(max_examples=100, deadline=None)
@given(one=st.binary(max_size=40), other=st.binary(max_size=40))
@pytest.mark.parametrize("naming", [Naming(), QWEN])
def test_two_contents_have_two_names(naming: Naming, one: bytes, other: bytes) -> None:
    # What is behind the last row of a picture does not change its header.
    names = [
        named(naming, base64=b64encode(start + content).decode()) for start in (b"", QOI) for content in (one, other)
    ]
    assert {names[0].is_identity_exact, names[2].is_identity_exact} == {False, naming is QWEN}
    assert (names[0].identifier == names[1].identifier) == (one == other)
    assert (names[2].identifier == names[3].identifier) == (one == other)


QOI = b"qoif" + (8).to_bytes(4, "big") * 2 + b"\3\0"


def test_pinned_names(image: Part) -> None:
    assert probe(image(base64="YWJj")).identifier == "06b05ab6733a618578af5f94892f3950"
    assert probe(image(base64="!")).identifier == "raw:b09a451b76367e3d5fbb498e55810a1a"
    assert probe(image(base64="\ud800")).identifier == "raw:5d8223c465c8d5f1daab8382539269d0"
    assert probe(image("https://example.com/a.png")).identifier == "url:67793af16e7aacf3609c46e89969b787"
    assert probe(image()).identifier == "none"


def test_the_clients_uuid_wins(image: Part) -> None:
    for naming in (Naming(), QWEN):
        for part in (
            image(uuid="sku-7"),
            image("https://example.com/a.png", uuid="sku-7"),
            image(uuid="sku-7", url=""),
        ):
            item = probe(part, naming=naming)
            assert (item.identifier, item.uuid, item.is_identity_exact) == ("sku-7", "sku-7", True)
        assert probe(image(base64="YWJj", uuid="sku-7"), naming=naming).identifier == "sku-7"
    assert probe(image(base64="YWJj", uuid="")).identifier == "06b05ab6733a618578af5f94892f3950"


def test_a_uuid_that_is_not_kept_leaves_no_exact_name(image: Part) -> None:
    for part in (image(content=b"GIF"), image(content=b"GIF", uuid="a?"), image(uuid="a?")):
        part.has_other_uuid = True
        assert not probe(part, naming=QWEN).is_identity_exact


def test_what_stands_among_token_ids_has_the_engines_own_name(image: Part) -> None:
    kwargs = Naming(HashFactors(engine_model="m", server_media_io_kwargs={"image": {"image_mode": "RGBA"}}))
    assert probe(image(uuid="hash"), naming=kwargs).identifier != "hash"
    item = probe(image(uuid="hash", num_tokens_declared=3), naming=kwargs)
    assert (item.identifier, item.is_identity_exact) == ("hash", True)


def test_an_endless_uuid_is_known_by_its_hash(image: Part) -> None:
    longest = "u" * MAX_UUID_CHARS
    assert client_uuid(image(uuid=longest)) == longest
    item = probe(image(uuid=longest + "u"), naming=QWEN)
    assert item.identifier == f"uuid:{xxh3_128_hexdigest((longest + 'u').encode())}"
    assert not item.is_identity_exact


def test_links_differ_by_every_character() -> None:
    keys = {url_key(f"https://example.com/{name}") for name in ("a", "A", "a?", "a#x", "")}
    assert len(keys) == 5


SIGNED = frozenset({"X-Amz-Signature", "sig", "a b"})


@pytest.mark.parametrize(
    ("query", "same_as"),
    [
        ("?sig=1", ""),
        ("?sig", ""),
        ("?v=2&sig=1&w=3", "?v=2&w=3"),
        ("?sig=1&X-Amz-Signature=aa&v=2", "?v=2"),
        ("?a%20b=1&a+b=2&v=2", "?v=2"),
        ("?v=2&sig=1#top", "?v=2#top"),
        ("#x?sig=1", "#x?sig=1"),
    ],
)
def test_keys_that_are_ignored_do_not_count(image: Part, query: str, same_as: str) -> None:
    url = f"https://example.com/a.png{query}"
    item = probe(image(url), naming=Naming(url_keys_ignored=SIGNED))
    assert item.identifier == item.url_key == url_key(f"https://example.com/a.png{same_as}")
    assert not item.is_identity_exact
    assert (url_key(url) == item.identifier) == (query == same_as)


def test_other_keys_count(image: Part) -> None:
    naming = Naming(url_keys_ignored=SIGNED)
    queries = ("", "?Sig=1", "?sig2=1", "?v=1", "?v=2", "?v=1&v=2", "?v=sig")
    assert len({probe(image(f"https://example.com/a{query}"), naming=naming).identifier for query in queries}) == 7
