r"""Linear designs that nobody chose: features, noise, sizes and strength of the signal are drawn.

The designs of `designs` have noise as large as the signal or larger. Here one of eleven kinds of features meets one of
six kinds of noise with a standard deviation of a twentieth of the signal's to three times as much, so what is lost by
truncated features and unfinished steps shows, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import designs
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Generator = np.random.Generator
FRESH_ROWS = 8000
NOISES: dict[str, Callable[[int, Generator], Array]] = {
    "normal": lambda n, rng: rng.standard_normal(n),
    "t2.2": lambda n, rng: rng.standard_t(2.2, n) / 2.0,
    "log-normal": lambda n, rng: (rng.lognormal(0.0, 1.0, n) - math.exp(0.5)) / 2.16,
    "Laplace": lambda n, rng: rng.laplace(size=n) / math.sqrt(2.0),
    "exponential": lambda n, rng: rng.exponential(size=n) - 1.0,
    "uniform": lambda n, rng: rng.uniform(-1.0, 1.0, n) * math.sqrt(3.0),
}
INDEPENDENT: dict[str, Callable[[int, int, Generator], Array]] = {
    "normal": lambda n, d, rng: rng.standard_normal((n, d)),
    "t3": lambda n, d, rng: rng.standard_t(3, (n, d)) / math.sqrt(3.0),
    "log-normal": lambda n, d, rng: rng.lognormal(0.0, 1.0, (n, d)),
    "uniform": lambda n, d, rng: rng.uniform(0.0, 10.0, (n, d)),
    "exponential": lambda n, d, rng: rng.exponential(3.0, (n, d)),
    "coins": lambda n, d, rng: (rng.random((n, d)) < 0.5).astype(float),
    "counts": lambda n, d, rng: rng.poisson(2.0, (n, d)).astype(float),
    "four zeros of five": lambda n, d, rng: np.where(rng.random((n, d)) < 0.8, 0.0, rng.lognormal(0.0, 1.0, (n, d))),
}


def _mixed(n: int, d: int, rng: Generator) -> Array:
    kinds = list(INDEPENDENT.values())
    return np.hstack([kinds[j % len(kinds)](n, 1, rng) * 10.0 ** ((5 * j) % 7 - 3) for j in range(d)])


def _factors(n: int, d: int, rng: Generator) -> Array:
    return rng.standard_normal((n, 2)) @ rng.standard_normal((2, d)) + 0.5 * rng.standard_normal((n, d))


FEATURES = {
    **INDEPENDENT,
    "mixed, scales 1e±3": _mixed,
    "two factors": _factors,
    "AR(.9)": lambda n, d, rng: designs.features("correlated", n, d, rng),
}


@dataclass(frozen=True)
class RandomDesign:
    """A kind of features and of noise, the noise's standard deviation, size, budget and level."""

    number: int
    features: str
    noise: str
    sd: float
    rows: int
    columns: int
    epsilon: float
    level: float

    @staticmethod
    def drawn(
        number: int, rows: tuple[int, ...], columns: tuple[int, ...], epsilons: tuple[float, ...]
    ) -> RandomDesign:
        """Draw a design; a number is always the same one."""
        rng = np.random.default_rng([number, 600])
        features, noise = (str(rng.choice(list(names))) for names in (FEATURES, NOISES))
        sizes = int(rng.choice(rows)), int(rng.choice(columns))
        sd, level = float(rng.choice((0.05, 0.3, 1.0, 3.0))), float(rng.choice((0.0, 1.0, 10.0, -3.0)))
        return RandomDesign(number, features, noise, sd, *sizes, float(rng.choice(epsilons)), level)

    def task(self, seed: int) -> designs.Task:
        """Draw rows: a signal of variance 1 in a random direction, every column counts alike."""
        rng = np.random.default_rng([seed, 601, self.number])
        # Loadings of factors, and all else that is random about columns, are the same for training and fresh rows.
        both = FEATURES[self.features](self.rows + FRESH_ROWS, self.columns, rng)
        X, fresh = both[: self.rows], both[self.rows :]
        covariance = np.atleast_2d(np.cov(fresh.T))
        w = rng.standard_normal(self.columns) / np.sqrt(np.diag(covariance))
        w /= math.sqrt(w @ covariance @ w)
        truth, middle = self.level + (fresh - fresh.mean(axis=0)) @ w, fresh.mean(axis=0) @ w
        y = self.level + X @ w - middle + self.sd * NOISES[self.noise](self.rows, rng)
        return designs.Task(X, y, fresh, truth)
