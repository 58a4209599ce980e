"""Real tables and their synthetic twins, against peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import peers
import real_tables
from numpy.typing import NDArray

import tailguard as tg
from sections.run import ESTIMATORS, FIRST_SEED, Run, fitted, share_of, verdict

Array = NDArray[np.float64]

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
