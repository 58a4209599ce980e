r"""The sums of the default, each one pass over a block of rows that adds integers to ``total``.

==================  ====================================================================================
function            adds
==================  ====================================================================================
`column_counts`     a histogram of every column
`column_moments`    ``(v, v^2 - 1)`` of every column
`design_gram`       the Gram matrix of weighted design vectors
`scores`            ``w a s`` with the logistic score s, or a clipped residual
`score_table`       the same with every clip of a grid at once
`class_scores`      the same for several classes
`line_sizes`        a histogram of absolute residuals of a line
`line_vectors`      one or two numbers that depend on a line and the target: see the codes
`target_vectors`    one or more numbers that depend on the target alone
==================  ====================================================================================

`tailguard.default.rows` has the definitions. X is float32 or float64, y is float64; neither is copied, and nothing is
built that is larger than a tile.

Tiles
-----
A tile is 64 rows, turned on its side: column j of the tile is row j of an array, so that inner loops run over rows and
fill vector registers however few the columns are. A tile at the end is filled up, so that every row takes the same way,
and its sums over columns are added up in the order of the columns: what a row adds has the same bits wherever it
stands, for any threads, blocks and storage.

Every contribution is guarded where it is added (`add_vectors`): it is scaled down to its bound, rounded to an integer,
and counts nothing if it is not a number. Integers below 2^53 add up exactly in float64, in any order; that is why
`total_of` and `product` may be compiled with reassociation and nothing else may.

All of it is one file, because numba compiles a cached function anew only when the file that it stands in has changed.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

TILE = 64  # rows
ROUND = 1.5 * 2.0**52
FLUSH = 2**15  # tiles: 2**21 rows of at most 2**30 units stay below 2**52

OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy"}
EXACT = {"contract", "nsz"}  # the order of operations stays

# What `line_vectors` adds; eta is the line, t the target, u = clip(eta / (1.5 spread), -1, 1).
LEVEL = 0  # clip(t - eta, c)
SQUARES = 1  # min(r^2, c^2) and (clip(r + offset, c) - clip(r, c')/q)^2 of r = eta - t, less half of their bounds
INSTRUMENT = 2  # u, u clip(eta/spread, 4)/2
PRODUCT = 3  # e clip(u - centre, 1) with e = clip(t - constant - multiplier eta, c)
SQUARED_LINE = 4  # u, u^2 - 1/2
BOUNDED_PRODUCTS = 5  # s, s u with the logistic score s of level + multiplier eta
FITTED_MEANS = 6  # min(t, b) - b/2, min(exp(eta), b) - b/2

# What `scores` clips.
RESIDUAL, MEAN, LOG_ODDS = 0, 1, 2

# Exponents of floats as `column_counts` finds them: the bits, shifted, with 64 more for subnormal numbers.
SUBNORMAL = 64
EXPONENTS = 2049 + SUBNORMAL


# ---------------------------------------------------------------- tiles


@njit(**OPTIONS, fastmath={"reassoc", "nsz"})
def total_of(values):
    """Sum of integers: the same in any order."""
    found = 0.0
    for i in range(TILE):
        found += values[i]
    return found


@njit(**OPTIONS, fastmath={"reassoc", "nsz", "contract"})
def product(a, b):
    """Sum of products of integers: the same in any order."""
    found = 0.0
    for i in range(TILE):
        found += a[i] * b[i]
    return found


@njit(**OPTIONS, fastmath=EXACT)
def turn(X, start, count, z):
    """Fill ``z[j, i] = X[start + i, j]``, (d, TILE)."""
    for i in range(count):
        for j in range(X.shape[1]):
            z[j, i] = X[start + i, j]


@njit(**OPTIONS, fastmath=EXACT)
def standardise(z, lower, upper, mean, scale, shift):
    """Truncate, centre and scale a turned tile, less the shift; a missing value, or one that overflows, is the mean."""
    for j in range(z.shape[0]):
        low, high, middle, inverse, away, row = lower[j], upper[j], mean[j], 1.0 / scale[j], shift[j], z[j]
        for i in range(TILE):
            x = row[i]
            v = low if x < low else x
            v = high if v > high else v
            v = (v - middle) * inverse
            row[i] = (v if abs(v) < math.inf else 0.0) - away


@njit(**OPTIONS, fastmath=EXACT)
def combine(z, weights, constant, out):
    """Fill ``out[i] = constant + sum_j weights[j] z[j, i]``, added up in the order of j.

    Eight columns at a time, so that few sums are written and read again; then four, two and one.
    """
    d = z.shape[0]
    j = 0
    if d < 8:
        for i in range(TILE):
            out[i] = constant
    else:
        w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
        w4, w5, w6, w7 = weights[4], weights[5], weights[6], weights[7]
        z0, z1, z2, z3, z4, z5, z6, z7 = z[0], z[1], z[2], z[3], z[4], z[5], z[6], z[7]
        for i in range(TILE):
            v = constant
            v += z0[i] * w0
            v += z1[i] * w1
            v += z2[i] * w2
            v += z3[i] * w3
            v += z4[i] * w4
            v += z5[i] * w5
            v += z6[i] * w6
            v += z7[i] * w7
            out[i] = v
        j = 8
    while j + 8 <= d:
        w0, w1, w2, w3 = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        w4, w5, w6, w7 = weights[j + 4], weights[j + 5], weights[j + 6], weights[j + 7]
        z0, z1, z2, z3, z4, z5, z6, z7 = z[j], z[j + 1], z[j + 2], z[j + 3], z[j + 4], z[j + 5], z[j + 6], z[j + 7]
        for i in range(TILE):
            v = out[i]
            v += z0[i] * w0
            v += z1[i] * w1
            v += z2[i] * w2
            v += z3[i] * w3
            v += z4[i] * w4
            v += z5[i] * w5
            v += z6[i] * w6
            v += z7[i] * w7
            out[i] = v
        j += 8
    if j + 4 <= d:
        w0, w1, w2, w3 = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        z0, z1, z2, z3 = z[j], z[j + 1], z[j + 2], z[j + 3]
        for i in range(TILE):
            v = out[i]
            v += z0[i] * w0
            v += z1[i] * w1
            v += z2[i] * w2
            v += z3[i] * w3
            out[i] = v
        j += 4
    if j + 2 <= d:
        w0, w1 = weights[j], weights[j + 1]
        z0, z1 = z[j], z[j + 1]
        for i in range(TILE):
            v = out[i]
            v += z0[i] * w0
            v += z1[i] * w1
            out[i] = v
        j += 2
    if j < d:
        w0, z0 = weights[j], z[j]
        for i in range(TILE):
            out[i] += z0[i] * w0


@njit(**OPTIONS, fastmath=EXACT)
def design(z, rotation, constant, a):
    """Fill design vectors ``a = (constant, rotation z)``, (1 + d, TILE); a row of ``rotation`` for each coordinate."""
    for i in range(TILE):
        a[0, i] = constant
    for k in range(rotation.shape[0]):
        combine(z, rotation[k], 0.0, a[k + 1])


@njit(**OPTIONS, fastmath=EXACT)
def lengths(v, out):
    """Fill ``out`` with the norms of the vectors of a tile, (width, TILE)."""
    for i in range(TILE):
        out[i] = 0.0
    for k in range(v.shape[0]):
        for i in range(TILE):
            out[i] += v[k, i] * v[k, i]
    for i in range(TILE):
        out[i] = math.sqrt(out[i])


@njit(**OPTIONS, fastmath=EXACT)
def mallows(size, radius, cap, out):
    """Fill ``out`` with the weights ``min(1, R/|a|, cap R^2/|a|^2)`` of design vectors of the given norms."""
    for i in range(TILE):
        s = size[i]
        ratio = radius / (s if s > 1e-100 else 1e-100)
        w = cap * ratio * ratio
        w = ratio if ratio < w else w
        out[i] = 1.0 if w > 1.0 else w


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
def scales(size, count, bound, per_unit, out):
    """Fill ``out`` with what scales vectors of the given norms down to the bound, in units; 0 where it is no number."""
    for i in range(TILE):
        s = size[i]
        out[i] = per_unit * (bound / (s if s > bound else bound)) if s < math.inf else 0.0
    for i in range(count, TILE):
        out[i] = 0.0


@njit(**OPTIONS, fastmath=EXACT)
def add_scaled(v, scale, most, acc):
    """Add ``scale[i] v[k, i]``, rounded, to ``acc[k, i]``; what is not a number, or more than ``most``, counts nothing.

    Place by place of the tile: adding up a whole tile each time would take four times as long.
    """
    for k in range(v.shape[0]):
        row, into = v[k], acc[k]
        for i in range(TILE):
            u = row[i] * scale[i]
            into[i] += (u + ROUND) - ROUND if abs(u) <= most else 0.0


@njit(**OPTIONS, fastmath=EXACT)
def add_vectors(v, count, bound, per_unit, size, acc):
    """Add the vectors of a tile, (width, TILE), scaled down to the bound and rounded, to ``acc``."""
    lengths(v, size)
    scales(size, count, bound, per_unit, size)
    add_scaled(v, size, bound * per_unit * (1.0 + 1e-9), acc)


@njit(**OPTIONS)
def flush(acc, integers):
    """Move sums of integers from float64, (width, TILE), to int64."""
    for k in range(acc.shape[0]):
        integers[k] += np.int64(total_of(acc[k]))
        for i in range(TILE):
            acc[k, i] = 0.0


# ---------------------------------------------------------------- sums


@njit(**OPTIONS)
def column_counts(X, columns, centre, positive, bins, total):
    """Count the binary exponents of ``|x - centre|``: exponent e of column c goes to ``total[c, bins[c, e]]``.

    ``bins`` has one row for all columns, or one for each. Index e is 0 for zero, the last for a missing value, and k +
    1023 + `SUBNORMAL` for a value in ``(2^(k-1), 2^k]``.
    """
    n, width = X.shape[0], len(columns)
    size = np.empty(width)
    bits = size.view(np.int64)
    each = 1 if bins.shape[0] > 1 else 0
    for i in range(n):
        for c in range(width):
            x = np.float64(X[i, columns[c]])
            if positive:
                x = 0.0 if x < 0.0 else x
            size[c] = abs(x - centre[c])
        for c in range(width):
            e = ((bits[c] - 1) >> 52) + 1
            if e <= 1:  # zero, or subnormal: what it is shows once it is scaled
                size[c] *= 2.0**60
                e = ((bits[c] - 1) >> 52) + 1 - 60 if e == 1 else -SUBNORMAL
            total[c, bins[c * each, e + SUBNORMAL]] += 1


@njit(**OPTIONS, fastmath=EXACT)
def column_moments(X, columns, centre, bound, positive, clip, per_unit, total):
    """Add ``v = clip((x - centre)/bound, -1, 1)`` of every column, then all ``v^2 - 1``; a missing v is 0."""
    n, width = X.shape[0], len(columns)
    v, acc, size = np.zeros((2 * width, TILE)), np.zeros((2 * width, TILE)), np.empty(TILE)
    done = 0
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        for i in range(count):
            for c in range(width):
                v[c, i] = X[start + i, columns[c]]
        for c in range(width):
            middle, reach = centre[c], bound[c]
            for i in range(TILE):
                x = v[c, i]
                if positive:
                    x = 0.0 if x < 0.0 else x
                u = (x - middle) / reach
                u = -1.0 if u < -1.0 else u
                u = 1.0 if u > 1.0 else u
                u = u if u == u else 0.0
                v[c, i] = u
                v[width + c, i] = u * u - 1.0
        add_vectors(v, count, clip, per_unit, size, acc)
        done += 1
        if done == FLUSH:
            flush(acc, total)
            done = 0
    flush(acc, total)


@njit(**OPTIONS, fastmath=EXACT)
def design_gram(X, lower, upper, mean, scale, shift, rotation, constant, radius, cap, bound, bits, total):
    """Add the products of ``sqrt(w) a``, scaled down to the bound and rounded to ``bits`` bits."""
    n, d = X.shape
    p = d + 1
    z, a, acc = np.zeros((d, TILE)), np.empty((p, TILE)), np.zeros((p, p))
    size, weight = np.empty(TILE), np.empty(TILE)
    per_unit = 2.0**bits / bound
    most = 2.0**bits * (1.0 + 1e-9)
    done = 0
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        turn(X, start, count, z)
        standardise(z, lower, upper, mean, scale, shift)
        design(z, rotation, constant, a)
        lengths(a, size)
        mallows(size, radius, cap, weight)
        for i in range(TILE):
            weight[i] = math.sqrt(weight[i])
            size[i] = size[i] * weight[i]
        scales(size, count, bound, per_unit, size)
        for k in range(p):
            for i in range(TILE):
                u = a[k, i] * (weight[i] * size[i])
                a[k, i] = (u + ROUND) - ROUND if abs(u) <= most else 0.0
        for k in range(p):
            for m in range(k + 1):
                acc[k, m] += product(a[k], a[m])
        done += 1
        if done == 2**8:  # 2**14 rows: products of 19 + 19 bits stay below 2**52
            _flush_square(acc, total)
            done = 0
    _flush_square(acc, total)


@njit(**OPTIONS)
def _flush_square(acc, total):
    for k in range(acc.shape[0]):
        for m in range(k + 1):
            total[k, m] += np.int64(acc[k, m])
            if m < k:
                total[m, k] += np.int64(acc[k, m])
            acc[k, m] = 0.0


@njit(**OPTIONS, fastmath=EXACT)
def _clip(x, bound):
    x = -bound if x < -bound else x
    return bound if x > bound else x


@njit(**OPTIONS, fastmath=EXACT)
def _number(x):
    return x if x == x else 0.0


@njit(**OPTIONS, fastmath=EXACT)
def _bounded_score(z, y):
    """(p - t)/max(p, 1 - p) with t = 1 for y > 0 and 0 otherwise; 0 where y is missing."""
    small = math.exp(-abs(z))
    if y != y:
        return 0.0
    if (z > 0.0) == (y > 0.0):
        return -small if z > 0.0 else small
    return 1.0 if z > 0.0 else -1.0


@njit(**OPTIONS, fastmath=EXACT)
def _residuals(eta, t, link, largest, out):
    """Fill ``out`` with ``eta - t``, ``exp(eta) - t`` or the logistic score; 0 where the target is missing."""
    if link == LOG_ODDS:
        for i in range(TILE):
            out[i] = _bounded_score(eta[i], t[i])
    elif link == MEAN:
        for i in range(TILE):
            out[i] = _number(math.exp(max(-20.0, min(largest, eta[i]))) - t[i])
    else:
        for i in range(TILE):
            r = eta[i] - t[i]
            out[i] = r if r == r else 0.0


@njit(**OPTIONS, fastmath=EXACT)
def scores(
    X, y, lower, upper, mean, scale, shift, rotation, constant, radius, cap, theta, offset, link, largest, target, edge,
    bound, per_unit, total,
):  # fmt: skip
    """Add ``w a clip(r, -edge, edge)``, r as `_residuals` has it, scaled down to the bound."""
    n, d = X.shape
    z, a, acc = np.zeros((d, TILE)), np.empty((d + 1, TILE)), np.zeros((d + 1, TILE))
    size, weight, eta, t = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.zeros(TILE)
    most = bound * per_unit * (1.0 + 1e-9)
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
        _residuals(eta, t, link, largest, eta)
        for i in range(TILE):
            r = eta[i]
            r = -edge if r < -edge else r
            r = edge if r > edge else r
            weight[i] = weight[i] * r
            size[i] = size[i] * abs(weight[i])
        scales(size, count, bound, per_unit, size)
        for i in range(TILE):
            size[i] = size[i] * weight[i]
        add_scaled(a, size, most, acc)
        done += 1
        if done == FLUSH:
            flush(acc, total)
            done = 0
    flush(acc, total)


@njit(**OPTIONS, fastmath=EXACT)
def _places(values, grid, size, out):
    """Fill ``out`` with the number of points of the grid below the absolute values, and ``size`` with these."""
    for i in range(TILE):
        size[i] = abs(values[i])
        out[i] = 0.0
    for g in range(len(grid)):
        edge = grid[g]
        for i in range(TILE):
            out[i] += 1.0 if size[i] > edge else 0.0


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
        _residuals(eta, t, link, largest, eta)
        _places(eta, grid, t, place)
        _clip_factors(eta, weight, size, place, radius, per_clip, per_size, first, size)
        _add_lines(a, place, first, size, most, count, lines, acc, total)
        done += 1
        if done == FLUSH:
            _flush_table(acc, total)
            done = 0
    _flush_table(acc, total)


@njit(**OPTIONS)
def _flush_table(acc, total):
    for b in range(acc.shape[0]):
        for k in range(acc.shape[1]):
            total[b, k] += np.int64(acc[b, k])
            acc[b, k] = 0.0


@njit(**OPTIONS, fastmath=EXACT)
def class_scores(
    X, y, lower, upper, mean, scale, shift, rotation, constant, radius, cap, theta, bound, per_unit, total
):
    """Add ``(p - onehot(y))/g`` times ``w a``, p the softmax of the predictors, class by class: (classes, 1 + d)."""
    n, d = X.shape
    classes = theta.shape[0]
    z, a, acc = np.zeros((d, TILE)), np.empty((d + 1, TILE)), np.zeros((classes, d + 1))
    size, weight, spare, gap = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty((classes, TILE))
    most = bound * per_unit * (1.0 + 1e-9)
    done = 0
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        turn(X, start, count, z)
        standardise(z, lower, upper, mean, scale, shift)
        design(z, rotation, constant, a)
        lengths(a, size)
        mallows(size, radius, cap, weight)
        for c in range(classes):
            combine(a, theta[c], 0.0, gap[c])
        for i in range(count):
            largest = gap[0, i]
            for c in range(1, classes):
                largest = max(largest, gap[c, i])
            whole = 0.0
            for c in range(classes):
                gap[c, i] = math.exp(gap[c, i] - largest)
                whole += gap[c, i]
            least, square = 1.0, 0.0
            for c in range(classes):
                gap[c, i] /= whole
                least = min(least, gap[c, i])
                square += gap[c, i] * gap[c, i]
            label = np.float64(y[start + i])
            factor = weight[i] / math.sqrt(1.0 - 2.0 * least + square) if label == label else 0.0
            norm = 0.0
            for c in range(classes):
                gap[c, i] = (gap[c, i] - (1.0 if label == c else 0.0)) * factor
                norm += gap[c, i] * gap[c, i]
            size[i] *= math.sqrt(norm)
        scales(size, count, bound, per_unit, size)
        for c in range(classes):
            for k in range(d + 1):
                for i in range(TILE):
                    u = a[k, i] * (gap[c, i] * size[i])
                    spare[i] = (u + ROUND) - ROUND if abs(u) <= most else 0.0
                acc[c, k] += total_of(spare)
        done += 1
        if done == FLUSH:
            _flush_table(acc, total.reshape(acc.shape))
            done = 0
    _flush_table(acc, total.reshape(acc.shape))


@njit(**OPTIONS, fastmath=EXACT)
def _line(X, start, count, lower, upper, mean, scale, shift, slopes, constant, z, eta):
    """Fill ``eta = constant + slopes . (z - shift)``; without slopes it is the constant."""
    if len(slopes) > 0:
        turn(X, start, count, z)
        standardise(z, lower, upper, mean, scale, shift)
    combine(z[: len(slopes)], slopes, constant, eta)


@njit(**OPTIONS, fastmath=EXACT)
def line_sizes(X, y, lower, upper, mean, scale, shift, slopes, constant, link, largest, target, grid, total):
    """Count the rows whose ``|fitted - target|`` is at most the first point of the grid, ..., beyond the last."""
    n = X.shape[0]
    z, eta, t, place = np.zeros((len(slopes), TILE)), np.empty(TILE), np.zeros(TILE), np.empty(TILE)
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        _line(X, start, count, lower, upper, mean, scale, shift, slopes, constant, z, eta)
        targets(y, start, count, target[0], target[1], target[2], target[3], target[4], target[5], t)
        _residuals(eta, t, link, largest, eta)
        _places(eta, grid, t, place)
        for i in range(count):
            total[int(place[i])] += 1


@njit(**OPTIONS, fastmath=EXACT)
def line_vectors(
    X, y, lower, upper, mean, scale, shift, slopes, constant, link, largest, target, code, q, bound, per_unit, total
):
    """Add one or two numbers of every row, by the code; ``q`` are its parameters: see `tailguard.default.rows`."""
    n = X.shape[0]
    z, eta, t = np.zeros((len(slopes), TILE)), np.empty(TILE), np.zeros(TILE)
    v, acc, size = np.zeros((len(total), TILE)), np.zeros((len(total), TILE)), np.empty(TILE)
    done = 0
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        _line(X, start, count, lower, upper, mean, scale, shift, slopes, constant, z, eta)
        targets(y, start, count, target[0], target[1], target[2], target[3], target[4], target[5], t)
        if code == LEVEL:
            for i in range(TILE):
                v[0, i] = _clip(_number(t[i] - eta[i]), q[0])
        elif code == SQUARES:
            offset, far, near, inside = q[0], q[1], q[2], q[3]
            top, other = far * far, (far + near / inside) * (far + near / inside)
            for i in range(TILE):
                r = _number(eta[i] - t[i])
                e = _clip(r + offset, far) - _clip(r, near) / inside
                s = r * r
                v[0, i] = (top if s > top else s) - top / 2.0
                v[1, i] = e * e - other / 2.0
        elif code == INSTRUMENT:
            for i in range(TILE):
                u = _clip(eta[i] / q[0], 1.0)
                v[0, i] = u
                v[1, i] = u * _clip(eta[i] / q[1], 4.0) / 2.0
        elif code == PRODUCT:
            for i in range(TILE):
                e = _clip(_number(t[i] - q[1] - q[2] * eta[i]), q[3])
                v[0, i] = e * _clip(_clip(eta[i] / q[0], 1.0) - q[4], 1.0)
        elif code == SQUARED_LINE:
            for i in range(TILE):
                u = _clip(eta[i] / q[0], 1.0)
                v[0, i] = u
                v[1, i] = u * u - 0.5
        elif code == BOUNDED_PRODUCTS:
            for i in range(TILE):
                s = _bounded_score(q[1] + q[2] * eta[i], t[i])
                v[0, i] = s
                v[1, i] = s * _clip(eta[i] / q[0], 1.0)
        else:
            for i in range(TILE):
                fitted = min(math.exp(max(-20.0, min(largest, eta[i]))), q[0])
                s = min(t[i], q[0]) if t[i] == t[i] else fitted
                v[0, i] = s - q[0] / 2.0
                v[1, i] = fitted - q[0] / 2.0
        add_vectors(v, count, bound, per_unit, size, acc)
        done += 1
        if done == FLUSH:
            flush(acc, total)
            done = 0
    flush(acc, total)


@njit(**OPTIONS, fastmath=EXACT)
def target_vectors(y, classes, bound, per_unit, total):
    """Add ``onehot(y) - 1/K`` with K classes; with none, half of the sign of y."""
    n, width = len(y), len(total)
    v, acc, size = np.zeros((width, TILE)), np.zeros((width, TILE)), np.empty(TILE)
    done = 0
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        for i in range(count):
            label = np.float64(y[start + i])
            if classes > 0:
                for c in range(classes):
                    v[c, i] = (1.0 if label == c else 0.0) - 1.0 / classes
            else:
                v[0, i] = 0.5 if label > 0.0 else (-0.5 if label < 0.0 else 0.0)
        add_vectors(v, count, bound, per_unit, size, acc)
        done += 1
        if done == FLUSH:
            flush(acc, total)
            done = 0
    flush(acc, total)
