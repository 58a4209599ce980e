"""Differentially private learning on data with heavy tails."""

from tailguard import algorithms, constraints, datasets, losses
from tailguard.api import minimize, private_mean
from tailguard.linear_model import (
    PrivateHuberRegressor,
    PrivateLogisticRegression,
    PrivatePoissonRegressor,
    PrivateRidge,
)
from tailguard.privacy import Budget, OverBudgetError, PrivacyReport
from tailguard.truncation import psi, psi_bound

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
