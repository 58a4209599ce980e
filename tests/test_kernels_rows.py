"""The compiled rows: predictors and multipliers by the rule, its exp, and lanes that do what they say."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

import row_rule
from tailguard.kernels import lanes, rows, rule

EDGES = [0.0, -0.0, 5e-324, 1e-160, 1e160, 1e308, -1e308, np.inf, -np.inf, np.nan]


def table(n, d, dtype=np.float64):
    rng = np.random.default_rng(n + 100 * d)
    X = rng.standard_normal((n, d))
    wild = rng.random((n, d)) < 0.1
    X[wild] = rng.choice(EDGES, wild.sum())
    with np.errstate(all="ignore"):
        return X.astype(dtype), rng.standard_normal((3, d + 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 2, 3, 4, 7, 16, 65, 130])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 40])
def test_predictors_and_multipliers_follow_the_rule(n, d, dtype):
    X, w = table(n, d, dtype)
    with np.errstate(all="ignore"):
        wide = X.astype(np.float64)
        expected = np.column_stack([row_rule.predictor(wide, w[k, :d], w[k, d]) for k in range(3)])
    z = np.empty((n, 3))
    rows.predict(X, w, True, z)
    np.testing.assert_array_equal(z, expected)
    y = np.random.default_rng(0).choice([-1.0, 1.0, np.nan], n)
    for code, parameter in ((rule.SQUARED, 0.0), (rule.LOGISTIC, 0.0), (rule.HUBER, 0.5), (rule.POISSON, 0.0)):
        f = np.empty((1, n))
        rows.fill_multipliers(X, y, w[:1], True, code, parameter, np.zeros((0, 1)), f)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(f[0], row_rule.derivative(code, parameter, expected[:, 0], y))


def test_exp_is_within_two_units_in_the_last_place():
    z = np.concatenate([np.random.default_rng(1).uniform(-700, 700, 2000), [0.0, -0.0, 1e-300, -745.0, 709.7]])
    found = np.array([rule.derivative(rule.POISSON, 0.0, value, 0.0) for value in z])
    np.testing.assert_allclose(found, np.exp(z), rtol=2 * 2.0**-52, atol=5e-324)
    ends = [rule.derivative(rule.POISSON, 0.0, value, 0.0) for value in (-np.inf, -800.0, 800.0, np.inf, np.nan)]
    np.testing.assert_array_equal(ends, [0.0, 0.0, np.inf, np.inf, np.nan])


@njit
def _columns(X, k, stride, out):
    at = lanes.pointer(out)
    for j, column in enumerate(lanes.columns4(lanes.pointer(X), k, stride)):
        lanes.store(at, 8 * j, column)
    for j, column in enumerate(lanes.columns2(lanes.pointer(X), k, stride)):
        lanes.store(at, 32 + 8 * j, column)
    lanes.store(at, 48, lanes.columns1(lanes.pointer(X), k, stride)[0])
    lanes.keep((X, out))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_are_rows_transposed(dtype):
    X = np.arange(200, dtype=dtype).reshape(8, 25)
    out = np.empty((7, 8))
    _columns(X, 3, 25, out)
    np.testing.assert_array_equal(out, X[:, [3, 4, 5, 6, 3, 4, 3]].T)


@njit
def _without_fusing(a, b, c, out):
    product = lanes.load(lanes.pointer(a), 0) * lanes.load(lanes.pointer(b), 0)
    lanes.store(lanes.pointer(out), 0, product + lanes.load(lanes.pointer(c), 0))
    lanes.keep((a, b, c, out))


def test_a_product_is_rounded_before_it_is_added():
    """A fused multiply-add would leave the rounding of the product, which is not 0."""
    a, b = (np.random.default_rng(seed).standard_normal(8) for seed in (0, 1))
    out = np.empty(8)
    _without_fusing(a, b, -(a * b), out)
    np.testing.assert_array_equal(out, np.zeros(8))
