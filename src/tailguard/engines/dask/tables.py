"""Collections of Dask as tables: the tasks that make partitions of rows and targets, and what is known before they run.

Types and shapes are checked here, from what Dask declares; no task runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np

from tailguard._checks import as_numbers
from tailguard._optional import import_optional
from tailguard.engines.dask import tasks
from tailguard.engines.dask.tasks import Part, is_number
from tailguard.engines.engine import Target
from tailguard.engines.files import listed
from tailguard.engines.labels import as_labels


@dataclass(frozen=True)
class Table:
    """Tasks that make partitions of a collection, and what is known of them before they run."""

    graph: dict[Any, Any]
    keys: list[Any]
    lengths: tuple[int, ...] | None
    columns: int
    dtype: np.dtype[Any]
    names: tuple[str, ...] | None = None

    @staticmethod
    def of(X: Any, y: Any, target: Target, names: Sequence[str] | None) -> Table:
        """Check types and shapes of a collection and its targets."""
        if not is_collection(X):
            raise TypeError(
                f"X of type {type(X).__name__} is not accepted: give a Dask array or dataframe "
                "(dask.array.from_delayed and dask.dataframe.from_delayed make one)."
            )
        if y is None and target != "none":
            raise ValueError("y=None is not accepted: give one value per row, or the name of a column of a dataframe.")
        return _of_frame(X, y, target, names) if _is_frame(X) else _of_array(X, y, target)


def is_dask(X: Any) -> bool:
    """Whether X is anything of Dask, from its type alone."""
    return type(X).__module__.partition(".")[0] in ("dask", "distributed")


def is_collection(X: Any) -> bool:
    """Whether X is an array, dataframe or series of Dask."""
    return type(X).__module__.startswith(("dask.array", "dask.dataframe")) and hasattr(X, "__dask_graph__")


def _is_frame(X: Any) -> bool:
    return type(X).__module__.startswith("dask.dataframe")


def _of_array(X: Any, y: Any, target: Target) -> Table:
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
    reader = partial(tasks.of_chunks, target)
    return _joined(X.rechunk({1: -1}), None if target == "none" else y, target, reader, known)


def _of_frame(X: Any, y: Any, target: Target, names: Sequence[str] | None) -> Table:
    """A Dask dataframe or series; partitions are not fused, so that rows and targets stay beside each other."""
    X = X.to_frame() if X.ndim == 1 else X
    kinds = dict(zip(X.columns, X.dtypes, strict=True))
    if len(kinds) < len(X.columns):
        raise ValueError("X has two columns of one name: give every column its own name.")
    own = isinstance(y, str) and target != "none"
    asked = [] if names is None else list(names)
    absent = [name for name in [*asked, *([y] if own else ())] if name not in kinds]
    if absent:
        raise ValueError(f"X has no column {listed(absent)}: there is {listed(kinds)}.")
    chosen = [name for name in kinds if not (own and name == y)] if names is None else asked
    for name in chosen:
        if not is_number(kinds[name]):
            raise TypeError(
                f"column {name!r} has type {kinds[name]}: features must be numbers; encode it first, or leave it out."
            )
    if own and target == "number" and not is_number(kinds[y]):
        raise TypeError(f"target {y!r} has type {kinds[y]}: give a column of numbers; only a classifier takes text.")
    if not chosen:
        raise ValueError("X has no column beside the target: give at least one.")
    dtype = _dtype([kinds[name] for name in chosen])
    reader = partial(tasks.of_frames, target, chosen, y if own else None, dtype)
    named = tuple(chosen) if all(isinstance(name, str) for name in chosen) else None
    rows, apart = X[[*chosen, y] if own else chosen], None if own or target == "none" else y
    return _joined(rows, apart, target, reader, (None, len(chosen), dtype, named))


def _joined(rows: Any, y: Any, target: Target, reader: Callable[..., Part], known: tuple[Any, ...]) -> Table:
    """Put rows and targets of a partition together: ``reader(rows)``, or ``reader(rows, targets)`` unless y is None.

    ``known`` is what comes after the keys of a `Table`.
    """
    graph, pieces = _tasks_of(rows)
    arguments = [pieces]
    if y is not None:
        graph_y, targets = _tasks_of(_targets(y, known[0], target))
        if len(targets) != len(pieces):
            raise ValueError(
                f"y has {len(targets)} partitions and X has {len(pieces)}: give collections that were cut alike, "
                "or the name of a column of X."
            )
        graph, arguments = graph | graph_y, [pieces, targets]
    token = f"tailguard-load-{uuid4().hex}"
    made = {(token, i): (partial(tasks.read, reader), *keys) for i, keys in enumerate(zip(*arguments, strict=True))}
    return Table(graph | made, list(made), *known)


def _dtype(kinds: Sequence[Any]) -> np.dtype[Any]:
    """float32 if all columns are, else float64."""
    return np.dtype(np.float32 if all(kind == np.float32 for kind in kinds) else np.float64)


def _targets(y: Any, lengths: tuple[int, ...] | None, target: Target) -> Any:
    """Targets as a collection that is cut like the rows."""
    if not is_collection(y):
        if lengths is None or is_dask(y):
            raise TypeError(
                f"y of type {type(y).__name__} is not accepted beside "
                f"{'partitions of unknown length' if lengths is None else 'a collection of Dask'}: give a Dask series "
                "or array, or the name of a column of X."
            )
        here = as_labels(y) if target == "label" else as_numbers("y", y)
        y = import_optional("dask.array", "dask").from_array(here, chunks=-1)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[y.columns[0]] if _is_frame(y) else y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"y has {y.ndim} dimensions: give one value per row.")
    if target == "number" and not is_number(y.dtype):
        raise TypeError(f"y has type {y.dtype}: give numbers; only a classifier takes other labels.")
    if _is_frame(y) or lengths is None or np.isnan(y.shape[0]):
        return y
    if y.shape != (sum(lengths),):
        raise ValueError(f"y has shape {y.shape} but there are {sum(lengths)} rows: give one value per row.")
    return y.rechunk((lengths,))


def _tasks_of(collection: Any) -> tuple[dict[Any, Any], list[Any]]:
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
