"""Gradients that are pooled, and the derivative that logistic regression takes for granted."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression

import tailguard as tg
from tailguard.default import logistic
from tailguard.default.columns import Columns
from tailguard.default.derivative import POINTS, ClassDerivative, OddsDerivative, contrasts, rescaling
from tailguard.default.pooling import Pool
from tailguard.default.rows import bounded_score, class_weights
from tailguard.default.stand_ins import mean_and_squares, stand_ins
from tailguard.default.whitening import RADIUS, TIGHT_CAP, Design
from tailguard.means.queries import Noisy

ROWS = 10**9  # so many that there is no sampling noise
SLOPES = np.array([False, True, True, True, True])
TRUTH = np.array([-0.5, 1.0, -0.7, 0.4, 0.0])


def steps(true: np.ndarray, assumed: np.ndarray, sds: list[float], rng: np.random.Generator, plain: bool = False):
    """Steps on gradients of a linear function with a derivative that is assumed to be another one."""
    pool, theta, private = Pool(ROWS, lambda at, to: assumed, SLOPES, 6.0), np.zeros(5), np.eye(5)
    for sd in sds:
        gradient = true @ (theta - TRUTH) + sd * rng.standard_normal(5)
        pool.add(theta, gradient, sd)
        theta, private = (theta - np.linalg.solve(assumed, gradient), private) if plain else pool.estimate(theta)
    return theta, private


def test_a_derivative_that_is_right_solves_the_equations():
    """One step comes as near as the doubt about it allows, four all the way."""
    B = np.diag([0.2, 0.1, 0.15, 0.1, 0.05])
    once, _ = steps(B, B, [1e-6], np.random.default_rng(0))
    theta, _ = steps(B, B, [1e-6] * 4, np.random.default_rng(0))
    np.testing.assert_allclose(once, TRUTH, atol=0.1)
    np.testing.assert_allclose(theta, TRUTH, atol=1e-3)


@pytest.mark.parametrize("factor", [0.4, 3.0], ids=["too small", "too large"])
def test_steps_converge_although_the_derivative_is_wrong(factor):
    B = np.diag([0.2, 0.1, 0.15, 0.1, 0.05])
    rng = np.random.default_rng(1)
    theta, _ = steps(B, factor * B, [1e-6] * 9, rng)
    newton, _ = steps(B, factor * B, [1e-6] * 9, rng, plain=True)
    assert np.linalg.norm(theta - TRUTH) < 0.02
    assert np.linalg.norm(newton - TRUTH) > 0.02


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.5, False), (2 / 3, False)])
def test_the_stated_covariance_is_that_of_the_noise(factor, right):
    """Mean of 200 x 5 squares of standard normals: 1 within six standard deviations, sqrt(2/1000) each."""
    B, rng = np.diag([0.2, 0.1, 0.15, 0.1, 0.2]), np.random.default_rng(2)
    squares = []
    for _ in range(200):
        # All gradients at the solution: nothing is predicted, so there is no doubt, and little to shrink.
        pool = Pool(ROWS, lambda at, to: B, SLOPES, 6.0)
        for sd in (4e-4, 2e-4, 1e-4):
            pool.add(TRUTH, factor * sd * rng.standard_normal(5), sd)
        theta, private = pool.estimate(TRUTH)
        squares.append((theta - TRUTH) @ np.linalg.solve(private, theta - TRUTH) / 5.0)
    assert (abs(np.mean(squares) - 1.0) < 6.0 * math.sqrt(2.0 / 1000.0)) == right


def test_noise_is_shrunk_to_nothing_and_constants_are_not():
    """Of nothing but noise at least four slopes in five are cut by half, and a constant of ten sd stays."""
    B, rng, kept = 0.1 * np.eye(5), np.random.default_rng(3), []
    for _ in range(50):
        pool, noise = Pool(ROWS, lambda at, to: B, SLOPES, 6.0), 0.05 * rng.standard_normal(5)
        pool.add(np.zeros(5), noise - B @ np.array([5.0, 0, 0, 0, 0]), 0.05)
        theta, _ = pool.estimate(np.zeros(5))
        kept.append(np.linalg.norm(theta[1:]) / np.linalg.norm(noise[1:] / 0.1))
        assert abs(theta[0]) > 2.0
    assert np.mean(np.array(kept) < 0.5) > 0.8


def test_no_gradient_sends_coefficients_to_infinity():
    """A derivative that vanishes with the distance, as that of a logistic function, and a gradient beyond its range."""

    def vanishing(at, to):
        return 0.2 * np.eye(5) / (1.0 + np.linalg.norm(at - to) ** 2)

    for value in (1.0, -1.0, 1e6):
        pool = Pool(10_000, vanishing, SLOPES, 6.0)
        for _ in range(5):
            pool.add(np.zeros(5), np.full(5, value), 0.01)
            theta, private = pool.estimate(np.zeros(5))
        assert np.isfinite(private).all()
        assert np.linalg.norm(theta[SLOPES]) <= 6.0 * (1.0 + 1e-12)


# The derivative.


def design(d: int, intercept: bool = True, factor: float = 1.0, radius: float = 1.2, count: int = POINTS[0]) -> Design:
    """Normal features that are whitened already; moments as expected, or so many times as large."""
    unit, identity = np.ones(d), np.eye(d)
    columns = Columns(0 * unit, 1e9 * unit, 0 * unit, unit, np.ones(d, bool))
    made = Design(columns, 0 * unit, identity, identity, intercept, radius * math.sqrt(d + 1), 1e9)
    first = mean_and_squares(stand_ins(made, count), 0 * unit, intercept, RADIUS[0] * math.sqrt(d + 1), TIGHT_CAP)
    return replace(made, moments=Noisy(first * np.append(1.0, np.full(d, factor)), 0.0))


def rows(d: int, intercept: bool, count: int) -> np.ndarray:
    constant = np.full(count, 1.0 if intercept else 0.0)
    return np.column_stack([constant, np.random.default_rng(4).standard_normal((count, d))])


@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_derivative_predicts_the_expected_score(d, intercept):
    """To six standard errors of a mean over 4e5 rows of weight 1, and 2 % for the few points that stand for them."""
    at = np.append(1.0, np.resize([1.5, -1.0, 0.5], d))
    to = np.append(-1.0, np.resize([-0.5, -0.5, 1.0], d))
    if not intercept:
        at[0] = to[0] = 0.0
    a = rows(d, intercept, 400_000)
    z, truth = a @ at, expit(a @ to)
    score = truth * bounded_score(z, np.ones(len(a))) + (1.0 - truth) * bounded_score(z, np.zeros(len(a)))
    terms = a * score[:, None]
    mean = terms.mean(axis=0)
    error = 6.0 * terms.std(axis=0) / math.sqrt(len(a)) + 0.02 * np.linalg.norm(mean)
    derivative = OddsDerivative(design(d, intercept, radius=1e3), 0.0)
    assert np.all(np.abs(derivative(at, to) @ (at - to) - mean) < error)
    # The slope where the score is taken, in place of that over the way, would be far off.
    assert np.any(np.abs(derivative(at, at) @ (at - to) - mean) > error)


def test_classes_have_the_derivative_of_their_own_points():
    """Against differences of the score of the points, to the square of their size."""
    classes, d, h = 4, 3, 1e-4
    model = ClassDerivative(design(d, count=POINTS[1]), classes)
    Q, a = model.contrasts, model.points

    def score(theta, truth):
        p, q = (softmax(a @ (Q @ x.reshape(classes - 1, d + 1)).T, axis=1) for x in (theta, truth))
        t, m = class_weights(p)
        mean = np.sum(q * t, axis=1, keepdims=True) * m - q * t  # over the labels
        gap = mean @ Q
        return np.einsum("ik,ij,i->kj", gap, a, model.weights).ravel()

    rng = np.random.default_rng(6)
    theta = rng.normal(size=(classes - 1) * (d + 1))
    B = model(theta, theta)
    np.testing.assert_allclose(B, B.T, atol=1e-12)
    for j in range(len(theta)):
        shift = h * np.eye(len(theta))[j]
        slope = (score(theta, theta - shift) - score(theta, theta + shift)) / (2.0 * h)
        np.testing.assert_allclose(B[:, j], slope, atol=1e-6)


def test_contrasts_are_orthonormal_and_blind_to_what_classes_share():
    Q = contrasts(5)
    np.testing.assert_allclose(Q.T @ Q, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(Q.sum(axis=0), 0.0, atol=1e-12)


def test_columns_are_rescaled_to_what_was_found_and_not_to_noise():
    D = design(3, factor=0.25)
    points = stand_ins(D, POINTS[0])
    np.testing.assert_allclose(rescaling(D, points), np.diag([1.0, 0.5, 0.5, 0.5]))
    assert D.moments is not None
    noisy = replace(D, moments=D.moments._replace(sd=10.0))
    np.testing.assert_allclose(rescaling(noisy, points), np.eye(4))


# What it is for.


def test_steps_are_more_with_a_larger_budget():
    assert [logistic.step_count(ratio) for ratio in (1e-4, 0.003, 0.004, 0.03, 0.031, 0.1)] == [9, 9, 6, 6, 5, 5]


@pytest.mark.parametrize("kind", ["normal", "log-normal"])
def test_excess_loss_is_at_most_that_of_two_free_fits(kind):
    """n = 10,000, d = 10, epsilon = 1, the mean of 24 tables: 1.45 and 1.70 times were found, +- .13."""
    found, free = [], []
    for seed in range(24):
        rng = np.random.default_rng([7, seed])
        w = rng.normal(size=10)
        w *= 2.0 / np.linalg.norm(w)
        X = rng.normal(size=(30_000, 10))
        if kind == "log-normal":
            X = (np.exp(X) - math.exp(0.5)) / math.sqrt(math.e * (math.e - 1.0))
        truth = X @ w - 0.5
        y = (rng.random(len(X)) < expit(truth)).astype(int)

        def excess(model, X=X[10_000:], truth=truth[10_000:]):
            z = model.decision_function(X)
            return np.mean(expit(truth) * (truth - z) - np.logaddexp(0.0, truth) + np.logaddexp(0.0, z))

        private = tg.PrivateLogisticRegression(1.0, random_state=seed)
        found.append(excess(private.fit(X[:10_000], y[:10_000])))
        free.append(excess(LogisticRegression(C=1e6, max_iter=1000).fit(X[:10_000], y[:10_000])))
    assert np.mean(found) < (2.0 if kind == "normal" else 2.3) * np.mean(free)


def test_the_derivative_is_never_asked_for():
    X = np.random.default_rng(8).normal(size=(5000, 3))
    for classes in (2, 3):
        y = np.digitize(X[:, 0], np.quantile(X[:, 0], np.arange(1, classes) / classes))
        report = str(tg.PrivateLogisticRegression(1.0, random_state=0).fit(X, y).privacy_)
        assert "correlations" in report
        assert "curvature" not in report
