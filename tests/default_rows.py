"""Row objects of the default, one of every kind, and hostile rows: for the tests of their compiled passes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tailguard.default import rows as r
from tailguard.default.columns import Columns
from tailguard.default.whitening import Design

D = 3
HOSTILE = [0.0, -0.0, 5e-324, 1e-310, 1e-160, 1e160, 1e308, -1e308, np.inf, -np.inf, np.nan, 1.0, -2.0, 0.75]


def table(n: int, seed: int, d: int = D, dtype=np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Ordinary and hostile rows in random order, and targets."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_t(2.0, (n, d)), rng.standard_t(1.5, n)
    for values in (X, y):
        wild = rng.random(values.shape) < 0.2
        values[wild] = rng.choice(np.array(HOSTILE), wild.sum())
    labels = rng.random(n) < 0.3
    y[labels] = rng.integers(0, 3, labels.sum())
    with np.errstate(over="ignore"):
        X = X.astype(dtype)
    X.flags.writeable = y.flags.writeable = False
    return X, y


def design(d: int = D, intercept: bool = True, seed: int = 1) -> Design:
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.normal(size=d))
    columns = Columns(rng.normal(size=d), 3.0 * scale, rng.normal(size=d), scale, np.ones(d, bool))
    return Design(columns, 0.1 * rng.normal(size=d), rng.normal(size=(d, d)), np.eye(d), intercept, 1.5, 2.5)


TARGET = r.Target(0.3, 1.7, 0.2, 40.0)
COUNTS = r.Target(scale=1.3, low=0.0, high=9.0)
GRID = 2.0 ** np.arange(-3.0, 4.01, 0.5)
STRETCHED = r.Clip(2.0, 0.5, 0.75)


def vectors(d: int = D) -> dict[str, tuple[r.Vectors, float]]:
    """Vectors and the norm that they have at most, by design."""
    rng = np.random.default_rng(2)
    plain, theta = design(d), 0.5 * rng.normal(size=d + 1)
    line, alone = plain.fitted(theta), r.Fitted(None, np.zeros(d), np.zeros(d), 0.4)
    mean = plain.fitted(theta, 0.1, 5.0)
    every, some = tuple(range(d)), tuple(range(1, d))
    other = plain.line(rng.normal(size=d))
    ending = replace(plain, columns=replace(plain.columns, ends=np.where(np.arange(d) == 1, np.inf, 1.0)))
    place = np.where((np.arange(d) == d - 1) & (d > 2), ending.columns.lower - 0.5, ending.columns.centre)
    outside = replace(ending, columns=replace(ending.columns, mean=place))
    return {
        "moments": (r.ColumnMoments("features", every, (0.2,) * d, (2.0,) * d), math.sqrt(d)),
        "moments of some": (r.ColumnMoments("features", some, (0.0,) * len(some), (4.0,) * len(some)), math.sqrt(d)),
        "moments of target": (r.ColumnMoments("target", (0,), (0.1,), (2.0,)), 1.0),
        "squares of columns": (r.ColumnMoments("features", every, (0.3,) * d, (2.0,) * d, False), 0.5 * math.sqrt(d)),
        "moments of counts": (r.ColumnMoments("positive target", (0,), (0.0,), (2.0,)), 1.0),
        "score": (r.Score(plain, theta, TARGET, r.Clip(1.2)), 1.5 * 1.2),
        "score, stretched": (r.Score(plain, theta, TARGET, STRETCHED), 1.5 * STRETCHED.bound),
        "score, origin": (r.Score(design(d, False), theta, TARGET, r.Clip(1.2)), 1.5 * 1.2),
        "score of counts": (r.Score(plain, theta, COUNTS, r.Clip(2.0), 0.1, 5.0), 1.5 * 2.0),
        "logistic": (r.LogisticScore(plain, theta), 1.5),
        "multinomial": (r.MultinomialScore(plain, rng.normal(size=(3, d + 1))), 1.5),
        "widening": (r.Widening(plain, theta, TARGET, 1.4), 1.5 * 0.7),
        "square": (r.Square(line, TARGET, 3.0), 4.5),
        "uneven": (r.Uneven(line, TARGET, 1.3, 0.8), r.Uneven.length),
        "beyond": (r.Beyond(ending.fitted(theta), TARGET, 2.5), 2.5),
        "beyond, mean outside": (r.Beyond(outside.fitted(theta), TARGET, 2.5), 2.5),
        "instrument": (r.Instrument(plain.line(theta[1:]), 0.8), math.sqrt(5.0)),
        "product": (r.Product(line, TARGET, other, 0.8, STRETCHED, 0.3), STRETCHED.bound),
        "product with itself": (r.Product(line, TARGET, plain.line(theta[1:]), 0.8, STRETCHED, 0.3), STRETCHED.bound),
        "product of counts": (r.Product(mean, COUNTS, other, 0.8, STRETCHED, 0.3), STRETCHED.bound),
        "level": (r.Level(line, TARGET, r.Clip(2.0)), 2.0),
        "level alone": (r.Level(alone, TARGET, STRETCHED), STRETCHED.bound),
        "squared line": (r.SquaredLine(plain.line(theta[1:]), 0.8), math.sqrt(1.25)),
        "bounded products": (r.BoundedProducts(plain.line(theta[1:]), 0.2, 1.1, 0.8), math.sqrt(2.0)),
        "level of counts": (r.Level(mean, COUNTS, STRETCHED), STRETCHED.bound),
        "level of counts alone": (r.Level(replace(alone, largest=5.0), COUNTS, r.Clip(2.0)), 2.0),
        "prevalence": (r.Prevalence(), 0.5),
        "membership": (r.Membership(3), math.sqrt(2.0 / 3.0)),
    }


def counts(d: int = D) -> dict[str, r.ColumnCounts | r.NearCounts | r.Sizes]:
    plain, theta = design(d), 0.5 * np.random.default_rng(3).normal(size=d + 1)
    every = tuple(range(d))
    alone = r.Fitted(None, np.zeros(d), np.zeros(d), 0.4)
    return {
        "first look": r.ColumnCounts("features", every, (0.0,) * d),
        "first look at target": r.ColumnCounts("target", (0,), (0.0,)),
        "first look at counts": r.ColumnCounts("positive target", (0,), (0.0,)),
        "later look": r.ColumnCounts("features", every, (0.3,) * d, tuple(float(k - 1) for k in range(d))),
        "later look, far away": r.ColumnCounts("features", (0,), (0.0,), (-990.0,)),
        "near look": r.NearCounts("features", every, (0.3,) * d, tuple(2.0 ** (k - 4) for k in range(d))),
        "near look at counts": r.NearCounts("positive target", (0,), (1.0,), (0.25,)),
        "sizes": r.Sizes(r.Residual(plain.fitted(theta), TARGET), tuple(GRID)),
        "sizes of counts": r.Sizes(r.Residual(plain.fitted(theta, 0.1, 5.0), COUNTS), tuple(GRID)),
        "sizes alone": r.Sizes(r.Residual(alone, TARGET), tuple(GRID)),
    }
