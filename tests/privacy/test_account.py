"""An account hands out noise levels and cannot be overdrawn."""

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailguard.privacy import Account, Budget, Gaussian, OverBudgetError, PureAccount, epsilon_of, total_mu

BUDGETS = [Budget(1.0, 1e-6), Budget(rho=0.1), Budget(mu=0.5)]


@pytest.mark.parametrize("budget", BUDGETS, ids=repr)
@pytest.mark.parametrize("parts", [1, 3, 10, 49])
def test_all_of_it_can_be_spent_and_nothing_more(budget, parts):
    account = Account(budget, max_samples=parts)
    for i in range(parts):
        account.spend(share=1 / parts, label=f"part {i}", samples=1)
    assert account.left == pytest.approx(0.0, abs=1e-12)
    assert budget.allows(account.events)
    before = account.events
    with pytest.raises(OverBudgetError, match=r"share.*one more"):
        account.spend(share=1e-6, label="one more")
    assert account.events == before


def test_it_wastes_next_to_nothing():
    account = Account(Budget(1.0, 1e-6), max_samples=1000)
    account.spend(share=1.0, samples=1000)
    assert 1 - 1e-6 < epsilon_of(account.events, 1e-6) <= 1.0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-9, 1.0), max_size=30))
def test_whatever_is_asked_the_promise_is_kept(shares):
    account = Account(Budget(1.0, 1e-6), max_samples=100)
    for share in shares:
        try:
            mu = account.spend(share=share, samples=1)
        except OverBudgetError:
            assert share > account.left
        else:
            assert account.events[-1] == Gaussian(mu, samples=1)
    assert account.budget.allows(account.events)
    assert 0.0 <= account.left <= 1.0


def test_equal_releases_share_one_share():
    account = Account(Budget(mu=1.0))
    mu = account.spend(share=0.36, count=4, samples=8, label="steps")
    assert mu == pytest.approx(0.3)
    assert account.events == (Gaussian(mu, 4, 8, label="steps"),)
    assert account.left == pytest.approx(0.64)


def test_draws_are_booked_too():
    account = Account(Budget(mu=1.0), max_samples=10)
    account.spend(share=0.1, samples=8)
    assert account.samples_left == 2
    with pytest.raises(OverBudgetError, match="max_samples"):
        account.spend(share=0.1, samples=3)
    assert account.left == 0.9


def test_what_is_left_can_be_asked_for():
    account = Account(Budget(mu=1.0), relation="add-remove")
    account.spend(share=0.3)
    account.spend(share=account.left)
    assert account.left == pytest.approx(0.0, abs=1e-15)
    assert {event.relation for event in account.events} == {"add-remove"}


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan"), True, "all"])
def test_a_share_is_a_fraction(share):
    with pytest.raises((ValueError, TypeError), match="share"):
        Account(Budget(mu=1.0)).spend(share=share)


def test_a_copy_could_spend_twice_so_there_is_none():
    account = Account(Budget(mu=1.0))
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="twice"):
            duplicate(account)


@pytest.mark.parametrize("spent", [(), (0.25,), (0.3, 0.7), (0.5, 0.5 - 1e-12)], ids=str)
def test_a_closed_account_costs_the_whole_budget_whatever_was_asked(spent):
    """How much was asked for may depend on answers, so a smaller price would be no guarantee of the algorithm."""
    budget = Budget(1.0, 1e-6)
    prices = []
    for account in (Account(budget, max_samples=5000), PureAccount(budget)):
        for k, share in enumerate(spent):
            samples = {"samples": 10 * k} if isinstance(account, Account) else {}
            account.spend(share=share, label=f"question {k}", **samples)
        events = account.close()
        assert events == account.close() == account.events  # once
        assert budget.allows(events)
        assert [event.label for event in events[: len(spent)]] == [f"question {k}" for k in range(len(spent))]
        assert [event.label for event in events[len(spent) :]] == ([] if sum(spent) > 0.99 else ["not spent"])
        with pytest.raises(OverBudgetError):
            account.spend(share=1e-6)
        prices.append(epsilon_of(events, 1e-6))
    assert prices == pytest.approx([1.0, 1.0], rel=1e-7)
    assert max(prices) <= 1.0
    assert prices[0] == pytest.approx(epsilon_of([Gaussian(total_mu(budget, 5000), samples=5000)], 1e-6), rel=1e-8)
