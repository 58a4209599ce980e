r"""The derivative of the expected scores of logistic regression, from what is released already.

The score of a row with design vector a, taken at coefficients theta_s while the truth is theta, is on average

    w a (p(a theta_s) - p(a theta))/g = B (theta_s - theta),       B = E w a a' v/g,

with v the slope of p between the two predictors: the derivative averaged over the way (of several classes, with the
weights of their labels). It is taken over points that stand for rows (`stand_ins`), made of the histograms and
correlations that were released, and rescaled column by column to what the first Gram matrix found of ``E w z^2``. A
look at the derivative itself would cost a share of the budget and be noisier.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from tailguard.default.rows import class_weights
from tailguard.default.shrinkage import kept
from tailguard.default.stand_ins import StandIns, mean_and_squares, stand_ins
from tailguard.default.whitening import RADIUS, TIGHT_CAP, Design

Array = NDArray[np.float64]

FURTHEST = (0.01, 25.0)  # factors by which a column's second moment is rescaled
LEAST = 1e-3  # of the largest second moment, that a column is taken to have
POINTS = (4096, 2048)  # that stand for rows, of two classes and of more

_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(31)


def rescaling(design: Design, points: StandIns) -> Array:
    """A matrix S, so that S' B S has the columns' second moments that the first Gram matrix found, as far as known.

    B is a mean over points that stand for rows.
    """
    assert design.moments is not None
    W, radius = design.whitening, RADIUS[0] * math.sqrt(design.width)
    expected = mean_and_squares(points, design.shift, design.intercept, radius, TIGHT_CAP)
    expected = np.maximum(expected, LEAST * np.max(expected))
    away, noise = design.moments.value / expected - 1.0, design.moments.sd / expected
    away[1:] *= kept(float(np.sum(away[1:] ** 2)), float(np.sum(noise[1:] ** 2)))
    factors = np.sqrt(np.clip(1.0 + away, *FURTHEST))
    S = np.zeros((design.width, design.width))
    S[0, 0] = factors[0]
    S[1:, 1:] = np.linalg.solve(W, factors[1:, None] * W)
    return S


def bounded_slope(at: Array, to: Array) -> Array:
    """Slope of the bounded score at log-odds ``at`` over the way to the true log-odds ``to``."""
    p, way = expit(at), at - to
    near = np.abs(way) < 1e-6
    slope = np.where(near, p * (1.0 - p), (p - expit(to)) / np.where(near, 1.0, way))
    return np.asarray(slope / np.maximum(p, 1.0 - p))


def mean_slope(level: float, spread: float) -> float:
    """Expected min(p, 1 - p) of normal log-odds."""
    return float(_WEIGHTS @ expit(-np.abs(level + spread * _POINTS)) / _WEIGHTS.sum())


class OddsDerivative:
    """Of the bounded score of two classes, whose mean slope is believed to be at least ``least``."""

    def __init__(self, design: Design, least: float) -> None:
        points = stand_ins(design, POINTS[0])
        self.points, self.mass, self.least = points.design_points(design), points.mass, least
        self.weights = self.mass * design.weights(self.points)
        self.scale, self.intercept = rescaling(design, points), design.intercept

    def __call__(self, at: Array, to: Array) -> Array:
        """Derivative at ``at`` over the way to ``to``, both with the constant first."""
        a, slopes = self.points, bounded_slope(self.points @ at, self.points @ to)
        found = max(float(self.mass @ slopes), 1e-12)
        slopes *= self.weights * (max(found, self.least) / found)
        B = (a * slopes[:, None]).T @ a
        if not self.intercept:
            B[0, 0] = float(slopes.sum())
        return np.asarray(self.scale.T @ B @ self.scale)


class ClassDerivative:
    """Of the bounded score of several classes, for contrasts between them: (classes - 1, width), flat."""

    def __init__(self, design: Design, classes: int) -> None:
        points = stand_ins(design, POINTS[1])
        self.points = points.design_points(design)
        self.weights = points.mass * design.weights(self.points)
        self.scale, self.intercept = rescaling(design, points), design.intercept
        self.contrasts = contrasts(classes)

    def __call__(self, at: Array, to: Array) -> Array:
        """Derivative at ``at`` over the way to ``to``: that of the softmax in the middle of the way, made symmetric."""
        Q, a = self.contrasts, self.points
        k, width = Q.shape[1], a.shape[1]
        at, to = Q @ at.reshape(k, width), Q @ to.reshape(k, width)
        t, m = class_weights(softmax(a @ at.T, axis=1))
        p = softmax(a @ ((at + to) / 2.0).T, axis=1)
        # Probabilities that change by v change the mean score by ``t v - m sum(t v)``.
        changes = t[:, :, None] * p[:, :, None] * (Q - (p @ Q)[:, None, :])
        slopes = Q.T @ changes - (m @ Q)[:, :, None] * changes.sum(axis=1)[:, None, :]
        slopes = self.weights[:, None, None] * (slopes + slopes.transpose(0, 2, 1)) / 2.0
        B = np.empty((k, width, k, width))
        for i in range(k):
            for j in range(i, k):
                slope = slopes[:, i, j]
                block = self.scale.T @ ((a * slope[:, None]).T @ a) @ self.scale
                if not self.intercept:
                    block[0, 0] = float(slope.sum())
                B[i, :, j] = B[j, :, i] = block
        return B.reshape(k * width, -1)


def contrasts(classes: int) -> Array:
    """An orthonormal basis of what sums to zero over classes, (classes, classes - 1)."""
    return np.linalg.qr(np.column_stack([np.ones(classes), np.eye(classes)[:, 1:]]))[0][:, 1:]
