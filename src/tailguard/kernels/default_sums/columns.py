"""Sums that look at columns one by one."""

from __future__ import annotations

import numpy as np

from tailguard.kernels.codes import SUBNORMAL
from tailguard.kernels.compiling import njit
from tailguard.kernels.default_sums.tile import EXACT, FLUSH, add_vectors, flush
from tailguard.kernels.reading import OPTIONS, TILE, entry, shape_of


@njit(**OPTIONS)
def column_counts(X, columns, centre, positive, bins, total):
    """Count the binary exponents of ``|x - centre|``: exponent e of column c goes to ``total[c, bins[c, e]]``.

    ``bins`` has one row for all columns, or one for each. Index e is 0 for zero, the last for a missing value, and k +
    1023 + `SUBNORMAL` for a value in ``(2^(k-1), 2^k]``.
    """
    n, width = shape_of(X)[0], len(columns)
    size = np.empty(width)
    bits = size.view(np.int64)
    each = 1 if bins.shape[0] > 1 else 0
    for i in range(n):
        for c in range(width):
            x = np.float64(entry(X, i, columns[c]))
            if positive:
                x = 0.0 if x < 0.0 else x
            size[c] = abs(x - centre[c])
        for c in range(width):
            e = ((bits[c] - 1) >> 52) + 1
            if e <= 1:  # zero, or subnormal: what it is shows once it is scaled
                size[c] *= 2.0**60
                e = ((bits[c] - 1) >> 52) + 1 - 60 if e == 1 else -SUBNORMAL
            total[c, bins[c * each, e + SUBNORMAL]] += 1


@njit(**OPTIONS)
def near_counts(X, columns, centre, unit, positive, total):
    """Count ``x - centre`` in equal bins of one unit, half of them on either side; all else goes to ``total[c, 0]``."""
    n, width, half = shape_of(X)[0], len(columns), float(total.shape[1] // 2)
    for i in range(n):
        for c in range(width):
            x = np.float64(entry(X, i, columns[c]))
            if positive:
                x = 0.0 if x < 0.0 else x
            at = np.floor((x - centre[c]) / unit[c]) + half
            inside = (at >= 0.0) & (at < 2.0 * half)  # not for a missing value
            total[c, np.int64(at) + 1 if inside else 0] += 1


@njit(**OPTIONS, fastmath=EXACT)
def column_moments(X, columns, centre, bound, positive, both, clip, per_unit, total):
    """Add ``v = clip((x - centre)/bound, -1, 1)`` of every column, then all ``v^2 - 1``; a missing v is 0.

    Unless ``both`` moments are asked for: then ``v^2 - 1/2`` alone.
    """
    n, width = shape_of(X)[0], len(columns)
    all_of_row = 2 * width if both else width
    v, acc, size = np.zeros((all_of_row, TILE)), np.zeros((all_of_row, TILE)), np.empty(TILE)
    done = 0
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        for i in range(count):
            for c in range(width):
                v[c, i] = entry(X, start + i, columns[c])
        for c in range(width):
            middle, reach = centre[c], bound[c]
            for i in range(TILE):
                x = v[c, i]
                if positive:
                    x = 0.0 if x < 0.0 else x
                u = (x - middle) / reach
                u = -1.0 if u < -1.0 else u
                u = 1.0 if u > 1.0 else u
                u = u if u == u else 0.0
                if both:
                    v[c, i] = u
                    v[width + c, i] = u * u - 1.0
                else:
                    v[c, i] = u * u - 0.5
        add_vectors(v, count, clip, per_unit, size, acc)
        done += 1
        if done == FLUSH:
            flush(acc, total)
            done = 0
    flush(acc, total)
