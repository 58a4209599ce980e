"""The paper's generators have the distributions they print, and tests that would notice others.

All p-values are two-sided at 1e-6 on fixed seeds; every acceptance has a rejection beside it.
"""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from tailguard.datasets import Dataset, make_binary, make_linear

MAKERS = [make_linear, make_binary]
LAWS = {"normal": stats.norm(), "t3": stats.t(3), "lognormal": stats.lognorm(1.0)}
ACCEPT = 1e-6


@pytest.mark.parametrize("make", MAKERS)
def test_shapes_types_and_repeatability(make):
    data = make(500, 4, seed=1)
    assert data.X.shape == (500, 4)
    assert data.y.shape == (500,)
    assert data.w.shape == (4,)
    assert {array.dtype for array in (data.X, data.y, data.w)} == {np.dtype(float)}
    assert np.linalg.norm(data.w) == pytest.approx(1.0)
    again, other = make(500, 4, seed=1), make(500, 4, seed=2)
    assert np.array_equal(data.X, again.X)
    assert np.array_equal(data.y, again.y)
    assert not np.array_equal(data.w, other.w)
    assert not np.array_equal(make(500, 4).X, make(500, 4).X)


def test_a_generator_is_a_seed_too():
    assert np.array_equal(make_linear(50, 2, seed=np.random.default_rng(3)).y, make_linear(50, 2, seed=3).y)


def test_defaults_are_the_papers_size():
    data = make_linear(seed=0)
    assert data.X.shape == (100_000, 10)


@pytest.mark.parametrize(("mu", "sigma"), [(1.0, 1.0), (0.0, 0.5)])
@pytest.mark.parametrize("seed", range(3))
def test_linear_noise_is_a_centred_log_normal_and_no_other(mu, sigma, seed):
    data = make_linear(20_000, 3, seed=seed, mu=mu, sigma=sigma)
    noise = data.y - data.X @ data.w
    for centre, right in ((mu + sigma**2 / 2, True), (mu, False)):
        positive = noise + math.exp(centre)
        fits = positive.min() > 0 and stats.kstest(np.log(positive), "norm", (mu, sigma)).pvalue > ACCEPT
        assert fits == right
    logs = np.log(noise + math.exp(mu + sigma**2 / 2))
    assert stats.kstest(logs, "norm", (mu, 1.1 * sigma)).pvalue < ACCEPT


@pytest.mark.parametrize("seed", range(3))
def test_linear_noise_has_mean_zero(seed):
    noise = (lambda data: data.y - data.X @ data.w)(make_linear(200_000, 1, seed=seed, mu=0.0, sigma=0.5))
    assert stats.ttest_1samp(noise, 0.0).pvalue > ACCEPT
    assert stats.ttest_1samp(noise, 0.01).pvalue < ACCEPT


@pytest.mark.parametrize(("mu", "sigma"), [(0.2, 0.2), (-1.0, 0.6)])
@pytest.mark.parametrize("seed", range(3))
def test_binary_labels_have_the_printed_probability_and_no_other(mu, sigma, seed):
    """With w = 0 the label is +1 where D < E[D], D log-logistic: P = 1/(1 + (E[D]/e^mu)^(-1/sigma))."""
    n = 200_000
    data = make_binary(n, 2, seed=seed, mu=mu, sigma=sigma, w=[0.0, 0.0])
    assert set(np.unique(data.y)) == {-1.0, 1.0}
    ratio = math.pi * sigma / math.sin(math.pi * sigma)
    probability = 1.0 / (1.0 + ratio ** (-1.0 / sigma))
    count = int(np.sum(data.y > 0))
    assert stats.binomtest(count, n, probability).pvalue > ACCEPT
    assert stats.binomtest(count, n, 0.5).pvalue < ACCEPT  # what a noise centred at its median would give
    assert stats.binomtest(count, n, 1.0 - probability).pvalue < ACCEPT  # and the other sign


def test_binary_labels_point_against_w_as_printed():
    data = make_binary(5000, 3, seed=0)
    assert np.corrcoef(data.X @ data.w, data.y)[0, 1] < -0.5


@pytest.mark.parametrize("features", LAWS)
@pytest.mark.parametrize("make", MAKERS)
def test_features_have_their_law_and_no_other(make, features):
    X = make(10_000, 2, seed=5, features=features).X
    for name, law in LAWS.items():
        assert (stats.kstest(X.ravel(), law.cdf).pvalue > ACCEPT) == (name == features)
    assert abs(stats.spearmanr(X[:, 0], X[:, 1]).statistic) < 0.05


@pytest.mark.parametrize("features", LAWS)
def test_excess_risk_is_that_of_the_population(features):
    data = make_linear(10, 3, seed=0, features=features)
    v = np.array([0.3, -0.2, 0.5])
    law = LAWS[features]
    expected = (law.var() * v @ v + (law.mean() * v.sum()) ** 2) / 2
    assert data.excess_risk(data.w + v) == pytest.approx(expected)
    assert data.excess_risk(data.w) == 0.0


@pytest.mark.parametrize("make", MAKERS)
def test_coefficients_can_be_given(make):
    given = np.array([3.0, 0.0])
    data = make(100, 2, seed=0, w=given)
    assert np.array_equal(data.w, given)
    assert data.w is not given


def test_a_dataset_is_frozen():
    data = make_linear(10, 1, seed=0)
    assert isinstance(data, Dataset)
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.y = data.y


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n": 0}, r"n must be.*got 0"),
        ({"n": 10, "d": 0}, r"d must be.*got 0"),
        ({"n": 10, "features": "cauchy"}, r"features.*(cauchy.*t3|t3.*cauchy)"),
        ({"n": 10, "sigma": 0.0}, r"sigma must be.*got 0.0"),
        ({"n": 10, "sigma": math.nan}, r"sigma must be.*got nan"),
        ({"n": 10, "mu": math.inf}, r"mu must be.*got inf"),
        ({"n": 10, "d": 3, "w": [1.0, 2.0]}, r"w must be 3.*\(2,\)"),
        ({"n": 10, "d": 2, "w": [1.0, math.nan]}, "finite"),
    ],
)
def test_refusals_name_argument_and_remedy(make, arguments, words):
    with pytest.raises(ValueError, match=words):
        make(**arguments)


def test_log_logistic_noise_without_a_mean_is_refused():
    with pytest.raises(ValueError, match=r"sigma must be.*got 1.0.*no mean"):
        make_binary(10, 2, sigma=1.0)


def test_words_for_coefficients_are_refused():
    with pytest.raises(TypeError, match="w must be 2 numbers; got 'up'"):
        make_linear(10, 2, w="up")
