"""Which rule would have priced these pictures as the engine counted them?"""

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.core.family import Count, Family
from tessera.core.plugin import registered
from tessera.core.pricing.learning import SizeSample
from tessera.core.pricing.robust import median
from tessera.core.pricing.served_model import guess

GOOD_ERROR = 0.05
"""A rule whose median error is above this does not fit."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A rule and how well it fits."""

    family: str | None
    """A family with its published settings; nothing: a fixed number of tokens."""
    static_tokens: int | None
    error: float
    """Median of ``|predicted - counted| / counted`` over the samples."""

    @property
    def name(self) -> str:
        """The rule in words."""
        return f"family {self.family}" if self.family else f"static {self.static_tokens}"

    @property
    def yaml(self) -> str:
        """The parameters of token-producer that set it."""
        if self.family:
            return f"{{estimate: {{model: {{family: {self.family}}}}}}}"
        return f"{{estimate: {{image: {{mode: static, static: {{staticToken: {self.static_tokens}}}}}}}}}"


def best_fit(samples: Sequence[SizeSample], model: str = "") -> Fit | None:
    """The family, or the fixed number, with the smallest median error; nothing where none fits within 5 %.

    Where several fit alike, the one that the model's name speaks of goes first, then
    the shortest name. Costs a few microseconds for each family and sample, so it is asked only when a
    price was found wrong.
    """
    if not samples:
        return None
    # Aliases name the same rule, and a rule told twice is told once.
    families = {cls.type: cls for cls in registered(Family).values()}
    fits = [Fit(name, None, _error(cls(), samples)) for name, cls in families.items()]
    typical = round(median(sample.num_tokens for sample in samples))
    fits.append(Fit(None, typical, median(abs(typical - s.num_tokens) / s.num_tokens for s in samples)))
    guessed = guess(model)
    likely = guessed.family.type if guessed else None
    best = min(fits, key=lambda fit: (round(fit.error, 3), fit.family != likely, len(fit.name), fit.name))
    return best if best.error <= GOOD_ERROR else None


def rule_error(samples: Sequence[SizeSample]) -> float:
    """The configured rule's own median error over the same samples."""
    return median(abs(sample.priced - sample.num_tokens) / sample.num_tokens for sample in samples)


def _error(family: Family, samples: Sequence[SizeSample]) -> float:
    errors = []
    for sample in samples:
        count = family.image(sample.width, sample.height, num_images=sample.num_images)
        predicted = count.num_tokens + count.num_wrapper_tokens if isinstance(count, Count) else 0
        errors.append(abs(predicted - sample.num_tokens) / sample.num_tokens)
    return median(errors)
