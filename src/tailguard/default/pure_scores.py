r"""Scores of the places that `pure_level` chooses among: whole numbers of rows, and how likely each place is.

============================  ==========================================================================
what is chosen                score of a place
============================  ==========================================================================
a quantile                    minus the number of rows by which a bin misses it
a window                      minus the number of rows that it is short of
a sign                        minus the number of rows with the other
where few values are          the number of rows in some neighbouring bins, none of them bin 0; 0 for none
============================  ==========================================================================

Proof that a replaced row changes each score by at most 1. It leaves one bin and enters another. *Quantiles*: with m
rows to be at or below it, a bin with b rows before it and k in it has the score ``-max(b - m, m - b - k, 0)``; b and
b + k change by at most 1, and so does the largest of three numbers that do. *Windows*: one with k rows in it has the
score ``min(k - m, 0)``, and k changes by at most 1. *Signs* and *few values*: a number of rows in fixed bins.

Priors are public, and logarithms of how likely a place is where the rows say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tailguard.default.rows import NEAR, TOPS

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

NARROWER = 3.0  # by which a window half as wide is likelier, in logarithms,
WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)  # of windows far from 0, in bins,
FINER = (*WIDTHS, 24, 32, 48, 64)  # and of those within them
# No size is likelier than a smaller one: that would undo it.
PRIOR = -2.0 * np.log1p(np.maximum(np.append(-np.inf, TOPS) - 3.0, 0.0) / 4.0)
# Exponents in which values that few rows have are together. That there are none is likelier, in logarithms, than any
# size of them, and more exponents are less likely than one.
OCTAVES, NONE, SPREAD = (1, 2, 4), 9.0, 3.0
TOGETHER = np.concatenate([[NONE], *(PRIOR[width:] - SPREAD * math.log2(width) for width in OCTAVES)])


def scores_of(within: Integers, rank: int) -> Integers:
    """By how many rows each bin misses the one of a rank among the sizes, 0 or less."""
    upto = np.cumsum(within)
    return np.asarray(-np.maximum(np.maximum(upto - within - rank, rank - upto), 0))


def scores_of_windows(within: Integers, windows: Integers, rank: int) -> Integers:
    """By how many rows each window, from a bin up to another, is short of a number, 0 or less."""
    upto = np.append(0, np.cumsum(within))
    return np.asarray(np.minimum(upto[windows[:, 1]] - upto[windows[:, 0]] - rank, 0))


def scores_of_sides(within: Integers, sides: Sequence[int]) -> Integers:
    """Less the number of rows on the other side of 0, which a mean of one side (1, -1) would lose."""
    other = {0: 0, 1: int(within[: NEAR // 2].sum()), -1: int(within[NEAR // 2 :].sum())}
    return np.array([-other[side] for side in sides])


def scores_together(within: Integers) -> tuple[Integers, Integers]:
    """Rows in so many neighbouring exponents, by `TOGETHER`, and the last of these bins; first none, in bin 0."""
    upto = np.cumsum(within) - within[0]
    tops, scores = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
    for width in OCTAVES:
        tops.append(np.arange(width, len(within)))
        scores.append(upto[width:] - upto[: len(within) - width])
    return np.concatenate(tops), np.concatenate(scores)


def windows_of(widths: tuple[int, ...], far: bool = False) -> tuple[Integers, Array]:
    """Windows of equal bins, first and last bin, and how likely they are; those that are far from 0, or all."""
    found, prior = [], []
    for width in widths:
        start = np.arange(NEAR + 1 - width)
        if far:
            start = start[(start - NEAR // 2 >= width) | (NEAR // 2 - start - width >= width)]
        found.append(np.column_stack([start, start + width]))
        prior.append(np.full(len(start), NARROWER * math.log2(NEAR // 2 / width) - math.log(len(start))))
    return np.vstack(found), np.concatenate(prior)
