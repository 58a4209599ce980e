"""Rows in memory, or in a memory-mapped file: NumPy arrays, compiled kernels, threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tailguard import kernels
from tailguard._checks import data_matrix, data_vector
from tailguard.engines.engine import BlockFunction, Target, block_rows
from tailguard.engines.labels import as_labels, distinct, encode
from tailguard.engines.threads import parallel_map, thread_count
from tailguard.engines.vectors import RowVectors
from tailguard.truncation.grid import Grid

# Compiled kernels read rows in place, in pieces of at most this many values: some milliseconds, beside which the
# twentieth of one that Python takes for a piece does not count, and an interrupt need not wait long.
_PIECE_VALUES = 2**24
# Fewer are not worth a thread: to wake one and wait for it takes up to a fifth of a millisecond on a virtual machine,
# in which one core adds up about as many.
_FEW_VALUES = 2**18


@dataclass(frozen=True)
class InMemory:
    """An engine over a matrix of rows ``X`` (n, d) and, for gradients, their targets ``y`` (n,).

    C order is read in place, float32 as well as float64; other layouts are copied a small piece at a time. No copy
    of X is made.
    """

    X: NDArray[Any]
    y: NDArray[Any] | None = None
    threads: int | None = None
    names: tuple[str, ...] | None = None

    rank: ClassVar[int] = 100  # what no other engine wants
    shares_passes: ClassVar[bool] = True

    @staticmethod
    def accepts(X: Any) -> bool:
        """Anything that is an array, or can be made one."""
        return True

    @staticmethod
    def of(
        X: Any, y: Any, threads: int | None, *, target: Target = "number", names: Sequence[str] | None = None
    ) -> InMemory:
        """Check types and shapes, not values."""
        X = data_matrix("X", X)
        if y is None and target != "none":
            raise ValueError("y=None is not accepted: give one value per row.")
        if target == "number":
            return InMemory(X, data_vector("y", y, len(X)), threads)
        return InMemory(X, None if target == "none" else as_labels(y), threads)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def columns(self) -> int:
        """Number of columns of X."""
        return int(self.X.shape[1])

    def truncated_sum(
        self, vectors: RowVectors, grid: Grid, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Exact sum of the truncated vectors of the given rows (default all), in units of the grid.

        Returns
        -------
        ndarray of int64
            Of the vectors' shape, outputs by coordinates; the same for any threads, pieces and order of the rows.
        """
        bound, *psi = grid.truncation.kernel_arguments()
        shape = vectors.shape(self.columns)

        def piece_sum(piece: slice) -> NDArray[np.int64]:
            total = np.zeros(shape, dtype=np.int64)
            block = vectors.block(*self._piece(piece, rows))
            kernels.rows.truncated_sum(*block, grid.truncation.kind, bound, 1.0 / grid.unit, *psi, total)
            return total

        if hasattr(vectors, "clipped"):  # whichever rows are asked for, so that a row adds the same bits
            return self._compiled_sum(vectors.clipped(grid), shape, rows)
        count = self.n if rows is None else len(rows)
        direct = rows is None and vectors.compiled and self._in_place
        pieces = self._shares(count) if direct else self._blocks(count)
        sums = parallel_map(piece_sum, pieces, thread_count(self.threads), products=not vectors.compiled)
        return np.sum(sums, axis=0) if sums else np.zeros(shape, dtype=np.int64)

    def integer_sum(self, function: BlockFunction, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Sum over blocks of rows of ``function(X, y)``, an int64 array: counts, and exact products."""
        if getattr(function, "fused", False):
            return self._compiled_sum(function, shape, None)
        sums = self.map_blocks(function)
        return np.sum(sums, axis=0, dtype=np.int64).reshape(shape)

    def columns_of(self, vectors: RowVectors) -> Callable[[int, int], NDArray[np.float64]]:
        """Return a function of (output, coordinate) that gives that coordinate of every row's vector, shape (n,)."""
        if not vectors.factored:
            rows = np.concatenate(self.map_blocks(lambda X, y: vectors.block(X, y).X))
            return lambda _, j: rows[:, j]
        multiplier = np.empty((vectors.shape(self.columns)[0], self.n))

        def fill(block: slice) -> None:
            kernels.rows.fill_multipliers(*vectors.block(*self._piece(block, None)), multiplier[:, block])

        self._map(fill, self._blocks(self.n))

        def column(k: int, j: int) -> NDArray[np.float64]:
            if j == self.columns:
                return multiplier[k]
            with np.errstate(all="ignore"):
                return np.asarray(multiplier[k] * np.asarray(self.X[:, j], dtype=np.float64))

        return column

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Copy rows, in the given order: X and y."""
        return self.X[rows], np.zeros(len(rows)) if self.y is None else self.y[rows]

    def column(self, j: int) -> InMemory:
        """Return an engine over column j alone, as X and as y."""
        column = np.array(self.X[:, j], dtype=np.float64)
        return InMemory(column[:, None], column, self.threads)

    def labels(self) -> NDArray[Any]:
        """Distinct targets, sorted."""
        return distinct(np.asarray(self.y))

    def encoded(self, classes: Sequence[Any], values: NDArray[np.float64]) -> InMemory:
        """Return an engine whose targets are ``values[k]`` where they were ``classes[k]``, and NaN elsewhere."""
        return replace(self, y=encode(np.asarray(self.y), classes, values))

    def map_rows(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
        """Apply a function to all rows, a block at a time."""
        return np.concatenate(self.map_blocks(lambda X, _: function(X)))

    def map_blocks(self, function: BlockFunction) -> list[NDArray[Any]]:
        """Apply a function to every block of rows and targets; answers in order."""
        return self._map(lambda block: function(*self._piece(block, None)), self._blocks(self.n))

    def _compiled_sum(
        self, function: BlockFunction, shape: tuple[int, ...], rows: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """Sum of a compiled function, for which it does not matter where rows are cut."""
        count = self.n if rows is None else len(rows)
        if rows is not None:
            # Copies of rows may be larger than those that Python functions work on: a piece is read once.
            pieces = cut(count, 4 * block_rows(self.columns))
        else:
            pieces = self._shares(count) if isinstance(self.X, np.ndarray) else self.X.parts()

        def piece_sum(piece: slice) -> NDArray[np.int64]:
            X, y = self._compiled_piece(piece) if rows is None else self._piece(piece, rows)
            return function(X, y)

        sums = parallel_map(piece_sum, pieces, thread_count(self.threads), products=False)
        return np.sum(sums, axis=0, dtype=np.int64).reshape(shape) if sums else np.zeros(shape, dtype=np.int64)

    @property
    def _in_place(self) -> bool:
        """Whether kernels can read X where it is."""
        return isinstance(self.X, np.ndarray) and self.X.flags.c_contiguous

    def _map(self, function: Callable[[slice], Any], pieces: Iterator[slice]) -> list[Any]:
        return parallel_map(function, pieces, thread_count(self.threads))

    def _shares(self, n: int) -> Iterator[slice]:
        """Pieces for compiled kernels: equally many for every thread, so that none waits for another."""
        threads = thread_count(self.threads)
        rounds = max(1, -(-n * self.columns // (_PIECE_VALUES * threads)))
        return cut(n, max(1, -(-n // (rounds * threads)), _FEW_VALUES // max(1, self.columns)))

    def _blocks(self, n: int) -> Iterator[slice]:
        """Pieces for Python functions: the same whatever the threads."""
        return cut(n, block_rows(self.columns))

    def _piece(self, piece: slice, rows: NDArray[np.int64] | None) -> tuple[NDArray[Any], NDArray[Any]]:
        index: Any = piece if rows is None else rows[piece]
        X = np.ascontiguousarray(self.X[index])
        y = np.zeros(len(X)) if self.y is None else np.ascontiguousarray(self.y[index], dtype=np.float64)
        return _read_only(X), _read_only(y)

    def _compiled_piece(self, piece: slice) -> tuple[Any, NDArray[Any]]:
        """Rows as they lie, row by row or column by column, for functions that take both."""
        rows = piece.stop - piece.start
        y = np.zeros(rows) if self.y is None else np.ascontiguousarray(self.y[piece], dtype=np.float64)
        if not isinstance(self.X, np.ndarray):
            return self.X.as_it_lies(piece), _read_only(y)
        X = self.X[piece]
        if X.flags.f_contiguous:  # a few rows that are all: not worth compiling for
            X = np.ascontiguousarray(X)
        return _read_only(X), _read_only(y)


def cut(n: int, step: int) -> Iterator[slice]:
    """Slices of ``step`` rows, the last maybe shorter."""
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view: one compiled kernel then serves ordinary and memory-mapped arrays."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
