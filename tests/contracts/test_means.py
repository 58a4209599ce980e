"""Every private mean: its noise is what it says, its sensitivity holds, and it releases points of a public grid."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import AWKWARD, TRUNCATIONS, truncation_at
from scipy.stats import chi2, kstest

from tailguard import PrivateRidge, algorithms, api, psi, psi_bound
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import RowValues
from tailguard.kernels.smooth_sensitivity import private_trimmed_mean_inputs
from tailguard.means.gaussian import GaussianMean, on_grid, saturating_add
from tailguard.means.trimmed import TrimmedMean
from tailguard.privacy import (
    Budget,
    Gaussian,
    NotPrivate,
    PoissonGaussian,
    SeededNoise,
    SystemNoise,
    ZeroConcentrated,
    epsilon_of,
    gaussian_mu,
)
from tailguard.privacy.arsinh_normal import arsinh_parameters, printed_parameters, release_grid
from tailguard.sampling import FullBatch, PoissonSample
from tailguard.truncation import Grid, Smoothed

every_truncation = pytest.mark.parametrize("name", TRUNCATIONS)
SAMPLERS = {
    "replace-one": FullBatch(),
    "add-remove": FullBatch("add-remove"),
    "Poisson": PoissonSample(0.25),
}
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
COORDINATES = 3000


def sd_is_accepted(noise: np.ndarray, sd: float) -> bool:
    """Two-sided chi-square test of the variance: normals of that sd fail it with probability 1e-9."""
    statistic = float(np.sum((noise / sd) ** 2))
    return chi2.ppf(5e-10, noise.size) < statistic < chi2.isf(5e-10, noise.size)


def release(mean, X: np.ndarray, sampler, noise) -> np.ndarray:
    return mean.release(InMemory(X, threads=1), RowValues(), sampler, noise)


# Gaussian means.


@every_truncation
@every_sampler
@pytest.mark.parametrize("source", [SystemNoise(), SeededNoise(1)], ids=["system", "seeded"])
def test_gaussian_noise_has_the_stated_sd_and_no_other(name, sampler, source):
    """p = 1e-9; power: a sd of two thirds or three halves of the stated one is refused."""
    n, z = 4, 2.5
    mean = GaussianMean(truncation_at(name, 1.5), z)
    noise = release(mean, np.zeros((n, COORDINATES)), sampler, source)
    stated = mean.noise_sd(n, COORDINATES, sampler)
    assert stated == pytest.approx(
        z * mean.sensitivity(n, COORDINATES, sampler.sensitivity_relation, sampler.divisor(n)), rel=1e-12
    )
    assert sd_is_accepted(noise, stated)
    assert not sd_is_accepted(noise, stated * 2 / 3)
    assert not sd_is_accepted(noise, stated * 3 / 2)
    assert kstest(noise.ravel() / stated, "norm").pvalue > 1e-9


@every_truncation
@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
def test_a_gaussian_mean_states_its_sensitivity_for_a_relation(name, relation):
    n, d = 1000, 6
    mean = GaussianMean(truncation_at(name, 1.5), 1.0)
    row = mean.truncation.row_norm(d)
    factor = 2.0 if relation == "replace-one" else 1.0
    assert mean.sensitivity(n, d, relation) == pytest.approx(factor * row / n, rel=1e-7)
    assert mean.sensitivity(n, d, relation) >= factor * row / n
    assert mean.sensitivity(n, d, relation, divisor=250.0) == pytest.approx(factor * row / 250.0, rel=1e-7)


@every_truncation
@settings(max_examples=60)
@given(data=st.data())
def test_replacing_a_row_moves_an_exact_mean_by_at_most_the_sensitivity(name, data):
    values = st.sampled_from(AWKWARD) | st.floats()
    X = np.array([[data.draw(values) for _ in range(3)] for _ in range(4)])
    other = X.copy()
    other[2] = [data.draw(values) for _ in range(3)]
    mean = GaussianMean(truncation_at(name, 1.5), 0.0)
    moved = release(mean, X, FullBatch(), SeededNoise(0)) - release(mean, other, FullBatch(), SeededNoise(0))
    assert np.linalg.norm(moved) <= mean.sensitivity(4, 3, "replace-one") * (1 + 1e-12)


@every_truncation
@every_sampler
def test_released_values_lie_on_the_public_grid(name, sampler):
    """A multiple of unit/divisor, both public: the data decides which multiple, never the digits."""
    X = np.random.default_rng(0).standard_cauchy((50, 200))
    mean = GaussianMean(truncation_at(name, 1.5), 0.5)
    step = Grid.of(mean.truncation, 50).unit / sampler.divisor(50)
    value = release(mean, X, sampler, SystemNoise())
    np.testing.assert_array_equal(np.rint(value / step) * step, value)
    # The noise uses the last digit of that grid: as many odd multiples as even ones (p = 1e-12).
    assert 50 < np.sum(np.rint(value / step) % 2) < 150


@every_truncation
def test_without_noise_the_mean_is_exact_and_priced_infinite(name):
    X = np.random.default_rng(1).uniform(-0.01, 0.01, (30, 4))
    mean = GaussianMean(truncation_at(name, 1.5), 0.0)
    value = release(mean, X, FullBatch(), SystemNoise())
    np.testing.assert_allclose(value[0], X.mean(axis=0), atol=1e-6)
    (event,) = mean.events(FullBatch(), 7, 4, "steps")
    assert isinstance(event, NotPrivate)
    assert epsilon_of([event], 1e-6) == math.inf


@every_truncation
def test_a_gaussian_mean_prices_its_releases_by_the_sampler(name):
    mean = GaussianMean(truncation_at(name, 1.5), 2.0)
    assert mean.events(FullBatch(), 7, 4, "x") == (Gaussian(0.5, 7, 28, label="x"),)
    assert mean.events(PoissonSample(0.25), 7, 4, "x") == (PoissonGaussian(0.25, 2.0, 7, 28, label="x"),)


def test_the_sum_is_divided_by_the_public_divisor_not_by_the_batch():
    """All rows are alike, so a mean over the realised batch would not vary; the released one must."""
    mean = GaussianMean(truncation_at("L2Clip", 1.5), 0.0)
    X = np.ones((200, 1))
    values = np.array([release(mean, X, PoissonSample(0.25), SeededNoise(seed))[0, 0] for seed in range(30)])
    sizes = np.array([len(SeededNoise(seed).at(0).bernoulli(200, 0.25)) for seed in range(30)])
    assert np.std(values) > 0.05
    np.testing.assert_allclose(values, sizes / 50.0, rtol=1e-8)


def test_noise_multipliers_out_of_range_are_refused_by_name():
    for wrong in (-1.0, math.nan, math.inf, "1"):
        with pytest.raises((TypeError, ValueError), match="noise_multiplier"):
            GaussianMean(truncation_at("L2Clip", 1.0), wrong)


def test_less_noise_than_the_grid_can_carry_becomes_as_much_as_it_can_and_is_said():
    """What is asked for is some 2**10 units: 2**20 are added, which is more private, not less."""
    mean = GaussianMean(truncation_at("L2Clip", 1.0), 1e-6)
    grid = Grid.of(mean.truncation, 4)
    sd = mean.noise_sd(4, 1, FullBatch())
    assert sd == 2.0**20 * grid.unit / 4 > 1e-6 * mean.sensitivity(4, 1, "replace-one")
    draws = np.array([release(mean, np.zeros((4, 1)), FullBatch(), SeededNoise(k))[0, 0] for k in range(400)])
    # Six standard deviations of the sd of 400 draws.
    assert np.std(draws) == pytest.approx(sd, rel=6 / math.sqrt(800))


@pytest.mark.parametrize("epsilon", [1e6, 1e9])
def test_the_largest_budgets_have_the_least_noise_of_the_grid(epsilon):
    """Every method, up to the largest epsilon that a budget may have; at 1e9 noise is a millionth of the bound."""
    X = np.random.default_rng(0).normal(size=(400, 2))
    y = X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=400)
    for options in ({}, {"method": "clipped", "clip": 2.0}, {"method": "smoothed", "scale": 2.0}):
        model = PrivateRidge(epsilon, alpha=0.0, random_state=0, **options).fit(X, y)
        assert np.linalg.norm(model.coef_ - [1.0, 0.0]) < 0.2
        assert model.privacy_.epsilon <= epsilon
    assert abs(api.private_mean(y, epsilon, random_state=0).value - np.mean(y)) < 0.1


def test_more_noise_than_the_grid_can_carry_is_refused():
    assert on_grid(2.0**55) == 2.0**55
    with pytest.raises(ValueError, match=r"epsilon asks for noise of .* grid units, more than 2\*\*55"):
        on_grid(2.0**55 * 1.01)


@given(total=st.integers(-(2**62) + 2**22, 2**62 - 2**22), noise=st.integers(-(2**61), 2**61))
def test_a_noisy_sum_never_wraps_around(total, noise):
    """Sums of up to 2**40 rows and forty sd of the largest noise; beyond 2**62 it stays there: post-processing."""
    noisy = int(saturating_add(np.array([total]), np.array([noise]))[0])
    if abs(total + noise) < 2**62 - 2**10:
        assert noisy == total + noise
    else:
        assert abs(noisy) >= 2**62 - 2**11
        assert abs(noisy) <= 2**62
        assert (noisy > 0) == (total + noise > 0)


# Trimmed means.


def trimmed(n: int = 1000, m: int = 50, rho: float = 0.5, *, printed: bool = False) -> TrimmedMean:
    parameters = printed_parameters(0.1) if printed else arsinh_parameters(rho, m, n - 2 * m, 2.0, 1.0)
    return TrimmedMean(-1.0, 1.0, m, parameters, printed)


@pytest.mark.parametrize("source", [SystemNoise(), SeededNoise(2)], ids=["system", "seeded"])
def test_trimmed_noise_is_arsinh_normal_times_the_smooth_sensitivity(source):
    """Undone, out = f + (S/s) sinh(sigma Y)/sigma gives standard normals; p = 1e-9, and the power half."""
    mean, n, d = trimmed(), 1000, 600
    X = np.tile(np.random.default_rng(0).standard_t(3, (n, 1)), (1, d))
    value, sensitivity = private_trimmed_mean_inputs(X[:, 0], mean.trim, mean.parameters.t, -1.0, 1.0)
    noise = (release(mean, X, FullBatch(), source)[0] - value) * mean.parameters.s / sensitivity
    normals = np.arcsinh(mean.parameters.sigma * noise) / mean.parameters.sigma
    assert sd_is_accepted(normals, 1.0)
    assert not sd_is_accepted(normals, 2 / 3)
    assert not sd_is_accepted(normals, 3 / 2)


def test_a_trimmed_mean_lies_on_its_public_grid_and_spends_rho_per_coordinate():
    mean = trimmed()
    X = np.random.default_rng(1).standard_cauchy((1000, 8))
    grid = release_grid(mean.parameters, mean.trim, 2.0)
    value = release(mean, X, FullBatch(), SystemNoise())
    np.testing.assert_array_equal(np.rint(value / grid) * grid, value)
    spent = ZeroConcentrated(mean.parameters.epsilon**2 / 2.0, 24, label="x")
    assert mean.events(FullBatch(), 3, 8, "x") == (spent,)
    assert mean.parameters.rho <= mean.parameters.epsilon**2 / 2.0 <= 0.5 + 1e-12


def test_a_trimmed_mean_is_near_the_trimmed_mean():
    X = 0.3 + 0.1 * np.random.default_rng(2).standard_t(2, (4000, 3))
    mean = TrimmedMean(-1.0, 1.0, 200, arsinh_parameters(0.5, 200, 3600, 2.0, 0.1))
    inside = np.sort(X, axis=0)[200:-200].mean(axis=0)
    np.testing.assert_allclose(release(mean, X, FullBatch(), SeededNoise(0))[0], inside, atol=0.02)


@pytest.mark.parametrize("value", AWKWARD)
def test_no_row_stops_a_trimmed_mean(value):
    X = np.random.default_rng(3).standard_normal((200, 2))
    X[:5] = value
    out = release(trimmed(200, 10), X, FullBatch(), SeededNoise(0))
    assert out.shape == (1, 2)
    assert np.all(np.isfinite(out))


def test_the_printed_scale_is_priced_infinite_and_says_why():
    (event,) = trimmed(printed=True).events(FullBatch(), 3, 8, "x")
    assert isinstance(event, NotPrivate)
    assert "not a smooth bound" in event.reason
    assert epsilon_of([event], 1e-6) == math.inf


# What a user calls.

MEANS = {
    "smoothed by v": {"method": "smoothed", "v": 2.0},
    "smoothed by scale": {"method": "smoothed", "scale": 5.0},
    "clipped": {"method": "clipped", "clip": 5.0},
    "clamped": {"method": "clamped", "clip": 5.0},
    "trimmed": {"method": "trimmed", "bounds": (-2.0, 2.0)},
}


@pytest.mark.parametrize("name", MEANS)
def test_a_private_mean_is_near_the_mean_and_keeps_its_promise(name):
    """Symmetric heavy tails, n = 5000: sampling and noise have a sd below 0.03, so 0.25 is eight of them."""
    X = 0.5 + np.random.default_rng(4).standard_t(3, (5000, 2))
    result = api.private_mean(X, 1.0, **MEANS[name])
    assert result.value.shape == (2,)
    np.testing.assert_allclose(result.value, 0.5, atol=0.25)
    assert result.privacy.private
    assert result.privacy.epsilon <= 1.0
    assert result.privacy.delta == min(1e-6, 5000**-1.5)
    assert result.privacy.relation == "replace-one"
    single = api.private_mean(X[:, 0], 1.0, **MEANS[name])
    assert isinstance(single.value, float)
    assert single.value == pytest.approx(0.5, abs=0.25)


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("value", [1e308, np.inf, -np.inf, np.nan, 5e-324])
def test_no_value_stops_a_private_mean(name, value):
    x = np.random.default_rng(5).standard_normal(300)
    x[::10] = value
    result = api.private_mean(x, 1.0, random_state=0, **MEANS[name])
    assert math.isfinite(result.value)
    assert result.privacy.epsilon <= 1.0


@pytest.mark.parametrize("name", [name for name in MEANS if name != "trimmed"])
def test_private_means_offer_both_relations(name):
    x = np.random.default_rng(6).standard_normal(300)
    for relation in ("replace-one", "add-remove"):
        report = api.private_mean(x, 1.0, relation=relation, random_state=0, **MEANS[name]).privacy
        assert report.relation == relation
        assert report.epsilon <= 1.0


def test_equation_14_is_the_mean_of_scaled_psi_plus_gaussian_noise():
    """Within 6 sd of the noise that exact accounting asks for; a probability of 2e-9."""
    x = np.random.default_rng(7).standard_t(2, 400)
    beta = math.sqrt(2 * math.log(100))
    value = api.private_mean(x, 2.0, method="smoothed", scale=3.0).value
    mu = gaussian_mu(Budget(2.0, 1e-6), 1, 1)
    sd = GaussianMean(Smoothed(3.0, beta), 1.0 / mu).noise_sd(400, 1, FullBatch())
    assert sd == pytest.approx(2 * psi_bound(beta) * 3.0 / 400 / mu, rel=1e-6)
    assert abs(value - 3.0 * np.mean(psi(x / 3.0, beta))) <= 6 * sd


def test_algorithm2_takes_rho_and_reports_it():
    x = np.random.default_rng(8).standard_t(3, 2000)
    result = algorithms.algorithm2(x, rho=0.5, a=-2.0, b=2.0, random_state=0)
    (event,) = result.privacy.events
    assert isinstance(event, ZeroConcentrated)
    assert event.rho * event.count <= 0.5
    assert abs(result.value) < 0.3
