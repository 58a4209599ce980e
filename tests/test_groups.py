"""`groups=`: fits for persons with several rows, from arguments to reports; contracts/test_persons.py has the sums.

What is public is the number of persons. How many rows there are, and how many are whose, must be seen nowhere.
"""

from __future__ import annotations

import json
import re
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest
from sklearn.model_selection import GroupKFold, cross_val_score
from typer.testing import CliRunner

import tailguard as tg
from tailguard.cli import app
from tailguard.cli._errors import REFUSED
from tailguard.engines import RowsStayError
from tailguard.engines.grouped import numbered
from tailguard.fit_report import FitReport
from tailguard.ledger import BudgetExceeded
from tailguard.privacy import Gaussian, PrivacyReport, epsilon_of
from tailguard.privacy.events import in_units
from test_nothing_leaks import assert_nothing_leaks, show_mean, show_model

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
PERSONS, D = 900, 3


def visits(persons: int = PERSONS, seed: int = 0) -> pd.DataFrame:
    """One to seven rows per person, in any order; a target with a long tail."""
    rng = np.random.default_rng(seed)
    person = rng.permutation(np.repeat(np.arange(persons), rng.integers(1, 8, persons)))
    X = rng.normal(size=(len(person), D)) + 0.5 * rng.normal(size=(persons, D))[person]
    y = X @ [1.0, -2.0, 0.5] + rng.standard_t(3, len(person))
    names = [f"p{number}" for number in person]
    return pd.DataFrame(X, columns=list("abc")).assign(cost=y, person=person, name=names)


TABLE = visits()
X, Y, PERSON = TABLE[list("abc")].to_numpy(), TABLE["cost"].to_numpy(), TABLE["person"].to_numpy()
METHODS = {
    "auto": {},
    "clipped": {"clip": 5.0, "steps": 3},
    "clipped, batches": {"method": "clipped", "clip": 5.0, "steps": 3, "batch_size": 100},
    "smoothed": {"scale": 5.0, "steps": 3},
    "trimmed": {"bounds": (-5.0, 5.0), "steps": 2},
    "aggregate": {"constraint": tg.constraints.L2Ball(5.0), "blocks": 20},
}
ESTIMATORS = {
    "ridge": (tg.PrivateRidge, lambda y: y),
    "huber": (tg.PrivateHuberRegressor, lambda y: y),
    "poisson": (tg.PrivatePoissonRegressor, np.abs),
    "logistic": (tg.PrivateLogisticRegression, lambda y: y > 0),
    "multinomial": (tg.PrivateLogisticRegression, lambda y: np.digitize(y, [-1.0, 1.0])),
}


def numbers_in(data) -> list:
    """All numbers of JSON-ready data."""
    if isinstance(data, dict):
        return [number for value in data.values() for number in numbers_in(value)]
    if isinstance(data, list):
        return [number for value in data for number in numbers_in(value)]
    return [data] if isinstance(data, (int, float)) else []


@pytest.mark.parametrize("name", METHODS)
def test_every_private_method_speaks_of_persons(name):
    model = tg.PrivateRidge(3.0, **{"method": name} | METHODS[name]).fit(X, Y, groups=PERSON)
    report = model.privacy_
    assert report.private
    assert (report.unit, report.n_rows) == ("person", PERSONS)
    assert f"one of the {PERSONS} persons, with all their rows, is" in str(report)
    assert len(Y) not in numbers_in(report.to_dict())
    assert f" {len(Y)} " not in str(report)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_one_row_each_is_the_fit_without_groups(name, method):
    """Up to rounding: several sums of the default may share a pass over rows, and do not over persons."""
    kind, target = ESTIMATORS[name]
    options = {"method": method, "epsilon": 5.0, "random_state": 3} | METHODS[method]
    some = slice(0, 1500)
    ids = np.random.default_rng(1).permutation(1500)
    plain = kind(**options).fit(X[some], target(Y[some]))
    persons = kind(**options).fit(X[some], target(Y[some]), groups=ids)
    np.testing.assert_allclose(persons.coef_, plain.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(persons.intercept_, plain.intercept_, rtol=1e-6, atol=1e-8)
    assert (persons.privacy_.epsilon, persons.privacy_.delta) == (plain.privacy_.epsilon, plain.privacy_.delta)
    assert (persons.privacy_.unit, plain.privacy_.unit) == ("person", "row")


def test_persons_count_alike():
    """A tenth of the persons has most of the rows and another slope: it gets a tenth of the say, not most of it."""
    rng = np.random.default_rng(2)
    sizes = np.where(np.arange(3000) % 10 == 0, 40, 1)
    person = np.repeat(np.arange(3000), sizes)
    x = rng.normal(size=(len(person), 1))
    y = x[:, 0] * np.where(person % 10 == 0, 5.0, 1.0) + 0.1 * rng.normal(size=len(person))
    slope = tg.minimize(
        tg.losses.Squared(), x, y, method="clipped", clip=100.0, epsilon=500.0, steps=30, groups=person, random_state=0
    ).w[0]
    assert slope == pytest.approx(1.4, abs=0.15)  # .9 x 1 + .1 x 5; rows counted alike would say 4.3
    aggregated = tg.minimize(
        tg.losses.Squared(),
        *(x, y),
        method="aggregate",
        epsilon=50.0,
        blocks=30,
        constraint=tg.constraints.Box(-10.0, 10.0),
        groups=person,
        random_state=0,
    ).w[0]
    assert aggregated == pytest.approx(1.4, abs=0.25)


@pytest.mark.parametrize(
    "method",
    [
        {},
        {"method": "clipped", "clip": 50.0},
        {"method": "clamped", "clip": 50.0},
        {"method": "smoothed", "v": 9.0},
        {"method": "trimmed", "bounds": (0.0, 20.0)},
    ],
    ids=lambda method: method.get("method", "auto"),
)
def test_a_mean_is_that_over_persons(method):
    """Half of the persons have 9 rows about 10 and the others 1 row about 0: 5 over persons, 9 over rows."""
    person = np.repeat(np.arange(2000), np.tile([9, 1], 1000))
    x = np.where(person % 2 == 0, 10.0, 0.0) + np.random.default_rng(3).normal(size=len(person))
    result = tg.private_mean(x, 20.0, groups=person, random_state=1, **method)
    assert result.value == pytest.approx(5.0, abs=0.5)
    assert result.privacy.unit == "person"
    assert tg.private_mean(x, 20.0, random_state=1, **method).value > 8.0


def test_more_rows_of_a_person_do_not_add_noise_and_do_not_take_it_away():
    options = {"clip": 1.0, "epsilon": 1.0, "method": "clipped", "random_state": 0}
    x = np.zeros((50, 2))
    few = tg.minimize(tg.losses.Squared(), x, np.zeros(50), groups=np.arange(50), **options)
    many = tg.minimize(
        tg.losses.Squared(), np.repeat(x, 9, axis=0), np.zeros(450), groups=np.arange(450) // 9, **options
    )
    np.testing.assert_array_equal(few.path, many.path)
    assert few.privacy == many.privacy


# Ids, and where they are.


def test_persons_are_numbered_as_they_come_and_rows_without_an_id_are_one_person():
    nan = float("nan")
    for ids in (
        [3.0, nan, 1.0, nan, 3.0],
        ["b", None, "a", None, "b"],
        ["b", nan, "a", None, "b"],
        pd.Series([3, None, 1, None, 3], dtype="Int64"),
        pd.Series(["b", None, "a", None, "b"], dtype="category"),
        pd.to_datetime(["2024-05-05", None, "2024-01-01", None, "2024-05-05"]),
        pl.Series(["b", None, "a", None, "b"]),
        np.ma.masked_array([3, 0, 1, 7, 3], mask=[0, 1, 0, 1, 0]),
        [2**80, None, 1, pd.NaT, 2**80],
        np.array([[3.0], [nan], [1.0], [nan], [3.0]]),
        np.array(["b", np.float32("nan"), "a", np.float32("nan"), "b"], dtype=object),
        np.array(["b", np.datetime64("NaT"), "a", np.timedelta64("NaT"), "b"], dtype=object),
        [Decimal(3), Decimal("NaN"), Decimal(1), Decimal("NaN"), Decimal(3)],
        np.array(["b", nan, "a", nan, "b"], dtype=np.dtypes.StringDType(na_object=nan)),
    ):
        assert numbered(ids).tolist() == [0, 1, 2, 1, 0]


def test_numbers_beside_texts_stay_numbers():
    """As texts 1 and 1.0 would be two persons, and their rows would be protected apart."""
    np.testing.assert_array_equal(numbered([1, 1.0, "a", 1, None]), [0, 0, 1, 0, 2])
    np.testing.assert_array_equal(numbered(["b", "a", "b"]), [0, 1, 0])


def test_large_integers_are_told_apart_beside_missing_ones():
    """NumPy would make them floats, of which two may be one."""
    for ids in (
        [2**53, 2**53 + 1, None, None],
        [2**53, 2**53 + 1, float("nan"), float("nan")],
        pl.Series([2**53, 2**53 + 1, None, None]),
        pa.array([2**53, 2**53 + 1, None, None]),
        pd.Series([2**53, 2**53 + 1, None, None], dtype="Int64"),
    ):
        assert numbered(ids).tolist() == [0, 1, 2, 2]
    assert numbered([2**53, 2**53 + 1]).tolist() == [0, 1]
    assert numbered([2**63, 2**63 + 1, -1]).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (PERSON[:-1], "groups and X differ in length"),
        (np.zeros((len(Y), 2)), "one id per row"),
        (7, "one id per row"),
        ([[1]] * (len(Y) - 1) + [[1, 2]], "one id per row"),
        ("person", "X has no names of columns"),
        ([{}] * len(Y), "can be no id"),
        (np.zeros(len(Y), dtype=[("a", int), ("b", float)]), "can be no id"),
        (np.zeros(len(Y)), "1 person"),
    ],
)
def test_groups_that_are_refused(groups, message):
    with pytest.raises((ValueError, TypeError), match=message) as refused:
        tg.PrivateRidge().fit(X, Y, groups=groups)
    assert str(len(Y)) not in str(refused.value)


def test_refusals_do_not_tell_how_many_rows_there_are():
    with pytest.raises(ValueError, match="y and X differ in length") as refused:
        tg.PrivateRidge().fit(X, Y[:-1], groups=PERSON)
    assert str(len(Y)) not in str(refused.value)
    with pytest.raises(ValueError, match="sample_weight"):
        tg.PrivateRidge().fit(X, Y, groups=PERSON, sample_weight=np.ones(len(Y)))
    with pytest.raises(ValueError, match="there is a, b, c"):
        tg.PrivateRidge().fit(TABLE[list("abc")], Y, groups="patient")


SQUARED, CLIPPED = tg.losses.Squared(), {"method": "clipped", "clip": 1.0, "epsilon": 1.0, "groups": PERSON}
WRONG_SHAPES = {
    "targets": lambda: tg.minimize(SQUARED, X, Y[:-1], **CLIPPED),
    "targets of a file": lambda: tg.PrivateRidge().fit(pa.table({"a": Y, "person": PERSON}), Y[:-1], groups="person"),
    "matrix of targets": lambda: tg.PrivateRidge().fit(X, np.column_stack([Y, Y]), groups=PERSON),
    "cube": lambda: tg.private_mean(X[None], 1.0, groups=PERSON),
    "cube of rows": lambda: tg.minimize(SQUARED, X[None], Y, **CLIPPED),
    "gradient": lambda: tg.minimize(tg.losses.PerRow(lambda w, X, y: X[:-1]), X, Y, **CLIPPED),
    "slopes": lambda: tg.minimize(tg.losses.Custom(lambda z, y: z, lambda z, y: z[:-1]), X, Y, **CLIPPED),
}


@pytest.mark.parametrize("call", WRONG_SHAPES.values(), ids=WRONG_SHAPES)
def test_no_refusal_of_a_shape_tells_a_number_of_rows(call):
    """Neither that of all rows nor, of a user's function, that of a block: so many persons have one row."""
    with pytest.raises(ValueError, match=r"give|return") as refused:
        call()
    error: BaseException | None = refused.value
    while error is not None:
        told = [int(number) for number in re.findall(r"\d+", str(error))]
        assert max(told, default=0) <= D
        error = error.__context__


@pytest.fixture(scope="module")
def fitted():
    return tg.PrivateRidge(3.0, random_state=5).fit(X, Y, groups=PERSON)


@pytest.mark.parametrize("column", ["person", "name"])
@pytest.mark.parametrize("frame", ["pandas", "polars", "arrow", "parquet", "csv"])
def test_a_column_of_a_frame_or_of_a_file_tells_persons_apart_and_is_no_feature(fitted, frame, column, tmp_path):
    held = TABLE[["a", "b", "c", column]]
    arrow = pa.Table.from_pandas(held.assign(cost=Y), preserve_index=False)
    if frame in ("pandas", "polars"):
        rows, y = (held if frame == "pandas" else pl.from_pandas(held)), Y
    elif frame == "arrow":
        rows, y = arrow, "cost"
    elif frame == "parquet":
        parquet.write_table(arrow, tmp_path / "visits.parquet")
        rows, y = str(tmp_path / "visits.parquet"), "cost"
    else:
        arrow_csv.write_csv(arrow, tmp_path / "visits.csv")
        rows, y = tg.Source(tmp_path / "visits.csv", memory=0), "cost"
    model = tg.PrivateRidge(3.0, random_state=5).fit(rows, y, groups=column)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(model.coef_, fitted.coef_, rtol=1e-12)
    assert model.privacy_ == fitted.privacy_


def test_a_mean_of_a_column_of_a_file(tmp_path):
    parquet.write_table(pa.Table.from_pandas(TABLE, preserve_index=False), tmp_path / "visits.parquet")
    source = tg.Source(tmp_path / "visits.parquet", columns="cost")
    found = tg.private_mean(source, 1.0, groups="person", random_state=2)
    assert found.value == tg.private_mean(Y, 1.0, groups=PERSON, random_state=2).value
    assert tg.private_mean(TABLE[["a", "person"]], 1.0, groups="person").value.shape == (1,)


def test_hints_for_a_mean_are_for_the_columns_beside_that_of_persons():
    """The ids stand first: by place in the whole frame, the range of c would be that of nothing."""
    hints, options = tg.Hints(ranges={"b": (-9.0, 9.0), "c": (-1e-3, 1e-3)}), {"random_state": 3, "epsilon": 50.0}
    named = tg.private_mean(TABLE[["person", *"abc"]], groups="person", hints=hints, **options).value
    np.testing.assert_array_equal(
        named, tg.private_mean(TABLE[list("abc")], groups=PERSON, hints=hints, **options).value
    )
    assert abs(named[2]) <= 1e-3


def test_rows_on_a_cluster_are_refused_by_name():
    frames = pytest.importorskip("dask.dataframe")
    frame = frames.from_pandas(TABLE[["a", "b", "c", "person"]], npartitions=2)
    with pytest.raises(RowsStayError, match="files that fit into memory"):
        tg.PrivateRidge().fit(frame, TABLE["cost"], groups="person")
    with pytest.raises(RowsStayError, match="files that fit into memory"):
        tg.PrivateRidge().fit(X, Y, groups=frame["person"])


def test_cross_validation_hands_groups_on():
    import sklearn

    model = tg.PrivateRidge(20.0, random_state=0)
    folds = GroupKFold(3)
    plain = cross_val_score(model, X, Y, groups=PERSON, cv=folds, params={"groups": PERSON})
    assert plain.shape == (3,)
    assert plain.min() > 0.3
    with sklearn.config_context(enable_metadata_routing=True):
        asked = model.set_fit_request(groups=True)
        np.testing.assert_array_equal(cross_val_score(asked, X, Y, cv=folds, params={"groups": PERSON}), plain)


# Searches and scalers, too.


def searched(noise=0, **arguments) -> tg.PrivateGridSearch:
    model = tg.PrivateRidge(method="clipped", clip=5.0, steps=2, threads=1)
    return tg.PrivateGridSearch(model, {"alpha": [0.0, 1.0]}, 20.0, repeats=3.0, random_state=noise, **arguments)


def test_a_search_speaks_of_persons_and_is_the_same_with_one_row_each():
    alone, plain = searched().fit(X, Y, groups=np.arange(len(Y))), searched().fit(X, Y)
    np.testing.assert_array_equal(alone.best_estimator_.coef_, plain.best_estimator_.coef_)
    assert alone.best_score_ == plain.best_score_
    several = searched().fit(TABLE[[*"abc", "person"]], Y, groups="person")
    assert (several.privacy_.unit, several.privacy_.n_rows) == ("person", PERSONS)
    assert list(several.feature_names_in_) == list("abc")
    labels = tg.PrivateGridSearch(tg.PrivateLogisticRegression(threads=1), {"alpha": [0.0, 1.0]}, 20.0, repeats=2.0)
    assert labels.fit(X, Y > 0, groups=PERSON).privacy_.unit == "person"


def test_the_score_of_a_search_is_the_mean_over_persons():
    """Half of the persons have twenty rows that nothing predicts; with rows counting alike the score would be zero."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(4000), np.where(np.arange(4000) % 2, 1, 20))
    X = rng.normal(size=(len(person), 1))
    y = np.where(person % 2, X[:, 0], rng.normal(size=len(person)))
    model = tg.PrivateRidge(method="clipped", clip=50.0, steps=20, threads=1)
    arguments = {"error_bound": 3.0, "repeats": 1.1, "random_state": 0}
    by_person, by_row = (
        tg.PrivateGridSearch(model, {"alpha": [0.0]}, 1e3, **arguments).fit(X, y, groups=groups)
        for groups in (person, np.arange(len(y)))
    )
    # Slope 1/2 explains 3/4 of the variance of half of the persons and -1/4 of that of the others: 1/4 in all. The
    # error is that of a mean of 2000 squares, .013: six times as much in either direction.
    assert 0.17 < by_person.best_score_ < 0.33
    assert abs(by_row.best_score_) < 0.05


def test_a_scaler_speaks_of_persons_and_is_the_same_with_one_row_each(tmp_path):
    plain, alone = (tg.PrivateScaler(random_state=0).fit(X, groups=ids) for ids in (None, np.arange(len(Y))))
    np.testing.assert_array_equal(alone.transform(X), plain.transform(X))
    several = tg.PrivateScaler(5.0).fit(TABLE[[*"abc", "person"]], groups="person")
    assert (several.privacy_.unit, several.privacy_.n_rows) == ("person", PERSONS)
    assert several.transform(TABLE[list("abc")]).shape == X.shape
    tg.save_model(several, tmp_path / "scaler.json")
    assert tg.load_model(tmp_path / "scaler.json").privacy_ == several.privacy_
    with pytest.raises(ValueError, match="1 person"):
        tg.PrivateScaler().fit(X, groups=np.zeros(len(Y)))


def test_messages_about_blocks_speak_of_persons():
    ball = {"method": "aggregate", "constraint": tg.constraints.L2Ball(5.0)}
    with pytest.raises(ValueError, match=f"with {PERSONS} persons: give at most one per person"):
        tg.PrivateRidge(**ball, blocks=PERSONS + 1).fit(X, Y, groups=PERSON)
    with pytest.raises(ValueError, match=r"persons at \d+ per block"):
        tg.algorithms.algorithm1(
            SQUARED, X, Y, epsilon=1.0, aggregator="center", blocks=20, groups=PERSON, constraint=ball["constraint"]
        )


# Nothing tells how many rows there are, or whose.


def neighbours() -> dict[str, tuple[pd.DataFrame, np.ndarray]]:
    """Tables that differ in person 0, who has one row, two or fifty."""
    rng = np.random.default_rng(4)
    person = np.repeat(np.arange(1, 120), rng.integers(1, 4, 119))
    rest = pd.DataFrame(rng.standard_t(3, (len(person), D)), columns=list("abc")).assign(person=person)
    y = rest["a"].to_numpy() + rng.normal(size=len(rest))
    found = {}
    for name, size, value in (("one row", 1, 0.5), ("inf", 2, np.inf), ("NaN", 50, np.nan), ("1e308", 50, 1e308)):
        own = pd.DataFrame(np.full((size, D), value), columns=list("abc")).assign(person=0)
        found[name] = pd.concat([own, rest], ignore_index=True), np.append(np.full(size, value), y)
    return found


@pytest.mark.parametrize("method", ["auto", "clipped, batches", "trimmed", "aggregate"])
def test_nothing_leaks_around_the_releases(method, monkeypatch):
    options = {"method": method, "epsilon": 60.0, "threads": 1} | METHODS[method]
    first, *others = (tables := neighbours()).values()
    assert_nothing_leaks(
        monkeypatch,
        lambda X, y, noise: tg.PrivateRidge(random_state=noise, **options).fit(X, y, groups="person"),
        first,
        dict(zip(list(tables)[1:], others, strict=True)),
        show_model,
    )


@pytest.mark.parametrize(
    ("budget", "intercept", "label"),
    [
        (60.0, True, "curvature"),
        (60.0, False, "curvature"),
        (10.0, True, "steps"),
        (10.0, False, "steps"),
        (1.2, True, "size"),
        (tg.Budget(mu=0.65), True, "tail"),
    ],
    ids=["Newton", "Newton, origin", "small", "small, origin", "few persons", "level"],
)
def test_nothing_leaks_around_the_releases_of_counts(budget, intercept, label, monkeypatch):
    tables = {name: (frame, np.abs(y)) for name, (frame, y) in neighbours().items()}
    first, labels = tables.pop("one row"), set()

    def fit(X, y, noise):
        model = tg.PrivatePoissonRegressor(budget, fit_intercept=intercept, random_state=noise, threads=1)
        labels.update(event.label for event in model.fit(X, y, groups="person").privacy_.events)
        return model

    assert_nothing_leaks(monkeypatch, fit, first, tables, show_model)
    assert label in labels


def test_nothing_leaks_around_a_mean(monkeypatch):
    tables = {name: (frame[["a", "person"]], y) for name, (frame, y) in neighbours().items()}
    first = tables.pop("one row")
    run = lambda X, y, noise: tg.private_mean(X, 5.0, groups="person", random_state=noise)  # noqa: E731
    assert_nothing_leaks(monkeypatch, run, first, tables, show_mean)


def test_nothing_leaks_around_a_search(monkeypatch):
    tables = neighbours()
    first = tables.pop("one row")

    def show(search):
        told = {
            name: repr(value) for name, value in vars(search).items() if name not in ("estimator", "best_estimator_")
        }
        return {f"best {key}": value for key, value in show_model(search.best_estimator_).items()} | {
            name: value for name, value in told.items() if name != "random_state"
        }

    run = lambda X, y, noise: searched(noise, error_bound=3.0).fit(X, y, groups="person")  # noqa: E731
    assert_nothing_leaks(monkeypatch, run, first, tables, show)


def test_nothing_leaks_around_a_scaler(monkeypatch):
    tables = neighbours()
    first = tables.pop("one row")
    run = lambda X, y, noise: tg.PrivateScaler(5.0, random_state=noise).fit(X, groups="person")  # noqa: E731

    def show(scaler):
        learnt = (scaler.mean_, scaler.scale_, scaler.lower_, scaler.upper_)
        return {"names": sorted(vars(scaler)), "learnt": [part.tolist() for part in learnt]} | {
            "report": scaler.privacy_.to_json()
        }

    assert_nothing_leaks(monkeypatch, run, first, tables, show)


# Reports, model files and ledgers say whom they speak of.


def test_reports_of_persons_survive_and_do_not_add_to_reports_of_rows(fitted):
    report = tg.PrivateRidge(1.0).fit(X, Y, groups=PERSON).privacy_
    assert PrivacyReport.from_json(report.to_json()) == report
    assert report.to_dict()["unit"] == "person"
    assert "persons, with all their rows, is replaced" in report._repr_html_()
    both = report + tg.private_mean(Y, 1.0, groups=PERSON).privacy
    assert (both.unit, both.n_rows) == ("person", PERSONS)
    assert 1.0 < both.epsilon <= 2.0
    rows = tg.private_mean(Y, 1.0).privacy
    assert "unit" not in rows.to_dict()
    for pair in ((report, rows), (rows, report)):
        with pytest.raises(ValueError, match="got both"):
            PrivacyReport.combine(*pair)
    with pytest.raises(ValueError, match="got both"):
        epsilon_of([*report.events, *rows.events], 1e-6)


def test_a_report_cannot_be_edited_into_one_of_persons():
    told = tg.private_mean(Y, 1.0).privacy.to_dict()
    with pytest.raises(ValueError, match="unit"):
        PrivacyReport.from_dict(told | {"unit": "person"})
    with pytest.raises(ValueError, match="unit must be one of"):
        PrivacyReport.from_dict(told | {"unit": "household"})


def test_a_state_of_rows_is_not_continued_for_persons():
    options = {"method": "clipped", "clip": 1.0, "epsilon": 1.0, "steps": 4, "random_state": 0}
    started = tg.minimize(tg.losses.Squared(), X, Y, callback=lambda state: state.step == 2, **options)
    with pytest.raises(ValueError, match="another run"):
        tg.minimize(tg.losses.Squared(), X, Y, groups=np.arange(len(Y)), resume=started.state, **options)


@pytest.mark.parametrize("columns", [1, 8, 13, 20, 60, 5000])
@pytest.mark.parametrize("classes", [0, 3])
def test_a_prediction_has_the_same_bits_wherever_the_row_stands(columns, classes):
    """Scores for persons are sums over rows of predictions, and how many rows stand before one is private.

    A BLAS product rounds the last rows of a block differently: rows of others would move with how many somebody has.
    """
    rng = np.random.default_rng(columns)
    model = tg.PrivateRidge(random_state=0).fit(rng.normal(size=(40, columns)), rng.normal(size=40))
    model.coef_, row = rng.normal(size=(classes, columns) if classes else columns), rng.normal(size=columns)
    found = [model._predictor_of(np.tile(row, (rows, 1))) for rows in (1, 2, 7, 8, 11, 29)]
    found += [model._predictor_of(np.asfortranarray(np.tile(row, (11, 1))))]
    assert len(np.unique(np.concatenate(found), axis=0)) == 1


def test_model_files_and_pages_speak_of_persons(tmp_path):
    model = tg.PrivateRidge(1.0).fit(X, Y, groups=PERSON)
    tg.save_model(model, tmp_path / "model.json")
    assert tg.load_model(tmp_path / "model.json").privacy_ == model.privacy_
    report = FitReport(model)
    assert f"any one of the {PERSONS} persons, with all their rows, by any other" in report.sentence()
    told = report.to_dict()
    assert (told["unit"], told["persons"]) == ("person", PERSONS)
    assert "per person, as the column" in report.to_html()
    assert "differ in one person" in report.to_html()


def test_a_ledger_keeps_its_account_for_one_of_the_two(tmp_path):
    path = tmp_path / "budget.db"
    with tg.Ledger(path, "visits", budget=5.0) as ledger:
        tg.private_mean(Y, 1.0, groups=PERSON)
        tg.PrivateRidge(1.0).fit(X, Y, groups=PERSON)
        with pytest.raises(BudgetExceeded, match="account for persons, and this run speaks of rows"):
            tg.private_mean(Y, 1.0)
        ledger.require(tg.Budget(1.0, 1e-6))
        assert [entry.unit for entry in ledger.entries] == ["person", "person"]
        assert 1.0 < ledger.summary().epsilon < 2.0
    with tg.Ledger(path, "rows", budget=5.0):
        tg.private_mean(Y, 1.0)
        with pytest.raises(BudgetExceeded, match="account for rows, and this run speaks of persons"):
            tg.private_mean(Y, 1.0, groups=PERSON)
    with tg.Ledger.add_dataset(path, "no budget") as ledger:
        ledger.reserve(in_units([Gaussian(0.1)], "person"))
        with pytest.raises(BudgetExceeded, match="persons"):
            ledger.reserve([Gaussian(0.1)])
    listed = CliRunner().invoke(app, ["ledger", "show", str(path)], prog_name="tailguard")
    assert f"{PERSONS} persons" in listed.stdout


# The command.


@pytest.mark.parametrize("column", ["person", "name"])
@pytest.mark.parametrize("file", ["visits.csv", "visits.parquet"])
def test_the_command_fits_for_persons(fitted, file, column, tmp_path):
    arrow = pa.Table.from_pandas(TABLE[["a", "b", "c", "cost", column]], preserve_index=False)
    (arrow_csv.write_csv if file.endswith("csv") else parquet.write_table)(arrow, tmp_path / file)
    arguments = [str(tmp_path / file), "--target", "cost", "--epsilon", "3", "--groups", column, "--json"]
    done = CliRunner().invoke(app, ["fit", *arguments, "--seed", "5", "-o", str(tmp_path / "model.json")])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["unit"], told["persons"]) == ("person", PERSONS)
    assert len(Y) not in numbers_in(told)
    np.testing.assert_allclose(tg.load_model(tmp_path / "model.json").coef_, fitted.coef_, rtol=1e-12)


def test_the_command_shows_no_number_of_rows_on_a_terminal(tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    parquet.write_table(pa.Table.from_pandas(TABLE, preserve_index=False), tmp_path / "visits.parquet")
    fit = ["fit", str(tmp_path / "visits.parquet"), "--target", "cost", "--features", "a,b,c", "-o"]
    shown = CliRunner().invoke(app, [*fit, str(tmp_path / "rows.json")]).output
    assert f"{len(Y):,} rows" in shown
    shown = CliRunner().invoke(app, [*fit, str(tmp_path / "persons.json"), "--groups", "person"]).output
    assert f"{PERSONS:,}" in shown
    assert f"{len(Y):,}" not in shown
    assert str(len(Y)) not in shown


@pytest.mark.parametrize("bound", [[], ["--error-bound", "20"]], ids=["found", "bounded"])
def test_the_command_sells_scores_for_persons_to_a_ledger_of_persons(bound, tmp_path):
    parquet.write_table(pa.Table.from_pandas(TABLE, preserve_index=False), tmp_path / "visits.parquet")
    data, ledger = str(tmp_path / "visits.parquet"), ["--ledger", str(tmp_path / "budget.db"), "--dataset", "visits"]
    fit = [data, "--target", "cost", "--features", "a,b,c", "--groups", "person", "-o", str(tmp_path / "model.json")]
    done = CliRunner().invoke(app, ["fit", *fit, *ledger, "--budget-epsilon", "3"])
    assert done.exit_code == 0, done.output
    evaluate = ["evaluate", str(tmp_path / "model.json"), data, "--pay-epsilon", "1", "--json", *bound, *ledger]
    assert "Give groups= to the run" in " ".join(CliRunner().invoke(app, evaluate).output.split())
    done = CliRunner().invoke(app, [*evaluate, "--groups", "person"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["privacy"]["unit"], told["privacy"]["n_rows"]) == ("person", PERSONS)
    assert "persons, with all their rows" in told["with_the_fit"]
    assert 0.0 <= told["scores"]["mean absolute error"] < 20.0


def test_the_command_notices_the_persons_of_the_fit_among_held_out_rows(tmp_path):
    def written(name: str, frame: pd.DataFrame) -> str:
        parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / name)
        return str(tmp_path / name)

    data, model = written("visits.parquet", TABLE), str(tmp_path / "model.json")
    fit = [data, "--target", "cost", "--features", "a,b,c", "--groups", "person", "-o", model]
    assert CliRunner().invoke(app, ["fit", *fit]).exit_code == 0

    def evaluated(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["evaluate", model, *arguments, "--held-out"])
        return done.exit_code, " ".join(done.output.split())

    # Fewer rows, the same persons: it is the persons that are compared.
    fewer = written("fewer.parquet", TABLE.iloc[np.sort(np.unique(PERSON, return_index=True)[1])])
    for table in (data, fewer):
        status, words = evaluated(table)
        assert status == REFUSED
        assert f"fitted to {PERSONS} persons and this table has {PERSONS}" in words
        assert evaluated(table, "--same-size")[0] == 0
    later = written("later.parquet", visits(100, seed=1))
    assert evaluated(later)[0] == 0
    unnamed = written("unnamed.parquet", visits(100, seed=1).drop(columns="person"))
    status, words = evaluated(unnamed)
    assert status == REFUSED
    assert "no column 'person' says who is who" in words
    assert evaluated(unnamed, "--groups", "name")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--groups", "patient"], "no column 'patient'"),
        (["--groups", "cost"], "no feature and no target"),
        (["--groups", "person", "--features", "a,person"], "no feature and no target"),
    ],
)
def test_the_command_refuses_groups_that_are_something_else(arguments, message, tmp_path):
    parquet.write_table(pa.Table.from_pandas(TABLE, preserve_index=False), tmp_path / "visits.parquet")
    done = CliRunner().invoke(app, ["fit", str(tmp_path / "visits.parquet"), "--target", "cost", *arguments])
    assert message in " ".join(done.output.split())


# The page, a real table, and the benchmark on it.


def test_the_page_shows_what_happens_and_names_tests_that_exist(capsys):
    page = (ROOT / "docs" / "groups.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(example, "groups.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed == re.findall(r"# (\(1, 1e-6\).*|person)$", example, flags=re.MULTILINE)
    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page):
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8") or not name


def test_rows_can_be_made_to_count_alike_in_the_two_ways_of_the_page():
    """A ratio of two means over persons is the mean over rows; rows at mu/m are persons with m rows at mu."""
    totals, counts = TABLE.groupby("person")["cost"].sum() + 50.0, TABLE.groupby("person")["cost"].size()
    both = tg.private_mean(np.column_stack([totals, counts]), epsilon=50.0, random_state=0).value
    assert both[0] / both[1] == pytest.approx(totals.sum() / counts.sum(), rel=0.05)
    promise, m = tg.Budget(1.0, 1e-6), 7
    spent = tg.PrivateRidge(tg.Budget(mu=promise.mu / m)).fit(X, Y).privacy_.events
    as_persons = [Gaussian(m * event.mu, event.count, event.samples) for event in spent]
    assert epsilon_of(as_persons, 1e-6) < 1.0 + 1e-5  # a budget in mu leaves the price of the grid to its owner


def test_all_years_of_the_health_insurance_experiment():
    if not (DATA / "randhie.csv.gz").exists():
        pytest.skip("REAL DATA MISSING: randhie.csv.gz is not in ../shared/data, groups= was NOT run on it")
    frame = pd.read_csv(DATA / "randhie.csv.gz", usecols=["zper", "mdvis", "xage", "disea", "physlm", "logc"])
    model = tg.PrivateRidge(4.0).fit(frame.drop(columns="mdvis"), frame["mdvis"], groups="zper")
    assert model.privacy_.n_rows == frame["zper"].nunique() == 5912
    assert model.privacy_.private
    # The sicker see a doctor more often: least squares with persons counted alike says .118, forty fits .071 to .107.
    assert 0.03 < model.coef_[list(model.feature_names_in_).index("disea")] < 0.16


def test_the_benchmark_prints_its_table(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    monkeypatch.delitem(sys.modules, "groups", raising=False)
    import groups

    groups.main(["--seeds", "1", "--persons", "400", "--epsilon", "2"])
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 4
    assert all(line.count("|") == 7 for line in lines)
