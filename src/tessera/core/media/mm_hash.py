"""What does vLLM call this picture, or this uuid? Its media hash, framed as the engine frames it.

The hash goes over the original encoded bytes, so no pixel is decoded; of the picture
only its colour mode must be known, because the engine hashes with it how it converted
what is not in the mode that it wants. Clips and sounds are hashed after they are
decoded, so they have no hash here; a client's uuid has one.

Source: ``vllm/multimodal/hasher.py``, ``processing/inputs.py``, ``media/image.py`` and
``media/connector.py`` of vLLM 0.32.0.
"""

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from blake3 import blake3

from tessera.core.media.colour import ColourMode
from tessera.core.parts import Modality


class Hasher(Protocol):
    """A hash function's state."""

    def update(self, data: bytes | memoryview, /) -> object:
        """Take the next bytes."""

    def hexdigest(self) -> str:
        """Lower-case hexadecimal digits."""


ALGORITHMS: Final[Mapping[str, Callable[[], Hasher]]] = {
    "blake3": blake3,
    "sha256": hashlib.sha256,
    "sha512": hashlib.sha512,
}
"""By the values of the engine's ``--mm-hasher-algorithm``: digests of 256, 256 and 512 bits."""

_NONE, _SEQUENCE, _MAPPING, _LEAF = b"\0", b"\1", b"\2", b"\3"
_INT64 = range(-(1 << 63), 1 << 63)
_UINT64 = range(1 << 63, 1 << 64)
_PROCESSOR_KEYS: Final = {
    Modality.IMAGE: "images_kwargs",
    Modality.VIDEO: "videos_kwargs",
    Modality.AUDIO: "audio_kwargs",
}
"""Keys of ``mm_processor_kwargs`` that count for one modality only; all others count for each."""
_WANTED_MODE: Final = "RGB"
_BACKGROUND: Final = (255, 255, 255)


class MediaHash:
    """The media hash of content that comes in pieces."""

    __slots__ = ("_after", "_hasher")

    def __init__(self, algorithm: str, before: bytes, after: bytes) -> None:
        self._hasher = ALGORITHMS[algorithm]()
        self._hasher.update(before)
        self._after = after

    def update(self, data: bytes | memoryview, /) -> None:
        """Take the next bytes of the content."""
        self._hasher.update(data)

    def hexdigest(self) -> str:
        """The identifier; to be asked once, behind the last byte."""
        self._hasher.update(self._after)
        return self._hasher.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class HashFactors:
    """What goes into the hashes of one request's items beside the items themselves."""

    engine_model: str = ""
    """The engine's ``--model`` string; empty where it is not known, and then nothing is hashed."""
    algorithm: str = "blake3"
    """One of ``ALGORITHMS``."""
    server_media_io_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """By modality, as the server was started; the order of keys counts."""
    media_io_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """By modality, as the request says."""
    mm_processor_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """The request's; the engine does not hash the server's."""
    is_complete: bool = True
    """Whether the request's kwargs were kept whole."""

    def has_kwargs(self, modality: Modality) -> bool:
        """Whether a uuid of that modality is hashed, instead of being taken as it is."""
        return not self.is_complete or bool(
            self.server_media_io_kwargs.get(modality) or self.media_io_kwargs.get(modality) or self._processor(modality)
        )

    def image_hash(self, num_bytes: int, mode: ColourMode) -> MediaHash | None:
        """The hash of a picture whose encoded bytes, so many, are to follow; nothing where it cannot be known."""
        try:
            asked = self._media_io(Modality.IMAGE)
            config = _conversion(mode, asked)
            return self._begun(Modality.IMAGE, _LEAF + _framed(b"image") + _picture_head(config), num_bytes)
        except ValueError:
            return None

    def uuid_hash(self, modality: Modality, uuid: str) -> str | None:
        """The hash that stands for a client's uuid where there are kwargs; nothing where it cannot be known."""
        try:
            data = uuid.encode()
            hashed = self._begun(modality, _LEAF, len(data))
        except ValueError:
            return None
        hashed.update(data)
        return hashed.hexdigest()

    def _begun(self, modality: Modality, head: bytes, num_bytes: int) -> MediaHash:
        """The hash up to the item's bytes, which follow ``head`` and their length.

        Raises:
            ValueError: a factor is not known.
        """
        if not self.engine_model or not self.is_complete:
            raise ValueError("a factor is not known")
        media_io, processor = self._media_io(modality), self._processor(modality)
        factors: dict[str, Any] = {"model_id": self.engine_model}
        if media_io:
            factors["media_io_kwargs"] = {modality.value: media_io}
        if processor:
            factors["mm_processor_kwargs"] = processor
        framed = {name: _framed(name.encode()) + _value(value) for name, value in factors.items()}
        before = b"".join(framed[name] for name in sorted(framed) if name < modality)
        after = b"".join(framed[name] for name in sorted(framed) if name > modality)
        return MediaHash(self.algorithm, before + _framed(modality.encode()) + head + _length(num_bytes), after)

    def _media_io(self, modality: Modality) -> dict[str, Any]:
        """How the engine loads that modality: the server's kwargs, the request's over them.

        Raises:
            ValueError: that is not known. Of a request's video kwargs the engine drops
                some, by what its video backends are.
        """
        server, request = self.server_media_io_kwargs.get(modality), self.media_io_kwargs.get(modality)
        if not isinstance(server or {}, Mapping) or not isinstance(request or {}, Mapping):
            raise ValueError("kwargs that the engine refuses")
        if request and modality is Modality.VIDEO:
            raise ValueError("the engine drops some of these")
        return {**(server or {}), **(request or {})}

    def _processor(self, modality: Modality) -> dict[str, Any]:
        others = {key for each, key in _PROCESSOR_KEYS.items() if each is not modality}
        return {key: value for key, value in self.mm_processor_kwargs.items() if key not in others}


def _conversion(mode: ColourMode, media_io: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the engine notes of a picture that it converted; nothing where it leaves it as it is.

    Raises:
        ValueError: whether it converts is not known, or it refuses the kwargs.
    """
    wanted, background = media_io.get("image_mode", _WANTED_MODE), media_io.get("rgba_background_color", _BACKGROUND)
    if not isinstance(background, list | tuple) or len(background) != 3:
        raise ValueError("a colour that the engine refuses")
    if wanted is None or wanted == mode:
        return None
    if wanted not in (ColourMode.RGB.value, ColourMode.RGBA.value):
        raise ValueError("a mode that may be the picture's")
    return {"image_mode": wanted, "rgba_background_color": background}


def _picture_head(config: Mapping[str, Any] | None) -> bytes:
    if config is None:
        return _LEAF
    return _MAPPING + _length(2) + _framed(b"io_config") + _value(config) + _framed(b"data") + _LEAF


def _value(value: Any) -> bytes:
    """A value, framed.

    Raises:
        ValueError: of a kind that has no fixed bytes in the engine.
    """
    if value is None:
        return _NONE
    if isinstance(value, list | tuple):
        return _SEQUENCE + _length(len(value)) + b"".join(map(_value, value))
    if isinstance(value, Mapping):
        entries = (_framed(str(key).encode()) + _value(each) for key, each in value.items())
        return _MAPPING + _length(len(value)) + b"".join(entries)
    if isinstance(value, str):
        return _LEAF + _framed(value.encode())
    return _LEAF + _framed(_number(value))


def _number(value: Any) -> bytes:
    """A number as the 64 bits that numpy makes of it; a truth value is one byte."""
    if isinstance(value, bool):
        return struct.pack("<?", value)
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, int) and value in _INT64:
        return struct.pack("<q", value)
    if isinstance(value, int) and value in _UINT64:
        return struct.pack("<Q", value)
    raise ValueError(f"{type(value).__name__} has no fixed bytes")


def _framed(data: bytes) -> bytes:
    return _length(len(data)) + data


def _length(number: int) -> bytes:
    return number.to_bytes(8, "little")
