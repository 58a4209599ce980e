"""Class labels as numbers, by equality: a label of another type is foreign and must not raise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def as_labels(y: Any) -> NDArray[Any]:
    """Return labels as an array, one by one if they are in none: a list has no type of its own.

    NumPy would find one for all of them, so a single text would turn every number beside it into another text.
    """
    if hasattr(y, "dtype") or not isinstance(y, Iterable) or isinstance(y, (str, bytes)):
        return np.asarray(y)
    values = list(y)
    if values and all(isinstance(value, (list, tuple)) and len(value) == 1 for value in values):
        return as_labels([value[0] for value in values])[:, None]
    if values and all(isinstance(value, (list, tuple, np.ndarray)) for value in values):
        return np.asarray(y)  # of another shape, which is then refused
    found = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        found[i] = value
    return found


def encode(y: NDArray[Any], classes: Sequence[Any], values: Array) -> Array:
    """Return ``values[k]`` where y is ``classes[k]``, NaN where it is none of them."""
    return pick(values, places(y, classes))


def places(y: NDArray[Any], classes: Sequence[Any]) -> Array:
    """Return the place of every label among the classes, NaN where it has none."""
    if y.dtype.kind in "fiub":
        return _places_of_numbers(y, classes)
    place = {label: k for k, label in enumerate(classes)}
    return np.array([_look_up(place, label) for label in y.tolist()], dtype=np.float64)


def distinct(found: Iterable[Any]) -> NDArray[Any]:
    """Return distinct labels, sorted; missing ones are refused, since a class cannot be missing."""
    labels = set(found)
    if any(label is None or label != label for label in labels):
        raise ValueError("y has missing labels: name the classes, classes=[...]; other rows then contribute nothing.")
    if len({isinstance(label, (str, bytes)) for label in labels}) > 1:
        raise ValueError("y has texts and other labels: name the classes, classes=[...]; others contribute nothing.")
    return np.unique(np.array(list(labels)))


def pick(values: Array, found: Array) -> Array:
    """Return the value at each place; NaN stays NaN."""
    missing = np.isnan(found)
    return np.where(missing, np.nan, values[np.where(missing, 0.0, found).astype(np.int64)])


def _places_of_numbers(y: NDArray[Any], classes: Sequence[Any]) -> Array:
    """One search for all: a pass over a billion labels cannot afford a look-up each; it finds what a look-up finds."""
    y = y.astype(np.int8) if y.dtype.kind == "b" else y
    known = sorted((y.dtype.type(label), k) for k, label in enumerate(classes) if _is_exact(label, y.dtype))
    if not known:
        return np.full(len(y), np.nan)
    numbers = np.array([number for number, _ in known], dtype=y.dtype)
    index = np.minimum(np.searchsorted(numbers, y), len(numbers) - 1)
    return np.where(numbers[index] == y, np.array([float(k) for _, k in known])[index], np.nan)


def _is_exact(label: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a type of numbers has one that equals a label."""
    if not isinstance(label, (Real, np.bool_)):
        return False
    try:
        with np.errstate(all="ignore"):
            return bool(dtype.type(label).item() == label)
    except (OverflowError, ValueError):
        return False


def _look_up(place: dict[Any, int], label: Any) -> float:
    try:
        return place.get(label, np.nan)
    except TypeError:  # a label that cannot be one
        return np.nan
