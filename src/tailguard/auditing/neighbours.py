"""Tables that differ in one row, chosen to show as much of that row as a mechanism lets through.

==================  =====================================================  ========================================
name                what the last row is on the two sides                  what it looks for
==================  =====================================================  ========================================
far outlier         as it was; 1e9 in every column                         a bound that is missing or too wide
opposite outliers   1e9 with the target at -1e9; at +1e9                   the largest change of a truncated sum
infinite            -inf; +inf                                             inf that is dropped, or becomes NaN
not a number        as it was; NaN                                         NaN that spreads, raises or is dropped
duplicate           as it was; a copy of the first row                     duplicates that are merged or counted
label flip          its target; the opposite one                           targets that are not bounded
sparse canary       zeros; 1e9 in one column and the target                rare columns, kept or dropped by their values
==================  =====================================================  ========================================

Where the rows belong to persons (`Table.groups`), it is all rows of the last person, which then say the same.

Under *add-remove* the first side is always the row that contributes nothing, a row of NaN: the number of rows is
public, so a row that is removed leaves a gap and not a shorter table. A classifier's labels stay 0 and 1 everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tailguard._checks import count, one_of
from tailguard.privacy import Relation

Array = NDArray[np.float64]
Kind = Literal["mean", "regression", "classification", "counts"]
KINDS = ("mean", "regression", "classification", "counts")
FAR = 1e9


@dataclass(frozen=True)
class Table:
    """Rows, and targets where there are any.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    y : ndarray of shape (n,), optional
        Targets; None for a mean.
    kind : {"mean", "regression", "classification", "counts"}
        What the targets are; labels are 0 and 1.
    groups : ndarray of shape (n,), optional
        Whose row it is: neighbours then differ in a person with all their rows.
    """

    X: Array
    y: Array | None = None
    kind: Kind = "mean"
    groups: NDArray[np.int64] | None = None

    @staticmethod
    def example(kind: Kind = "mean", rows: int = 20, columns: int = 1, seed: int = 0) -> Table:
        """Return ordinary rows: normal columns, and a target that depends on them.

        Parameters
        ----------
        kind : {"mean", "regression", "classification", "counts"}
            What the targets are.
        rows, columns : int
            Size.
        seed : int
            Of the rows, which are public.
        """
        one_of("kind", kind, KINDS)
        rng = np.random.default_rng([seed, 6])
        X = rng.standard_normal((count("rows", rows, least=2), count("columns", columns)))
        line = X.sum(axis=1) / np.sqrt(columns)
        if kind == "mean":
            return Table(X)
        if kind == "regression":
            return Table(X, line + 0.5 * rng.standard_normal(rows), kind)
        if kind == "classification":
            return Table(X, (line + rng.logistic(size=rows) > 0).astype(np.float64), kind)
        return Table(X, rng.poisson(np.exp(np.clip(line, -2, 2))).astype(np.float64), kind)

    def with_last(self, row: Array | float, target: float) -> Table:
        """Return the table with another last row, or with this one for all rows of the last person."""
        last = -1 if self.groups is None else self.groups == self.groups[-1]
        X = np.array(self.X, dtype=np.float64)
        X[last] = row
        if self.y is None:
            return replace(self, X=X)
        y = np.array(self.y, dtype=np.float64)
        y[last] = target
        return replace(self, X=X, y=y)

    @property
    def people(self) -> dict[str, Any]:
        """The argument ``groups`` of a fit, where there are any."""
        return {} if self.groups is None else {"groups": self.groups}


@dataclass(frozen=True)
class Pair:
    """Two neighbouring tables.

    Parameters
    ----------
    name : str
        For the report.
    one, other : Table
        They differ in one row, or one has a row more.
    """

    name: str
    one: Table
    other: Table


def _own(table: Table) -> tuple[Array, float]:
    return np.asarray(table.X[-1]), 0.0 if table.y is None else float(table.y[-1])


def _label(table: Table, value: float) -> float:
    """Return a target that a classifier or a regressor of counts accepts, for any value."""
    if table.kind == "classification":
        return float(value > 0)
    return max(value, 0.0) if table.kind == "counts" else value


def _far(table: Table) -> tuple[Table, Table]:
    return table, table.with_last(FAR, _label(table, FAR))


def _opposite(table: Table) -> tuple[Table, Table]:
    if table.y is None:
        return table.with_last(-FAR, 0.0), table.with_last(FAR, 0.0)
    return table.with_last(FAR, _label(table, -FAR)), table.with_last(FAR, _label(table, FAR))


def _infinite(table: Table) -> tuple[Table, Table]:
    if table.kind in ("regression", "counts"):  # through the target: an infinite feature times 0 has no sign
        row, _ = _own(table)
        return table.with_last(row, _label(table, -np.inf)), table.with_last(row, np.inf)
    _, target = _own(table)
    return table.with_last(-np.inf, target), table.with_last(np.inf, target)


def _not_a_number(table: Table) -> tuple[Table, Table]:
    target = _own(table)[1] if table.kind == "classification" else np.nan
    return table, table.with_last(np.nan, target)


def _duplicate(table: Table) -> tuple[Table, Table]:
    return table, table.with_last(table.X[0], 0.0 if table.y is None else float(table.y[0]))


def _label_flip(table: Table) -> tuple[Table, Table]:
    row, target = _own(table)
    flipped = {"classification": 1.0 - target, "counts": 0.0 if target else FAR}.get(table.kind, -target)
    return table, table.with_last(row, flipped)


def _canary(table: Table) -> tuple[Table, Table]:
    row = np.zeros(table.X.shape[1])
    row[0] = FAR
    return table.with_last(0.0, 0.0), table.with_last(row, _label(table, FAR))


NEIGHBOURS: dict[str, Callable[[Table], tuple[Table, Table]]] = {
    "far outlier": _far,
    "opposite outliers": _opposite,
    "infinite": _infinite,
    "not a number": _not_a_number,
    "duplicate": _duplicate,
    "label flip": _label_flip,
    "sparse canary": _canary,
}


def neighbours(table: Table, names: Sequence[str] | None = None, relation: Relation = "replace-one") -> list[Pair]:
    """Return pairs of neighbouring tables around one.

    Parameters
    ----------
    table : Table
        Whose last row is replaced.
    names : sequence of str, optional
        Which pairs; default all that make sense for the kind of table.
    relation : {"replace-one", "add-remove"}
        Under add-remove every row is compared with one that contributes nothing.

    Returns
    -------
    list of Pair
    """
    pairs = []
    for name in NEIGHBOURS if names is None else names:
        one, other = NEIGHBOURS[one_of("neighbours", name, NEIGHBOURS)](table)
        if name == "label flip" and table.y is None:
            if names is not None:
                raise ValueError("neighbours='label flip' is not accepted for a mean, which has no labels.")
            continue
        if relation == "add-remove":
            absent = table.with_last(np.nan, _own(table)[1] if table.kind == "classification" else np.nan)
            one, other = absent, table if name == "not a number" else other
        pairs.append(Pair(name, one, other))
    return pairs
