"""Log-odds: designs, several classes, rare labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import designs
import numpy as np
import peers
from numpy.typing import NDArray

import tailguard as tg
from sections.run import Run, both, number, verdict

Array = NDArray[np.float64]


def logistic(run: Run) -> None:
    """Two classes, five classes and counts with 1e4 rows and 10 columns."""
    n, d, rows = (10_000 if not run.quick else 2000), 10, []
    cells: list[tuple[str, Callable[[int], designs.Labels], list[int]]] = [
        (f"two classes, {kind} x", lambda seed, kind=kind: designs.logistic_task(kind, n, d, seed), [0, 1])  # type: ignore[misc]
        for kind in ("normal", "lognormal", "dummies")
    ]
    cells.append(("five classes, normal x", lambda seed: designs.multinomial_task(5, n, d, seed), list(range(5))))
    for label, make, classes in cells:
        for epsilon in (0.5, 1.0):
            ours, plain, lost = [], [], []
            for seed in run.seed_range():
                task = make(seed)
                model = tg.PrivateLogisticRegression(epsilon, classes=classes, random_state=seed, threads=1)
                probability = model.fit(task.X, task.y).predict_proba(task.fresh)
                public = peers.logistic(task.X, task.y)(task.fresh)
                ours.append(task.excess(probability))
                plain.append(task.excess(public))
                lost.append(task.accuracy(public) - task.accuracy(probability))
            ratio, loss = float(np.median(ours) / np.median(plain)), float(np.median(lost))
            judged = ["", ""]
            if epsilon == 1.0:
                judged = [verdict(ratio, 2.0), "met" if loss <= 0.002 else f"**not met**, {loss:.4f}"]
            rows.append(
                [label, f"{epsilon:g}", both(plain), both(ours), f"{ratio:.2f} x", judged[0], f"{loss:.4f}", judged[1]]
            )
    heads = ["task", "ε", "not private", "private", "ratio", "≤ 2 x", "accuracy lost", "≤ .002"]
    run.table(f"excess log-loss, n = {n}, d = {d}, median / 90 %, {run.seeds} seeds", heads, rows)


# name: (classes, level or spread of levels, spread or size of the log-odds)
RARE = {
    "one label in 40": (2, -4.0, 1.0),
    "one label in 250": (2, -6.0, 1.0),
    "three classes, levels of sd 2": (3, 2.0, 2.25),
    "ten classes, levels of sd 2": (10, 2.0, 2.25),
}
RARE_FEATURES = {"normal": "normal x", "lognormal": "log-normal", "dummies": "dummies"}


def rare(run: Run) -> None:
    """Rare labels and rare classes: the excess log-loss over that of the best constant, with more and more budget."""
    cells = [(2000, 1.0)] if run.quick else [(10_000, 1.0), (100_000, 1.0), (100_000, 10.0)]
    names = list(RARE)[:1] if run.quick else list(RARE)
    work = [
        (name, kind, *cell, seed)
        for name in names
        for cell in cells
        for kind in RARE_FEATURES
        for seed in run.seed_range()
    ]
    found: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for key, pair in zip(work, run.each(_rare, work), strict=True):
        found.setdefault(key[:-1], []).append(pair)
    rows = []
    for name in names:
        for n, epsilon in cells:
            each = [np.array(found[name, kind, n, epsilon]) for kind in RARE_FEATURES]
            plain = [float(np.nanmedian(pairs[:, 1])) for pairs in each]
            ours = [both(pairs[:, 0]) for pairs in each]
            rows.append([name, str(n), f"{epsilon:g}", *ours, f"{number(min(plain))} to {number(max(plain))}"])
    heads = ["labels", "n", "ε", *RARE_FEATURES.values(), "not private, medians"]
    title = f"excess log-loss over that of the best constant, d = 10, median / 90 %, {run.seeds} seeds"
    run.table(title, heads, rows)


def _rare(name: str, kind: str, n: int, epsilon: float, seed: int) -> tuple[float, float]:
    """Excess log-loss of ours and of a fit that is not private, over that of the best constant."""
    classes, level, size = RARE[name]
    if classes == 2:
        task = designs.logistic_task(kind, n, 10, seed, level, size)
    else:
        task = designs.multinomial_task(classes, n, 10, seed, kind, level, size)
    model = tg.PrivateLogisticRegression(epsilon, classes=list(range(classes)), random_state=seed, threads=1)
    best = task.excess(task.constant())
    if len(np.unique(task.y)) < classes:  # a fit that is not private knows of no other classes
        return task.excess(model.fit(task.X, task.y).predict_proba(task.fresh)) / best, np.nan
    public = peers.logistic(task.X, task.y)(task.fresh)
    return task.excess(model.fit(task.X, task.y).predict_proba(task.fresh)) / best, task.excess(public) / best
