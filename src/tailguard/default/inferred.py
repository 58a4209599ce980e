r"""The fits of ``inference=True``: near the solution by a few steps, then an estimate with standard errors.

Stages A and B are those of the default; C is short and quiet, and what is left goes to `tailguard.default.inference`.

=============  ====================================  ===========================================================
fit            near the solution                     then
=============  ====================================  ===========================================================
mean           steps at a central clip               scores at a clip that balances noise and what it cuts off
bulk           steps at a central clip               scores at that very clip
log-odds       the default's steps                   bounded scores: there is nothing to clip
log of mean    steps at a central clip               scores at a balanced clip
=============  ====================================  ===========================================================

The intercept of both linear fits is the mean of the residuals, with a clip of its own. Where there is more noise than
that (`is_too_noisy`) the fit is the default's, slopes included where it has any. There, and where the target is not
seen, there are no standard errors: they are infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard.default import linear, logistic, poisson, small
from tailguard.default.averaging import Average, geometric, into_ball
from tailguard.default.choice import LEAST, kind_of
from tailguard.default.columns import Columns
from tailguard.default.inference import (
    F_SKEW,
    F_TAIL,
    LEAN,
    WEIGHT,
    Cut,
    Estimate,
    Level,
    Tail,
    in_data_units,
    look_at_tail,
    mean_level,
    polish,
    rewhiten,
)
from tailguard.default.level import MEAN, level_only
from tailguard.default.line import UNSEEN, Line
from tailguard.default.locating import locate_features, locate_target, looks_at, noise_to_signal
from tailguard.default.missing import ask, recentred
from tailguard.default.newton import Curvature
from tailguard.default.quantiles import AROUND, GRID, quantile
from tailguard.default.recalibration import BEYOND
from tailguard.default.rows import Fitted, LogisticScore, Target
from tailguard.default.scores import (
    ClippedScore,
    CountScore,
    OddsScore,
    ResidualAt,
    ResidualScore,
    ScoreRows,
    TailScore,
)
from tailguard.default.shrinkage import slope_noise
from tailguard.default.whitening import Design, curvature, decorrelate, standardised
from tailguard.intervals import Uncertainty
from tailguard.losses import Huber, Logistic, Loss, Poisson, Squared
from tailguard.means.queries import Queries

Array = NDArray[np.float64]

APPROACH = 0.07  # of what is left, for coming near the solution
F_CLIP, F_LEVEL = 0.01, 0.05
STEPS, SKIPPED, DAMPING = 5, 2, 0.9
TOO_NOISY = 0.065  # noise-to-signal ratio beyond which no standard error of a line or of counts would be any good
QUIET = 0.03  # noise-to-signal ratio up to which log-odds take ten steps, and not five
NARROW = linear.NARROW["mean"]

_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True)
class InferredLine(Line):
    """A line with what is known about its errors, in the units of the data."""

    uncertainty: Uncertainty | None = None


def infer(queries: Queries, loss: Loss, intercept: bool) -> Line:
    """Fit the model that the loss asks for, with standard errors where the budget carries them."""
    if isinstance(loss, (Squared, Huber)):
        return infer_line(queries, "mean" if isinstance(loss, Squared) else "bulk", intercept)
    if isinstance(loss, Logistic):
        return infer_log_odds(queries, intercept)
    assert isinstance(loss, Poisson)
    return infer_log_mean(queries, intercept)


def refuse_inference(loss: Loss, alpha: float) -> None:
    """Refuse what has no honest interval, before data is touched."""
    if not isinstance(loss, (Squared, Huber, Logistic, Poisson)):
        raise ValueError(
            "inference=True is not accepted for three classes or more: their Jacobian costs more than the budget "
            "carries. Give two classes, one against the others, or inference=False."
        )
    if alpha > 0.0:
        raise ValueError(f"alpha={alpha!r} is not accepted with inference=True: a penalty biases. Give alpha=0.")


def is_too_noisy(queries: Queries) -> bool:
    """Whether a line, or counts, are fitted without standard errors; public."""
    return noise_to_signal(queries, queries.engine.columns + 1) > TOO_NOISY or queries.n * queries.mu < LEAST


def infer_line(queries: Queries, target: str, intercept: bool) -> Line:
    """Fit a linear model to the "mean" or the "bulk"."""
    d = queries.engine.columns
    if is_too_noisy(queries):
        few = kind_of(queries) == "small"
        return small.fit_small(queries, None, intercept) if few else level_only(queries, intercept)
    columns = locate_features(queries, intercept)
    y = locate_target(queries, looks_at(queries, 1), intercept)
    if not y.seen[0]:
        return Line(columns, np.zeros(d), np.zeros(d), 0.0, np.eye(d), note=UNSEEN)
    standard, mean, scale = _standard(y), float(y.mean[0]), float(y.scale[0])
    score = ResidualScore(standard)

    design = _design(queries, columns, intercept)
    theta, clip = _approach(queries, design, score, np.zeros(d + 1), lambda _: 1.0)
    tail = look_at_tail(queries, ResidualAt(design, theta, score), clip, F_TAIL)
    kept = F_LEVEL if intercept else 0.0
    cut = None
    if target == "mean":
        # What is cut off the constant does not matter here: it is found by itself.
        cut = _cut(queries, design, score, theta, tail, kept, slice(1, None))
        clip = cut.clip
    estimate = polish(queries, design, score.at(clip), theta, queries.account.left - kept, cut)
    if not intercept:
        return _line(design, estimate, 0.0, scale)
    line = design.fitted(estimate.theta)
    level = mean_level(queries, line, standard, tail, queries.account.left)
    return _line(design, estimate, mean + scale * (line.constant + level.value), scale, level)


def infer_log_odds(queries: Queries, intercept: bool) -> Line:
    """Fit the log-odds of two classes."""
    d = queries.engine.columns
    ratio = noise_to_signal(queries, d + 1)
    if ratio > logistic.TOO_NOISY:
        return logistic.fit_log_odds(queries, intercept)[0]
    ones = logistic.HALF
    if intercept:
        ones = logistic.prevalence(queries, queries.share_for(1.0, *logistic.LEVEL))
    columns = locate_features(queries, intercept, tails=logistic.TAILS)
    design, flat = rewhiten(*_whitened(queries, columns, intercept))
    theta = _approach_odds(queries, design, flat, ones.log_odds, ones.rare, ratio <= QUIET)
    estimate = polish(queries, design, OddsScore(), theta, queries.account.left)
    return _line(design, estimate, float(estimate.theta[0]) if intercept else 0.0, limits=logistic.LIMITS)


def infer_log_mean(queries: Queries, intercept: bool) -> Line:
    """Fit the logarithm of the mean."""
    d = queries.engine.columns
    if is_too_noisy(queries):
        return poisson.fit_log_mean(queries, intercept)[0]
    y = locate_target(queries, looks_at(queries, 1), source="positive target")
    if not y.seen[0]:
        return Line(Columns.unknown(d), np.zeros(d), np.zeros(d), 0.0, np.eye(d), note=UNSEEN)
    mean = max(float(y.mean[0]), 1e-3 * float(y.scale[0]))
    start = math.log(mean)
    offset = 0.0 if intercept else -start
    # Not truncated where the default does: that would bias the mean, and the clip of the score bounds it anyway.
    counts = Target(0.0, mean, float(y.centre[0]), furthest=BEYOND * float(y.reach[0]), low=0.0)
    score = CountScore(counts, offset, poisson.LARGEST)

    def slope(theta: Array) -> float:
        """Expected ``min(exp(z), 1)`` of a normal predictor."""
        z = float(theta[0]) + offset + float(np.linalg.norm(theta[1:])) * _POINTS
        return max(0.2, float(_WEIGHTS @ np.exp(np.minimum(z, 0.0))))

    columns = locate_features(queries, intercept, tails=poisson.TAILS)
    design = _design(queries, columns, intercept)
    theta, clip = _approach(queries, design, score, np.zeros(d + 1), slope)
    tail = look_at_tail(queries, ResidualAt(design, theta, score), clip, F_TAIL)
    cut = _cut(queries, design, score, theta, tail, 0.0, slice(0 if intercept else 1, None))
    estimate = polish(queries, design, score.at(cut.clip), theta, queries.account.left, cut)
    level = start + float(estimate.theta[0]) if intercept else 0.0
    return _line(design, estimate, level, limits=(-math.inf, start + poisson.LARGEST))


def infer_level(queries: Queries) -> tuple[float, Uncertainty]:
    """Fit a constant to the target: a private mean."""
    y = locate_target(queries, MEAN)
    if not y.seen[0]:
        return 0.0, Uncertainty.none(1)
    scale, target = float(y.scale[0]), _standard(y)
    present = ask(queries, target)
    mean = recentred(target.mean, target.middle, present)
    target = replace(target, mean=mean)
    line = Fitted.flat(0)
    left = queries.account.left

    def residual(X: NDArray[Any], y: NDArray[Any]) -> Array:
        return target(y)

    near, _ = quantile(queries, "clip", residual, NARROW, GRID, 0.05 * left)[:2]
    tail = look_at_tail(queries, residual, near, 0.15 * left)
    level = mean_level(queries, line, target, tail, queries.account.left, present)
    return mean + scale * level.value, Uncertainty(
        np.array([scale * math.sqrt(level.variance)]), np.array([level.freedom])
    )


def _standard(y: Columns) -> Target:
    """The target in units of its scale; one that is far beyond all that was seen counts as missing."""
    return Target(float(y.mean[0]), float(y.scale[0]), float(y.centre[0]), furthest=BEYOND * float(y.reach[0]))


def _whitened(queries: Queries, columns: Columns, intercept: bool) -> tuple[Design, Curvature]:
    """Stage B."""
    design = decorrelate(queries, standardised(columns, intercept), glance=False)
    return design, curvature(queries, design)


def _design(queries: Queries, columns: Columns, intercept: bool) -> Design:
    return rewhiten(*_whitened(queries, columns, intercept))[0]


def _approach(
    queries: Queries, design: Design, score: ClippedScore, theta: Array, slope: Callable[[Array], float]
) -> tuple[Array, float]:
    """Damped Newton steps at a central clip; returns the average of the later iterates and the last clip."""
    average, share = Average(np.zeros(design.width)), APPROACH * queries.account.left
    grid, clip = GRID, 1.0
    for t, part in enumerate(geometric(STEPS)):
        residual = ResidualAt(design, theta, score)
        clip, fraction = quantile(queries, "clip", residual, NARROW, grid, F_CLIP / STEPS)[:2]
        rows = ScoreRows(design, theta, score.at(clip))
        mean, sd = queries.mean("steps", rows, design.width, rows.bound, share * part)
        bend = WEIGHT * slope(theta) * min(1.0, max(0.5, fraction))
        theta = theta - into_ball(DAMPING / bend * mean, 1.0)
        grid = clip * AROUND
        if t >= SKIPPED:
            average.add(theta, (sd / bend) ** 2)
    return average.value, clip


def _approach_odds(
    queries: Queries, design: Design, flat: Curvature, level: float, smaller: float, quiet: bool
) -> Array:
    """Newton steps on the bounded score, its slope that of a normal predictor; the average of the later iterates."""
    share = APPROACH * queries.account.left
    steps, least = (10, 0.25) if quiet else (5, 0.7)
    theta, noise = np.append(level, np.zeros(design.width - 1)), 0.0
    average = Average(np.zeros(design.width))
    for t, part in enumerate(geometric(steps, 1.3)):
        direction = theta[1:]
        # Noise makes coefficients look large, and slopes small: it is taken out first.
        spread = math.sqrt(max(0.0, float(direction @ direction) - len(direction) * noise))
        odds = _WEIGHTS / (1.0 + np.exp(np.abs(float(theta[0]) + spread * _POINTS)))
        slope = max(float(odds.sum()), least * smaller)  # across the fitted direction
        along = max(float(np.sum(odds * _POINTS**2)), 0.3 * slope)
        score = LogisticScore(design, theta)
        gradient, sd = queries.mean("steps", score, design.width, design.radius, share * part)
        step = flat.inverse @ (gradient / slope + flat.penalty @ theta)
        if spread > 0.0:
            unit = np.append(0.0, direction / np.linalg.norm(direction))
            step = step + unit * float(unit @ step) * (slope / along - 1.0)
        theta = theta - step
        theta = np.append(np.clip(theta[0], *logistic.LIMITS), into_ball(theta[1:], logistic.LIMIT))
        noise = (sd / slope) ** 2 * float(np.mean(np.diag(flat.inverse @ flat.inverse)))
        if t >= steps / 2.0:
            average.add(theta, (sd / slope) ** 2)
    return average.value


def _cut(
    queries: Queries, design: Design, score: ClippedScore, theta: Array, tail: Tail, kept: float, part: slice
) -> Cut:
    """Release the skew of the tails; the clip that balances what it cuts off in some coordinates and its noise."""
    rows = ScoreRows(design, theta, TailScore(score, tail.start))
    skew, sd = queries.mean("skew", rows, design.width, rows.bound, F_SKEW)
    seen = np.zeros(design.width)
    seen[part] = skew[part]
    noise = queries.sd(2.0 * design.radius, queries.account.left - kept)
    return tail.cut(seen, sd**2 + WEIGHT * tail.fraction / queries.n, noise, LEAN[0])


def _line(
    design: Design,
    estimate: Estimate,
    level: float,
    unit: float = 1.0,
    own: Level | None = None,
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> InferredLine:
    """The estimate as a line, with its errors; ``unit`` is that of the target, ``own`` a level found by itself."""
    W = design.whitening
    return InferredLine(
        design.columns,
        design.shift,
        unit * W @ estimate.theta[1:],
        level,
        design.covariance,
        limits,
        noise=unit * slope_noise(W, estimate.private * estimate.inverse @ estimate.inverse),
        uncertainty=in_data_units(design, estimate, unit, own),
    )


def uncertainty_of(line: Line, intercept: bool) -> Uncertainty:
    """What is known about the errors of a line's coefficients and intercept; the latter is exact if there is none."""
    known = line.uncertainty if isinstance(line, InferredLine) else None
    if known is None:
        known = Uncertainty.none(len(line.slopes) + 1)
    if intercept:
        return known
    return Uncertainty(np.append(known.stderr[:-1], 0.0), np.append(known.freedom[:-1], np.inf))
