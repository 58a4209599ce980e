"""Post-processing that the default's fits share: averaged iterates, and shrinkage by known noise."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def slope_noise(whitening: Array, covariance: Array) -> Array:
    """Standard deviations of slopes from the covariance of whitened coefficients, the constant first."""
    return np.sqrt(np.maximum(np.diag(whitening @ covariance[1:, 1:] @ whitening.T), 0.0))


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


def into_ball(theta: Array, radius: float) -> Array:
    """Scale a vector down to a radius."""
    return np.asarray(theta * min(1.0, radius / max(float(np.linalg.norm(theta)), 1e-300)))


def geometric(count: int, growth: float = 1.4) -> Array:
    """Shares that grow geometrically and add up to one: later iterates are worth more."""
    weights = growth ** np.arange(count)
    return np.asarray(weights / weights.sum())
