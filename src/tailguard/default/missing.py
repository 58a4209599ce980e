"""How many targets are missing: a mean is that of the others.

A missing target adds nothing to a sum of residuals. So the mean of residuals, a number of rows times what a level is
off by, comes out in proportion to the fraction of rows that are there. Where only a level is fitted that fraction is
asked for, and what was found is divided by it. Since residuals are small, its noise hardly matters.

=======  ==================  ==========================  ===========
query    one row             sensitivity                 share
=======  ==================  ==========================  ===========
missing  1{y is missing}     1                           `F_MISSING`
=======  ==================  ==========================  ===========
"""

from __future__ import annotations

from typing import NamedTuple

from tailguard.default.rows import Fitted, Residual, Sizes, Target
from tailguard.default.shrinkage import believed
from tailguard.means.queries import Queries, Sums

F_MISSING = 0.02
FEWEST = 0.05  # of the targets are taken to be present
SURE = 1.5  # standard deviations of noise: fewer missing ones may be none


class Present(NamedTuple):
    """Fraction of targets that are not missing, and the standard deviation of its noise; released."""

    fraction: float
    sd: float

    @classmethod
    def of(cls, missing: float, sd: float) -> Present:
        """From a noisy fraction of missing ones, believed as far as its noise allows."""
        return cls(min(1.0, max(FEWEST, 1.0 - believed(missing, SURE * sd))), sd)


ALL = Present(1.0, 0.0)


def missing_count(queries: Sums, target: Target) -> int:
    """Number of targets that are missing, or so far out that they count as missing; **not released**."""
    ones = Target(middle=target.middle, furthest=target.furthest, low=1.0, high=1.0)
    sizes = Sizes(Residual(Fitted.flat(queries.engine.columns), ones), (0.5,))  # a missing one has residual 0
    return int(queries.total(sizes, sizes.shape)[0])


def ask(queries: Queries, target: Target) -> Present:
    """Release the fraction of targets that are not missing."""
    noisy = queries.noisy_counts("missing", missing_count(queries, target), 1.0, F_MISSING)
    return Present.of(float(noisy.value), noisy.sd)


def recentred(mean: float, centre: float, present: Present) -> float:
    """A mean in which missing targets counted as a centre, without them."""
    return centre + (mean - centre) / present.fraction
