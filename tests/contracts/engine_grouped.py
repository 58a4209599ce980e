"""Persons with one row each, for the contract of engines: the same integers as their rows, whatever the ids are."""

from __future__ import annotations

import numpy as np

from tailguard.engines.grouped import grouped
from tailguard.engines.memory import InMemory
from tailguard.privacy import SeededNoise


def numbers(X, y, threads, folder):
    return grouped(InMemory(X, y, threads), np.random.default_rng(0).permutation(len(X)), SeededNoise(0))


def names(X, y, threads, folder):
    ids = [f"person {k}" for k in np.random.default_rng(1).permutation(len(X))]
    return grouped(InMemory(X, y, threads), np.array([*ids[:-1], None], dtype=object), SeededNoise(1))


BUILDERS = {"grouped, ids are numbers": numbers, "grouped, ids are names": names}
