"""Calibration: from a budget to the least noise that keeps it.

The inverse of :mod:`tailguard.privacy.accounting`.  Every answer is checked with the same
accountant that later prices the run, so what is calibrated here is never refused there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from tailguard import _checks
from tailguard.privacy.accounting import _TAIL_SHARE, GRID_PRICE, epsilon_of
from tailguard.privacy.budget import Budget, OverBudgetError
from tailguard.privacy.concentrated import zcdp_rho
from tailguard.privacy.events import Gaussian, PoissonGaussian, Relation, Selection, check_relation
from tailguard.privacy.gaussian import gdp_mu
from tailguard.privacy.roots import root_of
from tailguard.privacy.subsampled import (
    Sampled,
    sampled_bound,
    sampled_epsilon,
    sampled_replace_bound,
    sampled_replace_epsilon,
)

# The Poisson search stops when the answer is known to this relative width.
_TOLERANCE = 1e-3
# It begins on a grid coarser by this factor, within 3 % of the answer for a quarter of the time, to this width.
_COARSER, _ROUGHLY = 4.0, 1e-2
# Room for the rounding of sums of shares and squares.
_ROUNDING = 1e-12


@lru_cache(maxsize=256)
def total_mu(budget: Budget, samples: int = 0) -> float:
    """Return the largest mu of all Gaussian releases together, with ``samples`` draws on a grid.

    Parameters
    ----------
    budget : Budget
        Of any form.
    samples : int
        Total number of discrete-Gaussian draws.

    Returns
    -------
    float
        mu, rounded down.

    Notes
    -----
    **Formal guarantee.**  ``budget.allows([Gaussian(total_mu(budget, samples), samples=samples)])``.
    """
    samples = _checks.count("samples", samples, least=0)
    if budget.epsilon is None or budget.delta is None or samples == 0:
        return _accepted(budget, budget.mu, samples)
    # By the exact theorem on discrete noise, or as continuous noise less the price of the grid.
    candidates = [math.sqrt(2.0 * zcdp_rho(budget.epsilon, budget.delta))]
    inflation = samples * GRID_PRICE
    epsilon = budget.epsilon - 2.0 * inflation
    delta = budget.delta * math.exp(-inflation) * (1.0 - 2.0 * _TAIL_SHARE)
    if epsilon > 0.0 and delta > 0.0:
        candidates.append(gdp_mu(epsilon, delta))
    return max(_accepted(budget, mu, samples) for mu in candidates)


def _accepted(budget: Budget, mu: float, samples: int) -> float:
    """Return the largest mu a little below the given one that the accountant accepts; 0 if none."""
    step = _ROUNDING
    while not budget.allows([Gaussian(mu * (1.0 - step), samples=samples)]):
        step *= 2.0
        if step > 1e-4:
            return 0.0
    return mu * (1.0 - step)


def gaussian_mu(budget: Budget, releases: int, samples: int = 0) -> float:
    """Return mu of each of several equal full-batch Gaussian releases.

    Parameters
    ----------
    budget : Budget
        Of any form.
    releases : int
        Number of releases T, chosen adaptively or not.
    samples : int
        Total number of discrete-Gaussian draws over all of them: T times the coordinates.

    Returns
    -------
    float
        mu such that noise of standard deviation sensitivity / mu in each keeps the budget.

    Notes
    -----
    **Formal guarantee.**  ``budget.allows([Gaussian(mu, releases, samples)])``.
    """
    releases = _checks.count("releases", releases)
    mu = total_mu(budget, samples) / math.sqrt(releases)
    while not budget.allows([Gaussian(mu, releases, samples)]):
        mu *= 1.0 - _ROUNDING
    return mu


@lru_cache(maxsize=256)
def selection_mu(
    budget: Budget,
    stop: float,
    heads: int = 1,
    samples: int = 0,
    *,
    concentrated: bool = False,
    beside: float = 0.0,
    beside_samples: int = 0,
) -> float:
    """Return mu of each run of a selection, one run being all that a candidate may spend.

    Parameters
    ----------
    budget : Budget
        In the form (epsilon, delta).
    stop, heads : float, int
        The coin that decides the number of runs, as in :class:`Selection`.
    samples : int
        Number of discrete-Gaussian draws of one run.
    concentrated : bool
        Runs are mu²/2-zCDP, and not known to be mu-GDP.
    beside : float
        Gaussian releases beside the selection, as a fraction of its mu²: they are sqrt(beside) mu-GDP together.
    beside_samples : int
        Number of discrete-Gaussian draws of these.

    Returns
    -------
    float
        mu, at most 1e-6 below the largest that the accountant accepts.

    Raises
    ------
    ValueError
        For a budget in rho or mu: a selection is neither.

    Notes
    -----
    **Formal guarantee.**  ``budget.allows([Gaussian(sqrt(beside) * mu, samples=beside_samples), Selection(mu, stop,
    heads, samples, concentrated)])``, without the first where ``beside`` is 0.
    """
    if budget.epsilon is None or budget.delta is None:
        raise ValueError(
            f"budget must be in the form (epsilon, delta) for a selection, which is neither rho-zCDP nor mu-GDP; "
            f"got {budget!r}"
        )
    beside = _checks.nonnegative("beside", beside)

    delta, target = budget.delta, budget.epsilon

    def spent(mu: float) -> float:
        first = [Gaussian(math.sqrt(beside) * mu, samples=beside_samples)] if beside else []
        return epsilon_of([*first, Selection(mu, stop, heads, samples, concentrated)], delta)

    def excess(log_mu: float) -> float:
        return math.log(min(max(spent(math.exp(log_mu)), 1e-12), 1e12) / target)

    # One run alone with nothing beside it may cost the whole budget, and no more.
    high = min(total_mu(budget), 25.0)
    low = 0.5 * high
    while spent(low) > target:
        low *= 0.5
        if low < 1e-9 * high:
            raise OverBudgetError(
                f"epsilon={target!r} at delta={delta!r} is too small for a selection whose runs have {samples} "
                "draws each: give a larger one"
            )
    if spent(high) <= target:
        return high
    mu = math.exp(root_of(excess, math.log(low), math.log(high), xtol=1e-7))
    while spent(mu) > target:
        mu *= 1.0 - 1e-7
    return mu


@lru_cache(maxsize=256)
def poisson_noise_multiplier(
    budget: Budget,
    rate: float,
    steps: int,
    samples: int = 0,
    relation: Relation = "add-remove",
) -> float:
    """Return the noise multiplier of Poisson-sampled Gaussian releases.

    Parameters
    ----------
    budget : Budget
        In the form (epsilon, delta).
    rate : float
        Sampling probability in (0, 1].
    steps : int
        Number of releases.
    samples : int
        Total number of discrete-Gaussian draws over all the releases.
    relation : {"add-remove", "replace-one"}
        The neighbours of the promise.  For replace-one the add-remove curve is taken twice:
        (ε, δ) → (2ε, (1 + e^ε) δ).

    Returns
    -------
    float
        Standard deviation over the **add-remove** sensitivity of the sum, at most 0.1 % above
        the smallest that the accountant accepts.

    Raises
    ------
    ValueError
        For a budget in rho or mu: a sampled release is neither.

    Notes
    -----
    **Formal guarantee.**  ``budget.allows([PoissonGaussian(rate, z, steps, samples)], relation)``.
    The Rényi bound gives an end that is known to be safe in milliseconds, a coarse loss
    distribution a nearer one; a secant in (log z, log ε) then needs two tight evaluations,
    seldom three, and the safe end is returned.
    """
    if budget.epsilon is None or budget.delta is None:
        raise ValueError(
            f"budget must be in the form (epsilon, delta) for Poisson-sampled releases, "
            f"which are neither rho-zCDP nor mu-GDP at a useful price; got {budget!r}"
        )
    rate = _checks.probability("rate", rate, one=True)
    steps = _checks.count("steps", steps)
    samples = _checks.count("samples", samples, least=0)
    relation = check_relation(relation)
    epsilon, delta = budget.epsilon, budget.delta
    # What the grid leaves for continuous noise; the final check is on the whole.
    net = epsilon - 2.0 * samples * GRID_PRICE
    net_delta = delta * math.exp(-samples * GRID_PRICE) * (1.0 - 2.0 * _TAIL_SHARE)

    def spent(z: float) -> float:
        return epsilon_of([PoissonGaussian(rate, z, steps, samples)], delta, relation)

    def rough(z: float) -> float:
        curve = sampled_epsilon if relation == "add-remove" else sampled_replace_epsilon
        return curve((Sampled(rate, z, steps),), net_delta, _COARSER)

    def quick(z: float) -> float:
        bound = sampled_bound if relation == "add-remove" else sampled_replace_bound
        return bound((Sampled(rate, z, steps),), net_delta)

    if net <= 0.0 or net_delta <= 0.0:
        raise OverBudgetError(
            f"samples must cost less than epsilon={epsilon!r} in all; got {samples} draws at {2.0 * GRID_PRICE:g} each"
        )
    # No amplification is always safe, and the answer for a full batch.
    safe = math.sqrt(steps) * (1.0 if relation == "add-remove" else 2.0) / total_mu(budget, samples)
    if rate == 1.0:
        while spent(safe) > epsilon:
            safe *= 1.0 + 1e-9
        return safe
    step = 1e-9  # where the grid costs much, what is safe by the theorem on discrete noise may be far from this bound
    while quick(safe) > net:
        safe, step = safe * (1.0 + step), 2.0 * step
    start = _least(quick, net, safe)
    # The price falls with z about as the quick bound does: the first slope to follow.
    further = quick(1.01 * start)  # 0 where delta alone is enough
    slope = math.log(further / quick(start)) / math.log(1.01) if further > 0.0 else -1.0
    start, slope = _search(rough, net, start, slope, _ROUGHLY)
    return _search(spent, epsilon, start, slope, _TOLERANCE)[0]


def _least(price: Callable[[float], float], target: float, start: float) -> float:
    """Return about the least z with price(z) ≤ target, for a quick decreasing price safe at ``start``."""
    safe = low = start
    while price(low) <= target and low > 1e-9 * start:
        safe, low = low, 0.5 * low
    while safe > 1.0001 * low:
        middle = math.sqrt(safe * low)
        safe, low = (middle, low) if price(middle) <= target else (safe, middle)
    return safe


def _search(
    price: Callable[[float], float], target: float, safe: float, slope: float, width: float
) -> tuple[float, float]:
    """Return a z with price(z) ≤ target, within a relative ``width`` of the least, and the slope there.

    The price is dear and nearly a power of z.  From a safe z and a guess of that power, steps follow straight lines
    in (log z, log ε) to just before the root.  The search ends where the line says that the root is near, or where
    a bracket does.
    """
    at_safe = price(safe)
    while at_safe > target:
        safe *= 1.0 + width
        at_safe = price(safe)
    unsafe, at_unsafe = 0.0, math.inf
    small = 1.0 + 0.3 * width
    for _ in range(30):
        if unsafe == 0.0:
            factor = (target / at_safe) ** (1.0 / slope) if at_safe > 0.0 and slope < 0.0 else 0.5
            guess = safe * max(0.5, factor * small)
        elif math.isfinite(at_unsafe) and at_safe > 0.0:
            part = math.log(target / at_safe) / math.log(at_unsafe / at_safe)
            root = safe * (unsafe / safe) ** min(1.0, max(0.0, part))
            guess = root * small if root * small**2 < safe else root / small
        else:
            guess = math.sqrt(safe * unsafe)
        guess = min(max(guess, unsafe * small), safe / small)
        value = price(guess)
        if 0.0 < at_safe < value < math.inf:
            slope = math.log(value / at_safe) / math.log(guess / safe)
        if value <= target:
            safe, at_safe = guess, value
        else:
            unsafe, at_unsafe = guess, value
        # Half the width by the line: a slope that is wrong by half would still be good enough.
        near = at_safe > 0.0 and math.log(target / at_safe) <= 0.5 * width * -slope
        if near or safe <= unsafe * (1.0 + width):
            break
    return safe, slope
