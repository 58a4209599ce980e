r"""Scores whose equation defines what a fit with ``inference=True`` estimates, and what a row adds to queries of them.

A score s is a bounded function of a row's predictor z and target y, of mean zero at the true predictor. A row enters
with ``v a s``: a is its design vector and v its Mallows weight, or zero where a feature is missing or was truncated. v
looks at the features only, so ``E[v a s] = 0`` at the model's own coefficients.

=====================  ===================================  =======  =========================  =======
score                  s                                    at most  slope s'                   at most
=====================  ===================================  =======  =========================  =======
`ResidualScore`        clip(z - y, +-c)                     c        1{abs(z - y) <= c}         1
`CountScore`           clip((m - y)/max(m, 1), +-c)         c        min(m, 1) inside           1
`OddsScore`            (p - y)/max(p, 1 - p)                1        min(p, 1 - p)              1/2
`TailScore`            sign of a residual beyond a point    1        -                          -
=====================  ===================================  =======  =========================  =======

m = exp(z). The slopes of counts and odds are the expected ones. ``|v a s| <= R c`` since ``v |a| <= R``, and
``|sqrt(v s') a|^2 <= k cap R^2`` for slopes of at most k since ``v |a|^2 <= cap R^2``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tailguard.default.rows import Fitted, Target, bounded_score
from tailguard.default.whitening import Design

Array = NDArray[np.float64]


class Score(Protocol):
    """A bounded score of one row as a function of its predictor."""

    @property
    def bound(self) -> float:
        """Largest size of the score."""

    @property
    def steepest(self) -> float:
        """Largest slope."""

    def parts(self, z: Array, y: NDArray[Any]) -> tuple[Array, Array]:
        """Scores and their slopes at predictors; both are zero where the target is missing."""


class ClippedScore:
    """A residual, clipped."""

    clip: float
    steepest = 1.0

    def at(self, clip: float) -> Self:
        """The same with another clip."""
        return replace(self, clip=clip)  # type: ignore[type-var]

    @property
    def bound(self) -> float:
        """The clip."""
        return self.clip

    def residual(self, z: Array, y: NDArray[Any]) -> Array:
        """Residuals before they are clipped, missing where the target is."""
        raise NotImplementedError

    def slope(self, z: Array) -> Array | float:
        """Slopes of residuals."""
        raise NotImplementedError

    def parts(self, z: Array, y: NDArray[Any]) -> tuple[Array, Array]:
        """Clipped residuals, and the slopes of those that are inside."""
        r = self.residual(z, y)
        inside = np.abs(r) <= self.clip  # False where it is missing
        clipped = np.clip(np.nan_to_num(r, nan=0.0), -self.clip, self.clip)
        return clipped, np.where(inside, self.slope(z), 0.0).astype(np.float64)


@dataclass(frozen=True)
class ResidualScore(ClippedScore):
    """The residual of a line: least squares within the clip."""

    target: Target
    clip: float = math.inf

    def residual(self, z: Array, y: NDArray[Any]) -> Array:
        """``z - y``."""
        return z - self.target(y)

    def slope(self, z: Array) -> Array | float:
        """One."""
        return 1.0


@dataclass(frozen=True)
class CountScore(ClippedScore):
    """The residual of a mean ``m = exp(offset + z)``, over the mean where that is above 1.

    m is of a target in units of its own mean. A predictor beyond ``largest`` counts nothing.
    """

    target: Target
    offset: float
    largest: float
    clip: float = math.inf

    def residual(self, z: Array, y: NDArray[Any]) -> Array:
        """``(m - y)/max(m, 1)``."""
        m = np.exp(np.minimum(self.offset + z, self.largest))
        return np.where(self.offset + z > self.largest, np.nan, (m - self.target(y)) / np.maximum(m, 1.0))

    def slope(self, z: Array) -> Array | float:
        """Expected: ``min(m, 1)``."""
        return np.exp(np.minimum(self.offset + z, 0.0))


@dataclass(frozen=True)
class OddsScore:
    """The bounded score of log-odds."""

    bound: float = 1.0
    steepest: float = 0.5

    def parts(self, z: Array, y: NDArray[Any]) -> tuple[Array, Array]:
        """Scores, and the smaller of both probabilities."""
        return bounded_score(z, y), np.where(np.isnan(y), 0.0, 1.0 / (1.0 + np.exp(np.abs(z))))


@dataclass(frozen=True)
class TailScore:
    """The sign of a residual beyond a point, 0 before it: how uneven the tails are."""

    score: ClippedScore
    start: float
    bound: float = 1.0
    steepest: float = 0.0

    def parts(self, z: Array, y: NDArray[Any]) -> tuple[Array, Array]:
        """Signs, and no slopes."""
        r = np.nan_to_num(self.score.residual(z, y), nan=0.0)
        return np.where(np.abs(r) > self.start, np.sign(r), 0.0), np.zeros(len(r))


# ---------------------------------------------------------------- rows


@dataclass(frozen=True, eq=False)
class ResidualAt:
    """Residuals of rows at a point, one number a row."""

    design: Design
    theta: Array
    score: ClippedScore

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Residuals of a block of rows."""
        return self.score.residual(self.design.predictor(self.design.vectors(X), self.theta), y)


@dataclass(frozen=True, eq=False)
class _Rows:
    design: Design
    theta: Array
    score: Score

    def parts(self, X: NDArray[Any], y: NDArray[Any]) -> tuple[Array, Array, Array, Array]:
        """Design vectors, weights, scores and slopes of a block of rows."""
        columns, a = self.design.columns, self.design.vectors(X)
        whole = np.all((columns.lower <= X) & (columns.upper >= X), axis=1)
        return a, self.design.weights(a) * whole, *self.score.parts(self.design.predictor(a, self.theta), y)


class ScoreRows(_Rows):
    """``v a s``."""

    @property
    def bound(self) -> float:
        """Largest norm of a row."""
        return self.design.radius * self.score.bound

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Scores of a block of rows."""
        a, weight, s, _ = self.parts(X, y)
        return np.asarray(a * (weight * s)[:, None])


class SlopeRows(_Rows):
    """``sqrt(v s') a``, whose Gram matrix is the Jacobian of the mean score."""

    @property
    def bound(self) -> float:
        """Largest norm of a row."""
        return math.sqrt(self.design.cap * self.score.steepest) * self.design.radius

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Vectors of a block of rows."""
        a, weight, _, slope = self.parts(X, y)
        return np.asarray(a * np.sqrt(weight * slope)[:, None])


@dataclass(frozen=True, eq=False)
class LevelRows:
    """``(u, u^2 - 1)`` of the clipped residual ``u = clip((y - line)/clip, +-1)``; a missing one is 0."""

    line: Fitted
    target: Target
    clip: float

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Of norm at most 1: ``u^2 + (u^2 - 1)^2 = 1 - u^2 (1 - u^2)``."""
        u = np.clip(np.nan_to_num((self.target(y) - self.line(X)) / self.clip, nan=0.0), -1.0, 1.0)
        return np.column_stack([u, u * u - 1.0])


@dataclass(frozen=True, eq=False)
class SignRows:
    """The sign of ``y - line`` beyond a point, 0 before it."""

    line: Fitted
    target: Target
    start: float

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Of size at most 1."""
        r = np.nan_to_num(self.target(y) - self.line(X), nan=0.0)
        return np.where(np.abs(r) > self.start, np.sign(r), 0.0)[:, None]
