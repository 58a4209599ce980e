"""What an engine is, and which one holds given rows.

An engine is one class in one file of this folder. It is found by itself: `engine_for` asks every class here that has
an ``accepts``, lowest ``rank`` first, whether it wants the rows, and has the first that does build itself. Nothing else
in the package knows which engines there are. `tests/contracts/test_engines.py` holds an engine to the promise that all
of them keep: **the sums are the same integers**, whatever the storage, blocks, threads and order of the rows.

Python functions of blocks of rows (a user's loss, the queries of the default) get blocks of the same rows in every
engine that keeps the rows in order: a matrix product may round a row differently where it stands elsewhere in its
block. Blocks begin at multiples of `block_rows`.

Compiled sums (those of the default, `tailguard.default.rows`) say ``fused = True``, and vectors of rows that have such
a sum have ``clipped(grid)``. Their bits do not depend on where rows are cut, so an engine may hand them any pieces, row
by row or column by column, and no other function. An engine that knows nothing of this calls them like any function
of blocks. One that sets ``shares_passes = True`` is also asked for several of them in one pass.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from tailguard.engines.frames import refuse_plan
from tailguard.truncation.grid import Grid

if TYPE_CHECKING:
    from tailguard.engines.vectors import RowVectors

# Rows as a user gives them: an array, a frame, a `tailguard.Source`, a path, or what another engine accepts.
Data = Any
Target = Literal["number", "label", "none"]
BlockFunction = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]

# Values of a block that is handed to a Python function: it stays in a core's cache.
_BLOCK_VALUES = 2**16


class RowsStayError(ValueError):
    """The method needs rows in one place, and this engine leaves them where they are."""


class Engine(Protocol):
    """Rows ``X`` (n, d) and, for gradients, their targets ``y`` (n,), wherever they are.

    The first group is what private means and the loop ask, the second (from `names` on) what the estimators ask.
    Functions of blocks are given C-contiguous, read-only rows of float32 or float64, and targets of float64 (zeros if
    there are none); warnings of NumPy are off.
    """

    @property
    def n(self) -> int:
        """Number of rows, public."""

    @property
    def columns(self) -> int:
        """Number of columns of X."""

    @property
    def threads(self) -> int | None:
        """Threads for work on this machine; None is all cores."""

    def truncated_sum(
        self, vectors: RowVectors, grid: Grid, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Exact sum of the truncated vectors of the given rows (default all), in units of the grid."""

    def integer_sum(self, function: BlockFunction, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Sum over blocks of rows of ``function(X, y)``, an int64 array of the given shape."""

    def columns_of(self, vectors: RowVectors) -> Callable[[int, int], NDArray[np.float64]]:
        """Return a function of (output, coordinate) that gives that coordinate of every row's vector, shape (n,).

        It may be called from several threads, and may raise `RowsStayError`.
        """

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Copy rows, in the given order, into memory: X and y. It may raise `RowsStayError`."""

    def column(self, j: int) -> Engine:
        """Return an engine over column j alone, as its X and, in float64, as its y."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, if they have any."""

    def labels(self) -> NDArray[Any]:
        """Distinct targets, sorted: for classifiers that are not told the classes."""

    def encoded(self, classes: Sequence[Any], values: NDArray[np.float64]) -> Engine:
        """Return an engine whose targets are ``values[k]`` where they were ``classes[k]``, and NaN elsewhere."""

    def map_rows(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
        """Apply a function to all rows, a block at a time: one result per row, in their order."""


class EngineClass(Protocol):
    """The class of an engine: how it is chosen and built."""

    rank: int

    def accepts(self, X: Any) -> bool:
        """Whether X is for this engine, from its type alone; imports nothing that is heavy."""

    def of(
        self, X: Any, y: Any, threads: int | None, *, target: Target = "number", names: Sequence[str] | None = None
    ) -> Engine:
        """Check types and shapes, not values, and build the engine; parameters as in `engine_for`."""


def engine_for(
    X: Any,
    y: Any = None,
    threads: int | None = None,
    *,
    target: Target = "number",
    names: Sequence[str] | None = None,
) -> Engine:
    """Return the engine for rows and targets; an engine is returned as it is.

    Parameters
    ----------
    X : array_like, Source, path, pyarrow table or dataset, or an engine
        Rows.
    y : array_like or str, optional
        Targets: an array, or the name of a column of X.
    threads : int, optional
        Threads on this machine.
    target : {"number", "label", "none"}
        What targets are: numbers, labels of any type that `Engine.encoded` will make numbers, or not needed.
    names : sequence of str, optional
        Columns to take, in this order, from rows that have names.
    """
    if is_engine(X):
        return cast(Engine, X)
    refuse_plan(X)
    for kind in _kinds():
        if kind.accepts(X):
            return kind.of(X, y, threads, target=target, names=names)
    raise TypeError(f"X of type {type(X).__name__} is not accepted: give an array of numbers, rows by columns.")


def elsewhere(X: Any) -> bool:
    """Whether rows are not an array in this process, so that only an engine can look at them."""
    if is_engine(X):
        return True
    refuse_plan(X)
    return not isinstance(X, np.ndarray) and next(kind for kind in _kinds() if kind.accepts(X)).rank < _LAST


def is_engine(X: Any) -> bool:
    """Whether X is an engine already."""
    kind = type(X)  # an object that makes up its attributes, as a delayed one of Dask does, is none
    return callable(getattr(kind, "truncated_sum", None)) and callable(getattr(kind, "integer_sum", None))


def block_rows(columns: int) -> int:
    """Rows of a block that is handed to a Python function; blocks begin at its multiples, in every engine."""
    return max(1, _BLOCK_VALUES // max(1, columns))


_LAST = 100  # rank of the engine that takes what no other wants


@cache
def _kinds() -> list[EngineClass]:
    """Every engine class of this folder, lowest rank first."""
    found: set[Any] = set()
    for module in pkgutil.iter_modules(import_module("tailguard.engines").__path__):
        members = vars(import_module(f"tailguard.engines.{module.name}")).values()
        found.update(kind for kind in members if isinstance(kind, type) and isinstance(_rank(kind), int))
    return sorted(found, key=lambda kind: (_rank(kind), kind.__name__))


def _rank(kind: Any) -> Any:
    return getattr(kind, "rank", None) if hasattr(kind, "accepts") else None
