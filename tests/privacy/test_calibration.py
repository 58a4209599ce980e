"""Calibration returns the least noise that the accountant accepts."""

import math

import pytest

from tailguard.privacy import (
    Budget,
    Gaussian,
    OverBudgetError,
    PoissonGaussian,
    calibration,
    epsilon_of,
    gaussian_mu,
    gdp_mu,
    poisson_noise_multiplier,
    subsampled,
    total_mu,
    zcdp_rho,
)

BUDGETS = [Budget(0.1, 1e-9), Budget(1.0, 1e-6), Budget(10.0, 1e-5), Budget(rho=0.2), Budget(mu=0.5)]


@pytest.mark.parametrize("samples", [0, 10, 10**6])
@pytest.mark.parametrize("releases", [1, 7, 1000])
@pytest.mark.parametrize("budget", BUDGETS, ids=repr)
def test_gaussian_noise_is_accepted_and_a_little_less_is_not(budget, releases, samples):
    mu = gaussian_mu(budget, releases, samples)
    assert budget.allows([Gaussian(mu, releases, samples)])
    assert not budget.allows([Gaussian(mu * (1 + 1e-6), releases, samples)])


def test_it_beats_the_detour_through_zcdp():
    # 1.31 and 1.56 are the published ratios for the textbook conversion at these budgets.
    for epsilon, ratio in ((1.0, 1.31), (0.1, 1.56)):
        log = math.log(1e5)
        textbook = math.sqrt(2) * (math.sqrt(log + epsilon) - math.sqrt(log))
        assert gaussian_mu(Budget(epsilon, 1e-5), 1) / textbook == pytest.approx(ratio, abs=0.01)


def test_the_grid_is_paid_for_from_the_same_budget():
    budget = Budget(1.0, 1e-6)
    assert total_mu(budget, 10**8) < total_mu(budget, 10**6) < total_mu(budget, 0) <= gdp_mu(1.0, 1e-6)
    # More draws than epsilon can pay for: the exact theorem on discrete noise takes over.
    assert total_mu(Budget(1e-3, 1e-6), 10**8) == pytest.approx(math.sqrt(2 * zcdp_rho(1e-3, 1e-6)), rel=1e-6)


@pytest.mark.parametrize(
    ("budget", "rate", "steps", "relation"),
    [
        (Budget(1.0, 1e-6), 0.01, 500, "add-remove"),
        (Budget(1.0, 1e-6), 0.01, 500, "replace-one"),
        (Budget(8.0, 1e-6), 0.1, 50, "add-remove"),
        (Budget(0.2, 1e-7), 0.05, 1, "add-remove"),
        (Budget(0.5, 1e-30), 0.05, 20, "add-remove"),
    ],
)
def test_poisson_noise_is_accepted_and_one_percent_less_is_not(budget, rate, steps, relation):
    z = poisson_noise_multiplier(budget, rate, steps, samples=1000, relation=relation)
    assert budget.allows([PoissonGaussian(rate, z, steps, 1000)], relation)
    assert not budget.allows([PoissonGaussian(rate, 0.99 * z, steps, 1000)], relation)


def test_poisson_noise_agrees_with_a_public_accountant():
    from dp_accounting import dp_event, pld

    z = poisson_noise_multiplier(Budget(1.0, 1e-6), 0.01, 500)

    def theirs(noise):
        accountant = pld.PLDAccountant(value_discretization_interval=2e-4)
        accountant.compose(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(noise)), 500)
        return accountant.get_epsilon(1e-6)

    assert theirs(z) <= 1.0 + 1e-4
    assert theirs(0.995 * z) > 1.0


def test_replace_one_takes_the_add_remove_curve_twice():
    budget = Budget(1.0, 1e-6)
    z = poisson_noise_multiplier(budget, 0.01, 500, relation="replace-one")
    half = epsilon_of([PoissonGaussian(0.01, z, 500)], 1e-6 / (1 + math.exp(0.5)), "add-remove")
    assert half <= 0.5
    assert z > poisson_noise_multiplier(budget, 0.01, 500)


def test_a_full_batch_needs_the_gaussian_noise():
    budget = Budget(1.0, 1e-6)
    z = poisson_noise_multiplier(budget, 1.0, 16)
    assert z == pytest.approx(4 / budget.mu, rel=1e-8)
    assert poisson_noise_multiplier(budget, 1.0, 16, relation="replace-one") == pytest.approx(2 * z, rel=1e-8)


def test_poisson_refuses_what_it_cannot_price():
    for budget in (Budget(rho=0.1), Budget(mu=0.1)):
        with pytest.raises(ValueError, match=r"\(epsilon, delta\)"):
            poisson_noise_multiplier(budget, 0.1, 10)
    with pytest.raises(OverBudgetError, match="draws"):
        poisson_noise_multiplier(Budget(1e-3, 1e-6), 0.1, 10, samples=10**8)
    with pytest.raises(ValueError, match="rate"):
        poisson_noise_multiplier(Budget(1.0, 1e-6), 0.0, 10)
    with pytest.raises(ValueError, match="steps"):
        poisson_noise_multiplier(Budget(1.0, 1e-6), 0.1, 0)


@pytest.mark.parametrize(
    ("rate", "steps", "epsilon"),
    [(0.05, 200, 1.0), (0.01, 1000, 0.1), (0.01, 1000, 8.0), (0.001, 10_000, 1.0), (0.0001, 10**6, 0.1)],
)
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_calibration_composes_few_loss_distributions(rate, steps, epsilon, relation, monkeypatch):
    """A loss distribution takes a tenth of a second on the fine grid, and a plan may not take longer than one."""
    grids = []
    build = subsampled._loss_distribution.__wrapped__

    def counted(parts, grid):
        grids.append(grid)
        return build(parts, grid)

    monkeypatch.setattr(subsampled, "_loss_distribution", counted)
    for cache in (subsampled.sampled_epsilon, subsampled.sampled_replace_epsilon, poisson_noise_multiplier):
        cache.cache_clear()
    poisson_noise_multiplier(Budget(epsilon, 1e-6), rate, steps, relation=relation)
    assert 3 <= len(grids) <= 9
    # Their cost in units of one on the finest grid.
    assert sum(min(grids) / grid for grid in grids) <= 5.5


@pytest.mark.parametrize(
    ("budget", "rate", "steps", "samples"),
    [
        (Budget(1e-3, 1e-12), 1 - 2**-32, 10**6, 10**6),  # the grid takes a seventh of epsilon
        (Budget(1e-3, 0.1), 0.1, 1, 0),  # delta alone is almost enough
    ],
)
def test_plans_at_the_edges_are_calibrated_in_few_steps(budget, rate, steps, samples, monkeypatch):
    bound, asked = subsampled.sampled_bound, []

    def counted(parts, delta):
        asked.append(parts)
        assert len(asked) < 1000
        return bound(parts, delta)

    monkeypatch.setattr(calibration, "sampled_bound", counted)
    poisson_noise_multiplier.cache_clear()
    z = poisson_noise_multiplier(budget, rate, steps, samples)
    assert budget.allows([PoissonGaussian(rate, z, steps, samples)], "add-remove")
