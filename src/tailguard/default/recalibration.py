r"""Stage D: tilt and level of a fitted line, for lines and counts and for a level alone.

Steps bound what a row can do by clips that are near, so what they find is the line of most rows. Two numbers make it
that of the mean: how far to tilt it along one direction, if there is one, and its level. Both are means of residuals
whose clip is extrapolated along the tail between two released quantiles, and stretched (`rows.Clip`). One number is
several times as precise as slopes are for the same share, so its clip can be far out. Both are believed as far as their
noise allows.

=================  ===================================================  ==========================  =================
query              one row                                              L2 sensitivity of the sum   share
=================  ===================================================  ==========================  =================
missing            see `missing`; a level alone                         1                           .02
tail               1{abs(r) <= grid}, one count a level                 1 for each                  1/4 of the level's
instrument         (u, u clip(eta, 4)/2), abs(u) <= 1                   2 sqrt(5)                   .01
tilt               c(r) clip(u - centre, 1)                             2 b                         .10
level              c(r)                                                 2 b                         all that is left
=================  ===================================================  ==========================  =================

Instrument and tilt are asked for where there is a direction to tilt the line in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tailguard.default.columns import Columns
from tailguard.default.line import LEVEL_ONLY, Line
from tailguard.default.missing import ALL, ask, recentred
from tailguard.default.quantiles import GRID, quantile
from tailguard.default.rows import Clip, Fitted, Instrument, Level, Product, Residual, Sizes, Target
from tailguard.default.shrinkage import believed, kept
from tailguard.default.whitening import Design
from tailguard.means.queries import Queries

Array = NDArray[np.float64]

F_LEVEL, F_INSTRUMENT, F_TILT = 0.10, 0.01, 0.10
BEYOND = 64.0  # times its reach from the middle, a target is a mistake and not a tail: six empty octaves
# How often the variance of a change is taken off its square: of the level and of a multiplier of the line, which are
# shrunk to what the steps found, and of a tilt in a direction that was seen.
BELIEF, BELIEF_TILT = 2.0, 1.0
# Over the line's spread: the error of a multiplier and of a tilt beyond which there is none, and the largest tilt.
VAGUE, VAGUE_TILT, STEEPEST = 0.5, 0.25, 3.0
# Fractions beyond the clips of a multiplier, over its noise and the spread of the line, and of tilt and level.
BEYOND_MULTIPLIER, BEYOND_TILT, BEYOND_LEVEL = 3.0, 8.0, 7.0
HEAVY = 0.5  # rise of a clip with the fraction beyond it, in logarithms, from which a tail is heavy
STEEPER = 1.6  # a tail falls faster, so much, beyond what was seen of it


class Fit:
    """The state of a fit after stage A, and stage D: everything in it is released or public."""

    beyond_level = BEYOND_LEVEL
    largest: float | None = None  # of the line, if it is the logarithm of the mean,
    offset = 0.0  # and what is added to it
    wide_clip: float  # of the last residuals that were looked at,
    tail: float  # the fraction of them beyond it,
    variance: float  # and their variance within it

    def __init__(self, queries: Queries, y_column: Columns, intercept: bool = True, ratio: float = 0.0) -> None:
        self.queries, self.intercept = queries, intercept
        self.y_mean, self.y_scale = float(y_column.mean[0]), float(y_column.scale[0])
        self.y_reach = float(y_column.reach[0])
        # One that is far beyond all that was seen counts as missing.
        middle = float(y_column.centre[0])
        self.standard = Target(self.y_mean, self.y_scale, middle, furthest=BEYOND * self.y_reach)
        self.y_range = float(y_column.lower[0]), float(y_column.upper[0])
        self.constant, self.settled = 0.0, False  # of the line, and whether it is that of narrow steps
        self.design: Design | None = None
        self.slopes = np.zeros(queries.engine.columns)
        self.noise: Array | None = None
        self.own, self.direction = False, self.slopes  # what the line is tilted in: its own direction, or another
        self.level_share = min(0.25, F_LEVEL + ratio / 2.0)
        self.present = ALL  # of the targets, where that was asked for

    def level_alone(self) -> Line:
        """Without slopes: how many targets there are, the scale of their tail, and the level."""
        self.present = ask(self.queries, self.standard)
        self.y_mean = recentred(self.y_mean, self.standard.middle, self.present)
        self.y_mean = min(self.y_range[1], max(self.y_range[0], self.y_mean))
        self.standard = replace(self.standard, mean=self.y_mean)
        left = self.queries.account.left
        self.level_share, self.tail = 0.9 * left, 0.2
        residual = Residual(self._line(), self.standard)
        self.wide_clip = quantile(self.queries, "clip", residual, 1.0 - self.tail, GRID, 0.09 * left)[0]
        self.recalibrate()
        return self.line(Columns.unknown(len(self.slopes)))

    def _line(self) -> Fitted:
        """The fitted line, with its level."""
        constant = self.offset + self.constant
        if self.design is None:
            return Fitted(None, self.slopes, self.slopes, constant, self.largest)
        return self.design.line(self.slopes, constant, self.largest)

    def recalibrate(self) -> None:
        """Tilt and level of the fitted line."""
        queries, share = self.queries, self.level_share
        noise = queries.sd(2.0, share)
        beyond = min(0.3, 6.0 * noise)
        # To the end of the target, however near zeros have drawn the clip.
        octaves = max(7.5, math.log2(max(1.0, self.y_reach / (self.y_scale * self.wide_clip))))
        grid = self.wide_clip * 2.0 ** np.arange(0.0, octaves + 0.51, 0.5)
        residual, moments = Residual(self._line(), self.standard), self._moments()
        if moments is not None:
            queries.together(Sizes(residual, tuple(grid)), moments.clipped(queries.grid(math.sqrt(5.0))))
        far = quantile(queries, "tail", residual, 1.0 - beyond, grid, 0.25 * share)[0]
        slope = 0.4
        if self.tail > 1.5 * beyond:
            slope = min(0.7, max(0.2, math.log(far / self.wide_clip) / math.log(self.tail / beyond)))
        power = STEEPER / slope

        def clip_at(fraction: float) -> float:
            return float(min(far * (beyond / fraction) ** slope, 4.0 * far, 2.0 * self.y_reach / self.y_scale))

        self._tilt(moments, clip_at, noise, power)
        if not self.intercept:
            return
        fraction = self.beyond_level * noise
        if self.design is None:  # all of the budget is here: a heavy tail is followed further
            fraction *= min(1.0, HEAVY / slope) ** 2
        clip = Clip.stretched(clip_at(fraction), clip_at(4.0 * fraction), power)
        if clip.far >= self.y_reach / self.y_scale:  # the end of the target, beyond which there is no tail
            clip = Clip(clip.far)
        # The last query takes all that is left: at least .40 of the level's share, and what earlier ones did not need.
        shift, sd = queries.mean("level", Level(self._line(), self.standard, clip), 1, clip.bound, queries.account.left)
        present = self.present.fraction  # missing ones added nothing
        self._raise_level(float(shift[0]) / present, sd / present)

    def _raise_level(self, change: float, sd: float) -> None:
        """Add a released change to the level, as far as its noise allows."""
        if self.settled:
            self.constant += change * kept(change * change, BELIEF * (sd * sd + self.variance / self.queries.n))
        else:
            self.constant += change
            self.constant = believed(self.constant, sd)

    def _moments(self) -> Instrument | None:
        """What has to be known of the line in the direction that it is tilted in, if there is one."""
        direction = self.slopes if self.own else self.direction
        if self.design is None or not np.any(direction):
            return None
        return Instrument(self.design.line(direction), self.design.spread(direction))

    def _tilt(self, moments: Instrument | None, clip_at: Callable[[float], float], noise: float, power: float) -> None:
        """One instrumental step on the slope of the residuals in a direction, only as far as its noise allows."""
        queries, design = self.queries, self.design
        if moments is None or design is None:
            return
        spread = moments.spread
        fraction = BEYOND_MULTIPLIER * noise / spread if self.own else BEYOND_TILT * noise
        far = max(self.wide_clip, clip_at(min(0.3, fraction)))
        clip = Clip.stretched(far, far / 2.0, power)
        (mean_u, u_line), _ = queries.mean("instrument", moments, 2, math.sqrt(5.0), F_INSTRUMENT)
        centre = min(0.5, max(-0.5, float(mean_u)))
        product = Product(self._line(), self.standard, moments.line, spread, clip, centre)
        found, sd = queries.mean("tilt", product, 1, clip.bound, F_TILT)
        strength = max(2.0 * float(u_line), 0.3) * spread
        change = float(found[0]) / strength
        sampling = 0.6 * min(self.variance * max(1.0, clip.far / self.wide_clip), clip.far**2) / queries.n
        variance = (sd * sd + sampling) / strength**2
        relative = design.spread(self.slopes) / spread
        belief, vague = (BELIEF, VAGUE) if self.own else (BELIEF_TILT, VAGUE_TILT)
        if variance > (vague * relative) ** 2:
            return
        change *= kept(change * change, belief * variance)
        change = min(STEEPEST * relative, max(-1.0 if self.own else -STEEPEST * relative, change))
        self.slopes = self.slopes + change * moments.line.slopes
        if self.own and self.noise is not None:
            self.noise = (1.0 + change) * self.noise

    def line(self, columns: Columns) -> Line:
        """Back to the units of y; level and predictions stay inside the released range of y."""
        d = len(self.slopes)
        shift = np.zeros(d) if self.design is None else self.design.shift
        covariance = np.eye(d) if self.design is None else self.design.covariance
        level = 0.0
        if self.intercept:
            level = min(self.y_range[1], max(self.y_range[0], self.y_mean + self.y_scale * self.constant))
        note = LEVEL_ONLY if self.design is None else "level and slopes"
        noise = None if self.noise is None else self.noise * self.y_scale
        return Line(columns, shift, self.slopes * self.y_scale, level, covariance, self.y_range, note, noise)
