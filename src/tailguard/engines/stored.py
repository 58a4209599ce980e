"""Rows in storage, which are read anew on every pass: files of a `Source`, and memory-mapped arrays."""

from __future__ import annotations

import mmap
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tailguard.engines.labels import distinct, encode, pick
from tailguard.engines.source import Part, Source

Array = NDArray[np.float64]

AHEAD = 3  # parts that the reader may be ahead, so that a thread that is free finds one ready
_AT_WORK = 8  # parts of a mapped array that may be at work; with more threads some pages are mapped again


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

    def read(self, size: int) -> Generator[Part]:
        """Yield features, a list of columns or a matrix, and targets of the next rows, at most about ``size``."""

    def column(self, j: int) -> Rows:
        """Return the rows with feature j alone, as feature and as target."""

    def labels(self) -> NDArray[Any]:
        """Distinct targets, sorted."""

    def encoded(self, classes: Sequence[Any], values: Array) -> Rows:
        """Return the rows with ``values[k]`` as target where it was ``classes[k]``, NaN elsewhere."""


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

    def read(self, size: int) -> Generator[Part]:
        """Yield columns and targets."""
        at = 0
        for features, y in self.source.read(size, self.own, self.classes):
            if self.repeated:
                y = features[0]
            elif self.given is not None:
                y = self.given[at : at + length_of(features)]
            elif self.values is not None and y is not None:
                y = pick(self.values, y)
            at += length_of(features)
            yield features, y

    def column(self, j: int) -> SourceRows:
        """Only column j is read."""
        return SourceRows(self.source.select([self.source.names[j]]), False, repeated=True)

    def labels(self) -> NDArray[Any]:
        """Distinct targets."""
        return distinct(self.source.read_labels() if self.given is None else self.given)

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

    def read(self, size: int) -> Generator[Part]:
        """Yield slices; those that were used are dropped from this process, not from the system's cache."""
        slices = [self.X[start : start + size] for start in range(0, self.n, size)]
        for k, rows in enumerate(slices):
            if k >= AHEAD + _AT_WORK:  # beyond what is queued, and what is being worked on
                _let_go(slices[k - AHEAD - _AT_WORK])
            _touch(rows)
            yield rows, None if self.y is None else self.y[k * size : k * size + len(rows)]

    def column(self, j: int) -> MappedRows:
        """A view of column j, and a copy of it as target."""
        return MappedRows(self.X[:, j : j + 1], np.array(self.X[:, j], dtype=np.float64))

    def labels(self) -> NDArray[Any]:
        """Distinct targets."""
        return distinct(np.asarray(self.y))

    def encoded(self, classes: Sequence[Any], values: Array) -> MappedRows:
        """Targets are in memory."""
        return replace(self, y=encode(np.asarray(self.y), classes, values))


def length_of(features: Any) -> int:
    """Rows of a part, a matrix or a list of columns."""
    return len(features) if isinstance(features, np.ndarray) else len(features[0])


def mapping_of(array: NDArray[Any]) -> mmap.mmap | None:
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
    mapping = mapping_of(rows)
    shared = isinstance(root, np.memmap) and root.mode in ("r", "r+", "w+")
    if mapping is None or not shared or not rows.flags.c_contiguous or not hasattr(mapping, "madvise"):
        return
    origin = np.frombuffer(mapping, np.uint8).ctypes.data
    low, high = (address - origin for address in np.lib.array_utils.byte_bounds(rows))
    low, high = -(-low // mmap.PAGESIZE) * mmap.PAGESIZE, high // mmap.PAGESIZE * mmap.PAGESIZE
    if low < high:
        mapping.madvise(mmap.MADV_DONTNEED, low, high - low)
