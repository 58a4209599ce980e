"""A loss of your own: stock that must not run out, so that a shortage costs four times as much as a surplus.

Any convex loss is two functions, its value and its derivative. `tailguard.minimize` then needs what only the default of
the estimators finds by itself: a public bound on the influence of a row (``clip``) and columns of about unit size.
"""

from __future__ import annotations

import numpy as np
from common import EPSILONS, FREE, OTHER, PRIVATE, arguments, compare, draw_scores, new_figure, print_table, save
from scipy.optimize import minimize

import tailguard as tg

SHORTAGE, SURPLUS, SOFT = 4.0, 1.0, 0.1


def cost(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Cost of ordering z where y is asked for, rounded at the corner so that it has a derivative."""
    gap = (z - y) / SOFT
    return SOFT * ((SHORTAGE + SURPLUS) * np.logaddexp(0.0, gap) - SHORTAGE * gap)


def derivative(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Between -SHORTAGE and SURPLUS, whatever the row: the slope is bounded, only the features are not."""
    return (SHORTAGE + SURPLUS) / (1.0 + np.exp(np.clip((y - z) / SOFT, -700.0, 700.0))) - SHORTAGE


def main() -> None:
    """Fit the order quantity privately and exactly, on synthetic demand with heavy tails."""
    given = arguments(__doc__)
    rng = np.random.default_rng(0)
    rows = 40_000
    X = rng.normal(size=(rows, 3))
    y = 2.0 + X @ [0.8, -0.4, 0.0] + (1.0 + 0.5 * np.abs(X[:, 0])) * (rng.pareto(2.5, rows) - 0.5)
    print("The data of this example is SYNTHETIC: demand with Pareto noise that grows with one feature.\n")
    loss = tg.losses.Custom(value=cost, dz=derivative)

    def private(epsilon: float, train: np.ndarray) -> np.ndarray:
        options = {"clip": 12.0, "steps": 60, "step_size": 0.5, "fit_intercept": True}
        result = tg.minimize(loss, X[train], y[train], method="clipped", epsilon=epsilon, **options)
        reports.setdefault(epsilon, result.privacy)
        return np.append(result.w, result.intercept)

    def exact(train: np.ndarray) -> np.ndarray:
        def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
            z = X[train] @ w[:3] + w[3]
            slope = derivative(z, y[train])
            return float(np.mean(cost(z, y[train]))), np.append(X[train].T @ slope, slope.sum()) / len(train)

        return np.asarray(minimize(objective, np.zeros(4), jac=True, method="L-BFGS-B").x)

    def order(w: np.ndarray, test: np.ndarray) -> np.ndarray:
        return X[test] @ w[:3] + w[3]

    def constant(train: np.ndarray, test: np.ndarray) -> float:
        return float(np.mean(cost(np.quantile(y[train], SHORTAGE / (SHORTAGE + SURPLUS)), y[test])))

    reports: dict = {}
    study = compare(
        rows,
        given,
        private,
        exact,
        lambda w, test: float(np.mean(cost(order(w, test), y[test]))),
        ("best constant", constant),
    )
    print_table("held-out mean cost", study.private, study.others)
    for epsilon, w in zip(EPSILONS, study.models, strict=True):
        share = np.mean(order(w, study.test) >= y[study.test])
        print(
            f"demand met, epsilon {epsilon:<4g} {share:.3f}   (the loss asks for {SHORTAGE / (SHORTAGE + SURPLUS):g})"
        )
    print()
    print(reports[1.0])

    figure, axes = new_figure(
        f"A loss of your own: orders for {len(study.train):,} rows of heavy-tailed demand", panels=3
    )
    gap = np.linspace(-3.0, 3.0, 301)
    axes[0].plot(gap, cost(gap, np.zeros_like(gap)), color="black")
    axes[0].set_xlabel("order minus demand")
    axes[0].set_ylabel("cost")
    axes[0].set_title("the loss: a shortage costs four times a surplus", fontsize=10, loc="left")
    draw_scores(axes[1], "mean cost, held out (lower is better)", study)
    line = np.linspace(-2.5, 2.5, 50)
    shown, ours, free = study.test[:1500], study.models[2], study.free
    axes[2].plot(X[shown, 0], y[shown], ".", color=OTHER, markersize=2, alpha=0.5, label="demand")
    axes[2].plot(line, ours[0] * line + ours[3], color=PRIVATE, linewidth=2, label="order, epsilon = 1")
    axes[2].plot(line, free[0] * line + free[3], "--", color=FREE, linewidth=2, label="order, not private")
    axes[2].set_ylim(-2.0, 12.0)
    axes[2].set_xlim(-3.0, 3.0)
    axes[2].set_xlabel("first feature, the others at 0")
    axes[2].set_ylabel("demand and order")
    axes[2].legend(frameon=False, fontsize=9, loc="upper left")
    axes[2].set_title("the order that should meet four in five demands", fontsize=10, loc="left")
    save(figure, given.output)


if __name__ == "__main__":
    main()
