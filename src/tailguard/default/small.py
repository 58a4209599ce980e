r"""A linear fit with a small budget.

The fit of `tailguard.default.linear` asks for a clip before each of eleven steps, and for two kinds of slopes: with few
rows each answer is noise, and slopes that noise made look sure. This fit asks five things, and gives a third of the
budget to the steps, two thirds where something is known about the columns (`tailguard.hints`):

1. the columns: by coarse looks, or by their hints (`locate_known`); the target by one coarse look;
2. one Gram matrix of design vectors weighted to norm R: centres, scales and correlations, each drawn to what columns
   have in common as much as its noise asks for;
3. a clip C: about the median size ``|a| |r|`` of a row's gradient, asked for before each of the first three steps;
4. four to eight steps of size one on ``a r min(1, C/(|a| |r|))``, the later half averaged, and shrunk by known noise.
   *One* clip on the product, in place of a weight of the features and a clip of the residual: a row far out whose
   residual is small counts in full. Where the noise is skewed and x is, too, it is biased a little; with so small a
   budget the noise is larger;
5. the level, as in `tailguard.default.linear`; there is no multiplier.

=================  ===========================================  ==========================  =========================
query              one row                                      L2 sensitivity of the sum   share
=================  ===========================================  ==========================  =========================
correlations       sqrt(w) a, norm at most R                    sqrt(2) R^2                 `F_GRAM`
clip               1{abs(r) |a| <= grid}, one count a level     1 for each                  `F_CLIP`
steps              a r min(1, C/(|a| abs(r)))                   2 C                         what is left
tail               1{abs(r) <= grid}, one count a level         1 for each                  1/4 of the level's
level              clip(r, c)                                   2 c                         all that is left
=================  ===========================================  ==========================  =========================

Proofs: the weight is ``w = min(1, R/|a|, R^2/|a|^2)`` (`whitening.Design` with a cap of 1), so ``sqrt(w) |a| <= R``;
the score has norm ``min(|a| |r|, C) <= C``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard import kernels
from tailguard.default.averaging import geometric
from tailguard.default.choice import is_hinted
from tailguard.default.columns import Columns, Looks, locate
from tailguard.default.hinted import locate_known, narrowed, narrowed_target
from tailguard.default.line import UNSEEN, Line, nothing
from tailguard.default.locating import FAR, locate_target, looks_at, noise_to_signal
from tailguard.default.newton import Averaged, Curvature, Iterate
from tailguard.default.quantiles import GRID, quantile
from tailguard.default.recalibration import Fit
from tailguard.default.rows import Target, mean_of
from tailguard.default.shrinkage import kept, shrink, slope_noise
from tailguard.default.whitening import CORRELATION_FLOOR, RIDGE, Design
from tailguard.hints import Known
from tailguard.means.queries import Queries

Array = NDArray[np.float64]

HISTOGRAM, MEAN = (0.034, 0.15), (0.03, 0.05)  # of the target: noise worth paying for, and the most to pay
FEATURES = (0.03, 0.12), (0.08, 0.1)  # the same of features without hints
LEVEL = (0.0215, 0.3)  # the same for its level, of which at least
LEAST_LEVEL = 0.1  # is spent
# Scales are rather too large than too small: the Gram matrix finds out, and steps on features that are wider than they
# seem do not converge.
BROADER = 1.6
ENDED = 2.0  # times as far out as where most rows end, features are truncated
F_GRAM, F_CLIP = {True: 0.05, False: 0.07}, 0.05
RADIUS = 0.85  # of the weights in the Gram matrix, over sqrt(p)
# Noise-to-signal ratios up to which there are many steps, and from which there are few: with more noise the last steps
# are better than the first, with less they have further to go. The first half of them is not averaged.
QUIET, NOISY = 0.04, 0.1
STEPS = (8, 4)
# How much more noise there is in slopes than is known of it, by noisy scales and clips: INFLATED times the ratio of
# noise to signal, less what hints are worth; and more the nearer n mu is to FEWEST, without hints.
INFLATED, WORTH, FEWEST = 40.0, {True: 0.06, False: 0.0}, {True: 0.0, False: 95.0}
# Fraction of an error that a step takes off; the least of that, where columns are rare, over the same; and how much of
# the noise that adds up there over the steps counts, since it is not sure that they are.
CONTRACTION, LEAST_CONTRACTION, CARRIED = 0.7, 0.1, 0.2
ASKED, GROWTH = 3, 1.5  # steps before which the clip is asked for; growth of the shares of steps
CLIPPED = (0.55, 0.45)  # quantile of the sizes of gradients at which they are clipped, likewise
LEAST_CLIP = 0.35  # times the target's scale and sqrt(p): with most targets equal a quantile would draw it to nothing
AGAIN = 2.0 ** np.arange(-1.5, 0.51, 0.5)  # times an earlier clip
BEYOND_LEVEL = 3.5  # fraction beyond the clip of the level, over its noise: with a clip so noisy, rather too wide
WEIGHT = 0.6  # about the mean weight of a row in the Gram matrix: whitened coordinates have variance 1/.6
DIAGONAL = 0.05  # least mean eigenvalue of the features' Gram matrix


def step_count(ratio: float) -> int:
    """Number of steps; public."""
    return round(_between(ratio, *STEPS))


def _between(ratio: float, quiet: float, noisy: float) -> float:
    """A constant that depends on how much noise there is."""
    part = min(1.0, max(0.0, (ratio - QUIET) / (NOISY - QUIET)))
    return quiet + part * (noisy - quiet)


def fit_small(queries: Queries, known: Known | None, intercept: bool) -> Line:
    """Fit a linear model with a small budget."""
    found = locate_target(queries, looks_at_target(queries)._replace(closer=FAR), intercept)
    y_column = narrowed_target(found, known, intercept)
    if not y_column.seen[0]:
        return nothing(Columns.unknown(queries.engine.columns), UNSEEN)
    columns = columns_of(queries, known, intercept)
    fit = SmallFit(queries, y_column, intercept)
    fit.descend(columns, is_hinted(known))
    fit.recalibrate()
    return fit.line(columns)


def looks_at_target(queries: Queries) -> Looks:
    """What is spent on a coarse look at the target; public."""
    return looks_at(queries, 1, HISTOGRAM, MEAN)


def columns_of(queries: Queries, known: Known | None, centred: bool) -> Columns:
    """Stage A for the features."""
    if known is not None and is_hinted(known):
        return locate_known(queries, known, centred, BROADER)
    d = queries.engine.columns
    found = narrowed(locate(queries, "features", d, looks_at(queries, d, *FEATURES), centred), known, centred)
    # Where most rows end: that the line holds beyond would have to be asked.
    return replace(found.near(ENDED), scale=BROADER * found.scale)


class SmallFit(Fit):
    """The state of the fit: everything in it is released or public."""

    beyond_level = BEYOND_LEVEL
    least_clip = LEAST_CLIP
    growth = GROWTH

    def _steepness(self, theta: Array) -> float:
        """Mean derivative of fitted values by the line; that of a line is one."""
        return 1.0

    def _within(self, at: Iterate) -> Iterate:
        """Where a step may lead to."""
        return at

    def descend(self, columns: Columns, hinted: bool) -> None:
        """One Gram matrix, a few steps, shrinkage."""
        queries = self.queries
        self.level_share = max(LEAST_LEVEL, queries.share_for(2.0, *LEVEL))
        self.design, curved = whitened(queries, columns, self.intercept, F_GRAM[hinted])
        design = self.design
        p, clip = design.width, 0.0
        # Less for the level than that if a target far away has cost much.
        left = queries.account.left - F_CLIP
        self.level_share = min(self.level_share, left / 2.0)
        left -= self.level_share
        at, average = Iterate.start(p), Averaged.empty(p)
        ratio = noise_to_signal(queries, p)
        steps = step_count(ratio)
        clipped, grid = _between(ratio, *CLIPPED), GRID[self.least_clip <= GRID] * math.sqrt(p)
        for t, part in enumerate(geometric(steps, self.growth)):
            score = JointScore(design, at.theta, self.standard, offset=self.offset, largest=self.largest)
            if t < ASKED:
                near = grid if t == 0 else np.unique(np.maximum(clip * AGAIN, grid[0]))
                clip = quantile(queries, "clip", score.sizes, clipped, near, F_CLIP / ASKED)[0]
            gradient, sd = queries.mean("steps", replace(score, clip=clip), p, clip, left * part)
            steep = self._steepness(at.theta)
            at = self._within(at.step(curved, gradient / steep, sd / steep, damping=1.0))
            if t >= steps // 2:
                average.add(at, (sd / steep) ** 2)
        # A residual of median size, from the median of |a| |r|.
        self.wide_clip = 1.3 * clip / math.sqrt(1.0 + (p - 1) / WEIGHT)
        self.tail = 0.35
        at, W = average.iterate, design.whitening
        self.constant = float(at.theta[0]) if self.intercept else 0.0
        inflation = max(1.0, INFLATED * (ratio - WORTH[hinted]))
        inflation *= 1.0 + (FEWEST[hinted] / (queries.n * queries.mu)) ** 4
        private = np.maximum(average.variance, CARRIED * np.sum(at.noise**2, axis=0))
        self.noise = slope_noise(W, np.diag(private))
        noise = (W * (inflation * private[1:] + clip * clip / p / queries.n)) @ W.T
        self.slopes = shrink(W @ at.theta[1:], noise, design.covariance)


def whitened(queries: Queries, columns: Columns, intercept: bool, share: float) -> tuple[Design, Curvature]:
    """Centres, common scale and correlations from one Gram matrix, each shrunk by its known noise; and what steps feel.

    Where features hardly vary, the eigenvalue that they are whitened by is raised: a step takes less off an error.
    """
    d = len(columns.mean)
    radius = RADIUS * math.sqrt(d + 1)
    raw = Design(columns, np.zeros(d), np.eye(d), np.eye(d), intercept, radius, 1.0)
    G, sd = raw.gram(queries, "correlations", share)
    weight = max(G[0, 0], 0.2) if intercept else WEIGHT
    shift = np.zeros(d)
    if intercept:
        variance = sd * sd / 2.0 / weight**2
        common = float(np.mean(G[0, 1:])) / weight
        apart = G[0, 1:] / weight - common
        common *= kept(common * common, variance / d)
        shift = common + apart * kept(float(apart @ apart), (d - 1) * variance)
    S = G[1:, 1:] - weight * np.outer(shift, shift)
    level = max(float(np.trace(S)) / d, 2.0 * sd / math.sqrt(d), DIAGONAL)
    apart = S - level * np.eye(d)
    keep = kept(float(np.sum(apart * apart)), sd * sd * d * (d + 1) / 2.0)
    values, V = np.linalg.eigh(level * np.eye(d) + keep * apart)
    found = np.maximum(values, 0.0)
    values = np.maximum(found + RIDGE * keep * sd * math.sqrt(2.0 * d), CORRELATION_FLOOR * level)
    felt = CONTRACTION * np.maximum(np.append(1.0, found / values), LEAST_CONTRACTION)
    design = replace(raw, shift=shift, whitening=V / np.sqrt(values), covariance=(V * values) @ V.T / weight)
    return design, Curvature.flat(d + 1, 1.0, felt)


@dataclass(frozen=True, eq=False)
class JointScore:
    """The gradient ``a r`` of a row, scaled down to the norm ``clip``; a missing target has residual 0."""

    design: Design
    theta: Array
    target: Target
    clip: float = math.inf
    offset: float = 0.0
    largest: float | None = None  # of the line, if it is the logarithm of the mean

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Scores of a block of rows."""
        a, r, size = self._parts(X, y)
        return np.asarray(a * (r * np.minimum(1.0, self.clip / np.maximum(size, 1e-300)))[:, None])

    def sizes(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Norms of unclipped scores."""
        return self._parts(X, y)[2]

    def _parts(self, X: NDArray[Any], y: NDArray[Any]) -> tuple[Array, Array, Array]:
        a = self.design.vectors(X)
        fitted = self.design.predictor(a, self.theta)
        if self.largest is not None:
            fitted = mean_of(fitted + self.offset, self.largest)
        r = np.nan_to_num(fitted - self.target(y), nan=0.0)
        length = np.empty(len(a))
        kernels.features.norms(a, length)
        return a, r, length * np.abs(r)
