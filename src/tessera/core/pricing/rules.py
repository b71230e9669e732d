"""What does an item cost by rule: the served model's where it is known, else llm-d's? Nothing learned is in it.

What is known of a clip goes in this order: its container's headers (exact), the
request's ``x-llm-d-video-*`` headers (declared), defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tessera.core.family import AudioInfo, Count, Family, Refused, VideoInfo
from tessera.core.headers import positive_number
from tessera.core.parts import MediaItem, Modality
from tessera.core.pricing.estimate import (
    DURATION_HEADER,
    FPS_HEADER,
    MAX_DURATION_S,
    MAX_FPS,
    RESOLUTION_HEADER,
    Estimated,
    ImageEstimate,
    VideoEstimate,
    estimate,
    parse_resolution,
)
from tessera.core.pricing.served_model import ServedModel
from tessera.core.types import Basis, InferenceRequest, PricedItem

DEFAULT_AUDIO_S = 10.0
"""Length of a sound whose headers do not say."""
AUDIO_TOKENS_PER_S = 25
"""Tokens a second of a sound, without a family. Source: Qwen2-Audio's encoder."""
MAX_CLIP_FRAMES = 1 << 32
MAX_ITEM_TOKENS = 1 << 22
"""No item counts for more: beyond what any engine's context holds, and no header may make an endpoint look full."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one configuration."""

    image: ImageEstimate
    video: VideoEstimate
    basis: Basis
    """How llm-d's rules are known: declared where the operator chose them, else default."""

    def llmd(self, item: MediaItem, headers: Mapping[str, str]) -> Estimated:
        """What llm-d would say of an item."""
        return estimate(item, self.image, self.video, headers)

    def price(
        self, index: int, item: MediaItem, served: ServedModel | None, num_images: int, request: InferenceRequest
    ) -> PricedItem:
        """The item's price.

        What a family refuses, or has no rule for, goes by llm-d's rule; a sound by 25 tokens a second, because llm-d
        would count its bytes as text.
        """
        if item.num_tokens_declared is not None:
            return _declared(index, item, item.num_tokens_declared)
        refused = None
        if served is not None:
            served = served.for_request(request.mm_processor_kwargs, request.media_io_kwargs)
            count, size_basis, reason = self._count(served.family, item, num_images, request.headers)
            if isinstance(count, Count):
                return PricedItem(
                    index=index,
                    item=item,
                    num_tokens=min(count.num_tokens, MAX_ITEM_TOKENS),
                    num_embeds=min(count.num_embeds, MAX_ITEM_TOKENS),
                    num_wrapper_tokens=count.num_wrapper_tokens,
                    rule_basis=served.basis,
                    size_basis=size_basis,
                    reason=reason or served.reason,
                )
            refused = f"refused: {count.reason}"
        if item.modality is Modality.AUDIO:
            return _audio_without_rule(index, item)
        by_llmd = self.llmd(item, request.headers)
        tokens = min(by_llmd.num_tokens, MAX_ITEM_TOKENS)
        return PricedItem(
            index=index,
            item=item,
            num_tokens=tokens,
            num_embeds=tokens,
            rule_basis=self.basis,
            size_basis=by_llmd.size_basis,
            reason=refused or by_llmd.reason,
        )

    def _count(
        self, family: Family, item: MediaItem, num_images: int, headers: Mapping[str, str]
    ) -> tuple[Count | Refused, Basis, str | None]:
        """The family's count, how well the size behind it is known, and why not better."""
        match item.modality:
            case Modality.IMAGE:
                if item.width is not None and item.height is not None:
                    return family.image(item.width, item.height, num_images=num_images), Basis.EXACT, None
                size = self.image.default_resolution
                count = family.image(size.width, size.height, num_images=num_images)
                return count, Basis.DEFAULT, item.reason or "default-resolution"
            case Modality.VIDEO:
                info, basis, reason = self._clip(item, headers)
                return family.video(info), basis, reason
            case Modality.AUDIO:
                if item.duration_s is not None:
                    return family.audio(AudioInfo(duration_s=item.duration_s)), Basis.EXACT, None
                usual = AudioInfo(duration_s=DEFAULT_AUDIO_S)
                return family.audio(usual), Basis.DEFAULT, item.reason or "default-audio"

    def _clip(self, item: MediaItem, headers: Mapping[str, str]) -> tuple[VideoInfo, Basis, str | None]:
        """The clip by its container; what the container leaves open by the request's headers, else by defaults."""
        if item.width and item.height and item.num_frames:
            fps = item.num_frames / item.duration_s if item.duration_s else 0.0
            info = VideoInfo(width=item.width, height=item.height, num_frames=item.num_frames, fps=fps)
            return info, Basis.EXACT, None
        size = (item.width, item.height) if item.width and item.height else None
        size = size or parse_resolution(headers.get(RESOLUTION_HEADER))
        duration = item.duration_s or positive_number(headers.get(DURATION_HEADER), largest=MAX_DURATION_S)
        fps = positive_number(headers.get(FPS_HEADER), largest=MAX_FPS) or self.video.frames.strided.default_source_fps
        width, height = size or (self.video.default_resolution.width, self.video.default_resolution.height)
        frames = min(max(1, round((duration or self.video.default_duration) * fps)), MAX_CLIP_FRAMES)
        info = VideoInfo(width=width, height=height, num_frames=frames, fps=fps)
        if size and duration:
            is_told = item.width is not None and item.duration_s is not None
            return info, Basis.DECLARED, item.reason if is_told else "header"
        is_invalid = any(
            value is None and headers.get(name)
            for name, value in ((RESOLUTION_HEADER, size), (DURATION_HEADER, duration))
        )
        return info, Basis.DEFAULT, "invalid-header" if is_invalid else item.reason or "default-video"


def _declared(index: int, item: MediaItem, num_tokens: int) -> PricedItem:
    """What an item costs whose placeholders stand in the client's token ids: as many as there are, no marker beside."""
    return PricedItem(
        index=index,
        item=item,
        num_tokens=num_tokens,
        num_embeds=num_tokens,
        rule_basis=Basis.EXACT,
        size_basis=Basis.DECLARED,
        reason="declared-length",
    )


def _audio_without_rule(index: int, item: MediaItem) -> PricedItem:
    is_known = item.duration_s is not None
    seconds = item.duration_s if item.duration_s is not None else DEFAULT_AUDIO_S
    tokens = max(1, round(AUDIO_TOKENS_PER_S * seconds))
    return PricedItem(
        index=index,
        item=item,
        num_tokens=tokens,
        num_embeds=tokens,
        rule_basis=Basis.DEFAULT,
        size_basis=Basis.EXACT if is_known else Basis.DEFAULT,
        reason="no-audio-rule",
    )
