"""Is the price right? Every usage report of the engine is compared with it, and teaches.

Per model and modality it keeps how far the configured rule is off, per size what the
engine really counted, per link what it turned out to be, and for text a line from
bytes to tokens. All of it by medians over short memories: no single report moves a
figure by more than its neighbours' distance, and a model that changes is unlearned.

Memory: at most 64 models, each with 1,024 sizes; 8,192 links in all; a few hundred
numbers beside. The least recently used goes first.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tessera.core.parts import MediaItem, Modality
from tessera.core.pricing.robust import Line, Ring, median
from tessera.core.types import PricedItem

MAX_MODELS = 64
MAX_SIZES = 1024
MAX_LINKS = 8192
NUM_ERRORS = 128
"""Reports behind a bias: what is older is forgotten."""
NUM_PER_SIZE = 8
"""Reports that one size keeps."""
NUM_PER_LINK = 4
MIN_PER_SIZE = 3
"""Reports of one size from which its median is believed."""
MIN_LINKS = 8
"""Links of a model from which their median prices an unknown one."""
MIN_TEXTS = 16
"""Text-only reports from which what they say of text is believed."""
MAX_RATIO = 64.0
"""A report further off than this counts as this far off."""
MAX_TEXT_SHARE = 0.5
"""Where text is more than this share of the prompt, its own error drowns that of the media."""
MIN_MEDIA_TOKENS = 200
"""Where roles and markers are not known, they would pass for media in a smaller prompt: about ten tokens."""
CHANGE_SAMPLES = 12
"""Reports in a row whose median must be off for a model to count as changed."""
CHANGE_RATIO = 1.25
"""How far off they must be from what was learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One usage report beside the price by the configured rule."""

    model: str
    num_prompt_tokens: int
    """What the engine counted."""
    num_text_bytes: int
    num_text_tokens: int
    """Text by the rule (or counted exactly), template included."""
    is_text_exact: bool
    items: tuple[PricedItem, ...]
    """By the rule, uncorrected."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A price that was learned, and from what."""

    num_tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class SizeSample:
    """One report of pictures of one size: what the engine counted for each."""

    width: int
    height: int
    num_images: int
    num_tokens: float
    priced: int


@dataclass(slots=True)
class ModalityState:
    """How the rule fares for one modality of one model."""

    log_ratios: Ring = field(default_factory=lambda: Ring(NUM_ERRORS))
    """ln(counted / priced), one for each report."""
    recent: Ring = field(default_factory=lambda: Ring(CHANGE_SAMPLES))
    """ln(counted / what would have been said with all that was learned)."""
    samples: list[SizeSample] = field(default_factory=list)
    """For fitting other rules; a ring of 64."""
    num_reports: int = 0

    def add_sample(self, sample: SizeSample) -> None:
        """Keep a sample, and forget the oldest of 64."""
        if len(self.samples) >= 64:
            del self.samples[0]
        self.samples.append(sample)

    @property
    def ratio(self) -> float:
        """Typical counted / priced; 1 where nothing is known."""
        return math.exp(self.log_ratios.median())

    @property
    def spread(self) -> float:
        """Typical error as a factor of at least 1, whichever way."""
        return math.exp(median(abs(value) for value in self.log_ratios.values))


@dataclass(slots=True)
class _Model:
    text: Line = field(default_factory=Line)
    modalities: dict[Modality, ModalityState] = field(default_factory=dict)
    sizes: OrderedDict[tuple[Any, ...], Ring] = field(default_factory=OrderedDict)
    template: Ring = field(default_factory=lambda: Ring(NUM_ERRORS))
    """What exactly counted text leaves of a text-only prompt: roles and markers."""
    links: Ring = field(default_factory=lambda: Ring(NUM_ERRORS))
    """Tokens of each item that was only a link."""
    num_resets: int = 0


K = TypeVar("K")
V = TypeVar("V")


class Learning:
    """What usage reports have taught, by model."""

    def __init__(self) -> None:
        self._models: OrderedDict[str, _Model] = OrderedDict()
        self._links: OrderedDict[tuple[str, str], Ring] = OrderedDict()

    def add(self, report: Report) -> None:
        """Learn from one usage report; a report that can teach nothing is passed over."""
        if report.num_prompt_tokens <= 0:
            return
        model = _touch(self._models, report.model, MAX_MODELS, _Model)
        if not report.items:
            if report.is_text_exact:
                model.template.add(max(0, report.num_prompt_tokens - report.num_text_tokens))
            else:
                model.text.add(report.num_text_bytes, report.num_prompt_tokens)
            return
        text = self.text_tokens(report.model, report.num_text_bytes)
        by_rule = report.num_text_tokens + self.template_tokens(report.model)
        num_text = by_rule if text is None or report.is_text_exact else text
        if num_text > MAX_TEXT_SHARE * report.num_prompt_tokens:
            return
        num_media = report.num_prompt_tokens - num_text
        knows_template = len(model.template) >= MIN_TEXTS if report.is_text_exact else text is not None
        if knows_template or num_media >= MIN_MEDIA_TOKENS:
            self._add_media(report, model, num_media)

    def text_tokens(self, model: str, num_bytes: int) -> float | None:
        """Text tokens of that many bytes, template included; nothing before 16 text-only reports agree within 25 %."""
        known = self._models.get(model)
        if known is None or len(known.text) < MIN_TEXTS or known.text.spread() > 0.25:
            return None
        return max(0.0, known.text.at(num_bytes))

    def template_tokens(self, model: str) -> int:
        """Typical roles and markers around text that is counted exactly; 0 before 16 text-only reports."""
        known = self._models.get(model)
        return round(known.template.median()) if known and len(known.template) >= MIN_TEXTS else 0

    def link_tokens(self, model: str, url_key: str) -> Learned | None:
        """Tokens of an item that is only a link: what this link was, else what this model's links are."""
        seen = self._links.get((model, url_key))
        if seen is not None:
            return Learned(round(seen.median()), "learned-url")
        known = self._models.get(model)
        if known is not None and len(known.links) >= MIN_LINKS:
            return Learned(round(known.links.median()), "learned-model")
        return None

    def item_tokens(self, model: str, priced: PricedItem) -> Learned | None:
        """Tokens of an item whose size is known: those of its size, else the rule's times its typical error."""
        known = self._models.get(model)
        if known is None:
            return None
        size = known.sizes.get(_size_key(priced))
        if size is not None and len(size) >= MIN_PER_SIZE:
            return Learned(max(1, round(size.median())), "learned-size")
        modality = known.modalities.get(priced.item.modality)
        if modality is None or len(modality.log_ratios) < NUM_PER_SIZE:
            return None
        scaled = (priced.num_tokens + priced.num_wrapper_tokens) * modality.ratio
        return Learned(max(1, round(scaled)), "learned-scale")

    def modalities(self) -> Iterator[tuple[str, Modality, float, float, int]]:
        """(model, modality, counted / priced, typical error factor, reports) of each that has any."""
        for name, model in self._models.items():
            for modality, state in model.modalities.items():
                yield name, modality, state.ratio, state.spread, state.num_reports

    def text_lines(self) -> Iterator[tuple[str, float, float, int]]:
        """(model, tokens for each byte, template tokens, reports) of each model with text-only reports."""
        for name, model in self._models.items():
            if len(model.text):
                yield name, model.text.slope, model.text.intercept, len(model.text)

    def modality(self, model: str, modality: Modality) -> ModalityState | None:
        """How the rule fares for one modality of one model, if anything is known."""
        known = self._models.get(model)
        return known.modalities.get(modality) if known else None

    def samples(self, model: str, modality: Modality) -> tuple[SizeSample, ...]:
        """The last reports of one size each, for fitting other rules."""
        state = self.modality(model, modality)
        return tuple(state.samples) if state else ()

    def num_resets(self, model: str) -> int:
        """How often the model changed under its name."""
        known = self._models.get(model)
        return known.num_resets if known else 0

    def _add_media(self, report: Report, model: _Model, num_media: float) -> None:
        """``num_media``: what the engine counted beyond the text."""
        links = [each for each in report.items if _is_link(each.item)]
        if links:
            self._add_links(report, model, num_media, links)
            return
        kinds = {each.item.modality for each in report.items}
        priced = sum(each.num_tokens + each.num_wrapper_tokens for each in report.items)
        if len(kinds) != 1 or priced <= 0:
            return
        modality = model.modalities.setdefault(kinds.pop(), ModalityState())
        modality.num_reports += 1
        modality.log_ratios.add(_log_ratio(num_media, priced))
        if self._has_changed(report, modality, num_media):
            self._forget(report.model, model)
            return
        keys = {_size_key(each) for each in report.items}
        if len(keys) == 1 and num_media > 0:
            first = report.items[0]
            each_counted = num_media / len(report.items)
            _touch(model.sizes, keys.pop(), MAX_SIZES, lambda: Ring(NUM_PER_SIZE)).add(each_counted)
            if first.item.width and first.item.height:
                own = first.num_tokens + first.num_wrapper_tokens
                size = (first.item.width, first.item.height)
                modality.add_sample(SizeSample(*size, len(report.items), each_counted, own))

    def _add_links(self, report: Report, model: _Model, num_media: float, links: Sequence[PricedItem]) -> None:
        known = sum(e.num_tokens + e.num_wrapper_tokens for e in report.items if not _is_link(e.item))
        for_links = num_media - known
        if for_links <= 0:
            return
        each_counted = for_links / len(links)
        # A link's own report must not outweigh the model's: bound it by what a report may be off.
        usual = model.links.median() or each_counted
        bounded = min(max(each_counted, usual / MAX_RATIO), usual * MAX_RATIO)
        model.links.add(bounded)
        keys = {each.item.url_key for each in links if each.item.url_key}
        if len(keys) == 1:
            _touch(self._links, (report.model, keys.pop()), MAX_LINKS, lambda: Ring(NUM_PER_LINK)).add(bounded)

    def _has_changed(self, report: Report, modality: ModalityState, num_media: float) -> bool:
        """Whether the last reports all contradict what was learned."""
        learned = [self.item_tokens(report.model, each) for each in report.items]
        if any(each is None for each in learned):
            return False
        said = sum(each.num_tokens for each in learned if each)
        modality.recent.add(_log_ratio(num_media, said))
        return len(modality.recent) == CHANGE_SAMPLES and abs(modality.recent.median()) > math.log(CHANGE_RATIO)

    def _forget(self, name: str, model: _Model) -> None:
        """Unlearn the model: what is known of it is of another one."""
        self._models[name] = _Model(num_resets=model.num_resets + 1)
        for key in [key for key in self._links if key[0] == name]:
            del self._links[key]


def _touch(table: "OrderedDict[K, V]", key: K, limit: int, make: Any) -> V:
    """The entry of ``key``, made where there is none, now the most recently used; the least recently used goes."""
    if key in table:
        table.move_to_end(key)
    else:
        table[key] = make()
        if len(table) > limit:
            table.popitem(last=False)
    return table[key]


def _log_ratio(counted: float, priced: float) -> float:
    ratio = counted / priced if priced > 0 else MAX_RATIO
    return math.log(min(max(ratio, 1 / MAX_RATIO), MAX_RATIO))


def _is_link(item: MediaItem) -> bool:
    """Whether the item's size can only be learned."""
    return not item.has_content and item.url_key is not None


def _size_key(priced: PricedItem) -> tuple[Any, ...]:
    """Items that every rule prices alike: a duration counts in tenths of a second.

    The price by rule is part of it: a request with processor settings of its own must not teach what others cost.
    """
    item = priced.item
    duration = None if item.duration_s is None else round(item.duration_s, 1)
    return (item.modality, item.width, item.height, item.num_frames, duration, priced.num_tokens)
