"""Columns of Arrow as numbers. What a column is accepted for is read from its type, which is public.

=====================================  ===============================================================
type                                   number
=====================================  ===============================================================
float16, float32, float64              itself
integers, booleans, decimals           the nearest float64; True is 1
null (a column without any value)      NaN
text, declared a number (CSV)          what Python's ``float`` says of its bytes, else NaN
anything else                          refused, by the name and the type of the column
=====================================  ===============================================================

A null is NaN. No value can raise: conversions neither check for loss nor repeat what they could not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard._optional import import_optional


def is_number(kind: Any) -> bool:
    """Whether a column of this type can be a feature or a numeric target."""
    types = import_optional("pyarrow.types", "arrow")
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def is_text(kind: Any) -> bool:
    """Whether a column of this type can hold text labels."""
    types = import_optional("pyarrow.types", "arrow")
    if types.is_dictionary(kind):
        kind = kind.value_type
    return any(test(kind) for test in (types.is_string, types.is_large_string, types.is_string_view))


def is_float32(kind: Any) -> bool:
    """Whether float32 holds every value of this type exactly and the type says so."""
    types = import_optional("pyarrow.types", "arrow")
    return bool(types.is_float32(kind) or types.is_float16(kind))


def numbers(column: Any) -> NDArray[Any]:
    """Return a column as an array of floats, or of integers or booleans if it has no null."""
    arrow = import_optional("pyarrow", "arrow")
    kind = column.type
    if is_text(kind):
        return _parsed(column)
    if arrow.types.is_null(kind):
        return np.full(len(column), np.nan)
    if arrow.types.is_boolean(kind):
        column = column.cast(arrow.uint8())
    elif arrow.types.is_decimal(kind):
        column = column.cast(arrow.float64(), safe=False)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def texts(column: Any) -> list[str | None]:
    """Return a column of text, None for a null; bytes that are no text are replaced."""
    arrow = import_optional("pyarrow", "arrow")
    cells = _plain_text(column).cast(arrow.binary()).to_pylist()
    return [None if cell is None else cell.decode("utf-8", "replace") for cell in cells]


def label_places(column: Any, classes: Sequence[Any]) -> NDArray[np.float64]:
    """Return the place of every text label among the classes, NaN where it has none."""
    arrow, compute = import_optional("pyarrow", "arrow"), import_optional("pyarrow.compute", "arrow")
    known = [(label, k) for k, label in enumerate(classes) if isinstance(label, str)]
    found = compute.index_in(_plain_text(column), value_set=arrow.array([label for label, _ in known], arrow.string()))
    index = found.to_numpy(zero_copy_only=False).astype(np.float64)
    place = np.array([float(k) for _, k in known] + [np.nan])
    return np.asarray(place[np.where(np.isnan(index), len(known), index).astype(np.int64)])


def _plain_text(column: Any) -> Any:
    arrow = import_optional("pyarrow", "arrow")
    return column if column.type == arrow.string() else column.cast(arrow.string())


# Text of this form is in the range of floats and means the same to Arrow and to Python.
_PLAIN = r"^[-+]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][-+]?[0-9]{1,2})?$"

# Python reads no number from text without any of these; a column of words need not be tried one by one.
_SOME = r"[0-9]|(?i:inf|nan)"


def _parsed(column: Any) -> NDArray[np.float64]:
    """Text as numbers: all at once if all are numbers, else those of plain form at once and the others one by one."""
    arrow, compute = import_optional("pyarrow", "arrow"), import_optional("pyarrow.compute", "arrow")
    try:
        return np.asarray(column.cast(arrow.float64()).to_numpy(zero_copy_only=False))
    except arrow.ArrowInvalid:  # whose message would repeat a value
        pass
    column = column.cast(arrow.binary())
    found = np.full(len(column), np.nan)
    plain = compute.fill_null(compute.match_substring_regex(column, _PLAIN), False)
    other = compute.and_not(compute.fill_null(compute.match_substring_regex(column, _SOME), False), plain)
    numbers = compute.filter(column, plain).cast(arrow.string(), safe=False).cast(arrow.float64())
    found[plain.to_numpy(zero_copy_only=False)] = numbers
    found[other.to_numpy(zero_copy_only=False)] = [_number(text) for text in compute.filter(column, other).to_pylist()]
    return found


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan
