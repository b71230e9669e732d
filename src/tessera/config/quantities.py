"""How many bytes or requests does a Kubernetes quantity mean?"""

import math
import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator

from tessera.core.plugin import Range

_QUANTITY = re.compile(
    r"([+-]?(?:\d{1,19}(?:\.\d{0,19})?|\.\d{1,19}))(Ki|Mi|Gi|Ti|Pi|Ei|[kMGTPEm]|[eE][+-]?\d{1,2})?", re.ASCII
)
_FACTORS = {"": Fraction(1), "m": Fraction(1, 1000)}
_FACTORS |= {unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", start=1)}
_FACTORS |= {f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", start=1)}


def quantity(text: str) -> int:
    """The whole number that a Kubernetes quantity means, rounded up.

    Raises:
        ValueError: not a quantity, or beyond 64 bits.

    Source: Kubernetes API conventions, "Quantities".

    >>> quantity("64Mi"), quantity("1.5k"), quantity("1e3"), quantity("100m")
    (67108864, 1500, 1000, 1)
    """
    found = _QUANTITY.fullmatch(text) if len(text) <= 64 else None
    if found is None:
        raise ValueError(f"got {text[:60]!r}, expected a number or a quantity such as 64Mi or 4G")
    unit = found[2] or ""
    factor = _FACTORS.get(unit) or Fraction(10) ** int(unit[1:])
    number = math.ceil(Fraction(found[1]) * factor)
    if abs(number) >= 1 << 63:
        raise ValueError(f"got {text!r}, expected less than 8Ei")
    return number


def _number(value: Any) -> Any:
    return quantity(value) if isinstance(value, str) else value


AsQuantity = BeforeValidator(_number)
"""Marks a number that YAML may write as a quantity; stands behind the number's ``Range``."""

Quantity = Annotated[int, Range(ge=0), AsQuantity]
"""A count or a size in bytes, 0 or more: ``67108864`` or ``64Mi``."""
