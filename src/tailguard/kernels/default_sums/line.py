"""Sums that depend on a fitted line and the target, or on the target alone."""

from __future__ import annotations

import numpy as np

from tailguard.kernels.codes import (
    BOUNDED_PRODUCTS,
    INSTRUMENT,
    LEVEL,
    PRODUCT,
    SQUARE,
    SQUARED_LINE,
    UNEVEN,
)
from tailguard.kernels.compiling import njit
from tailguard.kernels.default_sums.residuals import bounded_score, clip, number, places, residuals, stretched, targets
from tailguard.kernels.default_sums.tile import EXACT, FLUSH, add_vectors, combine, flush, standardise
from tailguard.kernels.reading import OPTIONS, TILE, shape_of, turn


@njit(**OPTIONS, fastmath=EXACT)
def _line(X, start, count, lower, upper, mean, scale, shift, slopes, constant, z, eta):
    """Fill ``eta = constant + slopes . (z - shift)``; without slopes it is the constant."""
    if len(slopes) > 0:
        turn(X, start, count, z)
        standardise(z, lower, upper, mean, scale, shift)
    combine(z[: len(slopes)], slopes, constant, eta)


@njit(**OPTIONS, fastmath=EXACT)
def _cut(z, low, high):
    """Cut the standardised features of a tile to their ends."""
    for j in range(z.shape[0]):
        least, most, row = low[j], high[j], z[j]
        for i in range(TILE):
            x = least if row[i] < least else row[i]
            row[i] = most if x > most else x


@njit(**OPTIONS, fastmath=EXACT)
def line_sizes(X, y, lower, upper, mean, scale, shift, slopes, constant, link, largest, target, grid, total):
    """Count the rows whose ``|fitted - target|`` is at most the first point of the grid, ..., beyond the last."""
    n = shape_of(X)[0]
    z, eta, t, place = np.zeros((len(slopes), TILE)), np.empty(TILE), np.zeros(TILE), np.empty(TILE)
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        _line(X, start, count, lower, upper, mean, scale, shift, slopes, constant, z, eta)
        targets(y, start, count, target[0], target[1], target[2], target[3], target[4], target[5], t)
        residuals(eta, t, link, largest, eta)
        places(eta, grid, t, place)
        for i in range(count):
            total[int(place[i])] += 1


@njit(**OPTIONS, fastmath=EXACT)
def line_vectors(
    X, y, lower, upper, mean, scale, shift, slopes, constant, link, largest, target, code, q, bound, per_unit, total
):
    """Add one to three numbers of every row, by the code; ``q`` are its parameters: see `tailguard.default.rows`."""
    n = shape_of(X)[0]
    z, eta, t, other = np.zeros((len(slopes), TILE)), np.empty(TILE), np.zeros(TILE), np.empty(TILE)
    v, acc, size = np.zeros((len(total), TILE)), np.zeros((len(total), TILE)), np.empty(TILE)
    done = 0
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        _line(X, start, count, lower, upper, mean, scale, shift, slopes, constant, z, eta)
        targets(y, start, count, target[0], target[1], target[2], target[3], target[4], target[5], t)
        if code == LEVEL:
            residuals(eta, t, link, largest, eta)
            for i in range(TILE):
                v[0, i] = stretched(-eta[i], q[0], q[1], q[2])
        elif code == SQUARE:
            top = q[0] * q[0]
            for i in range(TILE):
                r = number(eta[i] - t[i])
                s = r * r
                v[0, i] = (top if s > top else s) - top / 2.0
        elif code == INSTRUMENT:
            for i in range(TILE):
                u = clip(eta[i] / q[0], 1.0)
                v[0, i] = u
                v[1, i] = u * clip(eta[i] / q[1], 4.0) / 2.0
        elif code == PRODUCT:
            combine(z, q[5:], 0.0, other)
            residuals(eta, t, link, largest, eta)
            for i in range(TILE):
                e = stretched(-eta[i], q[2], q[3], q[4])
                v[0, i] = e * clip(clip(other[i] / q[0], 1.0) - q[1], 1.0)
        elif code == SQUARED_LINE:
            for i in range(TILE):
                u = clip(eta[i] / q[0], 1.0)
                v[0, i] = u
                v[1, i] = u * u - 0.5
        elif code == BOUNDED_PRODUCTS:
            for i in range(TILE):
                s = bounded_score(q[1] + q[2] * eta[i], t[i])
                v[0, i] = s
                v[1, i] = s * clip(eta[i] / q[0], 1.0)
        elif code == UNEVEN:
            for i in range(TILE):
                a = clip(abs(number(t[i] - eta[i])), q[1]) / q[1] - 0.5
                u = clip((eta[i] - q[2]) / q[0], 1.0)
                v[0, i] = a * u
                v[1, i] = a
                v[2, i] = u / 2.0
        else:  # BEYOND
            _cut(z, q[1 : 1 + len(slopes)], q[1 + len(slopes) :])
            combine(z, slopes, constant, other)
            for i in range(TILE):
                gain = (eta[i] - other[i]) * ((t[i] - other[i]) + (t[i] - eta[i]))
                v[0, i] = clip(number(gain), q[0])
        add_vectors(v, count, bound, per_unit, size, acc)
        done += 1
        if done == FLUSH:
            flush(acc, total)
            done = 0
    flush(acc, total)


@njit(**OPTIONS, fastmath=EXACT)
def target_vectors(y, classes, bound, per_unit, total):
    """Add ``onehot(y) - 1/K`` with K classes; with none, half of the sign of y."""
    n, width = len(y), len(total)
    v, acc, size = np.zeros((width, TILE)), np.zeros((width, TILE)), np.empty(TILE)
    done = 0
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        for i in range(count):
            label = np.float64(y[start + i])
            if classes > 0:
                for c in range(classes):
                    v[c, i] = (1.0 if label == c else 0.0) - 1.0 / classes
            else:
                v[0, i] = 0.5 if label > 0.0 else (-0.5 if label < 0.0 else 0.0)
        add_vectors(v, count, bound, per_unit, size, acc)
        done += 1
        if done == FLUSH:
            flush(acc, total)
            done = 0
    flush(acc, total)
