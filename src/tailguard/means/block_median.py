r"""Private median of block answers, one coordinate at a time.

Algorithm 1 (sample and aggregate) = disjoint blocks -> one answer per block -> a private
aggregate of the answers.  This file is the aggregate to prefer: the exponential mechanism for the
median [1]_ on a public range, coordinate by coordinate.  Its composition::

    clamp rows to the range -> snap to a public grid of 2**40 cells -> sort
    -> integer weight of every gap between sorted values -> one exact integer draw -> a cell

Shapes: ``Z`` is (m, d), one answer per block; the result is (d,).

For one coordinate with values z_1..z_m the density of the output theta on [lo, hi] is

    p(theta)  proportional to  exp(-(eps0/2) |c(theta) - m/2|),     c(theta) = #{i : z_i < theta}.

Privacy (replace one block, every coordinate of its answer may change)
    1. *Sensitivity.*  Replacing the value a by b changes c(theta) by -1 for theta in (a, b] (or by
       +1 on (b, a]) and by 0 elsewhere, so the exponent changes by a number in
       [-eps0/2, +eps0/2].
    2. *Range.*  Both ends of that interval are reached by one pair of neighbours: where a and b lie
       on two sides of the median, |c - m/2| grows on one part of (a, b] and shrinks on the other.
       The constant cannot be improved: the unnormalised log-ratio has range exactly
       eps0/2 - (-eps0/2) = eps0.  Normalising adds a constant to the log-ratio, which leaves its
       range: the mechanism is eps0-bounded-range [2]_.  (The log-ratio also has both signs or is 0,
       hence |log-ratio| <= eps0: pure eps0-DP.)
    3. *zCDP.*  Let f = log p/p' and K(l) = log E_{p'} exp(l f).  K(0) = K(1) = 0, and K''(l) is the
       variance of f under a tilted law, at most eps0^2/4 since f lies in an interval of length
       eps0 (Popoviciu).  So K(l) - (eps0^2/8) l (l - 1) is concave with zeros at 0 and 1, hence
       <= 0 for l >= 1, and D_alpha(p || p') = K(alpha)/(alpha - 1) <= alpha eps0^2/8: the
       coordinate is (eps0^2/8)-zCDP (Lemma 3.2 of [3]_), d coordinates are (d eps0^2/8)-zCDP.

References
----------
.. [1] F. McSherry, K. Talwar, "Mechanism design via differential privacy", FOCS 2007; A. Smith,
   "Privacy-preserving statistical estimation with optimal convergence rates", STOC 2011.
.. [2] D. Durfee, R. Rogers, "Practical differentially private top-k selection with pay-what-you-get
   composition", NeurIPS 2019.
.. [3] M. Cesar, R. Rogers, "Bounding, concentrating, and truncating: unifying privacy loss
   composition for data analytics", ALT 2021.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["MedianParameters", "block_median", "median_parameters"]

_CELLS = 2**40  # public grid: cells of width (hi - lo) / 2**40
_FLOOR_BITS = 60  # no cell weighs less than 2**-60 of the heaviest: no loss of accuracy
_WEIGHT_BITS = 113  # weights in units of 2**-113: a float of at least 2**-60 is a whole number of them
_DRAWS = 4  # uniforms of 53 bits per coordinate: 212 bits against a total weight of at most 2**153
_SLACK = 1e-12  # taken off eps0/2; the rounding of exp() moves a log weight by less than 2e-14
_SMALLEST_EPS0 = 1e-9


class UniformNoise(Protocol):
    """What the sampler asks of a noise source."""

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Return ``size`` independent multiples of 2**-53, uniform in [0, 1)."""


@dataclass(frozen=True)
class MedianParameters:
    """Public parameters of :func:`block_median`.

    Attributes
    ----------
    rho : float
        zCDP budget of the whole vector.
    d : int
        Number of coordinates.
    eps0 : float
        Bounded range of one coordinate, sqrt(8 rho / d).
    """

    rho: float
    d: int
    eps0: float


def median_parameters(rho: float, d: int) -> MedianParameters:
    """Split a zCDP budget evenly over ``d`` private medians.

    Parameters
    ----------
    rho : float
        zCDP budget of the vector, positive and finite.
    d : int
        Number of coordinates, at least 1.

    Returns
    -------
    MedianParameters
        With eps0 = sqrt(8 rho / d), so that d eps0^2 / 8 = rho.
    """
    if not (isinstance(rho, int | float | np.number) and 0 < rho < math.inf):
        raise ValueError(f"rho={rho!r}: the zCDP budget must be a positive finite number, for example 0.05")
    if isinstance(d, bool) or not isinstance(d, int | np.integer) or d < 1:
        raise ValueError(f"d={d!r}: the number of coordinates must be an integer of at least 1")
    eps0 = math.sqrt(8.0 * float(rho) / int(d))
    if eps0 < _SMALLEST_EPS0:
        raise ValueError(
            f"rho={rho!r} over d={d} coordinates leaves eps0={eps0:.3g} each, below the smallest that the "
            f"sampler represents ({_SMALLEST_EPS0:g}); give a larger rho"
        )
    return MedianParameters(rho=float(rho), d=int(d), eps0=eps0)


def block_median(Z: ArrayLike, lo: ArrayLike, hi: ArrayLike, eps0: float, noise: UniformNoise) -> NDArray[np.float64]:
    r"""Return an exponential-mechanism median of every column of ``Z``.

    Parameters
    ----------
    Z : array-like of shape (m, d)
        Block answers, at least one; blocks must not share rows.
    lo, hi : float or array-like of shape (d,)
        Public range of each coordinate, chosen without looking at the data.
    eps0 : float
        Bounded range of one coordinate, from :func:`median_parameters`.
    noise : object
        ``noise.uniform(size)`` gives ``size`` independent uniforms on the multiples of 2**-53 in [0, 1).

    Returns
    -------
    ndarray of shape (d,)
        Centres of cells of the public grid, inside [lo, hi].

    Notes
    -----
    **Formal guarantee.**  For every pair of arrays Z, Z' that differ in one row (one block; hence one
    record, where blocks are disjoint), whatever the values, the result is (d eps0^2/8)-zCDP, d-fold
    eps0-bounded-range and (d eps0)-DP; the module docstring has the proof.  It holds as well in floating
    point: values are snapped to the grid one by one, gap lengths are integers, the weight of a cell is an
    integer that depends on its rank, m and eps0 only, and cell weights of neighbouring ranks differ by a
    factor of at most e^{eps0/2} *after* rounding (a slack of 1e-12 is taken off eps0/2).  Capping the
    exponent (at 60 log 2) keeps it (eps0/2)-Lipschitz in the rank.  The cell is drawn with exact integer
    arithmetic from 212 bits, which misses the exact probabilities by a factor within 1 +- 2**-111.

    What remains: the uniforms must be independent and fair in all 53 bits; and running time depends on the
    number of distinct values, so keep it from an observer.

    Nothing but the returned vector may be shown: the sorted values and the weights are private.

    **Accuracy.**  The rank of the result is off by about 2/eps0 (sd 2 sqrt(2)/eps0).  The outer gaps, of
    length up to hi - lo, weigh e^{-eps0 m/4} per cell, so a spread w of the block answers is found only where
    m > (4/eps0) log((hi - lo)/w).  Answers that agree exactly have no spread at all: never feed this
    function answers that were rounded or thresholded to a common value.

    ====================================  ==============================================================
    input                                 what happens
    ====================================  ==============================================================
    value below lo, -inf                  counts as lo
    value above hi, +inf                  counts as hi
    NaN (a block that failed)             counts as the middle of the range
    ties                                  the gap between them has length 0, and so no mass
    all values equal                      only the two outer gaps are left, with equal weight per cell:
                                          the result is uniform on [lo, hi] (see Accuracy)
    no rows, wrong shape, lo >= hi        ``ValueError`` (shapes and parameters are public)
    ====================================  ==============================================================

    Examples
    --------
    >>> import numpy as np
    >>> class Source:
    ...     def uniform(self, size):
    ...         return np.full(size, 0.5)
    >>> Z = np.linspace(-1, 1, 101)[:, None]
    >>> bool(abs(block_median(Z, -2.0, 2.0, 1.0, Source())[0]) < 0.02)
    True
    """
    values = np.asarray(Z, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] < 1 or values.shape[1] < 1:
        raise ValueError(f"Z has shape {values.shape}: give one row per block and one column per coordinate")
    if not (_SMALLEST_EPS0 <= eps0 < math.inf):
        raise ValueError(
            f"eps0={eps0!r}: must be a finite number of at least {_SMALLEST_EPS0:g}; see median_parameters"
        )
    m, d = values.shape
    low, high = _public_range(lo, hi, d)
    marks = _snap(values, low, high)
    weights = _cell_weights(m, float(eps0))
    bits = _uniform_integers(noise, d)
    out = np.empty(d)
    for j in range(d):
        cell = _draw_cell(marks[:, j], weights, bits[j])
        out[j] = low[j] + (cell + 0.5) * ((high[j] - low[j]) / _CELLS)
    return np.clip(out, low, high)


def _public_range(lo: ArrayLike, hi: ArrayLike, d: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Check the public range and spread it over the coordinates."""
    ends = []
    for name, value in (("lo", lo), ("hi", hi)):
        end = np.asarray(value, dtype=np.float64)
        if end.shape not in ((), (d,)):
            raise ValueError(f"{name} has shape {end.shape}: give a number or one number per coordinate ({d},)")
        ends.append(np.broadcast_to(end, (d,)))
    low, high = ends
    with np.errstate(over="ignore", invalid="ignore"):
        width = high - low
    # The cells must be wider than the spacing of floats around them, or centres would coincide.
    spacing = np.spacing(np.maximum(np.abs(low), np.abs(high)))
    bad = ~(np.isfinite(width) & (width > 4 * _CELLS * spacing))
    if bad.any():
        j = int(np.argmax(bad))
        raise ValueError(
            f"lo={float(low[j])!r}, hi={float(high[j])!r} (coordinate {j}): the public range must be finite, "
            "with lo < hi, and wide enough for 2**40 distinct cells; shift the answers so that it is near 0"
        )
    return low, high


def _snap(values: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.int64]:
    """Map each value by itself to a mark 0..2**40 of the public grid (rows never meet)."""
    middle = 0.5 * low + 0.5 * high
    inside = np.clip(np.where(np.isnan(values), middle, values), low, high)
    marks = np.rint((inside - low) / (high - low) * _CELLS)
    return np.clip(marks, 0, _CELLS).astype(np.int64)


def _cell_weights(m: int, eps0: float) -> list[int]:
    """Integer weight of a cell with i values below it, i = 0..m: 2**113 exp(-(eps0/2)|i - m/2|), capped."""
    rate = max(eps0 / 2 - _SLACK, 0.0)
    loss = np.minimum(rate * np.abs(np.arange(m + 1) - m / 2), _FLOOR_BITS * math.log(2))
    return [int(math.ldexp(w, _WEIGHT_BITS)) for w in np.exp(-loss)]


def _gaps(marks: NDArray[np.int64], weights: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Return first cell, weight per cell and total weight of each gap between sorted marks.

    Gap i holds the cells between the i-th and the (i+1)-th smallest mark (the 0-th is 0, the last 2**40):
    each of them has i marks below it.
    """
    edges = np.concatenate(([0], np.sort(marks), [_CELLS]))
    length = np.diff(edges)
    full = np.flatnonzero(length)  # an empty gap has no mass
    first: list[int] = edges[full].tolist()
    per_cell = [weights[i] for i in full.tolist()]
    mass = [n * w for n, w in zip(length[full].tolist(), per_cell, strict=True)]
    return first, per_cell, mass


def _draw_cell(marks: NDArray[np.int64], weights: list[int], bits: int) -> int:
    """Return the cell in which the unit of weight number ``bits`` * total / 2**212 lies."""
    first, per_cell, mass = _gaps(marks, weights)
    upto = list(accumulate(mass))
    unit = (bits * upto[-1]) >> (53 * _DRAWS)
    g = bisect_right(upto, unit)
    return first[g] + (unit - (upto[g] - mass[g])) // per_cell[g]


def _uniform_integers(noise: UniformNoise, d: int) -> list[int]:
    """Return d independent integers, uniform on [0, 2**212)."""
    words: NDArray[Any] = np.asarray(noise.uniform(_DRAWS * d), dtype=np.float64).reshape(d, _DRAWS)
    out = []
    for row in np.floor(words * 2.0**53).astype(np.int64).tolist():
        n = 0
        for word in row:
            n = (n << 53) | word
        out.append(n)
    return out
