"""Rows in memory, or in a memory-mapped file: NumPy arrays, compiled kernels, threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard.engines.threads import parallel_map, thread_count
from tailguard.engines.vectors import RowVectors
from tailguard.kernels import rows as kernels
from tailguard.truncation.grid import Grid

# Rows are handed to kernels in pieces of at most this many values; smaller ones where a piece must be copied.
_PIECE_VALUES = 2**21
_COPIED_VALUES = 2**16


BlockFunction = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True)
class InMemory:
    """An engine over a matrix of rows ``X`` (n, d) and, for gradients, their targets ``y`` (n,).

    C order is read in place, float32 as well as float64; other layouts are copied a small piece at a time. No copy
    of X is made.
    """

    X: NDArray[Any]
    y: NDArray[Any] | None = None
    threads: int | None = None

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
            kernels.truncated_sum(*block, grid.truncation.kind, bound, 1.0 / grid.unit, *psi, total)
            return total

        direct = rows is None and vectors.compiled and self.X.flags.c_contiguous
        pieces = self._pieces(self.n if rows is None else len(rows), _PIECE_VALUES if direct else _COPIED_VALUES)
        sums = parallel_map(piece_sum, pieces, thread_count(self.threads))
        return np.sum(sums, axis=0) if sums else np.zeros(shape, dtype=np.int64)

    def integer_sum(self, function: BlockFunction, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Sum over pieces of rows of ``function(X, y)``, an int64 array: counts, and exact products."""
        pieces = self._pieces(self.n, _COPIED_VALUES)
        sums = parallel_map(lambda piece: function(*self._piece(piece, None)), pieces, thread_count(self.threads))
        return np.sum(sums, axis=0, dtype=np.int64).reshape(shape)

    def columns_of(self, vectors: RowVectors) -> Callable[[int, int], NDArray[np.float64]]:
        """Return a function of (output, coordinate) that gives that coordinate of every row's vector, shape (n,)."""
        outputs, width = vectors.shape(self.columns)
        if not vectors.factored:
            rows = np.empty((self.n, width))
            for piece in self._pieces(self.n, _COPIED_VALUES):
                rows[piece] = vectors.block(*self._piece(piece, None)).X
            return lambda _, j: rows[:, j]
        multiplier = np.empty((outputs, self.n))

        def fill(piece: slice) -> None:
            kernels.fill_multipliers(*vectors.block(*self._piece(piece, None)), multiplier[:, piece])

        parallel_map(fill, self._pieces(self.n, _COPIED_VALUES), thread_count(self.threads))

        def column(k: int, j: int) -> NDArray[np.float64]:
            if j == self.columns:
                return multiplier[k]
            with np.errstate(all="ignore"):
                return np.asarray(multiplier[k] * np.asarray(self.X[:, j], dtype=np.float64))

        return column

    def _pieces(self, n: int, values: int) -> Iterator[slice]:
        # Equally many for every thread, so that none waits for another.
        threads = thread_count(self.threads)
        rounds = max(1, -(-n * self.columns // (values * threads)))
        step = max(1, -(-n // (rounds * threads)))
        return (slice(start, min(start + step, n)) for start in range(0, n, step))

    def _piece(self, piece: slice, rows: NDArray[np.int64] | None) -> tuple[NDArray[Any], NDArray[Any]]:
        index: Any = piece if rows is None else rows[piece]
        X = np.ascontiguousarray(self.X[index])
        y = np.zeros(len(X)) if self.y is None else np.ascontiguousarray(self.y[index])
        return _read_only(X), _read_only(y)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view: one compiled kernel then serves ordinary and memory-mapped arrays."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
