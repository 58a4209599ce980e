r"""Model files: a fitted model as JSON, which a program can check and a person can read.

A file holds numbers, texts and lists, no code and nothing that could be run: loading one from a stranger can fail, with
a sentence, but can do nothing else. Every field is checked before it is used, unknown fields are refused, sizes are
limited, and a checksum tells a damaged or edited file from a whole one. (It is no signature: whoever can write the
file can write a checksum.)

=============  ===========================================================================================
field          what
=============  ===========================================================================================
format         "tailguard-model"
version        of this layout; a file with a higher one is refused by name
created        the day
software       versions of what fitted the model
estimator      one of the four classes of `tailguard.linear_model`
parameters     its constructor's arguments; ``threads`` and generators are left out
fitted         coefficients, intercept, truncation, replacements of missing values, classes, names; standard errors
privacy        the report, as `PrivacyReport.to_dict`
table          the recipe of `tailguard.tables.schema` that makes rows of a file into features, or null
checksum       SHA-256 of all the above
=============  ===========================================================================================

All of it was released by the fit or is public. Nothing about the rows is added: no path of the file, no digest of it,
no time that it took. Floats are written with the shortest digits that give back the same bits, so predictions of a
loaded model are those of the saved one, bit by bit.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import math
import os
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard import constraints
from tailguard.hints import Hints
from tailguard.intervals import Uncertainty
from tailguard.privacy import Budget, Event, Gaussian, PrivacyReport, ZeroConcentrated, epsilon_of
from tailguard.privacy.events import check_relation
from tailguard.tables.schema import Recipe

FORMAT, VERSION = "tailguard-model", 1
MAX_BYTES, MAX_COEFFICIENTS, MAX_EVENTS = 256 * 2**20, 10_000_000, 100_000
ESTIMATORS = ("PrivateRidge", "PrivateHuberRegressor", "PrivateLogisticRegression", "PrivatePoissonRegressor")
_SOFTWARE = ("tailguard", "numpy", "scipy", "scikit-learn", "numba", "opendp", "pyarrow")
_CONSTRAINTS = {kind.__name__: kind for kind in (constraints.L2Ball, constraints.Box, constraints.Simplex)} | {
    "Unconstrained": constraints.Unconstrained
}


class ModelFileError(ValueError):
    """A file that is not a model of this version, or is damaged."""


@dataclass(frozen=True)
class SavedModel:
    """What a model file holds.

    Attributes
    ----------
    model : estimator
        Fitted, ready to predict.
    recipe : Recipe or None
        How rows of a table become features, if the model was fitted to a table.
    software : dict
        Versions of what fitted it.
    created : str
        The day, in UTC.
    """

    model: Any
    recipe: Recipe | None
    software: dict[str, str]
    created: str


# ---------------------------------------------------------------- writing


def save_model(model: Any, path: str | PathLike[str], *, recipe: Recipe | None = None) -> None:
    """Write a fitted model to a JSON file.

    The file appears whole or not at all.

    Parameters
    ----------
    model : PrivateRidge, PrivateHuberRegressor, PrivateLogisticRegression or PrivatePoissonRegressor
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
        raise TypeError(f"model of type {name} cannot be saved: give one of {', '.join(ESTIMATORS)}")
    if not hasattr(model, "coef_"):
        raise ValueError("model is not fitted: call fit before save_model")
    if recipe is not None and recipe.width != model.n_features_in_:
        raise ValueError(f"recipe has {recipe.width} features but the model has {model.n_features_in_}")
    names = getattr(model, "feature_names_in_", None)
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "created": f"{datetime.now(UTC):%Y-%m-%d}",
        "software": software(),
        "estimator": name,
        "parameters": {key: _parameter(value) for key, value in model.get_params(deep=False).items() if _kept(key)},
        "fitted": {
            "coef": _numbers(model.coef_),
            "coef_noise": None if model.coef_noise_ is None else _numbers(model.coef_noise_),
            "intercept": _numbers(model.intercept_),
            "lower": _numbers(model.lower_),
            "upper": _numbers(model.upper_),
            "missing": _numbers(model._missing),
            "limits": _numbers([model._floor, model._ceiling]),
            "feature_names": None if names is None else [str(item) for item in names],
            "classes": _labels(model.classes_) if hasattr(model, "classes_") else None,
        },
        "privacy": model.privacy_.to_dict(),
        "table": None if recipe is None else recipe.to_dict(),
    }
    if getattr(model, "stderr_", None) is not None:
        document["fitted"]["inference"] = {
            "stderr": _numbers(np.append(model.stderr_, model.intercept_stderr_)),
            "freedom": _numbers(model.freedom_),
        }
    return document | {"checksum": _checksum(document)}


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


def _kept(parameter: str) -> bool:
    return parameter != "threads"  # of the machine, not of the model


def _parameter(value: Any) -> Any:
    """A constructor's argument as plain data."""
    if isinstance(value, Budget):
        return {"budget": value.to_dict()}
    if isinstance(value, Hints):
        return {"hints": value.to_dict()}
    if type(value).__name__ in _CONSTRAINTS:
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


def _checksum(document: dict[str, Any]) -> str:
    content = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return "sha256:" + hashlib.sha256(content.encode()).hexdigest()


# ---------------------------------------------------------------- reading


def load_model(path: str | PathLike[str]) -> Any:
    """Read a model that `save_model` or ``tailguard fit`` wrote.

    Parameters
    ----------
    path : str or path
        The file. It may come from anywhere: reading it runs no code.

    Returns
    -------
    estimator
        Fitted; it predicts the same bits as the one that was saved.

    Raises
    ------
    ModelFileError
        If the file is damaged, edited, from a newer version or no model file.
    """
    return read_model(path).model


def read_model(path: str | PathLike[str]) -> SavedModel:
    """Read a model file with all that is in it.

    Parameters
    ----------
    path : str or path
        The file.

    Raises
    ------
    ModelFileError
        In one sentence.
    """
    path = Path(path)
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ModelFileError(f"{path.name} is larger than {MAX_BYTES >> 20} MiB: it is not a model file")
    try:
        return from_document(_parsed(content))
    except ModelFileError as error:
        raise ModelFileError(f"{path.name} {error}") from None


def _parsed(content: bytes) -> dict[str, Any]:
    """JSON without NaN, without repeated keys and without surprises."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a repeated name")
        return found

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    try:
        document = json.loads(content.decode("utf-8"), object_pairs_hook=once, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise ModelFileError("is not a model file, or is damaged: it is not valid JSON. Copy or fit it again") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelFileError("is not a model file: tailguard fit writes one")
    return document


def from_document(document: dict[str, Any]) -> SavedModel:
    """Check the content of a model file and rebuild the model."""
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ModelFileError("is damaged: its version is not a number")
    if version > VERSION:
        raise ModelFileError(
            f"was written by a newer tailguard (file version {version}, this one reads {VERSION}): upgrade with  "
            "pip install --upgrade tailguard"
        )
    stated = document.get("checksum")
    try:
        found = _checksum({key: value for key, value in document.items() if key != "checksum"})
    except ValueError:  # a number beyond all floats, such as 1e999
        found = None
    if found is None or stated != found:
        raise ModelFileError("is damaged or was edited: its checksum does not match. Copy or fit it again")
    with _checking():
        return _rebuilt(document)


@contextlib.contextmanager
def _checking() -> Iterator[None]:
    """One sentence for whatever a field that is not what it should be makes of the checks."""
    try:
        yield
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        what = f"the field {error}" if isinstance(error, KeyError) else str(error)
        raise ModelFileError(f"holds a field that no model can have: {what}") from None


def _rebuilt(document: dict[str, Any]) -> SavedModel:
    from tailguard import linear_model

    _has(document, "the file", "format version created software estimator parameters fitted privacy table checksum")
    if document["estimator"] not in ESTIMATORS:
        raise ValueError(f"estimator is none of {', '.join(ESTIMATORS)}")
    kind = getattr(linear_model, document["estimator"])
    model = kind(**_arguments(kind, document["parameters"]))
    fitted = document["fitted"]
    more = " inference" if isinstance(fitted, dict) and "inference" in fitted else ""  # with inference=True only
    _has(fitted, "fitted", "coef coef_noise intercept lower upper missing limits feature_names classes" + more)
    rows = 0
    if hasattr(model, "predict_proba"):
        model.classes_ = _classes(fitted["classes"])
        rows = 1 if len(model.classes_) == 2 else len(model.classes_)
    elif fitted["classes"] is not None:
        raise ValueError("a regressor has no classes")
    coef = _array(fitted["coef"], "coef", 2 if rows else 1)
    d = coef.shape[-1]
    if rows and coef.shape[0] != rows:
        raise ValueError("coef has not one row for each class")
    model.coef_ = coef
    if rows:
        model.intercept_ = _array(fitted["intercept"], "intercept", 1, rows)
    else:
        model.intercept_ = float(_array([fitted["intercept"]], "intercept", 1)[0])
    model.lower_ = _array(fitted["lower"], "lower", 1, d, infinite=True)
    model.upper_ = _array(fitted["upper"], "upper", 1, d, infinite=True)
    if np.any(model.lower_ > model.upper_):
        raise ValueError("lower is above upper")
    model._missing = _array(fitted["missing"], "missing", 1, d)
    model.coef_noise_ = None
    if fitted["coef_noise"] is not None:
        model.coef_noise_ = _array(fitted["coef_noise"], "coef_noise", coef.ndim, d)
        if model.coef_noise_.shape != coef.shape or np.any(model.coef_noise_ < 0.0):
            raise ValueError("coef_noise does not belong to coef")
    model._set_uncertainty(_uncertainty(fitted["inference"], coef) if more else None)
    limits = _array(fitted["limits"], "limits", 1, 2, infinite=True)
    if limits[0] > limits[1]:
        raise ValueError("limits are not in order")
    model._floor, model._ceiling = float(limits[0]), float(limits[1])
    model.n_features_in_ = d
    names = fitted["feature_names"]
    if names is not None:
        model.feature_names_in_ = np.array(_texts(names, "feature_names", d), dtype=object)
    model.privacy_ = _report(document["privacy"])
    recipe = None if document["table"] is None else Recipe.from_dict(document["table"])
    if recipe is not None and recipe.width != d:
        raise ValueError("the table does not have the features of the model")
    versions = document["software"]
    if not isinstance(versions, dict) or len(versions) > 100:
        raise ValueError("software is not a list of versions")
    _texts([*versions, *versions.values()], "software")
    (created,) = _texts([document["created"]], "created")
    return SavedModel(model, recipe, versions, created)


def _uncertainty(data: Any, coef: NDArray[np.float64]) -> Uncertainty:
    """Standard errors of all coefficients and of the intercept."""
    _has(data, "inference", "stderr freedom")
    stderr, freedom = (_array(data[name], name, 1, coef.size + 1, infinite=True) for name in ("stderr", "freedom"))
    if len(np.atleast_2d(coef)) > 1 or np.any(stderr < 0.0) or np.any(freedom < 1.0):
        raise ValueError("inference does not belong to coef")
    return Uncertainty(stderr, freedom)


def _has(data: Any, what: str, names: str) -> None:
    if not isinstance(data, dict) or set(data) != set(names.split()):
        raise ValueError(f"{what} does not hold exactly {', '.join(names.split())}")


def _arguments(kind: type, data: Any) -> dict[str, Any]:
    known = {name for name in inspect.signature(kind).parameters if _kept(name)}
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
            return _CONSTRAINTS[value["constraint"]](**content)
        raise ValueError(f"parameter {name} is not known")
    if isinstance(value, list):
        if len(value) > 10_000 or not all(isinstance(item, (bool, int, float, str)) for item in value):
            raise ValueError(f"parameter {name} is not a list of numbers or texts")
        return tuple(value)
    return float(value) if value in ("inf", "-inf") else value


def _value(item: Any) -> Any:
    """A number, or a list of numbers, of a constraint."""
    return _array(item, "constraint", 1) if isinstance(item, list) else float(_array([item], "constraint", 1)[0])


def _array(data: Any, name: str, ndim: int, size: int | None = None, *, infinite: bool = False) -> NDArray[np.float64]:
    """Return a checked array of numbers; infinite ones, where they are allowed, are texts."""
    if not isinstance(data, list) or not data or len(data) > MAX_COEFFICIENTS:
        raise ValueError(f"{name} is not a list of numbers")
    if ndim == 2:
        rows = [_array(row, name, 1) for row in data]
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


def _texts(data: Any, name: str, size: int | None = None) -> list[str]:
    if not isinstance(data, list) or (size is not None and len(data) != size):
        raise ValueError(f"{name} is not the right number of texts")
    if not all(isinstance(item, str) and len(item) <= 10_000 for item in data):
        raise ValueError(f"{name} holds something that is not a text")
    return data


def _classes(data: Any) -> NDArray[Any]:
    _has(data, "classes", "kind values")
    kind, values = data["kind"], data["values"]
    if not isinstance(values, list) or not 2 <= len(values) <= 100_000:
        raise ValueError("classes are not a list of at least two labels")
    if kind == "number":
        return _array(values, "classes", 1)
    if kind == "text":
        found = np.array(_texts(values, "classes"))
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


def _report(data: Any) -> PrivacyReport:
    unit = " unit" if isinstance(data, dict) and "unit" in data else ""  # of persons; without it, of rows
    _has(data, "privacy", "epsilon delta relation events private reasons method parameters n_rows budget" + unit)
    check_relation(data["relation"])
    _texts([data["method"], data["budget"]], "privacy")
    _texts(data["reasons"], "reasons")
    if not isinstance(data["private"], bool) or not isinstance(data["parameters"], dict):
        raise ValueError("privacy is not a report")
    (epsilon,) = _array([data["epsilon"]], "epsilon", 1, infinite=True)
    (delta,) = _array([data["delta"]], "delta", 1)
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
