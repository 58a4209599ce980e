"""Rows on the workers of a Dask cluster: arrays, dataframes, and Parquet files where a client is active.

The rows stay where they are. A partition becomes a matrix of rows and their targets on the worker that holds it, and a
pass over the data is two kinds of tasks:

=====================  =============================================  ===============================================
task                   runs                                           returns
=====================  =============================================  ===============================================
``tailguard-sum``      once per worker, on its partitions             the sum of an `InMemory` engine over them
``tailguard-add``      a tree of sixteen to one                       the sum of such sums
=====================  =============================================  ===============================================

A sum is as many integers as the query has coordinates. The last sixteen are added up here, which saves Dask one more
round of messages, unless they are long. Integers add up to the same total in any tree and as often as they are
computed: Dask may run a task twice, or elsewhere after its worker was lost, and the result has the same bits. Noise and
the account never leave this process: nothing is paid for a second run.

A worker is sent a function of blocks of rows with the values it refers to. Should it refer to an engine, an account
or a source of noise, these stay here and something that only raises goes in their place.

**Errors.** Dask writes what a task raises to the log of its worker, and sends it here. So tasks of this engine do not
raise: an error of the function itself is returned, and raised here as it would be by rows in memory; of every other
error, which may repeat what was read, only the type is kept.
"""

from __future__ import annotations

import io
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, cast
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from tailguard._checks import as_numbers
from tailguard._optional import import_optional
from tailguard.engines.engine import BlockFunction, Engine, RowsStayError, Target
from tailguard.engines.files import ArrowBatches
from tailguard.engines.labels import distinct, encode
from tailguard.engines.memory import InMemory
from tailguard.engines.source import MEMORY
from tailguard.engines.streamed import SourceRows, Streamed
from tailguard.engines.threads import parallel_map, thread_count
from tailguard.engines.vectors import RowVectors
from tailguard.truncation.grid import Grid

Array = NDArray[np.float64]
# A partition on its worker: rows and targets, an engine that reads them from files, or why there are none.
Part = Any

_FAN = 16  # sums that one task adds up: the depth of the tree is the logarithm to this base
_SHARES = 4096  # shares of files, if there are not more threads: more would cost the scheduler seconds
_FEW = 2**13  # integers in all of the sums that are added up here: 64 KiB
_KEPT = 0.5  # of the workers' memory: rows that take more are computed anew, or read, on every pass
_PART_VALUES = 2**23  # values of a partition that is read from files: 64 MiB of float64
_MOST_LABELS = 10_000
_FORGET = 64  # sums that workers keep, until they are told to forget them all
_LOOK = 5.0  # seconds after which it is looked again where partitions are
_UNREAD = (
    "the rows could not be computed on the workers ({}): try the tasks that make them on rows that are not private."
)
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
        """Collections of Dask, and with an active client Parquet and Arrow files."""
        files = _client() is not None and Streamed.accepts(X) and not isinstance(X, np.ndarray)
        return files or _is_collection(X)

    @staticmethod
    def of(
        X: Any, y: Any, threads: int | None, *, target: Target = "number", names: Sequence[str] | None = None
    ) -> Engine:
        """Check types and shapes; rows are loaded on the workers, and counted there if their number is not known."""
        if not _is_collection(X):
            return _of_files(X, y, threads, target, names)
        if y is None and target != "none":
            raise ValueError("y=None is not accepted: give one value per row, or the name of a column of a dataframe.")
        table = _frame(X, y, target, names) if _is_frame(X) else _array(X, y, target)
        lengths = table.lengths
        if lengths is None:
            token = f"tailguard-count-{uuid4().hex}"
            counts = {(token, i): (_length, key) for i, key in enumerate(table.keys)}
            lengths = tuple(_computed(table.graph | counts, list(counts), threads, _client()))
        if sum(lengths) < 1:
            raise ValueError("X has no rows: give at least one.")
        held = _fits(sum(lengths) * (table.columns * table.dtype.itemsize + 8))
        parts = Parts.of(table.graph, table.keys, lengths, held, threads)
        return Dask(parts, lengths, table.columns, table.names, threads)

    @property
    def n(self) -> int:
        """Number of rows."""
        return sum(self.lengths)

    def truncated_sum(
        self, vectors: RowVectors, grid: Grid, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Exact sum of the truncated vectors of the given rows (default all), in units of the grid."""
        job = partial(_truncated_sum, vectors, grid)
        return self._sum(job, vectors.shape(self.columns), None if rows is None else self._by_part(rows))

    def integer_sum(self, function: BlockFunction, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Sum over blocks of rows of ``function(X, y)``, an int64 array: counts, and exact products."""
        return self._sum(partial(_integer_sum, function, shape), shape, None)

    def columns_of(self, vectors: RowVectors) -> Callable[[int, int], Array]:
        """Refuse: a number for every row would come here."""
        raise RowsStayError(_STAY.format("trimmed"))

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Refuse: rows would come here."""
        raise RowsStayError(_STAY.format("aggregate"))

    def column(self, j: int) -> Dask:
        """Return an engine over column j alone, as X and as y."""
        return replace(self, parts=self.parts.changed(partial(_column, j)), columns=1, names=None)

    def labels(self) -> NDArray[Any]:
        """Distinct targets, sorted; they come here, and only they."""
        found: set[Any] = self.parts.added(_labels, _union, _FEW)
        if len(found) > _MOST_LABELS:
            raise ValueError(f"y has more than {_MOST_LABELS} distinct labels: name the classes, classes=[...].")
        return distinct(found)

    def encoded(self, classes: Sequence[Any], values: Array) -> Dask:
        """Return an engine whose targets are ``values[k]`` where they were ``classes[k]``, and NaN elsewhere."""
        return replace(self, parts=self.parts.changed(partial(_encoded, list(classes), values)))._loaded()

    def map_rows(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
        """Apply a function to all rows, a block at a time: a Dask array, on the workers; of files, an array here."""
        like = function(np.zeros((1, self.columns)))
        name = f"tailguard-rows-{uuid4().hex}"
        tail = (0,) * (like.ndim - 1)
        mapped = self.parts.mapped(partial(_map_rows, function, like[:0]), "map")
        graph = mapped.graph | {(name, i, *tail): (_checked, ref) for i, ref in enumerate(mapped.refs)}
        if not self.lazy:
            keys = [(name, i, *tail) for i in range(len(mapped.refs))]
            found = _computed(graph, keys, self.threads, self.parts.client)
            return np.concatenate(found)
        arrays = import_optional("dask.array", "dask")
        layers = import_optional("dask.highlevelgraph", "dask").HighLevelGraph
        chunks = (self.lengths, *((size,) for size in like.shape[1:]))
        return arrays.Array(layers({name: graph}, {name: set()}), name, chunks, dtype=like.dtype)

    def _sum(
        self, job: Callable[..., Any], shape: tuple[int, ...], rows: list[NDArray[Any]] | None
    ) -> NDArray[np.int64]:
        total = self.parts.added(job, _total, int(np.prod(shape)), rows)
        return np.zeros(shape, np.int64) if total is None else np.asarray(total, np.int64).reshape(shape)

    def _loaded(self) -> Dask:
        """Have the workers read files that they are to hold."""
        if not self.load:
            return self
        return replace(self, parts=replace(self.parts.changed(_in_memory), apart=False), load=False)

    def _by_part(self, rows: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Rows of every partition, counted from its first."""
        edges = np.concatenate([[0], np.cumsum(self.lengths)])
        rows = np.sort(rows)
        cuts = np.searchsorted(rows, edges)
        return [rows[cuts[i] : cuts[i + 1]] - edges[i] for i in range(len(self.lengths))]


@dataclass(frozen=True)
class Parts:
    """Partitions as Dask knows them: references to them, and the tasks that compute those that are not held."""

    graph: dict[Any, Any]
    refs: list[Any]
    lengths: tuple[int, ...]
    held: bool
    client: Any
    threads: int | None
    apart: bool = False  # whether it does not matter where they are, because they are read from files
    _shares: list[Any] = field(default_factory=lambda: [0.0, []], compare=False)
    _done: list[Any] = field(default_factory=list, compare=False)  # results that Dask was not yet told to forget

    @staticmethod
    def of(graph: dict[Any, Any], keys: list[Any], lengths: tuple[int, ...], held: bool, threads: int | None) -> Parts:
        """Load the partitions, on the workers, if they are to be held."""
        client = _client()
        if not held:
            return Parts(graph, keys, lengths, False, client, threads)
        if client is not None:
            return Parts({}, client.get(graph, keys, sync=False), lengths, True, client, threads)
        found = _computed(graph, keys, threads, None)
        return Parts(
            {key: (partial(_same, part),) for key, part in zip(keys, found, strict=True)},
            keys,
            lengths,
            True,
            None,
            threads,
        )

    def mapped(self, job: Callable[[Part], Part], name: str) -> Parts:
        """Return what a function makes of every partition, on its worker, when it is asked for."""
        token, packed = uuid4().hex, _packed(job, self.client)
        made = {(f"tailguard-{name}-{token}", i): (partial(_apply, packed), ref) for i, ref in enumerate(self.refs)}
        return replace(self, graph=self.graph | made, refs=list(made), _shares=[0.0, []], _done=[])

    def changed(self, job: Callable[[Part], Part]) -> Parts:
        """Return changed partitions, held if these are."""
        made = self.mapped(job, "part")
        if not self.held:
            return made
        return replace(Parts.of(made.graph, made.refs, self.lengths, True, self.threads), apart=self.apart)

    def added(
        self,
        job: Callable[..., Any],
        add: Callable[[list[Any]], Any],
        size: int,
        rows: list[NDArray[Any]] | None = None,
    ) -> Any:
        """Return the sum, of about ``size`` numbers, of ``job(part, rows)`` over all partitions, in a tree."""
        token, packed = uuid4().hex, _packed(job, self.client)
        graph = dict(self.graph)
        level: list[Any] = []
        for share, threads in self._shared():
            chosen = [None if rows is None else rows[i] for i in share]
            key = (f"tailguard-sum-{token}", len(level))
            graph[key] = (partial(_sum_share, packed, add, chosen, threads), [self.refs[i] for i in share])
            level.append(key)
        depth = 0
        while len(level) > 1 and (len(level) > _FAN or len(level) * size > _FEW):
            depth += 1
            tasks = {
                (f"tailguard-add-{token}", depth, k): (partial(_add, add), level[k * _FAN : (k + 1) * _FAN])
                for k in range(-(-len(level) // _FAN))
            }
            graph, level = graph | tasks, list(tasks)
        # Telling Dask to forget a result would make the client wait 10 ms before it sends the next graph.
        if len(self._done) > _FORGET:
            self._done.clear()
        return add(_computed(graph, level, self.threads, self.client, self._done))

    def _shared(self) -> list[tuple[list[int], int]]:
        """Partitions that one task adds up, those of a worker, and its threads: few tasks, little to schedule."""
        if not self.held:  # a task would wait for all of its partitions, and hold them
            return [([i], 1) for i in range(len(self.refs))]
        if self.client is None:
            return [(share, 1) for share in self._cut(range(len(self.refs)), thread_count(self.threads))]
        looked, shares = self._shares
        if time.monotonic() - looked > _LOOK or not shares:
            self._shares[:] = time.monotonic(), list(self._located())
        return cast(list[tuple[list[int], int]], self._shares[1])

    def _located(self) -> Iterator[tuple[list[int], int]]:
        workers: dict[str, int] = self.client.nthreads()
        if self.apart:  # any worker can read any file: the scheduler gives the next share to the first that is free
            total = sum(workers.values())
            yield from ((share, 1) for share in self._cut(range(len(self.refs)), max(total, min(4 * total, _SHARES))))
            return
        import_optional("distributed", "dask").wait(self.refs)
        who = self.client.who_has(self.refs)
        here: dict[str, list[int]] = {}
        for i, ref in enumerate(self.refs):
            here.setdefault(next(iter(who.get(ref.key, ())), ""), []).append(i)
        yield from ((places, workers.get(worker, 1)) for worker, places in here.items())

    def _cut(self, places: Sequence[int], count: int) -> list[list[int]]:
        """Cut partitions into at most ``count`` shares of about equally many rows."""
        shares: list[list[int]] = [[] for _ in range(max(1, min(count, len(places))))]
        load = [0] * len(shares)
        for i in sorted(places, key=lambda i: -self.lengths[i]):
            k = load.index(min(load))
            shares[k].append(i)
            load[k] += self.lengths[i] + 1
        return shares


# ---------------------------------------------------------------- what the rows are


@dataclass(frozen=True)
class _Table:
    """Tasks that make partitions of a collection, and what is known of them before they run."""

    graph: dict[Any, Any]
    keys: list[Any]
    lengths: tuple[int, ...] | None
    columns: int
    dtype: np.dtype[Any]
    names: tuple[str, ...] | None = None

    @staticmethod
    def of(rows: Any, y: Any, target: Target, read: Callable[..., Part], known: tuple[Any, ...]) -> _Table:
        """Put rows and targets of a partition together: ``read(rows)``, or ``read(rows, targets)`` unless y is None.

        ``known`` is what comes after the keys.
        """
        graph, pieces = _tasks(rows)
        arguments = [pieces]
        if y is not None:
            graph_y, targets = _tasks(_targets(y, known[0], target))
            if len(targets) != len(pieces):
                raise ValueError(
                    f"y has {len(targets)} partitions and X has {len(pieces)}: give collections that were cut alike, "
                    "or the name of a column of X."
                )
            graph, arguments = graph | graph_y, [pieces, targets]
        token = f"tailguard-load-{uuid4().hex}"
        made = {(token, i): (partial(_read, read), *keys) for i, keys in enumerate(zip(*arguments, strict=True))}
        return _Table(graph | made, list(made), *known)


def _array(X: Any, y: Any, target: Target) -> _Table:
    """A Dask array, cut between rows only."""
    if X.ndim == 1 and target == "none":
        X = X[:, None]
    if X.ndim != 2 or X.shape[1] == 0:
        raise ValueError(f"X has {X.ndim} dimensions: give two, rows by columns, and at least one column.")
    if np.isnan(X.shape[1]):
        raise ValueError("the number of columns of X is not known: call X.compute_chunk_sizes().")
    if X.dtype.kind not in "fiub":
        raise TypeError(f"X has dtype {X.dtype}: give real numbers (float64 or float32); encode other columns first.")
    if isinstance(y, str):
        raise ValueError(f"y={y!r} names a column, and an array has no names: give one value per row.")
    lengths = None if np.isnan(X.shape[0]) else tuple(int(length) for length in X.chunks[0])
    known = lengths, int(X.shape[1]), _dtype([X.dtype])
    return _Table.of(X.rechunk({1: -1}), None if target == "none" else y, target, partial(_of_chunks, target), known)


def _frame(X: Any, y: Any, target: Target, names: Sequence[str] | None) -> _Table:
    """A Dask dataframe or series; partitions are not fused, so that rows and targets stay beside each other."""
    X = X.to_frame() if X.ndim == 1 else X
    kinds = dict(zip(X.columns, X.dtypes, strict=True))
    if len(kinds) < len(X.columns):
        raise ValueError("X has two columns of one name: give every column its own name.")
    own = isinstance(y, str) and target != "none"
    asked = [] if names is None else list(names)
    for name in [*asked, *([y] if own else ())]:
        if name not in kinds:
            raise ValueError(f"X has no column {name!r}: there is {', '.join(map(repr, list(kinds)[:20]))}.")
    chosen = [name for name in kinds if not (own and name == y)] if names is None else asked
    for name in chosen:
        if not _is_number(kinds[name]):
            raise TypeError(
                f"column {name!r} has type {kinds[name]}: features must be numbers; encode it first, or leave it out."
            )
    if own and target == "number" and not _is_number(kinds[y]):
        raise TypeError(f"target {y!r} has type {kinds[y]}: give a column of numbers; only a classifier takes text.")
    if not chosen:
        raise ValueError("X has no column beside the target: give at least one.")
    dtype = _dtype([kinds[name] for name in chosen])
    read = partial(_of_frames, target, chosen, y if own else None, dtype)
    named = tuple(chosen) if all(isinstance(name, str) for name in chosen) else None
    rows, apart = X[[*chosen, y] if own else chosen], None if own or target == "none" else y
    return _Table.of(rows, apart, target, read, (None, len(chosen), dtype, named))


def _dtype(kinds: Sequence[Any]) -> np.dtype[Any]:
    """float32 if all columns are, else float64."""
    return np.dtype(np.float32 if all(kind == np.float32 for kind in kinds) else np.float64)


def _targets(y: Any, lengths: tuple[int, ...] | None, target: Target) -> Any:
    """Targets as a collection that is cut like the rows."""
    if not _is_collection(y):
        if lengths is None:
            raise TypeError(
                f"y of type {type(y).__name__} is not accepted beside partitions of unknown length: give a Dask series "
                "or array, or the name of a column of X."
            )
        here = np.asarray(y) if target == "label" else as_numbers("y", y)
        y = import_optional("dask.array", "dask").from_array(here, chunks=-1)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[y.columns[0]] if _is_frame(y) else y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"y has {y.ndim} dimensions: give one value per row.")
    if target == "number" and not _is_number(y.dtype):
        raise TypeError(f"y has type {y.dtype}: give numbers; only a classifier takes other labels.")
    if _is_frame(y) or lengths is None or np.isnan(y.shape[0]):
        return y
    if y.shape != (sum(lengths),):
        raise ValueError(f"y has shape {y.shape} but there are {sum(lengths)} rows: give one value per row.")
    return y.rechunk((lengths,))


def _tasks(collection: Any) -> tuple[dict[Any, Any], list[Any]]:
    """Tasks of a collection, and the keys of its partitions in order."""
    if _is_frame(collection):
        collection = collection.simplify()  # columns are chosen early, but files not fused
        graph = dict(collection.__dask_graph__())
    else:
        held = {key: task for key, task in dict(collection.__dask_graph__()).items() if _is_future(task)}
        (collection,) = import_optional("dask", "dask").optimize(collection)
        graph = dict(collection.__dask_graph__()) | held  # which Dask takes out, as if nobody had to hold them
    flatten = import_optional("dask.core", "dask").flatten
    return graph, list(flatten(collection.__dask_keys__()))


def _is_future(task: Any) -> bool:
    return type(task).__module__.partition(".")[0] == "distributed"


def _is_collection(X: Any) -> bool:
    return type(X).__module__.startswith(("dask.array", "dask.dataframe")) and hasattr(X, "__dask_graph__")


def _is_frame(X: Any) -> bool:
    return type(X).__module__.startswith("dask.dataframe")


def _is_number(kind: Any) -> bool:
    types = import_optional("pandas.api.types", "dask")
    return bool(types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind))


def _of_files(X: Any, y: Any, threads: int | None, target: Target, names: Sequence[str] | None) -> Engine:
    """Files that the workers read, a few row groups each; what is no file is streamed here."""
    here = cast(Streamed, Streamed.of(X, y, threads, target=target, names=names))
    rows = cast(SourceRows, here.rows)
    pieces = list(_pieces(rows))
    if not pieces:
        return here
    lengths = tuple(piece.n for piece in pieces)
    token = f"tailguard-files-{uuid4().hex}"
    graph: dict[Any, Any] = {(token, i): (partial(_same, Streamed(piece, 1)),) for i, piece in enumerate(pieces)}
    parts = replace(Parts.of(graph, list(graph), lengths, True, threads), apart=True)
    keep = _fits(rows.n * (rows.columns * rows.dtype.itemsize + 8))
    engine = Dask(parts, lengths, rows.columns, rows.names, threads, lazy=False, load=keep)
    return engine if target == "label" else engine._loaded()


def _pieces(rows: SourceRows) -> Iterator[SourceRows]:
    """Cut files into pieces of whole row groups; none if these are not files."""
    batches = rows.source._batches
    dataset: Any = getattr(batches, "_dataset", None)
    if not isinstance(batches, ArrowBatches) or not hasattr(dataset, "files"):
        return
    at, most = 0, max(1, _PART_VALUES // (rows.columns + 1))
    some: list[Any] = []
    held = 0
    for fragment, length in [*_row_groups(dataset), (None, 0)]:
        if some and (fragment is None or held + length > most):
            source = rows.source.select(rows.source._columns, rows.source.target)
            files = type(dataset)(some, dataset.schema, dataset.format, dataset.filesystem)
            source._batches = _Counted(files, batches._what, held)
            yield replace(rows, source=source, given=None if rows.given is None else rows.given[at : at + held])
            some, at, held = [], at + held, 0
        some.append(fragment)
        held += length


class _Counted(ArrowBatches):
    """Some row groups, whose rows were counted; Arrow would count those of the whole file."""

    rows: int

    def __init__(self, dataset: Any, what: str, rows: int) -> None:
        super().__init__(dataset, what)
        self.rows = rows


def _row_groups(dataset: Any) -> Iterator[tuple[Any, int]]:
    """Yield the smallest pieces that a reader can begin at, and their numbers of rows."""
    for fragment in dataset.get_fragments():
        if fragment.format.default_extname != "parquet":
            yield fragment, fragment.count_rows()
            continue
        for group in fragment.row_groups:
            yield fragment.subset(row_group_ids=[group.id]), group.num_rows


# ---------------------------------------------------------------- here


def _client() -> Any:
    """Return the active client of a cluster, if there is one."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


def _fits(size: int) -> bool:
    """Whether rows of so many bytes are loaded once and held, by the workers or here."""
    asked = import_optional("dask", "dask").config.get("tailguard.persist", None)
    client = _client()
    if asked is not None or client is None:
        return size <= MEMORY if asked is None else bool(asked)
    limits = [worker["memory_limit"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
    return not all(limits) or size <= _KEPT * sum(limits)


def _computed(
    graph: dict[Any, Any], keys: list[Any], threads: int | None, client: Any, done: list[Any] | None = None
) -> list[Any]:
    """Run tasks; the one place where something comes back from the workers. Their futures are added to ``done``."""
    failed = ""
    try:
        if client is not None:
            futures = client.get(graph, keys, sync=False)
            found = client.gather(futures)
            if done is not None:
                done += futures
        else:
            found = import_optional("dask.threaded", "dask").get(graph, keys, num_workers=thread_count(threads))
    except Exception as error:  # of the tasks that make the rows, or of the cluster
        failed = type(error).__name__
    if failed:  # outside, so that the error, which may repeat data, is not kept as a context
        raise RuntimeError(_UNREAD.format(failed))
    for answer in found:
        _checked(answer)
    return list(found)


def _packed(job: Any, client: Any) -> Any:
    """Return a function as bytes for the workers, without what stays here; without workers, as it is."""
    if client is None:
        return job
    cloudpickle = import_optional("cloudpickle", "dask")

    class Pickler(cloudpickle.Pickler):  # type: ignore[name-defined]
        def reducer_override(self, value: Any) -> Any:
            kind = type(value)
            if hasattr(kind, "truncated_sum") or kind.__module__.startswith("tailguard.privacy"):
                return _StaysHere, ()
            return super().reducer_override(value)

    file = io.BytesIO()
    Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(job)
    return file.getvalue()


class _StaysHere:
    """What workers get in place of an engine, an account or a source of noise."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{name} is not on the workers: a function of rows cannot use an engine, account or noise."
        )


# ---------------------------------------------------------------- on the workers


class _Failure:
    """An error that is returned, so that Dask neither logs nor repeats it."""

    def __init__(self, error: Exception) -> None:
        error.__traceback__ = error.__cause__ = error.__context__ = None
        try:
            pickle.loads(import_optional("cloudpickle", "dask").dumps(error))
        except Exception:
            error = RuntimeError(f"a function of rows raised {type(error).__name__}, which cannot be sent here.")
        self.error = error


def _checked(answer: Any) -> Any:
    """Raise an error that was returned."""
    if isinstance(answer, _Failure):
        raise answer.error
    return answer


def _same(part: Part) -> Part:
    return part


def _read(read: Callable[..., Part], *pieces: Any) -> Part:
    """Make a partition of what Dask holds; an error may repeat it."""
    try:
        with np.errstate(all="ignore"):
            return read(*pieces)
    except _PublicError as error:
        return _Failure(ValueError(str(error)))
    except Exception as error:
        return _Failure(RuntimeError(_UNREAD.format(type(error).__name__)))


class _PublicError(Exception):
    """An error whose message has nothing but sizes in it."""


def _of_chunks(target: Target, X: Any, y: Any = None) -> Part:
    """Rows and targets of a chunk of an array."""
    return _aligned(np.ascontiguousarray(as_numbers("X", X)), _target(target, y))


def _of_frames(target: Target, names: Sequence[Any], own: Any, dtype: np.dtype[Any], frame: Any, y: Any = None) -> Part:
    """Rows and targets of a partition of a dataframe; null is missing."""
    X = np.empty((len(frame), len(names)), dtype)
    for j, name in enumerate(names):
        X[:, j] = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
    return _aligned(X, _target(target, y if own is None else frame[own]))


def _target(target: Target, y: Any) -> NDArray[Any] | None:
    if y is None:
        return None
    if hasattr(y, "dtype") and hasattr(y, "to_numpy"):  # of pandas
        number = _is_number(y.dtype)
        y = y.to_numpy(dtype=np.float64, na_value=np.nan) if number else y.to_numpy(dtype=object, na_value=None)
    return np.asarray(y) if target == "label" else np.ascontiguousarray(as_numbers("y", y), np.float64)


def _aligned(X: NDArray[Any], y: NDArray[Any] | None) -> Part:
    if y is not None and y.shape != (len(X),):
        raise _PublicError(f"a partition of y has shape {y.shape} beside {len(X)} rows: give one value per row.")
    return X, y


def _length(part: Part) -> Any:
    return part if isinstance(part, _Failure) else len(part[0])


def _engine(part: Part, threads: int) -> InMemory | Streamed:
    if isinstance(part, Streamed):
        return replace(part, threads=threads)
    X, y = part
    return InMemory(X, y, threads)


def _opened(packed: Any) -> Any:
    return pickle.loads(packed) if isinstance(packed, bytes) else packed


def _apply(packed: Any, part: Part) -> Part:
    """Make something else of a partition."""
    if isinstance(part, _Failure):
        return part
    try:
        return _opened(packed)(part)
    except Exception as error:
        return _Failure(error)


def _sum_share(packed: Any, add: Callable[[list[Any]], Any], chosen: list[Any], threads: int, parts: list[Part]) -> Any:
    """Add up a function of some partitions: side by side if there are many, else each in all threads."""
    try:
        job = _opened(packed)
        outer, inner = (threads, 1) if len(parts) >= threads else (1, threads)

        def one(task: tuple[Part, Any]) -> Any:
            part, rows = task
            if isinstance(part, _Failure):
                return part
            engine = _engine(part, inner)
            return job(engine, rows) if engine.n and (rows is None or len(rows)) else None

        return _add(add, parallel_map(one, zip(parts, chosen, strict=True), outer))
    except Exception as error:
        return _Failure(error)


def _add(add: Callable[[list[Any]], Any], found: list[Any]) -> Any:
    """Add up sums, or pass on the first failure."""
    return next((answer for answer in found if isinstance(answer, _Failure)), None) or add(found)


def _total(found: list[Any]) -> Any:
    sums = [total for total in found if total is not None]
    return np.sum(sums, axis=0) if sums else None


def _union(found: list[Any]) -> set[Any]:
    """Labels of several partitions; one too many is enough to refuse them."""
    union = set().union(*(labels for labels in found if labels))
    return union if len(union) <= _MOST_LABELS else set(list(union)[: _MOST_LABELS + 1])


def _truncated_sum(
    vectors: RowVectors, grid: Grid, engine: Engine, rows: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    return engine.truncated_sum(vectors, grid, rows)


def _integer_sum(function: BlockFunction, shape: tuple[int, ...], engine: Engine, rows: None) -> NDArray[np.int64]:
    return engine.integer_sum(function, shape)


def _labels(engine: InMemory | Streamed, rows: None) -> set[Any]:
    if isinstance(engine, Streamed):
        return set(engine.labels().tolist())
    y = np.asarray(engine.y)
    return set((np.unique(y) if y.dtype.kind in "fiub" else y).tolist())


def _column(j: int, part: Part) -> Part:
    if isinstance(part, Streamed):
        return part.column(j)
    column = np.array(part[0][:, j], dtype=np.float64)
    return column[:, None], column


def _encoded(classes: Sequence[Any], values: Array, part: Part) -> Part:
    if isinstance(part, Streamed):
        return part.encoded(classes, values)
    return part[0], encode(part[1], classes, values)


def _in_memory(part: Part) -> Part:
    """Read the rows of a piece of files."""
    rows = part._loaded
    return rows.X, rows.y


def _map_rows(function: Callable[[NDArray[Any]], NDArray[Any]], nothing: NDArray[Any], part: Part) -> NDArray[Any]:
    engine = _engine(part, 1)
    return engine.map_rows(function) if engine.n else nothing
