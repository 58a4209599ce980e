"""One private gradient step against the plain NumPy gradient, in the same run: ``make bench``.

Times are the least of rounds that visit all steps in turn, so that a slow moment of the machine hits all alike and what
others do on it hits none. "truncated" is the share of rows with a coordinate beyond sqrt(2) scales (psi) or a norm
beyond the clip; "read" is the time of reading X with as many threads over the time of the step.

Then the trimmed means of Algorithm 3 against `numpy.partition` on the same columns.
"""

from __future__ import annotations

import os
import resource
import time

import numpy as np
from numba import njit
from rich.console import Console
from rich.table import Table

import tailguard as tg
from tailguard.engines.memory import InMemory, cut
from tailguard.engines.threads import parallel_map, thread_count
from tailguard.engines.vectors import Gradients
from tailguard.kernels.lanes import ASKED, keep, load, pointer, prefetch, spread, store
from tailguard.kernels.smooth_sensitivity import private_trimmed_mean_inputs
from tailguard.truncation import Grid, L2Clip, Smoothed

SHAPES = ((1_000_000, 10), (400_000, 50), (100_000, 200))
READING = "reading X alone"
GOALS = {"L2 clipping, 1%": 0.35, "L2 clipping, 30%": 0.35, "Algorithm 4, 1%": 0.5, "Algorithm 4, 30%": 0.8}
BETA = float(np.sqrt(2 * np.log(100)))


def interleaved(functions: dict, rounds: int = 9) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            # The threads of OpenBLAS spin for tens of milliseconds after its last call: wait for them, then warm up.
            time.sleep(0.1)
            function()
            for _ in range(4):
                start = time.perf_counter()
                function()
                times[name].append(time.perf_counter() - start)
    return {name: min(values) for name, values in times.items()}


@njit(nogil=True)
def total(values):
    """The sum of float64 values, as fast as memory gives them: four sums in lanes, and two KiB asked for ahead."""
    lanes = np.zeros(8)
    at = pointer(values)
    a = b = c = e = spread(0.0)
    for k in range(0, values.size - 31, 32):
        prefetch(at, k + 256)
        prefetch(at, k + 256 + ASKED)
        a, b = a + load(at, k), b + load(at, k + 8)
        c, e = c + load(at, k + 16), e + load(at, k + 24)
    store(pointer(lanes), 0, (a + b) + (c + e))
    keep((values, lanes))
    return lanes.sum() + values[values.size // 32 * 32 :].sum()


def read(X: np.ndarray) -> float:
    """Read all of X, with the threads that a step has."""
    threads = thread_count()
    values = X.reshape(-1)
    parts = cut(len(values), -(-len(values) // threads))
    return sum(parallel_map(lambda part: total(values[part]), parts, threads, products=False))


def steps(n: int, d: int) -> tuple[dict, int]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    w = np.full(d, d**-0.5)
    y = X @ w + rng.lognormal(1.0, 1.0, n)
    residual = np.abs(X @ w - y)
    norm = residual * np.linalg.norm(X, axis=1)
    largest = residual * np.abs(X).max(axis=1)
    engine = InMemory(X, y)
    vectors = Gradients(tg.losses.Squared(), w[None], fit_intercept=False)

    def exact(truncation):
        grid = Grid.of(truncation, n)
        return lambda: engine.truncated_sum(vectors, grid)

    functions = {"NumPy: X.T @ (X @ w - y)": lambda: X.T @ (X @ w - y)}
    for share in (0.01, 0.3):
        functions[f"L2 clipping, {share:.0%} truncated"] = exact(L2Clip(float(np.quantile(norm, 1 - share))))
    for share in (0.01, 0.3):
        scale = float(np.quantile(largest, 1 - share)) / np.sqrt(2)
        functions[f"Algorithm 4, {share:.0%} truncated"] = exact(Smoothed(scale, BETA))
    functions[READING] = lambda: read(X)
    return functions, X.nbytes


def peak_memory() -> None:
    """Memory that a fit adds to X: resident set before and after, in a process with warm kernels."""
    n, d = 2_000_000, 20
    rng = np.random.default_rng(0)
    warm = rng.standard_normal((1000, d))
    options = {"epsilon": 1.0, "clip": 10.0, "steps": 3}
    tg.algorithms.clipped_gd(tg.losses.Squared(), warm, warm[:, 0], **options)
    X = rng.standard_normal((n, d))
    y = X[:, 0].copy()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tg.algorithms.clipped_gd(tg.losses.Squared(), X, y, **options)
    tg.algorithms.algorithm4(tg.losses.Squared(), X, y, epsilon=1.0, scale=5.0, steps=3)
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    Console().print(
        f"peak memory of a fit at {n} x {d}: X is {X.nbytes / 2**20:.0f} MiB, the fit added {added / 1024:.1f} MiB"
    )


def trimmed_means(n: int, d: int, trim: float = 0.05) -> None:
    """Trimmed means and their sensitivities, all columns, against the selection that they need."""
    columns = [np.ascontiguousarray(column) for column in np.random.default_rng(0).standard_t(3, (n, d)).T]
    m, threads = int(trim * n), thread_count()

    def means() -> None:
        parallel_map(lambda x: private_trimmed_mean_inputs(x, m, 10.0 / n, -1.0, 1.0), columns, threads)

    def partitions() -> None:
        parallel_map(lambda x: np.partition(x, (m, n - m - 1)), columns, threads)

    times = interleaved({"means": means, "partitions": partitions}, rounds=5)
    Console().print(
        f"Algorithm 3, {n} x {d}, {trim:.0%} trimmed at each end: {times['means'] * 1e3:.1f} ms, "
        f"{times['means'] / times['partitions']:.2f} x numpy.partition of the same columns (goal 1.2)"
    )


def main() -> None:
    peak_memory()
    trimmed_means(1_000_000, 10)
    table = Table(
        title=f"one step, {thread_count()} threads of {os.cpu_count()} cores: time over NumPy's plain gradient"
    )
    table.add_column("step")
    table.add_column("goal", justify="right")
    for n, d in SHAPES:
        table.add_column(f"{n:.0e} x {d}".replace("e+0", "e"), justify="right")
    columns = []
    for n, d in SHAPES:
        functions, size = steps(n, d)
        times = interleaved(functions)
        base, reading = next(iter(times.values())), times[READING]
        columns.append(
            {
                name: f"{t / base:.2f} x  {t * 1e3:.1f} ms  {size / t / 1e9:.0f} GB/s, {reading / t:.0%} of read"
                for name, t in times.items()
            }
        )
    for name in columns[0]:
        goal = next((f"{goal:.2f} x" for step, goal in GOALS.items() if name.startswith(step)), "")
        table.add_row(name, goal, *(column[name] for column in columns))
    Console(width=170).print(table)


if __name__ == "__main__":
    main()
