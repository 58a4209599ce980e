r"""The default for Poisson regression with a log link: mean ``exp(z)``.

Targets are counted in units of their released mean, so that the level starts near 0 and residuals ``exp(z) - y`` near
1. Damped Newton steps on ``w a clip(exp(z) - y, -c, c)``, of sensitivity ``2 R c``, with the wide clip of the linear
default; ``exp(z)`` is bounded by bounding z. With a small budget the steps are those of `small`, and with less only the
level is fitted.

Claims, admissions and accidents are zero in most rows. A quantile of residuals is then that of the zeros, and a clip
there would take all others for nothing: clips are at least `LEAST_CLIP` standard deviations of the target. And where
nothing but zeros and ones was seen, there may still be twos: counts do not end where they can no longer be seen.

Where the mean is large an exponential is steep, and steps that take the mean of it would swing: `newton.Secants`.

Clips cut off large counts, of which there are more where the mean is larger. So the fitted slopes are too small, all by
about the same factor, and so is the level: two numbers, which stage D (`recalibration`) finds with clips far out.

=================  =====================================  ==========================  =========================
query              one row                                L2 sensitivity of the sum   share
=================  =====================================  ==========================  =========================
clip               1{abs(r) <= grid}, one count a level   1 for each                  .03 in all
steps              w a clip(r, c)                         2 R c                       what is left
tail               1{abs(r) <= grid}, one count a level   1 for each                  1/4 of the level's
tilt               c(r) clip(u - centre, 1)               2 b                         .10, not in small fits
level              c(r)                                   2 b                         all that is left
=================  =====================================  ==========================  =========================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tailguard.default.averaging import geometric, into_ball
from tailguard.default.choice import is_hinted, kind_of
from tailguard.default.columns import Columns, Tails, first_counts
from tailguard.default.hinted import narrowed_target
from tailguard.default.level import TARGET
from tailguard.default.line import LEVEL_ONLY, LEVEL_UNSEEN, UNSEEN, Line, nothing
from tailguard.default.linear import F_CLIP, TAIL
from tailguard.default.locating import locate_features, locate_target, looks_at
from tailguard.default.newton import LIMIT, Averaged, Iterate, Secants
from tailguard.default.quantiles import AROUND, GRID, quantile
from tailguard.default.recalibration import F_TILT
from tailguard.default.rows import Clip, Instrument, Product, Target
from tailguard.default.rows.line import instrument
from tailguard.default.score_table import ScoreTable
from tailguard.default.sharpening import sharpened
from tailguard.default.shrinkage import kept, shrink, slope_noise
from tailguard.default.small import ENDED, SmallFit, columns_of, looks_at_target
from tailguard.default.whitening import CERTAIN, decorrelate, standardised
from tailguard.hints import Known
from tailguard.means.queries import Queries

Array = NDArray[np.float64]

STEPS, GROWTH = 10, 1.2  # the growth of their shares: early noise, in an exponent, is not soon forgotten
LARGEST = 5.0  # of the predictor, relative to the mean: a fitted mean is at most 150 times the average,
SMALLEST = -20.0  # and at least next to nothing
LOWEST = 3.0  # of the level, below and above where it starts
SMALL_LIMIT = 1.0  # of whitened slopes, in a small fit: steps that noise has led further out come back too slowly
LEVEL_SHARE = 0.15
WIDEST = 0.35
LEAST_CLIP, LEAST_GRID = 1.0, 64.0  # standard deviations of the target; and the most that this is, over its mean
LEAST_MEAN = 0.05  # standard deviations of the target: a smaller mean may be noise, and everything is counted in it
ONES = 4.0  # times as far as zeros and ones reach, counts may: twos are too few to be seen
# As for lines, but nearer, and no further than `ENDED` times where most rows end: far out, what an exponential makes of
# a slope is larger than any line, and the rows there need not follow it.
TAILS = Tails(4.0, (-1.0, 0.0))
# Of a target of which nothing was seen: as many ones as noise may hide, so many times that of a count for such a share.
# Too large a mean costs little, one that is too small much.
HIDDEN, LOOKED = 3.0, 0.05
# Of a multiplier of the line: the fraction beyond its clip, over its noise and the spread of the line, the error beyond
# which there is none, and the largest change.
BEYOND_MULTIPLIER, VAGUE, STEEPEST = 6.0, 0.15, 0.4
AVERAGE = 0.6  # of the mean that the level's change says fitted values have, what they are believed to have at least
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
_WEIGHTS /= _WEIGHTS.sum()


def fit_log_mean(queries: Queries, intercept: bool, known: Known | None = None) -> tuple[Line, float]:
    """Fit the logarithm of the mean; also the curvature of the loss, for penalties."""
    line, mean = _fit(queries, intercept, known)
    if known is not None and known.target_range is not None:
        low, high = line.limits
        end = math.log(max(known.target_range[1], 1e-300))
        line = replace(line, limits=(min(low, end), min(high, end)))
    return line, mean


def _fit(queries: Queries, intercept: bool, known: Known | None) -> tuple[Line, float]:
    kind = kind_of(queries, known)
    if kind == "level":
        return level_of_counts(queries, intercept, known)
    d, small = queries.engine.columns, kind == "small"
    if not small:
        queries.together(first_counts("features", np.arange(d)), first_counts("positive target", np.arange(1)))
    looks = looks_at_target(queries) if small else looks_at(queries, 1)
    found = narrowed_target(locate_target(queries, looks, source="positive target"), known)
    if not found.seen[0]:
        return _unseen(queries, intercept, UNSEEN)
    fit = CountsFit(queries, found, intercept)
    if small:
        columns = columns_of(queries, known, intercept)
        fit.descend(columns, is_hinted(known))
    else:
        columns = locate_features(queries, intercept, known, TAILS).near(ENDED)
        fit.take_newton_steps(columns)
    if intercept:
        fit.recalibrate()
    return fit.line(columns), fit.y_scale


def level_of_counts(queries: Queries, intercept: bool, known: Known | None = None) -> tuple[Line, float]:
    """Fit a level, if there is to be one, and no slopes."""
    if not intercept:
        return nothing(Columns.unknown(queries.engine.columns), LEVEL_ONLY), 1.0
    found = narrowed_target(locate_target(queries, TARGET, source="positive target", again=False), known)
    if not found.seen[0]:
        return _unseen(queries, intercept, LEVEL_UNSEEN)
    fit = CountsFit(queries, found, intercept)
    return fit.level_alone(), fit.y_scale


def log_mean_of(mean: float, queries: Queries) -> float:
    """The logarithm of a released mean, or of the largest that would not be seen."""
    return math.log(max(mean, _hidden(queries)))


def _hidden(queries: Queries) -> float:
    """Mean of ones that are too few to be seen; public."""
    return min(1.0, HIDDEN * queries.sd(math.sqrt(2.0), LOOKED))


def _unseen(queries: Queries, intercept: bool, note: str) -> tuple[Line, float]:
    """Say the least that is known of a target of which nothing was seen."""
    mean, columns = _hidden(queries), Columns.unknown(queries.engine.columns)
    return replace(nothing(columns, note), level=math.log(mean) if intercept else 0.0), mean


class CountsFit(SmallFit):
    """The state of a fit after stage A: everything in it is released or public."""

    largest = LARGEST
    growth = GROWTH

    def __init__(self, queries: Queries, y_column: Columns, intercept: bool) -> None:
        super().__init__(queries, y_column, intercept)
        spread, top = float(y_column.scale[0]), float(y_column.upper[0])
        if y_column.ends is not None and np.isinf(y_column.ends[0]):
            top *= ONES
        mean = max(float(y_column.mean[0]), LEAST_MEAN * spread)
        self.y_mean, self.y_scale, self.y_reach = 0.0, mean, max(top, mean)
        self.standard = Target(scale=mean, low=0.0, high=self.y_reach / mean)
        self.start = math.log(mean)
        # Without an intercept the predictor is relative to a fixed level, log(mean), that slopes have to make up for.
        self.offset = 0.0 if intercept else -self.start
        self.relative_spread = spread / mean
        self.least_clip = min(LEAST_GRID, LEAST_CLIP * self.relative_spread)

    def take_newton_steps(self, columns: Columns) -> None:
        """Newton steps on the clipped score, the later half averaged; then shrinkage."""
        queries = self.queries
        first = design = decorrelate(queries, standardised(columns, self.intercept), CERTAIN)
        p, bound = design.width, math.inf
        at, average, secants = Iterate.start(p), Averaged.empty(p), Secants()
        grid = GRID[self.least_clip <= GRID]
        table = ScoreTable(design, at.theta, self.standard, grid, queries.n, self.offset, LARGEST)
        queries.together(design.gram_sum(queries), table)
        design, bent = sharpened(queries, first)
        if design is not first:
            table = replace(table, design=design)
            queries.together(table)
        self.design, self.level_share, self.own = design, LEVEL_SHARE, True
        share = queries.account.left - F_CLIP - (LEVEL_SHARE + F_TILT if self.intercept else 0.0)
        signal = 2.0 * design.radius * math.sqrt(p) / (queries.n * math.sqrt(share) * queries.mu)
        self.tail = min(WIDEST, TAIL * signal)
        for t, part in enumerate(geometric(STEPS, GROWTH)):
            if t > 0:
                near = bound * AROUND
                table = replace(table, theta=at.theta, grid=near[near >= self.least_clip])
                queries.together(table)
            found = quantile(queries, "clip", table.residual, 1.0 - self.tail, table.grid, F_CLIP / STEPS)
            bound, score = found.value, table.score(Clip(found.value))
            gradient, sd = queries.mean("steps", score, p, design.radius * bound, share * part)
            inside, steep = min(1.0, max(0.5, found.fraction)), self._steepness(at.theta)
            gradient, sd = gradient / inside, sd / inside
            felt = secants.after(at.theta, gradient, sd, bent.scaled(steep))
            at = _bounded(at.step(felt, gradient, sd), LIMIT)
            if t >= STEPS / 2:
                average.add(at, (sd / steep) ** 2)
        at, W = average.iterate, design.whitening
        self.noise = slope_noise(W, bent.covariance(at.noise, 0.0))
        noise = bent.covariance(at.noise, min(bound, self.relative_spread) ** 2 / queries.n)
        self.slopes = shrink(W @ at.theta[1:], W @ noise[1:, 1:] @ W.T, design.covariance)
        self.constant = float(at.theta[0]) if self.intercept else 0.0
        self.wide_clip = bound

    def _steepness(self, theta: Array) -> float:
        """About the mean of ``exp(z)`` over a normal predictor."""
        return min(3.0, max(0.5, self._mean(float(theta[0]), float(theta[1:] @ theta[1:]))))

    def _within(self, at: Iterate) -> Iterate:
        return _bounded(at, SMALL_LIMIT)

    def _mean(self, constant: float, variance: float) -> float:
        return math.exp(min(LARGEST, self.offset + constant + variance / 2.0))

    def _moments(self) -> Instrument | None:
        """Nothing is asked: rows count by their fitted means here, and those of a normal predictor are known."""
        return None

    def _tilt(self, moments: Instrument | None, clip_at: Callable[[float], float], noise: float, power: float) -> None:
        """Multiply the slopes by what makes residuals uncorrelated with the line, only as far as its noise allows."""
        queries, design = self.queries, self.design
        if design is None or not self.own or not np.any(self.slopes):
            return
        spread = design.spread(self.slopes)
        means = _WEIGHTS * np.exp(np.minimum(LARGEST, self.offset + self.constant + spread * _POINTS))
        u = instrument(_POINTS, 1.0)
        centre = float(means @ u / means.sum())  # so that an error of the level does not matter
        u = np.clip(u - centre, -1.0, 1.0)
        strength = float(means @ (u * spread * _POINTS))
        far = max(self.wide_clip, clip_at(min(0.3, BEYOND_MULTIPLIER * noise / spread)))
        clip = Clip.stretched(far, far / 2.0, power)
        product = Product(self._line(), self.standard, design.line(self.slopes), spread, clip, centre)
        found, sd = queries.mean("tilt", product, 1, clip.bound, F_TILT)
        sampling = float(_WEIGHTS @ (u * u)) * min(self.relative_spread, clip.far) ** 2 / queries.n
        variance = (sd * sd + sampling) / strength**2
        if variance <= VAGUE**2:
            change = float(found[0]) / strength
            change *= kept(change * change, variance)
            self.slopes = (1.0 + min(STEEPEST, max(-STEEPEST, change))) * self.slopes

    def _raise_level(self, change: float, sd: float) -> None:
        """Raise the mean by a released change: that of clipped steps is too low, and less sure.

        Fitted values have a mean of their own, about that of a normal predictor. With features far out it is larger:
        the mean of the counts, about one, less the change.
        """
        variance = 0.0 if self.design is None else self.design.spread(self.slopes) ** 2
        model = max(self._mean(self.constant, min(variance, 2.0)), AVERAGE * (1.0 - change))
        self.constant += math.log(max(model + change, sd / 2.0, 1e-3 * model) / model)

    def line(self, columns: Columns) -> Line:
        """Back to logarithms of means in the units of y, none beyond the end of the target."""
        line = super().line(columns)
        level = self.start + self.constant if self.intercept else 0.0
        ends = self.start + SMALLEST, min(self.start + LARGEST, math.log(self.y_reach))
        return replace(line, slopes=self.slopes, level=level, limits=ends, noise=self.noise)


def _bounded(at: Iterate, limit: float) -> Iterate:
    """An iterate whose level and slopes are within their limits."""
    return replace(at, theta=np.append(np.clip(at.theta[0], -LOWEST, LOWEST), into_ball(at.theta[1:], limit)))
