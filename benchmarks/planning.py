r"""How right the planner is: ``python benchmarks/planning.py``; and its constants: ``--calibrate``.

Cells are drawn at random, log-uniformly: rows from 300 to 100,000, features from 1 to 50, epsilon from .1 to 5, and the
strength of the signal. Each is fitted with several seeds and the median error is compared with the predicted one.
Calibration and check use different cells and different seeds. ``--calibrate`` fits the constants of each model by least
squares on log errors and writes ``src/tailguard/planning/constants.json``; rerun it after a change to the default.
Designs that the planner does not assume (heavy features, correlated ones, dummies) are checked as well.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import designs
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

import tailguard as tg
from tailguard.planning import formula
from tailguard.planning.formula import Situation, key_of, plan, predict, small_fit
from tailguard.planning.simulation import simulate
from tailguard.privacy import gdp_epsilon

Array = NDArray[np.float64]
KINDS = [(model, tails, False) for model in ("ridge", "huber") for tails in ("light", "heavy")]
KINDS += [("ridge", "light", True), ("ridge", "heavy", True)]  # which is that of "huber"
KINDS += [("logistic", "light", False), ("mean", "light", False), ("mean", "heavy", False)]
CALIBRATION, CHECK = 1000, 2000  # first seeds
MOST_VALUES = 1_500_000  # of a table
FREE = ("a", "b", "c", "e", "f", "a0", "b0", "g")
START = {"a": 1.0, "b": 2.0, "c": 1.0, "e": 0.01, "f": 0.01, "a0": 0.5, "b0": 2.0, "g": 1.8, "lost": 0.0, "often": 1.0}
CONSTANTS = Path(formula.__file__).with_name("constants.json")


def cells(model: str, tails: str, small: bool, count: int, seed: int) -> list[Situation]:
    """Draw situations, those in which the default makes a small fit or all others; a mean has no features."""
    rng = np.random.default_rng([seed, len(model), len(tails), small])
    found: list[Situation] = []
    while len(found) < count:
        n, d = round(math.exp(rng.uniform(math.log(300), math.log(1e5)))), round(math.exp(rng.uniform(0, math.log(50))))
        epsilon = float(f"{math.exp(rng.uniform(math.log(0.1), math.log(5.0))):.2g}")
        signal = {"r2": round(rng.uniform(0.1, 0.9), 2), "log_odds_sd": round(rng.uniform(0.5, 3.0), 1)}
        signal["positive_rate"] = round(rng.uniform(0.1, 0.5), 2)
        if n * d <= MOST_VALUES:
            features = 0 if model == "mean" else d
            one = Situation(n, features, epsilon, model=model, tails=tails, **signal)  # type: ignore[arg-type]
            found += [one] if small_fit(one) == small else []
    return found


def errors(job: tuple[Situation, int]) -> tuple[float, float]:
    """Total and level error of one seeded fit."""
    found = simulate(*job)
    return found.total, found.level


def simulated(situations: Sequence[Situation], seeds: Iterable[int], workers: int) -> Array:
    """Errors of shape (cells, seeds, 2)."""
    seeds = list(seeds)
    jobs = [(situation, seed) for situation in situations for seed in seeds]
    if workers == 1:
        answers = [errors(job) for job in jobs]
    else:
        with ProcessPoolExecutor(workers) as pool:
            answers = list(pool.map(errors, jobs, chunksize=8))
    return np.array(answers).reshape(len(situations), len(seeds), 2)


def predicted(situations: Sequence[Situation], constants: dict[str, float]) -> tuple[Array, Array]:
    """Total and level errors that the formula gives with these constants."""
    plans = [predict(situation, constants) for situation in situations]
    return np.array([p.error for p in plans]), np.array([p.level for p in plans])


def seeds_for(model: str, seeds: int) -> int:
    """The error of a mean is a single square, whose median needs more seeds; and its fits are quick."""
    return 5 * seeds if model == "mean" else seeds


def lost_below(workers: int) -> float:
    """Return n mu from which on nearly all fits find the scale of a normal target."""
    grid = np.geomspace(10.0, 160.0, 13)
    cases = [
        Situation(500, 0, float(gdp_epsilon(x / 500, 1e-6)), delta=1e-6, model="mean", tails="light") for x in grid
    ]
    found = simulated(cases, range(CALIBRATION, CALIBRATION + 20), workers)[:, :, 0]
    return float(grid[np.argmax(np.quantile(found, 0.9, axis=1) < 0.5)])


def calibrate(
    model: str, tails: str, small: bool, count: int, seeds: int, lost: float, workers: int
) -> dict[str, float]:
    """Return the constants of a model: least squares on logarithms of medians, with a bound on outliers."""
    situations = [s for s in cells(model, tails, small, count, CALIBRATION) if s.rows * s.mu > lost]
    found = simulated(situations, range(CALIBRATION, CALIBRATION + seeds_for(model, seeds)), workers)
    median = np.median(found, axis=1)
    with_level = model in ("ridge", "huber")
    start = np.log([START[name] for name in FREE])
    low, high = np.log([1e-4] * 7 + [1.0]), np.log([1e3] * 7 + [2.0])

    def residuals(x: Array) -> Array:
        constants = START | {name: float(v) for name, v in zip(FREE, np.exp(x), strict=True)}
        total, level = predicted(situations, constants)
        parts = [np.log(total / median[:, 0])]
        if with_level:
            parts.append(0.5 * np.log(level / np.maximum(median[:, 1], 1e-12)))
        # A weak pull to the start, for what the cells say nothing about.
        return np.concatenate([*parts, 0.05 * (x - start)])

    fit = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=0.5)
    constants = START | {name: float(f"{v:.4g}") for name, v in zip(FREE, np.exp(fit.x), strict=True)}
    constants["lost"] = float(f"{lost:.3g}")
    total, _ = predicted(situations, constants)
    constants["often"] = float(f"{np.quantile(found[:, :, 0] / total[:, None], 0.9):.3g}")
    return constants


def check(
    model: str, tails: str, small: bool, count: int, seeds: int, workers: int
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return a row of the table and the cells."""
    situations = cells(model, tails, small, count, CHECK)
    plans = [plan(situation) for situation in situations]
    pairs = [(s, p) for s, p in zip(situations, plans, strict=True) if p.regime != "nothing"]
    situations, plans = [s for s, _ in pairs], [p for _, p in pairs]
    found = simulated(situations, range(CHECK, CHECK + seeds_for(model, seeds)), workers)[:, :, 0]
    ratio = np.array([p.error for p in plans]) / np.median(found, axis=1)
    inside = np.mean(found <= np.array([p.often for p in plans])[:, None])
    rows = [
        {"rows": s.rows, "features": s.features, "epsilon": s.epsilon, "regime": p.regime, "ratio": round(float(r), 3)}
        | {"predicted": float(f"{p.error:.3g}"), "simulated": float(f"{np.median(e):.3g}")}
        for s, p, r, e in zip(situations, plans, ratio, found, strict=True)
    ]
    return [key_of(model, tails, small), *_ratios(ratio), f"{100 * inside:.0f} %"], rows


def _ratios(ratio: Array) -> list[str]:
    low, high = np.quantile(ratio, [0.05, 0.95])
    within = 100 * np.mean((ratio < 2.0) & (ratio > 0.5))
    return [
        str(len(ratio)),
        f"{np.median(ratio):.2f}",
        f"{low:.2f} to {high:.2f}",
        f"{ratio.min():.2f} to {ratio.max():.2f}",
        f"{within:.0f} %",
    ]


def others(seeds: int) -> list[list[str]]:
    """Designs that the planner does not assume: prediction for heavy tails over the median of simulated fits."""
    table = []
    for name in ("tt", "ll", "corr", "bin", "het"):
        ratios = []
        for n, d, epsilon in ((3000, 5, 1.0), (10_000, 10, 1.0), (30_000, 10, 0.3), (30_000, 20, 1.0)):
            found, noise = [], []
            for seed in range(CHECK, CHECK + seeds):
                task = designs.linear_task(name, n, d, seed)
                fit = tg.PrivateRidge(epsilon, random_state=seed, threads=1).fit(task.X, task.y)
                variance = float(np.mean((task.y - task.y.mean()) ** 2))
                found.append(2.0 * task.full_risk(fit.predict(task.fresh)) / variance)
                noise.append(min(0.95, max(0.05, float(np.var(task.truth)) / variance)))
            expected = plan(Situation(n, d, epsilon, r2=float(np.median(noise)))).error
            ratios.append(expected / float(np.median(found)))
        label = designs.LINEAR[name][2]
        table.append([label, f"{np.median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}"])
    return table


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibrate", action="store_true", help="fit the constants first and write them")
    parser.add_argument("--only", help="kinds of models to calibrate, by the beginning of their names: mean, ridge")
    parser.add_argument("--cells", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=11)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, help="write every cell of the check as JSON")
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if arguments.only is None or key_of(*kind).startswith(arguments.only)]
    if not kinds:
        parser.error(f"--only {arguments.only}: choose from {', '.join(key_of(*kind) for kind in KINDS)}")
    if arguments.calibrate:
        lost = lost_below(arguments.workers)
        constants = dict(formula.all_constants()) | {
            key_of(*kind): calibrate(*kind, arguments.cells, arguments.seeds, lost, arguments.workers) for kind in kinds
        }
        text = json.dumps({"made_by": "benchmarks/planning.py --calibrate", "constants": constants}, indent=2)
        CONSTANTS.write_text(text + "\n", encoding="utf-8")
        formula.all_constants.cache_clear()
        print(markdown(["model", *START], [[name, *map(str, values.values())] for name, values in constants.items()]))
    results = {kind: check(*kind, arguments.cells, arguments.seeds, arguments.workers) for kind in kinds}
    columns = ["model", "cells", "median ratio", "5 to 95 %", "range", "within 2 x", "fits below 'often'"]
    print("\npredicted over simulated\n")
    print(markdown(columns, [row for row, _ in results.values()]))
    print("\nother designs, PrivateRidge\n")
    print(markdown(["design", "median ratio", "range"], others(max(3, arguments.seeds // 2))))
    if arguments.output is not None:
        data = {key_of(*kind): rows for kind, (_, rows) in results.items()}
        arguments.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
