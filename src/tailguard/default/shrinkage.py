"""Released values, believed as far as their known noise allows: post-processing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def kept(square: float, noise: float) -> float:
    """Fraction that remains of something whose square is known with so much noise: James and Stein's factor."""
    return max(0.0, 1.0 - noise / max(square, 1e-300))


def believed(value: float, sd: float) -> float:
    """A number, shrunk to none by the standard deviation of its noise; of any size, so nothing is squared alone."""
    return value * max(0.0, 1.0 - (sd / max(abs(value), sd)) ** 2) if sd > 0.0 else value


def shrink(slopes: Array, noise: Array, covariance: Array) -> Array:
    r"""Shrink noisy slopes toward zero by empirical Bayes.

    slopes = truth + N(0, noise), truth ~ N(0, s^2 C^-1) with C the covariance of the features, so that the fitted line,
    not its coordinates, is what is believed small; s^2 maximises the marginal likelihood on a grid.
    Returned is the posterior mean.
    """
    L = np.linalg.cholesky(covariance)
    values, Q = np.linalg.eigh(L.T @ noise @ L)
    values, z = np.maximum(values, 1e-14), Q.T @ (L.T @ slopes)
    candidates = np.append(0.0, 2.0 ** np.arange(-26.0, 4.01, 0.5))[:, None]
    likelihood = -np.sum(np.log(candidates + values) + z * z / (candidates + values), axis=1)
    best = candidates[np.argmax(likelihood)]
    factor = best / (best + values)
    return np.linalg.solve(L.T, Q @ (factor * z))


def slope_noise(whitening: Array, covariance: Array) -> Array:
    """Standard deviations of slopes from the covariance of whitened coefficients, the constant first."""
    return np.sqrt(np.maximum(np.diag(whitening @ covariance[1:, 1:] @ whitening.T), 0.0))
