"""The scores of a step with every clip of a grid at once."""

from __future__ import annotations

import math

import numpy as np

from tailguard.kernels.compiling import njit
from tailguard.kernels.default_sums.design import design, mallows
from tailguard.kernels.default_sums.residuals import places, residuals, targets
from tailguard.kernels.default_sums.tile import (
    EXACT,
    FLUSH,
    OPTIONS,
    ROUND,
    TILE,
    combine,
    flush_table,
    lengths,
    standardise,
    turn,
)


@njit(**OPTIONS, fastmath=EXACT)
def _add_lines(a, place, first, second, most, count, lines, acc, total):
    """Add ``first a`` and ``second a`` of every row, rounded, to the row of ``acc`` that is its place.

    By itself, because the compiler then sees that these arrays do not overlap. The tile is turned back first, so that
    what a row adds lies side by side.
    """
    p = a.shape[0]
    for k in range(p):
        row = a[k]
        for i in range(TILE):
            lines[i, k] = row[i]
    for i in range(count):
        b = int(place[i])
        total[b, 2 * p] += 1
        line, into, f, g = lines[i], acc[b], first[i], second[i]
        for k in range(p):
            u, v = line[k] * f, line[k] * g
            into[k] += (u + ROUND) - ROUND if abs(u) <= most else 0.0
            into[p + k] += (v + ROUND) - ROUND if abs(v) <= most else 0.0


@njit(**OPTIONS, fastmath=EXACT)
def _clip_factors(r, weight, size, place, radius, per_clip, per_size, first, second):
    """Fill what a row's design vector is multiplied by, in units: its clipped weight times r, and times its sign."""
    for i in range(TILE):
        s = size[i] * weight[i]
        w = weight[i] * (radius / (s if s > radius else radius)) if s < math.inf else 0.0
        first[i] = w * r[i] * per_clip[int(place[i])]
        second[i] = (w if r[i] > 0.0 else -w) * per_size if r[i] != 0.0 else 0.0


@njit(**OPTIONS, fastmath=EXACT)
def score_table(
    X, y, lower, upper, mean, scale, shift, rotation, constant, radius, cap, theta, offset, link, largest, target, grid,
    per_clip, per_size, total,
):  # fmt: skip
    r"""Add what the scores with every clip of a grid are made of.

    A row whose ``|r|`` is in bin b, in ``(grid[b-1], grid[b]]``, adds to row b of ``total``, (bins, 2 p + 1): the p
    integers of ``w a r per_clip[b]``, the p integers of ``w a sign(r) per_size`` and 1. The norm of ``w a`` is scaled
    down to the radius, and ``|r|`` is at most ``grid[b]``. Beyond the last point of the grid the first p are 0.
    """
    n, d = X.shape
    p, points = d + 1, len(grid)
    z, a = np.zeros((d, TILE)), np.empty((p, TILE))
    acc, lines = np.zeros((points + 1, 2 * p)), np.empty((TILE, p))
    size, weight, eta, t = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.zeros(TILE)
    place, first = np.empty(TILE), np.empty(TILE)
    most = 2.0**30 * (1.0 + 1e-9)
    done = 0
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        turn(X, start, count, z)
        standardise(z, lower, upper, mean, scale, shift)
        design(z, rotation, constant, a)
        lengths(a, size)
        mallows(size, radius, cap, weight)
        combine(a, theta, offset, eta)
        targets(y, start, count, target[0], target[1], target[2], target[3], target[4], target[5], t)
        residuals(eta, t, link, largest, eta)
        places(eta, grid, t, place)
        _clip_factors(eta, weight, size, place, radius, per_clip, per_size, first, size)
        _add_lines(a, place, first, size, most, count, lines, acc, total)
        done += 1
        if done == FLUSH:
            flush_table(acc, total)
            done = 0
    flush_table(acc, total)
