r"""Sums over rows of truncated per-row gradients, exactly, in one pass over the data.

A generalised linear loss has the gradient ``dz(z, y) * x`` in one row, with ``z = <w, x>``. Every sum
here has the same two halves, run one small block of rows at a time so that the second half finds
the block in the fastest cache and the data is read from memory once:

1. `multipliers`: the predictor ``z`` of each row, from it the multiplier ``f = dz(z, y)``, and ``q = |x|^2``;
2. a truncation adds ``T(f x)`` to the accumulator, one function each:
   `add_clipped` (L2 norm), `add_clamped` (every coordinate), `add_smoothed` (psi, every coordinate).

Exact sums
----------
Each contribution is rounded to an integer number of public units: adding and subtracting
``1.5 * 2**52`` rounds a float64 below ``2**51`` to the nearest integer. Integers below ``2**53`` add exactly, so
the sum does not depend on the order of the rows, on blocks or on threads. For this reason the functions
that accumulate must not be compiled with reassociation; those that only look at one row may.

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

import numpy as np
from numba import njit

ROUND = 1.5 * 2.0**52
LARGEST = 1.7976931348623157e308
BLOCK_VALUES = 32768  # 256 KiB of float64: a block stays in the second-level cache
FLUSH_ROWS = 2**21  # 2**21 rows of at most 2**30 units stay below 2**52

GIVEN, SQUARED, LOGISTIC, HUBER, POISSON = 0, 1, 2, 3, 4

# "numpy" keeps a division from becoming a branch that raises, which would stop vectorisation.
_OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy"}
_REDUCTION = {"reassoc", "contract", "nsz", "arcp"}  # inside one row: the order is fixed by d alone
_ELEMENTWISE = {"contract", "nsz"}


@njit(**_OPTIONS, fastmath=_REDUCTION, inline="never")
def _dot_and_square(X, i, w):
    """<w, x_i> and the sum of x_ij^2 in one pass over the row."""
    z = 0.0
    q = 0.0
    for j in range(X.shape[1]):
        x = np.float64(X[i, j])
        z += x * w[j]
        q += x * x
    return z, q


@njit(**_OPTIONS, fastmath=_REDUCTION, inline="never")
def _dot_and_eighth(X, i, w):
    """<w, x_i> and the sum of x_ij^8, whose eighth root is a close upper bound of max |x_ij|.

    Sums vectorise where a maximum that respects NaN does not.
    """
    z = 0.0
    q = 0.0
    for j in range(X.shape[1]):
        x = np.float64(X[i, j])
        z += x * w[j]
        x2 = x * x
        x4 = x2 * x2
        q += x4 * x4
    return z, q


@njit(**_OPTIONS)
def _clamp(x, bound):
    """Into [-bound, bound]; NaN goes to 0."""
    return max(-bound, min(bound, np.float64(x))) if x == x else 0.0


@njit(**_OPTIONS)
def _finite(x):
    """+-inf becomes the largest float of its sign; NaN becomes 0."""
    return _clamp(x, LARGEST)


@njit(**_OPTIONS)
def _careful_dot(X, i, w, intercept):
    """The predictor of a row with non-finite entries: NaN if one of them is NaN."""
    z = intercept
    for j in range(X.shape[1]):
        if X[i, j] != X[i, j]:
            return np.nan
        z += _finite(X[i, j]) * w[j]
    return z


@njit(**_OPTIONS)
def derivative(code, parameter, z, y):
    """The derivative in z of the built-in losses; see `tailguard.losses` for the formulas."""
    if code == SQUARED:
        return z - y
    if code == LOGISTIC:
        if y != y:
            return np.nan
        return -1.0 / (1.0 + math.exp(z)) if y > 0.0 else 1.0 / (1.0 + math.exp(-z))
    if code == HUBER:
        r = z - y
        return r if r != r else max(-parameter, min(parameter, r))
    return math.exp(z) - y


@njit(**_OPTIONS)
def predict(X, w, fit_intercept, z):
    """Fill ``z[i, k] = <w_k, x_i> (+ intercept_k)``; w is (K, d + fit_intercept)."""
    n, d = X.shape
    for k in range(w.shape[0]):
        weights = w[k, :d]
        intercept = w[k, d] if fit_intercept else 0.0
        for i in range(n):
            value = _dot_and_square(X, i, weights)[0] + intercept
            if not math.isfinite(value):
                value = _careful_dot(X, i, weights, intercept)
            z[i, k] = value


@njit(**_OPTIONS)
def multipliers(X, y, w, fit_intercept, code, parameter, given, eighth, f, q):
    """Fill the multipliers ``f[k, i]`` and sizes ``q[i]`` of a block of rows (sums of squares or eighth powers).

    One short loop for each thing: a loop without calls and branches vectorises.
    """
    rows, d = X.shape
    weights = w[0, :d]
    intercept = w[0, d] if fit_intercept else 0.0
    z = f[0]
    if eighth:
        for i in range(rows):
            z[i], q[i] = _dot_and_eighth(X, i, weights)
    else:
        for i in range(rows):
            z[i], q[i] = _dot_and_square(X, i, weights)
    if fit_intercept:
        for i in range(rows):
            z[i] += intercept
            q[i] += 1.0
    if code == GIVEN:
        for k in range(f.shape[0]):
            for i in range(rows):
                f[k, i] = given[i, k]
        return
    regular = True
    for i in range(rows):
        regular &= abs(z[i]) < np.inf
    if not regular:
        for i in range(rows):
            if not math.isfinite(z[i]):
                z[i] = _careful_dot(X, i, weights, intercept)
    if code == SQUARED:
        for i in range(rows):
            z[i] -= np.float64(y[i])
    else:
        for i in range(rows):
            z[i] = derivative(code, parameter, z[i], np.float64(y[i]))


@njit(**_OPTIONS)
def fill_multipliers(X, y, w, fit_intercept, code, parameter, given, f):
    """Fill ``f[k, i]`` for all rows."""
    multipliers(X, y, w, fit_intercept, code, parameter, given, False, f, np.empty(X.shape[0]))


@njit(**_OPTIONS, fastmath=_ELEMENTWISE)
def _add_rows(X, c, fit_intercept, acc):
    """Add ``c_i x_i``, rounded, for the rows with ``c_i != 0``."""
    rows, d = X.shape
    for i in range(rows):
        ci = c[i]
        if ci == 0.0:
            continue
        for j in range(d):
            acc[j] += (ci * np.float64(X[i, j]) + ROUND) - ROUND
        if fit_intercept:
            acc[d] += (ci + ROUND) - ROUND


@njit(**_OPTIONS)
def _add_careful_clipped(X, i, f, clip, per_unit, fit_intercept, acc):
    """One row with L2 clipping, for rows whose squared norm over- or underflows; ``f`` is (K, rows)."""
    d = X.shape[1]
    outputs = f.shape[0]
    largest = 1.0 if fit_intercept else 0.0
    for j in range(d):
        largest = max(largest, abs(_finite(X[i, j])))
    steepest = 0.0
    for k in range(outputs):
        if f[k, i] != f[k, i]:
            return
        steepest = max(steepest, abs(_finite(f[k, i])))
    if largest == 0.0 or steepest == 0.0:
        return
    q = (1.0 / largest) ** 2 if fit_intercept else 0.0
    for j in range(d):
        q += (_finite(X[i, j]) / largest) ** 2
    g = 0.0
    for k in range(outputs):
        g += (_finite(f[k, i]) / steepest) ** 2
    unit_norm = math.sqrt(q * g)  # norm of the gradient divided by (steepest * largest)
    # Logarithms, because the product itself may not be representable; the margin covers their rounding.
    if math.log(steepest) + math.log(largest) + math.log(unit_norm) <= math.log(clip) - 1e-9:
        scale = steepest * largest
    else:
        scale = clip / unit_norm
    for k in range(outputs):
        c = _finite(f[k, i]) / steepest * scale * per_unit
        for j in range(d):
            acc[k, j] += (c * (_finite(X[i, j]) / largest) + ROUND) - ROUND
        if fit_intercept:
            acc[k, d] += (c / largest + ROUND) - ROUND


@njit(**_OPTIONS, fastmath=_ELEMENTWISE)
def add_clipped(X, f, q, clip, per_unit, fit_intercept, acc):
    """Add ``f x * min(1, clip / |f x|)`` in units, |.| the L2 norm over all coordinates and outputs."""
    rows = X.shape[0]
    outputs = f.shape[0]
    g = np.zeros(rows)
    for k in range(outputs):
        for i in range(rows):
            g[i] += f[k, i] * f[k, i]
    regular = True
    for i in range(rows):
        # Products of numbers in this range neither overflow nor lose digits to underflow.
        regular &= (q[i] > 1e-140) & (q[i] < 1e140) & (g[i] > 1e-140) & (g[i] < 1e140)
    if not regular:
        for i in range(rows):
            if not (1e-140 < q[i] < 1e140 and 1e-140 < g[i] < 1e140):
                _add_careful_clipped(X, i, f, clip, per_unit, fit_intercept, acc)
                q[i] = 1.0
                g[i] = 1.0
                for k in range(outputs):
                    f[k, i] = 0.0  # done
    for i in range(rows):
        g[i] = per_unit * (clip / max(clip, math.sqrt(q[i] * g[i])))
    for k in range(outputs):
        for i in range(rows):
            f[k, i] *= g[i]
        _add_rows(X, f[k], fit_intercept, acc[k])


@njit(**_OPTIONS, fastmath=_ELEMENTWISE)
def add_clamped(X, f, q, clip, per_unit, fit_intercept, acc):
    """Add ``max(-clip, min(clip, f x_j))`` in units to every coordinate."""
    rows, d = X.shape
    for k in range(f.shape[0]):
        for i in range(rows):
            c = f[k, i]
            if c != c:
                continue
            if math.isfinite(q[i]) and math.isfinite(c):
                for j in range(d):
                    g = max(-clip, min(clip, c * np.float64(X[i, j])))
                    acc[k, j] += (g * per_unit + ROUND) - ROUND
            else:
                for j in range(d):
                    g = _clamp(_finite(c) * _finite(X[i, j]), clip)
                    acc[k, j] += (g * per_unit + ROUND) - ROUND
            if fit_intercept:
                acc[k, d] += (_clamp(c, clip) * per_unit + ROUND) - ROUND


@njit(**_OPTIONS, fastmath=_ELEMENTWISE)
def smoothed(a, p):
    r"""psi_beta by one odd polynomial in ``v = a / sqrt(1 + m a^2)``, which maps the line to an interval.

    psi is an analytic function of ``1/a^2`` at infinity, so ``psi = v P(v^2)`` converges geometrically on the
    whole line. The result is clamped to ``[0, kappa]``: whatever the error of the polynomial, the bound
    holds. ``p`` is the tuple of m, kappa and the 13 coefficients of P, lowest first.
    """
    b = min(abs(a), 1e30)
    v = b / math.sqrt(1.0 + p[0] * b * b)
    t = v * v
    r = p[14]
    r = r * t + p[13]
    r = r * t + p[12]
    r = r * t + p[11]
    r = r * t + p[10]
    r = r * t + p[9]
    r = r * t + p[8]
    r = r * t + p[7]
    r = r * t + p[6]
    r = r * t + p[5]
    r = r * t + p[4]
    r = r * t + p[3]
    r = r * t + p[2]
    r = max(0.0, min(r * v, p[1]))
    return math.copysign(r, a)


@njit(**_OPTIONS, fastmath=_ELEMENTWISE)
def smoothed_by_table(a, p, table):
    """psi_beta by cubics on equal cells of ``u = 1/(1 + |a|)``: for large beta, where one polynomial is too coarse."""
    cells = table.shape[0]
    u = cells / (1.0 + min(abs(a), 1e30))
    k = min(np.int64(u), cells - 1)
    r = u - k
    value = table[k, 0] + r * (table[k, 1] + r * (table[k, 2] + r * table[k, 3]))
    return math.copysign(max(0.0, min(value, p[1])), a)


@njit(**_OPTIONS, fastmath=_ELEMENTWISE)
def smooth_all(values, p, table):
    """Send every value through psi, in place: by the polynomial, or by the table if there is one."""
    if table.shape[0] == 0:
        for i in range(values.size):
            values[i] = smoothed(values[i], p)
    else:
        for i in range(values.size):
            values[i] = smoothed_by_table(values[i], p, table)


@njit(**_OPTIONS, fastmath=_ELEMENTWISE)
def _add_waiting(waiting, count, height, p, table, acc):
    """Send the waiting rows of ``f x / scale`` through psi, as one long vector, and add them."""
    width = waiting.shape[1]
    smooth_all(waiting[:count].reshape(count * width), p, table)
    for i in range(count):
        for j in range(width):
            acc[j] += (waiting[i, j] * height + ROUND) - ROUND


@njit(**_OPTIONS, fastmath=_ELEMENTWISE)
def add_smoothed(X, f, q, scale, per_unit, fit_intercept, p, table, cubic, core, waiting, acc):
    """Add ``scale * psi(f x_j / scale)`` in units to every coordinate; ``q`` holds sums of eighth powers.

    Where the whole row is in the core ``|a| <= core``, psi is the cubic ``a - cubic a^3`` to rounding. The other
    rows wait in a buffer until psi can be evaluated on many values at once.
    """
    rows, d = X.shape
    height = scale * per_unit
    core8 = core**8
    inside = np.empty(rows, np.bool_)
    for k in range(f.shape[0]):
        total = acc[k]
        for i in range(rows):
            c = f[k, i] / scale
            c2 = c * c
            c4 = c2 * c2
            # |c| < 1e30, so that entries whose eighth power underflows are in the core by themselves.
            inside[i] = (c4 * c4 * q[i] <= core8) & (abs(c) < 1e30)
            f[k, i] = c
        count = 0
        for i in range(rows):
            c = f[k, i]
            if inside[i]:
                first = c * height
                third = first * cubic * c * c
                for j in range(d):
                    x = np.float64(X[i, j])
                    total[j] += (x * (first - third * (x * x)) + ROUND) - ROUND
                if fit_intercept:
                    total[d] += ((first - third) + ROUND) - ROUND
                continue
            if c != c:
                continue
            if math.isfinite(q[i]) and math.isfinite(c):
                for j in range(d):
                    waiting[count, j] = c * np.float64(X[i, j])
            else:
                c = _finite(c)
                for j in range(d):
                    waiting[count, j] = c * _finite(X[i, j])
            if fit_intercept:
                waiting[count, d] = c
            count += 1
        _add_waiting(waiting, count, height, p, table, total)


@njit(**_OPTIONS)
def _flush(acc, total):
    for k in range(acc.shape[0]):
        for j in range(acc.shape[1]):
            total[k, j] += np.int64(acc[k, j])
            acc[k, j] = 0.0


L2, COORDINATE, SMOOTH = 0, 1, 2


@njit(**_OPTIONS)
def truncated_sum(
    X, y, w, fit_intercept, code, parameter, given, kind, bound, per_unit, psi, table, cubic, core, total
):
    """Add the truncated gradients of all rows, in units, to the integers ``total`` (K, d + fit_intercept).

    ``kind`` picks the truncation and ``bound`` is its clip or scale; X must be C-contiguous.
    """
    n, d = X.shape
    size = min(n, max(16, BLOCK_VALUES // max(d, 1)))
    f = np.empty((total.shape[0], size))
    q = np.empty(size)
    waiting = np.empty((size if kind == SMOOTH else 0, total.shape[1]))
    acc = np.zeros(total.shape)
    since_flush = 0
    for start in range(0, n, size):
        stop = min(start + size, n)
        block = X[start:stop]
        multipliers(block, y[start:stop], w, fit_intercept, code, parameter, given[start:stop], kind == SMOOTH, f, q)
        if kind == L2:
            add_clipped(block, f, q, bound, per_unit, fit_intercept, acc)
        elif kind == COORDINATE:
            add_clamped(block, f, q, bound, per_unit, fit_intercept, acc)
        else:
            add_smoothed(block, f, q, bound, per_unit, fit_intercept, psi, table, cubic, core, waiting, acc)
        since_flush += stop - start
        if since_flush >= FLUSH_ROWS or stop == n:
            _flush(acc, total)
            since_flush = 0
