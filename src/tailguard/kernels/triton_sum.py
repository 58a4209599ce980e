r"""The kernels that read rows: the sum of truncated vectors, and predictors.

A program takes many tiles of rows, one after another, and holds B rows at a time, each in Q threads: see
`tailguard.kernels.triton_quads`. Rows that are not plain (a predictor that overflows, squares that leave the range,
coordinates beyond the core of psi) are listed by a first launch and added by a second one over the list, with
``LISTED``. What rows that are not numbers contribute is in the table of `tailguard.kernels.rows`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tailguard.kernels.triton_quads import (
    all_finite,
    as_doubles,
    careful_dot,
    dot,
    largest,
    load_quads,
    load_weights,
    times,
    weights_of,
    zero_unless,
    zeros_for,
)
from tailguard.kernels.triton_rule import (
    BOUND,
    COORDINATE,
    CORE,
    CUBIC,
    GIVEN,
    INFINITY,
    INVERSE,
    L2,
    PARAMETER,
    PER_UNIT,
    ROOT,
    ROUND,
    ROUND_BITS,
    clamped,
    derivative,
    exponent,
    finite,
    inverse_root,
    power,
    psi,
    rounded,
)


@triton.jit
def _squares(given, place, outputs, scale):
    """Sum over the outputs of (multiplier * scale)^2, in order."""
    g = scale * 0.0
    for k in range(outputs):
        fk = finite(tl.load(given + place.to(tl.int64) * outputs + k)) * scale
        g = tl.fma(fk, fk, g)
    return g


@triton.jit
def _cubic(first, third, v):
    """Bits that hold ROUND_BITS plus the integer nearest to ``v (first + third v^2)``: psi in its core."""
    return rounded(v, tl.fma(tl.broadcast_to(third, v.shape), v * v, tl.broadcast_to(first, v.shape)))


@triton.jit
def _any(condition, B: tl.constexpr, Q: tl.constexpr):
    """Whether it holds for a row; over all threads of a warp at once, for which there is an instruction."""
    return tl.sum(tl.reshape(condition.to(tl.int32), (Q * B,)), 0) > 0


@triton.jit
def _places(tile, B: tl.constexpr, Q: tl.constexpr):
    """Places of the rows of a tile, (Q, B)."""
    return tl.broadcast_to((tile * B + tl.arange(0, B))[None, :], (Q, B))


@triton.jit
def _fetch(
    X,
    y,
    given,
    index,
    listed,
    tile,
    n,
    offset,
    output,
    outputs,
    ROW: tl.constexpr,
    COLUMN: tl.constexpr,
    D: tl.constexpr,
    CODE: tl.constexpr,
    LISTED: tl.constexpr,
    VECTOR: tl.constexpr,
    B: tl.constexpr,
    Q: tl.constexpr,
):
    """Places of a tile, their rows, targets and given multipliers.

    A place beyond the end is that of some row that exists, so that nothing that is read needs a mask.
    """
    place = _places(tile, B, Q)
    place = tl.load(listed + place, mask=place < n, other=0) if LISTED else tl.minimum(place, n - 1)
    row = tl.cast(offset, tl.int64) + place.to(tl.int64)
    if index is not None:
        row = tl.load(index + row).to(tl.int64)
    x = load_quads(X + row * ROW, D, COLUMN, VECTOR, Q)
    target = tl.zeros((Q, B), tl.float64)
    f = tl.full((Q, B), 1.0, tl.float64)
    if CODE != GIVEN:
        target = tl.load(y + row).to(tl.float64)
    elif given is not None:
        f = tl.load(given + place.to(tl.int64) * outputs + output)
    return place, x, target, f


@triton.jit(do_not_specialize=["n", "offset", "room"])
def truncated_sum(
    X,
    y,
    w,
    given,
    index,
    constants,
    table,
    listed,
    total,
    n,
    offset,
    outputs,
    room,
    ROW: tl.constexpr,
    COLUMN: tl.constexpr,
    D: tl.constexpr,
    INTERCEPT: tl.constexpr,
    CODE: tl.constexpr,
    KIND: tl.constexpr,
    CELLS: tl.constexpr,
    LISTED: tl.constexpr,
    VECTOR: tl.constexpr,
    B: tl.constexpr,
    Q: tl.constexpr,
    PADDED: tl.constexpr,
    SHARED: tl.constexpr,
    AHEAD: tl.constexpr,
    COPIES: tl.constexpr,
):
    """Add the truncated vectors of rows ``offset`` to ``offset + n``, in units, to ``total``.

    It has COPIES of (outputs, D + INTERCEPT), and programs take turns with them: their sum is the result.

    Places count from ``offset``; place i is row i, or ``index[i]``. ``given`` (multipliers, by place) and ``index`` may
    be None. Every program puts places that are not plain in its own part of ``listed``, which has ``room`` for them,
    and their number behind. With LISTED, places are taken from there, and LISTED programs share a part.

    Column j of a row is ``X[row ROW + j COLUMN]``. With SHARED the weights are kept in shared memory, PADDED for each
    of the Q threads of a row, else in registers. While a tile is added, AHEAD more are on their way.
    """
    output = tl.program_id(1)
    program = output * tl.num_programs(0) + tl.program_id(0)
    mine = program // LISTED if LISTED else program
    listed += tl.cast(mine, tl.int64) * (room + 1)
    found = 0
    tile = tl.program_id(0)
    step = tl.num_programs(0)
    if LISTED:
        n = tl.load(listed + room)
        tile = tile % LISTED
        step = LISTED
        if tile * B >= n:
            return
    bound = tl.load(constants + BOUND)
    inverse = tl.load(constants + INVERSE)
    per_unit = tl.load(constants + PER_UNIT)
    parameter = tl.load(constants + PARAMETER)
    cubic = tl.load(constants + CUBIC)
    core = tl.load(constants + CORE)
    intercept = tl.load(w + D) if INTERCEPT else tl.load(constants) * 0.0
    weights = load_quads(w + tl.zeros((1, 1), tl.int32), D, 1, 2, Q)
    packed = load_weights(w, D, Q, PADDED)
    acc = zeros_for(weights, B, Q)
    acc_intercept = tl.zeros((Q, B), tl.int64)
    first_of_row = tl.arange(0, Q)[:, None] == 0
    tiles = 0
    place, x, target, f = _fetch(
        X, y, given, index, listed, tile, n, offset, output, outputs, ROW, COLUMN, D, CODE, LISTED, VECTOR, B, Q
    )
    next_place, next_x, next_target, next_f = place, x, target, f
    if AHEAD == 2:
        next_place, next_x, next_target, next_f = _fetch(
            X, y, given, index, listed, tile + step, n, offset, output, outputs, ROW, COLUMN, D, CODE, LISTED, VECTOR,
            B, Q,
        )  # fmt: skip
    for _ in range(tile, tl.cdiv(n, B), step):
        here = _places(tile, B, Q) < n
        later_place, later_x, later_target, later_f = _fetch(
            X, y, given, index, listed, tile + AHEAD * step, n, offset, output, outputs, ROW, COLUMN, D, CODE, LISTED,
            VECTOR, B, Q,
        )  # fmt: skip
        if SHARED:
            # Tiles are never negative; that they might be keeps the compiler from doing this once, in registers.
            weights = weights_of(tl.where(tile >= 0, packed, 0.0), len(acc), Q, PADDED)
        tile += step
        tiles += 1
        v = as_doubles(x)
        plain = here
        if CODE != GIVEN:
            z = dot(v, weights, B, Q) + intercept
            straight = tl.abs(z) < INFINITY
            if LISTED:
                if _any(here & (straight == 0), B, Q):
                    z = tl.where(straight, z, careful_dot(v, weights, B, Q) + intercept)
            else:
                plain = plain & straight
            f = derivative(z, target, parameter, CODE)

        # Which rows are plain, and what multiplies them.
        if KIND == L2 and not LISTED:
            q = dot(v, v, B, Q)
            if INTERCEPT:
                q = q + 1.0
            g = f * f
            if given is not None:
                g = _squares(given, place, outputs, 1.0 + tl.zeros((Q, B), tl.float64))
            # Products of numbers in this range neither overflow nor lose digits; zeros add nothing either way.
            plain = plain & (q < 1e140) & (g < 1e140) & ((q > 1e-140) | (q == 0.0)) & ((g > 1e-140) | (g == 0.0))
            factor = bound * inverse_root(q * g)
            c = f * (per_unit * tl.where(factor < 1.0, factor, 1.0))
        elif KIND == L2:
            v = all_finite(v)
            size = tl.minimum(exponent(largest(v)), 1022)
            if INTERCEPT:
                size = tl.maximum(size, 0)
            shrink = power(-size)
            v = times(v, shrink)
            q = dot(v, v, B, Q)
            if INTERCEPT:
                q = q + shrink * shrink
            steepest = tl.abs(finite(f))
            plain = plain & (f == f)
            if given is not None:
                for k in range(outputs):
                    fk = tl.load(given + place.to(tl.int64) * outputs + k)
                    plain = plain & (fk == fk)
                    steepest = tl.maximum(steepest, tl.abs(finite(fk)))
            slope = tl.minimum(exponent(steepest), 1022)
            f = finite(f) * power(-slope)
            g = f * f
            if given is not None:
                g = _squares(given, place, outputs, power(-slope))
            plain = plain & (q * g > 0.0)
            # The row's norm is sqrt(q g) 2^(size + slope), perhaps not a float; 2^1000 is beyond every bound.
            scale = power(tl.minimum(tl.maximum(size + slope, -1000), 1000))
            c = f * (tl.minimum(scale, bound * inverse_root(q * g)) * per_unit)
        elif KIND == COORDINATE:
            c = f
            if LISTED:
                c = finite(f)
                v = all_finite(v)
                plain = plain & (f == f)
            else:
                plain = plain & (largest(x) < INFINITY) & (tl.abs(f) < INFINITY)
        else:
            c = f * inverse
            size = largest(x)
            if INTERCEPT:
                size = tl.where(size == size, tl.maximum(size, 1.0), size)
            steep = tl.abs(c)
            inside = (steep * size <= core) & (steep < 1e30) & (size < 1e30)
            plain = plain & (c == c if LISTED else inside)

        # Rows that add nothing here, and those that the second launch will add.
        c = tl.where(plain, c, 0.0)
        if LISTED:
            v = zero_unless(v, plain)
        elif _any(plain == 0, B, Q):
            v = zero_unless(v, plain)
            odd = (here & (plain == 0)).to(tl.int32)
            tl.store(listed + found + tl.cumsum(odd, 1) - odd, place, mask=(odd != 0) & first_of_row)
            found += tl.sum(tl.max(odd, 0), 0)

        # The truncated vector, in units.
        sums = ()
        if KIND == L2:
            for i in tl.static_range(len(acc)):
                sums += (acc[i] + rounded(c, v[i]),)
            last = rounded(c, shrink) if LISTED else (c + ROUND).to(tl.int64, bitcast=True)
        elif KIND == COORDINATE:
            for i in tl.static_range(len(acc)):
                sums += (acc[i] + rounded(per_unit, clamped(c * v[i], bound)),)
            last = rounded(per_unit, clamped(c, bound))
        else:
            first = c * (bound * per_unit)
            third = first * -cubic * c * c
            last = ((first + third) + ROUND).to(tl.int64, bitcast=True)
            if LISTED:
                a = finite(finite(c) * tl.load(constants + ROOT))
                near = _any(inside, B, Q)
                for i in tl.static_range(len(acc)):
                    value = psi(a * finite(v[i]), constants, table, CELLS)
                    if near:
                        value = tl.where(inside, _cubic(first, third, v[i]), value)
                    sums += (acc[i] + value,)
                last = tl.where(inside, last, psi(a, constants, table, CELLS))
            else:
                for i in tl.static_range(len(acc)):
                    sums += (acc[i] + _cubic(first, third, v[i]),)
        acc = sums
        if INTERCEPT:
            acc_intercept += tl.where(here, last, ROUND_BITS)
        if AHEAD == 2:
            place, x, target, f = next_place, next_x, next_target, next_f
            next_place, next_x, next_target, next_f = later_place, later_x, later_target, later_f
        else:
            place, x, target, f = later_place, later_x, later_target, later_f

    if not LISTED:
        tl.store(listed + room, found)
    if tiles > 0:
        # Every row of a tile added ROUND_BITS, those beyond the end too; sums wrap around, and so does this excess.
        excess = tl.cast(tiles, tl.int64) * B * ROUND_BITS
        width = D + 1 if INTERCEPT else D
        total += ((tl.program_id(0) % COPIES) * tl.num_programs(1) + output) * width
        for i in tl.static_range(len(acc)):
            column = 4 * Q * (i // 4) + i % 4 + 4 * tl.arange(0, Q)
            tl.atomic_add(total + column, tl.sum(acc[i], 1) - excess, mask=column < D, sem="relaxed")
        if INTERCEPT:
            thread = tl.arange(0, Q)
            last = tl.sum(acc_intercept, 1) - excess
            tl.atomic_add(total + D + 0 * thread, last, mask=thread == 0, sem="relaxed")


@triton.jit(do_not_specialize=["n"])
def predictors(
    X,
    w,
    z,
    n,
    ROW: tl.constexpr,
    COLUMN: tl.constexpr,
    D: tl.constexpr,
    INTERCEPT: tl.constexpr,
    VECTOR: tl.constexpr,
    B: tl.constexpr,
    Q: tl.constexpr,
):
    """Fill ``z[i, k] = <w_k, x_i> (+ intercept_k)`` for rows i < n."""
    output = tl.program_id(1)
    row = tl.cast(tl.program_id(0), tl.int64) * B + tl.arange(0, B)
    here = row < n
    w += output * (D + 1 if INTERCEPT else D)
    weights = load_quads(w + tl.zeros((1, 1), tl.int32), D, 1, 1, Q)
    v = as_doubles(load_quads(X + tl.minimum(row, n - 1)[None, :] * ROW, D, COLUMN, VECTOR, Q))
    value = dot(v, weights, B, Q)
    careful = careful_dot(v, weights, B, Q)
    if INTERCEPT:
        intercept = tl.load(w + D)
        value = value + intercept
        careful = careful + intercept
    value = tl.where(tl.abs(value) < INFINITY, value, careful)
    thread = tl.arange(0, Q)[:, None]  # all of a row have its value, and the first stores it
    at = z + (row * tl.num_programs(1) + output)[None, :] + 0 * thread
    tl.store(at, value, mask=here[None, :] & (thread == 0))
