"""Tiles of wide tables: rows are read a second time as they are, eight columns in the lanes.

*Asking.* The rows of a tile are read from the second cache, then once more from the first, and memory itself would be
idle. So later rows are asked for all the time, in the order in which they lie, from a place ``after`` on: three
quarters of them while a tile is read first, one while it is read again, which is how the two share the time.

Multipliers of output k stand from ``k ROWS`` on, its sums from ``k width`` on.
"""

from __future__ import annotations

from tailguard.kernels.codes import COORDINATE, L2
from tailguard.kernels.compiling import njit
from tailguard.kernels.lanes import ASKED, WIDTH, bits, columns4, fma, from_bits, load, prefetch, spread, store
from tailguard.kernels.rule import INLINE, OPTIONS, ROUND, clamped, psi
from tailguard.kernels.tiles import ROWS, add_rounded, larger, last_columns, near_bits


@njit(**INLINE)
def _to_lane(lanes, which, quad, term):
    """Add a quad's terms to its lane of one of two sums; the first of a lane begins it."""
    place = (16 * which + (quad & 15)) * WIDTH
    store(lanes, place, load(lanes, place) + term if quad >= 16 else term)


@njit(**INLINE)
def _quarter(lanes, which, r):
    """Lanes r, r + 4, ..., after two halvings."""
    at = (16 * which + r) * WIDTH
    near = load(lanes, at) + load(lanes, at + 8 * WIDTH)
    return near + (load(lanes, at + 4 * WIDTH) + load(lanes, at + 12 * WIDTH))


@njit(**INLINE)
def _by_halves(lanes, which):
    """Add 16 lanes by halves: r and r + 8, r and r + 4, ..."""
    a, b = _quarter(lanes, which, 0), _quarter(lanes, which, 1)
    c, e = _quarter(lanes, which, 2), _quarter(lanes, which, 3)
    return (a + c) + (b + e)


@njit(**OPTIONS)
def wide_dots(X, d, k, after, w, lanes, squares):
    """The same for any number of columns, and where to ask next.

    ``lanes`` is room for both sums, (2, 16, WIDTH), zeros at first: where there are fewer quads than lanes, the others
    stay so.
    """
    size = bits(spread(0.0))
    for quad in range(d // 4):
        j = 4 * quad
        if quad & 1 == 0:
            # 48 entries, of 8 x 8
            prefetch(X, after)
            prefetch(X, after + ASKED)
            prefetch(X, after + 2 * ASKED)
            after += 3 * ASKED
        a, b, c, e = columns4(X, k + j, d)
        _to_lane(lanes, 0, quad, fma(b, w[j + 1], a * w[j]) + fma(e, w[j + 3], c * w[j + 2]))
        if squares:
            _to_lane(lanes, 1, quad, fma(b, b, a * a) + fma(e, e, c * c))
        else:
            size = larger(larger(larger(larger(size, a), b), c), e)
    quad = d // 4
    j = 4 * quad
    if j < d:
        a, b, c = last_columns(X, k + j, d, d - j)
        _to_lane(lanes, 0, quad, fma(b, w[j + 1], a * w[j]) + c * w[j + 2])
        if squares:
            _to_lane(lanes, 1, quad, fma(b, b, a * a) + c * c)
        else:
            size = larger(larger(larger(size, a), b), c)
    return _by_halves(lanes, 0), _by_halves(lanes, 1) if squares else from_bits(size), after


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
def _four(total, X, place, d, c, i):
    """Add four rows, times their multipliers, to eight columns."""
    return total + (
        (_product_bits(X, place, c, i) + _product_bits(X, place + d, c, i + 1))
        + (_product_bits(X, place + 2 * d, c, i + 2) + _product_bits(X, place + 3 * d, c, i + 3))
    )


@njit(**OPTIONS)
def add_wide_clipped(groups, X, d, start, after, k, c, width, acc):
    """Add ``c x``."""
    for b in range((d + 7) // 8):
        at = k * width + WIDTH * b
        total = load(acc, at)
        for group in range(groups):
            prefetch(X, after)  # 16 entries, of 8 x 8
            after += ASKED
            place = start + WIDTH * group * d + _chunk(d, b)
            i = k * ROWS + WIDTH * group
            total = _four(total, X, place, d, c, i)
            total = _four(total, X, place + 4 * d, d, c, i + 4)
        store(acc, at, total)


@njit(**OPTIONS)
def add_wide_clamped(groups, X, d, start, after, k, c, bound, per_unit, width, acc):
    """Add ``clamp(c x)``."""
    for b in range((d + 7) // 8):
        at = k * width + WIDTH * b
        total = load(acc, at)
        for i in range(WIDTH * groups):
            if i % WIDTH == 0:
                prefetch(X, after)
                after += ASKED
            x = load(X, start + i * d + _chunk(d, b))
            total = total + bits(fma(clamped(x * c[k * ROWS + i], bound), per_unit, ROUND))
        store(acc, at, total)


@njit(**INLINE)
def _four_near(total, X, place, d, one, three, i):
    """Add psi of four rows to eight columns."""
    return total + (
        (near_bits(load(X, place), one[i], three[i]) + near_bits(load(X, place + d), one[i + 1], three[i + 1]))
        + (
            near_bits(load(X, place + 2 * d), one[i + 2], three[i + 2])
            + near_bits(load(X, place + 3 * d), one[i + 3], three[i + 3])
        )
    )


@njit(**OPTIONS)
def add_wide_near(groups, X, d, start, after, k, one, three, width, acc):
    """Add psi of rows in its core, and nothing where ``one`` and ``three`` are 0."""
    for b in range((d + 7) // 8):
        at = k * width + WIDTH * b
        total = load(acc, at)
        for group in range(groups):
            prefetch(X, after)  # 16 entries, of 8 x 8
            after += ASKED
            place = start + WIDTH * group * d + _chunk(d, b)
            i = k * ROWS + WIDTH * group
            total = _four_near(total, X, place, d, one, three, i)
            total = _four_near(total, X, place + 4 * d, d, one, three, i + 4)
        store(acc, at, total)


@njit(**OPTIONS)
def add_wide_far(X, d, places, after, k, c, p, table, cells, width, acc):
    """Add psi of four rows, whose places and multipliers stand from ``k ROWS`` on; where to ask next."""
    r = k * ROWS
    for b in range((d + 7) // 8):
        if b & 1 == 0:
            prefetch(X, after)
            after += ASKED
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
    return after


@njit(**OPTIONS)
def add_wide_row(X, d, place, after, k, kind, c, three, bound, per_unit, width, acc):
    """Add one row: ``c x``, clamped, or psi in its core; where to ask next."""
    for b in range((d + 7) // 8):
        if b & 7 == 0:
            prefetch(X, after)
            after += ASKED
        at = k * width + WIDTH * b
        x = load(X, place + _chunk(d, b))
        if kind == L2:
            add_rounded(acc, at, x, c)
        elif kind == COORDINATE:
            add_rounded(acc, at, clamped(x * c, bound), per_unit)
        else:
            add_rounded(acc, at, x, fma(three, x * x, c))
    return after
