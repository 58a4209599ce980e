r"""The public grid on which truncated rows are summed and noise is added.

Every contribution is rounded to a multiple of a public unit ``u``, a power of two. Sums of multiples of u are exact
integers, so the sum does not depend on order, blocks, threads or machine, and the noise can be an exact discrete
Gaussian on the same integers: what is released is an integer multiple of ``u`` whatever the data is.

**Formal guarantee.** With ``B = row_norm / u`` and p coordinates, the rounded contribution of any row has L2 norm at
most ``B (1 + s) + sqrt(p)/2`` units: the kernel computes ``T(g)`` with a relative error of at most ``s = (p + 16)
2^-52`` (a sum of p squares, one inverse root, which errs by 2^-52, and four products; those that are fused with a sum
are not rounded at all), and rounding moves each coordinate by at most 1/2. Beyond the core of psi coordinates are
clamped to ``B/sqrt(p)`` in units and rounded towards 0. So the sensitivity of the integer sum is twice that when a row
is replaced, and that when one is added or removed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tailguard.privacy import Relation
from tailguard.truncation.rules import Truncation

# A row takes at most 2**30 units, so that 2**21 rows add exactly in float64 before they go to an integer.
ROW_BITS = 30
# All rows together stay below 2**62 units, inside a 64-bit integer with room for the noise.
SUM_BITS = 62


@dataclass(frozen=True)
class Grid:
    """A truncation and the unit its results are rounded to; `of` chooses it.

    Parameters
    ----------
    truncation : Truncation
        What bounds a row.
    unit : float
        A power of two, in the units of the row.
    """

    truncation: Truncation
    unit: float

    @staticmethod
    def of(truncation: Truncation, rows: int) -> Grid:
        """Return the finest grid on which the sum over a public number of rows stays exact."""
        bits = min(ROW_BITS, SUM_BITS - int(rows).bit_length())
        exponent = math.ceil(math.log2(truncation.largest))
        return Grid(truncation, 2.0 ** (exponent - bits))

    def sensitivity(self, coordinates: int, relation: Relation) -> float:
        """L2 sensitivity of the integer sum, in units."""
        slack = 1.0 + (coordinates + 16) * 2.0**-52
        row = self.truncation.row_norm(coordinates) / self.unit * slack + math.sqrt(coordinates) / 2.0
        return 2.0 * row if relation == "replace-one" else row
