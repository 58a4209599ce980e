"""Checks of public arguments: every error names the argument, the value and what would be accepted.

They look at types, shapes and parameters only, never at data values, which must not be able to raise.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def real_number(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
    hint: str = "",
) -> float:
    """Return value as a float inside the given range, or raise."""
    number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if number and (low < value if open_low else low <= value) and (value < high if open_high else value <= high):
        return float(value)
    left, right = "(" if open_low or low == -math.inf else "[", ")" if open_high or high == math.inf else "]"
    kind = ValueError if number else TypeError
    raise kind(f"{name}={value!r} is not accepted: give a number in {left}{low:g}, {high:g}{right}.{_space(hint)}")


def positive(name: str, value: Any, hint: str = "") -> float:
    """Return value as a positive finite float, or raise."""
    return real_number(name, value, 0.0, math.inf, open_low=True, open_high=True, hint=hint)


def whole_number(name: str, value: Any, low: int = 1, hint: str = "") -> int:
    """Return value as an int of at least ``low``, or raise."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))
    if whole and value >= low:
        return int(value)
    kind = ValueError if whole else TypeError
    raise kind(f"{name}={value!r} is not accepted: give a whole number of at least {low}.{_space(hint)}")


def one_of(name: str, value: Any, accepted: Any) -> Any:
    """Return value if it is among the accepted ones, or raise."""
    names = list(accepted)
    if isinstance(value, str) and value in names:
        return value
    kind = ValueError if isinstance(value, str) else TypeError
    raise kind(f"{name}={value!r} is not accepted: choose one of {', '.join(map(repr, names))}.")


def instance_of(name: str, value: Any, kind: type, example: str) -> Any:
    """Return value if it is of the kind, or raise with an example of what would be."""
    if isinstance(value, kind):
        return value
    raise TypeError(f"{name}={value!r} is not accepted: give a {kind.__name__}, for example {example}.")


def data_matrix(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return a (n, d) float32 or float64 array without copying one that already is; other numbers become float64."""
    array = _numeric(name, value)
    if array.ndim != 2:
        raise ValueError(
            f"{name} has shape {array.shape}: give two dimensions, rows by columns"
            + (f" ({name}.reshape(-1, 1) for a single column)." if array.ndim == 1 else ".")
        )
    if array.shape[0] < 1 or array.shape[1] < 1:
        raise ValueError(f"{name} has shape {array.shape}: give at least one row and one column.")
    return array


def data_vector(name: str, value: ArrayLike, rows: int) -> NDArray[Any]:
    """Return a (rows,) float32 or float64 array; a single column is flattened."""
    array = _numeric(name, value)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (rows,):
        raise ValueError(
            f"{name} has shape {array.shape} but there are {rows} rows: give one value per row, ({rows},)."
        )
    return array


def _numeric(name: str, value: ArrayLike) -> NDArray[Any]:
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype.kind in "fiub":
        return array.astype(np.float64)
    raise TypeError(
        f"{name} has dtype {array.dtype}: give real numbers (float64 or float32); encode other columns first."
    )


def _space(hint: str) -> str:
    return f" {hint}" if hint else ""
