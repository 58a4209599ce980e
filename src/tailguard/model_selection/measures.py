"""What a candidate is judged by: bounded gains of rows, for numbers and for labels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard.default.columns import Looks, locate
from tailguard.engines import Engine
from tailguard.means.queries import Queries
from tailguard.privacy import Account, Budget, Gaussian, NoiseSource

Array = NDArray[np.float64]

NUMBER_SCORES = ("r2", "d2_absolute_error_score")
LABEL_SCORES = ("neg_log_loss", "neg_brier_score", "accuracy")

BESIDE_SHARES = (0.5, 0.2, 0.3)  # of the budget for centre and spread of the target: histogram, mean, spread
# The bound on errors is as wide as leaves this noise in a score, between so many scales of y. A wide one is fair to the
# mean of a skewed target; a narrow one has less noise.
SCORE_NOISE, NARROWEST, WIDEST = 0.01, 1.0, 8.0
LARGEST_GAIN = 0.75  # of a row, times the gain 2B^2 of a prediction that is right where the centre is off by the bound
LARGEST_SPREAD = 12.0  # times the squared scale of y, at most what one row adds to the spread
LEAST_BOUND = 1e-45  # of errors, and the inverse of the largest: a grid for gains, their squares, has to fit floats
LOG_LOSS_BOUND = 2.0  # beyond log(classes), the loss of a guess: a worse one counts as this
ROUNDING = 1.0 - 1e-12  # of a budget, so that what is asked for is not above it


@dataclass(frozen=True)
class Numbers:
    r"""Gains of predictions over the constant c, for targets that are numbers.

    With H(e) = e^2 up to the bound B and 2B|e| - B^2 beyond, Huber's, a row gains H(y - c) - H(y - p), at most
    2B|p - c| *whatever y is*: a tail of y counts linearly in both terms, so that the best constant under H is near the
    mean, where a squared error that is cut off at B would forget every row beyond it. Gains are clipped at a multiple
    of B^2, which few good predictions reach; wild ones lose as much in every row. For the absolute error the gain is
    |y - c| - |y - p|, and B only says what is wild.
    """

    absolute: bool
    centre: float
    bound: float
    spread: float = 1.0  # mean H(y - c), or |y - c|: scores are gains over it

    @property
    def top(self) -> float:
        """Largest gain or loss of a row."""
        return LARGEST_GAIN * self.bound * (1.0 if self.absolute else 2.0 * self.bound)

    def size(self, error: Array) -> Array:
        """H, or the absolute value."""
        e = np.abs(error)
        return e if self.absolute else np.where(e <= self.bound, e * e, self.bound * (2.0 * e - self.bound))

    def gains(self, model: Any, X: NDArray[Any], y: Array) -> Array:
        """Gain of every row; one without a target gains nothing."""
        predicted = model._response(model._predictor_of(X))
        # Beyond both by some bounds the gain does not depend on y any more: an infinite target is taken back to there.
        around = 4.0 * self.bound
        y = np.clip(y, np.minimum(self.centre, predicted) - around, np.maximum(self.centre, predicted) + around)
        return np.nan_to_num(self.size(y - self.centre) - self.size(y - predicted), nan=0.0)

    def reported(self, mean: float) -> float:
        """The part of the spread that is explained."""
        return mean / self.spread


@dataclass(frozen=True)
class Labels:
    """Losses of probabilities, for targets that are places of labels; a missing or foreign label has the largest."""

    scoring: str
    classes: int

    @property
    def largest(self) -> float:
        """A loss counts at most as this."""
        return math.log(self.classes) + LOG_LOSS_BOUND if self.scoring == "neg_log_loss" else 1.0

    @property
    def top(self) -> float:
        """Half of it: losses are centred."""
        return 0.5 * self.largest

    def gains(self, model: Any, X: NDArray[Any], y: Array) -> Array:
        """Half of the largest loss less the loss of every row."""
        p = model._probabilities(model._predictor_of(X))
        known = np.isfinite(y)
        place = np.where(known, y, 0.0).astype(np.intp)
        if self.scoring == "accuracy":
            losses = (np.argmax(p, axis=1) != place).astype(np.float64)
        elif self.scoring == "neg_log_loss":
            losses = -np.log(p[np.arange(len(p)), place])
        else:
            losses = np.sum((p - (place[:, None] == np.arange(p.shape[1]))) ** 2, axis=1) / 2.0
        return np.asarray(self.top - np.clip(np.where(known, losses, np.inf), 0.0, self.largest))

    def reported(self, mean: float) -> float:
        """The mean loss with its sign turned; the share of right labels for accuracy."""
        return mean - self.top + (1.0 if self.scoring == "accuracy" else 0.0)


Measure = Numbers | Labels


@dataclass(frozen=True)
class RowGains:
    """What every row says for a fitted model, within +-top whatever the row holds: (rows, 1)."""

    model: Any
    measure: Measure

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Row i from row i alone."""
        with np.errstate(all="ignore"):
            found = self.measure.gains(self.model, np.asarray(X), np.asarray(y, dtype=np.float64))
            return np.clip(found, -self.measure.top, self.measure.top)[:, None]


def numbers(
    rows: Engine, scoring: str, error_bound: float | None, beside: Gaussian, score: Budget, noise: NoiseSource
) -> Numbers:
    """Release centre, bound and spread of the target, once for all runs.

    Parameters
    ----------
    rows : Engine
        With targets that are numbers.
    scoring : str
        One of `NUMBER_SCORES`.
    error_bound : float or None
        Public bound on errors; None takes it from the scale of the target.
    beside : Gaussian
        What is paid for it.
    score : Budget
        Of one score: the more, the wider the bound may be.
    noise : NoiseSource
        Of this stage.
    """
    budget = Budget(mu=beside.mu * ROUNDING)
    queries = Queries(rows, Account(budget, max_samples=beside.samples), noise)
    column = locate(queries, "target", 1, Looks(*BESIDE_SHARES[:2]))
    centre, scale = float(column.mean[0]), float(column.scale[0])
    if error_bound is None:
        # A row moves the sum of gains by at most 4 LARGEST_GAIN B^2, and the spread is about scale^2.
        widths = math.sqrt(SCORE_NOISE * rows.n * score.mu / (4.0 * LARGEST_GAIN))
        bound = scale * min(max(widths, NARROWEST), WIDEST)
    else:
        bound = float(error_bound)
    measure = Numbers(scoring != "r2", centre, min(max(bound, LEAST_BOUND), 1.0 / LEAST_BOUND))
    with np.errstate(all="ignore"):
        half = 0.5 * float(measure.size(np.array(math.sqrt(LARGEST_SPREAD) * scale)))
    half = min(max(half, LEAST_BOUND**2), LEAST_BOUND**-2)

    def spread(X: Any, y: Any) -> Array:
        with np.errstate(all="ignore"):
            found = measure.size(np.asarray(y, dtype=np.float64) - centre)
        return np.clip(np.nan_to_num(found, nan=0.0), 0.0, 2.0 * half)[:, None] - half

    mean, sd = queries.mean("spread", spread, 1, half, BESIDE_SHARES[2])
    return replace(measure, spread=max(float(mean[0]) + half, sd))
