r"""Stage B: decorrelated features, and the curvature of the score in them.

Rows enter with the Mallows weight ``w = min(1, R/|a|, cap R^2/|a|^2)`` of their design vector ``a = (1, features)``:
a row that is far out in the features counts less, by a rule that looks at its features only, so the solution of the
weighted equations is still the right one. ``w |a|^2 <= cap R^2``, so the weighted Gram matrix has Frobenius sensitivity
``sqrt(2) cap R^2`` (`Queries.gram` of ``sqrt(w) a``).

The first Gram matrix gives the correlations, shrunk to none by the known noise (Ledoit and Wolf 2004), and a
whitening W. Scales come from stage A: weights make the variance of a rare column look tiny, so its inverse must not
be taken from here. But columns that are not rare (nor 0/1) should look alike in it, and it is more precise than a
histogram: what they differ by, within limits, is taken out of their scales. The second, in whitened coordinates, is the
curvature H of the very score that the steps use; what its eigenvalues are raised by for stability acts as a ridge
penalty, so that noise cannot pile up over the steps in directions in which little is known.

Both matrices are noisy, and where columns are uncorrelated all that they would say is shrunk away again. So each is
first released for a part of its share; the rest buys a second release of the same sum where the first shows more than
noise, and goes to the steps where it does not. The account is a filter, so what is asked may depend on answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard import kernels
from tailguard.default.columns import Columns
from tailguard.default.newton import Curvature
from tailguard.default.rows import DesignGram, DesignRows, Fitted
from tailguard.default.shrinkage import kept
from tailguard.means.queries import Noisy, Queries

Array = NDArray[np.float64]

RADIUS = (0.55, 0.75)  # of the weights, over sqrt(p), in the first and second Gram matrix
# For the mean: the noise-to-signal ratio below which the second is larger, the power by which, and the most (`wider`).
QUIET, POWER, WIDEST = 0.0025, 0.5, 8.0
LOOSE_CAP, TIGHT_CAP = 6.0, 2.0
CORRELATION_FLOOR, CURVATURE_FLOOR = 0.12, 0.2  # smallest eigenvalues, over their mean
# Of the mean weight, which is .55 with normal features and larger with some far out: less is noise, and would move the
# centre h, a quotient, far away.
LEAST_WEIGHT = 0.45
ALIKE, CLEAR = (0.5, 2.0), 4.0  # limits of what is taken out of a scale; noise beyond which a variance must be
LEAST_CURVATURE = 0.3  # over their mean, that is believed in: less may be noise, and would say that nothing is known
CERTAIN = 4.0  # standard deviations (`decorrelate`), for lines and counts; many indicators of log-odds fare worse
# Eigenvalues of correlations that are thin: small, and raised by so much for noise or to the floor.
THIN, RAISED = 0.5, 1.25
GRADED = 0.8  # of a thin direction, at least, must be of columns that are not rare
RIDGE = 0.6  # of the spectral noise, added to eigenvalues
DIAGONAL = 4.0  # sd that none of the entries on its diagonal is likely to be off by
PRECISION = 0.05  # spectral noise that is worth paying for
BLURRED = 0.08  # noise of an entry of the second matrix up to which its cap is loosened
SHARE = 0.06  # at most, for each matrix,
GLANCE = 0.3  # and what of it is spent first, to see whether the rest is worth it:
PLAIN = 1.5  # standard deviations of a sum of squares of noise up to which it is not


@dataclass(frozen=True, eq=False)
class Thin:
    """Whitened coordinates of which the first Gram matrix saw hardly any variance, and may be off by a multiple.

    Whitened with too large a variance they vary less than others; by how much the second matrix says (`sharpening`).
    """

    coordinates: NDArray[np.intp]
    felt: Array  # weighted covariance of all coordinates, were the variances right; rare columns have a small one


@dataclass(frozen=True, eq=False)
class Design:
    """Released map from rows to design vectors ``a = (1, W'(z - h))`` of the standardised truncated features z."""

    columns: Columns
    shift: Array
    whitening: Array
    covariance: Array  # of the features, as far as it was seen
    intercept: bool
    radius: float
    cap: float
    moments: Noisy | None = None  # what the first Gram matrix found of w and w (z - h)^2
    thin: Thin | None = None

    @property
    def width(self) -> int:
        """Number of design coordinates, the constant first."""
        return len(self.shift) + 1

    @property
    def is_thin(self) -> bool:
        """Whether some coordinates are."""
        return self.thin is not None and len(self.thin.coordinates) > 0

    @cached_property
    def numbers(self) -> tuple[Any, ...]:
        """For kernels: truncation, mean and scale of columns, shift, a row for each coordinate, constant, weights."""
        columns = self.columns
        truncation = columns.lower, columns.upper, columns.mean, columns.scale
        rotation, constant = np.ascontiguousarray(self.whitening.T), 1.0 if self.intercept else 0.0
        return *truncation, self.shift, rotation, constant, self.radius, self.cap

    def vectors(self, X: NDArray[Any]) -> Array:
        """Design vectors of rows."""
        columns, a = self.columns, np.empty((len(X), self.width))
        kernels.features.design_rows(
            np.ascontiguousarray(X),
            *(columns.lower, columns.upper, columns.mean, columns.scale),
            *(self.shift, np.ascontiguousarray(self.whitening), 1.0 if self.intercept else 0.0),
            a,
        )
        return a

    def predictor(self, a: Array, theta: Array) -> Array:
        """Predictors ``a . theta`` of design vectors, for one theta or for every row of a matrix."""
        outputs = np.empty((len(np.atleast_2d(theta)), len(a)))
        for coefficients, out in zip(np.atleast_2d(theta), outputs, strict=True):
            kernels.features.predict(a, np.zeros(self.width), coefficients, out)
        return outputs.T if theta.ndim == 2 else outputs[0]

    def line(self, slopes: Array, constant: float = 0.0, largest: float | None = None) -> Fitted:
        """Line of rows for slopes in standardised features; bounded and exponential with ``largest``."""
        return Fitted(self.columns, self.shift, np.ascontiguousarray(slopes), constant, largest)

    def spread(self, slopes: Array) -> float:
        """Standard deviation over rows of the line with these slopes."""
        return math.sqrt(float(slopes @ self.covariance @ slopes))

    def fitted(self, theta: Array, offset: float = 0.0, largest: float | None = None) -> Fitted:
        """The line ``offset + a . theta``."""
        constant = offset + (float(theta[0]) if self.intercept else 0.0)
        return self.line(self.whitening @ theta[1:], constant, largest)

    def weights(self, a: Array) -> Array:
        """Mallows weights of design vectors."""
        size = np.empty(len(a))
        kernels.features.norms(a, size)
        ratio = self.radius / np.maximum(size, 1e-100)
        return np.minimum(1.0, np.minimum(ratio, self.cap * ratio * ratio))

    def gram_sum(self, queries: Queries) -> DesignGram:
        """What `gram` asks for, to be added up together with something else."""
        return DesignRows(self).gram(math.sqrt(self.cap) * self.radius, queries.gram_bits)

    def gram(self, queries: Queries, label: str, share: float) -> tuple[Array, float]:
        """Release the weighted Gram matrix and the sd of its noise."""
        value, sd = queries.gram(label, DesignRows(self), self.width, math.sqrt(self.cap) * self.radius, share)
        return value, sd

    def glance(self, queries: Queries, label: str, share: float, news: Callable[[Array], Array]) -> tuple[Array, float]:
        """Release it for a part of the share, and for the rest once more where that shows more than noise.

        ``news`` are the entries that would be zero if there were none, pairs of equal ones times sqrt(2): their noise
        has about the same sd in all. Both releases are weighted by what they cost.
        """
        first, sd = self.gram(queries, label, GLANCE * share)
        found = news(first) / sd
        if float(found @ found) <= found.size + PLAIN * math.sqrt(2.0 * found.size):
            return first, sd
        second, its = self.gram(queries, label, (1.0 - GLANCE) * share)
        return GLANCE * first + (1.0 - GLANCE) * second, sd * its / math.hypot(sd, its)


def standardised(columns: Columns, intercept: bool) -> Design:
    """The design of the first Gram matrix: features as they come from stage A."""
    d = len(columns.mean)
    return Design(columns, np.zeros(d), np.eye(d), np.eye(d), intercept, RADIUS[0] * math.sqrt(d + 1), TIGHT_CAP)


def wider(ratio: float) -> float:
    """How many times as large the radius of weights may be, by the noise-to-signal ratio of a gradient; public.

    Weights are for the sake of the noise. Where no line holds for all rows they have a price: the weighted rows and all
    rows have different best lines, and no budget makes up for that. So the less noise, the less a row loses. That takes
    steps that begin with a wide clip: rows far out make much of the curvature then, and if all of their residuals are
    beyond the clip, steps are too short.
    """
    return min(WIDEST, max(1.0, QUIET / ratio) ** POWER)


def widened(queries: Queries, design: Design, times: float = 1.0) -> Design:
    """The design with a radius of weights so many times as large as usual.

    Rows beyond the cap lose their weight, and with heavy tails or rare columns they say most. So the cap is as loose
    as the noise of the second Gram matrix allows; public.
    """
    radius = times * RADIUS[1] * math.sqrt(design.width)
    blur = queries.sd(math.sqrt(2.0) * LOOSE_CAP * radius**2, SHARE)
    cap = LOOSE_CAP * min(1.0, max(TIGHT_CAP / LOOSE_CAP, BLURRED / blur))
    return replace(design, radius=radius, cap=cap)


def decorrelate(queries: Queries, raw: Design, certain: float | None = None, glance: bool = True) -> Design:
    """First Gram matrix: centre, correlations and whitening; at a glance where that is enough.

    With ``certain`` a correlation is shrunk by no more than the square of so many standard deviations of its own noise,
    over its square, whatever the others are.
    """
    columns, intercept, d = raw.columns, raw.intercept, len(raw.columns.mean)
    label, share = "correlations", gram_share(queries, raw, PRECISION)
    if glance:
        G, sd = raw.glance(queries, label, share, lambda G: _apart(_centred(G, intercept)[2]))
    else:
        G, sd = raw.gram(queries, label, share)
    level, h, G = _centred(G, intercept)
    moments = Noisy(np.append(level, np.diag(G)), sd)
    v = np.maximum(np.diag(G), 2.0 * sd + 0.005)
    C = np.clip(G / np.sqrt(np.outer(v, v)), -0.98, 0.98)
    noise = sd**2 / 2.0 / np.outer(v, v)
    np.fill_diagonal(C, 0.0)
    np.fill_diagonal(noise, 0.0)
    keep = kept(float(np.sum(C * C)), float(noise.sum()))
    parts = np.full((d, d), keep)
    if certain is not None:
        parts = np.maximum(keep, 1.0 - certain**2 * noise / np.maximum(C * C, 1e-300))
    found, V = np.linalg.eigh(np.eye(d) + parts * C)
    found = np.maximum(found, 0.0)
    values = np.maximum(found + RIDGE * keep * sd * math.sqrt(2.0 * d) / v.mean(), CORRELATION_FLOOR)
    graded = np.ones(d, bool) if columns.rare is None else ~columns.rare
    unlike = _unlike(graded, np.diag(G), sd)
    weighted = (np.sqrt(v) / unlike)[:, None] * V / np.sqrt(values)
    narrow = (found < THIN) & (values > RAISED * found) & (np.sum(V[graded] ** 2, axis=0) > GRADED)
    thin = Thin(np.flatnonzero(narrow), weighted.T @ (V * values) @ V.T @ weighted)
    whitening, covariance = V / np.sqrt(values) / unlike[:, None], (V * values) @ V.T * np.outer(unlike, unlike)
    seen = replace(raw, shift=h, whitening=whitening, covariance=covariance, moments=moments, thin=thin)
    return widened(queries, seen)


def _centred(G: Array, intercept: bool) -> tuple[float, Array, Array]:
    """Of a Gram matrix whose first coordinate is the constant: mean weight, weighted means and what is left of them."""
    level = max(float(G[0, 0]), LEAST_WEIGHT) if intercept else 1.0
    h = G[0, 1:] / level if intercept else np.zeros(len(G) - 1)
    return level, h, G[1:, 1:] - np.outer(h, h) * level


def _apart(G: Array) -> Array:
    """Entries off the diagonal, whose noise is that of the diagonal if pairs of equal ones count twice."""
    return np.asarray(math.sqrt(2.0) * G[np.triu_indices(len(G), 1)])


def _unlike(graded: NDArray[np.bool_], variance: Array, sd: float) -> Array:
    """How much wider than others a column is that is not rare, by its weighted variance; 1 if that is not clear."""
    middle = float(np.median(variance[graded])) if np.any(graded) else 0.0
    if middle <= CLEAR * sd:
        return np.ones(len(variance))
    return np.where(graded, np.clip(np.sqrt(np.maximum(variance, 0.0) / middle), *ALIKE), 1.0)


def curvature(queries: Queries, design: Design) -> Curvature:
    """Curvature of the score in whitened coordinates.

    Whitened features have little curvature off the diagonal, where most of the noise is: both parts are shrunk, each by
    its own.
    """
    return bounded(*second_gram(queries, design, glance=False))


def second_gram(queries: Queries, design: Design, glance: bool = True) -> tuple[Array, float]:
    """Release the Gram matrix of whitened coordinates, at a glance where that is enough, and the sd of its noise."""
    share = gram_share(queries, design, PRECISION)
    if glance and not design.is_thin:
        H, sd = design.glance(queries, "curvature", share, _uneven)
    else:
        H, sd = design.gram(queries, "curvature", share)
    if not design.intercept:
        H[0, 0] = 1.0
    return H, sd


def _uneven(H: Array) -> Array:
    """What whitened columns of the same variance would not have: entries apart, and differences of variances."""
    variances = np.diag(H)[1:]
    return np.append(_apart(H), variances - variances.mean())


def bounded(H: Array, sd: float) -> Curvature:
    """A Gram matrix shrunk to a multiple of the identity by its noise, its eigenvalues bounded below."""
    p = len(H)
    level = min(1.5, max(0.05, float(np.trace(H)) / p))
    on = np.diag(np.diag(H) - level)
    off = H - np.diag(np.diag(H))
    keep_on = kept(float(np.sum(on * on)), p * sd**2)
    keep_off = kept(float(np.sum(off * off)), p * (p - 1) / 2.0 * sd**2)
    noise = sd * math.hypot(DIAGONAL * keep_on, math.sqrt(2.0 * p) * keep_off)
    values, V = np.linalg.eigh(level * np.eye(p) + keep_on * on + keep_off * off)
    values = np.maximum(values, 0.0)
    raised = np.maximum(values + RIDGE * noise, CURVATURE_FLOOR * level)
    floored = np.where(raised <= CURVATURE_FLOOR * level, raised - values, 0.0)
    found = np.minimum(np.maximum(values, LEAST_CURVATURE * level), raised - floored)
    return Curvature(V, raised, found, floored)


def gram_noise(queries: Queries, design: Design, share: float) -> float:
    """Spectral noise of the design's Gram matrix bought with a share: about sd sqrt(2p); public."""
    sensitivity = math.sqrt(2.0) * design.cap * design.radius**2
    return queries.sd(sensitivity, share) * math.sqrt(2.0 * design.width)


def gram_share(queries: Queries, design: Design, precision: float) -> float:
    """Share that buys a spectral noise of ``precision``, between SHARE/10 and SHARE; public."""
    return min(SHARE, max(SHARE / 10.0, SHARE * (gram_noise(queries, design, SHARE) / precision) ** 2))
