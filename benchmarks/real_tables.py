r"""Tables that look like real ones: synthetic twins, drawn afresh for every seed, and the real ones where they lie.

The twins imitate what makes real tables hard: columns that are zero in nine rows of ten and have kurtosis in the
hundreds, near-constant dummies, correlated dummies of one factor, near-collinear amounts, targets with rare large
values. Real tables are read from a folder (``--data`` or ``TAILGUARD_DATA``) with ``credit_default.csv.gz``,
``randhie.csv.gz`` and ``adult.csv.gz``; without one they are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
TRAINING = 0.75


@dataclass(frozen=True)
class Split:
    """Training and held-out rows."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array

    def r2(self, prediction: Array) -> float:
        """Held-out R^2, against the held-out mean."""
        error = np.nan_to_num(np.clip(prediction - self.y_test, -1e150, 1e150), nan=1e150)
        return 1.0 - float(np.mean(error**2) / np.var(self.y_test))

    def mean_r2(self) -> float:
        """Held-out R^2 of predicting the mean of the training rows, which is not private."""
        return self.r2(np.full(len(self.y_test), self.y.mean()))

    def explained(self, prediction: Array) -> float:
        """Part of the held-out Poisson deviance of the training mean that a prediction saves."""
        saved = [_deviance(self.y_test, q) for q in (prediction, np.full(len(self.y_test), self.y.mean()))]
        return 1.0 - saved[0] / saved[1]

    def log_loss(self, probability: Array) -> float:
        """Held-out log-loss of the probability of a one."""
        p = np.clip(np.nan_to_num(probability, nan=0.5), 1e-12, 1.0 - 1e-12)
        return -float(np.mean(np.where(self.y_test > 0, np.log(p), np.log1p(-p))))


def _deviance(y: Array, mean: Array) -> float:
    mean = np.maximum(np.nan_to_num(mean, nan=1e-300), 1e-300)
    return float(np.mean(mean - y - np.where(y > 0, y * np.log(mean / np.where(y > 0, y, 1.0)), 0.0)))


def split(X: Array, y: Array, seed: int) -> Split:
    """Three quarters of the rows, at random, for training."""
    order = np.random.default_rng([seed, 500]).permutation(len(y))
    cut = int(TRAINING * len(y))
    return Split(X[order[:cut]], y[order[:cut]], X[order[cut:]], y[order[cut:]])


# ------------------------------------------------------------------------------------------------------------ twins


def _survey_columns(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Twenty columns of a public-use survey and the three factors behind them."""
    factors = rng.standard_normal((n, 3))
    level = np.where(factors[:, 0] > 1.0, 4, rng.integers(0, 5, n))
    columns = [(level == j).astype(float) for j in range(1, 5)]
    for share in (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.005, 0.995, 0.9):
        tendency = 0.6 * factors @ rng.standard_normal(3) + rng.standard_normal(n)
        columns.append((tendency > np.quantile(tendency, 1.0 - share)).astype(float))
    columns.append(np.where(rng.random(n) < 0.93, 0.0, rng.lognormal(7.0, 1.5, n)))
    columns.append(np.where(rng.random(n) < 0.6, 0.0, rng.lognormal(5.0 + 0.3 * factors[:, 1], 1.0)))
    columns.append(np.round(40.0 + 12.0 * factors[:, 0] + 8.0 * rng.standard_normal(n)))
    columns.append(2000.0 + np.round(10.0 * rng.random(n)))
    columns.append(rng.lognormal(10.0 + 0.5 * factors[:, 0], 0.7))
    columns.append(columns[-1] * np.exp(0.3 * rng.standard_normal(n)))
    columns.append(rng.gamma(0.5, 2.0, n) + np.maximum(factors[:, 2], 0.0))
    return np.column_stack(columns), factors


def _survey(n: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Columns, a linear signal of variance one in their winsorised values, and the spread of the noise."""
    X, factors = _survey_columns(n, rng)
    Z = np.clip((X - X.mean(axis=0)) / X.std(axis=0), -4.0, 4.0)
    signal = Z @ (rng.standard_normal(X.shape[1]) * (rng.random(X.shape[1]) < 0.6))
    return X, signal / signal.std(), np.exp(0.175 * Z[:, 15] + 0.2 * factors[:, 0])


def survey_score(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """A target of kurtosis about 25, both signs."""
    X, signal, spread = _survey(n, rng)
    return X, 0.42 * signal + spread * (rng.gamma(0.35, 1.0, n) - 0.35) / math.sqrt(0.35)


def survey_cost(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """A rounded cost, zero for many."""
    X, signal, spread = _survey(n, rng)
    noise = spread * (rng.lognormal(0.0, 0.85, n) - math.exp(0.36)) / 1.7
    return X, np.maximum(0.0, np.round(500.0 * (0.45 * signal + noise + 0.3)))


def payments(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Credit cards: a limit, five near-collinear bills, five payments with zeros and long tails, five delays."""
    wealth, thrift = rng.standard_normal(n), rng.standard_normal(n)
    limit = np.round(np.exp(11.6 + 0.8 * wealth), -4)
    bill = [limit * np.clip(0.35 - 0.25 * thrift + 0.2 * rng.standard_normal(n), -0.1, 1.1)]
    for _ in range(4):
        bill.append(0.93 * bill[-1] + 0.05 * limit * rng.standard_normal(n))
    pay = []
    for k in range(6):
        amount = np.maximum(bill[min(k, 4)], 500.0) * rng.lognormal(-2.9 + 0.7 * thrift, 1.1)
        pay.append(np.where(rng.random(n) < 0.18, 0.0, np.round(amount)))
    delay = [np.round(np.clip(-0.3 - 0.8 * thrift + rng.standard_normal(n), -2.0, 8.0)) for _ in range(5)]
    age = np.round(np.clip(35.0 + 9.0 * rng.standard_normal(n), 21.0, 79.0))
    return np.column_stack([limit, age, *delay, *bill, *pay[1:]]), pay[0]


def visits(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Medical spending with an R^2 of a few hundredths: a fifth zeros, log-normal otherwise."""
    plan = rng.choice([0.0, 3.2, 4.0, 4.6], n, p=[0.4, 0.2, 0.15, 0.25])
    age, dummies = rng.gamma(2.2, 12.0, n), rng.random((n, 7)) < (0.5, 0.4, 0.2, 0.18, 0.36, 0.08, 0.015)
    income, size = np.log(rng.lognormal(8.9, 0.9, n)), np.log(rng.integers(1, 9, n))
    disease, limited = rng.gamma(2.5, 4.5, n), (rng.random(n) < 0.12) * rng.random(n)
    X = np.column_stack([plan, plan * (rng.random(n) < 0.5), income, size, age, disease, limited, dummies])
    level = 3.3 - 0.15 * plan + 0.02 * age + 0.05 * disease + 0.8 * limited + dummies[:, 6]
    return X, np.where(rng.random(n) < 0.22, 0.0, np.round(np.exp(level + 1.4 * rng.standard_normal(n)), 2))


TWINS: dict[str, Callable[[int, np.random.Generator], tuple[Array, Array]]] = {
    "twin: survey score": survey_score,
    "twin: survey cost": survey_cost,
    "twin: payments": payments,
    "twin: visits": visits,
}


def twin(name: str, seed: int, rows: int = 10_000) -> Split:
    """A fresh table of the kind, and its split."""
    X, y = TWINS[name](rows, np.random.default_rng([seed, 600, list(TWINS).index(name)]))
    return split(X, y, seed)


# -------------------------------------------------------------------------------------------------------- real tables

REGRESSIONS = ("credit PAY_AMT1", "credit PAY_AMT1, dummies", "randhie meddol", "adult hours", "adult capital-gain")
COUNTS = ("randhie mdvis", "randhie totadm", "randhie meddol", "credit PAY_AMT1", "adult capital-gain")
CLASSIFICATIONS = ("credit default", "adult income, 6 numeric", "adult income, one-hot")

_NUMERIC = ["age", "education-num", "capital-gain", "capital-loss", "fnlwgt", "hours-per-week"]
_RANDHIE = ["logc", "idp", "lpi", "fmde", "linc", "lnum", "xage", "female", "child", "fchild", "black", "educdec"]
_RANDHIE += ["physlm", "disea", "hlthg", "hlthf", "hlthp"]
_CREDIT = ["LIMIT_BAL", "AGE"] + [f"{name}{k}" for name in ("PAY_", "BILL_AMT", "PAY_AMT") for k in range(2, 7)]


@cache
def table(folder: str, name: str) -> tuple[Array, Array]:
    """Features and target of a real table."""
    import pandas as pd

    def encoded(frame: pd.DataFrame, numeric: list[str], factors: list[str]) -> Array:
        dummies = pd.get_dummies(frame[factors].astype(str), drop_first=True) if factors else frame[[]]
        return np.column_stack([frame[numeric].to_numpy(float), dummies.to_numpy(float)])

    file = {"c": "credit_default", "r": "randhie", "a": "adult"}[name[0]]
    frame = pd.read_csv(Path(folder) / f"{file}.csv.gz")
    if name.startswith("randhie"):
        target = name.split()[1]
        frame = frame.drop_duplicates("zper").dropna(subset=[*_RANDHIE, target])
        return encoded(frame, _RANDHIE, []), frame[target].to_numpy(float)
    if name == "credit default":
        features = [c for c in frame if c != "default" and c.lower() != "id"]
        return encoded(frame, features, []), frame["default"].to_numpy(float)
    if name.startswith("credit"):
        factors = ["SEX", "EDUCATION", "MARRIAGE"] if "dummies" in name else []
        return encoded(frame, _CREDIT, factors), frame["PAY_AMT1"].to_numpy(float)
    if name == "adult hours":
        factors = ["workclass", "marital-status", "relationship", "sex"]
        return encoded(frame, _NUMERIC[:5], factors), frame["hours-per-week"].to_numpy(float)
    if name == "adult capital-gain":
        numeric = ["age", "education-num", "hours-per-week", "fnlwgt", "capital-loss"]
        return encoded(frame, numeric, ["marital-status", "sex", "race"]), frame["capital-gain"].to_numpy(float)
    factors = ["workclass", "marital-status", "occupation", "relationship", "race", "sex"]
    X = encoded(frame, _NUMERIC, factors if "one-hot" in name else [])
    return X, (frame["income"] == ">50K").to_numpy(float)
