r"""The default for logistic regression with three or more classes.

Newton steps on the score ``t_y (m - e_y) w a' / g`` of a row with label y and class probabilities p = softmax(z): e_y
is the y-th corner of the simplex, t_y a weight that falls with its distance from p, m the mean of the corners weighted
by p t, and g the largest norm of ``t_k (m - e_k)`` for any label k. All of them depend on the features only, and the
mean over the labels is ``sum_k p_k t_k (m - e_k) = 0``: the true coefficients still solve the equations, and the score
has norm at most R whatever the label. Without the weights (t = 1, m = p) only the least likely label would have that
norm, and likely ones less than the noise is made for: with five classes that costs a sixth of the privacy noise.

The derivative of the score couples all classes with all features. It is a mean over points that stand for rows
(`stand_ins`), rescaled by what the first Gram matrix found (`derivative`): a full Newton step without another look at
the data. The gradients of all steps are pooled (`pooling`).

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

from tailguard.default.averaging import geometric
from tailguard.default.columns import Columns, first_counts
from tailguard.default.derivative import ClassDerivative
from tailguard.default.line import LEVEL_ONLY, Line
from tailguard.default.locating import locate_features, noise_to_signal
from tailguard.default.logistic import LIMIT, LIMITS, TAILS, score_design
from tailguard.default.pooling import Pool
from tailguard.default.rows import Membership, MultinomialScore
from tailguard.default.shrinkage import slope_noise
from tailguard.default.whitening import Design
from tailguard.hints import Known
from tailguard.means.queries import Queries

Array = NDArray[np.float64]

TOO_NOISY, QUIET = 0.25, 0.03  # noise-to-signal ratios from which only levels are fitted; with which steps are many
STEPS, GROWTH = (6, 5), 2.0  # steps, and the growth of their shares: the first need only come near
FURTHEST = 8.0  # from zero, of the constants
LEVEL = (0.012, 0.03)  # noise worth paying for in the levels, where steps start, and the most to pay


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
    design = score_design(queries, locate_features(queries, intercept, known, TAILS), intercept)
    theta, noise = _steps(queries, design, levels, STEPS[0 if ratio <= QUIET else 1])
    slopes = theta[:, 1:] @ design.whitening.T
    return Line(design.columns, design.shift, slopes, theta[:, 0], design.covariance, LIMITS, noise=noise), 0.2


def _levels(queries: Queries, classes: int, share: float) -> Array:
    """Logarithms of the prevalences, of mean zero."""
    # A row is a corner of the simplex about its middle: two rows are sqrt(2) apart, twice this radius at K = 2.
    found, sd = queries.mean("prevalence", Membership(classes), classes, math.sqrt(1.0 - 1.0 / classes), share)
    levels = np.log(np.maximum(found + 1.0 / classes, max(sd, 1.0 / queries.n)))
    return np.asarray(levels - levels.mean())


def _steps(queries: Queries, design: Design, levels: Array, count: int) -> tuple[Array, Array]:
    """Newton steps; returns coefficients, (classes, width), and the noise of slopes, (classes, columns)."""
    classes, width = len(levels), design.width
    derivative = ClassDerivative(design, classes)
    # Coefficients are known up to what all classes share: steps are taken in contrasts, in which noise is the same.
    Q, shape = derivative.contrasts, (classes - 1, width)
    pool = Pool(queries.n, derivative, np.tile(np.arange(width) > 0, classes - 1), LIMIT)
    theta, share = np.column_stack([levels, np.zeros((classes, width - 1))]), queries.account.left
    for part in geometric(count, GROWTH):
        score = MultinomialScore(design, theta)
        gradient, sd = queries.mean("steps", score, score.width, design.radius, share * part)
        at = (Q.T @ theta).ravel()
        pool.add(at, (Q.T @ gradient.reshape(classes, width)).ravel(), sd)
        pooled, private = pool.estimate(at)
        theta = Q @ pooled.reshape(shape)
        theta[:, 0] = np.clip(theta[:, 0], -FURTHEST, FURTHEST) if design.intercept else 0.0
    blocks = private.reshape(*shape, *shape)
    noise = [slope_noise(design.whitening, np.einsum("i,j,iajb->ab", row, row, blocks)) for row in Q]
    return theta, np.array(noise)
