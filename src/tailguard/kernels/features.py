"""Features of rows: standardised, truncated, rotated.

Products are added up in one fixed order for every row, unlike in a BLAS, whose last bit depends on where a row stands
in its block: a fit is the same to the last bit for any threads, blocks and storage.
"""

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


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nsz"})
def rotate(rows, shift, matrix, out):
    """Fill ``out = (rows - shift) @ matrix``, one row after the other."""
    for i in range(rows.shape[0]):
        for k in range(matrix.shape[1]):
            out[i, k] = 0.0
        for j in range(rows.shape[1]):
            z = rows[i, j] - shift[j]
            for k in range(matrix.shape[1]):
                out[i, k] += z * matrix[j, k]


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nsz"})
def predict(rows, shift, coefficients, out):
    """Fill ``out = (rows - shift) @ coefficients``, one row after the other."""
    for i in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            total += (rows[i, j] - shift[j]) * coefficients[j]
        out[i] = total
