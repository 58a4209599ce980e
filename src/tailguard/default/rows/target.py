"""The target of a row, and what a row adds by its target alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard.default.rows.vectors import Array, Integers, Vectors, passes


@dataclass(frozen=True)
class Target:
    """The target in units of its scale, ``clip((y - mean)/scale, low, high)``; missing ``furthest`` from the middle."""

    mean: float = 0.0
    scale: float = 1.0
    middle: float = 0.0
    furthest: float = math.inf
    low: float = -math.inf
    high: float = math.inf

    def __call__(self, y: NDArray[Any]) -> Array:
        """Standardise targets."""
        y = np.asarray(y, np.float64)
        near = np.abs(y - self.middle) <= self.furthest
        return np.where(near, np.clip((y - self.mean) / self.scale, self.low, self.high), np.nan)

    @property
    def numbers(self) -> Array:
        """For kernels."""
        return np.array([self.mean, self.scale, self.middle, self.furthest, self.low, self.high])


AS_IT_IS = Target()


def mean_of(line: Array, largest: float) -> Array:
    """Means of counts from their logarithms, both ends bounded."""
    return np.exp(np.clip(line, -20.0, largest))


def bounded_score(z: Array, y: Array) -> Array:
    """(p - t)/max(p, 1 - p) with t = 1 for y > 0 and 0 otherwise; 0 where y is missing."""
    small = np.exp(-np.abs(z))
    agrees = (z > 0) == (y > 0)
    value = np.where(agrees, np.where(z > 0, -small, small), np.where(z > 0, 1.0, -1.0))
    return np.where(np.isnan(y), 0.0, value)


@dataclass(frozen=True)
class Prevalence(Vectors):
    """Half of the sign of the target; a missing one counts nothing."""

    @property
    def width(self) -> int:
        """One."""
        return 1

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """-1/2, 0 or 1/2."""
        return np.asarray(np.sign(np.nan_to_num(y))[:, None] / 2.0)

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add a block of rows."""
        passes(y).target_vectors(y, 0, bound, per_unit, total)


@dataclass(frozen=True)
class Membership(Vectors):
    """The class of a row as a corner of the simplex about its middle."""

    classes: int

    @property
    def width(self) -> int:
        """One for each class."""
        return self.classes

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """``onehot(y) - 1/K``."""
        return np.asarray((y[:, None] == np.arange(self.classes)) - 1.0 / self.classes, dtype=np.float64)

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add a block of rows."""
        passes(y).target_vectors(y, self.classes, bound, per_unit, total)
