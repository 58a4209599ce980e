r"""The account: where a multi-query algorithm gets its noise levels.

An algorithm that decides as it goes (how many steps, which scale next) may not pick
its noise freely.  It asks an :class:`Account` for a share of the budget and receives the
mu to use; the account refuses to be overdrawn, so the sum of what was used can never exceed the
promise, whatever the algorithm saw before it asked.

Shares are fractions of mu².  The statement used is the Gaussian filter (Smith and
Thakurta 2022, "Fully Adaptive Composition for Gaussian Differential Privacy",
arXiv:2210.17520): if each mu_t is chosen as a function of all earlier answers and
Σ_t mu_t² ≤ mu² holds on every path, then all the answers together are mu-GDP.  The filter
is free: it is the same mu as for parameters fixed in advance.

What is promised is the whole budget.  A run that ends with some of it left ended there
because of what it saw, so the smaller sum is no guarantee of the algorithm: what is left
is booked, too, when an account is closed.
"""

from __future__ import annotations

import math
from typing import NoReturn

from tailguard import _checks
from tailguard.privacy.budget import Budget, OverBudgetError
from tailguard.privacy.calibration import total_mu
from tailguard.privacy.events import ApproximateDP, Event, Gaussian, Relation, check_relation

# What is left is booked under this name.
UNSPENT = "not spent"
# Shares such as ten tenths may add up to a little more than 1 in floats; the total below
# is smaller than the budget's mu² by more than this.
_SLACK = 1e-9


class _Filter:
    """What all accounts have in common: shares of a budget, which cannot be overdrawn and cannot be copied."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._shares: list[float] = []
        self._events: list[Event] = []

    @property
    def budget(self) -> Budget:
        """The promise that is kept."""
        return self._budget

    @property
    def left(self) -> float:
        """The fraction of the budget that is not spent, in [0, 1]."""
        return max(0.0, 1.0 - math.fsum(self._shares))

    @property
    def events(self) -> tuple[Event, ...]:
        """What was spent, in order."""
        return tuple(self._events)

    def close(self) -> tuple[Event, ...]:
        """Book what is left and return all events: together they are what is guaranteed, whatever the answers were."""
        if self.left > _SLACK:
            self.spend(share=self.left, label=UNSPENT)
        return self.events

    def spend(self, *, share: float, label: str = "") -> float:
        """Book one release."""
        raise NotImplementedError

    def _checked(self, share: float, label: str) -> float:
        share = _checks.probability("share", share, one=True)
        if math.fsum([*self._shares, share]) > 1.0 + _SLACK:
            raise OverBudgetError(f"share must be at most what is left, {self.left!r}; got {share!r} for {label!r}")
        return share

    def __reduce__(self) -> NoReturn:
        raise TypeError("an account must stay where it is: a copy could spend the same budget twice")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._budget!r}, left={self.left:.6g})"


class Account(_Filter):
    """A fully adaptive filter over Gaussian releases.

    Parameters
    ----------
    budget : Budget
        Of any form.
    max_samples : int
        The largest number of discrete-Gaussian draws in all; their price is set aside first.
    relation : {"replace-one", "add-remove"}
        The neighbours that the sensitivities of the releases speak of.

    Notes
    -----
    **Formal guarantee.**  Whatever is asked and in whatever order, ``budget.allows(account.events,
    relation)`` holds.  An account cannot be copied or pickled: two copies could
    spend the same budget twice.

    Examples
    --------
    >>> from tailguard.privacy import Account, Budget
    >>> account = Account(Budget(mu=1.0))
    >>> round(account.spend(share=0.25, label="scale"), 6)
    0.5
    >>> account.left
    0.75
    """

    def __init__(self, budget: Budget, *, max_samples: int = 10_000_000, relation: Relation = "replace-one") -> None:
        super().__init__(budget)
        self._max_samples = _checks.count("max_samples", max_samples, least=0)
        self._relation = check_relation(relation)
        self._square = total_mu(budget, self._max_samples) ** 2 * (1.0 - 2.0 * _SLACK)
        self._samples = 0

    @property
    def samples_left(self) -> int:
        """The number of discrete-Gaussian draws that are not spent."""
        return self._max_samples - self._samples

    def spend(self, *, share: float, label: str = "", samples: int = 0, count: int = 1) -> float:
        """Book Gaussian releases and return mu of each: use noise of sensitivity / mu.

        Parameters
        ----------
        share : float
            Fraction in (0, 1] of the whole mu², for all ``count`` releases together.
        label : str
            What it is spent on.
        samples : int
            Number of discrete-Gaussian draws in all these releases.
        count : int
            Number of equal releases that share it.

        Raises
        ------
        OverBudgetError
            If less than ``share`` or fewer than ``samples`` are left; nothing is booked then.
        """
        share = self._checked(share, label)
        samples = _checks.count("samples", samples, least=0)
        count = _checks.count("count", count)
        if samples > self.samples_left:
            raise OverBudgetError(
                f"samples must be at most what is left, {self.samples_left}; got {samples} for {label!r} "
                "(max_samples reserves more)"
            )
        mu = math.sqrt(share * self._square / count)
        self._shares.append(share)
        self._samples += samples
        self._events.append(Gaussian(mu, count, samples, self._relation, label))
        return mu

    def close(self) -> tuple[Event, ...]:
        """Book what is left and return all events: together they are what is guaranteed, whatever the answers were."""
        events = super().close()
        if self.samples_left and events:  # draws that were not made are booked with the last that were
            last = events[-1]
            assert isinstance(last, Gaussian)
            self._events[-1] = Gaussian(
                last.mu, last.count, last.samples + self.samples_left, last.relation, last.label
            )
            self._samples = self._max_samples
        return self.events


class PureAccount(_Filter):
    """A fully adaptive filter over releases that are differentially private with delta = 0.

    Parameters
    ----------
    budget : Budget
        In (epsilon, delta); all of epsilon is spent, and nothing of delta.

    Notes
    -----
    **Formal guarantee.**  If each ε_t is chosen as a function of all earlier answers and Σ_t ε_t ≤ ε holds on every
    path, then all the answers together are ε-DP: the likelihood ratio of a path is the product of those of its
    answers, each within e^{±ε_t}.

    Examples
    --------
    >>> from tailguard.privacy import Budget, PureAccount
    >>> account = PureAccount(Budget(epsilon=1.0, delta=1e-6))
    >>> round(account.spend(share=0.25, label="scale"), 6)
    0.25
    >>> account.left
    0.75
    """

    def __init__(self, budget: Budget) -> None:
        if budget.epsilon is None:
            raise ValueError(f"budget must be one of (epsilon and delta) for pure noise; got {budget!r}")
        super().__init__(budget)
        self._epsilon = budget.epsilon * (1.0 - 2.0 * _SLACK)

    def spend(self, *, share: float, label: str = "") -> float:
        """Book one release and return its epsilon; raise :class:`OverBudgetError` if less than ``share`` is left."""
        share = self._checked(share, label)
        epsilon = share * self._epsilon
        self._shares.append(share)
        self._events.append(ApproximateDP(epsilon, 0.0, label=label))
        return epsilon
