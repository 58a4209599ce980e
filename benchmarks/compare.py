r"""Accuracy and speed against peers: ``make bench-peers``.

Every peer gets the same rows with the same seeds, and runs in its own environment (`peers`), told more than it may
know: centres, scales, bounds and clips come from the data, and the number of models of TukeyEM and the settings of
Opacus are the best of a grid by the score that the table shows. tailguard is told epsilon.

* ``--accuracy``: risk against epsilon, median and 90 % quantile over seeds from 6000.
* ``--time``: seconds of one fit against the number of rows, epsilon = 1; medians. Needs a quiet machine.

What was measured is kept in ``docs/peers.json``, so ``--peers tailguard`` measures one anew and leaves the others; the
tables are printed and written into ``docs/peers.md`` between two marks, the pictures beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import designs
import figures
import machine
import numpy as np
import page
import peers
from numpy.typing import NDArray
from sections.run import both, number
from threadpoolctl import threadpool_limits

import tailguard as tg

Array = NDArray[np.float64]
DOCS = Path(__file__).resolve().parent.parent / "docs"
FIRST_SEED = 6000
EPSILONS = (0.1, 0.3, 1.0, 3.0, 8.0)
ROWS, COLUMNS = 30_000, 10
TUNING_SEEDS = 5  # of Opacus, whose fits take the longest
TIMED_ROWS = (1_000, 10_000, 100_000, 1_000_000)
# Name: (kind of task, design, what the tables call it)
TASKS = {
    "nn": ("linear", "nn", "linear, normal x and noise"),
    "nl": ("linear", "nl", "linear, normal x, log-normal noise"),
    "ll": ("linear", "ll", "linear, log-normal x and noise"),
    "logistic": ("logistic", "lognormal", "logistic, log-normal x"),
}
# The scores of a kind of task, less is better; the first is drawn.
SCORES = {"linear": ("full risk", "slope risk"), "logistic": ("excess log-loss",)}
Task = designs.Task | designs.Labels
Cell = dict[str, list[float | None]]  # by score: one value a seed, sorted; None: no answer


def make(name: str, n: int, seed: int) -> Task:
    """Draw the rows of a task."""
    kind, design, _ = TASKS[name]
    if kind == "linear":
        return designs.linear_task(design, n, COLUMNS, seed)
    return designs.logistic_task(design, n, COLUMNS, seed)


def scores(task: Task, prediction: Array) -> dict[str, float]:
    """What a prediction costs: of the mean of a linear task, of the probability of a one."""
    if isinstance(task, designs.Task):
        slope, full = task.risks(prediction)
        return {"full risk": full, "slope risk": slope}
    return {"excess log-loss": task.excess(np.column_stack([1.0 - prediction, prediction]))}


# ------------------------------------------------------------------------------------------------------------- peers

# A peer gives, for every setting of its grid, the predictions for the fresh rows of every task; None: no answer.
Answers = Iterator[tuple[Any, list[Array | None]]]


def _tailguard(tasks: Sequence[Task], seeds: Sequence[int], epsilon: float, kind: str) -> Answers:
    fits = [_fit_tailguard(kind, epsilon, task, seed, 1) for task, seed in zip(tasks, seeds, strict=True)]
    yield None, [fit(task.fresh) for fit, task in zip(fits, tasks, strict=True)]


def _fit_tailguard(kind: str, epsilon: float, task: Task, seed: int | None, threads: int | None) -> peers.Predictor:
    if kind == "linear":
        return _predictor(tg.PrivateRidge(epsilon, random_state=seed, threads=threads).fit(task.X, task.y))
    model = tg.PrivateLogisticRegression(epsilon, classes=[0, 1], random_state=seed, threads=threads)
    return _predictor(model.fit(task.X, task.y))


def _scikit_learn(tasks: Sequence[Task], seeds: Sequence[int], epsilon: float, kind: str) -> Answers:
    yield None, [_fit_scikit_learn(kind, task)(task.fresh) for task in tasks]


def _fit_scikit_learn(kind: str, task: Task) -> peers.Predictor:
    from sklearn.linear_model import LinearRegression, LogisticRegression

    model = LinearRegression() if kind == "linear" else LogisticRegression(C=1e3, max_iter=300)
    return _predictor(model.fit(task.X, task.y))


def _predictor(model: Any) -> peers.Predictor:
    """Predictions of the mean, or of the probability of a one."""
    return (lambda X: model.predict_proba(X)[:, 1]) if hasattr(model, "predict_proba") else model.predict


def _splits(tasks: Sequence[Task]) -> list[peers.Rows]:
    return [(task.X, np.asarray(task.y, dtype=float), task.fresh) for task in tasks]


def _diffprivlib(tasks: Sequence[Task], seeds: Sequence[int], epsilon: float, kind: str) -> Answers:
    yield None, list(peers.diffprivlib_timed(_splits(tasks), epsilon, kind)[0])


def _opacus(tasks: Sequence[Task], seeds: Sequence[int], epsilon: float, kind: str) -> Answers:
    """All settings on the first seeds, then the best there, for each score, on the others."""
    settings = peers.SGD if kind == "linear" else peers.LOGISTIC_SGD
    first, others = slice(None, TUNING_SEEDS), slice(TUNING_SEEDS, None)

    def run(part: slice, settings: Sequence[peers.SgdSetting]) -> dict[peers.SgdSetting, list[Array]]:
        if not tasks[part]:
            return {setting: [] for setting in settings}
        fits, _ = peers.opacus(_splits(tasks[part]), epsilon, kind, seeds[part], settings)
        return {
            setting: [fit[setting](task.fresh) for fit, task in zip(fits, tasks[part], strict=True)]
            for setting in settings
        }

    tuned = run(first, settings)
    median = {
        (setting, score): float(np.median([scores(task, p)[score] for task, p in zip(tasks, found, strict=False)]))
        for setting, found in tuned.items()
        for score in SCORES[kind]
    }
    best = list(dict.fromkeys(min(settings, key=lambda s: median[s, score]) for score in SCORES[kind]))
    rest = run(others, best)
    for setting in best:
        yield setting, [*tuned[setting], *rest[setting]]


def _ada_ssp(tasks: Sequence[Task], seeds: Sequence[int], epsilon: float, kind: str) -> Answers:
    for quantile in (0.9, 0.99, 0.999):
        rngs = [np.random.default_rng([seed, 8]) for seed in seeds]
        fits = [peers.ada_ssp(task.X, task.y, epsilon, rng, quantile) for task, rng in zip(tasks, rngs, strict=True)]
        yield quantile, [fit(task.fresh) for fit, task in zip(fits, tasks, strict=True)]


def _tukey_em(tasks: Sequence[Task], seeds: Sequence[int], epsilon: float, kind: str) -> Answers:
    for rows_each in (1, 2, 4):
        models = ROWS // (rows_each * (COLUMNS + 1))
        rngs = [np.random.default_rng([seed, 7]) for seed in seeds]
        fits = [peers.tukey_em(task.X, task.y, epsilon, rng, models) for task, rng in zip(tasks, rngs, strict=True)]
        yield rows_each, [None if fit is None else fit(task.fresh) for fit, task in zip(fits, tasks, strict=True)]


PEERS: dict[str, Callable[[Sequence[Task], Sequence[int], float, str], Answers]] = {
    "tailguard": _tailguard,
    "scikit-learn, not private": _scikit_learn,
    "Opacus": _opacus,
    "diffprivlib": _diffprivlib,
    "AdaSSP": _ada_ssp,
    "TukeyEM": _tukey_em,
}
LINEAR_ONLY = ("AdaSSP", "TukeyEM")
NOT_PRIVATE = "scikit-learn, not private"


def suits(peer: str, kind: str) -> bool:
    """Whether a peer has such a model, and its environment is there."""
    name = peer.lower()
    return not (kind != "linear" and peer in LINEAR_ONLY) and (name not in peers.RECIPES or _made(name))


def _made(name: str) -> bool:
    return peers.environment(name) is not None


# ---------------------------------------------------------------------------------------------------------- accuracy


def accuracy(
    results: dict[str, Any], chosen: Sequence[str], seeds: range, names: Sequence[str], workers: int, folder: Path
) -> None:
    """Measure the chosen peers on every task at every epsilon; what is done is kept at once."""
    kept = results.setdefault("accuracy", {})
    cells = []
    for name in names:
        kind = TASKS[name][0]
        tasks = drawn(name, seeds)
        constant = [scores(task, np.full(len(task.fresh), task.y.mean()))[SCORES[kind][0]] for task in tasks]
        kept.setdefault(name, {})["constant"] = float(f"{np.median(constant):.4g}")
        for peer in chosen:
            if suits(peer, kind):
                cells += [(name, peer, e, seeds) for e in (EPSILONS if peer != NOT_PRIVATE else (math.inf,))]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for (name, peer, epsilon, _), cell in zip(cells, (pool.map if workers > 1 else map)(_cell, cells), strict=True):
            kept[name].setdefault(peer, {})[f"{epsilon:g}"] = cell
            keep(results, folder)
            print(f"{name}: {peer}, epsilon = {epsilon:g}", flush=True)


@lru_cache(maxsize=1)
def drawn(name: str, seeds: range) -> list[Task]:
    """The same rows for everybody."""
    return [make(name, ROWS, seed) for seed in seeds]


def _cell(which: tuple[str, str, float, range]) -> Cell:
    """Scores of a peer at an epsilon, on one core."""
    name, peer, epsilon, seeds = which
    tasks, kind = drawn(name, seeds), TASKS[name][0]
    with np.errstate(all="ignore"), threadpool_limits(1):
        return _best(PEERS[peer](tasks, seeds, epsilon, kind), tasks, kind)


def _best(answers: Answers, tasks: Sequence[Task], kind: str) -> Cell:
    """Sorted scores over the seeds, of the setting with the least median; a seed without an answer counts as inf."""
    best: dict[str, list[float]] = {score: [math.inf] * len(tasks) for score in SCORES[kind]}
    for _, predictions in answers:
        found = [
            dict.fromkeys(SCORES[kind], math.inf) if prediction is None else scores(task, prediction)
            for task, prediction in zip(tasks, predictions, strict=True)
        ]
        for score in SCORES[kind]:
            values = [each[score] for each in found]
            if np.median(values) < np.median(best[score]):
                best[score] = sorted(values)
    # JSON knows no infinity.
    return {
        score: [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]
        for score, values in best.items()
    }


def _read(cell: Cell, score: str) -> list[float]:
    return [math.inf if value is None else value for value in cell[score]]


# -------------------------------------------------------------------------------------------------------------- time


def timing(kept: dict[str, Any], chosen: Sequence[str], sizes: Sequence[int], repeats: int) -> None:
    """Seconds of a fit at epsilon = 1: with calibration, without starting Python and importing."""
    for name in ("nl", "logistic"):
        kind = TASKS[name][0]
        for n in sizes:
            task = make(name, n, FIRST_SEED)
            for peer in chosen:
                if not suits(peer, kind):
                    continue
                seconds = sorted(_seconds(peer, kind, task, repeats if n < 1_000_000 else min(repeats, 2)))
                kept.setdefault(kind, {}).setdefault(peer, {})[str(n)] = [float(f"{s:.3g}") for s in seconds]
                print(f"{kind}, n = {n}: {peer}, {np.median(seconds):.3g} s", flush=True)


def _seconds(peer: str, kind: str, task: Task, repeats: int) -> list[float]:
    splits = _splits([task]) * (repeats + 1)
    if peer == "diffprivlib":
        return peers.diffprivlib_timed(splits, 1.0, kind)[1][1:]
    if peer == "Opacus":
        setting = (10.0 if kind == "linear" else 0.6, 0.1, 10, 0.3)
        seeds = list(range(repeats + 1))
        found = peers.opacus(splits, 1.0, kind, seeds, [setting], threads=machine.cores(), cold=True)[1]
        return [each[0] for each in found[1:]]
    rng = np.random.default_rng(0)
    models = min(1000, len(task.y) // (COLUMNS + 1))
    fits: dict[str, Callable[[], Any]] = {
        "tailguard": lambda: _fit_tailguard(kind, 1.0, task, None, None),
        NOT_PRIVATE: lambda: _fit_scikit_learn(kind, task),
        "AdaSSP": lambda: peers.ada_ssp(task.X, task.y, 1.0, rng),
        "TukeyEM": lambda: peers.tukey_em(task.X, task.y, 1.0, rng, models),
    }
    found_times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        fits[peer]()
        found_times.append(time.perf_counter() - start)
    return found_times[1:]


# ------------------------------------------------------------------------------------------------------------ report


def report(results: dict[str, Any]) -> str:
    """All tables as Markdown."""
    lines = []
    for name, (kind, _, label) in TASKS.items():
        found = {peer: cells for peer, cells in results.get("accuracy", {}).get(name, {}).items() if peer in PEERS}
        for score in SCORES[kind] if found else ():
            counts = {peer: len(next(iter(cells.values()))[score]) for peer, cells in found.items()}
            most = max(counts.values())
            title = f"**{label}: {score}, n = {ROWS:,}, d = {COLUMNS}, median / 90 %, {most} seeds**"
            lines += ["", title, "", "| ε | " + " | ".join(f"{e:g}" for e in EPSILONS) + " |"]
            lines += ["|---" * (1 + len(EPSILONS)) + "|"]
            for peer in PEERS:
                if peer in found:
                    fewer = "" if counts[peer] == most else f" ({counts[peer]} seeds)"
                    lines.append(f"| {peer}{fewer} | " + " | ".join(_shown(found[peer], score)) + " |")
    seconds = results.get("time", {})
    if seconds:
        lines += ["", f"Time on {results['time machine']}."]
    for kind, found in seconds.items():
        sizes = sorted({int(n) for each in found.values() for n in each})
        lines += ["", f"**{kind}: seconds of a fit, d = {COLUMNS}, ε = 1, medians**", ""]
        lines += ["| n | " + " | ".join(f"{n:,}" for n in sizes) + " |", "|---" * (1 + len(sizes)) + "|"]
        for peer in PEERS:
            if peer in found:
                cells = [number(float(np.median(found[peer][str(n)]))) if str(n) in found[peer] else "" for n in sizes]
                lines.append(f"| {peer} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _shown(found: dict[str, Cell], score: str) -> list[str]:
    if list(found) == ["inf"]:
        return [both(_read(found["inf"], score))] + [""] * (len(EPSILONS) - 1)
    cells = []
    for epsilon in EPSILONS:
        values = _read(found[f"{epsilon:g}"], score)
        missing = sum(math.isinf(value) for value in values)
        cells.append(f"no answer ({missing} of {len(values)})" if missing else both(values))
    return cells


def pictures(results: dict[str, Any], folder: Path) -> None:
    """Accuracy against epsilon and time against n."""
    panels = []
    for name, (kind, _, label) in TASKS.items():
        found = results.get("accuracy", {}).get(name)
        if not found:
            continue
        score, curves = SCORES[kind][0], {}
        for peer in PEERS:
            if peer not in found:
                continue
            same = list(found[peer]) == ["inf"]
            cells = np.array([_read(found[peer]["inf" if same else f"{e:g}"], score) for e in EPSILONS])
            cells[np.isinf(cells)] = np.nan  # a gap in the line
            y, high = np.median(cells, axis=1).tolist(), np.quantile(cells, 0.9, axis=1).tolist()
            curves[peer] = figures.Curve(EPSILONS, y, high if peer == "tailguard" else None)
        lowest = np.nanmin([curve.y for curve in curves.values()])
        level = (found["constant"], "predicting the mean")
        panels.append(figures.Panel(label, "ε", score, curves, (0.5 * lowest, 5.0 * level[0]), level))
    if panels:
        figures.draw(panels, folder / "peers-accuracy.svg")
    panels = []
    for kind, found in results.get("time", {}).items():
        curves = {}
        for peer in PEERS:
            if peer in found:
                sizes = sorted(found[peer], key=int)
                medians = [float(np.median(found[peer][n])) for n in sizes]
                curves[peer] = figures.Curve([float(n) for n in sizes], medians)
        panels.append(figures.Panel(f"{kind}, d = {COLUMNS}, ε = 1", "rows", "seconds of a fit", curves))
    if panels:
        figures.draw(panels, folder / "peers-time.svg")


def keep(results: dict[str, Any], folder: Path) -> None:
    """Write what was measured."""
    (folder / "peers.json").write_text(json.dumps(results) + "\n", encoding="utf-8")


def write(results: dict[str, Any], folder: Path) -> None:
    """Keep what was measured, and bring the page and its pictures up to date."""
    keep(results, folder)
    page.put(folder / "peers.md", "peers", report(results))
    pictures(results, folder)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tasks", default=",".join(TASKS), help="of the accuracy, separated by commas")
    parser.add_argument("--peers", default=",".join(PEERS), help="separated by commas; a part of a name is enough")
    parser.add_argument("--workers", type=int, default=1, help="processes of the accuracy, of one core each")
    parser.add_argument("--repeats", type=int, default=5, help="timed fits, after one that is not")
    parser.add_argument("--rows", type=int, default=max(TIMED_ROWS), help="at most so many are timed")
    parser.add_argument("--folder", type=Path, default=DOCS, help="of peers.json, peers.md and the pictures")
    given = parser.parse_args(arguments)
    wanted = given.peers.split(",")
    chosen = [peer for peer in PEERS if any(part.strip() in peer for part in wanted)]
    for name in peers.RECIPES:
        if not _made(name):
            print(f"{name} is left out: python benchmarks/peers.py {name} makes its environment")
    warnings.filterwarnings("ignore", module="sklearn")
    file = given.folder / "peers.json"
    results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    libraries = ["numpy", "scikit-learn"]
    theirs = [f"{name} {peers.versions(name)[name]}" for name in peers.RECIPES if _made(name)]
    where = ", ".join([machine.description(*libraries), *theirs])
    if given.accuracy:
        seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
        accuracy(results, chosen, seeds, given.tasks.split(","), given.workers, given.folder)
    if given.time:
        results["time machine"] = where
        sizes = [n for n in TIMED_ROWS if n <= given.rows]
        timing(results.setdefault("time", {}), chosen, sizes, given.repeats)
    write(results, given.folder)
    print(report(results))


if __name__ == "__main__":
    main()
