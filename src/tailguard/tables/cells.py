"""Cells to numbers, as a recipe declares them. Every cell has a meaning: none can raise.

`tailguard.tables.schema` has the table of what becomes of which cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard.engines import arrow, labels
from tailguard.tables.schema import CATEGORY, Category, Recipe

Array = NDArray[np.float64]


def encode_features(recipe: Recipe, block: Any) -> Array:
    """Return the features of a block of rows, (rows, recipe.width)."""
    X = np.empty((block.num_rows, recipe.width))
    _fill(recipe, block, X)
    return X


def encode_rows(recipe: Recipe, block: Any) -> Array:
    """Return features and target of a block, (rows, recipe.width + 1); a column is contiguous in memory."""
    rows = np.empty((block.num_rows, recipe.width + 1), order="F")
    _fill(recipe, block, rows)
    rows[:, -1] = encode_target(recipe, block)
    return rows


def _fill(recipe: Recipe, block: Any, X: Array) -> None:
    j = 0
    for column in recipe.features:
        cells = block.column(column.name)
        if column.kind == CATEGORY:
            place = places(cells, column.categories, recipe.csv.decimal)
            foreign = np.isnan(place)
            for k in column.indicators:
                X[:, j] = place == k
                X[foreign, j] = np.nan
                j += 1
        else:
            X[:, j] = numbers(cells, recipe.csv.decimal)
            j += 1


def encode_target(recipe: Recipe, block: Any) -> Array:
    """Return the target of a block: a number, or the place of the label in ``recipe.classes``; NaN where it is none."""
    target = recipe.target
    cells = block.column(target.name)
    if target.kind == CATEGORY:
        return places(cells, recipe.classes, recipe.csv.decimal)
    return numbers(cells, recipe.csv.decimal)


def places(cells: Any, categories: Sequence[Category], decimal: str = ".") -> Array:
    """Return the place of every cell among the categories, NaN where it is none of them."""
    from pyarrow import compute

    if isinstance(categories[0], float):
        return labels.places(numbers(cells, decimal), categories)
    texts = _texts(cells)
    if isinstance(categories[0], bool):
        return arrow.label_places(compute.ascii_lower(texts), [str(category).lower() for category in categories])
    return arrow.label_places(texts, categories)


def numbers(cells: Any, decimal: str = ".") -> Array:
    """Return cells as float64, NaN where one is missing or no number."""
    import pyarrow as pa
    from pyarrow import compute, types

    kind = cells.type.value_type if types.is_dictionary(cells.type) else cells.type
    if types.is_boolean(kind) or types.is_decimal(kind) or types.is_integer(kind) or types.is_floating(kind):
        cells = cells.cast(kind, safe=False)
        return _floats(compute.cast(cells, pa.float64(), safe=False))
    texts = _texts(cells)
    if decimal == ",":
        texts = compute.replace_substring(texts, ",", ".")
    return arrow.numbers(texts)


def _texts(cells: Any) -> Any:
    """Cells as texts without blanks around them; bytes that are not UTF-8 are kept, and match nothing."""
    import pyarrow as pa
    from pyarrow import compute, types

    if types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if types.is_large_binary(cells.type) or types.is_large_string(cells.type):
        cells = cells.cast(pa.large_string(), safe=False)
    elif types.is_integer(cells.type) or types.is_floating(cells.type) or types.is_decimal(cells.type):
        cells = cells.cast(pa.string())
    else:
        cells = cells.cast(pa.string(), safe=False)
    return compute.ascii_trim_whitespace(cells)


def _floats(cells: Any) -> Array:
    import pyarrow as pa

    cells = cells.cast(pa.float64(), safe=False)
    if cells.null_count:
        cells = cells.fill_null(np.nan)
    return np.asarray(cells.to_numpy(zero_copy_only=False))
