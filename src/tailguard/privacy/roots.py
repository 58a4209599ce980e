"""Roots of monotone functions, moved to the safe side: one import of scipy.optimize, when the first is asked for."""

from __future__ import annotations

from collections.abc import Callable


def root_of(function: Callable[[float], float], low: float, high: float, xtol: float, rtol: float = 1e-14) -> float:
    """Return a root between two numbers at which the function has different signs."""
    from scipy.optimize import brentq  # a quarter of the time of importing all of tailguard

    return float(brentq(function, low, high, xtol=xtol, rtol=rtol))


def rounded_up(root: float, step: float, is_safe: Callable[[float], bool]) -> float:
    """Return a number above a root, by at least ``step``, that is safe."""
    while not is_safe(root + step):
        step *= 2.0
    return root + step


def rounded_down(root: float, step: float, is_safe: Callable[[float], bool]) -> float:
    """Return a number below a root, by at least ``step`` times it, that is safe."""
    while not is_safe(root * (1.0 - step)):
        step *= 2.0
    return root * (1.0 - step)
