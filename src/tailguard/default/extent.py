r"""How far out a fitted line is believed.

Steps weigh rows by how far out their features are, so a line is that of most rows, and need not hold for the few
beyond: codes such as 99, sales of the largest town. Whether it does is one number: what rows gain, in squared error, by
features beyond their ends (`Columns.near`). If they lose, features are truncated there.

========  ====================================================  ==================  ============
query     one row                                               sensitivity         share
========  ====================================================  ==================  ============
beyond    clip((y - e)^2 - (y - eta)^2, b), e: features cut     2 b                 .004 to .04
========  ====================================================  ==================  ============
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tailguard.default.columns import Columns
from tailguard.default.rows import Beyond, Fitted, Target
from tailguard.default.whitening import Design
from tailguard.means.queries import Queries

SHARE = (0.0015, 0.04)  # noise worth paying for, over the bound, and the most to pay
# A gain is clipped at so many variances of residuals, by n mu: after narrow steps, and after wide ones, where few rows
# make up for what many lose, as far as noise lets that be seen.
CLIPPED = {"narrow": ((1.0,), (0.3,)), "wide": ((3000.0, 5000.0), (10.0, 100.0))}
# Features are truncated so many ends out if the gain is less than so many standard deviations, by n mu: with little,
# what cannot be seen may do the more harm; with much, a gain would show after narrow steps. After wide ones it would
# not, with any budget that matters: there the line is believed further out the better it is known.
TRUNCATED = {
    "narrow": (
        (1.0, (1.0,), (-1.0,)),
        (4.0, (1000.0, 2000.0, 4000.0), (0.0, -0.5, 1.0)),
        (8.0, (1000.0, 1200.0), (1.5, -1.0)),
    ),
    "wide": ((1.0, (3000.0, 5000.0), (-1.0, -2.0)), (2.0, (3000.0, 5000.0), (1.0, -2.0))),
}


def share(queries: Queries, columns: Columns) -> float:
    """What the question costs; nothing where no column goes on beyond its end."""
    return queries.share_for(2.0, *SHARE) if columns.ended else 0.0


def believed(
    queries: Queries, design: Design, line: Fitted, target: Target, variance: float, steps: str, share: float
) -> Design:
    """The design, truncated where a line of it, by "narrow" or "wide" steps, is better without what lies beyond."""
    if not share:
        return design
    size = queries.n * queries.mu
    rows = Beyond(line, target, float(np.interp(size, *CLIPPED[steps])) * variance)
    (gain,), sd = queries.mean("beyond", rows, 1, rows.most, share)
    for times, at, levels in TRUNCATED[steps]:
        if gain < float(np.interp(size, at, levels)) * sd:
            return replace(design, columns=design.columns.near(times))
    return design
