"""Private quantiles of residuals, by noisy bisection on a public grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailguard.default.rows import Residual, Sizes
from tailguard.means.queries import Queries

Array = NDArray[np.float64]
Function = Callable[[Any, Any], Array]

# In units of the target's scale: from 1/64 to 256.
GRID = 2.0 ** np.arange(-6.0, 8.01, 0.5)
# Times an earlier clip: two octaves on either side.
AROUND = 2.0 ** np.arange(-2.0, 2.01, 0.25)


class Quantile(NamedTuple):
    """A grid point and the noisy fraction of sizes at or below it; and the same of another point, if asked for."""

    value: float
    fraction: float
    other: float = 0.0
    fraction_other: float = 0.0


def quantile(
    queries: Queries,
    label: str,
    residual: Residual | Function,
    level: float,
    grid: Array,
    share: float,
    octaves: float = 0.0,
    more: float = 0.0,
) -> Quantile:
    """Smallest grid point with about a fraction ``level`` of ``|residual|`` at or below it.

    The counts of all grid points are added up once; each level of the bisection releases one of them, of sensitivity 1.
    With ``octaves`` one more is released: that of the point so far before, or after if they are negative, if the grid
    has it; for the share ``more`` in addition if that is not 0. A missing residual counts as zero, as it does wherever
    residuals are averaged.
    """
    sizes = Sizes(residual, tuple(grid))
    below = np.cumsum(queries.total(sizes, sizes.shape))
    low, high, fraction = -1, len(grid) - 1, level
    counts = max(1, math.ceil(math.log2(len(grid)))) + (octaves != 0.0 and more == 0.0)

    def released(place: int, part: float = share / counts) -> float:
        return float(queries.noisy_counts(label, below[place], 1.0, part).value)

    while high - low > 1:
        middle = (low + high) // 2
        found = released(middle)
        if found < level:
            low = middle
        else:
            high, fraction = middle, found
    other = high - round(octaves / math.log2(grid[1] / grid[0])) if octaves != 0.0 else high
    if other == high or not 0 <= other < len(grid):
        return Quantile(float(grid[high]), fraction)
    return Quantile(float(grid[high]), fraction, float(grid[other]), released(other, more or share / counts))
