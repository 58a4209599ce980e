"""The contract of engines: every one gives the same integers as rows in memory, whatever the rows.

An engine brings a file ``engine_<name>.py`` beside this one, with ``BUILDERS``: names to functions of (X, y, threads,
folder) that put the rows where the engine wants them (in the folder, if it is files) and return the engine. It is found
by itself, and these tests are all it has to pass. An engine whose rows stay where they are may raise `RowsStayError` in
`take` and `columns_of`, and one that does not cut rows into the blocks of `block_rows` says ``SAME_BLOCKS = False``;
everything else is asked of all.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from parts import AWKWARD, SOURCES, intercept_allowed, outputs_of, truncation_at, vectors_of

from default_rows import GRID, TARGET, counts, design, vectors
from tailguard.default.rows import DesignRows
from tailguard.default.score_table import ScoreTable
from tailguard.engines import RowsStayError, engine, engine_for
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import Gradients, RowFunction, RowValues
from tailguard.losses import Squared
from tailguard.means.queries import Together
from tailguard.truncation import Grid, L2Clip

OPTIONAL = ("pyarrow", "pandas", "dask", "torch", "triton")


def _builders(stem: str):
    """The module of an engine's builders; None where a library that they need is not installed."""
    try:
        return importlib.import_module(stem)
    except ModuleNotFoundError as missing:
        if str(missing.name).partition(".")[0] not in OPTIONAL:
            raise
        return None


FOUND = [_builders(path.stem) for path in sorted(Path(__file__).parent.glob("engine_*.py"))]
MODULES = [module for module in FOUND if module is not None]
BUILDERS = {name: build for module in MODULES for name, build in module.BUILDERS.items()}
ENGINES = sorted(BUILDERS)
# On a GPU the sums of the default may be a unit apart in every row.
OTHER_BITS = {name for module in MODULES if not getattr(module, "SAME_BITS", True) for name in module.BUILDERS}
OTHER_BLOCKS = {name for module in MODULES if not getattr(module, "SAME_BLOCKS", True) for name in module.BUILDERS}
N, D = 101, 3  # 101 rows are no multiple of any block


def rows(seed: int, dtype=np.float64, n: int = N, d: int = D) -> tuple[np.ndarray, np.ndarray]:
    """Ordinary, heavy-tailed and impossible rows, in random order."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(1.5, (n, d))
    wild = rng.random((n, d)) < 0.15
    X[wild] = rng.choice(np.array(AWKWARD), wild.sum())
    y = rng.standard_t(1.5, n)
    y[rng.random(n) < 0.1] = rng.choice(np.array(AWKWARD))
    with np.errstate(over="ignore"):
        return X.astype(dtype), y


@pytest.fixture(params=ENGINES)
def build(request, tmp_path):
    """A function of (X, y, threads) that makes an engine of every kind."""
    made = iter(range(1000))

    def make(X, y, threads=2):
        folder = tmp_path / str(next(made))
        folder.mkdir()
        return BUILDERS[request.param](X, y, threads, folder)

    return make


@pytest.fixture(params=[2**16, 12], ids=["large blocks", "blocks of 12 values"])
def blocks(request, monkeypatch):
    """Blocks that hold all rows, and blocks of a few: both of memory and of what is compared with it."""
    monkeypatch.setattr(engine, "_BLOCK_VALUES", request.param)
    return request.param


def grid(name: str, n: int = N) -> Grid:
    return Grid.of(truncation_at(name, 2.0), n)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("truncation", ["L2Clip", "CoordinateClip", "Smoothed"])
def test_truncated_sums_are_those_in_memory(build, truncation, dtype, blocks):
    X, y = rows(0, dtype)
    held, memory = build(X, y), InMemory(X, y, 1)
    assert (held.n, held.columns) == (N, D)
    sampled = np.flatnonzero(np.random.default_rng(1).random(N) < 0.3)
    for source in SOURCES:
        fit_intercept = intercept_allowed(source)
        w = np.random.default_rng(2).normal(size=(outputs_of(source), D + fit_intercept))
        vectors = vectors_of(source, w, fit_intercept)
        for chosen in (None, sampled, sampled[::-1], sampled[:0], np.array([N - 1])):
            expected = memory.truncated_sum(vectors, grid(truncation), chosen)
            found = held.truncated_sum(vectors, grid(truncation), chosen)
            assert found.dtype == np.int64
            np.testing.assert_array_equal(found, expected, err_msg=source)


def test_the_order_of_rows_and_the_threads_do_not_matter(build, busy_threads):
    X, y = rows(3)
    vectors = Gradients(Squared(), np.ones((1, D)), False)
    whole = InMemory(X, y, 1).truncated_sum(vectors, grid("L2Clip"))
    assert whole.any()
    order = np.random.default_rng(4).permutation(N)
    for threads in (1, 3):
        np.testing.assert_array_equal(build(X, y, threads).truncated_sum(vectors, grid("L2Clip")), whole)
        np.testing.assert_array_equal(build(X[order], y[order], threads).truncated_sum(vectors, grid("L2Clip")), whole)


def test_one_row_more_is_seen(build):
    """Power: the comparisons above notice a single row."""
    X, y = np.ones((N, D)), np.zeros(N)
    vectors = Gradients(Squared(), np.ones((1, D)), False)
    fewer = build(X[1:], y[1:]).truncated_sum(vectors, grid("L2Clip"))
    assert np.all(build(X, y).truncated_sum(vectors, grid("L2Clip")) > fewer)


def sums_of_the_default() -> dict:
    """One of every kind: counts, vectors, a Gram matrix, a table, and several in one pass."""
    counted = {name: one for name, one in counts(D).items() if name in ("first look", "first look at target", "sizes")}
    clipped = {name: rows.clipped(Grid.of(L2Clip(0.5 * bound), N)) for name, (rows, bound) in vectors(D).items()}
    gram = DesignRows(design(D)).gram(2.0, 19)
    table = ScoreTable(design(D), np.full(D + 1, 0.3), TARGET, GRID, N)
    return {**counted, **clipped, "gram": gram, "table": table, "together": Together((gram, *counted.values()))}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sums_of_the_default_are_those_in_memory(build, blocks, dtype, request):
    X, y = rows(18, dtype)
    y[::4] = np.arange(len(y[::4])) % 3  # labels
    held, memory = build(X, y), InMemory(X, y, 1)
    same = request.node.callspec.params["build"] not in OTHER_BITS
    for name, one in sums_of_the_default().items():
        if name in ("table", "together") and not getattr(held, "shares_passes", False):
            continue  # it is not asked for these
        found, expected = held.integer_sum(one, one.shape), memory.integer_sum(one, one.shape)
        assert found.dtype == np.int64
        assert found.shape == expected.shape == one.shape
        assert expected.any()
        apart = 0.0 if same else N * (2.0**20 if name == "gram" else 1.0)
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=apart, err_msg=name)


def test_vectors_of_the_default_are_those_of_chosen_rows(build, blocks, request):
    """The same integers whether they are asked for as one sum, as vectors, or row by row."""
    X, y = rows(19)
    held, memory = build(X, y), InMemory(X, y, 1)
    chosen = np.flatnonzero(np.random.default_rng(20).random(N) < 0.3)
    apart = 0.0 if request.node.callspec.params["build"] not in OTHER_BITS else N
    for name, (one, bound) in vectors(D).items():
        grid = Grid.of(L2Clip(0.5 * bound), N)
        whole = memory.integer_sum(one.clipped(grid), (one.width,))
        np.testing.assert_allclose(held.truncated_sum(one, grid)[0], whole, rtol=0.0, atol=apart, err_msg=name)
        each = [memory.truncated_sum(one, grid, np.array([i])) for i in chosen]
        np.testing.assert_allclose(held.truncated_sum(one, grid, chosen), np.sum(each, axis=0), rtol=0.0, atol=apart)


def test_functions_see_every_row_once_as_floats_that_they_cannot_change(build, blocks):
    X, y = rows(5)
    seen = []

    def count(block, targets):
        assert block.flags.c_contiguous
        assert not block.flags.writeable
        assert targets.dtype == np.float64
        assert 0 < len(block) == len(targets)
        seen.append(len(block))
        return np.array([np.sum(block > 0.0), np.sum(np.nan_to_num(targets) < 0.0)])

    found = build(X, y, 1).integer_sum(count, (2,))
    np.testing.assert_array_equal(found, [np.sum(X > 0.0), np.sum(np.nan_to_num(y) < 0.0)])
    assert sum(seen) == N


@pytest.mark.parametrize("kind", ["integers", "vectors"])
def test_matrix_products_round_alike(build, blocks, kind, request):
    """BLAS may round a row differently where it stands elsewhere in its block: the blocks must be the same."""
    if request.node.callspec.params["build"] in OTHER_BLOCKS:
        pytest.skip("this engine cuts rows elsewhere, and promises the same bits to functions without matrix products")
    rng = np.random.default_rng(6)
    X, y, W = rng.normal(size=(N, 10)), rng.normal(size=N), rng.normal(size=(10, 10))

    def digits(block, targets):
        """All bits of a product, added up modulo 2^64: another rounding shows."""
        return np.array([np.sum((block @ W @ W[0] + targets).view(np.int64))])

    held, memory = build(X, y), InMemory(X, y, 1)
    if kind == "integers":
        np.testing.assert_array_equal(held.integer_sum(digits, (1,)), memory.integer_sum(digits, (1,)))
    else:
        fine = Grid.of(truncation_at("L2Clip", 1e9), N)
        vectors = RowFunction(lambda block, targets: 1e8 * (block @ W), 10)
        some = np.flatnonzero(rng.random(N) < 0.5)
        for chosen in (None, some):
            expected = memory.truncated_sum(vectors, fine, chosen)
            np.testing.assert_array_equal(held.truncated_sum(vectors, fine, chosen), expected)


def test_columns_are_those_in_memory(build, blocks):
    X, y = rows(7)
    held, memory = build(X, y), InMemory(X, y, 1)
    for source in ("Squared", "Multinomial", "PerRow", "RowValues"):
        fit_intercept = intercept_allowed(source)
        w = np.random.default_rng(8).normal(size=(outputs_of(source), D + fit_intercept))
        vectors = vectors_of(source, w, fit_intercept)
        try:
            column = held.columns_of(vectors)
        except RowsStayError:
            continue
        expected = memory.columns_of(vectors)
        for k in range(w.shape[0]):
            for j in range(w.shape[1]):
                np.testing.assert_array_equal(column(k, j), expected(k, j), err_msg=source)


def test_taken_rows_come_in_the_order_asked_for(build, blocks):
    X, y = rows(9)
    chosen = np.random.default_rng(10).permutation(N)[:40]
    try:
        found, targets = build(X, y).take(chosen)
    except RowsStayError:
        return
    np.testing.assert_array_equal(found, X[chosen])
    np.testing.assert_array_equal(targets, y[chosen])


def test_a_column_alone_is_rows_and_targets(build):
    X, y = rows(11)
    for j in range(D):
        held, memory = build(X, y).column(j), InMemory(X, y, 1).column(j)
        assert (held.n, held.columns) == (N, 1)
        np.testing.assert_array_equal(
            held.truncated_sum(RowValues(), grid("L2Clip")), memory.truncated_sum(RowValues(), grid("L2Clip"))
        )

        def same(block, targets):
            return np.array([np.sum((block[:, 0] == targets) | np.isnan(targets)), np.isnan(targets).sum()])

        np.testing.assert_array_equal(held.integer_sum(same, (2,)), [N, np.isnan(X[:, j]).sum()])


def test_labels_are_found_and_encoded(build):
    X, _ = rows(12)
    y = np.random.default_rng(13).integers(0, 3, N).astype(float)
    held = build(X, y)
    np.testing.assert_array_equal(held.labels(), [0.0, 1.0, 2.0])
    values = np.array([-5.0, 7.0])
    encoded = held.encoded([2, 0], values)

    def count(block, targets):
        return np.array([np.sum(targets == -5.0), np.sum(targets == 7.0), np.isnan(targets).sum()])

    np.testing.assert_array_equal(encoded.integer_sum(count, (3,)), [np.sum(y == 2), np.sum(y == 0), np.sum(y == 1)])


def test_mapped_rows_keep_their_order(build, blocks):
    X, y = rows(14)
    np.testing.assert_array_equal(np.asarray(build(X, y).map_rows(lambda block: -block[:, 1])), -X[:, 1])


def test_an_error_in_a_function_reaches_the_caller_and_the_engine_goes_on(build):
    X, y = rows(15)
    held = build(X, y)

    def fails(block, targets):
        raise ZeroDivisionError("of the function")

    with pytest.raises(ZeroDivisionError, match="of the function"):
        held.integer_sum(fails, (1,))
    assert held.integer_sum(lambda block, targets: np.array([len(block)]), (1,))[0] == N


def test_an_engine_is_taken_as_it_is(build):
    held = build(*rows(16))
    assert engine_for(held) is held


def test_every_engine_of_the_package_is_under_contract():
    """A class that `engine_for` can choose has a builder here; without its library it cannot be tested, and says so."""
    held = {type(build(*rows(17), 1, None)).__name__ for name, build in BUILDERS.items() if name == "memory"}
    assert held == {"InMemory"}
    stems = {path.stem.removeprefix("engine_") for path in Path(__file__).parent.glob("engine_*.py")}
    chosen = {kind.__module__.rpartition(".")[2] for kind in engine._kinds()}
    assert chosen <= stems, f"no contract for {sorted(chosen - stems)}"
