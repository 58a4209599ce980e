"""The GDP curve against high precision, quadrature and a public accountant.

Oracles: mpmath with 400 digits, mpmath quadrature of the definition of the hockey-stick
divergence, and dp-accounting's privacy loss distribution of the Gaussian mechanism.
"""

import math

import mpmath as mp
import pytest

from tailguard.privacy import gdp_delta, gdp_epsilon, gdp_mu

EPSILONS = [1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6]
DELTAS = [1e-300, 1e-100, 1e-20, 1e-9, 1e-6, 1e-3, 0.1, 0.5]


def exact_delta(mu, epsilon):
    with mp.workdps(400):
        mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
        phi = lambda x: mp.erfc(-x / mp.sqrt(2)) / 2  # noqa: E731
        return phi(mu / 2 - epsilon / mu) - mp.e**epsilon * phi(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_curve_agrees_with_400_digits_to_1e_10(epsilon, delta):
    mu = gdp_mu(epsilon, delta)
    assert abs(gdp_delta(mu, epsilon) / exact_delta(mu, epsilon) - 1) < 1e-10


@pytest.mark.parametrize(("mu", "epsilon"), [(0.05, 0.01), (0.3, 1.0), (0.6, 0.0), (1.0, 2.0), (3.0, 1.0)])
def test_the_curve_is_the_hockey_stick_divergence_of_two_normals(mu, epsilon):
    # ∫ max(0, N(x; mu, 1) - e^eps N(x; 0, 1)) dx; the integrand is positive beyond eps/mu + mu/2.
    start = epsilon / mu + mu / 2
    integrand = lambda x: mp.npdf(x, mu, 1) - mp.e**epsilon * mp.npdf(x, 0, 1)  # noqa: E731
    expected = mp.quad(integrand, [start, start + 2, start + 6, start + 20])
    assert gdp_delta(mu, epsilon) == pytest.approx(float(expected), rel=1e-10)


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-5, 1e-2])
def test_epsilon_agrees_with_a_public_accountant(mu, delta):
    # Its grid of 1e-3 makes it at most 0.1 % pessimistic, never optimistic.
    from dp_accounting.pld import privacy_loss_distribution as pld

    theirs = pld.from_gaussian_mechanism(1.0 / mu, value_discretization_interval=1e-3)
    epsilon = theirs.get_epsilon_for_delta(delta)
    assert epsilon * (1 - 1e-3) <= gdp_epsilon(mu, delta) <= epsilon * (1 + 1e-6)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_inverses_round_to_the_safe_side_and_not_far(epsilon, delta):
    mu = gdp_mu(epsilon, delta)
    assert exact_delta(mu, epsilon) <= delta < exact_delta(mu * (1 + 1e-8), epsilon)
    again = gdp_epsilon(mu, delta)
    assert exact_delta(mu, again) <= delta
    assert again <= epsilon * (1 + 1e-7)


def test_delta_falls_with_epsilon_and_rises_with_mu():
    for mu in (1e-6, 0.49, 0.51, 2.0):
        values = [gdp_delta(mu, 0.01 * i * mu) for i in range(200)]
        assert values == sorted(values, reverse=True)
    for epsilon in (1e-6, 0.1, 1.0):
        values = [gdp_delta(0.01 * i, epsilon) for i in range(300)]
        assert values == sorted(values)


def test_edges():
    assert gdp_delta(0.0, 0.0) == 0.0
    assert gdp_delta(math.inf, 5.0) == 1.0
    assert gdp_delta(1.0, math.inf) == 0.0
    assert gdp_epsilon(0.0, 0.0) == 0.0
    assert gdp_epsilon(1e-9, 1e-6) == 0.0
    assert gdp_epsilon(1.0, 0.0) == math.inf
    assert gdp_epsilon(math.inf, 0.5) == math.inf
    assert gdp_mu(math.inf, 1e-6) == math.inf
    assert gdp_epsilon(1e9, 1e-6) > 0.5e18
    assert gdp_delta(gdp_mu(0.0, 1e-6), 0.0) <= 1e-6


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gdp_delta(-1.0, 1.0), "mu"),
        (lambda: gdp_delta(1.0, -1.0), "epsilon"),
        (lambda: gdp_epsilon(1.0, 1.0), "delta"),
        (lambda: gdp_mu(1.0, 0.0), "delta"),
        (lambda: gdp_mu(math.nan, 0.1), "epsilon"),
    ],
)
def test_refusals_name_the_argument(call, words):
    with pytest.raises(ValueError, match=words):
        call()
