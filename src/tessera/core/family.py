"""What must a model family say? Tokens of a picture, a clip, a sound; and its settings from the model's own files."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tessera.core.parts import Modality
from tessera.core.plugin import Plugin

EMPTY: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What one media item costs."""

    num_tokens: int
    """Prompt positions of the expanded item, the processor's own markers included."""
    num_embeds: int
    """Encoder output rows."""
    num_wrapper_tokens: int = 0
    """Markers that the chat template puts around it."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """How a model's prompt holds an item: one token, which the engine repeats for each token of the item."""

    token: str
    """The repeated token."""
    text: str
    """What the engine writes for an item where the chat template does not."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The model's processor would not accept the item."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoInfo:
    """A clip, as its container's headers or the client's request headers tell it."""

    width: int
    """Pixels, as displayed."""
    height: int
    num_frames: int
    """Frames in the container."""
    fps: float
    """Frames a second; 0 where it is not known."""

    @property
    def duration_s(self) -> float:
        """Seconds; 0 where the rate is not known."""
        return self.num_frames / self.fps if self.fps else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioInfo:
    """A sound, by its length."""

    duration_s: float

    @property
    def num_samples_16k(self) -> int:
        """Samples after resampling to 16 kHz, which every audio encoder here takes."""
        return round(self.duration_s * 16_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model's own configuration files, parsed; empty where a file is missing."""

    config: Mapping[str, Any] = field(default_factory=dict)
    """config.json."""
    preprocessor: Mapping[str, Any] = field(default_factory=dict)
    """preprocessor_config.json."""
    processor: Mapping[str, Any] = field(default_factory=dict)
    """processor_config.json."""
    video_preprocessor: Mapping[str, Any] = field(default_factory=dict)
    """video_preprocessor_config.json."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """params.json, of models in Mistral's format."""

    @property
    def architectures(self) -> tuple[str, ...]:
        """Class names that the model was saved with."""
        names = self.config.get("architectures")
        return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()

    @property
    def has_processor(self) -> bool:
        """Whether any file says the image processor's settings."""
        return bool(self.preprocessor or self.processor or self.params)

    @property
    def vision(self) -> Mapping[str, Any]:
        """``vision_config``, also where it stands inside ``thinker_config``."""
        return section(self.config, "vision_config") or section(section(self.config, "thinker_config"), "vision_config")

    @property
    def image(self) -> Mapping[str, Any]:
        """The image processor's settings: preprocessor_config.json goes before processor_config.json."""
        return {**section(self.processor, "image_processor"), **self.preprocessor}

    @property
    def video(self) -> Mapping[str, Any]:
        """The video processor's settings, in the same order."""
        return {**section(self.processor, "video_processor"), **self.video_preprocessor}


def section(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object under ``key``; empty where there is none."""
    value = mapping.get(key)
    return value if isinstance(value, Mapping) else EMPTY


def number(mapping: Mapping[str, Any], *path: str) -> int | None:
    """The positive whole number at the end of ``path``; nothing for anything else."""
    for key in path[:-1]:
        mapping = section(mapping, key)
    value = mapping.get(path[-1])
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 40:
        return None
    return int(value) if value == int(value) else None


def known(**settings: Any) -> dict[str, Any]:
    """The settings that are not ``None``."""
    return {name: value for name, value in settings.items() if value is not None}


class Family(Plugin):
    """How one family of models turns media into tokens; parameters are its processor's settings.

    The defaults are the published values. ``from_files`` and ``from_kwargs`` give
    what goes before them; both may see hostile values and take only sound ones.
    """

    kind = "family"
    configurable = False
    architectures: ClassVar[frozenset[str]] = frozenset()
    """Class names in config.json that use this rule."""
    needs_processor: ClassVar[bool] = True
    """Whether the rule depends on the processor's files; if not, config.json says it all."""
    model_names: ClassVar[tuple[str, ...]] = ()
    """Parts of a served model's name, in lower case, from which the family is guessed; the longest that fits wins."""
    placeholders: ClassVar[Mapping[Modality, Placeholder]] = {}
    """Of the modalities whose items are one token repeated ``num_tokens`` times and nothing else."""

    @classmethod
    def parameters(cls) -> frozenset[str]:
        """Names of the processor settings that an operator may override."""
        return frozenset(each.name for each in dataclasses.fields(cls))  # type: ignore[arg-type]

    @classmethod
    def matches(cls, files: ModelFiles) -> bool:
        """Whether a model with these files uses this rule."""
        return bool(cls.architectures.intersection(files.architectures))

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """The parameters that the model's files say."""
        return {}

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that ``mm_processor_kwargs`` say, of the server or of a request."""
        return {}

    @classmethod
    def from_media_io_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that ``media_io_kwargs`` say, of the server or of a request: ``{"video": {"fps": 1}}``."""
        return {}

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """What an image of ``width`` x ``height`` pixels costs, beside ``num_images`` - 1 others."""
        return Refused(f"{self.type} takes no images")

    def video(self, info: VideoInfo) -> Count | Refused:
        """What a clip costs; timestamp text that the processor writes between frames is in ``num_tokens``."""
        return Refused(f"{self.type} takes no video")

    def audio(self, info: AudioInfo) -> Count | Refused:
        """What a sound costs."""
        return Refused(f"{self.type} takes no audio")
