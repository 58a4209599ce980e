r"""Standard errors: what a fit with ``inference=True`` does once it has come near its solution.

The estimate solves ``E[v a s(a . theta, y)] = 0``, with a score s of `tailguard.default.scores`. Nothing is shrunk,
penalised or projected. Near the solution, at released points ``theta_t``, noisy means ``g_t = mean(v a s) + N_t`` of
privacy noise ``N_t ~ N(0, sd_t^2)`` are one step away from it, with the released Jacobian J of the mean score:

    estimate = sum_t k_t (theta_t - J^-1 g_t),   k_t in proportion to 1/sd_t^2.

Every term has the *same* sampling error and its *own* privacy noise. So steps do not have to converge, no noise is
carried from step to step, and the budget is split over steps at no loss. With J_n the Jacobian without its noise,

    estimate - truth = - J^-1 (mean(v a s at the truth) + sum_t k_t N_t) + J^-1 (J - J_n) (sum_t k_t theta_t - truth),

up to the bend of the score over the last corrections. The first part has variance M/n, M the mean of
``v^2 s^2 a a'``, released; the second ``1/sum_t sd_t^-2``, known. In the third the noise E = J - J_n is known in
size, e, and multiplies a distance: D, the mean of the last corrections, which are released, plus the error of the
estimate. Noise of a symmetric matrix, of sd e on the diagonal and e/sqrt(2) off it, has
``Cov(E x) = e^2/2 (|x|^2 I + x x')``. So, given J, with ``S = M/n + I/sum_t sd_t^-2`` and ``Q = D D' + J^-1 S J^-1``,

    Cov = J^-1 (S + e^2/2 (tr(Q) I + Q)) J^-1.

A variance ``l' Cov l`` is itself noisy through M: its sd is ``e_M |J^-1 l|^2/n``, e_M that of M, by the same isotropy.
Satterthwaite's degrees of freedom, twice the squared variance over the variance of its noise, make the quantile of an
interval that of a t distribution. Where an eigenvalue of J is within a few standard deviations of its noise there is no
honest interval: it is infinite.

**Clips.** What a clip cuts off biases the mean of residuals where tails are uneven, and slopes where that unevenness
depends on the features. It is measured: the *skew* is the mean of ``v a sign(r)`` over rows with abs(r) beyond a
quantile. From there tails are continued as a power law through a second quantile, which gives what a clip cuts off as
``reach(clip)`` times the skew, or less where tails bend, and light ones bend more: a part of it, in proportion to the
slope of the power law, is added to the mean score; 2/5 of it more or less, and the noise of the skew, count as error.
The clip is where this error and the privacy noise balance.

=================  ==========================================  ===========================  =========
query              one row                                     L2 sensitivity of the sum    share
=================  ==========================================  ===========================  =========
tail               1{abs(r) <= grid}, one count a level        1 for each                   F_TAIL
skew               v a sign(r) beyond a point                  2 R                          F_SKEW
jacobian           v s' a a', v |a|^2 <= cap R^2, s' <= k      sqrt(2) k cap R^2            JACOBIAN
scores             v a s, abs(s) <= c                          2 R c                        the rest
score variance     (v s)^2 a a'                                sqrt(2) R^2 c^2              F_VARIANCE
level skew         sign(r) beyond a point                      2                            SIGN
level              (u, u^2 - 1), u = clip(r/c, +-1)            2                            of F_LEVEL
=================  ==========================================  ===========================  =========
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard.default.averaging import Average
from tailguard.default.missing import ALL, Present
from tailguard.default.newton import Curvature
from tailguard.default.quantiles import quantile
from tailguard.default.rows import Fitted, Target
from tailguard.default.scores import LevelRows, Score, ScoreRows, SignRows, SlopeRows
from tailguard.default.shrinkage import kept
from tailguard.default.whitening import Design
from tailguard.intervals import Uncertainty
from tailguard.means.queries import Queries

Array = NDArray[np.float64]

F_TAIL, F_SKEW, F_VARIANCE = 0.04, 0.15, 0.02
JACOBIAN = (0.006, 0.10)  # noise worth paying for in the Jacobian, over the largest slope, and the most to pay
CAP = 2.5  # of the weights: the noise of the Jacobian grows with it
PARTS = (0.2, 0.3, 0.5)  # of what is left, for the points at which the score is averaged
FURTHEST = 8.0  # norm of a point at which the score is averaged; the estimate itself is not bounded
TRUST = 3.0  # standard deviations of its noise from which an eigenvalue of the Jacobian is inverted
STRANGE = 2.0  # error in a direction of which nothing is known
LEAK = 0.01  # of a variance: what a direction of which nothing is known may add to it
WEIGHT = 0.7  # about the mean of v |a|^2 over that of |a|^2
SIGN = 0.2  # of a level's share, for the skew of its tail
START = 0.03  # of the rows lie beyond the first quantile of a tail, or as many as can be told from noise
USUAL = (0.6, 0.2)  # slope of the power law that is expected, and how surely: the shoulder of a log-normal tail
LEAN = (1.25, 0.9)  # part that is added, over the slope: of slopes and of a level, of which a bent tail cuts off less
GIVE = 0.4  # of the power law's continuation: how much more or less than the part that is added may be cut off
SLOPES = (0.15, 0.8)  # of the power law: the smallest keeps a clip from ending where a sharp tail does


@dataclass(frozen=True)
class Estimate:
    """An estimate in design coordinates, with what its errors are made of."""

    theta: Array
    inverse: Array  # of the Jacobian; zero in directions of which nothing is known
    middle: Array  # covariance of the mean score
    noise: float  # standard deviation of an entry of `middle`
    private: float  # variance of the privacy noise in a coordinate of the mean score
    unknown: Array  # (p, k): directions of which nothing is known

    def uncertainty(self, rows: Array) -> Uncertainty:
        """Uncertainty of ``rows @ theta``."""
        lever = rows @ self.inverse
        variance = np.einsum("ij,jk,ik->i", lever, self.middle, lever)
        noise = np.maximum(np.sum(lever * lever, axis=1) * self.noise, 1e-100)
        freedom = 2.0 * np.minimum(variance / noise, 1e50) ** 2
        lost = np.sum((rows @ self.unknown) ** 2, axis=1) > LEAK * variance
        stderr = np.where(lost | ~np.isfinite(variance), np.inf, np.sqrt(np.maximum(variance, 0.0)))
        return Uncertainty(stderr, np.maximum(freedom, 1.0))


def rewhiten(design: Design, bent: Curvature) -> tuple[Design, Curvature]:
    """Whiten once more by the released curvature, which knows correlations that the first whitening did not."""
    d = design.width - 1
    h = -np.linalg.solve(bent.inverse[1:, 1:], bent.inverse[1:, 0]) if design.intercept else np.zeros(d)
    B = np.linalg.cholesky(WEIGHT * bent.inverse[1:, 1:])
    shift = design.shift + np.linalg.solve(design.whitening.T, h)
    flat = Curvature.flat(d + 1, WEIGHT)
    W = _without(design.whitening @ B, design.columns.seen)
    return replace(design, shift=shift, whitening=W, cap=min(design.cap, CAP)), flat


def _without(W: Array, seen: NDArray[np.bool_]) -> Array:
    """The whitening of the columns that were seen: others have no part in it, and as many coordinates stay zero.

    The covariance that W whitens is ``(W W')^-1``; a block of it is whitened by itself.
    """
    if seen.all():
        return W
    block = np.ix_(seen, seen)
    covariance = np.linalg.inv(W @ W.T)[block]
    found, k = np.zeros_like(W), int(seen.sum())
    found[np.flatnonzero(seen), :k] = np.linalg.cholesky(np.linalg.inv(covariance))
    return found


def polish(
    queries: Queries, design: Design, score: Score, theta: Array, share: float, cut: Cut | None = None
) -> Estimate:
    """Solve the score's equation from a point near its solution; ``cut`` is what its clip cuts off."""
    p, n, identity = design.width, queries.n, np.eye(design.width)
    slopes = SlopeRows(design, theta, score)
    part = queries.share_for(math.sqrt(2.0) * slopes.bound**2, JACOBIAN[0] * score.steepest, JACOBIAN[1])
    J, sd_J = queries.gram("jacobian", slopes, p, slopes.bound, part)
    # Coordinates that are zero in every row, as the constant without an intercept, have a Jacobian of noise.
    empty = np.append(not design.intercept, ~np.any(design.whitening != 0.0, axis=0))
    J[empty] = J[:, empty] = 0.0
    J[empty, empty] = 1.0
    inverse, unknown = _inverse(J, sd_J)

    share -= part + F_VARIANCE
    corrected, visited = Average(np.zeros(p)), Average(np.zeros(p))
    for part in PARTS:
        rows = ScoreRows(design, theta, score)
        mean, sd = queries.mean("scores", rows, p, rows.bound, share * part)
        corrected.add(theta - inverse @ (mean if cut is None else mean + cut.mean), sd**2)
        visited.add(theta, sd**2)
        theta = corrected.value * min(1.0, FURTHEST / max(float(np.linalg.norm(corrected.value)), 1e-300))

    rows = ScoreRows(design, theta, score)
    M, sd_M = queries.gram("score variance", rows, p, rows.bound, F_VARIANCE)
    middle = _shrunk(M, sd_M) / n + corrected.variance * identity + (0.0 if cut is None else cut.doubt)
    D = visited.value - corrected.value
    Q = np.outer(D, D) + inverse @ middle @ inverse + STRANGE**2 * unknown @ unknown.T
    middle += sd_J**2 / 2.0 * (np.trace(Q) * identity + Q)
    private = corrected.variance + (0.0 if cut is None else cut.noise)
    return Estimate(corrected.value, inverse, middle, sd_M / n, private, unknown)


def _inverse(J: Array, sd: float) -> tuple[Array, Array]:
    """Inverse in the directions in which it is known, and the others."""
    values, V = np.linalg.eigh(J)
    known = values > TRUST * sd
    return (V * np.where(known, 1.0 / np.where(known, values, 1.0), 0.0)) @ V.T, V[:, ~known]


def _shrunk(M: Array, sd: float) -> Array:
    """Shrink a noisy covariance of whitened rows to a multiple of the identity, as much as its noise asks for."""
    p = len(M)
    level = max(float(np.trace(M)) / p, 0.0)
    spread = M - level * np.eye(p)
    keep = kept(float(np.sum(spread * spread)), sd**2 * p * (p + 1) / 2.0)
    values, V = np.linalg.eigh(level * np.eye(p) + keep * spread)
    return np.asarray((V * np.maximum(values, 0.0)) @ V.T)


def in_data_units(design: Design, estimate: Estimate, unit: float, level: Level | None = None) -> Uncertainty:
    """Uncertainty of coefficients and intercept of the raw features; ``unit`` is that of the target.

    The intercept is the estimate's own constant, or that of a ``level`` found by itself: the mean of residuals, whose
    error adds to that of the line at the mean of the features.
    """
    columns, W = design.columns, design.whitening
    d = len(columns.scale)
    rows = np.zeros((d + 1, d + 1))
    rows[:d, 1:] = W
    rows[d, 0] = float(design.intercept and level is None)
    rows[d, 1:] = -(columns.mean / columns.scale + (design.shift if level is None else 0.0)) @ W
    found = estimate.uncertainty(rows)
    stderr, freedom = found.stderr.copy(), found.freedom
    if level is not None:
        line = stderr[d] ** 2
        stderr[d] = math.sqrt(line + level.variance)
        # Satterthwaite for the sum of two variances.
        both = line**2 / freedom[d] + level.variance**2 / level.freedom
        freedom = np.append(freedom[:d], stderr[d] ** 4 / max(both, 1e-300))
    stderr *= np.append(unit / columns.scale, unit)
    return Uncertainty(np.where(np.append(columns.seen, True), stderr, np.inf), freedom)


# ---------------------------------------------------------------- clips that hardly bias


@dataclass(frozen=True)
class Cut:
    """What a clip cuts off the mean score: what is added to it, and the covariance of what is not known."""

    clip: float
    mean: Array
    noise: float  # variance of the mean's own noise, in one coordinate
    doubt: Array


@dataclass(frozen=True)
class Tail:
    """The size of residuals beyond a point, as a power law."""

    start: float
    slope: float  # by which the logarithm of a quantile grows with that of the inverse fraction beyond it
    fraction: float  # of the rows beyond the start

    def reach(self, clip: float) -> float:
        """Mean excess over a clip, for a fraction of 1 beyond the start."""
        return clip * (self.start / clip) ** (1.0 / self.slope) * self.slope / (1.0 - self.slope)

    def cut(self, skew: Array, variance: float, noise: float, lean: float) -> Cut:
        """The best clip for a skew known up to a variance, and a mean whose privacy noise is ``noise`` a unit of it."""
        excess = max(0.0, float(skew @ skew) - len(skew) * variance)
        clips = self.start * 2.0 ** np.arange(0.0, 6.01, 0.25)
        reach = np.array([self.reach(c) for c in clips])
        part, give = min(0.75, lean * self.slope), GIVE
        best = int(np.argmin((noise * clips) ** 2 + reach**2 * (give**2 * excess + part**2 * variance)))
        noise = (part * reach[best]) ** 2 * variance
        doubt = (give * reach[best]) ** 2 * np.outer(skew, skew) + noise * np.eye(len(skew))
        return Cut(float(clips[best]), part * reach[best] * skew, noise, doubt)


def look_at_tail(queries: Queries, residual: Callable[[Any, Any], Array], near: float, share: float) -> Tail:
    """Release two quantiles of the residuals' size that can be told from noise; ``near`` is a central one."""
    grid = near * 2.0 ** np.arange(0.0, 7.76, 0.25)
    counted = queries.sd(1.0, share / 10.0)  # of one count: two bisections of five levels
    beyond = min(0.2, max(START, 8.0 * counted)), min(0.07, max(START / 4.0, 3.0 * counted))
    start, inside = quantile(queries, "tail", residual, 1.0 - beyond[0], grid, share / 2.0)[:2]
    far, within = quantile(queries, "tail", residual, 1.0 - beyond[1], grid, share / 2.0)[:2]
    fraction, less = max(1.0 - inside, counted), max(1.0 - within, counted)
    # Noisy fractions leave a slope uncertain: it is drawn to a usual one.
    spread = math.log(max(fraction / less, 1.5))
    slope, (usual, spare) = math.log(far / start) / spread, USUAL
    doubt = max(slope, usual) * math.hypot(counted / less, counted / fraction) / spread
    kept = spare**2 / (spare**2 + doubt**2)
    slope = kept * slope + (1.0 - kept) * usual
    return Tail(start, min(SLOPES[1], max(SLOPES[0], slope)), fraction)


@dataclass(frozen=True)
class Level:
    """The mean of residuals, the variance of its error, and the degrees of freedom of that."""

    value: float
    variance: float
    freedom: float


def mean_level(
    queries: Queries, line: Fitted, target: Target, tail: Tail, share: float, present: Present = ALL
) -> Level:
    """Release the mean of the residuals of a line, and their variance, which costs nothing beside it.

    Of the residuals that are ``present``: a missing one adds nothing to either.
    """
    sign, share = SIGN * share, (1.0 - SIGN) * share
    n = queries.n
    skew, sd_skew = queries.mean("level skew", SignRows(line, target, tail.start), 1, 1.0, sign)
    cut = tail.cut(skew, sd_skew**2 + tail.fraction / n, queries.sd(2.0, share), LEAN[1])
    (first, second), sd = queries.mean("level", LevelRows(line, target, cut.clip), 2, 1.0, share)
    # A missing residual adds nothing to the first, and less the square of their quotient nothing to the second.
    part = present.fraction
    sampling = max(0.0, float(second) + 1.0 - float(first) ** 2 / part) * cut.clip**2 / n
    quotient = float(first) / part * cut.clip * present.sd
    variance = (sampling + (cut.clip * sd) ** 2 + float(cut.doubt[0, 0]) + quotient**2) / part**2
    freedom = 2.0 * (variance / (cut.clip**2 * sd / n / part**2)) ** 2
    return Level((cut.clip * float(first) + float(cut.mean[0])) / part, variance, max(freedom, 1.0))
