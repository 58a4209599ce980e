"""A default fit of rows on a GPU: ``python benchmarks/default_gpu.py``.

The rows are made on the device. The first fit compiles; then a fit is timed as a whole, with private noise and with
seeded noise, and each of its sums by itself against copying the rows, which reads and writes them.
"""

from __future__ import annotations

import argparse
import json
import math
import time
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
        "score": clipped(r.Score(design, theta, target, r.Clip(1.0)), design.radius),
        "logistic score": clipped(r.LogisticScore(design, theta), design.radius),
        "multinomial score": clipped(r.MultinomialScore(design, np.full((3, d + 1), 0.1)), design.radius),
        "sizes of residuals": r.Sizes(r.Residual(line, target), tuple(2.0 ** np.arange(-2.0, 2.01, 0.25))),
        "level": clipped(r.Level(line, target, r.Clip(2.0)), 2.0),
    }


def draws(model: tg.PrivateRidge) -> int:
    """Exact draws of a fit: one for every number that it released."""
    return sum(event.samples for event in model.privacy_.events if hasattr(event, "samples"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--columns", type=int, default=32)
    parser.add_argument("--tiles", action="store_true", help="other sizes of tiles too, each of which is compiled")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    n, d = arguments.rows, arguments.columns
    X, y = table(n, d, torch.float32)
    size = X.numel() * X.element_size()
    shape = f"{n:.0e} x {d}".replace("e+0", "e")
    lines = [f"{torch.cuda.get_device_name()}, {shape} float32", ""]
    lines += ["| | noise | s |", "|---|---|---|"]
    found: dict = {"device": torch.cuda.get_device_name(), "rows": n, "columns": d}

    def tell(name: str, noise: str, took: float) -> None:
        found[f"{name}, {noise} noise"] = took
        lines.append(f"| {name} | {noise} | {took:.3f} |")
        print(lines[-1], flush=True)

    # A seed is not private, and draws faster: the difference is what exact noise costs.
    sources = {"private": None, "seeded": 0}
    start = time.perf_counter()
    tg.PrivateRidge(epsilon=1.0).fit(X[:100_000], y[:100_000])
    tell("first fit, compiling", "private", time.perf_counter() - start)
    for kind in (tg.PrivateRidge, tg.PrivateHuberRegressor, tg.PrivateLogisticRegression):
        logistic = kind is tg.PrivateLogisticRegression
        target, options = (torch.sign(y), {"classes": [-1, 1]}) if logistic else (y, {})
        for noise, seed in sources.items():
            model = kind(epsilon=1.0, random_state=seed, **options)
            tell(kind.__name__, noise, seconds(lambda model=model, target=target: model.fit(X, target)))
    model = tg.PrivateRidge(epsilon=1.0).fit(X, y)
    found["draws"] = draws(model)
    lines += ["", f"{found['draws']} draws in a fit of `PrivateRidge`: {model.privacy_.guarantee}"]
    lines += ["", "| sum | ms | GB/s |", "|---|---|---|"]
    took = seconds(X.clone)
    lines.append(f"| copy | {took * 1e3:.2f} | {2 * size / took / 1e9:.0f} |")
    engine, usual = Cuda(X, y), triton_default.VALUES
    for tile in (usual, *((1024, 2048, 4096) if arguments.tiles else ())):
        triton_default.VALUES = tile
        for name, one in sums(n, d).items():
            took = seconds(lambda one=one: engine.integer_sum(one, one.shape), 3)
            found[f"tile {tile}, {name}"] = took
            label = name if tile == usual else f"{name}, tiles of {tile}"
            lines.append(f"| {label} | {took * 1e3:.2f} | {size / took / 1e9:.0f} |")
    found["seeded coefficients"] = tg.PrivateRidge(epsilon=1.0, random_state=0).fit(X, y).coef_[:4].tolist()
    print("\n".join(lines))
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
