r"""What one row contributes to a sum, operation by operation: the rule that every engine follows to the last bit.

A float64 result depends on the order of additions, on which products are fused with sums and on whose ``exp`` is
called. So the rule is a sequence of IEEE operations, each rounded once: ``+ - * /`` and the fused multiply-add ``fma(a,
b, c) = a b + c``, which is fused where it is written and nowhere else. It is the same here, in
`tailguard.kernels.triton_rule` and, in NumPy, in ``tests/row_rule.py``:

*Sums over a row* (the predictor, the squared norm). Products of two neighbours are added by fma, the second to the
rounded first, and two pairs make a quad; quad i goes to lane ``i mod 16``, in order; the 16 lanes are added by halves:
r and r + 8, then r and r + 4, ... Columns that do not exist count as 0.

*Functions* are polynomials: `exp`, `inverse_root`, and `psi`, which may be a table.

*Rounding.* ``fma(a, b, ROUND)`` holds the integer nearest to ``a b`` in its low bits. They are added as 64-bit
integers, exactly, in any order: the sum does not depend on the order of the rows, on blocks, threads or machines.

*Plain rows.* Where squares leave the range, a row takes another way, with other bits: which rows do is part of the
rule. Functions of lanes take rows that are plain; `dot` and those after it take one row, whatever is in it.
"""

from __future__ import annotations

import math

import numpy as np

from tailguard.kernels.codes import HUBER, LOGISTIC, SQUARED
from tailguard.kernels.compiling import njit
from tailguard.kernels.lanes import (
    bits,
    double,
    first,
    fma,
    from_bits,
    integer,
    integers,
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

DEGREE = 12  # of the polynomial of psi
FARTHEST = 1e15  # scales: psi is its bound there, to rounding, and beyond; squares are still float32

# "numpy" keeps a division from becoming a branch that raises. No flag lets the compiler fuse or reorder operations.
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
def _cubic_root(e):
    """``1/sqrt(1 + e)`` to 4e-7, for e from -.25 to -.156."""
    return fma(e, fma(e, fma(e, -0.6941339684885197, 0.2402259599219706), -0.519373245462568), 0.9989967885806699)


@njit(**INLINE)
def inverse_root(s):
    """``1/sqrt(s)`` of normal s, within a relative 2^-52; a number above 1e154 where s is 0.

    A guess from the bits, within a quarter below, a cubic and a step of third order: less work than a root and a
    division, and on all engines the same.
    """
    r = from_bits(0x5FE4000000000000 - (bits(s) >> 1))
    r = r * _cubic_root(fma(s * r, r, -1.0))
    e = fma(s * r, r, -1.0)
    return fma(r * e, fma(e, 0.375, -0.5), r)


@njit(**INLINE)
def _power(k):
    """2^k for -1022 <= k <= 1023."""
    return from_bits((k + 1023) << 52)


@njit(**INLINE)
def exp(z):
    """exp(z), within two units in the last place: 2^k times the Taylor series on |r| <= log(2)/2; NaN stays."""
    b = where(z > -750.0, z, -750.0)
    b = where(b < 720.0, b, 720.0)
    k = fma(b, 1.4426950408889634, ROUND) - ROUND
    r = fma(k, -1.9082149292705877e-10, fma(k, -0.6931471803691238, b))
    p = fma(r, 1.6059043836821613e-10, 2.08767569878681e-09)
    p = fma(p, r, 2.505210838544172e-08)
    p = fma(p, r, 2.755731922398589e-07)
    p = fma(p, r, 2.7557319223985893e-06)
    p = fma(p, r, 2.48015873015873e-05)
    p = fma(p, r, 0.0001984126984126984)
    p = fma(p, r, 0.001388888888888889)
    p = fma(p, r, 0.008333333333333333)
    p = fma(p, r, 0.041666666666666664)
    p = fma(p, r, 0.16666666666666666)
    p = fma(p, r, 0.5)
    p = fma(p, r, 1.0)
    p = fma(p, r, 1.0)
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
def _within(x, bound):
    """Into [-bound, bound], NaN too."""
    x = where(x < bound, x, bound)
    return where(x > 0.0 - bound, x, 0.0 - bound)


@njit(**INLINE)
def _table_psi(a, p, table, cells):
    """psi_beta by cubics on equal cells of ``u = 1/(1 + |a|)``, in units."""
    u = np.float64(cells) / (1.0 + size_of(a))
    k = integer(u)
    k = where(k < cells, k, cells - 1)
    s = u - double(k)
    k = 4 * k
    value = fma(s, fma(s, fma(s, pick(table, k + 3), pick(table, k + 2)), pick(table, k + 1)), pick(table, k))
    value = _within(value, np.float64(p[0]))
    return bits(where(a < 0.0, 0.0 - value, value) + ROUND) - ROUND_BITS


@njit(**INLINE)
def psi(a, b, c, e, p, table, cells):
    r"""psi_beta of four lanes, in units: integers inside ``+-p[0]`` whatever is in them.

    With ``x = root a`` and ``v = x/sqrt(1 + x^2)``, psi is ``v P(v^2 - 1/2)``: an analytic function of ``1/a^2`` at
    infinity, so that one polynomial converges geometrically on the whole line. The lanes hold x, at most FARTHEST. All
    that privacy needs of the result is its bound, and the polynomial errs by 1e-6 anyway, so float32 will do: twice as
    many lanes, and integers below 2^31. Where one polynomial is too coarse, for large and for small beta, there is a
    ``table`` of cubics in float64, of so many ``cells``, and root is 1.

    ``p`` (bound, then the coefficients of P, lowest first, float32) and ``table`` are pointers, from `psi_in_units`.
    """
    if cells > 0:
        return (
            _table_psi(a, p, table, cells),
            _table_psi(b, p, table, cells),
            _table_psi(c, p, table, cells),
            _table_psi(e, p, table, cells),
        )
    x = singles(a, b, c, e)
    s = fma(x, x, 1.0)
    r = from_bits(0x5F200000 - (bits(s) >> 1))
    v = (x * r) * _cubic_root(fma(s * r, r, -1.0))
    t = fma(v, v, -0.5)
    value = fma(t, p[DEGREE + 1], p[DEGREE])
    for k in range(DEGREE - 1, 0, -1):
        value = fma(t, value, p[k])
    return integers(_within(v * value, p[0]))


def psi_in_units(psi, table, height):
    """Constants of psi where 1 is ``height`` units: root, shift, bound and coefficients in float32, and the table.

    ``psi`` has root, bound and coefficients. Integers count multiples of 2^shift units, and shift is 0 unless a row may
    take 2^31 units or more. The bound is rounded down: no row adds more.
    """
    root, bound, *coefficients = psi
    if len(table):
        root, shift = 1.0, 0
    else:
        shift = max(0, math.frexp(bound * height)[1] - 31)
        height = math.ldexp(height, -shift)
    most = np.float32(bound * height)
    if float(most) > bound * height:
        most = np.nextafter(most, np.float32(0.0))
    p = np.array([most, *(height * value for value in coefficients)], np.float32)
    return root, shift, p, table * height


@njit(**OPTIONS)
def psi_of_number(a, p, table):
    """psi_beta of one number, in units; ``p`` and ``table`` are arrays."""
    a = spread(clamp(a, FARTHEST))
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
def rounded(a, b):
    """The integer nearest to a product below 2^51."""
    return np.int64(fma(a, b, ROUND) - ROUND)


@njit(**OPTIONS)
def dot(x, w):
    """The sum of products, in the order of the rule."""
    lanes, pairs = np.zeros(16), np.zeros((x.size + 3) // 4 * 2)
    for j in range(0, x.size, 2):
        pairs[j // 2] = x[j] * w[j] if j + 1 == x.size else fma(x[j + 1], w[j + 1], x[j] * w[j])
    for i in range(0, pairs.size, 2):
        lanes[(i // 2) % 16] += pairs[i] + pairs[i + 1]
    half = 8
    while half > 0:
        for r in range(half):
            lanes[r] += lanes[r + half]
        half //= 2
    return lanes[0]


@njit(**OPTIONS)
def careful_dot(x, w):
    """The dot product of a row where products overflow or are not numbers: NaN if an entry is."""
    small = np.empty(x.size)
    for j in range(x.size):
        if x[j] != x[j]:
            return np.nan
        small[j] = finite(x[j]) * 2.409919865102884e-181  # 2^-600
    return dot(small, w) * 4.149515568880993e180  # 2^600


@njit(**OPTIONS)
def _exponent(a):
    """Floor of log2(a) for a >= 0, at most 1022; -1023 for 0 and subnormal numbers."""
    if a < 2.2250738585072014e-308:
        return -1023
    return min(math.frexp(a)[1] - 1, 1022)


@njit(**OPTIONS)
def add_clipped_row(x, f, clip, per_unit, fit_intercept, total):
    """Add a row with L2 clipping, where squares may leave the range; ``f`` holds its multipliers, one per output.

    It is scaled by powers of two first, which rounds nothing that counts.
    """
    d = x.size
    largest = 0.0
    for j in range(d):
        largest = max(largest, abs(finite(x[j])))
    size = _exponent(largest)
    if fit_intercept:
        size = max(size, 0)
    shrink = math.ldexp(1.0, -size)
    row = np.empty(d)
    for j in range(d):
        row[j] = finite(x[j]) * shrink
    q = dot(row, row)
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
        g = fma(fk, fk, g)
    if not q * g > 0.0:
        return
    factor = clip * first(inverse_root(spread(q * g)))
    # The row's norm is sqrt(q g) 2^(size + slope), perhaps not a float; 2^1000 is beyond every bound.
    scale = min(math.ldexp(1.0, min(max(size + slope, -1000), 1000)), factor)
    for k in range(f.size):
        c = finite(f[k]) * math.ldexp(1.0, -slope) * (scale * per_unit)
        for j in range(d):
            total[k, j] += rounded(c, row[j])
        if fit_intercept:
            total[k, d] += rounded(c, shrink)


@njit(**OPTIONS)
def add_clamped_row(x, f, clip, per_unit, fit_intercept, total):
    """Add a row with every coordinate clamped."""
    d = x.size
    for k in range(f.size):
        if f[k] == f[k]:
            c = finite(f[k])
            for j in range(d):
                total[k, j] += rounded(clamp(c * finite(x[j]), clip), per_unit)
            if fit_intercept:
                total[k, d] += rounded(clamp(c, clip), per_unit)


@njit(**OPTIONS)
def add_smoothed_row(x, f, scale, per_unit, fit_intercept, root, shift, p, table, cubic, core, total):
    """Add a row with every coordinate through psi."""
    d = x.size
    height, inverse = scale * per_unit, 1.0 / scale
    size = 1.0 if fit_intercept else 0.0
    for j in range(d):
        size = max(size, abs(np.float64(x[j])) if x[j] == x[j] else np.inf)
    for k in range(f.size):
        c = f[k] * inverse
        if c != c:
            continue
        if abs(c) * size <= core and abs(c) < 1e30 and size < 1e30:
            one = c * height
            three = one * -cubic * c * c
            for j in range(d):
                v = np.float64(x[j])
                total[k, j] += rounded(v, fma(three, v * v, one))
            if fit_intercept:
                total[k, d] += rounded(1.0, one + three)
        else:
            c = finite(finite(c) * root)
            for j in range(d):
                total[k, j] += psi_of_number(c * finite(x[j]), p, table) << shift
            if fit_intercept:
                total[k, d] += psi_of_number(c, p, table) << shift
