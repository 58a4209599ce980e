r"""Stage A: where a column lies, how wide it is and where to truncate it, over the whole range of floats.

Two queries for all columns at once, on data with no bound known:

1. a **histogram of binary exponents** of ``|x - c|`` (first c = 0). A row is in one bin per column. Bins within the
   noise of zero are ignored; the highest significant bin near the most credible mode gives a bound ``2^top``, the
   significant bins together a mean square;
2. the **moments** ``(v, v^2 - 1)`` of ``v = (x - c)/k``, clipped to +-1, with ``k = 2^top``, doubled if the end of the
   histogram is soft. ``v^2 + (v^2 - 1)^2 <= 1``, so the second moment costs nothing beside the first.

A column that lies far from c compared with its spread is looked at again about its released mean, at most twice.
What comes out is a truncation ``[c - M, c + M]``, M several times the bound if the end is soft, and the mean and
scale of the truncated column. The scale is that of the histogram, unless the second moment is known well, or most rows
that are not zero are in no significant bin (a column of many zeros and a long tail): then it is the largest that the
second moment allows, because too small a scale would multiply the noise of the column's slope. A column in which
nothing but zeros is significant is taken for a rare 0/1 column. Nothing here is ever larger than what the histogram
saw, so one wild value cannot stretch a column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tailguard.default.rows import TOPS, ColumnCounts, ColumnMoments, Source
from tailguard.kernels.features import predict, standardise
from tailguard.means.queries import Noisy, Queries, Sum

Array = NDArray[np.float64]

_COARSE = (TOPS <= -80) | (TOPS > 80)
# A public prior over exponents, heavy-tailed about 1: it only decides which of several noisy modes is believed.
_LOG_PRIOR = -2.0 * np.log1p(np.maximum(np.abs(TOPS) - 3.0, 0.0) / 4.0)
_LOG_PRIOR -= np.log(np.sum(np.exp(_LOG_PRIOR)))

FALSE_ALARM = 1e-5  # probability that noise alone is taken for a mode
SIGNIFICANT = 3.5  # standard deviations from which a bin counts
SOFT_END = 0.05  # an end is sharp if the next bin is below this fraction of the last
FALLING = 2.0  # standard deviations by which the last bin is below the one before it: a tail, whose end is soft
KNOWN = 10.0  # standard deviations from which a second moment is better than that of a histogram
HIDDEN = 0.5  # of the rows in significant bins: more than these in others, and the histogram has missed the column
WIDE = (16.0, 4.0)  # a soft end is truncated this many bounds out: with a large budget, with a small one
# A column seen in few rows may be noise taken for a mode: its values are truncated at so many scales at most.
SELDOM, FURTHEST = 0.2, 64.0
FAR = 0.4  # of the mean square: a squared mean beyond it, of more than half of the rows, is looked at again
LOOKS = (0.5, 0.2, 0.1)  # shares of the looks; the rest is
AGAIN = 0.2  # for a second first look at columns in which nothing was seen


@dataclass(frozen=True)
class Columns:
    """Released description of a set of columns."""

    centre: Array
    reach: Array
    mean: Array
    scale: Array
    seen: NDArray[np.bool_]

    @property
    def lower(self) -> Array:
        """Lower truncation points."""
        return self.centre - self.reach

    @property
    def upper(self) -> Array:
        """Upper truncation points."""
        return self.centre + self.reach

    def standardise(self, X: NDArray[Any]) -> Array:
        """Truncate, centre and scale rows; a missing value takes the released mean and becomes 0."""
        out = np.empty(X.shape)
        standardise(np.ascontiguousarray(X), self.lower, self.upper, self.mean, self.scale, out)
        return out

    def predict(self, X: NDArray[Any], shift: Array, slopes: Array) -> Array:
        """Line ``(z - shift) . slopes`` in the standardised features z of rows."""
        out = np.empty(len(X))
        predict(self.standardise(X), shift, np.asarray(slopes, np.float64), out)
        return out

    @staticmethod
    def unknown(count: int) -> Columns:
        """Columns that were not looked at."""
        zero, one = np.zeros(count), np.ones(count)
        return Columns(zero, one, zero, one, np.zeros(count, bool))


class _Reading(NamedTuple):
    """What a noisy histogram says."""

    top: float  # exponent of the bound, NaN: nothing seen
    square: float  # mean square over 4**top
    soft: bool
    seen: bool
    coarse: bool
    mass: float = 0.0  # fraction of rows in significant bins
    hidden: bool = False  # many rows that are not zero are in no significant bin


def locate(
    queries: Queries,
    source: Source,
    count: int,
    f_hist: float,
    f_mean: float,
    centred: bool = True,
    wide: float = WIDE[1],
    beside: Sequence[Sum] = (),
) -> Columns:
    """Find truncation, mean and scale of ``count`` columns, the features or the target.

    Sensitivities: sqrt(2 columns) for the histograms, 2 sqrt(columns) for the moments.
    Shares: at most ``f_hist + f_mean`` over all looks. Sums that are given ``beside`` are added up in the pass of the
    first moments.
    """
    c, m, s = np.zeros(count), np.zeros(count), np.ones(count)
    reach, top, seen = np.ones(count), np.zeros(count), np.zeros(count, bool)
    todo = np.arange(count)
    for look, part in enumerate(LOOKS):
        if look == 0:
            readings, sd_hist = _first_readings(queries, source, count, f_hist)
            seen = np.array([reading.seen for reading in readings])
        else:
            counts = ColumnCounts(source, tuple(todo), tuple(c[todo]), tuple(top[todo]))
            readings, sd_hist = _later_readings(queries, counts, f_hist * part)
        kept = np.array([not math.isnan(reading.top) for reading in readings])
        todo, readings = todo[kept], [reading for reading in readings if not math.isnan(reading.top)]
        if not len(todo):
            break
        top[todo] = [reading.top for reading in readings]
        soft = np.array([reading.soft for reading in readings])
        square = np.array([reading.square for reading in readings]) / 4.0**soft
        bound = 2.0 ** (top[todo] + soft)
        powers = ColumnMoments(source, tuple(todo), tuple(c[todo]), tuple(bound))
        if look == 0 and beside:
            queries.together(powers.clipped(queries.grid(math.sqrt(len(todo)))), *beside)
        share = f_mean * part / sum(LOOKS)
        moments, sd = queries.mean("column means", powers, powers.width, math.sqrt(len(todo)), share)
        first, second = moments[: len(todo)], moments[len(todo) :] + 1.0
        hidden = np.array([reading.hidden for reading in readings])
        square = np.where(hidden, np.clip(second + sd, square, 1.0), square)
        square = np.where(second > KNOWN * sd, np.minimum(second, 1.0), square)
        first = np.clip(first, -1.0, 1.0) if centred else np.zeros(len(todo))
        # A bound of exactly 1 with a sharp end, or nothing seen at all: a 0/1 column, however rare or common.
        unit = (top[todo] == 0) & ~soft & (look == 0)
        # Far from zero: the mean, not a few large values, makes the mean square.
        mass = np.array([reading.mass for reading in readings])
        far = (first**2 > FAR * square + 4.0 * sd**2) & (mass > 0.5) & ~unit
        variance = np.maximum(square - first**2 + sd**2, np.maximum(0.1 * square, sd**2))
        if centred:
            rare = np.maximum(mass * (1.0 - mass), SIGNIFICANT * sd_hist)
            variance = np.where(unit, rare, variance)
        s[todo] = bound * np.sqrt(np.minimum(variance, 1.0))
        furthest = np.where(mass < SELDOM, FURTHEST * s[todo], np.inf)
        reach[todo] = np.minimum(np.where(soft, wide, 1.0) * bound, furthest)
        m[todo] = c[todo] + bound * first
        # A bound from a coarse bin is looked at again where it is: its mean is too noisy to be a centre.
        coarse = np.array([reading.coarse for reading in readings])
        again = (far & centred) | coarse
        c[todo[far & centred & ~coarse]] = m[todo[far & centred & ~coarse]]
        todo = todo[again]
        if not len(todo):
            break
    return Columns(c, reach, m, s, seen)


def first_counts(source: Source, columns: NDArray[np.int64]) -> ColumnCounts:
    """What the first look asks for."""
    return ColumnCounts(source, tuple(columns), (0.0,) * len(columns))


def _first_readings(queries: Queries, source: Source, count: int, share: float) -> tuple[list[_Reading], float]:
    """Histograms over all floats; sparse columns in which nothing was seen are asked for again and pooled."""

    def ask(columns: NDArray[np.int64], part: float) -> Noisy:
        counts = first_counts(source, columns)
        return queries.counts("column scales", counts, counts.shape, math.sqrt(2.0 * len(columns)), share * part)

    first = ask(np.arange(count), LOOKS[0])
    readings = [read_first(counts, first.sd) for counts in first.value]
    lost = np.flatnonzero([not reading.seen for reading in readings])
    if len(lost):
        second = ask(lost, AGAIN)
        weight = first.sd**2 / (first.sd**2 + second.sd**2)
        sd = first.sd * second.sd / math.hypot(first.sd, second.sd)
        for j, counts in zip(lost, second.value, strict=True):
            readings[j] = read_first(weight * counts + (1.0 - weight) * first.value[j], sd)
    return readings, first.sd


def _later_readings(queries: Queries, counts: ColumnCounts, share: float) -> tuple[list[_Reading], float]:
    """Histograms below the known bounds, about new centres."""
    tops = counts.tops or ()
    noisy = queries.counts("column scales", counts, counts.shape, math.sqrt(2.0 * len(tops)), share)
    return [_read_later(*pair, noisy.sd) for pair in zip(noisy.value, tops, strict=True)], noisy.sd


def read_first(counts: Array, sd: float) -> _Reading:
    """The most credible mode, and from there upwards over significant bins, stricter the wider the gap."""
    h = counts[1:]
    windows = [np.convolve(h, np.ones(k), "same") / math.sqrt(k) for k in (1, 3, 5)]
    z = np.max(windows, axis=0) / sd
    mode = int(np.argmax(np.where(z > 0, z * z / 2.0, 0.0) + _LOG_PRIOR))
    if z[mode] <= 0 or 3.0 * ndtr(-z[mode]) > FALSE_ALARM * math.exp(_LOG_PRIOR[mode]):
        return _Reading(0.0, 0.0, soft=False, seen=False, coarse=False)
    near = range(max(mode - 12, 0), min(mode + 2, len(h) - 1) + 1)
    significant = [k for k in near if h[k] > SIGNIFICANT * sd]
    if not significant:
        significant = [max(range(max(mode - 2, 0), min(mode + 3, len(h))), key=lambda k: h[k])]
    k = significant[-1] + 1
    while k <= min(significant[-1] + 6, len(h) - 2):
        if h[k] > (SIGNIFICANT + 0.5 * (k - significant[-1] - 1)) * sd:
            significant.append(k)
        k += 1
    return _reading(counts, sd, significant, TOPS, bool(_COARSE[significant[-1]]))


def _read_later(counts: Array, below: float, sd: float) -> _Reading:
    """The highest significant bin below the known bound."""
    h = counts[1:]
    significant = [k for k in range(len(h)) if h[k] > SIGNIFICANT * sd]
    if not significant:
        return _Reading(math.nan, 0.0, soft=True, seen=False, coarse=False)
    return _reading(counts, sd, significant, np.arange(below - len(h) + 1.0, below + 1.0), coarse=False)


def _reading(counts: Array, sd: float, significant: list[int], tops: Array, coarse: bool) -> _Reading:
    zeros, h, last = counts[0], counts[1:], significant[-1]
    top = float(np.clip(tops[last], -990.0, 990.0))
    following = h[last + 1] if last + 1 < len(h) else 0.0
    falling = last > 0 and h[last - 1] > h[last] + FALLING * sd
    soft = bool(falling or following + sd >= SOFT_END * h[last])
    # 7/12 is the mean of x^2 over (1/2, 1]: what a row of the top bin adds to the mean square.
    square = sum(max(float(h[k]), 0.0) * 4.0 ** (tops[k] - tops[last]) for k in significant)
    mass = float(sum(h[k] for k in significant))
    hidden = bool(1.0 - zeros - mass > HIDDEN * mass)
    return _Reading(top, max(square, SIGNIFICANT * sd) * 7.0 / 12.0, soft, True, coarse, mass, hidden)
