"""Every sampler: a public divisor, rows drawn as the accounting says, and the event that prices them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from tailguard.privacy import (
    Budget,
    Gaussian,
    PoissonGaussian,
    SeededNoise,
    SystemNoise,
    epsilon_of,
    exact_rate,
    gdp_epsilon,
)
from tailguard.sampling import FullBatch, PoissonSample

BUDGET = Budget(1.0, 1e-6)
SAMPLERS = {
    "full batch, replace-one": FullBatch(),
    "full batch, add-remove": FullBatch("add-remove"),
    "Poisson, add-remove": PoissonSample(exact_rate(0.1)),
    "Poisson, replace-one": PoissonSample(exact_rate(0.1), "replace-one"),
    "Poisson of all rows": PoissonSample(1.0),
}
every_sampler = pytest.mark.parametrize("name", SAMPLERS)


@every_sampler
def test_the_divisor_is_public_whatever_was_drawn(name):
    """It is a function of n alone: a realised batch size would say who is there."""
    sampler = SAMPLERS[name]
    rate = getattr(sampler, "rate", 1.0)
    before = sampler.divisor(1000)
    for seed in range(20):
        sampler.rows(1000, SeededNoise(seed))
        assert sampler.divisor(1000) == before == rate * 1000


@every_sampler
def test_rows_are_distinct_indices_of_the_table(name):
    rows = SAMPLERS[name].rows(500, SeededNoise(0))
    if isinstance(SAMPLERS[name], FullBatch):
        assert rows is None
        return
    assert rows.dtype == np.int64
    assert np.all(np.diff(rows) > 0)
    assert np.all((rows >= 0) & (rows < 500))


@every_sampler
def test_calibrated_noise_keeps_the_budget_and_a_little_less_does_not(name):
    sampler = SAMPLERS[name]
    z = sampler.calibrate(BUDGET, 10, 50)
    event = sampler.event(z, 10, 50, "steps")
    assert BUDGET.allows([event], sampler.relation)
    assert event.label == "steps"
    assert event.releases == 10
    assert event.draws == 50
    assert not BUDGET.allows([sampler.event(0.99 * z, 10, 50, "steps")], sampler.relation)


def test_a_full_batch_is_a_gaussian_under_its_own_relation():
    for relation in ("replace-one", "add-remove"):
        sampler = FullBatch(relation)
        assert sampler.sensitivity_relation == relation
        assert sampler.event(4.0, 3, 12, "x") == Gaussian(0.25, 3, 12, relation=relation, label="x")
    one = epsilon_of([FullBatch().event(4.0, 3, 0, "")], 1e-6)
    assert one == pytest.approx(gdp_epsilon(math.sqrt(3) / 4.0, 1e-6), rel=1e-12)


def test_a_poisson_sample_is_priced_under_add_remove_whatever_is_promised():
    for relation in ("add-remove", "replace-one"):
        sampler = PoissonSample(0.25, relation)
        assert sampler.sensitivity_relation == "add-remove"
        assert sampler.event(2.0, 3, 12, "x") == PoissonGaussian(0.25, 2.0, 3, 12, label="x")
        assert sampler.relation == relation


def test_sampling_amplifies_and_replace_one_costs_a_sample_more_than_add_remove():
    sampled, replaced, everyone = (
        SAMPLERS[name].calibrate(BUDGET, 10, 50)
        for name in ("Poisson, add-remove", "Poisson, replace-one", "Poisson of all rows")
    )
    assert sampled < 0.5 * everyone
    assert 1.5 * sampled < replaced < 3.0 * sampled
    assert everyone == pytest.approx(FullBatch("add-remove").calibrate(BUDGET, 10, 50), rel=1e-6)


def rate_is_accepted(count: int, trials: int, rate: float) -> bool:
    """Two-sided binomial test: a sampler of that rate fails it with probability at most 1e-9."""
    return binom.cdf(count, trials, rate) > 5e-10 and binom.sf(count - 1, trials, rate) > 5e-10


@pytest.mark.parametrize("noise", [SystemNoise(), SeededNoise(0)], ids=["system", "seeded"])
@pytest.mark.parametrize("rate", [exact_rate(0.03), 0.25, exact_rate(0.7)])
def test_each_row_is_in_a_batch_with_its_rate_and_no_other(noise, rate):
    """p = 1e-9; power: two thirds and three halves of the rate are refused."""
    n, draws = 2000, 20
    samples = [PoissonSample(rate).rows(n, noise.at(t)) for t in range(draws)]
    count = sum(map(len, samples))
    assert rate_is_accepted(count, n * draws, rate)
    assert not rate_is_accepted(count, n * draws, rate * 2 / 3)
    assert not rate_is_accepted(count, n * draws, min(0.999, rate * 3 / 2))
    # Independently: batches overlap as often as two coins fall together, and sizes vary (they are not fixed).
    both = sum(len(np.intersect1d(a, b)) for a, b in zip(samples[::2], samples[1::2], strict=True))
    assert rate_is_accepted(both, n * draws // 2, rate**2)
    assert len({len(sample) for sample in samples}) > 3
    halves = sum(int(np.sum(sample < n // 2)) for sample in samples)
    assert rate_is_accepted(halves, n * draws // 2, rate)


def test_other_steps_draw_other_rows():
    sampler, noise = PoissonSample(0.25), SeededNoise(3)
    assert not np.array_equal(sampler.rows(400, noise.at(1)), sampler.rows(400, noise.at(2)))
    np.testing.assert_array_equal(sampler.rows(400, noise.at(1)), sampler.rows(400, noise.at(1)))
