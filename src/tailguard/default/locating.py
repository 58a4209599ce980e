"""What a fit spends on stage A: shares for features and for the target, how far out, and when to look once more."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tailguard.default.columns import Columns, Looks, Tails, locate
from tailguard.default.hinted import SMALL, locate_known, narrowed
from tailguard.default.rows import Source
from tailguard.hints import Known
from tailguard.means.queries import Queries, Sum

HISTOGRAM, MEAN = (0.004, 0.07), (0.01, 0.04)  # noise worth paying for, and the most to pay
FAR = (0.035, 0.06)  # the same for each look at a target that is far from 0
LOST = 0.5  # of the histograms' share, for features of which nothing was seen: amounts that few rows have
CLOSER = (0.2, 0.05)  # shares of both for a target of which nothing was seen, at most,
SPARED = 0.6  # and what they leave for all that follows: any fit needs less
# Bounds out that features are truncated: up to the noise-to-signal ratio QUIET of a gradient, and beyond it in inverse
# proportion to the ratio; octaves nearer with a heavy tail, and further out with a light one.
WIDE, QUIET, OCTAVES = 16.0, 0.02, (-1.0, 2.0)


def noise_to_signal(queries: Queries, coordinates: int) -> float:
    """Noise of one gradient that took the whole budget, over its signal; public."""
    return 2.0 * coordinates / (queries.n * queries.mu)


def locate_features(queries: Queries, centred: bool, known: Known | None = None, tails: Tails | None = None) -> Columns:
    """Stage A for the features: the less noise, the further out they are truncated, if that is not given."""
    d = queries.engine.columns
    ratio = noise_to_signal(queries, d + 1)
    if known is not None and known.complete and not np.any(known.few) and ratio > SMALL:
        return locate_known(queries, known, centred)
    if tails is None:
        tails = Tails(WIDE * min(1.0, QUIET / ratio), OCTAVES, spread=True)
    looks = looks_at(queries, d)._replace(again=LOST)
    return narrowed(locate(queries, "features", d, looks, centred, tails), known, centred)


def looks_at(
    queries: Queries, count: int, histogram: tuple[float, float] = HISTOGRAM, mean: tuple[float, float] = MEAN
) -> Looks:
    """What is spent on ``count`` columns: shares that buy so much noise, and the most; public."""
    first = queries.share_for(math.sqrt(2.0 * count), *histogram)
    return Looks(first, queries.share_for(2.0 * math.sqrt(count), *mean))


def locate_target(
    queries: Queries,
    looks: Looks,
    centred: bool = True,
    beside: Sequence[Sum] = (),
    source: Source = "target",
    again: bool = True,
) -> Columns:
    """Stage A for the target; if few are not zero and nothing is seen, ``again`` and closer.

    Without its scale nothing else is worth its share. With looks that are closer by `FAR` one that is far from 0, or of
    extreme size, may take up to .42 more.
    """
    found = locate(queries, source, 1, looks, centred, beside=beside)
    part = min(1.0, (queries.account.left - SPARED) / sum(CLOSER))
    if found.seen[0] or not again or part < 0.1:
        return found
    return locate(queries, source, 1, Looks(part * CLOSER[0], part * CLOSER[1]), centred)
