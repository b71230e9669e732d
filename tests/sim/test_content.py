import io
import json
import re

from PIL import Image as Pillow

from tessera.sim.content import Ask, Image, Message, Text, body_of, png_of, text_of, url_of, user


def test_a_picture_is_a_png_of_its_size_and_one_colour():
    with Pillow.open(io.BytesIO(png_of(Image("a", 1280, 720)))) as picture:
        picture.load()
        assert (picture.format, picture.size) == ("PNG", (1280, 720))
        assert len(picture.convert("RGB").getcolors()) == 1


def test_keys_tell_pictures_apart_and_nothing_else_does():
    assert png_of(Image("a", 64, 36)) == png_of(Image("a", 64, 36))
    assert len({png_of(Image(f"{n}", 64, 36)) for n in range(500)}) == 500
    colourless = {re.sub(rb"PLTE.{7}", b"", png_of(Image(name, 64, 36)), flags=re.S) for name in ("\u732b", "\u72ac")}
    assert len(colourless) == 2, "names tell pictures apart, not their colours alone"


def test_a_body_is_small_though_its_picture_is_large():
    assert len(body_of(user(Image("a", 3840, 2160), num_output_tokens=1), "m")) < 8192


def test_text_is_four_bytes_a_token():
    assert len(text_of(Text("a", 37))) == 148
    assert text_of(Text("a", 37)) != text_of(Text("b", 37))


def test_a_link_names_the_picture():
    assert url_of(Image("a", 64, 36, is_link=True)) == "https://images.example/a-64x36.png"
    assert url_of(Image("a", 64, 36)).startswith("data:image/png;base64,iVBOR")


def test_the_body_holds_the_messages_in_order():
    ask = Ask((Message("system", (Text("s", 1),)), Message("user", (Image("i", 64, 36), Text("q", 2)))), 30)
    body = json.loads(body_of(ask, "m"))
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert [part["type"] for part in body["messages"][1]["content"]] == ["image_url", "text"]
    assert (body["model"], body["max_tokens"], body["ignore_eos"], body["stream"]) == ("m", 30, True, True)
