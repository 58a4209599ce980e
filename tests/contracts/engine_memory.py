"""Ways to hold rows in memory, for the contract of engines."""

from __future__ import annotations

import numpy as np

from tailguard.engines.memory import InMemory


def mapped(X, y, threads, folder):
    np.save(folder / "X.npy", X)
    return InMemory(np.load(folder / "X.npy", mmap_mode="r"), y, threads)


def strided(X, y, threads, folder):
    wide = np.zeros((2 * len(X), X.shape[1] + 1), X.dtype)
    wide[::2, 1:] = X
    return InMemory(wide[::2, 1:], y, threads)


BUILDERS = {
    "memory": lambda X, y, threads, folder: InMemory(X, y, threads),
    "memory, column by column": lambda X, y, threads, folder: InMemory(np.asfortranarray(X), y, threads),
    "memory, strided": strided,
    "memory, mapped": mapped,
}
