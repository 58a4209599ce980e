"""What a list of events costs."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from tailguard.privacy import (
    GRID_PRICE,
    ApproximateDP,
    Event,
    Gaussian,
    NotPrivate,
    PoissonGaussian,
    UnknownEventError,
    ZeroConcentrated,
    epsilon_of,
    gdp_epsilon,
    poisson_gaussian_epsilon,
    total_rho,
    zcdp_epsilon,
)

DELTA = 1e-6
SAMPLED = PoissonGaussian(0.01, 1.2, count=200)


def test_gaussians_add_their_squares():
    events = [Gaussian(0.3), Gaussian(0.2, count=4)]
    assert epsilon_of(events, DELTA) == pytest.approx(gdp_epsilon(0.5, DELTA), rel=1e-12)


def test_no_events_cost_nothing_and_no_noise_costs_everything():
    assert epsilon_of([], DELTA) == 0.0
    assert epsilon_of([Gaussian(0.1), NotPrivate("plain mean")], DELTA) == math.inf
    assert epsilon_of([Gaussian(math.inf, samples=3)], DELTA) == math.inf
    assert epsilon_of([PoissonGaussian(0.1, 0.0)], DELTA) == math.inf


def test_concentrated_and_gaussian_add_rho():
    events = [Gaussian(0.2, count=2), ZeroConcentrated(0.01, count=3)]
    assert epsilon_of(events, DELTA) == pytest.approx(zcdp_epsilon(0.07, DELTA), rel=1e-12)
    assert total_rho(events) == pytest.approx(0.07)


def test_approximate_events_add_up_and_use_up_delta():
    assert epsilon_of([ApproximateDP(0.5, 1e-7, count=2)], DELTA) == pytest.approx(1.0)
    assert epsilon_of([ApproximateDP(0.5, 1e-6, count=2)], DELTA) == math.inf
    mixed = [ApproximateDP(0.5, 4e-7), Gaussian(0.1)]
    assert epsilon_of(mixed, DELTA) == pytest.approx(0.5 + gdp_epsilon(0.1, 6e-7), rel=1e-9)


def test_many_pure_events_are_priced_as_concentrated():
    many = [ApproximateDP(0.01, 0.0, count=1000)]
    assert epsilon_of(many, DELTA) == pytest.approx(zcdp_epsilon(0.05, DELTA), rel=1e-9)
    assert epsilon_of([ApproximateDP(0.01, 0.0)], DELTA) == pytest.approx(0.01)


def test_draws_on_a_grid_inflate_epsilon_by_the_stated_price():
    plain = epsilon_of([Gaussian(0.1, count=100)], DELTA)
    priced = epsilon_of([Gaussian(0.1, count=100, samples=10_000)], DELTA)
    least = 2 * 10_000 * GRID_PRICE
    # The rest is the price of delta shrinking by a factor e^(-samples 7e-11) and 1e-9.
    assert plain + least <= priced <= plain + 1.5 * least


def test_the_price_of_the_grid_covers_the_true_ratio_of_masses():
    """Rounded against discrete normal at z sd, sd = 2^20 units: |log ratio| < 7e-11 up to 40 sd."""
    import mpmath as mp

    with mp.workdps(60 + 350):
        sd = mp.mpf(2**20)
        # Poisson summation: the normaliser is sd sqrt(2 pi) up to e^(-2 pi^2 sd^2).
        for z in (0, 1, 5, 20, 40):
            k = mp.mpf(z * 2**20)
            rounded = (mp.erfc((k - 0.5) / (sd * mp.sqrt(2))) - mp.erfc((k + 0.5) / (sd * mp.sqrt(2)))) / 2
            discrete = mp.npdf(k, 0, sd)
            assert abs(mp.log(rounded / discrete)) < GRID_PRICE
    assert 2 * math.erfc(20 / math.sqrt(2)) < 1e-80  # and 40 sd: below e^-800, next line
    assert float(mp.log(mp.erfc(mp.mpf(40) / mp.sqrt(2)))) < -800


def test_at_huge_epsilon_discrete_noise_is_priced_by_its_own_theorem():
    # The tails beyond 40 sd are no longer negligible: zCDP, which is exact for discrete noise.
    events = [Gaussian(50.0, samples=10)]
    assert epsilon_of(events, DELTA) == pytest.approx(zcdp_epsilon(1250.0, DELTA), rel=1e-9)


class TestRelations:
    def test_the_default_is_the_common_relation(self):
        add = [Gaussian(0.2, relation="add-remove")]
        assert epsilon_of(add, DELTA) == epsilon_of(add, DELTA, "add-remove")

    def test_replace_one_is_two_steps_of_add_remove(self):
        gaussian = [Gaussian(0.2, relation="add-remove")]
        assert epsilon_of(gaussian, DELTA, "replace-one") == pytest.approx(gdp_epsilon(0.4, DELTA))
        concentrated = [ZeroConcentrated(0.01, relation="add-remove")]
        assert epsilon_of(concentrated, DELTA, "replace-one") == pytest.approx(zcdp_epsilon(0.04, DELTA))
        approximate = [ApproximateDP(0.5, 1e-7, relation="add-remove")]
        assert epsilon_of(approximate, (1 + math.exp(0.5)) * 1e-7 * 1.0001, "replace-one") == pytest.approx(1.0)
        assert epsilon_of(approximate, (1 + math.exp(0.5)) * 1e-7 * 0.9999, "replace-one") == math.inf

    def test_two_steps_on_a_sampled_curve_keep_their_definition(self):
        epsilon = epsilon_of([SAMPLED], DELTA, "replace-one")
        half_delta = DELTA / (1 + math.exp(epsilon / 2))
        assert epsilon_of([SAMPLED], half_delta, "add-remove") <= epsilon / 2 * (1 + 1e-4)
        # Within reason of what a smaller epsilon would need.
        assert epsilon_of([SAMPLED], DELTA, "add-remove") * 2 < epsilon < 3 * epsilon_of([SAMPLED], DELTA)

    def test_add_remove_does_not_follow_from_replace_one(self):
        with pytest.raises(ValueError, match="replace-one"):
            epsilon_of([Gaussian(0.1)], DELTA, "add-remove")

    def test_mixed_relations_are_priced_as_replace_one(self):
        mixed = [Gaussian(0.1), Gaussian(0.1, relation="add-remove")]
        assert epsilon_of(mixed, DELTA) == pytest.approx(gdp_epsilon(math.sqrt(0.05), DELTA))


class TestSampled:
    @pytest.mark.parametrize(("rate", "z", "steps"), [(0.01, 1.0, 500), (0.1, 5.0, 100), (0.001, 0.7, 2000)])
    def test_agrees_with_a_public_accountant_within_half_a_percent(self, rate, z, steps):
        from dp_accounting import dp_event, pld

        accountant = pld.PLDAccountant(value_discretization_interval=2e-4)
        accountant.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(z)), steps)
        assert poisson_gaussian_epsilon(rate, z, steps, DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=5e-3)

    def test_one_release_is_never_below_quadrature_and_close(self):
        """One release: δ(ε) of the pair is an integral; ours is at most 0.1 % above its inverse."""
        import mpmath as mp

        rate, z = 0.05, 0.8
        epsilon = poisson_gaussian_epsilon(rate, z, 1, 1e-5)

        def delta_at(eps):
            def gap(x):
                mixture = (1 - rate) * mp.npdf(x, 0, z) + rate * mp.npdf(x, 1, z)
                return mixture - mp.e**eps * mp.npdf(x, 0, z)

            # positive beyond the x where the likelihood ratio is e^eps
            start = z**2 * mp.log((mp.e**eps - 1 + rate) / rate) + 0.5
            return mp.quad(gap, [start, start + 1, start + 4, start + 12])

        assert delta_at(epsilon) <= 1e-5 < delta_at(epsilon * 0.999)

    def test_a_full_batch_is_gaussian(self):
        assert poisson_gaussian_epsilon(1.0, 4.0, 16, DELTA) == gdp_epsilon(1.0, DELTA)

    @pytest.mark.parametrize("z", [1e-200, 1e-3, 0.05, 0.2])
    def test_tiny_noise_is_priced_in_bounded_time_by_a_sound_bound(self, z):
        unamplified = gdp_epsilon(math.sqrt(10) / z, DELTA) if z > 1e-100 else math.inf
        assert 0.0 < poisson_gaussian_epsilon(0.01, z, 10, DELTA) <= unamplified

    def test_tiny_delta_is_priced_by_a_sound_bound(self):
        tiny, small = (poisson_gaussian_epsilon(0.01, 1.2, 200, delta) for delta in (1e-30, 1e-9))
        assert small < tiny < math.inf

    def test_sampling_helps_and_more_noise_helps(self):
        base = epsilon_of([SAMPLED], DELTA)
        assert base < gdp_epsilon(math.sqrt(200) / 1.2, DELTA)
        assert epsilon_of([PoissonGaussian(0.01, 1.3, count=200)], DELTA) < base
        assert epsilon_of([PoissonGaussian(0.005, 1.2, count=200)], DELTA) < base
        assert epsilon_of([PoissonGaussian(0.01, 1.2, count=100)], DELTA) < base

    def test_it_composes_with_add_remove_gaussians_better_than_basically(self):
        other = Gaussian(0.2, relation="add-remove")
        together = epsilon_of([SAMPLED, other], DELTA)
        assert together < epsilon_of([SAMPLED], DELTA / 2) + epsilon_of([other], DELTA / 2)
        assert together > max(epsilon_of([SAMPLED], DELTA), epsilon_of([other], DELTA))

    def test_with_anything_else_groups_share_delta(self):
        other = ZeroConcentrated(0.02, relation="add-remove")
        expected = epsilon_of([SAMPLED], DELTA / 2) + epsilon_of([other], DELTA / 2)
        assert epsilon_of([SAMPLED, other], DELTA) == pytest.approx(expected)


@dataclass(frozen=True)
class Stranger(Event):
    cost: float = 0.0


class Cheaper(Gaussian):
    """A subclass might mean anything by its fields."""


@pytest.mark.parametrize("stranger", [Stranger("x"), Event("x"), Cheaper(0.1), object(), 0.5])
def test_unknown_events_raise(stranger):
    for price in (lambda e: epsilon_of(e, DELTA), total_rho):
        with pytest.raises(UnknownEventError):
            price([Gaussian(0.1), stranger])


def test_refusals_name_the_argument():
    with pytest.raises(TypeError, match="list of events"):
        epsilon_of(Gaussian(0.1), DELTA)
    with pytest.raises(ValueError, match="delta"):
        epsilon_of([Gaussian(0.1)], 0.0)
    with pytest.raises(ValueError, match="relation"):
        epsilon_of([Gaussian(0.1)], DELTA, "swap")
    with pytest.raises(ValueError, match="delta > 0"):
        total_rho([ApproximateDP(1.0, 1e-9)])


def test_cost_is_monotone_in_every_parameter():
    base = [Gaussian(0.2, count=3), ZeroConcentrated(0.01), ApproximateDP(0.1, 1e-8)]
    more = [
        [Gaussian(0.21, count=3), *base[1:]],
        [Gaussian(0.2, count=4), *base[1:]],
        [base[0], ZeroConcentrated(0.011), base[2]],
        [*base[:2], ApproximateDP(0.11, 1e-8)],
        [*base[:2], ApproximateDP(0.1, 2e-8)],
        [*base, Gaussian(0.01)],
    ]
    price = epsilon_of(base, DELTA)
    assert all(epsilon_of(events, DELTA) > price for events in more)
    assert epsilon_of(base, 2 * DELTA) < price


@pytest.mark.parametrize("mu", [0.5, 30.0, 1000.0])
def test_a_price_does_not_depend_on_how_numpy_takes_underflow(mu):
    """Somebody who has floats raise still gets a price, and the same one: epsilon is in the hundreds, or more."""
    events = [Gaussian(mu, samples=10)]
    with np.errstate(all="raise"):
        found = epsilon_of(events, DELTA)
    assert found == epsilon_of(events, DELTA)
