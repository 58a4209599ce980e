"""Noise has the distribution that was paid for, and a private source has no memory.

Every statistical test has two halves: it accepts the right scale and rejects 2/3 and 3/2 of it.
Seeded sources run on fixed seeds; the private source cannot, so its thresholds have a p-value
of 1e-9 or less.
"""

import math
import multiprocessing
import os
import pickle

import numpy as np
import pytest
from scipy import stats

from tailguard.privacy import (
    MAX_GRID_SCALE,
    MIN_GRID_SCALE,
    NoiseSource,
    SeededNoise,
    SystemNoise,
    exact_rate,
    noise_source,
)

SOURCES = [SystemNoise(), SeededNoise(20)]
SIZE = 4000
# Two-sided; a false alarm once in 1e9 runs of one test.
P_VALUE = 1e-9

pytestmark = pytest.mark.parametrize("source", SOURCES, ids=repr)


def gaussian_p_value(draws, scale):
    """Kolmogorov-Smirnov and chi-square of the variance, the smaller with Bonferroni's factor 2."""
    z = np.asarray(draws, dtype=float) / scale
    shape = stats.kstest(z, "norm").pvalue
    square = stats.chi2(len(z))
    spread = 2 * min(square.cdf(np.sum(z**2)), square.sf(np.sum(z**2)))
    return 2 * min(shape, spread)


@pytest.mark.parametrize("scale", [MIN_GRID_SCALE, 2.0**40 / 3, MAX_GRID_SCALE])
def test_discrete_gaussian_has_its_scale_and_no_other(source, scale):
    draws = source.discrete_gaussian(scale, SIZE)
    assert draws.dtype == np.int64
    assert draws.shape == (SIZE,)
    assert gaussian_p_value(draws, scale) > P_VALUE
    assert gaussian_p_value(draws, scale * 2 / 3) < P_VALUE
    assert gaussian_p_value(draws, scale * 3 / 2) < P_VALUE


def test_discrete_gaussian_uses_the_low_bits(source):
    # Parity of the draws: fair to 6 standard deviations (p = 2e-9), so not on a coarser grid.
    parity = source.discrete_gaussian(2.0**30, SIZE) % 2
    assert abs(parity.sum() - SIZE / 2) < 6 * math.sqrt(SIZE) / 2


def test_coordinates_are_independent(source):
    draws = source.discrete_gaussian(2.0**30, SIZE).astype(float)
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 6 / math.sqrt(SIZE)  # p = 2e-9


def test_standard_normals_have_unit_scale_and_no_other(source):
    draws = source.normal(SIZE)
    assert gaussian_p_value(draws, 1.0) > P_VALUE
    assert gaussian_p_value(draws, 2 / 3) < P_VALUE
    assert gaussian_p_value(draws, 3 / 2) < P_VALUE


def test_uniforms_are_uniform_on_a_grid(source):
    draws = source.uniform(SIZE)
    assert stats.kstest(draws, "uniform").pvalue > P_VALUE
    assert stats.kstest(draws * 2 / 3, "uniform").pvalue < P_VALUE
    assert np.all((draws >= 0) & (draws < 1))
    assert np.all(draws * 2.0**53 == np.floor(draws * 2.0**53))
    assert 0.0 <= source.uniform53() < 1.0


def binomial_p_value(count, n, rate):
    return stats.binomtest(count, n, rate).pvalue


@pytest.mark.parametrize("rate", [2.0**-6, 0.5, exact_rate(0.9)])
def test_a_poisson_sample_has_its_rate_and_no_other(source, rate):
    n = 50_000
    rows = source.bernoulli(n, rate)
    assert rows.dtype == np.int64
    assert np.all(np.diff(rows) > 0)
    assert rows.min() >= 0
    assert rows.max() < n
    assert binomial_p_value(len(rows), n, rate) > P_VALUE
    assert binomial_p_value(len(rows), n, rate * 2 / 3) < P_VALUE
    assert binomial_p_value(len(rows), n, min(1 - 1e-3, rate * 3 / 2)) < P_VALUE


def test_the_ends_of_the_rate(source):
    assert np.array_equal(source.bernoulli(5, 1.0), np.arange(5))
    assert len(source.bernoulli(0, 0.5)) == 0
    assert len(source.bernoulli(1000, exact_rate(1e-300))) <= 1  # 2^-32 each


def test_permutations_are_permutations(source):
    order = source.permutation(50)
    assert np.array_equal(np.sort(order), np.arange(50))
    assert not np.array_equal(order, source.permutation(50))


def test_empty_draws(source):
    for draws in (source.discrete_gaussian(2.0**30, 0), source.uniform(0), source.normal(0)):
        assert draws.shape == (0,)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.discrete_gaussian(2.0**20 - 1, 1), r"scale.*2\*\*20.*finer"),
        (lambda s: s.discrete_gaussian(2.0**56, 1), r"scale.*2\*\*55.*coarser"),
        (lambda s: s.discrete_gaussian(math.inf, 1), "scale"),
        (lambda s: s.discrete_gaussian(2.0**30, -1), "size"),
        (lambda s: s.bernoulli(10, 0.1), "rate.*exact_rate"),
        (lambda s: s.bernoulli(10, 0.0), "rate"),
        (lambda s: s.bernoulli(-1, 0.5), "n must"),
        (lambda s: s.at(-1), "step"),
    ],
)
def test_refusals_name_the_argument(source, call, words):
    with pytest.raises(ValueError, match=words):
        call(source)


def test_every_source_keeps_the_protocol(source):
    assert isinstance(source, NoiseSource)
    assert isinstance(source.at(3), NoiseSource)
    assert noise_source(source) is source
    assert source.private == (source.seed is None)


def _draw(queue, source):
    queue.put((source.discrete_gaussian(2.0**40, 3).tolist(), source.uniform(3).tolist()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_processes_never_share_a_private_stream(source):
    source.discrete_gaussian(2.0**40, 3)  # whatever state there is exists before the fork
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=_draw, args=(queue, source)) for _ in range(2)]
    for process in processes:
        process.start()
    drawn = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    here = (source.discrete_gaussian(2.0**40, 3).tolist(), source.uniform(3).tolist())
    integers = [value for integers, _ in [*drawn, here] for value in integers]
    floats = [value for _, floats in [*drawn, here] for value in floats]
    if source.private:
        # A collision among 9 draws on 2^40 points or more: p < 1e-10.
        assert len(set(integers)) == 9
        assert len(set(floats)) == 9
    else:
        assert drawn[0] == drawn[1]


def test_pickles(source):
    again = pickle.loads(pickle.dumps(source))
    assert type(again) is type(source)
    if source.private:
        assert not getattr(again, "__dict__", {})
        assert again == source
        assert again.uniform53() != source.uniform53()  # p = 2^-53
    else:
        assert np.array_equal(again.uniform(5), source.uniform(5))
