r"""What one row contributes to a sum, operation by operation: the rule that every engine follows to the last bit.

A float64 result depends on the order of additions, on fused multiply-adds and on whose ``exp`` is called. So the rule
is a sequence of single IEEE operations (``+ - * /`` and the square root, each rounded once, none fused), the same
here, in `tailguard.kernels.triton_rows` and, in NumPy, in ``tests/row_rule.py``:

*Sums over a row* (the predictor, the squared norm). Terms are added in quads of neighbours, ``(t0 + t1) + (t2 + t3)``;
quad i goes to lane ``i mod 16``, in order; the 16 lanes are added by halves: r and r + 8, then r and r + 4, ...
Columns that do not exist count as 0.

*exp* is ``2^k`` times a polynomial (`exp`), and so is psi a polynomial or a table (`psi`).

*Rounding.* ``value + ROUND`` holds the nearest integer in its low bits. They are added as 64-bit integers, exactly, in
any order: the sum does not depend on the order of the rows, on blocks, threads or machines.

Functions of lanes take rows that are plain; `row_sum` and those after it take one row, whatever is in it.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from tailguard.kernels.lanes import (
    bits,
    double,
    doubles,
    first,
    from_bits,
    integer,
    keep,
    pick,
    pointer,
    singles,
    spread,
    where,
)

ROUND = 1.5 * 2.0**52
ROUND_BITS = 0x4338000000000000  # of the float64 above
LARGEST = 1.7976931348623157e308
ABSOLUTE = 0x7FFFFFFFFFFFFFFF  # all bits but the sign

GIVEN, SQUARED, LOGISTIC, HUBER, POISSON = 0, 1, 2, 3, 4

# "numpy" keeps a division from becoming a branch that raises. No flag here lets operations be fused or reordered.
OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy"}
INLINE = {**OPTIONS, "forceinline": True}


@njit(**INLINE)
def size_of(a):
    """The absolute value."""
    return from_bits(bits(a) & ABSOLUTE)


@njit(**INLINE)
def clamped(a, bound):
    """Into [-bound, bound]; NaN stays."""
    a = where(a > bound, bound, a)
    return where(a < -bound, -bound, a)


@njit(**INLINE)
def _power(k):
    """2^k for -1022 <= k <= 1023."""
    return from_bits((k + 1023) << 52)


@njit(**INLINE)
def exp(z):
    """exp(z), within two units in the last place: 2^k times the Taylor series on |r| <= log(2)/2; NaN stays."""
    b = where(z > -750.0, z, -750.0)
    b = where(b < 720.0, b, 720.0)
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
    whole = integer(k)
    half = whole >> 1  # 2^k itself may not be a float
    return where(z == z, p * _power(half) * _power(whole - half), z)


@njit(**INLINE)
def derivatives(code, parameter, z, y):
    """The derivative in z of the built-in losses, of lanes; see `tailguard.losses` for the formulas."""
    if code == SQUARED:
        return z - y
    if code == HUBER:
        return clamped(z - y, parameter)
    if code == LOGISTIC:
        g = 1.0 / (1.0 + exp(where(y > 0.0, z, 0.0 - z)))
        return where(y == y, where(y > 0.0, 0.0 - g, g), y)
    return exp(z) - y


@njit(**OPTIONS)
def derivative(code, parameter, z, y):
    """The derivative in z of the built-in losses, of numbers."""
    return first(derivatives(code, parameter, spread(z), spread(y)))


@njit(**INLINE)
def _table_psi(a, p, table, cells):
    """psi_beta by cubics on equal cells of ``u = 1/(1 + |a|)``."""
    size = size_of(a)
    u = np.float64(cells) / (1.0 + where(size < 1e30, size, 1e30))
    k = integer(u)
    k = where(k < cells, k, cells - 1)
    s = u - double(k)
    k = 4 * k
    value = pick(table, k) + s * (pick(table, k + 1) + s * (pick(table, k + 2) + s * pick(table, k + 3)))
    bound = np.float64(p[1])
    value = where(value < bound, value, bound)
    value = where(value > 0.0, value, 0.0)
    return _signed(value, a)


@njit(**INLINE)
def _most(a):
    """|a|, at most 1e15: there psi is its limit, to rounding."""
    size = size_of(a)
    return where(size < 1e15, size, 1e15)


@njit(**INLINE)
def _signed(value, a):
    """A value >= 0 with the sign of a."""
    return where(a < 0.0, 0.0 - value, value)


@njit(**INLINE)
def psi(a, b, c, e, p, table, cells):
    r"""psi_beta of four lanes, inside ``[-kappa, kappa]`` whatever is in them.

    With ``r = 1/sqrt(1 + m a^2)``, psi is ``a r P(1 - 2 r^2)``: an analytic function of ``1/a^2`` at infinity, so that
    one polynomial converges geometrically on the whole line. All that privacy needs of the result is its bound, and the
    polynomial errs by 1e-6 anyway, so float32 will do: twice as many lanes, and a root by two steps from a guess in the
    bits costs less than a division. ``p`` holds m, kappa and the 13 coefficients of P, lowest first, as float32.

    Where one polynomial is too coarse, for large and for small beta, there is a ``table`` of cubics in float64,
    of so many ``cells``. ``p`` and ``table`` are pointers.
    """
    if cells > 0:
        return (
            _table_psi(a, p, table, cells),
            _table_psi(b, p, table, cells),
            _table_psi(c, p, table, cells),
            _table_psi(e, p, table, cells),
        )
    x = singles(_most(a), _most(b), _most(c), _most(e))
    s = 1.0 + (p[0] * x) * x
    r = from_bits(0x5F1FFFF9 - (bits(s) >> 1))
    r = r * (1.6819413900375366 - ((0.7039522528648376 * s) * r) * r)
    r = r * (1.5 - ((0.5 * s) * r) * r)
    x = x * r
    t = 1.0 - 2.0 * (r * r)
    t2 = t * t
    t4 = t2 * t2
    # In parallel where it can be: one long chain of operations would wait for each of them.
    low = (p[2] + p[3] * t) + (p[4] + p[5] * t) * t2
    middle = (p[6] + p[7] * t) + (p[8] + p[9] * t) * t2
    high = ((p[10] + p[11] * t) + (p[12] + p[13] * t) * t2) + p[14] * t4
    x = (low + (middle + high * t4) * t4) * x
    x = where(x < p[1], x, p[1])
    u = doubles(where(x > 0.0, x, 0.0))
    return _signed(u[0], a), _signed(u[1], b), _signed(u[2], c), _signed(u[3], e)


@njit(**OPTIONS)
def psi_of_number(a, p, table):
    """psi_beta of one number; ``p`` and ``table`` are arrays."""
    a = spread(a)
    value = first(psi(a, a, a, a, pointer(p), pointer(table), table.shape[0])[0])
    keep((p, table))
    return value


# One row, whatever is in it


@njit(**OPTIONS)
def finite(x):
    """+-inf becomes the largest float of its sign, NaN becomes 0."""
    return max(-LARGEST, min(LARGEST, np.float64(x))) if x == x else 0.0


@njit(**OPTIONS)
def clamp(x, bound):
    """Into [-bound, bound]."""
    return max(-bound, min(bound, x))


@njit(**OPTIONS)
def rounded(value):
    """The integer nearest to a value below 2^51."""
    return np.int64((value + ROUND) - ROUND)


@njit(**OPTIONS)
def row_sum(terms):
    """Add numbers in the order of the rule."""
    lanes = np.zeros(16)
    for i in range(0, terms.size, 4):
        quad = np.zeros(4)
        quad[: min(4, terms.size - i)] = terms[i : i + 4]
        lanes[(i // 4) % 16] += (quad[0] + quad[1]) + (quad[2] + quad[3])
    half = 8
    while half > 0:
        for r in range(half):
            lanes[r] += lanes[r + half]
        half //= 2
    return lanes[0]


@njit(**OPTIONS)
def careful_dot(x, w):
    """The dot product of a row where products overflow or are not numbers: NaN if an entry is."""
    terms = np.empty(x.size)
    for j in range(x.size):
        if x[j] != x[j]:
            return np.nan
        terms[j] = finite(x[j]) * 2.409919865102884e-181 * w[j]  # 2^-600
    return row_sum(terms) * 4.149515568880993e180  # 2^600


@njit(**OPTIONS)
def _exponent(a):
    """Floor of log2(a) for a >= 0, at most 1022; -1023 for 0 and subnormal numbers."""
    if a < 2.2250738585072014e-308:
        return -1023
    return min(math.frexp(a)[1] - 1, 1022)


@njit(**OPTIONS)
def add_clipped_row(x, f, clip, per_unit, fit_intercept, total):
    """Add a row with L2 clipping, where squares may leave the range; ``f`` holds its multipliers, one per output.

    All scaling is by powers of two, which rounds nothing: the bits are those of a plain row wherever that is defined.
    """
    d = x.size
    largest = 0.0
    for j in range(d):
        largest = max(largest, abs(finite(x[j])))
    size = _exponent(largest)
    if fit_intercept:
        size = max(size, 0)
    shrink = math.ldexp(1.0, -size)
    row, squares = np.empty(d), np.empty(d)
    for j in range(d):
        row[j] = finite(x[j]) * shrink
        squares[j] = row[j] * row[j]
    q = row_sum(squares)
    if fit_intercept:
        q += shrink * shrink
    steepest = 0.0
    for k in range(f.size):
        if f[k] != f[k]:
            return
        steepest = max(steepest, abs(finite(f[k])))
    slope = _exponent(steepest)
    g = 0.0
    for k in range(f.size):
        fk = finite(f[k]) * math.ldexp(1.0, -slope)
        g += fk * fk
    norm = math.sqrt(q * g)
    if not norm > 0.0:
        return
    # The row's norm is norm * 2^(size + slope), perhaps not a float; 2^1000 is beyond every bound.
    scale = min(math.ldexp(1.0, min(max(size + slope, -1000), 1000)), clip / norm)
    for k in range(f.size):
        c = finite(f[k]) * math.ldexp(1.0, -slope) * (scale * per_unit)
        for j in range(d):
            total[k, j] += rounded(c * row[j])
        if fit_intercept:
            total[k, d] += rounded(c * shrink)


@njit(**OPTIONS)
def add_clamped_row(x, f, clip, per_unit, fit_intercept, total):
    """Add a row with every coordinate clamped."""
    d = x.size
    for k in range(f.size):
        if f[k] == f[k]:
            c = finite(f[k])
            for j in range(d):
                total[k, j] += rounded(clamp(c * finite(x[j]), clip) * per_unit)
            if fit_intercept:
                total[k, d] += rounded(clamp(c, clip) * per_unit)


@njit(**OPTIONS)
def add_smoothed_row(x, f, scale, per_unit, fit_intercept, p, table, cubic, core, total):
    """Add a row with every coordinate through psi."""
    d = x.size
    height = scale * per_unit
    size = 1.0 if fit_intercept else 0.0
    for j in range(d):
        size = max(size, abs(np.float64(x[j])) if x[j] == x[j] else np.inf)
    for k in range(f.size):
        c = f[k] / scale
        if c != c:
            continue
        if abs(c) * size <= core and abs(c) < 1e30 and size < 1e30:
            one = c * height
            three = one * cubic * c * c
            for j in range(d):
                v = np.float64(x[j])
                total[k, j] += rounded(v * (one - three * (v * v)))
            if fit_intercept:
                total[k, d] += rounded(one - three)
        else:
            c = finite(c)
            for j in range(d):
                total[k, j] += rounded(psi_of_number(c * finite(x[j]), p, table) * height)
            if fit_intercept:
                total[k, d] += rounded(psi_of_number(c, p, table) * height)
