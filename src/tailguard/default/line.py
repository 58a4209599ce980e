"""What a fit releases: a line in standardised truncated features, and why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard.default.columns import Columns

Array = NDArray[np.float64]

LEVEL_ONLY = "level only: too few rows for so many columns at this epsilon"
LEVEL_UNSEEN = f"{LEVEL_ONLY}, and no scale of the target in sight"
UNSEEN = "zero: no scale of the target in sight at this epsilon"


@dataclass(frozen=True)
class Line:
    """The line ``level + slopes . z`` of standardised truncated features z, in the units of y."""

    columns: Columns
    shift: Array
    slopes: Array
    level: Any  # one for every output
    covariance: Array
    limits: tuple[float, float] = (-math.inf, math.inf)  # of the predictor
    note: str = "level and slopes"
    noise: Array | None = None  # standard deviation of the privacy noise in the slopes before they were shrunk


def nothing(columns: Columns, note: str) -> Line:
    """Predict zero."""
    zero = np.zeros(len(columns.mean))
    return Line(columns, zero, zero, 0.0, np.eye(len(zero)), note=note)


def only(level: float, columns: int) -> Line:
    """A level of columns that were not looked at."""
    return replace(nothing(Columns.unknown(columns), LEVEL_ONLY), level=level)
