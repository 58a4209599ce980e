"""Public hints: what is accepted, that they are told, that right ones help and wrong ones cost accuracy only."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import tailguard as tg
from tailguard import default, losses
from taped import Replayed, Taped, assert_the_same

HINTS = tg.Hints(
    ranges={"a": (0, 120), 1: (-3, 3)},
    categories={"c": (0, 1, 2)},
    target_range=(-50, 1e5),
    moment={"d": 2.5},
    exchangeable=[["e", "f"], ["g"]],
)


def table(n: int = 1000, d: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A line of slope norm 1 with normal noise of sd 1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    w = rng.standard_normal(d)
    return X, 1.0 + X @ (w / np.linalg.norm(w)) + rng.standard_normal(n)


def slope_risk(model, X, y, seed: int) -> float:
    rng = np.random.default_rng(seed)
    fresh = rng.standard_normal((2000, X.shape[1]))
    w = np.random.default_rng(seed)
    w.standard_normal(X.shape)
    truth = w.standard_normal(X.shape[1])
    return float(np.var(model.predict(fresh) - fresh @ (truth / np.linalg.norm(truth))) / 2.0)


# What is accepted.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ranges": (0, 1)}, "ranges must be a mapping"),
        ({"ranges": "a"}, "ranges must be a mapping"),
        ({"ranges": {"a": (1, 0)}}, r"ranges\['a'\] must be a pair"),
        ({"ranges": {"a": (0, 0)}}, r"ranges\['a'\] must be a pair"),
        ({"ranges": {"a": 3}}, r"ranges\['a'\] must be a pair"),
        ({"ranges": {"a": (0, math.inf)}}, r"ranges\['a'\] must be a number in"),
        ({"ranges": {"a": (0, math.nan)}}, r"ranges\['a'\] must be a number in"),
        ({"ranges": [(0, 1), (0, "1")]}, r"ranges\[1\] must be a number in"),
        ({"ranges": {1.5: (0, 1)}}, "ranges must name columns by text or by position"),
        ({"ranges": {True: (0, 1)}}, "ranges must name columns by text or by position"),
        ({"categories": [0, 1]}, "categories must be a mapping"),
        ({"categories": {"a": 1}}, r"categories\['a'\] must be a list of numbers"),
        ({"categories": {"a": (1, 1)}}, "at least two different numbers"),
        ({"categories": {"a": ("no", "yes")}}, r"categories\['a'\] must be a number in"),
        ({"target_range": 5}, "target_range must be a pair"),
        ({"target_range": (5, 1)}, "target_range must be a pair"),
        ({"moment": 0.0}, "moment must be a number in"),
        ({"moment": -1.0}, "moment must be a number in"),
        ({"moment": True}, "moment must be a number above 0"),
        ({"moment": {"a": "x"}}, r"moment\['a'\] must be a number above 0"),
        ({"exchangeable": "ab"}, "exchangeable must be True, False or a list of groups"),
        ({"exchangeable": ["a", "b"]}, "exchangeable must be True, False or a list of groups"),
        ({"exchangeable": [[]]}, "exchangeable must be True, False or a list of groups"),
        ({"exchangeable": [[1.0]]}, "exchangeable must name columns by text or by position"),
    ],
)
def test_what_cannot_be_a_hint_is_refused(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        tg.Hints(**arguments)


def test_hints_are_resolved_to_columns():
    known = HINTS.known(7, list("abcdefg"))
    np.testing.assert_array_equal(known.lower, [0, -3, 0] + [-np.inf] * 4)
    np.testing.assert_array_equal(known.upper, [120, 3, 2] + [np.inf] * 4)
    np.testing.assert_array_equal(known.few, [False, False, True] + [False] * 4)
    np.testing.assert_array_equal(known.root, [np.inf] * 3 + [math.sqrt(2.5)] + [np.inf] * 3)
    np.testing.assert_array_equal(known.group, [-1] * 4 + [0, 0, 1])
    assert known.complete
    assert not HINTS.known(8, list("abcdefgh")).complete
    assert not tg.Hints().known(2).complete
    assert tg.Hints(exchangeable=True).known(3).complete


@pytest.mark.parametrize(
    ("hints", "names", "words"),
    [
        (tg.Hints(ranges={"z": (0, 1)}), ["a", "b"], "column 'z' that the table does not have: they are 'a', 'b'"),
        (tg.Hints(ranges={"z": (0, 1)}), None, "they have no names"),
        (tg.Hints(moment={2: 1.0}), None, "columns are numbered from 0 to 1"),
        (tg.Hints(categories={-1: (0, 1)}), None, "columns are numbered from 0 to 1"),
        (tg.Hints(ranges=[(0, 1)]), None, "ranges has 1 pairs, but there are 2 columns"),
        (tg.Hints(exchangeable=[[0, 1], [1]]), None, "exchangeable names the column 1 twice"),
    ],
)
def test_hints_about_other_columns_are_refused(hints, names, words):
    with pytest.raises(ValueError, match=words):
        hints.known(2, names)


@pytest.mark.parametrize("hints", [HINTS, tg.Hints(), tg.Hints(ranges=[(0, 1), None], moment=3, exchangeable=True)])
def test_hints_survive_json(hints):
    again = tg.Hints.from_dict(json.loads(json.dumps(hints.to_dict())))
    assert again == hints
    assert str(again) == str(hints)


@pytest.mark.parametrize("field", ["ranges", "categories", "moment", "exchangeable", "target_range"])
@pytest.mark.parametrize("value", ["x", [[[1]]], {"a": "b"}, [[None]], [{}]])
def test_damaged_hints_are_refused_in_a_sentence(field, value):
    with pytest.raises((TypeError, ValueError)):
        tg.Hints.from_dict(tg.Hints().to_dict() | {field: value})
    with pytest.raises(ValueError, match="hints must have exactly"):
        tg.Hints.from_dict({"ranges": None})


def test_hints_that_would_not_be_used_are_refused():
    X, y = table(200, 2)
    some = tg.Hints(moment=1.0)
    with pytest.raises(ValueError, match="hints are not accepted by method='clipped'"):
        tg.PrivateRidge(method="clipped", clip=1.0, hints=some).fit(X, y)
    with pytest.raises(ValueError, match="hints are not accepted with inference=True"):
        tg.PrivateRidge(inference=True, hints=some).fit(X, y)
    with pytest.raises(ValueError, match="target_range is not accepted by a classifier"):
        tg.PrivateLogisticRegression(classes=[0, 1], hints=tg.Hints(target_range=(0, 1))).fit(X, y > 0)
    with pytest.raises(TypeError, match="hints must be a Hints"):
        tg.PrivateRidge(hints={"ranges": None}).fit(X, y)
    with pytest.raises(ValueError, match="hints are not accepted by method='clipped'"):
        tg.private_mean(X, 1.0, method="clipped", clip=1.0, hints=some)
    with pytest.raises(ValueError, match="leave target_range and exchangeable out"):
        tg.private_mean(X, 1.0, hints=tg.Hints(target_range=(0, 1)))
    with pytest.raises(ValueError, match="hints are not accepted with inference=True"):
        tg.private_mean(X, 1.0, hints=some, inference=True)


# Hints are told: in the report, in the file of the model, in its parameters.


def test_hints_are_recorded(tmp_path):
    X, y = table(300, 3)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    hints = tg.Hints(ranges={"a": (-5, 5)}, target_range=(-9, 9))
    model = tg.PrivateRidge(hints=hints).fit(frame, y)
    assert model.privacy_.parameters["hints"] == "a in [-5, 5]; target in [-9, 9]"
    assert "a in [-5, 5]" in str(model.privacy_)
    assert "a in [-5, 5]" in tg.FitReport(model).to_html()
    assert clone(model).hints == hints
    tg.save_model(model, tmp_path / "model.json")
    again = tg.load_model(tmp_path / "model.json")
    assert again.hints == hints
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    mean = tg.private_mean(frame, 1.0, hints=tg.Hints(ranges={"b": (-4, 4)}))
    assert mean.privacy.parameters["hints"] == "b in [-4, 4]"
    assert "hints" not in tg.PrivateRidge().fit(frame, y).privacy_.parameters


# Right hints help.

GOOD = {
    "ranges": tg.Hints(ranges=[(-5, 5)] * 10, target_range=(-10, 10)),
    "moment": tg.Hints(moment=1.0),
    "exchangeable": tg.Hints(exchangeable=True),
}
WRONG = {
    "ranges": tg.Hints(ranges=[(7, 9)] * 10),
    "target": tg.Hints(moment=1.0, target_range=(30, 40)),
    "moment": tg.Hints(moment=1e30),
    "small moment": tg.Hints(moment=1e-30),
    "categories": tg.Hints(categories=dict.fromkeys(range(10), (5, 6))),
}


@pytest.mark.parametrize("form", GOOD)
def test_with_few_rows_right_hints_find_slopes(form):
    """n = 1000, d = 10, epsilon = 1: twice the oracle's risk is .036. A fit has a risk above .09 in one of 30 runs or
    fewer, so a median of twelve is above it in one of a billion. Over that of a fit without hints on the same rows its
    logarithm has mean -1.1 to -1.6 and sd .8."""
    hinted, plain = [], []
    for seed in range(12):
        X, y = table(seed=seed)
        for found, hints in ((hinted, GOOD[form]), (plain, None)):
            model = tg.PrivateRidge(1.0, hints=hints, random_state=seed, threads=1).fit(X, y)
            found.append(slope_risk(model, X, y, seed))
    assert np.median(hinted) < 0.09
    assert np.mean(np.log(np.divide(hinted, plain))) < 0.0


@pytest.mark.parametrize("n", [2000, 6000], ids=["a small fit", "the default, narrowed"])
@pytest.mark.parametrize("form", GOOD)
def test_right_hints_do_not_make_a_fit_worse(form, n):
    """The logarithm of the ratio of two risks on the same rows has mean -.9 (n = 2000) or 0, and sd .6 at most.

    A mean of 15 is above log 1.7 in one of 3,000 runs or fewer.
    """
    logs = []
    for seed in range(15):
        X, y = table(n, seed=seed)
        risks = [
            slope_risk(tg.PrivateRidge(1.0, hints=hints, random_state=seed, threads=1).fit(X, y), X, y, seed)
            for hints in (GOOD[form], None)
        ]
        logs.append(math.log(risks[0] / risks[1]))
    assert np.mean(logs) < math.log(1.7)


def test_predictions_stay_in_the_target_range():
    X, y = table(2000, 3)
    model = tg.PrivateRidge(5.0, hints=tg.Hints(target_range=(0.0, 2.0)), random_state=0).fit(X, y)
    prediction = model.predict(10.0 * X)
    assert prediction.min() >= 0.0
    assert prediction.max() <= 2.0
    counts = tg.PrivatePoissonRegressor(5.0, hints=tg.Hints(target_range=(0.0, 4.0)), random_state=0)
    assert counts.fit(X, np.exp(y)).predict(10.0 * X).max() <= 4.0 * (1.0 + 1e-12)
    counts = tg.PrivatePoissonRegressor(0.5, hints=tg.Hints(target_range=(0.0, 1e-3)), random_state=0)
    level = counts.fit(X[:300], np.random.default_rng(1).poisson(100.0, 300))  # far beyond its range, and no slopes
    assert level.predict(10.0 * X).max() <= 1e-3 * (1.0 + 1e-12)


def test_ranges_bound_the_truncation_of_features():
    X, y = table(5000, 3)
    model = tg.PrivateRidge(5.0, hints=tg.Hints(ranges=[(-1, 2), None, (0, 9)]), random_state=0).fit(X, y)
    assert model.lower_[0] >= -1.0
    assert model.upper_[0] <= 2.0
    assert model.lower_[2] >= 0.0
    assert model.upper_[1] > 2.5  # nothing was said


def test_a_mean_with_a_range_is_more_accurate_with_few_rows():
    """Of 0/1 values, n = 200: noise of about 1/(n mu) = .02 in place of 0, which is what comes out unseen, or .1."""
    errors = {None: [], "range": [], "moment": []}
    for seed in range(15):
        x = (np.random.default_rng(seed).random(200) < 0.4).astype(float)
        for form, hints in ((None, None), ("range", tg.Hints(ranges=[(0, 1)])), ("moment", tg.Hints(moment=0.4))):
            value = tg.private_mean(x, 1.0, hints=hints, random_state=seed, threads=1).value
            errors[form].append(abs(value - 0.4))
    assert np.median(errors["range"]) < 0.09
    assert np.median(errors["range"]) < np.median(errors[None])


# Wrong ones cost accuracy, not privacy.


@pytest.mark.parametrize("form", WRONG)
def test_wrong_hints_cost_accuracy_and_not_privacy(form):
    X, y = table()
    plain = tg.PrivateRidge(1.0, random_state=0, threads=1).fit(X, y)
    for n in (1000, 400):  # a small fit, and the level only
        model = tg.PrivateRidge(1.0, hints=WRONG[form], random_state=0, threads=1).fit(X[:n], y[:n])
        assert model.privacy_.epsilon <= 1.0
        assert model.privacy_.delta == plain.privacy_.delta
        assert np.all(np.isfinite(model.coef_))
        assert np.all(np.isfinite(model.predict(X)))
    model = tg.PrivateRidge(1.0, hints=WRONG[form], random_state=0, threads=1).fit(X, y)
    assert model.privacy_.epsilon == pytest.approx(plain.privacy_.epsilon, rel=1e-6)
    assert model.privacy_.relation == plain.privacy_.relation
    right, wrong = (
        sum(np.mean((fit.predict(table(seed=seed)[0]) - table(seed=seed)[1]) ** 2) for seed, fit in enumerate(fits))
        for fits in (
            [tg.PrivateRidge(1.0, hints=h, random_state=k, threads=1).fit(*table(seed=k)) for k in range(3)]
            for h in (GOOD["moment"], WRONG[form])
        )
    )
    assert right < wrong


@pytest.mark.parametrize("estimator", [tg.PrivateRidge, tg.PrivateHuberRegressor, tg.PrivatePoissonRegressor])
def test_targets_of_another_world_than_their_range_are_fitted_without_a_word(estimator):
    """A range of 5 and a released scale of 1e290: the clip of the level is 1e-289, or 0."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 2))
    for scale in (1e290, 1e-290):
        y = scale * np.abs(1.0 + X[:, 0])
        model = estimator(10.0, hints=tg.Hints(target_range=(0, 5)), random_state=0, threads=1).fit(X, y)
        assert np.all(np.isfinite(model.coef_))
        assert np.all(np.isfinite(model.predict(X)))


@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
@pytest.mark.parametrize("budget", [tg.Budget(mu=0.06), 1.0, 10.0], ids=["level", "small", "Newton"])
@pytest.mark.parametrize(
    ("hints", "features", "target"),
    [
        (tg.Hints(moment=1e200), 1e150, 1.0),  # coefficients and constant cancel: one line in four is that of rounding
        (tg.Hints(moment=1e-200), 1.0, 1e300),
        (tg.Hints(moment=1e-200, target_range=(0, 1e-90)), 1e-280, 1e-300),
        (tg.Hints(exchangeable=True, target_range=(-9, -1)), 1.0, 1.0),
        (tg.Hints(ranges=[(1e99, 1e100)] * 3, target_range=(-1e-100, 1e-100)), 1e280, 1e-320),
        (None, 1e-300, 1e-320),
    ],
)
def test_no_mean_of_counts_is_zero_or_infinite_whatever_hints_say(hints, features, target, budget, intercept):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(1000, 3))
        y = target * rng.poisson(2.0 * np.exp(0.5 * X[:, 0]))
        model = tg.PrivatePoissonRegressor(budget, hints=hints, fit_intercept=intercept, random_state=seed, threads=1)
        means = model.fit(features * X, y).predict(features * X)
        assert np.all((means > 0.0) & (means < np.inf))


@pytest.mark.parametrize(
    ("estimator", "epsilon", "label"),
    [
        (tg.PrivateRidge, 1.0, "steps"),
        (tg.PrivatePoissonRegressor, 0.2, "tail"),  # a level
        (tg.PrivatePoissonRegressor, 1.0, "steps"),
        (tg.PrivatePoissonRegressor, 10.0, "curvature"),
    ],
)
@pytest.mark.parametrize("form", [*GOOD, *WRONG])
def test_a_hinted_model_is_a_function_of_what_was_released(monkeypatch, form, estimator, epsilon, label):
    """The releases of one table, played back to a fit of another, give the same model and report."""
    X, y = table()
    y = np.abs(y) if estimator is tg.PrivatePoissonRegressor else y
    hints = (GOOD | WRONG)[form]
    Taped.tape = []
    monkeypatch.setattr(default, "Queries", Taped)
    model = estimator(epsilon, hints=hints, random_state=0).fit(X, y)
    assert label in {event.label for event in model.privacy_.events}
    monkeypatch.setattr(default, "Queries", Replayed)
    for other, target in ((np.full_like(X, np.nan), np.full(1000, np.nan)), (1e6 * X**3, 1e9 * y)):
        tape = list(Taped.tape)
        twin = estimator(epsilon, hints=hints, random_state=0).fit(other, target)
        assert not Taped.tape  # every release was asked for again, and no other
        Taped.tape = tape
        assert_the_same(twin, model)


def test_which_fit_is_taken_is_public():
    """It depends on the hints, n, d and epsilon, not on the rows."""
    known = tg.Hints(moment=1.0).known(10)
    found = []
    for X in (np.zeros((1000, 10)), np.full((1000, 10), np.nan), table()[0]):
        model = tg.PrivateRidge(1.0, hints=tg.Hints(moment=1.0), random_state=0).fit(X, X[:, 0])
        found.append(model.privacy_.events[0])
    assert found[0] == found[1] == found[2]
    assert known.complete


def test_a_loss_is_told_of_hints_whatever_it_is():
    X, y = table(400, 2)
    hints = tg.Hints(moment=1.0)
    for loss, target in (
        (losses.Logistic(), np.sign(y)),
        (losses.Multinomial(3), np.clip(np.round(y), 0, 2)),
        (losses.Poisson(), np.abs(y)),
    ):
        options = default.DefaultOptions(2.0, random_state=0, hints=hints)
        assert "mean of x^2 at most 1" in default.fit_default(loss, X, target, options).privacy.parameters["hints"]


@pytest.mark.parametrize("form", GOOD)
def test_rows_in_files_give_the_same_bits(form, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    X, y = table()
    pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(10)} | {"y": y}), tmp_path / "rows.parquet")
    hints = GOOD[form]
    plain = tg.PrivateRidge(1.0, hints=hints, random_state=0).fit(X, y)
    for memory in (0, 2**20):  # read again on every pass, or kept
        source = tg.Source(tmp_path / "rows.parquet", memory=memory)
        streamed = tg.PrivateRidge(1.0, hints=hints, random_state=0).fit(source, "y")
        np.testing.assert_array_equal(streamed.coef_, plain.coef_)
        assert streamed.intercept_ == plain.intercept_


# From the terminal: the ranges of a schema are hints.


def test_a_schema_declares_ranges(tmp_path):
    from typer.testing import CliRunner

    from tailguard.cli import app
    from tailguard.tables import TableSchema

    rng = np.random.default_rng(0)
    age, sex, cost = rng.uniform(18, 90, 400), rng.integers(0, 2, 400), rng.lognormal(5, 1, 400)
    lines = ["age,sex,cost", *(f"{a:.1f},{'fm'[s]},{c:.2f}" for a, s, c in zip(age, sex, cost, strict=True))]
    (tmp_path / "claims.csv").write_text("\n".join(lines) + "\n")
    text = 'tailguard_schema = 1\n[columns]\nage = "number"\nsex = ["f", "m"]\ncost = "number"\n'
    text += "[ranges]\nage = [0, 120]\ncost = [0, 100000]\n"
    (tmp_path / "schema.toml").write_text(text)
    schema = TableSchema.read(tmp_path / "schema.toml")
    assert TableSchema.from_dict(schema.to_dict()) == schema
    model = tmp_path / "model.json"
    arguments = ["fit", str(tmp_path / "claims.csv"), "--schema", str(tmp_path / "schema.toml"), "--target", "cost"]
    done = CliRunner().invoke(app, [*arguments, "-o", str(model)])
    assert done.exit_code == 0, done.output
    told = tg.load_model(model).privacy_.parameters["hints"]
    assert told == "age in [0, 120]; sex=m one of 0, 1; target in [0, 100000]"
    for wrong, words in (
        ("[ranges]\nsex = [0, 1]\n", "ranges is about 'sex', which is not declared as a number"),
        ("[ranges]\nage = [1, 0]\n", r"ranges\['age'\] must be a pair"),
        ("ranges = 3\n", "ranges must be a table"),
    ):
        (tmp_path / "wrong.toml").write_text(
            wrong + text.partition("[ranges]")[0] if "= 3" in wrong else text.partition("[ranges]")[0] + wrong
        )
        with pytest.raises(ValueError, match=words):
            TableSchema.read(tmp_path / "wrong.toml")


ORIGIN = {
    "ranges": {"ranges": [(5.0, 10.0)]},
    "both ranges": {"ranges": [(5.0, 10.0)], "target_range": (10.0, 20.0)},
    "moment": {"moment": 100.0, "target_range": (10.0, 20.0)},
    "exchangeable": {"exchangeable": True, "target_range": (10.0, 20.0)},
}


@pytest.mark.parametrize("name", ["PrivateRidge", "PrivateHuberRegressor"])
@pytest.mark.parametrize("said", ORIGIN)
@pytest.mark.parametrize(("rows", "mu"), [(20_000, 1.0), (4000, 0.022)], ids=["narrowed", "small"])
def test_a_line_through_the_origin_takes_ranges_away_from_it(name, said, rows, mu):
    """What is not centred keeps its mean of 0: a coefficient is of the column, not of its distance from a range."""
    found = []
    for seed in range(5):  # with so little budget one fit of exchangeable columns in forty has no slope
        rng = np.random.default_rng(seed)
        X = rng.uniform(5.0, 10.0, (rows, 1))
        y = 2.0 * X[:, 0] + 0.1 * rng.normal(size=rows)
        hints = tg.Hints(**ORIGIN[said])
        model = getattr(tg, name)(tg.Budget(mu=mu), fit_intercept=False, hints=hints, random_state=seed).fit(X, y)
        found.append(model.coef_[0])
    assert np.median(found) == pytest.approx(2.0, abs=0.2)


def test_a_missing_value_counts_in_predictions_as_in_the_fit():
    """Through the origin it adds nothing, also where the range of its column begins elsewhere."""
    rng = np.random.default_rng(0)
    X = rng.uniform(5.0, 10.0, (20_000, 2))
    hints = tg.Hints(ranges=[(5.0, 10.0), (5.0, 10.0)])
    model = tg.PrivateRidge(5.0, fit_intercept=False, hints=hints, random_state=0).fit(X, X @ [2.0, 1.0])
    np.testing.assert_allclose(model.predict([[np.nan, np.nan], [np.nan, 7.0]]), [0.0, 7.0], atol=0.2)


def test_a_range_that_is_nowhere_near_a_column_is_a_mistake():
    """Through the origin it would make a large constant of the column, beside which no other counts."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = np.column_stack([rng.standard_t(2, 4000), rng.normal(size=4000)])
        hints = tg.Hints(ranges={0: (1e3, 2e3)})
        model = tg.PrivateRidge(tg.Budget(mu=0.5), fit_intercept=False, hints=hints, random_state=seed)
        model.fit(X, X.sum(axis=1) + rng.normal(size=4000))
        assert np.all(model.lower_ <= model.upper_)
        assert model.coef_[1] == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize("measured", [0, 5], ids=["indicators alone", "beside measurements"])
def test_ranges_of_rare_columns_do_not_make_slopes_of_noise(measured):
    """Most values are at one end of their range and the others too few to be seen: nothing is narrower than it is."""
    risks, n, prevalences = [], 3000, np.geomspace(0.5, 0.003, 5)
    hints = tg.Hints(ranges=[(-5.0, 5.0)] * measured + [(0.0, 1.0)] * 5)
    for seed in range(8):
        rng = np.random.default_rng([seed, 60])
        X, fresh = (
            np.column_stack([rng.standard_normal((rows, measured)), rng.random((rows, 5)) < prevalences])
            for rows in (n, 20_000)
        )
        w = rng.standard_normal(measured + 5) / fresh.std(axis=0)
        w /= np.std(fresh @ w)
        y = X @ w + rng.lognormal(0.0, 0.5, n)
        model = tg.PrivateRidge(0.5, hints=hints, random_state=seed).fit(X, y)
        risks.append(0.5 * np.var(model.predict(fresh) - fresh @ w))
    assert np.median(risks) < 0.3  # predicting the mean costs .5
    assert np.max(risks) < 0.7
