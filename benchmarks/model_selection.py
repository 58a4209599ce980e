r"""A private search against splitting the budget, at the same total epsilon: ``python benchmarks/model_selection.py``.

Every task has a grid of candidates of which nobody knows the best. Compared are

* **search**: `tailguard.PrivateGridSearch`, which pays for fits, scores, the choice and the scale of y;
* **split**: every candidate is fitted and scored with an equal part of the budget, composed exactly (mu^2 adds up), and
  the best score wins;
* **split, exponential**: the same fits, but the best is chosen by the exponential mechanism on exact scores, which
  pays for one choice and not for every score; Gaussian fits and such a choice compose by zCDP;
* **blind**: the middle candidate with the whole budget;
* **best**: the best candidate with the whole budget, known by magic;
* **default**: ``method="auto"``, which has nothing to tune.

Risks are half the mean squared distance of predictions from the truth on fresh rows; predicting the mean costs .5.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import designs
import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import ParameterGrid

import tailguard as tg
from tailguard.model_selection.measures import Numbers, RowGains
from tailguard.privacy import Budget, default_delta, gdp_mu, zcdp_rho

Array = NDArray[np.float64]
SHARE = 0.3
WAYS = ("search", "split", "split, exponential", "blind", "best", "default")


@dataclass(frozen=True)
class Case:
    """A task and its grid."""

    title: str
    design: str
    n: int
    d: int
    grid: dict[str, list[Any]]
    fixed: dict[str, Any] = field(default_factory=dict)

    @property
    def candidates(self) -> list[dict[str, Any]]:
        """All combinations."""
        return list(ParameterGrid(self.grid))

    def model(self, **parameters: Any) -> tg.PrivateRidge:
        """Return an estimator with these parameters."""
        return tg.PrivateRidge(**{"method": "clipped", "threads": 1} | self.fixed | parameters)


CLIPS = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0]
ALPHAS = [0.0, 0.03, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
CASES = {
    "clip": Case("8 clip norms, normal x, log-normal noise, 20,000 x 10", "nl", 20_000, 10, {"clip": CLIPS}),
    "clip-t": Case("8 clip norms, t3 x, t2.2 noise, 20,000 x 10", "tt", 20_000, 10, {"clip": CLIPS}),
    "alpha": Case("8 penalties, normal x and noise, 2,000 x 20", "nn", 2_000, 20, {"alpha": ALPHAS}, {"clip": 4.0}),
    "both": Case(
        "16 clip norms and step sizes, log-normal x and noise, 20,000 x 10",
        "ll",
        20_000,
        10,
        {"clip": CLIPS, "step_size": [0.1, 0.5]},
    ),
}


def fits(
    case: Case, task: designs.Task, bound: float, budget: Budget, seed: int
) -> tuple[list[tg.PrivateRidge], Array]:
    """Fit every candidate with the budget; models, and their scores summed over rows, of range 1 for a row."""
    models = [
        case.model(epsilon=budget, random_state=1000 * seed + k, **candidate).fit(task.X, task.y)
        for k, candidate in enumerate(case.candidates)
    ]
    measure = Numbers(absolute=False, centre=float(np.mean(task.y)), bound=bound)
    gains = [float(np.sum(RowGains(model, measure)(task.X, task.y))) for model in models]
    return models, np.array(gains) / (2.0 * measure.top)


def split(case: Case, task: designs.Task, epsilon: float, bound: float, seed: int) -> tg.PrivateRidge:
    """Equal parts of mu^2 for fits and noisy scores."""
    count, mu = len(case.candidates), gdp_mu(epsilon, default_delta(case.n))
    models, scores = fits(case, task, bound, Budget(mu=mu * np.sqrt((1.0 - SHARE) / count)), seed)
    noise = np.random.default_rng([seed, 7]).standard_normal(count) / (mu * np.sqrt(SHARE / count))
    return models[int(np.argmax(scores + noise))]


def split_exponential(case: Case, task: designs.Task, epsilon: float, bound: float, seed: int) -> tg.PrivateRidge:
    """Equal parts of rho for fits, and an exponential mechanism for the choice.

    With weights exp(m score), scores of range 1, the log ratio of a choice moves within an interval of length 2 m: the
    choice is m^2/2-zCDP (Cesar and Rogers 2021).
    """
    count, rho = len(case.candidates), zcdp_rho(epsilon, default_delta(case.n))
    models, scores = fits(case, task, bound, Budget(rho=rho * (1.0 - SHARE) / count), seed)
    exponent = np.sqrt(2.0 * SHARE * rho) * scores
    return models[int(np.argmax(exponent + np.random.default_rng([seed, 8]).gumbel(size=count)))]


def risks(job: tuple[str, float, int]) -> dict[str, Any]:
    """Full risks of every way on one draw."""
    name, epsilon, seed = job
    case = CASES[name]
    task = designs.linear_task(case.design, case.n, case.d, seed)
    search = tg.PrivateGridSearch(case.model(), case.grid, epsilon, score_share=SHARE, random_state=seed)
    search.fit(task.X, task.y)
    whole = [
        task.full_risk(
            case.model(epsilon=epsilon, random_state=seed, **candidate).fit(task.X, task.y).predict(task.fresh)
        )
        for candidate in case.candidates
    ]
    bound = float(search.error_bound_ or 1.0)  # the others are given it, and the exact centre
    default = tg.PrivateRidge(epsilon, random_state=seed, threads=1).fit(task.X, task.y)
    return {
        "search": task.full_risk(search.predict(task.fresh)),
        "split": task.full_risk(split(case, task, epsilon, bound, seed).predict(task.fresh)),
        "split, exponential": task.full_risk(split_exponential(case, task, epsilon, bound, seed).predict(task.fresh)),
        "blind": whole[len(whole) // 2],
        "default": task.full_risk(default.predict(task.fresh)),
        "whole": whole,
    }


def table(name: str, epsilons: Sequence[float], seeds: int, workers: int) -> list[str]:
    """Medians and 90 % quantiles, and how often the search is better than splitting."""
    lines = [
        f"**{CASES[name].title}**",
        "",
        "| epsilon | " + " | ".join(WAYS) + " | search is better than both splits |",
    ]
    lines.append("|---" * (len(WAYS) + 2) + "|")
    for epsilon in epsilons:
        jobs = [(name, epsilon, seed) for seed in range(seeds)]
        if workers == 1:
            found = [risks(job) for job in jobs]
        else:
            with ProcessPoolExecutor(workers) as pool:
                found = list(pool.map(risks, jobs))
        by_candidate = np.array([one["whole"] for one in found])
        columns = {way: np.array([one[way] for one in found]) for way in WAYS if way != "best"}
        columns["best"] = by_candidate[:, int(np.argmin(np.median(by_candidate, axis=0)))]
        cells = [f"{np.median(columns[way]):.2g} / {np.quantile(columns[way], 0.9):.2g}" for way in WAYS]
        better = int(np.sum(columns["search"] < np.minimum(columns["split"], columns["split, exponential"])))
        lines.append(f"| {epsilon:g} | " + " | ".join(cells) + f" | {better} of {seeds} |")
    return [*lines, ""]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 3.0])
    parser.add_argument("--only", choices=list(CASES), nargs="+", default=list(CASES))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    lines: list[str] = []
    for name in options.only:
        part = table(name, options.epsilon, options.seeds, options.workers)
        print("\n".join(part), flush=True)
        lines += part
    if options.output:
        options.output.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
