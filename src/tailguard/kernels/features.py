"""Standardised, truncated features of rows: one pass, no temporary per operation."""

from __future__ import annotations

import math

from numba import njit


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nsz"})
def standardise(X, lower, upper, mean, scale, out):
    """Fill ``out = (clip(X, lower, upper) - mean) / scale``; a missing value, or one that overflows, becomes 0."""
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            z = (min(max(X[i, j], lower[j]), upper[j]) - mean[j]) / scale[j]
            out[i, j] = z if X[i, j] == X[i, j] and abs(z) < math.inf else 0.0
