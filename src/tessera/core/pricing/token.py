"""What does this request weigh? Each item by the served model's rule, the text by its bytes."""

from collections.abc import Iterator, Mapping
from typing import Any

from tessera.core.family import Count, Family
from tessera.core.parts import MediaItem, Modality
from tessera.core.plugin import Pricer, camel, params, plugin, registered
from tessera.core.pricing.estimate import Estimated, ImageEstimate, VideoEstimate, estimate
from tessera.core.pricing.text import num_text_tokens
from tessera.core.types import Basis, InferenceRequest, PricedItem, PricedRequest


@params
class Estimate:
    """How media is priced."""

    image: ImageEstimate = ImageEstimate()
    """llm-d's rule for images."""
    video: VideoEstimate = VideoEstimate()
    """llm-d's rule for clips."""
    model: dict[str, Any] | None = None
    """``{family: NAME, ...overrides}``: the served model's own rule, which goes before ``image`` and ``video``."""


@plugin("token-producer")
class TokenProducer(Pricer):
    """Price each request in tokens: every picture, clip and sound from its headers alone.

    Text is ``ceil(bytes / 4)``. Media goes by ``estimate.model`` where it names a
    family, else by llm-d's rules ``estimate.image`` and ``estimate.video``. An
    item whose size is not known is priced at the default resolution, and the
    price says so.
    """

    estimate: Estimate | None = None
    """Absent: llm-d's defaults, ``dynamic`` with factor 1024 and 640x360 for what cannot be seen."""

    def __post_init__(self) -> None:
        self._rule = self.estimate or Estimate()
        self._rule_basis = Basis.DECLARED if self.estimate else Basis.DEFAULT
        self._family = self._make_family() if not list(self.check()) else None

    def check(self) -> Iterator[tuple[str, str]]:
        """Whether ``estimate.model`` names a family that exists, with parameters that it has."""
        if self.estimate is None or self.estimate.model is None:
            return
        name = self.estimate.model.get("family")
        families = registered(Family)
        if name not in families:
            yield "estimate.model.family", f"got {name!r}, expected one of {', '.join(families) or 'none installed'}"
            return
        known = _spellings(families[name])
        for key in self.estimate.model.keys() - known.keys() - {"family"}:
            yield f"estimate.model.{key}", f"family {name} has no such parameter; it has {', '.join(known)}"

    def _make_family(self) -> Family | None:
        if self.estimate is None or self.estimate.model is None:
            return None
        family = registered(Family)[self.estimate.model["family"]]
        known = _spellings(family)
        return family(**{known[key]: value for key, value in self.estimate.model.items() if key != "family"})

    @property
    def family_name(self) -> str | None:
        """The family whose rule goes first, if one is configured."""
        return self._family.type if self._family else None

    def llmd_estimate(self, item: MediaItem, headers: Mapping[str, str]) -> Estimated:
        """What llm-d's rule says of an item, by this plugin's ``estimate`` or llm-d's defaults."""
        return estimate(item, self._rule.image, self._rule.video, headers)

    def price(self, request: InferenceRequest) -> PricedRequest:
        """The request with its items and its text in tokens."""
        media = [part for prompt in request.prompts for part in prompt if isinstance(part, MediaItem)]
        num_images = sum(item.modality is Modality.IMAGE for item in media)
        items = tuple(self._price_item(index, item, num_images, request) for index, item in enumerate(media))
        return PricedRequest(request=request, items=items, num_text_tokens=num_text_tokens(request))

    def _price_item(self, index: int, item: MediaItem, num_images: int, request: InferenceRequest) -> PricedItem:
        by_llmd = self.llmd_estimate(item, request.headers)
        refused = None
        if self._family is not None and item.modality is Modality.IMAGE:
            default = self._rule.image.default_resolution
            is_known = item.width is not None and item.height is not None
            count = self._family.image(
                item.width or default.width, item.height or default.height, num_images=num_images
            )
            if isinstance(count, Count):
                return PricedItem(
                    index=index,
                    item=item,
                    num_tokens=count.num_tokens,
                    num_embeds=count.num_embeds,
                    num_wrapper_tokens=count.num_wrapper_tokens,
                    rule_basis=Basis.DECLARED,
                    size_basis=Basis.EXACT if is_known else Basis.DEFAULT,
                    reason=None if is_known else item.reason or "default-resolution",
                )
            refused = f"refused: {count.reason}"
        return PricedItem(
            index=index,
            item=item,
            num_tokens=by_llmd.num_tokens,
            num_embeds=by_llmd.num_tokens,
            rule_basis=self._rule_basis,
            size_basis=by_llmd.size_basis,
            reason=refused or by_llmd.reason,
        )


def _spellings(family: type[Family]) -> dict[str, str]:
    """Parameter names as YAML may write them (``minPixels``, or ``min_pixels`` as model files do) -> field names."""
    names = sorted(family.parameters())
    return {camel(name): name for name in names} | {name: name for name in names}
