r"""Constraint sets W: where the iterates live. Each prints the projection it computes.

A set knows two things: ``project(w)`` = argmin over v in W of ``|v - w|_2``, and its ``diameter`` (Algorithm 1 needs
it public and finite).
Projection is post-processing of released values and costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailguard._checks import positive

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Constraint:
    """What every set has."""

    def diameter(self, dimension: int) -> float:
        """Largest distance between two points of the set in ``dimension`` dimensions."""
        raise NotImplementedError

    def project(self, w: Array) -> Array:
        """Nearest point of the set."""
        raise NotImplementedError

    def bounds(self, dimension: int) -> tuple[Array, Array]:
        """Lower and upper ends of the smallest box around the set."""
        raise NotImplementedError

    def enclosing_ball(self, dimension: int) -> tuple[Array, float]:
        """Centre and radius of a ball around the set: by default around its box."""
        lo, hi = self.bounds(dimension)
        return (lo + hi) / 2.0, float(np.linalg.norm(hi - lo)) / 2.0

    def check(self, dimension: int) -> None:
        """Raise unless the set lives in ``dimension`` dimensions."""


@dataclass(frozen=True)
class Unconstrained(Constraint):
    """The whole space: ``project(w) = w``."""

    def diameter(self, dimension: int) -> float:
        """Infinite."""
        return math.inf

    def bounds(self, dimension: int) -> tuple[Array, Array]:
        """Infinite."""
        return np.full(dimension, -math.inf), np.full(dimension, math.inf)

    def project(self, w: Array) -> Array:
        """Return w."""
        return w


@dataclass(frozen=True)
class L2Ball(Constraint):
    """All ``v`` with ``|v - center|_2 <= radius``: ``project(w) = center + (w - center) min(1, radius/|w - center|)``.

    Parameters
    ----------
    radius : float
        Positive.
    center : array_like or float, default=0
        Centre of the ball.
    """

    radius: float
    center: ArrayLike = 0.0

    def __post_init__(self) -> None:
        positive("radius", self.radius)
        _finite_array("center", self.center)

    def diameter(self, dimension: int) -> float:
        """Twice the radius."""
        return 2.0 * self.radius

    def bounds(self, dimension: int) -> tuple[Array, Array]:
        """Centre plus and minus the radius."""
        center = np.broadcast_to(np.asarray(self.center, dtype=np.float64), (dimension,))
        return center - self.radius, center + self.radius

    def enclosing_ball(self, dimension: int) -> tuple[Array, float]:
        """The ball itself."""
        return np.broadcast_to(np.asarray(self.center, dtype=np.float64), (dimension,)), float(self.radius)

    def project(self, w: Array) -> Array:
        """Nearest point of the ball."""
        center = np.asarray(self.center, dtype=np.float64)
        offset = w - center
        return np.asarray(center + offset * min(1.0, self.radius / max(float(np.linalg.norm(offset)), 1e-300)))

    def check(self, dimension: int) -> None:
        """Raise unless the centre fits."""
        _fits("center", self.center, dimension)


@dataclass(frozen=True)
class Box(Constraint):
    """All ``v`` with ``lo <= v <= hi`` in every coordinate: ``project(w) = max(lo, min(hi, w))``.

    Parameters
    ----------
    lo, hi : array_like or float
        Ends of every coordinate, or one pair for all.
    """

    lo: ArrayLike
    hi: ArrayLike

    def __post_init__(self) -> None:
        lo, hi = _finite_array("lo", self.lo), _finite_array("hi", self.hi)
        if lo.ndim and hi.ndim and lo.shape != hi.shape:
            raise ValueError(f"lo has shape {lo.shape} and hi has shape {hi.shape}: give the same shape, or a number.")
        if np.any(lo > hi):
            raise ValueError(f"lo={self.lo!r} is above hi={self.hi!r}: give lo <= hi in every coordinate.")

    def diameter(self, dimension: int) -> float:
        """Length of the diagonal."""
        width = np.broadcast_to(np.asarray(self.hi, float) - np.asarray(self.lo, float), (dimension,))
        return float(np.linalg.norm(width))

    def bounds(self, dimension: int) -> tuple[Array, Array]:
        """The box itself."""
        lo, hi = (np.broadcast_to(np.asarray(end, dtype=np.float64), (dimension,)) for end in (self.lo, self.hi))
        return lo, hi

    def project(self, w: Array) -> Array:
        """Nearest point of the box."""
        return np.clip(w, np.asarray(self.lo, float), np.asarray(self.hi, float))

    def check(self, dimension: int) -> None:
        """Raise unless both ends fit."""
        _fits("lo", self.lo, dimension)
        _fits("hi", self.hi, dimension)


@dataclass(frozen=True)
class Simplex(Constraint):
    """All ``v >= 0`` with ``sum(v) = total``: ``project(w) = max(w - tau, 0)``, tau such that the sum is right.

    Parameters
    ----------
    total : float, default=1
        The sum of the coordinates.
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        positive("total", self.total)

    def diameter(self, dimension: int) -> float:
        """Distance between two corners."""
        return math.sqrt(2.0) * self.total if dimension > 1 else 0.0

    def bounds(self, dimension: int) -> tuple[Array, Array]:
        """Each coordinate in [0, total]."""
        return np.zeros(dimension), np.full(dimension, float(self.total))

    def enclosing_ball(self, dimension: int) -> tuple[Array, float]:
        """Around the centroid, through the corners."""
        return np.full(dimension, self.total / dimension), self.total * math.sqrt(1.0 - 1.0 / dimension)

    def project(self, w: Array) -> Array:
        """Nearest point of the simplex, by sorting (Held, Wolfe and Crowder 1974)."""
        # A common offset changes nothing but the digits it costs, and an entry ``total`` below the largest ends as 0.
        w = np.maximum(w - np.max(w), -self.total)
        descending = np.sort(w)[::-1]
        excess = np.cumsum(descending) - self.total
        support = np.flatnonzero(descending - excess / np.arange(1, len(w) + 1) > 0)[-1]
        return np.asarray(np.maximum(w - excess[support] / (support + 1), 0.0))


def _finite_array(name: str, value: ArrayLike) -> Array:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name}={value!r} is not accepted: give a number or one number per coordinate.") from None
    if array.ndim > 1 or not np.all(np.isfinite(array)):
        raise ValueError(f"{name}={value!r} is not accepted: give a finite number or one per coordinate.")
    return array


def _fits(name: str, value: Any, dimension: int) -> None:
    shape = np.shape(value)
    if shape not in ((), (dimension,)):
        raise ValueError(
            f"constraint: {name} has shape {shape} but there are {dimension} coefficients: "
            f"give a number or ({dimension},)."
        )
