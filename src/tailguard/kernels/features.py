"""Features of rows: standardised, truncated, rotated.

Products of a row are added up in an order that depends on the number of columns only, unlike in a BLAS, whose last bit
depends on where a row stands in its block: a fit is the same to the last bit for any threads, blocks and storage.
"""

from __future__ import annotations

import math

import numpy as np

from tailguard.kernels.compiling import njit

TILE = 64  # rows


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _standard(x, lower, upper, mean, scale):
    """``(clip(x, lower, upper) - mean) / scale``; a missing value, or one that overflows, becomes 0."""
    z = (min(max(x, lower), upper) - mean) / scale
    return z if x == x and abs(z) < math.inf else 0.0


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nsz"})
def standardise(X, lower, upper, mean, scale, out):
    """Fill ``out`` with standardised features, (n, d)."""
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            out[i, j] = _standard(X[i, j], lower[j], upper[j], mean[j], scale[j])


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nsz"})
def design_rows(X, lower, upper, mean, scale, shift, whitening, constant, out):
    """Fill ``out = (constant, (z - shift) @ whitening)``, (n, 1 + d), z the standardised features of X."""
    n, d = X.shape
    # Transposed tiles: the inner loops run over rows, so that they fill vector registers however few the columns are. A
    # tile at the end is filled up, so that every row takes the same way.
    z, total = np.zeros((d, TILE)), np.empty(TILE)
    for start in range(0, n, TILE):
        rows = min(TILE, n - start)
        for i in range(rows):
            for j in range(d):
                z[j, i] = _standard(X[start + i, j], lower[j], upper[j], mean[j], scale[j]) - shift[j]
            out[start + i, 0] = constant
        for k in range(whitening.shape[1]):
            total[:] = 0.0
            for j in range(d):
                weight = whitening[j, k]
                for i in range(TILE):
                    total[i] += z[j, i] * weight
            for i in range(rows):
                out[start + i, k + 1] = total[i]


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nsz", "reassoc"})
def predict(rows, shift, coefficients, out):
    """Fill ``out = (rows - shift) @ coefficients``, (n,)."""
    for i in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            total += (rows[i, j] - shift[j]) * coefficients[j]
        out[i] = total


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nsz", "reassoc"})
def norms(rows, out):
    """Fill ``out`` with the norms of rows, (n,)."""
    for i in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            total += rows[i, j] * rows[i, j]
        out[i] = math.sqrt(total)
