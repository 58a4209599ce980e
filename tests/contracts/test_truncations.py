"""Every truncation, on every kind of row vector: bounded, additive, and the same bits however it is computed."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from parts import (
    AWKWARD,
    BETA,
    LARGEST,
    LOSSES,
    SOURCES,
    TRUNCATIONS,
    integer_sum,
    intercept_allowed,
    outputs_of,
    squared_norm,
    truncation_at,
    vectors_of,
)

from tailguard import psi
from tailguard.engines import engine, memory
from tailguard.engines.vectors import Gradients, RowValues
from tailguard.losses import Squared
from tailguard.truncation import CoordinateClip, Grid, L2Clip, Smoothed, Truncation

ANY_FLOAT = st.sampled_from(AWKWARD) | st.floats()
BOUNDS = (1e-100, 1e-3, 1.5, 1e6, 1e100)
BETAS = (0.1, 0.5, 3.0, BETA, 10.0, 31.0, 1000.0)
every_truncation = pytest.mark.parametrize("name", TRUNCATIONS)
every_source = pytest.mark.parametrize("source", SOURCES)


def test_every_truncation_of_the_package_is_here():
    assert {kind.__name__ for kind in Truncation.__subclasses__()} == set(TRUNCATIONS)


def within(units: np.ndarray, sensitivity: float) -> bool:
    """Whether an integer vector is at most so long: compared exactly, as the proof is."""
    return squared_norm(units) <= Fraction(sensitivity) ** 2


def as_type(values, dtype) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(values, dtype=np.float64).astype(dtype)


@st.composite
def settings_of_rows(draw, source: str, name: str):
    """One grid, one w and two rows, of any values."""
    d = draw(st.integers(1, 5))
    fit_intercept = intercept_allowed(source) and draw(st.booleans())
    outputs = outputs_of(source)
    bound = draw(st.sampled_from(BOUNDS))
    truncation = Smoothed(bound, draw(st.sampled_from(BETAS))) if name == "Smoothed" else truncation_at(name, bound)
    grid = Grid.of(truncation, draw(st.sampled_from([1, 100, 2**40])))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    rows = [as_type([draw(ANY_FLOAT) for _ in range(d + 1)], dtype) for _ in range(2)]
    # Iterates are finite and at most 1e150 (the loop clamps them).
    w = np.array([draw(ANY_FLOAT) for _ in range(outputs * (d + fit_intercept))])
    w = np.clip(np.nan_to_num(w), -1e150, 1e150).reshape(outputs, -1)
    multipliers = [np.array([[draw(ANY_FLOAT) for _ in range(outputs)]]) for _ in range(2)]
    contributions = []
    for row, multiplier in zip(rows, multipliers, strict=True):
        vectors = vectors_of(source, w, fit_intercept, multiplier)
        contributions.append(integer_sum(row[None, :-1], row[-1:], vectors, grid))
    return grid, contributions


@every_truncation
@every_source
@settings(max_examples=60)
@given(data=st.data())
def test_one_row_moves_the_sum_by_at_most_the_sensitivity(name, source, data):
    grid, (one, other) = data.draw(settings_of_rows(source, name))
    assert within(one, grid.sensitivity(one.size, "add-remove"))
    assert within(other, grid.sensitivity(one.size, "add-remove"))
    assert within(one - other, grid.sensitivity(one.size, "replace-one"))


@every_truncation
@every_source
def test_every_mixture_of_awkward_values_is_bounded(name, source):
    """Among them x = 1e-200 with y = 1e300, whose product is ordinary and whose factors are not."""
    grid = Grid.of(truncation_at(name, 1.5), 10)
    fit_intercept = intercept_allowed(source)
    w = np.resize([1e-200, 1e140, -1.0], (outputs_of(source), 2 + fit_intercept))
    for x, y, second in itertools.product(AWKWARD, AWKWARD, (0.0, 1.0, -1e-200)):
        vectors = vectors_of(source, w, fit_intercept, np.array([[y, x]]))
        units = integer_sum(np.array([[x, second]]), np.array([y]), vectors, grid)
        assert within(units, grid.sensitivity(units.size, "add-remove")), (x, second, y)


@every_truncation
@given(p=st.integers(1, 40), bound=st.floats(1e-100, 1e100), n=st.integers(1, 2**40))
@example(p=1, bound=1.0, n=1)
def test_the_stated_sensitivity_is_the_bound_of_the_formula_and_its_rounding(name, p, bound, n):
    """Twice as much for replace-one; row_norm, half a unit per coordinate, and nothing that matters besides."""
    truncation = truncation_at(name, bound)
    grid = Grid.of(truncation, n)
    kappa = 2.0 * math.sqrt(2.0) / 3.0 * math.erf(math.sqrt(BETA / 2.0))
    row = {"L2Clip": bound, "CoordinateClip": bound * math.sqrt(p), "Smoothed": kappa * bound * math.sqrt(p)}[name]
    one = grid.sensitivity(p, "add-remove")
    assert grid.sensitivity(p, "replace-one") == 2.0 * one
    assert row / grid.unit + math.sqrt(p) / 2.0 <= one * (1.0 + 1e-15)
    assert one <= (row / grid.unit) * (1.0 + 1e-12) + math.sqrt(p) / 2.0 * (1.0 + 1e-15)
    # The grid: a power of two, fine enough, and small enough for all rows to fit in 62 bits.
    assert math.frexp(grid.unit)[0] == 0.5
    assert n * truncation.largest / grid.unit <= 2.0**62
    assert truncation.largest / grid.unit >= min(2.0**29, 2.0**61 / n / 2)


@every_truncation
def test_the_bound_is_reached_so_it_is_not_larger_than_needed(name):
    grid = Grid.of(truncation_at(name, 1.5), 100)
    units = integer_sum(np.full((1, 3), 1e300), np.zeros(1), RowValues(), grid)
    assert math.sqrt(squared_norm(units)) >= 0.999_999 * grid.sensitivity(3, "add-remove")


# Same bits. On a grid this fine (2**-45 of the bound) a difference in the last digits of one product would show.


def table(seed: int, n: int = 48, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Rows with heavy tails, exactly representable in float32, some of them awkward."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(1.5, (n, d)).astype(np.float32).astype(np.float64)
    y = rng.standard_t(1.5, n).astype(np.float32).astype(np.float64)
    X[3, 1], X[7], X[11, 0], X[13, 2], X[17] = np.inf, 1e30, np.nan, -np.inf, 0.0
    y[19], y[23], y[29] = np.nan, np.inf, 1e30
    return X, y


def fine_grid(name: str) -> Grid:
    return Grid(truncation_at(name, 1.5), 2.0**-45)


def setup(name: str, source: str, seed: int = 0, d: int = 5):
    fit_intercept = intercept_allowed(source)
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((outputs_of(source), d + fit_intercept))
    return vectors_of(source, w, fit_intercept, rng.standard_normal((1, 2))), fine_grid(name)


@every_truncation
@every_source
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), cuts=st.sets(st.integers(1, 47), max_size=9))
def test_the_sum_is_the_sum_over_any_blocks(name, source, seed, cuts):
    vectors, grid = setup(name, source)
    X, y = table(seed)
    whole = integer_sum(X, y, vectors, grid)
    edges = [0, *sorted(cuts), len(X)]
    parts = [integer_sum(X[a:b], y[a:b], vectors, grid) for a, b in itertools.pairwise(edges)]
    np.testing.assert_array_equal(np.sum(parts, axis=0), whole)
    assert whole.any()


@every_truncation
@every_source
def test_same_bits_for_any_threads_and_pieces(name, source, monkeypatch, busy_threads):
    vectors, grid = setup(name, source)
    X, y = table(1)
    whole = integer_sum(X, y, vectors, grid)
    for values in (1, 5, 17, 100, 10**6):
        monkeypatch.setattr(memory, "_PIECE_VALUES", values)
        monkeypatch.setattr(engine, "_BLOCK_VALUES", values)
        for threads in (1, 2, 3, 4):
            np.testing.assert_array_equal(integer_sum(X, y, vectors, grid, threads=threads), whole)


@every_truncation
@every_source
def test_same_bits_for_any_order_and_layout_of_the_rows(name, source, tmp_path):
    vectors, grid = setup(name, source)
    X, y = table(2)
    whole = integer_sum(X, y, vectors, grid)
    order = np.random.default_rng(0).permutation(len(X))
    wide = np.zeros((len(X), 10))
    wide[:, ::2] = X
    twice = np.repeat(X, 2, axis=0)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "F.npy", np.asfortranarray(X))
    mapped = [np.load(tmp_path / file, mmap_mode="r") for file in ("X.npy", "F.npy")]
    layouts = [np.asfortranarray(X), wide[:, ::2], twice[::2], X[::-1][::-1], *mapped]
    for layout in layouts:
        np.testing.assert_array_equal(integer_sum(layout, y, vectors, grid, threads=2), whole)
    np.testing.assert_array_equal(integer_sum(X, np.repeat(y, 3)[::3], vectors, grid), whole)
    np.testing.assert_array_equal(integer_sum(X[order], y[order], vectors, grid), whole)
    np.testing.assert_array_equal(integer_sum(X, y, vectors, grid, rows=order), whole)


@every_truncation
@every_source
@pytest.mark.parametrize("d", [1, 4, 9, 17])
def test_float32_has_the_same_bits_as_its_values_in_float64(name, source, d):
    vectors, grid = setup(name, source, d=d)
    X, y = table(3, d=d) if d > 2 else (table(3)[0][:, :d], table(3)[1])
    X, y = (values.astype(np.float32).astype(np.float64) for values in (X, y))
    whole = integer_sum(X, y, vectors, grid)
    for A, b in itertools.product((X, X.astype(np.float32)), (y, y.astype(np.float32))):
        np.testing.assert_array_equal(integer_sum(A, b, vectors, grid), whole)


@every_truncation
@pytest.mark.parametrize("source", ["Squared", "Logistic", "Multinomial", "RowValues"])
@pytest.mark.parametrize("d", [1, 3, 8, 13])
def test_a_row_adds_the_same_wherever_it_stands(name, source, d):
    """Vector instructions treat the last rows and columns of a block in another loop than the first."""
    vectors, grid = setup(name, source, d=d)
    rng = np.random.default_rng(d)
    row, label = rng.standard_normal(d), rng.standard_normal()
    alone = integer_sum(row[None], np.array([label]), vectors, grid)
    assert alone.any()
    for n, at in ((2, 1), (4, 0), (7, 6), (9, 8), (16, 3), (19, 17)):
        X, y = np.zeros((n, d)), np.full(n, np.nan)
        X[at], y[at] = row, label
        np.testing.assert_array_equal(integer_sum(X, y, vectors, grid), alone)


def test_a_sample_of_the_rows_is_the_table_of_those_rows():
    X, y = table(4)
    vectors, grid = setup("L2Clip", "Logistic")
    rows = np.array([0, 5, 6, 40], dtype=np.int64)
    np.testing.assert_array_equal(
        integer_sum(X, y, vectors, grid, rows=rows), integer_sum(X[rows], y[rows], vectors, grid)
    )
    nobody = integer_sum(X, y, vectors, grid, rows=np.empty(0, dtype=np.int64))
    np.testing.assert_array_equal(nobody, np.zeros((1, 6), dtype=np.int64))


# The twins: the formulas in plain NumPy.


def gradients(source: str, w: np.ndarray, X: np.ndarray, y: np.ndarray, fit_intercept: bool) -> np.ndarray:
    """Per-row vectors as a plain (n, outputs, coordinates) array."""
    if source == "RowValues":
        return X[:, None, :]
    if source == "RowFunction":
        return (X * y[:, None])[:, None, :]
    if source == "PerRow":
        return LOSSES[source].gradient(w[0], X, y)[:, None, :]
    design = np.hstack([X, np.ones((len(X), 1))]) if fit_intercept else X
    z = design @ w.T
    if source == "Given":
        slope = np.tile([[0.7, -1.3]], (len(X), 1))
    else:
        slope = LOSSES[source].dz(z if z.shape[1] > 1 else z[:, 0], y).reshape(len(X), -1)
    return slope[:, :, None] * design[:, None, :]


def truncated(truncation: Truncation, g: np.ndarray) -> np.ndarray:
    """The table at the top of `tailguard.truncation.rules`, row by row."""
    if isinstance(truncation, L2Clip):
        norm = np.sqrt(np.sum(g**2, axis=(1, 2), keepdims=True))
        return g * np.minimum(1.0, truncation.clip / np.maximum(norm, 1e-300))
    if isinstance(truncation, CoordinateClip):
        return np.clip(g, -truncation.clip, truncation.clip)
    return truncation.scale * psi(g / truncation.scale, truncation.beta)


@every_truncation
@every_source
@pytest.mark.parametrize("scale", [0.05, 1.0, 40.0])
def test_the_kernel_agrees_with_its_numpy_twin(name, source, scale):
    """Row by row, to rounding; psi to 5e-6 of the scale, the accuracy that its kernel states."""
    rng = np.random.default_rng(5)
    n, d, fit_intercept = 40, 6, intercept_allowed(source)
    X, y = rng.standard_t(3, (n, d)), rng.poisson(1.0, n).astype(np.float64)
    w = 0.3 * rng.standard_normal((outputs_of(source), d + fit_intercept))
    truncation = truncation_at(name, scale)
    grid = Grid.of(truncation, n)
    vectors = vectors_of(source, w, fit_intercept, np.array([[0.7, -1.3]]))
    expected = truncated(truncation, gradients(source, w, X, y, fit_intercept))
    for i in range(n):
        units = integer_sum(X[i : i + 1], y[i : i + 1], vectors, grid)
        error = 5e-6 * scale if name == "Smoothed" else 1e-13 * np.max(np.abs(expected[i]))
        np.testing.assert_allclose(units * grid.unit, expected[i], rtol=0, atol=error + 0.5 * grid.unit)


@pytest.mark.parametrize(
    ("beta", "accuracy"),
    # log 100 and sqrt(2 log 100) are what the algorithms take by default.
    [(0.1, 2e-6), (0.5, 5e-6), (math.sqrt(2 * BETA), 2e-6), (BETA, 2e-6), (10.0, 5e-6), (31.0, 2e-6), (1000.0, 2e-6)],
)
def test_the_kernel_of_psi_is_accurate_over_the_whole_line(beta, accuracy):
    a = np.concatenate([np.linspace(-6.0, 6.0, 401), np.geomspace(6.0, 1e12, 60), -np.geomspace(1e-12, 1e200, 60)])
    grid = Grid.of(Smoothed(1.0, beta), 1)
    # One value per coordinate of one row: all of them wait for psi; one value per row: each may take the short cut.
    together = integer_sum(a[None, :], np.zeros(1), RowValues(), grid)[0] * grid.unit
    alone = [integer_sum(a[i : i + 1, None], np.zeros(1), RowValues(), grid)[0, 0] * grid.unit for i in range(len(a))]
    np.testing.assert_allclose(together, psi(a, beta), rtol=0, atol=accuracy)
    np.testing.assert_allclose(alone, psi(a, beta), rtol=0, atol=accuracy)


@every_truncation
@pytest.mark.parametrize("power", [-290, -200, -150, -80, -40, 0, 40, 80, 150, 200, 290])
@pytest.mark.parametrize("bound", [1.0, 100.0])
def test_a_vector_is_what_its_product_is_however_large_its_factors(name, power, bound):
    """(3, -4) as f x with f = 10^-k and x = 10^k (3, -4): no factor's square need be a float."""
    f, x = 10.0**-power, np.array([[3.0, -4.0]]) * 10.0**power
    truncation = truncation_at(name, bound)
    grid = Grid.of(truncation, 1)
    vectors = vectors_of("Given", np.zeros((2, 2)), False, np.array([[f, 0.0]]))
    units = integer_sum(x, np.zeros(1), vectors, grid)
    expected = truncated(truncation, np.array([[[3.0, -4.0], [0.0, 0.0]]]))[0]
    atol = grid.unit + (2e-6 * bound if name == "Smoothed" else 0.0)
    np.testing.assert_allclose(units * grid.unit, expected, rtol=2e-9, atol=atol)


@every_truncation
@pytest.mark.parametrize("power", [-290, -200, -80, 0, 80, 200, 290])
def test_a_vector_just_beyond_the_bound_is_not_let_through(name, power):
    """Where neither factor's square is a float, the norm is compared by logarithms: their rounding must not count."""
    grid = Grid.of(truncation_at(name, 1.5), 1)
    for beyond in (0.0, 1e-15, 1e-12, 1e-10, 1e-9, 2e-9, 1e-8, 1e-6, 1e-3):
        f, x = 10.0**-power, np.array([[1.5 * (1.0 + beyond) * 10.0**power]])
        vectors = vectors_of("Given", np.zeros((2, 1)), False, np.array([[f, 0.0]]))
        units = integer_sum(x, np.zeros(1), vectors, grid)
        assert within(units, grid.sensitivity(1, "add-remove")), beyond


# Rows that are not numbers: the table at the top of `tailguard.kernels.rows`.


@every_truncation
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_are_not_numbers_are_mapped_one_by_one(name, dtype):
    grid = Grid.of(truncation_at(name, 1.5), 10)
    largest = float(np.finfo(dtype).max)

    def mean_of(*row):
        return integer_sum(np.array([row], dtype=dtype), np.zeros(1), RowValues(), grid)

    def gradient_of(*row, y=0.0, w=(0.5, 0.0)):
        vectors = Gradients(Squared(), np.array([[*w, 0.25]]), True)
        return integer_sum(np.array([row], dtype=dtype), np.array([y], dtype=dtype), vectors, grid)

    # An entry of NaN is 0 in that coordinate of a mean, and takes its row out of a gradient.
    np.testing.assert_array_equal(mean_of(np.nan, 1.0), mean_of(0.0, 1.0))
    np.testing.assert_array_equal(gradient_of(1.0, np.nan), np.zeros((1, 3)))
    np.testing.assert_array_equal(gradient_of(np.nan, 1.0, w=(0.0, 1.0)), np.zeros((1, 3)))
    np.testing.assert_array_equal(gradient_of(1.0, 1.0, y=np.nan), np.zeros((1, 3)))
    # An infinite entry is a large one of its sign.
    np.testing.assert_array_equal(mean_of(np.inf, 1.0), mean_of(largest, 1.0))
    np.testing.assert_array_equal(mean_of(-np.inf, 1.0), mean_of(-largest, 1.0))
    np.testing.assert_array_equal(gradient_of(1.0, np.inf), gradient_of(1.0, largest))
    if dtype == np.float64:
        np.testing.assert_array_equal(gradient_of(-np.inf, 1.0), gradient_of(-LARGEST, 1.0))
    # An infinite label pulls as hard as the truncation lets it; infinity minus infinity pulls nowhere.
    assert gradient_of(1.0, 1.0, y=np.inf)[0, 0] < -0.5 / grid.unit
    assert gradient_of(1.0, 1.0, y=-np.inf)[0, 0] > 0.5 / grid.unit
    np.testing.assert_array_equal(gradient_of(0.0, 0.0, y=0.25), np.zeros((1, 3)))


@every_truncation
@every_source
def test_no_row_makes_a_sum_raise_or_warn_and_the_others_count_as_before(name, source):
    vectors, grid = setup(name, source)
    X, y = table(6, n=30)
    without = integer_sum(X, y, vectors, grid)
    for value in AWKWARD:
        row, label = np.full((1, 5), value), np.array([value])
        alone = integer_sum(row, label, vectors, grid)
        np.testing.assert_array_equal(
            integer_sum(np.vstack([X, row]), np.append(y, label), vectors, grid), without + alone
        )
