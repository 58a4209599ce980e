r"""Poisson-sampled Gaussian releases: privacy amplified by not knowing who took part.

Under add-remove, one release on a Poisson sample of rate q with noise multiplier z is
dominated, in both directions, by the pair ((1 − q) N(0, z²) + q N(1, z²), N(0, z²)) (Zhu,
Dong and Wang 2022, Theorem 11).  There is no closed form for T of them, so three valid
upper bounds are computed and the smallest is used:

1. **No amplification.**  The pair is a mixture with the Gaussian pair: (√T / z)-GDP.
   Always finite work; the answer for tiny z or q near 1.
2. **Rényi.**  For integer α (Mironov, Talwar and Zhang 2019, arXiv:1908.10530, section 3.3)
   D_α ≤ T/(α−1) · log Σ_k C(α,k) (1−q)^{α−k} q^k e^{(k²−k)/(2z²)}.  Milliseconds; 10-20 % loose.
3. **Privacy loss distribution**, composed by FFT (:mod:`tailguard.privacy.loss_distribution`).  Tight, and always on
   the safe side; its grid is chosen from the first two bounds so that time and memory stay bounded whatever z is.

The FFT raises a transform to the power T, which multiplies its rounding by T.  Masses that
should be zero came out with a total of at most 5e-16 T over all settings tried (T from 100
to 1e6), so bound 3 is asked for δ − 1e-15 T, and not asked at all below a hundred times that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from functools import lru_cache, reduce

import numpy as np
from scipy.special import gammaln

from tailguard import _checks
from tailguard.privacy.gaussian import gdp_epsilon
from tailguard.privacy.loss_distribution import Losses, one_release
from tailguard.privacy.roots import root_of

_ORDERS = np.concatenate([np.arange(2, 65), np.arange(72, 257, 8), 2 ** np.arange(9, 13)])
# Grid of the privacy loss distribution.  A row that is not in the sample moves the loss by
# about the rate, so a third of the rate resolves it; the points per release keep the step
# within bounds of time (at most) and accuracy (at least), the points per unit of the final
# epsilon those of the composition.  Measured: within 0.2 % of a grid ten times finer.
_STEPS_PER_RATE = 3.0
_POINTS_PER_RELEASE = (10_000, 60_000)
_POINTS_PER_EPSILON = 50_000
# Floor of the grid: rounding a loss below this is rounding a float.
_FINEST = 1e-7
# Beyond this the tight bound is no longer worth its memory; epsilon is meaningless anyway.
_LARGEST_EPSILON = 500.0
# Absolute error of delta per release, and how many times that delta must be.
_FFT_ERROR = 1e-15
_FFT_ROOM = 100.0


@dataclass(frozen=True)
class Sampled:
    """``count`` Gaussian releases on Poisson samples; ``rate = 1`` is a full batch."""

    rate: float
    noise_multiplier: float
    count: int


def poisson_gaussian_epsilon(rate: float, noise_multiplier: float, count: int, delta: float) -> float:
    """Return an ε such that the Poisson-sampled releases are (ε, δ)-DP under add-remove.

    Parameters
    ----------
    rate : float
        Sampling probability in (0, 1].
    noise_multiplier : float
        Standard deviation over add-remove sensitivity, in [0, inf].
    count : int
        Number of adaptive releases.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        An upper bound: a pessimistic privacy-loss distribution where that is feasible, a
        Rényi or unamplified bound otherwise; ``gdp_epsilon`` for ``rate = 1``.

    Notes
    -----
    **Formal guarantee.**  Each of the bounds holds on its own; the smallest is returned.
    The realised sample size must not be released, nor used as a divisor.
    """
    part = Sampled(
        _checks.probability("rate", rate, one=True),
        _checks.nonnegative("noise_multiplier", noise_multiplier),
        _checks.count("count", count),
    )
    return sampled_epsilon((part,), _checks.probability("delta", delta))


@lru_cache(maxsize=1024)
def sampled_epsilon(parts: tuple[Sampled, ...], delta: float, coarser: float = 1.0) -> float:
    """Return ε under add-remove for several kinds of sampled releases together.

    A grid that is ``coarser`` by some factor gives a looser bound in that much less time.
    """
    bound = sampled_bound(parts, delta)
    if bound in (0.0, math.inf) or all(part.rate == 1.0 for part in parts):
        return bound
    slack = _slack(parts)
    if bound > _LARGEST_EPSILON or delta < _FFT_ROOM * slack:
        return bound
    log_curve = _log_curve(parts, coarser * _grid(parts, bound), slack)
    return min(bound, _least_epsilon(log_curve, delta, bound))


@lru_cache(maxsize=256)
def sampled_replace_epsilon(parts: tuple[Sampled, ...], delta: float, coarser: float = 1.0) -> float:
    r"""Return ε under replace-one for releases on Poisson samples; on a ``coarser`` grid, a looser one sooner.

    Replacing a row is removing one and adding another: add-remove (ε, δ') implies
    replace-one (2ε, (1 + e^ε) δ').  The smallest such ε is searched on the add-remove curve
    δ'(ε); without amplification the same two steps give 2 mu-GDP (Dong, Roth and Su
    2022, Theorem 2.14).
    """
    bound = sampled_replace_bound(parts, delta)
    if bound in (0.0, math.inf) or all(part.rate == 1.0 for part in parts):
        return bound
    if bound > _LARGEST_EPSILON:
        return bound
    # The add-remove delta that goes with the bound; the FFT must still resolve it.
    slack = _slack(parts)
    if math.log(delta) - float(np.logaddexp(0.0, 0.5 * bound)) < math.log(_FFT_ROOM * slack):
        return bound
    log_curve = _log_curve(parts, coarser * _grid(parts, bound), slack)
    return min(bound, 2.0 * _two_steps(log_curve, delta, 0.5 * bound))


def _log_curve(parts: tuple[Sampled, ...], grid: float, slack: float) -> Callable[[float], float]:
    """Return log δ(ε) of the composition under add-remove, with what is given to the rounding of the FFT."""
    removing, adding = _loss_distribution(parts, grid)
    return lambda epsilon: math.log(max(removing.delta(epsilon), adding.delta(epsilon)) + slack)


def sampled_bound(parts: tuple[Sampled, ...], delta: float) -> float:
    """Return ε under add-remove from bounds 1 and 2 alone: quick, and never below the tight one."""
    unamplified = gdp_epsilon(_unamplified_mu(parts), delta)
    if unamplified in (0.0, math.inf) or all(part.rate == 1.0 for part in parts):
        return unamplified
    return min(unamplified, _renyi_epsilon(parts, delta))


def sampled_replace_bound(parts: tuple[Sampled, ...], delta: float) -> float:
    """Return ε under replace-one from bounds 1 and 2 alone."""
    unamplified = gdp_epsilon(2.0 * _unamplified_mu(parts), delta)
    if unamplified in (0.0, math.inf) or all(part.rate == 1.0 for part in parts):
        return unamplified
    renyi = _renyi(parts)
    return min(unamplified, 2.0 * _two_steps(lambda e: _renyi_log_delta(renyi, e), delta, unamplified))


def _two_steps(log_curve: Callable[[float], float], delta: float, start: float) -> float:
    """Return an ε with (1 + e^ε) e^{log_curve(ε)} ≤ δ, checked; inf if none is found."""
    return _least_epsilon(lambda epsilon: log_curve(epsilon) + float(np.logaddexp(0.0, epsilon)), delta, start)


def _least_epsilon(log_curve: Callable[[float], float], delta: float, start: float) -> float:
    """Return about the least ε with e^{log_curve(ε)} ≤ δ, checked; inf if none is found."""

    def excess(epsilon: float) -> float:
        return log_curve(epsilon) - math.log(delta)

    high = max(start, 1e-9)
    for _ in range(12):
        if excess(high) <= 0.0:
            break
        high *= 2.0
    else:
        return math.inf
    if excess(0.0) <= 0.0:
        return 0.0
    with np.errstate(all="ignore"):  # a curve that is flat to rounding has no root to speak of
        root = root_of(excess, 0.0, high, xtol=1e-7 * high, rtol=1e-7)
    if not math.isfinite(root):
        return high
    step = 1e-6
    while excess(root * (1.0 + step)) > 0.0:
        step *= 2.0
    return min(high, root * (1.0 + step))


def inverse_square(value: float) -> float:
    """Return 1/value², inf where that is 0 or overflows."""
    inverse = 1.0 / value if value > 0.0 else math.inf
    return inverse * inverse


def _slack(parts: tuple[Sampled, ...]) -> float:
    """Return the part of δ that is given to the rounding of the FFT."""
    return _FFT_ERROR * max(100, sum(part.count for part in parts))


def _split(parts: tuple[Sampled, ...]) -> tuple[float, tuple[Sampled, ...]]:
    """Return the mu of the full-batch parts together, and the truly sampled parts."""
    full = math.fsum(p.count * inverse_square(p.noise_multiplier) for p in parts if p.rate == 1.0)
    return math.sqrt(full), tuple(p for p in parts if p.rate < 1.0)


def _unamplified_mu(parts: tuple[Sampled, ...]) -> float:
    return _split(tuple(replace(p, rate=1.0) for p in parts))[0]


@lru_cache(maxsize=256)
def _renyi(parts: tuple[Sampled, ...]) -> tuple[float, ...]:
    """Return the Rényi bounds of the composition at ``_ORDERS``."""
    total = np.zeros(len(_ORDERS))
    for rate, multiplier, count in map(astuple, parts):
        half = 0.5 * inverse_square(multiplier)
        if rate == 1.0 or math.isinf(half):
            total += count * _ORDERS * half
            continue
        k, rest, binomials, starts = _terms()
        with np.errstate(over="ignore"):
            terms = binomials + k * math.log(rate) + rest * math.log1p(-rate) + (k * k - k) * half
            largest = np.maximum.reduceat(terms, starts)
            # A term that overflows makes its sum infinite; inf - inf would be NaN.
            shift = np.where(np.isfinite(largest), largest, 0.0)
            sums = np.add.reduceat(np.exp(terms - np.repeat(shift, _ORDERS + 1)), starts)
            total += count * np.maximum(0.0, shift + np.log(sums)) / (_ORDERS - 1)
    # One part in 1e9 and 1e-12 a release for the rounding of the sums above.
    releases = sum(p.count for p in parts)
    return tuple(total * (1.0 + 1e-9) + 1e-12 * releases)


@lru_cache(maxsize=1)
def _terms() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return k, α − k and log C(α, k) for k from 0 to α, one order after the other, and where each begins."""
    k = np.concatenate([np.arange(order + 1.0) for order in _ORDERS])
    order = np.repeat(_ORDERS.astype(float), _ORDERS + 1)
    binomials = gammaln(order + 1.0) - gammaln(k + 1.0) - gammaln(order - k + 1.0)
    return k, order - k, binomials, np.append(0, np.cumsum(_ORDERS + 1)[:-1])


def _conversion() -> np.ndarray:
    """Return log of (1 − 1/α)^α / (α − 1), Proposition 12 of Canonne, Kamath and Steinke 2020."""
    return (_ORDERS - 1) * np.log1p(-1.0 / _ORDERS) - np.log(_ORDERS)


def _renyi_log_delta(renyi: tuple[float, ...], epsilon: float) -> float:
    logs = (_ORDERS - 1) * (np.asarray(renyi) - epsilon) + _conversion()
    return min(0.0, float(np.min(logs)))


def _renyi_epsilon(parts: tuple[Sampled, ...], delta: float) -> float:
    values = np.asarray(_renyi(parts)) + (_conversion() - math.log(delta)) / (_ORDERS - 1)
    return max(0.0, float(np.min(values)))


def _grid(parts: tuple[Sampled, ...], bound: float) -> float:
    """Return the grid step of the loss distribution: bounded points per release and in total."""
    widest = 0.0
    for rate, multiplier, _ in map(astuple, _merged(parts)):
        # Loss at ten standard deviations of noise beyond the shift.
        log_ratio = (0.5 + 10.0 * multiplier) / multiplier**2
        if rate < 1.0:
            log_ratio = float(np.logaddexp(math.log1p(-rate), math.log(rate) + log_ratio))
        widest = max(widest, log_ratio)
    fewest, most = _POINTS_PER_RELEASE
    wanted = min(part.rate for part in parts) / _STEPS_PER_RATE
    return max(min(max(wanted, widest / most), widest / fewest), bound / _POINTS_PER_EPSILON, _FINEST)


def _merged(parts: tuple[Sampled, ...]) -> tuple[Sampled, ...]:
    """Return the parts with all full batches as one release."""
    mu, sampled = _split(parts)
    return sampled if mu == 0.0 else (*sampled, Sampled(1.0, 1.0 / mu, 1))


@lru_cache(maxsize=4)
def _loss_distribution(parts: tuple[Sampled, ...], grid: float) -> tuple[Losses, Losses]:
    """Return laws of losses that dominate the composition, for a row that is removed and for one that is added."""
    many = [
        tuple(one.times(count) for one in one_release(rate, multiplier, grid))
        for rate, multiplier, count in map(astuple, _merged(parts))
    ]
    return reduce(Losses.plus, (removing for removing, _ in many)), reduce(Losses.plus, (adding for _, adding in many))
