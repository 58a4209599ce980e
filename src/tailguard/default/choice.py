"""Which fit of a line, or of counts, there is budget for: a level, a few steps, or all of them. All of it is public."""

from __future__ import annotations

from typing import Literal

from tailguard.default.hinted import SMALL
from tailguard.default.locating import noise_to_signal
from tailguard.hints import Known
from tailguard.means.queries import Queries

Kind = Literal["level", "small", "full"]

LEAST, FEW = 80.0, 500.0  # n mu from which there are slopes, and up to which they are those of few steps
# Noise-to-signal ratio of a gradient up to which there are many steps, with hints about all columns and without; and up
# to which there are any.
LOW, HIGH = {True: SMALL, False: 0.04}, 0.25


def kind_at(size: float, ratio: float, hinted: bool = False) -> Kind:
    """Which fit it is at a size n mu and a noise-to-signal ratio."""
    if size < LEAST or ratio > HIGH:
        return "level"
    return "small" if size < FEW or ratio > LOW[hinted] else "full"


def kind_of(queries: Queries, known: Known | None = None) -> Kind:
    """Which fit it is for these rows."""
    ratio = noise_to_signal(queries, queries.engine.columns + 1)
    return kind_at(queries.n * queries.mu, ratio, is_hinted(known))


def is_hinted(known: Known | None) -> bool:
    """Whether something is known about every column."""
    return known is not None and known.complete
