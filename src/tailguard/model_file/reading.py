"""Reading a model file: every field is checked before it is used."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tailguard.model_file.fields import arguments, array, classes, has, report, texts, truncation, uncertainty
from tailguard.model_file.layout import (
    ESTIMATORS,
    FORMAT,
    MAX_BYTES,
    SCALER,
    VERSION,
    ModelFileError,
    SavedModel,
    checksum,
)
from tailguard.tables.schema import Recipe


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
        found = checksum({key: value for key, value in document.items() if key != "checksum"})
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
    has(document, "the file", "format version created software estimator parameters fitted privacy table checksum")
    if document["estimator"] not in ESTIMATORS:
        raise ValueError(f"estimator is none of {', '.join(ESTIMATORS)}")
    model = (_scaler if document["estimator"] == SCALER else _linear_model)(document)
    names = document["fitted"]["feature_names"]
    if names is not None:
        model.feature_names_in_ = np.array(texts(names, "feature_names", model.n_features_in_), dtype=object)
    model.privacy_ = report(document["privacy"])
    recipe = None if document["table"] is None else Recipe.from_dict(document["table"])
    if recipe is not None and (document["estimator"] == SCALER or recipe.width != model.n_features_in_):
        raise ValueError("the table does not have the features of the model")
    versions = document["software"]
    if not isinstance(versions, dict) or len(versions) > 100:
        raise ValueError("software is not a list of versions")
    texts([*versions, *versions.values()], "software")
    (created,) = texts([document["created"]], "created")
    return SavedModel(model, recipe, versions, created)


def _scaler(document: dict[str, Any]) -> Any:
    from tailguard.preprocessing import PrivateScaler

    scaler, fitted = PrivateScaler(**arguments(PrivateScaler, document["parameters"])), document["fitted"]
    has(fitted, "fitted", "mean scale lower upper feature_names")
    scaler.mean_ = array(fitted["mean"], "mean", 1)
    scaler.n_features_in_ = len(scaler.mean_)
    scaler.scale_ = array(fitted["scale"], "scale", 1, scaler.n_features_in_)
    if np.any(scaler.scale_ <= 0.0):
        raise ValueError("scale is not positive")
    scaler.lower_, scaler.upper_ = truncation(fitted, scaler.n_features_in_)
    return scaler


def _linear_model(document: dict[str, Any]) -> Any:
    from tailguard import linear_model

    kind = getattr(linear_model, document["estimator"])
    model = kind(**arguments(kind, document["parameters"]))
    fitted = document["fitted"]
    more = " inference" if isinstance(fitted, dict) and "inference" in fitted else ""  # with inference=True only
    has(fitted, "fitted", "coef coef_noise intercept lower upper missing limits feature_names classes" + more)
    rows = 0
    if hasattr(model, "predict_proba"):
        model.classes_ = classes(fitted["classes"])
        rows = 1 if len(model.classes_) == 2 else len(model.classes_)
    elif fitted["classes"] is not None:
        raise ValueError("a regressor has no classes")
    coef = array(fitted["coef"], "coef", 2 if rows else 1)
    d = coef.shape[-1]
    if rows and coef.shape[0] != rows:
        raise ValueError("coef has not one row for each class")
    model.coef_ = coef
    if rows:
        model.intercept_ = array(fitted["intercept"], "intercept", 1, rows)
    else:
        model.intercept_ = float(array([fitted["intercept"]], "intercept", 1)[0])
    model.lower_, model.upper_ = truncation(fitted, d)
    model._missing = array(fitted["missing"], "missing", 1, d)
    model.coef_noise_ = None
    if fitted["coef_noise"] is not None:
        model.coef_noise_ = array(fitted["coef_noise"], "coef_noise", coef.ndim, d)
        if model.coef_noise_.shape != coef.shape or np.any(model.coef_noise_ < 0.0):
            raise ValueError("coef_noise does not belong to coef")
    model._set_uncertainty(uncertainty(fitted["inference"], coef) if more else None)
    limits = array(fitted["limits"], "limits", 1, 2, infinite=True)
    if limits[0] > limits[1]:
        raise ValueError("limits are not in order")
    model._floor, model._ceiling = float(limits[0]), float(limits[1])
    model.n_features_in_ = d
    return model
