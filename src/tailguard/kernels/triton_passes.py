r"""The passes of `tailguard.kernels.triton_default`: what a program of the GPU does with the rows of its tiles.

One function for each kind of pass, over functions of one row. What they are told, and what becomes of the integers that
programs leave behind, is in that module.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tailguard.kernels import codes

ROUND = tl.constexpr(1.5 * 2.0**52)
ROUND_BITS = tl.constexpr(0x4338000000000000)  # of the float64 above
INFINITY = tl.constexpr(float("inf"))
MARGIN = tl.constexpr(1.0 + 1e-9)

LEVEL, SQUARE, INSTRUMENT = tl.constexpr(codes.LEVEL), tl.constexpr(codes.SQUARE), tl.constexpr(codes.INSTRUMENT)
PRODUCT, SQUARED_LINE = tl.constexpr(codes.PRODUCT), tl.constexpr(codes.SQUARED_LINE)
BOUNDED_PRODUCTS, UNEVEN = tl.constexpr(codes.BOUNDED_PRODUCTS), tl.constexpr(codes.UNEVEN)
MEAN, LOG_ODDS, SIZE = tl.constexpr(codes.MEAN), tl.constexpr(codes.LOG_ODDS), tl.constexpr(codes.SIZE)
SUBNORMAL = tl.constexpr(codes.SUBNORMAL)

# What `design_vectors` does with weighted design vectors.
SCORES, WEIGHTED, PLAIN = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


# ---------------------------------------------------------------- one row


@triton.jit
def _clip(x, bound):
    """Into [-bound, bound]; NaN stays."""
    x = tl.where(x < -bound, -bound, x)
    return tl.where(x > bound, bound, x)


@triton.jit
def _stretched(x, numbers):
    """The clip of `tailguard.default.rows.Clip`; ``numbers`` are its far, near and stretch."""
    x = _clip(x, tl.load(numbers))
    return x + tl.load(numbers + 2) * (x - _clip(x, tl.load(numbers + 1)))


@triton.jit
def _number(x):
    return tl.where(x == x, x, 0.0)


@triton.jit
def _standardised(x, low, high, mean, inverse, shift):
    """Truncated, centred, scaled, less the shift; a missing value, or one that overflows, is the mean."""
    v = tl.where(x < low, low, x)
    v = tl.where(v > high, high, v)
    v = (v - mean) * inverse
    return tl.where(tl.abs(v) < INFINITY, v, 0.0) - shift


@triton.jit
def _target(t, q):
    """Standardised target, NaN where it is missing; ``q`` points to the six numbers of `Target`."""
    v = (t - tl.load(q)) / tl.load(q + 1)
    v = tl.where(v < tl.load(q + 4), tl.load(q + 4), v)
    v = tl.where(v > tl.load(q + 5), tl.load(q + 5), v)
    return tl.where(tl.abs(t - tl.load(q + 2)) <= tl.load(q + 3), v, float("nan"))


@triton.jit
def _bounded_score(z, y):
    small = tl.exp(-tl.abs(z))
    agrees = (z > 0.0) == (y > 0.0)
    value = tl.where(agrees, tl.where(z > 0.0, -small, small), tl.where(z > 0.0, 1.0, -1.0))
    return tl.where(y == y, value, 0.0)


@triton.jit
def _residual(eta, t, largest, LINK: tl.constexpr):
    """``eta - t``, ``exp(eta) - t``, the logistic score or ``|eta - t| - largest``; 0 where the target is missing."""
    if LINK == LOG_ODDS:
        r = _bounded_score(eta, t)
    elif LINK == MEAN:
        r = tl.exp(tl.minimum(tl.maximum(eta, -20.0), largest)) - t
    elif LINK == SIZE:
        r = tl.abs(eta - t) - largest
    else:
        r = eta - t
    return _number(r)


@triton.jit
def _scale(size, bound, per_unit):
    """What scales a vector of this norm down to the bound, in units; 0 where it is no number."""
    return tl.where(size < INFINITY, per_unit * (bound / tl.where(size > bound, size, bound)), 0.0)


@triton.jit
def _units(v, most):
    """The nearest integer; 0 for what is not a number, or more than ``most``."""
    bits = (v + ROUND).to(tl.int64, bitcast=True) - ROUND_BITS
    return tl.where(tl.abs(v) <= most, bits, 0)


# ---------------------------------------------------------------- one pass


@triton.jit(do_not_specialize=["n"])
def count(X, y_stride, x_stride, columns, q, bins, out, n, copies, WIDTH: tl.constexpr, W: tl.constexpr,
           B: tl.constexpr, POSITIVE: tl.constexpr, EACH: tl.constexpr, BINS: tl.constexpr,
           EXPONENTS: tl.constexpr):  # fmt: skip
    """Add one to ``out[row mod copies, c, bins[c, exponent]]`` for every row and column."""
    c = tl.arange(0, W)
    there = c < WIDTH
    place = tl.load(columns + c, mask=there, other=0)
    centre = tl.load(q + c, mask=there, other=0.0)
    step = tl.num_programs(0).to(tl.int64) * B
    for start in range(tl.program_id(0).to(tl.int64) * B, n, step):
        rows = start + tl.arange(0, B)
        mask = (rows < n)[:, None] & there[None, :]
        x = tl.load(X + rows[:, None] * y_stride + place[None, :] * x_stride, mask=mask, other=0.0).to(tl.float64)
        if POSITIVE:
            x = tl.where(x < 0.0, 0.0, x)
        size = tl.abs(x - centre[None, :])
        e = ((size.to(tl.int64, bitcast=True) - 1) >> 52) + 1
        scaled = (((size * 1152921504606846976.0).to(tl.int64, bitcast=True) - 1) >> 52) + 1 - 60  # 2^60
        e = tl.where(e == 0, 0, tl.where(e == 1, scaled, e) + SUBNORMAL)
        bin = tl.load(bins + (c[None, :] * (EACH * EXPONENTS) + e), mask=mask, other=0).to(tl.int64)
        at = ((rows % copies)[:, None] * WIDTH + c[None, :]) * BINS + bin
        tl.atomic_add(out + at, 1, mask=mask, sem="relaxed")


@triton.jit(do_not_specialize=["n"])
def count_near(X, y_stride, x_stride, columns, q, out, n, copies, WIDTH: tl.constexpr, W: tl.constexpr,
                B: tl.constexpr, POSITIVE: tl.constexpr, BINS: tl.constexpr):  # fmt: skip
    """Add one to ``out[row mod copies, c, bin]`` for every row and column: equal bins about a centre, all else in 0."""
    c = tl.arange(0, W)
    there = c < WIDTH
    place = tl.load(columns + c, mask=there, other=0)
    centre = tl.load(q + c, mask=there, other=0.0)
    unit = tl.load(q + W + c, mask=there, other=1.0)
    step = tl.num_programs(0).to(tl.int64) * B
    for start in range(tl.program_id(0).to(tl.int64) * B, n, step):
        rows = start + tl.arange(0, B)
        mask = (rows < n)[:, None] & there[None, :]
        x = tl.load(X + rows[:, None] * y_stride + place[None, :] * x_stride, mask=mask, other=0.0).to(tl.float64)
        if POSITIVE:
            x = tl.where(x < 0.0, 0.0, x)
        at = tl.floor((x - centre[None, :]) / unit[None, :]) + (BINS // 2)
        inside = (at >= 0.0) & (at < 2 * (BINS // 2))
        bin = tl.where(inside, tl.where(inside, at, 0.0).to(tl.int64) + 1, 0)
        at = ((rows % copies)[:, None] * WIDTH + c[None, :]) * BINS + bin
        tl.atomic_add(out + at, 1, mask=mask, sem="relaxed")


@triton.jit(do_not_specialize=["n"])
def moments(X, y_stride, x_stride, columns, q, out, n, WIDTH: tl.constexpr, W: tl.constexpr, B: tl.constexpr,
             POSITIVE: tl.constexpr, BOTH: tl.constexpr):  # fmt: skip
    """Add ``v``, then ``v^2 - 1``, of every column; or ``v^2 - 1/2`` alone."""
    c = tl.arange(0, W)
    there = c < WIDTH
    place = tl.load(columns + c, mask=there, other=0)
    centre = tl.load(q + c, mask=there, other=0.0)
    reach = tl.load(q + W + c, mask=there, other=1.0)
    bound, per_unit = tl.load(q + 2 * W), tl.load(q + 2 * W + 1)
    most = bound * per_unit * MARGIN
    first, second = tl.zeros((W,), tl.int64), tl.zeros((W,), tl.int64)
    step = tl.num_programs(0).to(tl.int64) * B
    for start in range(tl.program_id(0).to(tl.int64) * B, n, step):
        rows = start + tl.arange(0, B)
        mask = (rows < n)[:, None] & there[None, :]
        x = tl.load(X + rows[:, None] * y_stride + place[None, :] * x_stride, mask=mask, other=0.0).to(tl.float64)
        if POSITIVE:
            x = tl.where(x < 0.0, 0.0, x)
        v = _number(_clip((x - centre[None, :]) / reach[None, :], 1.0))
        w = v * v - (1.0 if BOTH else 0.5)
        size = tl.sqrt(tl.sum(tl.where(mask, v * v + w * w if BOTH else w * w, 0.0), 1))
        scale = _scale(size, bound, per_unit)[:, None]
        if BOTH:
            first += tl.sum(tl.where(mask, _units(v * scale, most), 0), 0)
        second += tl.sum(tl.where(mask, _units(w * scale, most), 0), 0)
    at = out + tl.program_id(0).to(tl.int64) * (2 * WIDTH if BOTH else WIDTH) + c
    if BOTH:
        tl.store(at, first, mask=there)
        at += WIDTH
    tl.store(at, second, mask=there)


@triton.jit(do_not_specialize=["n"])
def design_vectors(X, y, q, out, kept, n, x_rows, x_columns, D: tl.constexpr, P: tl.constexpr, K: tl.constexpr,
            B: tl.constexpr, WORK: tl.constexpr, LINK: tl.constexpr):  # fmt: skip
    """Design vectors of tiles of rows, and what is made of them.

    ``q`` holds lower, upper, mean, 1/scale and shift of P columns each, the rotation (P, P), theta without its first
    entry, and then scalars; P is d rounded up to a power of two.
    """
    k = tl.arange(0, P)
    s = q + 5 * P + P * P + P
    constant, theta0, offset, largest = tl.load(s), tl.load(s + 1), tl.load(s + 2), tl.load(s + 3)
    radius, cap = tl.load(s + 4), tl.load(s + 5)
    bound, per_unit = tl.load(s + 6), tl.load(s + 7)
    most = bound * per_unit * MARGIN
    theta = tl.load(q + 5 * P + P * P + k)
    total, total0 = tl.zeros((P,), tl.int64), tl.zeros((), tl.int64)
    step = tl.num_programs(0).to(tl.int64) * B
    for start in range(tl.program_id(0).to(tl.int64) * B, n, step):
        rows = start + tl.arange(0, B)
        inside = rows < n
        a = tl.zeros((B, P), tl.float64)
        for j0 in range(0, P, K):
            j = j0 + tl.arange(0, K)
            mask = inside[:, None] & (j < D)[None, :]
            x = tl.load(X + rows[:, None] * x_rows + j[None, :].to(tl.int64) * x_columns, mask=mask, other=0.0).to(
                tl.float64
            )
            low, high, mean = tl.load(q + j)[None, :], tl.load(q + P + j)[None, :], tl.load(q + 2 * P + j)[None, :]
            inverse, shift = tl.load(q + 3 * P + j)[None, :], tl.load(q + 4 * P + j)[None, :]
            z = _standardised(x, low, high, mean, inverse, shift)
            rotation = tl.load(q + 5 * P + j[:, None] * P + k[None, :])
            a = tl.dot(z, rotation, a, input_precision="ieee", out_dtype=tl.float64)
        size = tl.sqrt(constant * constant + tl.sum(a * a, 1))
        ratio = radius / tl.where(size > 1e-100, size, 1e-100)
        weight = cap * ratio * ratio
        weight = tl.where(ratio < weight, ratio, weight)
        weight = tl.where(weight > 1.0, 1.0, weight)
        if WORK == PLAIN:
            at = rows * (D + 2)
            tl.store(kept + at[:, None] + 1 + k[None, :], a, mask=inside[:, None] & (k < D)[None, :])
            tl.store(kept + at, tl.zeros((B,), tl.float64) + constant, mask=inside)
            tl.store(kept + at + D + 1, weight, mask=inside)
        elif WORK == WEIGHTED:
            root = tl.sqrt(weight)
            f = tl.where(inside, root * _scale(size * root, bound, per_unit), 0.0)
            at = rows * (D + 1)
            u = _units(a * f[:, None], most).to(tl.float64)
            tl.store(kept + at[:, None] + 1 + k[None, :], u, mask=inside[:, None] & (k < D)[None, :])
            tl.store(kept + at, _units(constant * f, most).to(tl.float64), mask=inside)
        else:
            eta = offset + constant * theta0 + tl.sum(a * theta[None, :], 1)
            t = _target(tl.load(y + rows, mask=inside, other=0.0).to(tl.float64), s + 11)
            weight = weight * _stretched(_residual(eta, t, largest, LINK), s + 8)
            f = tl.where(inside, weight * _scale(size * tl.abs(weight), bound, per_unit), 0.0)
            total += tl.sum(_units(a * f[:, None], most), 0)
            total0 += tl.sum(_units(constant * f, most), 0)
    if WORK == SCORES:
        at = out + tl.program_id(0).to(tl.int64) * (D + 1)
        tl.store(at + 1 + k, total, mask=k < D)
        tl.store(at, total0)


@triton.jit(do_not_specialize=["n"])
def along_line(X, y, q, out, n, x_rows, x_columns, D: tl.constexpr, P: tl.constexpr, B: tl.constexpr,
          LINK: tl.constexpr, CODE: tl.constexpr, POINTS: tl.constexpr):  # fmt: skip
    """Residuals of a line, counted between POINTS of a grid (a power of two), or else the vectors of a code.

    ``q`` holds lower, upper, mean, 1/scale, shift and slopes of P columns each, constant, largest, the target, bound
    and per_unit, and from there the grid or the parameters of the code.
    """
    j = tl.arange(0, P)
    low, high, mean = tl.load(q + j)[None, :], tl.load(q + P + j)[None, :], tl.load(q + 2 * P + j)[None, :]
    inverse, shift = tl.load(q + 3 * P + j)[None, :], tl.load(q + 4 * P + j)[None, :]
    slopes = tl.load(q + 5 * P + j)[None, :]
    s = q + 6 * P
    constant, largest = tl.load(s), tl.load(s + 1)
    bound, per_unit = tl.load(s + 8), tl.load(s + 9)
    most = bound * per_unit * MARGIN
    m = s + 10
    g = tl.arange(0, POINTS)
    beyond = tl.zeros((POINTS,), tl.int64)
    first, second, third = tl.zeros((), tl.int64), tl.zeros((), tl.int64), tl.zeros((), tl.int64)
    step = tl.num_programs(0).to(tl.int64) * B
    for start in range(tl.program_id(0).to(tl.int64) * B, n, step):
        rows = start + tl.arange(0, B)
        inside = rows < n
        eta = tl.zeros((B,), tl.float64) + constant
        if D > 0:
            mask = inside[:, None] & (j < D)[None, :]
            x = tl.load(X + rows[:, None] * x_rows + j[None, :].to(tl.int64) * x_columns, mask=mask, other=0.0).to(
                tl.float64
            )
            eta += tl.sum(_standardised(x, low, high, mean, inverse, shift) * slopes, 1)
        t = _target(tl.load(y + rows, mask=inside, other=0.0).to(tl.float64), s + 2)
        if CODE < 0:
            size = tl.abs(_residual(eta, t, largest, LINK))
            more = (size[:, None] > tl.load(m + g)[None, :]) & inside[:, None]
            beyond += tl.sum(more.to(tl.int64), 0)
        else:
            w, u = tl.zeros((B,), tl.float64), tl.zeros((B,), tl.float64)
            if CODE == LEVEL:
                v = _stretched(-_residual(eta, t, largest, LINK), m)
            elif CODE == SQUARE:
                r, top = _number(eta - t), tl.load(m) * tl.load(m)
                v = tl.where(r * r > top, top, r * r) - top / 2.0
            elif CODE == INSTRUMENT:
                v = _clip(eta / tl.load(m), 1.0)
                w = v * _clip(eta / tl.load(m + 1), 4.0) / 2.0
            elif CODE == PRODUCT:
                v = _stretched(-_residual(eta, t, largest, LINK), m + 2)
                other = tl.load(m + 5 + j, mask=j < D, other=0.0)[None, :]
                w = tl.sum(_standardised(x, low, high, mean, inverse, shift) * other, 1)
                v = v * _clip(_clip(w / tl.load(m), 1.0) - tl.load(m + 1), 1.0)
                w = tl.zeros((B,), tl.float64)
            elif CODE == SQUARED_LINE:
                v = _clip(eta / tl.load(m), 1.0)
                w = v * v - 0.5
            elif CODE == BOUNDED_PRODUCTS:
                v = _bounded_score(tl.load(m + 1) + tl.load(m + 2) * eta, t)
                w = v * _clip(eta / tl.load(m), 1.0)
            elif CODE == UNEVEN:
                c = tl.load(m + 1)
                w = _clip(tl.abs(_number(t - eta)), c) / c - 0.5
                u = _clip((eta - tl.load(m + 2)) / tl.load(m), 1.0)
                v = w * u
                u = u / 2.0
            else:  # BEYOND
                z = _standardised(x, low, high, mean, inverse, shift)
                least = tl.load(m + 1 + j, mask=j < D, other=0.0)[None, :]
                furthest = tl.load(m + 1 + D + j, mask=j < D, other=0.0)[None, :]
                z = tl.where(z < least, least, z)
                z = tl.where(z > furthest, furthest, z)
                near = constant + tl.sum(z * slopes, 1)
                v = _clip(_number((eta - near) * ((t - near) + (t - eta))), tl.load(m))
            f = tl.where(inside, _scale(tl.sqrt(v * v + w * w + u * u), bound, per_unit), 0.0)
            first += tl.sum(_units(v * f, most), 0)
            second += tl.sum(_units(w * f, most), 0)
            third += tl.sum(_units(u * f, most), 0)
    if CODE < 0:
        tl.store(out + tl.program_id(0).to(tl.int64) * POINTS + g, beyond)
    else:
        at = out + tl.program_id(0).to(tl.int64) * 3
        tl.store(at, first)
        tl.store(at + 1, second)
        tl.store(at + 2, third)
