"""Fits of tables that are drawn as the planner assumes, with the truth known: what it is checked against.

Features are independent standard normals and the line is the same in all of them. Noise is normal ("light") or
log-normal(0, 1) about its mean ("heavy"), scaled to the assumed R². Fits are seeded, so that a run can be repeated: the
noise has the distribution of a private fit, and the tables are synthetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard.planning.formula import Situation, log_odds_level

Array = NDArray[np.float64]
FRESH_ROWS = 4000


@dataclass(frozen=True)
class Errors:
    """Of one fit.

    Parameters
    ----------
    total : float
        In the unit of the plan.
    level : float
        The part of it that is due to the level; 0 where it cannot be told apart.
    """

    total: float
    level: float


def simulate(situation: Situation, seed: int, threads: int | None = 1) -> Errors:
    """Draw a table, fit it, and measure the error.

    Parameters
    ----------
    situation : Situation
    seed : int
        Of the table and of the noise.
    threads : int, optional
        Of the kernels.
    """
    s = situation
    rng = np.random.default_rng([seed, s.rows, s.features, round(1e6 * s.epsilon)])
    options: dict[str, Any] = {"random_state": int(rng.integers(2**31)), "threads": threads}
    if s.model == "mean":
        from tailguard.api import private_mean

        value = private_mean(1.0 + noise(s.tails, s.rows, rng), s.epsilon, s.delta, **options).value
        return Errors((value - 1.0) ** 2, (value - 1.0) ** 2)
    X, fresh = rng.standard_normal((s.rows, s.features)), rng.standard_normal((FRESH_ROWS, s.features))
    if s.model == "logistic":
        return _logistic(s, X, fresh, rng, options)
    from tailguard.linear_model import PrivateHuberRegressor, PrivateRidge

    w = math.sqrt(s.r2 / s.features)
    y = 1.0 + w * X.sum(axis=1) + math.sqrt(1.0 - s.r2) * noise(s.tails, s.rows, rng)
    estimator = PrivateRidge if s.model == "ridge" else PrivateHuberRegressor
    error = estimator(s.epsilon, s.delta, **options).fit(X, y).predict(fresh) - (1.0 + w * fresh.sum(axis=1))
    return Errors(float(np.mean(error**2)), float(np.mean(error)) ** 2)


def _logistic(s: Situation, X: Array, fresh: Array, rng: np.random.Generator, options: dict[str, Any]) -> Errors:
    from tailguard.linear_model import PrivateLogisticRegression

    w, level = s.log_odds_sd / math.sqrt(s.features), log_odds_level(s.log_odds_sd, s.positive_rate)

    def probability(rows: Array) -> Array:
        return np.asarray(1.0 / (1.0 + np.exp(-(level + w * rows.sum(axis=1)))))

    y = (rng.random(s.rows) < probability(X)).astype(int)
    model = PrivateLogisticRegression(s.epsilon, s.delta, classes=[0, 1], **options).fit(X, y)
    p, q = probability(fresh), np.clip(model.predict_proba(fresh)[:, 1], 1e-12, 1.0 - 1e-12)
    return Errors(float(np.mean(p * np.log(p / q) + (1.0 - p) * np.log((1.0 - p) / (1.0 - q)))), 0.0)


def noise(tails: str, n: int, rng: np.random.Generator) -> Array:
    """Draw noise of mean 0 and variance 1."""
    if tails == "light":
        return rng.standard_normal(n)
    return (rng.lognormal(0.0, 1.0, n) - math.exp(0.5)) / math.sqrt(math.e * (math.e - 1.0))
