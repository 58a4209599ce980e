r"""How accurate the default is, against its targets, non-private fits and peers: ``python benchmarks/accuracy.py``.

Sections, each runnable alone with ``--only``: ``clean``, ``oracle``, ``random``, ``small``, ``tables``, ``logistic``,
``rare``, ``counts``, ``mean``, ``safety``, ``equivariance``, ``collinear``, ``time``. Figures are medians and 90 %
quantiles over seeds 5000 and up, on which next to no choice in the package was made (``docs/benchmarks.md`` names those
that were). Fits are seeded so that a run can be repeated; the noise has the same distribution without a seed. delta is
the default, ``min(1e-6, n**-1.5)``. Tables are printed and written as Markdown.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import designs
import numpy as np
import peers
import random_designs
import real_tables
from designs import LINEAR
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import tailguard as tg
from tailguard.privacy import default_delta, gdp_mu

Array = NDArray[np.float64]
FIRST_SEED = 5000
ESTIMATORS = {"Ridge": tg.PrivateRidge, "Huber": tg.PrivateHuberRegressor}


@dataclass
class Run:
    """Options of a run, and the report it writes."""

    seeds: int = 20
    rows: int = 100_000
    tables: int = 1000
    worst: int = 20
    quick: bool = False
    data: str | None = None
    workers: int = 1
    console: Console = field(default_factory=lambda: Console(width=180))
    lines: list[str] = field(default_factory=list)

    def seed_range(self, times: int = 1, most: int | None = None) -> range:
        """Seeds of a cell."""
        count = self.seeds * (1 if self.quick else times)
        return range(FIRST_SEED, FIRST_SEED + (count if most is None else min(count, most)))

    def each(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Results of a function, in order; by several processes if there are workers."""
        if self.workers == 1:
            return [function(*one) for one in arguments]
        with get_context("spawn").Pool(self.workers, threadpool_limits, (1,)) as pool:
            return pool.starmap(function, arguments, chunksize=1)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> None:
        """Print a table and keep it as Markdown."""
        rows = [[str(cell) for cell in row] for row in rows]
        shown = Table(title=title, caption=note or None, title_justify="left", caption_justify="left")
        for k, column in enumerate(columns):
            shown.add_column(column, justify="left" if k == 0 else "right")
        for row in rows:
            shown.add_row(*row)
        self.console.print(shown)
        self.lines += [f"**{title}**", "", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        self.lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]
        if note:
            self.lines += [note, ""]


def number(x: float) -> str:
    """Two significant digits, without a leading zero."""
    if not np.isfinite(x):
        return str(x)
    if x != 0 and not 1e-5 <= abs(x) < 1e4:
        return f"{x:.1e}"
    digits = 2 if x == 0 else max(0, 1 - int(np.floor(np.log10(abs(x)))))
    text = f"{x:.{min(digits, 6)}f}"
    return text.replace("0.", ".", 1) if abs(x) < 1 and "." in text else text


def share_of(x: float) -> str:
    """An R^2, with three decimals."""
    return f"{x:.3f}" if abs(x) < 10.0 else f"{x:.0e}"


def both(values: Sequence[float]) -> str:
    """Median and 90 % quantile."""
    return f"{number(float(np.median(values)))} / {number(float(np.quantile(values, 0.9)))}"


def verdict(value: float, target: float) -> str:
    """Whether a figure is at most its target, and if not by which factor it is beyond."""
    return "met" if value <= target else f"**not met**, {value / target:.2f} x"


def fitted(name: str, X: Array, y: Array, epsilon: float, seed: int, delta: float | None = None) -> Any:
    """Fit an estimator with nothing but epsilon."""
    return ESTIMATORS[name](epsilon, delta, random_state=seed, threads=1).fit(X, y)


# ------------------------------------------------------------------------------------------------------------- clean

# (design, estimator): slope risk at epsilon .1, .5 and 1 that issue 4 asks for.
TARGETS = {("nl", "Huber"): (0.0010, 0.0005, 0.00045), ("nl", "Ridge"): (0.0025, 0.0012, 0.0010)}
EPSILONS = (0.1, 0.5, 1.0)
# The targets are figures of a prototype, which has them with this delta. The default at n = 1e5 is 3e-8, which is 1.45
# times the noise variance.
TARGET_DELTA = 1e-6


def clean(run: Run) -> None:
    """Clean designs with 1e5 rows and 10 columns."""
    n, d = run.rows, 10
    risks: dict[tuple[str, str, float], list[tuple[float, float]]] = {}
    for name in LINEAR:
        for seed in run.seed_range():
            task = designs.linear_task(name, n, d, seed)
            plain: dict[str, Callable[[Array, Array], peers.Predictor]] = {
                "OLS": peers.ols,
                "Huber, public": peers.huber,
            }
            for method, fit in plain.items():
                risks.setdefault((name, method, 0.0), []).append(task.risks(fit(task.X, task.y)(task.fresh)))
            for method in ESTIMATORS:
                for epsilon in EPSILONS:
                    prediction = fitted(method, task.X, task.y, epsilon, seed).predict(task.fresh)
                    risks.setdefault((name, method, epsilon), []).append(task.risks(prediction))
    methods = [("OLS", 0.0), ("Huber, public", 0.0)] + [(m, e) for m in ESTIMATORS for e in EPSILONS]
    heads = ["OLS", "Huber, not private"] + [
        f"Private{m} ε={e:g}".replace("0.", ".") for m in ESTIMATORS for e in EPSILONS
    ]
    for which, kind in enumerate(("slope", "full")):
        rows = [
            [label, *(both([r[which] for r in risks[name, m, e]]) for m, e in methods)]
            for name, (_, _, label) in LINEAR.items()
        ]
        run.table(f"{kind} risk, n = {n}, d = {d}, median / 90 %, {run.seeds} seeds", ["design", *heads], rows)

    def median(name: str, method: str, epsilon: float) -> float:
        return float(np.median([r[0] for r in risks[name, method, epsilon]]))

    def at_target_delta(name: str, method: str, epsilon: float) -> float:
        found = []
        for seed in run.seed_range():
            task = designs.linear_task(name, n, d, seed)
            model = fitted(method, task.X, task.y, epsilon, seed, TARGET_DELTA)
            found.append(task.slope_risk(model.predict(task.fresh)))
        return float(np.median(found))

    asked = [
        (name, method, epsilon, limit, "")
        for (name, method), limits in TARGETS.items()
        for epsilon, limit in zip(EPSILONS, limits, strict=True)
    ]
    asked += [("nl", method, 0.5, median("nl", "OLS", 0.0), "OLS ") for method in ESTIMATORS]
    asked += [("het", "Ridge", 1.0, 2.0 * median("het", "OLS", 0.0), "2 x OLS ")]
    rows = []
    for name, method, epsilon, limit, of in asked:
        strict, usual = median(name, method, epsilon), at_target_delta(name, method, epsilon)
        cells = [f"{number(strict)}: {verdict(strict, limit)}", f"{number(usual)}: {verdict(usual, limit)}"]
        rows.append([f"{LINEAR[name][2]}, {method}, ε = {epsilon:g}", f"≤ {of}{number(limit)}", *cells])
    heads = ["cell", "target", "δ by default", f"δ = {TARGET_DELTA:g}"]
    run.table("median slope risk against its target", heads, rows)


# ------------------------------------------------------------------------------------------------------------ oracle


Risks = list[tuple[float, float]]  # slope and full, for each seed


def oracle_cell(
    name: str, n: int, d: int, epsilon: float, seeds: Sequence[int]
) -> tuple[dict[str, Risks], dict[peers.Setting, Risks]]:
    """Risks of ours, and of DP-GD with every setting."""
    return against_descents(lambda seed: designs.linear_task(name, n, d, seed), epsilon, seeds)


def against_descents(
    draw: Callable[[int], designs.Task], epsilon: float, seeds: Sequence[int]
) -> tuple[dict[str, Risks], dict[peers.Setting, Risks]]:
    """Risks of ours, and of DP-GD with every setting, on the rows of each seed."""
    ours: dict[str, Risks] = {method: [] for method in ESTIMATORS}
    theirs: dict[peers.Setting, Risks] = {}
    for seed in seeds:
        task = draw(seed)
        for method in ESTIMATORS:
            ours[method].append(task.risks(fitted(method, task.X, task.y, epsilon, seed).predict(task.fresh)))
        for setting, predict in peers.descents(task.X, task.y, epsilon, seed, peers.WHITENED, whiten=True):
            theirs.setdefault(setting, []).append(task.risks(predict(task.fresh)))
    return ours, theirs


def oracle(run: Run) -> None:
    """Ratio to whitened DP-GD whose clip, steps and step size are the best of a grid, with 1e4 rows."""
    n, seeds = 10_000 if not run.quick else 2000, run.seed_range(5)
    names = [name for name in LINEAR if name not in ("shift", "scale")]
    cells = [
        (name, n, d, epsilon, seeds)
        for d in ((5,) if run.quick else (5, 10))
        for epsilon in (0.5, 1.0)
        for name in names
    ]
    rows, ratios = [], {kind: [] for kind in ("slope", "full")}
    for (name, _, d, epsilon, _), (ours, theirs) in zip(cells, run.each(oracle_cell, cells), strict=True):
        row = [f"{LINEAR[name][2]}", str(d), f"{epsilon:g}"]
        for which, kind in enumerate(ratios):
            best = min(theirs.values(), key=lambda r: float(np.median([x[which] for x in r])))
            base = float(np.median([x[which] for x in best]))
            row.append(both([x[which] for x in best]))
            for method in ESTIMATORS:
                found = float(np.median([x[which] for x in ours[method]]))
                ratios[kind].append((found / base, name, method))
                row.append(f"{number(found)} ({found / base:.2f} x)")
        rows.append(row)
    heads = [f"{kind}: {m}" for kind in ratios for m in ("DP-GD", "Ridge", "Huber")]
    note = "Target: at most 1.5 x. "
    for kind, found in ratios.items():
        beyond = [r for r in found if r[0] > 1.5]
        worst = max(found)
        note += f"{kind}: met in {len(found) - len(beyond)} of {len(found)} cells, worst {worst[0]:.2f} x "
        note += f"({LINEAR[worst[1]][2]}, {worst[2]}). "
    note += "Shifted and scaled columns are left out: with an oracle's whitening DP-GD does not see them."
    title = (
        f"n = {n}, {len(seeds)} seeds: whitened DP-GD with the best of {len(peers.WHITENED)} settings (median / 90 %), "
        "ours and its ratio"
    )
    run.table(title, ["design", "d", "ε", *heads], rows, note)


# ------------------------------------------------------------------------------------------------------------ random


def random_cell(design: random_designs.RandomDesign, seeds: Sequence[int]) -> dict[str, Array]:
    """Median slope and full risk of each estimator over those of the oracle's DP-GD, or of predicting the mean."""
    ours, theirs = against_descents(design.task, design.epsilon, seeds)
    best = np.min([np.median(risks, axis=0) for risks in theirs.values()], axis=0)
    return {method: np.median(risks, axis=0) / np.minimum(best, 0.5) for method, risks in ours.items()}


def random(run: Run) -> None:
    """Designs that nobody chose: 1e4 and 3e4 rows, features, noise and signal drawn; ratio to the oracle's DP-GD."""
    count, seeds = 4 if run.quick else 160, run.seed_range()
    sizes = ((2000,), (2,), (1.0,)) if run.quick else ((10_000, 30_000), (2, 5, 10), (0.5, 1.0))
    drawn = [random_designs.RandomDesign.drawn(FIRST_SEED + k, *sizes) for k in range(count)]
    found = run.each(random_cell, [(design, seeds) for design in drawn])
    rows = []
    groups = [("all", lambda design: True)]
    groups += [(name, lambda design, name=name: design.features == name) for name in random_designs.FEATURES]
    groups += [(f"noise of sd {sd:g}", lambda design, sd=sd: design.sd == sd) for sd in (0.05, 0.3, 1.0, 3.0)]
    for label, is_one in groups:
        row = [one for design, one in zip(drawn, found, strict=True) if is_one(design)]
        if not row:
            continue
        cells = [label, str(len(row))]
        for method in ESTIMATORS:
            for which in (0, 1):
                ratios = np.array([one[method][which] for one in row])
                cells.append(f"{np.median(ratios):.2f} x, {np.mean(ratios <= 1.5):.0%}")
        rows.append(cells)
    heads = ["features", "designs", *(f"{method}: {kind}" for method in ESTIMATORS for kind in ("slope", "full"))]
    title = (
        f"{count} random designs, {len(seeds)} seeds: median ratio to DP-GD's best of {len(peers.WHITENED)} settings"
    )
    note = "And in how many designs it is at most 1.5 x. The best of so many settings is the luckiest one, too."
    run.table(title, heads, rows, note)


# ------------------------------------------------------------------------------------------------------------- small


def small_cell(name: str, n: int, d: int, epsilon: float, seeds: range) -> tuple[dict[str, Array], float]:
    """Slope and full risk of every estimator and seed, and the 90 % quantile of the sample mean's full risk."""
    found: dict[str, list[tuple[float, float]]] = {method: [] for method in ESTIMATORS}
    constant = []
    for seed in seeds:
        task = designs.linear_task(name, n, d, seed)
        # Fresh rows with heavy tails have a variance of their own: in its units the mean costs .5.
        unit = float(np.var(task.truth))
        constant.append(task.full_risk(np.full(len(task.truth), task.y.mean())) / unit)
        for method in ESTIMATORS:
            slope, full = task.risks(fitted(method, task.X, task.y, epsilon, seed).predict(task.fresh))
            found[method].append((slope / unit, full / unit))
    return {method: np.array(risks) for method, risks in found.items()}, float(np.quantile(constant, 0.9))


def small(run: Run) -> None:
    """Budgets too small to learn much from: never much worse than predicting the mean."""
    names = [name for name in LINEAR if name not in ("shift", "scale", "out")]
    sizes = [(5, n, epsilon) for n in (200, 1000, 3000) for epsilon in (0.05, 0.1, 0.5)]
    if not run.quick:
        sizes += [(d, n, epsilon) for d in (2, 10) for n in (200, 1000, 3000) for epsilon in (0.05, 0.1, 0.5)]
        sizes += [
            (d, n, epsilon) for d in (2, 5, 10) for n, epsilon in ((600, 0.5), (1800, 0.5), (300, 1.0), (1000, 1.0))
        ]
    cells = [(name, n, d, epsilon, run.seed_range(2)) for d, n, epsilon in sorted(sizes) for name in names]
    results = dict(zip(cells, run.each(small_cell, cells), strict=True))
    rows, missed = [], {"slope": 0, "full": 0}
    for d, n, epsilon in sorted(sizes):
        row, mean_cost = [str(d), str(n), f"{epsilon:g}"], 0.0
        worst = {(method, which): (0.0, "") for method in ESTIMATORS for which in (0, 1)}
        middle: dict[str, list[float]] = {method: [] for method in ESTIMATORS}
        for name in names:
            found, cost = results[name, n, d, epsilon, run.seed_range(2)]
            mean_cost = max(mean_cost, cost)
            for (method, which), old in worst.items():
                high = float(np.quantile(found[method][:, which], 0.9))
                worst[method, which] = max(old, (high, name))
                missed["slope" if which == 0 else "full"] += high > 0.55
            for method in ESTIMATORS:
                middle[method].append(float(np.median(found[method][:, 1])))
        for method in ESTIMATORS:
            row += [f"{number(v)} ({name})" for v, name in (worst[method, 0], worst[method, 1])]
            row.append(f"{number(min(middle[method]))} to {number(max(middle[method]))}")
        rows.append([*row, number(mean_cost)])
    total = len(cells) * len(ESTIMATORS)
    note = (
        f"Target: at most .55. Cells beyond it: slope {missed['slope']}, full {missed['full']}, of {total} each. "
        f"Designs: {', '.join(names)}. Predicting 0 costs 1.0 in full risk. The last column is the full risk of the "
        "sample mean, not private, in the worst design: log-normal noise has 35 times the variance of the signal."
    )
    heads = [f"{method}, {kind}" for method in ESTIMATORS for kind in ("slope", "full", "full, medians")]
    title = "linear: 90 % quantile of the risk, worst design, and range of the medians over the designs"
    run.table(title, ["d", "n", "ε", *heads, "sample mean, full"], rows, note)

    d = 5
    rows, beyond = [], []
    for n in (200, 1000, 3000):
        for epsilon in (0.05, 0.1, 0.5):
            row = [str(n), f"{epsilon:g}"]
            for kind in ("normal", "lognormal", "dummies"):
                gaps = []
                for seed in run.seed_range(2):
                    task = designs.logistic_task(kind, n, d, seed)
                    model = tg.PrivateLogisticRegression(epsilon, classes=[0, 1], random_state=seed, threads=1)
                    probability = model.fit(task.X, task.y).predict_proba(task.fresh)
                    gaps.append(task.excess(probability) - task.excess(task.constant()))
                beyond.append(float(np.quantile(gaps, 0.9)))
                row.append(both(gaps))
            rows.append(row)
    missed_count = sum(gap > 0.05 for gap in beyond)
    note = "Target: at most .05 at the 90 % quantile. "
    note += f"Cells beyond it: {missed_count} of {len(beyond)}; worst {max(beyond):.3f}."
    title = f"logistic, d = {d}: log-loss beyond the best constant, median / 90 %"
    run.table(title, ["n", "ε", "normal x", "log-normal x", "dummies"], rows, note)


# ------------------------------------------------------------------------------------------------------------ tables

NEAR = ("randhie meddol", "adult capital-gain", "twin: visits")  # as near as one gets, says the issue


def _split(run: Run, name: str, seed: int) -> real_tables.Split:
    if name in real_tables.TWINS:
        return real_tables.twin(name, seed, 2000 if run.quick else 10_000)
    assert run.data is not None
    return real_tables.split(*real_tables.table(run.data, name), seed)


def _best(scores: dict[Any, list[float]], largest: bool) -> list[float]:
    sign = 1.0 if largest else -1.0
    return max(scores.values(), key=lambda s: sign * float(np.median(s)))


def _tukey(splits: Sequence[real_tables.Split], seeds: range, epsilon: float) -> str:
    """Median R^2 of TukeyEM with the best number of models, or that its check fails."""
    scores: dict[int, list[float]] = {}
    for rows_each in (1, 2, 4):
        for part, seed in zip(splits, seeds, strict=True):
            models = len(part.y) // (rows_each * (part.X.shape[1] + 1))
            predict = peers.tukey_em(part.X, part.y, epsilon, np.random.default_rng([seed, 7]), models)
            scores.setdefault(rows_each, []).append(-np.inf if predict is None else part.r2(predict(part.X_test)))
    median = float(np.median(_best(scores, largest=True)))
    return share_of(median) if np.isfinite(median) else "check fails"


def tables(run: Run) -> None:
    """Real tables and their twins: held-out R^2 and log-loss at epsilon = 1 against OLS and peers."""
    epsilon, rows, lowest, behind = 1.0, [], [], []
    names = [*real_tables.TWINS, *(real_tables.REGRESSIONS if run.data else ())]
    for name in names:
        scores: dict[str, list[float]] = {}
        margin: list[float] = []
        for seed in run.seed_range():
            part = _split(run, name, seed)
            scores.setdefault("OLS", []).append(part.r2(peers.ols(part.X, part.y)(part.X_test)))
            for method in ESTIMATORS:
                prediction = fitted(method, part.X, part.y, epsilon, seed).predict(part.X_test)
                scores.setdefault(method, []).append(part.r2(prediction))
            margin.append(scores["Ridge"][-1] - part.mean_r2())
        seeds = run.seed_range()
        splits = [_split(run, name, seed) for seed in seeds]
        ssp, grid = [], {}
        for part, seed in zip(splits, seeds, strict=True):
            predict = peers.ada_ssp(part.X, part.y, epsilon, np.random.default_rng([seed, 8]))
            ssp.append(part.r2(predict(part.X_test)))
            settings = peers.STANDARDISED[:: 9 if run.quick else 1]
            for setting, predict in peers.descents(part.X, part.y, epsilon, seed, settings, robust=False):
                grid.setdefault(setting, []).append(part.r2(predict(part.X_test)))
        descent = float(np.median(_best(grid, largest=True)))
        library = peers.diffprivlib([(s.X, s.y, s.X_test) for s in splits], epsilon, "linear")
        theirs = None if library is None else [s.r2(p) for s, p in zip(splits, library, strict=True)]
        many = {method: list(scores[method]) for method in ("OLS", "Ridge")}
        for seed in range(FIRST_SEED + run.seeds, FIRST_SEED + run.worst):
            part = _split(run, name, seed)
            many["OLS"].append(part.r2(peers.ols(part.X, part.y)(part.X_test)))
            many["Ridge"].append(part.r2(fitted("Ridge", part.X, part.y, epsilon, seed).predict(part.X_test)))
            margin.append(many["Ridge"][-1] - part.mean_r2())
        lowest.append((min(margin), name, sum(m < -0.01 for m in margin), len(margin)))
        base, ours = float(np.median(scores["OLS"])), float(np.median(scores["Ridge"]))
        if ours < max(descent, float(np.median(ssp)), *([] if theirs is None else [float(np.median(theirs))])):
            behind.append(name)
        part_of = float(np.median(many["Ridge"])) / float(np.median(many["OLS"]))
        judged = "as near as possible" if name in NEAR else "met" if part_of >= 0.9 else f"**not met**, {part_of:.2f}"
        rows.append(
            [
                name,
                f"{splits[0].X.shape[0]} x {splits[0].X.shape[1]}",
                share_of(base),
                f"{share_of(ours)} / {share_of(float(np.quantile(scores['Ridge'], 0.1)))}",
                f"{ours / base:.2f}",
                f"{part_of:.2f}",
                judged,
                share_of(float(np.median(scores["Huber"]))),
                share_of(descent),
                share_of(float(np.median(ssp))),
                _tukey(splits, seeds, epsilon),
                "not installed" if theirs is None else share_of(float(np.median(theirs))),
                f"{min(margin):+.4f} of {len(margin)}",
            ]
        )
    heads = ["table", "training", "OLS", "PrivateRidge, median / 10 %", "over OLS"]
    heads += [f"over OLS, {max(run.seeds, run.worst)} seeds", "target .9", "PrivateHuber"]
    heads += ["DP-GD, oracle", "AdaSSP 99 %", "TukeyEM", "diffprivlib", "Ridge minus mean, worst"]
    failures = [f"{name}: {count} of {total}" for _, name, count, total in lowest if count]
    note = "Never more than .01 below predicting the mean: " + (
        f"**not met** ({'; '.join(failures)}; worst {min(lowest)[0]:+.3f})."
        if failures
        else f"met, worst {min(lowest)[0]:+.4f}."
    )
    note += f" PrivateRidge is behind a peer on: {', '.join(behind) or 'no table'}."
    note += " Peers: the same splits, columns standardised by an oracle; DP-GD with its best setting on held-out rows."
    run.table(f"held-out R^2 at ε = 1, {run.seeds} seeds", heads, rows, note)
    if run.data:
        _classification_tables(run)


def _classification_tables(run: Run) -> None:
    rows, limits = [], {"adult income, 6 numeric": 0.002, "adult income, one-hot": 0.004}
    for name in real_tables.CLASSIFICATIONS:
        ours, plain, constant = [], [], []
        seeds = run.seed_range(most=10)
        splits = [_split(run, name, seed) for seed in seeds]
        grid: dict[peers.Setting, list[float]] = {}
        for part, seed in zip(splits, seeds, strict=True):
            model = tg.PrivateLogisticRegression(1.0, classes=[0.0, 1.0], random_state=seed, threads=1)
            ours.append(part.log_loss(model.fit(part.X, part.y).predict_proba(part.X_test)[:, 1]))
            plain.append(part.log_loss(peers.logistic(part.X, part.y)(part.X_test)[:, 1]))
            constant.append(part.log_loss(np.full(len(part.y_test), part.y.mean())))
            settings = peers.LOGISTIC[:: 9 if run.quick else 1]
            for setting, predict in peers.logistic_descents(part.X, part.y, 1.0, seed, settings):
                grid.setdefault(setting, []).append(part.log_loss(predict(part.X_test)))
        gap = np.array(ours) - np.array(plain)
        best = _best(grid, largest=False)
        descent = float(np.median(np.array(best) - plain))
        library = peers.diffprivlib([(s.X, s.y, s.X_test) for s in splits], 1.0, "logistic")
        theirs = "not installed"
        if library is not None:
            theirs = f"{np.median([s.log_loss(p) for s, p in zip(splits, library, strict=True)] - np.array(plain)):.4f}"
        found = float(np.median(gap))
        row = [name, f"{splits[0].X.shape[0]} x {splits[0].X.shape[1]}", f"{np.median(constant):.4f}"]
        row += [f"{np.median(plain):.4f}", f"{np.median(ours):.4f}", f"{found:.4f} / {np.quantile(gap, 0.9):.4f}"]
        row += [verdict(found, limits[name]) if name in limits else "", f"{descent:.4f}", theirs]
        rows.append(row)
    heads = ["table", "training", "constant", "not private", "private", "gap, median / 90 %", "target"]
    note = "Targets: gap at most .002 with the numeric columns, .004 with one-hot ones. Gaps of peers are medians."
    heads += ["gap of DP-GD, oracle", "gap of diffprivlib"]
    run.table(f"held-out log-loss at ε = 1, {min(run.seeds, 10)} seeds", heads, rows, note)


# ---------------------------------------------------------------------------------------------------------- logistic


def logistic(run: Run) -> None:
    """Two classes, five classes and counts with 1e4 rows and 10 columns."""
    n, d, rows = (10_000 if not run.quick else 2000), 10, []
    cells: list[tuple[str, Callable[[int], designs.Labels], list[int]]] = [
        (f"two classes, {kind} x", lambda seed, kind=kind: designs.logistic_task(kind, n, d, seed), [0, 1])  # type: ignore[misc]
        for kind in ("normal", "lognormal", "dummies")
    ]
    cells.append(("five classes, normal x", lambda seed: designs.multinomial_task(5, n, d, seed), list(range(5))))
    for label, make, classes in cells:
        for epsilon in (0.5, 1.0):
            ours, plain, lost = [], [], []
            for seed in run.seed_range():
                task = make(seed)
                model = tg.PrivateLogisticRegression(epsilon, classes=classes, random_state=seed, threads=1)
                probability = model.fit(task.X, task.y).predict_proba(task.fresh)
                public = peers.logistic(task.X, task.y)(task.fresh)
                ours.append(task.excess(probability))
                plain.append(task.excess(public))
                lost.append(task.accuracy(public) - task.accuracy(probability))
            ratio, loss = float(np.median(ours) / np.median(plain)), float(np.median(lost))
            judged = ["", ""]
            if epsilon == 1.0:
                judged = [verdict(ratio, 2.0), "met" if loss <= 0.002 else f"**not met**, {loss:.4f}"]
            rows.append(
                [label, f"{epsilon:g}", both(plain), both(ours), f"{ratio:.2f} x", judged[0], f"{loss:.4f}", judged[1]]
            )
    heads = ["task", "ε", "not private", "private", "ratio", "≤ 2 x", "accuracy lost", "≤ .002"]
    run.table(f"excess log-loss, n = {n}, d = {d}, median / 90 %, {run.seeds} seeds", heads, rows)


# -------------------------------------------------------------------------------------------------------------- rare

# name: (classes, level or spread of levels, spread or size of the log-odds)
RARE = {
    "one label in 40": (2, -4.0, 1.0),
    "one label in 250": (2, -6.0, 1.0),
    "three classes, levels of sd 2": (3, 2.0, 2.25),
    "ten classes, levels of sd 2": (10, 2.0, 2.25),
}
RARE_FEATURES = {"normal": "normal x", "lognormal": "log-normal", "dummies": "dummies"}


def rare(run: Run) -> None:
    """Rare labels and rare classes: the excess log-loss over that of the best constant, with more and more budget."""
    cells = [(2000, 1.0)] if run.quick else [(10_000, 1.0), (100_000, 1.0), (100_000, 10.0)]
    names = list(RARE)[:1] if run.quick else list(RARE)
    work = [
        (name, kind, *cell, seed)
        for name in names
        for cell in cells
        for kind in RARE_FEATURES
        for seed in run.seed_range()
    ]
    found: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for key, pair in zip(work, run.each(_rare, work), strict=True):
        found.setdefault(key[:-1], []).append(pair)
    rows = []
    for name in names:
        for n, epsilon in cells:
            each = [np.array(found[name, kind, n, epsilon]) for kind in RARE_FEATURES]
            plain = [float(np.nanmedian(pairs[:, 1])) for pairs in each]
            ours = [both(pairs[:, 0]) for pairs in each]
            rows.append([name, str(n), f"{epsilon:g}", *ours, f"{number(min(plain))} to {number(max(plain))}"])
    heads = ["labels", "n", "ε", *RARE_FEATURES.values(), "not private, medians"]
    title = f"excess log-loss over that of the best constant, d = 10, median / 90 %, {run.seeds} seeds"
    run.table(title, heads, rows)


def _rare(name: str, kind: str, n: int, epsilon: float, seed: int) -> tuple[float, float]:
    """Excess log-loss of ours and of a fit that is not private, over that of the best constant."""
    classes, level, size = RARE[name]
    if classes == 2:
        task = designs.logistic_task(kind, n, 10, seed, level, size)
    else:
        task = designs.multinomial_task(classes, n, 10, seed, kind, level, size)
    model = tg.PrivateLogisticRegression(epsilon, classes=list(range(classes)), random_state=seed, threads=1)
    best = task.excess(task.constant())
    if len(np.unique(task.y)) < classes:  # a fit that is not private knows of no other classes
        return task.excess(model.fit(task.X, task.y).predict_proba(task.fresh)) / best, np.nan
    public = peers.logistic(task.X, task.y)(task.fresh)
    return task.excess(model.fit(task.X, task.y).predict_proba(task.fresh)) / best, task.excess(public) / best


# ------------------------------------------------------------------------------------------------------------ counts

COUNT_CELLS = (
    *((1000, 5, 1.0), (3000, 5, 0.5), (3000, 5, 1.0), (10_000, 10, 0.5), (10_000, 10, 1.0), (50_000, 10, 1.0)),
    (50_000, 10, 10.0),
)


def counts(run: Run) -> None:
    """Counts: the excess deviance over that of the best constant, and real tables."""
    cells = [(1000, 5, 1.0)] if run.quick else list(COUNT_CELLS)
    work = [
        (count, kind, *cell, seed)
        for count in designs.COUNTS
        for cell in cells
        for kind in designs.COUNT_FEATURES
        for seed in run.seed_range()
    ]
    found: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for key, pair in zip(work, run.each(_counts, work), strict=True):
        found.setdefault(key[:-1], []).append(pair)
    rows = []
    for count, (_, _, label) in designs.COUNTS.items():
        for n, d, epsilon in cells:
            each = [np.array(found[count, kind, n, d, epsilon]) for kind in designs.COUNT_FEATURES]
            ours, plain = ([float(np.median(pairs[:, k])) for pairs in each] for k in (0, 1))
            worst = max(float(np.quantile(pairs[:, 0], 0.9)) for pairs in each)
            line = [label, str(n), str(d), f"{epsilon:g}", *(number(value) for value in ours)]
            rows.append([*line, number(worst), f"{number(min(plain))} to {number(max(plain))}"])
    kinds = ["normal x", "t3", "log-normal", "AR(.9)", "dummies"]
    heads = ["counts", "n", "d", "ε", *kinds, "worst 90 %", "not private, medians"]
    run.table(f"excess deviance over that of the best constant, medians, {run.seeds} seeds", heads, rows)
    if run.data is None:
        return
    rows = []
    for name in real_tables.COUNTS:
        found_here = {}
        for epsilon in (0.25, 0.5, 1.0):
            seeds = [(run.data, name, epsilon, seed) for seed in run.seed_range()]
            found_here[epsilon] = np.array(run.each(_real_counts, seeds))
        plain_median = share_of(float(np.median(found_here[1.0][:, 1])))
        cells_of = [
            f"{share_of(float(np.median(v[:, 0])))} ({share_of(float(np.quantile(v[:, 0], 0.1)))})"
            for v in found_here.values()
        ]
        rows.append([name, plain_median, *cells_of])
    heads = ["table", "not private", "ε = .25", "ε = .5", "ε = 1"]
    run.table(f"deviance explained, held-out rows, median (lower decile) of {run.seeds} splits", heads, rows)


def _counts(count: str, kind: str, n: int, d: int, epsilon: float, seed: int) -> tuple[float, float]:
    """Excess deviance of ours and of a fit that is not private, over that of the best constant."""
    task = designs.counts_task(count, kind, n, d, seed)
    model = tg.PrivatePoissonRegressor(epsilon, random_state=seed, threads=1).fit(task.X, task.y)
    best = _deviance(task.truth, np.full(len(task.truth), task.truth.mean()))
    return _deviance(task.truth, model.predict(task.fresh)) / best, _deviance(
        task.truth, _poisson(task.X, task.y)(task.fresh)
    ) / best


def _real_counts(folder: str, name: str, epsilon: float, seed: int) -> tuple[float, float]:
    """Deviance explained by ours and by a fit that is not private."""
    rows = real_tables.split(*real_tables.table(folder, name), seed)
    model = tg.PrivatePoissonRegressor(epsilon, random_state=seed, threads=1).fit(rows.X, rows.y)
    return rows.explained(model.predict(rows.X_test)), rows.explained(_poisson(rows.X, rows.y)(rows.X_test))


def _deviance(truth: Array, prediction: Array) -> float:
    prediction = np.maximum(prediction, 1e-300)
    return float(np.mean(prediction - truth - truth * np.log(prediction / truth)))


def _poisson(X: Array, y: Array) -> peers.Predictor:
    """A fit that is not private, of standardised columns and a target of mean one."""
    from sklearn.linear_model import PoissonRegressor

    centre, scale, mean = X.mean(axis=0), np.where(X.std(axis=0) > 0.0, X.std(axis=0), 1.0), y.mean()
    model = PoissonRegressor(alpha=1e-6, max_iter=300).fit((X - centre) / scale, y / mean)
    return lambda rows: model.predict((rows - centre) / scale) * mean


# -------------------------------------------------------------------------------------------------------------- mean


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


# ------------------------------------------------------------------------------------------------------------ safety


def safety(run: Run) -> None:
    """Random tables of every kind and scale: no prediction explodes."""
    rows = []
    for method in ESTIMATORS:
        broken, far, worse, ratios = 0, 0, 0, []
        for seed in range(FIRST_SEED, FIRST_SEED + run.tables):
            table = designs.random_table(seed)
            prediction = fitted(method, table.X, table.y, table.epsilon, seed).predict(table.X)
            if not np.all(np.isfinite(prediction)):
                broken += 1
                continue
            # Predicting 0 is what an estimator that saw nothing does; predicting the mean needs a look.
            rmse, mean = np.sqrt(np.mean((table.y - prediction) ** 2)), np.std(table.y)
            zero = np.sqrt(np.mean(table.y**2))
            ratios.append((rmse / mean, rmse / zero))
            far += rmse > 10.0 * mean
            worse += rmse > 1.05 * mean
        high, high_zero = np.max(ratios, axis=0)
        beyond_zero = sum(r[1] > 1.05 for r in ratios)
        rows.append(
            [
                method,
                str(run.tables),
                str(broken),
                str(far),
                str(worse),
                number(high),
                str(beyond_zero),
                number(high_zero),
            ]
        )
    heads = ["estimator", "tables", "not finite", "RMSE > 10 x constant", "> 1.05 x constant", "worst"]
    heads += ["> 1.05 x zero", "worst over zero"]
    note = (
        "Constant: the sample mean, not private. Budgets go down to ε = .05 with 200 rows, where a target far from "
        "zero may not be seen at all; then the prediction is 0, and its RMSE is that of zero."
    )
    run.table("random tables, scales 1e±280, ε from .05 to 10", heads, rows, note)


# ------------------------------------------------------------------------------------------------------ equivariance


def equivariance(run: Run) -> None:
    """The same rows shifted, scaled or with outliers: ratio of medians."""
    pairs = (("nl", "shift", 1.25), ("nl", "scale", 1.25), ("nn", "out", 1.2))
    rows = []
    for n, epsilon, times in ((run.rows // 10, 1.0, 10), (run.rows, 0.1, 5)):
        strength = n * gdp_mu(epsilon, default_delta(n))
        for method in ESTIMATORS:
            risks: dict[str, list[tuple[float, float]]] = {}
            for name in ("nl", "shift", "scale", "nn", "out"):
                for seed in run.seed_range(times):
                    task = designs.linear_task(name, n, 10, seed)
                    prediction = fitted(method, task.X, task.y, epsilon, seed).predict(task.fresh)
                    risks.setdefault(name, []).append(task.risks(prediction))
            for base, name, limit in pairs:
                row = [f"{method}: {LINEAR[name][2]}", str(n), f"{epsilon:g}", f"{strength:.0f}"]
                for which in (0, 1):
                    one, two = (float(np.median([r[which] for r in risks[k]])) for k in (base, name))
                    row += [f"{number(one)} → {number(two)}", f"{two / one:.2f} x", verdict(two / one, limit)]
                rows.append(row)
    heads = ["change", "n", "ε", "n μ", "slope risk", "ratio", "verdict", "full risk", "ratio", "verdict"]
    note = "Targets: 1.25 x for shifts and scales, 1.2 x for outliers. The same rows and seeds, but other noise: "
    note += "with 200 and 100 seeds ratios of slope risks are uncertain by .1 or less, of full risks by .2."
    run.table("equivariance: median risk before and after", heads, rows, note)


# --------------------------------------------------------------------------------------------------------- collinear


def collinear_cell(correlation: float, n: int, epsilon: float, seeds: range) -> tuple[list[float], list[float]]:
    """Slope risks of PrivateRidge, and of OLS."""
    private, ols = [], []
    for seed in seeds:
        task = designs.collinear_task(correlation, n, 10, seed)
        private.append(task.slope_risk(fitted("Ridge", task.X, task.y, epsilon, seed).predict(task.fresh)))
        ols.append(task.slope_risk(peers.ols(task.X, task.y)(task.fresh)))
    return private, ols


def collinear(run: Run) -> None:
    """Two columns that nearly agree, and a target that depends on their difference."""
    correlations, epsilons = (0.9, 0.97, 0.99, 0.997, 0.9995), (0.5, 1.0, 3.0)
    sizes = (run.rows // 10, run.rows)
    cells = [(c, n, e, run.seed_range()) for n in sizes for c in correlations for e in epsilons]
    found = iter(run.each(collinear_cell, cells))
    rows = []
    for n in sizes:
        for correlation in correlations:
            risks = [next(found) for _ in epsilons]
            rows.append([str(n), f"{correlation:g}", number(np.median(risks[0][1])), *(both(r) for r, _ in risks)])
    heads = ["n", "correlation", "OLS", *(f"ε = {e:g}" for e in epsilons)]
    note = "d = 10. The difference of the two columns makes .25 of the .5 that predicting the mean costs."
    run.table(f"collinear columns: slope risk of PrivateRidge, median / 90 %, {run.seeds} seeds", heads, rows, note)


# -------------------------------------------------------------------------------------------------------------- time


def speed(run: Run) -> None:
    """Time of a default fit, compiled, with the noise of the operating system."""
    task = designs.linear_task("nl", run.rows, 10, FIRST_SEED)
    labels = (task.y > np.median(task.y)).astype(int)
    fits: dict[str, Callable[[], Any]] = {
        "PrivateRidge": lambda: tg.PrivateRidge().fit(task.X, task.y),
        "PrivateHuberRegressor": lambda: tg.PrivateHuberRegressor().fit(task.X, task.y),
        "PrivateLogisticRegression": lambda: tg.PrivateLogisticRegression(classes=[0, 1]).fit(task.X, labels),
        "PrivatePoissonRegressor": lambda: tg.PrivatePoissonRegressor().fit(task.X, np.abs(task.y)),
        "OLS, not private": lambda: peers.ols(task.X, task.y),
    }
    rows = []
    for name, fit in fits.items():
        fit()
        times = []
        for _ in range(1 if run.quick else 9):
            start = time.perf_counter()
            fit()
            times.append(time.perf_counter() - start)
        target = verdict(float(np.median(times)), 0.3) if name.startswith("Private") else ""
        rows.append([name, f"{np.median(times):.2f}", f"{min(times):.2f}", target])
    run.table(f"seconds a fit, n = {run.rows}, d = 10", ["estimator", "median", "least", "≤ .3"], rows)


SECTIONS: dict[str, Callable[[Run], None]] = {
    "clean": clean,
    "oracle": oracle,
    "random": random,
    "small": small,
    "tables": tables,
    "logistic": logistic,
    "rare": rare,
    "counts": counts,
    "mean": mean,
    "safety": safety,
    "equivariance": equivariance,
    "collinear": collinear,
    "time": speed,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"sections, separated by commas: {', '.join(SECTIONS)}")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tables", type=int, default=1000, help="random tables of the safety section")
    parser.add_argument("--worst", type=int, default=20, help="seeds for the worst case of the tables section")
    parser.add_argument("--workers", type=int, default=1, help="processes of sections with many cells")
    parser.add_argument("--quick", action="store_true", help="at most two seeds and few rows: does it run?")
    parser.add_argument("--data", default=os.environ.get("TAILGUARD_DATA"), help="folder with the real tables")
    parser.add_argument("--output", type=Path, default=Path("build/accuracy.md"), help="Markdown file")
    given = parser.parse_args(arguments)
    chosen = given.only.split(",") if given.only else list(SECTIONS)
    for name in chosen:
        if name not in SECTIONS:
            parser.error(f"--only {name}: choose from {', '.join(SECTIONS)}")
    run = Run(given.seeds, tables=given.tables, worst=given.worst, data=given.data, workers=given.workers)
    if given.quick:
        run.seeds, run.rows, run.tables, run.worst, run.quick = min(run.seeds, 2), 4000, 10, 2, True
    warnings.filterwarnings("ignore", module="sklearn")
    given.output.parent.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        start = time.perf_counter()
        run.lines += [f"### {name}", "", str(SECTIONS[name].__doc__), ""]
        with np.errstate(all="ignore"), threadpool_limits(None if name == "time" else 1):
            SECTIONS[name](run)
        run.console.print(f"[dim]{name}: {time.perf_counter() - start:.0f} s[/dim]\n")
        given.output.write_text("\n".join(run.lines), encoding="utf-8")


if __name__ == "__main__":
    main()
