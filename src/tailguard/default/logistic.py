r"""The default for logistic regression with two classes.

Newton steps on the score ``w a (p - y)/max(p, 1 - p)``. The weights w and 1/max(p, 1 - p) depend on the
features only, so the equations are still solved by the true coefficients (Fisher consistency), and ``|score| <= R``:
no clip is needed. The derivative of the score is not asked for: it is a mean over points that stand for rows
(`stand_ins`), rescaled by what the first Gram matrix found (`derivative`), and the gradients of all steps are pooled
(`pooling`), so that a wrong derivative costs a step and not the result. Then level and multiplier of the fitted line
are recalibrated by a Newton step in two dimensions: the weights make the bulk of the rows decide, and a line that fits
the bulk can be too steep.

=================  =====================================  ==========================  =========================
query              one row                                L2 sensitivity of the sum   share
=================  =====================================  ==========================  =========================
prevalence         1{y > 0}                               1                           at most .03
steps              score                                  2 R                         what is left
instrument         (u, u^2 - 1/2), abs(u) <= 1            sqrt(5)                     .01
recalibration      (s, s u), abs(s) <= 1                  2 sqrt(2)                   at most .03
=================  =====================================  ==========================  =========================
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from tailguard.default.averaging import geometric
from tailguard.default.columns import Columns, Tails, first_counts
from tailguard.default.derivative import OddsDerivative, mean_slope
from tailguard.default.line import LEVEL_ONLY, Line
from tailguard.default.locating import locate_features, noise_to_signal
from tailguard.default.pooling import Pool
from tailguard.default.rows import BoundedProducts, LogisticScore, Prevalence, SquaredLine
from tailguard.default.shrinkage import slope_noise
from tailguard.default.whitening import Design, decorrelate, standardised
from tailguard.hints import Known
from tailguard.means.queries import Queries
from tailguard.privacy.roots import root_of

Array = NDArray[np.float64]

TOO_NOISY = 0.2  # noise-to-signal ratio from which only the level is fitted
STEPS, QUIET = (9, 6, 5), (0.003, 0.03)  # steps up to a ratio, up to another, and beyond
GROWTH = 1.8  # of the steps' shares: the first need only come near
LEAST = (0.25, 0.7)  # mean slope of the score, over the prevalence: less is not believed (large and small budget)
INFLATION = (1.0, 2.0)  # of the privacy noise in shrinkage: with a small budget centres and scales are noisy, too
LIMIT = 6.0
LIMITS = (-12.0, 12.0)  # of fitted log-odds: a truncated feature can still be far out
LEVEL = (0.004, 0.03)  # noise worth paying for in the level, and the most to pay
F_INSTRUMENT = 0.01
RADIUS = 0.6  # of the weights, over sqrt(p): nearer than for lines, since no residual adds to how far out a row is
UNCAPPED = 1e9  # of w |a|^2: a Gram matrix needs a bound on it, the score does not
# Log-odds are rarely linear far out: a soft end is truncated at twice its bound, up to four times nearer in a heavy
# tail, and up to four times as far where a tail falls fast.
TAILS = Tails(2.0, (-2.0, 2.0), spread=True)
# Standard deviations that a released share of ones may be off by, and the factor that points that stand for rows may.
UNSURE, ROUGHLY = 2.0, 1.5
CAUTION = 4.0  # a change is believed beyond what was expected of it if it is larger than twice its noise


def step_count(ratio: float) -> int:
    """Steps at a noise-to-signal ratio; public."""
    return STEPS[int(np.searchsorted(QUIET, ratio))]


def fit_log_odds(queries: Queries, intercept: bool, known: Known | None = None) -> tuple[Line, float]:
    """Fit the log-odds of two classes; also the curvature of the loss, for penalties."""
    d = queries.engine.columns
    ratio = noise_to_signal(queries, d + 1)
    with_slopes = ratio <= TOO_NOISY
    ones = HALF
    if intercept and with_slopes:
        queries.together(Prevalence().clipped(queries.grid(0.5)), first_counts("features", np.arange(d)))
    if intercept or not with_slopes:
        found = prevalence(queries, queries.share_for(1.0, *LEVEL) if with_slopes else 1.0)
        ones = found if intercept else HALF
    level = ones.log_odds
    if not with_slopes:
        return Line(Columns.unknown(d), np.zeros(d), np.zeros(d), level, np.eye(d), LIMITS, LEVEL_ONLY), 0.25
    design = score_design(queries, locate_features(queries, intercept, known, TAILS), intercept)
    noisy = int(ratio > QUIET[1])
    derivative = OddsDerivative(design, LEAST[noisy] * ones.rare)
    pool = Pool(queries.n, derivative, np.arange(d + 1) > 0, LIMIT, INFLATION[noisy])
    level_share = queries.share_for(2.0, *LEVEL)
    share = queries.account.left - level_share - F_INSTRUMENT
    theta, private = _steps(queries, design, pool, level, share * geometric(step_count(ratio), GROWTH))

    slopes, noise = design.whitening @ theta[1:], slope_noise(design.whitening, private)
    level = float(theta[0]) if intercept else 0.0
    slopes, level = _recalibrate(queries, design, slopes, level, level_share, intercept, private)
    if intercept:
        predictors = derivative.points[:, 1:] @ np.linalg.solve(design.whitening, slopes)
        level = _as_common(level, predictors, derivative.mass, ones)
    line = Line(design.columns, design.shift, slopes, level, design.covariance, LIMITS, noise=noise)
    return line, max(0.02, 0.5 * mean_slope(level, design.spread(slopes)))


def score_design(queries: Queries, columns: Columns, intercept: bool) -> Design:
    """Decorrelated features; their weights bound the score by R, and no second moment, so there is no cap."""
    design = decorrelate(queries, standardised(columns, intercept), glance=False)
    return replace(design, radius=RADIUS * math.sqrt(design.width), cap=UNCAPPED)


class Ones(NamedTuple):
    """The share of ones, and the noise in it."""

    share: float
    sd: float

    @property
    def rare(self) -> float:
        """The smaller of the two shares."""
        return min(self.share, 1.0 - self.share)

    @property
    def log_odds(self) -> float:
        """Of the constant model."""
        return math.log(self.share / (1.0 - self.share))


HALF = Ones(0.5, math.inf)


def prevalence(queries: Queries, share: float) -> Ones:
    """The share of ones, drawn to 1/2 as much as its noise asks for."""
    positive, sd = queries.mean("prevalence", Prevalence(), 1, 0.5, share)
    probability = 0.5 + float(positive[0]) * 0.01 / (0.01 + sd**2)
    edge = min(0.5, max(sd / 2.0, 1.0 / queries.n))
    return Ones(min(max(probability, edge), 1.0 - edge), sd)


def _steps(queries: Queries, design: Design, pool: Pool, level: float, shares: Array) -> tuple[Array, Array]:
    """Newton steps on the bounded score; returns pooled coefficients and the covariance of their privacy noise."""
    theta = np.append(level, np.zeros(design.width - 1))
    for share in shares:
        score = LogisticScore(design, theta)
        gradient, sd = queries.mean("steps", score, design.width, design.radius, share)
        pool.add(theta, gradient, sd)
        theta, private = pool.estimate(theta)
        theta[0] = np.clip(theta[0], *LIMITS)
    return theta, private


def _recalibrate(
    queries: Queries, design: Design, slopes: Array, level: float, share: float, intercept: bool, private: Array
) -> tuple[Array, float]:
    """Level and multiplier of the fitted line, a Newton step, as far as its noise allows."""
    spread = design.spread(slopes)
    line = design.line(slopes)
    moments, products = SquaredLine(line, spread), BoundedProducts(line, level, 1.0, spread)
    queries.together(moments.clipped(queries.grid(math.sqrt(1.25))), products.clipped(queries.grid(math.sqrt(2.0))))
    (mean_u, square), _ = queries.mean("instrument", moments, 2, math.sqrt(1.25), F_INSTRUMENT)
    (first, second), sd = queries.mean("level", products, 2, math.sqrt(2.0), share)
    slope, multiplier = mean_slope(level, spread), 1.0
    if spread > 0.0:
        unit = np.linalg.solve(design.whitening, slopes) / spread
        rate = slope * 0.7 * max(float(square) + 0.5 - float(mean_u) ** 2, 0.15) * 1.5 * spread
        noise = (1.0 + float(mean_u) ** 2) * (sd / rate) ** 2
        expected = float(unit @ private[1:, 1:] @ unit) / spread**2
        multiplier -= _likely(float(second - mean_u * first) / rate, noise, expected)
    if intercept:
        change = _likely(float(first) / slope, (sd / slope) ** 2, float(private[0, 0]))
        level -= min(2.0, max(-2.0, change))
    return min(1.5, max(0.0, multiplier)) * slopes, level


def _as_common(level: float, line: Array, mass: Array, ones: Ones) -> float:
    """A level with which ones are as common as was released, to within noise and what points that stand for rows miss.

    Where ones are rare their share is known far better than a level by Newton steps, whose slope is that share.
    """
    sign = 1.0 if ones.share <= 0.5 else -1.0
    low, high = (ones.rare - UNSURE * ones.sd) / ROUGHLY, (ones.rare + UNSURE * ones.sd) * ROUGHLY

    def share(at: float) -> float:
        return float(mass @ expit(sign * (at + line)))

    found = share(level)
    bound = min(max(found, low), high)
    if bound == found:
        return level
    furthest = 50.0 + float(np.max(np.abs(line)))
    return float(np.clip(root_of(lambda at: share(at) - bound, -furthest, furthest, xtol=2e-12), *LIMITS))


def _likely(change: float, noise: float, expected: float) -> float:
    """A change that was released with some noise, shrunk by its expected variance, or by its own size if larger."""
    return change * max(expected / (expected + noise), 1.0 - CAUTION * noise / max(change * change, 1e-300))
