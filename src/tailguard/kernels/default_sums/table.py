"""The scores of a step with every clip of a grid at once.

Eleven of the eighteen passes of a default fit are this one, so it has its own way to add. ``ROUND + x`` in float64 is
ROUND plus the nearest integer k of x, and its bits, as an integer, are those of ROUND plus k: one fused operation
multiplies and rounds, and one addition of integers adds. The bits of ROUND end in `LOW_BITS` zeros, so the sum of many
k is in as many low bits of the sum. That takes ``|x| < 2^51``, which is seen to before, row by row: a row that is not a
number, or whose vector would be longer than its bound, is added where nobody looks.
"""

from __future__ import annotations

import math

import numpy as np

from tailguard.kernels.compiling import njit
from tailguard.kernels.default_sums.design import design_tile
from tailguard.kernels.default_sums.residuals import number, places, residuals, targets
from tailguard.kernels.default_sums.tile import EXACT, ROUND, combine
from tailguard.kernels.lanes import WIDTH, bits, columns4, fma, keep, load, pointer, store
from tailguard.kernels.reading import OPTIONS, TILE, shape_of

LOW_BITS = 51
FLUSH = 2**12  # tiles: 2**18 rows of at most 2**30 units stay below 2**(LOW_BITS - 1)


@njit(**OPTIONS)
def _add_line(line, f, g, sums, at, half):
    """Add WIDTH entries of ``f`` and ``g`` times a row's vector, rounded, to where its bin has them."""
    store(sums, at, load(sums, at) + bits(fma(line, f, ROUND)))
    store(sums, at + half, load(sums, at + half) + bits(fma(line, g, ROUND)))


@njit(**OPTIONS)
def _add_lines(a, place, first, second, acc):
    """Add ``first a`` and ``second a`` of every row, rounded, to the row of ``acc`` that is its place.

    The tile is turned back, four rows and WIDTH columns at a time, so that what a row adds lies side by side.
    """
    wide = a.shape[0]
    data, sums = pointer(a), pointer(acc)
    for i in range(0, TILE, 4):
        f0, f1, f2, f3 = first[i], first[i + 1], first[i + 2], first[i + 3]
        g0, g1, g2, g3 = second[i], second[i + 1], second[i + 2], second[i + 3]
        at0, at1 = 2 * wide * int(place[i]), 2 * wide * int(place[i + 1])
        at2, at3 = 2 * wide * int(place[i + 2]), 2 * wide * int(place[i + 3])
        for k in range(0, wide, WIDTH):
            line0, line1, line2, line3 = columns4(data, k * TILE + i, TILE)
            _add_line(line0, f0, g0, sums, at0 + k, wide)
            _add_line(line1, f1, g1, sums, at1 + k, wide)
            _add_line(line2, f2, g2, sums, at2 + k, wide)
            _add_line(line3, f3, g3, sums, at3 + k, wide)
    keep((a, acc))


@njit(**OPTIONS)
def _flush(acc, total):
    """Move the low bits of sums, with their sign, to sums of integers."""
    p, wide = total.shape[1] // 2, acc.shape[1] // 2
    for b in range(total.shape[0]):
        for k in range(p):
            total[b, k] += (acc[b, k] << (64 - LOW_BITS)) >> (64 - LOW_BITS)
            total[b, p + k] += (acc[b, wide + k] << (64 - LOW_BITS)) >> (64 - LOW_BITS)
    acc[:] = 0


@njit(**OPTIONS, fastmath=EXACT)
def _clip_factors(r, weight, size, place, radius, per_clip, per_size, most, first, second):
    """Fill what a row's design vector is multiplied by, in units: its clipped weight times r, and times its sign.

    The place of a row is beyond all bins if its vector would be longer than ``most`` then, or is not a number: nothing
    that is compared with a norm that is not finite is true.
    """
    beyond = float(len(per_clip))
    for i in range(TILE):
        s = size[i] * weight[i]
        w = weight[i] * (radius / (s if s > radius else radius)) if s < math.inf else 0.0
        first[i] = number(w * r[i] * per_clip[int(place[i])])
        second[i] = (w if r[i] > 0.0 else -w) * per_size if r[i] != 0.0 else 0.0
    for i in range(TILE):
        bounded = (size[i] * abs(first[i]) <= most) & (size[i] * abs(second[i]) <= most)
        place[i] = place[i] if bounded else beyond


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
    n, d = shape_of(X)
    p = d + 1
    wide = (p + WIDTH - 1) // WIDTH * WIDTH
    z, padded = np.zeros((d, TILE)), np.zeros((wide, TILE))
    a, acc = padded[:p], np.zeros((len(per_clip) + 1, 2 * wide), np.int64)  # the last row is beyond all bins
    size, weight, eta, t = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.zeros(TILE)
    place, first, second = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    most = 2.0**30 * (1.0 + 1e-9)
    done = 0
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        design_tile(
            X, start, count, lower, upper, mean, scale, shift, rotation, constant, radius, cap, z, a, size, weight
        )
        combine(a, theta, offset, eta)
        targets(y, start, count, target[0], target[1], target[2], target[3], target[4], target[5], t)
        residuals(eta, t, link, largest, eta)
        places(eta, grid, t, place)
        for i in range(count):
            total[int(place[i]), 2 * p] += 1
        _clip_factors(eta, weight, size, place, radius, per_clip, per_size, most, first, second)
        for i in range(count, TILE):
            place[i] = len(per_clip)
        _add_lines(padded, place, first, second, acc)
        done += 1
        if done == FLUSH:
            _flush(acc, total)
            done = 0
    _flush(acc, total)
