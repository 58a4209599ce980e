"""The zCDP conversion against a brute-force minimum in high precision."""

import math

import mpmath as mp
import pytest

from tailguard.privacy import gdp_mu, zcdp_delta, zcdp_epsilon, zcdp_rho

CASES = [(1e-6, 1e-4), (1e-3, 0.1), (0.025, 1.0), (0.5, 5.0), (10.0, 40.0), (1e3, 1500.0)]


def exact_delta(rho, epsilon):
    """Proposition 12 of Canonne, Kamath and Steinke, minimised with 50 digits."""
    with mp.workdps(50):
        rho, epsilon = mp.mpf(rho), mp.mpf(epsilon)
        slope = lambda a: (2 * a - 1) * rho - epsilon + mp.log(1 - 1 / a)  # noqa: E731
        low, high = mp.mpf(1) + mp.mpf(10) ** -30, (epsilon + 1) / (2 * rho) + 2
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) < 0 else (low, middle)
        alpha = low
        return mp.e ** ((alpha - 1) * (alpha * rho - epsilon)) / (alpha - 1) * (1 - 1 / alpha) ** alpha


@pytest.mark.parametrize(("rho", "epsilon"), CASES)
def test_the_conversion_is_the_infimum_over_orders_to_1e_9(rho, epsilon):
    assert zcdp_delta(rho, epsilon) == pytest.approx(float(exact_delta(rho, epsilon)), rel=1e-9)


@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-6, 1e-2])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 1e4])
def test_the_inverses_round_to_the_safe_side_and_not_far(epsilon, delta):
    rho = zcdp_rho(epsilon, delta)
    assert zcdp_delta(rho, epsilon) <= delta < zcdp_delta(rho * (1 + 1e-7), epsilon)
    assert zcdp_delta(rho, zcdp_epsilon(rho, delta)) <= delta
    assert zcdp_epsilon(rho, delta) <= epsilon * (1 + 1e-6)


@pytest.mark.parametrize("delta", [1e-9, 1e-5])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_it_lies_between_the_textbook_conversion_and_the_exact_gaussian(epsilon, delta):
    rho = zcdp_rho(epsilon, delta)
    log = math.log(1 / delta)
    assert (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2 < rho < gdp_mu(epsilon, delta) ** 2 / 2


def test_edges():
    assert zcdp_delta(0.0, 0.0) == 0.0
    assert zcdp_delta(math.inf, 1.0) == 1.0
    assert zcdp_delta(1e6, 1.0) == 1.0
    assert zcdp_epsilon(0.0, 1e-6) == 0.0
    assert zcdp_epsilon(1.0, 0.0) == math.inf
    assert zcdp_epsilon(math.inf, 0.1) == math.inf
    assert zcdp_epsilon(1e-20, 1e-6) == 0.0
    assert zcdp_rho(math.inf, 0.1) == math.inf
    with pytest.raises(ValueError, match="epsilon"):
        zcdp_rho(0.0, 1e-6)
