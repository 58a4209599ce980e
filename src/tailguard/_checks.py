"""Checks of public arguments: every error names the argument, the value and what would be accepted.

They look at types, shapes and parameters only, never at data values, which must not be able to raise. A privacy
parameter that is silently coerced is a privacy bug: ``True`` is not an epsilon of one and ``"0.1"`` is not a delta.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def real(name: str, value: object, accepted: str) -> float:
    """Return ``value`` as a float; refuse booleans, strings, arrays and NaN."""
    if type(value) is float and value == value:  # nearly always, and ten times quicker
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {accepted}; got {value!r} of type {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond all floats
        number = math.inf if value == abs(value) else -math.inf
    if math.isnan(number):
        raise ValueError(f"{name} must be {accepted}; got nan")
    return number


def yes_or_no(name: str, value: object) -> bool:
    """Return ``value`` if it is True or False: a text or a number that happens to be true is a mistake."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False; got {value!r}")
    return bool(value)


def positive(name: str, value: object) -> float:
    """Return ``value`` if it is a finite number above zero."""
    accepted = "a finite number above 0"
    number = real(name, value, accepted)
    if not 0.0 < number < math.inf:
        raise ValueError(f"{name} must be {accepted}; got {value!r}")
    return number


def nonnegative(name: str, value: object) -> float:
    """Return ``value`` if it is in [0, ∞]."""
    accepted = "a number in [0, inf]"
    number = real(name, value, accepted)
    if number < 0.0:
        raise ValueError(f"{name} must be {accepted}; got {value!r}")
    return number


def probability(name: str, value: object, *, zero: bool = False, one: bool = False) -> float:
    """Return ``value`` if it is a probability; the ends are accepted only by name."""
    accepted = f"a number in {'[' if zero else '('}0, 1{']' if one else ')'}"
    number = real(name, value, accepted)
    inside = 0.0 < number < 1.0 or (zero and number == 0.0) or (one and number == 1.0)
    if not inside:
        raise ValueError(f"{name} must be {accepted}; got {value!r}")
    return number


def count(name: str, value: object, *, least: int = 1) -> int:
    """Return ``value`` if it is an integer of at least ``least``."""
    if type(value) is int and value >= least:
        return value
    accepted = f"an integer >= {least}"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be {accepted}; got {value!r} of type {type(value).__name__}")
    number = int(value)
    if number < least:
        raise ValueError(f"{name} must be {accepted}; got {value!r}")
    return number


def within(
    name: str,
    value: object,
    low: float,
    high: float,
    *,
    open_low: bool = False,
    open_high: bool = False,
    hint: str = "",
) -> float:
    """Return ``value`` if it is between ``low`` and ``high``."""
    accepted = f"a number in {'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
    number = real(name, value, accepted)
    inside = (low < number if open_low else low <= number) and (number < high if open_high else number <= high)
    if not inside:
        raise ValueError(f"{name} must be {accepted}; got {value!r}{f' ({hint})' if hint else ''}")
    return number


def one_of(name: str, value: Any, accepted: Any, meant: Mapping[str, str] | None = None) -> Any:
    """Return value if it is among the accepted ones, or raise and suggest the nearest; ``meant`` knows other names."""
    names = list(accepted)
    if isinstance(value, str) and value in names:
        return value
    refusal = f"{name} must be one of {', '.join(map(repr, names))}; got {value!r}"
    if not isinstance(value, str):
        raise TypeError(refusal)
    import difflib  # for errors alone

    near = [(meant or {}).get(value), *difflib.get_close_matches(value.lower(), names, n=1)]
    likely = [one for one in near if one in names]
    raise ValueError(refusal + (f". Did you mean {likely[0]!r}?" if likely else ""))


def instance_of(name: str, value: Any, kind: type, example: str) -> Any:
    """Return value if it is of the kind, or raise with an example of what would be."""
    if isinstance(value, kind):
        return value
    raise TypeError(f"{name} must be a {kind.__name__}, for example {example}; got {value!r}")


def json_object(name: str, text: object) -> dict[str, Any]:
    """Return the JSON object that a text holds."""
    accepted = "the text of a JSON object"
    if not isinstance(text, (str, bytes, bytearray)):
        raise TypeError(f"{name} must be {accepted}; got {type(text).__name__}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{name} must be {accepted}; got something that is not JSON") from None
    if not isinstance(found, dict):
        raise ValueError(f"{name} must be {accepted}; got a JSON {type(found).__name__}")
    return found


def exactly(name: str, data: object, fields: set[str]) -> dict[str, Any]:
    """Return a mapping as a dict if it has these fields and no others."""
    if not isinstance(data, Mapping):
        raise TypeError(f"{name} must be a mapping with {', '.join(sorted(fields))}; got {type(data).__name__}")
    odd = set(map(str, data)) ^ fields
    if odd:
        raise ValueError(f"{name} must have exactly {', '.join(sorted(fields))}; missing or unknown: {min(odd)!r}")
    return dict(data)


class ShapeError(ValueError):
    """An array of the wrong shape, which the message tells, and with it the number of rows; ``words`` does not."""

    def __init__(self, message: str, words: str) -> None:
        super().__init__(message)
        self.words = words


def data_matrix(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return a (n, d) float32 or float64 array without copying one that already is; other numbers become float64."""
    array = as_numbers(name, value)
    if array.ndim != 2:
        asked = "give two dimensions, rows by columns"
        asked += f" ({name}.reshape(-1, 1) for a single column)." if array.ndim == 1 else "."
        raise ShapeError(f"{name} has shape {array.shape}: {asked}", f"{name} has {array.ndim} dimensions: {asked}")
    if array.shape[0] < 1 or array.shape[1] < 1:
        raise ValueError(f"{name} has shape {array.shape}: give at least one row and one column.")
    return array


def data_vector(name: str, value: ArrayLike, rows: int) -> NDArray[Any]:
    """Return a (rows,) float32 or float64 array; a single column is flattened."""
    array = as_numbers(name, value)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (rows,):
        raise ShapeError(
            f"{name} has shape {array.shape} but there are {rows} rows: give one value per row, ({rows},).",
            f"{name} and X differ in length: give one value per row.",
        )
    return array


def as_numbers(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return a float32 or float64 array of any shape without copying one that already is.

    A masked value is missing. Lists and frames may hold whole numbers of any size and missing values: the type that
    NumPy finds for those depends on the values, so it must not decide whether they are accepted.
    """
    if isinstance(value, np.ma.MaskedArray) and value.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            value = np.ma.filled(value.astype(np.float64), np.nan)
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be a rectangular array of numbers; give rows of equal length") from None
    if array.dtype == object and array.ndim and not isinstance(value, np.ndarray):
        array = plain_numbers(array)
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            return array.astype(np.float64)
    raise TypeError(
        f"{name} has dtype {kind_of(array.dtype)}: give real numbers (float64 or float32); encode other columns first."
    )


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return a type in words; that of texts would say how long the longest of them is."""
    return {"U": "text", "S": "bytes"}.get(dtype.kind, str(dtype))


def plain_numbers(array: NDArray[Any]) -> NDArray[Any]:
    """Return an object array as float64, or as it is if it holds anything but numbers and missing values."""
    found = np.empty(array.size)
    for i, value in enumerate(array.ravel().tolist()):
        number = _plain_number(value)
        if number is None:
            return array
        found[i] = number
    return found.reshape(array.shape)


@contextmanager
def complex_refused() -> Iterator[None]:
    """Raise where a complex number among objects would become its real part, with a warning about the data."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", np.exceptions.ComplexWarning)
        try:
            yield
        except np.exceptions.ComplexWarning:
            raise TypeError("complex numbers are not accepted: give real ones.") from None


def _plain_number(value: Any) -> float | None:
    """Return a float: NaN for a missing value, infinity for a whole number that no float can hold; else None."""
    if value is None or type(value).__name__ == "NAType":  # that of pandas, which need not be installed
        return math.nan
    if isinstance(value, (str, bytes, complex, np.complexfloating, np.ndarray)) or not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        return None
