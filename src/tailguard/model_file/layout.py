"""What a model file is: its fields' limits, its checksum and what is made of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from tailguard import constraints
from tailguard.tables.schema import Recipe

FORMAT, VERSION = "tailguard-model", 1
MAX_BYTES, MAX_COEFFICIENTS, MAX_EVENTS = 256 * 2**20, 10_000_000, 100_000
SCALER = "PrivateScaler"
ESTIMATORS = ("PrivateRidge", "PrivateHuberRegressor", "PrivateLogisticRegression", "PrivatePoissonRegressor", SCALER)
CONSTRAINTS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (constraints.L2Ball, constraints.Box, constraints.Simplex, constraints.Unconstrained)
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


def kept(parameter: str) -> bool:
    """Whether a constructor's argument belongs to the model; threads are those of a machine."""
    return parameter != "threads"


def checksum(document: dict[str, Any]) -> str:
    """Return the digest of everything but the checksum."""
    content = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return "sha256:" + hashlib.sha256(content.encode()).hexdigest()
