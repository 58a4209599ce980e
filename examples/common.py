"""What the examples share: arguments, tables, repeated fits and the look of the plots."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

EPSILONS = (0.1, 0.3, 1.0, 3.0)
REPEATS = 5
PRIVATE, FREE, OTHER = "#c1440e", "#2b6cb0", "#7a7a7a"
SOURCES = {
    "randhie.csv.gz": "RAND HIE: statsmodels on GitHub, statsmodels/datasets/randhie/src; R sampleSelection, RandHIE",
    "credit_default.csv.gz": "UCI 350, Default of Credit Card Clients; or sklearn.datasets.fetch_openml(data_id=42477)",
    "adult.csv.gz": "UCI 2, Adult; or sklearn.datasets.fetch_openml('adult', version=2)",
}


def arguments(description: str | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("TAILGUARD_DATA"), help="folder of the tables")
    plot = Path(sys.argv[0]).with_suffix(".png").name
    parser.add_argument("--output", type=Path, default=Path(plot), help="where the plot goes")
    parser.add_argument("--rows", type=int, default=None, help="use only so many rows")
    parser.add_argument(
        "--repeats", type=int, default=REPEATS, help="splits, each with a private fit for every epsilon"
    )
    return parser.parse_args()


def read_table(folder: Path | None, name: str) -> pd.DataFrame | None:
    """Read a table, or say that there is none and where to get it."""
    if folder is not None and (path := Path(folder) / name).is_file():
        return pd.read_csv(path)
    where = "no folder is given (--data or TAILGUARD_DATA)" if folder is None else f"{name} is not in the folder given"
    print(f"NOTE: {where}: this run uses a SYNTHETIC twin of the table.\n      {name}: {SOURCES[name]}\n")
    return None


def split(rows: int, limit: int | None, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Shuffle, take at most ``limit`` rows, and keep a quarter of them for testing."""
    order = np.random.default_rng(seed).permutation(rows)[:limit]
    cut = len(order) * 3 // 4
    return order[:cut], order[cut:]


@dataclass
class Study:
    """Held-out scores over random splits, and the models and rows of the first split."""

    private: np.ndarray  # (epsilons, splits)
    others: dict[str, float]
    range: tuple[float, float]  # of the free fits
    models: list
    free: Any
    train: np.ndarray
    test: np.ndarray


def compare(rows: int, given: argparse.Namespace, fit_private, fit_free, score, baseline) -> Study:
    """Fit privately for every epsilon, and freely, on the same random splits.

    Every fit spends its own epsilon: repeating it is for a study of the noise, not for use. With heavy tails the few
    largest held-out rows decide a score, so the rows are split anew each time.
    """
    splits = [split(rows, given.rows, seed) for seed in range(given.repeats)]
    free = [fit_free(train) for train, _ in splits]
    private = [[fit_private(epsilon, train) for train, _ in splits] for epsilon in EPSILONS]
    scores = [[score(model, test) for model, (_, test) in zip(row, splits, strict=True)] for row in private]
    reached = [score(model, test) for model, (_, test) in zip(free, splits, strict=True)]
    others = {"not private": float(np.median(reached)), baseline[0]: baseline[1](*splits[0])}
    return Study(
        np.array(scores), others, (min(reached), max(reached)), [row[0] for row in private], free[0], *splits[0]
    )


def print_table(measure: str, scores: np.ndarray, others: dict[str, float]) -> None:
    """Print held-out scores."""
    print(f"{measure}: median (smallest to largest of {scores.shape[1]})")
    for epsilon, row in zip(EPSILONS, scores, strict=True):
        print(f"  private, epsilon {epsilon:<4g} {np.median(row):8.4f}  ({row.min():.4f} to {row.max():.4f})")
    for name, value in others.items():
        print(f"  {name:<21} {value:8.4f}")
    print()


def new_figure(title: str, panels: int = 2):
    """A figure with a few panels side by side."""
    figure = Figure(figsize=(4.9 * panels, 4.3), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, panels))
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="#e6e6e6", linewidth=0.8)
        panel.set_axisbelow(True)
    figure.suptitle(title, fontsize=12)
    return figure, axes


def draw_scores(axes, measure: str, study: Study) -> None:
    """Score against epsilon, with the range over splits, beside what the others reach."""
    scores, others = study.private, study.others
    axes.axhspan(*study.range, color=FREE, alpha=0.1, linewidth=0)
    axes.fill_between(EPSILONS, scores.min(axis=1), scores.max(axis=1), color=PRIVATE, alpha=0.18, linewidth=0)
    axes.plot(
        EPSILONS,
        np.median(scores, axis=1),
        "o-",
        color=PRIVATE,
        label=f"private: median and range of {scores.shape[1]} splits",
    )
    for (name, value), color, style in zip(others.items(), (FREE, OTHER), ("--", ":"), strict=False):
        axes.axhline(value, color=color, linestyle=style, label=name)
    axes.set_xscale("log")
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.minorticks_off()
    axes.set_xlabel("epsilon")
    axes.set_ylabel(measure)
    axes.legend(frameon=False, fontsize=9)
    axes.set_title("accuracy against privacy", fontsize=10, loc="left")


def draw_groups(axes, predicted: dict[str, np.ndarray], y: np.ndarray, unit: str, groups: int = 8) -> None:
    """Mean of y in groups of rows by prediction: on the diagonal, predictions are right on average."""
    top = 0.0
    for (name, value), color, marker in zip(predicted.items(), (PRIVATE, FREE), "os", strict=False):
        parts = np.array_split(np.argsort(value, kind="stable"), groups)
        x, mean = np.array([[value[part].mean(), y[part].mean()] for part in parts]).T
        error = [y[part].std() / np.sqrt(len(part)) for part in parts]
        axes.errorbar(x, mean, error, fmt=marker, color=color, capsize=2, markersize=5, label=name)
        top = max(top, x.max(), mean.max())
    axes.plot([0.0, top], [0.0, top], color=OTHER, linewidth=1.0, linestyle=":")
    axes.set_xlabel(f"mean prediction of a group of rows ({unit})")
    axes.set_ylabel(f"mean outcome, held out ({unit})")
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    axes.set_title(f"{groups} groups of rows by prediction, with standard errors", fontsize=10, loc="left")


def save(figure, path: Path) -> None:
    """Write the plot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"\nplot: {path}")
