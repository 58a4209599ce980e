r"""A linear fit with a small budget, for columns about which something is known (`tailguard.hints`).

Where the default would fit the level only, or would spend most of its budget on finding columns and on two kinds of
slopes, this fit asks five things, and gives two thirds of the budget to the steps:

1. `locate_known`: columns by their hints; the target by one coarse look;
2. one Gram matrix of design vectors weighted to norm R: centres, scales and correlations, each drawn to what columns
   have in common as much as its noise asks for;
3. a clip C: about the median size ``|a| |r|`` of a row's gradient, asked for before each of the first three steps;
4. four or six steps of size one on ``a r min(1, C/(|a| |r|))``, the later half averaged and shrunk by its known noise.
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
from tailguard.default.averaging import Average, geometric, into_ball, shrink, slope_noise
from tailguard.default.columns import Columns, locate
from tailguard.default.hinted import SMALL, locate_known, narrowed_target
from tailguard.default.linear import Line, LinearFit
from tailguard.default.locating import noise_to_signal
from tailguard.default.quantiles import GRID, quantile
from tailguard.default.rows import Target
from tailguard.default.whitening import CORRELATION_FLOOR, RIDGE, Design
from tailguard.hints import Known
from tailguard.means.queries import Queries

Array = NDArray[np.float64]

RATIOS = (SMALL, 0.13)  # noise-to-signal ratios between which this fit is better than the default's two
LEAST = 85.0  # n mu from which the level of a skewed target does not need the whole budget
HISTOGRAM, MEAN = (0.034, 0.15), (0.083, 0.05)  # of the target: noise worth paying for, and the most to pay
LEVEL = (0.0215, 0.3)  # the same for its level, of which at least
LEAST_LEVEL = 0.1  # is spent
BROADER = 1.6  # scales are rather too large than too small: the Gram matrix finds out
F_GRAM, F_CLIP = 0.05, 0.05
RADIUS = 0.85  # of the weights in the Gram matrix, over sqrt(p)
STEPS, QUIET = (6, 4), 0.06  # steps up to a noise-to-signal ratio, and beyond it; the first half is not averaged
ASKED, GROWTH = 3, 1.5  # steps before which the clip is asked for; growth of the shares of steps
CLIPPED = 0.45  # quantile of the sizes of gradients at which they are clipped
AGAIN = 2.0 ** np.arange(-1.5, 0.51, 0.5)  # times an earlier clip
LIMIT = 2.0
WEIGHT = 0.6  # about the mean weight of a row in the Gram matrix: whitened coordinates have variance 1/.6
DIAGONAL = 0.05  # least mean eigenvalue of the features' Gram matrix


def is_small(queries: Queries, known: Known | None) -> bool:
    """Whether this fit is for them; public."""
    if known is None or not known.complete:
        return False
    few = queries.n * queries.mu < LEAST
    return not few and RATIOS[0] < noise_to_signal(queries, queries.engine.columns + 1) <= RATIOS[1]


def fit_small(queries: Queries, known: Known, target: str, intercept: bool) -> Line:
    """Fit a linear model with a small budget."""
    columns = locate_known(queries, known, intercept, BROADER)
    shares = queries.share_for(math.sqrt(2.0), *HISTOGRAM), queries.share_for(2.0, *MEAN)
    y_column = narrowed_target(locate(queries, "target", 1, *shares, centred=intercept), known, intercept)
    if y_column.seen[0]:
        fit = SmallFit(queries, y_column, target, intercept, 0.0)
        fit.descend(columns)
    else:  # look closer, and leave it at the level
        y_column = locate(queries, "target", 1, 0.3, 0.1, centred=intercept)
        if not y_column.seen[0] or not intercept:
            nothing = np.zeros(len(columns.mean))
            note = "zero: no scale of the target in sight at this epsilon"
            return Line(columns, nothing, nothing, 0.0, np.eye(len(nothing)), note=note)
        fit = SmallFit(queries, y_column, target, intercept, 0.0)
        fit.look_at_target()
    fit.recalibrate()
    return fit.line(columns)


class SmallFit(LinearFit):
    """The state of the fit: everything in it is released or public."""

    def descend(self, columns: Columns) -> None:
        """One Gram matrix, a few steps, shrinkage."""
        queries = self.queries
        self.level_share = max(LEAST_LEVEL, queries.share_for(2.0, *LEVEL))
        design = self.design = whitened(queries, columns, self.intercept, F_GRAM)
        p, clip = design.width, 0.0
        left = queries.account.left - F_CLIP - self.level_share
        theta, average = np.zeros(p), Average(np.zeros(p))
        steps = STEPS[0] if noise_to_signal(queries, p) <= QUIET else STEPS[1]
        for t, part in enumerate(geometric(steps, GROWTH)):
            score = JointScore(design, theta, self.standard)
            if t < ASKED:
                grid = GRID * math.sqrt(p) if t == 0 else clip * AGAIN
                clip = quantile(queries, "clip", score.sizes, CLIPPED, grid, F_CLIP / ASKED)[0]
            gradient, sd = queries.mean("steps", replace(score, clip=clip), p, clip, left * part)
            theta = into_ball(theta - gradient, LIMIT)
            if t >= steps // 2:
                average.add(theta, sd * sd)
        # A residual of median size, from the median of |a| |r|.
        self.wide_clip = 1.3 * clip / math.sqrt(1.0 + (p - 1) / WEIGHT)
        self.tail = 0.35
        self.constant = float(average.value[0]) if self.intercept else 0.0
        W = design.whitening
        noise = (average.variance + clip * clip / p / queries.n) * W @ W.T
        self.noise = slope_noise(W, average.variance * np.eye(p))
        self.slopes = shrink(W @ average.value[1:], noise, design.covariance)


def whitened(queries: Queries, columns: Columns, intercept: bool, share: float) -> Design:
    """Centres, common scale and correlations from one Gram matrix, each shrunk by its known noise."""
    d = len(columns.mean)
    radius = RADIUS * math.sqrt(d + 1)
    raw = Design(columns, np.zeros(d), np.eye(d), np.eye(d), intercept, radius, 1.0)
    G, sd = raw.gram(queries, "correlations", share)
    weight = max(G[0, 0], 0.2) if intercept else 1.0
    shift = np.zeros(d)
    if intercept:
        variance = sd * sd / 2.0 / weight**2
        common = float(np.mean(G[0, 1:])) / weight
        apart = G[0, 1:] / weight - common
        common *= _kept(common * common, variance / d)
        shift = common + apart * _kept(float(apart @ apart), (d - 1) * variance)
    S = G[1:, 1:] - weight * np.outer(shift, shift)
    level = max(float(np.trace(S)) / d, 2.0 * sd / math.sqrt(d), DIAGONAL)
    apart = S - level * np.eye(d)
    keep = _kept(float(np.sum(apart * apart)), sd * sd * d * (d + 1) / 2.0)
    values, V = np.linalg.eigh(level * np.eye(d) + keep * apart)
    values = np.maximum(values, 0.0) + RIDGE * keep * sd * math.sqrt(2.0 * d)
    values = np.maximum(values, CORRELATION_FLOOR * level)
    return replace(raw, shift=shift, whitening=V / np.sqrt(values), covariance=(V * values) @ V.T / level)


def _kept(square: float, noise: float) -> float:
    """How much of something remains whose square is known with so much noise: James and Stein's factor."""
    return max(0.0, 1.0 - noise / max(square, 1e-300))


@dataclass(frozen=True, eq=False)
class JointScore:
    """The gradient ``a r`` of a row, scaled down to the norm ``clip``; a missing target has residual 0."""

    design: Design
    theta: Array
    target: Target
    clip: float = math.inf

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Scores of a block of rows."""
        a, r, size = self._parts(X, y)
        return np.asarray(a * (r * np.minimum(1.0, self.clip / np.maximum(size, 1e-300)))[:, None])

    def sizes(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Norms of unclipped scores."""
        return self._parts(X, y)[2]

    def _parts(self, X: NDArray[Any], y: NDArray[Any]) -> tuple[Array, Array, Array]:
        a = self.design.vectors(X)
        r = np.nan_to_num(self.design.predictor(a, self.theta) - self.target(y), nan=0.0)
        length = np.empty(len(a))
        kernels.features.norms(a, length)
        return a, r, length * np.abs(r)
