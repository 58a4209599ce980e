"""Numbers as a report prints them."""

from __future__ import annotations

import math
from typing import Any


def up(value: float) -> str:
    """Three digits, rounded up: a printed promise must hold."""
    if math.isinf(value):
        return "inf"
    exponent = math.floor(math.log10(value)) if value > 0.0 else 0
    unit = 10.0 ** (exponent - 2)
    mantissa, _, power = f"{math.ceil(value * (1.0 - 1e-9) / unit) * unit:.3g}".partition("e")
    return f"{mantissa}e{int(power)}" if power else mantissa


def plain(value: Any) -> Any:
    """Return a number that JSON can hold; an infinite one in words."""
    number = float(value)
    return number if math.isfinite(number) else "inf"


def number(value: float) -> str:
    """Four digits, with thousands set apart."""
    if value == 0.0 or not 1e-4 <= abs(value) < 1e12:
        return f"{value:.4g}"
    if abs(value) < 1000.0:
        return f"{value:.4g}"
    return f"{float(f'{value:.4g}'):,.0f}"
