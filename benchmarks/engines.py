"""One exact private step in every engine that is here, against copying the rows: ``make bench-engines``.

A step reads every row once. Copying them reads and writes them, so a step at 100 % of the copy's bandwidth takes half
the copy's time. "of memory" is the time over that of rows in memory with all threads.

On a GPU both are timed in two ways: what the GPU takes, and a step that the host launches on an idle GPU and waits for,
as in a fit. "of torch's" is the GPU's time over that of PyTorch's gradient in float32, without clipping.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import tailguard as tg
from tailguard.engines import Engine, engine_for
from tailguard.engines.vectors import Gradients
from tailguard.kernels import codes
from tailguard.truncation import Grid, L2Clip, Smoothed

SHAPES = ((2_000_000, 10), (800_000, 32), (100_000, 256))
GPU_SHAPES = ((100_000_000, 10), (50_000_000, 32), (20_000_000, 64), (5_000_000, 256))
BETA = float(np.sqrt(2 * np.log(100)))
BEYOND = 0.01  # share of rows that are clipped, or beyond the core of psi


def has(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


def engines(X: np.ndarray, y: np.ndarray, folder: Path) -> Iterator[tuple[str, Engine]]:
    """Every engine that can hold rows in memory, a file or a cluster here."""
    yield "memory, all threads", engine_for(X, y)
    yield "memory, one thread", engine_for(X, y, 1)
    if has("pyarrow"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = folder / "rows.parquet"
        pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])} | {"y": y}), path)
        yield "streamed from Parquet", engine_for(tg.Source(path, memory=0), "y")
    if has("dask", "tailguard.engines.dask"):
        import dask.array as da

        rows = -(-len(X) // 4)
        yield "Dask, threads", engine_for(da.from_array(X, (rows, -1)), da.from_array(y, rows))


def grids(X: np.ndarray, y: np.ndarray, w: np.ndarray, n: int) -> dict[str, Grid]:
    """A clip and a scale that BEYOND of the rows exceed."""
    residual = np.abs(X @ w - y)
    clip = float(np.quantile(residual * np.linalg.norm(X, axis=1), 1 - BEYOND))
    scale = float(np.quantile(residual * np.abs(X).max(axis=1), 1 - BEYOND))
    core = Smoothed(1.0, BETA).kernel_arguments()[-1]
    return {"L2 clipping": Grid.of(L2Clip(clip), n), "psi": Grid.of(Smoothed(scale / core, BETA), n)}


def seconds(function: Callable[[], object], rounds: int = 7) -> float:
    function()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def on_this_machine(shapes: tuple[tuple[int, int], ...]) -> None:
    table = Table(title="one step of the squared loss, float64 rows")
    for heading in ("rows x columns", "engine", "truncation", "ms", "GB/s", "of copy", "of memory"):
        table.add_column(heading, justify="left" if heading in ("engine", "truncation") else "right")
    rng = np.random.default_rng(0)
    for n, d in shapes:
        X, w = rng.standard_normal((n, d)), np.full(d, d**-0.5)
        y = X @ w + rng.lognormal(0.0, 1.0, n)
        other = np.empty_like(X)
        copy = 2 * X.nbytes / seconds(partial(np.copyto, other, X))
        vectors = Gradients(tg.losses.Squared(), w[None], fit_intercept=False)
        base: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as folder:
            for name, engine in engines(X, y, Path(folder)):
                for truncation, grid in grids(X[:100_000], y[:100_000], w, n).items():
                    took = seconds(partial(engine.truncated_sum, vectors, grid))
                    speed = (X.nbytes + y.nbytes) / took
                    ratio = took / base.setdefault(truncation, took)
                    cells = (f"{took * 1e3:.1f}", f"{speed / 1e9:.1f}", f"{speed / copy:.0%}", f"{ratio:.2f} x")
                    table.add_row(f"{n:.0e} x {d}".replace("e+0", "e"), name, truncation, *cells)
    Console(width=120).print(table)


def waited(function: Callable[[], object]) -> float:
    """Seconds of a call on an idle GPU until it is done: what the host does is in it."""
    import torch

    def wait() -> None:
        function()
        torch.cuda.synchronize()

    return seconds(wait, 21)


def queued(function: Callable[[], object], rounds: int = 21) -> float:
    """Seconds of the GPU, which is busy until the host has launched everything: as in `triton.testing.do_bench`."""
    import torch

    function()
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)  # cycles, 1 ms
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return float(np.median(times))


def on_a_gpu(shapes: tuple[tuple[int, int], ...]) -> None:
    import torch

    from tailguard.kernels.triton_rows import add_rows

    one = torch.empty(2**29, device="cuda")
    copying = partial(torch.empty_like(one).copy_, one)
    copy, waited_copy = (2 * one.nbytes / clock(copying) for clock in (queued, waited))
    del one, copying
    title = f"one step on {torch.cuda.get_device_name()}, float32 rows; copy: {copy / 1e9:.0f} GB/s"
    table = Table(title=f"{title}, waited for {waited_copy / 1e9:.0f}")
    headings = ("rows x columns", "truncation", "ms on the GPU", "of copy", "ms of a step", "of copy", "of torch's")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "truncation" else "right")
    for n, d in shapes:
        X = torch.randn(n, d, device="cuda")
        w = np.full(d, d**-0.5)
        weights = torch.as_tensor(w, device="cuda")
        single = weights.float()
        y = X @ single + torch.randn(n, device="cuda").exp()
        engine = engine_for(X, y)
        vectors = Gradients(tg.losses.Squared(), w[None], fit_intercept=False)
        plain = queued(lambda X=X, y=y, w=single: X.T @ (X @ w - y))
        few = slice(0, 100_000)
        for truncation, grid in grids(X[few].double().cpu().numpy(), y[few].cpu().numpy(), w, n).items():
            bound, *psi = grid.truncation.kernel_arguments()
            rule = False, codes.SQUARED, 0.0, grid.truncation.kind, bound, 1.0 / grid.unit, *psi
            took = queued(partial(add_rows, X, y, weights[None], None, None, *rule))
            step = waited(partial(engine.truncated_sum, vectors, grid))
            size = X.nbytes + y.nbytes
            cells = (f"{took * 1e3:.2f}", f"{size / took / copy:.0%}")
            cells += (f"{step * 1e3:.2f}", f"{size / step / waited_copy:.0%}", f"{took / plain:.2f} x")
            table.add_row(f"{n:.0e} x {d}".replace("e+0", "e"), truncation, *cells)
        del X, y, engine
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rows: to see that it runs")
    parser.add_argument("--gpu", action="store_true", help="the GPU alone")
    options = parser.parse_args()
    share = 100 if options.quick else 1
    if not options.gpu:
        on_this_machine(tuple((n // share, d) for n, d in SHAPES))
    if not options.gpu and has("distributed"):
        from cluster import ROUNDS, on_a_cluster
        from cluster import SHAPES as CLUSTER_SHAPES

        print(on_a_cluster(tuple((max(1000, n // share), d) for n, d in CLUSTER_SHAPES), max(5, ROUNDS // share)))
    if has("torch", "triton"):
        import torch

        if torch.cuda.is_available():
            on_a_gpu(tuple((n // share, d) for n, d in GPU_SHAPES))
            return
    Console().print("no GPU here: the engine for CUDA tensors was not timed (docs/gpu.md has figures)")


if __name__ == "__main__":
    main()
