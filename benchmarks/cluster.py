"""One exact private step on a cluster of processes on this machine: part of ``make bench-engines``.

"overhead" is the time of a step less that of the slowest worker's kernel, which the worker takes itself, in the same
round: what Dask adds. Few rows show it alone; with many, workers that share a memory show where its bandwidth ends.
Times depend on what else the machine does, so the load is in the title. The CPU time of the slowest worker does so
less: from it follows the speed that the workers would have with a core each, "GB/s of cores".
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import tailguard as tg
from tailguard.engines import engine_for
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import Gradients
from tailguard.truncation import Grid, L2Clip

SHAPES = ((2_000, 10), (2_000_000, 10), (800_000, 32))
WORKERS = (1, 2)


def kernel_seconds(parts: list[tuple[Any, Any]], vectors: Gradients, grid: Grid) -> tuple[float, float]:
    """Time that the kernel takes on a worker's partitions, once compiled: by the clock, and of a core."""
    start, busy = time.perf_counter(), time.thread_time()
    for X, y in parts:
        InMemory(X, y, 1).truncated_sum(vectors, grid)
    return time.perf_counter() - start, time.thread_time() - busy


def rounds_of(client: Any, n: int, d: int, rounds: int) -> np.ndarray:
    """Seconds of each step, of its slowest kernel, and of a core in that: (rounds, 3)."""
    import dask.array as da

    X = da.random.default_rng(0).standard_normal((n, d), chunks=(-(-n // 4), d))
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


def on_a_cluster(shapes: tuple[tuple[int, int], ...] = SHAPES, rounds: int = 30) -> None:
    from distributed import Client, LocalCluster

    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    table = Table(title=f"one step, L2 clipping, float64; {os.cpu_count()} cores, load {load}")
    headings = ("rows x columns", "workers", "step ms", "slowest kernel ms", "its CPU ms", "overhead ms")
    headings += ("fastest tenth", "GB/s", "GB/s of cores")
    for heading in headings:
        table.add_column(heading, justify="right")
    for workers in WORKERS:
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            for n, d in shapes:
                steps, kernels, cores = rounds_of(client, n, d, rounds).T
                over = steps - kernels
                figures = [np.median(steps), np.median(kernels), np.median(cores), np.median(over)]
                figures.append(np.quantile(over, 0.1))
                size = n * (d + 1) * 8 / 1e9
                speeds = [f"{size / np.median(steps):.2f}", f"{size / np.median(cores):.1f}"]
                table.add_row(f"{n:.0e} x {d}", str(workers), *[f"{1e3 * s:.1f}" for s in figures], *speeds)
    Console(width=120).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rows and rounds: to see that it runs")
    if parser.parse_args().quick:
        on_a_cluster(((2_000, 10),), 5)
    else:
        on_a_cluster()
