r"""The derivative of the expected scores of logistic regression, from what is released already.

The score of a row with design vector a, taken at coefficients theta_s while the truth is theta, is on average

    w a (p(a theta_s) - p(a theta))/g = B (theta_s - theta),       B = E w a a' v/g,

with v the slope of p between the two predictors: the derivative averaged over the way (of several classes, with the
weights of their labels). It is taken over a model of the features. In whitened coordinates they are standard normal, so
that B differs from a multiple of the identity only in the constant and in the plane of the two sets of coefficients
(two classes), or is a mean over fixed public points (more). Real columns are not normal: the weights w make a rare 0/1
column look small. So B is rescaled column by column, to what the first Gram matrix found of ``E w z^2``. A look at the
derivative itself would cost a share of the budget and be noisier.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaincinv, softmax

from tailguard.default.rows import class_weights
from tailguard.default.whitening import RADIUS, TIGHT_CAP, Design

Array = NDArray[np.float64]

FURTHEST = (0.01, 25.0)  # factors by which a column's second moment is rescaled
POINTS = 1024  # over which the derivative of several classes is averaged
_QUANTILES = (np.arange(128) + 0.5) / 128.0

_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
_PLANE = np.stack([np.ones((31, 31)), *np.meshgrid(_POINTS, _POINTS)]).reshape(3, -1)
_MASS = np.outer(_WEIGHTS, _WEIGHTS).ravel() / np.sum(_WEIGHTS) ** 2


def mean_weights(width: int, intercept: bool, radius: float, cap: float) -> Array:
    """Expected w and w z^2 of standard normal features z, the constant first; public."""
    d = width - 1
    square = 2.0 * gammaincinv(d / 2.0, _QUANTILES)
    ratio = radius / np.sqrt(square + (1.0 if intercept else 0.0))
    w = np.minimum(1.0, np.minimum(ratio, cap * ratio**2))
    return np.append(w.mean(), np.full(d, np.mean(w * square) / d))


def rescaling(design: Design) -> Array:
    """A matrix S, so that S' B S has the columns' second moments that the first Gram matrix found, as far as known."""
    assert design.moments is not None
    W, variances = design.whitening, np.append(1.0, np.diag(design.covariance))
    expected = mean_weights(design.width, design.intercept, RADIUS[0] * math.sqrt(design.width), TIGHT_CAP) * variances
    away, noise = design.moments.value / expected - 1.0, design.moments.sd / expected
    away[1:] *= max(0.0, 1.0 - float(np.sum(noise[1:] ** 2)) / max(float(np.sum(away[1:] ** 2)), 1e-300))
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
        self.width, self.intercept, self.least = design.width, design.intercept, least
        weights = mean_weights(design.width, design.intercept, design.radius, design.cap)
        self.scale = np.sqrt(weights)[:, None] * rescaling(design)

    def __call__(self, at: Array, to: Array) -> Array:
        """Derivative at ``at`` over the way to ``to``, both with the constant first."""
        basis, k = np.zeros((self.width, 3)), min(2, self.width - 1)
        basis[0, 0] = 1.0 if self.intercept else 0.0
        basis[1:, 1 : k + 1] = np.linalg.qr(np.column_stack([to[1:], at[1:]]))[0][:, :k]
        slopes = _MASS * bounded_slope(at @ basis @ _PLANE, to @ basis @ _PLANE)
        found = float(slopes.sum())
        mean = max(found, self.least)
        core = (_PLANE * slopes) @ _PLANE.T * (mean / found)
        B = mean * np.eye(self.width) + basis @ (core - mean * np.eye(3)) @ basis.T
        return np.asarray(self.scale.T @ B @ self.scale)


class ClassDerivative:
    """Of the bounded score of several classes, for contrasts between them: (classes - 1, width), flat."""

    def __init__(self, design: Design, classes: int) -> None:
        d = design.width - 1
        points = np.random.default_rng(0).standard_normal((max(POINTS, 4 * d), d))
        points -= points.mean(axis=0)
        points = np.linalg.solve(np.linalg.cholesky(points.T @ points / len(points)), points.T).T
        self.points = np.column_stack([np.full(len(points), 1.0 if design.intercept else 0.0), points])
        self.weights = design.weights(self.points) / len(points)
        self.scale, self.intercept = rescaling(design), design.intercept
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
