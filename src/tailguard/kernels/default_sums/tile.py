"""Tiles of rows, turned on their side, and how their vectors are bounded, rounded and added up.

A tile is 64 rows: column j of the tile is row j of an array, so that inner loops run over rows and fill vector
registers however few the columns are. A tile at the end is filled up, so that every row takes the same way, and its
sums over columns are added up in the order of the columns: what a row adds has the same bits wherever it stands, for
any threads, blocks and storage.

Every contribution is guarded where it is added (`add_vectors`, and `table` in its own way): it is scaled down to its
bound, rounded to an integer, and counts nothing if it is not a number. Integers below 2^53 add up exactly in float64,
in any order; that is why `total_of` and `product` may be compiled with reassociation and nothing else may.

What takes most of the time is written in lanes (`tailguard.kernels.lanes`): sums over columns stay in registers.
"""

from __future__ import annotations

import math

import numpy as np

from tailguard.kernels.compiling import njit
from tailguard.kernels.lanes import WIDTH, fma, keep, load, pointer, spread, store
from tailguard.kernels.reading import OPTIONS, TILE, load4, store4

ROUND = 1.5 * 2.0**52
FLUSH = 2**15  # tiles: 2**21 rows of at most 2**30 units stay below 2**52

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


@njit(**OPTIONS)
def combine(z, weights, constant, out):
    """Fill ``out[i] = constant + sum_j weights[j] z[j, i]``, added up in the order of j.

    Half a tile at a time, so that its sums stay in registers.
    """
    data, into = pointer(z), pointer(out)
    for i in range(0, TILE, 4 * WIDTH):
        v0 = v1 = v2 = v3 = spread(constant)
        for j in range(z.shape[0]):
            w = weights[j]
            z0, z1, z2, z3 = load4(data, j * TILE + i)
            v0, v1, v2, v3 = fma(z0, w, v0), fma(z1, w, v1), fma(z2, w, v2), fma(z3, w, v3)
        store4(into, i, (v0, v1, v2, v3))
    keep((z, out))


@njit(**OPTIONS)
def combine_all(z, weights, out):
    """Fill ``out[k]`` with the combination by ``weights[k]`` without a constant, as `combine` does.

    Four at a time, which share what they read; more sums than that do not fit into shorter registers.
    """
    d, data, into = z.shape[0], pointer(z), pointer(out)
    whole = len(weights) - len(weights) % 4
    for k in range(0, whole, 4):
        a, b, c, e = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        for i in range(0, TILE, WIDTH):
            v0 = v1 = v2 = v3 = spread(0.0)
            for j in range(d):
                x = load(data, j * TILE + i)
                v0, v1, v2, v3 = fma(x, a[j], v0), fma(x, b[j], v1), fma(x, c[j], v2), fma(x, e[j], v3)
            at = k * TILE + i
            store(into, at, v0)
            store(into, at + TILE, v1)
            store(into, at + 2 * TILE, v2)
            store(into, at + 3 * TILE, v3)
    for k in range(whole, len(weights)):
        combine(z, weights[k], 0.0, out[k])
    keep((z, out))


@njit(**OPTIONS, fastmath=EXACT)
def lengths(v, out):
    """Fill ``out`` with the norms of the vectors of a tile, (width, TILE)."""
    data, into = pointer(v), pointer(out)
    for i in range(0, TILE, 4 * WIDTH):
        s0 = s1 = s2 = s3 = spread(0.0)
        for k in range(v.shape[0]):
            v0, v1, v2, v3 = load4(data, k * TILE + i)
            s0, s1, s2, s3 = fma(v0, v0, s0), fma(v1, v1, s1), fma(v2, v2, s2), fma(v3, v3, s3)
        store4(into, i, (s0, s1, s2, s3))
    keep((v, out))
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
