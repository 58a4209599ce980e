r"""Synthetic designs with a known truth: rows, targets and what a prediction costs beyond the best one.

Linear designs have ``y = 1 + <w, z> + e`` with ``Var <w, z> = 1``, so predicting the mean costs .5. Two risks:

* **slope** risk, ``.5 Var(prediction - truth)`` over fresh rows: blind to the intercept;
* **full** risk, ``.5 E(prediction - truth)^2``: the intercept counts.

The direction w is random, so it is not aligned with the skew of the features. Every draw has its own seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

Array = NDArray[np.float64]
Generator = np.random.Generator

FRESH_ROWS = 20_000

# name: (features, noise, what the tables call it)
LINEAR = {
    "nn": ("normal", "normal", "normal x, normal noise"),
    "nl": ("normal", "lognormal", "normal x, log-normal noise"),
    "tt": ("t3", "t2.2", "t3 x, t2.2 noise"),
    "ll": ("lognormal", "lognormal", "log-normal x and noise"),
    "out": ("normal", "normal", "1 % of y at 1e6"),
    "corr": ("correlated", "lognormal", "AR(.9) x, log-normal noise"),
    "het": ("normal", "het", "heteroscedastic, skewed"),
    "shift": ("normal", "lognormal", "x shifted by 1000 sd"),
    "scale": ("normal", "lognormal", "columns scaled by 1e±6"),
    "bin": ("dummies", "lognormal", "dummies .5 to .003"),
}


def prevalences(d: int) -> Array:
    """Shares of ones of the dummy columns, from common to rare."""
    return np.geomspace(0.5, 0.003, d)


def correlation(kind: str, d: int) -> Array:
    """Covariance of the features of a kind."""
    if kind == "correlated":
        return np.asarray(0.9 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d))))
    if kind == "dummies":
        return np.diag(prevalences(d) * (1.0 - prevalences(d)))
    return np.eye(d)


def features(kind: str, n: int, d: int, rng: Generator) -> Array:
    """Draw features, of mean 0 and variance 1 but for dummies."""
    if kind == "normal":
        return rng.standard_normal((n, d))
    if kind == "t3":
        return rng.standard_t(3, (n, d)) / math.sqrt(3.0)
    if kind == "lognormal":
        return (rng.lognormal(0.0, 1.0, (n, d)) - math.exp(0.5)) / math.sqrt(math.e * (math.e - 1.0))
    if kind == "correlated":
        return rng.standard_normal((n, d)) @ np.linalg.cholesky(correlation(kind, d)).T
    return (rng.random((n, d)) < prevalences(d)).astype(float)


def direction(kind: str, d: int, rng: Generator) -> Array:
    """Draw coefficients with ``Var <w, z> = 1``; those of dummies are larger the rarer the dummy."""
    covariance = correlation(kind, d)
    w = rng.standard_normal(d)
    if kind == "dummies":
        w /= np.sqrt(np.diag(covariance))
    return np.asarray(w / math.sqrt(w @ covariance @ w))


def centred_lognormal(n: int, mu: float, rng: Generator) -> Array:
    """Log-normal(mu, 1) noise of mean zero."""
    return rng.lognormal(mu, 1.0, n) - math.exp(mu + 0.5)


@dataclass(frozen=True)
class Task:
    """Training rows, and fresh rows with the best prediction for them."""

    X: Array
    y: Array
    fresh: Array
    truth: Array

    def slope_risk(self, prediction: Array) -> float:
        """Half the variance of the error."""
        return 0.5 * float(np.var(self._error(prediction)))

    def full_risk(self, prediction: Array) -> float:
        """Half the mean square of the error."""
        return 0.5 * float(np.mean(self._error(prediction) ** 2))

    def risks(self, prediction: Array) -> tuple[float, float]:
        """Slope and full risk."""
        return self.slope_risk(prediction), self.full_risk(prediction)

    def _error(self, prediction: Array) -> Array:
        return np.nan_to_num(np.clip(prediction - self.truth, -1e150, 1e150), nan=1e150)


def linear_task(name: str, n: int, d: int, seed: int) -> Task:
    """Draw a linear design.

    "shift" and "scale" have the rows of "nl" with the same seed, moved and scaled; "out" has those of "nn" with one
    target in a hundred replaced: their risks can be compared seed by seed.
    """
    kind, noise, _ = LINEAR[name]
    base = {"shift": "nl", "scale": "nl", "out": "nn"}.get(name, name)
    rng = np.random.default_rng([seed, list(LINEAR).index(base), n, d])
    w = direction(kind, d, rng)
    Z, fresh = features(kind, n, d, rng), features(kind, FRESH_ROWS, d, rng)
    if noise == "normal":
        e = rng.standard_normal(n)
    elif noise == "t2.2":
        e = rng.standard_t(2.2, n)
    elif noise == "lognormal":
        e = centred_lognormal(n, 1.0, rng)
    else:
        across = rng.standard_normal(d)
        e = centred_lognormal(n, 0.0, rng) * np.exp(0.3 * Z @ (across / np.linalg.norm(across)))
    y, truth = 1.0 + Z @ w + e, 1.0 + fresh @ w
    if name == "out":
        y[rng.random(n) < 0.01] = 1e6
    shift = 1000.0 * rng.choice([-1.0, 1.0], d) if name == "shift" else np.zeros(d)
    scale = 10.0 ** rng.choice([-6.0, 6.0], d) if name == "scale" else np.ones(d)
    return Task(shift + scale * Z, y, shift + scale * fresh, truth)


def collinear_task(correlation: float, n: int, d: int, seed: int) -> Task:
    """Normal features and noise; the first two columns have a correlation, and half of the signal is their difference.

    The other half is in the remaining columns.
    """
    rng = np.random.default_rng([seed, n, d, round(1e6 * correlation)])
    w = np.append([1.0, -1.0] / np.sqrt(2.0 * (1.0 - correlation)), rng.standard_normal(d - 2))
    w[2:] /= np.linalg.norm(w[2:])

    def draw(rows: int) -> Array:
        Z = rng.standard_normal((rows, d))
        Z[:, 1] = correlation * Z[:, 0] + math.sqrt(1.0 - correlation**2) * Z[:, 1]
        return Z

    Z, fresh = draw(n), draw(FRESH_ROWS)
    line, truth = Z @ w / math.sqrt(2.0), fresh @ w / math.sqrt(2.0)
    return Task(Z, 1.0 + line + rng.standard_normal(n), fresh, 1.0 + truth)


@dataclass(frozen=True)
class Labels:
    """Training rows with labels, and fresh rows with their true probabilities."""

    X: Array
    y: NDArray[np.int64]
    fresh: Array
    probabilities: Array

    def excess(self, probabilities: Array) -> float:
        """Expected log-loss beyond that of the truth."""
        with np.errstate(divide="ignore"):
            loss = -np.sum(self.probabilities * np.log(np.maximum(probabilities, 1e-300)), axis=1)
            best = -np.sum(self.probabilities * np.log(np.maximum(self.probabilities, 1e-300)), axis=1)
        return float(np.mean(loss - best))

    def accuracy(self, probabilities: Array) -> float:
        """Expected share of right labels."""
        return float(np.mean(self.probabilities[np.arange(len(self.fresh)), np.argmax(probabilities, axis=1)]))

    def constant(self) -> Array:
        """Probabilities of the best constant prediction."""
        return np.tile(self.probabilities.mean(axis=0), (len(self.fresh), 1))


def logistic_task(kind: str, n: int, d: int, seed: int, level: float = -0.5, sd: float = 2.0) -> Labels:
    """Two classes, log-odds of such a spread about a level."""
    rng = np.random.default_rng([seed, 100, n, d])
    w = sd * direction(kind, d, rng)
    X, fresh = features(kind, n, d, rng), features(kind, FRESH_ROWS, d, rng)
    level = level - float(prevalences(d) @ w if kind == "dummies" else 0.0)
    y = (rng.random(n) < expit(X @ w + level)).astype(int)
    p = expit(fresh @ w + level)
    return Labels(X, y, fresh, np.column_stack([1.0 - p, p]))


def multinomial_task(
    classes: int, n: int, d: int, seed: int, kind: str = "normal", spread: float = 0.5, size: float = 2.0
) -> Labels:
    """Several classes, their levels of such a spread; ``size`` is the mean square of a class's log-odds."""
    rng = np.random.default_rng([seed, 200, n, d])
    W, level = rng.standard_normal((classes, d)) * math.sqrt(size / d), spread * rng.standard_normal(classes)
    X, fresh = features(kind, n, d, rng), features(kind, FRESH_ROWS, d, rng)
    if kind == "dummies":
        W = W / np.sqrt(np.diag(correlation(kind, d)))
        level = level - W @ prevalences(d)
    p = softmax(X @ W.T + level, axis=1)
    y = (rng.random(n)[:, None] > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
    return Labels(X, y, fresh, np.asarray(softmax(fresh @ W.T + level, axis=1)))


# name: (mean, spread of what multiplies it, what the tables call it)
COUNTS = {
    "poisson": (3.0, "none", "mean 3"),
    "overdispersed": (3.0, "gamma", "mean 3, overdispersed (gamma)"),
    "rare": (0.2, "none", "mean .2: four zeros in five rows"),
    "large": (1000.0, "gamma", "mean 1000, overdispersed (gamma)"),
    "heavy": (20.0, "lognormal", "mean 20, long tail (log-normal)"),
}
COUNT_FEATURES = ("normal", "t3", "lognormal", "correlated", "dummies")


def counts_task(count: str, kind: str, n: int, d: int, seed: int) -> Task:
    """Counts of mean ``m exp(.5 <w, x>)``, the exponent within 2.5; the truth is the mean."""
    rng = np.random.default_rng([seed, 310, n, d, list(COUNTS).index(count), COUNT_FEATURES.index(kind)])
    mean, spread, _ = COUNTS[count]
    w, X = 0.5 * direction(kind, d, rng), features(kind, n + FRESH_ROWS, d, rng)
    centred = X - prevalences(d) if kind == "dummies" else X
    truth = mean * np.exp(np.clip(centred @ w, -2.5, 2.5))
    rate = truth[:n]
    if spread == "gamma":
        rate = rate * rng.gamma(0.7, 1.0 / 0.7, n)
    if spread == "lognormal":
        rate = rate * rng.lognormal(-0.72, 1.2, n)
    return Task(X[:n], rng.poisson(rate).astype(float), X[n:], truth[n:])


def _mixed(share: float, few: Array, many: Array | float, rng: Generator) -> Array:
    return np.where(rng.random(len(few)) < share, few, many)


# name: (draw, true mean)
MEANS: dict[str, tuple[Callable[[int, Generator], Array], float]] = {
    "normal about 50, sd 10": (lambda n, rng: rng.normal(50.0, 10.0, n), 50.0),
    "years, 1950 to 2020": (lambda n, rng: np.round(rng.uniform(1950.0, 2020.0, n)), 1985.0),
    "exponential": (lambda n, rng: rng.exponential(1.0, n), 1.0),
    "log-normal(0, 1)": (lambda n, rng: rng.lognormal(0.0, 1.0, n), math.exp(0.5)),
    "log-normal(7, 2)": (lambda n, rng: rng.lognormal(7.0, 2.0, n), math.exp(9.0)),
    "Pareto, power 1.5": (lambda n, rng: rng.pareto(1.5, n), 2.0),
    "amounts of both signs": (
        lambda n, rng: rng.choice([-1.0, 1.0], n, p=[0.3, 0.7]) * rng.lognormal(8.0, 1.5, n),
        0.4 * math.exp(9.125),
    ),
    "counts of mean 3": (lambda n, rng: rng.poisson(3.0, n).astype(float), 3.0),
    "one in two": (lambda n, rng: (rng.random(n) < 0.5).astype(float), 0.5),
    "19 in 20": (lambda n, rng: (rng.random(n) < 0.95).astype(float), 0.95),
    "one in 20": (lambda n, rng: (rng.random(n) < 0.05).astype(float), 0.05),
    "zeros, one in 20 log-normal(8, 1)": (
        lambda n, rng: _mixed(0.05, rng.lognormal(8.0, 1.0, n), 0.0, rng),
        0.05 * math.exp(8.5),
    ),
    "100, one in five 200": (lambda n, rng: np.where(rng.random(n) < 0.2, 200.0, 100.0), 120.0),
    "normal about 25, sd 5, one in ten missing": (
        lambda n, rng: np.where(rng.random(n) < 0.1, np.nan, rng.normal(25.0, 5.0, n)),
        25.0,
    ),
}


def column(name: str, n: int, seed: int) -> Array:
    """Draw a column whose mean is known."""
    return MEANS[name][0](n, np.random.default_rng([seed, 700, n, list(MEANS).index(name)]))


@dataclass(frozen=True)
class RandomTable:
    """A table of any kind and scale, and an epsilon."""

    X: Array
    y: Array
    epsilon: float


def random_table(seed: int) -> RandomTable:
    """Draw 200 to 10,000 rows of 1 to 24 columns, seven kinds, some collinear, scales 1e±280; epsilon .05 to 10."""
    rng = np.random.default_rng([seed, 400])
    n, d = int(10 ** rng.uniform(2.3, 4.0)), int(rng.integers(1, 25))
    columns: list[Array] = []
    for _ in range(d):
        column = _column(int(rng.integers(0, 7)), n, rng)
        if columns and rng.random() < 0.2:
            column = 0.1 * column / (np.std(column) + 1e-9) + columns[-1] / (np.std(columns[-1]) + 1e-300)
        columns.append(column)
    Z = np.column_stack(columns)
    exponent = rng.uniform(-280.0, 280.0, d) if rng.random() < 0.3 else rng.uniform(-6.0, 6.0, d)
    X = (Z + (rng.random(d) < 0.2) * 10 ** rng.uniform(0.0, 4.0, d)) * 10.0**exponent
    standard = np.clip((Z - Z.mean(axis=0)) / (Z.std(axis=0) + 1e-12), -5.0, 5.0)
    noise = (rng.standard_normal(n), rng.standard_t(1.8, n), centred_lognormal(n, 1.0, rng))[rng.integers(0, 3)]
    y = standard @ rng.standard_normal(d) / math.sqrt(d) + noise
    y = (y + (rng.random() < 0.2) * 100.0) * 10.0 ** rng.uniform(-6.0, 6.0)
    return RandomTable(X, y, float(10 ** rng.uniform(-1.3, 1.0)))


def _column(kind: int, n: int, rng: Generator) -> Array:
    z = rng.standard_normal(n)
    if kind == 0:
        return z
    if kind == 1:
        return rng.standard_t(1.5, n)
    if kind == 2:
        return rng.lognormal(0.0, 2.0, n)
    if kind == 3:
        return (rng.random(n) < 10 ** rng.uniform(-3.5, -0.3)).astype(float)
    if kind == 4:
        return np.where(rng.random(n) < 0.95, 0.0, rng.lognormal(0.0, 2.0, n))
    if kind == 5:
        return rng.integers(0, 5, n).astype(float)
    return 1.0 + 1e-9 * z
