"""The target of every row of a tile, and how far the predictor is from it."""

from __future__ import annotations

import math

import numpy as np

from tailguard.kernels.codes import LOG_ODDS, MEAN, SIZE
from tailguard.kernels.compiling import njit
from tailguard.kernels.default_sums.tile import EXACT
from tailguard.kernels.lanes import WIDTH, keep, pointer, spread, where
from tailguard.kernels.reading import OPTIONS, TILE, load4, store4


@njit(**OPTIONS, fastmath=EXACT)
def targets(y, start, count, mean, scale, middle, furthest, low, high, out):
    """Fill ``out`` with standardised targets; NaN where they are missing."""
    for i in range(count):
        out[i] = y[start + i]
    for i in range(TILE):  # beyond the last row too, where it does not matter: so many values fill vector registers
        t = out[i]
        v = (t - mean) / scale
        v = low if v < low else v
        v = high if v > high else v
        out[i] = v if abs(t - middle) <= furthest else np.nan


@njit(**OPTIONS, fastmath=EXACT)
def clip(x, bound):
    """Within ``[-bound, bound]``; what is not a number stays so."""
    x = -bound if x < -bound else x
    return bound if x > bound else x


@njit(**OPTIONS, fastmath=EXACT)
def stretched(x, far, near, stretch):
    """The clip of `tailguard.default.rows.Clip`."""
    x = clip(x, far)
    return x + stretch * (x - clip(x, near))


@njit(**OPTIONS, fastmath=EXACT)
def number(x):
    """Zero for what is not a number."""
    return x if x == x else 0.0


@njit(**OPTIONS, fastmath=EXACT)
def bounded_score(z, y):
    """(p - t)/max(p, 1 - p) with t = 1 for y > 0 and 0 otherwise; 0 where y is missing."""
    small = math.exp(-abs(z))
    if y != y:
        return 0.0
    if (z > 0.0) == (y > 0.0):
        return -small if z > 0.0 else small
    return 1.0 if z > 0.0 else -1.0


@njit(**OPTIONS, fastmath=EXACT)
def residuals(eta, t, link, largest, out):
    """Fill ``out`` with ``eta - t``, ``exp(eta) - t``, the logistic score or ``|eta - t| - largest``.

    It is 0 where the target is missing.
    """
    if link == LOG_ODDS:
        for i in range(TILE):
            out[i] = bounded_score(eta[i], t[i])
    elif link == MEAN:
        for i in range(TILE):
            out[i] = number(math.exp(max(-20.0, min(largest, eta[i]))) - t[i])
    elif link == SIZE:
        for i in range(TILE):
            out[i] = number(abs(eta[i] - t[i]) - largest)
    else:
        for i in range(TILE):
            r = eta[i] - t[i]
            out[i] = r if r == r else 0.0


@njit(**OPTIONS, fastmath=EXACT)
def places(values, grid, size, out):
    """Fill ``out`` with the number of points of the grid below the absolute values, and ``size`` with these."""
    for i in range(TILE):
        size[i] = abs(values[i])
    data, into = pointer(size), pointer(out)
    for i in range(0, TILE, 4 * WIDTH):
        s0, s1, s2, s3 = load4(data, i)
        n0 = n1 = n2 = n3 = spread(0.0)
        for g in range(len(grid)):
            edge = grid[g]
            n0, n1 = where(s0 > edge, n0 + 1.0, n0), where(s1 > edge, n1 + 1.0, n1)
            n2, n3 = where(s2 > edge, n2 + 1.0, n2), where(s3 > edge, n3 + 1.0, n3)
        store4(into, i, (n0, n1, n2, n3))
    keep((size, out))
