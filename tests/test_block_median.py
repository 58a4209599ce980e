"""Exponential-mechanism median of block answers: exact privacy, sampler, accuracy, edge cases; audits are elsewhere."""

import math

import numpy as np
import pytest
from scipy import stats

from tailguard.means import block_median as module
from tailguard.means.block_median import block_median, median_parameters

AWKWARD = [0.0, -0.0, 1e-320, 1e6, -1e6, 1e308, -1e308, np.inf, -np.inf, np.nan]


class Source:
    """Stand-in for the noise source of the package."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def uniform(self, size):
        return self._rng.random(size)


def segments(column, lo, hi, eps0):
    """Return what the implementation samples from: cell edges and log density per cell."""
    marks = module._snap(np.asarray(column, float)[:, None], np.array([lo]), np.array([hi]))[:, 0]
    first, per_cell, mass = module._gaps(marks, module._cell_weights(len(column), eps0))
    total = sum(mass)
    return np.array([*first, module._CELLS]), np.array([math.log(w) - math.log(total) for w in per_cell])


def log_ratio_range(one, other, lo, hi, eps0):
    """Smallest and largest log density ratio over all cells of the grid."""
    edges_1, log_1 = segments(one, lo, hi, eps0)
    edges_2, log_2 = segments(other, lo, hi, eps0)
    cells = np.union1d(edges_1, edges_2)[:-1]
    ratio = log_1[np.searchsorted(edges_1, cells, "right") - 1] - log_2[np.searchsorted(edges_2, cells, "right") - 1]
    return ratio.min(), ratio.max()


def density(theta, values, lo, hi, eps0):
    """Closed form in floats, written from the formula and not from the implementation."""
    edges = np.concatenate(([lo], np.sort(np.clip(values, lo, hi)), [hi]))
    m = len(values)
    weight = np.exp(-(eps0 / 2) * np.abs(np.arange(m + 1) - m / 2))
    count = (np.sort(values)[None, :] < np.asarray(theta)[:, None]).sum(axis=1)
    return weight[count] / (weight * np.diff(edges)).sum()


@pytest.mark.parametrize("eps0", [1e-9, 0.01, 0.2, 1.0, 5.0, 300.0])
@pytest.mark.parametrize("m", [1, 2, 7, 40])
def test_log_ratio_has_range_at_most_eps0_for_every_replacement(m, eps0):
    rng = np.random.default_rng(m)
    for trial in range(40):
        one = rng.choice([*AWKWARD, *rng.normal(size=6), -1.0, 1.0], size=m)
        if trial % 3 == 0:
            one = rng.normal(size=m)
        other = one.copy()
        other[rng.integers(m)] = rng.choice([*AWKWARD, *rng.normal(size=6), -1.0, 1.0])
        low, high = log_ratio_range(one, other, -1.0, 1.0, eps0)
        # The slack taken off eps0/2 pays for all rounding: no tolerance but that of log() itself here.
        assert high - low <= eps0 + 1e-13
        assert low <= 1e-13
        assert high >= -1e-13


def test_range_eps0_is_reached_so_the_constant_is_tight():
    eps0 = 0.7
    one = np.array([-0.9, -0.5, -0.4, 0.4, 0.5, 0.9])
    other = one.copy()
    other[0] = 0.95  # jumps over the median
    low, high = log_ratio_range(one, other, -1.0, 1.0, eps0)
    assert high - low == pytest.approx(eps0, abs=1e-10)


@pytest.mark.parametrize("eps0", [0.3, 1.0, 3.0])
def test_renyi_divergence_is_below_the_zcdp_line(eps0):
    rng = np.random.default_rng(1)
    worst = 0.0
    for _ in range(200):
        one = rng.normal(scale=0.5, size=rng.integers(1, 9))
        other = one.copy()
        other[0] = rng.choice([-1.0, 1.0])
        edges_1, log_1 = segments(one, -1.0, 1.0, eps0)
        edges_2, log_2 = segments(other, -1.0, 1.0, eps0)
        cells = np.union1d(edges_1, edges_2)
        length = np.diff(cells).astype(float)
        p = log_1[np.searchsorted(edges_1, cells[:-1], "right") - 1]
        q = log_2[np.searchsorted(edges_2, cells[:-1], "right") - 1]
        for alpha in (1.01, 1.5, 2.0, 5.0, 50.0):
            renyi = math.log((length * np.exp(alpha * p + (1 - alpha) * q)).sum()) / (alpha - 1)
            worst = max(worst, renyi / (alpha * eps0**2 / 8))
    assert 0.5 < worst <= 1 + 1e-9


def test_sampling_weights_equal_the_closed_form():
    rng = np.random.default_rng(2)
    values = rng.normal(scale=0.4, size=25)
    edges, log_density = segments(values, -1.5, 2.0, 0.8)
    theta = -1.5 + (edges[:-1] + 0.5) * (3.5 / module._CELLS)
    got = np.exp(log_density) * module._CELLS / 3.5
    np.testing.assert_allclose(got, density(theta, values, -1.5, 2.0, 0.8), rtol=1e-9)


def sampler_p_value(true_eps0, assumed_eps0, seed):
    """Chi-square of 20,000 draws at ``true_eps0`` against the closed form at ``assumed_eps0``."""
    values = np.array([-0.7, -0.3, -0.3, -0.1, 0.0, 0.2, 0.25, 0.6, 0.9, 1.4])
    lo, hi = -1.0, 1.5
    draws = block_median(np.tile(values[:, None], (1, 20_000)), lo, hi, true_eps0, Source(seed))
    bins = np.linspace(lo, hi, 26)
    fine = np.linspace(lo, hi, 25 * 400 + 1)
    mass = density((fine[1:] + fine[:-1]) / 2, values, lo, hi, assumed_eps0).reshape(25, 400).mean(axis=1)
    return stats.chisquare(np.histogram(draws, bins)[0], 20_000 * mass / mass.sum()).pvalue


def test_sampler_follows_the_density_and_the_test_would_notice():
    """p-value 1e-4 for the right eps0 (1 seed in 10,000 fails); 2/3 and 3/2 of it are rejected."""
    assert sampler_p_value(0.9, 0.9, seed=0) > 1e-4
    assert sampler_p_value(0.9 * 3 / 2, 0.9, seed=0) < 1e-9
    assert sampler_p_value(0.9 * 2 / 3, 0.9, seed=0) < 1e-9


def test_rmse_per_coordinate_at_epsilon_one():
    """1000 answers N(0, 0.3^2), d = 10, epsilon = 1, delta = 1e-5: rank sd 2 sqrt(2)/eps0, sampling error."""
    parameters = median_parameters(rho_of(1.0, 1e-5), 10)
    rng = np.random.default_rng(4)
    noise = Source(5)
    error = [
        block_median(rng.normal(scale=0.3, size=(1000, 10)), -5.0, 5.0, parameters.eps0, noise) for _ in range(120)
    ]
    rmse = float(np.sqrt(np.mean(np.square(error))))
    density_at_median = 1000 / (0.3 * math.sqrt(2 * math.pi))
    predicted = math.hypot(
        2 * math.sqrt(2) / parameters.eps0 / density_at_median, math.sqrt(1000) / 2 / density_at_median
    )
    assert rmse == pytest.approx(predicted, rel=0.12)  # 1200 values: sd 2.6 %
    assert rmse < 0.022


def rho_of(epsilon, delta):
    """Largest rho whose tight zCDP conversion (Canonne, Kamath, Steinke 2020) is (epsilon, delta)-DP."""
    alpha = 1 + np.geomspace(1e-3, 1e4, 20_000)

    def delta_of(rho):
        log_delta = (alpha - 1) * (alpha * rho - epsilon) + (alpha - 1) * np.log1p(-1 / alpha) - np.log(alpha)
        return np.exp(np.minimum(log_delta, 0)).min()

    low, high = 0.0, 10.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) <= delta else (low, middle)
    return low


def test_awkward_values_are_clamped_one_by_one():
    Z = np.array([[np.nan], [np.inf], [-np.inf], [1e308], [0.25]])
    clamped = np.array([[0.5], [2.0], [-1.0], [2.0], [0.25]])
    for seed in range(20):
        assert block_median(Z, -1.0, 2.0, 1.0, Source(seed)) == block_median(clamped, -1.0, 2.0, 1.0, Source(seed))


def test_extreme_uniforms_stay_inside_the_range():
    class Constant:
        def __init__(self, value):
            self.value = value

        def uniform(self, size):
            return np.full(size, self.value)

    Z = np.random.default_rng(0).normal(size=(11, 3))
    low = block_median(Z, [-3, -2, -1], [3, 2, 1], 0.5, Constant(0.0))
    high = block_median(Z, [-3, -2, -1], [3, 2, 1], 0.5, Constant(1 - 2.0**-53))
    np.testing.assert_allclose(low, [-3, -2, -1], atol=1e-11)
    np.testing.assert_allclose(high, [3, 2, 1], atol=1e-11)


def test_outputs_are_cells_of_the_public_grid():
    Z = np.random.default_rng(0).normal(size=(51, 200))
    cells = (block_median(Z, -4.0, 4.0, 1.0, Source(1)) + 4.0) / (8.0 / 2**40) - 0.5
    np.testing.assert_array_equal(cells, np.rint(cells))


def test_ties_and_equal_answers():
    tied = block_median(np.tile([[0.0], [0.0], [0.5], [0.5]], (1, 4000)), -1.0, 1.0, 60.0, Source(0))
    assert np.all((tied > 0) & (tied < 0.5))  # the middle gap holds all but e^-60 of the mass
    equal = block_median(np.zeros((100, 4000)), -1.0, 1.0, 1.0, Source(0))
    assert stats.kstest(equal, "uniform", args=(-1, 2)).pvalue > 1e-4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Z": np.zeros(3)}, "Z has shape"),
        ({"Z": np.zeros((0, 2))}, "Z has shape"),
        ({"lo": 1.0}, "lo=1.0, hi=1"),
        ({"lo": -np.inf}, "lo=-inf"),
        ({"lo": -1e308, "hi": 1e308}, "finite"),
        ({"lo": 1e6, "hi": 1e6 + 1e-3}, "distinct cells"),
        ({"hi": [1.0, 1.0, 1.0]}, "hi has shape"),
        ({"eps0": 0.0}, "eps0=0.0"),
        ({"eps0": math.nan}, "eps0=nan"),
    ],
)
def test_public_errors_name_argument_and_value(change, message):
    arguments = {"Z": np.zeros((5, 2)), "lo": -1.0, "hi": 1.0, "eps0": 1.0, "noise": Source(0)} | change
    with pytest.raises(ValueError, match=message):
        block_median(**arguments)


@pytest.mark.parametrize(("rho", "d"), [(0.0, 1), (math.inf, 1), (1.0, 0), (1.0, 1.5), (1e-30, 1)])
def test_median_parameters_refuse(rho, d):
    with pytest.raises(ValueError, match=r"rho=|d="):
        median_parameters(rho, d)


def test_median_parameters_spend_exactly_rho():
    p = median_parameters(0.05, 10)
    assert p.d * p.eps0**2 / 8 == pytest.approx(0.05, rel=1e-15)
