"""Checks of scalar arguments, shared by the package.

A privacy parameter that is silently coerced is a privacy bug: ``True`` is not an
epsilon of one and ``"0.1"`` is not a delta.  Each check returns a plain Python number
or raises an error that names the argument, the value and what is accepted.
"""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np


def real(name: str, value: object, accepted: str) -> float:
    """Return ``value`` as a float; refuse booleans, strings, arrays and NaN."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {accepted}; got {value!r} of type {type(value).__name__}")
    number = float(value)
    if math.isnan(number):
        raise ValueError(f"{name} must be {accepted}; got nan")
    return number


def positive(name: str, value: object) -> float:
    """Return ``value`` if it is a finite number above zero."""
    accepted = "a finite number above 0"
    number = real(name, value, accepted)
    if not 0.0 < number < math.inf:
        raise ValueError(f"{name} must be {accepted}; got {value!r}")
    return number


def nonnegative(name: str, value: object) -> float:
    """Return ``value`` if it is in [0, ∞]."""
    accepted = "a number in [0, inf]"
    number = real(name, value, accepted)
    if number < 0.0:
        raise ValueError(f"{name} must be {accepted}; got {value!r}")
    return number


def probability(name: str, value: object, *, zero: bool = False, one: bool = False) -> float:
    """Return ``value`` if it is a probability; the ends are accepted only by name."""
    accepted = f"a number in {'[' if zero else '('}0, 1{']' if one else ')'}"
    number = real(name, value, accepted)
    inside = 0.0 < number < 1.0 or (zero and number == 0.0) or (one and number == 1.0)
    if not inside:
        raise ValueError(f"{name} must be {accepted}; got {value!r}")
    return number


def count(name: str, value: object, *, least: int = 1) -> int:
    """Return ``value`` if it is an integer of at least ``least``."""
    accepted = f"an integer >= {least}"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be {accepted}; got {value!r} of type {type(value).__name__}")
    number = int(value)
    if number < least:
        raise ValueError(f"{name} must be {accepted}; got {value!r}")
    return number
