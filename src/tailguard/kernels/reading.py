"""How kernels read a table: an array in any layout, or columns that lie apart (`Apart`).

A tile is 64 rows. It is turned on its side as it is read: column j of the tile becomes row j of an array.
"""

from __future__ import annotations

from numba import types
from numba.extending import overload

from tailguard.kernels.compiling import njit
from tailguard.kernels.lanes import WIDTH, columns1, columns4, keep, load, pointer, store

TILE = 64  # rows
OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy"}


@njit(**OPTIONS)
def load4(data, at):
    """Half a row of a tile: four registers."""
    return load(data, at), load(data, at + WIDTH), load(data, at + 2 * WIDTH), load(data, at + 3 * WIDTH)


@njit(**OPTIONS)
def store4(data, at, values):
    """Put four registers side by side."""
    store(data, at, values[0])
    store(data, at + WIDTH, values[1])
    store(data, at + 2 * WIDTH, values[2])
    store(data, at + 3 * WIDTH, values[3])


def shape_of(X):
    """Rows and columns of a table, an array or an `Apart`."""


def entry(X, i, j):
    """One number of a table."""


def turn(X, start, count, z):
    """Fill ``z[j, i] = X[start + i, j]``, (d, TILE): a register at a time where rows or columns have no gaps."""


@overload(shape_of, jit_options=OPTIONS)
def _shape_of(X):
    if isinstance(X, types.Array):
        return lambda X: X.shape
    return lambda X: (len(X.first), len(X.offsets))


@overload(entry, jit_options=OPTIONS)
def _entry(X, i, j):
    if isinstance(X, types.Array):
        return lambda X, i, j: X[i, j]

    def apart(X, i, j):
        value = pointer(X.first)[X.offsets[j] + i]
        keep((X.first,))
        return value

    return apart


@overload(turn, jit_options=OPTIONS)
def _turn(X, start, count, z):
    return _turn_array if isinstance(X, types.Array) else _turn_apart


def _turn_apart(X, start, count, z):
    data, out = pointer(X.first), pointer(z)
    for j in range(len(X.offsets)):
        first = X.offsets[j] + start
        if count == TILE:
            for i in range(0, TILE, 4 * WIDTH):
                store4(out, j * TILE + i, load4(data, first + i))
        else:
            for i in range(count):
                z[j, i] = data[first + i]
    keep((X.first, z))


def _turn_array(X, start, count, z):
    d, each = X.shape[1], X.itemsize
    down, across = X.strides[0] // each, X.strides[1] // each
    data, out = pointer(X), pointer(z)
    if count == TILE and X.strides[0] == each and X.strides[1] == across * each:
        for j in range(d):
            for i in range(0, TILE, 4 * WIDTH):
                store4(out, j * TILE + i, load4(data, start + i + j * across))
    elif count == TILE and X.strides[1] == each and X.strides[0] == down * each:
        whole = d - d % 4
        for i in range(0, TILE, WIDTH):
            first = (start + i) * down
            for j in range(0, whole, 4):
                x0, x1, x2, x3 = columns4(data, first + j, down)
                store(out, j * TILE + i, x0)
                store(out, (j + 1) * TILE + i, x1)
                store(out, (j + 2) * TILE + i, x2)
                store(out, (j + 3) * TILE + i, x3)
            for j in range(whole, d):
                store(out, j * TILE + i, columns1(data, first + j, down)[0])
    else:
        for i in range(count):
            for j in range(d):
                z[j, i] = X[start + i, j]
    keep((X, z))


@njit(**OPTIONS)
def fill_rows(X, out):
    """Fill ``out``, row after row, with a table whose columns lie apart: a tile at a time, which stays in the cache."""
    n, d = shape_of(X)
    data, into = pointer(X.first), pointer(out)
    for start in range(0, n, TILE):
        end = min(n, start + TILE)
        for j in range(d):
            first = X.offsets[j]
            for i in range(start, end):
                into[i * d + j] = data[first + i]
    keep((X.first, out))
