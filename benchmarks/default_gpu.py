"""A default fit of rows on a GPU: ``python benchmarks/default_gpu.py``.

The rows are made on the device. The first fit compiles; then a fit is timed as a whole, with noise that is private,
and each of its sums by itself against copying the rows, which reads and writes them.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

import tailguard as tg
from tailguard.default import rows as r
from tailguard.default.columns import Columns
from tailguard.default.whitening import Design
from tailguard.engines.cuda import Cuda
from tailguard.kernels import triton_default
from tailguard.truncation import Grid, L2Clip


def table(n: int, d: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    X = torch.empty((n, d), device="cuda", dtype=dtype).normal_(generator=generator)
    noise = torch.empty(n, device="cuda", dtype=torch.float64).normal_(generator=generator)
    y = (X @ torch.full((d,), d**-0.5, device="cuda", dtype=dtype)).to(torch.float64) + torch.sinh(noise)
    return X, y


def seconds(function, rounds: int = 5) -> float:
    function()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def sums(n: int, d: int) -> dict:
    """One sum of every kind, on columns of a normal table."""
    one = np.ones(d)
    columns = Columns(0 * one, 8 * one, 0 * one, one, one > 0)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0]
    design = Design(columns, 0.1 * one, rotation, np.eye(d), True, 0.75 * math.sqrt(d + 1), 3.0)
    theta, target = np.full(d + 1, 0.1), r.Target(0.0, 1.5, 0.0, 1e3)
    line = design.fitted(theta)
    every = tuple(range(d))
    clipped = lambda rows, bound: rows.clipped(Grid.of(L2Clip(bound), n))  # noqa: E731
    return {
        "histograms of columns": r.ColumnCounts("features", every, (0.0,) * d),
        "histogram of the target": r.ColumnCounts("target", (0,), (0.0,)),
        "moments of columns": clipped(r.ColumnMoments("features", every, (0.0,) * d, (8.0,) * d), math.sqrt(d)),
        "Gram matrix": r.DesignRows(design).gram(math.sqrt(3.0) * design.radius, 19),
        "score": clipped(r.Score(design, theta, target, 1.0), design.radius),
        "logistic score": clipped(r.LogisticScore(design, theta), design.radius),
        "multinomial score": clipped(r.MultinomialScore(design, np.full((3, d + 1), 0.1)), design.radius),
        "sizes of residuals": r.Sizes(r.Residual(line, target), tuple(2.0 ** np.arange(-2.0, 2.01, 0.25))),
        "level": clipped(r.Level(line, target, 2.0), 2.0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--columns", type=int, default=32)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    n, d = arguments.rows, arguments.columns
    found: dict = {"device": torch.cuda.get_device_name(), "rows": n, "columns": d}
    X, y = table(n, d, torch.float32)
    size = X.numel() * X.element_size()
    found["copy GB/s"] = 2 * size / seconds(X.clone) / 1e9
    seed = None if find_spec("opendp") else 0  # a seed is not private, and draws faster
    found["noise"] = "private" if seed is None else "seeded"
    start = time.perf_counter()
    tg.PrivateRidge(epsilon=1.0, random_state=seed).fit(X[:100_000], y[:100_000])
    found["first fit, compiling"] = time.perf_counter() - start
    for name, model in {
        "PrivateRidge": tg.PrivateRidge(epsilon=1.0, random_state=seed),
        "PrivateHuberRegressor": tg.PrivateHuberRegressor(epsilon=1.0, random_state=seed),
        "PrivateLogisticRegression": tg.PrivateLogisticRegression(epsilon=1.0, classes=[-1, 1], random_state=seed),
    }.items():
        target = torch.sign(y) if "Logistic" in name else y
        found[name] = seconds(lambda model=model, target=target: model.fit(X, target), 5)
    engine = Cuda(X, y)
    for tile in (triton_default.VALUES, *(v for v in (1024, 2048, 4096) if v != triton_default.VALUES)):
        triton_default.VALUES = tile
        for name, one in sums(n, d).items():
            took = seconds(lambda one=one: engine.integer_sum(one, one.shape), 3)
            found[f"tile {tile}, {name}"] = f"{took * 1e3:.2f} ms, {size / took / 1e9:.0f} GB/s"
    found["seeded coefficients"] = tg.PrivateRidge(epsilon=1.0, random_state=0).fit(X, y).coef_[:4].tolist()
    text = json.dumps(found, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
