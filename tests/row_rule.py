"""What one row adds to a sum, in NumPy, operation by operation: the rule that every engine follows to the last bit.

It is written from `tailguard.kernels.triton_rule` and `tailguard.kernels.rows` and shares no code with either. Fused
multiply-adds are the C library's, which are exact on every machine.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import math

import numpy as np
from numba import vectorize

LARGEST = np.finfo(np.float64).max
FARTHEST = 1e15
GIVEN, SQUARED, LOGISTIC, HUBER, POISSON = range(5)
L2, COORDINATE, SMOOTH = range(3)

_C = ctypes.CDLL(ctypes.util.find_library("m") or "ucrtbase")
_fma, _fmaf = _C.fma, _C.fmaf
_fma.restype, _fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3
_fmaf.restype, _fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3


@vectorize(["float32(float32, float32, float32)"])
def fmaf(a, b, c):
    """``a b + c`` rounded once, in float32."""
    return _fmaf(a, b, c)


@vectorize(["float64(float64, float64, float64)"])
def fma(a, b, c):
    """``a b + c`` rounded once, in float64."""
    return _fma(a, b, c)


def dot(x, w):
    """Pairs of neighbours by fma, two pairs in a quad; quad i to lane i mod 16, in order; lanes by halves."""
    n, d = x.shape
    x, w = (np.pad(np.broadcast_to(t, (n, d)), ((0, 0), (0, -d % 64))) for t in (x, w))
    pairs = fma(x[:, 1::2], w[:, 1::2], x[:, ::2] * w[:, ::2]).reshape(n, -1, 16, 2)
    quads = pairs[..., 0] + pairs[..., 1]
    lanes = quads[:, 0]
    for k in range(1, quads.shape[1]):
        lanes = lanes + quads[:, k]
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]


def exp(z):
    b = np.clip(np.nan_to_num(z, nan=0.0), -750.0, 720.0)
    k = fma(b, 1.4426950408889634, 1.5 * 2.0**52) - 1.5 * 2.0**52
    r = fma(k, -1.9082149292705877e-10, fma(k, -0.6931471803691238, b))
    p = np.full_like(r, 1 / math.factorial(13))
    for i in range(12, -1, -1):
        p = fma(p, r, 1 / math.factorial(i))
    half = np.floor(k / 2)
    return np.where(np.isnan(z), z, p * 2.0**half * 2.0 ** (k - half))


CUBIC_ROOT = 0.9989967885806699, -0.519373245462568, 0.2402259599219706, -0.6941339684885197


def inverse_root(s):
    """1/sqrt(s) by a guess in the bits, a cubic, and a step of third order."""
    r = (0x5FE4000000000000 - (np.ascontiguousarray(s).view(np.int64) >> 1)).view(np.float64)
    e = fma(s * r, r, -1.0)
    one, slope, square, cube = CUBIC_ROOT
    r = r * fma(e, fma(e, fma(e, cube, square), slope), one)
    e = fma(s * r, r, -1.0)
    return fma(r * e, fma(e, 0.375, -0.5), r)


def derivative(code, parameter, z, y):
    if code == SQUARED:
        return z - y
    if code == LOGISTIC:
        g = 1.0 / (1.0 + exp(np.where(y > 0, z, -z)))
        return np.where(np.isnan(y), y, np.where(y > 0, -g, g))
    if code == HUBER:
        return np.clip(z - y, -parameter, parameter)
    return exp(z) - y


def finite(a):
    return np.clip(np.nan_to_num(a, nan=0.0, posinf=LARGEST, neginf=-LARGEST), -LARGEST, LARGEST)


def exponent(a):
    return np.minimum((np.ascontiguousarray(a).view(np.int64) >> 52) - 1023, 1022).astype(float)


def predictor(X, w, intercept):
    z = dot(X, w) + intercept
    careful = dot(finite(X) * 2.0**-600, w) * 2.0**600 + intercept
    return np.where(np.isfinite(z), z, np.where(np.isnan(X).any(axis=1), np.nan, careful))


def below(a):
    """The largest float32 that is not above."""
    nearest = np.float32(a)
    return nearest if float(nearest) <= a else np.nextafter(nearest, np.float32(0))


def psi(a, height, p, table):
    """In units; ``p`` has root, bound and coefficients, and a is root times its argument (root is 1 with a table)."""
    shift = 0 if len(table) else max(0, math.frexp(p[1] * height)[1] - 31)
    height *= 2.0**-shift
    most = below(p[1] * height)
    if len(table):
        u = len(table) / (1.0 + np.abs(a))
        k = np.minimum(u.astype(np.int64), len(table) - 1)
        s = u - k
        c = np.moveaxis((table * height)[k], -1, 0)
        r = fma(s, fma(s, fma(s, c[3], c[2]), c[1]), c[0])
        return np.rint(np.copysign(np.clip(r, -float(most), float(most)), a))
    x = a.astype(np.float32)
    one, slope, square, cube = np.array(CUBIC_ROOT, np.float32)
    s = fmaf(x, x, np.float32(1))
    r = (np.int32(0x5F200000) - (s.view(np.int32) >> 1)).view(np.float32)
    e = fmaf(s * r, r, np.float32(-1))
    v = (x * r) * fmaf(e, fmaf(e, fmaf(e, cube, square), slope), one)
    t = fmaf(v, v, np.float32(-0.5))
    value = np.float32(0)
    for coefficient in reversed(p[2:]):
        value = fmaf(t, value, np.float32(height * coefficient))
    return np.trunc(np.clip(v * value, -most, most)).astype(np.float64) * 2.0**shift


def contributions(X, y, w, fit_intercept, code, parameter, given, kind, bound, per_unit, p, table, cubic, core):
    """Integers of every row, (n, outputs, columns + fit_intercept)."""
    with np.errstate(all="ignore"):
        X = np.asarray(X, np.float64)
        d = X.shape[1]
        straight = np.ones(len(X), bool)
        if code == GIVEN:
            f = np.asarray(given, np.float64).T
        else:
            weights, intercept = w[0, :d], w[0, d] if fit_intercept else 0.0
            straight = np.isfinite(dot(X, weights) + intercept)
            f = derivative(code, parameter, predictor(X, weights, intercept), np.asarray(y, np.float64))[None]
        V = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
        if kind == L2:
            value = clipped(X, f, bound, per_unit, fit_intercept, straight)
        elif kind == COORDINATE:
            g = np.clip(finite(f)[:, :, None] * finite(V), -bound, bound)
            value = nearest(np.where(np.isnan(f)[:, :, None], 0.0, g), per_unit)
        else:
            value = smooth(V, f * (1.0 / bound), bound * per_unit, p, table, cubic, core)
        return value.astype(np.int64).transpose(1, 0, 2)


def nearest(a, b):
    """The integer nearest to a product."""
    return fma(a, b, 1.5 * 2.0**52) - 1.5 * 2.0**52


def clipped(X, f, bound, per_unit, fit_intercept, straight):
    """L2 clipping: straight where nothing leaves the range, else with all scaling by powers of two."""
    ones = np.ones(len(X))
    q, g = dot(X, X) + fit_intercept, np.zeros(len(X))
    for fk in f:
        g = fma(fk, fk, g)
    plain = straight & (q < 1e140) & (g < 1e140) & ((q > 1e-140) | (q == 0)) & ((g > 1e-140) | (g == 0))
    c = f * (per_unit * np.minimum(bound * inverse_root(q * g), 1.0))
    straightly = nearest(c[:, :, None], np.column_stack([X, ones]) if fit_intercept else X)

    X = finite(X)
    size = exponent(np.abs(X).max(axis=1, initial=0.0))
    if fit_intercept:
        size = np.maximum(size, 0.0)
    X, one = X * (2.0**-size)[:, None], 2.0**-size
    q = dot(X, X) + (one * one if fit_intercept else 0.0)
    slope = exponent(np.abs(finite(f)).max(axis=0))
    bad = np.isnan(f).any(axis=0)
    f = finite(f) * 2.0**-slope
    g = np.zeros(len(X))
    for fk in f:
        g = fma(fk, fk, g)
    bad |= ~(q * g > 0)
    scale = np.minimum(2.0 ** np.clip(size + slope, -1000, 1000), bound * inverse_root(q * g))
    c = np.where(bad, 0.0, f * (scale * per_unit))
    carefully = nearest(c[:, :, None], np.column_stack([X, one]) if fit_intercept else X)
    return np.where(plain[:, None], straightly, carefully)


def smooth(V, c, height, p, table, cubic, core):
    size = np.abs(V).max(axis=1, initial=0.0)
    inside = (np.abs(c) * size <= core) & (np.abs(c) < 1e30) & (size < 1e30)
    first = c * height
    third = first * -cubic * c * c
    near = nearest(V, fma(third[:, :, None], V * V, first[:, :, None]))
    a = finite(finite(c) * (1.0 if len(table) else p[0]))[:, :, None] * finite(V)
    far = psi(np.clip(a, -FARTHEST, FARTHEST), height, p, table)
    value = np.where(inside[:, :, None], near, far)
    return np.where(np.isnan(c)[:, :, None], 0.0, value)
