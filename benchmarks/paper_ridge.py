"""Algorithm 4 and its rivals on the paper's synthetic ridge task: ``make bench-ridge``.

n = 1e5, d = 10, x normal, centred log-normal(1, 1) noise, delta = 1/n; excess risk 0.5 |w - w*|^2, median and 90 %
quantile over seeds. The data and the noise of every cell have their own seeds. Scales and clips are public
constants, the same for all epsilon.
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console
from rich.table import Table

import tailguard as tg
from tailguard.datasets import make_linear

EPSILONS = (1.0, 0.5, 0.1)
SQUARED = tg.losses.Squared()


def methods() -> dict:
    a = tg.algorithms
    return {
        "Algorithm 4, paper's setting, T = 50": lambda X, y, **k: a.algorithm4(
            SQUARED, X, y, setting="paper", v=5.0, steps=50, step_size=0.1, **k
        ),
        "Algorithm 4, improved, scale 10": lambda X, y, **k: a.algorithm4(
            SQUARED, X, y, scale=10.0, steps=10, step_size=0.5, **k
        ),
        "Algorithm 4, improved, scale 20": lambda X, y, **k: a.algorithm4(
            SQUARED, X, y, scale=20.0, steps=10, step_size=0.5, **k
        ),
        "L2 clipping, C = 20": lambda X, y, **k: a.clipped_gd(SQUARED, X, y, clip=20.0, steps=10, step_size=0.5, **k),
        "Algorithm 4, stochastic, batch 1000": lambda X, y, **k: a.algorithm4(
            SQUARED, X, y, scale=10.0, steps=100, step_size="1/sqrt(t)", batch_size=1000, average="mean", **k
        ),
    }


def symmetric(n: int, seeds: int) -> None:
    """Algorithms 1 and 3 beside Algorithm 4, on the same task with symmetric heavy tails: Student t, 3 degrees."""
    a = tg.algorithms
    ball = tg.constraints.L2Ball(5.0)
    names = {
        "Algorithm 4, improved, scale 10": lambda X, y, **k: a.algorithm4(SQUARED, X, y, scale=10.0, steps=10, **k),
        "Algorithm 3, b - a = 20": lambda X, y, **k: a.algorithm3(
            SQUARED, X, y, a=-10.0, b=10.0, steps=10, step_size=0.5, **k
        ),
        "Algorithm 1, median of 500 blocks": lambda X, y, **k: a.algorithm1(
            SQUARED, X, y, blocks=500, constraint=ball, **k
        ),
        "Algorithm 1, median of 1000 blocks": lambda X, y, **k: a.algorithm1(
            SQUARED, X, y, blocks=1000, constraint=ball, **k
        ),
    }
    errors: dict[str, list[np.ndarray]] = {name: [] for name in [*names, "ordinary least squares, not private"]}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        X, w = rng.standard_normal((n, 10)), rng.standard_normal(10)
        w /= np.linalg.norm(w)
        y = X @ w + rng.standard_t(3, n)
        for cell, (name, method) in enumerate(names.items()):
            result = method(X, y, epsilon=1.0, delta=1e-5, allow_large_delta=True, random_state=1000 * seed + cell)
            errors[name].append(result.w - w)
        errors["ordinary least squares, not private"].append(np.linalg.lstsq(X, y, rcond=None)[0] - w)
    table = Table(title=f"Student t(3) noise, epsilon 1, delta 1e-5, {seeds} seeds, n = {n}")
    for column in ("method", "excess risk, median / 90 %", "RMSE per coordinate, median / 90 %"):
        table.add_column(column)
    for name, found in errors.items():
        risk = [0.5 * float(e @ e) for e in found]
        rmse = [float(np.sqrt(np.mean(e * e))) for e in found]
        table.add_row(name, *(f"{np.median(v):.2g} / {np.quantile(v, 0.9):.2g}" for v in (risk, rmse)))
    Console(width=130).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=100_000)
    arguments = parser.parse_args()
    n = arguments.rows
    risks: dict[tuple[str, float], list[float]] = {}
    ols = []
    for seed in range(arguments.seeds):
        data = make_linear(n=n, d=10, seed=seed)
        ols.append(0.5 * np.sum((np.linalg.lstsq(data.X, data.y, rcond=None)[0] - data.w) ** 2))
        for cell, (name, method) in enumerate(methods().items()):
            for k, epsilon in enumerate(EPSILONS):
                noise_seed = 1_000_000 + 1000 * seed + 10 * cell + k
                result = method(
                    data.X, data.y, epsilon=epsilon, delta=1 / n, allow_large_delta=True, random_state=noise_seed
                )
                risks.setdefault((name, epsilon), []).append(0.5 * float(np.sum((result.w - data.w) ** 2)))
    table = Table(title=f"excess risk, median / 90 % quantile over {arguments.seeds} seeds, n = {n}")
    table.add_column("method")
    for epsilon in EPSILONS:
        table.add_column(f"epsilon {epsilon:g}", justify="right")
    for name in methods():
        cells = [risks[name, epsilon] for epsilon in EPSILONS]
        table.add_row(name, *(f"{np.median(c):.2g} / {np.quantile(c, 0.9):.2g}" for c in cells))
    cell = f"{np.median(ols):.2g} / {np.quantile(ols, 0.9):.2g}"
    table.add_row("ordinary least squares, not private", *[cell] * 3)
    Console(width=130).print(table)
    symmetric(n, arguments.seeds)


if __name__ == "__main__":
    main()
