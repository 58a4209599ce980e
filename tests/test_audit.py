"""Empirical audits: on worst-case neighbours, the 99 % lower bound on epsilon stays below the claim.

Every audit has a power half: the same mechanism with a fraction of its noise is caught. The centre of attention and the
block median are audited beside their own tests.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

from auditing import epsilon_lower_bound
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import RowValues
from tailguard.means.gaussian import GaussianMean
from tailguard.means.trimmed import TrimmedMean
from tailguard.privacy import Budget, SeededNoise, gaussian_mu
from tailguard.privacy.arsinh_normal import (
    ArsinhParameters,
    arsinh_parameters,
    exact_normals,
    release,
    release_grid,
)
from tailguard.sampling import FullBatch
from tailguard.truncation import CoordinateClip, L2Clip, Smoothed

EPSILON, DELTA, RUNS, N = 1.0, 1e-6, 8000, 60
BUDGET = Budget(EPSILON, DELTA)


def outputs(mean, rows, stream):
    """Releases of one table, with noise of its own in each run."""
    engine = InMemory(np.asarray(rows, dtype=float)[:, None], threads=1)
    noise = SeededNoise(stream)
    return np.array([mean.release(engine, RowValues(), FullBatch(), noise.at(k))[0, 0] for k in range(RUNS)])


def audited(mean, pair):
    return epsilon_lower_bound(*(outputs(mean, rows, stream) for stream, rows in enumerate(pair)), DELTA)


# The largest change that a truncated sum can see: one end of the range against the other.
SUM_PAIR = [np.append(np.zeros(N - 1), -np.inf), np.append(np.zeros(N - 1), 1e308)]


@pytest.mark.parametrize("truncation", [L2Clip(1.0), CoordinateClip(1.0), Smoothed(1.0, 3.0)], ids=repr)
def test_truncated_gaussian_means(truncation):
    multiplier = 1.0 / gaussian_mu(BUDGET, 1, 1)
    assert audited(GaussianMean(truncation, multiplier), SUM_PAIR) < EPSILON
    assert audited(GaussianMean(truncation, multiplier / 8.0), SUM_PAIR) > EPSILON


M = 12
TRIMMED_PAIRS = {
    "a far value among zeros": [np.zeros(N), np.append(np.zeros(N - 1), 1e9)],
    "one more far value than is trimmed": [
        np.repeat([0.0, 1e9], [N - M, M]),
        np.repeat([0.0, 1e9], [N - M - 1, M + 1]),
    ],
    "spread that grows": [
        np.repeat([-1.0, 0.0, 1.0], [M, N - 2 * M, M]),
        np.repeat([-1.0, 0.0, 1.0], [M - 1, N - 2 * M, M + 1]),
    ],
    "not a number": [np.zeros(N), np.append(np.zeros(N - 1), np.inf)],
}


@pytest.mark.parametrize("name", TRIMMED_PAIRS)
def test_trimmed_mean(name):
    parameters = arsinh_parameters(BUDGET.rho, M, N - 2 * M, 2.0, 1.0)
    assert audited(TrimmedMean(-1.0, 1.0, M, parameters), TRIMMED_PAIRS[name]) < EPSILON


def test_a_trimmed_mean_with_a_tenth_of_its_noise_is_caught():
    p = arsinh_parameters(BUDGET.rho, M, N - 2 * M, 2.0, 1.0)
    loud = ArsinhParameters(p.epsilon, p.t, 10.0 * p.s, p.sigma, p.lipschitz)
    bounds = [audited(TrimmedMean(-1.0, 1.0, M, loud), pair) for pair in TRIMMED_PAIRS.values()]
    assert max(bounds) > EPSILON


def test_an_output_at_a_large_noise_scale_does_not_tell_the_scale():
    """Where S is 2^40 times its floor, few outputs can be written as those of a normal of 50 bits.

    If all could, "this output belongs to f(D) and S(D)" would be an event of probability 1 under D and small under D'.
    """
    m, width = 100, 2e9
    parameters = arsinh_parameters(1.0, m, 1800, width, 1e-6)
    grid = release_grid(parameters, m, width)
    assert width / (parameters.s * grid) > 2.0**50, "the scale must be one that floats cannot fill"

    def told(normal):
        nearest = Decimal(int((normal * 2**50).to_integral_value())) / 2**50
        return release(0.0, width, parameters, normal, grid) == release(0.0, width, parameters, nearest, grid)

    fine = exact_normals(SeededNoise(0), 500)
    coarse = [Decimal(k) / 2**50 for k in SeededNoise(1).discrete_gaussian(2.0**50, 500).tolist()]
    assert np.mean([told(y) for y in fine]) < 0.5
    assert all(told(y) for y in coarse)
