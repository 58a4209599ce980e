"""Every query of `Queries`, and every query that the default makes of it: its sensitivity holds and its noise is paid.

A stand-in noise source adds nothing and writes down the scale it was asked for, so that sums are seen exactly, in
integer units. Contract: replacing one row by any other changes the sum by at most ``scale * mu`` in L2 norm, with mu
what the account was charged.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import AWKWARD
from scipy.stats import chi2

import tailguard as tg
from tailguard import default, losses
from tailguard.default import DefaultOptions, fit_default, linear, locating, poisson
from tailguard.default.columns import Columns, Looks, locate
from tailguard.default.quantiles import GRID, quantile
from tailguard.default.rows import ColumnCounts, bounded_score, exponent, first_look, later_look, near_look
from tailguard.default.whitening import Design
from tailguard.engines.memory import InMemory
from tailguard.mean import MeanTable
from tailguard.means.queries import Queries
from tailguard.privacy import Account, Budget, OverBudgetError, SeededNoise, SystemNoise

ROUNDING = 1.0 + 1e-12
numbers = st.one_of(st.sampled_from(AWKWARD), st.floats(-4.0, 4.0), st.floats(allow_nan=True, allow_infinity=True))


def rows(count: int, width: int):
    return st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=count, max_size=count).map(np.array)


class NoNoise:
    """Adds nothing, and writes down every scale it is asked for."""

    private, seed = False, 0

    def __init__(self) -> None:
        self.scales: list[float] = []

    def at(self, step: int) -> NoNoise:
        return self

    def discrete_gaussian(self, scale: float, size: int) -> np.ndarray:
        self.scales.append(scale)
        return np.zeros(size, dtype=np.int64)


def asked(X: np.ndarray, query: str, width: int, mu: float = 0.7) -> tuple[np.ndarray, float]:
    """The exact sum of one query over rows, in integer units, and the change that its noise allows for."""
    noise = NoNoise()
    queries = Queries(InMemory(X, np.zeros(len(X)), threads=1), Account(Budget(mu=mu)), noise)
    if query == "mean":
        value, sd = queries.mean("q", lambda X, y: X, width, 1.7, 0.5)
    elif query == "gram":
        value, sd = queries.gram("q", lambda X, y: X, width, 1.7, 0.5)
        assert noise.scales[0] == pytest.approx(
            noise.scales[-1] / math.sqrt(2.0)
        )  # a pair of entries, then the diagonal
    elif query == "counts":
        shape = first_look(X).shape
        value, sd = queries.counts("q", lambda X, y: first_look(X), shape, math.sqrt(2.0 * width), 0.5)
    else:
        total = queries.engine.integer_sum(lambda X, y: (X[:, :1] <= 1.0).sum(axis=0), (1,))
        value, sd = queries.noisy_counts("q", total, 1.0, 0.5)
    units = value / (sd / noise.scales[-1])
    assert np.all(np.abs(units - np.rint(units)) < 1e-3)
    return np.rint(units), noise.scales[-1] * queries.account.events[0].mu


QUERIES = ("mean", "gram", "counts", "noisy_counts")


@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=60)
@given(data=st.data())
def test_replacing_a_row_changes_a_query_by_no_more_than_its_noise_covers(query, data):
    width = data.draw(st.integers(1, 4))
    X = data.draw(rows(3, width))
    other = X.copy()
    other[data.draw(st.integers(0, 2))] = data.draw(rows(1, width))[0]
    (a, allowed), (b, same) = asked(X, query, width), asked(other, query, width)
    assert allowed == same  # what is asked of the noise does not depend on the data
    assert np.linalg.norm(a - b) <= allowed * ROUNDING


@pytest.mark.parametrize(
    ("query", "a", "b"),
    [("mean", [9.0, 0.0], [-9.0, 0.0]), ("gram", [9.0, 0.0], [0.0, -9.0]), ("counts", [4.0, 0.0], [1.0, 1.0])],
)
def test_the_bound_is_reached(query, a, b):
    """Power: with 1 % less noise than declared the contract would fail."""
    (first, allowed), (second, _) = (asked(np.array([row, [0.0, 0.0]]), query, 2) for row in (a, b))
    assert np.linalg.norm(first - second) > 0.99 * allowed


@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=40)
@given(data=st.data())
def test_a_query_adds_up_over_any_split_and_any_order_of_the_rows(query, data):
    """To the last unit: it is a sum of integers, in float32 as in float64."""
    width = data.draw(st.integers(1, 4))
    with np.errstate(all="ignore"):
        X = data.draw(rows(7, width)).astype(data.draw(st.sampled_from([np.float32, np.float64])))
    whole, _ = asked(X, query, width)
    order = data.draw(st.permutations(range(7)))
    np.testing.assert_array_equal(asked(X[order], query, width)[0], whole)
    cut = data.draw(st.integers(1, 6))
    parts = [asked(part, query, width)[0] for part in (X[order][:cut], X[order][cut:])]
    np.testing.assert_array_equal(parts[0] + parts[1], whole)


def accepted(noise: np.ndarray, sd: float) -> bool:
    """Chi-square test of the variance, two-sided: the right sd fails with probability 1e-9."""
    statistic = float(np.sum((noise / sd) ** 2))
    return chi2.ppf(5e-10, noise.size) < statistic < chi2.isf(5e-10, noise.size)


@pytest.mark.parametrize("source", [SystemNoise(), SeededNoise(3)], ids=["system", "seeded"])
@pytest.mark.parametrize("query", ["mean", "counts", "gram"])
def test_noise_has_the_declared_size(query, source):
    """And not 2/3 or 3/2 of it; also what was charged buys exactly this noise."""
    n, mu, share, sensitivity = 5, 0.8, 0.25, 2.0
    queries = Queries(InMemory(np.zeros((n, 1)), np.zeros(n)), Account(Budget(mu=mu)), source)
    if query == "mean":
        value, sd = queries.mean("q", lambda X, y: np.zeros((len(X), 2000)), 2000, 1.0, share)
        samples = [value]
    elif query == "counts":
        value, sd = queries.counts("q", lambda X, y: np.zeros(2000, np.int64), (2000,), sensitivity, share)
        samples = [value]
    else:
        value, sd = queries.gram("q", lambda X, y: np.zeros((len(X), 64)), 64, math.sqrt(math.sqrt(2.0)), share)
        np.testing.assert_array_equal(value, value.T)
        # 64 diagonal entries are few, so both halves of the matrix are tested apart, off the diagonal sqrt(2) up.
        samples = [value[np.triu_indices(64, 1)] * math.sqrt(2.0), np.diag(value)]
    assert sd == pytest.approx(sensitivity / (mu * math.sqrt(share) * n), rel=1e-4)
    assert sd == pytest.approx(queries.sd(sensitivity, share), rel=1e-4)
    for noise in samples:
        assert accepted(noise, sd)
    for wrong in (2.0 / 3.0, 1.5):
        assert not accepted(samples[0], wrong * sd)


@pytest.mark.parametrize(("n", "columns", "mu"), [(2_000_000_000, 50, 20.0), (2**36, 20, 2.0), (10**6, 300, 1000.0)])
def test_counts_of_pooled_columns_never_wrap_around(n, columns, mu):
    """A row adds one for each of the columns to a pooled count: steps are only so fine that all rows fit 64 bits."""

    class Many:
        threads = 1

    engine = Many()
    engine.n = n
    queries = Queries(engine, Account(Budget(mu=mu)), NoNoise())
    value, _ = queries.noisy_counts("q", np.array([n * columns, 0]), math.sqrt(2.0) * columns, 1.0)
    assert np.array_equal(value, [columns, 0.0])


def test_single_draws_come_from_the_source_of_their_step():
    """Draws made ahead are for the system's own source, which has no steps: another one is asked step by step."""
    steps = []

    class Stepwise(SystemNoise):
        def at(self, step):
            steps.append(step)
            return NoNoise()

    queries = Queries(InMemory(np.zeros((4, 1)), np.zeros(4)), Account(Budget(mu=1.0)), Stepwise())
    values = [queries.noisy_counts("q", np.array([3]), 1.0, 0.1).value for _ in range(3)]
    assert steps == [1, 2, 3]
    assert np.array_equal(values, np.full((3, 1), 0.75))


def test_overdraft_is_refused_before_anything_is_drawn():
    noise = NoNoise()
    queries = Queries(InMemory(np.zeros((4, 1)), np.zeros(4)), Account(Budget(mu=1.0), max_samples=10), noise)
    queries.mean("first", lambda X, y: X, 1, 1.0, 0.6)
    with pytest.raises(OverBudgetError, match="'second'"):
        queries.mean("second", lambda X, y: X, 1, 1.0, 0.6)
    with pytest.raises(OverBudgetError, match="samples"):
        queries.counts("many", lambda X, y: np.zeros(100, np.int64), (100,), 1.0, 0.1)
    with pytest.raises(OverBudgetError):
        queries.gram("third", lambda X, y: X, 1, 1.0, 0.41)
    with pytest.raises(OverBudgetError):
        queries.noisy_counts("fourth", 1, 1.0, 0.41)
    assert len(noise.scales) == 1
    assert queries.account.left == pytest.approx(0.4)


# The row functions of the default, one by one.


@settings(max_examples=60)
@given(X=rows(1, 3), top=st.integers(-990, 990))
def test_a_row_adds_one_count_to_each_histogram(X, top):
    with np.errstate(over="ignore"):
        looks = first_look(X), later_look(X, np.full(3, float(top))), near_look(X, np.full(3, 2.0**top))
    for counts in looks:
        assert counts.dtype.kind == "i"
        assert counts.min() >= 0
        np.testing.assert_array_equal(counts.sum(axis=1), 1)


def test_histograms_put_values_where_they_belong():
    a = np.array([1.0, 1.0 + 1e-15, 2.0, 0.5, 0.75, 5e-324, np.inf])
    k = exponent(a)
    assert list(k) == [0, 1, 1, -1, 0, -1073, 1024]
    finite = a[:5]
    assert np.all((2.0 ** (k[:5] - 1) < finite) & (finite <= 2.0 ** k[:5]))
    # Zero and missing values, and what lies outside the bins of a later look, are in bin 0.
    assert first_look(np.array([[0.0], [np.nan], [-0.0]]))[0, 0] == 3
    assert later_look(np.array([[np.nan], [0.0], [8.0], [2.0**-60]]), np.array([1.0]))[0, 0] == 4
    # Near a centre a bin has its lower end; half of the bins are on either side.
    assert near_look(np.array([[np.nan], [np.inf], [-64.1], [64.0]]), np.array([1.0]))[0, 0] == 4
    near = near_look(np.array([[-64.0], [-0.5], [0.0], [0.9], [63.9]]), np.array([1.0]))[0]
    assert {k: int(near[k]) for k in np.flatnonzero(near)} == {1: 1, 64: 1, 65: 2, 128: 1}


class Recording(Queries):
    """Queries that remember the totals that were released as counts."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.totals: list = []

    def noisy_counts(self, label, total, sensitivity, share):
        self.totals.append((total, sensitivity, share))
        return super().noisy_counts(label, total, sensitivity, share)


@settings(max_examples=60)
@given(
    y=rows(6, 1),
    other=numbers,
    level=st.floats(0.05, 0.95),
    more=st.sampled_from([(0.0, 0.0), (1.0, 0.0), (-1.5, 0.2)]),
)
def test_a_row_changes_each_count_of_a_quantile_by_at_most_one(y, other, level, more):
    found = []
    for column in (y[:, 0], np.append(y[:-1, 0], other)):
        queries = Recording(InMemory(np.zeros((6, 1)), column), Account(Budget(mu=1.0)), NoNoise())
        quantile(queries, "clip", lambda X, y: y, level, GRID, 0.5, *more)
        found.append(queries)
    (first, second) = (queries.totals for queries in found)
    assert abs(int(first[0][0]) - int(second[0][0])) <= 1  # later counts are of other grid points
    assert all(sensitivity == 1.0 for _, sensitivity, _ in first + second)
    # The bisection stays inside its share on every path.
    assert all(1.0 - queries.account.left <= (0.5 + more[1]) * ROUNDING for queries in found)


@settings(max_examples=80)
@given(
    X=rows(2, 3), radius=st.floats(0.5, 5.0), cap=st.floats(2.0, 6.0), intercept=st.booleans(), seed=st.integers(0, 9)
)
def test_weighted_design_vectors_are_bounded(X, radius, cap, intercept, seed):
    rng = np.random.default_rng(seed)
    scale = 2.0 ** rng.integers(-900, 900, 3)
    columns = Columns(scale * rng.normal(size=3), 4.0 * scale, scale * rng.normal(size=3), scale, np.ones(3, bool))
    z = columns.standardise(X)
    assert np.all(np.abs(z) <= (columns.reach + np.abs(columns.centre) + np.abs(columns.mean)) / scale * ROUNDING)
    np.testing.assert_array_equal(z[np.isnan(X)], 0.0)
    design = Design(columns, rng.normal(size=3), rng.normal(size=(3, 3)), np.eye(3), intercept, radius, cap)
    a = design.vectors(X)
    w = design.weights(a)
    assert np.all(a[:, 0] == float(intercept))
    assert np.all((w > 0) & (w <= 1.0))
    size = np.linalg.norm(a, axis=1)
    assert np.all(w * size <= radius * ROUNDING)
    assert np.all(w * size**2 <= cap * radius**2 * ROUNDING)


@settings(max_examples=100)
@given(z=numbers.filter(lambda z: not math.isnan(z)), y=st.sampled_from([-1.0, 1.0, np.nan]))
def test_the_logistic_score_is_bounded_and_consistent(z, y):
    s = float(bounded_score(np.array([z]), np.array([y]))[0])
    assert -1.0 <= s <= 1.0
    if math.isnan(y):
        assert s == 0.0
    elif abs(z) < 30.0:
        p = 1.0 / (1.0 + math.exp(-z))
        assert s == pytest.approx((p - (y > 0)) / max(p, 1.0 - p), abs=1e-12)


# Every query that the default makes, on data and on a neighbour of it.


class Twin:
    """Data and its neighbour; `Checked` takes every sum of both, and compares them."""

    shares_passes = True

    def __init__(self, X, y=None, threads=None, **_):
        self.mine = InMemory(X, y, threads)
        X, y = np.array(X), None if y is None else np.array(y)
        extreme, target = Twin.row
        # In `private_mean` the column is handed over both as X and as y.
        X[0], last = extreme, X.shape[1] == 1 and y is not None and np.array_equal(X[:, 0], y, equal_nan=True)
        if y is not None:
            y[0] = extreme if last else target
        self.other = InMemory(X, y, threads)
        self.X, self.y, self.n, self.columns, self.threads = self.mine.X, self.mine.y, len(X), X.shape[1], threads

    def column(self, j):
        column = np.array(self.X[:, j])
        return Twin(column[:, None], column, self.threads)


class Checked(Queries):
    """Compares both sums of every query with what its noise covers, and rows with their declared bound."""

    seen: ClassVar[set[str]] = set()

    def __init__(self, engine, account, noise):
        super().__init__(engine, account, noise)
        # Passes are shared in one, and taken one by one in the other: both must keep the sensitivity.
        held = (InMemory(e.X, e.y, e.threads) if Twin.shares_passes else Alone(e) for e in (engine.mine, engine.other))
        self.both = [Queries(each, account, noise) for each in held]

    def together(self, *sums):
        for each in self.both:
            each.together(*sums)

    def total(self, function, shape):
        self.pair = [each.total(function, shape) for each in self.both]
        return self.pair[0]

    def vector_sum(self, function, width, grid):
        (mine, roundings), (other, same) = (each.vector_sum(function, width, grid) for each in self.both)
        assert roundings == same
        self.pair = mine, other
        return mine, roundings

    def mean(self, label, function, width, bound, share):
        released = super().mean(label, function, width, bound, share)
        for engine in (self.engine.mine, self.engine.other):
            size = np.linalg.norm(function(engine.X, engine.y), axis=1)
            assert np.all(size <= bound * (1.0 + 1e-9)), f"{label}: rows are clipped by the query, not by design"
        self.check(label)
        return released

    def gram(self, label, function, width, bound, share):
        released = super().gram(label, function, width, bound, share)
        for engine in (self.engine.mine, self.engine.other):
            assert np.all(np.linalg.norm(function(engine.X, engine.y), axis=1) <= bound * (1.0 + 1e-9)), label
        self.check(label)
        return released

    def check(self, label):
        """Integer sums of both tables: within what the last scale drawn, times the mu charged, covers."""
        a, b = self.pair
        assert np.linalg.norm((a - b).astype(float)) <= self.scale * self.account.events[-1].mu * ROUNDING, label
        Checked.seen.add(label)

    def noisy_counts(self, label, total, sensitivity, share):
        released = super().noisy_counts(label, total, sensitivity, share)
        a, b = self.pair
        if np.ndim(total) == 0:  # one entry of a cumulative histogram
            assert np.max(np.abs(np.cumsum(a - b))) <= sensitivity, label
            assert total in np.cumsum(a)
        else:
            assert np.linalg.norm(a - b) <= sensitivity * ROUNDING, label
        assert released.sd * self.n * self.account.events[-1].mu >= sensitivity / ROUNDING
        Checked.seen.add(label)
        return released

    def _draw(self, scale, size):
        self.scale = scale
        return super()._draw(scale, size)


class Alone:
    """An engine that says nothing about shared passes: every query takes its own."""

    def __init__(self, engine):
        self.n, self.columns, self.threads = engine.n, engine.columns, engine.threads
        self.truncated_sum, self.integer_sum = engine.truncated_sum, engine.integer_sum


def table(kind: str, n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = {
        "normal": lambda: rng.normal(size=(n, d)),
        "shifted": lambda: 1000.0 + rng.normal(size=(n, d)),
        "lognormal": lambda: 1e6 * np.exp(2.0 * rng.normal(size=(n, d))),
        "binary": lambda: (rng.random((n, d)) < 0.1).astype(float),
        "awkward": lambda: rng.choice(np.array(AWKWARD), size=(n, d)),
    }[kind]()
    return X, np.nan_to_num(X[:, 0], nan=0.0, posinf=1.0, neginf=0.0) + rng.standard_t(2.5, n)


FITS = {
    "mean": (losses.Squared(), lambda y: y),
    "bulk": (losses.Huber(), lambda y: y),
    "logistic": (losses.Logistic(), lambda y: np.where(y > np.median(y), 1.0, -1.0)),
    "multinomial": (losses.Multinomial(3), lambda y: np.digitize(y, np.quantile(y, [0.3, 0.6])).astype(float)),
    "Poisson": (losses.Poisson(), lambda y: np.abs(y)),
}
EXTREME = [(0.0, 0.0), (np.nan, np.nan), (np.inf, np.inf), (-1e308, -1e308), (1e-310, 1e-310), (1e5, 1e5)]
# For counts also targets that are not as their features are.
COUNTS = [*EXTREME, (np.nan, 1e308), (1e308, -1.0), (0.0, np.inf), (-np.inf, 5e-324)]
ROWS = dict.fromkeys(FITS, EXTREME) | {"Poisson": COUNTS}
NAMES = {
    "mean": {
        "steps",
        "clip",
        "correlations",
        "curvature",
        "column scales",
        "column means",
        "column spread",
        "uneven",
        "widening",
        "variances",
        "beyond",
        "level",
        "tail",
    },
    "logistic": {"prevalence", "steps", "correlations", "instrument", "level"},
    "multinomial": {"prevalence", "steps", "correlations"},
    "Poisson": {"correlations", "curvature", "clip", "steps", "tail", "tilt", "level"},
}


@pytest.fixture(params=[True, False], ids=["shared passes", "a pass each"])
def checked(monkeypatch, request):
    monkeypatch.setattr(Twin, "shares_passes", request.param)
    monkeypatch.setattr(default, "engine_for", Twin)
    monkeypatch.setattr("tailguard.mean.engine_for", Twin)
    monkeypatch.setattr(default, "Queries", Checked)
    Checked.seen = set()


@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
@pytest.mark.parametrize("name", FITS)
def test_every_query_of_a_fit_keeps_its_sensitivity(checked, name, intercept):
    loss, target = FITS[name]
    for k, Twin.row in enumerate(ROWS[name]):
        for kind in ("normal", "shifted", "lognormal", "binary", "awkward"):
            X, y = table(kind, 120, 3, k)
            options = DefaultOptions(60.0, 1e-6, fit_intercept=intercept, random_state=k, threads=1)
            fit_default(loss, X, target(y), options)
    if intercept:
        assert NAMES.get(name, set()) <= Checked.seen


@pytest.mark.parametrize(
    "constants", [{"SURELY": -1.0}, {"CLEARLY": -np.inf, "MATERIAL": 0.0}], ids=["along it", "in a direction"]
)
@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
def test_every_query_of_a_fit_whose_line_is_tilted_keeps_its_sensitivity(checked, monkeypatch, intercept, constants):
    for constant, value in constants.items():
        monkeypatch.setattr(linear, constant, value)
    for k, Twin.row in enumerate(EXTREME):
        for kind in ("normal", "lognormal", "binary", "awkward"):
            X, y = table(kind, 120, 3, k)
            options = DefaultOptions(60.0, 1e-6, fit_intercept=intercept, random_state=k, threads=1)
            fit_default(losses.Squared(), X, y, options)
    assert {"uneven", "clip", "steps", "variances", "instrument", "tilt"} <= Checked.seen


@pytest.mark.parametrize("differ", [True, False])
@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
def test_every_query_of_a_fit_that_compares_slopes_keeps_its_sensitivity(checked, monkeypatch, intercept, differ):
    monkeypatch.setattr(linear, "COMPARED", np.inf)
    for constant in ("DIFFERENT", "OUTWEIGHED"):
        monkeypatch.setattr(linear, constant, -np.inf if differ else np.inf)
    for k, Twin.row in enumerate(EXTREME):
        for kind in ("normal", "lognormal", "binary", "awkward"):
            X, y = table(kind, 120, 3, k)
            options = DefaultOptions(60.0, 1e-6, fit_intercept=intercept, random_state=k, threads=1)
            fit_default(losses.Squared(), X, y, options)
    assert {"difference", "variances", "steps"} <= Checked.seen
    assert ("widening" in Checked.seen) != differ


@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
@pytest.mark.parametrize(("name", "places"), [("mean", (0.0, 1e6)), ("Poisson", (0.0,))], ids=["mean", "Poisson"])
def test_every_query_of_a_small_fit_keeps_its_sensitivity(checked, name, places, intercept):
    """n mu of about 190: columns of which nothing is known, and targets far from 0, which are looked at closer."""
    loss, target = FITS[name]
    for k, Twin.row in enumerate(ROWS[name]):
        for kind in ("normal", "shifted", "lognormal", "binary", "awkward"):
            X, y = table(kind, 120, 3, k)
            options = DefaultOptions(10.0, 1e-6, fit_intercept=intercept, random_state=k, threads=1)
            for place in places:
                fit_default(loss, X, place + target(y), options)
    level = {"tail", "level"} if intercept else set()
    assert {"column scales", "column means", "correlations", "clip", "steps"} | level <= Checked.seen
    assert "curvature" not in Checked.seen


def test_every_query_of_a_level_of_counts_keeps_its_sensitivity(checked):
    """n mu of 72: there are no slopes; and a budget in mu does not pay for pure noise."""
    for k, Twin.row in enumerate(COUNTS):
        for kind in ("normal", "lognormal", "awkward"):
            X, y = table(kind, 60, 3, k)
            for target in (np.abs(y), np.round(np.abs(y)), 1e6 + np.abs(y)):
                fit_default(losses.Poisson(), X, target, DefaultOptions(Budget(mu=1.2), random_state=k, threads=1))
    assert Checked.seen == {"column scales", "column means", "missing", "clip", "tail", "level"}


def test_every_query_of_counts_with_nearly_equal_columns_keeps_its_sensitivity(checked, monkeypatch):
    """Steps are then of a design that was sharpened, and their table is made anew."""
    found, plain = [], poisson.sharpened

    def sharpened(queries, design):
        sharper, bent = plain(queries, design)
        found.append(sharper is not design)
        return sharper, bent

    monkeypatch.setattr(poisson, "sharpened", sharpened)
    for k, Twin.row in enumerate(COUNTS):
        for kind in ("normal", "shifted", "lognormal"):
            X, y = table(kind, 120, 3, k)
            fit_default(
                losses.Poisson(),
                X[:, :1] + 0.05 * X,
                np.abs(y),
                DefaultOptions(60.0, 1e-6, random_state=k, threads=1),
            )
    assert np.mean(found) > 0.5
    assert {"correlations", "curvature", "clip", "steps", "level"} <= Checked.seen


@pytest.mark.parametrize("spent", [0.0, 0.3, 0.39, 0.6])
def test_a_closer_look_at_the_target_leaves_what_the_fit_needs(spent):
    """Nothing is seen of zeros, so that both looks take all they may."""
    queries = Queries(InMemory(np.zeros((500, 1)), np.zeros(500)), Account(Budget(mu=0.5)), SeededNoise(0))
    if spent:
        queries.account.spend(share=spent, label="features", samples=1)
    locating.locate_target(queries, Looks(0.05, 0.02))
    assert queries.account.left >= min(locating.SPARED, 1.0 - spent - 0.07)


def test_a_target_that_is_seen_late_and_far_away_does_not_end_the_budget():
    """Known features, n mu of 62, targets of 2^75: when all shares of stage A were spent, none was left for steps."""
    for seed in (1516, 5030, 6859):
        rng = np.random.default_rng(seed)
        y = np.where(rng.random(62) < 0.7, 2.0 ** (75.0 - 3.5 * rng.random(62)), 0.0)
        X = 1000.0 + rng.normal(size=(62, 1))
        tg.PrivateRidge(Budget(mu=1.0), hints=tg.Hints(exchangeable=True), random_state=seed).fit(X, y)


@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
@pytest.mark.parametrize("name", ["mean", "bulk", "logistic", "Poisson"])
def test_every_query_of_a_fit_with_intervals_keeps_its_sensitivity(checked, name, intercept):
    loss, target = FITS[name]
    for k, Twin.row in enumerate(EXTREME):
        for kind in ("normal", "binary", "awkward"):
            X, y = table(kind, 120, 3, k)
            options = DefaultOptions(60.0, 1e-6, fit_intercept=intercept, random_state=k, threads=1, inference=True)
            fit_default(loss, X, target(y), options)
    skewed = {"skew"} if name in ("mean", "Poisson") else set()
    level = {"level skew", "level"} if intercept and name in ("mean", "bulk") else set()
    assert {"jacobian", "scores", "score variance"} | skewed | level <= Checked.seen


def test_every_query_of_a_mean_with_intervals_keeps_its_sensitivity(checked):
    for k, Twin.row in enumerate(EXTREME):
        for kind in ("normal", "shifted", "awkward"):
            X, _ = table(kind, 100, 2, k)
            default.default_mean(MeanTable.of(X, 5.0, 1e-6, False, 1), SeededNoise(k), inference=True)
    assert {"tail", "level skew", "level"} <= Checked.seen


def test_every_query_of_a_mean_keeps_its_sensitivity(checked):
    for k, Twin.row in enumerate(EXTREME):
        for kind in ("normal", "shifted", "awkward"):
            X, _ = table(kind, 100, 2, k)
            default.default_mean(MeanTable.of(X, Budget(mu=3.0), None, False, 1), SeededNoise(k))
    assert {"column scales", "column means", "clip", "tail", "level"} <= Checked.seen


@pytest.mark.parametrize("wrong", ["histogram", "noise", "bound"])
def test_the_check_of_all_queries_can_fail(checked, monkeypatch, wrong):
    """Power: two counts a row, two thirds of the noise, or rows longer than declared are noticed."""
    if wrong == "histogram":
        plain_counts = ColumnCounts.__call__
        monkeypatch.setattr(ColumnCounts, "__call__", lambda self, X, y: 2 * plain_counts(self, X, y))
    elif wrong == "noise":
        plain = Checked._draw
        monkeypatch.setattr(Checked, "_draw", lambda self, scale, size: plain(self, 2.0 / 3.0 * scale, size))
    else:
        plain_weights = Design.weights
        monkeypatch.setattr(Design, "weights", lambda self, a: 1.5 * plain_weights(self, a))
    with pytest.raises(AssertionError):  # noqa: PT012
        for k, Twin.row in enumerate(EXTREME):
            X, y = table("normal", 120, 3, k)
            fit_default(losses.Squared(), X, y, DefaultOptions(20.0, 1e-6, random_state=k, threads=1))


def test_looks_stay_inside_their_shares():
    """Whatever is seen: nothing, everything, columns far away that are looked at again."""
    for kind in ("normal", "shifted", "binary", "awkward", "lognormal"):
        for noise in (NoNoise(), SeededNoise(1)):
            X, y = table(kind, 200, 4, 0)
            queries = Queries(InMemory(X, y), Account(Budget(mu=3.0)), noise)
            with np.errstate(all="ignore"):
                locate(queries, "features", 4, Looks(0.3, 0.2))
            assert 1.0 - queries.account.left <= 0.5 * ROUNDING


def test_a_seeded_run_asks_the_same_whatever_one_row_says():
    """First query of a fit: same sensitivity and share on neighbours, before anything was released."""
    X, y = table("normal", 300, 2, 0)
    other = X.copy()
    other[0] = 1e300
    first = [tg.PrivateRidge(random_state=0).fit(Z, y).privacy_.events[0] for Z in (X, other)]
    assert first[0] == first[1]
