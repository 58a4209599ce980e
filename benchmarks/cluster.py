"""Steps and default fits on a cluster of processes on this machine: ``python benchmarks/cluster.py --write``.

"Dask adds" is the time of a step less that of the slowest worker's kernel, which the worker takes itself, in the same
round. Few rows show it alone; with many, workers that share a memory show where its bandwidth ends. Times depend on
what else the machine does, so the load is in the title. The CPU time of the slowest worker does so less: from it
follows the speed that the workers would have with a core each, the last column. ``make bench-engines`` runs it too.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from machine import description
from page import put

import tailguard as tg
from tailguard.engines import engine_for
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import Gradients
from tailguard.truncation import Grid, L2Clip

PAGE = Path(__file__).parent.parent / "docs" / "dask.md"
SHAPES = ((2_000, 10), (2_000_000, 10), (20_000_000, 10), (8_000_000, 32))
WORKERS = (1, 2)
ROUNDS = 30
FITTED = (20_000, 10)


@contextmanager
def cluster_of(workers: int) -> Iterator[Any]:
    """Processes with a thread each."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def kernel_seconds(parts: list[tuple[Any, Any]], vectors: Gradients, grid: Grid) -> tuple[float, float]:
    """Time that the kernel takes on a worker's partitions, once compiled: by the clock, and of a core."""
    start, busy = time.perf_counter(), time.thread_time()
    for X, y in parts:
        InMemory(X, y, 1).truncated_sum(vectors, grid)
    return time.perf_counter() - start, time.thread_time() - busy


def rounds_of(client: Any, n: int, d: int, rounds: int) -> np.ndarray:
    """Seconds of each step, of its slowest kernel, and of a core in that: (rounds, 3)."""
    import dask.array as da

    X = da.random.default_rng(0).standard_normal((n, d), chunks=(-(-n // 8), d))
    engine: Any = engine_for(X, X.sum(axis=1))
    grid, times, kept = Grid.of(L2Clip(1.0), n), [], []
    for k in range(rounds + 3):
        # Another w in every round: Dask would not compute the same task twice.
        vectors = Gradients(tg.losses.Squared(), np.full((1, d), 1.0 + k), fit_intercept=False)
        start = time.perf_counter()
        engine.truncated_sum(vectors, grid)
        step = time.perf_counter() - start
        shares = [[engine.parts.refs[i] for i in share] for share, _ in engine.parts._shared()]
        asked = [client.submit(kernel_seconds, share, vectors, grid, pure=False) for share in shares]
        times.append((step, *np.max(client.gather(asked), axis=0)))
        kept += asked  # to be forgotten at the end: the client would send that before the next step, and pause
    return np.array(times[3:])


def steps(client: Any, workers: int, shapes: tuple[tuple[int, int], ...], rounds: int) -> Iterator[str]:
    """A line of the table for every shape."""
    for n, d in shapes:
        took, kernels, cores = rounds_of(client, n, d, rounds).T
        over, size = took - kernels, n * (d + 1) * 8 / 1e9
        figures = [1e3 * np.median(took), 1e3 * np.median(kernels), 1e3 * np.median(cores)]
        added = f"**{1e3 * np.median(over):.1f}** ({1e3 * np.quantile(over, 0.1):.1f})"
        cells = [f"{n:.0e} x {d}".replace("e+0", "e"), str(workers), *(f"{one:.1f}" for one in figures), added]
        speeds = [f"{size / np.median(took):.1f}", f"{size / np.median(cores):.1f}"] if size > 0.1 else ["", ""]
        yield f"| {' | '.join([*cells, *speeds])} |"


def fits(workers: int, n: int, d: int, rounds: int) -> str:
    """A line about default fits, here and on the cluster in turn."""
    import dask.array as da

    from tailguard.engines.dask import Dask

    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = X.sum(axis=1) + rng.standard_t(2.5, n)
    there = da.from_array(X, chunks=(-(-n // 8), d)).persist(), da.from_array(y, chunks=-(-n // 8)).persist()
    passes, original = [], Dask._sum

    def counted(*arguments: Any) -> Any:
        passes.append(None)
        return original(*arguments)

    Dask._sum = counted  # type: ignore[method-assign]
    times: list[tuple[float, float]] = []
    for _ in range(rounds + 1):
        pair = []
        for rows in ((X, y), there):
            passes.clear()
            start = time.perf_counter()
            tg.PrivateRidge(epsilon=1.0).fit(*rows)
            pair.append(time.perf_counter() - start)
        times.append((pair[0], pair[1]))
    Dask._sum = original  # type: ignore[method-assign]
    memory, cluster = np.median(times[1:], axis=0)
    shape, more = f"{n:.0e} x {d}".replace("e+0", "e"), 1e3 * (cluster - memory) / len(passes)
    return f"| {shape} | {workers} | {memory:.3f} | {cluster:.3f} | {len(passes)} | {more:.1f} |"


def on_a_cluster(shapes: tuple[tuple[int, int], ...] = SHAPES, rounds: int = ROUNDS) -> str:
    """Both tables, in Markdown."""
    title = f"{description('dask')}. A worker is a process with one thread; scheduler and driver on the same cores."
    head = "| rows | workers | step | slowest worker | its CPU | **Dask adds** (best 10 %) | GB/s | GB/s, a core each |"
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    more = [
        "| rows | workers | s, in memory | s, on the cluster | passes | ms more a pass |",
        "|---|---|---|---|---|---|",
    ]
    for workers in WORKERS:
        with cluster_of(workers) as client:
            lines += steps(client, workers, shapes, rounds)
            more.append(fits(workers, *FITTED, max(3, rounds // 3)))
    what = f"One step with L2 clipping, float64, medians of {rounds} in ms:"
    whole = f"A default fit (`PrivateRidge`), medians of {max(3, rounds // 3)}:"
    end = f"Load at the end: {os.getloadavg()[0]:.1f}."
    return "\n".join([title, "", what, "", *lines, "", whole, "", *more, "", end])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rows and rounds: to see that it runs")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/dask.md")
    arguments = parser.parse_args()
    text = on_a_cluster(((2_000, 10),), 5) if arguments.quick else on_a_cluster()
    print(text)
    if arguments.write:
        put(PAGE, "cluster", text)


if __name__ == "__main__":
    main()
