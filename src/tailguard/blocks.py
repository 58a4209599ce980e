"""Algorithm 1's first half: exact empirical risk minimisation on disjoint blocks of rows.

A row, or a person with all their rows, is in one block only, so replacing it changes one block's answer: whatever
happens inside a block, a failed solve, a NaN, an overflow, stays there. Its answer is projected onto the constraint
set, or is a fixed public point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tailguard.constraints import Constraint
from tailguard.engines import Engine
from tailguard.engines.grouped import Grouped
from tailguard.engines.threads import plain_products
from tailguard.losses import Loss, PerRow, Squared

Array = NDArray[np.float64]

_TOGETHER = 2**25  # values of rows that are gathered at a time


def block_minimisers(
    loss: Loss,
    engine: Engine,
    order: NDArray[np.int64],
    blocks: int,
    constraint: Constraint,
    alpha: float,
    fit_intercept: bool,
    threads: int,
    advance: Callable[[], None],
) -> Array:
    """Minimise the penalised empirical risk on every block; (blocks, p), every answer inside the constraint set.

    Parameters
    ----------
    loss : Loss
    engine : Engine
        The rows, or persons; of a person, all rows go to one block and count together as much as one row.
    order : ndarray of int64
        A permutation of the rows, or persons, that does not depend on the data.
    blocks : int
        Number of blocks, of sizes that differ by at most one row, or person.
    constraint : Constraint
        The bounded set W.
    alpha : float
        L2 penalty.
    fit_intercept : bool
        One more coefficient, the last, on a column of ones.
    threads : int
    advance : callable
        Called after each block, for a progress bar.
    """
    width = engine.columns + fit_intercept
    size = loss.outputs * width
    public = constraint.project(np.zeros(size))
    edges = np.linspace(0, len(order), blocks + 1).astype(np.int64)
    answers = np.empty((blocks, size))

    def solve(i: int, X: NDArray, y: NDArray, share: Array) -> None:
        X = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
        with np.errstate(all="ignore"):
            answer = _minimiser(loss, np.asarray(X, np.float64), np.asarray(y, np.float64), share, alpha)
            answers[i] = constraint.project(answer) if np.all(np.isfinite(answer)) else public

    # As many blocks at a time as fit into some memory: rows that are not in memory are read once for each group.
    together = max(1, _TOGETHER // (width * (int(edges[1]) + 1)))
    with plain_products(), ThreadPoolExecutor(max_workers=threads) as pool:
        for first in range(0, blocks, together):
            group = range(first, min(first + together, blocks))
            parts = _rows_of(engine, order[edges[first] : edges[group.stop]], edges[first : group.stop + 1])
            for done in as_completed([pool.submit(solve, i, *part) for i, part in zip(group, parts, strict=True)]):
                done.result()
                advance()
    return answers


def _rows_of(
    engine: Engine, order: NDArray[np.int64], edges: NDArray[np.int64]
) -> Iterator[tuple[NDArray, NDArray, Array]]:
    """Rows of the blocks that end at the edges, their targets, and their shares in the risk of the block."""
    inside = edges - edges[0]
    if isinstance(engine, Grouped):
        for start, stop in pairwise(inside):
            yield engine.members(order[start:stop])
        return
    X, y = engine.take(order)
    for start, stop in pairwise(inside):
        yield X[start:stop], y[start:stop], np.full(stop - start, 1.0 / max(1, stop - start))


def _minimiser(loss: Loss, X: Array, y: Array, share: Array, alpha: float) -> Array:
    """Unconstrained minimiser of one block, NaN where there is none. Rows that are not finite count as zero."""
    good = np.isfinite(X).all(axis=1) & np.isfinite(y)
    X, y = np.where(good[:, None], X, 0.0), np.where(good, y, np.nan if loss.outputs > 1 else 0.0)
    size = loss.outputs * X.shape[1]
    if isinstance(loss, Squared):
        weighted = X * share[:, None]
        gram = weighted.T @ X + alpha * np.eye(size)
        moment = weighted.T @ y
        if not (np.isfinite(gram).all() and np.isfinite(moment).all()):
            return np.full(size, np.nan)
        try:
            # The pseudo-inverse, so that a block with a constant column still has an answer.
            return np.asarray(np.linalg.lstsq(gram, moment, rcond=1e-12)[0])
        except np.linalg.LinAlgError:  # depends on the data, so it must not leave
            return np.full(size, np.nan)

    def risk(w: Array) -> tuple[float, Array]:
        if isinstance(loss, PerRow):
            raise TypeError("PerRow has no value to minimise")
        z = X @ w.reshape(loss.outputs, -1).T
        if loss.outputs == 1:
            z = z[:, 0]
        value = np.nansum(loss.value(z, y) * share) + alpha / 2.0 * float(w @ w)
        slope = np.nan_to_num(loss.dz(z, y)).reshape(len(X), -1) * share[:, None]
        return float(value), np.asarray((slope.T @ X).ravel() + alpha * w)

    from scipy.optimize import minimize  # a quarter of the time of importing all of tailguard

    # Both bounded, so that no row can keep a block busy; the status is not looked at, since it depends on the data.
    limits = {"maxiter": 200, "maxfun": 500}
    return np.asarray(minimize(risk, np.zeros(size), jac=True, method="L-BFGS-B", options=limits).x)
