r"""The default for Poisson regression with a log link: mean ``exp(z)``.

Targets are counted in units of their released mean, so that the level starts near 0 and residuals ``exp(z) - y`` near
1. Damped Newton steps on ``w a clip(exp(z) - y, -c, c)``, of sensitivity ``2 R c``, with the wide clip of the linear
default; ``exp(z)`` is bounded by bounding z. With a small budget the steps are those of `small`, and with less only the
level is fitted. The level is that of the linear default, too: the mean of residuals with a stretched clip.

Claims, admissions and accidents are zero in most rows. A quantile of residuals is then that of the zeros, and a clip
there would take all others for nothing: clips are at least `LEAST_CLIP` standard deviations of the target.

=================  =====================================  ==========================  =========================
query              one row                                L2 sensitivity of the sum   share
=================  =====================================  ==========================  =========================
clip               1{abs(r) <= grid}, one count a level   sqrt(levels)                .03 in all
steps              w a clip(r, c)                         2 R c                       what is left
tail               1{abs(r) <= grid}, one count a level   sqrt(levels)                1/4 of the level's
level              c(r)                                   2 b                         all that is left
=================  =====================================  ==========================  =========================
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tailguard.default.averaging import Average, geometric, into_ball, shrink, slope_noise
from tailguard.default.columns import Columns, first_counts
from tailguard.default.hinted import narrowed_target
from tailguard.default.linear import F_CLIP, F_TARGET, LEVEL_ONLY, TAIL, UNSEEN, Line, no_slopes, nothing
from tailguard.default.locating import column_shares, locate_features, locate_target
from tailguard.default.quantiles import AROUND, GRID, quantile
from tailguard.default.rows import Clip, Target
from tailguard.default.score_table import ScoreTable
from tailguard.default.sharpening import sharpened
from tailguard.default.small import ENDED, SmallFit, columns_of, is_hinted, is_small, target_shares
from tailguard.default.whitening import CERTAIN, decorrelate, standardised
from tailguard.hints import Known
from tailguard.means.queries import Queries

Array = NDArray[np.float64]

STEPS = 10
LARGEST = 5.0  # of the predictor, relative to the mean: a fitted mean is at most 150 times the average
LIMIT, LOWEST = 2.0, 3.0  # of whitened slopes, and of the level, from where they start
LEVEL_SHARE = 0.15
WIDEST = 0.35
LEAST_CLIP, LEAST_GRID = 1.0, 64.0  # standard deviations of the target; and the most that this is, over its mean
LEAST_MEAN = 0.05  # standard deviations of the target: a smaller mean may be noise, and everything is counted in it
INFLATION = 1.5  # of the privacy noise in shrinkage: steps correlate it
# As for lines, but nearer, and no further than `ENDED` times where most rows end: far out, what an exponential makes of
# a slope is larger than any line, and the rows there need not follow it.
WIDE, OCTAVES = 4.0, (-1.0, 0.0)
# Of a target of which nothing was seen: as many ones as noise may hide, so many times that of a count for such a share.
# Too large a mean costs little, one that is too small much.
HIDDEN, LOOKED = 3.0, 0.05


def fit_log_mean(queries: Queries, intercept: bool, known: Known | None = None) -> tuple[Line, float]:
    """Fit the logarithm of the mean; also the curvature of the loss, for penalties."""
    small = is_small(queries, known)
    if no_slopes(queries) and not small:
        return level_of_counts(queries, intercept, known)
    d = queries.engine.columns
    if not small:
        queries.together(first_counts("features", np.arange(d)), first_counts("positive target", np.arange(1)))
    shares = target_shares(queries) if small else column_shares(queries, 1)
    found = narrowed_target(locate_target(queries, shares, source="positive target"), known)
    if not found.seen[0]:
        return _unseen(queries, intercept)
    fit = CountsFit(queries, found, intercept)
    if small:
        columns = columns_of(queries, known, intercept)
        fit.descend(columns, is_hinted(known))
    else:
        columns = locate_features(queries, intercept, WIDE, known, OCTAVES, spread=False).near(ENDED)
        fit.take_newton_steps(columns)
    if intercept:
        fit.recalibrate()
    line = fit.line(columns)
    if known is not None and known.target_range is not None:
        line = replace(line, limits=(-math.inf, min(line.limits[1], math.log(max(known.target_range[1], 1e-300)))))
    return line, fit.y_scale


def level_of_counts(queries: Queries, intercept: bool, known: Known | None = None) -> tuple[Line, float]:
    """Fit a level, if there is to be one, and no slopes."""
    columns = Columns.unknown(queries.engine.columns)
    if not intercept:
        return nothing(columns, LEVEL_ONLY), 1.0
    found = narrowed_target(locate_target(queries, F_TARGET, source="positive target", again=False), known)
    if not found.seen[0]:
        return _unseen(queries, intercept)
    fit = CountsFit(queries, found, intercept)
    fit.look_at_target()
    fit.recalibrate()
    return fit.line(columns), fit.y_scale


def log_mean_of_few(mean: float, queries: Queries) -> float:
    """The logarithm of a released mean, or of the largest that would not be seen."""
    return math.log(max(mean, _hidden(queries)))


def _hidden(queries: Queries) -> float:
    """Mean of ones that are too few to be seen; public."""
    return min(1.0, HIDDEN * queries.sd(math.sqrt(2.0), LOOKED))


def _unseen(queries: Queries, intercept: bool) -> tuple[Line, float]:
    """Say the least that is known of a target of which nothing was seen."""
    mean, columns = _hidden(queries), Columns.unknown(queries.engine.columns)
    return replace(nothing(columns, UNSEEN), level=math.log(mean) if intercept else 0.0), mean


class CountsFit(SmallFit):
    """The state of a fit after stage A: everything in it is released or public."""

    largest = LARGEST

    def __init__(self, queries: Queries, y_column: Columns, intercept: bool) -> None:
        super().__init__(queries, y_column, "mean", intercept, 0.0)
        spread, top = float(y_column.scale[0]), float(y_column.upper[0])
        mean = max(float(y_column.mean[0]), LEAST_MEAN * spread)
        self.y_mean, self.y_scale, self.y_reach = 0.0, mean, max(top, mean)
        self.standard = Target(scale=mean, low=0.0, high=self.y_reach / mean)
        self.start = math.log(mean)
        # Without an intercept the predictor is relative to a fixed level, log(mean), that slopes have to make up for.
        self.offset = 0.0 if intercept else -self.start
        self.least_clip = min(LEAST_GRID, LEAST_CLIP * spread / mean)

    def take_newton_steps(self, columns: Columns) -> None:
        """Newton steps on the clipped score, the later half averaged; then shrinkage."""
        queries = self.queries
        first = design = decorrelate(queries, standardised(columns, self.intercept), CERTAIN)
        theta, average, bound = np.zeros(design.width), Average(np.zeros(design.width)), math.inf
        grid = GRID[self.least_clip <= GRID]
        table = ScoreTable(design, theta, self.standard, grid, queries.n, self.offset, LARGEST)
        queries.together(design.gram_sum(queries), table)
        design, bent = sharpened(queries, first)
        if design is not first:
            table = replace(table, design=design)
            queries.together(table)
        self.design, self.level_share = design, LEVEL_SHARE
        share = queries.account.left - F_CLIP - (LEVEL_SHARE if self.intercept else 0.0)
        signal = 2.0 * design.radius * math.sqrt(design.width) / (queries.n * math.sqrt(share) * queries.mu)
        self.tail = min(WIDEST, TAIL * signal)
        for t, part in enumerate(geometric(STEPS, 1.2)):
            if t > 0:
                near = bound * AROUND
                table = replace(table, theta=theta, grid=near[near >= self.least_clip])
                queries.together(table)
            found = quantile(queries, "clip", table.residual, 1.0 - self.tail, table.grid, F_CLIP / STEPS)
            bound, inside, score = found.value, min(1.0, max(0.5, found.fraction)), table.score(Clip(found.value))
            gradient, sd = queries.mean("steps", score, design.width, design.radius * bound, share * part)
            steep = inside * self._steepness(theta)
            step = bent.inverse @ (gradient / steep + bent.penalty @ theta)
            theta = theta - into_ball(0.8 * step, 1.0)
            theta = np.append(np.clip(theta[0], -LOWEST, LOWEST), into_ball(theta[1:], LIMIT))
            if t >= STEPS / 2:
                average.add(theta, (sd / steep) ** 2)
        theta, W = average.value, design.whitening
        private = average.variance * bent.inverse @ bent.inverse
        noise = INFLATION * private + bound**2 * bent.inverse / queries.n
        self.noise = slope_noise(W, private)
        self.slopes = shrink(W @ theta[1:], W @ noise[1:, 1:] @ W.T, design.covariance)
        self.constant = float(theta[0]) if self.intercept else 0.0
        self.wide_clip = bound

    def _steepness(self, theta: Array) -> float:
        """About the mean of ``exp(z)`` over a normal predictor."""
        return min(3.0, max(0.5, self._mean(float(theta[0]), float(theta[1:] @ theta[1:]))))

    def _mean(self, constant: float, variance: float) -> float:
        return math.exp(min(LARGEST, self.offset + constant + variance / 2.0))

    def _raise_level(self, change: float, sd: float) -> None:
        """Raise the mean by a released change: that of clipped steps is too low, and less sure."""
        variance = 0.0 if self.design is None else self.design.spread(self.slopes) ** 2
        model = self._mean(self.constant, min(variance, 2.0))
        self.constant += math.log(max(model + change, sd / 2.0, 1e-3 * model) / model)

    def line(self, columns: Columns) -> Line:
        """Back to logarithms of means in the units of y, none beyond the end of the target."""
        line = super().line(columns)
        level = self.start + self.constant if self.intercept else 0.0
        ends = -math.inf, min(self.start + LARGEST, math.log(self.y_reach))
        return replace(line, slopes=self.slopes, level=level, limits=ends, noise=self.noise)
