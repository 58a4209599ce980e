"""Lines: designs, an oracle's descents, small budgets, safety, equivariance and collinear columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import designs
import numpy as np
import peers
import random_designs
from designs import LINEAR
from numpy.typing import NDArray

import tailguard as tg
from sections.run import ESTIMATORS, FIRST_SEED, Run, both, fitted, number, verdict
from tailguard.privacy import default_delta, gdp_mu

Array = NDArray[np.float64]

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
