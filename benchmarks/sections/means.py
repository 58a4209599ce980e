"""Means of single columns."""

from __future__ import annotations

from collections.abc import Sequence

import designs
import numpy as np
from numpy.typing import NDArray

import tailguard as tg
from sections.run import Run
from tailguard.privacy import default_delta, gdp_mu

Array = NDArray[np.float64]


def mean_cell(name: str, n: int, epsilon: float, seeds: Sequence[int]) -> dict[str, Array]:
    """Errors of the private mean, of the sample mean, and of the best clip that an oracle finds for Gaussian noise."""
    truth, ours, plain = designs.MEANS[name][1], [], []
    noise = 2.0 / (n * gdp_mu(epsilon, default_delta(n)))
    clipped: dict[tuple[float, bool], list[float]] = {}
    for seed in seeds:
        x = designs.column(name, n, seed)
        ours.append(tg.private_mean(x, epsilon, random_state=seed, threads=1).value)
        x = x[~np.isnan(x)]  # neither the sample mean nor an oracle has missing values
        plain.append(x.mean())
        draw = float(np.random.default_rng([seed, 9]).standard_normal())
        for centred in (False, True):
            centre = float(np.median(x)) if centred else 0.0
            size = np.abs(x - centre)
            for level in (0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0):
                clip = float(np.quantile(size, level))
                found = centre + float(np.clip(x - centre, -clip, clip).mean()) + noise * clip * draw
                clipped.setdefault((level, centred), []).append(found)
    best = min(clipped.values(), key=lambda found: float(np.median(np.abs(np.array(found) - truth))))
    return {key: np.abs(np.array(v) - truth) for key, v in (("ours", ours), ("plain", plain), ("oracle", best))}


def mean(run: Run) -> None:
    """private_mean of one column, against the sample mean and a clip chosen by an oracle."""
    sizes = [(500, 1.0), (1000, 1.0), (10_000, 0.1), (10_000, 1.0), (100_000, 0.1), (100_000, 1.0)]
    sizes, seeds = (sizes[:2] if run.quick else sizes), run.seed_range(5)
    cells = [(name, n, epsilon, seeds) for name in designs.MEANS for n, epsilon in sizes]
    found, rows = iter(run.each(mean_cell, cells)), []
    for name in designs.MEANS:
        row = [name]
        for _ in sizes:
            errors = next(found)
            plain, oracle = (float(np.median(errors[key])) for key in ("plain", "oracle"))
            high = float(np.quantile(errors["ours"], 0.9))
            row.append(f"{np.median(errors['ours']) / plain:.1f} / {high / plain:.1f} ({oracle / plain:.1f})")
        rows.append(row)
    heads = ["column", *(f"n = {n}, ε = {epsilon:g}" for n, epsilon in sizes)]
    note = (
        "In brackets, median: a clip, about 0 or the median, that is the best of nine quantiles of the rows for these "
    )
    note += "seeds, with Gaussian noise of the whole budget: nobody can run that."
    title = f"error of private_mean over the median error of the sample mean, median / 90 %, {len(seeds)} seeds"
    run.table(title, heads, rows, note)
