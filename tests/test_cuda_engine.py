"""Rows on a GPU: the kernel follows `row_rule` to the last bit, and the engine gives what memory gives.

Without a GPU the kernels run in Triton's interpreter, on the CPU, in a process of their own (the interpreter is chosen
when Triton is imported). Without torch only the choice of the engine is tested.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import row_rule
from tailguard.engines.cuda import Cuda
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import Gradients, RowFunction, RowValues
from tailguard.losses import Custom, Huber, Logistic, Multinomial, PerRow, Poisson, Squared
from tailguard.truncation import CoordinateClip, Grid, L2Clip, Smoothed
from triton_here import (
    DEVICE,
    HERE,
    elsewhere,
    interpreter,  # noqa: F401 (for every test of this file)
    needs_torch,
    on_device,
    passes_in_the_interpreter,
)

if HERE:
    import torch

EDGES = [0.0, -0.0, 5e-324, 1e-320, 1e-160, 1e160, 1e308, -1e308, np.inf, -np.inf, np.nan, 1e30, 1e-30, 0.5, -1.0]
TRUNCATIONS = {
    "l2": L2Clip(2.0),
    "coordinate": CoordinateClip(0.5),
    "psi": Smoothed(1.0, math.sqrt(2 * math.log(100))),
    "psi by table": Smoothed(0.3, 200.0),
}
LOSSES = {"squared": Squared(), "logistic": Logistic(), "huber": Huber(0.7), "poisson": Poisson()}


@needs_torch
@elsewhere
def test_all_of_this_in_the_interpreter():
    passes_in_the_interpreter(__file__)


def table(n, d, seed=0, dtype=np.float64):
    """Ordinary rows, rows with edges in them, rows of every size, and rows that fall on half units."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    quarter = n // 4
    wild = rng.random((quarter, d)) < 0.2
    X[:quarter][wild] = rng.choice(EDGES, wild.sum())
    X[quarter : 2 * quarter] *= np.exp(rng.uniform(-300, 300, (quarter, 1)))
    X[2 * quarter : 2 * quarter + 4] = 2.0**-30 * (rng.integers(0, 9, (4, d)) + 0.5)
    y = rng.lognormal(size=n)
    y[:4] = [np.nan, np.inf, -np.inf, 0.0]
    with np.errstate(all="ignore"):
        return X.astype(dtype), y


def twin(vectors, grid, X, y, given=None):
    """The sum by `row_rule`."""
    block = vectors.block(X[:0], y[:0])
    multipliers = np.ones((len(X), 1)) if given is None else given
    bound, *psi = grid.truncation.kernel_arguments()
    rows = row_rule.contributions(
        X, y, block.w, block.fit_intercept, block.code, block.parameter, multipliers, grid.truncation.kind, bound,
        1.0 / grid.unit, *psi,
    )  # fmt: skip
    return rows.sum(axis=0)


def cuda(X, y, threads=1):
    return Cuda.of(torch.as_tensor(X, device=DEVICE), torch.as_tensor(y, device=DEVICE), threads)


CASES = [
    ("l2", "squared", 10, True, np.float32),
    ("l2", "squared", 10, False, np.float64),
    ("l2", "logistic", 3, True, np.float64),
    ("l2", "poisson", 70, False, np.float32),
    ("l2", "huber", 130, True, np.float64),
    ("coordinate", "logistic", 1, False, np.float64),
    ("coordinate", "squared", 32, True, np.float32),
    ("psi", "squared", 10, False, np.float32),
    ("psi", "poisson", 11, True, np.float64),
    ("psi by table", "huber", 5, True, np.float64),
]


@on_device
@pytest.mark.parametrize(("truncation", "loss", "d", "fit_intercept", "dtype"), CASES)
def test_the_kernel_follows_the_rule_to_the_last_bit(truncation, loss, d, fit_intercept, dtype):
    X, y = table(60, d, dtype=dtype)
    w = np.random.default_rng(1).standard_normal((1, d + fit_intercept))
    vectors, grid = Gradients(LOSSES[loss], w, fit_intercept), Grid.of(TRUNCATIONS[truncation], len(X))
    np.testing.assert_array_equal(cuda(X, y).truncated_sum(vectors, grid), twin(vectors, grid, X, y))


@on_device
@pytest.mark.parametrize("truncation", ["l2", "coordinate", "psi"])
def test_means_of_rows_follow_it_too(truncation):
    X, y = table(60, 6)
    grid = Grid.of(TRUNCATIONS[truncation], len(X))
    np.testing.assert_array_equal(cuda(X, y).truncated_sum(RowValues(), grid), twin(RowValues(), grid, X, y))


@on_device
def test_one_row_is_within_the_sensitivity():
    """Every row by itself: its integers have the norm that the privacy proof counts on."""
    X, y = table(40, 4)
    for truncation in ("l2", "psi"):
        grid = Grid.of(TRUNCATIONS[truncation], len(X))
        vectors = Gradients(Squared(), np.full((1, 5), 0.7), True)
        engine = cuda(X, y)
        for row in range(0, 20, 3):
            one = engine.truncated_sum(vectors, grid, np.array([row])).astype(float)
            assert np.linalg.norm(one) <= grid.sensitivity(5, "add-remove")


@on_device
@pytest.mark.parametrize(
    ("truncation", "threads", "shared", "ahead", "listed"),
    [("l2", 1, False, 2, 32), ("psi", 2, True, 1, 1), ("l2", 16, True, 2, 8), ("psi", 32, False, 1, 4)],
)
def test_how_rows_are_cut_among_threads_does_not_matter(truncation, threads, shared, ahead, listed):
    from tailguard.kernels.triton_rows import Plan, add_rows

    X, y = table(24, 21, seed=2, dtype=np.float32)
    w = np.random.default_rng(1).standard_normal((1, 22))
    vectors, grid = Gradients(Squared(), w, True), Grid.of(TRUNCATIONS[truncation], len(X))
    bound, *psi = grid.truncation.kernel_arguments()
    found = add_rows(
        *(torch.as_tensor(a, device=DEVICE) for a in (X, y, w)), None, None, True, row_rule.SQUARED, 0.0,
        grid.truncation.kind, bound, 1.0 / grid.unit, *psi, plan=Plan(threads, 8, shared, ahead, listed),
    )  # fmt: skip
    np.testing.assert_array_equal(found.cpu().numpy(), twin(vectors, grid, X, y))


def placed(array, shift):
    """The same numbers on the device, so many of them past a multiple of 16 bytes."""
    room = torch.zeros(array.size + shift, dtype=torch.as_tensor(array).dtype, device=DEVICE)
    there = room[shift:].view(array.shape)
    there.copy_(torch.as_tensor(array))
    assert (there.data_ptr() % 16 == 0) == (shift == 0)
    return there


@pytest.mark.skipif(DEVICE != "cuda", reason="no GPU here: nothing is compiled")
@pytest.mark.parametrize(("d", "truncation"), [(7, "l2"), (8, "psi")])
def test_kernels_that_are_launched_again_fit_where_rows_begin(d, truncation, monkeypatch):
    """Rows, targets and weights at a multiple of 16 bytes, and then one of them not, compiled and launched again."""
    from tailguard.kernels import triton_rows

    made = []

    class Recorded(triton_rows.Launch):
        def __init__(self, *args, **settings):
            super().__init__(*args, **settings)
            made.append(self)

    monkeypatch.setattr(triton_rows, "Launch", Recorded)
    triton_rows._launches.cache_clear()
    X, y = table(400, d, seed=3, dtype=np.float32)
    w = np.random.default_rng(1).standard_normal((1, d))
    vectors, grid = Gradients(Squared(), w, False), Grid.of(TRUNCATIONS[truncation], len(X))
    bound, *psi = grid.truncation.kernel_arguments()
    expected = twin(vectors, grid, X, y)
    ways = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    for shifts in [*ways, *ways[::-1]]:
        found = triton_rows.add_rows(
            *(placed(a, shift) for a, shift in zip((X, y, w), shifts, strict=True)), None, None, False,
            row_rule.SQUARED, 0.0, grid.truncation.kind, bound, 1.0 / grid.unit, *psi,
        )  # fmt: skip
        np.testing.assert_array_equal(found.cpu().numpy(), expected)
    triton_rows._launches.cache_clear()
    assert all(launch.current is not None for launch in made)  # Triton has let them be launched again
    assert sum(len(launch.compiled) for launch in made) == 2 * len(ways)


@on_device
def test_samples_strides_and_order_do_not_matter():
    X, y = table(60, 6)
    wide = np.zeros((60, 13))
    wide[:, 1:13:2] = X
    vectors, grid = Gradients(Squared(), np.full((1, 6), 0.3), False), Grid.of(TRUNCATIONS["l2"], 60)
    rows = np.random.default_rng(3).permutation(60)[:33]
    expected = twin(vectors, grid, X[rows], y[rows])
    np.testing.assert_array_equal(cuda(X, y).truncated_sum(vectors, grid, rows), expected)
    np.testing.assert_array_equal(cuda(X, y).truncated_sum(vectors, grid, rows[::-1]), expected)
    strided = Cuda.of(torch.as_tensor(wide, device=DEVICE)[:, 1:13:2], torch.as_tensor(y, device=DEVICE), 1)
    np.testing.assert_array_equal(strided.truncated_sum(vectors, grid, rows), expected)
    nothing = cuda(X, y).truncated_sum(vectors, grid, rows[:0])
    np.testing.assert_array_equal(nothing, np.zeros((1, 6)))


@on_device
@pytest.mark.parametrize(
    ("loss", "outputs"),
    [(Custom(lambda z, y: z, lambda z, y: np.tanh(z - y)), 1), (Multinomial(3), 3)],
    ids=["custom", "multinomial"],
)
def test_losses_in_numpy_get_predictors_and_give_multipliers(loss, outputs):
    X, y = table(50, 4)
    w = np.random.default_rng(1).standard_normal((outputs, 5))
    with np.errstate(all="ignore"):
        z = np.column_stack([row_rule.predictor(X, w[k, :4], w[k, 4]) for k in range(outputs)])
        given = np.reshape(loss.dz(z if outputs > 1 else z[:, 0], y), z.shape)
    vectors, grid = Gradients(loss, w, True), Grid.of(TRUNCATIONS["l2"], len(X))
    block = row_rule.contributions(
        X, y, w, True, row_rule.GIVEN, 0.0, given, row_rule.L2, 2.0, 1.0 / grid.unit, (), (), 0.0, 0.0
    )
    np.testing.assert_array_equal(cuda(X, y).truncated_sum(vectors, grid), block.sum(axis=0))


@on_device
def test_what_is_computed_from_blocks_is_what_memory_gives():
    X, y = table(50, 4)
    engine, memory = cuda(X, y), InMemory(X, y, 1)
    grid = Grid.of(TRUNCATIONS["l2"], len(X))
    double = RowFunction(lambda X, y: 2.0 * X[:, :2], 2)
    per_row = Gradients(PerRow(lambda w, X, y: X * w), np.full((1, 4), 0.5), False)
    for vectors in (double, per_row):
        np.testing.assert_array_equal(engine.truncated_sum(vectors, grid), memory.truncated_sum(vectors, grid))
    count = lambda X, y: np.array([(X > 0).sum(), (y > 1).sum()])  # noqa: E731
    np.testing.assert_array_equal(engine.integer_sum(count, (2,)), memory.integer_sum(count, (2,)))
    np.testing.assert_array_equal(engine.map_rows(lambda X: X[:, 1]), X[:, 1])
    np.testing.assert_array_equal(engine.columns_of(RowValues())(0, 2), memory.columns_of(RowValues())(0, 2))
    rows = np.array([7, 3, 3])
    for got, expected in zip(engine.take(rows), memory.take(rows), strict=True):
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(engine.column(1).take(rows)[1], X[rows, 1])


@on_device
def test_functions_of_tensors_stay_on_the_device():
    X, y = table(50, 4)
    engine = cuda(X, y)
    seen = []

    def clipped(X, y):
        seen.append(X.device.type)
        return X.nan_to_num(0.0, 0.0, 0.0).clamp(-1.0, 1.0)

    def positive(X, y):
        seen.append(X.device.type)
        return (X > 0).sum(0)

    clipped.on_device = positive.on_device = True
    grid = Grid.of(TRUNCATIONS["l2"], len(X))
    expected = twin(RowValues(), grid, np.clip(np.nan_to_num(X, nan=0.0, posinf=0.0, neginf=0.0), -1, 1), y)
    np.testing.assert_array_equal(engine.truncated_sum(RowFunction(clipped, 4), grid), expected)
    np.testing.assert_array_equal(engine.integer_sum(positive, (4,)), (X > 0).sum(axis=0))
    assert set(seen) == {DEVICE}


@on_device
def test_labels_become_numbers():
    X = np.zeros((5, 1))
    labels = np.array(["b", "a", "b", "c", "a"])
    engine = Cuda.of(torch.as_tensor(X, device=DEVICE), labels, 1, target="label")
    np.testing.assert_array_equal(engine.labels(), ["a", "b", "c"])
    encoded = engine.encoded(["a", "b"], np.array([-1.0, 1.0]))
    np.testing.assert_array_equal(encoded.take(np.arange(5))[1], [1.0, -1.0, 1.0, np.nan, -1.0])


@on_device
def test_arguments_are_checked_by_type_and_shape():
    X = torch.zeros((4, 2), device=DEVICE)
    with pytest.raises(ValueError, match=r"y has shape \(3,\) but there are 4 rows"):
        Cuda.of(X, np.zeros(3), None)
    with pytest.raises(ValueError, match="two dimensions"):
        Cuda.of(X[:, 0], np.zeros(4), None)
    with pytest.raises(ValueError, match="y=None"):
        Cuda.of(X, None, None)
    with pytest.raises(TypeError, match="real numbers"):
        Cuda.of(X.to(torch.complex64), np.zeros(4), None)
    assert Cuda.of(X.to(torch.int32), np.zeros(4), None).X.dtype == torch.float64


@pytest.mark.parametrize("truncation", TRUNCATIONS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("d", [1, 7, 16, 17, 50, 130])
def test_memory_follows_the_rule_to_the_last_bit(truncation, loss, d):
    """So what is summed here and on a GPU is the same: narrow tables and wide ones, whole tiles and the rest."""
    seed = 4
    for n, dtype, fit_intercept in ((60, np.float64, True), (347, np.float32, False)):
        X, y = table(n, d, seed, dtype)
        order = np.random.default_rng(seed).permutation(n)  # plain rows and others in one tile
        X, y = X[order], y[order]
        w = np.random.default_rng(seed + 1).standard_normal((1, d + fit_intercept))
        vectors, grid = Gradients(LOSSES[loss], w, fit_intercept), Grid.of(TRUNCATIONS[truncation], n)
        found = InMemory(X, y, 1).truncated_sum(vectors, grid)
        np.testing.assert_array_equal(found, twin(vectors, grid, X, y))


@pytest.mark.parametrize("truncation", TRUNCATIONS)
@pytest.mark.parametrize("d", [3, 40])
def test_given_multipliers_in_memory_follow_it_too(truncation, d):
    X, y = table(100, d)
    loss, w = Multinomial(3), np.random.default_rng(1).standard_normal((3, d + 1))
    with np.errstate(all="ignore"):
        z = np.column_stack([row_rule.predictor(X, w[k, :d], w[k, d]) for k in range(3)])
        given = loss.dz(z, y)
    vectors, grid = Gradients(loss, w, True), Grid.of(TRUNCATIONS[truncation], len(X))
    np.testing.assert_array_equal(InMemory(X, y, 1).truncated_sum(vectors, grid), twin(vectors, grid, X, y, given))
    rows = InMemory(X, y, 1).truncated_sum(RowValues(), grid)
    np.testing.assert_array_equal(rows, twin(RowValues(), grid, X, y))


class Shared:
    def __init__(self, kind):
        self.kind = kind

    def __dlpack_device__(self):
        return (self.kind, 0)


def test_the_engine_takes_what_is_on_a_cuda_device_and_nothing_else():
    assert Cuda.accepts(Shared(2))
    assert Cuda.accepts(Shared(13))
    assert not Cuda.accepts(Shared(1))
    assert not Cuda.accepts(np.zeros((2, 2)))
    assert not Cuda.accepts([[1.0]])


@pytest.mark.skipif(HERE, reason="torch is installed")
def test_without_torch_the_error_says_what_to_install():
    with pytest.raises(ImportError, match=r"tailguard\[gpu\]"):
        Cuda.of(Shared(2), None, None)
