r"""The trimmed mean with smooth sensitivity and arsinh-normal noise: Algorithm 2, and Algorithm 3 over the loop.

Per coordinate: the mean of all but the m smallest and m largest values, clamped to a public range [a, b], plus
``(S / s) Z`` with S the exact t-smooth sensitivity (`tailguard.kernels.smooth_sensitivity`) and ``Z = sinh(sigma
Y)/sigma`` (`tailguard.privacy.arsinh_normal`).

**Formal guarantee.** One coordinate is rho-zCDP for replace-one neighbours, whatever the rows; both modules have
their half of the proof. p coordinates and T steps are ``p T rho``-zCDP.

**Bias.** Trimming moves the mean of a skewed gradient: 5 % at each end move a centred log-normal(1, 1) by -0.79. It
suits gradients that are near symmetric.

The scale that the paper prints, ``max{(x_(n) - x_(1))/(n - 2m), e^{-mt}(b - a)}``, is not a smooth bound: with n =
1000, m = 50 and [a, b] = [-1, 1], zeros against zeros and one 1e9 are told apart with certainty. It is kept, as
`printed`, for the paper's experiments; its price is infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailguard import kernels
from tailguard.engines import Engine
from tailguard.engines.threads import parallel_map, thread_count
from tailguard.engines.vectors import RowVectors
from tailguard.privacy import Event, NoiseSource, NotPrivate, ZeroConcentrated
from tailguard.privacy.arsinh_normal import ArsinhParameters, exact_normals, release, release_grid
from tailguard.sampling import Sampler

PRINTED_REASON = (
    "the noise scale that the paper prints is not a smooth bound on the sensitivity: one far value makes the "
    "noise of neighbouring tables differ without limit"
)


@dataclass(frozen=True)
class TrimmedMean:
    """Coordinate-wise trimmed mean with arsinh-normal noise.

    Parameters
    ----------
    lower, upper : float
        Public range [a, b] of the mean of every coordinate.
    trim : int
        Values dropped at each end, m.
    parameters : ArsinhParameters
        Noise of one coordinate of one release.
    printed : bool
        Take the printed noise scale, which is not private.
    """

    lower: float
    upper: float
    trim: int
    parameters: ArsinhParameters
    printed: bool = False

    def events(self, sampler: Sampler, steps: int, coordinates: int, label: str) -> tuple[Event, ...]:
        """What ``steps`` releases spend."""
        if self.printed:
            return (NotPrivate(PRINTED_REASON, label=label),)
        # The budgeted price, not the certified one below it: the rest is for rounding.
        return (ZeroConcentrated(self.parameters.epsilon**2 / 2.0, steps * coordinates, label=label),)

    def release(self, engine: Engine, vectors: RowVectors, sampler: Sampler, noise: NoiseSource) -> NDArray[np.float64]:
        """Release the mean of every coordinate, of the shape of the vectors."""
        columns = engine.columns_of(vectors)
        shape = vectors.shape(engine.columns)
        width = self.upper - self.lower
        normals = exact_normals(noise, math.prod(shape))
        grid = release_grid(self.parameters, self.trim, width)

        def one(task: tuple[int, int]) -> float:
            value, sensitivity = self._value_and_sensitivity(columns(*task))
            return release(value, sensitivity, self.parameters, normals[task[0] * shape[1] + task[1]], grid)

        tasks = [(k, j) for k in range(shape[0]) for j in range(shape[1])]
        return np.array(parallel_map(one, tasks, thread_count(engine.threads))).reshape(shape)

    def _value_and_sensitivity(self, column: NDArray[np.float64]) -> tuple[float, float]:
        compiled = kernels.smooth_sensitivity
        if not self.printed:
            return compiled.private_trimmed_mean_inputs(column, self.trim, self.parameters.t, self.lower, self.upper)
        mean = compiled.trimmed_mean(column, self.trim, self.lower, self.upper)
        kept = len(column) - 2 * self.trim
        floor = math.exp(-self.trim * self.parameters.t) * (self.upper - self.lower)
        # Of the rows as they are: mapped to the public interval, no row is far enough to show the flaw.
        with np.errstate(all="ignore"):
            spread = min(float(np.ptp(np.nan_to_num(column))), 1e200)
        return mean.value, max(spread / kept, floor)
