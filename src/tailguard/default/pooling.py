r"""Coefficients from gradients that were released at different points.

A gradient released at ``theta_s`` is a noisy observation of the coefficients theta that solve the equations:

    g_s = B_s (theta_s - theta) + e_s,      e_s ~ N(0, sd_s^2 I),

where B_s is the derivative of the expected gradient, averaged over the way from theta to theta_s. So all gradients are
pooled by least squares, and every share of the budget that a step took counts in the result; an average of the later
iterates would lose the earlier ones.

B_s comes from a model of the features and is wrong by some matrix, the same for all steps: by a fraction kappa of what
it predicts. Predictions on the same side of the solution are wrong in the same way, on two sides in opposite ones, so

    cov(error_s, error_t) = [s = t] sd_s^2 + kappa^2 <B_s (theta_s - theta), B_t (theta_t - theta)> / p

in each of p coordinates. Gradients far away then count little, and two on either side of the solution are interpolated
whatever B_s says: steps converge although no derivative was ever released. How wrong B_s is the gradients tell
themselves: kappa is the most likely of `DOUBTS`.

In directions about which the rows say little, B_s is small and the pooled coefficients are known to be noisy. They
are shrunk there (empirical Bayes), in place of being followed. The next gradient is asked for at the pooled
coefficients. All of it is post-processing of released gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailguard.default.averaging import into_ball

Array = NDArray[np.float64]

DOUBTS = (0.3, 0.6, 1.2, 2.4, 4.8)  # relative errors of the derivatives, to choose from
VAGUE = 3.0  # standard deviation of the constants' prior, about where they start: no noise sends them to infinity
# Variances of the slopes' prior to choose from: all of them together, over the largest square of their norm.
TOGETHER = np.append(0.0, 2.0 ** np.arange(-24.0, -0.9, 0.5))
FURTHEST = 10.0  # from where they start, of constants: of classes that nobody is in they have no end
ROUNDS = 3


class Gradient(NamedTuple):
    """A released gradient, where it was taken, and the standard deviation of its noise."""

    at: Array
    value: Array
    sd: float


@dataclass
class Pool:
    """Gradients of a mean over n rows; ``slopes`` marks the coefficients that are believed small, of norm ``largest``.

    ``derivative(at, to)`` is the symmetric matrix B of a gradient taken at ``at`` if the solution is ``to``. In
    shrinkage privacy noise counts ``inflation`` times.
    """

    n: int
    derivative: Callable[[Array, Array], Array]
    slopes: NDArray[np.bool_]
    largest: float
    inflation: float = 1.0
    _seen: list[Gradient] = field(default_factory=list, init=False)
    _doubt: float = field(default=DOUBTS[0], init=False)

    def add(self, at: Array, value: Array, sd: float) -> None:
        """Add a released gradient."""
        self._seen.append(Gradient(at, value, sd))

    def estimate(self, guess: Array) -> tuple[Array, Array]:
        """Pooled coefficients, shrunk; and the covariance of the privacy noise in them, before that."""
        B, start = self._derivatives(guess), self._seen[0].at[~self.slopes]
        for _ in range(ROUNDS):
            theta, private = self._about(guess, B)
            theta[self.slopes] = into_ball(theta[self.slopes], self.largest)
            theta[~self.slopes] = start + into_ball(theta[~self.slopes] - start, FURTHEST)
            guess = (guess + theta) / 2.0  # half of the way: where B is too small the whole would swing
            if len(self._seen) == 1:  # its solution is far away; later ones are near, and B is what takes time
                B = self._derivatives(guess)
        return theta, private

    def _derivatives(self, guess: Array) -> Array:
        return np.stack([self.derivative(gradient.at, guess) for gradient in self._seen])

    def _about(self, guess: Array, B: Array) -> tuple[Array, Array]:
        """The same, if the errors of the derivatives B are those on the way to a guess."""
        seen = self._seen
        observed = np.stack([b @ gradient.at - gradient.value for b, gradient in zip(B, seen, strict=True)])
        predicted = np.stack([b @ (gradient.at - guess) for b, gradient in zip(B, seen, strict=True)])
        precision = np.linalg.inv(self._errors(predicted, self._doubt))
        flat = np.where(self.slopes, 0.0, VAGUE**-2)
        information, right = np.diag(flat), flat * seen[0].at
        for b, row in zip(B, precision, strict=True):
            information += b @ np.tensordot(row, B, 1)
            right += b @ (row @ observed)
        private = np.linalg.inv(information)
        theta = private @ right
        if len(seen) > 1:
            self._doubt = self._likely(observed - B @ theta, predicted)
        # The score of a row has about the variance of its derivative, so sampling noise is B^-1/n.
        covariance = self.inflation * private + np.linalg.inv(B[-1]) / self.n
        return self._shrink(theta, (covariance + covariance.T) / 2.0), private

    def _errors(self, predicted: Array, doubt: float) -> Array:
        """Covariance of the errors of all gradients in one coordinate."""
        wrong = doubt**2 * predicted @ predicted.T / predicted.shape[1]
        # With next to no noise the errors of many steps are those of few coordinates: keep them apart.
        return np.diag([gradient.sd**2 + 1e-9 * np.trace(wrong) for gradient in self._seen]) + wrong

    def _likely(self, residuals: Array, predicted: Array) -> float:
        """The doubt under which residuals are most likely; p of them are fitted."""
        steps, p = residuals.shape

        def surprise(doubt: float) -> float:
            errors = self._errors(predicted, doubt)
            size = p * (1.0 - 1.0 / steps) * float(np.linalg.slogdet(errors)[1])
            return size + float(np.sum(residuals * np.linalg.solve(errors, residuals)))

        return min(DOUBTS, key=surprise)

    def _shrink(self, theta: Array, covariance: Array) -> Array:
        """Posterior mean with slopes ~ N(0, s^2), s^2 of the largest marginal likelihood; constants follow them."""
        S, candidates = self.slopes, self.largest**2 / np.sum(self.slopes) * TOGETHER
        values, Q = np.linalg.eigh(covariance[np.ix_(S, S)])
        values, z = np.maximum(values, 1e-14), Q.T @ theta[S]
        variances = candidates[:, None] + values
        chosen = candidates[np.argmin(np.sum(np.log(variances) + z * z / variances, axis=1))]
        theta = theta - covariance[:, S] @ (Q @ (z / (chosen + values)))
        return np.where(S & (chosen == 0.0), 0.0, theta)  # and not what rounding leaves
