"""Tiles of rows, turned on their side, and how their vectors are bounded, rounded and added up.

A tile is 64 rows: column j of the tile is row j of an array, so that inner loops run over rows and fill vector
registers however few the columns are. A tile at the end is filled up, so that every row takes the same way, and its
sums over columns are added up in the order of the columns: what a row adds has the same bits wherever it stands, for
any threads, blocks and storage.

Every contribution is guarded where it is added (`add_vectors`): it is scaled down to its bound, rounded to an integer,
and counts nothing if it is not a number. Integers below 2^53 add up exactly in float64, in any order; that is why
`total_of` and `product` may be compiled with reassociation and nothing else may.
"""

from __future__ import annotations

import math

import numpy as np

from tailguard.kernels.compiling import njit

TILE = 64  # rows
ROUND = 1.5 * 2.0**52
FLUSH = 2**15  # tiles: 2**21 rows of at most 2**30 units stay below 2**52

OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy"}
EXACT = {"contract", "nsz"}  # the order of operations stays


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


@njit(**OPTIONS)
def flush_table(acc, total):
    """Move sums to integers, one for one."""
    for b in range(acc.shape[0]):
        for k in range(acc.shape[1]):
            total[b, k] += np.int64(acc[b, k])
            acc[b, k] = 0.0
