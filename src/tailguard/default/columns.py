r"""Stage A: where a column lies, how wide it is and where to truncate it, over the whole range of floats.

Two queries for all columns at once, on data with no bound known:

1. a **histogram of binary exponents** of ``|x - c|`` (first c = 0). A row is in one bin per column. Bins within the
   noise of zero are ignored; the highest significant bin near the most credible mode gives a bound ``2^top``, the
   significant bins together a mean square (`readings`);
2. the **moments** ``(v, v^2 - 1)`` of ``v = (x - c)/k``, clipped to +-1, with ``k = 2^top``, doubled if the end of the
   histogram is soft. ``v^2 + (v^2 - 1)^2 <= 1``, so the second moment costs nothing beside the first.

For a column that lies far from 0 compared with its spread, the mean that this gives is known to within a fraction of
its distance from 0, which may be many times its spread. Such columns are **approached**:

3. a **histogram of equal bins** about the released mean, as far as its noise reaches: most rows are in a few of them.
   Noise of a count is the same in a bin of any width, so one look at 128 bins finds the centre 30 times more precisely
   than it was known; if most rows are in one or two bins, the next look takes finer ones;
4. exponents and moments once more, about the centre that was found.

Where a **heavy tail** shows, and where it is asked for, bins too rare to be seen make most of the variance:

5. the **second moment** alone, ``v^2 - 1/2``, of these columns once more: half the sensitivity, and few columns.

What comes out is a truncation ``[c - M, c + M]``, M several times the bound if the end is soft, and the mean and
scale of the truncated column. M is smaller the slower the tail falls: where it falls slowly, few rows make most of
the variance, and the line that fits the others need not hold for them. The scale is that of the histogram, unless the
second moment is known well, or most rows that are not zero are in no significant bin (a column of many zeros and a
long tail): then it is the largest that the second moment allows, because too small a scale would multiply the noise
of the column's slope. That of a heavy tail is what its second look makes sure of: with less, the rows that make the
variance would look far out, and have no weight. A column in which nothing but zeros is significant is taken for a rare
0/1 column; one of zeros and sizes of about 1 has the variance of its mass, and of its mean if it has both signs.
Nothing here is ever larger than what the histogram saw, so one wild value cannot stretch a column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailguard import kernels
from tailguard.default.readings import SIGNIFICANT, Reading, read_first, read_later, read_near
from tailguard.default.rows import NEAR, ColumnCounts, ColumnMoments, NearCounts, Source
from tailguard.default.stand_ins import Marginal, spread_of_one
from tailguard.means.queries import Noisy, Queries, Sum

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

KNOWN = 10.0  # standard deviations from which a second moment is better than that of a histogram
WIDE = 4.0  # a soft end is truncated this many bounds out;
# where asked for, by a factor 2^STEEPNESS nearer for each power by which the tail falls more slowly than HEAVY, and
# further if it falls faster.
HEAVY, STEEPNESS = 1.5, 8.0
# Power of a tail below which the second moment is asked for again: its noise that is worth paying for, the most to pay,
# and standard deviations that are taken off.
SLOW, SPREAD, CAUTION = 1.4, (0.004, 0.05), 0.5
# A column seen in few rows may be noise taken for a mode: its values are truncated at so many scales at most.
SELDOM, FURTHEST = 0.2, 64.0
# Scales from the mean at which most rows of a column end, and of one that few rows have. 0/1 columns have no others.
ENDS = (4.0, 8.0)
FAR = 0.4  # of the mean square: a squared mean beyond it, of more than half of the rows, is approached
SIGNS = 4.0  # standard deviations by which mass, mean square and size of the mean of a 0/1 column may differ
ROUGH = 0.35  # of the mean square of a histogram, what it may be off by
CLOSE = 0.75  # of all rows in the four octaves about the top, or the mean is that of a tail
OTHERS = 0.05  # of all rows, seen before and not where the last look saw the column: it saw one value of several
LEAST = (0.1, 0.5)  # of the mean square, the least variance of a column that is close together, and of one that is not
SHARP = 0.012  # noise of a histogram up to which it says what a column looks like
BOTH = 0.1  # of ones and minus ones, beyond what the mean says: a column of one sign has none
MARGIN = 4.0  # standard deviations of a mean that equal bins reach on either side
# Of the share of histograms: the first look; again, at columns in which nothing was seen; at columns beyond the fine
# bins; at equal bins; the last look. Of that of means: after the first look and after the last.
FIRST, AGAIN, FINER, EQUAL, LAST = 0.5, 0.2, 0.04, (0.08, 0.02, 0.01, 0.01), 0.14
MOMENTS = (0.625, 0.375)
NO_CLOSER = (math.inf, 0.0)  # no more than these for columns that are hard to locate


@dataclass(frozen=True)
class Columns:
    """Released description of a set of columns."""

    centre: Array
    reach: Array
    mean: Array
    scale: Array
    seen: NDArray[np.bool_]
    rare: NDArray[np.bool_] | None = None  # 0/1 columns, signs, and what few rows have; None: none is
    ends: Array | None = None  # scales from the mean at which most rows end; None: nowhere before the truncation
    marginals: tuple[Marginal | None, ...] | None = None  # what they look like, as far as that was seen

    @property
    def lower(self) -> Array:
        """Lower truncation points."""
        return self.centre - self.reach

    @property
    def upper(self) -> Array:
        """Upper truncation points."""
        return self.centre + self.reach

    @property
    def ended(self) -> bool:
        """Whether any column is truncated beyond where most of its rows end."""
        near = self.near()
        return bool(np.any((near.lower > self.lower) | (near.upper < self.upper)))

    def near(self, times: float = 1.0) -> Columns:
        """The same columns, truncated where most rows end, or some times as far out."""
        if self.ends is None:
            return self
        # One that is not centred, and lies elsewhere than at 0, has no end about it.
        inside = (self.lower <= self.mean) & (self.mean <= self.upper)
        reach = np.where(inside, times * self.ends * self.scale, np.inf)
        lower, upper = np.maximum(self.lower, self.mean - reach), np.minimum(self.upper, self.mean + reach)
        return replace(self, centre=(lower + upper) / 2.0, reach=(upper - lower) / 2.0)

    def standardise(self, X: NDArray[Any]) -> Array:
        """Truncate, centre and scale rows; a missing value takes the released mean and becomes 0."""
        out = np.empty(X.shape)
        kernels.features.standardise(np.ascontiguousarray(X), self.lower, self.upper, self.mean, self.scale, out)
        return out

    def predict(self, X: NDArray[Any], shift: Array, slopes: Array) -> Array:
        """Line ``(z - shift) . slopes`` in the standardised features z of rows."""
        out = np.empty(len(X))
        kernels.features.predict(self.standardise(X), shift, np.asarray(slopes, np.float64), out)
        return out

    @staticmethod
    def unknown(count: int) -> Columns:
        """Columns that were not looked at."""
        zero, one = np.zeros(count), np.ones(count)
        return Columns(zero, one, zero, one, np.zeros(count, bool))


class Looks(NamedTuple):
    """What it may cost to locate columns: shares of their histograms and of their means, over all looks.

    Columns in which nothing was seen are looked at ``again`` for a part of the histograms' share, which is in it up to
    `AGAIN`. Looks at columns that are far from 0 or of extreme sizes, and their means, take their parts of these
    shares, or what buys the noise ``closer[0]``, up to ``closer[1]`` for each, if that is more.
    """

    histogram: float
    mean: float
    again: float = AGAIN
    closer: tuple[float, float] = NO_CLOSER


class Tails(NamedTuple):
    """What is made of soft ends: they are truncated ``wide`` bounds out.

    That is times a power of two within ``octaves``, by how fast the tail falls; and the ``spread`` of heavy ones may be
    asked for, with the share of `SPREAD`.
    """

    wide: float = WIDE
    octaves: tuple[float, float] = (0.0, 0.0)
    spread: bool = False


def locate(
    queries: Queries,
    source: Source,
    count: int,
    looks: Looks,
    centred: bool = True,
    tails: Tails = Tails(),  # noqa: B008 (a tuple)
    beside: Sequence[Sum] = (),
) -> Columns:
    """Find truncation, mean and scale of ``count`` columns, the features or the target.

    Sensitivities: sqrt(2 columns) for the histograms, 2 sqrt(columns) for the moments, sqrt(columns) for the second
    alone. Sums that are given ``beside`` are added up in the pass of the first moments.
    """
    search = _Search(queries, source, count, centred, looks, tails)
    every = np.arange(count)
    first = search.look()
    seen = np.array([reading.seen for reading in first.readings])
    found = search.measure(every, first, looks.mean * MOMENTS[0], beside)
    if np.any(found.far):
        far = every[found.far]
        lump = search.approach(far, found.error[found.far])
        later = search.look_again(far, LAST)
        # A column that is one value, as far as one can see, has no scale there, and one of one value and others has
        # that of the others: they stay what they were at first.
        top, middle = np.array([reading.top for reading in later.readings]), np.abs(search.centre[far])
        spans = zip(far, middle - 2.0**top, middle + 2.0**top, strict=True)
        others = np.array([first.readings[j].outside(low, high) for j, low, high in spans])
        told = (top > lump) & (others <= OTHERS)
        search.centre[far[~told]] = 0.0
        for j in far[~told]:
            search.marginals[j] = None
        if np.any(told):
            bought = queries.bought(2.0 * math.sqrt(np.count_nonzero(told)), *looks.closer)
            readings = [reading for reading, is_told in zip(later.readings, told, strict=True) if is_told]
            look = _Look(readings, later.sd, first=False)
            search.measure(far[told], look, max(looks.mean * MOMENTS[1], bought))
    if tails.spread:
        search.measure_spread()
    return Columns(
        *(search.centre, search.reach, search.mean, search.scale, seen, search.rare, search.ends),
        marginals=tuple(search.marginals),
    )


def first_counts(source: Source, columns: Integers) -> ColumnCounts:
    """What the first look asks for."""
    return ColumnCounts(source, tuple(columns), (0.0,) * len(columns))


class _Look(NamedTuple):
    """What histograms of exponents say, and the noise of their counts."""

    readings: list[Reading]
    sd: float
    first: bool


class _Moments(NamedTuple):
    """Which columns are far from their centre, and how well their means are known."""

    far: NDArray[np.bool_]
    error: Array


class _Search:
    """What is known of columns by now: everything in it is released or public."""

    def __init__(self, queries: Queries, source: Source, count: int, centred: bool, looks: Looks, tails: Tails) -> None:
        self.queries, self.source, self.centred = queries, source, centred
        self.looks, self.tails = looks, tails
        self.centre, self.mean, self.scale = np.zeros(count), np.zeros(count), np.ones(count)
        self.reach, self.top, self.bound = np.ones(count), np.zeros(count), np.ones(count)
        self.rare, self.heavy = np.zeros(count, bool), np.zeros(count, bool)
        self.ends = np.full(count, np.inf)
        self.marginals: list[Marginal | None] = [None] * count

    def look(self) -> _Look:
        """Histograms over all floats; sparse columns in which nothing was seen are asked for again and pooled."""
        every, share = np.arange(len(self.top)), self.looks.histogram
        first = self._counts(first_counts(self.source, every), share * FIRST)
        readings = [read_first(counts, first.sd) for counts in first.value]
        lost = np.flatnonzero([not reading.seen for reading in readings])
        if len(lost):
            second = self._counts(first_counts(self.source, lost), share * self.looks.again)
            weight = first.sd**2 / (first.sd**2 + second.sd**2)
            sd = first.sd * second.sd / math.hypot(first.sd, second.sd)
            for j, counts in zip(lost, second.value, strict=True):
                readings[j] = read_first(weight * counts + (1.0 - weight) * first.value[j], sd)
        coarse = np.flatnonzero([reading.coarse for reading in readings])
        if len(coarse):  # a bin of twenty exponents is looked at by itself
            self.top[coarse] = [readings[j].top for j in coarse]
            finer = self.look_again(coarse, FINER)
            for j, reading in zip(coarse, finer.readings, strict=True):
                readings[j] = reading if reading.seen else readings[j]
        return _Look(readings, first.sd, first=True)

    def look_again(self, columns: Integers, part: float) -> _Look:
        """Histograms about the centres that were found, of the forty exponents below the bounds that are known."""
        share = self._closer(columns, part)
        tops = tuple(self.top[columns])
        noisy = self._counts(ColumnCounts(self.source, tuple(columns), tuple(self.centre[columns]), tops), share)
        readings = [read_later(*pair, noisy.sd) for pair in zip(noisy.value, tops, strict=True)]
        return _Look(readings, noisy.sd, first=False)

    def _closer(self, columns: Integers, part: float) -> float:
        """Share of closer histograms of so many columns: a part of all, or what buys less noise; public."""
        return max(self.looks.histogram * part, self.queries.bought(math.sqrt(2.0 * len(columns)), *self.looks.closer))

    def _counts(self, counts: ColumnCounts | NearCounts, share: float) -> Noisy:
        """Release histograms: one row changes each by +1 and -1."""
        sensitivity = math.sqrt(2.0 * len(counts.columns))
        return self.queries.counts("column scales", counts, counts.shape, sensitivity, share)

    def measure(self, columns: Integers, look: _Look, share: float, beside: Sequence[Sum] = ()) -> _Moments:
        """Release moments within the bounds of a look; truncation, mean and scale of the columns follow."""
        readings, queries = look.readings, self.queries
        soft, mass = (np.array([getattr(reading, name) for reading in readings]) for name in ("soft", "mass"))
        self.top[columns] = [reading.top for reading in readings]
        square = np.array([reading.square for reading in readings]) / 4.0**soft
        bound = 2.0 ** (self.top[columns] + soft)
        powers = ColumnMoments(self.source, tuple(columns), tuple(self.centre[columns]), tuple(bound))
        if beside:
            queries.together(powers.clipped(queries.grid(powers.length)), *beside)
        moments, sd = queries.mean("column means", powers, powers.width, powers.length, share)
        first, second = moments[: len(columns)], moments[len(columns) :] + 1.0
        hidden = np.array([reading.hidden for reading in readings])
        square = np.where(hidden, np.clip(second + sd, square, 1.0), square)
        known = second > KNOWN * sd
        square = np.where(known, np.minimum(second, 1.0), square)
        first = np.clip(first, -1.0, 1.0) if self.centred else np.zeros(len(columns))
        # Zeros and sizes of 1, so that mass and mean square agree, or nothing seen at all: a 0/1 column, however rare
        # or common, or one of signs.
        alone, seen = (np.array([getattr(reading, name) for reading in readings]) for name in ("alone", "seen"))
        differ = SIGNS * math.hypot(sd, look.sd)
        ones = alone & (np.abs(second - mass) <= differ)
        unit = (self.top[columns] == 0) & (ones | ~seen) & look.first
        # Far from zero: the mean, not a few large values, makes the mean square.
        close = np.array([reading.near for reading in readings]) > CLOSE
        # A histogram says what the mean square is to a third (`ROUGH`), and the second moment to within its noise.
        weight = sd**2 / (sd**2 + (ROUGH * square) ** 2)
        far = first**2 > FAR * (weight * square + (1.0 - weight) * second) + 4.0 * sd**2
        far &= (mass > 0.5) & close & ~unit
        least = np.maximum(np.where(close, *LEAST) * square, sd**2)
        variance = np.maximum(square - first**2 + sd**2, least)
        if self.centred:
            one_sign = np.abs(np.abs(first) - mass) <= differ
            spread = np.where(one_sign, mass * (1.0 - mass), mass - first**2)
            variance = np.where(unit, np.maximum(spread, SIGNIFICANT * look.sd), variance)
        scale = bound * np.sqrt(np.minimum(variance, 1.0))
        furthest = np.where(mass < SELDOM, FURTHEST * scale, np.inf)
        power = np.array([reading.power for reading in readings])
        nearer = np.clip(STEEPNESS * (power - HEAVY), *self.tails.octaves)
        wide = np.where(soft, self.tails.wide * 2.0**nearer, 1.0)
        self.scale[columns], self.reach[columns] = scale, np.minimum(wide * bound, furthest)
        self.mean[columns] = self.centre[columns] + bound * first
        self.bound[columns], self.rare[columns] = bound, unit | (mass < SELDOM)
        self.ends[columns] = np.where(unit | alone, np.inf, np.where(mass < SELDOM, ENDS[1], ENDS[0]))
        for j, reading, is_unit, its in zip(columns, readings, unit, variance, strict=True):
            self.marginals[j] = None if look.sd > SHARP else self._marginal(j, reading, float(its) if is_unit else None)
        self.heavy[columns] = soft & (power < SLOW) & (mass >= SELDOM) & ~known & ~hidden
        return _Moments(far & self.centred, bound * sd)

    def _marginal(self, j: int, reading: Reading, variance: float | None) -> Marginal | None:
        """What a column looks like; one of zeros and ones or signs has a variance."""
        mean = float(self.mean[j])
        if variance is None:
            return Marginal.read(reading, float(self.centre[j]), mean)
        ones = max(variance + mean * mean, abs(mean)) if reading.seen else 0.0
        if ones - abs(mean) > BOTH * ones:
            return Marginal.of_signs((ones + mean) / 2.0, (ones - mean) / 2.0)
        few = spread_of_one(variance)
        some = few if abs(mean) < 0.5 else 1.0 - few
        return Marginal.of_signs(some, 0.0) if mean >= 0.0 else Marginal.of_signs(0.0, some)

    def measure_spread(self) -> None:
        """Release second moments of columns with heavy tails once more; scales become no smaller by it."""
        heavy = np.flatnonzero(self.heavy)
        if not len(heavy):
            return
        bound, every = self.bound[heavy], tuple(heavy.tolist())
        squares = ColumnMoments(self.source, every, tuple(self.mean[heavy]), tuple(bound), first=False)
        share = self.queries.share_for(2.0 * squares.length, *SPREAD)
        moments, sd = self.queries.mean("column spread", squares, squares.width, squares.length, share)
        spread = bound * np.sqrt(np.clip(moments + 0.5 - CAUTION * sd, 0.0, 1.0))
        self.scale[heavy] = np.maximum(self.scale[heavy], spread)

    def approach(self, columns: Integers, error: Array) -> Array:
        """Move the centres of far columns to where most of their rows are, by looks at equal bins.

        Returns the exponent up to which rows that could not be told apart are from the new centre, if there are any.
        """
        every, lump = columns, np.zeros(len(self.top))
        lump[columns] = np.ceil(np.log2(error)) + 1.0
        self.centre[columns] = self.mean[columns]
        self.top[columns] += 2.0  # from anywhere among them, all that was seen
        half = 2.0 ** np.minimum(np.ceil(np.log2(MARGIN * error)), self.top[columns])
        for part in EQUAL:
            unit = half * (2.0 / NEAR)  # powers of two: a quotient is exact on any machine
            near = NearCounts(self.source, tuple(columns), tuple(self.centre[columns]), tuple(unit))
            noisy = self._counts(near, self._closer(columns, part))
            places = [read_near(counts, noisy.sd) for counts in noisy.value]
            width, found = unit * [place.width for place in places], np.array([place.width > 0 for place in places])
            self.centre[columns] += unit * [place.offset for place in places]
            within = np.where(found, np.ceil(np.log2(np.maximum(width, unit))), np.inf)
            # Of forty exponents, those far below the width say nothing.
            self.top[columns] = np.minimum(self.top[columns], within + 20.0)
            apart = np.array([place.apart for place in places])
            lump[columns] = np.where(apart, -np.inf, np.minimum(lump[columns], within + 1.0))
            finer = found & ~apart
            columns, half = columns[finer], 2.0 ** (within[finer] + 1.0)
            if not len(columns):
                break
        return lump[every]
