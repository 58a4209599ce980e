"""X as scikit-learn checks it: shapes, types and names, never a word about values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import column_or_1d, validate_data

from tailguard._checks import complex_refused, plain_numbers
from tailguard.engines import Engine
from tailguard.engines.frames import without_column
from tailguard.engines.grouped import grouped
from tailguard.engines.labels import as_labels
from tailguard.privacy import noise_source

# How scikit-learn's complaints about shapes, column names and sparse formats begin.
_ABOUT_SHAPES = (
    "Found array with",
    "X has ",
    "X does not contain",
    "The feature names",
    "Feature names",
    "Sparse",
    "A sparse",
    "Only sparse",
    "Expected unique column names",
)


def checked_rows(estimator: BaseEstimator, X: ArrayLike, reset: bool) -> NDArray[Any]:
    """Check the shape and type of X, not its values; sparse matrices become dense."""
    complaint = ""
    try:
        # A number that is too large for float64 becomes infinite; a warning would be a word about the data.
        with np.errstate(all="ignore"), complex_refused():
            checked: Any = validate_data(
                estimator,
                _numbers_in(X),
                reset=reset,
                accept_sparse=True,
                dtype=[np.float64, np.float32],
                ensure_all_finite=False,
                ensure_min_samples=2 if reset else 1,
            )
    except (ValueError, OverflowError, TypeError) as error:
        complaint = str(error)
        kind = type(error)
    if complaint:
        raise _without_data(kind, complaint, X)  # here, so that the original is not kept as its context
    return checked.toarray() if hasattr(checked, "toarray") else checked


def named_target(X: Any, y: Any) -> tuple[Any, Any]:
    """Return a frame without the column that y names, and that column; targets that are given pass through."""
    return without_column(X, y, "y") if isinstance(y, str) else (X, y)


def checked_target(y: Any, n: int, groups: Any) -> NDArray[Any]:
    """Check that y has a value for each of n rows; where ids are given, the number of rows is not told."""
    y = as_labels(y)
    if groups is not None and y.shape[1:] not in ((), (1,)):
        raise ValueError("y should be a 1d array: give one value per row.")
    if y.dtype.kind == "c":  # which scikit-learn would print
        raise ValueError("Complex data not supported: y must hold real numbers or labels.")
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    if len(labels) != n:
        found = f"y has {len(labels)} values but X has {n} rows" if groups is None else "y and X differ in length"
        raise ValueError(f"{found}: give one value per row.")
    return labels


def remember(estimator: Any, rows: Engine) -> None:
    """What scikit-learn notes about the columns of an array, for rows that are not one."""
    if rows.n < 2:
        raise ValueError(f"X has {rows.n} row: a minimum of 2 is required.")
    estimator.n_features_in_ = rows.columns
    if rows.names is not None:
        estimator.feature_names_in_ = np.array(rows.names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def persons(rows: Engine, groups: Any, random_state: Any) -> Engine:
    """Return the persons whose rows they are, by their ids; at least two."""
    found = grouped(rows, groups, noise_source(random_state))
    if found.n < 2:
        raise ValueError(f"groups has {found.n} person: a minimum of 2 is required.")
    return found


def _numbers_in(X: Any) -> Any:
    """X with its object columns as floats where they hold nothing but numbers: the size of a number must not raise."""
    if hasattr(X, "isetitem"):  # a frame of pandas
        objects = [j for j, dtype in enumerate(X.dtypes) if dtype == np.dtype(object)]
        if objects:
            X = X.copy()
        for j in objects:
            X.isetitem(j, plain_numbers(X.iloc[:, j].to_numpy()))
        return X
    if isinstance(X, (list, tuple)):
        try:
            X = np.asarray(X)
        except ValueError:  # ragged: scikit-learn says so
            return X
    return plain_numbers(X) if isinstance(X, np.ndarray) and X.dtype == object else X


def _without_data(kind: type[Exception], complaint: str, X: Any) -> Exception:
    """What scikit-learn says about shapes and names; nothing of what it says about values."""
    dimensions = len(getattr(X, "shape", (0, 0)))
    if "Reshape your data" in complaint or dimensions == 1:
        found = f"{dimensions}D array" if dimensions in (0, 1) else "another dimension"
        return ValueError(
            f"Expected 2D array, got {found} instead. Reshape your data: X.reshape(-1, 1), or frame[['age']], for one "
            "column."
        )
    if "Complex data" in complaint:
        return ValueError("Complex data not supported: give real numbers.")
    # By their beginnings: anything else may quote a value, and a value may hold any words.
    if complaint.startswith(_ABOUT_SHAPES):
        return (TypeError if issubclass(kind, TypeError) else ValueError)(complaint)
    if kind is TypeError:
        return TypeError("X holds values that are not numbers: a float() argument must be a string or a real number.")
    named = ", ".join(map(repr, _other_columns(X)[:5]))
    where = f", in {named}" if named else ""
    return ValueError(
        f"X holds values that are not numbers{where}: encode such columns first, for example public categories as 0/1 "
        "columns, or leave them out."
    )


def _other_columns(X: Any) -> list[str]:
    """Names of the columns of a frame, of pandas or polars, whose type is none of numbers."""
    if hasattr(X, "isetitem"):
        kinds = [getattr(dtype, "kind", "O") for dtype in _numbers_in(X).dtypes]
        return [str(name) for name, kind in zip(X.columns, kinds, strict=True) if kind not in "biufmM"]
    types = getattr(X, "schema", {}).items()
    numbers = [kind.is_numeric() or kind.is_temporal() or str(kind) == "Boolean" for _, kind in types]
    return [str(name) for (name, _), known in zip(types, numbers, strict=True) if not known]
