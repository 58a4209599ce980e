"""Sums over rows that are read from storage on every pass: Parquet, Arrow and CSV files, and memory-mapped arrays.

Reader threads decode the next rows while kernels work on the last ones. Rows are gathered in buffers of a few
megabytes, and every sum is the sum, over buffers, of the sum of an `InMemory` engine on the buffer: integers, so the
same as in memory to the last bit. Each thread takes the next buffer when it is done with its last; none waits for
another before the end of the pass. The peak memory is a buffer for each thread, what the reader is ahead, and what the
format needs to decode; it does not depend on the number of rows.

Two methods gather more, since they must: `columns_of`, for trimmed means, holds a few numbers per row (a multiplier
for each output, and one column for each thread), and `take`, for Algorithm 1, the rows that it is asked for.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Event, Lock
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from tailguard import kernels
from tailguard._checks import ShapeError, as_numbers, data_matrix
from tailguard.engines.ahead import read_ahead
from tailguard.engines.engine import BlockFunction, Engine, Target, block_rows
from tailguard.engines.labels import as_labels
from tailguard.engines.memory import InMemory
from tailguard.engines.source import Part, Source
from tailguard.engines.stored import AHEAD, MappedRows, Rows, SourceRows, length_of, mapping_of
from tailguard.engines.threads import parallel_map, thread_count
from tailguard.engines.vectors import RowVectors
from tailguard.kernels.apart import Apart
from tailguard.truncation.grid import Grid

Array = NDArray[np.float64]
Places = range | NDArray[np.int64]  # of rows in a part

_BLOCKS = 16  # blocks of 2**16 values in a buffer: 8 MiB of float64
_RESIDENT = 2**28  # bytes from which a memory-mapped array is streamed; a smaller one may as well stay


@dataclass(frozen=True)
class Streamed:
    """An engine over rows in storage."""

    rows: Rows
    threads: int | None = None
    keep: bool = False  # read once, on the first pass

    rank: ClassVar[int] = 10
    shares_passes: ClassVar[bool] = True

    @staticmethod
    def accepts(X: Any) -> bool:
        """Sources, paths, tables and datasets of Arrow, and memory-mapped arrays."""
        if isinstance(X, np.ndarray):
            return X.nbytes >= _RESIDENT and mapping_of(X) is not None
        if isinstance(X, (list, tuple)):
            return len(X) > 0 and all(isinstance(path, (str, os.PathLike)) for path in X)
        of_arrow = type(X).__module__.partition(".")[0] == "pyarrow" and hasattr(X, "schema")
        return isinstance(X, (Source, str, os.PathLike)) or of_arrow

    @staticmethod
    def of(
        X: Any, y: Any, threads: int | None, *, target: Target = "number", names: Sequence[str] | None = None
    ) -> Engine:
        """Check types and shapes; nothing is read but the schema and the number of rows."""
        if isinstance(X, np.ndarray):
            X = data_matrix("X", X)
            return Streamed(MappedRows(X, InMemory.of(X, y, threads, target=target).y), threads)
        source = X if isinstance(X, Source) else Source(X)
        if names is not None:
            source = source.select(list(names))
        given = None
        if target == "none":
            pass
        elif isinstance(y, str):
            source = source.with_target(y)
        elif y is not None:
            given = as_labels(y) if target == "label" else as_numbers("y", y)
        elif source.target is None:
            raise ValueError("y=None is not accepted: name the column of the target, for example y='cost'.")
        source.check_features()
        if target != "none" and given is None:
            source.check_target(labels=target == "label")
        if source.n < 1:
            raise ValueError("the files have no rows: give at least one.")
        if given is not None and given.shape != (source.n,):
            raise ShapeError(
                f"y has shape {given.shape} but there are {source.n} rows: give one value per row.",
                "y and X differ in length: give one value per row.",
            )
        size = source.n * (len(source.names) * source.dtype.itemsize + 8)
        return Streamed(SourceRows(source, target != "none" and given is None, given), threads, size <= source.memory)

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.rows.n

    @property
    def columns(self) -> int:
        """Number of features."""
        return self.rows.columns

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the features."""
        return self.rows.names

    def truncated_sum(
        self, vectors: RowVectors, grid: Grid, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Exact sum of the truncated vectors of the given rows (default all), in units of the grid."""
        return self._total(lambda buffer: buffer.truncated_sum(vectors, grid), vectors.shape(self.columns), rows)

    def integer_sum(self, function: BlockFunction, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Sum over blocks of rows of ``function(X, y)``."""
        return self._total(lambda buffer: buffer.integer_sum(function, shape), shape)

    def columns_of(self, vectors: RowVectors) -> Callable[[int, int], Array]:
        """Return a function of (output, coordinate) that gives that coordinate of every row's vector, shape (n,)."""
        if self.keep:
            return self._loaded.columns_of(vectors)
        if not vectors.factored:
            alone = replace(self, threads=1)  # columns are asked for in threads
            return lambda _, j: alone._gathered(lambda X, y: vectors.block(X, y).X[:, j], ())
        outputs = vectors.shape(self.columns)[0]

        def multipliers(X: NDArray[Any], y: NDArray[Any]) -> Array:
            out = np.empty((outputs, len(X)))
            kernels.rows.fill_multipliers(*vectors.block(X, y), out)
            return out.T

        multiplier = self._gathered(multipliers, (outputs,))

        def column(k: int, j: int) -> Array:
            if j == self.columns:
                return multiplier[:, k].copy()
            values = Streamed(self.rows.column(j), 1)._gathered(lambda X, y: X[:, 0], ())
            with np.errstate(all="ignore"):
                return np.multiply(multiplier[:, k], values, out=values)

        return column

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Copy rows, in the given order, into memory: one pass."""
        order = np.argsort(rows, kind="stable")
        X, y = np.empty((len(rows), self.columns), self.rows.dtype), np.empty(len(rows))
        filled = 0
        with self._buffers(rows) as buffers:
            for buffer in buffers:
                place = order[filled : filled + buffer.n]
                X[place], y[place] = buffer.X[0 : buffer.n], buffer.y
                filled += buffer.n
        return X, y

    def column(self, j: int) -> Streamed:
        """Return an engine over column j alone, as X and as y."""
        return replace(self, rows=self.rows.column(j))

    def labels(self) -> NDArray[Any]:
        """Distinct targets, sorted."""
        return self.rows.labels()

    def encoded(self, classes: Sequence[Any], values: Array) -> Engine:
        """Return an engine whose targets are ``values[k]`` where they were ``classes[k]``, and NaN elsewhere."""
        return replace(self, rows=self.rows.encoded(classes, values))

    def map_rows(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
        """Apply a function to all rows, a buffer at a time."""
        found: list[NDArray[Any]] = []
        with replace(self, keep=False)._buffers() as buffers:  # one pass is all there will be
            for buffer in buffers:
                found += buffer.map_blocks(lambda X, _: function(X))
        return np.concatenate(found)

    @cached_property
    def _loaded(self) -> InMemory:
        """All rows, read when they are first asked for."""
        X, y, at = np.empty((self.n, self.columns), self.rows.dtype), np.zeros(self.n), 0
        with replace(self, keep=False)._buffers() as buffers:
            for buffer in buffers:
                for block in buffer.map_blocks(lambda X, _: X):
                    X[at : at + len(block)] = block
                    at += len(block)
                y[at - buffer.n : at] = buffer.y
        return InMemory(X, y, self.threads, self.names)

    @property
    def _size(self) -> int:
        """Rows of a buffer: whole blocks, so that functions of blocks see the same ones as in memory."""
        return block_rows(self.columns) * _BLOCKS

    def _parts(self) -> Iterator[Part]:
        """Yield all parts, read ahead; a file that grew or shrank since it was counted is refused."""
        read = 0
        with closing(read_ahead(self.rows.read(self._size), AHEAD)) as parts:
            for part in parts:
                read += length_of(part[0])
                if read > self.n:
                    break
                yield part
        if read != self.n:
            raise OSError(f"there are no longer {self.n} rows: do not change files while they are used.")

    def _total(
        self,
        one: Callable[[InMemory], NDArray[np.int64]],
        shape: tuple[int, ...],
        rows: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Sum of ``one(buffer)`` over the buffers of the given rows (default all)."""
        if self.keep:
            return one(self._loaded if rows is None else InMemory(*self._loaded.take(rows), self.threads))
        threads, lock, stopped = thread_count(self.threads), Lock(), Event()
        alone = replace(self, threads=1)
        buffers = alone._fill(None if rows is None else np.sort(rows))

        def work(_: int) -> NDArray[np.int64] | BaseException:
            total = np.zeros(shape, dtype=np.int64)
            try:
                while True:
                    with lock:
                        buffer = None if stopped.is_set() else next(buffers, None)
                    if buffer is None:
                        return total
                    total += one(buffer)
            except BaseException as error:  # given back, so that nobody is still at work when it is raised
                stopped.set()
                return error

        try:
            found = parallel_map(work, range(threads), threads)
        finally:
            stopped.set()
            with lock:
                buffers.close()
        for error in found:
            if isinstance(error, BaseException):
                raise error
        return np.sum(cast(list[NDArray[np.int64]], found), axis=0, dtype=np.int64)

    def _buffers(self, rows: NDArray[np.int64] | None = None) -> closing[Generator[InMemory]]:
        """Return the given rows (default all), sorted, in full buffers but for the last; to be closed after use."""
        return closing(self._fill(None if rows is None else np.sort(rows)))

    def _fill(self, rows: NDArray[np.int64] | None) -> Generator[InMemory]:
        if self.keep:
            yield self._loaded if rows is None else InMemory(*self._loaded.take(rows), self.threads)
            return
        size, start = self._size, 0
        buffer, y = _Buffer(self.columns, self.rows.dtype), np.zeros(size)
        for features, targets in self._parts():
            length = length_of(features)
            if rows is None and not len(buffer) and isinstance(features, np.ndarray) and length == size:
                yield InMemory(features, y if targets is None else targets, self.threads)
                continue
            wanted: Places = range(length)
            if rows is not None:
                wanted = rows[slice(*np.searchsorted(rows, [start, start + length]))] - start
            start += length
            while len(wanted):
                some, wanted = wanted[: size - len(buffer)], wanted[size - len(buffer) :]
                if targets is not None:
                    y[len(buffer) : len(buffer) + len(some)] = targets[_index(some)]
                buffer.add(*(features, some) if rows is None else _picked(features, some))
                if len(buffer) == size:
                    yield InMemory(cast(NDArray[Any], buffer), y, self.threads)
                    # New ones: what was handed out may still be worked on.
                    buffer, y = _Buffer(self.columns, self.rows.dtype), y if targets is None else np.zeros(size)
        if len(buffer):
            yield InMemory(cast(NDArray[Any], buffer), y[: len(buffer)], self.threads)

    def _gathered(self, function: BlockFunction, tail: tuple[int, ...]) -> Array:
        """Collect a function of every block of rows: (n, *tail) floats in memory."""
        out, at = np.empty((self.n, *tail)), 0
        with self._buffers() as buffers:
            for buffer in buffers:
                for found in buffer.map_blocks(function):
                    out[at : at + len(found)] = found
                    at += len(found)
        return out


class _Buffer:
    """Rows of one or more parts, which become a matrix where and when a thread slices them, in its core's cache."""

    def __init__(self, columns: int, dtype: np.dtype[Any]) -> None:
        self.columns, self.dtype = columns, dtype
        self._parts: list[tuple[Any, Places, Apart | None]] = []  # features, rows, and these where they lie
        self._ends = [0]

    def __len__(self) -> int:
        return self._ends[-1]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self), self.columns

    def add(self, features: Any, wanted: Places) -> None:
        """Append rows of a part, a matrix or a list of columns."""
        index, apart = _index(wanted), None
        if isinstance(index, slice) and not isinstance(features, np.ndarray):
            apart = Apart.of([column[index] for column in features], self.dtype)
        self._parts.append((features, wanted, apart))
        self._ends.append(len(self) + len(wanted))

    def parts(self) -> Iterator[slice]:
        """Rows that were added at a time."""
        return (slice(start, end) for start, end in itertools.pairwise(self._ends))

    def as_it_lies(self, part: slice) -> Apart | NDArray[Any]:
        """Rows of a part, where they are if they are columns of the right type, else copied."""
        apart = self._parts[bisect_right(self._ends, part.start) - 1][2]
        if apart is not None:
            return apart
        X = self[part]
        X.flags.writeable = False
        return X

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        X = np.empty((rows.stop - rows.start, self.columns), self.dtype)
        for k in range(bisect_right(self._ends, rows.start) - 1, bisect_left(self._ends, rows.stop)):
            (features, wanted, apart), begin = self._parts[k], self._ends[k]
            low, high = max(rows.start, begin), min(rows.stop, self._ends[k + 1])
            into, some = X[low - rows.start : high - rows.start], slice(low - begin, high - begin)
            if apart is not None:
                kernels.reading.fill_rows(apart.rows(some), into)
            elif isinstance(features, np.ndarray):
                into[:] = features[_index(wanted[some])]
            else:
                for j, column in enumerate(features):
                    into[:, j] = column[_index(wanted[some])]
        return X


def _picked(features: Any, wanted: Places) -> tuple[Any, Places]:
    """Copy a few rows of a part, so that the rest of it need not be kept."""
    few = features[wanted] if isinstance(features, np.ndarray) else [column[wanted] for column in features]
    return few, range(len(wanted))


def _index(wanted: Places) -> Any:
    """Return a slice if the rows are neighbours, which is faster."""
    if len(wanted) and (isinstance(wanted, range) or np.all(np.diff(wanted) == 1)):
        return slice(wanted[0], wanted[-1] + 1)
    return wanted
