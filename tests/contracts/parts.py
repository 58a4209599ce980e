"""The parts that the contracts are about: every truncation and every loss, and values that break things."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tailguard import losses as L
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import Gradients, RowFunction, RowValues
from tailguard.truncation import CoordinateClip, L2Clip, Smoothed

LARGEST = float(np.finfo(np.float64).max)

# What the issue names, and what sits where squares, fourth and eighth powers under- or overflow.
AWKWARD = (
    0.0,
    -0.0,
    5e-324,
    -1e-310,
    1e-200,
    1e-154,
    -1e-41,
    1e-8,
    1.0,
    -3.0,
    1e6,
    -1e18,
    1e38,
    1e70,
    1e154,
    -1e155,
    1e200,
    -1e300,
    1e308,
    LARGEST,
    np.inf,
    -np.inf,
    np.nan,
)

BETA = float(np.log(100.0))
TRUNCATIONS = {"L2Clip": L2Clip, "CoordinateClip": CoordinateClip, "Smoothed": lambda bound: Smoothed(bound, BETA)}


def truncation_at(name: str, bound: float):
    """A truncation whose clip or scale is ``bound``."""
    return TRUNCATIONS[name](bound)


@dataclass(frozen=True)
class Given(L.Loss):
    """A loss that ignores w and has the multipliers it is told, one per row and output: `given` vectors."""

    multipliers: np.ndarray = field(repr=False)

    @property
    def outputs(self) -> int:
        return self.multipliers.shape[1]

    def dz(self, z, y):
        return np.broadcast_to(self.multipliers, (len(y), self.outputs)).copy()


def log_cosh() -> L.Custom:
    """A convex loss that a user may write, finite for every float."""
    return L.Custom(
        value=lambda z, y: np.logaddexp(z - y, y - z) - np.log(2.0),
        dz=lambda z, y: np.tanh(z - y),
    )


def squared_per_row() -> L.PerRow:
    """The squared loss as a function of (w, X, y); no BLAS, whose sums depend on the number of rows."""
    return L.PerRow(lambda w, X, y: (np.sum(X * w, axis=1) - y)[:, None] * X)


LOSSES = {
    "Squared": L.Squared(),
    "Logistic": L.Logistic(),
    "Huber": L.Huber(2.0),
    "Poisson": L.Poisson(),
    "Multinomial": L.Multinomial(3),
    "Custom": log_cosh(),
    "PerRow": squared_per_row(),
}
SOURCES = (*LOSSES, "RowValues", "RowFunction", "Given")


def intercept_allowed(source: str) -> bool:
    return source not in ("PerRow", "RowValues", "RowFunction")


def outputs_of(source: str) -> int:
    return {"Given": 2}.get(source) or (LOSSES[source].outputs if source in LOSSES else 1)


def vectors_of(source: str, w: np.ndarray, fit_intercept: bool, multipliers: np.ndarray | None = None):
    """The row vectors of a source at ``w``, (outputs, d + fit_intercept)."""
    if source == "RowValues":
        return RowValues()
    if source == "RowFunction":
        return RowFunction(
            lambda X, y: np.asarray(X, dtype=np.float64) * np.asarray(y, np.float64)[:, None], w.shape[1]
        )
    if source == "Given":
        return Gradients(Given(np.ones((1, 2)) if multipliers is None else multipliers), w, fit_intercept)
    return Gradients(LOSSES[source], w, fit_intercept)


def integer_sum(X, y, vectors, grid, *, threads: int = 1, rows=None) -> np.ndarray:
    """The sum on the grid."""
    return InMemory(X, y, threads).truncated_sum(vectors, grid, rows)


def squared_norm(units: np.ndarray) -> int:
    """Exact sum of squares of integers."""
    return sum(int(unit) ** 2 for unit in units.ravel())
