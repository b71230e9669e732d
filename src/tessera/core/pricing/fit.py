"""Which rule would have priced these pictures as the engine counted them?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessera.core.family import Count, Family
from tessera.core.plugin import registered
from tessera.core.pricing.learning import SizeSample
from tessera.core.pricing.robust import median
from tessera.core.pricing.served_model import guess

GOOD_ERROR = 0.05
"""A rule whose median error is above this does not fit."""
CLEARLY_BETTER = 0.02
"""By so much a fixed number must beat the best family: roles and markers alone make less."""
MIN_FIXED_SIZES = 3


@dataclass(frozen=True, slots=True)
class Fit:
    """A rule and how well it fits."""

    family: str | None
    """A family with its published settings; nothing: a fixed number of tokens."""
    static_tokens: int | None
    error: float
    """Median of ``|predicted - counted| / counted`` over the sizes."""

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
    """The family, or the fixed number, that prices these pictures best; nothing where none is within 5 %.

    Each size counts once, however often it came, so that one popular size does not
    pass for a rule. The family that the model's name speaks of goes first where it
    fits, then the one with the smallest error, then the shortest name; a fixed
    number only where three sizes say so and no family comes near. Costs a few
    microseconds for each family and sample, so it is asked only when a price was
    found wrong.
    """
    sizes = _by_size(samples)
    if not sizes:
        return None
    # Aliases name the same rule, and a rule told twice is told once.
    families = {cls.type: cls for cls in registered(Family).values()}
    fits = [Fit(name, None, _error(cls(), sizes)) for name, cls in families.items()]
    good = [fit for fit in fits if fit.error <= GOOD_ERROR]
    guessed = guess(model)
    likely = guessed.family.type if guessed else None
    best = min(good, key=lambda fit: (fit.family != likely, round(fit.error, 3), len(fit.name), fit.name), default=None)
    fixed = _fixed(sizes)
    nearest = best.error if best else math.inf
    return fixed if fixed.error <= GOOD_ERROR and fixed.error < nearest - CLEARLY_BETTER else best


def rule_error(samples: Sequence[SizeSample]) -> float:
    """The configured rule's own error over the same pictures."""
    return median(abs(size.priced - size.num_tokens) / size.num_tokens for size in _by_size(samples))


def _by_size(samples: Sequence[SizeSample]) -> list[SizeSample]:
    """One sample for each size: what the engine counted for it, typically."""
    of: dict[tuple[int, int, int], list[SizeSample]] = {}
    for sample in samples:
        of.setdefault((sample.width, sample.height, sample.num_images), []).append(sample)
    return [replace(same[-1], num_tokens=median(each.num_tokens for each in same)) for same in of.values()]


def _fixed(sizes: Sequence[SizeSample]) -> Fit:
    """A fixed number; of fewer than three sizes it says nothing."""
    typical = round(median(size.num_tokens for size in sizes))
    error = median(abs(typical - size.num_tokens) / size.num_tokens for size in sizes)
    return Fit(None, typical, error if len(sizes) >= MIN_FIXED_SIZES else math.inf)


def _error(family: Family, sizes: Sequence[SizeSample]) -> float:
    errors = []
    for size in sizes:
        count = family.image(size.width, size.height, num_images=size.num_images)
        predicted = count.num_tokens + count.num_wrapper_tokens if isinstance(count, Count) else 0
        errors.append(abs(predicted - size.num_tokens) / size.num_tokens)
    return median(errors)
