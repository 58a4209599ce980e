"""Private means of columns: one release of an interchangeable mean, without a loop around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tailguard._checks import as_numbers, data_matrix, positive, within
from tailguard.engines import Data, Engine, elsewhere, engine_for
from tailguard.engines.grouped import for_unit, grouped, in_words, split
from tailguard.engines.vectors import RowValues, RowVectors
from tailguard.intervals import IntervalTable, Uncertainty
from tailguard.ledger import charge
from tailguard.privacy import (
    Budget,
    Event,
    NoiseSource,
    NotPrivate,
    OverBudgetError,
    PrivacyReport,
    Relation,
    check_delta,
    default_delta,
    noise_source,
)
from tailguard.sampling import Sampler


class Mean(Protocol):
    """What a private mean of row vectors can do, for one release or for a loop of them."""

    def events(self, sampler: Sampler, steps: int, coordinates: int, label: str) -> tuple[Event, ...]:
        """What ``steps`` releases spend."""

    def release(self, engine: Engine, vectors: RowVectors, sampler: Sampler, noise: NoiseSource) -> NDArray[np.float64]:
        """Release the mean of the vectors of the rows of one step."""


@dataclass(frozen=True)
class MeanResult:
    """A private mean.

    Attributes
    ----------
    value : float or ndarray of shape (d,)
        A number for a column, one per column for a matrix.
    privacy : PrivacyReport
        What was spent.
    uncertainty : Uncertainty or None
        With ``inference=True``, what `stderr` and `conf_int` are made of.
    """

    value: Any
    privacy: PrivacyReport
    uncertainty: Uncertainty | None = None

    @property
    def note(self) -> str:
        """What is to be said of the value, such as that nothing was seen and 0 stands for it; most often nothing."""
        return str(self.privacy.parameters.get("note", ""))

    def __repr__(self) -> str:
        return f"MeanResult(value={self.value!r}{f', note={self.note!r}' if self.note else ''})"

    def __float__(self) -> float:
        """The mean of a column as a number."""
        if np.ndim(self.value):
            raise TypeError(f"these are the means of {len(self.value)} columns: take .value")
        return float(self.value)

    @property
    def stderr(self) -> Any:
        """Standard error of every mean, sampling error and privacy noise together; infinite where it is not known."""
        found = self._known.stderr
        return found if np.ndim(self.value) else float(found[0])

    def conf_int(self, level: float = 0.95) -> NDArray[np.float64]:
        """Confidence intervals.

        Parameters
        ----------
        level : float, default=0.95
            Probability with which an interval covers the mean of the population.

        Returns
        -------
        ndarray of shape (2,) for a column, else (d, 2)
            Lower and upper ends; infinite where the budget does not carry an interval.
        """
        found = self._known.intervals(np.atleast_1d(self.value), level)
        return found if np.ndim(self.value) else found[0]

    def summary(self, level: float = 0.95) -> IntervalTable:
        """Means, standard errors and intervals as a table.

        Parameters
        ----------
        level : float, default=0.95
            Of the intervals.

        Returns
        -------
        IntervalTable
        """
        values = np.atleast_1d(self.value)
        names = ["mean"] if not np.ndim(self.value) else [f"x{j}" for j in range(len(values))]
        facts = {self.privacy.units: f"{self.privacy.n_rows:,}", "privacy": self.privacy.guarantee}
        return IntervalTable.of("Private mean", facts, names, values, self._known, level)

    @property
    def _known(self) -> Uncertainty:
        if self.uncertainty is None:
            raise ValueError("this mean has no standard error: call private_mean with inference=True and method='auto'")
        return self.uncertainty


@dataclass(frozen=True)
class MeanTable:
    """Checked arguments of a private mean."""

    engine: Engine
    single: bool
    budget: Budget
    delta: float

    @property
    def n(self) -> int:
        """Public number of rows, or of persons."""
        return self.engine.n

    @property
    def coordinates(self) -> int:
        """Number of columns."""
        return self.engine.columns

    @staticmethod
    def of(
        x: Data,
        epsilon: float | Budget | None,
        delta: float | None,
        allow_large_delta: bool,
        threads: int | None,
        groups: Any = None,
        noise: NoiseSource | None = None,
    ) -> MeanTable:
        """Check the arguments that all private means share; ``noise`` draws a row of each person in groups."""
        if groups is not None:
            x, groups = split(x, groups)
        if not elsewhere(x):
            x = as_numbers("x", x)
        single = getattr(x, "ndim", 2) == 1
        with in_words(groups):
            if isinstance(x, np.ndarray):
                x = data_matrix("x", x[:, None] if single else x)
            engine = engine_for(x, None, threads, target="none")
        if groups is not None:
            engine = grouped(engine, groups, noise_source() if noise is None else noise).averaged()
        budget, delta = promise(epsilon, delta, engine.n, allow_large_delta)
        return MeanTable(engine, single, budget, delta)

    def release(
        self, method: str, mean: Mean, sampler: Sampler, noise: NoiseSource, facts: dict[str, Any]
    ) -> MeanResult:
        """Price one release, refuse it over budget, then make it."""
        events = for_unit(self.engine, mean.events(sampler, 1, self.coordinates, "mean"))
        open_price = any(isinstance(event, NotPrivate) for event in events)
        if not open_price and not self.budget.allows(events, sampler.relation):
            raise OverBudgetError(f"the mean costs more than the budget {self.budget.describe()}: give more noise.")
        bill = charge(events, rows=self.n, method=method, noise=noise)
        value = mean.release(self.engine, RowValues(), sampler, noise)[0]
        result = self.result(method, value, events, sampler.relation, noise, facts)
        bill.settle(result.privacy)
        return result

    def result(
        self,
        method: str,
        value: NDArray[np.float64],
        events: tuple[Event, ...],
        relation: Relation,
        noise: NoiseSource,
        facts: dict[str, Any],
    ) -> MeanResult:
        """Wrap released means with the report of what they spent."""
        report = PrivacyReport.from_events(
            events,
            self.delta,
            noise=noise,
            method=method,
            parameters=facts,
            n=self.n,
            relation=relation,
            budget=self.budget,
        )
        return MeanResult(float(value[0]) if self.single else value, report)


def promise(
    epsilon: float | Budget | None, delta: float | None, n: int, allow_large_delta: bool
) -> tuple[Budget, float]:
    """Return the budget that the arguments mean and the delta at which it is reported."""
    if epsilon is None:
        raise ValueError("epsilon=None is not accepted: give a positive number, for example epsilon=1.0.")
    if isinstance(epsilon, Budget):
        if delta is not None:
            raise ValueError(f"delta={delta!r} is not accepted beside a Budget: put it into the Budget.")
        if epsilon.delta is not None:
            check_delta(epsilon.delta, n, allow_large_delta)
        return epsilon, default_delta(n) if epsilon.delta is None else epsilon.delta
    delta = default_delta(n) if delta is None else check_delta(delta, n, allow_large_delta)
    return Budget(within("epsilon", positive("epsilon", epsilon), 1e-9, 1e9), delta), delta
