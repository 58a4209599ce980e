"""Every accountant against two that were written by others: dp-accounting's loss distributions, and mpmath.

The price of a list of events is **conservative** (never below what an oracle says is needed), **tight** to the
tolerance that each test states, and **monotone**: more releases, less noise or a smaller delta never cost less.
"""

import math

import mpmath as mp
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant, common
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from tailguard.privacy import (
    Account,
    ApproximateDP,
    Budget,
    Gaussian,
    NotPrivate,
    OverBudgetError,
    PoissonGaussian,
    ZeroConcentrated,
    epsilon_of,
    exact_rate,
    gdp_epsilon,
    total_rho,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)

DELTA = 1e-6
# Grid of the oracle: its own rounding moves epsilon by less than this, always upwards.
GRID = 1e-3


def upper_tail(x):
    return mp.erfc(x / mp.sqrt(2)) / 2


# Full batches.


@settings(max_examples=40)
@given(mu=st.floats(0.01, 6.0), delta=st.floats(1e-12, 0.2))
def test_gaussian_releases_cost_what_the_hockey_stick_says(mu, delta):
    """mpmath, 60 digits: enough, and one part in 1e7 less is not enough."""
    epsilon = gdp_epsilon(mu, delta)
    with mp.workdps(60):

        def needed(eps):
            m, e = mp.mpf(mu), mp.mpf(eps)
            return upper_tail(e / m - m / 2) - mp.e**e * upper_tail(e / m + m / 2)

        assert needed(epsilon) <= delta
        assert epsilon == 0.0 or needed(epsilon * (1 - 1e-7) - 1e-12) > delta


@settings(max_examples=12)
@given(mu=st.floats(0.1, 3.0), count=st.integers(1, 20), delta=st.floats(1e-9, 1e-2))
def test_gaussian_releases_cost_what_a_loss_distribution_says(mu, count, delta):
    total = mu * math.sqrt(count)
    theirs = pld.from_gaussian_mechanism(1.0 / total, value_discretization_interval=GRID).get_epsilon_for_delta(delta)
    ours = epsilon_of([Gaussian(mu, count)], delta)
    assert theirs - GRID <= ours <= theirs * (1 + 1e-9) + 1e-9


@settings(max_examples=25)
@given(rho=st.floats(1e-4, 5.0), delta=st.floats(1e-9, 1e-2))
def test_concentrated_releases_lie_between_two_public_accountants(rho, delta):
    """Above the loss distribution of one mechanism that is rho-zCDP, below the Rényi accountant and its few orders."""
    gaussian = pld.from_gaussian_mechanism(1.0 / math.sqrt(2.0 * rho), value_discretization_interval=GRID)
    renyi = RdpAccountant().compose(dp_event.ZCDpEvent(rho)).get_epsilon(delta)
    assert gaussian.get_epsilon_for_delta(delta) - GRID <= zcdp_epsilon(rho, delta) <= renyi * (1 + 1e-6) + 1e-9


# Poisson samples.


class Pair:
    """The dominating pair P = (1 - q) N(0, z^2) + q N(1, z^2), Q = N(0, z^2), in 20 digits."""

    def __init__(self, q, z):
        self.q, self.z = mp.mpf(q), mp.mpf(z)

    def p(self, x):
        return (1 - self.q) * mp.npdf(x, 0, self.z) + self.q * mp.npdf(x, 1, self.z)

    def loss(self, x):
        return mp.log(1 - self.q + self.q * mp.e ** ((2 * x - 1) / (2 * self.z**2)))

    def where(self, loss):
        """The x of a loss, -inf below the smallest one."""
        inside = (mp.e**loss - 1 + self.q) / self.q
        return self.z**2 * mp.log(inside) + mp.mpf(1) / 2 if inside > 0 else -mp.inf

    def remove(self, eps):
        """H(P || Q) at any real epsilon."""
        x = self.where(eps)
        if x == -mp.inf:
            return 1 - mp.e**eps
        above = (1 - self.q) * upper_tail(x / self.z) + self.q * upper_tail((x - 1) / self.z)
        return above - mp.e**eps * upper_tail(x / self.z)

    def add(self, eps):
        """H(Q || P)."""
        x = self.where(-eps)
        if x == -mp.inf:
            return mp.mpf(0)
        below = (1 - self.q) * upper_tail(-x / self.z) + self.q * upper_tail((1 - x) / self.z)
        return upper_tail(-x / self.z) - mp.e**eps * below

    def delta(self, eps, releases):
        """The larger of both directions, for one release or two: the second at what the first has left of epsilon."""
        if releases == 1:
            return max(self.remove(eps), self.add(eps))
        points = [k * self.z for k in (-12, -6, -3, -1, 0, 1, 3, 6)] + [1 + k * self.z for k in (6.5, 12)]
        points = sorted({*points, self.where(eps), mp.mpf(1)} - {-mp.inf})
        remove = mp.quad(lambda x: self.p(x) * self.remove(eps - self.loss(x)), points)
        add = mp.quad(lambda x: mp.npdf(x, 0, self.z) * self.add(eps + self.loss(x)), points)
        return max(remove, add)


@pytest.mark.parametrize("releases", [1, 2])
@pytest.mark.parametrize(("rate", "z"), [(0.5, 1.0), (0.05, 0.8), (0.2, 3.0)])
def test_sampled_releases_cost_what_quadrature_says(releases, rate, z):
    """Enough, and half a per cent less is not."""
    rate = exact_rate(rate)
    epsilon = epsilon_of([PoissonGaussian(rate, z, releases)], 1e-5)
    with mp.workdps(20):
        pair = Pair(rate, z)
        assert pair.delta(epsilon, releases) <= 1e-5 < pair.delta(0.995 * epsilon, releases)


@pytest.mark.parametrize(("rate", "z", "steps", "mu"), [(0.02, 1.0, 300, 0.3), (0.3, 4.0, 40, 0.1), (0.5, 2.0, 3, 1.0)])
def test_sampled_and_full_batches_cost_what_a_public_accountant_says(rate, z, steps, mu):
    """Within half a per cent: both are pessimistic, on different grids."""
    rate = exact_rate(rate)
    accountant = PLDAccountant(value_discretization_interval=2e-4)
    accountant.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(z)), steps)
    accountant.compose(dp_event.GaussianDpEvent(1.0 / mu))
    ours = epsilon_of([PoissonGaussian(rate, z, steps), Gaussian(mu, relation="add-remove")], DELTA)
    assert ours == pytest.approx(accountant.get_epsilon(DELTA), rel=5e-3)


@settings(max_examples=3)
@given(rate=st.floats(0.01, 0.9), more=st.floats(1.1, 2.0), z=st.floats(0.8, 5.0), steps=st.integers(1, 20))
def test_a_larger_sample_never_costs_less(rate, more, z, steps):
    """Neither does less noise, or another step; up to the grid of the loss distribution, half a per cent."""
    few, many = exact_rate(rate), exact_rate(min(1.0, more * rate))
    price = epsilon_of([PoissonGaussian(few, z, steps)], DELTA)
    others = PoissonGaussian(many, z, steps), PoissonGaussian(few, z / more, steps), PoissonGaussian(few, z, steps + 1)
    for other in others:
        assert epsilon_of([other], DELTA) >= 0.995 * price
    # Replacing a row is two steps: never cheaper than one, and never more than the unamplified two.
    replaced = epsilon_of([PoissonGaussian(few, z, steps)], DELTA, "replace-one")
    assert price <= replaced <= gdp_epsilon(2.0 * math.sqrt(steps) / z, DELTA)


# Everything else, and lists of everything.


@settings(max_examples=15)
@given(
    parts=st.lists(st.tuples(st.floats(0.01, 1.0), st.sampled_from([0.0, 1e-9, 1e-7])), min_size=1, max_size=4),
    mu=st.floats(0.05, 1.0),
)
def test_a_mixture_is_never_priced_below_its_loss_distribution(parts, mu):
    """Pure, approximate, concentrated and Gaussian releases; the oracle composes worst cases of all of them."""
    events = [ApproximateDP(epsilon, delta) for epsilon, delta in parts]
    events += [Gaussian(mu), ZeroConcentrated(mu * mu / 2.0)]
    total = pld.from_gaussian_mechanism(1.0 / (math.sqrt(2.0) * mu), value_discretization_interval=GRID)
    for epsilon, delta in parts:
        worst = pld.from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon, delta), value_discretization_interval=GRID
        )
        total = total.compose(worst)
    ours = epsilon_of(events, 1e-5)
    assert ours >= total.get_epsilon_for_delta(1e-5) - GRID * (len(parts) + 1)
    assert ours <= sum(epsilon for epsilon, _ in parts) + zcdp_epsilon(mu * mu, 9e-6) + 1e-9


def event_of(kind, size, count):
    if kind == "Gaussian":
        return Gaussian(size, count)
    if kind == "zCDP":
        return ZeroConcentrated(size, count)
    return ApproximateDP(size, 0.0 if kind == "pure" else 1e-9, count)


EVENT = st.tuples(st.sampled_from(["Gaussian", "zCDP", "pure", "approximate"]), st.floats(1e-3, 1.0), st.integers(1, 5))


@settings(max_examples=80)
@given(
    parts=st.lists(EVENT, min_size=1, max_size=5),
    extra=EVENT,
    at=st.integers(0, 4),
    more=st.floats(1.0, 3.0),
    order=st.randoms(use_true_random=False),
)
def test_more_never_costs_less_and_order_costs_nothing(parts, extra, at, more, order):
    events = [event_of(*part) for part in parts]
    price = epsilon_of(events, DELTA)
    rounding = 1.0 - 1e-8  # every price is moved upwards by up to 1e-9 of itself
    assert price >= 0.0
    assert epsilon_of([*events, event_of(*extra)], DELTA) >= price * rounding
    kind, size, count = parts[at % len(parts)]
    for worse in (event_of(kind, size * more, count), event_of(kind, size, count + 1)):
        changed = [*events]
        changed[at % len(parts)] = worse
        assert epsilon_of(changed, DELTA) >= price * rounding
    assert epsilon_of(events, DELTA / more) >= price * rounding
    shuffled = [*events]
    order.shuffle(shuffled)
    assert epsilon_of(shuffled, DELTA) == pytest.approx(price, rel=1e-8)
    one_by_one = [event_of(kind, size, 1) for kind, size, count in parts for _ in range(count)]
    assert epsilon_of(one_by_one, DELTA) == pytest.approx(price, rel=1e-8)
    if all(kind != "approximate" for kind, _, _ in parts):
        assert total_rho([*events, event_of("zCDP", extra[1], 1)]) >= total_rho(events)
    assert epsilon_of([*events, NotPrivate("x")], DELTA) == math.inf


@settings(max_examples=60)
@given(
    budget=st.sampled_from([Budget(0.3, 1e-7), Budget(3.0, 1e-6), Budget(rho=0.05), Budget(mu=0.4)]),
    shares=st.lists(st.tuples(st.floats(1e-6, 1.0), st.integers(0, 40), st.integers(1, 4)), max_size=12),
)
def test_an_account_is_conservative_whatever_is_asked(budget, shares):
    """What it hands out is allowed by the budget, and by the oracle: the squares of mu add up to no more than mu^2."""
    account = Account(budget, max_samples=200)
    handed = []
    for share, samples, count in shares:
        try:
            handed += [account.spend(share=share, samples=samples, count=count)] * count
        except OverBudgetError:
            continue
    assert budget.allows(account.events)
    total = math.sqrt(math.fsum(mu * mu for mu in handed))
    assert total <= budget.mu
    if budget.epsilon is not None and total > 0.0:
        with mp.workdps(40):
            m, e = mp.mpf(total), mp.mpf(budget.epsilon)
            assert upper_tail(e / m - m / 2) - mp.e**e * upper_tail(e / m + m / 2) <= budget.delta


@pytest.mark.parametrize("rho", [5e-324, 1e-300, 1e-31, 1e-29, 1e-12, 1e13, 1e300])
@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-6, 0.9])
def test_extreme_releases_are_priced_at_once_and_on_the_safe_side(rho, delta):
    """Roots that lose their digits once searched for ever: a rho below 1e-30 is priced as that."""
    epsilon = zcdp_epsilon(rho, delta)
    assert zcdp_delta(rho, epsilon) <= delta
    assert max(rho - 1.0, 0.0) * 1e-3 <= epsilon <= (rho + 2.0 * math.sqrt(rho * math.log(1 / delta))) * 1.001 + 1e-12
    assert epsilon_of([ZeroConcentrated(rho)], delta) == epsilon


@pytest.mark.parametrize("epsilon", [5e-324, 1e-100, 1e-9, 1e9])
@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.9])
def test_an_extreme_promise_has_a_rho_or_is_refused(epsilon, delta):
    if epsilon < 1e-12 and delta < 1e-12:
        with pytest.raises(ValueError, match="too small"):
            zcdp_rho(epsilon, delta)
    else:
        assert zcdp_epsilon(zcdp_rho(epsilon, delta), delta) <= epsilon
