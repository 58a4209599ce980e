"""Differentially private learning on data with heavy tails."""

from typing import TYPE_CHECKING, Any

from tailguard import algorithms, constraints, datasets, losses
from tailguard.api import minimize, private_mean
from tailguard.privacy import Budget, OverBudgetError, PrivacyReport
from tailguard.truncation import psi, psi_bound

if TYPE_CHECKING:
    from tailguard.linear_model import (
        PrivateHuberRegressor,
        PrivateLogisticRegression,
        PrivatePoissonRegressor,
        PrivateRidge,
    )

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "OverBudgetError",
    "PrivacyReport",
    "PrivateHuberRegressor",
    "PrivateLogisticRegression",
    "PrivatePoissonRegressor",
    "PrivateRidge",
    "algorithms",
    "constraints",
    "datasets",
    "losses",
    "minimize",
    "private_mean",
    "psi",
    "psi_bound",
]


def __getattr__(name: str) -> Any:
    """Load the estimators, and scikit-learn with them, when they are first asked for."""
    if name.startswith("Private") and name in __all__:
        from tailguard import linear_model

        return getattr(linear_model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
