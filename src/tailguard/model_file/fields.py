"""Fields of a model file: plain data to what it stands for, or a `ValueError` that names the field."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard.hints import Hints
from tailguard.intervals import Uncertainty
from tailguard.model_file.layout import CONSTRAINTS, MAX_COEFFICIENTS, MAX_EVENTS, kept
from tailguard.privacy import Budget, Event, Gaussian, PrivacyReport, ZeroConcentrated, epsilon_of
from tailguard.privacy.events import check_relation


def uncertainty(data: Any, coef: NDArray[np.float64]) -> Uncertainty:
    """Standard errors of all coefficients and of the intercept."""
    has(data, "inference", "stderr freedom")
    stderr, freedom = (array(data[name], name, 1, coef.size + 1, infinite=True) for name in ("stderr", "freedom"))
    if len(np.atleast_2d(coef)) > 1 or np.any(stderr < 0.0) or np.any(freedom < 1.0):
        raise ValueError("inference does not belong to coef")
    return Uncertainty(stderr, freedom)


def has(data: Any, what: str, names: str) -> None:
    """Refuse what is not an object of exactly these fields."""
    if not isinstance(data, dict) or set(data) != set(names.split()):
        raise ValueError(f"{what} does not hold exactly {', '.join(names.split())}")


def arguments(kind: type, data: Any) -> dict[str, Any]:
    """Return the arguments of a constructor."""
    known = {name for name in inspect.signature(kind).parameters if kept(name)}
    if not isinstance(data, dict) or set(data) - known:
        raise ValueError(f"parameters are not those of {kind.__name__}")
    return {name: _argument(value, name) for name, value in data.items()}


def _argument(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        if set(value) == {"budget"} and isinstance(value["budget"], dict):
            return Budget.from_dict(value["budget"])
        if set(value) == {"hints"} and isinstance(value["hints"], dict):
            return Hints.from_dict(value["hints"])
        if set(value) == {"constraint", "fields"} and isinstance(value["fields"], dict):
            content = {key: _value(item) for key, item in value["fields"].items()}
            return CONSTRAINTS[value["constraint"]](**content)
        raise ValueError(f"parameter {name} is not known")
    if isinstance(value, list):
        if len(value) > 10_000 or not all(isinstance(item, (bool, int, float, str)) for item in value):
            raise ValueError(f"parameter {name} is not a list of numbers or texts")
        return tuple(value)
    return float(value) if value in ("inf", "-inf") else value


def _value(item: Any) -> Any:
    """A number, or a list of numbers, of a constraint."""
    return array(item, "constraint", 1) if isinstance(item, list) else float(array([item], "constraint", 1)[0])


def array(data: Any, name: str, ndim: int, size: int | None = None, *, infinite: bool = False) -> NDArray[np.float64]:
    """Return a checked array of numbers; infinite ones, where they are allowed, are texts."""
    if not isinstance(data, list) or not data or len(data) > MAX_COEFFICIENTS:
        raise ValueError(f"{name} is not a list of numbers")
    if ndim == 2:
        rows = [array(row, name, 1) for row in data]
        if len({len(row) for row in rows}) > 1 or len(rows) * len(rows[0]) > MAX_COEFFICIENTS:
            raise ValueError(f"{name} is not a matrix")
        return np.array(rows)
    if size is not None and len(data) != size:
        raise ValueError(f"{name} has {len(data)} numbers in place of {size}")
    infinities = ("inf", "-inf") if infinite else ()
    for item in data:
        good = isinstance(item, (int, float)) and not isinstance(item, bool) and math.isfinite(item)
        if not good and item not in infinities:
            raise ValueError(f"{name} holds something that is not a number")
    return np.array([float(item) for item in data])


def texts(data: Any, name: str, size: int | None = None) -> list[str]:
    """Return a checked list of texts."""
    if not isinstance(data, list) or (size is not None and len(data) != size):
        raise ValueError(f"{name} is not the right number of texts")
    if not all(isinstance(item, str) and len(item) <= 10_000 for item in data):
        raise ValueError(f"{name} holds something that is not a text")
    return data


def classes(data: Any) -> NDArray[Any]:
    """Return the labels of a classifier."""
    has(data, "classes", "kind values")
    kind, values = data["kind"], data["values"]
    if not isinstance(values, list) or not 2 <= len(values) <= 100_000:
        raise ValueError("classes are not a list of at least two labels")
    if kind == "number":
        return array(values, "classes", 1)
    if kind == "text":
        found = np.array(texts(values, "classes"))
    elif kind in ("integer", "boolean"):
        expected = int if kind == "integer" else bool
        if not all(type(value) is expected for value in values):
            raise ValueError(f"classes are not {kind}s")
        found = np.array(values, dtype=np.int64 if kind == "integer" else np.bool_)
    else:
        raise ValueError("classes are of no known kind")
    if len(set(values)) < len(values):
        raise ValueError("classes repeat a label")
    return found


def truncation(fitted: dict[str, Any], size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return lower and upper ends of so many columns."""
    lower, upper = (array(fitted[name], name, 1, size, infinite=True) for name in ("lower", "upper"))
    if np.any(lower > upper):
        raise ValueError("lower is above upper")
    return lower, upper


def report(data: Any) -> PrivacyReport:
    """Return a report whose guarantee is at least what its events cost."""
    unit = " unit" if isinstance(data, dict) and "unit" in data else ""  # of persons; without it, of rows
    has(data, "privacy", "epsilon delta relation events private reasons method parameters n_rows budget" + unit)
    check_relation(data["relation"])
    texts([data["method"], data["budget"]], "privacy")
    texts(data["reasons"], "reasons")
    if not isinstance(data["private"], bool) or not isinstance(data["parameters"], dict):
        raise ValueError("privacy is not a report")
    (epsilon,) = array([data["epsilon"]], "epsilon", 1, infinite=True)
    (delta,) = array([data["delta"]], "delta", 1)
    rows, events = data["n_rows"], data["events"]
    if not (epsilon >= 0.0 and 0.0 < delta < 1.0):
        raise ValueError("epsilon and delta are not a guarantee")
    if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 1):
        raise ValueError("n_rows is not a number of rows")
    if not isinstance(events, list) or len(events) > MAX_EVENTS:
        raise ValueError("events are not a list")
    known = tuple(_event(event) for event in events)
    if data["private"] and (data["reasons"] or math.isinf(epsilon)):
        raise ValueError("privacy promises what it also denies")
    if all(isinstance(event, (Gaussian, ZeroConcentrated)) for event in known):
        price = epsilon_of(known, delta, data["relation"])
        if price > epsilon * (1.0 + 1e-9) + 1e-12:
            raise ValueError("privacy states a smaller epsilon than its events cost")
    return PrivacyReport.from_dict(data)


def _event(data: Any) -> Event:
    if not isinstance(data, dict) or not all(isinstance(v, (str, int, float)) for v in data.values()):
        raise ValueError("events holds something that is no event")
    return Event.from_dict(data)
