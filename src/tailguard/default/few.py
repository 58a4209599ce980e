r"""The mean of few rows: two questions, answered with pure noise (`tailguard.means.pure`).

A hundred rows at epsilon = 1 say roughly how large a target is, and what its mean is to within a few tenths of its
spread; nothing else. Gaussian noise, which is for fits of many answers, would leave neither.

1. *How large*: of the bins of the first look (`rows.first_look`: zero, then binary exponents) the one in which the
   quantile q of sizes lies. With m = q n rows to be at or below it, a bin with b rows before it and c in it has the
   score ``-max(b - m, m - b - c, 0)``: 0 for the right bin, and for another the number of rows by which it is missed.
2. *The mean* of targets clipped at a multiple of that size, about 0.

=======  ==========================================  ===========================================  ===================
query    one row                                     sensitivity                                  share of epsilon
=======  ==========================================  ===========================================  ===================
size     a count in one bin                          1 for each score                             `SIZE`
mean     clip(y, c)                                  2 c                                          what is left
=======  ==========================================  ===========================================  ===================

Proof: a replaced row leaves one bin and enters another, so b and b + c change by at most 1, and so does the largest of
three numbers that do.

A size that is too large is worse than none: the noise of the mean is in proportion to it. Bins beyond all rows have a
score of (1 - q) n less than the right one, so one of them is chosen with a probability of about e^{-(1 - q) n eps1/2},
eps1 the epsilon of the question; q is as large as leaves e^{-13} (`SAFE`). Where most targets are zero, so is the
answer. There is no centre: of a target that is far from 0 its size is found, and its mean to a fraction of it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tailguard.default.columns import first_counts
from tailguard.default.recalibration import BEYOND
from tailguard.default.rows import TOPS, Clip, Fitted, Level, Source, Target
from tailguard.means.pure import PureQueries
from tailguard.privacy import Budget

SIZE = 0.45  # share of the first question
SAFE = 13.0  # logarithm of how unlikely a size is that no row has
HIGHEST = 0.8  # quantile of sizes, where that allows it
CLIP = 1.75  # times the size found, targets are clipped
LEAST = 100.0  # n epsilon from which on there is a size to be found,
ROWS, EPSILON = 10, 1e-5  # and at least so many rows and so large an epsilon: ranks and noise are whole numbers
MOST = 80.0  # n mu from which on `level.fit_level` is better
# No size is likelier than a smaller one: that would undo it.
PRIOR = -2.0 * np.log1p(np.maximum(np.append(-np.inf, TOPS) - 3.0, 0.0) / 4.0)


def is_few(n: int, budget: Budget, columns: int = 1) -> bool:
    """Whether the means of so many columns are found this way; public."""
    if budget.epsilon is None or n < ROWS or budget.epsilon < EPSILON * columns:
        return False
    return n * budget.epsilon >= LEAST * columns and n * budget.mu < MOST * math.sqrt(columns)


def scores_of(within: NDArray[np.int64], rank: int) -> NDArray[np.int64]:
    """By how many rows each bin misses the one of a rank among the sizes, 0 or less."""
    upto = np.cumsum(within)
    return np.asarray(-np.maximum(np.maximum(upto - within - rank, rank - upto), 0))


def level_of_few(queries: PureQueries, source: Source = "target") -> float:
    """Release the mean of the target, or of what of it is positive."""
    counts = first_counts(source, np.arange(1))
    within = queries.total(counts, counts.shape)[0]
    n, size = queries.n, queries.n * queries.epsilon * SIZE
    rank = int(n * min(HIGHEST, 1.0 - 2.0 * SAFE / size))
    place = queries.choose("size", scores_of(within, rank), SIZE, PRIOR)
    if place == 0:
        return 0.0
    scale, nothing = 2.0 ** float(np.clip(TOPS[place - 1], -990.0, 990.0)), np.zeros(queries.engine.columns)
    low = 0.0 if source == "positive target" else -math.inf
    target = Target(0.0, scale, 0.0, furthest=BEYOND * CLIP * scale, low=low)
    level = Level(Fitted(None, nothing, nothing, 0.0), target, Clip(CLIP))
    found, sd = queries.mean("level", level, CLIP, queries.account.left)
    mean = float(found[0])
    mean *= max(0.0, 1.0 - (sd / max(abs(mean), sd)) ** 2)
    return scale * min(CLIP, max(-CLIP, mean))
