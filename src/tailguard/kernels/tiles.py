"""Tiles of rows: their sizes, and what narrow and wide tables share."""

from __future__ import annotations

from tailguard.kernels.compiling import njit
from tailguard.kernels.lanes import WIDTH, bits, columns1, columns2, fma, load, spread, store, where
from tailguard.kernels.rule import ABSOLUTE, INLINE, OPTIONS, ROUND

GROUPS = 4  # of WIDTH rows, in a tile at most: as many lanes as psi takes
ROWS = GROUPS * WIDTH
NARROW = 16  # columns
NEAR = 26_000  # bytes of rows that stay in a first cache of 32 KiB, beside weights and sums
AHEAD = 2**14  # bytes that are asked for before they are read; more where a tile has more


@njit(**OPTIONS)
def groups_of(d, itemsize):
    """Groups of a tile: fewer where rows are long, so that they are still in the first cache when they are added."""
    groups = GROUPS
    while groups > 1 and groups * WIDTH * d * itemsize > NEAR:
        groups //= 2
    return groups


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
    return bits(fma(x, fma(three, x * x, one), ROUND))


@njit(**INLINE)
def add_rounded(acc, at, a, b):
    """Add lanes of products, rounded, to the sums at a place."""
    store(acc, at, load(acc, at) + bits(fma(a, b, ROUND)))
