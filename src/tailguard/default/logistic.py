r"""The default for logistic regression with two classes.

Newton steps on the score ``w a (p - y)/max(p, 1 - p)``. The weights w and 1/max(p, 1 - p) depend on the
features only, so the equations are still solved by the true coefficients (Fisher consistency), and ``|score| <= R``:
no clip is needed. Its expected slope in the predictor is ``min(p, 1 - p)``, which is averaged over a normal
predictor with the released level and spread. Then level and multiplier of the fitted line are recalibrated by two
Newton steps in two dimensions.

=================  =====================================  ==========================  =========================
query              one row                                L2 sensitivity of the sum   share
=================  =====================================  ==========================  =========================
prevalence         1{y > 0}                               1                           at most .03
steps              score                                  2 R                         what is left
instrument         (u, u^2), abs(u) <= 1                  sqrt(5)                     .01
recalibration      (s, s u), abs(s) <= 1                  2 sqrt(2)                   at most .03, twice
=================  =====================================  ==========================  =========================
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tailguard.default.averaging import Average, geometric, into_ball, shrink, slope_noise
from tailguard.default.columns import Columns, first_counts
from tailguard.default.linear import INFLATION, LEVEL_ONLY, Line, locate_features, noise_to_signal
from tailguard.default.rows import BoundedProducts, LogisticScore, Prevalence, SquaredLine
from tailguard.default.whitening import Curvature, Design, curvature, decorrelate, standardised
from tailguard.hints import Known
from tailguard.means.queries import Queries

Array = NDArray[np.float64]

TOO_NOISY, QUIET = 0.12, 0.03  # noise-to-signal ratios from which only the level is fitted; with which steps are many
STEPS = (10, 5)
LIMIT = 6.0
LIMITS = (-12.0, 12.0)  # of fitted log-odds: a truncated feature can still be far out
LEVEL = (0.004, 0.03)  # noise worth paying for in the level, and the most to pay
F_INSTRUMENT = 0.01
NEAR = 2.0  # log-odds are rarely linear far out: features are truncated at twice their bound

_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def _smaller_odds(level: float, spread: float) -> Array:
    """Weights of min(p, 1 - p) at the points of a normal predictor."""
    return np.asarray(_WEIGHTS / (1.0 + np.exp(np.abs(level + spread * _POINTS))))


def _james_stein(value: float, variance: float) -> float:
    return value * max(0.0, 1.0 - variance / max(value * value, 1e-300))


def fit_log_odds(queries: Queries, intercept: bool, known: Known | None = None) -> tuple[Line, float]:
    """Fit the log-odds of two classes; also the curvature of the loss, for penalties."""
    d = queries.engine.columns
    ratio = noise_to_signal(queries, d + 1)
    with_slopes = ratio <= TOO_NOISY
    level = smaller = 0.0
    if intercept and with_slopes:
        queries.together(Prevalence().clipped(queries.grid(0.5)), first_counts("features", np.arange(d)))
    if intercept or not with_slopes:
        level, smaller = prevalence(queries, queries.share_for(1.0, *LEVEL) if with_slopes else 1.0)
        level = level if intercept else 0.0
    smaller = smaller if intercept else 0.5
    if not with_slopes:
        return Line(Columns.unknown(d), np.zeros(d), np.zeros(d), level, np.eye(d), LIMITS, LEVEL_ONLY), 0.25
    columns = locate_features(queries, intercept, NEAR, known)
    design = decorrelate(queries, standardised(columns, intercept))
    start = LogisticScore(design, np.append(level, np.zeros(d)))
    queries.together(design.gram_sum(queries), start.clipped(queries.grid(design.radius)))
    bent = curvature(queries, design)
    level_share = queries.share_for(2.0, *LEVEL)
    share = queries.account.left - 2.0 * level_share - F_INSTRUMENT
    average, slope = steps(queries, bent, start, share, ratio, smaller)

    theta, W = average.value, design.whitening
    private = average.variance * bent.inverse @ bent.inverse
    noise = INFLATION * private + bent.inverse / (slope * queries.n)
    slopes, _ = shrink(W @ theta[1:], W @ noise[1:, 1:] @ W.T, design.correlation)
    if intercept and np.any(slopes):
        level = float(theta[0])
    slopes, level = _recalibrate(queries, design, slopes, level, level_share, intercept)
    line = Line(columns, design.shift, slopes, level, design.correlation, LIMITS, noise=slope_noise(W, private))
    return line, max(0.02, 0.25 * slope / 0.5)


def prevalence(queries: Queries, share: float) -> tuple[float, float]:
    """Log-odds of the constant model, drawn to 1/2 as much as its noise asks for, and the smaller probability."""
    positive, sd = queries.mean("prevalence", Prevalence(), 1, 0.5, share)
    probability = 0.5 + float(positive[0]) * 0.01 / (0.01 + sd**2)
    edge = min(0.5, max(sd / 2.0, 1.0 / queries.n))
    probability = min(max(probability, edge), 1.0 - edge)
    return math.log(probability / (1.0 - probability)), min(probability, 1.0 - probability)


def steps(
    queries: Queries, bent: Curvature, start: LogisticScore, share: float, ratio: float, smaller: float
) -> tuple[Average, float]:
    """Newton steps on the bounded score; returns the average of the later iterates and the last expected slope."""
    design, theta, quiet = start.design, start.theta, ratio <= QUIET
    count, floor = (STEPS[0], 0.25) if quiet else (STEPS[1], 0.7)
    average, noise, slope = Average(np.zeros(design.width)), 0.0, 0.25
    for t, part in enumerate(geometric(count, 1.3)):
        direction = theta[1:]
        spread = math.sqrt(max(0.0, float(direction @ direction) - len(direction) * noise))
        odds = _smaller_odds(float(theta[0]), spread)
        slope = max(float(odds.sum()), floor * smaller)  # across the fitted direction
        along = max(float(np.sum(odds * _POINTS**2)), 0.3 * slope)
        score = start if t == 0 else LogisticScore(design, theta)
        gradient, sd = queries.mean("steps", score, design.width, design.radius, share * part)
        step = bent.inverse @ (gradient / slope + bent.penalty @ theta)
        if spread > 0.0:
            unit = np.append(0.0, direction / np.linalg.norm(direction))
            step = step + unit * float(unit @ step) * (slope / along - 1.0)
        theta = theta - step
        theta = np.append(np.clip(theta[0], -12.0, 12.0), into_ball(theta[1:], LIMIT))
        noise = (sd / slope) ** 2 * float(np.mean(np.diag(bent.inverse @ bent.inverse)))
        if t >= count / 2.0:
            average.add(theta, (sd / slope) ** 2)
    return average, slope


def _recalibrate(
    queries: Queries, design: Design, slopes: Array, level: float, share: float, intercept: bool
) -> tuple[Array, float]:
    """Level and multiplier of the fitted line, two Newton steps, each as far as its noise allows."""
    spread = math.sqrt(float(slopes @ design.correlation @ slopes))
    line, multiplier = design.line(slopes), 1.0
    moments, products = SquaredLine(line, spread), BoundedProducts(line, level, multiplier, spread)
    queries.together(moments.clipped(queries.grid(math.sqrt(1.25))), products.clipped(queries.grid(math.sqrt(2.0))))
    (mean_u, square), _ = queries.mean("instrument", moments, 2, math.sqrt(1.25), F_INSTRUMENT)
    strength = max(float(square) + 0.5 - float(mean_u) ** 2, 0.15)
    for t in range(2):
        products = products if t == 0 else BoundedProducts(line, level, multiplier, spread)
        (first, second), sd = queries.mean("level", products, 2, math.sqrt(2.0), share)
        slope = float(_smaller_odds(level, multiplier * spread).sum())
        if spread > 0.0:
            change = _james_stein(float(second - mean_u * first), 4.0 * sd * sd)
            multiplier = min(1.5, max(0.0, multiplier - change / (slope * 0.7 * strength * 1.5 * spread)))
        if intercept:
            level -= min(2.0, max(-2.0, _james_stein(float(first), sd * sd) / slope))
    return multiplier * slopes, level
