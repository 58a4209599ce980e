"""Tiles of wide tables: rows are read a second time as they are, eight columns in the lanes.

Multipliers of output k stand from ``k ROWS`` on, its sums from ``k width`` on.
"""

from __future__ import annotations

from numba import njit

from tailguard.kernels.lanes import WIDTH, bits, columns4, fma, from_bits, load, prefetch, spread, store
from tailguard.kernels.rule import INLINE, OPTIONS, ROUND, clamped, psi
from tailguard.kernels.tiles import AHEAD, COORDINATE, GROUPS, L2, ROWS, add_rounded, larger, last_columns, near_bits


@njit(**INLINE)
def _to_lane(lanes, which, quad, term):
    """Add a quad's terms to its lane of one of two sums; the first of a lane begins it."""
    place = (16 * which + (quad & 15)) * WIDTH
    store(lanes, place, load(lanes, place) + term if quad >= 16 else term)


@njit(**INLINE)
def _by_halves(lanes, which, count):
    """Add ``count`` of 16 lanes by halves: r and r + 8, r and r + 4, ..."""
    start = 16 * which * WIDTH
    half = 8
    while half > 0:
        for r in range(half, count):
            place = start + (r - half) * WIDTH
            store(lanes, place, load(lanes, place) + load(lanes, start + r * WIDTH))
        count = min(count, half)
        half //= 2
    return load(lanes, start)


@njit(**OPTIONS)
def wide_dots(X, d, k, stride, ahead, w, lanes, squares):
    """The same for any number of columns; ``lanes`` is room for both sums, (2, 16, WIDTH)."""
    size = bits(spread(0.0))
    line = ahead * 64 // AHEAD  # entries of a cache line, a power of two
    for quad in range(d // 4):
        j = 4 * quad
        if j & (line - 1) == 0:
            prefetch(X, k + j + ahead, stride)
        a, b, c, e = columns4(X, k + j, stride)
        _to_lane(lanes, 0, quad, fma(b, w[j + 1], a * w[j]) + fma(e, w[j + 3], c * w[j + 2]))
        if squares:
            _to_lane(lanes, 1, quad, fma(b, b, a * a) + fma(e, e, c * c))
        else:
            size = larger(larger(larger(larger(size, a), b), c), e)
    quad = d // 4
    j = 4 * quad
    if j < d:
        a, b, c = last_columns(X, k + j, stride, d - j)
        _to_lane(lanes, 0, quad, fma(b, w[j + 1], a * w[j]) + c * w[j + 2])
        if squares:
            _to_lane(lanes, 1, quad, fma(b, b, a * a) + c * c)
        else:
            size = larger(larger(larger(size, a), b), c)
    count = min(16, (d + 3) // 4)
    z = _by_halves(lanes, 0, count)
    return z, _by_halves(lanes, 1, count) if squares else from_bits(size)


@njit(**INLINE)
def _chunk(d, b):
    """The first column of the b-th eight; the last ones end with the last column and repeat some before.

    Sums are kept by eights, and of the last only what is not there yet is taken in the end.
    """
    return min(WIDTH * b, d - WIDTH)


@njit(**INLINE)
def _product_bits(X, place, c, i):
    """One row times its multiplier, rounded, in eight columns."""
    return bits(fma(load(X, place), c[i], ROUND))


@njit(**INLINE)
def _four(total, X, place, stride, c, i):
    """Add four rows, times their multipliers, to eight columns."""
    return total + (
        (_product_bits(X, place, c, i) + _product_bits(X, place + stride, c, i + 1))
        + (_product_bits(X, place + 2 * stride, c, i + 2) + _product_bits(X, place + 3 * stride, c, i + 3))
    )


@njit(**OPTIONS)
def add_wide_clipped(X, d, start, stride, k, c, width, acc):
    """Add ``c x``."""
    for b in range((d + 7) // 8):
        at = k * width + WIDTH * b
        total = load(acc, at)
        for group in range(GROUPS):
            place = start + group * d + _chunk(d, b)
            i = k * ROWS + WIDTH * group
            total = _four(total, X, place, stride, c, i)
            total = _four(total, X, place + 4 * stride, stride, c, i + 4)
        store(acc, at, total)


@njit(**OPTIONS)
def add_wide_clamped(X, d, start, stride, k, c, bound, per_unit, width, acc):
    """Add ``clamp(c x)``."""
    for b in range((d + 7) // 8):
        at = k * width + WIDTH * b
        total = load(acc, at)
        for i in range(ROWS):
            x = load(X, start + (i // WIDTH) * d + (i % WIDTH) * stride + _chunk(d, b))
            total = total + bits(fma(clamped(x * c[k * ROWS + i], bound), per_unit, ROUND))
        store(acc, at, total)


@njit(**INLINE)
def _four_near(total, X, place, stride, one, three, i):
    """Add psi of four rows to eight columns."""
    return total + (
        (near_bits(load(X, place), one[i], three[i]) + near_bits(load(X, place + stride), one[i + 1], three[i + 1]))
        + (
            near_bits(load(X, place + 2 * stride), one[i + 2], three[i + 2])
            + near_bits(load(X, place + 3 * stride), one[i + 3], three[i + 3])
        )
    )


@njit(**OPTIONS)
def add_wide_near(X, d, start, stride, k, one, three, width, acc):
    """Add psi of rows in its core, and nothing where ``one`` and ``three`` are 0."""
    for b in range((d + 7) // 8):
        at = k * width + WIDTH * b
        total = load(acc, at)
        for group in range(GROUPS):
            place = start + group * d + _chunk(d, b)
            i = k * ROWS + WIDTH * group
            total = _four_near(total, X, place, stride, one, three, i)
            total = _four_near(total, X, place + 4 * stride, stride, one, three, i + 4)
        store(acc, at, total)


@njit(**OPTIONS)
def add_wide_far(X, d, places, k, c, p, table, cells, width, acc):
    """Add psi of four rows, whose places and multipliers stand from ``k ROWS`` on."""
    r = k * ROWS
    for b in range((d + 7) // 8):
        at = k * width + WIDTH * b
        j = _chunk(d, b)
        u, v, w, x = psi(
            load(X, places[r] + j) * c[r],
            load(X, places[r + 1] + j) * c[r + 1],
            load(X, places[r + 2] + j) * c[r + 2],
            load(X, places[r + 3] + j) * c[r + 3],
            p,
            table,
            cells,
        )
        store(acc, at, load(acc, at) + ((u + v) + (w + x)))


@njit(**OPTIONS)
def add_wide_row(X, d, place, k, kind, c, three, bound, per_unit, width, acc):
    """Add one row: ``c x``, clamped, or psi in its core."""
    for b in range((d + 7) // 8):
        at = k * width + WIDTH * b
        x = load(X, place + _chunk(d, b))
        if kind == L2:
            add_rounded(acc, at, x, c)
        elif kind == COORDINATE:
            add_rounded(acc, at, clamped(x * c, bound), per_unit)
        else:
            add_rounded(acc, at, x, fma(three, x * x, c))
