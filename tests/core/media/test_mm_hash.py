"""Is a picture's name letter for letter the one that vLLM gives it?

``vectors/mm-hash.json`` holds what vLLM 0.32.0 answered for the sample pictures;
``TESSERA_MM_HASH_VECTORS`` names another file of that shape.
"""

import hashlib
import json
import os
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from tessera.core.draft import DraftMedia
from tessera.core.media.colour import ColourMode
from tessera.core.media.identity import Naming
from tessera.core.media.mm_hash import HashFactors
from tessera.core.media.probe import probe
from tessera.core.parts import MediaItem, Modality

HERE = Path(__file__).parent
SAMPLES = Path(os.environ.get("TESSERA_IMAGES_DIR") or HERE.parents[1] / "images")
VECTORS = Path(os.environ.get("TESSERA_MM_HASH_VECTORS") or HERE / "vectors" / "mm-hash.json")
MODEL = "Qwen/Qwen3-VL-32B-Instruct"


def named(
    content: bytes | None, modality: Modality = Modality.IMAGE, *, uuid: str | None = None, **factors: Any
) -> MediaItem:
    """The item of content that is asked for as base64, as the request's factors have it."""
    naming = Naming(HashFactors(**{"engine_model": MODEL} | factors))
    text = None if content is None else b64encode(content).decode()
    return probe(DraftMedia(modality=modality, base64=text, uuid=uuid), naming=naming, uses_pillow=True)


@pytest.mark.parametrize("vector", json.loads(VECTORS.read_text())["vectors"], ids=lambda vector: vector["file"])
def test_every_vector_of_the_engine(vector: dict[str, Any]) -> None:
    content = (SAMPLES / vector["file"]).read_bytes()
    for key, expected in vector.get("hashes", {}).items():
        model, algorithm = key.split("|")
        item = named(content, engine_model=model, algorithm=algorithm)
        assert (item.identifier, item.is_identity_exact) == (expected, True), key
    if "refused" in vector:
        assert not named(content).is_identity_exact


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data


IMAGE, VALUE = framed(b"image"), b"\3"
RGBA_HEAD = b"qoif" + (8).to_bytes(4, "big") * 2 + b"\4\0"
RGB_HEAD = b"qoif" + (8).to_bytes(4, "big") * 2 + b"\3\0"
TAIL = framed(b"model_id") + VALUE + framed(MODEL.encode())


def wrapped(mode: str, background: tuple[int, int, int], content: bytes) -> bytes:
    """A converted picture, as the engine frames it."""
    numbers = b"".join(VALUE + framed(number.to_bytes(8, "little")) for number in background)
    colour = framed(b"rgba_background_color") + b"\1" + (3).to_bytes(8, "little") + numbers
    config = b"\2" + (2).to_bytes(8, "little") + framed(b"image_mode") + VALUE + framed(mode.encode()) + colour
    head = b"\2" + (2).to_bytes(8, "little") + framed(b"io_config") + config
    return IMAGE + VALUE + IMAGE + head + framed(b"data") + VALUE + framed(content)


def plain(content: bytes) -> bytes:
    return IMAGE + VALUE + IMAGE + VALUE + framed(content)


def io_factor(modality: bytes, num_keys: int, entries: bytes) -> bytes:
    """``media_io_kwargs`` of one modality, framed."""
    inner = framed(modality) + b"\2" + num_keys.to_bytes(8, "little") + entries
    return framed(b"media_io_kwargs") + b"\2" + (1).to_bytes(8, "little") + inner


def test_the_frame_by_hand() -> None:
    assert named(RGB_HEAD).identifier == blake3(plain(RGB_HEAD) + TAIL).hexdigest()
    assert named(RGBA_HEAD).identifier == blake3(wrapped("RGB", (255, 255, 255), RGBA_HEAD) + TAIL).hexdigest()
    assert named(RGB_HEAD, algorithm="sha512").identifier == hashlib.sha512(plain(RGB_HEAD) + TAIL).hexdigest()


BLACK = {"image": {"rgba_background_color": [0, 0, 0]}}
BLACK_FRAMED = io_factor(
    b"image",
    1,
    framed(b"rgba_background_color") + b"\1" + (3).to_bytes(8, "little") + (VALUE + framed(bytes(8))) * 3,
)


def test_the_servers_loader_settings_count_for_their_modality_only() -> None:
    item = named(RGB_HEAD, server_media_io_kwargs=BLACK)
    assert item.identifier == blake3(plain(RGB_HEAD) + BLACK_FRAMED + TAIL).hexdigest()
    item = named(RGBA_HEAD, server_media_io_kwargs=BLACK)
    assert item.identifier == blake3(wrapped("RGB", (0, 0, 0), RGBA_HEAD) + BLACK_FRAMED + TAIL).hexdigest()
    for kwargs in ({}, {"video": {"num_frames": 8}}, {"image": {}}):
        assert named(RGB_HEAD, server_media_io_kwargs=kwargs).identifier == named(RGB_HEAD).identifier


def test_the_requests_loader_settings_go_over_the_servers() -> None:
    white = {"image": {"rgba_background_color": [255, 255, 255]}}
    both = named(RGBA_HEAD, server_media_io_kwargs=white, media_io_kwargs=BLACK)
    assert both.identifier == named(RGBA_HEAD, server_media_io_kwargs=BLACK).identifier
    assert both.is_identity_exact


def mode_factor(mode: str | None) -> bytes:
    value = b"\0" if mode is None else VALUE + framed(mode.encode())
    return io_factor(b"image", 1, framed(b"image_mode") + value)


def test_the_mode_that_the_engine_is_told_to_make() -> None:
    def asked(content: bytes, mode: str | None) -> MediaItem:
        return named(content, server_media_io_kwargs={"image": {"image_mode": mode}})

    kept = blake3(plain(RGBA_HEAD) + mode_factor(None) + TAIL).hexdigest()
    assert asked(RGBA_HEAD, None).identifier == kept
    assert asked(RGBA_HEAD, "RGBA").identifier == blake3(plain(RGBA_HEAD) + mode_factor("RGBA") + TAIL).hexdigest()
    made = blake3(wrapped("RGBA", (255, 255, 255), RGB_HEAD) + mode_factor("RGBA") + TAIL).hexdigest()
    assert asked(RGB_HEAD, "RGBA").identifier == made
    assert not asked(RGB_HEAD, "L").is_identity_exact


def test_the_requests_processor_settings_count_unless_they_are_anothers() -> None:
    kwargs = {"fps": 2, "videos_kwargs": {"a": 1}, "images_kwargs": {"b": True, "c": 0.5, "d": 1 << 63}}
    entries = (
        framed(b"fps") + VALUE + framed(b"\2" + bytes(7)) + framed(b"images_kwargs") + b"\2" + (3).to_bytes(8, "little")
    )
    entries += framed(b"b") + VALUE + framed(b"\1") + framed(b"c") + VALUE + framed(b"\0\0\0\0\0\0\xe0\x3f")
    entries += framed(b"d") + VALUE + framed(bytes(7) + b"\x80")
    factor = framed(b"mm_processor_kwargs") + b"\2" + (2).to_bytes(8, "little") + entries
    item = named(RGB_HEAD, mm_processor_kwargs=kwargs)
    assert item.identifier == blake3(plain(RGB_HEAD) + factor + TAIL).hexdigest()


@pytest.mark.parametrize(
    "unknown",
    [
        {"engine_model": ""},
        {"is_complete": False},
        {"mm_processor_kwargs": {"a": 1 << 64}},
        {"mm_processor_kwargs": {"a": "\ud800"}},
        {"media_io_kwargs": {"image": [1]}},
        {"media_io_kwargs": {"image": {"image_mode": [1]}}},
        {"media_io_kwargs": {"image": {"rgba_background_color": "red"}}},
        {"media_io_kwargs": {"image": {"x": {"y": object()}}}},
        {"server_media_io_kwargs": {"image": {"rgba_background_color": 7}}},
    ],
)
def test_what_cannot_be_known_is_named_by_its_content(unknown: dict[str, Any]) -> None:
    item = named(RGB_HEAD, **unknown)
    assert not item.is_identity_exact
    assert item.identifier == probe(DraftMedia(modality=Modality.IMAGE, content=RGB_HEAD)).identifier


def test_a_uuid_is_hashed_where_there_are_factors() -> None:
    uuid = VALUE + framed(b"sku-7")
    item = named(RGB_HEAD, uuid="sku-7", server_media_io_kwargs=BLACK)
    assert item.identifier == blake3(IMAGE + uuid + BLACK_FRAMED + TAIL).hexdigest()
    assert (item.uuid, item.is_identity_exact) == ("sku-7", True)
    clip = named(None, Modality.VIDEO, uuid="sku-7", server_media_io_kwargs={"video": {"num_frames": 8}})
    factor = io_factor(b"video", 1, framed(b"num_frames") + VALUE + framed(b"\10" + bytes(7)))
    assert clip.identifier == blake3(factor + TAIL + framed(b"video") + uuid).hexdigest()
    assert named(None, uuid="sku-7", server_media_io_kwargs={"video": {"fps": 1}}).identifier == "sku-7"


@pytest.mark.parametrize(
    "unknown",
    [
        {"engine_model": "", "server_media_io_kwargs": {"video": {"fps": 1}}},
        {"is_complete": False},
        {"media_io_kwargs": {"video": {"fps": 1}}},
    ],
)
def test_a_uuid_stays_as_it_is_where_its_hash_is_not_known(unknown: dict[str, Any]) -> None:
    item = named(None, Modality.VIDEO, uuid="sku-7", **unknown)
    assert (item.identifier, item.is_identity_exact) == ("sku-7", False)


@pytest.mark.parametrize("modality", [Modality.VIDEO, Modality.AUDIO])
def test_clips_and_sounds_are_named_by_their_content(modality: Modality, picture: Callable[[str], bytes]) -> None:
    content = picture("gif_anim.gif")
    item = named(content, modality)
    assert item.identifier == probe(DraftMedia(modality=modality, content=content)).identifier
    assert not item.is_identity_exact


def test_embeddings_are_named_by_their_content() -> None:
    naming = Naming(HashFactors(engine_model=MODEL))
    item = probe(DraftMedia(modality=Modality.IMAGE, content=RGB_HEAD, is_embeds=True), naming=naming)
    assert (item.identifier, item.is_identity_exact) == (named(RGB_HEAD, engine_model="").identifier, False)


def test_models_algorithms_and_colours_make_other_names() -> None:
    factors = [HashFactors(engine_model=model, algorithm=name) for model in ("a", "b") for name in ("blake3", "sha256")]
    names = set()
    for each in factors:
        for mode in ColourMode:
            hashed = each.image_hash(0, mode)
            assert hashed is not None
            names.add(hashed.hexdigest())
    # A picture that is not RGB is converted in the same way, whatever it is.
    assert len(names) == 4 * 2
