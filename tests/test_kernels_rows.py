"""The compiled rows: predictors, multipliers and sums by the rule, its functions, and lanes that do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from numba import njit

import row_rule
from tailguard import psi
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import Gradients, RowValues
from tailguard.kernels import codes, lanes, rows, rule
from tailguard.losses import Squared
from tailguard.truncation import CoordinateClip, Grid, L2Clip, Smoothed

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
    for code, parameter in ((codes.SQUARED, 0.0), (codes.LOGISTIC, 0.0), (codes.HUBER, 0.5), (codes.POISSON, 0.0)):
        f = np.empty((1, n))
        rows.fill_multipliers(X, y, w[:1], True, code, parameter, np.zeros((0, 1)), f)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(f[0], row_rule.derivative(code, parameter, expected[:, 0], y))


TRUNCATIONS = {
    "l2": L2Clip(2.0),
    "coordinate": CoordinateClip(0.5),
    "psi": Smoothed(1.0, 3.0),
    "cubics": Smoothed(0.3, 200.0),
}


@pytest.mark.parametrize("truncation", TRUNCATIONS)
@pytest.mark.parametrize(
    ("d", "dtype"),
    [(5, np.float32), (16, np.float64), (17, np.float64), (50, np.float32), (110, np.float64), (210, np.float64)],
)
def test_sums_follow_the_rule_in_tiles_of_every_size(d, dtype, truncation):
    """Three tiles of 32 rows and the half of one: ordinary rows, rows of all sizes, rows with edges, and both."""
    rng = np.random.default_rng(d)
    X = rng.standard_normal((112, d))
    X[32:64] *= np.exp(rng.uniform(-4, 2, (32, 1)))
    wild = rng.random((48, d)) < 0.5 / d
    X[64:][wild] = rng.choice(EDGES, wild.sum())
    w, y = rng.standard_normal((1, d + 1)) / d**0.5, rng.standard_normal(112)
    with np.errstate(all="ignore"):
        X = X.astype(dtype)
    for scale in (0.1, 10.0):  # of the multipliers: few rows are truncated, then most
        vectors, grid = Gradients(Squared(), scale * w, True), Grid.of(TRUNCATIONS[truncation], len(X))
        block, (bound, *psi_of) = vectors.block(X, scale * y), grid.truncation.kernel_arguments()
        arguments = (*block, grid.truncation.kind, bound, 1.0 / grid.unit, *psi_of)
        expected = row_rule.contributions(*arguments).sum(axis=0)
        np.testing.assert_array_equal(InMemory(X, scale * y, 1).truncated_sum(vectors, grid), expected)


def test_exp_is_within_two_units_in_the_last_place():
    z = np.concatenate([np.random.default_rng(1).uniform(-700, 700, 2000), [0.0, -0.0, 1e-300, -745.0, 709.7]])
    found = np.array([rule.derivative(codes.POISSON, 0.0, value, 0.0) for value in z])
    np.testing.assert_allclose(found, np.exp(z), rtol=2 * 2.0**-52, atol=5e-324)
    ends = [rule.derivative(codes.POISSON, 0.0, value, 0.0) for value in (-np.inf, -800.0, 800.0, np.inf, np.nan)]
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
def _fused_and_not(a, b, c, out):
    x, y, z = lanes.load(lanes.pointer(a), 0), lanes.load(lanes.pointer(b), 0), lanes.load(lanes.pointer(c), 0)
    lanes.store(lanes.pointer(out), 0, x * y + z)
    lanes.store(lanes.pointer(out), 8, lanes.fma(x, y, z))
    out[2, 0] = lanes.fma(a[0], b[0], c[0])
    lanes.keep((a, b, c, out))


def test_products_are_fused_where_it_is_said_and_nowhere_else():
    """Less the rounded product, a product leaves 0, and fused its rounding error, which is a float64 too."""
    a, b = (np.random.default_rng(seed).standard_normal(8) for seed in (0, 1))
    out = np.empty((3, 8))
    _fused_and_not(a, b, -(a * b), out)
    np.testing.assert_array_equal(out[0], np.zeros(8))
    errors = [float(Fraction(x) * Fraction(y) - Fraction(x * y)) for x, y in zip(a, b, strict=True)]
    assert any(errors)
    np.testing.assert_array_equal(out[1], errors)
    assert out[2, 0] == errors[0]


def test_the_oracle_of_the_tests_fuses():
    """Sums of a product and a number, rounded once; and in float32."""
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 500))
    c = -a * b * (1 + rng.integers(-2, 3, 500) * 2.0**-50) + rng.choice([0.0, 1e-20, 1.0], 500)
    exact = [float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a, b, c, strict=True)]
    np.testing.assert_array_equal(row_rule.fma(a, b, c), exact)
    assert np.mean(a * b + c != exact) > 0.1
    a, b, c = (values.astype(np.float32) for values in (a, b, c))
    exact = [np.float32(x) * np.float64(y) for x, y in zip(a, b, strict=True)]  # 48 bits
    np.testing.assert_array_equal(row_rule.fmaf(a, b, np.float32(0)), np.float32(exact))
    np.testing.assert_array_equal(row_rule.fmaf(a, b, -a * b), np.float32(exact - np.float64(a * b)))


PSI = """
import numpy as np
from tailguard.kernels import rule

def values(psi):
    _, _, p, table = rule.psi_in_units(psi, np.zeros((0, 4)), 2.0**29)
    return [rule.psi_of_number(a, p, table) for a in (0.0, 0.3, -0.7, 1.1, -2.9, 17.0, 1e9)]
"""


def test_a_processor_without_fused_operations_computes_the_same(tmp_path):
    """The compiler calls the C library there; on the oldest processor of this kind that it knows."""
    kernel = Smoothed(1.0, 3.0).kernel_arguments()[1]
    here: dict = {}
    exec(PSI, here)
    old = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", f"{PSI}\nprint(values({kernel}))"],
        env={**os.environ, **old},
        capture_output=True,
        text=True,
        check=True,
    )
    found = here["values"](kernel)
    assert found[-1] > 2**28
    assert done.stdout.strip() == str(found)


@njit
def _inverse_roots(s, out):
    for i in range(0, s.size, 8):
        lanes.store(lanes.pointer(out), i, rule.inverse_root(lanes.load(lanes.pointer(s), i)))
    lanes.keep((s, out))


def test_the_inverse_root_is_within_its_error():
    """Within a relative 2^-52, by exact arithmetic: s r^2 lies between the squares of 1 - 2^-52 and 1 + 2^-52."""
    rng = np.random.default_rng(3)
    s = np.concatenate([rng.uniform(1.0, 4.0, 4000), np.exp(rng.uniform(-640, 640, 4000)), 2.0 ** np.arange(-8, 8)])
    r = np.empty_like(s)
    _inverse_roots(s, r)
    np.testing.assert_array_equal(r, row_rule.inverse_root(s))
    low, high = ((1 + Fraction(sign, 2**52)) ** 2 for sign in (-1, 1))
    assert all(low <= Fraction(a) * Fraction(b) ** 2 <= high for a, b in zip(s, r, strict=True))
    zero, out = np.zeros(8), np.empty(8)
    _inverse_roots(zero, out)
    assert np.all((out > 1e154) & np.isfinite(out))


@njit
def _bits_of(truths):
    return lanes.bits_set(truths), lanes.lowest(truths)


def test_bits_are_counted_and_found():
    assert [_bits_of(truths) for truths in (0, 1, 6, 2**31, 2**32 - 1)] == [(0, 64), (1, 0), (2, 1), (1, 31), (32, 0)]


@pytest.mark.parametrize("d", [5, 20])
@pytest.mark.parametrize("far", range(1, 8))
def test_rows_that_wait_for_psi_are_not_joined_by_others(d, far):
    """Few rows beyond the core wait for more until the end; the first row is not a number and the last ones are 0."""
    X = np.zeros((64, d))
    X[0], X[1 : far + 1] = np.nan, 3.0
    grid = Grid.of(Smoothed(1.0, 3.0), 64)
    one = InMemory(X[1:2], None, 1).truncated_sum(RowValues(), grid)
    assert one.all()
    np.testing.assert_array_equal(InMemory(X, None, 1).truncated_sum(RowValues(), grid), far * one)


def test_psi_in_fine_units_stays_inside_its_bound_and_keeps_its_accuracy():
    """Units of which a row takes more than 2^31: results are multiples of more than one."""
    X = np.array([[-np.inf, -1e9, -2.0, -0.7, 0.7, 2.0, 1e9, np.inf]])
    bound = 2.0**45 * Smoothed(1.0, 3.0).largest
    units = InMemory(X, None, 1).truncated_sum(RowValues(), Grid(Smoothed(1.0, 3.0), 2.0**-45))[0]
    assert np.max(np.abs(units)) <= bound
    np.testing.assert_allclose(units * 2.0**-45, psi(X[0], 3.0), rtol=0, atol=2e-6)
