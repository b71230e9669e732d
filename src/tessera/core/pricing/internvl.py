"""How many tokens do images and clips cost in InternVL?"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from tessera.core.family import Count, Family, ModelFiles, Refused, VideoInfo, known, number, section
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.closest_aspect import closest_aspect
from tessera.core.pricing.frames import opencv
from tessera.core.pricing.processor_settings import positive, scoped
from tessera.core.pricing.sizes import MAX_SIDE, MAX_TILES, NO_AREA, flag, fraction, num_tiles, side

NUM_MARKERS = 2
"""``<img>`` and ``</img>``, which the processor puts around an image and around each frame."""
FRAME_TEXT_TOKENS = 3
"""``Frame``, the colon and the space of ``Frame12: ``; each digit is one more. Not run against a tokenizer."""


@plugin("internvl")
class InternVL(Family):
    """InternVL 2, 2.5, 3 and 3.5 in OpenGVLab's own format: tiles by aspect ratio, and a thumbnail.

    Only the shape of an image matters, not its size. vLLM takes clips where the
    language model is one of Qwen's.
    Source: config.json of the published models; vLLM 0.32.0, processors/internvl.py.
    """

    architectures = frozenset({"InternVLChatModel"})
    needs_processor = False
    model_names: ClassVar[tuple[str, ...]] = ("internvl2", "internvl3", "internvl-2", "internvl-3")

    image_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 448
    """Pixels along a side of one tile."""
    patch_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 14
    """Pixels along a side of one encoder patch."""
    downsample_ratio: Annotated[float, Range(ge=0.01, le=1)] = 0.5
    """What is left of a side, in patches, when patches are merged."""
    min_dynamic_patch: Annotated[int, Range(ge=1, le=MAX_TILES)] = 1
    """Fewest tiles of an image."""
    max_dynamic_patch: Annotated[int, Range(ge=1, le=MAX_TILES)] = 12
    """Most tiles of an image, thumbnail not counted."""
    dynamic_image_size: bool = True
    """Whether an image is cut into tiles at all."""
    use_thumbnail: bool = True
    """Whether the whole image is added as one tile more where there are several."""
    num_frames: Annotated[int, Range(ge=1)] = 32
    """Frames that the loader takes of a clip at most, spread evenly."""
    fps: Annotated[float, Range(ge=0)] = 0.0
    """Frames a second that it takes at most; 0: no such limit."""

    frame_break_tokens: ClassVar[int] = 0
    """Tokens that the processor writes between two frames of a clip."""

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """config.json and its ``vision_config``."""
        return known(
            image_size=side(files.vision, "image_size") or side(files.config, "force_image_size"),
            patch_size=side(files.vision, "patch_size"),
            downsample_ratio=fraction(files.config, "downsample_ratio"),
            **cls.from_kwargs(files.config),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``min_dynamic_patch``, ``max_dynamic_patch``, ``dynamic_image_size``, ``use_thumbnail``."""
        given = scoped(kwargs, "images_kwargs")
        return known(
            min_dynamic_patch=num_tiles(given, "min_dynamic_patch"),
            max_dynamic_patch=num_tiles(given, "max_dynamic_patch"),
            dynamic_image_size=flag(given, "dynamic_image_size"),
            use_thumbnail=flag(given, "use_thumbnail"),
        )

    @classmethod
    def from_media_io_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What ``media_io_kwargs`` say to the loader of clips: ``num_frames`` and ``fps`` of ``video``."""
        video = section(kwargs, "video")
        return known(num_frames=number(video, "num_frames"), fps=positive(video, "fps"))

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """Each tile costs the same, the markers 2; other images do not change it.

        >>> InternVL().image(1280, 720)
        Count(num_tokens=2306, num_embeds=2304, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        tiles = 1
        if self.dynamic_image_size:
            least, most = self.min_dynamic_patch, self.max_dynamic_patch
            columns, rows = closest_aspect(width, height, tile=self.image_size, least=least, most=most)
            tiles = columns * rows
        embeds = (tiles + (self.use_thumbnail and tiles > 1)) * self._tile_embeds()
        return Count(num_tokens=embeds + NUM_MARKERS, num_embeds=embeds)

    def video(self, info: VideoInfo) -> Count | Refused:
        """One tile, its markers and the text ``Frame1: `` for each frame.

        >>> InternVL().video(VideoInfo(width=1280, height=720, num_frames=300, fps=30.0))
        Count(num_tokens=8407, num_embeds=8192, num_wrapper_tokens=0)
        """
        frames = opencv(info, num_frames=self.num_frames, fps=self.fps)
        embeds = frames * self._tile_embeds()
        text = frames * FRAME_TEXT_TOKENS + _num_digits(frames) + (frames - 1) * self.frame_break_tokens
        return Count(num_tokens=embeds + frames * NUM_MARKERS + text, num_embeds=embeds)

    def _tile_embeds(self) -> int:
        """Embeddings of one tile, at least 1."""
        return max(1, int((self.image_size // self.patch_size) ** 2 * self.downsample_ratio**2))


def _num_digits(last: int) -> int:
    """Digits of all the numbers from 1 to ``last``.

    >>> _num_digits(9), _num_digits(32)
    (9, 55)
    """
    return sum(last - 10**power + 1 for power in range(len(str(last))))
