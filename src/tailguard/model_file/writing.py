"""Writing a model file."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import tempfile
from dataclasses import fields
from datetime import UTC, datetime
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard.hints import Hints
from tailguard.model_file.layout import CONSTRAINTS, ESTIMATORS, FORMAT, SCALER, VERSION, checksum, kept
from tailguard.privacy import Budget
from tailguard.tables.schema import Recipe

_SOFTWARE = ("tailguard", "numpy", "scipy", "scikit-learn", "numba", "pyarrow")


def save_model(model: Any, path: str | PathLike[str], *, recipe: Recipe | None = None) -> None:
    """Write a fitted model to a JSON file.

    The file appears whole or not at all.

    Parameters
    ----------
    model : PrivateRidge, PrivateHuberRegressor, PrivateLogisticRegression, PrivatePoissonRegressor or PrivateScaler
        Fitted.
    path : str or path
        The file; one that is there is replaced.
    recipe : Recipe, optional
        How rows of a table become features, so that `tailguard predict` can read tables.

    Raises
    ------
    TypeError
        If it is another estimator.
    ValueError
        If it is not fitted.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import tailguard as tg
    >>> model = tg.PrivateRidge(epsilon=1.0).fit(np.ones((100, 2)), np.ones(100))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tg.save_model(model, f"{folder}/model.json")
    ...     again = tg.load_model(f"{folder}/model.json")
    >>> again.privacy_ == model.privacy_
    True
    """
    write_whole(Path(path), json.dumps(to_document(model, recipe), indent=1, allow_nan=False) + "\n")


def to_document(model: Any, recipe: Recipe | None = None) -> dict[str, Any]:
    """Return the content of a model file as plain data."""
    name = type(model).__name__
    if name not in ESTIMATORS:
        instead = "its best_estimator_" if name == "PrivateGridSearch" else f"one of {', '.join(ESTIMATORS)}"
        raise TypeError(f"model of type {name} cannot be saved: give {instead}")
    if not hasattr(model, "privacy_"):
        raise ValueError("model is not fitted: call fit before save_model")
    if recipe is not None and name == SCALER:
        raise ValueError("recipe is not accepted for a scaler: it is for models, which predict from tables")
    if recipe is not None and recipe.width != model.n_features_in_:
        raise ValueError(f"recipe has {recipe.width} features but the model has {model.n_features_in_}")
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "created": f"{datetime.now(UTC):%Y-%m-%d}",
        "software": software(),
        "estimator": name,
        "parameters": {key: _parameter(value) for key, value in model.get_params(deep=False).items() if kept(key)},
        "fitted": _fitted(model),
        "privacy": model.privacy_.to_dict(),
        "table": None if recipe is None else recipe.to_dict(),
    }
    return document | {"checksum": checksum(document)}


def _fitted(model: Any) -> dict[str, Any]:
    """What the fit released."""
    names = getattr(model, "feature_names_in_", None)
    found: dict[str, Any] = {
        "lower": _numbers(model.lower_),
        "upper": _numbers(model.upper_),
        "feature_names": None if names is None else [str(item) for item in names],
    }
    if type(model).__name__ == SCALER:
        return found | {"mean": _numbers(model.mean_), "scale": _numbers(model.scale_)}
    found |= {
        "coef": _numbers(model.coef_),
        "coef_noise": None if model.coef_noise_ is None else _numbers(model.coef_noise_),
        "intercept": _numbers(model.intercept_),
        "missing": _numbers(model._missing),
        "limits": _numbers([model._floor, model._ceiling]),
        "classes": _labels(model.classes_) if hasattr(model, "classes_") else None,
    }
    if getattr(model, "stderr_", None) is not None:
        found["inference"] = {
            "stderr": _numbers(np.append(model.stderr_, model.intercept_stderr_)),
            "freedom": _numbers(model.freedom_),
        }
    return found


def write_whole(path: Path, text: str) -> None:
    """Write a text file that appears whole or not at all, even if the machine stops."""
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(partial, 0o666 & ~mask)  # as an ordinary file; mkstemp makes it private
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def software() -> dict[str, str]:
    """Versions of this package, of Python and of what the numbers depend on."""
    found = {"python": platform.python_version()}
    for name in _SOFTWARE:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _parameter(value: Any) -> Any:
    """A constructor's argument as plain data."""
    if isinstance(value, Budget):
        return {"budget": value.to_dict()}
    if isinstance(value, Hints):
        return {"hints": value.to_dict()}
    if type(value).__name__ in CONSTRAINTS:
        content = {item.name: _numbers(getattr(value, item.name)) for item in fields(value)}
        return {"constraint": type(value).__name__, "fields": content}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return _numbers(value)
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_parameter(item) for item in value]
    return None  # a generator, say: the report tells that the run was seeded


def _numbers(value: Any) -> Any:
    """Numbers as JSON has them; infinities as texts."""
    if isinstance(value, (np.ndarray, list, tuple)):
        return [_numbers(item) for item in value]
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _labels(classes: NDArray[Any]) -> dict[str, Any]:
    kinds = {"b": "boolean", "i": "integer", "u": "integer", "f": "number", "U": "text"}
    values = classes.tolist()
    kind = kinds.get(classes.dtype.kind)
    if kind is None and all(isinstance(value, str) for value in values):
        kind = "text"
    if kind is None:
        raise TypeError(f"classes of dtype {classes.dtype} cannot be saved: use texts, numbers or booleans")
    return {"kind": kind, "values": [_numbers(value) for value in values] if kind == "number" else values}
