"""How much 30,000 credit card clients pay next month.

The largest payment is 400 times the median, and the features have tails as heavy. Amounts, codes and ages go in as they
are, categories as sparse one-hot columns in an ordinary scikit-learn pipeline.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from common import arguments, compare, draw_groups, draw_scores, new_figure, print_table, read_table, save
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import tailguard as tg

MONTHS = range(2, 7)
NUMBERS = ["LIMIT_BAL", "AGE", *(f"{name}{month}" for name in ("PAY_", "BILL_AMT", "PAY_AMT") for month in MONTHS)]
# The levels of the code book are public; learning them from the rows would not be private.
CATEGORIES = {"SEX": [1, 2], "EDUCATION": [0, 1, 2, 3, 4, 5, 6], "MARRIAGE": [0, 1, 2, 3]}


def synthetic(rows: int = 30_000) -> pd.DataFrame:
    """A twin: payments follow bills and earlier payments, with log-normal sizes and many zeros."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.choice(levels, rows) for name, levels in CATEGORIES.items()})
    wealth = rng.normal(size=rows)
    table["LIMIT_BAL"] = np.round(np.exp(11.7 + 0.7 * wealth), -4)
    table["AGE"] = rng.integers(21, 70, rows)
    for month in MONTHS:
        table[f"PAY_{month}"] = rng.integers(-2, 3, rows)
        table[f"BILL_AMT{month}"] = np.exp(9.8 + wealth + rng.normal(size=rows))
        paid = np.exp(7.4 + 0.8 * wealth + 1.2 * rng.normal(size=rows))
        table[f"PAY_AMT{month}"] = np.where(rng.random(rows) < 0.18, 0.0, paid)
    mean = 0.1 * table["BILL_AMT2"] + 0.2 * table["PAY_AMT2"]
    table["PAY_AMT1"] = np.where(rng.random(rows) < 0.18, 0.0, mean * np.exp(rng.normal(size=rows)))
    return table


def pipeline(model):
    """One-hot categories with public levels, numbers untouched."""
    encoder = OneHotEncoder(categories=list(CATEGORIES.values()), handle_unknown="ignore", drop="first")
    return make_pipeline(make_column_transformer((encoder, list(CATEGORIES)), remainder="passthrough"), model)


def main() -> None:
    """Compare private and ordinary regression on held-out clients."""
    given = arguments(__doc__)
    table = read_table(given.data, "credit_default.csv.gz")
    table = synthetic() if table is None else table
    X, y = table[[*CATEGORIES, *NUMBERS]], table["PAY_AMT1"].to_numpy(float)
    study = compare(
        len(table),
        given,
        lambda epsilon, train: pipeline(tg.PrivateRidge(epsilon)).fit(X.iloc[train], y[train]),
        lambda train: pipeline(LinearRegression()).fit(X.iloc[train], y[train]),
        lambda model, test: model.score(X.iloc[test], y[test]),
        ("the mean alone", lambda train, test: 0.0),
    )
    print_table("held-out R^2", study.private, study.others)
    private = study.models[2]
    print(private[-1].privacy_)

    figure, axes = new_figure(f"Credit card payments: linear regression on {len(study.train):,} clients")
    draw_scores(axes[0], "R², held out", study)
    T, t = X.iloc[study.test], y[study.test] / 1000.0
    predictions = {"private, epsilon = 1": private.predict(T) / 1000.0, "not private": study.free.predict(T) / 1000.0}
    draw_groups(axes[1], predictions, t, "thousand NT dollars")
    save(figure, given.output)


if __name__ == "__main__":
    main()
