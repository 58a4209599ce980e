r"""A private mean of a column whose range, or a bound on whose second moment, is known.

A mean of values clipped to a range of half-width h has noise ``2 h/(n mu)`` and no bias; the mean of the default has a
clip c of its own, noise ``2 c/(n mu)``, a bias if there are tails, and pays for finding c. Which is better depends on
the spread of the values *inside* their range, so that is looked at first, coarsely: if the half-width is at most
`NARROW` scales, the rest of the budget goes to one clipped mean.

==============  ======================================  ==========================  ===================================
query           one row                                 L2 sensitivity of the sum   share
==============  ======================================  ==========================  ===================================
column scales   as in `tailguard.default.columns`       sqrt(2)                     `LOOK`, or `CLOSER` if nothing was
column means    the same                                2                           seen
missing         as in `tailguard.default.missing`       1                           .02
mean            ``clip((x - middle)/half, -1, 1)``      2                           all that is left
==============  ======================================  ==========================  ===================================

With a moment alone there is no look: the scale is its root, and the rest is the default's. Where a mean has pure noise
(`pure_level`), its clip is narrowed to the range instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard.default.columns import Columns, Looks, locate
from tailguard.default.hinted import REACH, narrowed_target
from tailguard.default.level import fit_level
from tailguard.default.missing import ask, recentred
from tailguard.default.recalibration import Fit
from tailguard.default.rows import Target
from tailguard.default.shrinkage import believed
from tailguard.hints import Known
from tailguard.means.queries import Queries

LOOK, CLOSER = Looks(0.08, 0.02), Looks(0.25, 0.05)
NARROW = 5.0  # scales: the half-width of a range up to which values are clipped to it and to nothing else


def range_of(known: Known, column: int) -> tuple[float, float] | None:
    """The public range of a column, if there is one."""
    low, high = float(known.lower[column]), float(known.upper[column])
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def level_known(queries: Queries, known: Known, column: int) -> float | None:
    """Mean of a column, the engine's target, with what is known about column ``column``; none if nothing is seen."""
    limits, root = range_of(known, column), float(known.root[column])
    if limits is None:
        if not np.isfinite(root):
            return fit_level(queries)
        nothing = np.zeros(1)
        found = Columns(nothing, np.array([REACH * root]), nothing, np.array([root]), np.ones(1, bool))
        return float(Fit(queries, found).level_alone().level)
    low, high = limits
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    found = locate(queries, "target", 1, LOOK)
    if not found.seen[0]:
        found = locate(queries, "target", 1, CLOSER)
    if not found.seen[0] or half <= NARROW * float(found.scale[0]):
        present, start = ask(queries, Target()), min(max(low, 0.0), high)
        instead = start
        if found.seen[0]:
            instead = min(max(low, recentred(float(found.mean[0]), float(found.centre[0]), present)), high)
        (mean,), sd = queries.mean("mean", InRange(middle, half, instead), 1, 1.0, queries.account.left)
        value = instead + (middle + half * float(mean) - instead) / present.fraction
        if not found.seen[0]:  # nothing is known but the range: no further from 0 than the noise allows
            value = start + believed(value - start, 2.0 * half * sd / present.fraction)
        return min(max(low, value), high)
    found = narrowed_target(found, replace(known, target_range=(low, high)))
    return float(np.clip(Fit(queries, found).level_alone().level, low, high))


@dataclass(frozen=True)
class InRange:
    """``clip((y - middle)/half, -1, 1)``, one number a row; a missing y counts as a released number ``instead``."""

    middle: float
    half: float
    instead: float

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """Values of a block of rows."""
        y = np.nan_to_num(np.asarray(y, np.float64), nan=self.instead)
        return np.clip((y - self.middle) / self.half, -1.0, 1.0)[:, None]
