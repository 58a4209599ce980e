"""A column of a frame, by its name, and the frame without it."""

from __future__ import annotations

from typing import Any


def without_column(X: Any, name: str, argument: str) -> tuple[Any, Any]:
    """Return a frame of pandas, polars or Dask without one of its columns, and that column.

    Parameters
    ----------
    X : frame
        Anything else is refused.
    name : str
        Of the column.
    argument : str
        Where the name was given, for the refusal.
    """
    refuse_plan(X)
    names = list(getattr(X, "columns", ()))
    if name not in names:
        there = f"there is {', '.join(map(str, names[:10]))}" if names else "X has no names of columns"
        raise ValueError(f"{argument}={name!r} names a column, and {there}: give its name, or one value per row.")
    return X[[other for other in names if other != name]], X[name]


def refuse_plan(X: Any) -> None:
    """Refuse a lazy frame of polars: it is a plan of a frame, without rows."""
    if type(X).__name__ == "LazyFrame" and type(X).__module__.partition(".")[0] == "polars":
        raise TypeError("X is a LazyFrame of polars, which holds no rows yet: give X.collect().")
