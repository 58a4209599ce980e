"""The default: bounded on every table, accurate where there is budget, and nothing but releases leaves it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor

import tailguard as tg
from tailguard import default
from tailguard.default import extent, linear, whitening
from tailguard.default.columns import Columns
from tailguard.default.rows.target import AS_IT_IS
from tailguard.engines.memory import InMemory
from tailguard.means.queries import Noisy, Queries
from tailguard.privacy import Account, Budget, SeededNoise
from taped import Replayed, Taped, assert_the_same


def threshold_labels(y: np.ndarray, classes: int) -> np.ndarray:
    return np.digitize(y, np.quantile(y, np.arange(1, classes) / classes)).astype(float)


# name: estimator, target made from a real column
FITS = {
    "ridge": (tg.PrivateRidge, lambda y: y),
    "huber": (tg.PrivateHuberRegressor, lambda y: y),
    "Poisson": (tg.PrivatePoissonRegressor, np.abs),
    "logistic": (tg.PrivateLogisticRegression, lambda y: threshold_labels(y, 2)),
    "multinomial": (tg.PrivateLogisticRegression, lambda y: threshold_labels(y, 3)),
}
every_fit = pytest.mark.parametrize("name", FITS)


def make(name: str, epsilon: float = 1.0, **parameters):
    if name in ("logistic", "multinomial"):
        parameters.setdefault("classes", range(2 if name == "logistic" else 3))
    return FITS[name][0](epsilon, **parameters)


def predictor(model, X: np.ndarray) -> np.ndarray:
    return model.decision_function(X) if hasattr(model, "classes_") else model.predict(X)


# Bounded by construction.

SHAPES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy": lambda rng, n: rng.standard_t(1.5, n),
    "skewed": lambda rng, n: np.exp(2.0 * rng.normal(size=n)),
    "constant": lambda rng, n: np.full(n, rng.normal()),
    "binary": lambda rng, n: (rng.random(n) < rng.choice([0.001, 0.02, 0.5, 0.98])).astype(float),
    "zero-inflated": lambda rng, n: np.where(rng.random(n) < 0.93, 0.0, np.exp(2.0 * rng.normal(size=n))),
    "far": lambda rng, n: 1000.0 + rng.normal(size=n),
    "integer": lambda rng, n: rng.integers(0, 5, n).astype(float),
    "dirty": lambda rng, n: np.where(rng.random(n) < 0.05, rng.choice([np.nan, np.inf, 1e308]), rng.normal(size=n)),
}


def random_table(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """20 to 2000 rows and 1 to 30 columns of all shapes, some repeated, at scales from 1e-280 to 1e280."""
    n, d = int(np.exp(rng.uniform(np.log(20), np.log(2000)))), int(rng.integers(1, 31))
    with np.errstate(all="ignore"):
        columns = [
            SHAPES[rng.choice(list(SHAPES))](rng, n) * 10.0 ** rng.choice([0, 0, 0, -6, 6, -100, 100, -280, 280])
            for _ in range(d)
        ]
        X = np.column_stack([columns[rng.integers(d)] if rng.random() < 0.1 else column for column in columns])
        unit = X / np.maximum(np.median(np.abs(np.nan_to_num(X)), axis=0), 1e-300)
        y = np.clip(np.nan_to_num(unit), -10.0, 10.0) @ rng.normal(size=d) + rng.standard_t(2.2, n) * rng.choice(
            [0.1, 10]
        )
        y *= 10.0 ** rng.choice([0, 0, 0, -6, 6, -250, 250])
        kind = rng.random()
        return X, np.zeros(n) if kind < 0.05 else np.full(n, y[0]) if kind < 0.1 else y


LARGEST_ODDS = 3000.0  # of a linear predictor of classes: 6 (or the level's 12) times the farthest design vector
# Of predictions, over the largest target: 4 (tilt) x 2 (slopes) x the farthest design vector, some 100 scales.
MULTIPLE = 1000.0


@every_fit
@pytest.mark.parametrize("part", range(2))
def test_no_prediction_explodes_on_random_tables(name, part):
    """30 tables each, 300 in all."""
    for seed in range(30 * part, 30 * part + 30):
        rng = np.random.default_rng([seed, list(FITS).index(name)])
        X, y = random_table(rng)
        y = FITS[name][1](y)
        epsilon = float(rng.choice([0.1, 1.0, 3.0, 10.0]))
        model = make(name, epsilon, random_state=seed).fit(X, y)
        assert np.all(np.isfinite(model.coef_))
        assert np.all(np.isfinite(model.intercept_))
        assert model.privacy_.epsilon <= epsilon
        largest = np.max(np.abs(predictor(model, X)))
        if name in ("logistic", "multinomial"):
            assert largest <= LARGEST_ODDS
        elif name == "Poisson":
            assert np.isfinite(largest)  # its bound has a test of its own, below
        else:
            assert largest <= MULTIPLE * np.max(np.abs(y))


def test_a_poisson_mean_is_at_most_a_multiple_of_the_average():
    """E^5 = 150 times, as the fit assumes; 200 leaves room for the noise of the average."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = np.column_stack([rng.normal(size=(3000, 3)), SHAPES["zero-inflated"](rng, 3000)])
        y = rng.poisson(np.exp(0.3 * X[:, 0] + 0.1 * np.log1p(X[:, 3])))
        model = tg.PrivatePoissonRegressor(1.0, random_state=seed).fit(X, y)
        assert np.max(model.predict(X)) <= 200.0 * y.mean()


@every_fit
def test_no_row_can_be_far_from_the_others_in_a_prediction(name):
    """A row of test data is truncated like those of training: 1e300 predicts what the largest value does."""
    rng = np.random.default_rng(0)
    X = np.exp(rng.normal(size=(3000, 3)))
    model = make(name, 3.0, random_state=0).fit(X, FITS[name][1](np.log(X) @ [1.0, -1.0, 0.0] + rng.normal(size=3000)))
    far, end = np.full((1, 3), 1e300), np.broadcast_to(model.upper_, (1, 3))
    np.testing.assert_array_equal(predictor(model, far), predictor(model, end))


@pytest.mark.parametrize(
    ("name", "n", "epsilon"),
    [
        *[("ridge", *case) for case in ((1000, 0.05), (300, 1.0), (2000, 0.1))],
        *[("huber", *case) for case in ((1000, 0.05), (2000, 0.1))],  # with 300 rows it is the fit of ridge
        *[("logistic", *case) for case in ((300, 1.0), (1000, 0.3), (300, 0.3), (1000, 0.1))],
        *[("multinomial", *case) for case in ((300, 0.3), (300, 1.0), (100, 3.0))],
        *[("multinomial", *case) for case in ((2000, 0.2), (4000, 0.1))],
    ],
)
def test_with_little_budget_it_is_no_worse_than_a_constant(name, n, epsilon):
    """At the 90 % quantile over seeds: excess loss over the best constant below .05; the variance of y is 1.

    With 300 rows one line in fifteen is beyond it: often three of twenty, now and then eleven of a hundred. Of log-odds
    one in twenty is.
    """
    losses, fits = [], (200 if name == "logistic" else 400) if n == 300 else 20
    for seed in range(fits):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 1))
        y = X[:, 0] * np.sqrt(0.5) + np.sqrt(0.5) * rng.normal(size=n)
        target = FITS[name][1](y)
        model = make(name, epsilon, random_state=seed).fit(X, target)
        if name in ("ridge", "huber"):
            losses.append(np.mean((y - model.predict(X)) ** 2 - (y - y.mean()) ** 2) / 2.0)
        else:
            p = model.predict_proba(X)[np.arange(n), target.astype(int)]
            losses.append(-np.mean(np.log(p)) - np.log(model.classes_.size))
    assert np.quantile(losses, 0.9) < 0.05


# Units.


@every_fit
@pytest.mark.parametrize("power", [-20, 20])
def test_the_unit_of_a_column_does_not_matter(name, power):
    """Not to the last bit: the noise of a histogram stays in its bin. The fit changes less than by another seed."""
    rng = np.random.default_rng(1)
    X = np.exp(rng.normal(size=(5000, 4)))
    y = FITS[name][1](X @ [1.0, -1.0, 0.5, 0.0] + rng.standard_t(3.0, 5000))
    scaled = X * [1.0, 2.0**power, 1.0, 1.0]
    ours, others = [], []
    for seed in range(6):
        plain = predictor(make(name, random_state=seed).fit(X, y), X)
        ours.append(np.mean((predictor(make(name, random_state=seed).fit(scaled, y), scaled) - plain) ** 2))
        others.append(np.mean((predictor(make(name, random_state=100 + seed).fit(X, y), X) - plain) ** 2))
    assert np.median(ours) <= np.median(others)


@pytest.mark.parametrize("name", ["ridge", "huber"])
@pytest.mark.parametrize("power", [-20, 20])
def test_the_unit_of_the_target_does_not_matter(name, power):
    rng = np.random.default_rng(1)
    X = np.exp(rng.normal(size=(5000, 4)))
    y = X @ [1.0, -1.0, 0.5, 0.0] + rng.standard_t(3.0, 5000)
    change = []
    for seed in range(6):
        plain = make(name, random_state=seed).fit(X, y).predict(X)
        scaled = make(name, random_state=seed).fit(X, y * 2.0**power).predict(X) * 2.0**-power
        change.append(np.mean((plain - scaled) ** 2) / np.var(y))
    assert np.median(change) < 0.01


# Accuracy where there is budget: n = 2e4, d = 5, epsilon = 1. Bounds are about four times what was measured.

N, D = 20_000, 5


@pytest.mark.parametrize("name", ["ridge", "huber"])
@pytest.mark.parametrize("kind", ["normal", "lognormal"])
def test_slopes_are_about_as_good_as_least_squares(name, kind):
    """Median slope risk of 8 seeds: within 5 times that of OLS, which does not pay for privacy."""
    ours, ols = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, noise = rng.normal(size=(N, D)), rng.normal(size=N)
        if kind == "lognormal":
            X, noise = np.exp(X), np.exp(noise)
        sd = 1.0 if kind == "normal" else np.sqrt(np.e * (np.e - 1.0))
        w = rng.normal(size=D)
        w /= np.linalg.norm(w) * sd
        y = X @ w + noise
        slopes = make(name, random_state=seed).fit(X, y).coef_
        free = np.linalg.lstsq(np.column_stack([X, np.ones(N)]), y, rcond=None)[0][:-1]
        ours.append(np.sum(((slopes - w) * sd) ** 2) / 2.0)
        ols.append(np.sum(((free - w) * sd) ** 2) / 2.0)
    assert np.median(ours) < 5.0 * np.median(ols)


@pytest.mark.parametrize("name", ["logistic", "multinomial", "Poisson"])
def test_held_out_loss_is_about_that_of_the_free_fit(name):
    """Median of 5 seeds: within .01 of the non-private fit, where the constant is at least .1 worse."""
    gaps, gains = [], []
    w = np.array([1.0, -1.0, 0.5, 0.0, 0.0])
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, T = rng.normal(size=(2, N, D))
        if name == "Poisson":
            y, mean = rng.poisson(np.exp(0.5 * X @ w)), np.exp(0.5 * T @ w)
            fits = make(name, random_state=seed).fit(X, y), PoissonRegressor(alpha=0.0).fit(X, y)
            ours, free = (np.mean(fit.predict(T) - mean * np.log(fit.predict(T))) for fit in fits)
            constant = np.mean(y.mean() - mean * np.log(y.mean()))
        else:
            W = np.stack([np.zeros(D), w, -w[::-1]])[: 2 if name == "logistic" else 3]
            y, t = (np.argmax(Z @ W.T + rng.gumbel(size=(N, len(W))), axis=1) for Z in (X, T))
            fits = make(name, random_state=seed).fit(X, y), LogisticRegression(C=np.inf).fit(X, y)
            ours, free = (-np.mean(fit.predict_log_proba(T)[np.arange(N), t]) for fit in fits)
            share = np.bincount(y) / N
            constant = -np.sum(share * np.log(share))
        gaps.append(ours - free)
        gains.append(constant - free)
    assert np.median(gaps) < 0.01
    assert np.median(gains) > 0.1


@pytest.mark.parametrize("power", [-140, -30, -20, 20, 30, 100])
def test_a_column_of_any_scale_is_used(power):
    """Three equal columns and noise of the size of one: without the first, R^2 is .5 instead of .75."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    y = X.sum(axis=1) + rng.normal(size=N)
    X[:, 0] *= 10.0**power
    scores = [make("ridge", random_state=seed).fit(X, y).score(X, y) for seed in range(3)]
    assert np.median(scores) > 0.7


# The same bits.


def table(n: int = 30_000, d: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.exp(rng.normal(size=(n, d))).astype(np.float32).astype(np.float64)
    return X, X @ np.linspace(-1.0, 1.0, d) + rng.standard_t(3.0, n)


@every_fit
def test_threads_layout_and_precision_change_nothing(name, busy_threads):
    """30,000 rows are three blocks; values are those of float32."""
    X, y = table()
    y = FITS[name][1](y)
    first = make(name, random_state=0, threads=1).fit(X, y)
    same = [
        make(name, random_state=0, threads=2).fit(X, y),
        make(name, random_state=0, threads=7).fit(X, y),
        make(name, random_state=0).fit(np.asfortranarray(X), y),
        make(name, random_state=0).fit(X.astype(np.float32), y),
        make(name, random_state=0).fit(np.repeat(X, 2, axis=0)[::2], y),
    ]
    for other in same:
        np.testing.assert_array_equal(first.coef_, other.coef_)
        np.testing.assert_array_equal(first.intercept_, other.intercept_)
        assert first.privacy_ == other.privacy_


@every_fit
def test_the_order_of_the_rows_changes_nothing(name):
    X, y = table(5000)
    y = FITS[name][1](y)
    first, other = (make(name, random_state=0).fit(X[::step], y[::step]) for step in (1, -1))
    np.testing.assert_allclose(first.coef_, other.coef_, rtol=1e-6, atol=1e-9)


# Nothing but releases leaves.


# The last three: residuals are always uneven, always widen in some direction, and rows far out never follow the line.
TURNED = [
    ("ridge", {"SURELY": -1.0}),
    ("ridge", {"SURELY": np.inf, "CLEARLY": -np.inf, "MATERIAL": 0.0}),
    ("ridge", {"COMPARED": np.inf, "DIFFERENT": -np.inf, "OUTWEIGHED": -np.inf}),
    ("ridge", {"COMPARED": np.inf, "DIFFERENT": np.inf}),
    ("ridge", {"TRUNCATED": dict.fromkeys(("narrow", "wide"), ((1.0, (1.0,), (1e9,)),))}),
]


@pytest.mark.parametrize(("name", "constants"), [*((name, {}) for name in FITS), *TURNED])
@pytest.mark.parametrize("epsilon", [0.04, 0.5, 2.0])  # for lines: a level, the fit for small budgets, the other
@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
def test_the_model_is_a_function_of_what_was_released(monkeypatch, name, epsilon, intercept, constants):
    """The releases of one table, played back to a fit of another, give the same model, attributes and report."""
    for constant, value in constants.items():
        monkeypatch.setattr(extent if hasattr(extent, constant) else linear, constant, value)
    X, y = table(2000)
    replayed(monkeypatch, lambda: make(name, epsilon, random_state=0, fit_intercept=intercept), X, FITS[name][1](y))


def replayed(monkeypatch, unfitted, X, y):
    """A fit, and that nothing of it changes if other tables are given its releases."""
    Taped.tape = []
    monkeypatch.setattr(default, "Queries", Taped)
    model = unfitted().fit(X, y)
    monkeypatch.setattr(default, "Queries", Replayed)
    rng = np.random.default_rng(5)
    for other, target in (
        (np.full_like(X, np.nan), np.full(len(y), np.nan)),
        (1e6 * rng.normal(size=X.shape), rng.integers(0, 2, len(y)).astype(float)),
    ):
        tape = list(Taped.tape)
        assert tape or "level only" in model.privacy_.parameters["model"]  # and no level: nothing is asked
        twin = unfitted().fit(other, target)
        assert not Taped.tape  # every release was asked for again, and no other
        Taped.tape = tape
        assert_the_same(twin, model)
    return model


SEEN = {"column scales", "column means"}


@pytest.mark.parametrize(
    ("n", "budget", "level", "intercept", "labels"),
    [
        (250, tg.Budget(mu=0.3), 1e6, True, {*SEEN, "missing", "clip", "tail", "level"}),
        (2000, 0.5, 0.0, True, SEEN),
        (2000, 0.5, 0.0, False, SEEN),
        (2000, 10.0, 0.0, False, SEEN),
    ],
    ids=["a level", "unseen, small", "unseen, small, origin", "unseen, origin"],
)
def test_counts_without_slopes_are_a_function_of_what_was_released(monkeypatch, n, budget, level, intercept, labels):
    X, _ = table(n, 3)
    y = level + np.sqrt(level) * np.random.default_rng(6).normal(size=n)
    model = replayed(monkeypatch, lambda: make("Poisson", budget, random_state=0, fit_intercept=intercept), X, y)
    assert {event.label for event in model.privacy_.events} - {"not spent"} == labels


@every_fit
def test_a_fitted_model_holds_no_rows(name):
    """Its pickle does not grow with the data."""
    sizes = []
    for n in (2000, 8000):
        X, y = table(n)
        sizes.append(len(pickle.dumps(make(name, random_state=0).fit(X, FITS[name][1](y)))))
    assert sizes[1] < sizes[0] + 2000


@every_fit
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 8.0, 200.0])
@pytest.mark.parametrize("n", [20, 2000])
def test_the_report_never_exceeds_the_promise(name, epsilon, n):
    X, y = table(n)
    for intercept in (True, False):
        model = make(name, epsilon, random_state=0, fit_intercept=intercept).fit(X, FITS[name][1](y))
        assert 0.0 <= model.privacy_.epsilon <= epsilon


@pytest.mark.parametrize("budget", [tg.Budget(1.0, 1e-6), tg.Budget(rho=0.05), tg.Budget(mu=0.3)], ids=str)
@every_fit
def test_every_form_of_budget_is_kept(name, budget):
    X, y = table(2000)
    model = make(name, budget, random_state=0).fit(X, FITS[name][1](y))
    assert budget.allows(model.privacy_.events)


def test_where_the_spread_grows_with_the_line_slopes_are_those_of_the_mean():
    """Costs, with a spread in proportion to their mean: the bulk has another slope. Twenty seeds: to .027, from .20."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(20_000, 4))
        y = np.exp(0.25 * X.sum(axis=1)) * rng.lognormal(0.0, 1.0, len(X))
        best = LinearRegression().fit(X, y).predict(X)

        def missed(name, seed=seed, X=X, y=y, best=best):
            return np.var(make(name, random_state=seed).fit(X, y).predict(X) - best) / np.var(best)

        assert missed("ridge") < 0.08
        assert missed("huber") > 0.12


def test_targets_far_beyond_all_others_count_as_missing():
    """One in a hundred at 1e6 beside a bulk of size 1: slopes and level are those of the others.

    Median over five fits of the largest error: .015 over 60 seeds, and 1.2 if such targets are clipped.
    """
    errors = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(20_000, 2))
        y = 1.0 + X @ [1.0, -0.5] + rng.normal(size=20_000)
        y[rng.random(20_000) < 0.01] = 1e6
        model = tg.PrivateRidge(1.0, random_state=seed).fit(X, y)
        errors.append(np.max(np.abs(np.append(model.coef_, model.intercept_) - [1.0, -0.5, 1.0])))
    assert np.median(errors) < 0.15


def test_the_stated_noise_of_coefficients_is_what_repeated_fits_show():
    """Within a factor of 1.5, root mean square over coefficients and 30 fits; half or twice the noise would fail."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 4))
    y = X @ [1.0, -1.0, 0.5, 0.0] + rng.standard_t(3, 10_000)
    fits = [tg.PrivateHuberRegressor(0.5, random_state=seed).fit(X, y) for seed in range(30)]
    found = np.std([model.coef_ for model in fits], axis=0)
    stated = np.median([model.coef_noise_ for model in fits], axis=0)
    ratio = np.sqrt(np.mean((found / stated) ** 2))
    assert 1 / 1.5 < ratio < 1.5


@pytest.mark.parametrize("name", ["ridge", "huber"])
def test_where_noise_is_symmetric_the_level_is_that_of_the_narrow_fit(name):
    """Student's t with 2.2 degrees of freedom. Root mean square over 40 seeds: .021 and .016, was .057 and .068."""
    errors = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(10_000, 4))
        y = 1.0 + X @ [1.0, -0.5, 0.3, 0.0] + rng.standard_t(2.2, len(X))
        errors.append(make(name, 0.5, random_state=seed).fit(X, y).intercept_ - 1.0)
    assert np.sqrt(np.mean(np.square(errors))) < 0.04


def test_the_line_is_tilted_where_residuals_are_uneven_along_it_or_across(monkeypatch):
    monkeypatch.setattr(linear, "SURELY", 6.0)  # standard deviations; costs have some twenty
    monkeypatch.setattr(linear, "CLEARLY", 9.0)  # a wider noise across the line has some hundreds

    def labels(name, y):
        return {event.label for event in make(name, random_state=0).fit(X, y).privacy_.events}

    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4))
    even, costs = X @ np.ones(4) + rng.normal(size=len(X)), np.exp(X @ np.full(4, 0.25)) * rng.lognormal(size=len(X))
    across = X[:, 0] + np.exp(0.5 * X[:, 1]) * (rng.lognormal(size=len(X)) - np.exp(0.5))
    assert "tilt" in labels("ridge", costs)
    assert {"widening", "tilt"} <= labels("ridge", across)
    assert not {"tilt", "instrument"} & labels("ridge", even)
    for y in (even, costs, across):
        assert not {"tilt", "instrument", "widening"} & labels("huber", y)


def test_slopes_are_those_of_the_mean_where_skewed_noise_widens_across_the_line():
    """The bulk's are .27 away. Over 40 seeds the median error is .09, the largest .25; steps alone had .20 and .29."""
    errors = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(10_000, 4))
        e = np.exp(0.4 * X[:, 1]) * (rng.lognormal(size=len(X)) - np.exp(0.5))
        model = make("ridge", 1.0, random_state=seed).fit(X, X[:, 0] + e)
        errors.append(np.linalg.norm(model.coef_ - [1.0, 0.0, 0.0, 0.0]))
    assert np.median(errors) < 0.15


def test_targets_that_are_mostly_zero_are_not_fitted_by_zero():
    """96 % zeros: nothing is seen of the others at first. Over 60 seeds .45 to 1.12 of the mean; 54 times 0 before."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(30_000, 4))
        y = np.exp(0.3 * X[:, 0]) * rng.lognormal(size=len(X)) * (rng.random(len(X)) < 0.04)
        assert 0.2 < tg.PrivateRidge(0.5, random_state=seed).fit(X, y).predict(X).mean() / y.mean() < 1.6


def coded(seed, n=6000):
    """Children, or 98 and 99 where nobody said how many: the age of the parent depends on the first only."""
    rng = np.random.default_rng(seed)
    children, silent = rng.poisson(2.0, n).astype(float), rng.random(n) < 0.03
    y = 40.0 + np.where(silent, 0.0, 2.0 * (children - 2.0)) + rng.normal(0.0, 5.0, n)
    children[silent] = rng.choice([98.0, 99.0], silent.sum())
    return np.column_stack([children, 12.0 + rng.poisson(2.0, n), rng.normal(size=(n, 2))]), y


def test_codes_among_the_features_are_not_taken_for_sizes():
    """Over 60 seeds held-out R^2 is -.03 to .13, and was -22 to -38 where the line went on to 99 children."""
    found = []
    for seed in range(10):
        X, y = coded(seed)
        rows, truth = coded(seed + 10**6)
        prediction = tg.PrivateRidge(1.0, random_state=seed).fit(X, y).predict(rows)
        found.append(1.0 - np.mean((truth - prediction) ** 2) / np.var(truth))
    assert np.min(found) > -0.15
    assert np.median(found) > 0.0


def towns(seed, n=6000):
    """Prices that rise with the size of a town up to some size, and the more unevenly; a few towns are far larger."""
    rng = np.random.default_rng(seed)
    size, other = rng.lognormal(0.0, 1.5, n), rng.normal(size=n)
    y = (1.0 + np.minimum(size, 4.0) + 0.3 * other) * np.exp(0.5 * rng.normal(size=n))
    return np.column_stack([size, other]), y


def test_where_residuals_are_uneven_a_line_does_not_go_on_unless_that_is_seen_to_help():
    """Over 120 seeds the median of R^2 is .21 (least squares .13); it was -.4 where the line went on."""
    found = []
    for seed in range(15):
        X, y = towns(seed)
        prediction = tg.PrivateRidge(1.0, random_state=seed).fit(X, y).predict(X)
        found.append(1.0 - np.mean((y - prediction) ** 2) / np.var(y))
    assert np.median(found) > 0.1


@pytest.mark.parametrize(
    ("n", "steps", "gain", "times"),
    [
        (6000, "wide", -2.0, 1.0),  # in standard deviations: rows lose by the line
        (6000, "wide", 0.0, 2.0),  # nothing is seen
        (6000, "wide", 2.0, None),
        (60_000, "wide", -1.0, None),
        (60_000, "wide", -3.0, 1.0),
        (6000, "narrow", -2.0, 1.0),
        (6000, "narrow", 0.0, None),
        (2000, "narrow", 0.0, 8.0),
    ],
)
def test_how_far_out_a_line_is_believed(n, steps, gain, times):
    """By what rows gain there, and by how well that is known."""
    columns = Columns(*np.array([[0.0], [100.0], [0.0], [1.0]]), np.ones(1, bool), ends=np.array([4.0]))
    design = whitening.standardised(columns, True)
    line = design.line(np.ones(1))
    queries = Queries(InMemory(np.ones((n, 1)), np.ones(n), 1), Account(Budget(mu=0.24)), SeededNoise(0))
    queries.mean = lambda label, rows, width, bound, share: Noisy(np.array([gain]), 1.0)
    expected = columns if times is None else columns.near(times)
    found = extent.believed(queries, design, line, AS_IT_IS, 1.0, steps, 0.04).columns
    np.testing.assert_array_equal(found.upper, expected.upper)


def test_a_line_that_holds_far_out_goes_on_there():
    """Student's t with 3 degrees of freedom: cut at 4 standard deviations it would lose a tenth of its variance."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.standard_t(3, (30_000, 4))
        y = X @ [1.0, -0.5, 0.5, 0.0] + rng.normal(size=len(X))
        assert np.min(make("ridge", 1.0, random_state=seed).fit(X, y).upper_) > 50.0


def curved(rng, n):
    """No line holds for all rows: how many count, of those far out, decides which is the best."""
    X = rng.normal(size=(n, 3))
    return X, X @ [0.0, 1.0, -1.0] + 0.3 * X[:, 0] ** 3 + rng.normal(size=n)


def turning(rng, n):
    """Skewed to either side, half of the rows each: the bulk leans where the mean does not, and sizes are the same."""
    X = rng.normal(size=(n, 3))
    return X, X[:, 1] + np.sign(X[:, 0]) * (rng.lognormal(size=n) - np.exp(0.5))


@pytest.mark.parametrize(("rows", "epsilon"), [(curved, 10.0), (turning, 30.0)])
def test_with_a_large_budget_slopes_approach_those_of_least_squares(rows, epsilon):
    """Over 40 seeds errors are .013 and .016 of the norm at most; of fixed weights and clips .14 and .38 at least."""
    X, y = rows(np.random.default_rng(5), 30_000)
    best = LinearRegression().fit(X, y).coef_
    errors = [
        np.linalg.norm(make("ridge", epsilon, random_state=seed).fit(X, y).coef_ - best) / np.linalg.norm(best)
        for seed in range(3)
    ]
    assert np.max(errors) < 0.03


@pytest.mark.parametrize("name", ["ridge", "huber"])
def test_a_line_with_heavy_features_is_found_with_a_large_budget(name):
    """Over 20 seeds errors are .046 at most; with wide weights and narrow clips steps of the bulk are too short."""
    rng = np.random.default_rng(0)
    X, slopes = np.exp(1.5 * rng.normal(size=(30_000, 4))), np.array([1.0, -0.5, 0.5, 0.0])
    y = X @ slopes + rng.normal(size=len(X))
    for seed in range(3):
        assert np.max(np.abs(make(name, 30.0, random_state=seed).fit(X, y).coef_ - slopes)) < 0.1


def test_a_narrow_clip_is_wider_where_the_tail_is_light(monkeypatch):
    """Normal noise: .9 of the residuals are inside. Student's t with 2.2 degrees of freedom: .65."""
    levels = []
    monkeypatch.setattr(linear.LinearFit, "_narrow_slopes", lambda self, track: levels.append(self.narrow))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 3))
    for noise in (rng.normal(size=len(X)), rng.standard_t(2.2, len(X))):
        with pytest.raises(AttributeError):  # what `_narrow_slopes` measures is missing
            make("ridge", 3.0, random_state=0).fit(X, X[:, 0] + noise)
    assert levels[0] > 0.9
    assert levels[1] == linear.NARROW["mean"]
