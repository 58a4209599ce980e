"""Wrong arguments: the error names the argument, shows the value and says what is accepted. Data values never raise."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from tailguard import Budget, losses, minimize, private_mean
from tailguard.algorithms import algorithm1, algorithm2, algorithm3, algorithm4, clipped_gd, robust_gd
from tailguard.constraints import Box, L2Ball, Unconstrained

N, D = 120, 3
rng = np.random.default_rng(0)
X, Y = rng.standard_normal((N, D)), rng.standard_normal(N)
SQUARED = losses.Squared()
# An error says what would be accepted in one of these ways.
ACCEPTED = ("must be", "give", "one of", "options are", "which takes", "needs", "leave it out", "put it into")


def check(call, argument: str, shown: str) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        call()
    message = str(error.value)
    assert argument in message, message
    assert shown in message, message
    assert any(words in message for words in ACCEPTED), message


def case(argument: str, value: object, shown: str | None = None):
    return argument, value, repr(value) if shown is None else shown


DESCENDING = {
    "algorithm4": partial(algorithm4, loss=SQUARED, X=X, y=Y, epsilon=1.0, v=5.0),
    "clipped_gd": partial(clipped_gd, loss=SQUARED, X=X, y=Y, epsilon=1.0, clip=3.0),
    "algorithm3": partial(algorithm3, loss=SQUARED, X=X, y=Y, epsilon=1.0, a=-3.0, b=3.0),
    "robust_gd": partial(robust_gd, loss=SQUARED, X=X, y=Y, v=5.0),
    "minimize": partial(minimize, loss=SQUARED, X=X, y=Y, epsilon=1.0, method="clipped", clip=3.0),
}
FITS = DESCENDING | {
    "algorithm1": partial(algorithm1, loss=SQUARED, X=X, y=Y, epsilon=1.0, constraint=L2Ball(5.0), blocks=10),
}
MEANS = {
    "algorithm2": partial(algorithm2, x=X, epsilon=1.0, a=-1.0, b=1.0),
    "private_mean": partial(private_mean, x=X, epsilon=1.0),
    "private_mean, clipped": partial(private_mean, x=X, epsilon=1.0, method="clipped", clip=1.0),
    "private_mean, smoothed": partial(private_mean, x=X, epsilon=1.0, method="smoothed", v=1.0),
    "private_mean, trimmed": partial(private_mean, x=X, epsilon=1.0, method="trimmed", bounds=(-1.0, 1.0)),
}
PRIVATE = {name: call for name, call in (FITS | MEANS).items() if name != "robust_gd"}


@pytest.mark.parametrize("name", FITS | MEANS)
def test_right_arguments_do_not_raise(name):
    (FITS | MEANS)[name]()


# What all of them share.


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize(
    ("argument", "value", "shown"),
    [
        *(case("epsilon", value) for value in (0, 0.0, -1.0, math.nan, math.inf, "1", True, [1.0])),
        *(case("delta", value) for value in (0.0, 1.0, 1.5, -1e-6, math.nan, "1e-6", True)),
        case("delta", 1 / N),
        case("random_state", "seed"),
        case("random_state", 1.5),
        case("threads", 0),
        case("threads", 1.5),
    ],
)
def test_wrong_promises_are_refused(name, argument, value, shown):
    check(partial(PRIVATE[name], **{argument: value}), argument, shown)


@pytest.mark.parametrize(
    "name",
    [
        "minimize",
        *(pytest.param(name) for name in ("algorithm4", "clipped_gd", "algorithm3", "algorithm1")),
        *(name for name in MEANS if name != "algorithm2"),
    ],
)
def test_no_promise_at_all_is_refused_by_name(name):
    check(partial(PRIVATE[name], epsilon=None), "epsilon", "None")


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize(
    "epsilon",
    [
        1e-12,
        100.0,
        pytest.param(1e-300),
    ],
)
def test_an_extreme_promise_is_kept_or_refused_by_name(name, epsilon):
    try:
        kept = PRIVATE[name](epsilon=epsilon).privacy.epsilon <= epsilon
    except ValueError as error:
        kept = "epsilon" in str(error)
    assert kept


@pytest.mark.parametrize(
    "name",
    [
        name if name not in ("algorithm3", "algorithm2", "private_mean, trimmed") else pytest.param(name)
        for name in PRIVATE
    ],
)
def test_a_promise_of_nothing_is_kept_or_refused_by_name(name):
    test_an_extreme_promise_is_kept_or_refused_by_name(name, 1e9)


def test_a_budget_brings_its_own_delta():
    for name in PRIVATE:
        check(partial(PRIVATE[name], epsilon=Budget(1.0, 1e-7), delta=1e-7), "delta", "1e-07")


BAD_TABLES = [
    ("has shape (120,)", X[:, 0]),
    ("has shape (0, 3)", X[:0]),
    ("has shape (120, 0)", X[:, :0]),
    ("has shape (2, 60, 3)", X.reshape(2, 60, 3)),
    ("has dtype text", X.astype(str)),
    ("has dtype object", X.astype(object)),
    ("has dtype complex128", X + 1j),
    ("has dtype datetime64", np.zeros((N, D), dtype="datetime64[s]")),
    ("has dtype object", None),
]
RAGGED = [[1.0], [2.0, 3.0]] * (N // 2)


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize(
    ("shown", "table"),
    [*BAD_TABLES, pytest.param("X", RAGGED)],
)
def test_tables_of_the_wrong_shape_or_type_are_refused(name, shown, table):
    check(partial(FITS[name], X=table), "X", shown)


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize(
    ("shown", "table"),
    [
        *((shown, table) for shown, table in BAD_TABLES if shown != "has shape (120,)"),
        ("has shape ()", 3.0),
        pytest.param("x", RAGGED),
    ],
)
def test_columns_of_the_wrong_shape_or_type_are_refused(name, shown, table):
    check(partial(MEANS[name], x=table), "x", shown)


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize(
    ("shown", "target"),
    [
        ("has shape (119,)", Y[:-1]),
        ("has shape (121,)", np.append(Y, 1.0)),
        ("has shape (120, 3)", X),
        ("has shape ()", 1.0),
        ("has dtype text", Y.astype(str)),
        ("has dtype object", Y.astype(object)),
        ("has dtype complex128", Y + 1j),
    ],
)
def test_targets_of_the_wrong_shape_or_type_are_refused(name, shown, target):
    check(partial(FITS[name], y=target), "y", shown)


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("wrong", ["squared", losses.Squared, None, np.tanh])
def test_what_is_not_a_loss_is_refused(name, wrong):
    check(partial(FITS[name], loss=wrong), "loss", repr(wrong))


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("wrong", ["ball", 5.0, None, L2Ball])
def test_what_is_not_a_constraint_is_refused(name, wrong):
    check(partial(FITS[name], constraint=wrong), "constraint", repr(wrong))


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        (L2Ball(1.0, [0.0, 0.0]), "center has shape (2,) but there are 3 coefficients"),
        (Box([0.0] * 4, [1.0] * 4), "lo has shape (4,) but there are 3 coefficients"),
        (Box(0.0, [1.0, 1.0]), "hi has shape (2,) but there are 3 coefficients"),
    ],
)
def test_a_constraint_of_the_wrong_dimension_is_refused(name, wrong, shown):
    check(partial(FITS[name], constraint=wrong), "constraint", shown)


@pytest.mark.parametrize("name", FITS)
def test_an_unknown_argument_is_refused_by_name(name):
    with pytest.raises(TypeError, match="learning_rate"):
        FITS[name](learning_rate=0.1)


@pytest.mark.parametrize("name", DESCENDING)
@pytest.mark.parametrize(
    ("argument", "value", "shown"),
    [
        *(case("steps", value) for value in (0, -1, 2.5, "10", True, None)),
        *(case("step_size", value) for value in ("fast", 0.0, -0.1, math.nan, math.inf, True, None)),
        *(case("alpha", value) for value in (-1.0, math.nan, math.inf, "1", None)),
        *(case("average", value) for value in ("median", 3, None)),
        *(case("relation", value) for value in ("swap", 3)),
        *(case("start", value, shape) for value, shape in ((np.zeros(2), "(2,)"), ([0.0, 0.0, math.nan], "(3,)"))),
        case("resume", "state"),
        pytest.param(*case("start", "zero")),
        pytest.param(*case("callback", 3)),
        pytest.param(*case("fit_intercept", "no")),
        pytest.param(*case("step_size", np.array([0.1, 0.2]))),
    ],
)
def test_wrong_parts_of_a_descent_are_refused(name, argument, value, shown):
    check(partial(DESCENDING[name], **{argument: value}), argument, shown)


@pytest.mark.parametrize("name", ["algorithm4", "clipped_gd", "robust_gd", "minimize"])
@pytest.mark.parametrize("wrong", [0, -3.0, N + 1, math.nan, math.inf, "10", True])
def test_batches_no_larger_than_the_table_and_not_empty(name, wrong):
    check(partial(DESCENDING[name], batch_size=wrong), "batch_size", repr(wrong))


# What each of them needs.


@pytest.mark.parametrize(
    ("name", "argument", "value", "shown"),
    [
        *(("clipped_gd", *case("clip", value)) for value in (0.0, -1.0, math.nan, math.inf, "1", None, True)),
        *(("minimize", *case("clip", value)) for value in (0.0, -1.0, math.nan, "1")),
        *((name, *case("v", value)) for name in ("algorithm4", "robust_gd") for value in (0.0, -1.0, math.nan, "5")),
        *((name, *case("v", None)) for name in ("algorithm4", "robust_gd")),
        *(
            (name, *case("scale", value))
            for name in ("algorithm4", "robust_gd")
            for value in (0.0, -1.0, math.inf, "1")
        ),
        *((name, *case("beta", value)) for name in ("algorithm4", "robust_gd") for value in (0.0, -1.0, 1e6, "1")),
        *((name, *case("failure", value)) for name in ("algorithm4", "robust_gd") for value in (0.0, 1.0, -0.1, "1")),
        *(("algorithm4", *case("setting", value)) for value in ("best", "printed", 3)),
        *(("algorithm3", *case("setting", value)) for value in ("best", None)),
        *((name, *case("b", value)) for name in ("algorithm3", "algorithm2") for value in (-3.0, -4.0, math.nan, "3")),
        *((name, *case("a", value)) for name in ("algorithm3", "algorithm2") for value in (-math.inf, math.nan, "3")),
        *((name, *case("m", value)) for name in ("algorithm3", "algorithm2") for value in (-1, 2.5, N // 2, 10**9)),
        *((name, *case("spread", value)) for name in ("algorithm3", "algorithm2") for value in (0.0, -1.0, "1")),
        ("algorithm3", *case("relation", "add-remove")),
        ("algorithm3", *case("batch_size", 10, "batch_size")),
        ("algorithm2", *case("setting", "best")),
        ("algorithm2", *case("rho", 0.5, "rho")),
        *(("algorithm1", *case("blocks", value)) for value in (0, -1, 2.5, "10", N + 1)),
        *(("algorithm1", *case("aggregator", value)) for value in ("mean", None)),
        *(("algorithm1", *case("alpha", value)) for value in (-1.0, math.nan, "1")),
        ("algorithm1", *case("constraint", Unconstrained())),
        *(("minimize", *case("method", value)) for value in ("fast", "Clipped", None, 3)),
        ("minimize", *case("epsilon", None)),
        *(("private_mean", *case("method", value)) for value in ("fast", "center", None)),
        *(("private_mean", *case("relation", value)) for value in ("swap", None)),
        ("private_mean, trimmed", *case("relation", "add-remove")),
        *(("private_mean, clipped", *case("clip", value)) for value in (0.0, -1.0, math.nan, "1", None)),
        *(("private_mean, smoothed", *case("v", value)) for value in (0.0, -1.0, "1", None)),
        *(("private_mean, smoothed", *case("scale", value)) for value in (0.0, -1.0, "1")),
        *(("private_mean, smoothed", *case("failure", value)) for value in (0.0, 1.0)),
        *(("private_mean, trimmed", *case("bounds", value)) for value in (None, (1.0,), (1.0, 2.0, 3.0))),
        pytest.param("private_mean, trimmed", *case("bounds", 5.0)),
        pytest.param("private_mean, trimmed", *case("bounds", (1.0, -1.0))),
        pytest.param("private_mean, trimmed", *case("trim", N // 2)),
        pytest.param("private_mean, trimmed", *case("trim", 2.5)),
        pytest.param("private_mean, smoothed", *case("clip", 3.0)),
        pytest.param("private_mean, clipped", *case("v", 3.0)),
        pytest.param("private_mean", *case("bounds", (0.0, 1.0))),
    ],
)
def test_wrong_parameters_are_refused(name, argument, value, shown):
    check(partial((FITS | MEANS)[name], **{argument: value}), argument, shown)


@pytest.mark.parametrize(
    ("method", "needs"), [("clipped", "clip"), ("smoothed", "v"), ("trimmed", "a"), ("aggregate", "constraint")]
)
def test_minimize_says_what_a_method_needs(method, needs):
    with pytest.raises((TypeError, ValueError), match=rf"\b{needs}\b"):
        minimize(SQUARED, X, Y, method=method, epsilon=1.0)


@pytest.mark.parametrize(
    ("promise", "shown"),
    [({"epsilon": 1.0}, "epsilon=1.0"), pytest.param({"delta": 1e-6}, "delta=1e-06")],
)
def test_the_method_without_privacy_takes_no_promise(promise, shown):
    with pytest.raises(ValueError, match="not private: leave it out") as error:
        minimize(SQUARED, X, Y, method="robust", v=5.0, **promise)
    assert shown in str(error.value)


def test_a_parameter_of_another_method_is_refused_by_minimize():
    with pytest.raises(TypeError, match=r"clip is not a parameter of method='smoothed'"):
        minimize(SQUARED, X, Y, method="smoothed", epsilon=1.0, v=5.0, clip=1.0)


def test_exactly_one_promise_for_algorithm2():
    for promise in ({}, {"epsilon": 1.0, "rho": 0.5}):
        with pytest.raises(ValueError, match="epsilon"):
            algorithm2(X, a=-1.0, b=1.0, **promise)


def test_the_papers_settings_need_epsilon_and_delta():
    for fit in (
        partial(algorithm4, SQUARED, X, Y, v=5.0, setting="paper"),
        partial(algorithm3, SQUARED, X, Y, a=-1.0, b=1.0, setting="paper"),
        partial(algorithm2, X, a=-1.0, b=1.0, setting="paper"),
    ):
        check(partial(fit, epsilon=Budget(rho=0.1)), "setting='paper'", "rho")


def test_poisson_batches_need_epsilon_and_delta():
    check(partial(DESCENDING["clipped_gd"], epsilon=Budget(rho=0.1), batch_size=10), "budget", "Budget(rho=0.1)")


def test_an_intercept_does_not_go_with_per_row_gradients():
    per_row = losses.PerRow(lambda w, X, y: X)
    check(partial(DESCENDING["clipped_gd"], loss=per_row, fit_intercept=True), "fit_intercept", "True")


def test_a_number_of_threads_in_the_environment_is_checked_too(monkeypatch):
    monkeypatch.setenv("TAILGUARD_NUM_THREADS", "many")
    check(DESCENDING["clipped_gd"], "TAILGUARD_NUM_THREADS", "'many'")
    monkeypatch.setenv("TAILGUARD_NUM_THREADS", "2")
    DESCENDING["clipped_gd"]()


# Values are not arguments: nothing in the data raises or warns.


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("loss", [SQUARED, losses.Logistic(), losses.Poisson(), losses.Multinomial(3)], ids=repr)
def test_labels_of_any_value_do_not_raise(name, loss):
    labels = np.resize([-1e308, -3.5, -1.0, 0.0, 0.5, 1.0, 2.0, 1e308, np.inf, -np.inf, np.nan], N)
    assert np.all(np.isfinite(FITS[name](loss=loss, y=labels, random_state=0).w))


@pytest.mark.parametrize("name", FITS)
def test_a_table_of_nothing_but_nan_does_not_raise(name):
    assert np.all(np.isfinite(FITS[name](X=np.full((N, D), np.nan), y=np.full(N, np.nan), random_state=0).w))


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308, 5e-324, 0.0])
def test_columns_of_one_value_do_not_raise(name, value):
    assert np.all(np.isfinite(MEANS[name](x=np.full((N, D), value), random_state=0).value))


def test_constant_and_empty_columns_do_not_raise():
    constant = np.hstack([np.zeros((N, 1)), np.ones((N, 1)), np.full((N, 1), 1e200)])
    for fit in FITS.values():
        assert np.all(np.isfinite(fit(X=constant, random_state=0).w))


def test_numbers_too_large_for_float64_do_not_warn():
    wide = X.astype(np.longdouble)
    wide[0, 0] = np.longdouble("1e400")
    assert np.all(np.isfinite(DESCENDING["clipped_gd"](X=wide, random_state=0).w))
