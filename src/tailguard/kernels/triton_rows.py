r"""`tailguard.kernels.rows` for a GPU: the same sums, to the last bit, in one pass over the data.

What one row contributes follows `tailguard.kernels.rule`, operation by operation (``enable_fp_fusion=False``).
In sums over a row every reduction is over two entries, so that no order is left to the compiler: see `_row_sum`.

Rows that are not plain (a predictor that overflows, squares that leave the range, coordinates beyond the core of psi)
are listed by a first launch and added by a second one over the list, with ``LISTED``. There, rows are scaled by powers
of two, which gives the same bits as the plain path wherever that is defined: which rows are listed does not matter.
What rows that are not numbers contribute is in the table of `tailguard.kernels.rows`.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

# Rows of one launch, in bytes of X and in number: their list takes at most 4 GiB, and launching little time.
LAUNCH_BYTES = 2**33
LAUNCH_ROWS = 2**30

ROUND = tl.constexpr(1.5 * 2.0**52)
ROUND_BITS = tl.constexpr(0x4338000000000000)  # of the float64 above
LARGEST = tl.constexpr(1.7976931348623157e308)
INFINITY = tl.constexpr(float("inf"))

GIVEN = tl.constexpr(0)
SQUARED = tl.constexpr(1)
LOGISTIC = tl.constexpr(2)
HUBER = tl.constexpr(3)
L2 = tl.constexpr(0)
COORDINATE = tl.constexpr(1)

# Places in the array of constants, which hold float64: scalar arguments of a kernel would be rounded to float32.
BOUND = tl.constexpr(0)
PER_UNIT = tl.constexpr(1)
PARAMETER = tl.constexpr(2)
CUBIC = tl.constexpr(3)
CORE = tl.constexpr(4)
PSI = tl.constexpr(5)


@triton.jit
def _halves(t, B: tl.constexpr, COUNT: tl.constexpr, LAST: tl.constexpr):
    """Add the middle axis of t (B, COUNT, LAST) by halves: (B, LAST)."""
    for i in tl.static_range(8):
        if (COUNT >> i) > 1:
            t = tl.sum(tl.reshape(t, (B, 2, COUNT >> (i + 1), LAST)), 1)
    return tl.reshape(t, (B, LAST))


@triton.jit
def _row_sum(t, B: tl.constexpr, K: tl.constexpr, C: tl.constexpr):
    """Add the columns ``k C + c`` of t (B, K, C) in the order of the rule: (B,).

    Every reduction is over an axis of two, or of one entry that counts: no order is left to a compiler.
    """
    QK: tl.constexpr = K if C >= 4 else K * C // 4
    QC: tl.constexpr = C // 4 if C >= 4 else 1
    if C >= 4:
        t = tl.sum(tl.reshape(t, (B, K, C // 2, 2)), 3)
        t = tl.sum(tl.reshape(t, (B, K, C // 4, 2)), 3)
    elif C == 2:
        t = tl.sum(t, 2)
        t = tl.sum(tl.reshape(t, (B, K // 2, 2)), 2)
    else:
        t = tl.sum(tl.reshape(t, (B, K // 2, 2)), 2)
        t = tl.sum(tl.reshape(t, (B, K // 4, 2)), 2)
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
    k = (b * 1.4426950408889634 + ROUND) - ROUND
    r = (b - k * 0.6931471803691238) - k * 1.9082149292705877e-10
    p = r * 1.6059043836821613e-10 + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
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
    small = _row_sum(_finite(v) * 2.409919865102884e-181 * weights, B, K, C)  # 2^-600
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
def _float_psi(b, p):
    """psi_beta of float32 b >= 0 by its polynomial, in float32; `tailguard.kernels.rule.psi` says why."""
    s = 1.0 + (tl.load(p).to(tl.float32) * b) * b
    r = (0x5F1FFFF9 - (s.to(tl.int32, bitcast=True) >> 1)).to(tl.float32, bitcast=True)
    r = r * (1.6819413900375366 - ((0.7039522528648376 * s) * r) * r)
    r = r * (1.5 - ((0.5 * s) * r) * r)
    t = 1.0 - 2.0 * (r * r)
    t2 = t * t
    t4 = t2 * t2
    low = _cubic(p + 2, t, t2)
    middle = _cubic(p + 6, t, t2)
    high = _cubic(p + 10, t, t2) + tl.load(p + 14).to(tl.float32) * t4
    return (low + (middle + high * t4) * t4) * (b * r)


@triton.jit
def _cubic(p, t, t2):
    """``p0 + p1 t + p2 t^2 + p3 t^3`` in float32."""
    low = tl.load(p).to(tl.float32) + tl.load(p + 1).to(tl.float32) * t
    return low + (tl.load(p + 2).to(tl.float32) + tl.load(p + 3).to(tl.float32) * t) * t2


@triton.jit
def _psi(a, constants, table, CELLS: tl.constexpr):
    """psi_beta, by the polynomial or by the table of `tailguard.kernels.rule`; inside +-kappa whatever a is."""
    p = constants + PSI
    if CELLS == 0:
        r = _float_psi(tl.minimum(tl.abs(a), 1e15).to(tl.float32), p).to(tl.float64)
    else:
        u = CELLS / (1.0 + tl.minimum(tl.abs(a), 1e30))
        k = tl.minimum(u.to(tl.int32), CELLS - 1)
        s = u - k.to(tl.float64)
        cell = table + 4 * k
        r = tl.load(cell) + s * (tl.load(cell + 1) + s * (tl.load(cell + 2) + s * tl.load(cell + 3)))
    r = tl.maximum(0.0, tl.minimum(r, tl.load(p + 1)))
    return tl.where(a < 0.0, -r, r)


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
def _rounded(value):
    """Bits that hold ROUND_BITS plus the integer nearest to the value."""
    return (value + ROUND).to(tl.int64, bitcast=True)


@triton.jit
def _squares(given, place, here, outputs, scale):
    """Sum over the outputs of (multiplier * scale)^2, in order."""
    g = scale * 0.0
    for k in range(outputs):
        fk = tl.load(given + place.to(tl.int64) * outputs + k, mask=here, other=0.0)
        fk = _finite(fk) * scale
        g = g + fk * fk
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
            z = _row_sum(v * weights, B, K, C) + intercept
            straight = tl.abs(z) < INFINITY
            if LISTED:
                if tl.sum((here & (straight == 0)).to(tl.int32), 0) > 0:
                    z = tl.where(straight, z, _careful_dot(v, weights, B, K, C) + intercept)
            else:
                plain = plain & straight
            f = _derivative(z, target, parameter, CODE)

        # Which rows are plain, and what multiplies them.
        if KIND == L2 and not LISTED:
            q = _row_sum(v * v, B, K, C)
            if INTERCEPT:
                q = q + 1.0
            g = f * f
            if given is not None:
                g = _squares(given, place, here, outputs, 1.0 + tl.zeros((B,), tl.float64))
            # Products of numbers in this range neither overflow nor lose digits; zeros add nothing either way.
            plain = plain & (q < 1e140) & (g < 1e140) & ((q > 1e-140) | (q == 0.0)) & ((g > 1e-140) | (g == 0.0))
            c = f * (per_unit * (bound / tl.maximum(bound, tl.sqrt(q * g))))
        elif KIND == L2:
            v = _finite(v)
            size = tl.minimum(_exponent(_largest(v)), 1022)
            if INTERCEPT:
                size = tl.maximum(size, 0)
            shrink = _power(-size)
            v = v * shrink[:, None, None]
            q = _row_sum(v * v, B, K, C)
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
            norm = tl.sqrt(q * g)
            plain = plain & (norm > 0.0)
            # The row's norm is norm * 2^(size + slope), perhaps not a float; 2^1000 is beyond every bound.
            scale = _power(tl.minimum(tl.maximum(size + slope, -1000), 1000))
            c = f * (tl.minimum(scale, bound / tl.where(plain, norm, 1.0)) * per_unit)
        elif KIND == COORDINATE:
            c = f
            if LISTED:
                c = _finite(f)
                v = _finite(v)
                plain = plain & (f == f)
            else:
                plain = plain & (_largest(x) < INFINITY) & (tl.abs(f) < INFINITY)
        else:
            c = f / bound
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
            value = c[:, None, None] * v
            last = c * shrink if LISTED else c
        elif KIND == COORDINATE:
            value = tl.minimum(tl.maximum(c[:, None, None] * v, -bound), bound) * per_unit
            last = tl.minimum(tl.maximum(c, -bound), bound) * per_unit
        else:
            u = tl.where(inside, c, 0.0) if LISTED else c
            first = u * (bound * per_unit)
            third = first * cubic * u * u
            near = tl.where(inside[:, None, None], v, 0.0) if LISTED else v
            value = near * (first[:, None, None] - third[:, None, None] * (near * near))
            last = first - third
            if LISTED:
                a = _finite(c)
                far = _psi(a[:, None, None] * _finite(v), constants, table, CELLS) * (bound * per_unit)
                value = tl.where(inside[:, None, None], value, far)
                last = tl.where(inside, last, _psi(a, constants, table, CELLS) * (bound * per_unit))
        acc += tl.where(exists, _rounded(value), 0)
        if INTERCEPT:
            acc_intercept += _rounded(tl.where(here, last, 0.0))
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
    if columns <= 64 and vector >= 4 and cheap:
        return Plan(_tile(columns, vector, 16), _tile(columns, vector, 8), 16, reload=True)
    return Plan(_tile(columns, vector, 32), _tile(columns, vector, 8), 8, reload=True)


def _tile(columns: int, vector: int, values: int) -> Tile:
    """Return a tile whose threads hold about ``values`` values each."""
    padded = max(4, triton.next_power_of_2(columns))
    warps = max(1, padded // 512)
    least = 2 if vector == 1 else 1  # with chunks of one column the compiler would not keep a row in one thread
    threads = min(32, max(least, padded // max(values, vector)))
    C = min(padded, 64, vector * threads)  # the 16 lanes of `_row_sum` hold 64 columns
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
    constants = _on_device((bound, per_unit, parameter, cubic, core, *psi), device)
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
    value = _row_sum(v * weights, B, K, C)
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
