"""What one row adds to a sum, in NumPy, operation by operation: the rule that every engine follows to the last bit.

It is written from `tailguard.kernels.triton_rows` and `tailguard.kernels.rows` and shares no code with either. It needs
NumPy alone, so it also runs where the rest of the package is not installed, on a machine with a GPU.
"""

from __future__ import annotations

import math

import numpy as np

LARGEST = np.finfo(np.float64).max
GIVEN, SQUARED, LOGISTIC, HUBER, POISSON = range(5)
L2, COORDINATE, SMOOTH = range(3)


def row_sum(t):
    """Quads of neighbours; quad i to lane i mod 16, in order; lanes by halves."""
    n, d = t.shape
    t = np.concatenate([t, np.zeros((n, -d % 64))], axis=1).reshape(n, -1, 16, 4)
    quads = (t[..., 0] + t[..., 1]) + (t[..., 2] + t[..., 3])
    lanes = quads[:, 0]
    for k in range(1, quads.shape[1]):
        lanes = lanes + quads[:, k]
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]


def exp(z):
    b = np.clip(np.nan_to_num(z, nan=0.0), -750.0, 720.0)
    k = np.rint(b * 1.4426950408889634)
    r = (b - k * 0.6931471803691238) - k * 1.9082149292705877e-10
    p = np.full_like(r, 1 / math.factorial(13))
    for i in range(12, -1, -1):
        p = p * r + 1 / math.factorial(i)
    half = np.floor(k / 2)
    return np.where(np.isnan(z), z, p * 2.0**half * 2.0 ** (k - half))


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
    z = row_sum(X * w) + intercept
    careful = row_sum(finite(X) * 2.0**-600 * w) * 2.0**600 + intercept
    return np.where(np.isfinite(z), z, np.where(np.isnan(X).any(axis=1), np.nan, careful))


def psi(a, p, table):
    b = np.minimum(np.abs(a), 1e30)
    if len(table):
        u = len(table) / (1.0 + b)
        k = np.minimum(u.astype(np.int64), len(table) - 1)
        s = u - k
        r = table[k, 0] + s * (table[k, 1] + s * (table[k, 2] + s * table[k, 3]))
    else:
        b = np.minimum(np.abs(a), 1e15).astype(np.float32)
        p = np.array(p, np.float32)
        one, two, half, slope, start, last = np.array(
            [1, 2, 0.5, 0.7039522528648376, 1.6819413900375366, 1.5], np.float32
        )
        s = one + (p[0] * b) * b
        r = (np.int32(0x5F1FFFF9) - (s.view(np.int32) >> 1)).view(np.float32)
        r = r * (start - ((slope * s) * r) * r)
        r = r * (last - ((half * s) * r) * r)
        x = one - two * (r * r)
        x2 = x * x
        x4 = x2 * x2
        low, middle, high = ((p[k] + p[k + 1] * x) + (p[k + 2] + p[k + 3] * x) * x2 for k in (2, 6, 10))
        v = low + (middle + (high + p[14] * x4) * x4) * x4
        r = (v * (b * r)).astype(np.float64)
    return np.copysign(np.clip(r, 0.0, p[1]), a)


def contributions(X, y, w, fit_intercept, code, parameter, given, kind, bound, per_unit, p, table, cubic, core):
    """Integers of every row, (n, outputs, columns + fit_intercept)."""
    with np.errstate(all="ignore"):
        X = np.asarray(X, np.float64)
        d = X.shape[1]
        if code == GIVEN:
            f = np.asarray(given, np.float64).T
        else:
            z = predictor(X, w[0, :d], w[0, d] if fit_intercept else 0.0)
            f = derivative(code, parameter, z, np.asarray(y, np.float64))[None]
        V = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
        if kind == L2:
            value = clipped(X, f, bound, per_unit, fit_intercept)
        elif kind == COORDINATE:
            g = np.clip(finite(f)[:, :, None] * finite(V), -bound, bound) * per_unit
            value = np.where(np.isnan(f)[:, :, None], 0.0, g)
        else:
            value = smooth(V, f / bound, bound * per_unit, p, table, cubic, core)
        return np.rint(value).astype(np.int64).transpose(1, 0, 2)


def clipped(X, f, bound, per_unit, fit_intercept):
    """L2 clipping with all scaling by powers of two, for every row."""
    X = finite(X)
    size = exponent(np.abs(X).max(axis=1, initial=0.0))
    if fit_intercept:
        size = np.maximum(size, 0.0)
    X, one = X * (2.0**-size)[:, None], 2.0**-size
    q = row_sum(X * X) + (one * one if fit_intercept else 0.0)
    slope = exponent(np.abs(finite(f)).max(axis=0))
    bad = np.isnan(f).any(axis=0)
    f = finite(f) * 2.0**-slope
    g = np.zeros(len(X))
    for fk in f:
        g = g + fk * fk
    norm = np.sqrt(q * g)
    bad |= ~(norm > 0)
    scale = np.minimum(2.0 ** np.clip(size + slope, -1000, 1000), bound / np.where(bad, 1.0, norm))
    c = np.where(bad, 0.0, f * (scale * per_unit))
    value = c[:, :, None] * X
    return np.concatenate([value, (c * one)[:, :, None]], axis=2) if fit_intercept else value


def smooth(V, c, height, p, table, cubic, core):
    size = np.abs(V).max(axis=1, initial=0.0)
    inside = (np.abs(c) * size <= core) & (np.abs(c) < 1e30) & (size < 1e30)
    first = c * height
    third = first * cubic * c * c
    near = V * (first[:, :, None] - third[:, :, None] * (V * V))
    far = psi(finite(c)[:, :, None] * finite(V), p, table) * height
    value = np.where(inside[:, :, None], near, far)
    return np.where(np.isnan(c)[:, :, None], 0.0, value)
