r"""`tailguard.kernels.rows` for a GPU: the same sums, to the last bit, in one pass over the data.

What one row contributes follows `tailguard.kernels.rule`, operation by operation: products and sums are fused where
it says ``fma``, and nowhere else (``enable_fp_fusion=False``). In sums over a row every reduction is over two entries,
so that no order is left to the compiler: see `_dot`.

Rows that are not plain (a predictor that overflows, squares that leave the range, coordinates beyond the core of psi)
are listed by a first launch and added by a second one over the list, with ``LISTED``. What rows that are not numbers
contribute is in the table of `tailguard.kernels.rows`.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from tailguard.kernels import rule

# Rows of one launch, in bytes of X and in number: their list takes at most 4 GiB, and launching little time.
LAUNCH_BYTES = 2**33
LAUNCH_ROWS = 2**30

ROUND = tl.constexpr(1.5 * 2.0**52)
ROUND_BITS = tl.constexpr(0x4338000000000000)  # of the float64 above
LARGEST = tl.constexpr(1.7976931348623157e308)
FARTHEST = tl.constexpr(rule.FARTHEST)
DEGREE = tl.constexpr(rule.DEGREE)
INFINITY = tl.constexpr(float("inf"))

GIVEN = tl.constexpr(0)
SQUARED = tl.constexpr(1)
LOGISTIC = tl.constexpr(2)
HUBER = tl.constexpr(3)
L2 = tl.constexpr(0)
COORDINATE = tl.constexpr(1)
SMOOTH = tl.constexpr(2)

# Places in the array of constants, which hold float64: scalar arguments of a kernel would be rounded to float32.
BOUND = tl.constexpr(0)
INVERSE = tl.constexpr(1)
PER_UNIT = tl.constexpr(2)
PARAMETER = tl.constexpr(3)
CUBIC = tl.constexpr(4)
CORE = tl.constexpr(5)
ROOT = tl.constexpr(6)
SHIFT = tl.constexpr(7)
PSI = tl.constexpr(8)


@triton.jit
def _halves(t, B: tl.constexpr, COUNT: tl.constexpr, LAST: tl.constexpr):
    """Add the middle axis of t (B, COUNT, LAST) by halves: (B, LAST)."""
    for i in tl.static_range(8):
        if (COUNT >> i) > 1:
            t = tl.sum(tl.reshape(t, (B, 2, COUNT >> (i + 1), LAST)), 1)
    return tl.reshape(t, (B, LAST))


@triton.jit
def _plus(a, b, VALUE: tl.constexpr):
    """``fma(a, b, VALUE)``; a bare constant would be rounded to float32."""
    return tl.fma(a, b, tl.full(a.shape, VALUE, a.dtype))


@triton.jit
def _dot(v, w, B: tl.constexpr, K: tl.constexpr, C: tl.constexpr):
    """Add products of the columns ``k C + c`` of v (B, K, C) and w (B or 1, K, C) in the order of the rule: (B,).

    Every reduction is over an axis of two, or of one entry that counts: no order is left to a compiler.
    """
    QK: tl.constexpr = K if C >= 4 else K * C // 4
    QC: tl.constexpr = C // 4 if C >= 4 else 1
    first, second = tl.split(tl.reshape(v, (v.shape[0], 2 * QK, QC, 2) if C < 4 else (v.shape[0], K, C // 2, 2)))
    w_first, w_second = tl.split(tl.reshape(w, (w.shape[0], 2 * QK, QC, 2) if C < 4 else (w.shape[0], K, C // 2, 2)))
    t = tl.fma(second, w_second, first * w_first)
    t = tl.sum(tl.reshape(t, (B, QK, QC, 2)), 3)
    LANES: tl.constexpr = QK if QK * QC <= 16 else 16 // QC
    TURNS: tl.constexpr = QK // LANES
    if TURNS > 1:
        t = tl.reshape(t, (B, TURNS, LANES, QC))
        turn = tl.arange(0, TURNS)[None, :, None, None]
        total = tl.sum(tl.where(turn == 0, t, -0.0), 1)
        for k in tl.static_range(1, TURNS):
            total = total + tl.sum(tl.where(turn == k, t, -0.0), 1)  # x + -0.0 is x for every x
        t = total
    t = _halves(tl.reshape(t, (B, LANES, QC)), B, LANES, QC)
    return tl.reshape(_halves(tl.reshape(t, (B, QC, 1)), B, QC, 1), (B,))


@triton.jit
def _power(k):
    """2^k as float64 for -1022 <= k <= 1023."""
    return ((k.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def _exponent(a):
    """Floor of log2(a) for normal a >= 0, -1023 below; a is finite."""
    return ((a.to(tl.int64, bitcast=True) >> 52) - 1023).to(tl.int32)


@triton.jit
def _exp(z):
    """exp(z), within two units in the last place: 2^k times the Taylor series on |r| <= log(2)/2."""
    b = tl.minimum(tl.maximum(z, -750.0), 720.0)
    k = _plus(b, tl.full(b.shape, 1.4426950408889634, tl.float64), ROUND) - ROUND
    r = tl.fma(k, tl.full(b.shape, -0.6931471803691238, tl.float64), b)
    r = tl.fma(k, tl.full(b.shape, -1.9082149292705877e-10, tl.float64), r)
    p = _plus(r, tl.full(b.shape, 1.6059043836821613e-10, tl.float64), 2.08767569878681e-09)
    p = _plus(p, r, 2.505210838544172e-08)
    p = _plus(p, r, 2.755731922398589e-07)
    p = _plus(p, r, 2.7557319223985893e-06)
    p = _plus(p, r, 2.48015873015873e-05)
    p = _plus(p, r, 0.0001984126984126984)
    p = _plus(p, r, 0.001388888888888889)
    p = _plus(p, r, 0.008333333333333333)
    p = _plus(p, r, 0.041666666666666664)
    p = _plus(p, r, 0.16666666666666666)
    p = _plus(p, r, 0.5)
    p = _plus(p, r, 1.0)
    p = _plus(p, r, 1.0)
    k = k.to(tl.int32)
    half = k >> 1
    return tl.where(z == z, p * _power(half) * _power(k - half), z)


@triton.jit
def _finite(a):
    """+-inf becomes the largest float of its sign, NaN becomes 0."""
    return tl.where(a == a, tl.minimum(tl.maximum(a, -LARGEST), LARGEST), 0.0)


@triton.jit
def _careful_dot(v, weights, B: tl.constexpr, K: tl.constexpr, C: tl.constexpr):
    """The dot product where products overflow or are not numbers: NaN if an entry is."""
    small = _dot(_finite(v) * 2.409919865102884e-181, weights, B, K, C)  # 2^-600
    nan = tl.max(tl.max((v != v).to(tl.int32), 2), 1) > 0
    return tl.where(nan, float("nan"), small * 4.149515568880993e180)  # 2^600


@triton.jit
def _derivative(z, y, parameter, CODE: tl.constexpr):
    """The derivative in z of the built-in losses."""
    if CODE == SQUARED:
        f = z - y
    elif CODE == LOGISTIC:
        positive = y > 0.0
        g = 1.0 / (1.0 + _exp(tl.where(positive, z, -z)))
        f = tl.where(y == y, tl.where(positive, -g, g), y)
    elif CODE == HUBER:
        r = z - y
        f = tl.where(r == r, tl.minimum(tl.maximum(r, -parameter), parameter), r)
    else:
        f = _exp(z) - y
    return f


@triton.jit
def _cubic_root(e):
    """``1/sqrt(1 + e)`` to 4e-7, for e from -.25 to -.156."""
    r = _plus(e, tl.full(e.shape, -0.6941339684885197, e.dtype), 0.2402259599219706)
    return _plus(e, _plus(e, r, -0.519373245462568), 0.9989967885806699)


@triton.jit
def _inverse_root(s):
    """``1/sqrt(s)`` of normal float64 s, within a relative 2^-52; some number where s is 0."""
    r = (0x5FE4000000000000 - (s.to(tl.int64, bitcast=True) >> 1)).to(tl.float64, bitcast=True)
    r = r * _cubic_root(_plus(s * r, r, -1.0))
    e = _plus(s * r, r, -1.0)
    return tl.fma(r * e, _plus(e, tl.full(e.shape, 0.375, tl.float64), -0.5), r)


@triton.jit
def _float_psi(x, p):
    """psi_beta by its polynomial, in float32 and in units; `tailguard.kernels.rule.psi` says why."""
    s = _plus(x, x, 1.0)
    r = (0x5F200000 - (s.to(tl.int32, bitcast=True) >> 1)).to(tl.float32, bitcast=True)
    v = (x * r) * _cubic_root(_plus(s * r, r, -1.0))
    t = _plus(v, v, -0.5)
    value = tl.fma(t, tl.load(p + DEGREE + 1).to(tl.float32) + tl.zeros_like(t), tl.load(p + DEGREE).to(tl.float32))
    for k in tl.static_range(1, DEGREE):
        value = tl.fma(t, value, tl.load(p + DEGREE - k).to(tl.float32))
    most = tl.load(p).to(tl.float32)
    return tl.minimum(tl.maximum(v * value, -most), most)


@triton.jit
def _psi(a, constants, table, CELLS: tl.constexpr):
    """Bits that hold ROUND_BITS plus psi_beta in units, by the polynomial or by the table; a is ``root`` times it."""
    p = constants + PSI
    a = tl.minimum(tl.maximum(a, -FARTHEST), FARTHEST)
    if CELLS == 0:
        units = _float_psi(a.to(tl.float32), p).to(tl.int32).to(tl.int64)
        return (units << tl.load(constants + SHIFT).to(tl.int64)) + ROUND_BITS
    else:
        u = CELLS / (1.0 + tl.abs(a))
        k = tl.minimum(u.to(tl.int32), CELLS - 1)
        s = u - k.to(tl.float64)
        cell = table + 4 * k
        r = tl.fma(s, tl.load(cell + 3), tl.load(cell + 2))
        r = tl.fma(s, tl.fma(s, r, tl.load(cell + 1)), tl.load(cell))
        r = tl.minimum(tl.maximum(r, -tl.load(p)), tl.load(p))
        return (tl.where(a < 0.0, -r, r) + ROUND).to(tl.int64, bitcast=True)


@triton.jit
def _largest(x):
    """Largest |x_j| of every row, as float64; NaN if there is one, since its bits are the largest."""
    if x.dtype == tl.float32:
        size = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        return tl.max(tl.max(size, 2), 1).to(tl.float32, bitcast=True).to(tl.float64)
    else:
        size = x.to(tl.float64).to(tl.int64, bitcast=True) & 0x7FFFFFFFFFFFFFFF
        return tl.max(tl.max(size, 2), 1).to(tl.float64, bitcast=True)


@triton.jit
def _rounded(a, b):
    """Bits that hold ROUND_BITS plus the integer nearest to the product."""
    return tl.fma(a, b, tl.full(b.shape, ROUND, tl.float64)).to(tl.int64, bitcast=True)


@triton.jit
def _squares(given, place, here, outputs, scale):
    """Sum over the outputs of (multiplier * scale)^2, in order."""
    g = scale * 0.0
    for k in range(outputs):
        fk = tl.load(given + place.to(tl.int64) * outputs + k, mask=here, other=0.0)
        fk = _finite(fk) * scale
        g = tl.fma(fk, fk, g)
    return g


@triton.jit
def _steps(count, STRIDE: tl.constexpr, MOST: tl.constexpr):
    """Return ``count * STRIDE`` for counts up to MOST, in 64 bits only where 32 may not do: they take registers."""
    if MOST * STRIDE >= 2**29:
        return count.to(tl.int64) * STRIDE
    else:
        return count * STRIDE


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
    B: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
):
    """Places of a tile, which of them exist, their rows (B, K, C), targets and given multipliers."""
    column = tl.arange(0, K)[None, :, None] * C + tl.arange(0, C)[None, None, :]
    within = _steps(column, COLUMN, D)
    place = tile * B + tl.arange(0, B)
    here = place < n
    if LISTED:
        place = tl.load(listed + place, mask=here, other=0)
    if index is not None:
        row = tl.load(index + tl.cast(offset, tl.int64) + place, mask=here, other=0).to(tl.int64)
        pointer = X + row[:, None, None] * ROW + within
    elif LISTED:
        row = tl.cast(offset, tl.int64) + place.to(tl.int64)
        pointer = X + row[:, None, None] * ROW + within
    else:
        first = tl.cast(offset, tl.int64) + tl.cast(tile, tl.int64) * B
        row = first + tl.arange(0, B)
        pointer = X + first * ROW + (_steps(tl.arange(0, B)[:, None, None], ROW, B) + within)
    x = tl.load(pointer, mask=here[:, None, None] & (column < D), other=0.0)
    target = tl.zeros((B,), tl.float64)
    f = tl.full((B,), 1.0, tl.float64)
    if CODE != GIVEN:
        target = tl.load(y + row, mask=here, other=0.0).to(tl.float64)
    elif given is not None:
        f = tl.load(given + place.to(tl.int64) * outputs + output, mask=here, other=0.0)
    return place, here, x, target, f


@triton.jit
def truncated_sum(
    X,
    y,
    w,
    given,
    index,
    constants,
    table,
    listed,
    counts,
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
    RELOAD: tl.constexpr,
    B: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
):
    """Add the truncated vectors of rows ``offset`` to ``offset + n``, in units, to ``total`` (outputs, D + INTERCEPT).

    Places count from ``offset``; place i is row i, or ``index[i]``. ``given`` (multipliers, by place) and ``index`` may
    be None. Every program puts places that are not plain in its own part of ``listed``, ``room`` long, and their number
    in ``counts``; with LISTED it takes its places from there.
    K C >= D columns and B rows make a tile; column ``k C + c`` of a row is ``X[row ROW + column COLUMN]``.
    """
    output = tl.program_id(1)
    column = tl.arange(0, K)[None, :, None] * C + tl.arange(0, C)[None, None, :]
    exists = column < D
    bound = tl.load(constants + BOUND)
    inverse = tl.load(constants + INVERSE)
    per_unit = tl.load(constants + PER_UNIT)
    parameter = tl.load(constants + PARAMETER)
    cubic = tl.load(constants + CUBIC)
    core = tl.load(constants + CORE)
    weights = tl.load(w + column, mask=exists, other=0.0)
    intercept = tl.load(w + D) if INTERCEPT else tl.load(constants) * 0.0
    mine = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    listed += tl.cast(mine, tl.int64) * room
    found = 0
    tile = tl.program_id(0)
    step = tl.num_programs(0)
    if LISTED:
        n = tl.load(counts + mine)
        tile = 0
        step = 1
    acc = tl.zeros((B, K, C), tl.int64)
    acc_intercept = tl.zeros((B,), tl.int64)
    tiles = 0
    # The next tile is on its way while this one is added.
    place, here, x, target, f = _fetch(
        X, y, given, index, listed, tile, n, offset, output, outputs, ROW, COLUMN, D, CODE, LISTED, B, K, C
    )
    for _ in range(tile, tl.cdiv(n, B), step):
        tile += step
        tiles += 1
        if RELOAD:
            weights = tl.load(w + column, mask=exists, other=0.0)
        next_place, next_here, next_x, next_target, next_f = _fetch(
            X, y, given, index, listed, tile, n, offset, output, outputs, ROW, COLUMN, D, CODE, LISTED, B, K, C
        )
        v = x.to(tl.float64)
        plain = here
        if CODE != GIVEN:
            z = _dot(v, weights, B, K, C) + intercept
            straight = tl.abs(z) < INFINITY
            if LISTED:
                if tl.sum((here & (straight == 0)).to(tl.int32), 0) > 0:
                    z = tl.where(straight, z, _careful_dot(v, weights, B, K, C) + intercept)
            else:
                plain = plain & straight
            f = _derivative(z, target, parameter, CODE)

        # Which rows are plain, and what multiplies them.
        if KIND == L2 and not LISTED:
            q = _dot(v, v, B, K, C)
            if INTERCEPT:
                q = q + 1.0
            g = f * f
            if given is not None:
                g = _squares(given, place, here, outputs, 1.0 + tl.zeros((B,), tl.float64))
            # Products of numbers in this range neither overflow nor lose digits; zeros add nothing either way.
            plain = plain & (q < 1e140) & (g < 1e140) & ((q > 1e-140) | (q == 0.0)) & ((g > 1e-140) | (g == 0.0))
            c = f * (per_unit * tl.minimum(bound * _inverse_root(q * g), 1.0))
        elif KIND == L2:
            v = _finite(v)
            size = tl.minimum(_exponent(_largest(v)), 1022)
            if INTERCEPT:
                size = tl.maximum(size, 0)
            shrink = _power(-size)
            v = v * shrink[:, None, None]
            q = _dot(v, v, B, K, C)
            if INTERCEPT:
                q = q + shrink * shrink
            steepest = tl.abs(_finite(f))
            plain = plain & (f == f)
            if given is not None:
                for k in range(outputs):
                    fk = tl.load(given + place.to(tl.int64) * outputs + k, mask=here, other=0.0)
                    plain = plain & (fk == fk)
                    steepest = tl.maximum(steepest, tl.abs(_finite(fk)))
            slope = tl.minimum(_exponent(steepest), 1022)
            f = _finite(f) * _power(-slope)
            g = f * f
            if given is not None:
                g = _squares(given, place, here, outputs, _power(-slope))
            plain = plain & (q * g > 0.0)
            # The row's norm is sqrt(q g) 2^(size + slope), perhaps not a float; 2^1000 is beyond every bound.
            scale = _power(tl.minimum(tl.maximum(size + slope, -1000), 1000))
            c = f * (tl.minimum(scale, bound * _inverse_root(q * g)) * per_unit)
        elif KIND == COORDINATE:
            c = f
            if LISTED:
                c = _finite(f)
                v = _finite(v)
                plain = plain & (f == f)
            else:
                plain = plain & (_largest(x) < INFINITY) & (tl.abs(f) < INFINITY)
        else:
            c = f * inverse
            size = _largest(x)
            if INTERCEPT:
                size = tl.where(size == size, tl.maximum(size, 1.0), size)
            steep = tl.abs(c)
            inside = (steep * size <= core) & (steep < 1e30) & (size < 1e30)
            plain = plain & (c == c if LISTED else inside)

        # Rows that add nothing here, and those that the second launch will add.
        c = tl.where(plain, c, 0.0)
        if LISTED:
            v = tl.where(plain[:, None, None], v, 0.0)
        else:
            odd = (here & (plain == 0)).to(tl.int32)
            count = tl.sum(odd, 0)
            if count > 0:
                v = tl.where(plain[:, None, None], v, 0.0)
                tl.store(listed + found + tl.cumsum(odd, 0) - odd, place, mask=odd != 0)
                found += tl.sum(odd, 0)

        # The truncated vector, in units.
        if KIND == L2:
            value = _rounded(c[:, None, None], v)
            last = _rounded(c, shrink) if LISTED else (c + ROUND).to(tl.int64, bitcast=True)
        elif KIND == COORDINATE:
            value = _rounded(per_unit, tl.minimum(tl.maximum(c[:, None, None] * v, -bound), bound))
            last = _rounded(per_unit, tl.minimum(tl.maximum(c, -bound), bound))
        else:
            u = tl.where(inside, c, 0.0) if LISTED else c
            first = u * (bound * per_unit)
            third = first * -cubic * u * u
            near = tl.where(inside[:, None, None], v, 0.0) if LISTED else v
            value = _rounded(near, tl.fma(third[:, None, None], near * near, first[:, None, None]))
            last = ((first + third) + ROUND).to(tl.int64, bitcast=True)
            if LISTED:
                a = _finite(_finite(c) * tl.load(constants + ROOT))
                far = _psi(a[:, None, None] * _finite(v), constants, table, CELLS)
                value = tl.where(inside[:, None, None], value, far)
                last = tl.where(inside, last, _psi(a, constants, table, CELLS))
        acc += tl.where(exists, value, 0)
        if INTERCEPT:
            acc_intercept += tl.where(here, last, ROUND_BITS)
        place, here, x, target, f = next_place, next_here, next_x, next_target, next_f

    if not LISTED:
        tl.store(counts + mine, found)
    if tiles > 0:
        # Every row of a tile added ROUND_BITS, those beyond the end too; sums wrap around, and so does this excess.
        excess = tl.cast(tiles, tl.int64) * B * ROUND_BITS
        width = D + 1 if INTERCEPT else D
        sums = tl.sum(acc, 0) - excess
        columns = tl.arange(0, K)[:, None] * C + tl.arange(0, C)[None, :]
        tl.atomic_add(total + output * width + columns, sums, mask=columns < D)
        if INTERCEPT:
            tl.atomic_add(total + output * width + D, tl.sum(acc_intercept, 0) - excess)


class Tile(NamedTuple):
    """How a program cuts the data: B rows of K chunks of C columns."""

    B: int
    K: int
    C: int
    warps: int


class Plan(NamedTuple):
    """How a sum is launched."""

    tile: Tile
    listed: Tile  # for the rows that are not plain, which need more registers
    programs: int  # for each multiprocessor
    reload: bool  # weights are read again for each tile, rather than kept in registers


def plan_for(columns: int, vector: int, kind: int, code: int) -> Plan:
    """Return the plan for so many columns, of which ``vector`` neighbours can be read at once; by trial on an H200.

    Threads that share a row all repeat what is computed once per row, so they should be few; but a thread that holds
    many values needs many registers, and then few threads are there to wait for memory. All programs should be there at
    once: a few that come later cost a whole round.
    """
    cheap = kind == L2.value and code in (GIVEN.value, SQUARED.value, HUBER.value)  # little to do once per row
    if columns <= 16:
        tile = _tile(columns, vector, 16)
        return Plan(tile, tile, 16 if cheap or vector < 4 else 12, reload=vector >= 4)
    if columns <= 32 and vector >= 4 and (cheap or kind == SMOOTH.value):
        return Plan(_tile(columns, vector, 16), _tile(columns, vector, 8), 16 if cheap else 12, reload=True)
    return Plan(_tile(columns, vector, 32), _tile(columns, vector, 8), 8, reload=True)


def _tile(columns: int, vector: int, values: int) -> Tile:
    """Return a tile whose threads hold about ``values`` values each."""
    padded = max(4, triton.next_power_of_2(columns))
    warps = max(1, padded // 512)
    least = 2 if vector == 1 else 1  # with chunks of one column the compiler would not keep a row in one thread
    threads = min(32, max(least, padded // max(values, vector)))
    C = min(padded, 64, vector * threads)  # the 16 lanes of `_dot` hold 64 columns
    return Tile(max(1, 32 * vector // C) if warps == 1 else 1, padded // C, C, warps)


def _vector(X: Any) -> int:
    """How many neighbours of a row can be read at once: 16 bytes, if all rows begin at a multiple of that."""
    if X.stride(1) != 1:
        return 1
    vector = 16 // X.element_size()
    while vector > 1 and (X.stride(0) % vector or X.data_ptr() % (vector * X.element_size())):
        vector //= 2
    return vector


def add_rows(
    X: Any,
    y: Any,
    w: Any,
    given: Any,
    index: Any,
    fit_intercept: bool,
    code: int,
    parameter: float,
    kind: int,
    bound: float,
    per_unit: float,
    psi: tuple[float, ...],
    table: Any,
    cubic: float,
    core: float,
    plan: Plan | None = None,
) -> Any:
    """Sum of the truncated vectors of all rows, or of those in ``index``, in units: int64 (outputs, columns).

    X (n, d), y (n,), w (outputs, d + fit_intercept), the multipliers ``given`` (rows that are summed, outputs) and
    ``index`` are tensors on one device; y, given and index may be None. The other arguments are those of
    `tailguard.kernels.rows.truncated_sum`.
    """
    device = X.device
    n = X.shape[0] if index is None else index.shape[0]
    d = X.shape[1]
    outputs = w.shape[0]
    root, shift, p, table = rule.psi_in_units(psi, table, bound * per_unit)
    constants = _on_device(
        (bound, 1.0 / bound, per_unit, parameter, cubic, core, root, float(shift), *map(float, p)), device
    )
    cells = _on_device(tuple(map(tuple, table)), device)
    total = torch.zeros((outputs, d + fit_intercept), dtype=torch.int64, device=device)
    if n == 0:
        return total
    tile, listed_tile, programs, reload = plan or plan_for(d, _vector(X), kind, code)
    rows = max(tile.B, min(n, LAUNCH_ROWS, LAUNCH_BYTES // (d * X.element_size())))
    programs = min(programs * _multiprocessors(device), triton.cdiv(rows, tile.B))
    room = triton.cdiv(triton.cdiv(rows, tile.B), programs) * tile.B
    listed = torch.empty(outputs * programs * room, dtype=torch.int32, device=device)
    counts = torch.empty(outputs * programs, dtype=torch.int32, device=device)
    for offset in range(0, n, rows):
        for only_listed, cut in ((False, tile), (True, listed_tile)):
            truncated_sum[(programs, outputs)](
                X,
                y,
                w,
                None if given is None else given[offset:],
                index,
                constants,
                cells,
                listed,
                counts,
                total,
                min(rows, n - offset),
                offset,
                outputs,
                room,
                ROW=X.stride(0),
                COLUMN=X.stride(1),
                D=d,
                INTERCEPT=bool(fit_intercept),
                CODE=code,
                KIND=kind,
                CELLS=len(cells),
                LISTED=only_listed,
                RELOAD=reload,
                B=cut.B,
                K=cut.K,
                C=cut.C,
                num_warps=cut.warps,
                enable_fp_fusion=False,
            )
    return total


@lru_cache(maxsize=256)
def _on_device(values: tuple[Any, ...], device: Any) -> Any:
    """Return public constants on the device; kept, since a copy from the host stops the launches before it."""
    return torch.tensor(values, dtype=torch.float64, device=device)


@triton.jit
def _predict(
    X,
    w,
    z,
    n,
    ROW: tl.constexpr,
    COLUMN: tl.constexpr,
    D: tl.constexpr,
    INTERCEPT: tl.constexpr,
    B: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
):
    """Fill ``z[i, k] = <w_k, x_i> (+ intercept_k)`` for rows i < n."""
    output = tl.program_id(1)
    column = tl.arange(0, K)[None, :, None] * C + tl.arange(0, C)[None, None, :]
    row = tl.cast(tl.program_id(0), tl.int64) * B + tl.arange(0, B)
    here = row < n
    width = D + 1 if INTERCEPT else D
    weights = tl.load(w + output * width + column, mask=column < D, other=0.0)
    v = tl.load(
        X + row[:, None, None] * ROW + _steps(column, COLUMN, D), mask=here[:, None, None] & (column < D), other=0.0
    )
    v = v.to(tl.float64)
    value = _dot(v, weights, B, K, C)
    careful = _careful_dot(v, weights, B, K, C)
    if INTERCEPT:
        intercept = tl.load(w + output * width + D)
        value = value + intercept
        careful = careful + intercept
    value = tl.where(tl.abs(value) < INFINITY, value, careful)
    tl.store(z + row * tl.num_programs(1) + output, value, mask=here)


def predict(X: Any, w: Any, fit_intercept: bool) -> Any:
    """Return the predictors of all rows, float64 (n, outputs)."""
    n, d = X.shape
    z = torch.empty((n, w.shape[0]), dtype=torch.float64, device=X.device)
    tile = plan_for(d, _vector(X), L2.value, GIVEN.value).tile
    _predict[(triton.cdiv(n, tile.B), w.shape[0])](
        X,
        w,
        z,
        n,
        ROW=X.stride(0),
        COLUMN=X.stride(1),
        D=d,
        INTERCEPT=bool(fit_intercept),
        B=tile.B,
        K=tile.K,
        C=tile.C,
        num_warps=tile.warps,
        enable_fp_fusion=False,
    )
    return z


@cache
def _multiprocessors(device: Any) -> int:
    if device.type != "cuda":
        return 1  # the interpreter
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
