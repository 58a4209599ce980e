"""The audit on two tables: many runs on each of two neighbours, and an event that tells them apart.

Three stages, each with its own runs, so that no choice is judged by the runs it was made from:

1. *scan*: a few runs on every pair of neighbours choose the pair;
2. *choose*: half of the runs on that pair choose the event (`tailguard.auditing.events`);
3. *bound*: the other half count it, and exact binomial bounds give epsilon (`tailguard.auditing.bounds`).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailguard._checks import as_numbers, count, data_matrix, data_vector, probability, within
from tailguard.auditing.bounds import epsilon_from_counts
from tailguard.auditing.events import best_event
from tailguard.auditing.neighbours import Pair, Table, neighbours
from tailguard.auditing.result import AuditResult
from tailguard.auditing.runs import Runner, pieces
from tailguard.auditing.shipped import Case, find
from tailguard.descent import progress_bar
from tailguard.privacy import Relation

Array = NDArray[np.float64]
# A matrix, or a matrix and its targets.
Side = ArrayLike | tuple[ArrayLike, ArrayLike] | Table
# A fifth of the runs go into the scan, over all pairs together, and at least these on each side of each.
_LEAST_SCAN = 200


def audit(
    subject: Any,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    pair: tuple[Side, Side] | Pair | None = None,
    data: Table | None = None,
    neighbours: Sequence[str] | None = None,
    relation: Relation | None = None,
    runs: int = 10_000,
    confidence: float = 0.99,
    seed: int | None = 0,
    workers: int | Runner | None = None,
    progress: bool = False,
) -> AuditResult:
    """Try to refute a claim of differential privacy.

    Parameters
    ----------
    subject : str, estimator, function or Subject
        A name that `tailguard.auditing.CASES` has; an import path, ``"module:factory"`` or ``"file.py:factory"``; an
        object with ``fit`` in the manner of scikit-learn; a function of ``(X, rng)`` or ``(X, y, rng)``; or anything
        with ``outputs(table, noise, runs)``.
    epsilon, delta : float, optional
        The claim. What this package ships is built to keep it, and has a default; others must be given.
    pair : pair of arrays or Pair, optional
        Your own neighbours: two matrices, two tuples ``(X, y)`` or two tables. Default: built-in ones around
        ``data``.
    data : Table, optional
        A table whose last row is replaced; default a small one that suits the subject.
    neighbours : sequence of str, optional
        Which built-in neighbours; default all. See `tailguard.auditing.NEIGHBOURS`.
    relation : {"replace-one", "add-remove"}, optional
        Which tables are neighbours; default that of the subject, else replace-one.
    runs : int, default=10000
        Runs on each table: half to choose the event, half to bound. A fifth as many again choose the pair.
    confidence : float, default=0.99
        Of the bound.
    seed : int or None, default=0
        Of the auditor: the same seed gives the same result with any number of workers, if the subject takes all its
        randomness from it. None takes noise from the operating system, as in real use.
    workers : int or Runner, optional
        Processes, default one per core; or processes that several audits share. 1 runs here.
    progress : bool, default=False
        Show a progress bar.

    Returns
    -------
    AuditResult
        With ``lower``, ``refuted``, ``to_json()`` and ``plot(path)``.

    Notes
    -----
    Choose a delta at which there is something to see. With n runs no event rarer than about 10/n can be used, so at
    delta = 1e-6 the best lower bound is far below the true epsilon; at delta = 0.05 it comes within a tenth of it, and
    the same mechanism, built for that claim, runs the same code.

    Examples
    --------
    >>> import tailguard as tg
    >>> result = tg.audit("gaussian-l2", 1.0, 0.05, runs=2000, workers=1)
    >>> result.refuted
    False
    """
    runs = count("runs", runs, least=20)
    confidence = probability("confidence", confidence)
    case = find(subject, epsilon, delta)
    epsilon, delta = within("epsilon", case.epsilon, 0.0, 1e6), probability("delta", case.delta, zero=True)
    pairs = _pairs(case, pair, data, neighbours, relation)
    runner = workers if isinstance(workers, Runner) else Runner(workers)
    target = case.make(epsilon, delta)
    few = max(_LEAST_SCAN, runs // (5 * len(pairs)))
    work = 2 * len(pieces(runs)) + (2 * len(pairs) * len(pieces(few)) if len(pairs) > 1 else 0)
    # Streams of their own for every subject: a table of audits would otherwise be many looks at one noise.
    stream = zlib.crc32(case.name.encode())
    try:
        with progress_bar(progress, case.name, work) as advance:

            def outputs(stage: int, index: int, size: int) -> tuple[Any, Any]:
                sides = (pairs[index].one, pairs[index].other)
                return tuple(  # type: ignore[return-value]
                    runner.outputs(target, table, size, (stream, stage, index, side), seed=seed, advance=advance)
                    for side, table in enumerate(sides)
                )

            scan: list[float] = []
            if len(pairs) > 1:
                scan = [best_event(*outputs(0, index, few), delta, confidence)[1] for index in range(len(pairs))]
            index = int(np.argmax(scan)) if scan else 0
            found = _count_best_event(*outputs(1, index, runs), delta, confidence)
    finally:
        if runner is not workers:
            runner.close()
    return AuditResult(
        subject=case.name,
        epsilon=epsilon,
        delta=delta,
        lower=epsilon_from_counts(found.hits, found.others, found.trials, delta, confidence),
        confidence=confidence,
        method="two tables",
        pair=pairs[index].name,
        event=found.description,
        hits=found.hits,
        others=found.others,
        trials=found.trials,
        runs=runs,
        seed=seed,
        scan=tuple((item.name, max(0.0, value)) for item, value in zip(pairs, scan, strict=False)),
    )


def epsilon_from_outputs(one: ArrayLike, other: ArrayLike, delta: float = 0.0, confidence: float = 0.99) -> float:
    """Return a lower bound on epsilon from outputs that you have.

    Parameters
    ----------
    one, other : array_like of shape (runs,) or (runs, k)
        Outputs of equally many independent runs on two neighbouring tables, in no particular order.
    delta : float, default=0
        In [0, 1).
    confidence : float, default=0.99
        Of the bound.

    Returns
    -------
    float
        0 if nothing can be said.

    Examples
    --------
    >>> import numpy as np
    >>> from tailguard.auditing import epsilon_from_outputs
    >>> rng = np.random.default_rng(0)
    >>> epsilon_from_outputs(rng.laplace(0.0, 1.0, 10_000), rng.laplace(1.0, 1.0, 10_000)) <= 1.0
    True
    """
    delta, confidence = probability("delta", delta, zero=True), probability("confidence", confidence)
    first, second = (_as_outputs(name, value) for name, value in (("one", one), ("other", other)))
    if first.shape != second.shape or len(first) < 4:
        raise ValueError(
            f"one and other have shapes {first.shape} and {second.shape}: give equally many runs, 4 or more."
        )
    found = _count_best_event(first, second, delta, confidence)
    return epsilon_from_counts(found.hits, found.others, found.trials, delta, confidence)


def _as_outputs(name: str, value: ArrayLike) -> Array:
    array = np.asarray(as_numbers(name, value), dtype=np.float64)
    return array[:, None] if array.ndim == 1 else data_matrix(name, array)


class _Found(NamedTuple):
    """An event, and how often it happened in the runs that did not choose it."""

    description: str
    hits: int
    others: int
    trials: int


def _count_best_event(one: Array, other: Array, delta: float, confidence: float) -> _Found:
    half = len(one) // 2
    event, _ = best_event(one[:half], other[:half], delta, confidence)
    first, second = (other, one) if event.swapped else (one, other)
    return _Found(event.description, event.count(first[half:]), event.count(second[half:]), len(one) - half)


def _pairs(
    case: Case, pair: Any, data: Table | None, names: Sequence[str] | None, relation: Relation | None
) -> list[Pair]:
    if pair is not None:
        if data is not None or names is not None:
            raise ValueError("pair is not accepted beside data or neighbours: give one or the other.")
        return [pair if isinstance(pair, Pair) else Pair("your own", *(_table(side, case.kind) for side in pair))]
    if data is None and names is None and relation is None:
        return list(case.pairs())
    table = case.base if data is None else data
    return neighbours(table, names, case.relation if relation is None else relation)


def _table(side: Any, kind: Any) -> Table:
    if isinstance(side, Table):
        return side
    if isinstance(side, tuple):
        X = data_matrix("pair", side[0])
        return Table(X, data_vector("pair", side[1], len(X)), "regression" if kind == "mean" else kind)
    return Table(data_matrix("pair", side))
