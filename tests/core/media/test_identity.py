"""Has one picture one name, and has what is no picture a name too?"""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_hexdigest

from tessera.core.draft import DraftMedia
from tessera.core.media.identity import MAX_UUID_CHARS, content_identifier, identifier, url_key
from tessera.core.media.probe import probe
from tessera.core.media.window import Window
from tessera.core.parts import Modality

Part = Callable[..., DraftMedia]


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


@settings(max_examples=100, deadline=None)
@given(data=st.data(), content=st.binary(max_size=500))
def test_one_content_has_one_name(data: st.DataObject, content: bytes) -> None:
    text = data.draw(spelt(content))
    assert content_identifier(Window(text)) == xxh3_128_hexdigest(content)
    item = probe(DraftMedia(modality=Modality.IMAGE, base64=text))
    assert (item.identifier, item.num_bytes) == (xxh3_128_hexdigest(content), len(content))


@settings(max_examples=100, deadline=None)
@given(one=st.binary(max_size=40), other=st.binary(max_size=40))
def test_two_contents_have_two_names(one: bytes, other: bytes) -> None:
    names = [content_identifier(Window(b64encode(content).decode())) for content in (one, other)]
    assert (names[0] == names[1]) == (one == other)


def test_pinned_names(image: Part) -> None:
    window = Window("YWJj")
    assert identifier(image(base64="YWJj"), window) == "06b05ab6733a618578af5f94892f3950"
    assert content_identifier(Window("!")) == "raw:b09a451b76367e3d5fbb498e55810a1a"
    assert content_identifier(Window("\ud800")) == "raw:5d8223c465c8d5f1daab8382539269d0"
    assert identifier(image("https://example.com/a.png"), None) == "url:67793af16e7aacf3609c46e89969b787"
    assert identifier(image(), None) == "none"


def test_the_clients_uuid_wins(image: Part) -> None:
    for part in (image(uuid="sku-7"), image("https://example.com/a.png", uuid="sku-7"), image(uuid="sku-7", url="")):
        assert identifier(part, None) == "sku-7"
    assert identifier(image(base64="YWJj", uuid="sku-7"), Window("YWJj")) == "sku-7"
    assert identifier(image(base64="YWJj", uuid=""), Window("YWJj")) == "06b05ab6733a618578af5f94892f3950"


def test_an_endless_uuid_is_known_by_its_hash(image: Part) -> None:
    longest = "u" * MAX_UUID_CHARS
    assert identifier(image(uuid=longest), None) == longest
    assert identifier(image(uuid=longest + "u"), None) == f"uuid:{xxh3_128_hexdigest((longest + 'u').encode())}"


def test_links_differ_by_every_character() -> None:
    keys = {url_key(f"https://example.com/{name}") for name in ("a", "A", "a?", "a#x", "")}
    assert len(keys) == 5
