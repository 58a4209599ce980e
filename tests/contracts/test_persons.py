"""The contract of persons: whoever is replaced, with however many rows of whatever values, no sum moves by more.

What is proved of a row must hold of a person with all their rows: every kind of sum that an engine is asked for, and
every query of every fit, on tables that differ in a whole person. The person who is replaced is the first of the
table, so that the others keep their numbers and with them the rows that were drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from parts import AWKWARD, SOURCES, TRUNCATIONS, intercept_allowed, outputs_of, squared_norm, truncation_at, vectors_of
from scipy.stats import chi2

from tailguard import default, losses
from tailguard.default import DefaultOptions, fit_default
from tailguard.engines.grouped import Grouped, grouped, numbered
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import RowValues
from tailguard.linear_model import PrivateRidge
from tailguard.mean import MeanTable
from tailguard.means.queries import Queries
from tailguard.model_selection import measures, search
from tailguard.privacy import Budget, SeededNoise, SystemNoise
from tailguard.truncation import Grid, L2Clip

N, D = 40, 3
ROUNDING = 1.0 + 1e-9


@dataclass(frozen=True)
class Rows:
    """A table: rows, targets and whose they are."""

    X: np.ndarray
    y: np.ndarray
    person: np.ndarray

    def engine(self, seed: int = 0, threads: int = 1) -> Grouped:
        return grouped(InMemory(self.X, self.y, threads), self.person, SeededNoise(seed))


def others(seed: int = 0, n: int = N) -> Rows:
    """Persons 1, 2, ... with one to six rows each, heavy-tailed and awkward, in any order."""
    rng = np.random.default_rng([seed, 1])
    person = rng.permutation(np.repeat(np.arange(1, n), rng.integers(1, 7, n - 1)))
    X, y = rng.standard_t(1.5, (len(person), D)), rng.standard_t(1.5, len(person))
    wild = rng.random(X.shape) < 0.1
    X[wild] = rng.choice(np.array(AWKWARD), wild.sum())
    return Rows(X, y, person)


def joined_by(rest: Rows, X: np.ndarray, y: np.ndarray) -> Rows:
    """Person 0 with these rows: one at the top, the others anywhere among the rest."""
    at = np.random.default_rng([len(X), 2]).integers(0, len(rest.y) + 1, len(X))
    at[0] = 0
    return Rows(np.insert(rest.X, at, X, axis=0), np.insert(rest.y, at, y), np.insert(rest.person, at, 0))


def hostile() -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows and targets of somebody: one row, fifty of the same, and fifty of everything."""
    found = []
    for size in (1, 2, 50):
        for value in (0.0, 1.0, -1e9, 1e308, np.inf, -np.inf, np.nan):
            found.append((np.full((size, D), value), np.full(size, value)))
    rng = np.random.default_rng(3)
    for size in (3, 50):
        found.append((rng.choice(np.array(AWKWARD), (size, D)), rng.choice(np.array(AWKWARD), size)))
    found.append((np.full((50, D), 1e9), np.full(50, -1e9)))
    return found


@pytest.mark.parametrize("truncation", TRUNCATIONS)
@pytest.mark.parametrize("source", SOURCES)
def test_replacing_a_person_moves_a_sum_by_at_most_the_sensitivity(source, truncation):
    rest, fit_intercept = others(), intercept_allowed(source)
    w = np.random.default_rng(4).normal(size=(outputs_of(source), D + fit_intercept))
    vectors, grid = vectors_of(source, w, fit_intercept), Grid.of(truncation_at(truncation, 2.0), N)
    found = [joined_by(rest, *somebody).engine().truncated_sum(vectors, grid) for somebody in hostile()]
    most = grid.sensitivity(w.size, "replace-one")
    for one in found:
        for other in found:
            assert squared_norm(one - other) <= most**2


@pytest.mark.parametrize("truncation", TRUNCATIONS)
def test_the_bound_is_reached_by_fifty_rows_and_rows_one_by_one_break_it(truncation):
    """Power: the test above notices one per cent, and an engine that bounds rows and calls them persons."""
    zeros = Rows(np.zeros((N - 1, D)), np.zeros(N - 1), np.arange(1, N))
    grid = Grid.of(truncation_at(truncation, 2.0), N)
    tables = [joined_by(zeros, np.full((50, D), side), np.zeros(50)) for side in (-1e9, 1e9)]
    most = grid.sensitivity(D, "replace-one")
    one, other = (table.engine().truncated_sum(RowValues(), grid) for table in tables)
    assert squared_norm(one - other) > (0.99 * most) ** 2
    one, other = (InMemory(table.X, table.y).truncated_sum(RowValues(), grid) for table in tables)
    assert squared_norm(one - other) > (40.0 * most) ** 2


def test_a_person_is_the_average_of_their_rows_truncated_once():
    table = joined_by(others(1), np.ones((4, D)), np.ones(4))
    table = Rows(np.clip(np.nan_to_num(table.X), -50.0, 50.0), table.y, table.person)
    grid = Grid.of(L2Clip(2.0), N)
    expected = np.zeros(D)
    for one in range(N):
        average = table.X[table.person == one].mean(axis=0)
        expected += average * min(1.0, 2.0 / np.linalg.norm(average))
    found = table.engine().truncated_sum(RowValues(), grid)[0] * grid.unit
    np.testing.assert_allclose(found, expected, atol=N * grid.unit)


@pytest.mark.parametrize("source", SOURCES)
def test_sums_do_not_depend_on_threads_nor_on_the_order_of_persons(source):
    """Nor on the place of a row in a block: how many rows stand before it is private."""
    table, fit_intercept = joined_by(others(2), *hostile()[-2]), intercept_allowed(source)
    w = np.random.default_rng(4).normal(size=(outputs_of(source), D + fit_intercept))
    vectors, grid = vectors_of(source, w, fit_intercept), Grid.of(L2Clip(2.0), N)
    whole = table.engine().truncated_sum(vectors, grid)
    assert whole.any()
    np.testing.assert_array_equal(table.engine(threads=3).truncated_sum(vectors, grid), whole)
    moved = np.random.default_rng(5).permutation(N)
    order = np.argsort(moved[table.person], kind="stable")
    again = Rows(table.X[order], table.y[order], moved[table.person][order])
    np.testing.assert_array_equal(again.engine().truncated_sum(vectors, grid), whole)


def test_samples_are_of_persons_with_all_their_rows():
    table = joined_by(others(3), *hostile()[-3])
    engine = table.engine()
    vectors, grid = vectors_of("Huber", np.ones((1, D + 1)), True), Grid.of(L2Clip(2.0), N)
    each = [engine.truncated_sum(vectors, grid, np.array([one])) for one in range(N)]
    for chosen in (np.arange(N), np.array([0, 3, 17]), np.array([], dtype=np.int64)):
        expected = sum((each[one] for one in chosen), np.zeros((1, D + 1), np.int64))
        np.testing.assert_array_equal(engine.truncated_sum(vectors, grid, chosen), expected)


def test_everybody_counts_once_and_changes_one_count_for_another():
    def bins(X, y):
        return np.bincount(np.digitize(np.nan_to_num(X[:, 0]), [-1.0, 0.0, 1.0]), minlength=4)

    found = [joined_by(others(4), *somebody).engine().integer_sum(bins, (4,)) for somebody in hostile()]
    for counts in found:
        assert counts.sum() == N
        assert np.abs(counts - found[0]).sum() <= 2


def test_a_column_changes_in_one_value():
    for source in ("Squared", "Multinomial", "PerRow", "RowValues"):
        fit_intercept = intercept_allowed(source)
        w = np.random.default_rng(6).normal(size=(outputs_of(source), D + fit_intercept))
        columns = [
            joined_by(others(5), *somebody).engine().columns_of(vectors_of(source, w, fit_intercept))
            for somebody in hostile()
        ]
        for k in range(w.shape[0]):
            for j in range(w.shape[1]):
                first = columns[0](k, j)
                assert first.shape == (N,)
                for column in columns[1:]:
                    np.testing.assert_array_equal(column(k, j)[1:], first[1:])


def test_all_rows_of_a_person_go_to_one_block():
    table = joined_by(others(6), *hostile()[-1])
    engine, number, seen = table.engine(), numbered(table.person), 0
    for block in np.split(np.random.default_rng(7).permutation(N), 5):
        _, y, share = engine.members(block)
        rows = np.isin(number, block)
        seen += len(y)
        assert share.sum() == pytest.approx(1.0)
        np.testing.assert_array_equal(np.sort(y), np.sort(table.y[rows]))
        for one in block:  # rows that a person brings weigh as much as anybody's
            assert share[np.isin(y, table.y[number == one])].sum() == pytest.approx(1.0 / len(block))
    assert seen == len(table.y)


@pytest.mark.parametrize("source", [SystemNoise(), SeededNoise(8)], ids=["system", "seeded"])
def test_every_row_of_a_person_is_drawn_as_often_as_any_other(source):
    """Chi-square over four rows each; the right law fails with probability 1e-9, and the first row always at once."""
    persons = 4000
    rows = InMemory(np.zeros((4 * persons, 1)), np.zeros(4 * persons))
    drawn = grouped(rows, np.repeat(np.arange(persons), 4), source).drawn - 4 * np.arange(persons)

    def statistic(numbers):
        return float(np.sum((np.bincount(numbers, minlength=4) - persons / 4) ** 2) / (persons / 4))

    assert statistic(drawn) < chi2.isf(1e-9, 3)
    assert statistic(np.zeros(persons, dtype=np.int64)) > chi2.isf(1e-9, 3)


# Every query that the default makes, on a table and on one with another person in it.


class Twin:
    """An engine over persons whose every sum is also taken over the neighbour, and compared by `Checked`."""

    def __init__(self, mine: Grouped, other: Grouped) -> None:
        self.mine, self.other = mine, other
        self.n, self.columns, self.threads, self.names = mine.n, mine.columns, 1, None

    def column(self, j):
        return Twin(self.mine.column(j), self.other.column(j))

    def truncated_sum(self, *arguments):
        self.pair = self.mine.truncated_sum(*arguments), self.other.truncated_sum(*arguments)
        return self.pair[0]

    def integer_sum(self, *arguments):
        self.pair = self.mine.integer_sum(*arguments), self.other.integer_sum(*arguments)
        return self.pair[0]


class Checked(Queries):
    """Compares both sums of every query with what its noise covers."""

    seen: ClassVar[set[str]] = set()

    def mean(self, label, *arguments):
        return self.checked(label, super().mean(label, *arguments))

    def gram(self, label, *arguments):
        return self.checked(label, super().gram(label, *arguments))

    def checked(self, label, released):
        one, other = self.engine.pair
        covered = self.scale * self.account.events[-1].mu
        assert np.linalg.norm((one - other).astype(float)) <= covered * ROUNDING, label
        Checked.seen.add(label)
        return released

    def noisy_counts(self, label, total, sensitivity, share):
        released = super().noisy_counts(label, total, sensitivity, share)
        one, other = self.engine.pair
        if np.ndim(total) == 0:  # one entry of a cumulative histogram
            assert np.max(np.abs(np.cumsum(one - other))) <= sensitivity, label
        else:
            assert np.linalg.norm((one - other).astype(float)) <= sensitivity * ROUNDING, label
        assert released.sd * self.n * self.account.events[-1].mu >= sensitivity / ROUNDING
        Checked.seen.add(label)
        return released

    def _draw(self, scale, size):
        self.scale = scale
        return super()._draw(scale, size)


@pytest.fixture
def checked(monkeypatch):
    monkeypatch.setattr(default, "Queries", Checked)
    Checked.seen = set()


def ordinary(n: int = 120) -> Rows:
    rng = np.random.default_rng(9)
    person = rng.permutation(np.repeat(np.arange(1, n), rng.integers(1, 5, n - 1)))
    X = rng.normal(size=(len(person), D))
    X[:, 1] = np.exp(2.5 * X[:, 1])  # a heavy tail
    return Rows(X, X[:, 0] + rng.standard_t(2.5, len(person)), person)


FITS = {
    "mean": (losses.Squared(), lambda y: y),
    "bulk": (losses.Huber(), lambda y: y),
    "logistic": (losses.Logistic(), lambda y: np.where(y > 0.0, 1.0, -1.0)),
    "multinomial": (losses.Multinomial(3), lambda y: np.digitize(np.nan_to_num(y), [-0.5, 0.5]).astype(float)),
    "Poisson": (losses.Poisson(), np.abs),
}
STAGES = {"column scales", "column means", "correlations", "steps"}


def pairs(target):
    """The same persons with somebody ordinary, and with fifty hostile rows in their place."""
    rest = ordinary()
    somebody = joined_by(rest, np.ones((2, D)), np.ones(2))
    for value in (0.0, np.nan, np.inf, -1e308, 1e5):
        other = joined_by(rest, np.full((50, D), value), np.full(50, value))
        yield [Rows(side.X, target(side.y), side.person) for side in (somebody, other)]


@pytest.mark.parametrize("name", FITS)
def test_every_query_of_a_fit_covers_a_person(checked, name):
    loss, target = FITS[name]
    for k, (one, other) in enumerate(pairs(target)):
        fit_default(loss, Twin(one.engine(k), other.engine(k)), None, DefaultOptions(60.0, 1e-6, random_state=k))
    assert Checked.seen >= (STAGES if name == "Poisson" else {*STAGES, "column spread"})


@pytest.mark.parametrize(
    ("budget", "intercept", "labels"),
    [
        (60.0, False, {*STAGES, "curvature"}),
        (10.0, True, {*STAGES, "clip", "tail", "level"}),
        (10.0, False, {*STAGES, "clip"}),
        (Budget(mu=0.65), True, {"clip", "tail", "level"}),
    ],
    ids=["origin", "small", "small, origin", "level"],
)
def test_every_query_of_a_fit_of_counts_covers_a_person(checked, budget, intercept, labels):
    for k, (one, other) in enumerate(pairs(np.abs)):
        options = DefaultOptions(budget, fit_intercept=intercept, random_state=k)
        fit_default(losses.Poisson(), Twin(one.engine(k), other.engine(k)), None, options)
    assert Checked.seen >= labels
    assert ("curvature" in Checked.seen) == (budget == 60.0)


@pytest.mark.parametrize("name", ["mean", "bulk", "logistic", "Poisson"])
def test_every_query_for_standard_errors_covers_a_person(checked, name):
    loss, target = FITS[name]
    for k, (one, other) in enumerate(pairs(target)):
        options = DefaultOptions(60.0, 1e-6, random_state=k, inference=True)
        fit_default(loss, Twin(one.engine(k), other.engine(k)), None, options)
    assert {"jacobian", "scores", "score variance"} <= Checked.seen


def test_every_query_of_a_mean_covers_a_person(checked):
    for k, (one, other) in enumerate(pairs(lambda y: y)):
        twin = Twin(one.engine(k).averaged(), other.engine(k).averaged())
        table = MeanTable.of(twin, Budget(mu=3.0), None, False, 1)
        default.default_mean(table, SeededNoise(k))
    assert {"column scales", "column means", "clip", "tail", "level"} <= Checked.seen


def test_every_query_of_a_scaler_covers_a_person(checked):
    for k, (one, other) in enumerate(pairs(lambda y: y)):
        default.fit_columns(Twin(one.engine(k), other.engine(k)), 5.0, 1e-6, random_state=k)
    assert {"column scales", "column means", "closer look"} <= Checked.seen


def test_every_query_of_a_search_covers_a_person(checked, monkeypatch):
    for module in (measures, search):
        monkeypatch.setattr(module, "Queries", Checked)
    candidate = PrivateRidge(threads=1)
    for k, (one, other) in enumerate(pairs(lambda y: y)):
        twin = Twin(one.engine(k), other.engine(k))
        search.PrivateGridSearch(candidate, {"alpha": [0.0]}, 60.0, repeats=1.5, random_state=k).fit(twin)
    assert {"spread", "score"} <= Checked.seen


def test_the_check_of_all_queries_sees_rows_that_are_not_bounded_as_a_person(checked):
    """Power: an engine of rows that says it holds persons. Its counts give it away at once."""

    class RowByRow(Grouped):
        def truncated_sum(self, vectors, grid, rows=None):
            return self.rows.truncated_sum(vectors, grid)

        def integer_sum(self, function, shape):
            return self.rows.integer_sum(function, shape)

    one, other = next(pairs(lambda y: y))
    wrong = [RowByRow(e.rows, e.first, e.drawn) for e in (one.engine(), other.engine())]
    with pytest.raises(AssertionError, match="column scales"):
        fit_default(losses.Squared(), Twin(*wrong), None, DefaultOptions(60.0, 1e-6, random_state=0))
