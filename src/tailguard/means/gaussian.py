r"""The Gaussian mean of truncated rows: Algorithm 4, DP-GD and DP-SGD are this mean with different truncations.

    (1/N) (sum over rows of T(g_i), on the grid, + discrete Gaussian noise),    N public

**Formal guarantee.** With noise of standard deviation ``z`` times the sensitivity of the integer sum
(`Grid.sensitivity`), one release is 1/z-GDP up to the price of the grid (`tailguard.privacy.accounting`), for any
rows, and for a Poisson sample the corresponding subsampled Gaussian. With ``z = 0`` nothing is added and the price
is infinite: robust gradient descent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailguard._checks import within
from tailguard.engines import Engine
from tailguard.engines.vectors import RowVectors
from tailguard.privacy import MAX_GRID_SCALE, MIN_GRID_SCALE, Event, NoiseSource, NotPrivate, Relation
from tailguard.sampling import Sampler
from tailguard.truncation import Grid, Truncation


@dataclass(frozen=True)
class GaussianMean:
    """Mean of truncated rows with Gaussian noise.

    Parameters
    ----------
    truncation : Truncation
        What bounds a row.
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity of the sum; 0 adds none and is not private.
    """

    truncation: Truncation
    noise_multiplier: float

    def __post_init__(self) -> None:
        within("noise_multiplier", self.noise_multiplier, 0.0, 2.0**24)

    def sensitivity(self, n: int, coordinates: int, relation: Relation, divisor: float | None = None) -> float:
        """L2 sensitivity of the released mean, in the units of the data, with its rounding to the grid."""
        grid = Grid.of(self.truncation, n)
        return grid.sensitivity(coordinates, relation) * grid.unit / (n if divisor is None else divisor)

    def noise_sd(self, n: int, coordinates: int, sampler: Sampler) -> float:
        """Standard deviation of the noise in each coordinate of the released mean: public."""
        if self.noise_multiplier == 0.0:
            return 0.0
        divisor = sampler.divisor(n)
        asked = self.noise_multiplier * self.sensitivity(n, coordinates, sampler.sensitivity_relation, divisor)
        return max(asked, MIN_GRID_SCALE * Grid.of(self.truncation, n).unit / divisor)

    def events(self, sampler: Sampler, steps: int, coordinates: int, label: str) -> tuple[Event, ...]:
        """What ``steps`` releases spend."""
        if self.noise_multiplier == 0.0:
            return (NotPrivate("no noise is added", label=label),)
        return (sampler.event(self.noise_multiplier, steps, steps * coordinates, label),)

    def release(self, engine: Engine, vectors: RowVectors, sampler: Sampler, noise: NoiseSource) -> NDArray[np.float64]:
        """Release the mean, of the shape of the vectors."""
        grid = Grid.of(self.truncation, engine.n)
        total = engine.truncated_sum(vectors, grid, sampler.rows(engine.n, noise.at(0)))
        if self.noise_multiplier > 0.0:
            scale = self.noise_multiplier * grid.sensitivity(total.size, sampler.sensitivity_relation)
            total = saturating_add(
                total, noise.at(1).discrete_gaussian(on_grid(scale), total.size).reshape(total.shape)
            )
        return np.asarray(total * (grid.unit / sampler.divisor(engine.n)), dtype=np.float64)


def on_grid(scale: float) -> float:
    """Return a scale of noise that the grid can carry: at least 2**20 units, which is more noise and thus as private.

    Refuse more than 2**55; the sizes are public, so this says nothing about the data.
    """
    if scale <= MAX_GRID_SCALE:
        return max(scale, MIN_GRID_SCALE)
    raise ValueError(
        f"epsilon asks for noise of {scale:.3g} grid units, more than 2**55: give a larger epsilon or fewer steps."
    )


def saturating_add(total: NDArray[np.int64], noise: NDArray[np.int64]) -> NDArray[np.int64]:
    """Add without wrapping around: beyond 2**62 the result stays there, which is post-processing."""
    limit = 2.0**62
    exact = np.abs(noise.astype(np.float64) + total.astype(np.float64)) < limit
    return np.where(exact, total + noise, np.int64(limit) * np.sign(noise)).astype(np.int64)
