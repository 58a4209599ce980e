r"""Gaussian differential privacy: the exact price of full-batch noise.

A release ``value + N(0, sd² I)`` with L2 sensitivity Δ is mu-GDP, mu = Δ/sd: telling two
neighbouring data sets apart is exactly as hard as telling N(0, 1) from N(mu, 1).  T
adaptive releases are one release with mu² = Σ mu_t² (Dong, Roth and Su 2022, Corollary
3.3), and mu-GDP is (ε, δ)-DP for exactly the pairs on the curve (Balle and Wang 2018,
Theorem 8)

    δ(ε) = Φ(−ε/mu + mu/2) − e^ε Φ(−ε/mu − mu/2).

Both terms agree to many digits where δ is tiny.  Since φ(x) = e^ε φ(x + mu) for
x = ε/mu − mu/2, the curve is also

    δ(ε) = φ(x) [R(x) − R(x + mu)] = φ(x) ∫₀^∞ e^{−xt − t²/2} (1 − e^{−mu t}) dt

with R the Mills ratio; the first form is used for mu ≥ 1/2, the integral, whose integrand
has one sign, below.  Everything is kept as log δ.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtri

from tailguard import _checks
from tailguard.privacy.roots import root_of, rounded_down, rounded_up

# The curve is evaluated to about 1e-11 relative; answers are moved by this much to the safe side.
SAFETY = 1e-9
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_MILLS = math.sqrt(math.pi / 2.0)
# Below this mu the difference of Mills ratios loses digits and the integral takes over.
_SMALL_MU = 0.5
# Above it the simple bound is within 1e-4 relative of the root, and the curve is a step.
_LARGE_MU = 1e6
# The integrand is below e^-45 = 3e-20 of its peak beyond the last node.
_TAIL = 45.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(80)


@lru_cache(maxsize=4096)
def _log_delta(mu: float, epsilon: float) -> float:
    """Return log δ(ε) for 0 < mu < inf."""
    x = epsilon / mu - 0.5 * mu
    log_phi = -0.5 * x * x - _LOG_SQRT_2PI
    if mu < _SMALL_MU:  # x > -1/4 for epsilon >= 0
        end = 2.0 * _TAIL / (x + math.sqrt(x * x + 2.0 * _TAIL))  # x end + end²/2 = _TAIL
        t = 0.5 * end * (_NODES + 1.0)
        integrand = np.exp(-x * t - 0.5 * t * t) * -np.expm1(-mu * t)
        integral = 0.5 * end * float(_WEIGHTS @ integrand)
        return log_phi + math.log(integral) if integral > 0.0 else -math.inf
    far = _MILLS * float(erfcx((x + mu) / math.sqrt(2.0)))
    if x > 0.0:
        return log_phi + math.log(_MILLS * float(erfcx(x / math.sqrt(2.0))) - far)
    near = float(log_ndtr(-x))
    return near + math.log1p(-math.exp(log_phi + math.log(far) - near))


def log_deltas(mu: float, epsilons: np.ndarray) -> np.ndarray:
    """Return log δ(ε) for 0 < mu < inf and many ε, of either sign.

    For ε < 0 the pair is turned round: δ(ε) = 1 − e^ε + e^ε δ(−ε).
    """
    size = np.abs(epsilons)
    x = size / mu - 0.5 * mu
    with np.errstate(divide="ignore"):
        if mu < _SMALL_MU:
            end = 2.0 * _TAIL / (x + np.sqrt(x * x + 2.0 * _TAIL))
            t = 0.5 * end[:, None] * (_NODES + 1.0)
            integrand = np.exp(-x[:, None] * t - 0.5 * t * t) * -np.expm1(-mu * t)
            log_ratio = np.log(0.5 * end * (integrand @ _WEIGHTS))
        else:  # R(x) − R(x + mu); for x < 0 by the distribution function, where the Mills ratio overflows
            far = _MILLS * erfcx((x + mu) / math.sqrt(2.0))
            near = np.where(
                x > 0.0, np.log(_MILLS * erfcx(np.maximum(x, 0.0) / math.sqrt(2.0))), log_ndtr(-x) + 0.5 * x * x
            )
            near += np.where(x > 0.0, 0.0, _LOG_SQRT_2PI)
            log_ratio = near + np.log1p(-np.exp(np.log(far) - near))
        log_delta = -0.5 * x * x - _LOG_SQRT_2PI + log_ratio
        turned = np.log(-np.expm1(-size) + np.exp(-size + log_delta))
    return np.where(epsilons < 0.0, turned, log_delta)


def gdp_delta(mu: float, epsilon: float) -> float:
    """Return the smallest δ such that every mu-GDP mechanism is (ε, δ)-DP.

    Parameters
    ----------
    mu : float
        In [0, inf].
    epsilon : float
        In [0, inf].

    Returns
    -------
    float
        δ(ε) to about 1e-10 relative; 0 where it is below the smallest float.

    Notes
    -----
    ``mu = 0`` gives 0; ``mu = inf`` gives 1; ``epsilon = inf`` gives 0 for finite mu.
    """
    mu = _checks.nonnegative("mu", mu)
    epsilon = _checks.nonnegative("epsilon", epsilon)
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    if math.isinf(epsilon):
        return 0.0
    return min(1.0, math.exp(min(0.0, _log_delta(mu, epsilon))))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε such that every mu-GDP mechanism is (ε, δ)-DP, rounded up.

    Parameters
    ----------
    mu : float
        In [0, inf].
    delta : float
        In [0, 1).

    Returns
    -------
    float
        ε ≥ 0, about 1e-9 relative above the exact root (1e-4 for mu > 1e6); inf for ``mu = inf`` and for
        ``delta = 0`` with ``mu > 0``.

    Notes
    -----
    **Formal guarantee.**  ``gdp_delta(mu, gdp_epsilon(mu, delta)) <= delta``.
    """
    mu = _checks.nonnegative("mu", mu)
    delta = _checks.probability("delta", delta, zero=True)
    if mu == 0.0:
        return 0.0
    if math.isinf(mu) or delta == 0.0:
        return math.inf
    target = math.log(delta)
    if _log_delta(mu, 0.0) <= target:
        return 0.0
    # δ(ε) <= Φ(mu/2 − ε/mu), so this end is on the safe side.
    high = (0.5 * mu * mu - mu * float(ndtri(delta))) * (1.0 + SAFETY)
    if mu > _LARGE_MU:
        return high
    while _log_delta(mu, high) > target:
        high = 2.0 * high if high > 0.0 else mu
    root = root_of(lambda e: _log_delta(mu, e) - target, 0.0, high, xtol=1e-15 * high)
    return rounded_up(root, SAFETY * root, lambda e: _log_delta(mu, e) <= target)


@lru_cache(maxsize=1024)
def gdp_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu such that every mu-GDP mechanism is (ε, δ)-DP, rounded down.

    Parameters
    ----------
    epsilon : float
        In [0, inf].
    delta : float
        In (0, 1).

    Returns
    -------
    float
        mu, about 1e-9 relative below the exact root; inf for ``epsilon = inf``.

    Notes
    -----
    **Formal guarantee.**  ``gdp_delta(gdp_mu(epsilon, delta), epsilon) <= delta``.
    """
    epsilon = _checks.nonnegative("epsilon", epsilon)
    delta = _checks.probability("delta", delta)
    if math.isinf(epsilon):
        return math.inf
    target = math.log(delta)
    low = high = max(math.sqrt(epsilon), delta)
    while _log_delta(low, epsilon) > target:
        low *= 0.5
    while _log_delta(high, epsilon) <= target:
        high *= 2.0
    if low == high:
        low *= 0.5
    ends = math.log(low), math.log(high)
    root = math.exp(root_of(lambda u: max(_log_delta(math.exp(u), epsilon), -1e6) - target, *ends, xtol=1e-14))
    return rounded_down(root, SAFETY, lambda mu: _log_delta(mu, epsilon) <= target)
