"""Private quantiles of residuals, by noisy bisection on a public grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

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


def quantile(
    queries: Queries, label: str, residual: Residual | Function, level: float, grid: Array, share: float
) -> tuple[float, float]:
    """Smallest grid point with about a fraction ``level`` of ``|residual|`` at or below it, and that noisy fraction.

    The counts of all grid points are added up once; each level of the bisection releases one of them, of sensitivity 1.
    A missing residual counts as zero, as it does wherever residuals are averaged.
    """
    sizes = Sizes(residual, tuple(grid))
    below = np.cumsum(queries.total(sizes, sizes.shape))
    low, high, fraction = -1, len(grid) - 1, level
    levels = max(1, math.ceil(math.log2(len(grid))))
    while high - low > 1:
        middle = (low + high) // 2
        found = float(queries.noisy_counts(label, below[middle], 1.0, share / levels).value)
        if found < level:
            low = middle
        else:
            high, fraction = middle, found
    return float(grid[high]), fraction
