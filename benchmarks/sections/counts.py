"""Counts: designs and real tables."""

from __future__ import annotations

from typing import Any

import designs
import numpy as np
import peers
import real_tables
from numpy.typing import NDArray

import tailguard as tg
from sections.run import Run, number, share_of

Array = NDArray[np.float64]

COUNT_CELLS = (
    *((1000, 5, 1.0), (3000, 5, 0.5), (3000, 5, 1.0), (10_000, 10, 0.5), (10_000, 10, 1.0), (50_000, 10, 1.0)),
    (50_000, 10, 10.0),
)


def counts(run: Run) -> None:
    """Counts: the excess deviance over that of the best constant, and real tables."""
    cells = [(1000, 5, 1.0)] if run.quick else list(COUNT_CELLS)
    work = [
        (count, kind, *cell, seed)
        for count in designs.COUNTS
        for cell in cells
        for kind in designs.COUNT_FEATURES
        for seed in run.seed_range()
    ]
    found: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for key, pair in zip(work, run.each(_counts, work), strict=True):
        found.setdefault(key[:-1], []).append(pair)
    rows = []
    for count, (_, _, label) in designs.COUNTS.items():
        for n, d, epsilon in cells:
            each = [np.array(found[count, kind, n, d, epsilon]) for kind in designs.COUNT_FEATURES]
            ours, plain = ([float(np.median(pairs[:, k])) for pairs in each] for k in (0, 1))
            worst = max(float(np.quantile(pairs[:, 0], 0.9)) for pairs in each)
            line = [label, str(n), str(d), f"{epsilon:g}", *(number(value) for value in ours)]
            rows.append([*line, number(worst), f"{number(min(plain))} to {number(max(plain))}"])
    kinds = ["normal x", "t3", "log-normal", "AR(.9)", "dummies"]
    heads = ["counts", "n", "d", "ε", *kinds, "worst 90 %", "not private, medians"]
    run.table(f"excess deviance over that of the best constant, medians, {run.seeds} seeds", heads, rows)
    if run.data is None:
        return
    rows = []
    for name in real_tables.COUNTS:
        found_here = {}
        for epsilon in (0.25, 0.5, 1.0):
            seeds = [(run.data, name, epsilon, seed) for seed in run.seed_range()]
            found_here[epsilon] = np.array(run.each(_real_counts, seeds))
        plain_median = share_of(float(np.median(found_here[1.0][:, 1])))
        cells_of = [
            f"{share_of(float(np.median(v[:, 0])))} ({share_of(float(np.quantile(v[:, 0], 0.1)))})"
            for v in found_here.values()
        ]
        rows.append([name, plain_median, *cells_of])
    heads = ["table", "not private", "ε = .25", "ε = .5", "ε = 1"]
    run.table(f"deviance explained, held-out rows, median (lower decile) of {run.seeds} splits", heads, rows)


def _counts(count: str, kind: str, n: int, d: int, epsilon: float, seed: int) -> tuple[float, float]:
    """Excess deviance of ours and of a fit that is not private, over that of the best constant."""
    task = designs.counts_task(count, kind, n, d, seed)
    model = tg.PrivatePoissonRegressor(epsilon, random_state=seed, threads=1).fit(task.X, task.y)
    best = _deviance(task.truth, np.full(len(task.truth), task.truth.mean()))
    return _deviance(task.truth, model.predict(task.fresh)) / best, _deviance(
        task.truth, _poisson(task.X, task.y)(task.fresh)
    ) / best


def _real_counts(folder: str, name: str, epsilon: float, seed: int) -> tuple[float, float]:
    """Deviance explained by ours and by a fit that is not private."""
    rows = real_tables.split(*real_tables.table(folder, name), seed)
    model = tg.PrivatePoissonRegressor(epsilon, random_state=seed, threads=1).fit(rows.X, rows.y)
    return rows.explained(model.predict(rows.X_test)), rows.explained(_poisson(rows.X, rows.y)(rows.X_test))


def _deviance(truth: Array, prediction: Array) -> float:
    prediction = np.maximum(prediction, 1e-300)
    return float(np.mean(prediction - truth - truth * np.log(prediction / truth)))


def _poisson(X: Array, y: Array) -> peers.Predictor:
    """A fit that is not private, of standardised columns and a target of mean one."""
    from sklearn.linear_model import PoissonRegressor

    centre, scale, mean = X.mean(axis=0), np.where(X.std(axis=0) > 0.0, X.std(axis=0), 1.0), y.mean()
    model = PoissonRegressor(alpha=1e-6, max_iter=300).fit((X - centre) / scale, y / mean)
    return lambda rows: model.predict((rows - centre) / scale) * mean
