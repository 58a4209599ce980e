"""When is it worth searching? Eight clip norms of which two or three are good, and nobody knows which.

Three ways to the same promise: a private search, splitting the budget over the candidates, and the default, which finds
its clips itself and has nothing to search for.
"""

from __future__ import annotations

import numpy as np
from common import EPSILONS, FREE, OTHER, PRIVATE, arguments, new_figure, print_table, save

import tailguard as tg
from tailguard.privacy import Budget, default_delta, gdp_mu

CLIPS = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0]
SLOPES = np.array([1.0, -0.5, 0.5, 0.25] + [0.0] * 8)


def claims(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Synthetic claims: twelve features of size one, and noise with a long right tail; and their true means."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, len(SLOPES)))
    mean = X @ SLOPES
    return X, mean + rng.lognormal(0.0, 1.0, rows) - np.exp(0.5), mean


def searched(X: np.ndarray, y: np.ndarray, epsilon: float) -> tg.PrivateGridSearch:
    """One promise for all: fits, scores and the choice."""
    return tg.PrivateGridSearch(tg.PrivateRidge(method="clipped"), {"clip": CLIPS}, epsilon).fit(X, y)


def split(X: np.ndarray, y: np.ndarray, epsilon: float) -> tg.PrivateRidge:
    """Every candidate has its part of the budget, for its fit and for a private mean of its squared errors."""
    part = gdp_mu(epsilon, default_delta(len(y))) / np.sqrt(len(CLIPS))
    models = [tg.PrivateRidge(Budget(mu=part * np.sqrt(0.7)), method="clipped", clip=clip).fit(X, y) for clip in CLIPS]

    def score(model: tg.PrivateRidge) -> float:
        squares = np.minimum((y - model.predict(X)) ** 2, 20.0) - 10.0  # a public bound, centred
        return float(tg.private_mean(squares, Budget(mu=part * np.sqrt(0.3)), method="clamped", clip=10.0).value)

    return min(models, key=score)


def main() -> None:
    """Compare the three for every epsilon."""
    given = arguments(__doc__)
    rows = given.rows or 10_000
    print("The data of this example is SYNTHETIC: claims with log-normal noise.\n")
    tables = [claims(rows, seed) for seed in range(given.repeats)]
    searches = [[searched(X, y, epsilon) for X, y, _ in tables] for epsilon in EPSILONS]

    def errors(models: list) -> list[float]:
        return [float(np.mean((m.predict(X) - mean) ** 2)) for m, (X, _, mean) in zip(models, tables, strict=True)]

    found = {
        "search": [errors(row) for row in searches],
        "split": [errors([split(X, y, epsilon) for X, y, _ in tables]) for epsilon in EPSILONS],
        "default": [errors([tg.PrivateRidge(epsilon).fit(X, y) for X, y, _ in tables]) for epsilon in EPSILONS],
    }
    for name, row in found.items():
        print_table(f"squared error of predictions, {name}", np.array(row), {})
    for epsilon, row in zip(EPSILONS, searches, strict=True):
        chosen = ", ".join(f"{model.best_params_['clip']:g}" for model in row)
        print(f"clips chosen at epsilon {epsilon:<4g} {chosen}")
    print()
    print(searches[2][0].privacy_)

    figure, axes = new_figure(f"Which clip? {rows:,} rows, {len(CLIPS)} candidates", panels=2)
    for (name, row), color, style in zip(found.items(), (PRIVATE, OTHER, FREE), ("o-", "s--", "^:"), strict=True):
        axes[0].plot(EPSILONS, np.median(row, axis=1), style, color=color, label=name)
    axes[0].set_xscale("log")
    axes[0].set_yscale("log")
    axes[0].set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes[0].minorticks_off()
    axes[0].set_xlabel("epsilon")
    axes[0].set_ylabel("squared error of predictions (log scale)")
    axes[0].legend(frameon=False, fontsize=9)
    axes[0].set_title(f"median of {given.repeats} tables", fontsize=10, loc="left")
    for k, row in enumerate(searches):
        places = [CLIPS.index(model.best_params_["clip"]) for model in row]
        axes[1].plot(np.full(len(row), k) + np.linspace(-0.2, 0.2, len(row)), places, "o", color=PRIVATE, alpha=0.7)
    axes[1].set_xticks(range(len(EPSILONS)), [f"{epsilon:g}" for epsilon in EPSILONS])
    axes[1].set_yticks(range(len(CLIPS)), [f"{clip:g}" for clip in CLIPS])
    axes[1].set_xlabel("epsilon")
    axes[1].set_ylabel("clip")
    axes[1].set_title("what the search chose", fontsize=10, loc="left")
    save(figure, given.output)


if __name__ == "__main__":
    main()
