r"""The mean of a column with pure noise (`tailguard.means.pure`): a few choices, and one number.

Gaussian noise is for fits of many answers. For a single number it is three times that of e^{-|x|} at epsilon = 1 and
delta = 1e-6, so where a mean is all that is asked for, each question is a choice or a number with pure noise. Between
which values targets are clipped is found by choices:

1. *Size*: of the bins of the first look (`rows.first_look`: zero, then binary exponents) the one in which a high
   quantile of sizes lies. Where that is zero, or so small that zeros may be behind it, their fraction is asked for, and
   if they are the most, a quantile of the others; of so few that it would not be seen, where most of them are together.
   What is beyond 2^80 or below 2^-80 is in bins of twenty exponents, and is asked for again within them.
2. *Place*: are there values of both signs, or hardly any but of one? Or are most of them in a narrow window far from 0,
   as years are? A window is the narrowest that has most rows in it, by counts of equal bins; in one that is as narrow
   as bins are, it is asked for again with finer ones. Sizes of at most 1 are shares and indicators: a window about most
   of them would lose the others.
3. *Reach*: a higher quantile of the distance from 0, or from the middle of the window, and if that is beyond the size,
   a lower one. Between the two the tail falls with a power, along which the clip goes on to where what is lost beyond
   it is about the noise.
4. *The mean* of targets clipped there. Targets of one sign, costs and incomes, are clipped at 0 too, and replacing one
   moves their sum by half as much. If some are missing, those count as a rough mean in a sum that the fraction of the
   others corrects: so the noise of that fraction hardly matters.

=======  =====================================================  =================  ==========================
query    one row                                                sensitivity        share of epsilon
=======  =====================================================  =================  ==========================
size     a count in one bin                                     1 for each score   `SIZE`, `AGAIN`, `SELDOM`
zeros    1{y = 0}                                               1                  `ZEROS`
place    a count in one bin                                     1 for each score   `PLACE`, up to three times
outside  1{abs(y - base) > 4 c}                                 1                  `LOST`
reach    a count in one bin                                     1 for each score   `REACH`
tail     the same, a lower quantile                             1 for each score   `FALL`
missing  1{y is missing}                                        1                  `MISSING`
rough    clip(y - base, c); of one sign, clip(y, 0, c) or       2 c; c             `ROUGH`
         clip(y, -c, 0)
level    the same; a missing one is the rough mean              2 c; c             what is left
=======  =====================================================  =================  ==========================

Proof. Scores: see `pure_scores`. *Counts*: a replaced row changes one by at most 1. *Rough, level*: a number between -c
and c changes by at most 2 c, one between 0 and c by at most c. A missing one is the base, or the rough mean, which is
between these ends and released, as is the fraction of the others.

A size that no row has is worse than none: the noise of the mean is in proportion to it. With a fraction f of n rows
beyond a quantile, bins beyond all rows have a score of f n less than the right one, so one of them is chosen with a
probability of about e^{-f n eps1/2}, eps1 the epsilon of the question; f is as small as leaves e^{-13} (`SAFE`), and
for a reach, where there are few places and none is far away, e^{-7} (`NEARLY`); among the places where few values are
together, that there are none is e^9 (`NONE`) times as likely as any. So how far out a quantile can be is a
matter of n epsilon, and so are shares: with more rows less of epsilon is enough. All of that is public.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailguard.default.missing import ALL, Present, missing_count
from tailguard.default.pure_scores import (
    FINER,
    PRIOR,
    TOGETHER,
    WIDTHS,
    scores_of,
    scores_of_sides,
    scores_of_windows,
    scores_together,
    windows_of,
)
from tailguard.default.recalibration import BEYOND
from tailguard.default.rows import (
    BELOW,
    NEAR,
    TOPS,
    Clip,
    ColumnCounts,
    Fitted,
    Level,
    NearCounts,
    Residual,
    Sizes,
    Source,
    Target,
)
from tailguard.default.shrinkage import believed
from tailguard.means.pure import PureQueries
from tailguard.privacy import Budget

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

LEAST = 100.0  # n epsilon from which on there is a size to be found,
ROWS, EPSILON = 10, 2e-5  # and at least so many rows and so large an epsilon: ranks and noise are whole numbers
MOST = 0.17  # columns, over the square of epsilon/mu, up to which pure noise is less than Gaussian noise
# n epsilon times the share of a question: what it needs; and the most and least of epsilon that it takes.
SIZE, PLACE = (200.0, 0.45, 0.02), (100.0, 0.25, 0.04)
REACH, REACH_WINDOW, FALL = (250.0, 0.15, 0.08), (80.0, 0.15, 0.08), (80.0, 0.05, 0.02)
ZEROS, AGAIN, SPARED = (50.0, 0.06, 0.03), 0.4, 0.4  # for a column of zeros; what they leave for the rest
SELDOM, SPARED_SELDOM = 0.45, 0.25  # for values that few rows have; what that leaves
LOST = (80.0, 0.04, 0.02)  # for rows outside a window,
MISSING, ROUGH = (30.0, 0.06, 0.02), 0.05  # for missing ones, and what they count as;
KEPT = 0.15  # what these, and what follows, leave
TINY = -12.0  # exponent of a size that zeros may be behind,
NEGLIGIBLE = 2.0**-20  # and its part of a public range
LARGE, RARE = 0.2, 0.2  # of the others, those beyond their quantile; of all, the most that is worth a question
MOST_OF_THEM = 0.5  # of the others that a quantile may leave beyond it: with fewer rows one asks where they are
# n epsilon from which on there are questions of place, of a reach in windows and of finer bins, and of any reach.
PLACED, WINDOWED, REACHED = 330.0, 900.0, 2500.0
COMPLETE, COMPLETE_WINDOW = 500.0, 2000.0  # and of missing ones: in a window they are less far from the others
SAFE, NEARLY = 13.0, 7.0  # logarithms of how unlikely wrong answers are: size and window, reach
ONE_SIGN = 4.0  # by which values of one sign are likelier than of both, in logarithms: half the noise
BULK, TAIL, HALF = 0.8, 0.1, 0.3  # of the rows in a window, beyond a size, and beyond where a tail begins
SLIM = 2  # bins of a window that is looked at more closely
NEARER = 0.25  # by which a reach that is half an octave nearer is likelier
# Clip over size before there is a reach: with few rows, in general, and of one sign with more rows; and the least with
# one, and in a window.
CLIP_OF_FEW, CLIP, CLIP_SIDED, ENDS, ENDS_WINDOW = 1.75, 2.0, 2.5, 1.4, 1.75
CLIP_SELDOM = 1.4  # the same of values that few rows have
CUT_OFF, SLOWEST = 4.0, 0.85  # fraction beyond a clip, over the noise; slope of a tail
FURTHEST = (4.0, 12.0)  # clip over reach, with values of both signs, whose tails make up for each other, and of one
REACHES = 2.0 ** np.arange(-6.0, 8.01, 0.5)  # in units of a size,
REACHES_WINDOW = 2.0 ** np.arange(-6.0, 13.01, 0.5)  # and of a window, as far as the size that it was found in
# Rows so many reaches from a window are far outside of it; by how many standard deviations their number must be sure.
OUTSIDE, SURE = 4.0, 2.0
FINITE = float(np.finfo(float).max)  # beyond it nothing but infinity


def is_pure(n: int, budget: Budget, columns: int = 1) -> bool:
    """Whether the means of so many columns are found this way; public."""
    if budget.epsilon is None or n < ROWS or budget.epsilon < EPSILON * columns:
        return False
    return n * budget.epsilon >= LEAST * columns and columns <= max(1.0, MOST * (budget.epsilon / budget.mu) ** 2)


class Span(NamedTuple):
    """Where targets are clipped: ``reach`` from ``base``, on both sides or (1, -1) on one."""

    base: float
    reach: float
    side: int
    beyond: float  # fraction of rows that may be outside
    seldom: bool = False  # whether most rows are zero, and the size is that of few others

    @property
    def is_window(self) -> bool:
        """Whether it is about a place other than 0."""
        return self.base != 0.0

    @classmethod
    def between(cls, low: float, high: float) -> Span:
        """All values between two, in one sign if one of them is 0: what is missing then counts as 0."""
        if low == 0.0 or high == 0.0:
            return cls(0.0, max(-low, high), 1 if low == 0.0 else -1, 0.0)
        return cls(low + (high - low) / 2.0, (high - low) / 2.0, 0, 0.0)

    def within(self, low: float, high: float) -> Span:
        """What of it is in a range; all of the range, if nothing is."""
        least = self.base if self.side > 0 else self.base - self.reach
        most = self.base if self.side < 0 else self.base + self.reach
        if low <= least and most <= high:
            return self
        least, most = max(low, least), min(high, most)
        return Span.between(least, most) if least < most else Span.between(low, high)


def level_of(
    queries: PureQueries, source: Source = "target", limits: tuple[float, float] | None = None
) -> float | None:
    """Release the mean of the target, or of what of it is positive; none if nothing is seen of it.

    ``limits`` are a public range of the values, within which something always is.
    """
    # One far beyond the clip is a mistake, and counts as missing; one beyond a public range is at its end.
    questions = _Questions(queries, source, BEYOND if limits is None else math.inf)
    span = questions.size()
    if limits is not None and (span is None or span.reach < NEGLIGIBLE * (limits[1] - limits[0])):
        return questions.level_within(*limits)
    if span is None:
        return None
    span = questions.clipped(span) if questions.strength < PLACED else questions.settled(span)
    if limits is None:
        return questions.level(span)
    return min(max(limits[0], questions.level(span.within(*limits))), limits[1])  # a huge range is rounded


class _Questions:
    """Questions about one column: everything in it is released or public."""

    def __init__(self, queries: PureQueries, source: Source, furthest: float) -> None:
        self.queries, self.source, self.furthest, self.n = queries, source, furthest, queries.n
        self.positive = source == "positive target"
        self.strength = queries.n * queries.epsilon

    def size(self) -> Span | None:
        """The size of most targets, or of those that are not zero; none if nothing is seen of them."""
        share = self._share(SIZE)
        beyond = max(TAIL, self._beyond(SAFE, share))
        place = self._size(share, beyond)
        if place == 0 or TOPS[place - 1] < TINY:
            others = 1.0 - self._zeros()
            if others < 0.5 or place == 0:
                share = min(AGAIN, self.queries.account.left - SPARED)
                beyond = max(LARGE * others, self._beyond(SAFE, share)) if share > 0.0 else 1.0
                if place == 0 and beyond > MOST_OF_THEM * others:
                    return self._seldom()
                place = self._size(share, beyond) if beyond < RARE else 0
        if place == 0:
            return None
        top = float(TOPS[place - 1])
        share = min(self._share(SIZE), self.queries.account.left - SPARED)
        is_coarse = abs(top - 0.5) > 80.0  # a bin of twenty exponents
        if is_coarse and share >= SIZE[2] and self._beyond(NEARLY, share) <= 1.0 - BULK:
            finer = self._size(share, max(beyond, self._beyond(NEARLY, share)), top)
            top = top + 1.0 - BELOW + finer if finer else top
        return Span(0.0, 2.0 ** min(990.0, max(-990.0, top)), int(self.positive), beyond)

    def _seldom(self) -> Span | None:
        """The size of values that few rows have: where most of them are together; none if that is not clear."""
        share = min(SELDOM, self.queries.account.left - SPARED_SELDOM)
        if share <= 0.0:
            return None
        tops, scores = scores_together(self._sizes())
        place = tops[self.queries.choose("size", scores, share, TOGETHER)]
        if place == 0:
            return None
        return Span(0.0, 2.0 ** min(990.0, max(-990.0, float(TOPS[place - 1]))), int(self.positive), 0.0, seldom=True)

    def _zeros(self) -> float:
        """Fraction of targets that are zero, infinite or missing."""
        zeros = int(self._sizes()[0])
        return self.queries.fraction("zeros", zeros, self._share(ZEROS))

    def _sizes(self, top: float | None = None) -> Integers:
        """Count sizes: zeros, then exponents; **not released**. Infinite values count as missing, so with zeros."""
        counts = ColumnCounts(self.source, (0,), (0.0,), None if top is None else (top,))
        within = self.queries.total(counts, counts.shape)[0]
        if top is None:  # infinite ones are in the last bin of the first look
            within = np.concatenate([[within[0] + within[-1]], within[1:-1], [0]])
        return within

    def _size(self, share: float, beyond: float, top: float | None = None) -> int:
        """The place of a quantile of sizes among all exponents, or among those below a top; 0 for zero."""
        within = self._sizes(top)
        prior = PRIOR if top is None else np.zeros(len(within))
        return self.queries.choose("size", scores_of(within, self._rank(beyond)), share, prior)

    def settled(self, size: Span) -> Span:
        """Where to clip: in a window far from 0, unless too many rows are far outside of it, or about 0."""
        span = self.clipped(self.place(size))
        return self.clipped(self.sided(size)) if span.is_window and self._loses(span, size) else span

    def _loses(self, window: Span, size: Span) -> bool:
        """Whether a window loses more, by the rows that are far outside of it, than a clip about 0 by its noise.

        How far they are is not known, but no further than the size: somewhere on the way, by its logarithm.
        """
        share, near = self._share(LOST), OUTSIDE * window.reach
        if near >= size.reach or not self._affords(share):
            return False
        targets = self._targets(window, FINITE)
        outside = int(self.queries.total(*self._sizes_of(targets, (OUTSIDE,)))[-1])
        sure = self.queries.fraction("outside", outside, share) - SURE * math.sqrt(2.0) / (self.strength * share)
        noise = math.sqrt(2.0) * 2.0 * CLIP * size.reach / (self.strength * self.queries.account.left)
        return sure * size.reach / max(1.0, math.log(size.reach / near)) > noise

    def sided(self, size: Span) -> Span:
        """Targets of one sign or of both."""
        share, sides = self._share(PLACE), (0, 1, -1)
        if self.positive or not self._affords(share):
            return size
        scores = scores_of_sides(self._near(0.0, size.reach / (NEAR // 4)), sides)
        prior = np.array([ONE_SIGN * abs(side) for side in sides])
        return size._replace(side=sides[self.queries.choose("place", scores, share, prior)])

    def place(self, span: Span) -> Span:
        """Targets of one sign or of both, or a window far from 0."""
        share = self._share(PLACE)
        if not self._affords(share):
            return span
        all_but = max(span.beyond, self._beyond(SAFE, share), 1.0 - BULK)
        sides, unit = (1,) if self.positive else (0, 1, -1), span.reach / (NEAR // 4)
        windows, prior = windows_of(WIDTHS, far=True)
        if span.reach == 1.0:
            windows, prior = windows[:0], prior[:0]
        within = self._near(0.0, unit)
        scores = np.append(scores_of_sides(within, sides), scores_of_windows(within, windows, self._rank(all_but)))
        prior = np.append([ONE_SIGN * abs(side) for side in sides], prior)
        chosen = self.queries.choose("place", scores, share, prior)
        if chosen < len(sides):
            return span._replace(side=sides[chosen])
        start, end = windows[chosen - len(sides)]
        base, width = (start + end - NEAR) / 2.0 * unit, (end - start) * unit
        if end - start <= SLIM and self.strength >= WINDOWED and self._affords(share):
            windows, prior = windows_of(FINER)
            unit = width / (NEAR // 4)
            scores = scores_of_windows(self._near(base, unit), windows, self._rank(all_but))
            start, end = windows[self.queries.choose("place", scores, share, prior)]
            base, width = base + (start + end - NEAR) / 2.0 * unit, (end - start) * unit
        return Span(float(base), float(width) / 2.0, 0, all_but)

    def _near(self, centre: float, unit: float) -> Integers:
        """Count equal bins about a centre; **not released**."""
        counts = NearCounts(self.source, (0,), (float(centre),), (float(unit),))
        return self.queries.total(counts, counts.shape)[0][1:]

    def clipped(self, span: Span) -> Span:
        """Where to clip: further out than most rows, as far as the tail and the noise call for."""
        if span.seldom:
            return span._replace(reach=CLIP_SELDOM * span.reach)
        if self.strength < PLACED:
            return span._replace(reach=CLIP_OF_FEW * span.reach)
        share = self._share(REACH_WINDOW if span.is_window else REACH)
        beyond, ends = self._beyond(NEARLY, share), ENDS_WINDOW if span.is_window else ENDS
        few = self.strength < (WINDOWED if span.is_window else REACHED) or not self._affords(share)
        if few or beyond >= span.beyond:
            is_sided = span.side != 0 and self.strength >= WINDOWED
            return span._replace(reach=(CLIP_SIDED if is_sided else CLIP) * span.reach)
        reaches = REACHES_WINDOW if span.is_window else REACHES
        within = self.queries.total(*self._sizes_of(self._targets(span, math.inf), reaches))[:-1]
        places = np.arange(len(reaches)) - reaches.searchsorted(1.0)
        far = self.queries.choose(
            "reach", scores_of(within, self._rank(beyond)), share, -NEARER * np.maximum(places, 0.0)
        )
        if places[far] <= 0 or beyond >= HALF / 2.0 or not self._affords(self._share(FALL)):
            return span._replace(reach=max(ends, float(reaches[far])) * span.reach)
        # Between two quantiles a tail falls like a power, and the clip goes on with it: what is lost beyond is then the
        # fraction beyond it times slope/(1 - slope) clips.
        half = self.queries.choose(
            "tail", scores_of(within, self._rank(HALF)), self._share(FALL), np.zeros(len(within))
        )
        slope = min(SLOWEST, max(0.0, math.log2(reaches[far] / reaches[half]) / math.log2(HALF / beyond)))
        noise = math.sqrt(2.0) * (1.0 if span.side else 2.0) / (self.strength * self.queries.account.left)
        lost = CUT_OFF * noise * min(1.0, (1.0 - slope) / max(slope, 1e-9))
        further = float(reaches[far]) * min(FURTHEST[abs(span.side)], max(1.0, (beyond / lost) ** slope * 2.0**-0.25))
        return span._replace(reach=max(ends, further) * span.reach)

    def level(self, span: Span) -> float:
        """Release the mean of targets clipped to a span."""
        mean, sd = self._mean(span)
        if span.seldom or not (span.side or span.is_window):
            mean = believed(mean, sd)
        return span.base + mean

    def _mean(self, span: Span) -> tuple[float, float]:
        """Release the mean of clipped targets less the base, with all that is left, and the noise in it."""
        targets = self._targets(span, self.furthest * span.reach)
        low, high = max(targets.low, -1.0), min(targets.high, 1.0)
        targets, length = replace(targets, low=low, high=high), 1.0 if span.side else 2.0

        def mean(label: str, share: float, instead: float = 0.0) -> tuple[float, float]:
            # Less what missing ones count as, which is between the ends: so these are 0, as a missing residual is.
            level = Level(Fitted.flat(self.queries.engine.columns, instead), targets, Clip(length))
            found, sd = self.queries.mean(label, level, length, share, narrow=True)
            at = instead + float(found[0]) / present.fraction
            return min(high, max(low, at)), sd / present.fraction

        present, instead = ALL, 0.0
        asked = self.strength >= (COMPLETE_WINDOW if span.is_window else COMPLETE)
        if asked and self._affords(self._share(MISSING) + ROUGH):
            present = self._present(targets)
            instead, _ = mean("rough", ROUGH)
        found, sd = mean("level", self.queries.account.left, instead)
        return span.reach * found, span.reach * sd

    def level_within(self, low: float, high: float) -> float:
        """Release the mean of targets clipped to a range, no further from 0 than noise allows."""
        span, start = Span.between(low, high), min(max(low, 0.0), high)
        mean, sd = self._mean(span)
        return start + believed(min(max(low, span.base + mean), high) - start, sd)

    def _present(self, targets: Target) -> Present:
        """Fraction of targets that are not missing."""
        share = self._share(MISSING)
        missing = self.queries.fraction("missing", missing_count(self.queries, targets), share)
        return Present.of(missing, math.sqrt(2.0) / (self.strength * share))

    def _sizes_of(self, targets: Target, grid: Iterable[float]) -> tuple[Sizes, tuple[int]]:
        """What counts sizes of targets, and the shape of the counts; **not released**."""
        counts = Sizes(Residual(Fitted.flat(self.queries.engine.columns), targets), tuple(grid))
        return counts, counts.shape

    def _affords(self, share: float) -> bool:
        """Whether enough is left after a question; released."""
        return self.queries.account.left - share >= KEPT

    def _targets(self, span: Span, furthest: float) -> Target:
        """Targets from the base in units of the reach; negative counts are zeros."""
        low = 0.0 if span.side > 0 else -span.base / span.reach if self.positive else -math.inf
        high = 0.0 if span.side < 0 else math.inf
        return Target(span.base, span.reach, span.base, furthest, low, high)

    def _share(self, needs: tuple[float, float, float]) -> float:
        """Share of a question that needs so much; public."""
        enough, most, least = needs
        return min(most, max(least, enough / self.strength))

    def _beyond(self, safe: float, share: float) -> float:
        """Fraction of rows that leaves a wrong answer so unlikely; public."""
        return 2.0 * safe / (self.strength * share)

    def _rank(self, beyond: float) -> int:
        """Number of rows that are not beyond; public."""
        return int(self.n * (1.0 - beyond))
