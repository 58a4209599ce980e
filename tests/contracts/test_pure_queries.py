"""Pure noise: what a row can change, what is charged for it, and what leaves."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tailguard as tg
from tailguard import default
from tailguard.default import pure_level
from tailguard.default.columns import first_counts
from tailguard.engines.memory import InMemory
from tailguard.means import pure
from tailguard.means.pure import PureQueries
from tailguard.privacy import ApproximateDP, Budget, OverBudgetError, PureAccount, SeededNoise
from taped import assert_the_same

BUDGET = Budget(1.0, 1e-6)
AWKWARD = [0.0, -0.0, 1.0, -1.0, 5e-324, 1e-300, 1e308, -1e308, np.inf, -np.inf, np.nan, 1.5, 2.0**40]
numbers = st.one_of(st.sampled_from(AWKWARD), st.floats(allow_nan=True, allow_infinity=True))


class NoNoise:
    """Adds nothing, and writes down every scale and size it is asked for."""

    private, seed = False, 0

    def __init__(self):
        self.asked = []

    def at(self, step):
        return self

    def geometric(self, scale, size):
        self.asked.append((scale, size))
        return np.zeros(size, dtype=np.int64)


def queries(y, noise, budget=BUDGET):
    y = np.asarray(y, float)
    return PureQueries(InMemory(np.zeros((len(y), 1)), y, threads=1), PureAccount(budget), noise)


# The account.


def test_an_account_of_epsilon_cannot_be_overdrawn():
    account = PureAccount(BUDGET)
    assert account.spend(share=0.45) == pytest.approx(0.45, rel=1e-6)
    account.spend(share=0.55, label="rest")
    assert account.left == pytest.approx(0.0, abs=1e-12)
    assert BUDGET.allows(account.events)
    assert all(event.delta == 0.0 for event in account.events)
    with pytest.raises(OverBudgetError, match=r"share.*one more"):
        account.spend(share=1e-6, label="one more")
    assert len(account.events) == 2
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="twice"):
            copied(account)


@pytest.mark.parametrize("budget", [Budget(rho=0.1), Budget(mu=0.5)], ids=repr)
def test_pure_noise_needs_a_budget_in_epsilon(budget):
    with pytest.raises(ValueError, match="epsilon"):
        PureAccount(budget)
    assert not pure_level.is_pure(200, budget)


# What one row changes.


@settings(max_examples=80, deadline=None)
@given(st.lists(numbers, min_size=3, max_size=6), numbers, st.data())
def test_a_row_changes_a_mean_by_no_more_than_its_noise_covers(values, other, data):
    changed = list(values)
    changed[data.draw(st.integers(0, len(values) - 1))] = other
    found = []
    for y in (values, changed):
        noise = NoNoise()
        asked = queries(y, noise)
        value, sd = asked.mean("q", lambda X, y: y[:, None], 1.7, 0.5)
        (scale, size), epsilon = noise.asked[0], asked.account.events[0].epsilon
        assert size == 2
        step = sd / (math.sqrt(2.0) * scale)
        found.append((round(float(value[0]) / step), scale * epsilon))
    (a, allowed), (b, same) = found
    assert allowed == same
    assert abs(a - b) <= allowed * (1 + 1e-12)


@settings(max_examples=80, deadline=None)
@given(st.lists(numbers, min_size=3, max_size=8), numbers, st.data())
def test_a_row_changes_a_score_of_sizes_by_one(values, other, data):
    changed = list(values)
    changed[data.draw(st.integers(0, len(values) - 1))] = other
    rank = data.draw(st.integers(0, len(values)))
    scores = []
    for y in (values, changed):
        asked, counts = queries(y, NoNoise()), first_counts("target", np.arange(1))
        scores.append(pure_level.scores_of(asked.total(counts, counts.shape)[0], rank))
    assert np.max(np.abs(scores[0] - scores[1])) <= 1
    for found in scores:
        assert np.max(found) == 0  # some bin has the quantile in it


@pytest.mark.parametrize("t", [1, 3, 20])
def test_choices_of_neighbours_differ_by_the_factor_that_was_paid_for(monkeypatch, t):
    """Exact probabilities of the argmax of scores with geometric noise of scale t, ties to the first."""

    def law(scores):
        """Sum over what the winner reaches: others are below it, or level and later."""
        reach, top = np.arange(0, 60 * t + 40), np.asarray(scores)

        def below(j, value):  # P(score + Z < value)
            return -np.expm1(-np.maximum(value - top[j], 0) / t)

        found = []
        for i, score in enumerate(top):
            chance = -math.expm1(-1 / t) * np.exp(-reach / t)
            for j in range(len(top)):
                if j != i:
                    chance = chance * below(j, score + reach + (1 if j > i else 0))
            found.append(chance.sum())
        return np.array(found)

    scores = np.array([0, -2, 1, -5, 1])
    base = law(scores)
    assert base.sum() == pytest.approx(1.0)
    rng = np.random.default_rng(0)
    worst = max(np.max(np.abs(np.log(law(scores + rng.integers(-1, 2, 5)) / base))) for _ in range(200))
    assert worst <= 2 / t * (1 + 1e-9)
    assert worst > 1 / t  # the bound is not idle
    # The same law is what `choose` has, and its scale is that of its epsilon.
    monkeypatch.setattr(pure, "_STEPS", 1)
    asked = queries([0.0], SeededNoise(3), Budget(20000 * 2 / t * (1 + 1e-6), 1e-6))
    chosen = [asked.choose("q", scores, 1 / 20000, np.zeros(5)) for _ in range(4000)]
    shares = np.bincount(chosen, minlength=5) / 4000
    wrong = law(scores * 3)
    assert np.all(np.abs(shares - base) < 6 * np.sqrt(base * (1 - base) / 4000) + 1e-9)
    assert np.any(np.abs(shares - wrong) > 6 * np.sqrt(wrong * (1 - wrong) / 4000) + 1e-9)


# What is released, and nothing else.


def pure_events(report):
    return [event for event in report.events if isinstance(event, ApproximateDP)]


@pytest.mark.parametrize("columns", [1, 2])
def test_few_rows_spend_epsilon_and_no_delta(columns):
    rng = np.random.default_rng(0)
    report = tg.private_mean(rng.normal(size=(250, columns)), epsilon=1.0, random_state=0).privacy
    assert len(pure_events(report)) == len(report.events) == 2 * columns
    assert 0.999 < report.epsilon <= 1.0
    assert "45.0 %" in str(report)
    assert "55.0 %" in str(report)
    assert sum(event.epsilon for event in report.events) <= 1.0


@pytest.mark.parametrize("x", [np.zeros(200), np.full(200, np.nan), np.full(200, np.inf), np.full(200, 1e308)])
def test_which_way_is_taken_is_public(x):
    found = tg.private_mean(x, epsilon=1.0, random_state=0)
    assert pure_events(found.privacy)
    assert np.isfinite(found.value)


@pytest.mark.parametrize("estimator", [tg.PrivateRidge, tg.PrivateHuberRegressor, tg.PrivatePoissonRegressor])
def test_a_level_of_few_rows_is_a_function_of_what_was_released(monkeypatch, estimator):
    """The two answers of one table, given to a fit of another, give the same model and report."""
    tape, live = [], True

    class Taped(PureQueries):
        def choose(self, *arguments):
            return keep(super().choose(*arguments))

        def mean(self, *arguments):
            return keep(super().mean(*arguments))

    def keep(released):
        if live:
            tape.append(released)
            return released
        return tape.pop(0)

    monkeypatch.setattr(default, "PureQueries", Taped)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8))
    model = estimator(1.0, random_state=0).fit(X, np.exp(rng.normal(size=200)))
    assert len(tape) == 2
    live = False
    twin = estimator(1.0, random_state=0).fit(np.full_like(X, np.nan), np.full(200, 1e308))
    assert not tape
    assert_the_same(twin, model)
    assert not np.any(model.coef_)


# What it is good for.


@pytest.mark.parametrize(
    ("n", "budget", "labels"),
    [
        (250, 1.0, {"size", "level"}),
        (250, Budget(mu=0.3), {"clip", "tail", "level"}),
        (1000, 1.0, {"correlations", "steps"}),
        (5000, 5.0, {"curvature", "steps"}),
    ],
    ids=["few rows", "level", "small", "Newton"],
)
def test_negative_counts_are_zeros_on_every_path(n, budget, labels):
    """Half of the counts are -50 and half 50: their mean is 25, and would be 0."""
    means = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(n, 8 if n == 250 else 3)), rng.permuted(np.resize([-50.0, 50.0], n))
        model = tg.PrivatePoissonRegressor(budget, random_state=seed).fit(X, y)
        assert {event.label for event in model.privacy_.events} >= labels
        means.append(model.predict(X).mean())
    assert 15.0 < np.median(means) < 35.0


@pytest.mark.parametrize("power", [-250, -60, 0, 9, 60, 250])
def test_the_mean_of_few_rows_is_found_at_any_scale(power):
    """250 log-normal values at epsilon = 1: the error has a median of .1 to .2 sd, and above .5 in one of 100 runs."""
    errors = []
    for seed in range(15):
        x = np.random.default_rng(seed).lognormal(0.0, 1.0, 250) * 10.0**power
        found = tg.private_mean(x, epsilon=1.0, random_state=seed).value
        errors.append(abs(found / 10.0**power - math.exp(0.5)) / math.sqrt(math.e * (math.e - 1.0)))
    assert np.median(errors) < (0.5 if abs(power) < 24 else 1.0)  # far from 1 sizes are known to twenty octaves only


def test_nothing_explodes():
    """Sizes that no row has: one fit in 100,000, for each of these."""
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(100, 300))
        x = rng.lognormal(0.0, 2.0, n) * (rng.random(n) < rng.random()) * 10.0 ** rng.uniform(-9, 9)
        found = tg.private_mean(x, epsilon=1.0, random_state=seed).value
        assert abs(found) <= 8.0 * np.max(np.abs(x))
