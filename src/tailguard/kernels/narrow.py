"""Tiles of narrow tables, kept transposed: a row per lane, so that few columns fill the lanes too.

Multipliers of output k stand from ``k ROWS`` on, its sums, WIDTH for each column, from ``k d WIDTH`` on.
"""

from __future__ import annotations

from numba import njit

from tailguard.kernels.lanes import WIDTH, bits, columns4, from_bits, load, prefetch, spread, store
from tailguard.kernels.rule import INLINE, ROUND, clamped, psi
from tailguard.kernels.tiles import ROWS, larger, last_columns, near_bits


@njit(**INLINE)
def _narrow_quad(X, d, k, stride, quad, w, tile, place, squares, size):
    """Terms of one quad of columns, if it exists, to the predictor and the squared norm; its columns to the tile."""
    j = 4 * quad
    z = q = spread(0.0)
    if j < d:
        if j + 4 <= d:
            a, b, c, e = columns4(X, k + j, stride)
        else:
            a, b, c = last_columns(X, k + j, stride, d - j)
            e = z
        at = j * ROWS + place
        store(tile, at, a)
        store(tile, at + ROWS, b)
        store(tile, at + 2 * ROWS, c)
        store(tile, at + 3 * ROWS, e)
        z = (a * w[j] + b * w[j + 1]) + (c * w[j + 2] + e * w[j + 3])
        if squares:
            q = (a * a + b * b) + (c * c + e * e)
        else:
            size = larger(larger(larger(larger(size, a), b), c), e)
    return z, q, size


@njit(**INLINE)
def narrow_dots(X, d, k, stride, ahead, w, tile, place, squares):
    """Predictors and squared norms (or largest entries) of WIDTH rows at k, k + stride, ...; up to NARROW columns."""
    prefetch(X, k + ahead, stride)
    size = bits(spread(0.0))
    z0, q0, size = _narrow_quad(X, d, k, stride, 0, w, tile, place, squares, size)
    z1, q1, size = _narrow_quad(X, d, k, stride, 1, w, tile, place, squares, size)
    z2, q2, size = _narrow_quad(X, d, k, stride, 2, w, tile, place, squares, size)
    z3, q3, size = _narrow_quad(X, d, k, stride, 3, w, tile, place, squares, size)
    return (z0 + z2) + (z1 + z3), (q0 + q2) + (q1 + q3) if squares else from_bits(size)


@njit(**INLINE)
def add_narrow_clipped(tile, d, k, c, acc):
    """Add ``c x``."""
    for j in range(d):
        at = (k * d + j) * WIDTH
        total = load(acc, at)
        for i in range(0, ROWS, WIDTH):
            total = total + bits(load(c, k * ROWS + i) * load(tile, j * ROWS + i) + ROUND)
        store(acc, at, total)


@njit(**INLINE)
def add_narrow_clamped(tile, d, k, c, bound, per_unit, acc):
    """Add ``clamp(c x)``."""
    for j in range(d):
        at = (k * d + j) * WIDTH
        total = load(acc, at)
        for i in range(0, ROWS, WIDTH):
            value = clamped(load(c, k * ROWS + i) * load(tile, j * ROWS + i), bound)
            total = total + bits(value * per_unit + ROUND)
        store(acc, at, total)


@njit(**INLINE)
def add_narrow_near(tile, d, k, one, three, acc):
    """Add psi of rows in its core, and nothing where ``one`` and ``three`` are 0."""
    for j in range(d):
        at = (k * d + j) * WIDTH
        total = load(acc, at)
        for i in range(0, ROWS, WIDTH):
            total = total + near_bits(load(tile, j * ROWS + i), load(one, k * ROWS + i), load(three, k * ROWS + i))
        store(acc, at, total)


@njit(**INLINE)
def _near_value(x, one, three, at):
    """The value of psi in its core, and 0 where ``one`` and ``three`` are."""
    return x * (load(one, at) - load(three, at) * (x * x))


@njit(**INLINE)
def add_narrow_smoothed(tile, d, k, start, one, three, c, height, p, table, cells, acc):
    """Add psi of rows of which some are in its core: there c is 0, elsewhere ``one`` and ``three`` are.

    The tile begins at line ``start``.
    """
    r, s = k * ROWS, k * ROWS + WIDTH
    for j in range(0, d, 2):
        at = (k * d + j) * WIDTH
        line = (start + j) * ROWS
        a, b = load(tile, line), load(tile, line + WIDTH)
        e, f = load(tile, line + ROWS), load(tile, line + ROWS + WIDTH)
        u, v, w, x = psi(load(c, r) * a, load(c, s) * b, load(c, r) * e, load(c, s) * f, p, table, cells)
        # Of the two terms one is 0.
        u = u * height + _near_value(a, one, three, r)
        v = v * height + _near_value(b, one, three, s)
        store(acc, at, load(acc, at) + (bits(u + ROUND) + bits(v + ROUND)))
        if j + 1 < d:
            u = w * height + _near_value(e, one, three, r)
            v = x * height + _near_value(f, one, three, s)
            store(acc, at + WIDTH, load(acc, at + WIDTH) + (bits(u + ROUND) + bits(v + ROUND)))
