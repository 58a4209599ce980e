"""The default for counts: rare ones, small budgets, few rows, and features far out.

Bounds are those of many seeds: a median of so many fits is far from them.
"""

import numpy as np
import pytest

import tailguard as tg
from tailguard.privacy import ApproximateDP, Gaussian


def counts(n, d, mean, seed, shape=None):
    """Counts of mean ``mean exp(.5 <w, x>)``, overdispersed with a shape; and fresh rows with their means."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n + 10_000, d)), rng.normal(size=d)
    truth = mean * np.exp(0.5 * X @ w / np.linalg.norm(w))
    rate = truth[:n] if shape is None else truth[:n] * rng.gamma(shape, 1.0 / shape, n)
    return X[:n], rng.poisson(rate).astype(float), X[n:], truth[n:]


def excess(truth, prediction):
    return float(np.mean(prediction - truth - truth * np.log(prediction / truth)))


def over_constant(n, d, mean, epsilon, seed, **options):
    """Excess deviance over that of the best constant, and the mean prediction over the mean."""
    X, y, fresh, truth = counts(n, d, mean, seed, **options)
    model = tg.PrivatePoissonRegressor(epsilon, random_state=seed).fit(X, y)
    prediction = model.predict(fresh)
    constant = excess(truth, np.full(len(truth), truth.mean()))
    return excess(truth, prediction) / constant, prediction.mean() / truth.mean(), model


@pytest.mark.parametrize(("n", "epsilon"), [(5000, 1.0), (10_000, 0.5)])
def test_rare_counts_have_slopes_and_a_level(n, epsilon):
    """Four zeros in five rows: .1 to .2 of the constant's deviance is left; 3 to 6 with clips among the zeros."""
    left, level, _ = zip(*(over_constant(n, 5, 0.2, epsilon, seed) for seed in range(10)), strict=True)
    assert np.median(left) < 0.6
    assert 0.7 < np.median(level) < 1.4


@pytest.mark.parametrize("shape", [None, 0.7], ids=["Poisson", "overdispersed"])
def test_small_budgets_have_slopes(shape):
    """One Gram matrix and a few steps, as for lines; .1 and .5 of the constant's deviance are left."""
    left, _, models = zip(*(over_constant(1000, 5, 3.0, 1.0, seed, shape=shape) for seed in range(12)), strict=True)
    labels = {event.label for event in models[0].privacy_.events}
    assert "steps" in labels
    assert "curvature" not in labels
    assert np.median(left) < (0.5 if shape is None else 0.9)


def test_few_rows_have_a_level_with_pure_noise():
    levels = []
    for seed in range(10):
        _, level, model = over_constant(250, 3, 3.0, 0.5, seed)
        assert all(isinstance(event, ApproximateDP) for event in model.privacy_.events)
        assert not np.any(model.coef_)
        levels.append(level)
    assert 0.7 < np.median(levels) < 1.4


@pytest.mark.parametrize(("n", "d", "epsilon"), [(200, 2, 0.5), (1000, 3, 1.0), (20_000, 3, 1.0)])
def test_of_a_target_that_is_not_seen_as_much_is_said_as_noise_may_hide(n, d, epsilon):
    """A mean of next to nothing would cost without limit once there is a one; all zeros are a mean of at most one."""
    X = np.random.default_rng(0).normal(size=(n, d))
    means = tg.PrivatePoissonRegressor(epsilon, random_state=0).fit(X, np.zeros(n)).predict(X)
    assert np.all(means == means[0])
    assert 1.0 / n < means[0] <= 1.0


def test_what_noise_may_hide_is_less_with_more_rows():
    few, many = (
        tg.PrivatePoissonRegressor(1.0, random_state=0).fit(np.zeros((n, 1)), np.zeros(n)).predict([[0.0]])[0]
        for n in (1000, 100_000)
    )
    assert many < few / 50.0


def test_no_mean_is_beyond_the_released_end_of_the_target():
    """A power of two beyond which next to nothing was seen, and twice that if the end is soft; 150 means before."""
    X, y, fresh, _ = counts(20_000, 3, 3.0, 0)
    model = tg.PrivatePoissonRegressor(3.0, random_state=0).fit(X, y)
    assert model.predict(100.0 * fresh).max() <= 8.0 * y.max() < 100.0 * y.mean()


def test_features_end_where_most_rows_do():
    """Far out an exponential makes more of a slope than there is: truncated at twice the end of most rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_t(2.0, size=(20_000, 2))
    model = tg.PrivatePoissonRegressor(1.0, random_state=0).fit(X, rng.poisson(np.exp(np.clip(X[:, 0], -2.0, 2.0))))
    assert np.all(model.upper_ < np.abs(X).max(axis=0) / 2.0)


@pytest.mark.parametrize("n", [250, 1000, 5000])
def test_hostile_counts_end_in_positive_numbers(n):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3))
    for value in (0.0, -1.0, 1e308, np.inf, -np.inf, np.nan, 1e-300):
        y = np.where(rng.random(n) < 0.5, value, rng.poisson(2.0, n))
        for intercept in (True, False):
            model = tg.PrivatePoissonRegressor(1.0, fit_intercept=intercept, random_state=0).fit(X, y)
            means = model.predict(X)
            assert np.all(np.isfinite(means))
            assert np.all(means > 0.0)
            assert model.privacy_.epsilon <= 1.0 + 1e-9


def test_slopes_without_an_intercept():
    """The line goes through a mean of one."""
    left = []
    for seed in range(8):
        X, y, fresh, truth = counts(3000, 3, 1.0, seed)
        model = tg.PrivatePoissonRegressor(1.0, fit_intercept=False, random_state=seed).fit(X, y)
        assert model.intercept_ == 0.0
        assert all(isinstance(event, Gaussian) for event in model.privacy_.events)
        left.append(excess(truth, model.predict(fresh)) / excess(truth, np.ones(len(truth))))
    assert np.median(left) < 0.5


@pytest.mark.parametrize("mean", [0.2, 3.0])
@pytest.mark.parametrize("kind", ["dummies", "normal"])
def test_more_budget_makes_counts_better(kind, mean):
    """Steps swung where an exponential is steep, and shrinkage took the widest clip for noise: worse from 3 to 100."""
    left = {1.0: [], 100.0: []}
    for seed in range(5):
        rng = np.random.default_rng(seed)
        share = np.geomspace(0.5, 0.01, 5)
        X = (rng.random((30_000, 5)) < share) - share if kind == "dummies" else rng.normal(size=(30_000, 5))
        w = rng.normal(size=5) / (np.sqrt(share * (1.0 - share)) if kind == "dummies" else 1.0)
        truth = mean * np.exp(np.clip(0.5 * X @ w / np.sqrt(5.0), -2.5, 2.5))
        y = rng.poisson(truth[:20_000]).astype(float)
        fresh, means = X[20_000:], truth[20_000:]
        for epsilon, found in left.items():
            model = tg.PrivatePoissonRegressor(epsilon, random_state=seed).fit(X[:20_000], y)
            found.append(excess(means, model.predict(fresh)) / excess(means, np.full(len(means), means.mean())))
    assert np.median(left[100.0]) < 0.1
    assert np.median(left[100.0]) < np.median(left[1.0])


def test_slopes_of_overdispersed_counts_are_not_too_small():
    """Clips cut off large counts, most where the mean is large; .75 to .8 of the slopes without a multiplier."""
    slopes, tilted = [], []
    for seed in range(8):
        X, y, fresh, truth = counts(20_000, 5, 3.0, seed, shape=0.7)
        model = tg.PrivatePoissonRegressor(2.0, random_state=seed).fit(X, y)
        line, right = np.log(model.predict(fresh)), np.log(truth)
        slopes.append(np.cov(line, right)[0, 1] / np.var(right))
        tilted.append("tilt" in {event.label for event in model.privacy_.events})
    assert all(tilted)
    assert 0.85 < np.median(slopes) < 1.15


def test_counts_beyond_one_count_although_none_is_seen():
    """Nothing but zeros and ones is seen of rare counts; the mean is that of all, .75 to .9 of it before."""
    _, level, _ = zip(*(over_constant(5000, 3, 0.15, 1.0, seed) for seed in range(12)), strict=True)
    assert 0.9 < np.median(level) < 1.1
