"""The mean of a heavy-tailed column: nothing but epsilon, against a clip that somebody has to guess.

Medical cost (RAND HIE), one row per person. A guessed clip is right at one size of data and wrong at all others.
"""

from __future__ import annotations

import numpy as np
from common import EPSILONS, FREE, OTHER, PRIVATE, arguments, new_figure, print_table, read_table, save, split

import tailguard as tg

CLIPS = (100.0, 10_000.0, 1_000_000.0)
UNITS = {"cents": 100.0, "dollars": 1.0, "thousand dollars": 1e-3}


def main() -> None:
    """Compare the default with three guesses of a clip, in three units."""
    given = arguments(__doc__)
    table = read_table(given.data, "randhie.csv.gz")
    if table is None:
        rng = np.random.default_rng(0)
        cost = np.where(rng.random(6000) < 0.22, 0.0, np.exp(4.3 + 1.5 * rng.normal(size=6000)))
    else:
        cost = table.drop_duplicates("zper")["meddol"].to_numpy()
    cost = np.concatenate([cost[part] for part in split(len(cost), given.rows)])
    truth = cost.mean()

    results = [[tg.private_mean(cost, epsilon) for _ in range(given.repeats)] for epsilon in EPSILONS]
    values = np.array([[result.value for result in row] for row in results])
    print(f"mean of {len(cost):,} values: {truth:.2f}, median {np.median(cost):.2f}, largest {cost.max():.0f}\n")
    print_table("relative error of the default", np.abs(values - truth) / truth, {})
    print("relative error at epsilon 1 (median of repeats), by unit of the data:")
    rows = {"default": [], **{f"clip {clip:,.0f}": [] for clip in CLIPS}}
    for scale in UNITS.values():
        for name, errors in rows.items():
            options = {} if name == "default" else {"method": "clamped", "clip": float(name[5:].replace(",", ""))}
            found = [tg.private_mean(cost * scale, 1.0, **options).value / scale for _ in range(given.repeats)]
            errors.append(float(np.median(np.abs(np.array(found) - truth)) / truth))
    print(f"  {'':<16}" + "".join(f"{unit:>18}" for unit in UNITS))
    for name, errors in rows.items():
        print(f"  {name:<16}" + "".join(f"{value:>18.3f}" for value in errors))
    print()
    print(results[2][0].privacy)

    figure, axes = new_figure(f"The mean of {len(cost):,} medical costs, privately")
    for epsilon, row in zip(EPSILONS, values, strict=True):
        axes[0].plot(
            np.full(len(row), epsilon), row, "o", color=PRIVATE, alpha=0.6, label="private" if epsilon == 1 else None
        )
    axes[0].axhline(truth, color=FREE, linestyle="--", label="mean, not private")
    axes[0].axhline(np.median(cost), color=OTHER, linestyle=":", label="median, not private")
    axes[0].set_xscale("log")
    axes[0].set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes[0].minorticks_off()
    axes[0].set_ylim(bottom=min(0.0, values.min()))
    axes[0].set_xlabel("epsilon")
    axes[0].set_ylabel("dollars a year")
    axes[0].legend(frameon=False, fontsize=9)
    axes[0].set_title(f"the default, {given.repeats} releases at each epsilon", fontsize=10, loc="left")
    width = 0.8 / len(rows)
    for k, (name, row) in enumerate(rows.items()):
        color = PRIVATE if k == 0 else ("#9dbbe0", "#5f8fc9", "#234a80")[k - 1]
        axes[1].bar(np.arange(len(UNITS)) + (k - 1.5) * width, row, width * 0.92, color=color, label=name)
    axes[1].set_yscale("log")
    axes[1].set_xticks(range(len(UNITS)), list(UNITS))
    axes[1].set_xlabel("unit of the data")
    axes[1].set_ylabel("relative error, epsilon = 1 (log scale)")
    axes[1].legend(frameon=False, fontsize=9, ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.0))
    axes[1].margins(y=0.35)
    axes[1].set_title("a guessed clip is right in one unit at most", fontsize=10, loc="left")
    save(figure, given.output)


if __name__ == "__main__":
    main()
