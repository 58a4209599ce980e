r"""The rule of a row on a GPU: `tailguard.kernels.rule`, operation by operation, as functions of Triton.

Products and sums are fused where the rule says ``fma``, and nowhere else: kernels are launched with
``enable_fp_fusion=False``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tailguard.kernels import rule

ROUND = tl.constexpr(1.5 * 2.0**52)
ROUND_BITS = tl.constexpr(0x4338000000000000)  # of the float64 above
SIGN = tl.constexpr(-0x8000000000000000)  # the bit of it
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
def plus(a, b, VALUE: tl.constexpr):
    """``fma(a, b, VALUE)``; a bare constant would be rounded to float32."""
    return tl.fma(a, b, tl.full(a.shape, VALUE, a.dtype))


@triton.jit
def power(k):
    """2^k as float64 for -1022 <= k <= 1023."""
    return ((k.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def exponent(a):
    """Floor of log2(a) for normal a >= 0, -1023 below; a is finite."""
    return ((a.to(tl.int64, bitcast=True) >> 52) - 1023).to(tl.int32)


@triton.jit
def exp(z):
    """exp(z), within two units in the last place: 2^k times the Taylor series on |r| <= log(2)/2."""
    b = tl.minimum(tl.maximum(z, -750.0), 720.0)
    k = plus(b, tl.full(b.shape, 1.4426950408889634, tl.float64), ROUND) - ROUND
    r = tl.fma(k, tl.full(b.shape, -0.6931471803691238, tl.float64), b)
    r = tl.fma(k, tl.full(b.shape, -1.9082149292705877e-10, tl.float64), r)
    p = plus(r, tl.full(b.shape, 1.6059043836821613e-10, tl.float64), 2.08767569878681e-09)
    p = plus(p, r, 2.505210838544172e-08)
    p = plus(p, r, 2.755731922398589e-07)
    p = plus(p, r, 2.7557319223985893e-06)
    p = plus(p, r, 2.48015873015873e-05)
    p = plus(p, r, 0.0001984126984126984)
    p = plus(p, r, 0.001388888888888889)
    p = plus(p, r, 0.008333333333333333)
    p = plus(p, r, 0.041666666666666664)
    p = plus(p, r, 0.16666666666666666)
    p = plus(p, r, 0.5)
    p = plus(p, r, 1.0)
    p = plus(p, r, 1.0)
    k = k.to(tl.int32)
    half = k >> 1
    return tl.where(z == z, p * power(half) * power(k - half), z)


@triton.jit
def clamped(a, bound):
    """Into [-bound, bound]; NaN becomes either end. A minimum and a maximum of float64 take twice the instructions."""
    sign = a.to(tl.int64, bitcast=True) & SIGN
    end = tl.full(a.shape, bound, tl.float64).to(tl.int64, bitcast=True) | sign
    return tl.where(tl.abs(a) <= bound, a, end.to(tl.float64, bitcast=True))


@triton.jit
def finite(a):
    """+-inf becomes the largest float of its sign, NaN becomes 0."""
    return tl.where(a == a, clamped(a, tl.full((), LARGEST, tl.float64)), 0.0)


@triton.jit
def derivative(z, y, parameter, CODE: tl.constexpr):
    """The derivative in z of the built-in losses."""
    if CODE == SQUARED:
        f = z - y
    elif CODE == LOGISTIC:
        positive = y > 0.0
        g = 1.0 / (1.0 + exp(tl.where(positive, z, -z)))
        f = tl.where(y == y, tl.where(positive, -g, g), y)
    elif CODE == HUBER:
        r = z - y
        f = tl.where(r == r, tl.minimum(tl.maximum(r, -parameter), parameter), r)
    else:
        f = exp(z) - y
    return f


@triton.jit
def cubic_root(e):
    """``1/sqrt(1 + e)`` to 4e-7, for e from -.25 to -.156."""
    r = plus(e, tl.full(e.shape, -0.6941339684885197, e.dtype), 0.2402259599219706)
    return plus(e, plus(e, r, -0.519373245462568), 0.9989967885806699)


@triton.jit
def inverse_root(s):
    """``1/sqrt(s)`` of normal float64 s, within a relative 2^-52; some number where s is 0."""
    r = (0x5FE4000000000000 - (s.to(tl.int64, bitcast=True) >> 1)).to(tl.float64, bitcast=True)
    r = r * cubic_root(plus(s * r, r, -1.0))
    e = plus(s * r, r, -1.0)
    return tl.fma(r * e, plus(e, tl.full(e.shape, 0.375, tl.float64), -0.5), r)


@triton.jit
def float_psi(x, p):
    """psi_beta by its polynomial, in float32 and in units; `tailguard.kernels.rule.psi` says why."""
    s = plus(x, x, 1.0)
    r = (0x5F200000 - (s.to(tl.int32, bitcast=True) >> 1)).to(tl.float32, bitcast=True)
    v = (x * r) * cubic_root(plus(s * r, r, -1.0))
    t = plus(v, v, -0.5)
    value = tl.fma(t, tl.load(p + DEGREE + 1).to(tl.float32) + tl.zeros_like(t), tl.load(p + DEGREE).to(tl.float32))
    for k in tl.static_range(1, DEGREE):
        value = tl.fma(t, value, tl.load(p + DEGREE - k).to(tl.float32))
    most = tl.load(p).to(tl.float32)
    return tl.minimum(tl.maximum(v * value, -most), most)


@triton.jit
def psi(a, constants, table, CELLS: tl.constexpr):
    """Bits that hold ROUND_BITS plus psi_beta in units, by the polynomial or by the table; a is ``root`` times it."""
    p = constants + PSI
    a = clamped(a, tl.full((), FARTHEST, tl.float64))
    if CELLS == 0:
        units = float_psi(a.to(tl.float32), p).to(tl.int32).to(tl.int64)
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
def rounded(a, b):
    """Bits that hold ROUND_BITS plus the integer nearest to the product."""
    return tl.fma(a, b, tl.full(b.shape, ROUND, tl.float64)).to(tl.int64, bitcast=True)
