"""Rows that are read from storage on every pass: Parquet, Arrow and CSV files, and memory-mapped arrays.

A reader thread decodes the next rows while kernels work on the last ones. Rows are gathered in buffers of a few
megabytes, and every sum is the sum, over buffers, of the sum of an `InMemory` engine on the buffer: integers, so the
same as in memory to the last bit. The peak memory is a buffer, what the reader is ahead, and what the format needs to
decode; it does not depend on the number of rows.

Two methods gather more, since they must: `columns_of`, for trimmed means, holds a few numbers per row (a multiplier
for each output, and one column for each thread), and `take`, for Algorithm 1, the rows that it is asked for.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, ClassVar, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tailguard._checks import ShapeError, as_numbers, data_matrix
from tailguard.engines.engine import BlockFunction, Engine, Target, block_rows
from tailguard.engines.labels import distinct, encode, pick
from tailguard.engines.memory import InMemory
from tailguard.engines.source import Part, Source
from tailguard.engines.vectors import RowVectors
from tailguard.kernels import rows as kernels
from tailguard.truncation.grid import Grid

Array = NDArray[np.float64]
Item = TypeVar("Item")

_BLOCKS = 16  # blocks of 2**16 values in a buffer: 8 MiB of float64
_AHEAD = 2  # parts that the reader may be ahead
_RESIDENT = 2**28  # bytes from which a memory-mapped array is streamed; a smaller one may as well stay


class Rows(Protocol):
    """Rows in storage, which can be read any number of times, in the same order."""

    @property
    def n(self) -> int:
        """Number of rows."""

    @property
    def columns(self) -> int:
        """Number of features."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the features."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the features, float32 or float64."""

    def read(self, size: int) -> Iterator[Part]:
        """Yield features, a list of columns or a matrix, and targets of the next rows, at most about ``size``."""

    def column(self, j: int) -> Rows:
        """Return the rows with feature j alone, as feature and as target."""

    def labels(self) -> NDArray[Any]:
        """Distinct targets, sorted."""

    def encoded(self, classes: Sequence[Any], values: Array) -> Rows:
        """Return the rows with ``values[k]`` as target where it was ``classes[k]``, NaN elsewhere."""


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
            return X.nbytes >= _RESIDENT and _mapping(X) is not None
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
            given = np.asarray(y) if target == "label" else as_numbers("y", y)
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
        total = np.zeros(vectors.shape(self.columns), dtype=np.int64)
        with self._buffers(rows) as buffers:
            for buffer in buffers:
                total += buffer.truncated_sum(vectors, grid)
        return total

    def integer_sum(self, function: BlockFunction, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Sum over blocks of rows of ``function(X, y)``."""
        total = np.zeros(shape, dtype=np.int64)
        with self._buffers() as buffers:
            for buffer in buffers:
                total += buffer.integer_sum(function, shape)
        return total

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
            kernels.fill_multipliers(*vectors.block(X, y), out)
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
        with closing(read_ahead(self.rows.read(self._size), _AHEAD)) as parts:
            for part in parts:
                read += _length(part[0])
                if read > self.n:
                    break
                yield part
        if read != self.n:
            raise OSError(f"there are no longer {self.n} rows: do not change files while they are used.")

    def _buffers(self, rows: NDArray[np.int64] | None = None) -> closing[Generator[InMemory]]:
        """Return the given rows (default all), sorted, in full buffers but for the last; to be closed after use.

        A buffer's targets are overwritten when the next one is asked for.
        """
        return closing(self._fill(None if rows is None else np.sort(rows)))

    def _fill(self, rows: NDArray[np.int64] | None) -> Generator[InMemory]:
        if self.keep:
            yield self._loaded if rows is None else InMemory(*self._loaded.take(rows), self.threads)
            return
        size, start, y = self._size, 0, np.zeros(self._size)
        buffer = _Buffer(self.columns, self.rows.dtype)
        for features, targets in self._parts():
            length = _length(features)
            if rows is None and not len(buffer) and isinstance(features, np.ndarray) and length == size:
                yield InMemory(features, y if targets is None else targets, self.threads)
                continue
            wanted = np.arange(length)
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
                    buffer = _Buffer(self.columns, self.rows.dtype)
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
        self._parts: list[tuple[Any, NDArray[np.int64]]] = []
        self._ends = [0]

    def __len__(self) -> int:
        return self._ends[-1]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self), self.columns

    def add(self, features: Any, wanted: NDArray[np.int64]) -> None:
        """Append rows of a part, a matrix or a list of columns."""
        self._parts.append((features, wanted))
        self._ends.append(len(self) + len(wanted))

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        return self._filled(rows, np.empty((rows.stop - rows.start, self.columns), self.dtype))

    def as_columns(self, rows: slice) -> NDArray[Any]:
        """The same numbers, but column after column, which is a plain copy where the parts are columns."""
        if any(isinstance(features, np.ndarray) for features, _ in self._parts):
            return self[rows]
        # One row more than is used: then there is one kind of arrays for which kernels are compiled.
        return self._filled(rows, np.empty((self.columns, rows.stop - rows.start + 1), self.dtype).T[:-1])

    def _filled(self, rows: slice, X: NDArray[Any]) -> NDArray[Any]:
        for k in range(bisect_right(self._ends, rows.start) - 1, bisect_left(self._ends, rows.stop)):
            (features, wanted), begin = self._parts[k], self._ends[k]
            low, high = max(rows.start, begin), min(rows.stop, self._ends[k + 1])
            place, index = slice(low - rows.start, high - rows.start), _index(wanted[low - begin : high - begin])
            if isinstance(features, np.ndarray):
                X[place] = features[index]
            else:
                for j, column in enumerate(features):
                    X[place, j] = column[index]
        return X


@dataclass(frozen=True)
class SourceRows:
    """Rows of a `Source`, with a target of its own, a given one, one that is encoded, or none."""

    source: Source
    own: bool
    given: NDArray[Any] | None = None
    classes: Sequence[Any] | None = None
    values: Array | None = None
    repeated: bool = False  # the feature is the target

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.source.n

    @property
    def columns(self) -> int:
        """Number of features."""
        return len(self.source.names)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.source.names

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the source; float64 for a single column of a table."""
        return np.dtype(np.float64) if self.repeated else self.source.dtype

    def read(self, size: int) -> Iterator[Part]:
        """Yield columns and targets."""
        at = 0
        for features, y in self.source.read(size, self.own, self.classes):
            if self.repeated:
                y = features[0]
            elif self.given is not None:
                y = self.given[at : at + _length(features)]
            elif self.values is not None and y is not None:
                y = pick(self.values, y)
            at += _length(features)
            yield features, y

    def column(self, j: int) -> SourceRows:
        """Only column j is read."""
        return SourceRows(self.source.select([self.source.names[j]]), False, repeated=True)

    def labels(self) -> NDArray[Any]:
        """Distinct targets."""
        return distinct(self.source.read_labels() if self.given is None else self.given.tolist())

    def encoded(self, classes: Sequence[Any], values: Array) -> SourceRows:
        """Encode as the rows are read."""
        if self.given is not None:
            return replace(self, given=encode(self.given, classes, values))
        return replace(self, classes=classes, values=values)


@dataclass(frozen=True)
class MappedRows:
    """Rows of a memory-mapped array: read in place, a page ahead of the kernels, and let go of afterwards."""

    X: NDArray[Any]
    y: NDArray[Any] | None
    names: ClassVar[None] = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.X)

    @property
    def columns(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the array."""
        return self.X.dtype

    def read(self, size: int) -> Iterator[Part]:
        """Yield slices; those that were used are dropped from this process, not from the system's cache."""
        slices = [self.X[start : start + size] for start in range(0, self.n, size)]
        for k, rows in enumerate(slices):
            if k > _AHEAD + 1:  # beyond what is queued, and what is being worked on
                _let_go(slices[k - _AHEAD - 2])
            _touch(rows)
            yield rows, None if self.y is None else self.y[k * size : k * size + len(rows)]

    def column(self, j: int) -> MappedRows:
        """A view of column j, and a copy of it as target."""
        return MappedRows(self.X[:, j : j + 1], np.array(self.X[:, j], dtype=np.float64))

    def labels(self) -> NDArray[Any]:
        """Distinct targets."""
        return distinct(np.asarray(self.y).tolist())

    def encoded(self, classes: Sequence[Any], values: Array) -> MappedRows:
        """Targets are in memory."""
        return replace(self, y=encode(np.asarray(self.y), classes, values))


def read_ahead(items: Iterator[Item], depth: int) -> Generator[Item]:
    """Yield items that a thread prepares, at most ``depth`` of them in advance; closing it stops the thread."""
    queue: Queue[tuple[Item | None, BaseException | None]] = Queue(depth)
    stop = Event()

    def put(item: Item | None, error: BaseException | None = None) -> None:
        while not stop.is_set():
            with suppress(Full):
                queue.put((item, error), timeout=0.1)
                return

    def work() -> None:
        try:
            with np.errstate(all="ignore"):
                for item in items:
                    put(item)
                    if stop.is_set():
                        break
            put(None)
        except BaseException as error:
            put(None, error)

    reader = Thread(target=work, name="tailguard-reader", daemon=True)
    reader.start()
    try:
        while True:
            item, error = queue.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
    finally:
        stop.set()
        reader.join()


def _picked(features: Any, wanted: NDArray[np.int64]) -> tuple[Any, NDArray[np.int64]]:
    """Copy a few rows of a part, so that the rest of it need not be kept."""
    few = features[wanted] if isinstance(features, np.ndarray) else [column[wanted] for column in features]
    return few, np.arange(len(wanted))


def _index(wanted: NDArray[np.int64]) -> Any:
    """Return a slice if the rows are neighbours, which is faster."""
    if len(wanted) and wanted[-1] - wanted[0] == len(wanted) - 1:
        return slice(wanted[0], wanted[-1] + 1)
    return wanted


def _length(features: Any) -> int:
    """Rows of a part, a matrix or a list of columns."""
    return len(features) if isinstance(features, np.ndarray) else len(features[0])


def _mapping(array: NDArray[Any]) -> mmap.mmap | None:
    """Return the memory map that an array is a view of, if it is one."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    return base if isinstance(base, mmap.mmap) else None


def _touch(rows: NDArray[Any]) -> None:
    """Read a value of every page, so that kernels do not wait for the disk."""
    if rows.flags.c_contiguous:
        rows.reshape(-1)[:: max(1, mmap.PAGESIZE // rows.itemsize)].max(initial=0.0)


def _let_go(rows: NDArray[Any]) -> None:
    """Drop pages of a shared mapping from this process; changes that only this process sees would be lost."""
    root: Any = rows
    while isinstance(root.base, np.ndarray):
        root = root.base
    mapping = _mapping(rows)
    shared = isinstance(root, np.memmap) and root.mode in ("r", "r+", "w+")
    if mapping is None or not shared or not rows.flags.c_contiguous or not hasattr(mapping, "madvise"):
        return
    origin = np.frombuffer(mapping, np.uint8).ctypes.data
    low, high = (address - origin for address in np.lib.array_utils.byte_bounds(rows))
    low, high = -(-low // mmap.PAGESIZE) * mmap.PAGESIZE, high // mmap.PAGESIZE * mmap.PAGESIZE
    if low < high:
        mapping.madvise(mmap.MADV_DONTNEED, low, high - low)
