"""Iterates that the default's fits share: their average, how far they go, and what each costs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass
class Average:
    """Inverse-variance average of iterates, and the variance factor of the privacy noise left in it."""

    value: Array
    _precision: float = field(default=0.0, init=False)

    def add(self, theta: Array, variance: float) -> None:
        """Add one iterate with the variance of its noise."""
        total = self._precision + 1.0 / variance
        self.value = (self._precision * self.value + theta / variance) / total
        self._precision = total

    @property
    def variance(self) -> float:
        """Variance factor of the average's noise."""
        return 1.0 / self._precision


def into_ball(theta: Array, radius: float) -> Array:
    """Scale a vector down to a radius."""
    return np.asarray(theta * min(1.0, radius / max(float(np.linalg.norm(theta)), 1e-300)))


def geometric(count: int, growth: float = 1.4) -> Array:
    """Shares that grow geometrically and add up to one: later iterates are worth more."""
    weights = growth ** np.arange(count)
    return np.asarray(weights / weights.sum())
