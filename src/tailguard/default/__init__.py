r"""The default: private regression that asks for nothing but epsilon.

Stages, each a file: **A** `columns` (truncation, centre and scale of every column; what is spent on it: `locating`),
**B** `whitening` (correlations and curvature), **C** steps in `linear` (how far out its line is believed: `extent`),
`small`, `poisson`, `logistic` and `multinomial`, **D** `recalibration` (tilt and level; for log-odds with their steps).
Every look at the data is a query of one `tailguard.means.queries.Queries` object, paid from one account;
docs/default.md proves the sensitivities line by line.

The fitted model is linear in **truncated** features. The truncation points are released, belong to the model and are
applied by `predict`, so that no row, of training or test, can produce an unbounded term.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard._checks import within
from tailguard.default.choice import kind_of
from tailguard.default.columns import Columns
from tailguard.default.hinted_mean import level_known, range_of
from tailguard.default.inferred import infer, infer_level, refuse_inference, uncertainty_of
from tailguard.default.level import fit_level, level_only
from tailguard.default.line import Line, only
from tailguard.default.linear import fit_line
from tailguard.default.logistic import fit_log_odds
from tailguard.default.multinomial import fit_multinomial
from tailguard.default.poisson import fit_log_mean, log_mean_of
from tailguard.default.pure_level import is_pure, level_of
from tailguard.default.scaling import scale_columns
from tailguard.default.small import fit_small
from tailguard.engines import Data, engine_for
from tailguard.engines.grouped import for_unit
from tailguard.hints import Hints, Known
from tailguard.intervals import Uncertainty
from tailguard.ledger import charge
from tailguard.ledger.active import is_watched
from tailguard.losses import Huber, Logistic, Loss, Multinomial, Poisson, Squared
from tailguard.mean import MeanResult, MeanTable, promise
from tailguard.means.pure import PureQueries
from tailguard.means.queries import Queries
from tailguard.privacy import (
    Account,
    ApproximateDP,
    Budget,
    Event,
    Gaussian,
    NoiseSource,
    OverBudgetError,
    PrivacyReport,
    PureAccount,
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
    inference: bool = False
    hints: Hints | None = None
    names: Sequence[str] | None = None  # of the columns, for hints


@dataclass(frozen=True)
class LinearModel:
    """A linear model of truncated features, in the units of the data."""

    coef: Array
    intercept: Any
    lower: Array
    upper: Array
    privacy: PrivacyReport
    missing: Array  # what stands for a missing value: the released means
    limits: tuple[float, float] = (-math.inf, math.inf)  # of the predictor
    noise: Array | None = None  # standard deviation of the privacy noise in the coefficients, before shrinkage
    uncertainty: Uncertainty | None = None  # of the coefficients and, in the last place, of the intercept

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
    if options.inference:
        refuse_inference(loss, alpha)
        if options.hints is not None:
            raise ValueError("hints are not accepted with inference=True: intervals rest on nothing but the rows.")
    engine = engine_for(X, y, options.threads)
    budget, delta = promise(options.epsilon, options.delta, engine.n, options.allow_large_delta)
    known = None
    if options.hints is not None:
        known = options.hints.known(engine.columns, engine.names if options.names is None else options.names)
    noise = noise_source(options.random_state)
    draws = _draws(engine.columns + 1, loss.outputs)
    queries = Queries(engine, Account(budget, max_samples=draws), noise)
    pure = _is_pure(loss, queries, budget, known, options)
    whole = _whole_epsilon(budget) if pure else _whole(budget, draws)
    bill = charge(for_unit(engine, whole), rows=engine.n, method="default", noise=noise)
    account = PureAccount(budget) if pure else queries.account
    with np.errstate(all="ignore"):
        if isinstance(account, PureAccount):
            line, curvature = _pure_line(loss, PureQueries(engine, account, noise), queries)
        elif options.inference:
            line, curvature = infer(queries, loss, options.fit_intercept), 1.0
        else:
            line, curvature = _line(loss, queries, options.fit_intercept, known)
        coef, intercept = _in_data_units(line, alpha, curvature, options.fit_intercept)
        spread = None if line.noise is None else np.minimum(line.noise / line.columns.scale, 1e150)
    report = PrivacyReport.from_events(
        for_unit(engine, account.close()),
        delta,
        noise=noise,
        method="default",
        parameters={
            "loss": type(loss).__name__,
            "alpha": alpha,
            "fit_intercept": options.fit_intercept,
            "model": line.note,
        }
        | ({"inference": True} if options.inference else {})
        | ({"hints": str(options.hints)} if options.hints is not None else {}),
        n=engine.n,
        relation="replace-one",
        budget=budget,
    )
    columns = line.columns
    report = bill.settle(report)
    errors = uncertainty_of(line, options.fit_intercept) if options.inference else None
    return LinearModel(coef, intercept, columns.lower, columns.upper, report, columns.mean, line.limits, spread, errors)


def _is_pure(loss: Loss, queries: Queries, budget: Budget, known: Known | None, options: DefaultOptions) -> bool:
    """Whether all that is fitted is a level, with pure noise; public."""
    if not (isinstance(loss, (Squared, Huber, Poisson)) and options.fit_intercept) or options.inference:
        return False
    # In a ledger releases of many runs add up best if all are Gaussian.
    alone = known is None and kind_of(queries) == "level" and not is_watched()
    return alone and is_pure(queries.n, budget)


def _pure_line(loss: Loss, asked: PureQueries, queries: Queries) -> tuple[Line, float]:
    """A level and no slopes; also the curvature of the loss, for penalties."""
    if isinstance(loss, Poisson):
        level = log_mean_of(level_of(asked, "positive target") or 0.0, queries)
        return only(level, queries.engine.columns), math.exp(level)
    return only(level_of(asked) or 0.0, queries.engine.columns), 1.0


def _line(loss: Loss, queries: Queries, intercept: bool, known: Known | None) -> tuple[Line, float]:
    """The fit of a loss; also its curvature, for penalties."""
    if isinstance(loss, Logistic):
        return fit_log_odds(queries, intercept, known)
    if isinstance(loss, Multinomial):
        return fit_multinomial(queries, loss.classes, intercept, known)
    if isinstance(loss, Poisson):
        return fit_log_mean(queries, intercept, known)
    if not isinstance(loss, (Squared, Huber)):
        raise TypeError(f"loss={loss!r} has no default method: use tailguard.minimize with a method.")
    kind = kind_of(queries, known)
    if kind == "level":
        line = level_only(queries, intercept, known)
    elif kind == "small":
        line = fit_small(queries, known, intercept)
    else:
        line = fit_line(queries, "mean" if isinstance(loss, Squared) else "bulk", intercept, known)
    if known is not None and known.target_range is not None:
        line = replace(line, limits=known.target_range)
    return line, 1.0


def default_mean(
    table: MeanTable,
    noise: NoiseSource,
    inference: bool = False,
    hints: Hints | None = None,
    names: Sequence[str] | None = None,
) -> MeanResult:
    """Release the mean of every column, each with an equal part of the budget: stages A and D on the column alone."""
    columns, draws = table.coordinates, _draws(1, 1)
    public = None if hints is None else hints.known(columns, table.engine.names if names is None else names)
    part = Budget(mu=total_mu(table.budget, columns * draws) / math.sqrt(columns) * (1.0 - 1e-12))
    pure = not inference and is_pure(table.n, table.budget, columns) and not is_watched()
    pure = pure and (public is None or not np.any(np.isfinite(public.root)))  # moments are for Gaussian accounts
    whole = _whole_epsilon(table.budget) if pure else _whole(table.budget, columns * draws)
    bill = charge(for_unit(table.engine, whole), rows=table.n, method="private_mean", noise=noise)
    values, known = np.empty(columns), Uncertainty.none(columns)
    events: list[Event] = []
    unseen: list[int] = []
    with np.errstate(all="ignore"):
        for j in range(columns):
            if pure:
                assert table.budget.epsilon is not None
                account = PureAccount(Budget(table.budget.epsilon / columns, table.delta))
                asked = PureQueries(table.engine.column(j), account, noise.at(j))
                level = level_of(asked, limits=None if public is None else range_of(public, j))
                values[j] = 0.0 if level is None else level
                unseen += [j] if level is None else []
                events += for_unit(table.engine, account.close())
                continue
            queries = Queries(table.engine.column(j), Account(part, max_samples=draws), noise.at(j))
            if inference:
                values[j], found = infer_level(queries)
                known.stderr[j], known.freedom[j] = found.stderr[0], found.freedom[0]
            else:
                level = fit_level(queries) if public is None else level_known(queries, public, j)
                values[j] = 0.0 if level is None else level
                unseen += [j] if level is None else []
            events += for_unit(table.engine, queries.account.close())
    if not table.budget.allows(events):
        raise OverBudgetError(f"the means cost more than the budget {table.budget.describe()}.")
    facts = {} if hints is None else {"hints": str(hints)}
    if unseen:
        facts["note"] = _nothing_seen(unseen, table.single)
    result = table.result("private_mean", values, tuple(events), "replace-one", noise, facts)
    bill.settle(result.privacy)
    return replace(result, uncertainty=known) if inference else result


def _nothing_seen(columns: Sequence[int], single: bool) -> str:
    """Say that a mean is 0 since nothing was seen; released."""
    what = "nothing" if single else f"nothing of column{'s' if len(columns) > 1 else ''} {', '.join(map(str, columns))}"
    return f"{what} was seen at this epsilon, and 0 stands for it: public ranges as hints would help"


def fit_columns(
    X: Data,
    epsilon: float | Budget,
    delta: float | None,
    *,
    hints: Hints | None = None,
    names: Sequence[str] | None = None,
    allow_large_delta: bool = False,
    random_state: Any = None,
    threads: int | None = None,
) -> tuple[Columns, PrivacyReport]:
    """Release truncation, mean and scale of every column: stage A, with a budget of its own."""
    engine = engine_for(X, None, threads, target="none")
    budget, delta = promise(epsilon, delta, engine.n, allow_large_delta)
    known = None if hints is None else hints.known(engine.columns, engine.names if names is None else names)
    noise, draws = noise_source(random_state), _draws(engine.columns + 1, 1)
    account = Account(budget, max_samples=draws)
    bill = charge(for_unit(engine, _whole(budget, draws)), rows=engine.n, method="scaler", noise=noise)
    with np.errstate(all="ignore"):
        columns = scale_columns(Queries(engine, account, noise), known)
    report = PrivacyReport.from_events(
        for_unit(engine, account.close()),
        delta,
        noise=noise,
        method="scaler",
        parameters={} if hints is None else {"hints": str(hints)},
        n=engine.n,
        relation="replace-one",
        budget=budget,
    )
    return columns, bill.settle(report)


def _whole(budget: Budget, draws: int) -> tuple[Event, ...]:
    """The most that accounts on this budget can release, whatever they see."""
    return (Gaussian(total_mu(budget, draws), samples=draws, label="whole budget"),)


def _whole_epsilon(budget: Budget) -> tuple[Event, ...]:
    """The same of accounts with pure noise."""
    assert budget.epsilon is not None
    return (ApproximateDP(budget.epsilon, 0.0, label="whole budget"),)


def _draws(p: int, outputs: int) -> int:
    """Public bound on the number of noise draws, whose price the account sets aside.

    Gram matrices are released up to five times: each of two at a glance and again, and the second once more.
    """
    return 1250 * (p + 1) + 3 * p * (p + 1) + 50 * p * outputs + 1000


def _in_data_units(line: Line, alpha: float, curvature: float, fit_intercept: bool) -> tuple[Array, Any]:
    r"""Coefficients and intercept of the raw features, with the L2 penalty.

    Slopes of standardised features become coefficients by dividing by the scale. The penalised solution of the
    quadratic with the released covariance C is ``(k C + alpha D^-2)^-1 k C slopes``, D the scales and k the
    curvature of the loss: post-processing.
    """
    columns, slopes = line.columns, line.slopes
    if alpha > 0.0:
        inverse_scale = np.minimum(columns.scale**-2.0, 1e200)
        H = curvature * line.covariance
        slopes = np.asarray(np.linalg.solve(H + alpha * np.diag(inverse_scale), H @ slopes.T).T, np.float64)
    # Released numbers of contradictory hints may overflow: a coefficient that is no number says nothing.
    coef: Array = np.nan_to_num(np.clip(slopes / columns.scale, -1e150, 1e150), nan=0.0)
    if not fit_intercept:
        return coef, np.zeros(len(coef)) if coef.ndim == 2 else 0.0
    at = columns.mean + columns.scale * line.shift
    intercept = np.clip(np.nan_to_num(line.level - coef @ at, nan=0.0), -1e300, 1e300)
    return coef, intercept if np.ndim(intercept) else float(intercept)
