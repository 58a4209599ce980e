r"""The budget: the promise that is made before any data is touched.

A promise has one of three forms, from the most to the least common:

* ``Budget(epsilon=1.0, delta=1e-6)``: (ε, δ)-differential privacy;
* ``Budget(rho=0.5)``: zero-concentrated differential privacy;
* ``Budget(mu=1.0)``: Gaussian differential privacy.

mu-GDP implies mu²/2-zCDP, and both imply (ε, δ) curves; rho-zCDP does **not** imply GDP.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tailguard import _checks
from tailguard.privacy.accounting import epsilon_of, known_events, total_rho
from tailguard.privacy.concentrated import zcdp_rho
from tailguard.privacy.events import Event, Gaussian, NotPrivate, Relation, common_relation
from tailguard.privacy.gaussian import gdp_mu


class OverBudgetError(ValueError):
    """More privacy was asked for than the budget holds."""


@dataclass(frozen=True, init=False, repr=False)
class Budget:
    """A privacy budget in exactly one of three forms.

    Parameters
    ----------
    epsilon : float, optional
        Finite and above 0; comes with ``delta``.
    delta : float, optional
        In (0, 1); :func:`default_delta` proposes one for n rows.
    rho : float, optional
        Finite and above 0: a zCDP budget.
    mu : float, optional
        Finite and above 0: a GDP budget.

    Examples
    --------
    >>> from tailguard.privacy import Budget
    >>> Budget(1.0, 1e-6)
    Budget(epsilon=1.0, delta=1e-06)
    >>> round(Budget(rho=0.5).mu, 12)
    1.0
    """

    epsilon: float | None
    delta: float | None
    _rho: float | None
    _mu: float | None

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        rho: float | None = None,
        mu: float | None = None,
    ) -> None:
        given = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
        names = [name for name, value in given.items() if value is not None]
        if names == ["epsilon"]:
            raise ValueError(f"delta must be given with epsilon={epsilon!r}; default_delta(n) proposes one for n rows")
        if names not in (["epsilon", "delta"], ["rho"], ["mu"]):
            raise ValueError(
                f"a budget must be exactly one of (epsilon and delta), rho or mu; got {', '.join(names) or 'none'}"
            )
        values = {
            "epsilon": None if epsilon is None else _checks.positive("epsilon", epsilon),
            "delta": None if delta is None else _checks.probability("delta", delta),
            "_rho": None if rho is None else _checks.positive("rho", rho),
            "_mu": None if mu is None else _checks.positive("mu", mu),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def form(self) -> str:
        """``"approximate"`` for (ε, δ), ``"concentrated"`` for rho, ``"gaussian"`` for mu."""
        if self._rho is not None:
            return "concentrated"
        return "gaussian" if self._mu is not None else "approximate"

    @property
    def mu(self) -> float:
        """The largest mu such that every mu-GDP mechanism keeps the promise, rounded down."""
        if self._mu is not None:
            return self._mu
        if self._rho is not None:
            return math.sqrt(2.0 * self._rho) * (1.0 - 1e-15)
        assert self.epsilon is not None
        assert self.delta is not None
        return gdp_mu(self.epsilon, self.delta)

    @property
    def rho(self) -> float:
        """The largest rho such that every rho-zCDP mechanism keeps the promise, rounded down."""
        if self._rho is not None:
            return self._rho
        if self._mu is not None:
            raise ValueError(
                f"rho is not defined for Budget(mu={self._mu!r}): zCDP does not imply GDP; "
                "use a budget in (epsilon, delta) or rho for mechanisms that are not Gaussian"
            )
        assert self.epsilon is not None
        assert self.delta is not None
        return zcdp_rho(self.epsilon, self.delta)

    def allows(self, events: Iterable[Event], relation: Relation | None = None) -> bool:
        """Return whether all the events together keep the promise.

        Parameters
        ----------
        events : iterable of Event
            The planned or spent releases.
        relation : {"replace-one", "add-remove"}, optional
            As in :func:`epsilon_of`.

        Raises
        ------
        ValueError
            If the form of the budget cannot price an event: (ε, δ)-DP events on a rho budget,
            anything but Gaussian releases on a mu budget.

        Notes
        -----
        A mu budget is read as that of continuous noise; noise on a grid keeps it up to
        the factor e^{±2 samples 7e-11} of :mod:`tailguard.privacy.accounting`.
        """
        known = known_events(events)
        if any(isinstance(event, NotPrivate) for event in known):
            return False
        if self.epsilon is not None and self.delta is not None:
            return epsilon_of(known, self.delta, relation) <= self.epsilon
        if self._rho is not None:
            return total_rho(known, relation) <= self._rho
        assert self._mu is not None
        for event in known:
            if not isinstance(event, Gaussian):
                raise ValueError(f"a mu budget prices Gaussian releases only; got {event!r}")
        asked = common_relation(known) if relation is None else relation
        return 2.0 * total_rho(known, asked) <= self._mu**2

    def describe(self) -> str:
        """Return the promise in words."""
        if self._rho is not None:
            return f"{self._rho:.6g}-zero-concentrated differential privacy"
        if self._mu is not None:
            return f"{self._mu:.6g}-Gaussian differential privacy"
        return f"({self.epsilon:.6g}, {self.delta:.6g})-differential privacy"

    def to_dict(self) -> dict[str, float]:
        """Return the arguments that rebuild the budget."""
        fields = {"epsilon": self.epsilon, "delta": self.delta, "rho": self._rho, "mu": self._mu}
        return {name: value for name, value in fields.items() if value is not None}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Budget:
        """Rebuild a budget from :meth:`to_dict`."""
        if not isinstance(data, Mapping):
            raise TypeError(f"a budget must be a mapping of its arguments; got {type(data).__name__}")
        return Budget(**data)

    def __repr__(self) -> str:
        return f"Budget({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"


def default_delta(n: int) -> float:
    """Return min(1e-6, n^(-3/2)): well below the 1/n at which a mechanism may publish one row at random.

    Parameters
    ----------
    n : int
        Public number of rows, at least 1.
    """
    return float(min(1e-6, _checks.count("n", n) ** -1.5))


def check_delta(delta: float, n: int, allow_large_delta: bool = False) -> float:
    """Return ``delta`` if it is a meaningful one for n rows.

    A mechanism that publishes one row chosen at random is (0, 1/n)-DP, so a δ of 1/n or
    more promises little; it is refused unless asked for by name.

    Parameters
    ----------
    delta : float
        In (0, 1).
    n : int
        Public number of rows.
    allow_large_delta : bool
        Accept ``delta >= 1/n``.

    Raises
    ------
    ValueError
        If ``delta >= 1/n`` and ``allow_large_delta`` is false.
    """
    delta = _checks.probability("delta", delta)
    n = _checks.count("n", n)
    if delta * n >= 1.0 and not allow_large_delta:
        raise ValueError(
            f"delta must be below 1/n = {1.0 / n:.3g} for n = {n}; got {delta!r} (allow_large_delta=True accepts it)"
        )
    return delta
