r"""Points that stand for rows, made of what stage A and the first Gram matrix released.

How fast a score changes with its coefficients depends on what the rows look like. Where labels are rare it is
the rows with large log-odds that count, and with 0/1 columns or amounts of money there are more of them than normal
features would have: a derivative of normal features is too small by a multiple, and steps that use it do not converge.
But what columns look like was released already: a histogram of sizes for each, the mean, and their correlations.
Points are drawn from it, a Gaussian copula of these marginals, with public random numbers. All of it is
post-processing.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

if TYPE_CHECKING:
    from tailguard.default.readings import Reading
    from tailguard.default.whitening import Design

Array = NDArray[np.float64]

LIKELY = 2.0  # standard deviations of noise from which a bin of a histogram is taken to have rows
PLAIN, LIGHT = 8, 0.02  # points, of which one is normal, and what it counts
WIDER = 5.0  # times as wide as was released, or as narrow, points of a column are none of it
OCTAVES = 20  # below the top, further down all is as good as zero
_WITHIN = (np.arange(3) + 0.5) / 3.0  # places within a bin, which goes from half of its top to the top


class Marginal(NamedTuple):
    """Values of a column, in order, and the fraction of rows up to each."""

    values: Array
    upto: Array

    @classmethod
    def of(cls, values: Array, fractions: Array) -> Marginal:
        """Values with their fractions, which need not add up to one."""
        order = np.argsort(values, kind="stable")
        upto = np.cumsum(fractions[order])
        return cls(values[order], upto / upto[-1])

    @classmethod
    def of_signs(cls, positive: float, negative: float) -> Marginal:
        """Ones and minus ones, so many of each, and zeros."""
        some = np.clip([negative, 0.0, positive], 0.0, 1.0)
        some[1] = max(0.0, 1.0 - some[0] - some[2])
        return cls.of(np.array([-1.0, 0.0, 1.0]), some)

    @classmethod
    def read(cls, reading: Reading, centre: float, mean: float) -> Marginal | None:
        """Sizes about a centre from a histogram, with the signs that the mean asks for; None if nothing was seen."""
        if reading.bins is None:
            return None
        tops, found, sd = reading.bins
        there = (found > LIKELY * sd) & (tops <= reading.top) & (tops > reading.top - OCTAVES) | (tops == reading.top)
        fractions = np.maximum(found[there], sd)
        sizes = (2.0 ** (tops[there][:, None] - 1.0) * (1.0 + _WITHIN)).ravel()
        fractions = np.repeat(fractions / len(_WITHIN), len(_WITHIN))
        zeros = max(0.0, 1.0 - float(fractions.sum()))
        right = 0.5 + 0.5 * min(1.0, max(-1.0, (mean - centre) / float(fractions @ sizes)))
        signed = np.concatenate([sizes, -sizes, [0.0]])
        return cls.of(centre + signed, np.concatenate([right * fractions, (1.0 - right) * fractions, [zeros]]))

    def at(self, quantiles: Array) -> Array:
        """Values at quantiles."""
        return self.values[np.minimum(np.searchsorted(self.upto, quantiles), len(self.values) - 1)]


@lru_cache(maxsize=1)
def _normal(count: int, d: int) -> Array:
    """Public normal points, uncorrelated and of variance one to the last digit."""
    points = np.random.default_rng(0).standard_normal((count, d))
    points -= points.mean(axis=0)
    return np.asarray(np.linalg.solve(np.linalg.cholesky(points.T @ points / count), points.T).T)


class StandIns(NamedTuple):
    """Points in standardised features, and the fraction of rows that each stands for."""

    z: Array
    mass: Array

    def design_points(self, design: Design) -> Array:
        """Design vectors of the points."""
        constant = np.full(len(self.z), 1.0 if design.intercept else 0.0)
        return np.column_stack([constant, (self.z - design.shift) @ design.whitening])


def stand_ins(design: Design, count: int) -> StandIns:
    """Points of the marginals that are known and do not end in a point, else normal.

    One in `PLAIN` is normal in all columns and stands for few rows: whatever the others look like, no direction is
    without any.
    """
    columns = design.columns
    d = len(columns.mean)
    deviations = np.sqrt(np.diag(design.covariance))
    root = np.linalg.cholesky(design.covariance / np.outer(deviations, deviations))
    points = _normal(count + d, d) @ root.T
    z, mass = design.shift + deviations * points, np.full(len(points), 1.0 / len(points))
    if columns.marginals is None or not any(columns.marginals):
        return StandIns(z, mass)
    X = columns.mean + columns.scale * z
    for j, marginal in enumerate(columns.marginals):
        if marginal is not None:
            X[:, j] = marginal.at(ndtr(points[:, j]))
    found = columns.standardise(X)
    spread, seen = np.std(found, axis=0) / deviations, [marginal is not None for marginal in columns.marginals]
    likely = np.array(seen) & (spread > 1.0 / WIDER) & (spread < WIDER)
    plain = np.arange(len(z)) % PLAIN == 0
    mass[plain] *= LIGHT
    return StandIns(np.where(likely & ~plain[:, None], found, z), mass / mass.sum())


def mean_and_squares(points: StandIns, shift: Array, intercept: bool, radius: float, cap: float) -> Array:
    """Means of w and of w (z - shift)^2, w the weights of a Gram matrix of plain features."""
    z, mass = points
    size = np.sqrt(np.sum(z * z, axis=1) + (1.0 if intercept else 0.0))
    ratio = radius / np.maximum(size, 1e-100)
    w = mass * np.minimum(1.0, np.minimum(ratio, cap * ratio * ratio))
    return np.append(w.sum() if intercept else 1.0, w @ (z - shift) ** 2)


def spread_of_one(variance: float) -> float:
    """Fraction of ones of a 0/1 column with a variance, the smaller one."""
    return 0.5 - math.sqrt(max(0.0, 0.25 - variance))
