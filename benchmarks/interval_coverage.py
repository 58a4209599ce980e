r"""How often intervals cover, and how wide they are: ``python benchmarks/interval_coverage.py``.

Every run draws a table with known coefficients and fits it with ``inference=True``. *Coverage* is the share of 95 %
intervals, over runs and coefficients, that hold the truth; *width* is that of an interval over that of ordinary least
squares with robust (HC0) standard errors on the same rows, of logistic regression without privacy, or of the sample
mean: medians. Infinite intervals are counted by themselves and enter neither. With 400 runs of 5 coefficients a
coverage has a standard error of .005 to .008, or .011 for an intercept.

``--json`` keeps the figures; ``--page docs/inference.md`` writes the tables into the page; ``--from`` reads figures of
earlier runs, with other first seeds, and pools them instead of running.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: every process is one core's
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import designs
import numpy as np
import page
from numpy.typing import NDArray
from scipy.special import expit

import tailguard as tg

Array = NDArray[np.float64]

D = 5
ROWS, EPSILONS = (10_000, 100_000), (0.5, 1.0)
FIRST_SEED = 50_000  # constants of the package were chosen on runs from 20,000 on
PREVALENCES = np.geomspace(0.5, 0.1, D)
CONDITION = 100.0

# name: features, noise, what the tables call it
LINEAR = {
    "normal": ("normal", "normal", "normal x and noise"),
    "t3": ("t3", "t3", "t3 x and noise"),
    "lognormal": ("lognormal", "lognormal", "log-normal x and noise"),
    "noise": ("normal", "lognormal", "normal x, log-normal noise"),
    "correlated": ("correlated", "lognormal", "condition number 100, log-normal noise"),
    "spread": ("normal", "spread", "heteroscedastic, normal noise"),
    "skewed": ("normal", "skewed", "heteroscedastic, log-normal noise"),
    "binary": ("dummies", "normal", "dummies .5 to .1, normal noise"),
}
LOGISTIC = ("normal", "t3", "lognormal", "correlated", "binary")
MEANS = ("normal", "t3", "lognormal")


def covariance() -> Array:
    """Equal correlations with the condition number ``CONDITION``."""
    rho = (CONDITION - 1.0) / (CONDITION - 1.0 + D)
    return np.full((D, D), rho) + (1.0 - rho) * np.eye(D)


def features(kind: str, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Features, and coefficients that give their line a variance of 1."""
    if kind == "correlated":
        S = covariance()
        w = rng.standard_normal(D)
        return rng.standard_normal((n, D)) @ np.linalg.cholesky(S).T, w / math.sqrt(w @ S @ w)
    if kind == "dummies":
        w = rng.standard_normal(D)
        sd = np.sqrt(PREVALENCES * (1.0 - PREVALENCES))
        return (rng.random((n, D)) < PREVALENCES).astype(float), w / sd / np.linalg.norm(w)
    return designs.features(kind, n, D, rng), designs.direction(kind, D, rng)


def noise(kind: str, X: Array, rng: np.random.Generator) -> Array:
    """Noise of mean zero given X."""
    n, across = len(X), rng.standard_normal(D)
    along = X @ (across / np.linalg.norm(across))
    if kind == "normal":
        return rng.standard_normal(n)
    if kind == "t3":
        return rng.standard_t(3, n)
    if kind == "lognormal":
        return designs.centred_lognormal(n, 1.0, rng)
    if kind == "spread":
        return rng.standard_normal(n) * np.exp(0.5 * along)
    return designs.centred_lognormal(n, 0.0, rng) * np.exp(0.3 * along)


def robust(X: Array, y: Array) -> Array:
    """Robust standard errors of least squares, the intercept last."""
    A = np.column_stack([X, np.ones(len(X))])
    inverse = np.linalg.inv(A.T @ A)
    scores = A * (y - A @ (inverse @ (A.T @ y)))[:, None]
    return np.sqrt(np.diag(inverse @ (scores.T @ scores) @ inverse))


@dataclass(frozen=True)
class Job:
    """Runs on tables of one kind."""

    family: str
    design: str
    n: int
    seeds: tuple[int, ...]
    epsilons: tuple[float, ...]

    def runs(self) -> Iterator[dict[str, Any]]:
        """Fit every model at every epsilon to each table."""
        for seed in self.seeds:
            rng = np.random.default_rng([seed, list(LINEAR).index(self.design), self.n])
            yield from getattr(self, self.family)(rng, seed)

    def linear(self, rng: np.random.Generator, seed: int) -> Iterator[dict[str, Any]]:
        """Both linear models."""
        kind, shape, _ = LINEAR[self.design]
        X, w = features(kind, self.n, rng)
        y = 1.0 + X @ w + noise(shape, X, rng)
        other, truth = 1.96 * robust(X, y), np.append(w, 1.0)
        for epsilon in self.epsilons:
            for name in ("PrivateRidge", "PrivateHuberRegressor"):
                # The slopes of the bulk are not those of the mean where noise is skewed and depends on x.
                if (name, self.design) != ("PrivateHuberRegressor", "skewed"):
                    yield self.run(name, epsilon, seed, X, y, truth, other)

    def logistic(self, rng: np.random.Generator, seed: int) -> Iterator[dict[str, Any]]:
        """Log-odds of sd 1.5 about -.5."""
        X, w = features(LINEAR[self.design][0], self.n, rng)
        w = 1.5 * w
        level = -0.5 - (float(PREVALENCES @ w) if self.design == "binary" else 0.0)
        p = expit(level + X @ w)
        A = np.column_stack([X, np.ones(self.n)])
        other = 1.96 * np.sqrt(np.diag(np.linalg.inv((A * (p * (1.0 - p))[:, None]).T @ A)))
        y = (rng.random(self.n) < p).astype(int)
        for epsilon in self.epsilons:
            yield self.run("PrivateLogisticRegression", epsilon, seed, X, y, np.append(w, level), other)

    def poisson(self, rng: np.random.Generator, seed: int) -> Iterator[dict[str, Any]]:
        """Counts of mean 3 exp(.5 line), or with a gamma effect of its own for every row."""
        X, w = features("normal", self.n, rng)
        mean = 3.0 * np.exp(0.5 * X @ w)
        y = rng.poisson(mean * (rng.gamma(2.0, 0.5, self.n) if self.design == "t3" else 1.0)).astype(float)
        A = np.column_stack([X, np.ones(self.n)])
        inverse, scores = np.linalg.inv((A * mean[:, None]).T @ A), A * (y - mean)[:, None]
        other = 1.96 * np.sqrt(np.diag(inverse @ (scores.T @ scores) @ inverse))
        for epsilon in self.epsilons:
            yield self.run("PrivatePoissonRegressor", epsilon, seed, X, y, np.append(0.5 * w, math.log(3.0)), other)

    def mean(self, rng: np.random.Generator, seed: int) -> Iterator[dict[str, Any]]:
        """The mean of a column."""
        y = 1.0 + noise(LINEAR[self.design][1], np.zeros((self.n, D)), rng)
        for epsilon in self.epsilons:
            found = tg.private_mean(y, epsilon, inference=True, random_state=seed, threads=1)
            other = 1.96 * np.std(y) / math.sqrt(self.n)
            yield self.told("private_mean", epsilon, found.conf_int()[None], np.array([1.0]), np.array([other]))

    def run(
        self, name: str, epsilon: float, seed: int, X: Array, y: Array, truth: Array, other: Array
    ) -> dict[str, Any]:
        """Fit one model."""
        model = getattr(tg, name)(epsilon, inference=True, random_state=seed, threads=1).fit(X, y)
        return self.told(name, epsilon, model.conf_int(intercept=True), truth, other)

    def told(self, name: str, epsilon: float, ends: Array, truth: Array, other: Array) -> dict[str, Any]:
        """What a run adds to its cell."""
        finite = np.isfinite(ends[:, 0])
        covered = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        width = (ends[:, 1] - ends[:, 0]) / (2.0 * other)
        return {
            "cell": [name, self.design, self.n, epsilon],
            "covered": [int(c) if f else None for c, f in zip(covered, finite, strict=True)],
            "width": [float(w) if f else None for w, f in zip(width, finite, strict=True)],
        }


def work(job: Job) -> list[dict[str, Any]]:
    """All runs of a job."""
    return list(job.runs())


def jobs(runs: int, rows: Sequence[int], families: Sequence[str], only: str | None, first: int) -> list[Job]:
    """Cut the study into jobs of up to 20 runs, the long ones first."""
    kinds = {"linear": tuple(LINEAR), "logistic": LOGISTIC, "poisson": ("normal", "t3"), "mean": MEANS}
    found = []
    for n in sorted(rows, reverse=True):
        for family in families:
            for design in kinds[family]:
                if only in (None, design):
                    seeds = range(first, first + runs)
                    found += [
                        Job(family, design, n, tuple(seeds[k : k + 20]), EPSILONS) for k in range(0, len(seeds), 20)
                    ]
    return found


def collect(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Figures of every cell."""
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        cells.setdefault(tuple(run["cell"]), []).append(run)
    found = []
    for (name, design, n, epsilon), members in cells.items():
        covered = np.array([run["covered"] for run in members], dtype=float)
        width = np.array([run["width"] for run in members], dtype=float)
        slopes = slice(0, 1) if name == "private_mean" else slice(0, -1)
        found.append(
            {
                "model": name,
                "design": design,
                "n": n,
                "epsilon": epsilon,
                "runs": len(members),
                "coverage": _mean(covered[:, slopes]),
                "intercept": None if name == "private_mean" else _mean(covered[:, -1]),
                "infinite": float(np.mean(np.isnan(covered[:, slopes]))),
                "width": _median(width[:, slopes]),
            }
        )
    return found


def pooled(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Figures of runs with other seeds: shares of all of them, and the average of the medians."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for cell in cells:
        key = (cell["model"], cell["design"], cell["n"], cell["epsilon"])
        if key not in found:
            found[key] = dict(cell)
            continue
        old, runs = found[key], found[key]["runs"] + cell["runs"]
        for name, of_finite in (("coverage", True), ("width", True), ("intercept", False), ("infinite", False)):
            parts = [(each["runs"] * (1.0 - each["infinite"] * of_finite), each[name]) for each in (old, cell)]
            parts = [(weight, value) for weight, value in parts if value is not None and weight > 0.0]
            total = sum(weight for weight, _ in parts)
            old[name] = sum(weight * value for weight, value in parts) / total if parts else None
        old["runs"] = runs
    return list(found.values())


def _mean(values: Array) -> float | None:
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if kept.size else None


def _median(values: Array) -> float | None:
    kept = values[~np.isnan(values)]
    return float(np.median(kept)) if kept.size else None


TITLES = {
    "PrivateRidge": "`PrivateRidge`: slopes of the mean; widths over those of least squares with robust errors",
    "PrivateHuberRegressor": "`PrivateHuberRegressor`: slopes of the bulk; widths over those of least squares",
    "PrivateLogisticRegression": "`PrivateLogisticRegression`, two classes; widths over those without privacy",
    "PrivatePoissonRegressor": "`PrivatePoissonRegressor`; widths over those without privacy",
    "private_mean": "`private_mean`; widths over those of the sample mean",
}
COUNTS = {"normal": "Poisson counts of mean 3", "t3": "the same, overdispersed (gamma)"}


def tables(cells: list[dict[str, Any]]) -> str:
    """Markdown: a table for every model, a row for every design."""
    lines = []
    for model, title in TITLES.items():
        mine = [cell for cell in cells if cell["model"] == model]
        if not mine:
            continue
        heads = sorted({(cell["n"], cell["epsilon"]) for cell in mine})
        lines += [f"**{title}.** {max(cell['runs'] for cell in mine)} runs.", ""]
        lines += ["| design | " + " | ".join(f"n = {n:,}, ε = {e:g}" for n, e in heads) + " |"]
        lines += ["|---" * (len(heads) + 1) + "|"]
        for design in dict.fromkeys(cell["design"] for cell in mine):
            row = {(cell["n"], cell["epsilon"]): cell for cell in mine if cell["design"] == design}
            name = LINEAR[design][2]
            if model == "PrivatePoissonRegressor":
                name = COUNTS[design]
            elif model == "PrivateLogisticRegression":
                name = name.split(",")[0].replace(" and noise", "")
            elif model == "private_mean":
                name = name.split(" ")[0]
            lines.append(f"| {name} | " + " | ".join(_cell(row.get(head)) for head in heads) + " |")
        lines.append("")
    return "\n".join(lines)


def _cell(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "-"
    if cell["coverage"] is None:
        return "infinite"
    text = f"{_fraction(cell['coverage'])}"
    if cell["intercept"] is not None:
        text += f" ({_fraction(cell['intercept'])})"
    text += f", {cell['width']:.2f} x"
    return text + (f", {_fraction(cell['infinite'])} infinite" if cell["infinite"] > 0.0005 else "")


def _fraction(value: float) -> str:
    return f"{value:.3f}".lstrip("0") if value < 1.0 else "1"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study, or read it, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400, help="of every cell")
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--families", nargs="+", default=["linear", "logistic", "poisson", "mean"])
    parser.add_argument("--design", help="one design alone")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="first seed")
    parser.add_argument("--from", type=Path, nargs="+", dest="sources", help="figures of earlier runs")
    parser.add_argument("--page", type=Path, help="the page whose figures are to be replaced")
    given = parser.parse_args(arguments)
    if given.sources is not None:
        cells = pooled([cell for path in given.sources for cell in json.loads(path.read_text(encoding="utf-8"))])
    else:
        begun, todo = time.perf_counter(), jobs(given.runs, given.rows, given.families, given.design, given.first)
        runs: list[dict[str, Any]] = []
        if given.processes > 1:
            with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
                for done in pool.imap_unordered(work, todo):
                    runs += done
        else:
            for job in todo:
                runs += work(job)
        cells = collect(sorted(runs, key=lambda run: [list(TITLES).index(run["cell"][0]), *map(str, run["cell"])]))
        print(f"{len(runs)} fits in {time.perf_counter() - begun:.0f} s")
    if given.json is not None:
        given.json.write_text(json.dumps(cells, indent=1), encoding="utf-8")
    text = tables(cells)
    print(text)
    if given.page is not None:
        page.put(given.page, "intervals", text)


if __name__ == "__main__":
    main()
