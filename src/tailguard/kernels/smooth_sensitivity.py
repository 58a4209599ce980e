r"""Trimmed mean of one column and an exact smooth bound on its sensitivity.

The mean is ``f(x) = clamp_[a, b]( (x_(m+1) + ... + x_(n-m)) / N )`` with ``N = n - 2m`` and
``x_(1) <= ... <= x_(n)``. Neighbours differ in one row, n is public, and the rows are unbounded. With the
width ``B = b - a``, ``x_(i) = -inf`` for ``i < 1`` and ``x_(j) = +inf`` for ``j > n``, define

.. math::
    S(x) = \max_{k \ge 0} e^{-kt} \min\{B, \max_{0 \le l \le k+1} (x_{(n-m+1+k-l)} - x_{(m+1-l)}) / N\},

that is, with ``i = m+1-l`` and ``j = n-m+1+k-l``,

.. math::
    S(x) = \max\Big\{ e^{-mt} B,\ \max_{i \le m+1,\ j \ge n-m,\ j-i \ge N}
           e^{-t(j-i-N)} \min\{B, (x_{(j)} - x_{(i)})/N\} \Big\}.

Formal guarantee
----------------
For every pair of neighbours ``x, x'``: **(1)** ``|f(x) - f(x')| <= S(x)`` and **(2)** ``S(x) <= e^t S(x')``.

Proof. Let x' replace one value by a larger one; then ``x_(r) <= x'_(r) <= x_(r+1)`` for every r (the other
direction is the mirror image). (1) The kept sum grows by at most
``sum_{r=m+1}^{n-m} (x_(r+1) - x_(r)) = x_(n-m+1) - x_(m+1)``, the pair k = 0, l = 0; the clamp to [a, b] is
1-Lipschitz and bounds the change by B. (2) A pair (i, j) of x with ``k = j-i-N`` has
``x_(j) - x_(i) <= x'_(j) - x'_(i-1)``, a pair of x' with k + 1, if i > 1; if i = 1 then ``j >= n-m`` gives
``k >= m-1``, and ``e^{-kt} B <= e^t e^{-mt} B <= e^t S(x')``. The term ``e^{-mt} B`` is the same for both.

The search
----------
Pairs with k >= m are dominated by ``e^{-mt} B``, so a triangle of m(m+1)/2 pairs is left. For j < j' the
ratio ``min{W, x_(j') - c} / min{W, x_(j) - c}``, W = BN, is nondecreasing in c: it is constant where both
are capped, ``W / (x_(j) - c)`` where one is, ``1 + (x_(j') - x_(j)) / (x_(j) - c)`` where none is, and
continuous. Hence a larger ``x_(i)`` never comes to prefer a smaller j: **any** argmax over j is monotone in
i, the cap and the triangle included, and divide and conquer finds the maximum in O(m log m). An argmax that
rounding makes wrong by a relative eta at one level costs at most a factor 1 - eta there, so about
``log2(m)`` roundings in all.

Numbers on a computer
---------------------
A float sum of unbounded values rounds by more than S (one kept value of 1e300 erases the others). So every
row is first mapped, by itself, to a public grid in a public interval (:func:`snap_column`), which turns a
neighbour into a neighbour and leaves (1) and (2) true of the mapped rows. Sums of grid multiples are exact
integers: they depend on neither order nor chunks. What is left is one rounded division and one addition,
covered by a public constant added to S (:func:`guarded_sensitivity`); a constant added to S keeps (2).

The interval is ``(a+b)/2 +- (N+1) B``. It costs nothing: if a kept value lies beyond its upper end, either
every kept value is at least b and f = b with or without the map, or some kept value is below b, the gap
over the kept values exceeds NB and S = B, the largest noise there is (the same at the lower end). The grid
step is ``(N+1) B 2^-62`` up to a factor 2, so f moves by less than ``(N+1) B 2^-62``: B/10^13 at N = 10^5.

The running time of the search and of the selection depends on the data; the guarantee is about the output.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailguard.kernels.compiling import njit

__all__ = [
    "TrimmedMean",
    "guarded_sensitivity",
    "private_trimmed_mean_inputs",
    "smooth_sensitivity",
    "smooth_sensitivity_tails",
    "snap_column",
    "trimmed_mean",
]

# Low limb of the exact sums: 2^31 rows of limbs below 2^31 stay below 2^62.
_LIMB_BITS = 31
_LIMB_MASK = (1 << _LIMB_BITS) - 1
# The largest magnitude of a mapped row in grid units is below 2^62, so it is an int64.
_VALUE_BITS = 62
# Selection through a sample of about _SAMPLE values pays off above this number of rows.
_SAMPLED_SELECTION = 8192
_SAMPLE = 1024
# Relative error of the computed S: exp(-tk) has at most (tk + 2) 2^-53 <= 750 * 2^-53 < 2^-43, the rest is
# a few 2^-53 at each of about log2(m) <= 31 levels. 2^-42 covers both.
SENSITIVITY_RELATIVE_ERROR = 2.0**-42


@njit(nogil=True, cache=True)
def _row_best(
    high: NDArray[np.float64],
    weights: NDArray[np.float64],
    value: float,
    cap: float,
    start: int,
    stop: int,
    offset: int,
) -> tuple[float, int]:
    """Return max and argmax over start <= j <= stop of weights[offset + j] * min(cap, high[j] - value).

    An infinite difference counts as ``cap``; two equal infinities differ by 0.
    """
    best = -1.0
    arg = start
    if math.isinf(value):
        for j in range(start, stop + 1):
            gap = 0.0 if high[j] == value else cap
            v = weights[offset + j] * gap
            if v > best:
                best = v
                arg = j
        return best, arg
    for j in range(start, stop + 1):
        v = weights[offset + j] * min(cap, high[j] - value)
        if v > best:
            best = v
            arg = j
    return best, arg


@njit(nogil=True, cache=True)
def smooth_sensitivity_tails(
    low: NDArray[np.float64], high: NDArray[np.float64], n: int, t: float, width: float
) -> float:
    r"""Compute S of the module docstring from the two tails alone.

    With 0-based ``low[p] = x_(p+1)``, ``high[q] = x_(n-m+q)`` and ``k = m - 1 + q - p``,

    .. math:: S = \max\{ e^{-mt} B, \max_{q \le p \le m, (p, q) \ne (m, 0)}
              e^{-kt} \min\{B, (high_q - low_p)/N\} \}.

    Parameters
    ----------
    low, high : ndarray of shape (m + 1,)
        The m + 1 smallest and the m + 1 largest values, each ascending; no NaN, +-inf allowed.
    n : int
        The number of rows, at least 2m + 1.
    t : float
        The smoothness, with t >= 0 and t m <= 700 (so that no weight underflows).
    width : float
        B = b - a, positive and finite.

    Returns
    -------
    float
        S, to a relative error of 2^-42.
    """
    m = low.size - 1
    kept = n - 2 * m
    cap = width * kept
    best = math.exp(-m * t) * cap
    if m == 0:
        return width
    weights = np.empty(m + 1)  # weights[k] = e^{-kt}
    for k in range(m + 1):
        weights[k] = math.exp(-k * t)
    # Row p = m, where q = 0 is excluded, and then column q = 0: a good start for the pruning below.
    v, _ = _row_best(high, weights, low[m], cap, 1, m, -1)
    best = max(best, v)
    for p in range(m):
        if high[0] != low[p]:
            best = max(best, weights[m - 1 - p] * min(cap, high[0] - low[p]))
    # Rows 0..m-1: (first, last, lo, hi) are rows whose best column lies in [lo, min(hi, row)].
    stack = np.empty((160, 4), np.int64)
    stack[0, 0] = 0
    stack[0, 1] = m - 1
    stack[0, 2] = 0
    stack[0, 3] = m - 1
    top = 1
    while top > 0:
        top -= 1
        lo = stack[top, 2]
        first = max(stack[top, 0], lo)  # rows before lo have no column left: k >= m there
        last = stack[top, 1]
        if first > last:
            continue
        hi = min(stack[top, 3], last)
        gap = high[hi] - low[first] if low[first] != high[hi] else 0.0
        bound = weights[max(m - 1 + lo - last, 0)] * min(cap, gap)
        if bound <= best:
            continue
        mid = (first + last) // 2
        v, arg = _row_best(high, weights, low[mid], cap, lo, min(hi, mid), m - 1 - mid)
        best = max(best, v)
        stack[top, 0] = first
        stack[top, 1] = mid - 1
        stack[top, 2] = lo
        stack[top, 3] = arg
        top += 1
        stack[top, 0] = mid + 1
        stack[top, 1] = last
        stack[top, 2] = arg
        stack[top, 3] = hi
        top += 1
    return best / kept


@njit(nogil=True, cache=True)
def smooth_sensitivity(sorted_x: NDArray[np.float64], m: int, t: float, width: float) -> float:
    """Compute S of the module docstring for the ascending values ``sorted_x``, no NaN, +-inf allowed.

    Only ``sorted_x[:m + 1]`` and ``sorted_x[n - m - 1:]`` matter: see :func:`smooth_sensitivity_tails`.
    """
    n = sorted_x.size
    return smooth_sensitivity_tails(sorted_x[: m + 1], sorted_x[n - m - 1 :], n, t, width)


@njit(nogil=True, cache=True)
def snap_column(
    x: NDArray[np.float64], centre: float, reach: float, unit: float, out: NDArray[np.float64]
) -> tuple[int, int]:
    """Write ``out_i = unit * rint(clip(x_i - centre, -reach, reach) / unit)``, return its exact sum.

    NaN counts as x_i = 0. ``unit`` is a power of two with reach / unit <= 2^62, so every division and
    product is exact. The sum in units is ``high * 2^31 + low`` for the returned ``(high, low)``, and limbs
    of disjoint blocks of rows may be added.
    """
    high = 0
    low = 0
    scale = 1.0 / unit
    for i in range(x.size):
        v = x[i]
        if not v == v:  # noqa: SIM201 (NaN)
            v = 0.0
        v = np.rint(min(max(v - centre, -reach), reach) * scale)
        out[i] = v * unit
        q = int(v)
        high += q >> _LIMB_BITS
        low += q & _LIMB_MASK
    return high, low


@njit(nogil=True, cache=True)
def _exact_sum(values: NDArray[np.float64], unit: float) -> tuple[int, int]:
    """Return the limbs ``(high, low)`` of the sum of grid multiples, as :func:`snap_column` does."""
    high = 0
    low = 0
    scale = 1.0 / unit
    for i in range(values.size):
        q = int(values[i] * scale)
        high += q >> _LIMB_BITS
        low += q & _LIMB_MASK
    return high, low


@njit(nogil=True, cache=True)
def _collect(
    values: NDArray[np.float64],
    low_cut: float,
    high_cut: float,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> tuple[int, int]:
    """Copy the values <= low_cut to ``low`` and those >= high_cut to ``high``; return the two counts.

    Both outputs have one place more than ``values``: every value is written and only the counts decide (no
    branch).
    """
    below = 0
    above = 0
    for i in range(values.size):
        v = values[i]
        low[below] = v
        below += v <= low_cut
        high[above] = v
        above += v >= high_cut
    return below, above


class TrimmedMean(NamedTuple):
    """A trimmed mean with what its sensitivity needs; none of it may be released without noise.

    Attributes
    ----------
    value : float
        The mean, inside [lower, upper].
    low, high : ndarray of shape (m + 1,)
        The m + 1 smallest and largest mapped rows, ascending, minus the centre (lower + upper) / 2.
    """

    value: float
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def _public_grid(kept: int, lower: float, upper: float) -> tuple[float, float, float]:
    """Return ``(centre, reach, unit)`` of the row map, from public numbers only."""
    width = upper - lower
    reach = width * (kept + 1.0)
    if not (math.isfinite(lower) and math.isfinite(upper) and width > 1e-200 and reach < 1e200):
        raise ValueError(
            f"lower={lower!r} and upper={upper!r} must be finite with lower < upper, and a width between "
            f"1e-200 and 1e200 / {kept + 1}; pass public bounds of the mean in ordinary units"
        )
    unit = math.ldexp(1.0, math.frexp(reach)[1] - _VALUE_BITS)
    return 0.5 * lower + 0.5 * upper, reach, unit


def _check_trim(n: int, m: int) -> None:
    """Refuse sizes for which no row is kept or a limb could overflow."""
    if n < 1 or n >= 1 << _LIMB_BITS:
        raise ValueError(f"x has {n} rows; between 1 and {(1 << _LIMB_BITS) - 1} are supported")
    if m < 0 or 2 * m >= n:
        raise ValueError(f"m={m} must satisfy 0 <= m and 2 m < n={n}; trim fewer rows from each end")


def _tails(values: NDArray[np.float64], m: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the m + 1 smallest and the m + 1 largest values, each ascending; may reorder ``values``.

    Cuts from a strided sample leave few candidates, found in one pass, for sorting. The sample decides the
    time only: too few candidates (sorted input) fall back to a selection over all values.
    """
    n = values.size
    if m <= n // 8 and n >= _SAMPLED_SELECTION:
        sample = np.sort(values[:: n // _SAMPLE])
        expected = sample.size * (m + 1) / n
        rank = math.ceil(expected + 4.0 * math.sqrt(expected) + 4.0)
        below, above = np.empty(n + 1), np.empty(n + 1)
        counts = _collect(values, sample[rank], sample[-1 - rank], below, above)
        if min(counts) > m:
            low, high = below[: counts[0]], above[: counts[1]]
            if max(counts) > 2 * m + _SAMPLE:  # many ties at a cut
                low.partition(m)
                high.partition(counts[1] - m - 1)
                low, high = low[: m + 1], high[counts[1] - m - 1 :]
            low.sort()
            high.sort()
            return low[: m + 1].copy(), high[-m - 1 :].copy()
    values.partition((m, n - m - 1))
    return np.sort(values[: m + 1]), np.sort(values[n - m - 1 :])


def trimmed_mean(x: ArrayLike, m: int, lower: float, upper: float) -> TrimmedMean:
    """Compute ``clamp_[lower, upper]`` of the m-trimmed mean by selection, and its two tails.

    Rows are mapped one by one to a public grid first (module docstring), so the kept sum is exact, does not
    depend on the order of the rows, and every input has a defined answer.

    ========================  =====================================================
    row                       counts as
    ========================  =====================================================
    NaN                       0, then as any other value
    +-inf, or beyond the end  the end of the public interval, centre +- (N + 1) B
    anything else             the nearest multiple of the grid step from the centre
    ========================  =====================================================

    Parameters
    ----------
    x : array-like of shape (n,)
        One column, unsorted; not modified.
    m : int
        Rows trimmed from each end, 2m < n.
    lower, upper : float
        Public bounds of the mean.

    Returns
    -------
    TrimmedMean
        Its value is within ``2^-52 (max(|lower|, |upper|) + B)`` of the exact trimmed mean of the mapped
        rows.
    """
    column = np.ascontiguousarray(x, dtype=np.float64)
    if column.ndim != 1:
        raise ValueError(f"x has shape {column.shape}; pass one column of shape (n,)")
    n = column.size
    _check_trim(n, m)
    kept = n - 2 * m
    centre, reach, unit = _public_grid(kept, lower, upper)
    snapped = np.empty_like(column)
    limb_high, limb_low = snap_column(column, centre, reach, unit, snapped)
    low, high = _tails(snapped, m)
    for tail in (low[:m], high[1:]):
        tail_high, tail_low = _exact_sum(tail, unit)
        limb_high -= tail_high
        limb_low -= tail_low
    total = (int(limb_high) << _LIMB_BITS) + int(limb_low)
    # int / int is correctly rounded and a power of two is exact: only the division and "+ centre" round.
    value = min(max(centre + (total / kept) * unit, lower), upper)
    return TrimmedMean(value, low, high)


def guarded_sensitivity(sensitivity: float, lower: float, upper: float) -> float:
    """Add the public float allowance to a computed S: ``(S + r) (1 + 2^-41)``.

    ``r = 2^-50 (max(|lower|, |upper|) + B)`` covers the two roundings of the mean, at both neighbours, and
    that of ``upper - lower``; the factor covers the relative error 2^-42 of S. The result bounds ``|f -
    f'|`` of the computed means and is ``(t + 2^-40)``-smooth, since ``S + r <= e^t S' + r <= e^t (S' +
    r)``.
    """
    allowance = 2.0**-50 * (max(abs(lower), abs(upper)) + (upper - lower))
    return (sensitivity + allowance) * (1.0 + 2.0 * SENSITIVITY_RELATIVE_ERROR)


def private_trimmed_mean_inputs(x: ArrayLike, m: int, t: float, lower: float, upper: float) -> tuple[float, float]:
    """Return ``(f, S)``: the trimmed mean of one column and its guarded t-smooth sensitivity.

    ``f + (S / s) Z`` with arsinh-normal Z is the private release; f and S alone are **not** private.

    Parameters
    ----------
    x : array-like of shape (n,)
        One column; NaN and +-inf as in :func:`trimmed_mean`.
    m : int
        Rows trimmed from each end, 2m < n.
    t : float
        The smoothness, 0 <= t and t m <= 700.
    lower, upper : float
        Public bounds of the mean.
    """
    if not (t >= 0 and t * m <= 700):
        raise ValueError(f"t={t!r} must satisfy 0 <= t and t m <= 700 at m={m}; beyond that e^(-tm) underflows")
    mean = trimmed_mean(x, m, lower, upper)
    n = np.shape(x)[0]
    sensitivity = smooth_sensitivity_tails(mean.low, mean.high, n, t, upper - lower)
    return mean.value, guarded_sensitivity(sensitivity, lower, upper)
