"""A budget is one promise in one form."""

import math
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from tailguard.privacy import (
    ApproximateDP,
    Budget,
    Gaussian,
    NotPrivate,
    OverBudgetError,
    PoissonGaussian,
    ZeroConcentrated,
    check_delta,
    default_delta,
    gdp_delta,
    zcdp_delta,
)


def test_the_three_forms():
    assert Budget(1.0, 1e-6) == Budget(epsilon=1, delta=1e-6)
    assert [b.form for b in (Budget(1, 1e-6), Budget(rho=1), Budget(mu=1))] == [
        "approximate",
        "concentrated",
        "gaussian",
    ]
    assert Budget(np.float64(1.0), np.float64(1e-6)).epsilon == 1.0


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"epsilon": 1.0},
        {"delta": 1e-6},
        {"epsilon": 1.0, "delta": 1e-6, "rho": 0.1},
        {"rho": 0.1, "mu": 0.1},
        {"epsilon": 1.0, "mu": 0.1},
    ],
)
def test_anything_but_exactly_one_form_is_refused(arguments):
    with pytest.raises(ValueError, match=r"exactly one|delta must be given"):
        Budget(**arguments)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("name", ["epsilon", "rho", "mu"])
def test_values_that_promise_nothing_are_refused(name, value):
    rest = {"delta": 1e-6} if name == "epsilon" else {}
    with pytest.raises(ValueError, match=name):
        Budget(**{name: value}, **rest)


@pytest.mark.parametrize("value", [True, np.True_, "1", [1.0], np.ones(2), 1j])
def test_values_of_the_wrong_type_are_refused(value):
    with pytest.raises(TypeError, match="epsilon"):
        Budget(value, 1e-6)
    with pytest.raises(TypeError, match="delta"):
        Budget(1.0, value)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, 2, math.nan])
def test_delta_is_a_probability(delta):
    with pytest.raises(ValueError, match="delta"):
        Budget(1.0, delta)


def test_mu_and_rho_are_the_largest_that_keep_the_promise():
    budget = Budget(1.0, 1e-6)
    assert gdp_delta(budget.mu, 1.0) <= 1e-6 < gdp_delta(budget.mu * (1 + 1e-7), 1.0)
    assert zcdp_delta(budget.rho, 1.0) <= 1e-6 < zcdp_delta(budget.rho * (1 + 1e-7), 1.0)
    assert Budget(rho=0.5).mu == pytest.approx(1.0)
    assert Budget(mu=0.7).mu == 0.7
    assert Budget(rho=0.3).rho == 0.3


def test_a_gaussian_budget_has_no_rho():
    with pytest.raises(ValueError, match="zCDP does not imply GDP"):
        _ = Budget(mu=1.0).rho


@pytest.mark.parametrize("budget", [Budget(1.0, 1e-6), Budget(rho=0.1), Budget(mu=0.4)])
def test_a_budget_allows_what_it_pays_for_and_no_more(budget):
    assert budget.allows([])
    assert budget.allows([Gaussian(budget.mu * 0.5, count=3)])
    assert budget.allows([Gaussian(budget.mu * 0.999999, samples=10)])
    assert not budget.allows([Gaussian(budget.mu * 1.000001)])
    assert not budget.allows([Gaussian(budget.mu * 0.51, count=4)])
    assert not budget.allows([NotPrivate("plain")])
    assert not budget.allows([Gaussian(budget.mu * 0.9, relation="add-remove")], "replace-one")


def test_forms_refuse_events_that_they_cannot_price():
    with pytest.raises(ValueError, match="mu budget"):
        Budget(mu=1.0).allows([ZeroConcentrated(0.01)])
    with pytest.raises(ValueError, match="rho-zCDP"):
        Budget(rho=1.0).allows([ApproximateDP(0.1, 1e-9)])
    assert Budget(rho=1.0).allows([PoissonGaussian(0.1, 1.0)])  # at the price without amplification


def test_a_budget_is_a_frozen_hashable_value():
    budget = Budget(1.0, 1e-6)
    with pytest.raises(FrozenInstanceError):
        budget.epsilon = 2.0
    assert {budget: 1}[Budget(1.0, 1e-6)] == 1
    for each in (budget, Budget(rho=0.1), Budget(mu=0.1)):
        assert pickle.loads(pickle.dumps(each)) == each
        assert Budget.from_dict(each.to_dict()) == each
        assert eval(repr(each)) == each
    assert "(1, 1e-06)" in budget.describe()


def test_default_delta_is_far_below_one_over_n():
    assert default_delta(100) == 1e-6
    assert default_delta(10**6) == pytest.approx(1e-9)
    assert all(default_delta(n) < 1 / n for n in (1, 10, 10**4, 10**8))
    with pytest.raises(ValueError, match="n must"):
        default_delta(0)


def test_a_large_delta_is_refused_unless_asked_for_by_name():
    assert check_delta(1e-6, 1000) == 1e-6
    with pytest.raises(ValueError, match="allow_large_delta"):
        check_delta(1e-3, 1000)
    assert check_delta(1e-3, 1000, allow_large_delta=True) == 1e-3


def test_over_budget_is_a_value_error():
    assert issubclass(OverBudgetError, ValueError)
