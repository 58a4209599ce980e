"""Time of a fit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import designs
import numpy as np
import peers
from numpy.typing import NDArray

import tailguard as tg
from sections.run import FIRST_SEED, Run, verdict

Array = NDArray[np.float64]


def speed(run: Run) -> None:
    """Time of a default fit, compiled, with the noise of the operating system."""
    task = designs.linear_task("nl", run.rows, 10, FIRST_SEED)
    labels = (task.y > np.median(task.y)).astype(int)
    fits: dict[str, Callable[[], Any]] = {
        "PrivateRidge": lambda: tg.PrivateRidge().fit(task.X, task.y),
        "PrivateHuberRegressor": lambda: tg.PrivateHuberRegressor().fit(task.X, task.y),
        "PrivateLogisticRegression": lambda: tg.PrivateLogisticRegression(classes=[0, 1]).fit(task.X, labels),
        "PrivatePoissonRegressor": lambda: tg.PrivatePoissonRegressor().fit(task.X, np.abs(task.y)),
        "OLS, not private": lambda: peers.ols(task.X, task.y),
    }
    rows = []
    for name, fit in fits.items():
        fit()
        times = []
        for _ in range(1 if run.quick else 9):
            start = time.perf_counter()
            fit()
            times.append(time.perf_counter() - start)
        target = verdict(float(np.median(times)), 0.3) if name.startswith("Private") else ""
        rows.append([name, f"{np.median(times):.2f}", f"{min(times):.2f}", target])
    run.table(f"seconds a fit, n = {run.rows}, d = 10", ["estimator", "median", "least", "≤ .3"], rows)
