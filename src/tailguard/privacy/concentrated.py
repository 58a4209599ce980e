r"""Zero-concentrated differential privacy: what cannot be priced exactly as Gaussian.

A release is rho-zCDP if its Rényi divergences obey D_α ≤ α rho for all α > 1 (Bun and
Steinke 2016).  rho adds up over adaptive releases, mu-GDP implies mu²/2-zCDP and ε-DP
implies ε²/2-zCDP.  The way back to (ε, δ) is the tight numeric conversion of Canonne,
Kamath and Steinke 2020 (arXiv:2004.00010, Proposition 12):

    δ = inf_{α > 1} exp((α − 1)(α rho − ε)) / (α − 1) · (1 − 1/α)^α.

The logarithm has derivative (2α − 1) rho − ε + log(1 − 1/α), increasing in α, so the best
order is one root.  **Every** order gives a valid δ: an inexact root costs tightness only.
"""

from __future__ import annotations

import math
from functools import lru_cache

from tailguard import _checks
from tailguard.privacy.gaussian import SAFETY, gdp_mu
from tailguard.privacy.roots import root_of, rounded_down, rounded_up

# Above it the textbook conversion is as good as any, and the tight one is rounding.
_LARGE_RHO = 1e12
# A smaller one is priced as this one, which costs next to nothing (an epsilon of 5e-14 at a delta of 1e-300): the
# roots below lose their digits there.
_SMALL_RHO = 1e-30


def _log_delta(rho: float, epsilon: float) -> float:
    """Return log δ for 0 < rho < inf and finite ε ≥ 0, at most 0."""

    def slope(u: float) -> float:  # u = log(alpha - 1)
        return (2.0 * math.exp(u) + 1.0) * rho - epsilon - math.log1p(math.exp(-u))

    low, high = -min(3.0 * rho + 1.0, 700.0), math.log((epsilon + 1.0) / (2.0 * rho) + 1.0)
    if slope(low) >= 0.0:
        return 0.0
    u = root_of(slope, low, high, xtol=1e-12)
    less_one = math.exp(u)
    log_alpha = math.log1p(less_one)
    log_delta = less_one * ((1.0 + less_one) * rho - epsilon + u - log_alpha) - log_alpha
    return min(0.0, log_delta)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return a δ such that every rho-zCDP mechanism is (ε, δ)-DP.

    Parameters
    ----------
    rho : float
        In [0, inf].
    epsilon : float
        In [0, inf].

    Returns
    -------
    float
        The infimum over orders of Proposition 12 of Canonne, Kamath and Steinke 2020.
    """
    rho = _checks.nonnegative("rho", rho)
    epsilon = _checks.nonnegative("epsilon", epsilon)
    if rho == 0.0:
        return 0.0
    if math.isinf(rho):
        return 1.0
    return 0.0 if math.isinf(epsilon) else math.exp(_log_delta(max(rho, _SMALL_RHO), epsilon))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return an ε such that every rho-zCDP mechanism is (ε, δ)-DP, rounded up.

    Parameters
    ----------
    rho : float
        In [0, inf].
    delta : float
        In [0, 1).

    Returns
    -------
    float
        ε ≥ 0; inf for ``rho = inf`` and for ``delta = 0`` with ``rho > 0``.

    Notes
    -----
    **Formal guarantee.**  ``zcdp_delta(rho, zcdp_epsilon(rho, delta)) <= delta``.
    """
    rho = _checks.nonnegative("rho", rho)
    delta = _checks.probability("delta", delta, zero=True)
    if rho == 0.0:
        return 0.0
    if math.isinf(rho) or delta == 0.0:
        return math.inf
    rho, target = max(rho, _SMALL_RHO), math.log(delta)
    if _log_delta(rho, 0.0) <= target:
        return 0.0
    # The textbook conversion rho + 2 sqrt(rho log(1/delta)) is always on the safe side.
    high = rho + 2.0 * math.sqrt(-rho * target)
    if rho > _LARGE_RHO:
        return high * (1.0 + SAFETY)
    while _log_delta(rho, high) > target:
        high *= 1.0 + 1e-6
    root = root_of(lambda e: _log_delta(rho, e) - target, 0.0, high, xtol=1e-15 * high, rtol=1e-13)
    return rounded_up(root, SAFETY * root, lambda e: _log_delta(rho, e) <= target)


@lru_cache(maxsize=1024)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho that the conversion turns into (ε, δ), rounded down.

    Parameters
    ----------
    epsilon : float
        In (0, inf].
    delta : float
        In (0, 1).

    Returns
    -------
    float
        rho > 0, about 1e-9 relative below the root; inf for ``epsilon = inf``.

    Notes
    -----
    **Formal guarantee.**  ``zcdp_delta(zcdp_rho(epsilon, delta), epsilon) <= delta``.
    """
    delta = _checks.probability("delta", delta)
    if epsilon == math.inf:
        return math.inf
    epsilon = _checks.positive("epsilon", epsilon)
    if zcdp_epsilon(_SMALL_RHO, delta) > epsilon:
        raise ValueError(f"epsilon={epsilon!r} at delta={delta!r} is too small for any rho: give a larger one")
    target = math.log(delta)
    # Low: the textbook conversion.  High: the Gaussian mechanism is zCDP, and exact.
    low = (epsilon / (math.sqrt(epsilon - target) + math.sqrt(-target))) ** 2 * (1.0 - SAFETY)
    high = max(0.5 * gdp_mu(epsilon, delta) ** 2 * (1.0 + 1e-6), 2.0 * _SMALL_RHO)
    low = max(low, _SMALL_RHO)
    while _log_delta(low, epsilon) > target:
        low *= 0.5
    while _log_delta(high, epsilon) <= target:
        high *= 2.0
    ends = math.log(low), math.log(high)
    root = math.exp(root_of(lambda u: _log_delta(math.exp(u), epsilon) - target, *ends, xtol=1e-14))
    # Checked with the function that prices, whose own rounding is upwards.
    return rounded_down(root, SAFETY, lambda rho: zcdp_epsilon(rho, delta) <= epsilon)
