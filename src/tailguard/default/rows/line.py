"""A fitted line, and what a row adds by its place on it: sizes of residuals, and a few numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tailguard.default.rows.clips import Clip
from tailguard.default.rows.target import AS_IT_IS, Target, bounded_score, mean_of
from tailguard.default.rows.vectors import Array, Integers, Vectors, passes
from tailguard.kernels import codes

if TYPE_CHECKING:
    from tailguard.default.columns import Columns


@dataclass(frozen=True, eq=False)
class Fitted:
    """A released line ``constant + slopes . (z - shift)`` in standardised truncated features z.

    Without columns it is the constant alone. ``largest`` makes it the exponential of the line, bounded.
    """

    columns: Columns | None
    shift: Array
    slopes: Array
    constant: float = 0.0
    largest: float | None = None

    @staticmethod
    def flat(columns: int, value: float = 0.0) -> Fitted:
        """A constant, for rows of so many columns."""
        none = np.zeros(columns)
        return Fitted(None, none, none, value)

    def __call__(self, X: NDArray[Any]) -> Array:
        """Fitted values of rows."""
        line = np.full(len(X), self.constant)
        if self.columns is not None:
            line = line + self.columns.predict(X, self.shift, self.slopes)
        return line if self.largest is None else mean_of(line, self.largest)

    @cached_property
    def numbers(self) -> tuple[Any, ...]:
        """For kernels."""
        link, largest = (codes.RESIDUAL, 0.0) if self.largest is None else (codes.MEAN, self.largest)
        nothing = np.empty(0)
        if self.columns is None:
            return (nothing,) * 6 + (self.constant, link, largest)
        columns = self.columns
        truncation = columns.lower, columns.upper, columns.mean, columns.scale
        return *truncation, self.shift, np.asarray(self.slopes, np.float64), self.constant, link, largest


@dataclass(frozen=True, eq=False)
class Residual:
    """``fitted - target``, one number a row."""

    line: Fitted
    target: Target

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Residuals of a block of rows, missing where the target is."""
        return self.line(X) - self.target(y)


@dataclass(frozen=True)
class Sizes:
    """A histogram of absolute values between the points of a grid; a missing value counts as zero.

    ``residual`` is a `Residual`, or any function of a block of rows to a number for each.
    """

    residual: Callable[[NDArray[Any], NDArray[Any]], Array]
    grid: tuple[float, ...]

    @property
    def shape(self) -> tuple[int]:
        """At most the first point, ..., beyond the last."""
        return (len(self.grid) + 1,)

    @property
    def fused(self) -> bool:
        """Whether the counts are one compiled pass."""
        return isinstance(self.residual, Residual)

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Integers:
        """Counts of a block of rows."""
        if not isinstance(self.residual, Residual):
            return self.definition(X, y)
        total = np.zeros(self.shape, np.int64)
        line, target = self.residual.line, self.residual.target
        passes(X).line_sizes(X, y, *line.numbers, target.numbers, np.array(self.grid), total)
        return total

    def definition(self, X: NDArray[Any], y: NDArray[Any]) -> Integers:
        """The same in NumPy."""
        with np.errstate(all="ignore"):
            size = np.nan_to_num(np.abs(self.residual(X, y)), nan=0.0, posinf=np.inf)
        return np.bincount(np.searchsorted(self.grid, size), minlength=len(self.grid) + 1)


class _OfLine(Vectors):
    """Vectors of a few numbers that depend on a fitted line and the target."""

    line: Fitted

    @property
    def width(self) -> int:
        """Two."""
        return 2

    @property
    def numbers(self) -> tuple[int, tuple[float, ...]]:
        """Code and parameters of `kernels.line_vectors`."""
        raise NotImplementedError

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add a block of rows."""
        code, q = self.numbers
        target = getattr(self, "target", AS_IT_IS).numbers
        passes(X).line_vectors(X, y, *self.line.numbers, target, code, np.array(q), bound, per_unit, total)


@dataclass(frozen=True, eq=False)
class Square(_OfLine):
    """The square of the residual within a clip, less half of its largest value."""

    line: Fitted
    target: Target
    clip: float

    @property
    def width(self) -> int:
        """One."""
        return 1

    @property
    def bound(self) -> float:
        """Largest size of a row's number."""
        return self.clip**2 / 2.0

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Centred, so that the size of a row is half of what replacing it can change."""
        r, top = np.nan_to_num(self.line(X) - self.target(y), nan=0.0), self.clip**2
        return (np.minimum(r * r, top) - top / 2.0)[:, None]

    @property
    def numbers(self) -> tuple[int, tuple[float, ...]]:
        """For the kernel."""
        return codes.SQUARE, (self.clip,)


def instrument(line: Array, spread: float) -> Array:
    """``clip(line/(1.5 spread), -1, 1)``."""
    return np.clip(line / _range(spread), -1.0, 1.0)


def _range(spread: float) -> float:
    return max(1.5 * spread, 1e-12)


@dataclass(frozen=True, eq=False)
class Instrument(_OfLine):
    """The instrument u, and its product with the line in units of its spread."""

    line: Fitted
    spread: float

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Pairs of a block of rows."""
        line = self.line(X)
        u = instrument(line, self.spread)
        return np.column_stack([u, u * np.clip(line / self.spread, -4.0, 4.0) / 2.0])

    @property
    def numbers(self) -> tuple[int, tuple[float, ...]]:
        """For the kernel."""
        return codes.INSTRUMENT, (_range(self.spread), self.spread)


@dataclass(frozen=True, eq=False)
class Uneven(_OfLine):
    """Whether residuals are larger where the line is: ``(a u, a, u/2)`` with ``a = min(|r|, clip)/clip - 1/2``."""

    line: Fitted
    target: Target
    clip: float
    spread: float
    length: ClassVar[float] = math.sqrt(0.75)  # largest norm of the vector of a row

    @property
    def width(self) -> int:
        """Three."""
        return 3

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Triples of a block of rows."""
        line = self.line(X)
        r = np.nan_to_num(self.target(y) - line, nan=0.0)
        a = np.minimum(np.abs(r), self.clip) / self.clip - 0.5
        u = instrument(line - self.line.constant, self.spread)
        return np.column_stack([a * u, a, u / 2.0])

    @property
    def numbers(self) -> tuple[int, tuple[float, ...]]:
        """For the kernel."""
        return codes.UNEVEN, (_range(self.spread), self.clip, self.line.constant)


@dataclass(frozen=True, eq=False)
class Product(_OfLine):
    """The clipped residual of a line times the instrument of another, about its centre and within 1.

    The other line has the columns and the shift of the first, and no constant.
    """

    line: Fitted
    target: Target
    other: Fitted
    spread: float
    clip: Clip
    centre: float

    @property
    def width(self) -> int:
        """One."""
        return 1

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Products of a block of rows."""
        u = np.clip(instrument(self.other(X), self.spread) - self.centre, -1.0, 1.0)
        return (self.clip(self.target(y) - self.line(X)) * u)[:, None]

    @property
    def numbers(self) -> tuple[int, tuple[float, ...]]:
        """For the kernel."""
        return codes.PRODUCT, (_range(self.spread), self.centre, *self.clip.numbers, *self.other.slopes)


@dataclass(frozen=True, eq=False)
class Level(_OfLine):
    """The clipped residual."""

    line: Fitted
    target: Target
    clip: Clip

    @property
    def width(self) -> int:
        """One."""
        return 1

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Residuals of a block of rows."""
        return self.clip(-(self.line(X) - self.target(y)))[:, None]

    @property
    def numbers(self) -> tuple[int, tuple[float, ...]]:
        """For the kernel."""
        return codes.LEVEL, self.clip.numbers


@dataclass(frozen=True, eq=False)
class Beyond(_OfLine):
    """What a row gains, in squared error, by features beyond their ends; at most ``most``, and as much it loses."""

    line: Fitted
    target: Target
    most: float

    @property
    def width(self) -> int:
        """One."""
        return 1

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Gains of a block of rows."""
        t, far = self.target(y), self.line(X)
        near = replace(self.line, columns=self._columns.near())(X)
        gain = (far - near) * ((t - near) + (t - far))  # of squares, which would cancel
        return np.clip(np.nan_to_num(gain, nan=0.0), -self.most, self.most)[:, None]

    @property
    def numbers(self) -> tuple[int, tuple[float, ...]]:
        """For the kernel: ends in standardised features, less the shift; a missing feature, the mean, is within."""
        columns, near, shift = self._columns, self._columns.near(), self.line.shift
        low, high = (np.asarray((end - columns.mean) / columns.scale) for end in (near.lower, near.upper))
        return codes.BEYOND, (self.most, *(np.minimum(low, 0.0) - shift), *(np.maximum(high, 0.0) - shift))

    @property
    def _columns(self) -> Columns:
        assert self.line.columns is not None
        return self.line.columns


@dataclass(frozen=True, eq=False)
class SquaredLine(_OfLine):
    """The instrument u, and ``u^2 - 1/2``."""

    line: Fitted
    spread: float

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Pairs of a block of rows."""
        u = instrument(self.line(X), self.spread)
        return np.column_stack([u, u * u - 0.5])

    @property
    def numbers(self) -> tuple[int, tuple[float, ...]]:
        """For the kernel."""
        return codes.SQUARED_LINE, (_range(self.spread),)


@dataclass(frozen=True, eq=False)
class BoundedProducts(_OfLine):
    """The bounded logistic score s at ``level + multiplier line``, and its product with the instrument."""

    line: Fitted
    level: float
    multiplier: float
    spread: float

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Pairs of a block of rows."""
        line = self.line(X)
        s = bounded_score(self.level + self.multiplier * line, y)
        return np.column_stack([s, s * instrument(line, self.spread)])

    @property
    def numbers(self) -> tuple[int, tuple[float, ...]]:
        """For the kernel."""
        return codes.BOUNDED_PRODUCTS, (_range(self.spread), self.level, self.multiplier)
