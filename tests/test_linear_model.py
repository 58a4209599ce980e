"""The estimators as scikit-learn citizens: checks, pipelines, frames, labels, errors, reports; and any data at all."""

from __future__ import annotations

import inspect
import math
import pickle
import warnings
from decimal import Decimal
from fractions import Fraction

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

import tailguard as tg
from tailguard.algorithms import METHOD_OF
from tailguard.constraints import L2Ball
from tailguard.engines import engine_for
from tailguard.engines.labels import places
from tailguard.linear_model.methods import METHODS, TAKES
from tailguard.linear_model.rows import checked_target

ESTIMATORS = {
    "ridge": tg.PrivateRidge,
    "huber": tg.PrivateHuberRegressor,
    "logistic": tg.PrivateLogisticRegression,
    "Poisson": tg.PrivatePoissonRegressor,
}
every_estimator = pytest.mark.parametrize("name", ESTIMATORS)
REGRESSORS = ("ridge", "huber", "Poisson")


def data(name: str, n: int = 2000, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows that fit the estimator, with a strong signal."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    z = X @ np.linspace(1.0, -1.0, d) * (0.5 if name == "Poisson" else 1.0)
    if name == "logistic":
        return X, (z + rng.logistic(size=n) > 0).astype(int)
    return X, rng.poisson(np.exp(z)).astype(float) if name == "Poisson" else z + 0.5 + 0.3 * rng.normal(size=n)


def fitted(name: str, epsilon: float = 5.0, **parameters):
    return ESTIMATORS[name](epsilon, random_state=0, **parameters).fit(*data(name))


def expected_failures(estimator) -> dict[str, str]:
    if isinstance(estimator, tg.PrivateLogisticRegression):
        return {}
    return {"check_supervised_y_no_nan": "no value of the data may raise: a missing target contributes nothing"}


@parametrize_with_checks(
    [estimator(random_state=0) for estimator in ESTIMATORS.values()], expected_failed_checks=expected_failures
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# Methods.

ARGUMENTS = {
    "auto": {},
    "clipped": {"clip": 2.0},
    "smoothed": {"v": 4.0},
    "trimmed": {"bounds": (-20.0, 20.0), "steps": 10},
    "aggregate": {"constraint": L2Ball(10.0)},
    "robust": {"v": 4.0},
}


@every_estimator
@pytest.mark.parametrize("method", METHODS)
def test_every_method_fits_and_predicts(name, method):
    X, y = data(name, 3000, 2)
    model = ESTIMATORS[name](20.0, method=method, random_state=0, **ARGUMENTS[method]).fit(X, y)
    assert model.predict(X).shape == (len(X),)
    assert np.all(np.isfinite(model.coef_))
    assert model.coef_.shape == ((1, 2) if name == "logistic" else (2,))
    assert (model.privacy_.epsilon <= 20.0) == (method != "robust")
    assert not model.privacy_.private
    if method in ("auto", "clipped", "robust"):  # enough budget to find the signal, not just to run
        assert np.corrcoef(model.predict(X), y)[0, 1] > 0.3


PARAMETERS = {
    "clip": 3,
    "v": 4.0,
    "scale": 2.0,
    "bounds": (-20.0, 20.0),
    "constraint": L2Ball(10.0),
    "blocks": 4,
    "steps": 10,
    "step_size": 0.1,
    "batch_size": 100,
}


@every_estimator
@pytest.mark.parametrize("method", METHODS)
def test_a_parameter_that_a_method_would_ignore_is_refused(name, method):
    """With its value, and the methods that take it; those refuse none of theirs."""
    X, y = data(name, 300)
    for parameter, value in PARAMETERS.items():
        takers = [other for other in METHODS if parameter in TAKES[other]]
        model = ESTIMATORS[name](20.0, method=method, random_state=0, **ARGUMENTS[method] | {parameter: value})
        if method in takers:
            model.fit(X, y)
            continue
        with pytest.raises(TypeError) as refused:
            model.fit(X, y)
        assert f"{parameter}={value!r} is not a parameter of method={method!r}" in str(refused.value)
        assert str(refused.value).endswith(f"takes it, {', '.join(map(repr, takers))}.")
    assert set(PARAMETERS) == {parameter for names in TAKES.values() for parameter in names}


def test_the_default_takes_no_threshold():
    X, y = data("huber", 300)
    with pytest.raises(TypeError, match=r"threshold=2\.0 is not a parameter of method='auto'"):
        tg.PrivateHuberRegressor(threshold=2.0).fit(X, y)
    tg.PrivateHuberRegressor(threshold=2.0, method="clipped", clip=1.0).fit(X, y)


@pytest.mark.parametrize(
    ("given", "meant"),
    [*METHOD_OF.items(), ("Clipped", "clipped"), ("smooth", "smoothed"), ("Auto", "auto")],
)
def test_an_unknown_method_is_told_the_likely_one(given, meant):
    X, y = data("ridge", 300)
    with pytest.raises(ValueError, match=f"got '{given}'. Did you mean '{meant}'"):
        tg.PrivateRidge(method=given).fit(X, y)
    if meant != "auto":
        with pytest.raises(ValueError, match=f"Did you mean '{meant}'"):
            tg.minimize(tg.losses.Squared(), X, y, method=given, epsilon=1.0)
    with pytest.raises(ValueError, match=r"'aggregate', 'robust'; got 'forest'$"):
        tg.PrivateRidge(method="forest").fit(X, y)


@every_estimator
@pytest.mark.parametrize("method", ["auto", "clipped", "robust"])
def test_without_an_intercept_the_model_goes_through_the_origin(name, method):
    model = fitted(name, method=method, fit_intercept=False, **ARGUMENTS[method])
    np.testing.assert_array_equal(model.intercept_, 0.0)
    at_origin = model.decision_function([[0.0] * 3]) if name == "logistic" else model.predict([[0.0] * 3])
    np.testing.assert_array_equal(at_origin, 1.0 if name == "Poisson" else 0.0)
    assert np.corrcoef(model.predict(data(name)[0]), data(name)[1])[0, 1] > 0.3


@every_estimator
def test_alpha_shrinks_the_coefficients_but_not_the_level(name):
    X, y = data(name)
    y = y + 40.0 if name in ("ridge", "huber") else y
    sizes = []
    for alpha in (0.0, 0.1, 1.0, 10.0, 1e6):
        model = ESTIMATORS[name](5.0, alpha=alpha, random_state=0).fit(X, y)
        sizes.append(np.linalg.norm(model.coef_))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 1e-4 * sizes[0]
    if name in ("ridge", "huber"):
        assert model.intercept_ == pytest.approx(40.5, abs=1.0)


def test_alpha_is_the_penalty_it_says():
    """Alpha/2 |w|^2 beside the mean of r^2/2: with n = 2e4 and much budget it is the ridge solution."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2)) * [1.0, 3.0]
    y = X @ [1.0, -1.0] + rng.normal(size=20_000)
    model = tg.PrivateRidge(20.0, alpha=0.5, random_state=0).fit(X, y)
    C = X.T @ X / len(X)
    np.testing.assert_allclose(model.coef_, np.linalg.solve(C + 0.5 * np.eye(2), X.T @ y / len(X)), atol=0.05)


# scikit-learn's tools.


@every_estimator
def test_clone_keeps_parameters_and_drops_what_was_fitted(name):
    model = fitted(name, alpha=0.25)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "privacy_")
    assert set(inspect.signature(type(model)).parameters) == set(model.get_params())


@every_estimator
def test_pickling_keeps_predictions_and_the_report(name):
    model = fitted(name)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(data(name)[0]), model.predict(data(name)[0]))
    assert copy.privacy_ == model.privacy_


@every_estimator
def test_in_a_pipeline_with_frames_out(name):
    X, y = data(name)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    double = FunctionTransformer(lambda X: 2.0 * X, feature_names_out="one-to-one")
    pipeline = make_pipeline(double, ESTIMATORS[name](5.0, random_state=0)).set_output(transform="pandas")
    pipeline.fit(frame, y)
    assert list(pipeline[-1].feature_names_in_) == ["a", "b", "c"]
    alone = ESTIMATORS[name](5.0, random_state=0).fit(2.0 * X, y)
    np.testing.assert_array_equal(pipeline[-1].coef_, alone.coef_)
    np.testing.assert_allclose(pipeline.predict(frame), alone.predict(2.0 * X), rtol=1e-10, atol=1e-12)


@every_estimator
def test_cross_validation_and_grid_search(name):
    X, y = data(name)
    scores = cross_val_score(ESTIMATORS[name](5.0, random_state=0), X, y, cv=3)
    assert np.all(scores > (0.5 if name != "Poisson" else 0.2))
    search = GridSearchCV(ESTIMATORS[name](5.0, random_state=0), {"alpha": [0.0, 1e6]}, cv=2).fit(X, y)
    assert search.best_params_ == {"alpha": 0.0}


@pytest.mark.parametrize("prefer", ["threads", "processes"])
def test_reports_come_back_from_workers_and_add_up(prefer):
    X, y = data("ridge", 500)
    fit = joblib.delayed(lambda seed: tg.PrivateRidge(random_state=seed, threads=1).fit(X, y))
    models = joblib.Parallel(n_jobs=2, prefer=prefer)(fit(seed) for seed in range(3))
    alone = [tg.PrivateRidge(random_state=seed).fit(X, y) for seed in range(3)]
    for model, same in zip(models, alone, strict=True):
        np.testing.assert_array_equal(model.coef_, same.coef_)
    total = models[0].privacy_ + models[1].privacy_ + models[2].privacy_
    assert len(total.events) == sum(len(model.privacy_.events) for model in models)
    assert 1.0 < total.epsilon <= 3.0


@every_estimator
def test_frames_of_pandas_and_polars_keep_names(name):
    X, y = data(name)
    plain = fitted(name)
    for frame in (pd.DataFrame(X, columns=["a", "b", "c"]), pl.DataFrame(X, schema=["a", "b", "c"])):
        target = pd.Series(y) if isinstance(frame, pd.DataFrame) else pl.Series(y)
        model = ESTIMATORS[name](5.0, random_state=0).fit(frame, target)
        assert list(model.feature_names_in_) == ["a", "b", "c"]
        np.testing.assert_array_equal(model.coef_, plain.coef_)
        np.testing.assert_allclose(model.predict(frame), plain.predict(X), rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pd.DataFrame(X, columns=["c", "b", "a"]))


@every_estimator
def test_a_column_of_a_frame_may_be_the_target(name):
    X, y = data(name)
    for frame in (pd.DataFrame(X, columns=["a", "b", "c"]), pl.DataFrame(X, schema=["a", "b", "c"])):
        whole = frame.assign(y=y) if isinstance(frame, pd.DataFrame) else frame.with_columns(y=pl.Series(y))
        model = ESTIMATORS[name](5.0, random_state=0).fit(whole, "y")
        assert list(model.feature_names_in_) == ["a", "b", "c"]
        np.testing.assert_array_equal(model.coef_, fitted(name).coef_)
        with pytest.raises(ValueError, match="'z' names a column, and there is a, b, c, y"):
            model.fit(whole, "z")
    with pytest.raises(ValueError, match="X has no names of columns"):
        model.fit(X, "y")


def test_columns_that_are_not_numbers_are_named():
    frame = pd.DataFrame({"age": [1.0, 2.0], "sex": ["f", "m"], "flag": [True, False], "ward": pd.Categorical([1, 2])})
    frame["big"] = pd.Series([10**400, 1], dtype=object)
    polars = pl.DataFrame({"age": [1.0, 2.0], "sex": ["f", "m"], "flag": [True, False]})
    for X, words in ((frame.drop(columns="ward"), "in 'sex':"), (polars, "in 'sex':")):
        with pytest.raises(ValueError, match=words) as refused:
            tg.PrivateRidge().fit(X, [1.0, 2.0])
        assert "could not convert" not in str(refused.value)
        assert refused.value.__context__ is None
    for series in (frame["age"], polars["age"]):
        with pytest.raises(ValueError, match=r"frame\[\['age'\]\], for one column"):
            tg.PrivateRidge().fit(series, [1.0, 2.0])


@every_estimator
def test_sparse_one_hot_columns_equal_dense_ones(name):
    X, y = data(name)
    codes = np.digitize(X[:, :1], [-1.0, 0.0, 1.0])
    frame = pd.DataFrame({"code": codes[:, 0], "x": X[:, 1]})
    sparse, dense = (
        make_pipeline(
            ColumnTransformer(
                [("code", OneHotEncoder(sparse_output=out), ["code"])], remainder="passthrough", sparse_threshold=1
            ),
            ESTIMATORS[name](5.0, random_state=0),
        ).fit(frame, y)
        for out in (True, False)
    )
    assert scipy.sparse.issparse(sparse[0].transform(frame))
    np.testing.assert_array_equal(sparse[-1].coef_, dense[-1].coef_)
    np.testing.assert_allclose(sparse.predict(frame), dense.predict(frame), rtol=1e-10, atol=1e-12)


# Labels.


def test_a_label_outside_classes_contributes_nothing():
    """A third of the labels is foreign. What is fitted is the model of the others, not one that calls them negative."""
    X, y = data("logistic", 6000)
    foreign = np.arange(6000) % 3 == 0
    model = tg.PrivateLogisticRegression(5.0, classes=[0, 1], random_state=0).fit(X, np.where(foreign, 7, y))
    assert list(model.classes_) == [0, 1]
    reference = LogisticRegression(C=np.inf).fit(X[~foreign], y[~foreign])
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=0.25)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, atol=0.25)


def test_a_label_outside_classes_does_not_move_the_level_of_a_small_fit():
    rng = np.random.default_rng(0)
    y = np.where(np.arange(2000) % 2, 7, rng.integers(0, 2, 2000))
    levels = [
        tg.PrivateLogisticRegression(0.05, classes=[0, 1], random_state=seed)
        .fit(rng.normal(size=(2000, 3)), y)
        .intercept_
        for seed in range(20)
    ]
    assert abs(np.mean(levels)) < 0.5


def test_without_classes_the_labels_are_those_of_y():
    X, y = data("logistic")
    names = np.array(["no", "yes"])[y]
    model = tg.PrivateLogisticRegression(5.0, random_state=0).fit(X, names)
    assert list(model.classes_) == ["no", "yes"]
    assert np.mean(model.predict(X) == names) > 0.7
    assert set(tg.PrivateLogisticRegression(5.0, classes=["yes", "no", "maybe"]).fit(X, names).classes_) == {
        "maybe",
        "no",
        "yes",
    }


@pytest.mark.parametrize("method", [{}, {"method": "clipped", "clip": 1.0}], ids=["auto", "clipped"])
def test_the_report_says_that_labels_were_taken_from_the_data(method):
    X, y = data("logistic", 300)
    told, silent = (
        tg.PrivateLogisticRegression(random_state=0, classes=classes, **method).fit(X, y).privacy_
        for classes in (None, [0, 1])
    )
    assert "found in y, treated as public" in str(told)
    assert "treated as public" not in str(silent)
    assert told.epsilon == silent.epsilon


@pytest.mark.parametrize("missing", [None, float("nan"), 3])
def test_a_missing_label_never_raises_where_classes_are_given(missing):
    X, y = data("logistic")
    names = np.array(["no", "yes"], dtype=object)[y]
    names[5] = missing
    tg.PrivateLogisticRegression(5.0, classes=["no", "yes"], random_state=0).fit(X, names)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_probabilities_of_all_classes_add_up_to_one(classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 3))
    y = np.digitize(X[:, 0] + rng.logistic(size=6000), np.linspace(-1.5, 1.5, classes + 1)[1:-1])
    model = tg.PrivateLogisticRegression(10.0, random_state=0).fit(X, y)
    probability = model.predict_proba(X)
    assert probability.shape == (6000, classes)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), probability, atol=1e-12)
    np.testing.assert_array_equal(model.classes_[np.argmax(probability, axis=1)], model.predict(X))
    assert model.coef_.shape == ((1, 3) if classes == 2 else (classes, 3))
    share = np.bincount(y) / len(y)
    constant = -np.sum(share * np.log(share))
    assert -np.mean(model.predict_log_proba(X)[np.arange(6000), y]) < constant - 0.05


# Reports.


@every_estimator
def test_the_report_is_shown_and_kept_to(name):
    model = fitted(name, epsilon=1.0)
    assert 0.0 < model.privacy_.epsilon <= 1.0
    assert model.privacy_.guarantee in model._repr_html_().replace("&#x27;", "'")
    assert "tailguard-report" not in ESTIMATORS[name]()._repr_html_()
    assert model.privacy_.n_rows == 2000


@every_estimator
def test_only_unseeded_noise_is_private(name):
    X, y = data(name, 300)
    private = ESTIMATORS[name](1.0).fit(X, y)
    assert private.privacy_.private
    assert "not private" not in str(private.privacy_)
    for seed in (0, np.random.default_rng(0), np.random.RandomState(0)):
        seeded = ESTIMATORS[name](1.0, random_state=seed).fit(X, y)
        assert not seeded.privacy_.private
        assert "not private" in str(seeded.privacy_)
        assert not (private.privacy_ + seeded.privacy_).private
    both = private.privacy_ + ESTIMATORS[name](1.0).fit(X, y).privacy_
    assert private.privacy_.epsilon < both.epsilon <= 2.0


def test_two_unseeded_fits_differ():
    X, y = data("ridge", 500)
    assert tg.PrivateRidge().fit(X, y).intercept_ != tg.PrivateRidge().fit(X, y).intercept_


# Errors name the argument, its value and what would be accepted.


@every_estimator
def test_sample_weight_is_refused_with_the_reason(name):
    X, y = data(name, 100)
    with pytest.raises(ValueError, match=r"sample_weight is not accepted.*per row"):
        ESTIMATORS[name]().fit(X, y, sample_weight=np.ones(100))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        ESTIMATORS[name]().fit(X, y, weights=1)
    ESTIMATORS[name]().fit(X, y, sample_weight=None)


@every_estimator
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"epsilon": 0.0}, ["epsilon", "0.0", "above 0"]),
        ({"epsilon": -1}, ["epsilon", "-1", "above 0"]),
        ({"epsilon": float("nan")}, ["epsilon", "nan"]),
        ({"epsilon": "much"}, ["epsilon", "'much'"]),
        ({"delta": 0.5}, ["delta", "0.5", "allow_large_delta"]),
        ({"alpha": -1.0}, ["alpha", "-1.0"]),
        ({"method": "magic"}, ["method", "'magic'", "auto"]),
        ({"method": "clipped"}, ["clip=None", "'clipped'", "clip=10.0"]),
        ({"method": "trimmed"}, ["bounds=None", "'trimmed'", "(-10.0, 10.0)"]),
        ({"method": "aggregate"}, ["constraint=None", "'aggregate'", "L2Ball"]),
        ({"method": "smoothed"}, ["v", "scale"]),
        ({"random_state": "seed"}, ["random_state", "'seed'"]),
    ],
)
def test_bad_parameters_are_refused(name, parameters, words):
    with pytest.raises((ValueError, TypeError)) as error:
        ESTIMATORS[name](**parameters).fit(*data(name, 100))
    for word in words:
        assert word in str(error.value)


def test_no_epsilon_is_refused():
    with pytest.raises((ValueError, TypeError), match="epsilon"):
        tg.PrivateRidge(None).fit(*data("ridge", 100))


@every_estimator
def test_wrong_shapes_are_refused(name):
    X, y = data(name, 100)
    with pytest.raises(ValueError, match=r"y has 99 values but X has 100 rows"):
        ESTIMATORS[name]().fit(X, y[:99])
    with pytest.raises(ValueError, match="requires y"):
        ESTIMATORS[name]().fit(X, None)
    with pytest.raises(ValueError, match="features"):
        ESTIMATORS[name](random_state=0).fit(X, y).predict(X[:, :2])


def test_one_public_class_is_refused():
    X, _ = data("logistic", 100)
    with pytest.raises(ValueError, match="at least two labels"):
        tg.PrivateLogisticRegression(classes=[1]).fit(X, np.ones(100))


# No value of the data raises or warns (warnings are errors here), and predictions are finite.

BAD = {
    "missing": lambda X, y: (np.where(X > 1, np.nan, X), y),
    "all missing": lambda X, y: (np.full_like(X, np.nan), y),
    "infinite": lambda X, y: (np.where(X > 1, np.inf, np.where(X < -1, -np.inf, X)), y),
    "huge": lambda X, y: (np.where(X > 1, 1e308, X), y),
    "all huge": lambda X, y: (np.sign(X) * 1e308, y),
    "tiny": lambda X, y: (X * 1e-308, y),
    "constant columns": lambda X, y: (np.full_like(X, 3.0), y),
    "zero columns": lambda X, y: (np.zeros_like(X), y),
    "the same column": lambda X, y: (np.repeat(X[:, :1], X.shape[1], axis=1), y),
    "zero target": lambda X, y: (X, np.zeros_like(y)),
    "constant target": lambda X, y: (X, np.ones_like(y)),
}
BAD_TARGETS = {
    "missing target": lambda y: np.where(np.arange(len(y)) % 3, y, np.nan),
    "all missing target": lambda y: np.full(len(y), np.nan),
    "infinite target": lambda y: np.where(y > 1, np.inf, np.where(y < 0, -np.inf, y)),
    "huge target": lambda y: np.where(y > 1, 1e308, -1e308),
    "negative target": lambda y: -1.0 - np.abs(y),
}


@every_estimator
@pytest.mark.parametrize("bad", [*BAD, *BAD_TARGETS])
@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
def test_no_value_raises_or_warns(name, bad, intercept):
    X, y = data(name, 1000)
    X, y = BAD[bad](X, y) if bad in BAD else (X, BAD_TARGETS[bad](y.astype(float)))
    parameters = {"classes": [0, 1]} if name == "logistic" else {}
    model = ESTIMATORS[name](3.0, random_state=0, fit_intercept=intercept, threads=2, **parameters).fit(X, y)
    for rows in (X, np.full((1, 3), np.nan), np.full((1, 3), -np.inf), np.full((1, 3), 1e308)):
        assert np.all(np.isfinite(model.predict(rows)))
        if name == "logistic":
            assert np.all(np.isfinite(model.predict_log_proba(rows)))


@pytest.mark.parametrize("value", [0, 1])
def test_one_class_in_y_is_no_error_where_classes_are_given(value):
    X, _ = data("logistic", 1000)
    model = tg.PrivateLogisticRegression(3.0, classes=[0, 1], random_state=0).fit(X, np.full(1000, value))
    assert np.mean(model.predict(X) == value) > 0.95


def test_missing_values_mean_the_same_in_fit_and_predict():
    X, y = data("ridge")
    X = X + 1000.0
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    model = tg.PrivateRidge(5.0, random_state=0).fit(X, y)
    assert np.mean((model.predict(X) - y) ** 2) < np.var(y)


def test_messages_do_not_repeat_data():
    X, y = data("ridge", 100)
    y = y.astype(object)
    y[3] = "HIV positive"
    with pytest.raises((ValueError, TypeError)) as error:
        tg.PrivateRidge().fit(X, y)
    assert "HIV" not in str(error.value)


def test_texts_that_are_no_paths_are_not_repeated():
    """A list of texts may be data."""
    for texts in (["HIV", "HIV positive"] * 500, ("HIV", "HIV positive")):
        for call in (tg.private_mean, lambda X: tg.PrivateRidge().fit(X, "y")):
            with pytest.raises(FileNotFoundError, match="give numbers, or paths of files that exist") as error:
                call(texts)
            assert "HIV" not in str(error.value)


@every_estimator
def test_a_wrong_parameter_is_one_of_the_class_that_was_called(name):
    kind = ESTIMATORS[name]
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\.__init__\(\) got an unexpected .* 'epsilonn'"):
        kind(epsilonn=1)


@every_estimator
def test_what_is_not_fitted_has_no_intervals(name):
    for call in (ESTIMATORS[name]().summary, ESTIMATORS[name]().conf_int):
        with pytest.raises(NotFittedError):
            call()


@pytest.mark.parametrize("classes", ["yes", 3, {0, 1}], ids=str)
def test_classes_are_a_sequence(classes):
    X, y = data("logistic", 300)
    with pytest.raises(TypeError, match=r"classes must be a sequence of labels, for example classes=\['no', 'yes'\]"):
        tg.PrivateLogisticRegression(classes=classes).fit(X, y)


def test_a_lazy_frame_is_to_be_collected():
    X, y = data("ridge", 300)
    frame = pl.DataFrame(X, schema=["a", "b", "c"])
    model = tg.PrivateRidge().fit(frame, y)
    for call in (
        lambda lazy: tg.PrivateRidge().fit(lazy, "c"),
        lambda lazy: tg.PrivateRidge().fit(lazy, y),
        lambda lazy: tg.PrivateRidge().fit(lazy, y, groups="a"),
        lambda lazy: tg.minimize(tg.losses.Squared(), lazy, y, method="clipped", epsilon=1.0, clip=1.0),
        tg.private_mean,
        tg.PrivateScaler().fit,
        model.predict,
    ):
        with pytest.raises(TypeError, match=r"X is a LazyFrame of polars.*: give X\.collect\(\)"):
            call(frame.lazy())


@pytest.mark.parametrize("estimator", [tg.PrivateRidge, tg.PrivateHuberRegressor, tg.PrivatePoissonRegressor])
def test_a_row_of_zeros_says_nothing_whatever_the_threads(estimator):
    """A warning from another thread would be one row's word: errors are on in every thread."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 3))
    X[7] = 0.0
    X[8] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for threads in (1, 2, 3):
            estimator(epsilon=50.0, fit_intercept=False, threads=threads, random_state=0).fit(X, np.abs(X[:, 0]))


@pytest.mark.parametrize(
    "bad", [np.full((30, 2), 1.0 + 2.0j), [["secret", 1.0]] * 30, [["a secret feature of this sample", 1.0]] * 30]
)
def test_an_error_about_values_repeats_none_of_them(bad):
    with pytest.raises((ValueError, TypeError)) as error:
        tg.PrivateRidge().fit(np.array(bad, dtype=None if isinstance(bad, np.ndarray) else object), np.zeros(30))
    assert error.value.__context__ is None
    for value in ("secret", "1.+2"):
        assert value not in str(error.value)


def test_a_whole_number_of_any_size_is_a_value_and_does_not_raise():
    """Where columns are Python objects: what is too large for a float is infinite, as it is in a float column."""
    X, y = data("ridge", 300)
    large, infinite = X.astype(object), X.copy()
    large[3, 0], large[4, 1], infinite[3, 0], infinite[4, 1] = 10**400, -(10**400), np.inf, -np.inf
    targets = y.astype(object), y.copy()
    targets[0][5], targets[1][5] = 10**400, np.inf
    expected = tg.PrivateRidge(random_state=0).fit(infinite, targets[1])
    frame = pd.DataFrame(large, columns=["a", "b", "c"])
    for rows in (large, large.tolist(), frame):
        model = tg.PrivateRidge(random_state=0).fit(rows, targets[0])
        np.testing.assert_array_equal(model.coef_, expected.coef_)
        np.testing.assert_array_equal(model.predict(rows), expected.predict(infinite))


@pytest.mark.parametrize("value", [2j, np.complex128(1.0 + 2.0j)])
def test_a_complex_number_among_objects_is_refused_as_a_text_is(value):
    """And not made a real one with a warning, which would say that it is there."""
    X, y = np.ones((300, 2)).astype(object), np.ones(300).astype(object)
    X[3, 1], y[5] = value, value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows, targets in ((X, np.ones(300)), (pd.DataFrame(X), np.ones(300)), (np.ones((300, 2)), y)):
            with pytest.raises((TypeError, ValueError), match=r"not numbers|[Cc]omplex"):
                tg.PrivateRidge(random_state=0).fit(rows, targets)
        with pytest.raises(TypeError, match="give real numbers"):
            tg.private_mean(y)


def test_labels_that_cannot_be_labels_are_foreign():
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = np.array([0, 1] * 150, dtype=object)
    y[3], y[4], y[5] = [1], {"a": 1}, None
    model = tg.PrivateLogisticRegression(classes=[0, 1], random_state=0).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


STRANGE = ["?", b"x", np.str_("q"), None, 2**64, 10**400, math.nan, 2j, [1], ["?"], [[1]], (1, 2), np.array([1, 2])]
STRANGE += [np.array("?"), np.array(["?"]), 2.5, True, Decimal("sNaN"), Fraction(1, 3), {"a": 1}, object()]


@pytest.mark.parametrize(
    "strange", STRANGE, ids=[str(type(value).__name__) + str(k) for k, value in enumerate(STRANGE)]
)
@pytest.mark.parametrize("classes", [[0, 1], [0.0, 1.0], ["no", "yes"], [2**53, 2**53 + 2]], ids=str)
@pytest.mark.parametrize(
    "each", [lambda label: label, lambda label: [label], np.array], ids=["plain", "in lists", "0-d"]
)
def test_a_label_in_a_list_changes_its_own_row_and_no_other(strange, classes, each):
    """A list has no type: NumPy would find one for all of it, and make texts of all numbers beside a text."""
    y = [each(classes[k % 2]) for k in range(50)]
    changed = [*y[:7], strange, *y[8:]]
    rows = np.ones((50, 1))
    found = []
    for labels in (y, changed):
        target = places(checked_target(labels, 50, None), classes)
        found.append(target)
        encoded = engine_for(rows, labels, target="label").encoded(classes, np.array([0.0, 1.0])).take(np.arange(50))
        np.testing.assert_array_equal(encoded[1], target)
    assert set(np.flatnonzero(~((found[0] == found[1]) | (np.isnan(found[0]) & np.isnan(found[1]))))) <= {7}
    np.testing.assert_array_equal(found[0], np.arange(50) % 2)


@pytest.mark.parametrize("dtype", [object, np.int64, np.uint64, np.float64, np.float32, bool])
def test_a_label_is_found_by_the_same_rule_in_any_type(dtype):
    """By the nearest float, beyond 2^53 too, where that is the same for several whole numbers."""
    y = np.array([0, 1, 1, 0] if dtype is bool else [0, 1, 2**53, 2**53 + 2], dtype=dtype)
    for classes in ([0, 1], [1, 2**53, 2**53 + 4], [2**53 + 1, 0.5], [True, 2**70]):
        place = {float(label): k for k, label in enumerate(classes)}
        np.testing.assert_array_equal(places(y, classes), [place.get(float(label), math.nan) for label in y.tolist()])


@pytest.mark.parametrize(
    "column",
    [
        list,
        lambda y: pd.Series(y, dtype="Int64"),
        lambda y: pd.Series(pd.Categorical(y, categories=[2**53, 2**53 + 2])),
        lambda y: pd.DataFrame({"y": pd.Series(y, dtype="Int64")}),
        lambda y: pl.Series(y, dtype=pl.Int64),
        lambda y: pl.DataFrame({"y": pl.Series(y, dtype=pl.Int64)}),
        lambda y: pa.array(y, pa.int64()),
        lambda y: pa.chunked_array([pa.array(y[:20], pa.int64()), pa.array(y[20:], pa.int64())]),
    ],
    ids=["list", "pandas", "categories", "frame", "polars", "frame of polars", "arrow", "chunks"],
)
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_a_missing_label_changes_its_own_row_and_no_other(column):
    """A column of whole numbers becomes one of floats by it."""
    y = [2**53 + 2 * (k % 2) for k in range(50)]
    expected = np.arange(50) % 2.0
    np.testing.assert_array_equal(places(checked_target(column(y), 50, None), [2**53, 2**53 + 2]), expected)
    y[7], expected[7] = None, math.nan
    np.testing.assert_array_equal(places(checked_target(column(y), 50, None), [2**53, 2**53 + 2]), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.longdouble])
def test_a_label_that_is_no_float64_is_no_warning(dtype):
    """A signalling NaN of 32 bits, and a number beyond the largest float."""
    y = (np.arange(50) % 2).astype(dtype)
    if dtype is np.float32:
        y.view(np.uint32)[0] = 0x7FA00000
    else:
        y[0] = np.longdouble("1e4000")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = places(checked_target(y, 50, None), [0, 1])
    np.testing.assert_array_equal(found, [math.nan, *(np.arange(1, 50) % 2)])


def test_whole_numbers_that_are_one_float_are_no_two_classes():
    model = tg.PrivateLogisticRegression(classes=[2**53, 2**53 + 1])
    with pytest.raises(ValueError, match=r"classes has whole numbers of 2\*\*53 or more.*: give texts, or numbers"):
        model.fit(np.ones((4, 1)), [2**53, 2**53 + 1] * 2)


@pytest.mark.parametrize("groups", [None, np.arange(40) // 4])
def test_a_list_as_a_label_is_foreign_with_persons_too(groups):
    """A refusal would name the number of rows."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = [0, 1] * 20
    for strange in ([1, 2], (1, 2), np.array([1, 2])):
        y[5] = strange
        tg.PrivateLogisticRegression(classes=[0, 1], random_state=0).fit(X, y, groups=groups)


@pytest.mark.parametrize("labels", [[0, 1, "?", 1], ["a", b"b", "a", "b"]])
def test_texts_beside_others_are_no_set_of_labels(labels):
    with pytest.raises(ValueError, match=r"y has texts and other labels: name the classes"):
        tg.PrivateLogisticRegression().fit(np.ones((4, 1)), labels)
    with pytest.raises(ValueError, match=r"classes has texts and other labels: give texts, or numbers"):
        tg.PrivateLogisticRegression(classes=labels).fit(np.ones((4, 1)), labels)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(("n", "epsilon"), [(300, 1.0), (1500, 1.0), (8000, 2.0)])
def test_the_reported_price_is_that_of_the_algorithm_and_not_of_what_it_saw(name, n, epsilon):
    """The whole budget, though fits to nothing ask fewer questions: what was not spent is in the report, too."""
    prices = set()
    rng = np.random.default_rng(0)
    classes = {"classes": [0, 1]} if name == "logistic" else {}
    for X, y in (
        (np.zeros((n, 3)), np.zeros(n)),
        (np.full((n, 3), np.nan), np.full(n, np.nan)),
        (rng.normal(1000.0, 1.0, (n, 3)), rng.integers(0, 2, n)),
    ):
        report = ESTIMATORS[name](epsilon, random_state=0, **classes).fit(X, y).privacy_
        prices.add(round(report.epsilon, 7))
    for x in (np.zeros(n), np.full(n, np.nan), rng.normal(1000.0, 1.0, n), rng.lognormal(9.0, 2.0, (n, 5))):
        prices.add(round(tg.private_mean(x, epsilon, random_state=0).privacy.epsilon, 7))
    assert prices == {epsilon}


def test_a_predicted_mean_may_be_as_small_as_it_is():
    """Next to nothing at least; and somebody who has floats raise still gets the exp of minus a thousand, 0."""
    model = fitted("Poisson")
    model.intercept_ = -1000.0
    with np.errstate(all="raise"):
        assert np.all((model.predict(np.zeros((3, 3))) > 0.0) & (model.predict(np.zeros((3, 3))) < 1e-6))
        model._floor = -np.inf
        np.testing.assert_array_equal(model.predict(np.zeros((3, 3))), 0.0)
