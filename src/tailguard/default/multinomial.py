r"""The default for logistic regression with three or more classes.

Newton steps on the score ``w (softmax(z) - onehot(y)) a' / g``, where g is the largest norm that
``softmax(z) - onehot(y)`` has for any label: it depends on the features only, so the true coefficients still solve the
equations, and the score has norm at most R whatever the label.

The derivative of the score couples all classes with all features. Its expectation is taken over fixed public points,
normal in whitened coordinates, and bent by the released curvature: a full Newton step without another look at the data.

=================  =====================================  ==========================  =========================
query              one row                                L2 sensitivity of the sum   share
=================  =====================================  ==========================  =========================
prevalence         1{y = class}                           2 sqrt(1 - 1/K)             at most .03
steps              score                                  2 R                         what is left
=================  =====================================  ==========================  =========================
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from tailguard.default.averaging import Average, geometric, into_ball, shrink, slope_noise
from tailguard.default.columns import Columns, first_counts
from tailguard.default.linear import INFLATION, LEVEL_ONLY, Line, locate_features, noise_to_signal
from tailguard.default.logistic import LEVEL, LIMIT, LIMITS, NEAR
from tailguard.default.rows import Membership, MultinomialScore, largest_gap
from tailguard.default.whitening import Curvature, Design, curvature, decorrelate, standardised
from tailguard.hints import Known
from tailguard.means.queries import Queries

Array = NDArray[np.float64]

TOO_NOISY, QUIET = 0.25, 0.03  # noise-to-signal ratios from which only levels are fitted; with which steps are many
STEPS, GROWTH = (10, 5), 1.8
FLOOR = 1.0  # smallest eigenvalue of the expected curvature, over their mean
POINTS = 1024  # over which the curvature is averaged


def fit_multinomial(queries: Queries, classes: int, intercept: bool, known: Known | None = None) -> tuple[Line, float]:
    """Fit one predictor per class; also the curvature of the loss, for penalties."""
    d = queries.engine.columns
    # More coordinates, and a curvature of about 1/(2 classes) where the bounded score of two classes has 1/2.
    ratio = noise_to_signal(queries, d + 1) * 2.0 * classes
    with_slopes = ratio <= TOO_NOISY
    if with_slopes:
        radius = math.sqrt(1.0 - 1.0 / classes)
        queries.together(Membership(classes).clipped(queries.grid(radius)), first_counts("features", np.arange(d)))
    levels = _levels(queries, classes, queries.share_for(math.sqrt(2.0), *LEVEL) if with_slopes else 1.0)
    levels = levels if intercept else np.zeros(classes)
    if not with_slopes:
        line = Line(Columns.unknown(d), np.zeros(d), np.zeros((classes, d)), levels, np.eye(d), LIMITS, LEVEL_ONLY)
        return line, 0.25
    columns = locate_features(queries, intercept, NEAR, known)
    design = decorrelate(queries, standardised(columns, intercept))
    start = MultinomialScore(design, np.column_stack([levels, np.zeros((classes, d))]))
    queries.together(design.gram_sum(queries), start.clipped(queries.grid(design.radius)))
    bent = curvature(queries, design)
    average, inverse = _steps(queries, bent, start, STEPS[0] if ratio <= QUIET else STEPS[1])
    theta, W = average.value, design.whitening
    slopes, noise, private = np.empty((classes, d)), np.empty((classes, d)), average.variance * inverse @ inverse
    for k in range(classes):
        block = slice(k * design.width, (k + 1) * design.width)
        covariance = INFLATION * private[block, block] + inverse[block, block] / queries.n
        slopes[k], _ = shrink(W @ theta[k, 1:], W @ covariance[1:, 1:] @ W.T, design.correlation)
        noise[k] = slope_noise(W, private[block, block])
    return Line(columns, design.shift, slopes, theta[:, 0], design.correlation, LIMITS, noise=noise), 0.2


def _levels(queries: Queries, classes: int, share: float) -> Array:
    """Logarithms of the prevalences, of mean zero."""
    # A row is a corner of the simplex about its middle: two rows are sqrt(2) apart, twice this radius at K = 2.
    found, sd = queries.mean("prevalence", Membership(classes), classes, math.sqrt(1.0 - 1.0 / classes), share)
    levels = np.log(np.maximum(found + 1.0 / classes, max(sd, 1.0 / queries.n)))
    return np.asarray(levels - levels.mean())


def _steps(queries: Queries, bent: Curvature, start: MultinomialScore, count: int) -> tuple[Average, Array]:
    """Newton steps; returns the average of the later iterates, (classes, width), and the last inverse curvature."""
    design, theta = start.design, start.theta
    classes, d = len(theta), design.width - 1
    share = queries.account.left
    average, expected, noise = Average(np.zeros_like(theta)), _ExpectedCurvature(design, bent, classes), 0.0
    for t, part in enumerate(geometric(count, GROWTH)):
        # Noise makes coefficients look large, and the curvature small: it is taken out first.
        size = float(np.sum(theta[:, 1:] ** 2))
        signal = math.sqrt(max(0.0, 1.0 - noise / max(size, 1e-300)))
        inverse = expected.inverse(theta * np.append(1.0, np.full(d, signal)))
        score = start if t == 0 else MultinomialScore(design, theta)
        gradient, sd = queries.mean("steps", score, score.width, design.radius, share * part)
        gradient = gradient.reshape(classes, -1) - gradient.reshape(classes, -1).mean(axis=0)
        # The penalty of the released curvature is that of a score whose slope in the predictor is 1; here it is 1/K.
        step = inverse @ (gradient + theta @ bent.penalty / classes).ravel()
        theta = theta - step.reshape(classes, -1)
        theta = np.column_stack([np.clip(theta[:, 0], -8.0, 8.0), into_ball(theta[:, 1:], LIMIT)])
        if not design.intercept:
            theta[:, 0] = 0.0
        noise = sd**2 * float(np.sum(inverse * inverse))
        if t >= count / 2.0:
            average.add(theta, sd**2)
    return average, inverse


class _ExpectedCurvature:
    """Expected derivative of the score over normal features, bent by the released curvature."""

    def __init__(self, design: Design, bent: Curvature, classes: int) -> None:
        rng = np.random.default_rng(0)
        constant = np.full(POINTS, 1.0 if design.intercept else 0.0)
        self.points = np.column_stack([constant, rng.standard_normal((POINTS, design.width - 1))])
        self.weights = design.weights(self.points) / POINTS
        own = (self.points * self.weights[:, None]).T @ self.points
        if not design.intercept:
            own[0, 0] = 1.0
        self.bend = np.kron(np.eye(classes), _root(bent.inverse) @ _root(own))

    def inverse(self, theta: Array) -> Array:
        """Inverse of the curvature at coefficients (classes, width), its eigenvalues bounded below."""
        p = softmax(self.points @ theta.T, axis=1)
        weight = self.weights / largest_gap(p)
        classes, width = theta.shape
        H = np.zeros((classes, width, classes, width))
        for j in range(classes):
            for k in range(j, classes):
                slope = weight * p[:, j] * (float(j == k) - p[:, k])
                H[j, :, k] = H[k, :, j] = (self.points * slope[:, None]).T @ self.points
        values, V = np.linalg.eigh(H.reshape(classes * width, -1))
        values = np.maximum(values, FLOOR * float(np.mean(values)))
        return np.asarray(self.bend @ ((V / values) @ V.T) @ self.bend.T)


def _root(matrix: Array) -> Array:
    values, V = np.linalg.eigh(matrix)
    return np.asarray((V * np.sqrt(np.maximum(values, 0.0))) @ V.T)
