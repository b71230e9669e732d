"""What is each picture of a prompt to the engine: its name, its size, its tokens, or why is it refused?"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pybase64

from tessera.core.draft import DraftMedia
from tessera.core.family import Refused
from tessera.core.media.identity import Naming
from tessera.core.media.probe import probe
from tessera.core.media.size import Reason
from tessera.core.media.window import is_data_uri
from tessera.core.parts import Modality
from tessera.core.pricing.qwen_vl import NUM_WRAPPER_TOKENS, Qwen2VL
from tessera.emulator import refusals
from tessera.emulator.bare_items import Grid
from tessera.emulator.refusals import Refusal
from tessera.emulator.settings import EmulatorSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptItem:
    """A picture as the engine sees it."""

    identifier: str
    width: int
    height: int
    num_tokens: int
    num_embeds: int
    num_wrapper_tokens: int
    grid: Grid | None = None
    """Of its patches, where the family has such."""
    is_bare: bool = False
    """Whether it came as its grid and nothing else."""


@dataclass(slots=True)
class SeenPictures:
    """Sizes of pictures that came with their content, by identifier; 8,192 entries.

    A request that only names a picture is served while its size is known, also where the
    engine's processor cache has let it go: it is processed anew then.
    """

    max_entries: int = 8192
    _sizes: OrderedDict[str, tuple[int, int]] = field(default_factory=OrderedDict)

    def size_of(self, identifier: str) -> tuple[int, int] | None:
        """Width and height of a picture seen before."""
        size = self._sizes.get(identifier)
        if size is not None:
            self._sizes.move_to_end(identifier)
        return size

    def clear(self) -> None:
        """Forget all pictures."""
        self._sizes.clear()

    def put(self, identifier: str, size: tuple[int, int]) -> None:
        """Remember a picture, forget the one unused for longest."""
        self._sizes[identifier] = size
        self._sizes.move_to_end(identifier)
        if len(self._sizes) > self.max_entries:
            self._sizes.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Pictures:
    """Looks at the media of prompts for one served model."""

    settings: EmulatorSettings
    seen: SeenPictures

    def items(self, media: Sequence[DraftMedia], naming: Naming, grids: Iterator[Grid]) -> tuple[PromptItem, ...]:
        """One item for each part of a prompt, same order.

        Args:
            media: the parts.
            naming: by which rules they are named.
            grids: of the parts that are no more than that.

        Raises:
            Refusal: vLLM would refuse one of them, or their number.
        """
        self._check_number(media)
        if len({part.is_embeds for part in media}) == 2:
            message = "Mixing raw image and embedding inputs is not allowed (parameter=image_embeds)"
            raise Refusal(message, param="image_embeds")
        return tuple(
            self._bare_item(part, naming, next(grids)) if part.is_embeds else self._item(part, naming, index, media)
            for index, part in enumerate(media)
        )

    def _check_number(self, media: Sequence[DraftMedia]) -> None:
        limits = {Modality.IMAGE: self.settings.max_images, Modality.VIDEO: 0, Modality.AUDIO: 0}
        for modality, at_most in limits.items():
            if sum(part.modality is modality for part in media) > at_most:
                raise refusals.too_many(modality.value, at_most)

    def _bare_item(self, part: DraftMedia, naming: Naming, grid: Grid) -> PromptItem:
        """A picture whose embeddings are elsewhere: as large as its grid says, under the uuid that the client gives."""
        role, family = self.settings.profile.role, self.settings.family
        if not (role.takes_embeddings or role.transfers_kv) or not isinstance(family, Qwen2VL):
            message = "You must set `--enable-mm-embeds` to input `image_embeds` (parameter=image_embeds)"
            raise Refusal(message, param="image_embeds")
        if part.uuid is None:
            raise Refusal("An image_embeds part without embeddings needs a uuid.", param="image_embeds")
        width, height = grid.columns * family.patch_size, grid.rows * family.patch_size
        num_embeds = grid.num_frames * grid.rows * grid.columns // family.merge_size**2
        if not num_embeds:
            raise Refusal("Internal server error", status=500)
        return PromptItem(
            identifier=probe(part, naming=naming).identifier,
            width=width,
            height=height,
            num_tokens=num_embeds,
            num_embeds=num_embeds,
            num_wrapper_tokens=NUM_WRAPPER_TOKENS,
            grid=grid,
            is_bare=True,
        )

    def _item(self, part: DraftMedia, naming: Naming, index: int, media: Sequence[DraftMedia]) -> PromptItem:
        identifier, (width, height) = self._size(part, naming, index)
        family = self.settings.family
        count = family.image(width, height, num_images=len(media))
        if isinstance(count, Refused):
            raise Refusal(f"Failed to apply the model's processor: {count.reason}")
        grid = family.grid(width, height) if isinstance(family, Qwen2VL) else None
        limit = self.settings.profile.encoder_cache_embeds
        if count.num_embeds > limit:
            raise refusals.too_large_item(part.modality.value, index, count.num_embeds, limit)
        return PromptItem(
            identifier=identifier,
            width=width,
            height=height,
            num_tokens=count.num_tokens,
            num_embeds=count.num_embeds,
            num_wrapper_tokens=count.num_wrapper_tokens,
            grid=Grid(*grid) if isinstance(grid, tuple) else None,
        )

    def _size(self, part: DraftMedia, naming: Naming, index: int) -> tuple[str, tuple[int, int]]:
        """The picture's identifier, width and height: from its bytes, or from memory where only a uuid came."""
        item = probe(part, naming=naming)
        if part.url is None:
            seen = self.seen.size_of(item.identifier)
            if part.uuid is None or seen is None:
                raise Refusal(f"Cache miss for {part.modality.value} at index {index} but data is not provided.")
            return item.identifier, seen
        _check_url(part.url)
        if not is_data_uri(part.url):
            size = self.settings.linked_image_size
        elif item.width is None or item.height is None:
            is_known = item.format is not None and item.reason != Reason.REFUSED_FORMAT
            unknown = "cannot identify image file <_io.BytesIO object>"
            raise Refusal(f"Failed to load image: {'image file is truncated' if is_known else unknown}")
        else:
            size = (item.width, item.height)
        self.seen.put(item.identifier, size)
        return item.identifier, size


def _check_url(url: str) -> None:
    """Refuse what vLLM's loader refuses before it looks at the picture."""
    if is_data_uri(url):
        head, _, payload = url.partition(",")
        if not head.endswith(";base64"):
            raise Refusal("The data URL does not say ;base64, and no other kind is read.")
        try:
            pybase64.b64decode(payload, validate=True)
        except ValueError as error:
            raise Refusal(str(error)) from None
    elif url.startswith("file:"):
        raise Refusal("Cannot load local files without `--allowed-local-media-path`.", status=500)
    elif not url.startswith(("http://", "https://")):
        raise Refusal("The URL must be either a HTTP, data or file URL.")
