"""The sums of the default on a GPU, against the compiled ones: at most a unit apart in every row and coordinate.

Without a GPU the kernels run in Triton's interpreter, on the CPU, in a process of their own.
"""

from __future__ import annotations

import numpy as np
import pytest

import tailguard as tg
from default_rows import counts, design, table, vectors
from tailguard.default import DefaultOptions, fit_default
from tailguard.default.rows import DesignRows
from tailguard.engines.memory import InMemory
from tailguard.truncation import Grid, L2Clip
from triton_here import (
    DEVICE,
    HERE,
    INTERPRETED,
    elsewhere,
    interpreter,  # noqa: F401 (for every test of this file)
    needs_torch,
    on_device,
    passes_in_the_interpreter,
)

if HERE:
    import torch

    from tailguard.engines.cuda import Cuda

N = 300  # several tiles, the last not full
SHAPES = [(3, np.float64), (1, np.float32), (20, np.float32)]


@needs_torch
@elsewhere
def test_all_of_this_in_the_interpreter():
    passes_in_the_interpreter(__file__)


def both(X, y, strided: bool = False):
    """Rows on the device, and here."""
    rows = torch.as_tensor(np.array(X), device=DEVICE)
    rows = rows.T.contiguous().T if strided else rows
    return Cuda(rows, torch.as_tensor(np.array(y), device=DEVICE)), InMemory(X, y, 1)


@on_device
@pytest.mark.parametrize(("d", "dtype"), SHAPES)
@pytest.mark.parametrize("name", vectors())
def test_vectors_are_at_most_a_unit_apart(name, d, dtype):
    if d == 1 and name == "moments of some":
        pytest.skip("of one column there are no others")
    rows, bound = vectors(d)[name]
    X, y = table(N, 0, d, dtype)
    grid = Grid.of(L2Clip(0.7 * bound), N)
    device, memory = both(X, y, strided=d == 20)
    found = device.truncated_sum(rows, grid)
    assert found.dtype == np.int64
    np.testing.assert_allclose(found, memory.truncated_sum(rows, grid), rtol=0.0, atol=N)
    some = np.flatnonzero(np.random.default_rng(1).random(N) < 0.1)
    expected = memory.truncated_sum(rows, grid, some)
    np.testing.assert_allclose(device.truncated_sum(rows, grid, some), expected, rtol=0.0, atol=len(some))
    assert np.abs(expected).max() > 2**20  # power
    for i in range(8 if INTERPRETED else N):  # one by one, and none is longer than its bound
        one = device.truncated_sum(rows, grid, np.array([i]))
        assert np.linalg.norm(one) <= grid.sensitivity(one.size, "add-remove")
        np.testing.assert_allclose(one, memory.truncated_sum(rows, grid, np.array([i])), rtol=0.0, atol=1.0)


@on_device
@pytest.mark.parametrize(("d", "dtype"), SHAPES)
@pytest.mark.parametrize("name", counts())
def test_counts_are_the_same(name, d, dtype):
    """Residuals of these rows are not within rounding of the grid."""
    X, y = table(N, 1, d, dtype)
    device, memory = both(X, y)
    counted = counts(d)[name]
    expected = memory.integer_sum(counted, counted.shape)
    np.testing.assert_array_equal(device.integer_sum(counted, counted.shape), expected)
    assert np.all(expected.sum(axis=-1) == N)


@on_device
@pytest.mark.parametrize(("d", "dtype"), SHAPES)
def test_gram_matrices_are_nearly_the_same(d, dtype):
    """A unit in a row of 2^19 of them is two units of 2^19 in a product."""
    X, y = table(N, 2, d, dtype)
    device, memory = both(X, y)
    gram = DesignRows(design(d)).gram(2.0, 19)
    found = device.integer_sum(gram, gram.shape)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, memory.integer_sum(gram, gram.shape), rtol=0.0, atol=N * 2.0**20)
    assert np.trace(found) > N * 2.0**30


@on_device
def test_more_columns_than_a_tile_holds_are_summed_here():
    X, y = table(20, 3, 300)
    device, memory = both(X, y)
    rows, bound = vectors(300)["score"]
    grid = Grid.of(L2Clip(bound), 20)
    np.testing.assert_array_equal(device.truncated_sum(rows, grid), memory.truncated_sum(rows, grid))


@on_device
@pytest.mark.parametrize("loss", [tg.losses.Squared(), tg.losses.Logistic(), tg.losses.Poisson()], ids=str)
def test_a_fit_is_that_of_the_cpu(loss):
    """The same noise: every release moves by units of 2^-30 of a row."""
    rng = np.random.default_rng(4)
    n = 600
    X = rng.normal(size=(n, 2))
    y = X[:, 0] + rng.standard_t(2.5, n)
    y = (
        y
        if isinstance(loss, tg.losses.Squared)
        else np.sign(y)
        if isinstance(loss, tg.losses.Logistic)
        else np.exp(y / 2)
    )
    device, memory = both(X, y)
    options = DefaultOptions(20.0, 1e-6, random_state=0, threads=1)
    found, expected = fit_default(loss, device, None, options), fit_default(loss, memory, None, options)
    np.testing.assert_allclose(found.coef, expected.coef, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.intercept, expected.intercept, rtol=1e-4, atol=1e-6)
