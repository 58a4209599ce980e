"""Step sizes: public functions of the step number t = 1, 2, ...

A number is a constant step, ``"1/sqrt(t)"`` the schedule of the paper's stochastic runs, and any function of t a
user's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tailguard._checks import positive

StepSize = float | str | Callable[[int], float]


@dataclass(frozen=True)
class Constant:
    """The same step every time."""

    size: float

    def __post_init__(self) -> None:
        positive("step_size", self.size)

    def __call__(self, t: int) -> float:
        """Step ``size``."""
        return self.size


@dataclass(frozen=True)
class InverseSqrt:
    """Steps ``size / sqrt(t)``."""

    size: float = 1.0

    def __post_init__(self) -> None:
        positive("step_size", self.size)

    def __call__(self, t: int) -> float:
        """Step ``size / sqrt(t)``."""
        return self.size / math.sqrt(t)


def schedule(step_size: Any) -> Callable[[int], float]:
    """Return the function that a ``step_size`` argument means."""
    if callable(step_size):
        return step_size
    if isinstance(step_size, str):
        if step_size == "1/sqrt(t)":
            return InverseSqrt()
        raise ValueError(
            f"step_size={step_size!r} is not accepted: give a number, '1/sqrt(t)' or a function of t = 1, 2, ..."
        )
    return Constant(positive("step_size", step_size))
