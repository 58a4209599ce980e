"""Tiles of rows: their sizes, and what narrow and wide tables share."""

from __future__ import annotations

from numba import njit

from tailguard.kernels.lanes import WIDTH, bits, columns1, columns2, load, spread, store, where
from tailguard.kernels.rule import ABSOLUTE, INLINE, ROUND

L2, COORDINATE, SMOOTH = 0, 1, 2  # truncations

GROUPS = 2  # of WIDTH rows, in a tile
ROWS = GROUPS * WIDTH
NARROW = 16  # columns
AHEAD = 1024  # bytes that are asked for before they are needed


@njit(**INLINE)
def last_columns(X, k, stride, count):
    """The last one to three columns, and zeros."""
    nothing = spread(0.0)
    if count == 1:
        return columns1(X, k, stride)[0], nothing, nothing
    a, b = columns2(X, k, stride)
    return a, b, columns1(X, k + 2, stride)[0] if count == 3 else nothing


@njit(**INLINE)
def larger(size, a):
    """The larger of ``size`` and |a|, as bits: NaN is the largest."""
    a = bits(a) & ABSOLUTE
    return where(a > size, a, size)


@njit(**INLINE)
def near_bits(x, one, three):
    """The value of psi in its core, in units, as bits."""
    return bits(x * (one - three * (x * x)) + ROUND)


@njit(**INLINE)
def add_rounded(acc, at, value):
    """Add lanes of values, rounded, to the sums at a place."""
    store(acc, at, load(acc, at) + bits(value + ROUND))
