"""Tiles of narrow tables, kept transposed: a row per lane, so that few columns fill the lanes too.

Multipliers of output k stand from ``k ROWS`` on, its sums, WIDTH for each column, from ``k d WIDTH`` on.
"""

from __future__ import annotations

from tailguard.kernels.compiling import njit
from tailguard.kernels.lanes import ASKED, WIDTH, bits, columns4, fma, from_bits, load, prefetch, spread, store
from tailguard.kernels.rule import INLINE, OPTIONS, ROUND, clamped, psi
from tailguard.kernels.tiles import ROWS, larger, last_columns, near_bits


@njit(**INLINE)
def _narrow_quad(X, d, k, quad, w, tile, place, squares, size):
    """Terms of one quad of columns, if it exists, to the predictor and the squared norm; its columns to the tile."""
    j = 4 * quad
    z = q = spread(0.0)
    if j < d:
        if j + 4 <= d:
            a, b, c, e = columns4(X, k + j, d)
        else:
            a, b, c = last_columns(X, k + j, d, d - j)
            e = z
        at = j * ROWS + place
        store(tile, at, a)
        store(tile, at + ROWS, b)
        store(tile, at + 2 * ROWS, c)
        store(tile, at + 3 * ROWS, e)
        z = fma(b, w[j + 1], a * w[j]) + fma(e, w[j + 3], c * w[j + 2])
        if squares:
            q = fma(b, b, a * a) + fma(e, e, c * c)
        else:
            size = larger(larger(larger(larger(size, a), b), c), e)
    return z, q, size


@njit(**OPTIONS)
def narrow_dots(X, d, k, after, w, tile, place, squares):
    """Predictors and squared norms (or largest entries) of WIDTH rows from k on; up to NARROW columns.

    As much is asked for, from ``after`` on.
    """
    for j in range(0, WIDTH * d, ASKED):
        prefetch(X, after + j)
    size = bits(spread(0.0))
    z0, q0, size = _narrow_quad(X, d, k, 0, w, tile, place, squares, size)
    z1, q1, size = _narrow_quad(X, d, k, 1, w, tile, place, squares, size)
    z2, q2, size = _narrow_quad(X, d, k, 2, w, tile, place, squares, size)
    z3, q3, size = _narrow_quad(X, d, k, 3, w, tile, place, squares, size)
    return (z0 + z2) + (z1 + z3), (q0 + q2) + (q1 + q3) if squares else from_bits(size)


@njit(**OPTIONS)
def add_narrow_clipped(tile, d, k, c, acc):
    """Add ``c x``."""
    for j in range(d):
        at = (k * d + j) * WIDTH
        total = load(acc, at)
        for i in range(0, ROWS, WIDTH):
            total = total + bits(fma(load(c, k * ROWS + i), load(tile, j * ROWS + i), ROUND))
        store(acc, at, total)


@njit(**OPTIONS)
def add_narrow_clamped(tile, d, k, c, bound, per_unit, acc):
    """Add ``clamp(c x)``."""
    for j in range(d):
        at = (k * d + j) * WIDTH
        total = load(acc, at)
        for i in range(0, ROWS, WIDTH):
            value = clamped(load(c, k * ROWS + i) * load(tile, j * ROWS + i), bound)
            total = total + bits(fma(value, per_unit, ROUND))
        store(acc, at, total)


@njit(**OPTIONS)
def add_narrow_near(tile, d, k, one, three, acc):
    """Add psi of rows in its core, and nothing where ``one`` and ``three`` are 0."""
    for j in range(d):
        at = (k * d + j) * WIDTH
        total = load(acc, at)
        for i in range(0, ROWS, WIDTH):
            total = total + near_bits(load(tile, j * ROWS + i), load(one, k * ROWS + i), load(three, k * ROWS + i))
        store(acc, at, total)


@njit(**INLINE)
def _beyond(tile, line, c, r, p, table, cells):
    """Psi of one column, (ROWS,)."""
    return psi(
        load(c, r) * load(tile, line),
        load(c, r + WIDTH) * load(tile, line + WIDTH),
        load(c, r + 2 * WIDTH) * load(tile, line + 2 * WIDTH),
        load(c, r + 3 * WIDTH) * load(tile, line + 3 * WIDTH),
        p,
        table,
        cells,
    )


@njit(**OPTIONS)
def add_narrow_far(tile, d, k, start, c, p, table, cells, acc):
    """Add psi of rows beyond its core, and nothing where c is 0; the tile begins at line ``start``."""
    for j in range(d):
        at = (k * d + j) * WIDTH
        u, v, w, x = _beyond(tile, (start + j) * ROWS, c, k * ROWS, p, table, cells)
        store(acc, at, load(acc, at) + ((u + v) + (w + x)))


@njit(**OPTIONS)
def add_narrow_smoothed(tile, d, k, one, three, c, p, table, cells, acc, far):
    """Add psi of rows of which some are in its core, to ``acc``: there c is 0; the others add to ``far``."""
    for j in range(d):
        at = (k * d + j) * WIDTH
        u, v, w, x = _beyond(tile, j * ROWS, c, k * ROWS, p, table, cells)
        store(far, at, load(far, at) + ((u + v) + (w + x)))
        total = load(acc, at)
        for i in range(0, ROWS, WIDTH):
            total = total + near_bits(load(tile, j * ROWS + i), load(one, k * ROWS + i), load(three, k * ROWS + i))
        store(acc, at, total)
