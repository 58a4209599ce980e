"""Newton steps know the privacy noise in them, also where the curvature that they use is not the true one."""

from __future__ import annotations

import numpy as np
import pytest

from tailguard.default.newton import DAMPING, LIMIT, Averaged, Curvature, Iterate

P, STEPS, SKIPPED = 4, 8, 2


def curvature(found, used, floored=None, seed=0):
    """A curvature in directions of its own."""
    directions = np.linalg.qr(np.random.default_rng(seed).standard_normal((P, P)))[0]
    floored = np.zeros(P) if floored is None else np.asarray(floored)
    return Curvature(directions, np.asarray(used), np.asarray(found), floored)


def averaged(curved, solution, sd, rng):
    """The average of steps on a quadratic whose curvature is the one found."""
    true = (curved.directions * curved.found) @ curved.directions.T
    at, average = Iterate.start(P), Averaged.empty(P)
    for t in range(STEPS):
        gradient = true @ (at.theta - solution) + sd * rng.standard_normal(P)
        at = at.step(curved, gradient, sd)
        if t >= SKIPPED:
            average.add(at, sd**2)
    return average


@pytest.mark.parametrize("floored", [None, [0.0, 0.0, 0.05, 0.1]], ids=["no floor", "floor"])
def test_the_stated_covariance_is_that_of_the_noise(floored):
    curved = curvature(found=[1.0, 0.5, 0.2, 0.02], used=[1.0, 0.6, 0.5, 0.5], floored=floored)
    rng, sd = np.random.default_rng(1), 0.01
    runs = [averaged(curved, np.full(P, 0.3), sd, rng).iterate for _ in range(4000)]
    stated = curved.covariance(runs[0].noise, 0.0)
    found = np.cov(np.array([run.theta for run in runs]).T)
    # In its own directions: the variance of 4000 runs is known to 2.2 %.
    V = curved.directions
    np.testing.assert_allclose(np.diag(V.T @ found @ V), np.diag(V.T @ stated @ V), rtol=0.1)
    np.testing.assert_allclose(V.T @ stated @ V, np.diag(np.diag(V.T @ stated @ V)), atol=1e-12)


def test_where_little_curvature_is_felt_the_average_has_more_noise_than_independent_iterates():
    curved = curvature(found=[0.5, 0.5, 0.5, 0.05], used=[0.5, 0.5, 0.5, 0.5])
    average = averaged(curved, np.zeros(P), 1e-3, np.random.default_rng(2))
    variances = np.sum(average.iterate.noise**2, axis=0)
    independent = average.variance / curved.used**2
    assert np.all(variances[:3] < 1.3 * independent[:3])
    assert variances[3] > 10.0 * independent[3]


def test_steps_converge_and_a_floor_is_a_ridge_penalty():
    curved = curvature(found=[1.0, 0.8, 0.6, 0.1], used=[1.0, 0.8, 0.6, 0.3], floored=[0.0, 0.0, 0.0, 0.2])
    solution, at = np.array([0.4, -0.3, 0.2, 0.5]), Iterate.start(P)
    true = (curved.directions * curved.found) @ curved.directions.T
    for _ in range(40):
        at = at.step(curved, true @ (at.theta - solution), 0.0)
    along = curved.directions.T @ solution
    expected = curved.directions @ (curved.found / (curved.found + curved.floored) * along)
    np.testing.assert_allclose(at.theta, expected, atol=1e-9)


def test_coefficients_stay_in_a_ball_whatever_the_gradient():
    at = Iterate.start(P).step(curvature(np.ones(P), np.ones(P)), np.full(P, 1e12), 1.0)
    assert np.linalg.norm(at.theta) == pytest.approx(LIMIT)


def test_sampling_noise_is_that_of_the_curvature_that_was_found():
    curved = curvature(found=[1.0, 0.5, 0.25, 0.1], used=np.ones(P))
    covariance = curved.covariance(np.zeros((0, P)), 0.3)
    np.testing.assert_allclose(
        covariance @ ((curved.directions * curved.found) @ curved.directions.T), 0.3 * np.eye(P), atol=1e-12
    )


def test_what_is_used_has_an_inverse_and_a_flat_one_has_no_directions():
    curved = curvature(found=[1.0, 0.5, 0.25, 0.1], used=[1.0, 0.6, 0.5, 0.4])
    np.testing.assert_allclose(curved.matrix @ curved.inverse, np.eye(P), atol=1e-12)
    flat = Curvature.flat(P, 0.6)
    np.testing.assert_array_equal(flat.matrix, 0.6 * np.eye(P))
    np.testing.assert_array_equal(flat.penalty, np.zeros((P, P)))
    once = Iterate.start(P).step(flat, np.ones(P), 0.5)
    np.testing.assert_allclose(once.noise, np.full((1, P), DAMPING * 0.5 / 0.6))


def test_a_calm_curvature_takes_smaller_steps_only_where_there_is_little_of_it():
    curved = curvature(found=[1.0, 0.9, 0.5, 0.05], used=[1.0, 0.9, 0.5, 0.2])
    calm = curved.calm(0.5)
    np.testing.assert_allclose(calm.used, [1.0, 0.9, 0.5, 0.325])
    np.testing.assert_array_equal(calm.found, curved.found)
    np.testing.assert_array_equal(calm.directions, curved.directions)
