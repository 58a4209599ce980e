r"""The default for Poisson regression with a log link: mean ``exp(z)``.

The target is divided by its released mean, so that the level starts near 0 and residuals ``exp(z) - y`` near 1.
Damped Newton steps on ``w a clip(exp(z) - y, -c, c)``, of sensitivity ``2 R c``, with the wide clip of the linear
default; ``exp(z)`` is bounded by bounding z. The level is recalibrated by the ratio of two clipped means, of the
target and of the fitted means.

=================  =====================================  ==========================  =========================
query              one row                                L2 sensitivity of the sum   share
=================  =====================================  ==========================  =========================
clip               1{abs(r) <= grid}, one count a level   sqrt(levels)                .03 in all
steps              w a clip(r, c)                         2 R c                       what is left
level              (min(y, b), min(exp(z), b))            sqrt(2) b                   .15
=================  =====================================  ==========================  =========================
"""

from __future__ import annotations

import math

import numpy as np

from tailguard.default.averaging import Average, geometric, into_ball, shrink, slope_noise
from tailguard.default.columns import Columns, first_counts
from tailguard.default.hinted import narrowed_target
from tailguard.default.linear import F_CLIP, LEVEL_ONLY, TAIL, TOO_NOISY, Line
from tailguard.default.locating import column_shares, locate_features, locate_target, noise_to_signal
from tailguard.default.quantiles import AROUND, GRID, quantile
from tailguard.default.rows import Clip, FittedMeans, Target
from tailguard.default.score_table import ScoreTable
from tailguard.default.sharpening import sharpened
from tailguard.default.whitening import CERTAIN, decorrelate, standardised
from tailguard.hints import Known
from tailguard.means.queries import Queries

STEPS = 10
LARGEST = 5.0  # of the predictor, relative to the mean: a fitted mean is at most 150 times the average
LIMIT = 2.0
LEVEL_SHARE = 0.15
WIDEST = 0.35
INFLATION = 1.5  # of the privacy noise in shrinkage: steps correlate it
# As for lines, but nearer: far out, what an exponential makes of a noisy slope is larger than any line.
WIDE, OCTAVES = 4.0, (-1.0, 0.0)


def fit_log_mean(queries: Queries, intercept: bool, known: Known | None = None) -> tuple[Line, float]:
    """Fit the logarithm of the mean; also the curvature of the loss, for penalties."""
    d = queries.engine.columns
    ratio = noise_to_signal(queries, d + 1)
    with_slopes = ratio <= TOO_NOISY
    shares = column_shares(queries, 1) if with_slopes else (0.3, 0.1)
    if with_slopes:
        queries.together(first_counts("features", np.arange(d)), first_counts("positive target", np.arange(1)))
    y_column = locate_target(queries, shares, source="positive target", again=with_slopes)
    y_column = narrowed_target(y_column, known)
    mean = max(float(y_column.mean[0]), 1e-3 * float(y_column.scale[0])) if y_column.seen[0] else 1e-6
    start = math.log(mean)
    top = float(y_column.upper[0]) / mean
    unknown = Columns.unknown(d)
    if not y_column.seen[0] or not with_slopes:
        level = start if intercept else 0.0
        return Line(unknown, np.zeros(d), np.zeros(d), level, np.eye(d), note=LEVEL_ONLY), mean

    counts = Target(scale=mean, low=0.0, high=top)
    columns = locate_features(queries, intercept, WIDE, known, OCTAVES, spread=False)
    first = design = decorrelate(queries, standardised(columns, intercept), CERTAIN)
    # Without an intercept the predictor is relative to a fixed level, log(mean), that the slopes have to make up for.
    offset = 0.0 if intercept else -start
    theta, average, bound = np.zeros(design.width), Average(np.zeros(design.width)), math.inf
    table = ScoreTable(design, theta, counts, GRID, queries.n, offset, LARGEST)
    queries.together(design.gram_sum(queries), table)
    design, bent = sharpened(queries, first)
    if design is not first:
        table = ScoreTable(design, theta, counts, GRID, queries.n, offset, LARGEST)
        queries.together(table)
    share = queries.account.left - F_CLIP - (LEVEL_SHARE if intercept else 0.0)
    signal = 2.0 * design.radius * math.sqrt(design.width) / (queries.n * math.sqrt(share) * queries.mu)
    level = 1.0 - min(WIDEST, TAIL * signal)

    for t, part in enumerate(geometric(STEPS, 1.2)):
        if t > 0:
            table = ScoreTable(design, theta, counts, bound * AROUND, queries.n, offset, LARGEST)
            queries.together(table)
        bound, inside = quantile(queries, "clip", table.residual, level, table.grid, F_CLIP / STEPS)[:2]
        inside, score = min(1.0, max(0.5, inside)), table.score(Clip(bound))
        gradient, sd = queries.mean("steps", score, design.width, design.radius * bound, share * part)
        # The curvature is exp(z): about its mean over a normal predictor.
        weight = min(3.0, max(0.5, math.exp(float(theta[0]) + float(theta[1:] @ theta[1:]) / 2.0 + offset)))
        step = bent.inverse @ (gradient / (inside * weight) + bent.penalty @ theta)
        theta = theta - into_ball(0.8 * step, 1.0)
        theta = np.append(np.clip(theta[0], -3.0, 3.0), into_ball(theta[1:], LIMIT))
        if t >= STEPS / 2:
            average.add(theta, (sd / (inside * weight)) ** 2)
    theta, W = average.value, design.whitening
    private = average.variance * bent.inverse @ bent.inverse
    noise = INFLATION * private + bound**2 * bent.inverse / queries.n
    slopes = shrink(W @ theta[1:], W @ noise[1:, 1:] @ W.T, design.covariance)
    limits, sd_slopes = (-math.inf, start + LARGEST), slope_noise(W, private)
    if known is not None and known.target_range is not None:
        limits = -math.inf, min(start + LARGEST, math.log(max(known.target_range[1], 1e-300)))
    if not intercept:
        return Line(columns, design.shift, slopes, 0.0, design.covariance, limits, noise=sd_slopes), mean
    constant = float(theta[0])
    cap = min(top, 8.0 * bound)
    levels = FittedMeans(design.line(slopes, constant, LARGEST), counts, cap)
    found, sd = queries.mean("level", levels, 2, cap / math.sqrt(2.0), LEVEL_SHARE)
    target, model = np.maximum(found + cap / 2.0, max(2.0 * sd, 1e-3))
    change = math.log(target / model)
    change *= max(0.0, 1.0 - 2.0 * (sd / min(target, model)) ** 2 / max(change**2, 1e-300))
    level = start + constant + change
    return Line(columns, design.shift, slopes, level, design.covariance, limits, noise=sd_slopes), mean
