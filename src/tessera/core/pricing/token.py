"""What does this request weigh? Each item by the served model's rule, the text by its bytes or its tokens."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, Literal

from tessera.core.family import ModelFiles, Placeholder
from tessera.core.parts import MediaItem, Modality, TokenPart
from tessera.core.plugin import Pricer, Range, params, plugin
from tessera.core.pricing.check import PriceCheck
from tessera.core.pricing.estimate import Estimated, ImageEstimate, VideoEstimate
from tessera.core.pricing.learning import Learning, Report
from tessera.core.pricing.rules import Rules
from tessera.core.pricing.served_model import ServedModel, guess, problems_of, served_model
from tessera.core.pricing.text import num_text_bytes, num_text_tokens
from tessera.core.types import Basis, Ending, Finding, InferenceRequest, Outcome, PricedItem, PricedRequest


@params
class Estimate:
    """How media is priced."""

    image: ImageEstimate = ImageEstimate()
    """llm-d's rule for images."""
    video: VideoEstimate = VideoEstimate()
    """llm-d's rule for clips."""
    model: dict[str, Any] | None = None
    """The served model's own rule, which goes before ``image`` and ``video``.

    ``{path: DIR}`` reads the model's files; ``{family: NAME, ...}`` names the rule and
    its settings. What the engine was started with: ``engineModel`` (its ``--model``
    string; absent: what the endpoints say), ``mmProcessorKwargs``, ``mediaIoKwargs``
    and ``mmHasherAlgorithm`` (``blake3``). With these, and keys of ``mediaIoKwargs`` in
    the engine's order, pictures are named exactly as the engine names them.
    """


@params
class LearningMode:
    """What is done with the engine's usage reports."""

    mode: Literal["observe", "apply", "disabled"] = "observe"
    """``observe``: compare and warn; ``apply``: also correct; ``disabled``: nothing, links are not learned either."""
    warn_bias: Annotated[float, Range(gt=0)] = 0.2
    """Share by which a typical price must be wrong before a warning."""
    min_samples: Annotated[int, Range(ge=1)] = 50
    """Reports before a warning."""


@params
class TokenizerChoice:
    """How text is counted exactly."""

    path: str
    """A tokenizer.json, or the folder of the model's files that holds one.

    A folder with its chat template gives token ids, where a plugin asks for them (exact
    mode). A template that writes the date takes the router's: the engine's time zone must be the same.
    """
    chat_template: str | None = None
    """The file of the engine's ``--chat-template``; absent: the folder's own."""
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    """The engine's ``--default-chat-template-kwargs``."""
    content_format: Literal["auto", "string", "openai"] = "auto"
    """The engine's ``--chat-template-content-format``."""


@plugin("token-producer")
class TokenProducer(Pricer):
    """Price each request in tokens: every picture, clip and sound from its headers alone.

    Media goes by ``estimate.model``, else by llm-d's rules where ``estimate`` says so,
    else by the family that the served model's name speaks of, else by llm-d's
    defaults. Text is ``ceil(bytes / 4)``, exact with ``tokenizer``. An item whose
    size is not known is priced by what was learned of its link, else at the default
    resolution, and the price says so. Every usage report is compared with the price.
    """

    estimate: Estimate | None = None
    """Absent: the family by the model's name, else llm-d's defaults (``dynamic``, factor 1024, 640x360)."""
    tokenizer: TokenizerChoice | None = None
    """Absent: a quarter of the bytes."""
    learning: LearningMode = LearningMode()
    """What usage reports may change."""
    url_keys_ignored: tuple[str, ...] = ()
    """Keys of a link's query that do not tell one item from another, as signatures do not: ``[X-Amz-Signature]``.

    Links are not fetched, so a link is an item's name; all of its query counts otherwise.
    """

    def __post_init__(self) -> None:
        chosen = self.estimate or Estimate()
        self._rules = Rules(chosen.image, chosen.video, Basis.DECLARED if self.estimate else Basis.DEFAULT)
        self._served: ServedModel | None = None
        self.learned = Learning()
        self._check = PriceCheck(self.learned, self.learning.warn_bias, self.learning.min_samples)
        if not list(self.check()):
            self.furnish(None)

    def check(self) -> Iterator[tuple[str, str]]:
        """Whether ``estimate.model`` names a rule that exists, with settings that it has."""
        if self.estimate is None or self.estimate.model is None:
            return
        for key, message in problems_of(self.estimate.model):
            yield f"estimate.model.{key}".rstrip("."), message

    def furnish(self, files: ModelFiles | None, overrides: Mapping[str, Any] | None = None) -> bool:
        """Take the files that ``estimate.model.path`` names; False where they name no family that is known.

        ``overrides`` are the settings beside the family, decoded; nothing: as they stand.
        """
        if self.estimate is None or self.estimate.model is None:
            return True
        self._served = served_model(self.estimate.model, files, overrides)
        return self._served is not None or files is None

    def served_by(self, request: InferenceRequest) -> ServedModel | None:
        """The rule for a request: the configured one, or one guessed where nothing is configured."""
        if self.estimate is not None:
            return self._served
        return guess(request.engine_model or request.model) or guess(request.model)

    @property
    def placeholders(self) -> Mapping[Modality, Placeholder]:
        """How the configured model's prompts hold media, of the modalities of which that is known."""
        return self._served.family.placeholders if self._served else {}

    def family_name(self, request: InferenceRequest) -> str | None:
        """The family whose rule prices a request, if one does."""
        served = self.served_by(request)
        return served.family.type if served else None

    def llmd_estimate(self, item: MediaItem, headers: Mapping[str, str]) -> Estimated:
        """What llm-d's rule says of an item, by this plugin's ``estimate`` or llm-d's defaults."""
        return self._rules.llmd(item, headers)

    def price(self, request: InferenceRequest) -> PricedRequest:
        """The request with its items and its text in tokens, learned corrections included."""
        items = self.rule_prices(request)
        if self.learning.mode != "disabled" and items:
            items = tuple(self._corrected(request, item) for item in items)
        tokens, basis = num_text_tokens(request)
        learned = self._learned_text(request, basis)
        return PricedRequest(
            request=request,
            items=items,
            num_text_tokens=tokens if learned is None else learned,
            text_basis=basis if learned is None else Basis.LEARNED,
            num_template_tokens=self.learned.template_tokens(request.model) if self.learning.mode == "apply" else 0,
        )

    def settle(self, outcome: Outcome) -> Sequence[Finding]:
        """Compare the engine's count with the price, and learn from it."""
        decision, usage = outcome.decision, outcome.usage
        if self.learning.mode == "disabled" or outcome.ending is not Ending.FINISHED:
            return ()
        if decision is None or usage is None:
            return ()
        request = decision.request
        tokens, basis = num_text_tokens(request)
        report = Report(
            model=request.model,
            num_prompt_tokens=usage.prompt_tokens,
            num_text_bytes=num_text_bytes(request),
            num_text_tokens=tokens,
            is_text_exact=basis is Basis.EXACT,
            items=self.rule_prices(request),
        )
        self.learned.add(report)
        return self._check.findings(report, self.family_name(request))

    def table(self) -> list[dict[str, Any]]:
        """What is known of the price's error, one row for each model and modality, for ``/debug/pricing``."""
        return self._check.table()

    def rule_prices(self, request: InferenceRequest) -> tuple[PricedItem, ...]:
        """The request's items by rule alone, nothing learned. Thread-safe."""
        media = [part for prompt in request.prompts for part in prompt if isinstance(part, MediaItem)]
        if not media:
            return ()
        num_images = sum(item.modality is Modality.IMAGE for item in media)
        served = self.served_by(request)
        return tuple(self._rules.price(index, item, served, num_images, request) for index, item in enumerate(media))

    def _corrected(self, request: InferenceRequest, priced: PricedItem) -> PricedItem:
        item = priced.item
        if not item.has_content and item.url_key is not None:
            link = self.learned.link_tokens(request.model, item.url_key)
            if link is None:
                return priced
            return replace(_with_tokens(priced, link.num_tokens), size_basis=Basis.LEARNED, reason=link.reason)
        if self.learning.mode != "apply" or item.num_tokens_declared is not None:
            return priced
        learned = self.learned.item_tokens(request.model, priced)
        if learned is None or learned.num_tokens == priced.num_tokens + priced.num_wrapper_tokens:
            return priced
        return replace(_with_tokens(priced, learned.num_tokens), rule_basis=Basis.LEARNED, reason=learned.reason)

    def _learned_text(self, request: InferenceRequest, basis: Basis) -> int | None:
        if self.learning.mode != "apply" or basis is Basis.EXACT:
            return None
        if any(isinstance(part, TokenPart) for prompt in request.prompts for part in prompt):
            return None
        tokens = self.learned.text_tokens(request.model, num_text_bytes(request))
        return None if tokens is None else round(tokens)


def _with_tokens(priced: PricedItem, num_tokens: int) -> PricedItem:
    """The item at another price: its wrapper stays, its encoder rows follow in proportion."""
    own = max(1, num_tokens - priced.num_wrapper_tokens)
    embeds = max(1, round(priced.num_embeds * own / priced.num_tokens)) if priced.num_tokens else own
    return replace(priced, num_tokens=own, num_embeds=embeds)
