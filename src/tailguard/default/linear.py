r"""The default for linear regression: stage C, on the columns of stage A and the design of stage B.

Damped Newton steps on the score ``w a clip(r, -c, c)`` of a row with design vector a, Mallows weight w and residual r.
Since ``|w a| <= R``, one row moves the sum by at most ``2 R c``. The clip c is a private quantile of ``|r|``, asked for
again at every step. There are two clips, because there are two targets:

* *wide*: the clip widens with n, until clipping bias and privacy noise balance, and where it is far out it is
  stretched to make up for the tail beyond (`rows.Clip`): slopes of the mean, noisy;
* *narrow*: the 65 % quantile (55 % for the bulk): slopes of the bulk (Huber's), quiet.

For the bulk all steps are narrow. For the mean the first are wide, and what the rows say decides about the others:

1. Are residuals larger (or smaller) where the line is? Costs and payments are like that. Then all steps are wide.
2. If not, steps are narrow, less so where tails are light: where the noise does not depend on x both targets have the
   same slopes. Where noise is next to nothing both kinds of slopes are compared, and if they differ the rest is wide.
3. If not, in which direction, if in any, do residuals widen? With skewed noise that is where the two targets differ.

Then it is asked whether the line holds for the few rows whose features are far out (`extent`).

Stage D, tilt and level, is that of all fits (`recalibration`): the tilt is for the mean, along the line where residuals
are uneven along it, and else in the direction in which they widen. The intercept is that of the mean in either target.

=================  ===================================================  ==========================  =================
query              one row                                              L2 sensitivity of the sum   share
=================  ===================================================  ==========================  =================
steps, clip        1{abs(r) <= grid}, one count a level, one before     1 for each                  .03, bulk .035
steps, score       w a c(r), c at most its bound b                      2 R b                       what is left
uneven, mean only  (a u, a, u/2), a = min(abs(r)/c, 1) - 1/2            sqrt(3)                     .01
clip, light tails  1{abs(r) <= one point}                               1                           .006
difference, mean   w a clip(r, c)                                       2 R c                       .03
widening, mean     w a (min(abs(r), c) - c/2)                           R c                         .04
variances          min(r^2, c^2)                                        c^2                         .01; .005 to compare
beyond             see `extent`                                         2 b                         .004 to .04
=================  ===================================================  ==========================  =================

Where there is no direction to tilt the line in, the steps get what stage D would take for it. Shares depend on n, d and
the budget, and on what a released value decides: that, which of two clips the steps use, how many columns are looked at
again and how many have a heavy tail; steps and level take what is left. The account is a filter that allows for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailguard.default import extent
from tailguard.default.averaging import geometric
from tailguard.default.columns import Columns, first_counts
from tailguard.default.hinted import narrowed_target
from tailguard.default.line import UNSEEN, Line, nothing
from tailguard.default.locating import FAR, locate_features, locate_target, looks_at, noise_to_signal
from tailguard.default.newton import Averaged, Curvature, Iterate
from tailguard.default.quantiles import AROUND, GRID, Quantile, quantile
from tailguard.default.recalibration import F_INSTRUMENT, F_TILT, Fit
from tailguard.default.rows import Clip, Residual, Score, Square, Uneven, Widening
from tailguard.default.score_table import ScoreTable
from tailguard.default.sharpening import sharpened
from tailguard.default.shrinkage import shrink, slope_noise
from tailguard.default.whitening import CERTAIN, Design, decorrelate, standardised, widened, wider
from tailguard.hints import Known
from tailguard.means.queries import Queries

Array = NDArray[np.float64]

F_CLIP, F_FAR, F_VARIANCE, F_UNEVEN, F_WIDENING = 0.03, 0.005, 0.01, 0.01, 0.04
F_LIGHT, F_DIFFERENCE = 0.006, 0.03
# Shares of three phases of steps. For the mean the first are wide and the others what the data call for, for the bulk
# all are narrow.
PHASES = {"mean": (0.15, 0.30, 0.55), "bulk": (0.12, 0.33, 0.55)}
STEPS = (3, 4, 4)  # of each phase,
SKIPPED = {"mean": (1, 1, 0), "bulk": (2, 0, 0)}  # and those not averaged
# Of the mean curvature, the least that the first wide steps use: their noise is large, and where there is little
# curvature, as in rare columns, later steps would not forget it.
CALM = 0.5
NARROW = {"mean": 0.65, "bulk": 0.55}  # quantile of the narrow clip where there is little noise,
NARROWER = 0.2  # and how much less where there is much
# Where residuals have a light tail a wider clip costs little: its quantile where a step's privacy noise is so small a
# part of sampling noise, and how much less with ten times as much; the gain that is worth a question.
LIGHT, LITTLE, LESS, WORTH = 0.93, 0.02, 0.25, 0.1
# Of the rows beyond a narrow clip, those that are so many octaves further out: 2 % of normal ones, and 15 to 20 % of
# Laplace's, Student's with three degrees and log-normal ones. Parts up to which a tail is light, and from which not.
TAIL_OCTAVES, LIGHT_TAIL = 1.5, (0.04, 0.12)
# Noise-to-signal ratio below which slopes of the mean and of the bulk are compared: there wide steps cost little. They
# are taken if the square of the difference is clear of its noise by so many standard deviations, and larger than so
# many times the noise that wide steps will have.
COMPARED, DIFFERENT, OUTWEIGHED = 0.0006, 2.5, 1.0
TAIL, LARGEST_TAIL = 14.0, 0.2  # fraction beyond the wide clip, over the noise-to-signal ratio of a score; the most
UNEVEN_TAIL = 7.0  # the same where residuals are uneven:
SURELY = 3.0  # standard deviations from which they are
WIDENED = 2.0  # narrow clips up to which sizes of residuals are compared,
CLEARLY = 2.5  # standard deviations of noise alone beyond which the square of their vector is more than noise,
MATERIAL = 0.03  # and by how much of that reach sizes must vary over the rows: less is not worth a tilt
STRETCHED, BEFORE = 0.1, 1.0  # largest such fraction that is a tail; where its part begins, in octaves before the clip
LEAST_TAIL = 0.3  # of that fraction, is believed to be beyond a clip
# Clips of wide steps. With most targets zero a quantile would draw them to nothing, and the slopes with it.
WIDE_GRID = GRID[GRID >= 0.125]
FURTHER = 2.0 ** np.arange(0.0, 8.01, 0.25)  # times a narrow clip, to find a wide one


@dataclass
class _Track:
    """Iterates of one target: their average, where its clips are stretched, the least and the latest clip."""

    average: Averaged
    octaves: float = 0.0  # before the clip; 0 for plain ones
    least: float = 0.0
    clip: float | None = None


def _last() -> float:
    """Share of the last phase in what the first leaves, for the mean."""
    _, second, third = PHASES["mean"]
    return third / (second + third)


def _without_constant(curved: Curvature, gradient: Array) -> Array:
    """What of a gradient, feature by feature, a change of the constant does not explain."""
    change = curved.inverse @ gradient
    return np.asarray((gradient - change[0] * curved.matrix[0])[1:])


def fit_line(queries: Queries, target: str, intercept: bool, known: Known | None = None) -> Line:
    """Fit a linear model to the "mean" or the "bulk"."""
    d = queries.engine.columns
    ratio = noise_to_signal(queries, d + 1)
    queries.together(first_counts("features", np.arange(d)), first_counts("target", np.arange(1)))
    columns = locate_features(queries, intercept, known)
    raw = standardised(columns, intercept)
    found = locate_target(queries, looks_at(queries, 1)._replace(closer=FAR), intercept, (raw.gram_sum(queries),))
    y_column = narrowed_target(found, known, intercept)
    if not y_column.seen[0]:
        return nothing(columns, UNSEEN)
    fit = LinearFit(queries, y_column, target, intercept, ratio)
    fit.take_steps(raw)
    columns = fit.truncate()
    fit.recalibrate()
    return fit.line(columns)


class LinearFit(Fit):
    """Steps to the "mean" or the "bulk": everything in it is released or public."""

    def __init__(self, queries: Queries, y_column: Columns, target: str, intercept: bool, ratio: float) -> None:
        super().__init__(queries, y_column, intercept, ratio)
        self.target, self.ratio, self.narrow = target, ratio, NARROW[target]

    def take_steps(self, raw: Design) -> None:
        """Wide steps, narrow steps, and the kind that the data call for; then shrinkage."""
        queries = self.queries
        design, times = decorrelate(queries, raw, CERTAIN), wider(self.ratio) if self.target == "mean" else 1.0
        if not design.is_thin:
            design = widened(queries, design, times)
        self.design = design
        p, n = design.width, queries.n
        first = self._table(np.zeros(p), WIDE_GRID if self.target == "mean" else GRID)
        queries.together(design.gram_sum(queries), first)
        self.design, self.curvature = sharpened(queries, design, times)
        if self.design is not design:
            design, first = self.design, self._table(np.zeros(p), first.grid)
            queries.together(first)
        # Of the level's share the tail takes .25, and the level what is left: at least .40.
        self.beyond_share = extent.share(queries, design.columns)
        left = queries.account.left - F_CLIP - F_VARIANCE - self.beyond_share - 0.65 * self.level_share
        left -= F_UNEVEN + F_INSTRUMENT + F_TILT if self.target == "mean" else F_FAR
        signal = 2.0 * design.radius * math.sqrt(p) / (n * math.sqrt(left) * queries.mu)
        self.tail = min(LARGEST_TAIL, TAIL * signal)
        # The privacy noise of a step is that of c/P(|r| <= c), which falls with the clip c to a limit; that of sampling
        # rises. So the clip is the narrower the more there is of the first, here over the second; public.
        noisy = signal**2 * n / p
        self.narrow -= NARROWER * min(1.0, max(0.0, math.log10(10.0 * noisy)))
        if self.target == "bulk":
            return self._bulk_slopes(left, first)

        self.signal, self.light = signal, LIGHT - LESS * max(0.0, math.log10(noisy / LITTLE))
        wide = self._wide_track()
        at = self._phase(0, wide, 1.0 - self.tail, Iterate.start(p), PHASES["mean"][0] * left, first)
        left *= 1.0 - PHASES["mean"][0]
        first = self._table(at.theta, GRID)
        self.own = self._uneven(at.theta, wide, first) > SURELY
        if self.own:
            self._wide_slopes(at, left)
        else:
            self.wide_clip = self._clip(wide)
            self._mean_slopes(at, left + F_INSTRUMENT + F_TILT - F_FAR - F_WIDENING, first)

    def _bulk_slopes(self, left: float, first: ScoreTable) -> None:
        """Narrow steps alone, and shrinkage."""
        assert self.design is not None
        track, at = _Track(Averaged.empty(self.design.width)), Iterate.start(self.design.width)
        for phase, part in enumerate(PHASES["bulk"]):
            at = self._phase(phase, track, self.narrow, at, part * left, first if phase == 0 else None)
        self._narrow_slopes(track)

    def _mean_slopes(self, at: Iterate, left: float, first: ScoreTable) -> None:
        """Narrow steps after wide ones, and the direction in which residuals widen."""
        assert self.design is not None
        track, last = _Track(Averaged.empty(self.design.width)), _last()
        found = None
        if self.light > self.narrow + WORTH:
            found = self._lighter(first)
            left -= F_LIGHT
        at = self._phase(1, track, self.narrow, at, (1.0 - last) * left, first, found)
        left *= last
        if self.ratio < COMPARED:
            left -= F_DIFFERENCE + F_VARIANCE / 2.0
            wide = left + F_FAR + F_WIDENING - F_INSTRUMENT - F_TILT - F_CLIP / 3.0
            if self._differ(at.theta, wide):
                self.own = True
                return self._wide_slopes(at, wide)
        first = self._table(at.theta, self._clip(track) * AROUND)
        if self._widens(at.theta, track, first):
            left -= F_INSTRUMENT + F_TILT
        self._phase(2, track, self.narrow, at, left, first)
        self._narrow_slopes(track)

    def _lighter(self, table: ScoreTable) -> Quantile:
        """The first narrow clip; ``narrow``, the quantile of the others, rises if the tail beyond it is light."""
        share = F_CLIP / 3.0 / STEPS[1]
        found = quantile(
            self.queries, "clip", table.residual, self.narrow, table.grid, share, -TAIL_OCTAVES, more=F_LIGHT
        )
        if found.other > 0.0:
            # Rather heavy than light: the noise of a count is added.
            further = 1.0 - found.fraction_other + self.queries.sd(1.0, F_LIGHT)
            part = further / max(1.0 - found.fraction, 0.05)
            self.narrow += (self.light - self.narrow) * float(np.interp(part, LIGHT_TAIL, (1.0, 0.0)))
        return Quantile(found.value, found.fraction)

    def _differ(self, theta: Array, left: float) -> bool:
        """Whether slopes of the mean differ from narrow ones by more than the noise of wide steps with a share left.

        Narrow steps that have not arrived look the same, and wide ones are right then, too.
        """
        design, queries, curved, clip = self.design, self.queries, self.curvature, self.wide_clip
        assert design is not None
        square, bound = self._square(theta), design.radius * clip
        score = Score(design, theta, self.standard, Clip(clip))
        queries.together(square.clipped(queries.grid(square.bound)), score.clipped(queries.grid(bound)))
        self._measure_variance(square, F_VARIANCE / 2.0)
        found, sd = queries.mean("difference", score, design.width, bound, F_DIFFERENCE)
        # At the end of steps the score is what the penalty of a floor leaves.
        features, d = _without_constant(curved, found + curved.penalty @ theta), design.width - 1
        sampling = self.variance * float(np.mean(curved.used)) / queries.n
        noise = sd * sd + sampling
        surplus = float(features @ features) - d * noise
        later = d * (sd * sd * F_DIFFERENCE / left + sampling)
        return surplus > max(DIFFERENT * math.sqrt(2.0 * d) * noise, OUTWEIGHED * later)

    def _widens(self, theta: Array, track: _Track, table: ScoreTable) -> bool:
        """Find the direction in which residuals widen, if any; the next ``table`` is made in the same pass."""
        design, queries, curved = self.design, self.queries, self.curvature
        assert design is not None
        rows = Widening(design, theta, self.standard, WIDENED * self._clip(track))
        queries.together(rows.clipped(queries.grid(rows.bound)), table)
        found, sd = queries.mean("widening", rows, design.width, rows.bound, F_WIDENING)
        # How sizes depend on the features, and what of it the constant does not explain.
        dependence, features = curved.inverse @ found, _without_constant(curved, found)
        # A size between -c/2 and c/2 has a variance of about c^2/12.
        sampling = (rows.clip * design.radius) ** 2 / (12.0 * design.width * queries.n)
        noise, d = sd * sd + sampling, len(features)
        direction = design.whitening @ dependence[1:]
        clear = float(features @ features) > noise * (d + CLEARLY * math.sqrt(2.0 * d))
        if not clear or design.spread(direction) < MATERIAL * rows.clip:
            return False
        self.direction = direction
        return True

    def _narrow_slopes(self, track: _Track) -> None:
        """Far clip, variance and shrinkage of narrow steps."""
        design, queries, theta = self.design, self.queries, track.average.iterate.theta
        assert design is not None
        residual = Residual(design.fitted(theta), self.standard)
        self.wide_clip = quantile(queries, "clip", residual, 1.0 - self.tail, self._clip(track) * FURTHER, F_FAR)[0]
        self._measure_variance(self._square(theta))
        if self.intercept:
            self.constant, self.settled = float(theta[0]), True
        # As narrow steps feel it.
        self._shrink(track.average.iterate, min(self.variance, (self._clip(track) / self.narrow) ** 2))

    def _wide_track(self) -> _Track:
        assert self.design is not None
        return _Track(Averaged.empty(self.design.width), BEFORE if self.tail <= STRETCHED else 0.0, WIDE_GRID[0])

    def _shrink(self, at: Iterate, residual: float) -> None:
        """Shrink slopes by their noise: that of the steps, and that of sampling residuals of a variance."""
        design, curved = self.design, self.curvature
        assert design is not None
        self.felt, W = residual, design.whitening
        self.noise = slope_noise(W, curved.covariance(at.noise, 0.0))
        covariance = curved.covariance(at.noise, residual / self.queries.n)
        self.slopes = shrink(W @ at.theta[1:], W @ covariance[1:, 1:] @ W.T, design.covariance)

    def _uneven(self, theta: Array, track: _Track, table: ScoreTable) -> float:
        """How surely sizes of residuals depend on the line; the next ``table`` is made in the same pass."""
        assert self.design is not None
        slopes = self.design.whitening @ theta[1:]
        rows = Uneven(self.design.fitted(theta), self.standard, self._clip(track), self.design.spread(slopes))
        self.queries.together(rows.clipped(self.queries.grid(rows.length)), table)
        (product, size, half), sd = self.queries.mean("uneven", rows, rows.width, rows.length, F_UNEVEN)
        # The product of a and u has a variance of a quarter at most.
        return float(abs(product - 2.0 * size * half)) / math.hypot(sd, 0.5 / math.sqrt(self.queries.n))

    def _wide_slopes(self, at: Iterate, left: float) -> None:
        """Wide steps alone, and shrinkage."""
        self.tail = min(LARGEST_TAIL, UNEVEN_TAIL * self.signal)
        track, last = self._wide_track(), _last()
        at = self._phase(1, track, 1.0 - self.tail, at, (1.0 - last) * left)
        at = self._phase(2, track, 1.0 - self.tail, at, last * left)
        self.wide_clip = self._clip(track)
        self._measure_variance(self._square(at.theta))
        self.constant = float(at.theta[0]) if self.intercept else 0.0
        self._shrink(at, self.variance)

    @staticmethod
    def _clip(track: _Track) -> float:
        assert track.clip is not None
        return track.clip

    def _table(self, theta: Array, grid: Array) -> ScoreTable:
        assert self.design is not None
        return ScoreTable(self.design, theta, self.standard, grid, self.queries.n)

    def _phase(
        self,
        phase: int,
        track: _Track,
        level: float,
        at: Iterate,
        share: float,
        first: ScoreTable | None = None,
        found: Quantile | None = None,
    ) -> Iterate:
        """Steps of one kind from an iterate, whose ``first`` table is made already; returns the track's average.

        The quantile that is the first clip may have been ``found``, too.
        """
        design, queries = self.design, self.queries
        assert design is not None
        steps, curved = STEPS[phase], self.curvature
        if phase == 0 and self.target == "mean":
            curved = curved.calm(CALM)
        for t, part in enumerate(geometric(steps)):
            table = first
            if t > 0 or table is None:
                grid = GRID if track.clip is None else track.clip * AROUND
                table = self._table(at.theta, grid[grid >= track.least])
                queries.together(table)
            if t > 0 or found is None:
                part_of_clips = F_CLIP / 3.0 / steps
                found = quantile(queries, "clip", table.residual, level, table.grid, part_of_clips, track.octaves)
            track.clip, (clip, inside) = found.value, self._stretched(found, level)
            score = table.score(clip)
            gradient, sd = queries.mean("steps", score, design.width, design.radius * clip.bound, share * part)
            at = at.step(curved, gradient / inside, sd / inside)
            if t >= SKIPPED[self.target][phase]:
                track.average.add(at, (sd / inside) ** 2)
        return track.average.iterate

    def _stretched(self, found: Quantile, level: float) -> tuple[Clip, float]:
        """The clip of a step, and its mean slope: the fraction of rows inside it, and again of those in its stretch."""
        if found.other <= 0.0:
            return Clip(found.value), min(1.0, max(min(0.5, level - 0.05), found.fraction))
        beyond = max(1.0 - found.fraction, LEAST_TAIL * self.tail)
        beyond_before = min(1.0, max(1.0 - found.fraction_other, 1.2 * beyond))
        power = math.log(beyond_before / beyond) / math.log(found.value / found.other)
        clip = Clip.stretched(found.value, found.other, power)
        return clip, max(0.5, 1.0 - beyond + clip.stretch * (beyond_before - beyond))

    def _square(self, theta: Array) -> Square:
        assert self.design is not None
        return Square(self.design.fitted(theta), self.standard, self.wide_clip)

    def _measure_variance(self, square: Square, share: float = F_VARIANCE) -> None:
        """Release the variance of residuals within the wide clip."""
        found, sd = self.queries.mean("variances", square, 1, square.bound, share)
        self.variance = min(max(float(found[0]) + square.bound, 2.0 * sd), 2.0 * square.bound)

    def truncate(self) -> Columns:
        """Truncate features where most rows end, unless the line is better beyond; returns the columns."""
        assert self.design is not None
        known, steps = (self._line(), self.standard, self.felt), "wide" if self.own else "narrow"
        self.design = extent.believed(self.queries, self.design, *known, steps, self.beyond_share)
        return self.design.columns
