r"""The default: private regression that asks for nothing but epsilon.

Stages, each a file: **A** `columns` (truncation, centre and scale of every column, over all floats), **B** `whitening`
(correlations and curvature), **C** steps and **D** recalibration in `linear`, `logistic`, `multinomial` and `poisson`.
Every look at the data is a query of one `tailguard.means.queries.Queries` object, paid from one account;
docs/default.md proves the sensitivities line by line.

The fitted model is linear in **truncated** features. The truncation points are released, belong to the model and are
applied by `predict`, so that no row, of training or test, can produce an unbounded term.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard._checks import within
from tailguard.default.linear import Line, fit_level, fit_line
from tailguard.default.logistic import fit_log_odds
from tailguard.default.multinomial import fit_multinomial
from tailguard.default.poisson import fit_log_mean
from tailguard.engines import Data, engine_for
from tailguard.ledger import charge
from tailguard.losses import Huber, Logistic, Loss, Multinomial, Poisson, Squared
from tailguard.mean import MeanResult, MeanTable, promise
from tailguard.means.queries import Queries
from tailguard.privacy import (
    Account,
    Budget,
    Event,
    Gaussian,
    NoiseSource,
    OverBudgetError,
    PrivacyReport,
    noise_source,
    total_mu,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DefaultOptions:
    """Public arguments of the default."""

    epsilon: float | Budget
    delta: float | None = None
    alpha: float = 0.0
    fit_intercept: bool = True
    allow_large_delta: bool = False
    random_state: Any = None
    threads: int | None = None


@dataclass(frozen=True)
class LinearModel:
    """A linear model of truncated features, in the units of the data."""

    coef: Array
    intercept: Any
    lower: Array
    upper: Array
    privacy: PrivacyReport
    missing: Array  # what stands for a missing value: the released means
    limits: tuple[float, float] = (-math.inf, math.inf)  # of the predictor, for losses with an exponential
    noise: Array | None = None  # standard deviation of the privacy noise in the coefficients, before shrinkage

    @staticmethod
    def plain(coef: Array, intercept: Any, privacy: PrivacyReport) -> LinearModel:
        """A model whose features are not truncated."""
        infinite = np.full(coef.shape[-1], np.inf)
        return LinearModel(coef, intercept, -infinite, infinite, privacy, np.zeros(coef.shape[-1]))


def fit_default(loss: Loss, X: Data, y: Any, options: DefaultOptions) -> LinearModel:
    """Fit the model that the loss asks for.

    Parameters
    ----------
    loss : Squared, Huber, Logistic, Multinomial or Poisson
        `Huber`'s threshold is found from the data, privately.
    X, y
        Rows and targets, whatever an engine takes.
    options : DefaultOptions

    Returns
    -------
    LinearModel
    """
    alpha = within("alpha", options.alpha, 0.0, 1e100)
    engine = engine_for(X, y, options.threads)
    budget, delta = promise(options.epsilon, options.delta, engine.n, options.allow_large_delta)
    noise = noise_source(options.random_state)
    draws = _draws(engine.columns + 1, loss.outputs)
    account = Account(budget, max_samples=draws)
    bill = charge(_whole(budget, draws), rows=engine.n, method="default", noise=noise)
    queries = Queries(engine, account, noise)
    with np.errstate(all="ignore"):
        if isinstance(loss, (Squared, Huber)):
            line = fit_line(queries, "mean" if isinstance(loss, Squared) else "bulk", options.fit_intercept)
            curvature = 1.0
        elif isinstance(loss, Logistic):
            line, curvature = fit_log_odds(queries, options.fit_intercept)
        elif isinstance(loss, Multinomial):
            line, curvature = fit_multinomial(queries, loss.classes, options.fit_intercept)
        elif isinstance(loss, Poisson):
            line, curvature = fit_log_mean(queries, options.fit_intercept)
        else:
            raise TypeError(f"loss={loss!r} has no default method: use tailguard.minimize with a method.")
        coef, intercept = _in_data_units(line, alpha, curvature, options.fit_intercept)
        spread = None if line.noise is None else np.minimum(line.noise / line.columns.scale, 1e150)
    report = PrivacyReport.from_events(
        account.events,
        delta,
        noise=noise,
        method="default",
        parameters={
            "loss": type(loss).__name__,
            "alpha": alpha,
            "fit_intercept": options.fit_intercept,
            "model": line.note,
        },
        n=engine.n,
        relation="replace-one",
        budget=budget,
    )
    columns = line.columns
    report = bill.settle(report)
    return LinearModel(coef, intercept, columns.lower, columns.upper, report, columns.mean, line.limits, spread)


def default_mean(table: MeanTable, noise: NoiseSource) -> MeanResult:
    """Release the mean of every column, each with an equal part of the budget: stages A and D on the column alone."""
    columns, draws = table.coordinates, _draws(1, 1)
    part = Budget(mu=total_mu(table.budget, columns * draws) / math.sqrt(columns) * (1.0 - 1e-12))
    bill = charge(_whole(table.budget, columns * draws), rows=table.n, method="private_mean", noise=noise)
    values = np.empty(columns)
    events: list[Event] = []
    with np.errstate(all="ignore"):
        for j in range(columns):
            queries = Queries(table.engine.column(j), Account(part, max_samples=draws), noise.at(j))
            values[j] = fit_level(queries)
            events += queries.account.events
    if not table.budget.allows(events):
        raise OverBudgetError(f"the means cost more than the budget {table.budget.describe()}.")
    result = table.result("private_mean", values, tuple(events), "replace-one", noise, {})
    bill.settle(result.privacy)
    return result


def _whole(budget: Budget, draws: int) -> tuple[Event, ...]:
    """The most that accounts on this budget can release, whatever they see."""
    return (Gaussian(total_mu(budget, draws), samples=draws, label="whole budget"),)


def _draws(p: int, outputs: int) -> int:
    """Public bound on the number of noise draws, whose price the account sets aside."""
    return 1000 * (p + 1) + 2 * p * (p + 1) + 50 * p * outputs + 1000


def _in_data_units(line: Line, alpha: float, curvature: float, fit_intercept: bool) -> tuple[Array, Any]:
    r"""Coefficients and intercept of the raw features, with the L2 penalty.

    Slopes of standardised features become coefficients by dividing by the scale. The penalised solution of the
    quadratic with the released correlations C is ``(k C + alpha D^-2)^-1 k C slopes``, D the scales and k the
    curvature of the loss: post-processing.
    """
    columns, slopes = line.columns, line.slopes
    if alpha > 0.0:
        inverse_scale = np.minimum(columns.scale**-2.0, 1e200)
        H = curvature * line.correlation
        slopes = np.asarray(np.linalg.solve(H + alpha * np.diag(inverse_scale), H @ slopes.T).T, np.float64)
    coef: Array = np.clip(slopes / columns.scale, -1e150, 1e150)
    if not fit_intercept:
        return coef, np.zeros(len(coef)) if coef.ndim == 2 else 0.0
    at = columns.mean + columns.scale * line.shift
    intercept = line.level - coef @ at
    return coef, intercept if np.ndim(intercept) else float(intercept)
