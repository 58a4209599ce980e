"""What a row adds when columns, or the target, are looked at one by one: histograms and moments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tailguard.default.rows.vectors import Array, Integers, Vectors, passes
from tailguard.kernels import codes

Source = Literal["features", "target", "positive target"]

# Bins of the first look: zero, then one for each exponent in (-80, 80], twenty exponents each beyond.
TOPS = np.concatenate([np.arange(-1060, -80, 20), np.arange(-80, 81), np.arange(100, 1041, 20)]).astype(float)
EDGES = TOPS[:-1] + 0.5
# Bins of later looks: everything else, then the 40 exponents below the known bound.
BELOW = 41
# Bins near a centre: everything else, then these equal ones, half of them on either side.
NEAR = 128


def exponent(a: Array) -> NDArray[np.int64]:
    """K with ``2^(k-1) < a <= 2^k`` for positive a, so that 0/1 columns have the bound 1."""
    below = np.nextafter(np.minimum(a, np.finfo(float).max), 0.0)
    return np.frexp(np.maximum(below, 5e-324))[1].astype(np.int64)


def first_look(Z: Array) -> NDArray[np.int64]:
    """Counts of exponents of every column over all floats, (columns, bins); zeros and missing values in bin 0."""
    size = np.abs(Z)
    index = np.searchsorted(EDGES, exponent(size)) + 1
    return _count(np.where(size > 0, index, 0), len(TOPS) + 1)


def later_look(Z: Array, top: Array) -> NDArray[np.int64]:
    """Counts of the 40 exponents up to ``top``, (columns, 41); everything else in bin 0."""
    size = np.abs(Z)
    index = exponent(size) - top.astype(np.int64) + BELOW - 1
    return _count(np.where((size > 0) & (index > 0) & (index < BELOW), index, 0), BELOW)


def near_look(Z: Array, unit: Array) -> NDArray[np.int64]:
    """Counts of `NEAR` equal bins of one ``unit`` about 0, (columns, 129); everything else in bin 0."""
    at = np.floor(Z / unit) + NEAR // 2
    inside = (at >= 0.0) & (at < NEAR)
    return _count(np.where(inside, at + 1.0, 0.0).astype(np.int64), NEAR + 1)


def _count(index: NDArray[np.int64], bins: int) -> NDArray[np.int64]:
    columns = index.shape[1]
    flat = (index + np.arange(columns) * bins).ravel()
    return np.bincount(flat, minlength=columns * bins).reshape(columns, bins)


def values_of(source: Source, X: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """The columns that stage A looks at, (rows, columns)."""
    if source == "features":
        return X
    y = np.asarray(y, dtype=np.float64)[:, None]
    return y if source == "target" else np.maximum(y, 0.0)


@dataclass(frozen=True)
class ColumnCounts:
    """Histograms of binary exponents of ``|x - centre|``, one for each of some columns.

    With ``tops`` they are those of a later look, below known bounds; without, over all floats. One row adds exactly one
    to the histogram of each column.
    """

    source: Source
    columns: tuple[int, ...]
    centre: tuple[float, ...]
    tops: tuple[float, ...] | None = None
    fused = True

    @property
    def shape(self) -> tuple[int, int]:
        """Columns by bins."""
        return len(self.columns), len(TOPS) + 1 if self.tops is None else BELOW

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Integers:
        """Counts of a block of rows, by the compiled pass."""
        total = np.zeros(self.shape, np.int64)
        passes(X).column_counts(
            X if self.source == "features" else y[:, None],
            np.array(self.columns),
            np.array(self.centre),
            self.source == "positive target",
            _bins(self.tops),
            total,
        )
        return total

    def definition(self, X: NDArray[Any], y: NDArray[Any]) -> Integers:
        """The same in NumPy."""
        with np.errstate(all="ignore"):
            Z = np.asarray(values_of(self.source, X, y)[:, list(self.columns)], np.float64) - np.array(self.centre)
            return first_look(Z) if self.tops is None else later_look(Z, np.array(self.tops))


@dataclass(frozen=True)
class NearCounts:
    """Histograms of ``x - centre`` in equal bins of one ``unit``; one row adds exactly one to that of each column."""

    source: Source
    columns: tuple[int, ...]
    centre: tuple[float, ...]
    unit: tuple[float, ...]
    fused = True

    @property
    def shape(self) -> tuple[int, int]:
        """Columns by bins."""
        return len(self.columns), NEAR + 1

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Integers:
        """Counts of a block of rows, by the compiled pass."""
        total = np.zeros(self.shape, np.int64)
        values, positive = X if self.source == "features" else y[:, None], self.source == "positive target"
        released = np.array(self.columns), np.array(self.centre), np.array(self.unit)
        passes(X).near_counts(values, *released, positive, total)
        return total

    def definition(self, X: NDArray[Any], y: NDArray[Any]) -> Integers:
        """The same in NumPy."""
        with np.errstate(all="ignore"):
            Z = np.asarray(values_of(self.source, X, y)[:, list(self.columns)], np.float64) - np.array(self.centre)
            return near_look(Z, np.array(self.unit))


@lru_cache(maxsize=16)
def _bins(tops: tuple[float, ...] | None) -> NDArray[np.int16]:
    """The bin of every exponent as `kernels.column_counts` numbers them, for all columns or for each."""
    k = np.arange(codes.EXPONENTS) - 1023 - codes.SUBNORMAL
    if tops is None:
        bins = np.searchsorted(EDGES, k)[None, :] + 1
    else:
        bins = k - np.array(tops)[:, None] + BELOW - 1
        bins = np.where((bins > 0) & (bins < BELOW), bins, 0)
    bins[:, [0, -1]] = 0  # zero, missing
    return bins.astype(np.int16)


@dataclass(frozen=True)
class ColumnMoments(Vectors):
    """First and second moments of ``v = clip((x - centre)/bound, -1, 1)``: ``(v, v^2 - 1)``; a missing v is 0.

    Without ``first`` the second alone, about its middle: ``v^2 - 1/2``, which is half as long.
    """

    source: Source
    columns: tuple[int, ...]
    centre: tuple[float, ...]
    bound: tuple[float, ...]
    first: bool = True

    @property
    def width(self) -> int:
        """Two for each column, or one."""
        return (1 + self.first) * len(self.columns)

    @property
    def length(self) -> float:
        """Largest norm of the vector of a row."""
        return math.sqrt(len(self.columns)) * (1.0 if self.first else 0.5)

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """All first moments, then all second ones."""
        with np.errstate(all="ignore"):
            Z = np.asarray(values_of(self.source, X, y)[:, list(self.columns)], np.float64) - np.array(self.centre)
            v = np.nan_to_num(np.clip(Z / np.array(self.bound), -1.0, 1.0), nan=0.0)
        return np.column_stack([v, v * v - 1.0]) if self.first else np.asarray(v * v - 0.5)

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add a block of rows."""
        values, positive = X if self.source == "features" else y[:, None], self.source == "positive target"
        released = np.array(self.columns), np.array(self.centre), np.array(self.bound)
        passes(X).column_moments(values, *released, positive, self.first, bound, per_unit, total)
