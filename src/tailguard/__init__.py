"""Differentially private learning on data with heavy tails."""

from typing import TYPE_CHECKING, Any

from tailguard import algorithms, constraints, datasets, losses
from tailguard.api import minimize, private_mean
from tailguard.engines.source import Source
from tailguard.hints import Hints
from tailguard.ledger import BudgetExceeded, Ledger, LedgerError
from tailguard.privacy import Budget, OverBudgetError, PrivacyReport
from tailguard.truncation import psi, psi_bound

if TYPE_CHECKING:
    from tailguard.auditing import audit
    from tailguard.fit_report import FitReport
    from tailguard.linear_model import (
        FewRowsWarning,
        PrivateHuberRegressor,
        PrivateLogisticRegression,
        PrivatePoissonRegressor,
        PrivateRidge,
    )
    from tailguard.model_file import ModelFileError, load_model, save_model
    from tailguard.model_selection import PrivateGridSearch
    from tailguard.preprocessing import PrivateScaler

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "BudgetExceeded",
    "FewRowsWarning",
    "FitReport",
    "Hints",
    "Ledger",
    "LedgerError",
    "ModelFileError",
    "OverBudgetError",
    "PrivacyReport",
    "PrivateGridSearch",
    "PrivateHuberRegressor",
    "PrivateLogisticRegression",
    "PrivatePoissonRegressor",
    "PrivateRidge",
    "PrivateScaler",
    "Source",
    "algorithms",
    "audit",
    "constraints",
    "datasets",
    "load_model",
    "losses",
    "minimize",
    "private_mean",
    "psi",
    "psi_bound",
    "save_model",
]


def __getattr__(name: str) -> Any:
    """Load the estimators, and scikit-learn with them, when they are first asked for."""
    if name == "PrivateGridSearch":
        from tailguard import model_selection

        return model_selection.PrivateGridSearch
    if name == "PrivateScaler":
        from tailguard import preprocessing

        return preprocessing.PrivateScaler
    if name == "FewRowsWarning" or (name.startswith("Private") and name in __all__):
        from tailguard import linear_model

        return getattr(linear_model, name)
    if name == "audit":
        from tailguard import auditing

        return auditing.audit
    if name in ("ModelFileError", "load_model", "save_model"):
        from tailguard import model_file

        return getattr(model_file, name)
    if name == "FitReport":
        from tailguard import fit_report

        return fit_report.FitReport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
