"""Every constraint set: its projection is the nearest point of the set, and its diameter is right."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailguard import constraints as C

D = 5
CENTER = np.array([3.0, -1.0, 0.0, 2.0, 0.5])
SETS = {
    "Unconstrained": C.Unconstrained(),
    "L2Ball": C.L2Ball(2.0),
    "L2Ball with a centre": C.L2Ball(0.7, CENTER),
    "L2Ball with one number as its centre": C.L2Ball(0.7, 4.0),
    "Box": C.Box(-1.0, 2.0),
    "Box with sides": C.Box(CENTER - 1.0, CENTER + np.arange(5.0)),
    "Simplex": C.Simplex(),
    "Simplex with a total": C.Simplex(7.5),
}
BOUNDED = [name for name in SETS if name != "Unconstrained"]
every_set = pytest.mark.parametrize("name", SETS)
every_bounded_set = pytest.mark.parametrize("name", BOUNDED)
POINTS = st.lists(st.floats(-1e6, 1e6), min_size=D, max_size=D).map(np.array)
# Iterates may be as large as the loop lets them be, and block answers as large as floats are.
FAR_POINTS = st.lists(st.floats(-1e150, 1e150) | st.sampled_from([0.0, 1e17, -1e30, 1e150]), min_size=D, max_size=D)


def test_every_set_of_the_package_is_here():
    kinds = {kind.__name__ for kind in C.Constraint.__subclasses__()}
    assert kinds == {type(constraint).__name__ for constraint in SETS.values()}


def inside(constraint: C.Constraint, v: np.ndarray, slack: float) -> bool:
    """Membership, written apart from the projections."""
    if isinstance(constraint, C.L2Ball):
        return bool(np.linalg.norm(v - np.asarray(constraint.center)) <= constraint.radius + slack)
    if isinstance(constraint, C.Box):
        return bool(np.all(v >= np.asarray(constraint.lo)) and np.all(v <= np.asarray(constraint.hi)))
    if isinstance(constraint, C.Simplex):
        return bool(np.all(v >= 0.0) and abs(v.sum() - constraint.total) <= slack)
    return True


def random_points(name: str, rng: np.random.Generator, count: int) -> np.ndarray:
    """Points of the set, written apart from the projections; corners and surfaces among them."""
    constraint = SETS[name]
    if isinstance(constraint, C.L2Ball):
        direction = rng.standard_normal((count, D))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        return np.asarray(constraint.center) + constraint.radius * rng.uniform(0, 1, (count, 1)) ** 0.2 * direction
    if isinstance(constraint, C.Box):
        lo, hi = (np.broadcast_to(end, (D,)) for end in (constraint.lo, constraint.hi))
        return np.where(rng.random((count, D)) < 0.3, hi, rng.uniform(lo, hi, (count, D)))
    if isinstance(constraint, C.Simplex):
        points = rng.dirichlet(np.full(D, 0.5), count)
        points[:D] = np.eye(D)
        return constraint.total * points
    return 100.0 * rng.standard_normal((count, D))


@every_set
@settings(max_examples=60)
@given(w=POINTS)
def test_the_projection_is_in_the_set_nearest_and_idempotent(name, w):
    constraint = SETS[name]
    before = w.copy()
    v = constraint.project(w)
    rounding = 1e-15 * D * max(1.0, float(np.max(np.abs(w))))
    assert v.shape == w.shape
    assert inside(constraint, v, rounding + 1e-13)
    np.testing.assert_allclose(constraint.project(v), v, rtol=1e-13, atol=1e-13 + rounding)
    others = random_points(name, np.random.default_rng(0), 200)
    distances = np.linalg.norm(others - w, axis=1)
    assert np.linalg.norm(v - w) <= np.min(distances) + rounding + 1e-12
    # The variational inequality: no other point of a convex set is on the near side.
    assert np.max((others - v) @ (w - v)) <= 1e-8 * (1.0 + np.linalg.norm(w - v))
    np.testing.assert_array_equal(w, before)


@every_set
def test_a_point_of_the_set_stays(name):
    for v in random_points(name, np.random.default_rng(1), 30):
        np.testing.assert_allclose(SETS[name].project(v), v, rtol=1e-13, atol=1e-13)


@every_set
@given(w=FAR_POINTS.map(np.array))
def test_far_points_are_projected_without_a_warning(name, w):
    """A released iterate is as large as its noise and its step made it: nothing may stop the loop."""
    v = SETS[name].project(w)
    assert np.all(np.isfinite(v))
    assert inside(SETS[name], v, 1e-13)


@every_bounded_set
def test_the_diameter_is_the_largest_distance_of_two_points(name):
    rng = np.random.default_rng(2)
    constraint = SETS[name]
    points = random_points(name, rng, 300)
    far = [constraint.project(1e6 * corner) for corner in rng.choice([-1.0, 1.0], (200, D))]
    points = np.vstack([points, far])
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert np.max(distances) <= constraint.diameter(D) * (1 + 1e-12)
    assert np.max(distances) >= 0.8 * constraint.diameter(D)


def test_diameters_by_hand():
    assert C.Unconstrained().diameter(3) == math.inf
    assert C.L2Ball(2.0, [1.0, 1.0]).diameter(2) == 4.0
    assert C.Box(0.0, 1.0).diameter(4) == 2.0
    assert C.Box([0.0, 0.0], [3.0, 4.0]).diameter(2) == 5.0
    assert C.Simplex(3.0).diameter(4) == pytest.approx(3.0 * math.sqrt(2.0), rel=1e-15)
    assert C.Simplex(3.0).diameter(1) == 0.0


@every_bounded_set
def test_the_bounds_are_the_smallest_box_around_the_set(name):
    lo, hi = SETS[name].bounds(D)
    points = random_points(name, np.random.default_rng(3), 400)
    assert lo.shape == hi.shape == (D,)
    assert np.all(points >= lo - 1e-12)
    assert np.all(points <= hi + 1e-12)
    for j in range(D):  # each face is touched
        for sign, end in ((1.0, hi), (-1.0, lo)):
            touching = SETS[name].project(np.where(np.arange(D) == j, sign * 1e9, (lo + hi) / 2.0))
            assert touching[j] == pytest.approx(end[j], abs=1e-6)


def test_the_whole_space_has_infinite_bounds_and_no_projection():
    w = np.array([1e300, -2.0])
    assert C.Unconstrained().project(w) is w
    lo, hi = C.Unconstrained().bounds(2)
    assert np.all(np.isneginf(lo))
    assert np.all(np.isposinf(hi))


@pytest.mark.parametrize(
    ("constraint", "argument"),
    [
        (C.L2Ball(1.0, [0.0, 0.0]), "center"),
        (C.Box([0.0, 0.0], 1.0), "lo"),
        (C.Box(0.0, [1.0, 1.0]), "hi"),
        (C.Box([0.0, 0.0], [1.0, 1.0]), "lo"),
    ],
)
def test_the_wrong_dimension_raises_and_names_the_argument(constraint, argument):
    constraint.check(2)
    with pytest.raises(ValueError, match=rf"constraint: {argument} has shape \(2,\) but there are 3 coefficients"):
        constraint.check(3)


@every_set
def test_the_right_dimension_does_not_raise(name):
    SETS[name].check(D)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: C.L2Ball(0.0), ("radius", "0.0")),
        (lambda: C.L2Ball(-1.0), ("radius", "-1.0")),
        (lambda: C.L2Ball(math.nan), ("radius", "nan")),
        (lambda: C.L2Ball("1"), ("radius", "'1'")),
        (lambda: C.L2Ball(1.0, [0.0, math.inf]), ("center", "inf")),
        (lambda: C.L2Ball(1.0, "origin"), ("center", "origin")),
        (lambda: C.L2Ball(1.0, [[0.0]]), ("center", "[[0.0]]")),
        (lambda: C.Box(1.0, 0.0), ("lo", "1.0", "hi", "0.0")),
        (lambda: C.Box([0.0, 0.0], [1.0, 1.0, 1.0]), ("lo", "(2,)", "hi", "(3,)")),
        (lambda: C.Box(0.0, math.inf), ("hi", "inf")),
        (lambda: C.Box(None, 1.0), ("lo", "None")),
        (lambda: C.Simplex(0.0), ("total", "0.0")),
        (lambda: C.Simplex(True), ("total", "True")),
    ],
)
def test_impossible_sets_are_refused_by_name_and_value(call, words):
    with pytest.raises((TypeError, ValueError)) as error:
        call()
    for word in words:
        assert word in str(error.value)
