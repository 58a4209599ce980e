"""Sums of design vectors: their products, and the scores of a step."""

from __future__ import annotations

import math

import numpy as np

from tailguard.kernels.codes import EVEN, NEAREST
from tailguard.kernels.compiling import njit
from tailguard.kernels.default_sums.residuals import residuals, stretched, targets
from tailguard.kernels.default_sums.tile import (
    EXACT,
    FLUSH,
    ROUND,
    add_scaled,
    combine,
    combine_all,
    flush,
    flush_table,
    lengths,
    product,
    scales,
    standardise,
    total_of,
)
from tailguard.kernels.reading import OPTIONS, TILE, shape_of, turn


@njit(**OPTIONS, fastmath=EXACT)
def design(z, rotation, constant, a):
    """Fill design vectors ``a = (constant, rotation z)``, (1 + d, TILE); a row of ``rotation`` for each coordinate."""
    for i in range(TILE):
        a[0, i] = constant
    combine_all(z, rotation, a[1:])


@njit(**OPTIONS, fastmath=EXACT)
def mallows(size, radius, cap, out):
    """Fill ``out`` with the weights ``min(1, R/|a|, cap R^2/|a|^2)`` of design vectors of the given norms."""
    for i in range(TILE):
        s = size[i]
        ratio = radius / (s if s > 1e-100 else 1e-100)
        w = cap * ratio * ratio
        w = ratio if ratio < w else w
        out[i] = 1.0 if w > 1.0 else w


@njit(**OPTIONS, fastmath=EXACT)
def design_tile(X, start, count, lower, upper, mean, scale, shift, rotation, constant, radius, cap, z, a, size, weight):
    """Fill ``a`` with the design vectors of a tile, (1 + d, TILE), ``size`` with their norms, and their weights."""
    turn(X, start, count, z)
    standardise(z, lower, upper, mean, scale, shift)
    design(z, rotation, constant, a)
    lengths(a, size)
    mallows(size, radius, cap, weight)


@njit(**OPTIONS, fastmath=EXACT)
def design_gram(X, lower, upper, mean, scale, shift, rotation, constant, radius, cap, bound, bits, total):
    """Add the products of ``sqrt(w) a``, scaled down to the bound and rounded to ``bits`` bits."""
    n, d = shape_of(X)
    p = d + 1
    z, a, acc = np.zeros((d, TILE)), np.empty((p, TILE)), np.zeros((p, p))
    size, weight = np.empty(TILE), np.empty(TILE)
    per_unit = 2.0**bits / bound
    most = 2.0**bits * (1.0 + 1e-9)
    done = 0
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        design_tile(
            X, start, count, lower, upper, mean, scale, shift, rotation, constant, radius, cap, z, a, size, weight
        )
        for i in range(TILE):
            weight[i] = math.sqrt(weight[i])
            size[i] = size[i] * weight[i]
        scales(size, count, bound, per_unit, size)
        for k in range(p):
            for i in range(TILE):
                u = a[k, i] * (weight[i] * size[i])
                a[k, i] = (u + ROUND) - ROUND if abs(u) <= most else 0.0
        for k in range(p):
            for m in range(k + 1):
                acc[k, m] += product(a[k], a[m])
        done += 1
        if done == 2**8:  # 2**14 rows: products of 19 + 19 bits stay below 2**52
            _flush_square(acc, total)
            done = 0
    _flush_square(acc, total)


@njit(**OPTIONS)
def _flush_square(acc, total):
    for k in range(acc.shape[0]):
        for m in range(k + 1):
            total[k, m] += np.int64(acc[k, m])
            if m < k:
                total[m, k] += np.int64(acc[k, m])
            acc[k, m] = 0.0


@njit(**OPTIONS, fastmath=EXACT)
def scores(
    X, y, lower, upper, mean, scale, shift, rotation, constant, radius, cap, theta, offset, link, largest, target, far,
    near, stretch, bound, per_unit, total,
):  # fmt: skip
    """Add ``w a c(r)``, r as `residuals` has it and c a clip, scaled down to the bound."""
    n, d = shape_of(X)
    z, a, acc = np.zeros((d, TILE)), np.empty((d + 1, TILE)), np.zeros((d + 1, TILE))
    size, weight, eta, t = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.zeros(TILE)
    most = bound * per_unit * (1.0 + 1e-9)
    done = 0
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        design_tile(
            X, start, count, lower, upper, mean, scale, shift, rotation, constant, radius, cap, z, a, size, weight
        )
        combine(a, theta, offset, eta)
        targets(y, start, count, target[0], target[1], target[2], target[3], target[4], target[5], t)
        residuals(eta, t, link, largest, eta)
        for i in range(TILE):
            weight[i] = weight[i] * stretched(eta[i], far, near, stretch)
            size[i] = size[i] * abs(weight[i])
        scales(size, count, bound, per_unit, size)
        for i in range(TILE):
            size[i] = size[i] * weight[i]
        add_scaled(a, size, most, acc)
        done += 1
        if done == FLUSH:
            flush(acc, total)
            done = 0
    flush(acc, total)


@njit(**OPTIONS, fastmath=EXACT)
def class_scores(
    X, y, lower, upper, mean, scale, shift, rotation, constant, radius, cap, theta, bound, per_unit, total
):
    """Add ``t_y (m - e_y)/g`` times ``w a`` (`default.rows.class_weights`), class by class: (classes, 1 + d)."""
    n, d = shape_of(X)
    classes = theta.shape[0]
    z, a, acc = np.zeros((d, TILE)), np.empty((d + 1, TILE)), np.zeros((classes, d + 1))
    size, weight, spare, gap = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty((classes, TILE))
    t = np.empty(classes)
    most = bound * per_unit * (1.0 + 1e-9)
    done = 0
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        design_tile(
            X, start, count, lower, upper, mean, scale, shift, rotation, constant, radius, cap, z, a, size, weight
        )
        for c in range(classes):
            combine(a, theta[c], 0.0, gap[c])
        for i in range(count):
            largest = gap[0, i]
            for c in range(1, classes):
                largest = max(largest, gap[c, i])
            whole = 0.0
            for c in range(classes):
                gap[c, i] = math.exp(gap[c, i] - largest)
                whole += gap[c, i]
            square = 0.0
            for c in range(classes):
                gap[c, i] /= whole
                square += gap[c, i] * gap[c, i]
            whole = 0.0
            for c in range(classes):
                t[c] = max(1.0 - 2.0 * gap[c, i] + square, NEAREST) ** -EVEN
                gap[c, i] *= t[c]
                whole += gap[c, i]
            square = 0.0
            for c in range(classes):
                gap[c, i] /= whole
                square += gap[c, i] * gap[c, i]
            label, own, largest = np.float64(y[start + i]), 0.0, 0.0
            for c in range(classes):
                largest = max(largest, t[c] * math.sqrt(max(1.0 - 2.0 * gap[c, i] + square, 0.0)))
                own = t[c] if label == c else own
            factor, norm = weight[i] * own / largest, 0.0
            for c in range(classes):
                gap[c, i] = (gap[c, i] - (1.0 if label == c else 0.0)) * factor
                norm += gap[c, i] * gap[c, i]
            size[i] *= math.sqrt(norm)
        scales(size, count, bound, per_unit, size)
        for c in range(classes):
            for k in range(d + 1):
                for i in range(TILE):
                    u = a[k, i] * (gap[c, i] * size[i])
                    spare[i] = (u + ROUND) - ROUND if abs(u) <= most else 0.0
                acc[c, k] += total_of(spare)
        done += 1
        if done == FLUSH:
            flush_table(acc, total.reshape(acc.shape))
            done = 0
    flush_table(acc, total.reshape(acc.shape))
