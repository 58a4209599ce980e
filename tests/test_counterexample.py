"""The counter-example to the printed Algorithm 2, on the means themselves: the printed one fails it, ours passes.

n = 1000, m = 50, [a, b] = [-1, 1], eps = 0.1 (eps^2/2-zCDP). D is all zeros; D' has one entry of 1e9. The printed noise
scale max{(x_(n) - x_(1))/(n - 2m), e^{-mt}(b - a)} grows with that entry, so the event |out| <= 91.12 has probability
0.683 under D and 1.6e-6 under D'. A smooth bound may not change by more than a factor e^t.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta

from tailguard.algorithms import algorithm2
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import RowValues
from tailguard.means.trimmed import TrimmedMean
from tailguard.privacy import SeededNoise, SystemNoise, zcdp_epsilon
from tailguard.privacy.arsinh_normal import arsinh_parameters, printed_parameters
from tailguard.sampling import FullBatch

N, M, EPSILON, DELTA = 1000, 50, 0.1, 1e-5
RUNS = 600  # columns of one table are as many independent runs
CLAIM = zcdp_epsilon(EPSILON**2 / 2, DELTA)
D = np.zeros((N, RUNS))
NEIGHBOUR = D.copy()
NEIGHBOUR[-1] = 1e9
MEANS = {
    "printed": TrimmedMean(-1.0, 1.0, M, printed_parameters(EPSILON), printed=True),
    "paper's parameters, valid scale": TrimmedMean(-1.0, 1.0, M, printed_parameters(EPSILON)),
    "ours": TrimmedMean(-1.0, 1.0, M, arsinh_parameters(EPSILON**2 / 2, M, N - 2 * M, 2.0, 1.0)),
}


def runs(mean: TrimmedMean, table: np.ndarray, noise) -> np.ndarray:
    return mean.release(InMemory(table), RowValues(), FullBatch(), noise)[0]


def refutes(here: int, there: int) -> bool:
    """Whether P(event | D) <= e^eps P(event | D') + delta is refuted, with probability 1e-9 of being wrong.

    Clopper-Pearson bounds at 5e-10 each: from below for D, from above for D'.
    """
    low = beta.ppf(5e-10, here, RUNS - here + 1) if here else 0.0
    high = beta.isf(5e-10, there + 1, RUNS - there) if there < RUNS else 1.0
    return bool(low > math.exp(CLAIM) * high + DELTA)


@pytest.fixture(scope="module")
def outputs():
    noise = SystemNoise()
    return {name: (runs(mean, D, noise), runs(mean, NEIGHBOUR, noise)) for name, mean in MEANS.items()}


def test_the_printed_mechanism_is_refuted(outputs):
    under, other = (np.sum(np.abs(out) <= 91.12) for out in outputs["printed"])
    assert refutes(int(under), int(other))
    assert under / RUNS == pytest.approx(0.683, abs=0.12)  # six sd
    assert other <= 1


@pytest.mark.parametrize("name", [name for name in MEANS if name != "printed"])
def test_the_shipped_mechanism_is_not(name, outputs):
    """Over many thresholds, events |out| <= c and |out| > c, in both directions."""
    under, other = outputs[name]
    for threshold in [91.12, *np.quantile(np.abs(np.concatenate([under, other])), np.linspace(0.02, 0.98, 25))]:
        here, there = int(np.sum(np.abs(under) <= threshold)), int(np.sum(np.abs(other) <= threshold))
        assert not refutes(here, there)
        assert not refutes(there, here)
        assert not refutes(RUNS - here, RUNS - there)
        assert not refutes(RUNS - there, RUNS - here)


@pytest.mark.parametrize("name", [name for name in MEANS if name != "printed"])
def test_with_the_same_noise_the_shipped_scales_differ_by_at_most_e_to_the_t(name):
    """On zeros the output is the noise alone, so outputs with equal noise have the ratio of their scales."""
    mean = MEANS[name]
    under, other = (runs(mean, table[:, :50], SeededNoise(0)) for table in (D, NEIGHBOUR))
    ratio = np.log(np.abs(other / under))
    assert np.max(np.abs(ratio)) <= mean.parameters.t + 1e-2  # both are rounded to the public grid


def test_with_the_same_noise_the_printed_scale_grows_a_hundred_thousand_times():
    under, other = (runs(MEANS["printed"], table[:, :50], SeededNoise(0)) for table in (D, NEIGHBOUR))
    assert np.median(np.abs(other / under)) > 1e5


def test_a_user_gets_the_shipped_one_unless_the_printed_one_is_named():
    x = NEIGHBOUR[:, 0]
    assert algorithm2(x, rho=EPSILON**2 / 2, a=-1.0, b=1.0, m=M).privacy.private
    printed = algorithm2(x, epsilon=1.0, a=-1.0, b=1.0, m=M, setting="printed").privacy
    assert not printed.private
    assert printed.epsilon == math.inf
