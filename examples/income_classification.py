"""Who earns more than 50,000 dollars (Adult, 1994 census): logistic regression with capital gains as they are.

Six numbers and one-hot categories; capital gains are zero for nine in ten and up to 99,999.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from common import arguments, compare, draw_groups, draw_scores, new_figure, print_table, read_table, save
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tailguard as tg

NUMBERS = ["age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
CODES = {  # public code book
    "marital-status": ["Married-civ-spouse", "Never-married", "Divorced", "Separated", "Widowed"],
    "relationship": ["Husband", "Wife", "Own-child", "Unmarried", "Not-in-family"],
    "occupation": ["Exec-managerial", "Prof-specialty", "Sales", "Craft-repair", "Adm-clerical", "Other-service"],
    "sex": ["Female", "Male"],
}


def synthetic(rows: int = 40_000) -> pd.DataFrame:
    """A twin: log-odds that grow with education, age, hours and capital gains."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.choice(levels, rows) for name, levels in CODES.items()})
    table["age"] = rng.integers(17, 80, rows)
    table["fnlwgt"] = np.exp(12.0 + 0.5 * rng.normal(size=rows))
    table["education-num"] = rng.integers(4, 17, rows)
    table["hours-per-week"] = np.clip(np.round(rng.normal(40.0, 12.0, rows)), 1, 99)
    gain, loss = np.exp(8.5 + 1.0 * rng.normal(size=rows)), rng.normal(1900.0, 300.0, rows)
    table["capital-gain"] = np.where(rng.random(rows) < 0.083, np.minimum(gain, 99_999.0), 0.0)
    table["capital-loss"] = np.where(rng.random(rows) < 0.047, loss, 0.0)
    odds = -8.0 + 0.3 * table["education-num"] + 0.03 * table["age"] + 0.03 * table["hours-per-week"]
    odds += 3e-4 * table["capital-gain"] + 1.5 * (table["marital-status"] == "Married-civ-spouse")
    table["income"] = np.where(odds + rng.logistic(size=rows) > 0, ">50K", "<=50K")
    return table


def encode(table: pd.DataFrame) -> pd.DataFrame:
    """Numbers as they are and a 0/1 column for each public level but the first."""
    codes = {f"{name}={level}": table[name] == level for name, levels in CODES.items() for level in levels[1:]}
    return pd.concat([table[NUMBERS], pd.DataFrame(codes)], axis=1).astype(float)


def main() -> None:
    """Compare private and ordinary logistic regression on held-out persons."""
    given = arguments(__doc__)
    table = read_table(given.data, "adult.csv.gz")
    table = synthetic() if table is None else table
    X, y = encode(table), (table["income"].str.startswith(">50K")).to_numpy(int)

    def loss(model, test: np.ndarray) -> float:
        return log_loss(y[test], model.predict_proba(X.iloc[test]), labels=[0, 1])

    def free(train: np.ndarray):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=np.inf, max_iter=2000))
        return model.fit(X.iloc[train], y[train])

    study = compare(
        len(table),
        given,
        lambda epsilon, train: tg.PrivateLogisticRegression(epsilon, classes=[0, 1]).fit(X.iloc[train], y[train]),
        free,
        loss,
        (
            "the share alone",
            lambda train, test: log_loss(y[test], np.full(len(test), y[train].mean()), labels=[0, 1]),
        ),
    )
    print_table("held-out log-loss", study.private, study.others)
    T, t, private = X.iloc[study.test], y[study.test], study.models[2]
    for name, model in (("private, epsilon 1", private), ("not private", study.free)):
        print(f"accuracy, {name}: {accuracy_score(t, model.predict(T)):.4f}")
    print()
    print(private.privacy_)

    figure, axes = new_figure(f"Income above 50,000 dollars: logistic regression on {len(study.train):,} persons")
    draw_scores(axes[0], "log-loss, held out (lower is better)", study)
    models = {"private, epsilon = 1": private, "not private": study.free}
    draw_groups(
        axes[1], {name: model.predict_proba(T)[:, 1] for name, model in models.items()}, t, "probability", groups=10
    )
    save(figure, given.output)


if __name__ == "__main__":
    main()
