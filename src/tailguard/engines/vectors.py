r"""Row vectors: the vectors, one per row, that a private mean is taken of.

Either the per-row gradients of a loss at ``w`` (`Gradients`) or the rows themselves (`RowValues`). An engine asks for a
block of them in the form its kernel takes: a matrix and a multiplier per row and output, whose products are the
vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tailguard import kernels
from tailguard._checks import ShapeError
from tailguard.kernels import codes
from tailguard.losses import Loss, PerRow

Array = NDArray[np.float64]
_NOTHING = np.zeros((0, 1))


class KernelBlock(NamedTuple):
    """A block of rows for the kernel: vectors ``f_k x``, f given or else computed by the kernel from w and y."""

    X: NDArray[Any]
    y: NDArray[Any]
    w: Array
    fit_intercept: bool
    code: int
    parameter: float
    given: Array


class RowVectors(Protocol):
    """What an engine asks."""

    @property
    def compiled(self) -> bool:
        """Whether the kernel computes the multipliers itself, with no Python call per block."""

    @property
    def factored(self) -> bool:
        """Whether the vectors are multiples of the rows of X, rather than new rows."""

    def shape(self, columns: int) -> tuple[int, int]:
        """Outputs by coordinates of one row's vector, for data with so many columns."""

    def block(self, X: NDArray[Any], y: NDArray[Any]) -> KernelBlock:
        """Prepare C-contiguous rows for the kernel."""


@dataclass(frozen=True)
class RowValues:
    """The rows themselves."""

    compiled = False
    factored = True

    def shape(self, columns: int) -> tuple[int, int]:
        """One output, one coordinate per column."""
        return 1, columns

    def block(self, X: NDArray[Any], y: NDArray[Any]) -> KernelBlock:
        """Multiplier 1."""
        return KernelBlock(X, y, np.zeros((1, X.shape[1])), False, codes.GIVEN, 0.0, np.ones((len(X), 1)))


@dataclass(frozen=True)
class RowFunction:
    """Any function of a block of rows to vectors of ``width`` numbers; row i of its result depends on row i alone."""

    function: Callable[[NDArray[Any], NDArray[Any]], Array]
    width: int
    compiled = False
    factored = False

    def shape(self, columns: int) -> tuple[int, int]:
        """One output."""
        return 1, self.width

    def block(self, X: NDArray[Any], y: NDArray[Any]) -> KernelBlock:
        """Call the function."""
        with np.errstate(all="ignore"):
            rows = _per_row("function(X, y)", self.function(X, y), (len(X), self.width))
        return KernelBlock(rows, y, np.zeros((1, self.width)), False, codes.GIVEN, 0.0, np.ones((len(X), 1)))


@dataclass(frozen=True)
class Gradients:
    """Gradients of a loss at ``w``, of shape (outputs, d + fit_intercept), the intercept last."""

    loss: Loss
    w: Array
    fit_intercept: bool

    @property
    def compiled(self) -> bool:
        """Built-in losses of one predictor have compiled derivatives."""
        return self.loss.kernel_code != codes.GIVEN

    @property
    def factored(self) -> bool:
        """All but per-row gradients."""
        return not isinstance(self.loss, PerRow)

    def shape(self, columns: int) -> tuple[int, int]:
        """That of w."""
        return self.w.shape[0], self.w.shape[1]

    def block(self, X: NDArray[Any], y: NDArray[Any]) -> KernelBlock:
        """Call the loss where the kernel cannot."""
        if self.compiled:
            code, parameter = self.loss.kernel_code, float(self.loss.kernel_parameter)
            return KernelBlock(X, y, self.w, self.fit_intercept, code, parameter, _NOTHING)
        with np.errstate(all="ignore"):
            if isinstance(self.loss, PerRow):
                w = self.w[0]
                rows = _per_row("gradient(w, X, y)", self.loss.gradient(w.copy(), X, y), (len(X), len(w)))
                return KernelBlock(rows, y, np.zeros_like(self.w), False, codes.GIVEN, 0.0, np.ones((len(X), 1)))
            z = np.empty((len(X), self.w.shape[0]))
            kernels.rows.predict(X, self.w, self.fit_intercept, z)
            y = np.asarray(y, dtype=np.float64)
            if self.loss.outputs == 1:
                given = _per_row("dz(z, y)", self.loss.dz(z[:, 0], y), (len(X),))[:, None]
            else:
                given = _per_row("dz(z, y)", self.loss.dz(z, y), z.shape)
        return KernelBlock(X, y, self.w, self.fit_intercept, codes.GIVEN, 0.0, given)


def _per_row(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    array = np.ascontiguousarray(value, dtype=np.float64)
    if array.shape != shape:
        width = "" if len(shape) == 1 else f", {shape[1]} numbers each"
        raise ShapeError(
            f"{name} returned shape {array.shape}: return {shape}, one result per row of the block.",
            f"{name} returned another shape than it must: return one result per row of the block{width}.",
        )
    return array
