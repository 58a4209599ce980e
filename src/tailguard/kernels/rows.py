r"""Sums over rows of truncated per-row gradients, exactly, in one pass over the data.

A generalised linear loss has the gradient ``dz(z, y) * x`` in one row, with ``z = <w, x>``. Rows are taken in tiles of
a few lanes (`tailguard.kernels.lanes`): the predictors of a tile and the squared norms or the largest entries of its
rows; from them multipliers, and which rows are plain (`tailguard.kernels.multipliers`); then the truncated rows are
added while they are still in the fastest cache. What one row adds is fixed to the last bit in `tailguard.kernels.rule`.

*Memory.* A tile is neighbouring rows, and rows are read in the order in which they lie. A processor foresees
consecutive addresses, but not rows read side by side, so that later ones are asked for all the time
(`tailguard.kernels.wide`): the step takes little longer than reading its rows alone.

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

from tailguard.kernels import multipliers
from tailguard.kernels.codes import COORDINATE, GIVEN, L2, SMOOTH
from tailguard.kernels.compiling import njit
from tailguard.kernels.lanes import (
    ASKED,
    WIDTH,
    bits,
    bits_set,
    keep,
    load,
    lowest,
    pointer,
    prefetch,
    store,
)
from tailguard.kernels.narrow import (
    add_narrow_clamped,
    add_narrow_clipped,
    add_narrow_far,
    add_narrow_near,
    add_narrow_smoothed,
    narrow_dots,
)
from tailguard.kernels.rule import (
    OPTIONS,
    ROUND,
    ROUND_BITS,
    add_clamped_row,
    add_clipped_row,
    add_smoothed_row,
    careful_dot,
    clamped,
    derivative,
    dot,
    psi,
    psi_in_units,
)
from tailguard.kernels.tiles import AHEAD, NARROW, ROWS, groups_of
from tailguard.kernels.wide import (
    add_wide_clamped,
    add_wide_clipped,
    add_wide_far,
    add_wide_near,
    add_wide_row,
    wide_dots,
)

__all__ = [
    "derivative",
    "fill_multipliers",
    "predict",
    "truncated_sum",
]


@njit(**OPTIONS)
def _padded(w, d):
    """Weights of the columns, and zeros up to a whole number of quads, at least those of a narrow table."""
    out = np.zeros(max(NARROW, (d + 3) // 4 * 4))
    for j in range(d):  # a slice would do, and takes two seconds more to compile; so with others below
        out[j] = w[j]
    return out


@njit(**OPTIONS)
def predict(X, w, fit_intercept, z):
    """Fill ``z[i, k] = <w_k, x_i> (+ intercept_k)``; w is (K, d + fit_intercept), X C-contiguous."""
    n, d = X.shape
    lanes, tile, found = np.zeros((2, 16, WIDTH)), np.empty((NARROW, ROWS)), np.empty(WIDTH)
    ahead = AHEAD // X.itemsize
    few = np.zeros((WIDTH, d), X.dtype)  # so many rows at least
    few[: min(n, WIDTH)] = X[:WIDTH]
    rows = pointer(few) if n < WIDTH else pointer(X)
    for k in range(w.shape[0]):
        weights = _padded(w[k], d)
        intercept = w[k, d] if fit_intercept else 0.0
        for start in range(0, n, WIDTH):
            # The last rows are taken together with some before them, whose predictors do not change.
            begin = max(0, min(start, n - WIDTH))
            at = begin * d
            after = at + ahead
            if d > NARROW:
                value, _, asked = wide_dots(rows, d, at, after, pointer(weights), pointer(lanes), False)
                for j in range(asked, after + WIDTH * d, ASKED):
                    prefetch(rows, j)
            else:
                value, _ = narrow_dots(rows, d, at, after, pointer(weights), pointer(tile), 0, False)
            store(pointer(found), 0, value + intercept)
            for i in range(begin, min(n, begin + WIDTH)):
                value = found[i - begin]
                z[i, k] = value if math.isfinite(value) else careful_dot(X[i], weights) + intercept
    keep((few, lanes, tile))


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


@njit(**OPTIONS)
def _add_one_row(
    x,
    y,
    w,
    intercept,
    fit_intercept,
    code,
    parameter,
    given,
    kind,
    bound,
    per_unit,
    root,
    shift,
    p,
    table,
    cubic,
    core,
    total,
):
    """Add one row, whatever is in it; ``given`` are its multipliers where the loss has no code."""
    f = given
    if code != GIVEN:
        for j in range(x.size):
            if x[j] != x[j]:
                return  # a predictor of NaN
        z = dot(x, w) + intercept
        if not math.isfinite(z):
            z = careful_dot(x, w) + intercept
        f = np.full(1, derivative(code, parameter, z, y))
    if kind == L2:
        add_clipped_row(x, f, bound, per_unit, fit_intercept, total)
    elif kind == COORDINATE:
        add_clamped_row(x, f, bound, per_unit, fit_intercept, total)
    else:
        add_smoothed_row(x, f, bound, per_unit, fit_intercept, root, shift, p, table, cubic, core, total)


@njit(**OPTIONS)
def _room(count, width):
    """Zeros, (count, width), from the beginning of a cache line on."""
    base = np.zeros(count * width + 7)
    skip = (-(base.ctypes.data // 8)) % 8
    return base[skip : skip + count * width].reshape((count, width))


@njit(**OPTIONS)
def _add_tiles(
    X,
    y,
    w,
    fit_intercept,
    code,
    parameter,
    given,
    kind,
    bound,
    per_unit,
    root,
    shift,
    p,
    table,
    cubic,
    core,
    here,
    total,
):
    """Add rows, a multiple of ROWS, of which the first ``here`` count."""
    n, d = X.shape
    outputs = total.shape[0]
    wide = d > NARROW
    weights = _padded(w[0], d)
    intercept = w[0, d] if fit_intercept else 0.0
    height, inverse = bound * per_unit, 1.0 / bound
    one = 1.0 if fit_intercept else 0.0
    groups = groups_of(d, X.itemsize)
    size = groups * WIDTH  # rows of a tile
    whole = (1 << size) - 1  # all of them, as bits
    acc = _room(outputs, (d + 7) // 8 * 8 if wide else d * WIDTH).view(np.int64)
    last = _room(outputs, WIDTH).view(np.int64)  # sums of the intercept's coordinate
    # Beyond the core of psi, in multiples of 2^shift units
    far_acc, far_last = _room(outputs, acc.shape[1]).view(np.int64), _room(outputs, WIDTH).view(np.int64)
    added = np.zeros(outputs, np.int64)  # rows in acc that brought ROUND_BITS
    tile, lanes, dots, sizes = _room(NARROW, ROWS), _room(32, WIDTH), _room(1, ROWS), _room(1, ROWS)
    c, three, far = _room(outputs, ROWS), _room(outputs, ROWS), _room(outputs, ROWS)
    some_far, single = np.zeros(outputs, np.int64), np.zeros(outputs)
    waiting, waiting_c = _room(outputs * NARROW, ROWS), _room(outputs, ROWS)
    places, count = np.zeros((outputs, ROWS), np.int64), np.zeros(outputs, np.int64)
    width, ahead, cells = acc.shape[1], AHEAD // X.itemsize, table.shape[0]
    X_at, y_at, w_at, p_at, table_at = pointer(X), pointer(y), pointer(weights), pointer(p), pointer(table)
    tile_at, lanes_at, dots_at, sizes_at = pointer(tile), pointer(lanes), pointer(dots), pointer(sizes)
    acc_at, last_at, c_at, three_at, far_at = pointer(acc), pointer(last), pointer(c), pointer(three), pointer(far)
    some_far_at, waiting_at, waiting_c_at, places_at = (
        pointer(some_far), pointer(waiting), pointer(waiting_c), pointer(places),
    )  # fmt: skip
    far_acc_at, far_last_at = pointer(far_acc), pointer(far_last)
    for t in range(0, n, size):
        after = t * d + max(ahead, size * d)  # what to ask for next
        for group in range(groups):
            place = (t + WIDTH * group) * d
            if wide:
                z, q, after = wide_dots(X_at, d, place, after, w_at, lanes_at, kind == L2)
            else:
                z, q = narrow_dots(X_at, d, place, place + ahead, w_at, tile_at, WIDTH * group, kind == L2)
            store(dots_at, WIDTH * group, z)
            store(sizes_at, WIDTH * group, q)
        # What multiplies the rows
        plain = whole
        if code == GIVEN:
            for i in range(size):
                for k in range(outputs):
                    c[k, i] = given[t + i, k]
        else:
            plain = multipliers.slopes(groups, dots_at, intercept, y_at, t, code, parameter, c_at)
        if kind == L2:
            plain &= multipliers.clip(groups, sizes_at, one, outputs, bound, per_unit, c_at)
        elif kind == COORDINATE:
            plain &= multipliers.clamp(groups, sizes_at, outputs, c_at)
        else:
            plain &= multipliers.smooth(
                groups, sizes_at, one, outputs, inverse, height, root, cubic, core, c_at, three_at, far_at, some_far_at
            )
        real = whole if t + size <= here else (1 << max(0, here - t)) - 1
        odd = real & ~plain
        left = whole & ~(real & plain)
        while left:
            # Nothing stays of rows that do not count here.
            i = lowest(left)
            left &= left - 1
            for k in range(outputs):
                c[k, i] = three[k, i] = far[k, i] = 0.0
                some_far[k] &= ~(1 << i)
            for j in range(NARROW):
                tile[j, i] = 0.0
        left = odd
        while left:
            i = lowest(left)
            left &= left - 1
            if code == GIVEN:
                for k in range(outputs):
                    single[k] = given[t + i, k]
            _add_one_row(
                X[t + i], np.float64(y[t + i]), weights, intercept, fit_intercept, code, parameter, single,
                kind, bound, per_unit, root, shift, p, table, cubic, core, total,
            )  # fmt: skip
        for k in range(outputs):
            if not wide:
                added[k] += size
                if kind == L2:
                    add_narrow_clipped(tile_at, d, k, c_at, acc_at)
                elif kind == COORDINATE:
                    add_narrow_clamped(tile_at, d, k, c_at, bound, per_unit, acc_at)
                elif bits_set(some_far[k]) > size // 2:
                    add_narrow_smoothed(
                        tile_at, d, k, c_at, three_at, far_at, p_at, table_at, cells, acc_at, far_acc_at
                    )
                else:
                    add_narrow_near(tile_at, d, k, c_at, three_at, acc_at)
                    left = some_far[k]
                    while left:
                        i = lowest(left)
                        left &= left - 1
                        # Few rows wait for others: psi takes as long for one as for all of a tile.
                        for j in range(d):
                            waiting[k * NARROW + j, count[k]] = tile[j, i]
                        waiting_c[k, count[k]] = far[k, i]
                        count[k] += 1
                        if count[k] == ROWS:
                            add_narrow_far(
                                waiting_at, d, k, k * NARROW, waiting_c_at, p_at, table_at, cells, far_acc_at
                            )
                            count[k] = 0
            else:
                ask = after  # each output anew: what is there already costs nothing
                if odd or bits_set(some_far[k]) > size // 2:
                    # Row by row, without those whose entries may not be numbers: 0 times them is not 0.
                    left = whole & ~(odd | some_far[k])
                    while left:
                        i = lowest(left)
                        left &= left - 1
                        ask = add_wide_row(
                            X_at, d, (t + i) * d, ask, k, kind, c[k, i], three[k, i], bound, per_unit, width, acc_at
                        )
                        added[k] += 1
                else:
                    added[k] += size
                    if kind == L2:
                        add_wide_clipped(groups, X_at, d, t * d, ask, k, c_at, width, acc_at)
                    elif kind == COORDINATE:
                        add_wide_clamped(groups, X_at, d, t * d, ask, k, c_at, bound, per_unit, width, acc_at)
                    else:
                        add_wide_near(groups, X_at, d, t * d, ask, k, c_at, three_at, width, acc_at)
                left = some_far[k]
                while left:
                    i = lowest(left)
                    left &= left - 1
                    # Four at a time: fewer would not fill the lanes, nor share the sums.
                    places[k, count[k]] = (t + i) * d
                    waiting_c[k, count[k]] = far[k, i]
                    count[k] += 1
                    if count[k] == 4:
                        ask = add_wide_far(
                            X_at, d, places_at, ask, k, waiting_c_at, p_at, table_at, cells, width, far_acc_at
                        )
                        count[k] = 0
            if fit_intercept:
                for i in range(0, size, WIDTH):
                    value = load(c_at, k * ROWS + i)
                    if kind == COORDINATE:
                        value = clamped(value, bound) * per_unit
                    elif kind == SMOOTH:
                        value = value + load(three_at, k * ROWS + i)
                    store(last_at, k * WIDTH, load(last_at, k * WIDTH) + bits(value + ROUND))
                if some_far[k]:
                    at = k * ROWS
                    far_sums = psi(
                        load(far_at, at), load(far_at, at + WIDTH), load(far_at, at + 2 * WIDTH),
                        load(far_at, at + 3 * WIDTH), p_at, table_at, cells,
                    )  # fmt: skip
                    beyond = (far_sums[0] + far_sums[1]) + (far_sums[2] + far_sums[3])
                    store(far_last_at, k * WIDTH, load(far_last_at, k * WIDTH) + beyond)
    for k in range(outputs):
        if count[k] > 0:
            # Places that nobody waits in have a multiplier of 0, and numbers to multiply.
            for i in range(count[k], ROWS):
                waiting_c[k, i] = 0.0
                places[k, i] = places[k, 0]
            if wide:
                add_wide_far(X_at, d, places_at, 0, k, waiting_c_at, p_at, table_at, cells, width, far_acc_at)
            else:
                add_narrow_far(waiting_at, d, k, k * NARROW, waiting_c_at, p_at, table_at, cells, far_acc_at)
        for j in range(d):
            if wide:
                whole = d // WIDTH * WIDTH
                at = j if j < whole else whole + j - (d - WIDTH)
                near_sum, far_sum = acc[k, at], far_acc[k, at]
            else:
                near_sum = far_sum = 0
                for i in range(WIDTH * j, WIDTH * (j + 1)):
                    near_sum += acc[k, i]
                    far_sum += far_acc[k, i]
            total[k, j] += (near_sum - added[k] * ROUND_BITS) + (far_sum << shift)
        if fit_intercept:
            near_sum = far_sum = 0
            for i in range(WIDTH):
                near_sum += last[k, i]
                far_sum += far_last[k, i]
            total[k, d] += (near_sum - n * ROUND_BITS) + (far_sum << shift)
    keep((X, y, weights, p, table, tile, lanes, dots, sizes, acc, last, c, three, far))
    keep((some_far, waiting, waiting_c, places, far_acc, far_last))


def _truncated_sum(
    X, y, w, fit_intercept, code, parameter, given, kind, bound, per_unit, psi, table, cubic, core, total
):
    """Add the truncated gradients of all rows, in units, to the integers ``total`` (K, d + fit_intercept).

    ``kind`` picks the truncation and ``bound`` is its clip or scale; X must be C-contiguous.
    """
    n = len(X)
    whole = n // ROWS * ROWS
    rules = (kind, bound, per_unit, *psi_in_units(psi, table, bound * per_unit), cubic, core)
    if whole:
        _add_tiles(X[:whole], y, w, fit_intercept, code, parameter, given, *rules, whole, total)
    if whole < n:
        # One more tile, filled up.
        filled = [_filled(part[whole:]) for part in (X, y, given)]
        _add_tiles(filled[0], filled[1], w, fit_intercept, code, parameter, filled[2], *rules, n - whole, total)


# Engines unpack tuples into it, whose entries mypy does not count.
truncated_sum: Callable[..., None] = _truncated_sum


def _filled(part):
    """Rows of a tile, the last of them zeros; to be read only if the rows are."""
    out = np.zeros((ROWS, *part.shape[1:]), part.dtype)
    out[: len(part)] = part
    out.flags.writeable = part.flags.writeable
    return out
