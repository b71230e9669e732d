"""Requests with pictures: formats, modes, sizes, several at once, in earlier turns, by uuid."""

from .case import Case, chat, message, prose, user
from .pictures import image, picture, sample, uri

ASK = "Describe the picture in one sentence, please."
FORMATS = {
    "png-rgb": picture(seed=1),
    "png-rgba": picture(mode="RGBA", seed=2),
    "png-grey": picture(mode="L", seed=3),
    "png-grey-alpha": picture(mode="LA", seed=4),
    "png-palette": picture(mode="P", seed=5),
    "png-one-bit": sample("png_1bit.png"),
    "png-sixteen-bits": sample("png_gray16.png"),
    "png-rotated": sample("png_exif_o6.png"),
    "apng": sample("apng.png"),
    "jpeg": picture("JPEG", seed=6),
    "jpeg-grey": picture("JPEG", "L", seed=7),
    "jpeg-cmyk": picture("JPEG", "CMYK", seed=8),
    "jpeg-progressive": sample("jpeg_progressive.jpg"),
    "jpeg-rotated": sample("jpeg_exif_o6.jpg"),
    "webp": picture("WEBP", seed=9),
    "webp-alpha": picture("WEBP", "RGBA", seed=10),
    "webp-lossless": sample("webp_vp8l.webp"),
    "webp-animated": sample("webp_anim.webp"),
    "gif": picture("GIF", "P", seed=11),
    "gif-animated": sample("gif_anim.gif"),
    "bmp": picture("BMP", seed=12),
    "bmp-palette": picture("BMP", "P", seed=13),
}
LESS_USUAL = {"avif": sample("avif.avif"), "tiff": sample("tiff_multipage.tif"), "qoi": sample("qoi.qoi")}
BEGUN = {"continue_final_message": True, "add_generation_prompt": False}
SIZES = {"tiny": (40, 30), "odd": (333, 777), "half-way": (1280, 720), "wide": (1600, 200)}


def formats() -> list[Case]:
    return [
        *(chat(name, user(image(content, name.split("-")[0]), ASK)) for name, content in FORMATS.items()),
        *(chat(name, user(image(content, name), ASK), may_decline=True) for name, content in LESS_USUAL.items()),
        *(chat(name, user(image(picture("JPEG", size=size), "jpeg"), ASK)) for name, size in SIZES.items()),
        chat("called-png-but-jpeg", user(image(picture("JPEG", seed=14), "png"), ASK)),
        chat("part-without-type", user({"image_url": uri(picture(seed=15))}, ASK)),
    ]


def several() -> list[Case]:
    a, b, c = (picture(seed=seed, size=size) for seed, size in ((20, (320, 240)), (21, (256, 256)), (22, (500, 300))))
    return [
        chat("a", user(image(a), ASK)),
        chat("a-again", user(image(a), ASK)),
        chat("a-other-text", user(image(a), "What colour is it, and what is beside it? " + prose(2))),
        chat("b-same-text", user(image(b), ASK)),
        chat("text-first", user(ASK, image(a))),
        chat("picture-alone", user(image(a))),
        chat("a-and-b", user(image(a), image(b), ASK)),
        chat("b-and-a", user(image(b), image(a), ASK)),
        chat("a-twice-adjacent", user(image(a), image(a), ASK)),
        chat("a-twice-apart", user(image(a), "Compare it with this one: " + prose(4), image(a), ASK)),
        chat(
            "five", user("One ", image(a), "two ", image(b), "three ", image(c), "four ", image(a), "five ", image(b))
        ),
        chat("numbered", user(image(a), image(b), ASK), chat_template_kwargs={"add_vision_id": True}),
        chat("system-and-a", message("system", prose(3)), user(image(a), ASK)),
        chat("picture-in-system", message("system", "This is our emblem: ", image(c)), user(image(a), ASK)),
        chat("salted-picture", user(image(picture(seed=23)), ASK), cache_salt="tenant-a"),
        chat("a-two-answers", user(image(a), "Name it. " + prose(2)), n=2, temperature=0.5, seed=1),
        chat("picture-token-behind", user(image(a), "Is <|image_pad|> a token? " + prose(2)), may_decline=True),
        chat("picture-token-before", user("Is <|image_pad|> a token?", image(a), prose(2)), may_decline=True),
    ]


def turns() -> list[Case]:
    a, b = picture("JPEG", seed=30), picture("WEBP", seed=31)
    first = (user(image(a, "jpeg"), ASK), message("assistant", "A few blurred colours."))
    second = (*first, user(image(b, "webp"), "And this one?"), message("assistant", "Colours again."))
    return [
        chat("turn-1", first[0]),
        chat("turn-2", *first, user("Which colour is most prominent in it? " + prose(2))),
        chat("turn-2-picture", *second[:3]),
        chat("turn-3", *second, user("Compare both. " + prose(2))),
        chat("turn-3-begun", *second, user("Compare both."), message("assistant", "Both are "), **BEGUN),
    ]


def by_uuid() -> list[Case]:
    a, b = picture(seed=40), picture(seed=41)
    return [
        chat("uuid", user(image(a, uuid="picture-40"), ASK)),
        chat("uuid-alone", user(image(None, uuid="picture-40"), ASK)),
        chat("uuid-alone-other-text", user("Once more: ", image(None, uuid="picture-40"), prose(3)), may_decline=True),
        chat("uuid-and-hash", user(image(a, uuid="picture-40"), image(b), ASK)),
        chat("uuid-twice", user(image(b, uuid="picture-41"), image(b, uuid="picture-41"), ASK)),
        chat("uuid-of-a-hash", user(image(b, uuid="0" * 64), ASK)),
    ]
