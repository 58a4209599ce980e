"""Class labels as numbers, one by one: a label of another type is foreign, must not raise, and changes no other row.

A label that is a number is the float64 nearest to it. A column of whole numbers becomes one of floats as soon as a
value is missing, so a finer rule would be another one for all of its rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def as_labels(y: Any) -> NDArray[Any]:
    """Return labels as an array, one by one if they are in none: a list has no type of its own.

    NumPy would find one for all of them, so a single text would turn every number beside it into another text.
    """
    if hasattr(y, "__array__") or not isinstance(y, Iterable) or isinstance(y, (str, bytes)):
        return np.asarray(y)
    values = list(y)
    found = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        found[i] = _alone(value)
    return found


def _alone(label: Any) -> Any:
    """What a list or an array of one label holds, as rows of a matrix with one column do."""
    if isinstance(label, np.ndarray) and label.size == 1:
        return label.item()
    return label[0] if isinstance(label, (list, tuple)) and len(label) == 1 else label


def key_of(label: Any) -> Any:
    """What a label is told from others by."""
    if not isinstance(label, (Real, Decimal, np.bool_)):
        return label
    try:
        return float(label)
    except OverflowError:
        return math.copysign(math.inf, 1 if label > 0 else -1)  # type: ignore[operator]
    except ValueError:  # a decimal that is not even NaN
        return math.nan


def encode(y: NDArray[Any], classes: Sequence[Any], values: Array) -> Array:
    """Return ``values[k]`` where y is ``classes[k]``, NaN where it is none of them."""
    return pick(values, places(y, classes))


def places(y: NDArray[Any], classes: Sequence[Any]) -> Array:
    """Return the place of every label among the classes, NaN where it has none."""
    if y.dtype.kind in "fiub":
        return _places_of_numbers(y, classes)
    place = {key_of(label): k for k, label in enumerate(classes)}
    return np.array([_look_up(place, label) for label in y.tolist()], dtype=np.float64)


def distinct(found: Iterable[Any], name: str = "y") -> NDArray[Any]:
    """Return distinct labels, sorted; what no class can be is refused: of y, if nobody says which labels there are."""
    advice = "give texts, or numbers"
    if name == "y":
        advice = "name the classes, classes=[...]; other rows then contribute nothing"
    if isinstance(found, np.ndarray):
        found = (np.unique(found) if found.dtype.kind in "fiubU" else found.ravel()).tolist()
    try:
        labels = set(found)
    except TypeError:  # nor a look-up of it
        raise ValueError(f"{name} has labels that are lists: {advice}.") from None
    if any(label is None or label != label for label in labels):
        raise ValueError(f"{name} has missing labels: {advice}.")
    if len({_kind(label) for label in labels}) > 1:
        raise ValueError(f"{name} has texts and other labels: {advice}.")
    if len({key_of(label) for label in labels}) < len(labels):
        raise ValueError(f"{name} has whole numbers of 2**53 or more, which no float tells apart: {advice}.")
    return np.unique(np.array(list(labels)))


def _kind(label: Any) -> type:
    return next((kind for kind in (str, bytes) if isinstance(label, kind)), object)


def pick(values: Array, found: Array) -> Array:
    """Return the value at each place; NaN stays NaN."""
    missing = np.isnan(found)
    return np.where(missing, np.nan, values[np.where(missing, 0.0, found).astype(np.int64)])


def _places_of_numbers(y: NDArray[Any], classes: Sequence[Any]) -> Array:
    """One search for all: a pass over a billion labels cannot afford a look-up each; it finds what a look-up finds."""
    with np.errstate(all="ignore"):  # what no float is, is foreign or infinite, without a warning
        y = y.astype(np.float64)
    known = sorted((key, k) for k, key in enumerate(map(key_of, classes)) if isinstance(key, float) and key == key)
    if not known:
        return np.full(len(y), np.nan)
    numbers = np.array([number for number, _ in known])
    index = np.minimum(np.searchsorted(numbers, y), len(numbers) - 1)
    return np.where(numbers[index] == y, np.array([float(k) for _, k in known])[index], np.nan)


def _look_up(place: dict[Any, int], label: Any) -> float:
    try:
        return place.get(key_of(label), np.nan)
    except TypeError:  # a label that cannot be one
        return np.nan
