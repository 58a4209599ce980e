r"""Nearly collinear columns: coordinates of which the first Gram matrix saw hardly any variance, whitened once more.

Eigenvalues of a noisy correlation matrix are raised by their noise, so a direction in which features hardly vary, the
difference of two columns that nearly agree, is whitened with too large a variance. Its coordinate varies less than the
others, and steps, whose noise is the same in all coordinates, learn little of a slope along it, which may well be what
matters. But in whitened coordinates the second Gram matrix, which steps need for their curvature, sees what is left of
such thin coordinates: they lose what they have in common with others and are scaled to vary as much.

Exactly redundant columns (all indicators of a category) have nothing left, so nothing would pull a coefficient along
them back to zero. Where it is not clear that anything is left a little of the curvature is a ridge penalty.

All of this is post-processing of two Gram matrices. Where a coordinate has much less variance than it was whitened for,
but some, the new coordinates are only about right, and the second matrix is asked for once more, in them: what
steps use is then their curvature, and not what the former noise may hide. So it is where weights are to be wider
(`whitening.wider`): they make the matrix noisier, so the usual ones have to tell thin coordinates apart.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from tailguard.default.locating import noise_to_signal
from tailguard.default.newton import Curvature
from tailguard.default.shrinkage import kept
from tailguard.default.whitening import Design, bounded, second_gram, widened
from tailguard.means.queries import Queries

Array = NDArray[np.float64]

NEWS = 0.7  # of the variance of others: a coordinate with more is left as it is
LEAST = 0.01  # of that variance, the least that is believed in
SURE = 0.5  # standard deviations of its noise, added to what is left of a coordinate
HIDDEN = 2.0  # standard deviations by which parts of several coordinates may differ without being seen
STEEPEST = 3.0  # times the curvature of others, that steps may have to take along a scaled coordinate
VAGUE = 2.0  # standard deviations of its noise from which something is surely left
PULL = 0.1  # of the curvature that steps use, the penalty where nothing may be left
LEAST_FOUND = 0.1  # of that curvature, what rows are taken to have
# Of the variance of others, less than which a coordinate is to have been for another look; and the noise-to-signal
# ratio below which it need not be sure that anything is left.
AGAIN, PLENTY = 0.35, 0.012


class _Left(NamedTuple):
    """What is left of thin coordinates, along its axes: at least, likely, and at most; and how unsure it is."""

    axes: Array
    least: Array
    likely: Array
    most: Array
    vague: Array


def sharpened(queries: Queries, design: Design, times: float = 1.0) -> tuple[Design, Curvature]:
    """Second Gram matrix: the design with thin coordinates scaled by what is left of them, and its curvature.

    Weights are so many ``times`` as wide; those of a design without thin coordinates are as they are to be already.
    """
    if not design.is_thin:
        return design, bounded(*second_gram(queries, design))
    sharper, curved, variances, sure = sharpened_once(queries, design)
    counted = sure | (noise_to_signal(queries, design.width) < PLENTY)
    if times == 1.0 and np.all(variances[counted] >= AGAIN):
        return sharper, curved
    wide = widened(queries, replace(sharper, thin=None), times)
    return wide, bounded(*second_gram(queries, wide))


def sharpened_once(queries: Queries, design: Design) -> tuple[Design, Curvature, Array, NDArray[np.bool_]]:
    """The same by one matrix; also the variances of thin coordinates over others', and which surely have any."""
    H, sd = second_gram(queries, design)
    assert design.thin is not None
    # The constant and at least one coordinate are not thin: correlations have eigenvalues of 1 in the mean.
    thin = design.thin.coordinates + 1
    others = np.setdiff1d(np.arange(len(H)), thin)
    bent = bounded(H[np.ix_(others, others)], sd)
    across = H[np.ix_(thin, others)]
    if not design.intercept:
        across[:, 0] = 0.0
    keep = kept(float(np.sum(across * across)), across.size * sd**2 / 2.0)
    common = keep * across @ bent.inverse
    # Noise in what they have in common stays in them: so much in the mean over directions.
    blur = keep * sd**2 / 2.0 * float(np.trace(bent.inverse))
    rest = H[np.ix_(thin, thin)] - common @ across.T + blur * np.eye(len(thin))
    # What would be left if they varied like others, as it is weighted.
    felt, level = design.thin.felt, max(0.05, float(np.mean(np.diag(H)[others[1:]])))
    alike = felt[np.ix_(thin - 1, thin - 1)] * level / float(np.mean(np.diag(felt)[others[1:] - 1]))
    sizes, V = np.linalg.eigh(alike)
    sizes = np.maximum(sizes, 0.05 * level)
    root, unit = (V / np.sqrt(sizes)) @ V.T, float(np.mean(1.0 / sizes))
    left = _left(root @ rest @ root, sd * unit, blur * unit, max(1.0, len(thin) / len(others)))
    varies = np.maximum(left.likely, left.most / STEEPEST)
    factor = np.where(varies < NEWS, np.maximum(varies, LEAST), 1.0)
    if np.all(factor == 1.0):
        return design, bounded(H, sd), factor, left.vague < 1.0

    d, turned = len(H) - 1, left.axes / np.sqrt(factor)
    whitening, centre, variances = design.whitening.copy(), np.zeros(d), np.ones(d)
    whitening[:, thin - 1] = (whitening[:, thin - 1] - whitening[:, others[1:] - 1] @ common[:, 1:].T) @ turned
    centre[thin - 1], variances[thin - 1] = common[:, 0] @ turned, factor
    inverse = np.linalg.inv(whitening)
    sharper = replace(
        design,
        shift=design.shift + inverse.T @ centre,
        whitening=whitening,
        covariance=inverse.T @ inverse,
        thin=None,
    )
    # Rows are longer now, and weigh less.
    lighter = _mean_weight(design, np.ones(d)) / _mean_weight(design, variances)
    onto = left.axes.T @ (V * np.sqrt(sizes)) @ V.T @ turned
    pull = np.where(factor < 1.0, PULL * left.vague, 0.0)
    curved = bent.beside(others, thin, _felt_along(onto, left, pull)).scaled(lighter)
    return sharper, curved, factor, left.vague < 1.0


def _felt_along(onto: Array, left: _Left, pull: Array) -> Curvature:
    """Curvature in the new thin coordinates, which ``onto`` maps to the axes of what is left."""
    used, U = np.linalg.eigh((onto.T * left.most) @ onto)
    used, onto = np.maximum(used, 1e-3 * float(np.max(used))), onto @ U
    floored = np.minimum((pull * left.most) @ onto**2, PULL * used)
    return Curvature(U, used, np.clip(left.least @ onto**2, LEAST_FOUND * used, used - floored), floored)


def _left(matrix: Array, noise: float, blur: float, uneven: float) -> _Left:
    """Spectrum of a noisy matrix, shrunk to its mean by the noise.

    In it is blur, in some directions an ``uneven`` multiple of it. Steps with less curvature than there is would not
    converge, so what they take at most includes what noise may hide.
    """
    k = len(matrix)
    mean = max(float(np.trace(matrix)) / k, blur + noise / math.sqrt(k))
    rest = (matrix + matrix.T) / 2.0 - mean * np.eye(k)
    keep = kept(float(np.sum(rest * rest)), k * (k + 1) / 2.0 * noise**2)
    values, axes = np.linalg.eigh(mean * np.eye(k) + keep * rest)
    values = np.maximum(values, blur)
    unsure = noise * math.sqrt((k - 1) * keep**2 + 1.0 / k)
    hidden = HIDDEN * noise * math.sqrt(k - 1) * (1.0 - keep) + (uneven - 1.0) * blur
    vague = np.clip(VAGUE - (values - blur) / noise, 0.0, 1.0)
    likely = values + SURE * unsure
    return _Left(axes, np.maximum(values - unsure, 0.0), likely, likely + hidden, vague)


def _mean_weight(design: Design, variances: Array) -> float:
    """Mean weight of normal rows whose coordinates have these variances, the squared length taken for a gamma."""
    mean, spread = float(variances.sum()), 2.0 * float(variances @ variances)
    square = 1.0 + gammaincinv(mean * mean / spread, (np.arange(64) + 0.5) / 64.0) * spread / mean
    ratio = design.radius / np.sqrt(square)
    return float(np.mean(np.minimum(1.0, np.minimum(ratio, design.cap * ratio * ratio))))
