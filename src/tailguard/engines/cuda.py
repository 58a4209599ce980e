r"""Rows on a GPU: CUDA tensors, or anything that shares its memory by DLPack (CuPy, JAX, RAPIDS columns).

Sums that the kernel of `tailguard.kernels.triton_rows` can take are one pass over the rows where they are, and only
``d`` integers come back:

========================================  ======================================================================
vectors                                   where they are computed
========================================  ======================================================================
gradients of built-in losses, rows        on the GPU, in one pass
gradients of `Custom` and `Multinomial`   predictors on the GPU, ``dz`` by NumPy here, their sum on the GPU
sums of the default                       on the GPU, in one pass each, up to 256 columns
functions of blocks, `PerRow`             blocks are copied here, unless the function says ``on_device = True``
========================================  ======================================================================

A function of blocks that has the attribute ``on_device = True`` is called with tensors instead of arrays and returns a
tensor of the result. More than 1024 columns are summed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tailguard._checks import ShapeError, data_vector
from tailguard._optional import import_optional
from tailguard.engines.engine import BlockFunction, Target, block_rows
from tailguard.engines.labels import as_labels, distinct, encode
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import Gradients, KernelBlock, RowFunction, RowValues, RowVectors
from tailguard.losses import Loss
from tailguard.truncation.grid import Grid

Tensor = Any  # torch is optional

_CUDA = (2, 13)  # device types of DLPack: CUDA, and its managed memory
_MOST_COLUMNS = 1024
# Values of X that are copied here at a time, or handed to a function on the device.
_COPY_VALUES = 2**24
_DEVICE_VALUES = 2**26
# Sums of the default: values of one launch, and columns; see `tailguard.kernels.triton_default`.
_FUSED_VALUES = 2**31
_MOST_FUSED = 256


@dataclass(frozen=True)
class Cuda:
    """An engine over rows ``X`` (n, d) on a GPU and their targets ``y`` (n,) beside them; any strides, no copy of X."""

    X: Tensor
    y: Tensor | None = None
    threads: int | None = None
    names: tuple[str, ...] | None = None

    rank: ClassVar[int] = 20

    @staticmethod
    def accepts(X: Any) -> bool:
        """Arrays on a CUDA device, by the DLPack protocol."""
        device = getattr(X, "__dlpack_device__", None)
        return device is not None and not isinstance(X, np.ndarray) and int(device()[0]) in _CUDA

    @staticmethod
    def of(
        X: Any, y: Any, threads: int | None, *, target: Target = "number", names: Sequence[str] | None = None
    ) -> Cuda:
        """Check types and shapes, not values; targets are moved beside the rows."""
        X = _numbers("X", _tensor(X))
        if X.ndim != 2 or X.shape[0] < 1 or X.shape[1] < 1:
            asked = "give two dimensions, rows by columns, at least one of each."
            raise ShapeError(f"X has shape {tuple(X.shape)}: {asked}", f"X has {X.ndim} dimensions: {asked}")
        if target == "none":
            return Cuda(X, None, threads)
        if y is None:
            raise ValueError("y=None is not accepted: give one value per row.")
        if target == "label" and not hasattr(y, "__dlpack__"):
            y = as_labels(y)  # of any type, which `encoded` makes numbers
        if target == "label" and isinstance(y, np.ndarray) and y.dtype.kind not in "fiub":
            return Cuda(X, y, threads)
        if not hasattr(y, "__dlpack__") or isinstance(y, np.ndarray):
            y = data_vector("y", y, X.shape[0])
        y = _numbers("y", _tensor(y).to(X.device))
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if tuple(y.shape) != (X.shape[0],):
            n = X.shape[0]
            raise ShapeError(
                f"y has shape {tuple(y.shape)} but there are {n} rows: give one value per row, ({n},).",
                "y and X differ in length: give one value per row.",
            )
        return Cuda(X, y.contiguous(), threads)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def columns(self) -> int:
        """Number of columns of X."""
        return int(self.X.shape[1])

    def truncated_sum(
        self, vectors: RowVectors, grid: Grid, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Exact sum of the truncated vectors of the given rows (default all), in units of the grid."""
        if hasattr(vectors, "clipped") and self.columns <= _MOST_FUSED:
            return self._compiled_sum(vectors.clipped(grid), vectors.shape(self.columns), rows)
        if isinstance(vectors, RowFunction) and _on_device(vectors.function) and vectors.width <= _MOST_COLUMNS:
            return self._sum_of_function(vectors, grid, rows)
        if self.columns > _MOST_COLUMNS or not vectors.factored:
            return self._sum_here(vectors, grid, rows)
        if vectors.compiled or isinstance(vectors, RowValues):
            nothing = np.zeros((0, self.columns))
            return self._add(self.X, self.y, vectors.block(nothing, np.zeros(0)), None, grid, rows)
        assert isinstance(vectors, Gradients)
        return self._sum_of_given(vectors, grid, rows)

    def integer_sum(self, function: BlockFunction, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Sum over blocks of rows of ``function(X, y)``, an int64 array: counts, and exact products."""
        if getattr(function, "fused", False) and self.columns <= _MOST_FUSED:
            return self._compiled_sum(function, shape, None)
        if _on_device(function):
            torch = import_optional("torch", "gpu")
            total = torch.zeros(shape, dtype=torch.int64, device=self.X.device)
            for X, y in self._device_blocks(None):
                total += function(X, y).reshape(shape)
            return np.asarray(total.cpu().numpy())
        total = np.zeros(shape, dtype=np.int64)
        for here in self._pieces(None):
            total += here.integer_sum(function, shape)
        return total

    def columns_of(self, vectors: RowVectors) -> Callable[[int, int], NDArray[np.float64]]:
        """Return a function of (output, coordinate) that gives that coordinate of every row's vector, here."""
        return InMemory(*self.take(np.arange(self.n)), self.threads).columns_of(vectors)

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Copy rows, in the given order, into memory: X and y."""
        here = self._here(rows)
        return here.X, np.zeros(len(rows)) if here.y is None else here.y

    def column(self, j: int) -> Cuda:
        """Return an engine over column j alone, as X and as y."""
        torch = import_optional("torch", "gpu")
        column = self.X[:, j].to(torch.float64).contiguous()
        return Cuda(column[:, None], column, self.threads)

    def labels(self) -> NDArray[Any]:
        """Distinct targets, sorted."""
        if isinstance(self.y, np.ndarray):
            return distinct(self.y)
        return distinct(self.y.unique().cpu().numpy())  # type: ignore[union-attr]

    def encoded(self, classes: Sequence[Any], values: NDArray[np.float64]) -> Cuda:
        """Return an engine whose targets are ``values[k]`` where they were ``classes[k]``, and NaN elsewhere."""
        if isinstance(self.y, np.ndarray):
            return replace(self, y=_tensor(encode(self.y, classes, values)).to(self.X.device))
        torch = import_optional("torch", "gpu")
        y = self.y.to(torch.float64)  # type: ignore[union-attr]
        found = torch.full_like(y, float("nan"))
        for label, value in zip(classes, values, strict=True):
            if isinstance(label, Real):
                found = torch.where(y == float(label), float(value), found)
        return replace(self, y=found)

    def map_rows(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
        """Apply a function to all rows, a block at a time, here."""
        return np.concatenate([piece.map_rows(function) for piece in self._pieces(None)])

    def _add(
        self, X: Tensor, y: Tensor, block: KernelBlock, given: Tensor, grid: Grid, rows: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """Launch the kernel; ``block`` says how multipliers are made."""
        kernels = import_optional("tailguard.kernels.triton_rows", "gpu")
        bound, *psi = grid.truncation.kernel_arguments()
        w = _tensor(np.array(block.w)).to(X.device)
        index = None if rows is None else _tensor(np.array(rows, dtype=np.int64)).to(X.device)
        settings = (
            block.fit_intercept,
            block.code,
            block.parameter,
            grid.truncation.kind,
            bound,
            1.0 / grid.unit,
            *psi,
        )
        with _device_of(X):
            return np.asarray(kernels.add_rows(X, y, w, given, index, *settings).cpu().numpy())

    def _sum_of_given(self, vectors: Gradients, grid: Grid, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Predictors on the GPU, the loss here, the sum on the GPU."""
        kernels = import_optional("tailguard.kernels.triton_rows", "gpu")
        w = _tensor(np.array(vectors.w)).to(self.X.device)
        total = np.zeros(vectors.shape(self.columns), dtype=np.int64)
        size = block_rows(self.columns)
        many = max(1, _COPY_VALUES // (size * w.shape[0])) * size  # whole blocks, as everywhere
        for X, y in self._device_blocks(rows, many):
            with _device_of(X):
                z = kernels.predict(X, w, vectors.fit_intercept).cpu().numpy()
            targets = y.cpu().numpy()
            parts = [slice(k, k + size) for k in range(0, len(z), size)]
            given = np.concatenate([_multipliers(vectors.loss, z[part], targets[part]) for part in parts])
            block = KernelBlock(z, targets, vectors.w, vectors.fit_intercept, 0, 0.0, given)
            total += self._add(X, y, block, _tensor(given).to(X.device), grid, None)
        return total

    def _sum_of_function(self, vectors: RowFunction, grid: Grid, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Vectors by a function of tensors."""
        torch = import_optional("torch", "gpu")
        total = np.zeros((1, vectors.width), dtype=np.int64)
        block = RowValues().block(np.zeros((0, vectors.width)), np.zeros(0))
        for X, y in self._device_blocks(rows):
            made: Tensor = vectors.function(X, y)
            if tuple(made.shape) != (len(X), vectors.width):
                raise ValueError(
                    f"function(X, y) returned shape {tuple(made.shape)}: return {(len(X), vectors.width)}, "
                    "one result per row of the block."
                )
            total += self._add(made.to(torch.float64), None, block, None, grid, None)
        return total

    def _compiled_sum(
        self, function: BlockFunction, shape: tuple[int, ...], rows: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """Sums of the default, by functions that add up integers on the device and bring them here."""
        total = np.zeros(shape, dtype=np.int64)
        with _device_of(self.X):
            for X, y in self._device_blocks(rows, max(1, _FUSED_VALUES // self.columns)):
                total += function(X, y.contiguous()).reshape(shape)
        return total

    def _sum_here(self, vectors: RowVectors, grid: Grid, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        total = np.zeros(vectors.shape(self.columns), dtype=np.int64)
        for here in self._pieces(rows):
            total += here.truncated_sum(vectors, grid)
        return total

    def _device_blocks(
        self, rows: NDArray[np.int64] | None, size: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows and targets in large blocks, on the device; targets are 0 where there are none."""
        torch = import_optional("torch", "gpu")
        size = size or max(1, _DEVICE_VALUES // self.columns)
        y = torch.zeros(1, dtype=torch.float64, device=self.X.device).expand(self.n) if self.y is None else self.y
        index = None if rows is None else _tensor(np.array(rows, dtype=np.int64)).to(self.X.device)
        for start in range(0, self.n if index is None else len(index), size):
            part: Any = slice(start, start + size) if index is None else index[start : start + size]
            yield self.X[part], y[part]

    def _pieces(self, rows: NDArray[np.int64] | None) -> Iterator[InMemory]:
        """Copies of rows here, in pieces of whole blocks."""
        size = block_rows(self.columns)
        many = max(1, _COPY_VALUES // (size * self.columns)) * size
        for start in range(0, self.n if rows is None else len(rows), many):
            yield self._here(slice(start, start + many) if rows is None else rows[start : start + many])

    def _here(self, rows: Any) -> InMemory:
        """Copy rows here."""
        part = rows if isinstance(rows, slice) else _tensor(np.array(rows, dtype=np.int64)).to(self.X.device)
        y = self.y
        if y is not None:
            y = y[rows] if isinstance(y, np.ndarray) else y[part].cpu().numpy()
        return InMemory(self.X[part].contiguous().cpu().numpy(), y, self.threads)


def _tensor(value: Any) -> Tensor:
    """Return a torch tensor that shares the value's memory where it can."""
    torch = import_optional("torch", "gpu")
    if isinstance(value, torch.Tensor):
        return value.detach()
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        return torch.from_dlpack(value)
    return torch.as_tensor(np.ascontiguousarray(value))


def _numbers(name: str, tensor: Tensor) -> Tensor:
    """Return float32 and float64 as they are, other numbers as float64."""
    torch = import_optional("torch", "gpu")
    if tensor.dtype in (torch.float32, torch.float64):
        return tensor
    if tensor.dtype.is_complex or tensor.is_sparse:
        raise TypeError(f"{name} has dtype {tensor.dtype}: give real numbers (float64 or float32), not sparse.")
    return tensor.to(torch.float64)


def _multipliers(loss: Loss, z: NDArray[np.float64], y: NDArray[Any]) -> NDArray[np.float64]:
    """Derivatives of a loss in the predictors ``z`` (rows, outputs), of the same shape."""
    with np.errstate(all="ignore"):
        dz = loss.dz(z if loss.outputs > 1 else z[:, 0], np.asarray(y, dtype=np.float64))
        given = np.ascontiguousarray(dz, dtype=np.float64)
    expected = z.shape if loss.outputs > 1 else z.shape[:1]
    if given.shape != expected:
        raise ValueError(f"dz(z, y) returned shape {given.shape}: return {expected}, one result per row of the block.")
    return given.reshape(z.shape)


def _on_device(function: Callable[..., Any]) -> bool:
    return bool(getattr(function, "on_device", False))


def _device_of(X: Tensor) -> Any:
    """Return a context in which kernels are launched where X is."""
    torch = import_optional("torch", "gpu")
    return torch.cuda.device(X.device) if X.is_cuda else nullcontext()
