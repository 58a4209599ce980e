"""The law of losses dominates the true pair, and is the one that a public accountant builds."""

import math
from itertools import pairwise

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats
from scipy.optimize import brentq

from tailguard.privacy.loss_distribution import delta_adding, delta_removing, one_release

PAIRS = [(0.0001, 0.6), (0.01, 1.5), (0.3, 5.0), (0.9, 0.4), (1.0, 2.0)]
POINTS = np.array([-2.0, -0.3, -0.01, 0.0, 0.003, 0.05, 0.4, 2.0, 6.0])


def integrated(rate, z, epsilon, swapped):
    """δ(ε) = ∫ (p − e^ε q)₊ by Gauss and Legendre, on either side of where the integrand changes its sign."""

    def surplus(x):
        there, absent = stats.norm.pdf(x, 1.0, z), stats.norm.pdf(x, 0.0, z)
        mixed = (1.0 - rate) * absent + rate * there
        p, q = (absent, mixed) if swapped else (mixed, absent)
        return p - math.exp(epsilon) * q

    # The likelihood ratio is monotone, so there is one such place at most.
    ends = [-12.0 * z, 1.0 + 12.0 * z]
    if surplus(ends[0]) * surplus(ends[1]) < 0.0:
        ends.insert(1, brentq(surplus, *ends, xtol=1e-15))
    nodes, weights = np.polynomial.legendre.leggauss(40)
    total = 0.0
    for low, high in pairwise(ends):
        edges = np.linspace(low, high, 33)
        half = np.diff(edges)[:, None] / 2.0
        piece = np.sum(half * weights * surplus(edges[:-1, None] + half * (1.0 + nodes)))
        total += max(0.0, float(piece))
    return total


@pytest.mark.parametrize(("rate", "z"), PAIRS)
def test_curves_are_those_of_the_pair(rate, z):
    """To 1e-13, of which quadrature loses the most."""
    for epsilon in POINTS:
        removed = float(delta_removing(np.array([epsilon]), rate, z)[0])
        assert removed == pytest.approx(integrated(rate, z, epsilon, False), abs=1e-13)
        if rate < 1.0:
            added = float(delta_adding(np.array([epsilon]), rate, z)[0])
            assert added == pytest.approx(integrated(rate, z, epsilon, True), abs=1e-13)


def test_the_two_directions_are_not_each_other():
    """Power: the curves that were swapped would be noticed."""
    assert abs(integrated(0.01, 1.5, 0.003, False) - integrated(0.01, 1.5, 0.003, True)) > 1e-4


@pytest.mark.parametrize("grid", [1e-3, 0.05])
@pytest.mark.parametrize(("rate", "z"), PAIRS)
def test_one_release_is_dominated_everywhere_and_met_on_the_grid(rate, z, grid):
    for law, curve in zip(one_release(rate, z, grid), (delta_removing, delta_adding), strict=True):
        if rate == 1.0:
            curve = delta_removing
        assert math.fsum(law.masses) + law.infinite == pytest.approx(1.0, abs=1e-9)
        assert np.all(law.masses >= 0.0)
        inside = grid * (law.lowest + np.linspace(1, len(law.masses) - 2, 400))
        true = np.clip(curve(inside, rate, z), 0.0, 1.0)
        found = np.array([law.delta(epsilon) for epsilon in inside])
        # Second differences of a curve of 1e-16 are divided by the grid.
        rounding = 4e-16 / grid
        assert np.all(found >= true - rounding)
        dots = grid * (law.lowest + np.arange(1, len(law.masses) - 1, 7))
        assert [law.delta(dot) for dot in dots] == pytest.approx(curve(dots, rate, z), abs=1e-8)
        # Power: half a step to the left the law would not dominate.
        shifted = np.array([law.delta(epsilon + 0.5 * grid) for epsilon in inside])
        assert np.any(shifted < true - rounding)


@pytest.mark.parametrize(
    ("rate", "z", "count", "grid"),
    [(0.05, 3.2, 200, 1e-4), (0.0001, 0.6, 100_000, 6e-4), (0.3, 5.0, 7, 1e-3), (1.0, 9.0, 30, 1e-3)],
)
def test_the_composition_is_that_of_a_public_accountant(rate, z, count, grid):
    """To what the FFT of this many releases rounds: 1e-15 each, in δ."""
    theirs = pld.from_gaussian_mechanism(z, sampling_prob=rate, value_discretization_interval=grid).self_compose(count)
    ours = [one.times(count) for one in one_release(rate, z, grid)]
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        delta = float(theirs.get_delta_for_epsilon(epsilon))
        assert max(one.delta(epsilon) for one in ours) == pytest.approx(delta, rel=1e-6, abs=1e-15 * max(count, 100))


def test_two_kinds_of_releases_add_up():
    first, second = one_release(0.1, 2.0, 1e-3)[0].times(20), one_release(1.0, 8.0, 1e-3)[0]
    theirs = (
        pld.from_gaussian_mechanism(2.0, sampling_prob=0.1, value_discretization_interval=1e-3)
        .self_compose(20)
        .compose(pld.from_gaussian_mechanism(8.0, value_discretization_interval=1e-3))
    )
    both = first.plus(second)
    for epsilon in (0.1, 0.7, 1.5):
        assert both.delta(epsilon) == pytest.approx(float(theirs.get_delta_for_epsilon(epsilon)), rel=1e-5, abs=1e-13)


def test_losses_of_any_size_are_summed_without_overflow():
    """A loss of minus a thousand has e^{-loss} beyond all floats."""
    law = one_release(1.0, 0.02, 0.5)[0]
    assert law.lowest * law.grid < -1000.0
    assert law.delta(-2000.0) == 1.0
    assert np.all(np.isfinite([part.delta(3.0) for part in one_release(0.01, 0.02, 0.5)]))
    assert law.delta(law.lowest * law.grid - 1.0) == pytest.approx(1.0)
    assert 0.0 <= law.delta(5000.0) <= 1e-15
