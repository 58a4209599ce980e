"""Samplers: which rows a step sees.

A sampler owns the three things that must agree for the accounting to be true: how the rows of a step are drawn, the
**public** number its sum is divided by, and the event that prices the step under the relation that the draw supports.

================  ================  ==================  =====================================
sampler           rows of a step    divisor             relation
================  ================  ==================  =====================================
`FullBatch`       all               n                   replace-one (default) or add-remove
`PoissonSample`   each with rate q  q n, never the      add-remove; replace-one through the
                                    realised size       doubling of its (epsilon, delta)
================  ================  ==================  =====================================

Shuffled passes and fixed-size batches are not here: priced as Poisson samples they would claim what is not true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tailguard.privacy import (
    Budget,
    Event,
    Gaussian,
    NoiseSource,
    PoissonGaussian,
    Relation,
    gaussian_mu,
    poisson_noise_multiplier,
)


class Sampler(Protocol):
    """What the loop asks of a sampler; noise multipliers are sd over the sensitivity under `sensitivity_relation`."""

    @property
    def relation(self) -> Relation:
        """Which tables are neighbours."""

    @property
    def sensitivity_relation(self) -> Relation:
        """Relation whose sensitivity the noise multiplier refers to."""

    def divisor(self, n: int) -> float:
        """Public number that the sum over the rows of a step is divided by."""

    def rows(self, n: int, noise: NoiseSource) -> NDArray[np.int64] | None:
        """Rows of one step, None for all of them."""

    def calibrate(self, budget: Budget, steps: int, samples: int) -> float:
        """Smallest noise multiplier with which ``steps`` steps keep the budget."""

    def event(self, noise_multiplier: float, steps: int, samples: int, label: str) -> Event:
        """Return the privacy event of ``steps`` steps with ``samples`` noise draws in all."""


@dataclass(frozen=True)
class FullBatch:
    """Every step sees every row."""

    relation: Relation = "replace-one"

    @property
    def sensitivity_relation(self) -> Relation:
        """The relation itself."""
        return self.relation

    def divisor(self, n: int) -> float:
        """Return n."""
        return float(n)

    def rows(self, n: int, noise: NoiseSource) -> None:
        """All."""

    def calibrate(self, budget: Budget, steps: int, samples: int) -> float:
        """Exact composition of Gaussians: mu-GDP."""
        return 1.0 / gaussian_mu(budget, steps, samples)

    def event(self, noise_multiplier: float, steps: int, samples: int, label: str) -> Event:
        """``steps`` Gaussian releases of mu = 1/noise_multiplier."""
        return Gaussian(1.0 / noise_multiplier, steps, samples, relation=self.relation, label=label)


@dataclass(frozen=True)
class PoissonSample:
    """Every step sees each row with probability ``rate``, independently."""

    rate: float
    relation: Relation = "add-remove"

    @property
    def sensitivity_relation(self) -> Relation:
        """Amplification by Poisson sampling is proved for rows that are added or removed."""
        return "add-remove"

    def divisor(self, n: int) -> float:
        """Return the expected batch size."""
        return self.rate * n

    def rows(self, n: int, noise: NoiseSource) -> NDArray[np.int64]:
        """Indices of a Poisson sample."""
        return noise.bernoulli(n, self.rate)

    def calibrate(self, budget: Budget, steps: int, samples: int) -> float:
        """Tight accounting by privacy loss distributions."""
        return poisson_noise_multiplier(budget, self.rate, steps, samples, self.relation)

    def event(self, noise_multiplier: float, steps: int, samples: int, label: str) -> Event:
        """``steps`` sampled Gaussian releases."""
        return PoissonGaussian(self.rate, noise_multiplier, steps, samples, label=label)
