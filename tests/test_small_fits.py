"""Lines with small budgets, for columns of which nothing is known: slopes where there were none.

Bounds are those of many seeds: a median of so many fits is beyond them in one of 100,000 runs or fewer.
"""

import warnings

import numpy as np
import pytest

import tailguard as tg
from tailguard.default import choice
from tailguard.means.queries import Queries
from tailguard.privacy import ApproximateDP, Gaussian, gdp_mu


def line(n, d, seed, r2=0.8, level=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    w = rng.normal(size=d)
    w *= np.sqrt(r2) / np.linalg.norm(w)
    return X, X @ w + np.sqrt(1.0 - r2) * rng.normal(size=n) + level, w


def is_small(report):
    """A small fit has one Gram matrix, and no curvature."""
    labels = {event.label for event in report.events}
    return "steps" in labels and "curvature" not in labels


@pytest.mark.parametrize(("n", "d", "epsilon"), [(1000, 1, 0.5), (1000, 5, 0.5), (2000, 10, 0.5), (4000, 3, 0.2)])
@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
def test_slopes_are_found(n, d, epsilon, intercept):
    """R^2 of .8: what is left of the signal's variance is .001 to .15 in the median, and 1 without slopes."""
    left = []
    for seed in range(12):
        X, y, w = line(n, d, seed, level=1.0 if intercept else 0.0)
        model = tg.PrivateRidge(epsilon, fit_intercept=intercept, random_state=seed).fit(X, y)
        assert is_small(model.privacy_)
        left.append(np.sum((model.coef_ - w) ** 2) / 0.8)
    assert np.median(left) < 0.4


@pytest.mark.parametrize(("n", "d", "epsilon"), [(400, 5, 1.0), (3000, 20, 0.3)])
def test_slopes_of_few_rows_a_column(n, d, epsilon):
    """Twice to four times as much noise as above; .13 and .27 of the signal are left in the median."""
    left = []
    for seed in range(25):
        X, y, w = line(n, d, seed)
        model = tg.PrivateRidge(epsilon, random_state=seed).fit(X, y)
        assert is_small(model.privacy_)
        left.append(np.sum((model.coef_ - w) ** 2) / 0.8)
    assert np.median(left) < 0.7


def test_beyond_that_there_is_a_level_alone():
    for hints in (None, tg.Hints(moment=4.0)):
        X, y, _ = line(600, 20, 0)
        assert 2.0 * 21 / (600 * gdp_mu(1.0, 1e-6)) > choice.HIGH
        model = tg.PrivateRidge(1.0, hints=hints).fit(X, y)
        assert not np.any(model.coef_)
        assert "level only" in str(model.privacy_.parameters["model"])


def test_log_odds_of_few_rows_a_column_have_slopes():
    """The direction of the slopes is found: a cosine of .9 in the median, and of 0 without slopes."""
    found = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        X, w = rng.normal(size=(600, 10)), rng.normal(size=10)
        y = rng.random(600) < 1.0 / (1.0 + np.exp(-2.0 * X @ w / np.linalg.norm(w)))
        coef = tg.PrivateLogisticRegression(1.0, classes=[False, True], random_state=seed).fit(X, y).coef_[0]
        found.append(coef @ w / np.linalg.norm(w) / max(np.linalg.norm(coef), 1e-12))
    assert np.median(found) > 0.7


def test_a_strong_signal_without_an_intercept_is_not_shrunk():
    """Steps used to stop at .8 of it."""
    found = []
    for seed in range(15):
        X, y, w = line(1000, 1, seed, level=0.0)
        found.append(tg.PrivateRidge(1.0, fit_intercept=False, random_state=seed).fit(X, y).coef_[0] / w[0])
    assert 0.93 < np.median(found) < 1.05


@pytest.mark.parametrize("level", [0.0, 7.0])
def test_targets_of_which_most_are_equal_have_slopes(level):
    """Three of five are the same: a quantile of residuals is 0 then, and the clip must not be."""
    found = []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(1500, 2))
        y = level + np.where(rng.random(1500) < 0.6, 0.0, 3.0 * X[:, 0] + rng.normal(size=1500))
        best = np.linalg.lstsq(X - X.mean(axis=0), y - y.mean(), rcond=None)[0]
        found.append(tg.PrivateRidge(1.0, random_state=seed).fit(X, y).coef_[0] / best[0])
    assert np.median(found) > 0.15


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1.0, 1e6, 1e30])
def test_targets_of_any_size(scale):
    errors = []
    for seed in range(9):
        X, y, _ = line(1000, 1, seed)
        prediction = tg.PrivateRidge(1.0, random_state=seed).fit(X, scale * y).predict(X)
        errors.append(np.sqrt(np.mean((prediction / scale - y) ** 2)))
    assert np.median(errors) < 0.7  # .45 is the noise, 1 the mean


def test_years():
    """A target 250 standard deviations from 0: its level was off by hundreds of them."""
    errors = []
    for seed in range(15):
        X, y, _ = line(1500, 3, seed, level=0.0)
        prediction = tg.PrivateRidge(0.7, random_state=seed).fit(X, 2000.0 + 8.0 * y).predict(X)
        errors.append(np.sqrt(np.mean((prediction - 2000.0 - 8.0 * y) ** 2)) / 8.0)
    assert np.median(errors) < 0.9


def test_which_fit_is_made_is_public():
    reports = []
    for X in (np.zeros((1000, 3)), np.full((1000, 3), np.nan), np.full((1000, 3), 1e308), line(1000, 3, 0)[0]):
        reports.append(tg.PrivateRidge(0.5, random_state=0).fit(X, X[:, 0]).privacy_)
    assert len({report.events[0] for report in reports}) == 1
    mu = gdp_mu(0.5, 1e-6)
    assert mu * 1000 < choice.FEW


FAR = {
    "inference": lambda seed: tg.PrivateRidge(0.9, inference=True, random_state=seed),
    "huber, inference": lambda seed: tg.PrivateHuberRegressor(0.9, inference=True, random_state=seed),
    "poisson, hints": lambda seed: tg.PrivatePoissonRegressor(
        0.9, hints=tg.Hints(ranges={0: (-10, 1e7)}), random_state=seed
    ),
    "small": lambda seed: tg.PrivateRidge(0.9, random_state=seed),
    "small, hints": lambda seed: tg.PrivateRidge(0.9, hints=tg.Hints(moment=1e7), random_state=seed),
    "many rows": lambda seed: tg.PrivateRidge(4.0, random_state=seed),
}


@pytest.mark.parametrize("away", [1e6, 1e30], ids=["far", "huge"])
@pytest.mark.parametrize("kind", FAR)
def test_far_targets_and_columns_do_not_end_the_budget(kind, away):
    """All looks that they may take: an overdrawn account would raise, and lose what was paid for."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = away * (1.0 + 1e-6 * rng.normal(size=(500, 1)))
        FAR[kind](seed).fit(X, away * (1.0 + 1e-6 * rng.normal(size=500)))


@pytest.mark.parametrize("known", [True, False], ids=["hints", "nothing"])
def test_a_small_fit_leaves_its_steps_a_share_whatever_it_sees(monkeypatch, known):
    """Zeros are looked at twice, far columns and targets many times."""
    shares = []
    plain = Queries.mean

    def mean(self, label, function, width, bound, share):
        if label == "steps":
            shares.append(share)
        return plain(self, label, function, width, bound, share)

    monkeypatch.setattr(Queries, "mean", mean)
    hints = tg.Hints(exchangeable=True) if known else None
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = 10.0 ** rng.uniform(-30, 30) * (rng.choice([0.0, 1e3]) + rng.normal(size=(700, 2)))
        y = 10.0 ** rng.uniform(-30, 30) * (rng.choice([0.0, 1e6]) + rng.normal(size=700) * (rng.random(700) < 0.3))
        tg.PrivateRidge(0.6, hints=hints, random_state=seed).fit(X, y)
    assert shares
    assert min(shares) > 1e-4


# Few rows in a ledger.


@pytest.mark.parametrize("budget", [tg.Budget(6.0, 1e-6), tg.Budget(rho=0.5), tg.Budget(mu=1.0)], ids=str)
def test_in_a_ledger_few_rows_are_paid_for_like_many(tmp_path, budget):
    """Its accountant adds up Gaussian releases by their squares: pure ones would cost their sum."""
    y = np.random.default_rng(0).normal(size=400)
    assert all(isinstance(event, ApproximateDP) for event in tg.private_mean(y[:250], 1.0).privacy.events)
    with tg.Ledger(tmp_path / "budget.db", "d", budget) as ledger:
        for _ in range(2):
            for report in (tg.private_mean(y, 0.2).privacy, tg.PrivateRidge(0.2).fit(y[:, None], y).privacy_):
                assert all(isinstance(event, Gaussian) for event in report.events)
    assert ledger.summary().runs == 4


@pytest.mark.parametrize("estimator", [tg.PrivateRidge, tg.PrivateLogisticRegression, tg.PrivatePoissonRegressor])
@pytest.mark.parametrize(
    "options",
    [{"epsilon": 0.5}, {"epsilon": tg.Budget(mu=0.12)}, {"epsilon": 0.5, "inference": True}],
    ids=["pure", "Gaussian", "inference"],
)
def test_too_few_rows_for_slopes_are_a_warning_that_public_numbers_decide(estimator, options):
    """The same whatever the rows are; none where slopes are fitted, though noise may leave nothing of them."""
    told = set()
    classes = {"classes": [0, 1]} if estimator is tg.PrivateLogisticRegression else {}
    for X in (np.zeros((200, 12)), np.full((200, 12), np.nan), np.random.default_rng(0).normal(size=(200, 12))):
        for y in (np.zeros(200), np.full(200, np.nan), np.arange(200) % 2):
            with pytest.warns(tg.FewRowsWarning, match=r"200 rows are too few for 12 columns at ") as caught:
                estimator(**options, random_state=0, **classes).fit(X, y)
            told.add(str(caught[0].message))
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator(0.5, random_state=0, **classes).fit(np.zeros((20_000, 2)), np.arange(20_000) % 2)
        estimator(0.5, method="clipped", clip=1.0, random_state=0, **classes).fit(X, np.arange(200) % 2)
