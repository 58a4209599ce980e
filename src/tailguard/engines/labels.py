"""Class labels as numbers, by equality: a label of another type is foreign and must not raise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def encode(y: NDArray[Any], classes: Sequence[Any], values: Array) -> Array:
    """Return ``values[k]`` where y is ``classes[k]``, NaN where it is none of them."""
    return pick(values, places(y, classes))


def places(y: NDArray[Any], classes: Sequence[Any]) -> Array:
    """Return the place of every label among the classes, NaN where it has none."""
    if y.dtype.kind in "fiub":
        return _places_of_numbers(np.asarray(y, dtype=np.float64), classes)
    place = {label: k for k, label in enumerate(classes)}
    return np.array([_look_up(place, label) for label in y.tolist()], dtype=np.float64)


def distinct(found: Iterable[Any]) -> NDArray[Any]:
    """Return distinct labels, sorted; missing ones are refused, since a class cannot be missing."""
    labels = set(found)
    if any(label is None or label != label for label in labels):
        raise ValueError("y has missing labels: name the classes, classes=[...]; other rows then contribute nothing.")
    return np.unique(np.array(list(labels)))


def pick(values: Array, found: Array) -> Array:
    """Return the value at each place; NaN stays NaN."""
    missing = np.isnan(found)
    return np.where(missing, np.nan, values[np.where(missing, 0.0, found).astype(np.int64)])


def _places_of_numbers(y: Array, classes: Sequence[Any]) -> Array:
    """One search for all: a pass over a billion labels cannot afford a look-up each."""
    known = sorted((float(label), k) for k, label in enumerate(classes) if isinstance(label, Real))
    if not known:
        return np.full(len(y), np.nan)
    numbers = np.array([number for number, _ in known])
    index = np.minimum(np.searchsorted(numbers, y), len(numbers) - 1)
    return np.where(numbers[index] == y, np.array([float(k) for _, k in known])[index], np.nan)


def _look_up(place: dict[Any, int], label: Any) -> float:
    try:
        return place.get(label, np.nan)
    except TypeError:  # a label that cannot be one
        return np.nan
