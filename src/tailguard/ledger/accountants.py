r"""How the runs on a dataset add up.

People look at one result before they ask for the next, so what a run spends may depend on all earlier answers. Then a
price that is right for runs fixed in advance need not be right, and what is needed is a *privacy filter*: a rule that
admits or refuses each run such that, on every path, all that was admitted keeps the promise made at the start. Which
filters exist depends on the family of the runs, and a filter must be chosen before the first answer. Hence a dataset
has one accountant, fixed when it is added or else by its first run, before any of its rows is read:

==============  ===================================  ==========================================================
accountant      takes                                admits a run as long as
==============  ===================================  ==========================================================
gaussian        Gaussian releases on all rows: the   Σ mu² is within the exact GDP curve of the budget (Smith
                default methods, DP-GD, Algorithm 4  and Thakurta 2022, arXiv:2210.17520)
concentrated    these and zCDP: Algorithms 1 to 3    Σ rho is within the zCDP of the budget (Feldman and Zrnic
                                                     2021, arXiv:2008.11193, for every Rényi order)
basic           anything with a finite price:        Σ epsilon and Σ delta are within the budget (Rogers et al.
                mini-batches, the centre, searches   2016, arXiv:1605.08294)
==============  ===================================  ==========================================================

Each is free: it admits as much as it would of runs fixed in advance. The price of noise on a grid, 1.4e-10 of an
epsilon for each draw (:mod:`tailguard.privacy.accounting`), is counted as well; since people could trade it against mu,
what is proved for *gaussian* is the budget plus that price: a few millionths of an epsilon for a default fit.

*basic* gives each run half of the delta that is left, or what its releases need if that is more, and prices the run as
tightly as the package can at that delta.

Runs with no finite price (seeded noise, ``method="robust"``) are refused by all three. A dataset without a budget keeps
accounts only: it takes everything, and its total is that of :func:`tailguard.privacy.epsilon_of`, inf where one run had
no price.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from tailguard.privacy import (
    ApproximateDP,
    Budget,
    Event,
    Gaussian,
    NotPrivate,
    OverBudgetError,
    PoissonGaussian,
    Relation,
    Selection,
    ZeroConcentrated,
    epsilon_of,
    gdp_epsilon,
    total_rho,
    zcdp_epsilon,
)

Accountant = Literal["gaussian", "concentrated", "basic"]
ACCOUNTANTS: tuple[Accountant, ...] = get_args(Accountant)
Price = tuple[float, float]  # epsilon and delta of one run, as `basic` adds them up


class BudgetExceeded(OverBudgetError):
    """A run was refused because the dataset's budget has no room for it; nothing was released."""


def accountant_for(events: Iterable[Event], budget: Budget | None) -> Accountant:
    """Return the tightest accountant that takes the first run's events."""
    if budget is not None and budget.form != "approximate":
        return "gaussian" if budget.form == "gaussian" else "concentrated"
    kinds = {type(event) for event in events if not isinstance(event, NotPrivate)}
    if kinds <= {Gaussian}:
        return "gaussian"
    return "concentrated" if kinds <= {Gaussian, ZeroConcentrated} else "basic"


def takes(accountant: Accountant, events: Iterable[Event]) -> bool:
    """Return whether the accountant can compose such releases at all."""
    if accountant == "basic":
        return True
    allowed: tuple[type, ...] = (Gaussian,) if accountant == "gaussian" else (Gaussian, ZeroConcentrated)
    return all(isinstance(event, allowed) for event in events)


def run_price(events: Sequence[Event], left: float, relation: Relation) -> Price:
    """Return the (epsilon, delta) at which `basic` books a run, when so much of delta is left."""
    needed = 0.0
    for event in events:
        if isinstance(event, ApproximateDP):
            steps = 1.0 if event.relation == relation else 1.0 + math.exp(min(event.epsilon, 700.0))
            needed += event.count * event.delta * steps
    only_pure = all(isinstance(event, ApproximateDP) and event.delta == 0.0 for event in events)
    # Where something else shares the delta with (epsilon, delta) releases, it needs a part of its own.
    others = any(not isinstance(event, ApproximateDP) for event in events)
    delta = 0.0 if only_pure else max(left / 2.0, 2.0 * needed if others else needed * (1.0 + 1e-12))
    if delta > left or (delta <= 0.0 and not only_pure):
        return math.inf, 0.0
    return epsilon_of(events, delta if delta > 0.0 else 1e-300, relation), delta


def total(
    accountant: Accountant | None, events: Sequence[Event], prices: Sequence[Price], delta: float, relation: Relation
) -> float:
    """Return the epsilon, at the dataset's delta, of everything that was booked."""
    if not events:
        return 0.0
    if accountant == "basic":
        return math.fsum(price[0] for price in prices)
    if accountant == "concentrated":
        return zcdp_epsilon(total_rho(events, relation), delta)
    return epsilon_of(events, delta, relation)


def admits(
    accountant: Accountant, budget: Budget, events: Sequence[Event], prices: Sequence[Price], relation: Relation
) -> bool:
    """Return whether the budget holds all these runs."""
    if budget.form != "approximate":
        return budget.allows(events, relation)
    assert budget.epsilon is not None
    assert budget.delta is not None
    if accountant == "basic" and math.fsum(price[1] for price in prices) > budget.delta:
        return False
    return total(accountant, events, prices, budget.delta, relation) <= budget.epsilon


def room(
    accountant: Accountant | None,
    budget: Budget,
    events: Sequence[Event],
    prices: Sequence[Price],
    delta: float,
    relation: Relation,
) -> float:
    """Return the largest epsilon, at the dataset's delta, of one more Gaussian run; rounded down, for people."""
    if accountant == "basic":
        assert budget.epsilon is not None
        return max(0.0, budget.epsilon - math.fsum(price[0] for price in prices))
    if accountant == "concentrated":
        whole = budget.rho if budget.form != "gaussian" else 0.5 * budget.mu**2
        return zcdp_epsilon(max(0.0, whole - total_rho(events, relation)) * (1.0 - 1e-9), delta)
    left = budget.mu**2 - (2.0 * total_rho(events, relation) if events else 0.0)
    return gdp_epsilon(math.sqrt(max(0.0, left)) * (1.0 - 1e-6), delta) if left > 0.0 else 0.0


def kinds_in_words(events: Iterable[Event]) -> str:
    """Return what a list of releases is, for messages."""
    words = {
        Gaussian: "Gaussian releases",
        PoissonGaussian: "mini-batches",
        ZeroConcentrated: "zero-concentrated releases",
        ApproximateDP: "(epsilon, delta) releases",
        Selection: "selections of the best run",
        NotPrivate: "data without protection",
    }
    return " and ".join(dict.fromkeys(words.get(type(event), "unknown releases") for event in events))
