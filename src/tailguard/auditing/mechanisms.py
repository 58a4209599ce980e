"""The mechanisms of this package as subjects: the real code, one call per run.

Nothing is imitated: each calls the function or the method that a fit calls. Only the block median runs vectorised, over
the columns of one call, which are independent medians by construction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tailguard.auditing.neighbours import Table
from tailguard.default.pure_scores import scores_of
from tailguard.engines import Engine
from tailguard.engines.grouped import grouped
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import RowValues, RowVectors
from tailguard.mean import Mean
from tailguard.means.block_median import block_median
from tailguard.means.centre import CentreParameters, centre_of_attention
from tailguard.means.pure import PureQueries
from tailguard.means.queries import Queries
from tailguard.privacy import Account, Budget, NoiseSource, PureAccount
from tailguard.sampling import FullBatch, Sampler

Array = NDArray[np.float64]
EDGES = (-1.0, 0.0, 1.0)


@dataclass(frozen=True)
class MeanReleases:
    """Releases of an interchangeable mean of the rows, or of their gradients, as the steps of a descent make them."""

    mean: Mean
    sampler: Sampler = field(default_factory=FullBatch)
    steps: int = 1
    vectors: RowVectors = field(default_factory=RowValues)

    def outputs(self, table: Table, noise: NoiseSource, runs: int) -> Array:
        """All steps of a run; the noise of a step as in `tailguard.descent`."""
        found = []
        for own in (noise.at(run) for run in range(runs)):
            engine = _engine(table, own)
            steps = [self.mean.release(engine, self.vectors, self.sampler, own.at(t + 1)) for t in range(self.steps)]
            found.append(np.ravel(steps))
        return np.array(found)


@dataclass(frozen=True)
class Query:
    """One query of the default, on an account of its own."""

    query: Literal["mean", "counts", "gram"]
    mu: float

    def outputs(self, table: Table, noise: NoiseSource, runs: int) -> Array:
        """Ask once per run."""
        asked = []
        for own in (noise.at(run) for run in range(runs)):
            asked.append(self._ask(Queries(_engine(table, own), Account(Budget(mu=self.mu)), own)))
        return np.array(asked)

    def _ask(self, queries: Queries) -> Array:
        columns = queries.engine.columns
        if self.query == "mean":
            return queries.mean("audit", _rows, columns, 1.0, 1.0).value
        if self.query == "gram":
            return queries.gram("audit", _rows, columns, 1.0, 1.0).value[np.triu_indices(columns)]
        # One histogram of the first column: a replaced row moves between two bins.
        return queries.counts("audit", _histogram, (len(EDGES) + 1,), 2.0**0.5, 1.0).value


@dataclass(frozen=True)
class PureQuery:
    """One query with geometric noise: a mean, or the bin of the median of the first column."""

    query: Literal["mean", "choice"]
    epsilon: float

    def outputs(self, table: Table, noise: NoiseSource, runs: int) -> Array:
        """Ask once per run."""
        asked, budget = [], Budget(self.epsilon, 1e-9)
        for own in (noise.at(run) for run in range(runs)):
            queries = PureQueries(_engine(table, own), PureAccount(budget), own)
            if self.query == "mean":
                asked.append(queries.mean("audit", lambda X, y: _rows(X, y)[:, :1], 1.0, 1.0).value)
            else:
                within = queries.total(_histogram, (len(EDGES) + 1,))
                scores = scores_of(within, queries.n // 2)
                asked.append(np.array([queries.choose("audit", scores, 1.0, np.zeros(len(scores)))], float))
        return np.array(asked)


def _engine(table: Table, noise: NoiseSource) -> Engine:
    """Rows in memory, or persons: which of their rows are drawn is part of a run."""
    rows = InMemory(table.X, table.y, threads=1)
    return rows if table.groups is None else grouped(rows, table.groups, noise)


def _rows(X: Any, y: Any) -> Array:
    return np.asarray(X, dtype=np.float64)


def _histogram(X: Any, y: Any) -> NDArray[np.int64]:
    return np.bincount(np.digitize(X[:, 0], EDGES), minlength=len(EDGES) + 1)


@dataclass(frozen=True)
class BlockMedian:
    """The median of block answers; the rows of the table are the answers of the blocks, in [-1, 1]."""

    eps0: float

    def outputs(self, table: Table, noise: NoiseSource, runs: int) -> Array:
        """One call with a column per run."""
        return block_median(np.tile(table.X[:, :1], (1, runs)), -1.0, 1.0, self.eps0, noise)[:, None]


@dataclass(frozen=True)
class Centre:
    """The centre of attention of block answers, in a ball of diameter 2."""

    parameters: CentreParameters

    def outputs(self, table: Table, noise: NoiseSource, runs: int) -> Array:
        """One release per run."""
        return np.array([centre_of_attention(table.X, 2.0, self.parameters, noise.at(run)) for run in range(runs)])
