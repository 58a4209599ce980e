"""What a row adds by its design vector: to the second moments, and to the score of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from tailguard.default.rows.clips import Clip
from tailguard.default.rows.target import AS_IT_IS, Target, bounded_score, mean_of
from tailguard.default.rows.vectors import Array, Integers, Vectors, passes
from tailguard.kernels import codes

if TYPE_CHECKING:
    from tailguard.default.score_table import ScoreTable
    from tailguard.default.whitening import Design

_WITHIN_ONE = Clip(1.0)


@dataclass(frozen=True, eq=False)
class DesignRows(Vectors):
    """Weighted design vectors ``sqrt(w) a``."""

    design: Design

    @property
    def width(self) -> int:
        """Design coordinates."""
        return self.design.width

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Design vectors times the roots of their weights."""
        a = self.design.vectors(X)
        return np.asarray(a * np.sqrt(self.design.weights(a))[:, None])

    def gram(self, bound: float, bits: int) -> DesignGram:
        """The sum of their products as one compiled pass."""
        return DesignGram(self.design, bound, bits)


@dataclass(frozen=True)
class DesignGram:
    """The Gram matrix of weighted design vectors, scaled down to a bound and rounded to so many bits."""

    design: Design
    bound: float
    bits: int
    fused = True

    @property
    def shape(self) -> tuple[int, int]:
        """Design coordinates, twice."""
        return self.design.width, self.design.width

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Integers:
        """Add up a block of rows."""
        total = np.zeros(self.shape, np.int64)
        passes(X).design_gram(X, *self.design.numbers, self.bound, self.bits, total)
        return total


@dataclass(frozen=True, eq=False)
class Score(Vectors):
    """``w a clip(r)``, r the residual of ``offset + a . theta`` or, with ``largest``, its exponential."""

    design: Design
    theta: Array
    target: Target
    clip: Clip
    offset: float = 0.0
    largest: float | None = None
    table: ScoreTable | None = None  # with these scores in it

    @property
    def width(self) -> int:
        """Design coordinates."""
        return self.design.width

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Scores of a block of rows."""
        a = self.design.vectors(X)
        fitted = self.offset + self.design.predictor(a, self.theta)
        if self.largest is not None:
            fitted = mean_of(fitted, self.largest)
        return np.asarray(a * (self.design.weights(a) * self.clip(fitted - self.target(y)))[:, None])

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add a block of rows."""
        link, largest = (codes.RESIDUAL, 0.0) if self.largest is None else (codes.MEAN, self.largest)
        at = self.theta, self.offset, link, largest, self.target.numbers, *self.clip.numbers
        passes(X).scores(X, y, *self.design.numbers, *at, bound, per_unit, total)


@dataclass(frozen=True, eq=False)
class Widening(Vectors):
    """Whether residuals widen in some direction: ``w a (min(|r|, clip) - clip/2)``."""

    design: Design
    theta: Array
    target: Target
    clip: float

    @property
    def width(self) -> int:
        """Design coordinates."""
        return self.design.width

    @property
    def bound(self) -> float:
        """Largest norm of the vector of a row."""
        return self.design.radius * self.clip / 2.0

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Vectors of a block of rows; a missing residual says nothing."""
        a = self.design.vectors(X)
        size = np.abs(self.design.predictor(a, self.theta) - self.target(y))
        size = np.nan_to_num(np.minimum(size, self.clip) - self.clip / 2.0, nan=0.0)
        return np.asarray(a * (self.design.weights(a) * size)[:, None])

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add a block of rows."""
        half = self.clip / 2.0
        at = self.theta, 0.0, codes.SIZE, half, self.target.numbers, *Clip(half).numbers
        passes(X).scores(X, y, *self.design.numbers, *at, bound, per_unit, total)


@dataclass(frozen=True, eq=False)
class LogisticScore(Vectors):
    """``w a (p - y)/max(p, 1 - p)`` at log-odds ``a . theta``."""

    design: Design
    theta: Array

    @property
    def width(self) -> int:
        """Design coordinates."""
        return self.design.width

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Scores of a block of rows."""
        a = self.design.vectors(X)
        return np.asarray(
            a * (self.design.weights(a) * bounded_score(self.design.predictor(a, self.theta), y))[:, None]
        )

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add a block of rows."""
        at = self.theta, 0.0, codes.LOG_ODDS, 0.0, AS_IT_IS.numbers, *_WITHIN_ONE.numbers
        passes(X).scores(X, y, *self.design.numbers, *at, bound, per_unit, total)


def class_weights(p: Array) -> tuple[Array, Array]:
    """Weights t of labels over the largest score g, and the point m that their scores start from, for probabilities p.

    A row with label y has the score ``t_y (m - e_y)/g``, e_y the y-th corner of the simplex. Its mean over the labels
    is zero whatever t is, if ``m = sum_k p_k t_k e_k / sum_k p_k t_k``.
    """
    square = np.sum(p * p, axis=1, keepdims=True)
    t = np.maximum(1.0 - 2.0 * p + square, codes.NEAREST) ** -codes.EVEN
    m = p * t / np.sum(p * t, axis=1, keepdims=True)
    sizes = t * np.sqrt(np.maximum(1.0 - 2.0 * m + np.sum(m * m, axis=1, keepdims=True), 0.0))
    return t / np.max(sizes, axis=1, keepdims=True), m


@dataclass(frozen=True, eq=False)
class MultinomialScore(Vectors):
    """``t_y (m - e_y)/g`` times ``w a``, for coefficients (classes, design coordinates)."""

    design: Design
    theta: Array

    @property
    def width(self) -> int:
        """Classes times design coordinates."""
        return int(self.theta.size)

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Scores of a block of rows, class by class."""
        a = self.design.vectors(X)
        t, m = class_weights(softmax(self.design.predictor(a, self.theta), axis=1))
        label = y[:, None] == np.arange(len(self.theta))  # of none of the classes: no score
        gap = np.sum(t, axis=1, where=label, keepdims=True) * (m - label)
        weighted = a * self.design.weights(a)[:, None]
        return np.asarray((gap[:, :, None] * weighted[:, None, :]).reshape(len(a), -1))

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add a block of rows."""
        passes(X).class_scores(X, y, *self.design.numbers, np.ascontiguousarray(self.theta), bound, per_unit, total)
