"""Every loss: the derivative is that of the value, it is convex, and labels never raise."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import AWKWARD, LARGEST, LOSSES, log_cosh, squared_per_row

from tailguard import losses as L
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import Gradients
from tailguard.kernels import codes
from tailguard.kernels import rows as kernels

WITH_VALUE = {name: loss for name, loss in LOSSES.items() if name != "PerRow"}
COMPILED = {name: loss for name, loss in LOSSES.items() if loss.kernel_code != codes.GIVEN}
every_value = pytest.mark.parametrize("name", WITH_VALUE)
every_loss = pytest.mark.parametrize("name", LOSSES)


def test_every_loss_of_the_package_is_here():
    kinds = [kind for _, kind in inspect.getmembers(L, inspect.isclass) if issubclass(kind, L.Loss)]
    assert {kind.__name__ for kind in kinds} - {"Loss"} == set(LOSSES)


def labels(name: str, rng: np.random.Generator, n: int) -> np.ndarray:
    if name == "Multinomial":
        return rng.integers(0, 3, n).astype(np.float64)
    if name == "Logistic":
        return rng.choice([-1.0, 0.0, 1.0], n)
    return rng.poisson(2.0, n).astype(np.float64)


def predictors(name: str, rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(-4.0, 4.0, (n, 3) if name == "Multinomial" else n)


def slopes(name: str, z: np.ndarray, y: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Directional derivative in the predictors by dz."""
    product = WITH_VALUE[name].dz(z, y) * direction
    return product.sum(axis=1) if product.ndim == 2 else product


@every_value
def test_the_derivative_is_that_of_the_value(name):
    """Five points: f'(0) = (f(-2h) - 8 f(-h) + 8 f(h) - f(2h)) / 12h + O(h^4)."""
    rng, loss, h = np.random.default_rng(0), WITH_VALUE[name], 1e-3
    z, y = predictors(name, rng, 400), labels(name, rng, 400)
    if name == "Huber":  # away from the two kinks of its derivative
        smooth = np.abs(np.abs(z - y) - 2.0) > 10 * h
        z, y = z[smooth], y[smooth]
    direction = rng.uniform(-1.0, 1.0, z.shape)
    f = [loss.value(z + step * h * direction, y) for step in (-2, -1, 1, 2)]
    stencil = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)
    np.testing.assert_allclose(slopes(name, z, y, direction), stencil, rtol=1e-8, atol=1e-9)


@every_value
@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), t=st.floats(0.0, 1.0))
def test_the_value_is_convex_and_above_its_tangents(name, seed, t):
    rng, loss = np.random.default_rng(seed), WITH_VALUE[name]
    one, other, y = predictors(name, rng, 20), predictors(name, rng, 20), labels(name, rng, 20)
    between = loss.value(t * one + (1 - t) * other, y)
    chord = t * loss.value(one, y) + (1 - t) * loss.value(other, y)
    assert np.all(between <= chord + 1e-12 * (1 + np.abs(chord)))
    tangent = loss.value(one, y) + slopes(name, one, y, other - one)
    assert np.all(loss.value(other, y) >= tangent - 1e-12 * (1 + np.abs(tangent)))


@every_value
def test_shapes_are_one_value_per_row_and_one_slope_per_predictor(name):
    rng, loss = np.random.default_rng(1), WITH_VALUE[name]
    z, y = predictors(name, rng, 7), labels(name, rng, 7)
    assert loss.value(z, y).shape == (7,)
    assert loss.dz(z, y).shape == z.shape
    assert loss.outputs == (3 if name == "Multinomial" else 1)


@pytest.mark.parametrize("name", COMPILED)
@settings(max_examples=100)
@given(z=st.floats() | st.sampled_from(AWKWARD), y=st.floats() | st.sampled_from(AWKWARD))
def test_the_compiled_derivative_is_the_numpy_one(name, z, y):
    loss = COMPILED[name]
    with np.errstate(all="ignore"):
        expected = loss.dz(np.array([z]), np.array([y]))[0]
    value = kernels.derivative(loss.kernel_code, float(loss.kernel_parameter), z, y)
    # One rounding of exp, of a quotient and of a difference; the last is relative to the label.
    np.testing.assert_allclose(value, expected, rtol=1e-15, atol=1e-15 * abs(y) if np.isfinite(y) else 0.0)


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_multipliers_of_the_engine_are_the_numpy_ones(name, fit_intercept):
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((50, 4)), labels(name, rng, 50)
    w = rng.standard_normal((1, 4 + fit_intercept))
    column = InMemory(X, y, 1).columns_of(Gradients(COMPILED[name], w, fit_intercept))
    design = np.hstack([X, np.ones((50, 1))]) if fit_intercept else X
    slope = COMPILED[name].dz((design @ w.T)[:, 0], y)
    for j in range(design.shape[1]):
        np.testing.assert_allclose(column(0, j), slope * design[:, j], rtol=1e-12, atol=1e-14)


def test_logistic_takes_the_sign_of_a_label():
    z = np.linspace(-3.0, 3.0, 7)
    plus, minus = np.ones(7), -np.ones(7)
    for label, same in ((5.0, plus), (1e-300, plus), (np.inf, plus), (0.0, minus), (-0.0, minus), (-2.5, minus)):
        np.testing.assert_array_equal(L.Logistic().dz(z, np.full(7, label)), L.Logistic().dz(z, same))
        np.testing.assert_array_equal(L.Logistic().value(z, np.full(7, label)), L.Logistic().value(z, same))
    # The two classes mirror each other.
    np.testing.assert_allclose(L.Logistic().dz(z, plus), -L.Logistic().dz(-z, minus), rtol=1e-15)


def test_multinomial_rounds_a_label_and_clamps_it_to_a_class():
    z, loss = np.random.default_rng(3).standard_normal((1, 3)), L.Multinomial(3)
    for label, same in ((0.4, 0), (1.6, 2), (-7.0, 0), (9.0, 2), (1e308, 2), (-np.inf, 0), (np.inf, 2)):
        np.testing.assert_array_equal(loss.dz(z, np.array([label])), loss.dz(z, np.array([float(same)])))
    np.testing.assert_allclose(loss.dz(z, np.array([1.0])).sum(), 0.0, atol=1e-15)


def test_multinomial_with_two_classes_is_logistic_in_the_difference():
    rng = np.random.default_rng(4)
    z, y = rng.standard_normal((30, 2)), rng.integers(0, 2, 30).astype(float)
    two, one = L.Multinomial(2), L.Logistic()
    np.testing.assert_allclose(two.value(z, y), one.value(z[:, 1] - z[:, 0], y), rtol=1e-12)
    np.testing.assert_allclose(two.dz(z, y)[:, 1], one.dz(z[:, 1] - z[:, 0], y), rtol=1e-12)


@every_loss
@pytest.mark.parametrize("label", AWKWARD)
def test_no_label_raises_or_warns_and_a_nan_label_contributes_nothing(name, label):
    loss = LOSSES[name]
    width = 2
    w = np.full((loss.outputs, width), 0.3)
    columns = InMemory(np.array([[1.0, -2.0]]), np.array([label]), 1).columns_of(Gradients(loss, w, False))
    contribution = [columns(k, j)[0] for k in range(loss.outputs) for j in range(width)]
    if np.isnan(label):
        assert np.all(np.isnan(contribution))  # which the truncations and the trimmed mean take for 0
    else:
        assert not np.any(np.isnan(contribution))


@pytest.mark.parametrize("z", [1e300, -1e300, LARGEST, 800.0, -800.0])
def test_bounded_losses_have_bounded_slopes_at_any_predictor(z):
    at = np.array([z])
    with np.errstate(all="raise", under="ignore"):
        assert abs(L.Logistic().dz(at, np.ones(1))[0]) <= 1.0
        assert abs(L.Huber(2.0).dz(at, np.ones(1))[0]) == 2.0
        assert np.all(np.abs(L.Multinomial(3).dz(np.array([[z, 0.0, -z]]), np.ones(1))) <= 1.0)


def test_a_custom_loss_is_the_two_functions_it_was_given():
    loss = log_cosh()
    z, y = np.array([0.5, -1.0]), np.array([0.0, 2.0])
    np.testing.assert_allclose(loss.value(z, y), np.log(np.cosh(z - y)), rtol=1e-12)
    np.testing.assert_allclose(loss.dz(z, y), np.tanh(z - y), rtol=1e-15)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: L.Custom(value=3, dz=np.tanh), "value"),
        (lambda: L.Custom(value=np.tanh, dz="tanh"), "dz"),
        (lambda: L.PerRow(None), "gradient"),
        (lambda: L.Huber(0.0), "threshold"),
        (lambda: L.Huber(float("nan")), "threshold"),
        (lambda: L.Multinomial(1), "classes"),
        (lambda: L.Multinomial(2.5), "classes"),
    ],
)
def test_wrong_losses_are_refused_by_name(call, argument):
    with pytest.raises((TypeError, ValueError), match=argument):
        call()


@pytest.mark.parametrize("wrong", [lambda z, y: z[:1], lambda z, y: 1.0, lambda z, y: np.stack([z, z], axis=1)])
def test_a_custom_derivative_of_the_wrong_shape_is_refused(wrong):
    vectors = Gradients(L.Custom(value=wrong, dz=wrong), np.zeros((1, 2)), False)
    with pytest.raises(ValueError, match=r"dz\(z, y\) returned shape"):
        InMemory(np.ones((3, 2)), np.ones(3), 1).columns_of(vectors)(0, 0)


def test_a_per_row_gradient_of_the_wrong_shape_is_refused():
    vectors = Gradients(L.PerRow(lambda w, X, y: X[:, :1]), np.zeros((1, 2)), False)
    with pytest.raises(ValueError, match=r"gradient\(w, X, y\) returned shape"):
        InMemory(np.ones((3, 2)), np.ones(3), 1).columns_of(vectors)(0, 0)


def test_a_per_row_function_cannot_change_the_iterate():
    def careless(w, X, y):
        w += 1.0
        return X

    w = np.zeros((1, 2))
    InMemory(np.ones((3, 2)), np.ones(3), 1).columns_of(Gradients(L.PerRow(careless), w, False))(0, 0)
    np.testing.assert_array_equal(w, 0.0)


def test_per_row_gradients_are_those_of_the_loss_they_write_out():
    rng = np.random.default_rng(5)
    X, y, w = rng.standard_normal((6, 3)), rng.standard_normal(6), rng.standard_normal((1, 3))
    mine, theirs = (
        InMemory(X, y, 1).columns_of(Gradients(loss, w, False)) for loss in (squared_per_row(), L.Squared())
    )
    for j in range(3):
        np.testing.assert_allclose(mine(0, j), theirs(0, j), rtol=1e-13, atol=1e-15)
