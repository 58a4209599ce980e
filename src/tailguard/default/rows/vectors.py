"""What all vectors of rows have in common: the sum of a block, by definition or as one compiled pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard import kernels
from tailguard._optional import import_optional
from tailguard.engines.vectors import KernelBlock, RowFunction
from tailguard.kernels.apart import Apart
from tailguard.truncation import Grid

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def passes(rows: Any) -> Any:
    """Functions that add up integers over rows where they are: in memory, or on a GPU."""
    if isinstance(rows, (np.ndarray, Apart)):
        return kernels.default_sums
    return import_optional("tailguard.kernels.triton_default", "gpu")


class Vectors:
    """What an engine asks of the vectors of rows: `tailguard.engines.vectors.RowVectors`."""

    compiled = False
    factored = False

    @property
    def width(self) -> int:
        """Numbers in the vector of a row."""
        raise NotImplementedError

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Vectors of a block of rows, (rows, width)."""
        raise NotImplementedError

    def shape(self, columns: int) -> tuple[int, int]:
        """One output."""
        return 1, self.width

    def block(self, X: NDArray[Any], y: NDArray[Any]) -> KernelBlock:
        """The definition, for an engine that adds up given vectors."""
        return RowFunction(self, self.width).block(X, y)

    def clipped(self, grid: Grid) -> Clipped:
        """The sum of the vectors, scaled down to the bound of the grid, as one compiled pass."""
        return Clipped(self, grid)

    def add(self, X: NDArray[Any], y: NDArray[Any], bound: float, per_unit: float, total: Integers) -> None:
        """Add the vectors of a block of rows to ``total``, scaled down to the bound, in units."""
        raise NotImplementedError


@dataclass(frozen=True)
class Clipped:
    """The sum of vectors that are scaled down to the bound of a grid, in its units: integers, (width,)."""

    vectors: Vectors
    grid: Grid
    fused = True

    @property
    def shape(self) -> tuple[int]:
        """One integer for each coordinate."""
        return (self.vectors.width,)

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Integers:
        """Add up a block of rows."""
        total = np.zeros(self.vectors.width, np.int64)
        self.vectors.add(X, y, self.grid.truncation.largest, 1.0 / self.grid.unit, total)
        return total
