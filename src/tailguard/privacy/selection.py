r"""Repeat and select: the price of the best of a secret number of runs.

A run draws a candidate, fits it and scores it, all within mu-GDP.  The number of runs K is drawn first: tails of a
coin until its η-th head, given that there are any, with γ the probability of heads.  The best run leaves, with its
score; the others, and how many there were, do not.  This is the mechanism of Liu and Talwar 2019 (arXiv:1811.07971)
with the negative binomial K of Papernot and Steinke 2022 (arXiv:2110.03620).  K runs are not paid K times.

**The law of the best run.**  Let u be the probability that a run is better than y (ties are broken by a coin of the
run's own, so there are none).  K has the generating function f(x) = E x^K, and the best run the density

    A(y) = Q(y) g(u),        g(u) = f'(1 − u) = m (γ / (γ + (1 − γ) u))^{η+1},        m = E K,

decreasing in u.

**What GDP says of u.**  On a neighbouring table better runs have probability u' ≤ U(u) = Φ(Φ⁻¹(u) + mu).  Hence, with
L = Q(y)/Q'(y),

    [A − e^ε A']₊ ≤ Q' [L g(u) − e^ε g(U(u))]₊ ≤ Q' e^ε h(L e^−ε),        h(L) = sup_u [L g(u) − g(U(u))]₊.

h is convex, a supremum of lines, so ∫ Q' e^ε h(L e^−ε) is an f-divergence, and no mu-GDP pair has a larger one than
the Gaussian pair.  A convex h that is zero up to some L is a mixture of hinges, h(L) = Σ_j w_j (L − e^{τ_j})₊, and
a hinge is what the GDP curve δ_mu prices:

    **δ(ε) ≤ Σ_j w_j δ_mu(ε + τ_j),        Σ_j w_j = m.**

It is sharp: a score that puts the runs with the least L first reaches U(u) for all u at once, and the runs of large L,
which are few, can be put wherever their hinge wants them.  Papernot and Steinke's Theorem 2 for rho-zCDP runs, at its
best order, has the same form with one hinge, of weight m and shift −(η + 1) c:

    δ(ε) ≤ m δ_rho(ε − (η + 1) c),        c = min_{a ≥ 1} rho (a − 1) + log(1/γ)/a.

**Composition.**  Beside a Gaussian release of mu₀ the bound becomes E δ(ε − loss) = Σ_j w_j δ_{√(mu² + mu₀²)}(ε + τ_j):
mixtures of shifted curves stay so.  Two selections multiply their weights and add their shifts.

**The hinges.**  Let v = log(γ + (1 − γ)u) and d = log(γ + (1 − γ)U(u)) − v.  Then L g(u) − g(U(u)) = g(u) (L −
e^{−(η+1)d}).  d' = U' e^{−d} − 1 has one zero, since U is concave: d rises to a peak, and beyond it both factors are
worse than at the peak.  So up to the peak each cell of a grid of u is bounded by the line with the v of its lower and
the d of its upper end, and h by the upper envelope of these lines: an upper bound whatever the grid.

**Noise on a grid.**  Where a run's noise is discrete, its masses and those of continuous noise are within e^{±κ}
(:mod:`tailguard.privacy.accounting`).  Then U grows by a factor of at most e^{2κ}, d by 2κ, a shift by 2(η + 1)κ;
with the 2κ of the released run itself, ε by 2(η + 2)κ: that of η + 2 times the draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri_exp

from tailguard.privacy.concentrated import zcdp_epsilon
from tailguard.privacy.gaussian import SAFETY, log_deltas
from tailguard.privacy.roots import root_of, rounded_up

# Cells of the grid, from e^-30 of the peak up to it, the finer the nearer.  Ten times as many change epsilon by less
# than 1e-3 of itself.
_CELLS = 400
_LOWEST = -30.0
# Hinges of several selections together are put into so many bins, each at its cheapest end.
_MOST_HINGES = 2000
_LARGEST_MU = 30.0  # beyond it one run has no privacy to speak of
_SMALLEST_SQUARE, _LARGEST_SHIFT = 1e-24, 300.0  # beyond them hinges under- or overflow


@dataclass(frozen=True)
class Chosen:
    """A selection as the accountant sees it: what one run costs, the coin, and the expected number of runs."""

    mu: float
    stop: float
    heads: int
    runs: float
    concentrated: bool = False


@dataclass(frozen=True)
class Hinges:
    """Weights and shifts of a mixture of curves."""

    weights: tuple[float, ...]
    shifts: tuple[float, ...]


@lru_cache(maxsize=256)
def hinges(one: Chosen) -> Hinges:
    """Return the mixture of shifted GDP curves that bounds a selection among mu-GDP runs."""
    if one.mu == 0.0:
        return Hinges((one.runs,), (0.0,))
    power, stop = one.heads + 1.0, one.stop
    log_u = _peak(one.mu, stop) + np.concatenate([[-math.inf], _LOWEST * np.linspace(1.0, 0.0, _CELLS) ** 2])
    v = np.log(stop + (1.0 - stop) * np.exp(log_u))
    d = np.log(stop + (1.0 - stop) * ndtr(ndtri_exp(log_u) + one.mu)) - v
    # Lines slope (L - at), from the flattest to the steepest; rounded towards a larger h.
    slope = one.runs * np.exp(power * (math.log(stop) - v[:-1]))
    at = np.exp(-power * np.maximum.accumulate(d[1:]) - SAFETY)
    slopes, meets = _envelope(slope[::-1], (slope * at)[::-1])
    return Hinges(tuple((np.diff(slopes) * (1.0 + SAFETY)).tolist()), tuple(np.log(meets).tolist()))


def _envelope(slopes: np.ndarray, drops: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the upper envelope of zero and lines ``slope L - drop`` of increasing slope, at L > 0.

    Slopes from the first, zero, on; and where each line takes over from the one before it.
    """
    kept, meets = [(0.0, 0.0)], [-math.inf]
    for slope, drop in zip(slopes.tolist(), drops.tolist(), strict=True):
        if slope <= kept[-1][0]:  # as steep as the last one, and lower
            continue
        while True:
            last, below = kept[-1]
            meet = (drop - below) / (slope - last)
            if meet > meets[-1]:
                break
            kept.pop()
            meets.pop()
        kept.append((slope, drop))
        meets.append(meet)
    return [slope for slope, _ in kept], meets[1:]


def _peak(mu: float, stop: float) -> float:
    """Return log u at the peak of d, where log U' = d, slightly above it."""

    def slope(log_u: float) -> float:
        z = float(ndtri_exp(log_u))
        better = math.exp(float(log_ndtr(z + mu)))
        # log U' = log φ(z + mu) - log φ(z)
        log_d = math.log(stop + (1.0 - stop) * better) - math.log(stop + (1.0 - stop) * math.exp(log_u))
        return -mu * z - 0.5 * mu * mu - log_d

    return min(0.0, root_of(slope, -700.0, -1e-12, xtol=1e-12) + 1e-9)


def concentrated_shift(one: Chosen) -> float:
    """Return the (η + 1) c by which a selection among mu²/2-zCDP runs shifts epsilon; its weight is their number."""
    rho, log_stop = 0.5 * one.mu * one.mu, -math.log(one.stop)
    if rho == 0.0:
        return 0.0
    order = max(1.0, math.sqrt(log_stop / rho))
    return (one.heads + 1.0) * (rho * (order - 1.0) + log_stop / order)


def selected_epsilon(chosen: Sequence[Chosen], mu: float, rho: float, delta: float) -> float:
    """Return ε for selections beside Gaussian and zero-concentrated releases.

    Parameters
    ----------
    chosen : sequence of Chosen
        The selections, at least one.
    mu : float
        Of all Gaussian releases beside them together.
    rho : float
        Of all zero-concentrated releases beside them together.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        ε ≥ 0, rounded up; inf if a run has mu above 30.

    Notes
    -----
    Where something is zCDP and not GDP, everything is priced so: GDP implies it.  The same where floats cannot hold
    the hinges.
    """
    squares = math.fsum([mu * mu, *(part.mu * part.mu for part in chosen)])
    if any(part.mu > _LARGEST_MU for part in chosen) or math.isinf(squares) or math.isinf(rho):
        return math.inf
    in_floats = squares > _SMALLEST_SQUARE and all(
        part.mu == 0.0 or (part.heads + 1.0) * -math.log(part.stop) < _LARGEST_SHIFT for part in chosen
    )
    if rho > 0.0 or not in_floats or any(part.concentrated for part in chosen):
        shift = math.fsum(concentrated_shift(part) for part in chosen)
        return shift + zcdp_epsilon(rho + 0.5 * squares, delta / math.prod(part.runs for part in chosen))
    return _mixture_epsilon(_together(chosen), math.sqrt(squares), delta)


@lru_cache(maxsize=256)
def _mixture_epsilon(mixture: Hinges, mu: float, delta: float) -> float:
    target = math.log(delta)
    if mu == 0.0 or log_delta(mixture, mu, 0.0) <= target:
        return 0.0
    high = mu
    while log_delta(mixture, mu, high) > target:
        high *= 2.0
    exact = {"xtol": max(1e-12 * high, 1e-300), "rtol": 1e-10}
    root = root_of(lambda e: max(log_delta(mixture, mu, e), -1e6) - target, 0.0, high, **exact)
    return rounded_up(root, SAFETY * high, lambda e: log_delta(mixture, mu, e) <= target)


def log_delta(mixture: Hinges, mu: float, epsilon: float) -> float:
    """Return log of Σ w δ_mu(ε + τ), at most 0."""
    logs = np.log(mixture.weights) + log_deltas(mu, epsilon + np.array(mixture.shifts))
    return min(0.0, float(logsumexp(logs)))


def _together(chosen: Sequence[Chosen]) -> Hinges:
    """Multiply weights and add shifts over several selections."""
    weights, shifts = np.ones(1), np.zeros(1)
    for part in chosen:
        one = hinges(part)
        weights = np.outer(weights, one.weights).ravel()
        shifts = np.add.outer(shifts, one.shifts).ravel()
        if len(weights) > _MOST_HINGES:
            weights, shifts = _binned(weights, shifts)
    return Hinges(tuple(weights.tolist()), tuple(shifts.tolist()))


def _binned(weights: np.ndarray, shifts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Move every hinge down to the lower end of its bin, which never lowers the price."""
    edges = np.linspace(shifts.min(), shifts.max(), _MOST_HINGES // 2)
    place = np.clip(np.searchsorted(edges, shifts, side="right") - 1, 0, None)
    total = np.bincount(place, weights, minlength=len(edges))
    return total[total > 0.0] * (1.0 + SAFETY), edges[total > 0.0]
