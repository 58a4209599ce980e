r"""What public hints are worth: linear fits with few rows, with and without hints, against an oracle.

``python benchmarks/hints.py`` prints and writes Markdown. The oracle is that of ``benchmarks/accuracy.py --only
oracle``: DP-GD on columns that are centred, scaled and whitened by an oracle, with the best clip, number of steps and
step size of a grid, all of it for free. Hints are what a person could know: ranges that are rounded up generously,
never fitted to the rows of a seed. Seeds start at 5000; no choice in the package was made on them.
`PrivateHuberRegressor` is left out: with so few rows the two fits are one.
"""

from __future__ import annotations

import argparse
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import designs
import numpy as np
import peers
from threadpoolctl import threadpool_limits

import tailguard as tg

FIRST_SEED = 5000
DESIGNS = ("nn", "nl", "tt", "ll", "out", "corr", "het", "bin")
# Public ranges of features and target: what the units suggest, several times the spread.
RANGES = {
    "nn": (-5, 5),
    "nl": (-5, 5),
    "tt": (-25, 25),
    "ll": (-1, 30),
    "out": (-5, 5),
    "corr": (-5, 5),
    "het": (-5, 5),
}
TARGETS = {"nn": (-10, 10), "nl": (-15, 150), "tt": (-60, 60), "ll": (-15, 150), "out": (-10, 10), "corr": (-15, 150)}
TARGETS |= {"het": (-10, 60), "bin": (-20, 150)}
FORMS = ("none", "ranges", "moment", "exchangeable", "wrong")
Risks = tuple[float, float]
Job = tuple[str, int, int, float, int]  # design, rows, columns, epsilon, seed


def hints_for(form: str, name: str, d: int) -> tg.Hints | None:
    """The hints of a form for a design; a column of 0 and 1 is told as such in all of them."""
    if form == "none":
        return None
    target = TARGETS[name]
    if form == "wrong":
        return tg.Hints(ranges=[(7.0, 9.0)] * d, target_range=(30.0, 40.0))
    if name == "bin":
        return tg.Hints(categories=dict.fromkeys(range(d), (0, 1)), target_range=target)
    if form == "ranges":
        return tg.Hints(ranges=[RANGES[name]] * d, target_range=target)
    if form == "moment":
        return tg.Hints(moment=1.0, target_range=target)
    return tg.Hints(exchangeable=True, target_range=target)


def one_seed(job: Job) -> dict[object, Risks]:
    """Risks with every form of hints, and of every setting of the oracle, on one draw."""
    name, n, d, epsilon, seed = job
    found: dict[object, Risks] = {}
    with threadpool_limits(1), np.errstate(all="ignore"):
        task = designs.linear_task(name, n, d, seed)
        for form in FORMS:
            model = tg.PrivateRidge(epsilon, hints=hints_for(form, name, d), random_state=seed, threads=1)
            found[form] = task.risks(model.fit(task.X, task.y).predict(task.fresh))
        for setting, predict in peers.descents(task.X, task.y, epsilon, seed, peers.WHITENED, whiten=True):
            found[setting] = task.risks(predict(task.fresh))
    return found


def number(value: float) -> str:
    """A risk with two digits."""
    return f"{value:.2g}".replace("0.", ".", 1) if value < 1 else f"{value:.2g}"


def table(n: int, d: int, epsilon: float, seeds: int, processes: int) -> list[str]:
    """One table: medians over seeds, and their ratio to the oracle's."""
    lines = [f"**n = {n}, d = {d}, ε = {epsilon:g}: median risk over {seeds} seeds (its ratio to the oracle's)**", ""]
    worst: dict[tuple[str, str], float] = {}
    for which, risk in enumerate(("slope", "full")):
        lines += [f"| {risk} risk | oracle | " + " | ".join(FORMS) + " |", "|---" * (len(FORMS) + 2) + "|"]
        for name in DESIGNS:
            runs = _runs(tuple((name, n, d, epsilon, FIRST_SEED + k) for k in range(seeds)), processes)
            medians = {key: float(np.median([run[key][which] for run in runs])) for key in runs[0]}
            best = min(medians[setting] for setting in peers.WHITENED)
            for form in FORMS:
                worst[form, risk] = max(worst.get((form, risk), 0.0), medians[form] / best)
            cells = [f"{number(medians[form])} ({medians[form] / best:.2g} x)" for form in FORMS]
            lines.append(f"| {designs.LINEAR[name][2]} | {number(best)} | " + " | ".join(cells) + " |")
        lines.append("")
    lines.append("Worst: " + "; ".join(f"{form}, {risk} {ratio:.3g} x" for (form, risk), ratio in worst.items()) + ".")
    return [*lines, ""]


@cache
def _runs(jobs: tuple[Job, ...], processes: int) -> list[dict[object, Risks]]:
    if processes == 1:
        return [one_seed(job) for job in jobs]
    with get_context("spawn").Pool(processes) as pool:
        return pool.map(one_seed, jobs)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000])
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("build/hints.md"))
    given = parser.parse_args()
    given.output.parent.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    for n in given.rows:
        lines += table(n, given.features, given.epsilon, given.seeds, given.processes)
        print("\n".join(lines), flush=True)
        given.output.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
