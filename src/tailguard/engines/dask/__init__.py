"""Rows on the workers of a Dask cluster: arrays, dataframes, and Parquet files where a client is active.

The rows stay where they are. A partition becomes a matrix of rows and their targets on the worker that holds it, and a
pass over the data is two kinds of tasks:

=====================  =============================================  ===============================================
task                   runs                                           returns
=====================  =============================================  ===============================================
``tailguard-sum``      once per worker, on its partitions             the sum of an `InMemory` engine over them
``tailguard-add``      a tree of sixteen to one                       the sum of such sums
=====================  =============================================  ===============================================

Noise and the account never leave this process: nothing is paid for a task that runs twice.

======================================  ==========================================================================
`tailguard.engines.dask.tables`         collections: the tasks that make partitions, and what is known of them
`tailguard.engines.dask.files`          files, cut into pieces for the workers
`tailguard.engines.dask.parts`          partitions on the workers, and passes over them
`tailguard.engines.dask.tasks`          what runs on the workers
======================================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, cast
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from tailguard._optional import import_optional
from tailguard.engines.dask import tasks
from tailguard.engines.dask.files import pieces
from tailguard.engines.dask.parts import FEW, Parts, Room, active_client, computed
from tailguard.engines.dask.tables import Table, is_dask
from tailguard.engines.engine import BlockFunction, Engine, RowsStayError, Target
from tailguard.engines.labels import distinct
from tailguard.engines.stored import SourceRows
from tailguard.engines.streamed import Streamed
from tailguard.engines.vectors import RowVectors
from tailguard.truncation.grid import Grid

Array = NDArray[np.float64]

_STAY = (
    "method='{}' needs the rows in one place, and Dask leaves them on its workers: use 'auto', 'clipped' or 'smoothed' "
    "there, or give rows that are in memory or, without a client, in files."
)


@dataclass(frozen=True)
class Dask:
    """An engine over partitions on the workers of a cluster, or without a client in the threads of this process."""

    parts: Parts = field(repr=False)
    lengths: tuple[int, ...]
    columns: int
    names: tuple[str, ...] | None = None
    threads: int | None = None
    lazy: bool = True  # whether results that are one per row stay on the workers too
    load: bool = False  # whether files are read once, as soon as their targets are numbers

    rank: ClassVar[int] = 5  # before files, which are for the workers where there are some
    shares_passes: ClassVar[bool] = True

    @staticmethod
    def accepts(X: Any) -> bool:
        """Whatever is of Dask, and with an active client Parquet and Arrow files."""
        return is_dask(X) or (Streamed.accepts(X) and not isinstance(X, np.ndarray) and active_client() is not None)

    @staticmethod
    def of(
        X: Any, y: Any, threads: int | None, *, target: Target = "number", names: Sequence[str] | None = None
    ) -> Engine:
        """Check types and shapes; rows are loaded on the workers, and counted there if their number is not known."""
        if not is_dask(X):
            return _of_files(X, y, threads, target, names)
        table = Table.of(X, y, target, names)
        size = table.columns * table.dtype.itemsize + 8
        if table.lengths is None:
            parts = Parts.counted(table.graph, table.keys, size, threads)
        else:
            parts = Parts.of(table.graph, table.keys, table.lengths, Room.of(sum(table.lengths), size), threads)
        if sum(parts.lengths) < 1:
            raise ValueError("X has no rows: give at least one.")
        return Dask(parts, parts.lengths, table.columns, table.names, threads)

    @property
    def n(self) -> int:
        """Number of rows."""
        return sum(self.lengths)

    def truncated_sum(
        self, vectors: RowVectors, grid: Grid, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Exact sum of the truncated vectors of the given rows (default all), in units of the grid."""
        job = partial(tasks.truncated_sum, vectors, grid)
        return self._sum(job, vectors.shape(self.columns), None if rows is None else self._by_part(rows))

    def integer_sum(self, function: BlockFunction, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Sum over blocks of rows of ``function(X, y)``, an int64 array: counts, and exact products."""
        return self._sum(partial(tasks.integer_sum, function, shape), shape, None)

    def columns_of(self, vectors: RowVectors) -> Callable[[int, int], Array]:
        """Refuse: a number for every row would come here."""
        raise RowsStayError(_STAY.format("trimmed"))

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Refuse: rows would come here."""
        raise RowsStayError(_STAY.format("aggregate"))

    def column(self, j: int) -> Dask:
        """Return an engine over column j alone, as X and as y."""
        return replace(self, parts=self.parts.changed(partial(tasks.column, j)), columns=1, names=None)

    def labels(self) -> NDArray[Any]:
        """Distinct targets, sorted; they come here, and only they."""
        found: set[Any] = self.parts.added(tasks.labels, tasks.union, FEW)
        if len(found) > tasks.MOST_LABELS:
            raise ValueError(f"y has more than {tasks.MOST_LABELS} distinct labels: name the classes, classes=[...].")
        return distinct(found)

    def encoded(self, classes: Sequence[Any], values: Array) -> Dask:
        """Return an engine whose targets are ``values[k]`` where they were ``classes[k]``, and NaN elsewhere."""
        return replace(self, parts=self.parts.changed(partial(tasks.encoded, list(classes), values)))._loaded()

    def map_rows(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
        """Apply a function to all rows, a block at a time: a Dask array, on the workers; of files, an array here."""
        like = function(np.zeros((1, self.columns)))
        name = f"tailguard-rows-{uuid4().hex}"
        tail = (0,) * (like.ndim - 1)
        mapped = self.parts.mapped(partial(tasks.map_rows, function, like[:0]), "map")
        graph = mapped.graph | {(name, i, *tail): (tasks.checked, ref) for i, ref in enumerate(mapped.refs)}
        if not self.lazy:
            keys = [(name, i, *tail) for i in range(len(mapped.refs))]
            return np.concatenate(computed(graph, keys, self.threads, self.parts.client))
        arrays = import_optional("dask.array", "dask")
        layers = import_optional("dask.highlevelgraph", "dask").HighLevelGraph
        chunks = (self.lengths, *((size,) for size in like.shape[1:]))
        return arrays.Array(layers({name: graph}, {name: set()}), name, chunks, dtype=like.dtype)

    def _sum(
        self, job: Callable[..., Any], shape: tuple[int, ...], rows: list[NDArray[Any]] | None
    ) -> NDArray[np.int64]:
        total = self.parts.added(job, tasks.total, int(np.prod(shape)), rows)
        return np.zeros(shape, np.int64) if total is None else np.asarray(total, np.int64).reshape(shape)

    def _loaded(self) -> Dask:
        """Have the workers read files that they are to hold."""
        if not self.load:
            return self
        return replace(self, parts=replace(self.parts.changed(tasks.of_files), apart=False), load=False)

    def _by_part(self, rows: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Rows of every partition, counted from its first."""
        edges = np.concatenate([[0], np.cumsum(self.lengths)])
        rows = np.sort(rows)
        cuts = np.searchsorted(rows, edges)
        return [rows[cuts[i] : cuts[i + 1]] - edges[i] for i in range(len(self.lengths))]


def _of_files(X: Any, y: Any, threads: int | None, target: Target, names: Sequence[str] | None) -> Engine:
    """Files that the workers read, a few row groups each; what is no file is streamed here."""
    here = cast(Streamed, Streamed.of(X, y, threads, target=target, names=names))
    rows = cast(SourceRows, here.rows)
    cut = list(pieces(rows))
    if not cut:
        return here
    lengths = tuple(piece.n for piece in cut)
    token = f"tailguard-files-{uuid4().hex}"
    graph: dict[Any, Any] = {(token, i): (partial(tasks.same, Streamed(piece, 1)),) for i, piece in enumerate(cut)}
    room = Room.of(rows.n, rows.columns * rows.dtype.itemsize + 8)
    # Readers are always held: they are small. What `room` says is whether they read once or on every pass.
    parts = replace(Parts.of(graph, list(graph), lengths, replace(room, held=True), threads), apart=True)
    engine = Dask(parts, lengths, rows.columns, rows.names, threads, lazy=False, load=room.held)
    return engine if target == "label" else engine._loaded()
