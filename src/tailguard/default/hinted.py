r"""Stage A with public hints (`tailguard.hints`): columns for the price of a few looks, or of none.

With a large budget the columns are located as ever, and hints only narrow what was found (`narrowed`): no truncation
beyond a range, no scale beyond the root of a second moment. (One mean and scale for exchangeable columns did not help
there: 1.06 x the risk.) With a small budget, `locate_known` asks as little as it can:

=========================  ================================================  =====================  =================
what is said of a column   query: one row                                    L2 sensitivity         share
=========================  ================================================  =====================  =================
a moment                   none: its root is the scale                       -                      -
a few values               ``v = clip((x - middle)/half, +-1)``, c columns   2 sqrt(c)              `F_FEW`
exchangeable, or a range   k counts of exponents of ``(x - shift)/half``     sqrt(2) k, over k      `HISTOGRAM`
of k such columns          the mean over the k columns of ``clip(v, +-1)``   2                      `MEAN`
=========================  ================================================  =====================  =================

Columns that are exchangeable, those with a range of 0 to 1, and all others with nothing but a range *in units of their
range*, are pooled: k values of one row give one histogram, as noisy as that of a single column. A row adds k counts
wherever its values fall, replacing it moves at most k from some bins to others: an L2 change of at most ``sqrt(2) k``,
reached if all were in one bin. A mean of k numbers in [-1, 1] is in [-1, 1]. Neither proof asks whether the hint is
true.

For pooled columns that are less alike than was said, the common scale is too large for some and too small for others.
The Gram matrix of the steps (`tailguard.default.small`) sees it if it is large; else it costs accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard import kernels
from tailguard.default.columns import Columns
from tailguard.default.readings import read_first
from tailguard.default.rows import TOPS, first_look
from tailguard.default.shrinkage import kept
from tailguard.hints import Known
from tailguard.means.queries import Queries

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

HISTOGRAM, MEAN = (0.034, 0.15), (0.083, 0.05)  # noise worth paying for, and the most to pay
F_FEW = 0.02
LOOKS = (1.0, 0.7)  # shares of a first and of a second look, of the above
FLOOR = 7.0  # times the noise of the mean, the least variance of a column of few values, over half its range squared
SMALL = 0.03  # noise-to-signal ratio of a gradient from which columns are pooled
NEARBY = 4.0  # scales from the mean, within which a range must begin or end
FAR = 0.6  # a mean so many scales from where one looked is looked at again
REACH = 8.0  # roots of the second moment, or bounds of the histogram, at which a column is truncated
_RANGE, _FEW, _MOMENT = -1, -2, -3  # kinds of columns beside numbers of groups


def narrowed(columns: Columns, known: Known | None, centred: bool = True) -> Columns:
    """What was found, within what is known; post-processing. Columns that are not centred keep their mean, 0."""
    if known is None:
        return columns
    scale = np.minimum(columns.scale, known.root)
    rare = known.few if columns.rare is None else known.few | columns.rare
    # A range that is nowhere near what was seen is a mistake.
    mistaken = columns.seen & (
        (columns.mean + NEARBY * columns.scale < known.lower) | (columns.mean - NEARBY * columns.scale > known.upper)
    )
    low, high = np.where(mistaken, -np.inf, known.lower), np.where(mistaken, np.inf, known.upper)
    return _truncated(replace(columns, scale=scale, rare=rare), low, high, centred)


def narrowed_target(column: Columns, known: Known | None, centred: bool = True) -> Columns:
    """The same for the target; one that was not seen is taken to fill its range as a normal variable would."""
    if known is None or known.target_range is None:
        return column
    low, high = known.target_range
    if not column.seen[0]:
        guess = _guess(np.array([low]), np.array([high]))
        return guess if centred else _from_the_origin(guess)
    if column.upper[0] <= low or column.lower[0] >= high:  # the targets were seen elsewhere: the range is a mistake
        return column
    return _truncated(column, np.array([low]), np.array([high]), centred)


def locate_known(queries: Queries, known: Known, centred: bool, broader: float = 1.0) -> Columns:
    """Locate columns about each of which something is known, with a small budget; pooled scales times ``broader``."""
    d = len(known.lower)
    columns = Columns(np.zeros(d), np.ones(d), np.zeros(d), np.ones(d), np.zeros(d, bool))
    kind = np.where(known.few, _FEW, np.where(np.isfinite(known.root), _MOMENT, known.group))
    # A range of 0 to 1 is that of indicators, which are nothing like measurements in units of theirs.
    unit, ranges = (known.lower == 0.0) & (known.upper == 1.0), kind == _RANGE
    alike = (*_groups(kind), np.flatnonzero(ranges & unit), np.flatnonzero(ranges & ~unit))
    pools = [pool for pool in alike if len(pool)]
    parts = [(which, _by_moment(known, which)) for which in [np.flatnonzero(kind == _MOMENT)]]
    few = np.flatnonzero(kind == _FEW)
    parts += [(few, _by_values(queries, known, few))] if len(few) else []
    parts += [(pool, _by_pool(queries, known, pool, 1.0 / len(pools), centred, broader)) for pool in pools]
    for which, part in parts:
        for name in ("centre", "reach", "mean", "scale", "seen"):
            getattr(columns, name)[which] = getattr(part, name)
    if not centred:
        moment = columns.scale  # which is about 0 already
        columns = _from_the_origin(columns)
        columns = replace(columns, scale=np.where(kind == _MOMENT, moment, columns.scale))
    return _truncated(columns, known.lower, known.upper, centred)


# ---------------------------------------------------------------- one kind of hint each


def _by_moment(known: Known, which: Integers) -> Columns:
    """The scale is the root of the second moment; nothing is asked."""
    scale = known.root[which]
    centre = np.clip(0.0, known.lower[which], known.upper[which])
    return Columns(centre, REACH * scale, centre, scale, np.ones(len(which), bool))


def _by_values(queries: Queries, known: Known, which: Integers) -> Columns:
    """Columns of few values: given its mean, such a column varies at most as one that takes the ends only."""
    low, high = known.lower[which], known.upper[which]
    rows = PooledValues(tuple(which), tuple(low), tuple(high), tuple((low + high) / 2.0), tuple((high - low) / 2.0))
    mean, sd = queries.mean("column means", rows, len(which), math.sqrt(len(which)), F_FEW)
    mean = np.clip(mean, -1.0, 1.0)
    half = (high - low) / 2.0
    scale = half * np.sqrt(np.clip(1.0 - mean * mean, min(1.0, FLOOR * sd), 1.0))
    return Columns((low + high) / 2.0, half, (low + high) / 2.0 + half * mean, scale, np.ones(len(which), bool))


def _by_pool(queries: Queries, known: Known, pool: Integers, part: float, centred: bool, broader: float) -> Columns:
    """Columns that are alike, in units of their ranges if they have any: one look for all, two if they lie far away."""
    k = len(pool)
    low, high = known.lower[pool], known.upper[pool]
    shift, unit = np.zeros(k), np.ones(k)
    if np.all(known.bounded[pool]):
        unit = (high - low) / 2.0
        shift = np.where((low <= 0.0) & (high >= 0.0), 0.0, (low + high) / 2.0)
    histogram = part * queries.share_for(math.sqrt(2.0), *HISTOGRAM)
    moment = part * queries.share_for(2.0, *MEAN)
    centre, mean, scale, top, seen = 0.0, 0.0, 1.0, 1.0 / REACH, False
    for share in LOOKS:
        values = PooledValues(tuple(pool), tuple(low), tuple(high), tuple(shift + unit * centre), tuple(unit))
        # k counts a row, so that they are whole numbers; over k they are fractions of rows.
        counts = PooledCounts(values)
        noisy = queries.counts("column scales", counts, counts.shape, math.sqrt(2.0) * k, share * histogram)
        reading = read_first(noisy.value[0] / k, noisy.sd / k)
        if not reading.seen:
            break
        top, seen = 2.0**reading.top, True
        spread = top * math.sqrt(reading.square)
        scale = broader * spread
        average = PooledMean(values, 2.0 * spread)
        (found,), sd = queries.mean("column means", average, 1, 1.0, share * moment)
        found *= kept(found * found, sd * sd)
        mean = centre + 2.0 * spread * float(np.clip(found, -1.0, 1.0))
        if not centred or abs(mean - centre) < FAR * spread:
            break
        centre = mean
    if not seen and np.all(known.bounded[pool]):
        # Most values are where one looked, and the others too few to be seen: as wide as the range allows, since steps
        # on features that are wider than they seem do not converge.
        return replace(_guess(low, high), scale=(high - low) / 2.0)
    mean = mean if centred else centre  # what the scale is about
    reach = np.full(k, REACH * top)
    return Columns(shift + unit * centre, unit * reach, shift + unit * mean, unit * scale, np.full(k, seen))


def _guess(low: Array, high: Array) -> Columns:
    """Columns that are taken to fill their ranges as normal variables would."""
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    return Columns(middle, half, middle, half / 3.0, np.ones(len(low), bool))


def _from_the_origin(columns: Columns) -> Columns:
    """Columns that are not centred: their scale is the root of the mean square."""
    return replace(columns, mean=np.zeros(len(columns.mean)), scale=np.hypot(columns.scale, columns.mean))


def _truncated(columns: Columns, low: Array, high: Array, centred: bool) -> Columns:
    """Columns truncated to ranges, too."""
    lower, upper = np.clip(columns.lower, low, high), np.clip(columns.upper, low, high)
    mean = np.clip(columns.mean, lower, upper) if centred else columns.mean
    return replace(columns, centre=(lower + upper) / 2.0, reach=(upper - lower) / 2.0, mean=mean)


def _groups(group: Integers) -> list[Integers]:
    """Members of every group."""
    return [np.flatnonzero(group == k) for k in range(int(group.max(initial=-1)) + 1)]


# ---------------------------------------------------------------- what a row adds


@dataclass(frozen=True)
class PooledValues:
    """``clip((clip(x, low, high) - shift)/unit, -1, 1)`` of some columns; a missing value becomes 0."""

    columns: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    shift: tuple[float, ...]
    unit: tuple[float, ...]

    def values(self, X: NDArray[Any]) -> Array:
        """The same before it is clipped to +-1, missing values included."""
        with np.errstate(all="ignore"):
            inside = np.clip(np.asarray(X[:, list(self.columns)], np.float64), np.array(self.low), np.array(self.high))
            return np.asarray((inside - np.array(self.shift)) / np.array(self.unit))

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Values of a block of rows."""
        return np.nan_to_num(np.clip(self.values(X), -1.0, 1.0), nan=0.0)


@dataclass(frozen=True)
class PooledCounts:
    """One histogram of binary exponents for all columns: one row adds one count for each."""

    values: PooledValues
    shape = (1, len(TOPS) + 1)

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Integers:
        """Counts of a block of rows."""
        return first_look(self.values.values(X).reshape(-1, 1))


@dataclass(frozen=True)
class PooledMean:
    """The mean over columns of ``clip(value/bound, -1, 1)``, one number a row."""

    values: PooledValues
    bound: float

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Means of a block of rows."""
        with np.errstate(all="ignore"):
            v = np.nan_to_num(np.clip(self.values.values(X) / self.bound, -1.0, 1.0), nan=0.0)
        # Added up in one order for every row, so that where a row stands does not change its last bit.
        k, mean = v.shape[1], np.empty(len(v))
        kernels.features.predict(np.ascontiguousarray(v), np.zeros(k), np.full(k, 1.0 / k), mean)
        return mean[:, None]
