r"""Several rows per person: an engine whose unit is the person, whatever the number of their rows.

It holds rows in memory, sorted by person, and is to everything above it an engine of ``n`` rows where n is the number
of **persons**. How many rows there are, and how many of them a person has, is private: nothing outside this file sees
it.

==================  ==================================================  ===============================================
asked for           one person adds                                     so replacing a person, with all their rows,
==================  ==================================================  ===============================================
`truncated_sum`     the average of their rows' vectors, truncated once  removes one truncated vector and adds another
`columns_of`        the average of their rows' values                   replaces one value in every column
`integer_sum`       what one of their rows adds, drawn at random        replaces one row
`members`           all their rows, to one block                        changes one block
==================  ==================================================  ===============================================

**Formal guarantee.** Whatever is proved about an engine of n rows for the replacement of a row, or for a row that
is there or contributes nothing, holds here for a person with all their rows. In `truncated_sum` the truncation is the
last thing that happens to a person before the exact sum, so its bound holds whatever the rows are. In `integer_sum`
fix the draws: person i then adds a function of their own rows, and what was proved per row holds per person; mixing
over draws that do not depend on the data keeps (epsilon, delta) (joint convexity), and since the draws are
independent with one law it does not matter which of them a person gets: ids, their order and the order of the rows may
change with the person.

**What is estimated.** Persons count alike: the mean over persons of the average over their rows (for a loss: of
their average loss). A person's vector is at most as long, and its second moment at most as large, as that of their
rows, so a clip or a bound v that suits rows suits persons. One row drawn at random has the same expectation as the
average, so all queries speak of the same target.

Python functions of blocks (`PerRow`, `Custom`) must give a row the same bits in whatever place of a block it
stands, since the number of rows before it is private: no matrix products that a BLAS adds up by place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from numbers import Number
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tailguard import kernels
from tailguard._checks import ShapeError
from tailguard.engines.engine import BlockFunction, Engine, RowsStayError, block_rows
from tailguard.engines.frames import without_column
from tailguard.engines.memory import InMemory
from tailguard.engines.source import Source
from tailguard.engines.streamed import Streamed
from tailguard.engines.threads import parallel_map, thread_count
from tailguard.engines.vectors import RowValues, RowVectors
from tailguard.privacy import Event, NoiseSource
from tailguard.privacy.events import in_units
from tailguard.truncation.grid import Grid

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_DRAW = 2**31  # the stream of a seeded source for the rows that are drawn: no step of an algorithm has this number


@dataclass(frozen=True)
class Grouped:
    """An engine over the persons whose rows it holds; `grouped` makes one.

    Parameters
    ----------
    rows : InMemory
        All rows, those of one person side by side.
    first : ndarray of int64, shape (n + 1,)
        First row of every person, and the number of rows.
    drawn : ndarray of int64, shape (n,)
        One row of every person, drawn independently of the data.
    place : ndarray of int64 or None
        Where each of the rows stands in the user's table; None if in the same place.
    """

    rows: InMemory
    first: Index
    drawn: Index
    place: Index | None = None

    @property
    def n(self) -> int:
        """Number of persons."""
        return len(self.first) - 1

    @property
    def columns(self) -> int:
        """Number of columns of X."""
        return self.rows.columns

    @property
    def threads(self) -> int | None:
        """Threads of the kernels."""
        return self.rows.threads

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns."""
        return self.rows.names

    def truncated_sum(self, vectors: RowVectors, grid: Grid, rows: Index | None = None) -> NDArray[np.int64]:
        """Exact sum over the given persons (default all) of their average vector, truncated, in units of the grid."""
        persons = np.arange(self.n) if rows is None else rows
        alone = self._sizes[persons] == 1
        several = persons[~alone]

        def piece_sum(piece: slice) -> NDArray[np.int64]:
            return self._sum_of_averages(vectors, grid, several[piece])

        with in_words():
            if rows is None and alone.all():
                return self.rows.truncated_sum(vectors, grid)
            # Who has one row goes the way of a table without groups, to the same bits.
            total = self.rows.truncated_sum(vectors, grid, self.first[persons[alone]])
            return total + sum(parallel_map(piece_sum, self._pieces(several), thread_count(self.threads)))

    def integer_sum(self, function: BlockFunction, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Sum over blocks of ``function(X, y)``, with one row for each person, drawn at random."""
        return self._one_each.integer_sum(function, shape)

    def columns_of(self, vectors: RowVectors) -> Callable[[int, int], Array]:
        """Return a function of (output, coordinate) that gives that coordinate of every person's average vector."""
        with in_words():
            values = self.rows.columns_of(vectors)

        def column(k: int, j: int) -> Array:
            out = np.empty(self.n)
            kernels.persons.means(np.ascontiguousarray(values(k, j), np.float64), self.first, out)
            return out

        return column

    def take(self, rows: Index) -> tuple[NDArray[Any], NDArray[Any]]:
        """Copy one row of each of these persons, drawn at random, in the given order: X and y."""
        return self._one_each.take(rows)

    def members(self, persons: Index) -> tuple[NDArray[Any], NDArray[Any], Array]:
        """Copy all rows of these persons: X, y and the shares of the rows, equal for every person, that add up to 1."""
        sizes = self._sizes[persons]
        return *self.rows.take(self._rows_of(persons)), np.repeat(1.0 / (sizes * len(persons)), sizes)

    def column(self, j: int) -> Grouped:
        """Return an engine over column j alone, as X and as y, of the same persons."""
        return replace(self, rows=self.rows.column(j))

    def labels(self) -> NDArray[Any]:
        """Distinct targets of all rows, sorted."""
        return self.rows.labels()

    def encoded(self, classes: Sequence[Any], values: Array) -> Grouped:
        """Return an engine whose targets are ``values[k]`` where they were ``classes[k]``, and NaN elsewhere."""
        return replace(self, rows=self.rows.encoded(classes, values))

    def map_rows(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
        """Apply a function to all rows, a block at a time; results in the order of the user's table."""
        found = self.rows.map_rows(function)
        if self.place is None:
            return found
        ordered = np.empty_like(found)
        ordered[self.place] = found
        return ordered

    def averaged(self) -> Grouped:
        """Return an engine of the same persons, each with one row: the average of their rows, and no target.

        For means, whose queries then see, and adapt to, what is averaged over persons.
        """
        average = np.empty((self.n, self.columns))
        for j in range(self.columns):
            kernels.persons.means(np.array(self.rows.X[:, j], dtype=np.float64), self.first, average[:, j])
        alone = InMemory(average, None, self.threads, self.names)
        return Grouped(alone, np.arange(self.n + 1), np.arange(self.n))

    @cached_property
    def _sizes(self) -> Index:
        return np.diff(self.first)

    @cached_property
    def _one_each(self) -> InMemory:
        if len(self.drawn) == self.rows.n:
            return self.rows
        y = None if self.rows.y is None else self.rows.y[self.drawn]
        return replace(self.rows, X=self.rows.X[self.drawn], y=y)

    def _rows_of(self, persons: Index) -> Index:
        """All rows of these persons, one person after the other."""
        sizes = self._sizes[persons]
        before = np.cumsum(sizes) - sizes
        return np.arange(sizes.sum()) + np.repeat(self.first[persons] - before, sizes)

    def _pieces(self, persons: Index) -> Iterator[slice]:
        """Cut persons into pieces of about as many rows as a block has; a piece is never less than one person."""
        ends = np.cumsum(self._sizes[persons])
        edges = np.flatnonzero(np.diff(ends // block_rows(self.columns))) + 1
        bounds = [0, *edges.tolist(), len(persons)]
        return (slice(start, stop) for start, stop in pairwise(bounds) if stop > start)

    def _sum_of_averages(self, vectors: RowVectors, grid: Grid, persons: Index) -> NDArray[np.int64]:
        shape = vectors.shape(self.columns)
        X, y = self.rows.take(self._rows_of(persons))
        block = vectors.block(_fixed(X), _fixed(np.asarray(y, dtype=np.float64)))
        f = np.empty((shape[0], len(X)))
        kernels.rows.fill_multipliers(*block, f)
        vector = np.empty((len(persons), shape[0] * shape[1]))
        first = np.append(0, np.cumsum(self._sizes[persons]))
        kernels.persons.mean_vectors(block.X, f, block.fit_intercept, first, vector)
        # All outputs as one vector, of multiplier 1: an L2 clip is over all of them.
        total = np.zeros((1, vector.shape[1]), dtype=np.int64)
        bound, *psi = grid.truncation.kernel_arguments()
        plain = RowValues().block(vector, _fixed(np.zeros(len(vector))))
        kernels.rows.truncated_sum(*plain, grid.truncation.kind, bound, 1.0 / grid.unit, *psi, total)
        return total.reshape(shape)


def grouped(engine: Engine, groups: Any, noise: NoiseSource) -> Grouped:
    """Return an engine over persons, from one over their rows.

    Parameters
    ----------
    engine : Engine
        Rows; those in files come into memory.
    groups : array_like of shape (rows,)
        Whose row it is: numbers, texts, dates. Rows without an id (NaN, None) are together one person: nothing says
        that they are not, and so no person among them can add more than one may.
    noise : NoiseSource
        Of the run; draws one row of each person.
    """
    rows = _in_memory(engine)
    person = numbered(groups)
    if len(person) != rows.n:
        # In words: the numbers of rows are private.
        raise ValueError("groups and X differ in length: give one id per row, the same for all rows of a person.")
    sizes = np.bincount(person)
    place = None
    if np.any(person[1:] < person[:-1]):
        place = np.argsort(person, kind="stable")
        rows = replace(rows, X=rows.X[place], y=None if rows.y is None else rows.y[place])
    first = np.append(0, np.cumsum(sizes))
    drawn = np.minimum((noise.at(_DRAW).uniform(len(sizes)) * sizes).astype(np.int64), sizes - 1)
    return Grouped(rows, first, first[:-1] + drawn, place)


@contextmanager
def in_words(groups: Any = True) -> Iterator[None]:
    """Where ids are given, refuse arrays of the wrong shape without telling it: the number of rows is private."""
    try:
        yield
    except ShapeError as error:
        if groups is not None:
            error.args = (error.words,)  # and no second error, which would carry the first one with it
        raise


def for_unit(engine: Engine, events: Iterable[Event]) -> tuple[Event, ...]:
    """Return the events of releases from an engine: for persons where it holds persons."""
    return in_units(events, "person" if isinstance(engine, Grouped) else "row")


def split(X: Any, groups: Any, y: Any = None) -> tuple[Any, Any]:
    """Return rows without the column that ``groups`` names, and the ids in it; ids that are given pass through.

    Parameters
    ----------
    X : frame, Source, path or table of Arrow
        Where the column is; anything if the ids are given.
    groups : str or array_like
        Name of a column, or ids.
    y : str or array_like, optional
        Name of the target, if it is a column of a file.
    """
    if not isinstance(groups, str):
        return X, groups
    if Streamed.accepts(X) and not isinstance(X, np.ndarray):
        source = X if isinstance(X, Source) else Source(X)
        return source.without(groups, *([y] if isinstance(y, str) else [])), source.ids(groups)
    rest, ids = without_column(X, groups, "groups")
    if hasattr(ids, "dask"):
        raise RowsStayError(_STAY)
    return rest, ids


_STAY = (
    "groups= is not accepted for rows on a cluster, where those of one person may lie in several places: give an "
    "array, a frame or files that fit into memory."
)


def numbered(groups: Any) -> Index:
    """Number persons 0, 1, ... in the order in which their first rows stand; rows without an id are one person."""
    if hasattr(groups, "dask"):
        raise RowsStayError(_STAY)
    if callable(getattr(groups, "cpu", None)):  # a tensor on a GPU
        groups = groups.cpu()
    if isinstance(groups, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(groups)
        groups = np.ma.getdata(groups).astype(object)
        groups[masked] = None
    try:
        ids = np.asarray(groups)
    except ValueError:
        ids = np.empty((), dtype=object)
    mixed = ids.ndim == 1 and ids.dtype.kind in "US" and not isinstance(groups, np.ndarray)
    if mixed or ids.dtype.kind == "T" or (ids.ndim == 1 and ids.dtype.kind == "f" and _holds_integers(groups)):
        # Integers beside a missing one become floats, in which two ids may be one; texts compare badly with nulls, and
        # numbers beside texts become texts, in which 1 and 1.0 are two.
        ids = np.array([*_listed(groups)], dtype=object)
    if ids.ndim == 2 and ids.shape[1] == 1:
        ids = ids[:, 0]
    if ids.ndim != 1:
        raise ValueError("groups must have one id per row, or be the name of a column of X; give a list of ids.")
    if ids.dtype == object:
        return _numbered_objects(ids.tolist())
    if ids.dtype.kind == "V":
        raise TypeError(_NO_ID)
    _, start, person = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(len(start), dtype=np.int64)
    rank[np.argsort(start)] = np.arange(len(start))
    return rank[person]


def _numbered_objects(ids: list[Any]) -> Index:
    known: dict[Any, int] = {}
    try:
        return np.array([known.setdefault(None if _missing(one) else one, len(known)) for one in ids], dtype=np.int64)
    except TypeError:  # whose message might repeat an id
        pass
    raise TypeError(_NO_ID)


_NO_ID = "groups holds something that can be no id: give numbers, texts or dates."


def _holds_integers(groups: Any) -> bool:
    """Whether ids that NumPy makes floats may have been integers: those of lists, polars and Arrow."""
    if isinstance(groups, (list, tuple)):
        return True
    kind = str(getattr(groups, "dtype", getattr(groups, "type", ""))).lower()
    return kind.startswith(("int", "uint")) and not isinstance(groups, np.ndarray)


def _listed(groups: Any) -> Iterable[Any]:
    """Ids one by one, as Python has them."""
    for name in ("to_pylist", "to_list", "tolist"):
        if hasattr(groups, name):
            return cast(Iterable[Any], getattr(groups, name)())
    return cast(Iterable[Any], groups)


def _missing(one: Any) -> bool:
    """NaN and NaT of any type, None, and the missing value of pandas, which need not be installed."""
    if one is None or type(one).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(one, (Number, np.generic)) and bool(one != one)


def _in_memory(engine: Engine) -> InMemory:
    if isinstance(engine, InMemory):
        return engine
    refused = False
    try:
        X, y = engine.take(np.arange(engine.n))
    except RowsStayError:
        refused = True
    if refused:
        raise RowsStayError(_STAY)
    return InMemory(X, y, engine.threads, engine.names)


def _fixed(array: NDArray[Any]) -> NDArray[Any]:
    """Return C-contiguous values that no function can change."""
    array = np.ascontiguousarray(array).view()
    array.flags.writeable = False
    return array
