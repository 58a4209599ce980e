"""What runs on the workers: a partition becomes rows and targets, and a share of partitions a sum.

A partition is a pair (X, y), or an engine that reads it from files, or the `Failure` that it became.

A worker is sent a function of blocks of rows with the values it refers to. Should it refer to an engine, an account
or a source of noise, these stay here and something that only raises goes in their place.

**Errors.** Dask writes what a task raises to the log of its worker, and sends it to the client. So tasks do not raise:
an error of the function itself is returned, and raised by `checked` as it would be by rows in memory; of every other
error, which may repeat what was read, only the type is kept.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard._checks import as_numbers
from tailguard._optional import import_optional
from tailguard.engines.engine import BlockFunction, Engine, Target
from tailguard.engines.labels import encode
from tailguard.engines.memory import InMemory
from tailguard.engines.streamed import Streamed
from tailguard.engines.threads import parallel_map
from tailguard.engines.vectors import RowVectors
from tailguard.truncation.grid import Grid

Part = Any

MOST_LABELS = 10_000
_UNREAD = (
    "the rows could not be computed on the workers ({}): try the tasks that make them on rows that are not private."
)
_LOST = (
    "workers were lost again and again over these rows ({}), most often for want of memory: give them more, or "
    "make partitions smaller."
)
_CLOSED = "the rows are gone from the cluster, or the cluster is ({}): connect and make them again."
_WHY = {"KilledWorker": _LOST, "FutureCancelledError": _CLOSED, "CancelledError": _CLOSED, "CommClosedError": _CLOSED}


# ---------------------------------------------------------------- errors


class Failure:
    """An error that is returned, so that Dask neither logs nor repeats it."""

    def __init__(self, error: Exception) -> None:
        error.__traceback__ = error.__cause__ = error.__context__ = None
        try:
            pickle.loads(import_optional("cloudpickle", "dask").dumps(error))
        except Exception:
            error = RuntimeError(f"a function of rows raised {type(error).__name__}, which cannot be sent here.")
        self.error = error


def checked(answer: Any) -> Any:
    """Raise an error that was returned."""
    if isinstance(answer, Failure):
        raise answer.error
    return answer


def unread(error: str) -> RuntimeError:
    """An error of Dask, or of tasks that are not ours, by the name of its type: its message may repeat data."""
    return RuntimeError(_WHY.get(error, _UNREAD).format(error))


class _PublicError(Exception):
    """An error whose message has nothing but sizes in it."""


# ---------------------------------------------------------------- functions on their way


def packed(job: Any, client: Any) -> Any:
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


def _opened(job: Any) -> Any:
    return pickle.loads(job) if isinstance(job, bytes) else job


# ---------------------------------------------------------------- partitions


def same(part: Part) -> Part:
    """Return a partition that travels inside its task."""
    return part


def read(reader: Callable[..., Part], *pieces: Any) -> Part:
    """Make a partition of what Dask holds; an error may repeat it."""
    try:
        with np.errstate(all="ignore"):
            return reader(*pieces)
    except _PublicError as error:
        return Failure(ValueError(str(error)))
    except Exception as error:
        return Failure(unread(type(error).__name__))


def of_chunks(target: Target, X: Any, y: Any = None) -> Part:
    """Rows and targets of a chunk of an array; sparse ones are made dense."""
    X = X.toarray() if hasattr(X, "toarray") else X
    return _aligned(np.ascontiguousarray(as_numbers("X", X)), _target(target, y))


def of_frames(target: Target, names: Sequence[Any], own: Any, dtype: np.dtype[Any], frame: Any, y: Any = None) -> Part:
    """Rows and targets of a partition of a dataframe; null is missing."""
    X = np.empty((len(frame), len(names)), dtype)
    for j, name in enumerate(names):
        X[:, j] = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
    return _aligned(X, _target(target, y if own is None else frame[own]))


def of_files(part: Part) -> Part:
    """Rows and targets of a piece of files, read into memory."""
    rows = part._loaded
    return rows.X, rows.y


def is_number(kind: Any) -> bool:
    """Whether a type of NumPy, pandas or Arrow is one of real numbers."""
    types = import_optional("pandas.api.types", "dask")
    return bool(types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind))


def _target(target: Target, y: Any) -> NDArray[Any] | None:
    if y is None:
        return None
    if hasattr(y, "dtype") and hasattr(y, "to_numpy"):  # of pandas
        number = is_number(y.dtype)
        y = y.to_numpy(dtype=np.float64, na_value=np.nan) if number else y.to_numpy(dtype=object, na_value=None)
    return np.asarray(y) if target == "label" else np.ascontiguousarray(as_numbers("y", y), np.float64)


def _aligned(X: NDArray[Any], y: NDArray[Any] | None) -> Part:
    if y is not None and y.shape != (len(X),):
        raise _PublicError(f"a partition of y has shape {y.shape} beside {len(X)} rows: give one value per row.")
    return X, y


def length(part: Part) -> Any:
    """Count the rows of a partition."""
    return part if isinstance(part, Failure) else len(part[0])


def apply(job: Any, part: Part) -> Part:
    """Make something else of a partition."""
    if isinstance(part, Failure):
        return part
    try:
        return _opened(job)(part)
    except Exception as error:
        return Failure(error)


def column(j: int, part: Part) -> Part:
    """Column j of a partition, as X and as y."""
    if isinstance(part, Streamed):
        return part.column(j)
    values = np.array(part[0][:, j], dtype=np.float64)
    return values[:, None], values


def encoded(classes: Sequence[Any], values: NDArray[np.float64], part: Part) -> Part:
    """Targets ``values[k]`` where they were ``classes[k]``."""
    if isinstance(part, Streamed):
        return part.encoded(classes, values)
    return part[0], encode(part[1], classes, values)


def map_rows(function: Callable[[NDArray[Any]], NDArray[Any]], nothing: NDArray[Any], part: Part) -> NDArray[Any]:
    """Results of a function of rows, one for each; ``nothing`` where there are none."""
    engine = _engine(part, 1)
    return engine.map_rows(function) if engine.n else nothing


def _engine(part: Part, threads: int) -> InMemory | Streamed:
    if isinstance(part, Streamed):
        return replace(part, threads=threads)
    X, y = part
    return InMemory(X, y, threads)


# ---------------------------------------------------------------- sums


def sum_share(job: Any, add: Callable[[list[Any]], Any], chosen: list[Any], threads: int, parts: list[Part]) -> Any:
    """Add up a function of some partitions: side by side if there are many, else each in all threads."""
    try:
        function = _opened(job)
        outer, inner = (threads, 1) if len(parts) >= threads else (1, threads)

        def one(task: tuple[Part, Any]) -> Any:
            part, rows = task
            if isinstance(part, Failure):
                return part
            engine = _engine(part, inner)
            return function(engine, rows) if engine.n and (rows is None or len(rows)) else None

        return add_up(add, parallel_map(one, zip(parts, chosen, strict=True), outer))
    except Exception as error:
        return Failure(error)


def add_up(add: Callable[[list[Any]], Any], found: list[Any]) -> Any:
    """Add up sums, or pass on the first failure."""
    return next((answer for answer in found if isinstance(answer, Failure)), None) or add(found)


def total(found: list[Any]) -> Any:
    """The sum of arrays of integers; None is nothing."""
    sums = [one for one in found if one is not None]
    return np.sum(sums, axis=0) if sums else None


def union(found: list[Any]) -> set[Any]:
    """Labels of several partitions; one too many is enough to refuse them."""
    labels = set().union(*(some for some in found if some))
    return labels if len(labels) <= MOST_LABELS else set(list(labels)[: MOST_LABELS + 1])


def truncated_sum(vectors: RowVectors, grid: Grid, engine: Engine, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Sum of truncated vectors over a partition."""
    return engine.truncated_sum(vectors, grid, rows)


def integer_sum(function: BlockFunction, shape: tuple[int, ...], engine: Engine, rows: None) -> NDArray[np.int64]:
    """Sum of a function of blocks over a partition."""
    return engine.integer_sum(function, shape)


def labels(engine: InMemory | Streamed, rows: None) -> set[Any]:
    """Distinct targets of a partition."""
    if isinstance(engine, Streamed):
        return set(engine.labels().tolist())
    y = np.asarray(engine.y)
    return set((np.unique(y) if y.dtype.kind in "fiub" else y).tolist())
