"""What the sections share: options, seeds, tables and how figures are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import tailguard as tg

Array = NDArray[np.float64]

FIRST_SEED = 5000
ESTIMATORS = {"Ridge": tg.PrivateRidge, "Huber": tg.PrivateHuberRegressor}


@dataclass
class Run:
    """Options of a run, and the report it writes."""

    seeds: int = 20
    rows: int = 100_000
    tables: int = 1000
    worst: int = 20
    quick: bool = False
    data: str | None = None
    workers: int = 1
    console: Console = field(default_factory=lambda: Console(width=180))
    lines: list[str] = field(default_factory=list)

    def seed_range(self, times: int = 1, most: int | None = None) -> range:
        """Seeds of a cell."""
        count = self.seeds * (1 if self.quick else times)
        return range(FIRST_SEED, FIRST_SEED + (count if most is None else min(count, most)))

    def each(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Results of a function, in order; by several processes if there are workers."""
        if self.workers == 1:
            return [function(*one) for one in arguments]
        with get_context("spawn").Pool(self.workers, threadpool_limits, (1,)) as pool:
            return pool.starmap(function, arguments, chunksize=1)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> None:
        """Print a table and keep it as Markdown."""
        rows = [[str(cell) for cell in row] for row in rows]
        shown = Table(title=title, caption=note or None, title_justify="left", caption_justify="left")
        for k, column in enumerate(columns):
            shown.add_column(column, justify="left" if k == 0 else "right")
        for row in rows:
            shown.add_row(*row)
        self.console.print(shown)
        self.lines += [f"**{title}**", "", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        self.lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]
        if note:
            self.lines += [note, ""]


def number(x: float) -> str:
    """Two significant digits, without a leading zero."""
    if not np.isfinite(x):
        return str(x)
    if x != 0 and not 1e-5 <= abs(x) < 1e4:
        return f"{x:.1e}"
    digits = 2 if x == 0 else max(0, 1 - int(np.floor(np.log10(abs(x)))))
    text = f"{x:.{min(digits, 6)}f}"
    return text.replace("0.", ".", 1) if abs(x) < 1 and "." in text else text


def share_of(x: float) -> str:
    """An R^2, with three decimals."""
    return f"{x:.3f}" if abs(x) < 10.0 else f"{x:.0e}"


def both(values: Sequence[float]) -> str:
    """Median and 90 % quantile."""
    return f"{number(float(np.median(values)))} / {number(float(np.quantile(values, 0.9)))}"


def verdict(value: float, target: float) -> str:
    """Whether a figure is at most its target, and if not by which factor it is beyond."""
    return "met" if value <= target else f"**not met**, {value / target:.2f} x"


def fitted(name: str, X: Array, y: Array, epsilon: float, seed: int, delta: float | None = None) -> Any:
    """Fit an estimator with nothing but epsilon."""
    return ESTIMATORS[name](epsilon, delta, random_state=seed, threads=1).fit(X, y)
