r"""Sums over rows of truncated per-row gradients, exactly, in one pass over the data.

A generalised linear loss has the gradient ``dz(z, y) * x`` in one row, with ``z = <w, x>``. Rows are taken in tiles of
a few lanes (`tailguard.kernels.lanes`): the predictors of a tile and the squared norms or the largest entries of its
rows; from them multipliers, and which rows are plain; then the truncated rows are added while they are still in the
fastest cache. What one row adds is fixed to the last bit in `tailguard.kernels.rule`.

*Streams.* The eight lanes of a tile are eight rows far apart: lane l reads the l-th eighth of the rows, from first to
last. A processor foresees eight streams of consecutive addresses, and does not foresee eight neighbouring rows of a
tile, read side by side.

*Narrow and wide.* In a narrow table a tile is kept transposed, one row per lane, so that few columns fill the
lanes too. In a wide one rows are read again as they are, eight columns in the lanes.

Rows that are not numbers
-------------------------
=====================================  =======================================================
row                                    contribution
=====================================  =======================================================
an entry of NaN, in a gradient         0: the predictor is NaN
an entry of NaN, in a mean             0 in that coordinate
an entry of +-inf                      as if it were +-1.797e308
a predictor that overflows             its multiplier is +-inf and goes through the truncation
a multiplier of NaN (as inf - inf)     0
=====================================  =======================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba import njit

from tailguard.kernels.lanes import WIDTH, bits, columns1, keep, load, mask, pointer, spread, sqrt, store, where
from tailguard.kernels.narrow import (
    add_narrow_clamped,
    add_narrow_clipped,
    add_narrow_near,
    add_narrow_smoothed,
    narrow_dots,
)
from tailguard.kernels.rule import (
    GIVEN,
    HUBER,
    INLINE,
    LOGISTIC,
    OPTIONS,
    POISSON,
    ROUND,
    ROUND_BITS,
    SQUARED,
    add_clamped_row,
    add_clipped_row,
    add_smoothed_row,
    careful_dot,
    clamped,
    derivative,
    derivatives,
    psi,
    row_sum,
    size_of,
)
from tailguard.kernels.tiles import AHEAD, COORDINATE, GROUPS, L2, NARROW, ROWS, SMOOTH
from tailguard.kernels.wide import (
    add_wide_clamped,
    add_wide_clipped,
    add_wide_far,
    add_wide_near,
    add_wide_row,
    wide_dots,
)

__all__ = [
    "COORDINATE",
    "GIVEN",
    "HUBER",
    "L2",
    "LOGISTIC",
    "POISSON",
    "SMOOTH",
    "SQUARED",
    "derivative",
    "fill_multipliers",
    "predict",
    "truncated_sum",
]


@njit(**OPTIONS)
def _padded(w, d):
    """Weights of the columns, and zeros up to a whole number of quads, at least those of a narrow table."""
    out = np.zeros(max(NARROW, (d + 3) // 4 * 4))
    out[:d] = w[:d]
    return out


@njit(**OPTIONS)
def predict(X, w, fit_intercept, z):
    """Fill ``z[i, k] = <w_k, x_i> (+ intercept_k)``; w is (K, d + fit_intercept), X C-contiguous."""
    n, d = X.shape
    lanes, found = np.empty((2, 16, WIDTH)), np.empty(WIDTH)
    ahead = AHEAD // X.itemsize
    few = np.zeros((WIDTH, d), X.dtype)  # so many rows at least
    few[: min(n, WIDTH)] = X[:WIDTH]
    for k in range(w.shape[0]):
        weights = _padded(w[k], d)
        intercept = w[k, d] if fit_intercept else 0.0
        for start in range(0, n, WIDTH):
            # The last rows are taken together with some before them, whose predictors do not change.
            begin = max(0, min(start, n - WIDTH))
            if n < WIDTH:
                value, _ = wide_dots(pointer(few), d, 0, d, ahead, pointer(weights), pointer(lanes), True)
            else:
                value, _ = wide_dots(pointer(X), d, begin * d, d, ahead, pointer(weights), pointer(lanes), True)
            store(pointer(found), 0, value + intercept)
            for i in range(begin, min(n, begin + WIDTH)):
                value = found[i - begin]
                z[i, k] = value if math.isfinite(value) else careful_dot(X[i], weights) + intercept
    keep((few, lanes))


@njit(**OPTIONS)
def fill_multipliers(X, y, w, fit_intercept, code, parameter, given, f):
    """Fill the multipliers ``f[k, i]`` of all rows; X is C-contiguous."""
    n = X.shape[0]
    if code == GIVEN:
        f[:, :] = given[:n].T
        return
    z = np.empty((n, 1))
    predict(X, w[:1], fit_intercept, z)
    for i in range(n):
        f[0, i] = derivative(code, parameter, z[i, 0], np.float64(y[i]))


@njit(**INLINE)
def _count(truths):
    """How many bits are set."""
    found = 0
    while truths:
        truths &= truths - 1
        found += 1
    return found


@njit(**OPTIONS)
def _add_one_row(
    x, y, w, intercept, fit_intercept, code, parameter, given, kind, bound, per_unit, p, table, cubic, core, total
):
    """Add one row, whatever is in it; ``given`` are its multipliers where the loss has no code."""
    f = given
    if code != GIVEN:
        terms = np.empty(x.size)
        for j in range(x.size):
            if x[j] != x[j]:
                return  # a predictor of NaN
            terms[j] = np.float64(x[j]) * w[j]
        z = row_sum(terms) + intercept
        if not math.isfinite(z):
            z = careful_dot(x, w) + intercept
        f = np.full(1, derivative(code, parameter, z, y))
    if kind == L2:
        add_clipped_row(x, f, bound, per_unit, fit_intercept, total)
    elif kind == COORDINATE:
        add_clamped_row(x, f, bound, per_unit, fit_intercept, total)
    else:
        add_smoothed_row(x, f, bound, per_unit, fit_intercept, p, table, cubic, core, total)


@njit(**OPTIONS)
def _add_tiles(
    X, y, w, fit_intercept, code, parameter, given, kind, bound, per_unit, p, table, cubic, core, length, here, total
):
    """Add rows in tiles: lane l takes rows ``l length`` to ``(l + 1) length``, of which the first ``here`` exist."""
    d = X.shape[1]
    outputs = total.shape[0]
    wide = d > NARROW
    weights = _padded(w[0], d)
    intercept = w[0, d] if fit_intercept else 0.0
    height = bound * per_unit
    stride = length * d
    acc = np.zeros((outputs, (d + 31) // 32 * 32 if wide else d * WIDTH), np.int64)
    last = np.zeros((outputs, WIDTH), np.int64)  # sums of the intercept's coordinate
    added = np.zeros(outputs, np.int64)  # rows in acc, each of which brought ROUND_BITS
    tile, lanes = np.zeros((NARROW, ROWS)), np.empty((2, 16, WIDTH))
    c, three, far = np.zeros((outputs, ROWS)), np.zeros((outputs, ROWS)), np.zeros((outputs, ROWS))
    singles = np.array(p, np.float32)
    some_far, slopes = np.zeros(outputs, np.int64), np.zeros(outputs)
    waiting, waiting_c = np.zeros((outputs, NARROW, ROWS)), np.zeros((outputs, ROWS))
    nothing, count = np.zeros((outputs, ROWS)), np.zeros(outputs, np.int64)
    width, ahead, cells = acc.shape[1], AHEAD // X.itemsize, table.shape[0]
    X_at, y_at, w_at, p_at, table_at = pointer(X), pointer(y), pointer(weights), pointer(singles), pointer(table)
    tile_at, lanes_at, acc_at, last_at = pointer(tile), pointer(lanes), pointer(acc), pointer(last)
    c_at, three_at, far_at = pointer(c), pointer(three), pointer(far)
    waiting_at, nothing_at = pointer(waiting_c), pointer(nothing)
    for t in range(0, length, GROUPS):
        odd = 0
        some_far[:] = 0
        for group in range(GROUPS):
            place = WIDTH * group
            row = t + group
            if wide:
                z, q = wide_dots(X_at, d, row * d, stride, ahead, w_at, lanes_at, kind == L2)
            else:
                z, q = narrow_dots(X_at, d, row * d, stride, ahead, w_at, tile_at, place, kind == L2)
            exists = WIDTH * length <= here
            real = 255
            if not exists:
                real = 0
                for lane in range(WIDTH):
                    real |= (row + lane * length < here) << lane
            # Multipliers
            plain = size_of(spread(0.0)) < 1.0
            if code == GIVEN:
                for k in range(outputs):
                    for lane in range(WIDTH):
                        c[k, place + lane] = given[row + lane * length, k]
            else:
                z = z + intercept
                plain = size_of(z) < np.inf
                store(c_at, place, derivatives(code, parameter, z, columns1(y_at, row, length)[0]))
            # Which rows are plain, and what multiplies them
            if kind == L2:
                if fit_intercept:
                    q = q + 1.0
                g = spread(0.0)
                for k in range(outputs):
                    f = load(c_at, k * ROWS + place)
                    g = g + f * f
                # Products of numbers in this range neither overflow nor lose digits; zeros add nothing either way.
                plain = plain & (q < 1e140) & (g < 1e140)
                plain = plain & ((q > 1e-140) | (q == 0.0)) & ((g > 1e-140) | (g == 0.0))
                norm = sqrt(q * g)
                factor = per_unit * (bound / where(norm > bound, norm, bound))
                for k in range(outputs):
                    store(c_at, k * ROWS + place, where(plain, load(c_at, k * ROWS + place) * factor, 0.0))
            elif kind == COORDINATE:
                plain = plain & (q < np.inf)
                for k in range(outputs):
                    plain = plain & (size_of(load(c_at, k * ROWS + place)) < np.inf)
                for k in range(outputs):
                    store(c_at, k * ROWS + place, where(plain, load(c_at, k * ROWS + place), 0.0))
            else:
                if fit_intercept:
                    q = where(q < 1.0, 1.0, q)
                plain = plain & (q < 1e30)
                for k in range(outputs):
                    u = load(c_at, k * ROWS + place) / bound
                    store(c_at, k * ROWS + place, u)
                    plain = plain & (size_of(u) < 1e30)
                for k in range(outputs):
                    u = where(plain, load(c_at, k * ROWS + place), 0.0)
                    inside = size_of(u) * where(plain, q, 0.0) <= core
                    beyond = where(inside, 0.0, u)
                    u = where(inside, u, 0.0)
                    one = u * height
                    store(c_at, k * ROWS + place, one)
                    store(three_at, k * ROWS + place, one * cubic * u * u)
                    store(far_at, k * ROWS + place, beyond)
                    some_far[k] |= (255 - mask(inside)) << place
            missing = (255 - mask(plain)) & real
            odd |= missing << place
            if missing or real != 255:
                # Nothing is left of rows that do not count.
                counts = mask(plain) & real
                for lane in range(WIDTH):
                    if not (counts >> lane) & 1:
                        for k in range(outputs):
                            c[k, place + lane] = three[k, place + lane] = far[k, place + lane] = 0.0
                            some_far[k] &= ~(1 << (place + lane))
                        for j in range(NARROW):
                            tile[j, place + lane] = 0.0
        if odd:
            for i in range(ROWS):
                if (odd >> i) & 1:
                    row = t + i // WIDTH + (i % WIDTH) * length
                    if code == GIVEN:
                        slopes[:] = given[row]
                    _add_one_row(
                        X[row], np.float64(y[row]), weights, intercept, fit_intercept, code, parameter, slopes,
                        kind, bound, per_unit, singles, table, cubic, core, total,
                    )  # fmt: skip
        for k in range(outputs):
            if not wide:
                added[k] += ROWS
                if kind == L2:
                    add_narrow_clipped(tile_at, d, k, c_at, acc_at)
                elif kind == COORDINATE:
                    add_narrow_clamped(tile_at, d, k, c_at, bound, per_unit, acc_at)
                elif _count(some_far[k]) > ROWS // 2:
                    add_narrow_smoothed(tile_at, d, k, 0, c_at, three_at, far_at, height, p_at, table_at, cells, acc_at)
                else:
                    add_narrow_near(tile_at, d, k, c_at, three_at, acc_at)
                    for i in range(ROWS):
                        if (some_far[k] >> i) & 1:
                            # Few rows wait for others: psi takes as long for one as for all of a tile.
                            for j in range(d):
                                waiting[k, j, count[k]] = tile[j, i]
                            waiting_c[k, count[k]] = far[k, i]
                            count[k] += 1
                            if count[k] == ROWS:
                                add_narrow_smoothed(
                                    pointer(waiting), d, k, k * NARROW, nothing_at, nothing_at, waiting_at, height,
                                    p_at, table_at, cells, acc_at,
                                )  # fmt: skip
                                added[k] += ROWS
                                count[k] = 0
            else:
                if odd:
                    # Row by row, without those whose entries may not be numbers: 0 times them is not 0.
                    for i in range(ROWS):
                        if not ((odd | some_far[k]) >> i) & 1:
                            place = (t + i // WIDTH + (i % WIDTH) * length) * d
                            add_wide_row(X_at, d, place, k, kind, c[k, i], three[k, i], bound, per_unit, width, acc_at)
                            added[k] += 1
                else:
                    added[k] += ROWS
                    if kind == L2:
                        add_wide_clipped(X_at, d, t * d, stride, k, c_at, width, acc_at)
                    elif kind == COORDINATE:
                        add_wide_clamped(X_at, d, t * d, stride, k, c_at, bound, per_unit, width, acc_at)
                    else:
                        add_wide_near(X_at, d, t * d, stride, k, c_at, three_at, width, acc_at)
                if some_far[k]:
                    for i in range(ROWS):
                        if (some_far[k] >> i) & 1:
                            place = (t + i // WIDTH + (i % WIDTH) * length) * d
                            add_wide_far(X_at, d, place, k, far[k, i], height, p_at, table_at, cells, width, acc_at)
                            added[k] += 1
            if fit_intercept:
                for i in range(0, ROWS, WIDTH):
                    value = load(c_at, k * ROWS + i)
                    if kind == COORDINATE:
                        value = clamped(value, bound) * per_unit
                    elif kind == SMOOTH:
                        u = load(far_at, k * ROWS + i)
                        u = psi(u, u, u, u, p_at, table_at, cells)[0]
                        value = (value - load(three_at, k * ROWS + i)) + u * height  # one of them is 0
                    store(last_at, k * WIDTH, load(last_at, k * WIDTH) + bits(value + ROUND))
    for k in range(outputs):
        if count[k] > 0:
            waiting_c[k, count[k] :] = 0.0
            add_narrow_smoothed(
                pointer(waiting), d, k, k * NARROW, nothing_at, nothing_at, waiting_at, height, p_at, table_at, cells,
                acc_at,
            )  # fmt: skip
            added[k] += ROWS
        for j in range(d):
            if wide:
                whole = d // WIDTH * WIDTH
                total[k, j] += acc[k, j if j < whole else whole + j - (d - WIDTH)] - added[k] * ROUND_BITS
            else:
                total[k, j] += acc[k, WIDTH * j : WIDTH * (j + 1)].sum() - added[k] * ROUND_BITS
        if fit_intercept:
            total[k, d] += last[k].sum() - length * WIDTH * ROUND_BITS
    keep((X, y, weights, singles, table, tile, lanes, acc, last, c, three, far, waiting, waiting_c, nothing))


def _truncated_sum(
    X, y, w, fit_intercept, code, parameter, given, kind, bound, per_unit, psi, table, cubic, core, total
):
    """Add the truncated gradients of all rows, in units, to the integers ``total`` (K, d + fit_intercept).

    ``kind`` picks the truncation and ``bound`` is its clip or scale; X must be C-contiguous.
    """
    n = len(X)
    length = n // ROWS * GROUPS
    whole = length * WIDTH
    rules = (kind, bound, per_unit, psi, table, cubic, core)
    if length:
        _add_tiles(X, y, w, fit_intercept, code, parameter, given, *rules, length, whole, total)
    if whole < n:
        # One more tile, filled up.
        filled = [_filled(part[whole:]) for part in (X, y, given)]
        _add_tiles(filled[0], filled[1], w, fit_intercept, code, parameter, filled[2], *rules, GROUPS, n - whole, total)


# Engines unpack tuples into it, whose entries mypy does not count.
truncated_sum: Callable[..., None] = _truncated_sum


def _filled(part):
    """Rows of a tile, the last of them zeros; to be read only if the rows are."""
    out = np.zeros((ROWS, *part.shape[1:]), part.dtype)
    out[: len(part)] = part
    out.flags.writeable = part.flags.writeable
    return out
