r"""What one row adds to each query of the default: small objects of released and public numbers.

Each is a function of a block of rows that looks at every row by itself. Called, it is its own definition, in NumPy: the
vector of every row, (rows, width). `clipped` is the same as one compiled pass that adds up integers and builds nothing
of the size of the block (`tailguard.kernels.default_sums`). An engine that can add up integers takes the second, any
other the first. Objects hold no rows and can be pickled.

==================  =====================================  =================  ==========================================
object              one row                                norm at most       asked for by
==================  =====================================  =================  ==========================================
`ColumnCounts`      a count in one bin of each column      -                  columns
`ColumnMoments`     (v, v^2 - 1) of each column            sqrt(columns)      columns
`DesignRows`        sqrt(w) a                              sqrt(cap) R        whitening
`Sizes`             a count in the bin of abs(r)           -                  clips and tails
`Score`             w a clip(r, c)                         R c                steps: linear, Poisson
`LogisticScore`     w a (p - y)/max(p, 1 - p)              R                  steps: logistic
`MultinomialScore`  (p - onehot(y))/g  (x)  w a            R                  steps: multinomial
`Squares`           (min(r^2, c^2), e^2) about its middle  hypot(top)/2       variances
`Instrument`        (u, u clip(eta, 4)/2)                  sqrt(5)            multiplier: linear
`Product`           e (u - centre)                         c                  multiplier: linear
`Level`             clip(r, c)                             c                  level: linear
`SquaredLine`       (u, u^2 - 1/2)                         sqrt(5/4)          recalibration: logistic
`BoundedProducts`   (s, s u)                               sqrt(2)            recalibration: logistic
`FittedMeans`       (min(y, b), min(exp(z), b)) - b/2      b/sqrt(2)          level: Poisson
`Prevalence`        sign(y)/2                              1/2                level: logistic
`Membership`        onehot(y) - 1/K                        sqrt(1 - 1/K)      levels: multinomial
==================  =====================================  =================  ==========================================

a is the design vector of a row, w its Mallows weight, r its residual, z or eta its predictor, u the instrument
``clip(eta / (1.5 spread), -1, 1)``. A missing target has residual 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from tailguard._optional import import_optional
from tailguard.engines.vectors import KernelBlock, RowFunction
from tailguard.kernels import default_sums as kernels
from tailguard.truncation import Grid

if TYPE_CHECKING:
    from tailguard.default.columns import Columns
    from tailguard.default.score_table import ScoreTable
    from tailguard.default.whitening import Design

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Source = Literal["features", "target", "positive target"]

# Bins of the first look: zero, then one for each exponent in (-80, 80], twenty exponents each beyond.
TOPS = np.concatenate([np.arange(-1060, -80, 20), np.arange(-80, 81), np.arange(100, 1041, 20)]).astype(float)
EDGES = TOPS[:-1] + 0.5
# Bins of later looks: everything else, then the 40 exponents below the known bound.
BELOW = 41


def passes(rows: Any) -> Any:
    """Functions that add up integers over rows where they are: in memory, or on a GPU."""
    return kernels if isinstance(rows, np.ndarray) else import_optional("tailguard.kernels.triton_default", "gpu")


class Vectors:
    """What an engine asks of the vectors of rows: `tailguard.engines.vectors.RowVectors`."""

    compiled = False
    factored = False

    @property
    def width(self) -> int:
        """Numbers in the vector of a row."""
        raise NotImplementedError

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Vectors of a block of rows, (rows, width)."""
        raise NotImplementedError

    def shape(self, columns: int) -> tuple[int, int]:
        """One output."""
        return 1, self.width

    def block(self, X: NDArray[Any], y: NDArray[Any]) -> KernelBlock:
        """The definition, for an engine that adds up given vectors."""
        return RowFunction(self, self.width).block(X, y)

    def clipped(self, grid: Grid) -> Clipped:
        """The sum of the vectors, scaled down to the bound of the grid, as one compiled pass."""
        return Clipped(self, grid)

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add the vectors of a block of rows to ``total``, scaled down to the bound, in units."""
        raise NotImplementedError


@dataclass(frozen=True)
class Clipped:
    """The sum of vectors that are scaled down to the bound of a grid, in its units: integers, (width,)."""

    vectors: Vectors
    grid: Grid
    fused = True

    @property
    def shape(self) -> tuple[int]:
        """One integer for each coordinate."""
        return (self.vectors.width,)

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Integers:
        """Add up a block of rows."""
        total = np.zeros(self.vectors.width, np.int64)
        self.vectors.add(X, y, self.grid.truncation.largest, 1.0 / self.grid.unit, total)
        return total


# ---------------------------------------------------------------- columns


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


@cache
def _bins(tops: tuple[float, ...] | None) -> NDArray[np.int16]:
    """The bin of every exponent as `kernels.column_counts` numbers them, for all columns or for each."""
    k = np.arange(kernels.EXPONENTS) - 1023 - kernels.SUBNORMAL
    if tops is None:
        bins = np.searchsorted(EDGES, k)[None, :] + 1
    else:
        bins = k - np.array(tops)[:, None] + BELOW - 1
        bins = np.where((bins > 0) & (bins < BELOW), bins, 0)
    bins[:, [0, -1]] = 0  # zero, missing
    return bins.astype(np.int16)


@dataclass(frozen=True)
class ColumnMoments(Vectors):
    """First and second moments of ``v = clip((x - centre)/bound, -1, 1)``: ``(v, v^2 - 1)``; a missing v is 0."""

    source: Source
    columns: tuple[int, ...]
    centre: tuple[float, ...]
    bound: tuple[float, ...]

    @property
    def width(self) -> int:
        """Two for each column."""
        return 2 * len(self.columns)

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """All first moments, then all second ones."""
        with np.errstate(all="ignore"):
            Z = np.asarray(values_of(self.source, X, y)[:, list(self.columns)], np.float64) - np.array(self.centre)
            v = np.nan_to_num(np.clip(Z / np.array(self.bound), -1.0, 1.0), nan=0.0)
        return np.column_stack([v, v * v - 1.0])

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add a block of rows."""
        values, positive = X if self.source == "features" else y[:, None], self.source == "positive target"
        released = np.array(self.columns), np.array(self.centre), np.array(self.bound)
        passes(X).column_moments(values, *released, positive, bound, per_unit, total)


# ---------------------------------------------------------------- design


@dataclass(frozen=True, eq=False)
class DesignRows(Vectors):
    """Weighted design vectors ``sqrt(w) a``."""

    design: Design

    @property
    def width(self) -> int:
        """Design coordinates."""
        return self.design.width

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Design vectors times the roots of their weights."""
        a = self.design.vectors(X)
        return np.asarray(a * np.sqrt(self.design.weights(a))[:, None])

    def gram(self, bound: float, bits: int) -> DesignGram:
        """The sum of their products as one compiled pass."""
        return DesignGram(self.design, bound, bits)


@dataclass(frozen=True)
class DesignGram:
    """The Gram matrix of weighted design vectors, scaled down to a bound and rounded to so many bits."""

    design: Design
    bound: float
    bits: int
    fused = True

    @property
    def shape(self) -> tuple[int, int]:
        """Design coordinates, twice."""
        return self.design.width, self.design.width

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Integers:
        """Add up a block of rows."""
        total = np.zeros(self.shape, np.int64)
        passes(X).design_gram(X, *self.design.numbers, self.bound, self.bits, total)
        return total


@dataclass(frozen=True)
class Target:
    """The target in units of its scale, ``clip((y - mean)/scale, low, high)``; missing ``furthest`` from the middle."""

    mean: float = 0.0
    scale: float = 1.0
    middle: float = 0.0
    furthest: float = math.inf
    low: float = -math.inf
    high: float = math.inf

    def __call__(self, y: NDArray[Any]) -> Array:
        """Standardise targets."""
        y = np.asarray(y, np.float64)
        near = np.abs(y - self.middle) <= self.furthest
        return np.where(near, np.clip((y - self.mean) / self.scale, self.low, self.high), np.nan)

    @property
    def numbers(self) -> Array:
        """For kernels."""
        return np.array([self.mean, self.scale, self.middle, self.furthest, self.low, self.high])


_AS_IT_IS = Target()


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

    def __call__(self, X: NDArray[Any]) -> Array:
        """Fitted values of rows."""
        line = np.full(len(X), self.constant)
        if self.columns is not None:
            line = line + self.columns.predict(X, self.shift, self.slopes)
        return line if self.largest is None else np.exp(np.clip(line, -20.0, self.largest))

    @cached_property
    def numbers(self) -> tuple[Any, ...]:
        """For kernels."""
        link, largest = (kernels.RESIDUAL, 0.0) if self.largest is None else (kernels.MEAN, self.largest)
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


# ---------------------------------------------------------------- steps


@dataclass(frozen=True, eq=False)
class Score(Vectors):
    """``w a clip(r, -clip, clip)``, r the residual of ``offset + a . theta`` or, with ``largest``, its exponential."""

    design: Design
    theta: Array
    target: Target
    clip: float
    offset: float = 0.0
    largest: float | None = None
    table: ScoreTable | None = None  # with these scores in it

    @property
    def width(self) -> int:
        """Design coordinates."""
        return self.design.width

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Scores of a block of rows."""
        a = self.design.vectors(X)
        fitted = self.offset + self.design.predictor(a, self.theta)
        if self.largest is not None:
            fitted = np.exp(np.clip(fitted, -20.0, self.largest))
        r = np.clip(np.nan_to_num(fitted - self.target(y), nan=0.0), -self.clip, self.clip)
        return np.asarray(a * (self.design.weights(a) * r)[:, None])

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add a block of rows."""
        link, largest = (kernels.RESIDUAL, 0.0) if self.largest is None else (kernels.MEAN, self.largest)
        at = self.theta, self.offset, link, largest, self.target.numbers, self.clip
        passes(X).scores(X, y, *self.design.numbers, *at, bound, per_unit, total)


def bounded_score(z: Array, y: Array) -> Array:
    """(p - t)/max(p, 1 - p) with t = 1 for y > 0 and 0 otherwise; 0 where y is missing."""
    small = np.exp(-np.abs(z))
    agrees = (z > 0) == (y > 0)
    value = np.where(agrees, np.where(z > 0, -small, small), np.where(z > 0, 1.0, -1.0))
    return np.where(np.isnan(y), 0.0, value)


@dataclass(frozen=True, eq=False)
class LogisticScore(Vectors):
    """``w a (p - y)/max(p, 1 - p)`` at log-odds ``a . theta``."""

    design: Design
    theta: Array

    @property
    def width(self) -> int:
        """Design coordinates."""
        return self.design.width

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Scores of a block of rows."""
        a = self.design.vectors(X)
        return np.asarray(
            a * (self.design.weights(a) * bounded_score(self.design.predictor(a, self.theta), y))[:, None]
        )

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add a block of rows."""
        at = self.theta, 0.0, kernels.LOG_ODDS, 0.0, _AS_IT_IS.numbers, 1.0
        passes(X).scores(X, y, *self.design.numbers, *at, bound, per_unit, total)


def largest_gap(p: Array) -> Array:
    """Largest norm of ``p - onehot(y)`` over the labels y: that of the least likely one."""
    return np.sqrt(1.0 - 2.0 * np.min(p, axis=1) + np.sum(p * p, axis=1))


@dataclass(frozen=True, eq=False)
class MultinomialScore(Vectors):
    """``(p - onehot(y))/g`` times ``w a``, for coefficients (classes, design coordinates)."""

    design: Design
    theta: Array

    @property
    def width(self) -> int:
        """Classes times design coordinates."""
        return int(self.theta.size)

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Scores of a block of rows, class by class."""
        a = self.design.vectors(X)
        p = softmax(self.design.predictor(a, self.theta), axis=1)
        gap = (p - (y[:, None] == np.arange(len(self.theta)))) / largest_gap(p)[:, None]
        gap = np.where(np.isnan(y)[:, None], 0.0, gap)
        weighted = a * self.design.weights(a)[:, None]
        return np.asarray((gap[:, :, None] * weighted[:, None, :]).reshape(len(a), -1))

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add a block of rows."""
        passes(X).class_scores(X, y, *self.design.numbers, np.ascontiguousarray(self.theta), bound, per_unit, total)


# ---------------------------------------------------------------- of a fitted line


class _OfLine(Vectors):
    """Vectors of two numbers that depend on a fitted line and the target."""

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
        target = getattr(self, "target", _AS_IT_IS).numbers
        passes(X).line_vectors(X, y, *self.line.numbers, target, code, np.array(q), bound, per_unit, total)


@dataclass(frozen=True, eq=False)
class Squares(_OfLine):
    """Squares of the residual and of the difference of two clipped ones, less half of their largest values."""

    line: Fitted
    target: Target
    offset: float
    far: float
    near: float
    inside: float

    @property
    def top(self) -> Array:
        """Largest values of both."""
        return np.array([self.far**2, (self.far + self.near / self.inside) ** 2])

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Centred, so that the norm of a row is half of what replacing it can change."""
        r = np.nan_to_num(self.line(X) - self.target(y), nan=0.0)
        e = np.clip(r + self.offset, -self.far, self.far) - np.clip(r, -self.near, self.near) / self.inside
        return np.column_stack([np.minimum(r * r, self.top[0]), e * e]) - self.top / 2.0

    @property
    def numbers(self) -> tuple[int, tuple[float, ...]]:
        """For the kernel."""
        return kernels.SQUARES, (self.offset, self.far, self.near, self.inside)


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
        return kernels.INSTRUMENT, (_range(self.spread), self.spread)


@dataclass(frozen=True, eq=False)
class Product(_OfLine):
    """The clipped residual of ``constant + multiplier line`` times the instrument about its centre, within 1."""

    line: Fitted
    target: Target
    constant: float
    multiplier: float
    spread: float
    clip: float
    centre: float

    @property
    def width(self) -> int:
        """One."""
        return 1

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Products of a block of rows."""
        line = self.line(X)
        e = np.nan_to_num(self.target(y) - self.constant - self.multiplier * line, nan=0.0)
        u = np.clip(instrument(line, self.spread) - self.centre, -1.0, 1.0)
        return (np.clip(e, -self.clip, self.clip) * u)[:, None]

    @property
    def numbers(self) -> tuple[int, tuple[float, ...]]:
        """For the kernel."""
        return kernels.PRODUCT, (_range(self.spread), self.constant, self.multiplier, self.clip, self.centre)


@dataclass(frozen=True, eq=False)
class Level(_OfLine):
    """The clipped residual."""

    line: Fitted
    target: Target
    clip: float

    @property
    def width(self) -> int:
        """One."""
        return 1

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Residuals of a block of rows."""
        e = np.nan_to_num(self.target(y) - self.line(X), nan=0.0)
        return np.clip(e, -self.clip, self.clip)[:, None]

    @property
    def numbers(self) -> tuple[int, tuple[float, ...]]:
        """For the kernel."""
        return kernels.LEVEL, (self.clip,)


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
        return kernels.SQUARED_LINE, (_range(self.spread),)


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
        return kernels.BOUNDED_PRODUCTS, (_range(self.spread), self.level, self.multiplier)


@dataclass(frozen=True, eq=False)
class FittedMeans(_OfLine):
    """Target and fitted mean, both at most ``cap``, less half of it; a missing target counts as fitted."""

    line: Fitted
    target: Target
    cap: float

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Pairs of a block of rows."""
        model = np.minimum(self.line(X), self.cap)
        target = np.minimum(self.target(y), self.cap)
        return np.column_stack([np.where(np.isnan(target), model, target), model]) - self.cap / 2.0

    @property
    def numbers(self) -> tuple[int, tuple[float, ...]]:
        """For the kernel."""
        return kernels.FITTED_MEANS, (self.cap,)


# ---------------------------------------------------------------- of the target alone


@dataclass(frozen=True)
class Prevalence(Vectors):
    """Half of the sign of the target; a missing one counts nothing."""

    @property
    def width(self) -> int:
        """One."""
        return 1

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """-1/2, 0 or 1/2."""
        return np.asarray(np.sign(np.nan_to_num(y))[:, None] / 2.0)

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add a block of rows."""
        passes(y).target_vectors(y, 0, bound, per_unit, total)


@dataclass(frozen=True)
class Membership(Vectors):
    """The class of a row as a corner of the simplex about its middle."""

    classes: int

    @property
    def width(self) -> int:
        """One for each class."""
        return self.classes

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """``onehot(y) - 1/K``."""
        return np.asarray((y[:, None] == np.arange(self.classes)) - 1.0 / self.classes, dtype=np.float64)

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add a block of rows."""
        passes(y).target_vectors(y, self.classes, bound, per_unit, total)
