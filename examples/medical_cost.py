"""Medical cost a year of 5,900 persons (RAND Health Insurance Experiment).

A fifth are zeros, and the largest is hundreds of times the median. One row per person, so that protecting a row
protects a person. Nothing is scaled, clipped or bounded beforehand.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from common import arguments, compare, draw_groups, draw_scores, new_figure, print_table, read_table, save
from sklearn.linear_model import LinearRegression

import tailguard as tg

FEATURES = [
    "logc",
    "idp",
    "lpi",
    "fmde",
    "linc",
    "lnum",
    "xage",
    "female",
    "child",
    "fchild",
    "black",
    "educdec",
    "physlm",
    "disea",
    "hlthg",
    "hlthf",
    "hlthp",
]


def synthetic(rows: int = 6000) -> pd.DataFrame:
    """A twin: skewed cost that grows with age, disease and bad health, zero for one in five."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(rows, len(FEATURES))), columns=FEATURES)
    for name in ("idp", "female", "child", "fchild", "black", "physlm", "hlthg", "hlthf", "hlthp"):
        table[name] = (rng.random(rows) < 0.3).astype(float)
    table["xage"] = rng.uniform(0.0, 64.0, rows)
    table["disea"] = rng.gamma(2.0, 5.0, rows)
    size = 3.5 + 0.02 * table["xage"] + 0.03 * table["disea"] + 0.8 * table["hlthp"] + 0.3 * table["female"]
    table["meddol"] = np.where(rng.random(rows) < 0.22, 0.0, np.exp(size + 1.3 * rng.normal(size=rows)))
    return table


def main() -> None:
    """Compare private and ordinary regression on held-out persons."""
    given = arguments(__doc__)
    table = read_table(given.data, "randhie.csv.gz")
    table = synthetic() if table is None else table.drop_duplicates("zper").dropna(subset=FEATURES)
    X, y = table[FEATURES], table["meddol"].to_numpy()
    study = compare(
        len(table),
        given,
        lambda epsilon, train: tg.PrivateRidge(epsilon).fit(X.iloc[train], y[train]),
        lambda train: LinearRegression().fit(X.iloc[train], y[train]),
        lambda model, test: model.score(X.iloc[test], y[test]),
        ("the mean alone", lambda train, test: 0.0),
    )
    print_table("held-out R^2", study.private, study.others)
    T, t, private = X.iloc[study.test], y[study.test], study.models[2]
    print(
        f"mean cost, held out: {t.mean():.0f} dollars; predicted, epsilon 1: {private.predict(T).mean():.0f}; ", end=""
    )
    print(f"not private: {study.free.predict(T).mean():.0f}\n")
    print(private.privacy_)

    figure, axes = new_figure(f"Medical cost of a person-year: linear regression on {len(study.train):,} persons")
    draw_scores(axes[0], "R², held out", study)
    draw_groups(
        axes[1], {"private, epsilon = 1": private.predict(T), "not private": study.free.predict(T)}, t, "dollars"
    )
    save(figure, given.output)


if __name__ == "__main__":
    main()
