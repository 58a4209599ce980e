"""Rows, plan and runs of a search, and the coin that says how many runs there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tailguard.engines import Engine
from tailguard.privacy import Budget, Event, Gaussian, NoiseSource, Selection, exact_rate
from tailguard.privacy.roots import root_of


@dataclass(frozen=True)
class Table:
    """The rows of a search: for fits, and with labels as their places for scores."""

    fitted: Engine
    scored: Engine
    classes: NDArray[Any] | None


@dataclass(frozen=True)
class Plan:
    """Everything public about a search, before a row is read."""

    candidates: Sequence[dict[str, Any]]
    asked: Sequence[tuple[Event, ...]]  # by each candidate's fit
    scoring: str
    run: Selection
    fit: Budget
    score: Budget
    beside: Gaussian | None

    @property
    def events(self) -> tuple[Event, ...]:
        """What the search spends."""
        return (self.run,) if self.beside is None else (self.beside, self.run)


@dataclass(frozen=True)
class Run:
    """One run; all but the best are forgotten."""

    index: int
    model: Any
    score: float
    noise: float


def coin(runs: float, heads: int) -> float:
    """Return the probability of heads, a multiple of 2^-32, with which about so many runs are expected."""
    least, most = 2.0**-31, 1.0 - 2.0**-31
    if Selection(0.0, most, heads).runs >= runs:
        return most
    return exact_rate(root_of(lambda stop: Selection(0.0, stop, heads).runs - runs, least, most, xtol=1e-12))


def secret_runs(run: Selection, noise: NoiseSource) -> int:
    """Draw the number of runs: tails before so many heads, tossed again if there are none. Coins are exact."""
    tails, heads, toss = 0, 0, 0
    while tails == 0:
        tails = heads = 0
        while heads < run.heads:
            toss += 1
            head = len(noise.at(toss).bernoulli(1, run.stop)) > 0
            heads, tails = heads + head, tails + (not head)
    return tails
