r"""Private model selection: the best of several candidates, paid once.

Fitting k candidates and comparing them spends k times. `PrivateGridSearch` repeats one cheap run instead:

1. draw a candidate of the grid at random;
2. fit it, with all but a share of the run's budget;
3. score it on the same rows, with that share: a mean of gains over a guess, each bounded, plus noise.

How often is drawn first, from a public distribution, and secret. Only the best run leaves: its candidate, its model,
its score. Not the other scores, not the other models, not how many runs there were. For that the price is not that of
all the runs but that of one and a part (:mod:`tailguard.privacy.selection`): with 16 runs expected, each has .58 of the
mu of a single fit, where eight candidates that share the budget have .35 each.

**Why the same rows.** Held-out rows would save the share, but cost the fit their part of the rows. With a share s
the fit has noise of size 1/(n sqrt(1 - s)) and the score 1/(n sqrt(s)); with a held-out part f they have 1/(n (1 - f))
and 1/(n f). For the same fit, s = 1 - (1 - f)^2 = 2f - f^2, and sqrt(s) > f: the score is two to four times as quiet.
The optimism of a score on the training rows, about d/n of the noise in y, is below the noise of the score.

**What is not done.** Nothing about the runs is stored, counted, logged or warned of. A ledger is charged, and its
report filed, before the first run: when the search ended would tell how many runs there were. The clock on the wall
does tell; see docs/model-selection.md.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d

from tailguard._checks import one_of, positive, within
from tailguard.default.columns import locate
from tailguard.engines import Data, Engine, elsewhere, engine_for
from tailguard.engines.memory import InMemory
from tailguard.ledger import charge
from tailguard.ledger.active import covered
from tailguard.linear_model import PrivateLogisticRegression, PrivatePoissonRegressor, _PrivateLinearModel
from tailguard.mean import promise
from tailguard.means.queries import Queries
from tailguard.privacy import (
    Account,
    Budget,
    Event,
    Gaussian,
    NoiseSource,
    NotPrivate,
    OverBudgetError,
    PrivacyReport,
    Selection,
    ZeroConcentrated,
    exact_rate,
    noise_source,
    selection_mu,
    total_rho,
)

Array = NDArray[np.float64]

NUMBER_SCORES = ("r2", "d2_absolute_error_score")
LABEL_SCORES = ("neg_log_loss", "neg_brier_score", "accuracy")
# The search owns the promise, the noise and the public labels: in a grid each would change what is paid for.
_OURS = ("epsilon", "delta", "random_state", "allow_large_delta", "classes")

RUNS_PER_CANDIDATE = 2.0  # expected; more find the best candidate more surely, and leave less for each run
# Heads that end the series. One makes few runs likely, many cost more; the price of zCDP runs grows faster with it.
HEADS, CONCENTRATED_HEADS = 4, 1
BESIDE = 0.05  # of mu^2 of a run, for centre and spread of the target, once
BESIDE_SHARES = (0.5, 0.2, 0.3)  # of that: histogram, mean, spread
# The bound on errors is as wide as leaves this noise in a score, between so many scales of y. A wide one is fair to the
# mean of a skewed target; a narrow one has less noise.
SCORE_NOISE, NARROWEST, WIDEST = 0.01, 1.0, 8.0
LARGEST_GAIN = 0.75  # of a row, times the gain 2B^2 of a prediction that is right where the centre is off by the bound
LARGEST_SPREAD = 12.0  # times the squared scale of y, at most what one row adds to the spread
LEAST_BOUND = 1e-45  # of errors, and the inverse of the largest: a grid for gains, their squares, has to fit floats
LOG_LOSS_BOUND = 2.0  # beyond log(classes), the loss of a guess: a worse one counts as this
_BESIDE_DRAWS = 10_000  # more than the histograms, means and counts of one column ever draw
_ROUNDING = 1.0 - 1e-12


@dataclass(frozen=True)
class Numbers:
    r"""Gains of predictions over the constant c, for targets that are numbers.

    With H(e) = e^2 up to the bound B and 2B|e| - B^2 beyond, Huber's, a row gains H(y - c) - H(y - p), at most
    2B|p - c| *whatever y is*: a tail of y counts linearly in both terms, so that the best constant under H is near the
    mean, where a squared error that is cut off at B would forget every row beyond it. Gains are clipped at a multiple
    of B^2, which few good predictions reach; wild ones lose as much in every row. For the absolute error the gain is
    |y - c| - |y - p|, and B only says what is wild.
    """

    absolute: bool
    centre: float
    bound: float
    spread: float = 1.0  # mean H(y - c), or |y - c|: scores are gains over it

    @property
    def top(self) -> float:
        """Largest gain or loss of a row."""
        return LARGEST_GAIN * self.bound * (1.0 if self.absolute else 2.0 * self.bound)

    def size(self, error: Array) -> Array:
        """H, or the absolute value."""
        e = np.abs(error)
        return e if self.absolute else np.where(e <= self.bound, e * e, self.bound * (2.0 * e - self.bound))

    def gains(self, model: Any, X: NDArray[Any], y: Array) -> Array:
        """Gain of every row; one without a target gains nothing."""
        predicted = model._predictor_of(X)
        if isinstance(model, PrivatePoissonRegressor):
            predicted = np.exp(np.minimum(predicted, 700.0))
        # Beyond both by some bounds the gain does not depend on y any more: an infinite target is taken back to there.
        around = 4.0 * self.bound
        y = np.clip(y, np.minimum(self.centre, predicted) - around, np.maximum(self.centre, predicted) + around)
        return np.nan_to_num(self.size(y - self.centre) - self.size(y - predicted), nan=0.0)

    def reported(self, mean: float) -> float:
        """The part of the spread that is explained."""
        return mean / self.spread


@dataclass(frozen=True)
class Labels:
    """Losses of probabilities, for targets that are places of labels; a missing or foreign label has the largest."""

    scoring: str
    classes: int

    @property
    def largest(self) -> float:
        """A loss counts at most as this."""
        return math.log(self.classes) + LOG_LOSS_BOUND if self.scoring == "neg_log_loss" else 1.0

    @property
    def top(self) -> float:
        """Half of it: losses are centred."""
        return 0.5 * self.largest

    def gains(self, model: Any, X: NDArray[Any], y: Array) -> Array:
        """Half of the largest loss less the loss of every row."""
        p = model._probabilities(model._predictor_of(X))
        known = np.isfinite(y)
        place = np.where(known, y, 0.0).astype(np.intp)
        if self.scoring == "accuracy":
            losses = (np.argmax(p, axis=1) != place).astype(np.float64)
        elif self.scoring == "neg_log_loss":
            losses = -np.log(p[np.arange(len(p)), place])
        else:
            losses = np.sum((p - (place[:, None] == np.arange(p.shape[1]))) ** 2, axis=1) / 2.0
        return np.asarray(self.top - np.clip(np.where(known, losses, np.inf), 0.0, self.largest))

    def reported(self, mean: float) -> float:
        """The mean loss with its sign turned; the share of right labels for accuracy."""
        return mean - self.top + (1.0 if self.scoring == "accuracy" else 0.0)


Measure = Numbers | Labels


@dataclass(frozen=True)
class RowGains:
    """What every row says for a fitted model, within +-top whatever the row holds: (rows, 1)."""

    model: Any
    measure: Measure

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Array:
        """Row i from row i alone."""
        with np.errstate(all="ignore"):
            found = self.measure.gains(self.model, np.asarray(X), np.asarray(y, dtype=np.float64))
            return np.clip(found, -self.measure.top, self.measure.top)[:, None]


@dataclass(frozen=True)
class _Table:
    """The rows of a search: for fits, and with labels as their places for scores."""

    fitted: Engine
    scored: Engine
    classes: NDArray[Any] | None


@dataclass(frozen=True)
class _Plan:
    """Everything public about a search, before a row is read."""

    candidates: Sequence[dict[str, Any]]
    asked: Sequence[tuple[Event, ...]]  # by each candidate's fit
    scoring: str
    run: Selection
    fit: Budget
    score: Budget
    beside: Gaussian | None

    @property
    def events(self) -> tuple[Event, ...]:
        """What the search spends."""
        return (self.run,) if self.beside is None else (self.beside, self.run)


@dataclass(frozen=True)
class _Run:
    """One run; all but the best are forgotten."""

    index: int
    model: Any
    score: float
    noise: float


def _has(name: str) -> Any:
    """Whether the estimator has a method, fitted or not."""

    def check(search: PrivateGridSearch) -> bool:
        return hasattr(getattr(search, "best_estimator_", search.estimator), name)

    return available_if(check)


class PrivateGridSearch(MetaEstimatorMixin, BaseEstimator):
    """The best candidate of a grid with differential privacy, for little more than the price of one fit.

    Runs are repeated a random number of times: each draws a candidate, fits it and scores it with noise; the best run
    is released, and nothing about the others. At the same epsilon a run has about twice the budget that each of ten
    candidates would have if they shared it.

    Parameters
    ----------
    estimator : PrivateRidge, PrivateHuberRegressor, PrivatePoissonRegressor or PrivateLogisticRegression
        Its own epsilon, delta and random_state are not used.
    param_grid : dict of str to list, or list of such dicts
        Candidates, as in scikit-learn's ``GridSearchCV``. They must not be chosen by looking at the data.
    epsilon : float or Budget, default=1.0
        The promise for the whole search: fits, scores and the choice.
    delta : float, optional
        Default ``min(1e-6, n**-1.5)``.
    scoring : str, optional
        For numbers "r2" (default) or "d2_absolute_error_score": the part of the squared, or absolute, distance of y
        from its centre that is explained. For labels "neg_log_loss" (default), "neg_brier_score" or "accuracy". What
        one row can say is bounded.
    error_bound : float, optional
        For numbers: the error, in the units of y, from which squares go on as straight lines; public. By default one to
        eight times the scale of y, which is found privately: the more rows, the more.
    repeats : float, optional
        Expected number of runs, above 1; default twice the number of candidates. The number itself is secret.
    score_share : float, default=0.3
        Part of the budget of a run that its score gets; the rest is the fit's.
    allow_large_delta : bool, default=False
        Accept ``delta >= 1/n``.
    random_state : None, int or numpy generator, default=None
        None draws from the operating system. A seed is for experiments; the report then says "not private".

    Attributes
    ----------
    best_estimator_ : estimator
        The released model. Its ``privacy_`` is that of the search.
    best_params_ : dict
    best_index_ : int
        Place of the candidate in ``list(ParameterGrid(param_grid))``.
    best_score_ : float
        The score that the choice was made by: noisy, bounded, and the largest of several, so rather too good.
    score_noise_ : float
        Standard deviation of the noise in it; public.
    error_bound_ : float or None
        The bound on errors, given or released; None for labels.
    privacy_ : PrivacyReport
        What the search spent, all of it.
    n_features_in_ : int
    classes_ : ndarray
        For labels.

    Notes
    -----
    There is no ``cv_results_``: the scores of the other candidates were not paid for. There is no ``n_jobs``: every fit
    uses all cores already. A search in a ledger needs a dataset whose accountant is "basic".

    Examples
    --------
    >>> import numpy as np
    >>> import tailguard as tg
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((20_000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + rng.standard_t(2.5, 20_000)
    >>> model = tg.PrivateRidge(method="clipped", steps=10)
    >>> search = tg.PrivateGridSearch(model, {"clip": [0.01, 0.1, 1.0, 10.0]}, epsilon=1.0).fit(X, y)
    >>> search.privacy_.epsilon <= 1.0
    True
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        epsilon: float | Budget = 1.0,
        delta: float | None = None,
        *,
        scoring: str | None = None,
        error_bound: float | None = None,
        repeats: float | None = None,
        score_share: float = 0.3,
        allow_large_delta: bool = False,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.scoring = scoring
        self.error_bound = error_bound
        self.repeats = repeats
        self.score_share = score_share
        self.allow_large_delta = allow_large_delta
        self.random_state = random_state

    def fit(self, X: Data, y: ArrayLike | None = None, **refused: Any) -> Self:
        """Choose and fit a model; everything that leaves is differentially private, the choice included.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows, as in `PrivateRidge.fit`.
        y : array_like of shape (n,) or str
            Targets or labels, or the name of their column.
        **refused
            ``groups`` and ``sample_weight`` are refused.

        Returns
        -------
        self
            With ``best_estimator_``, ``best_params_``, ``best_score_`` and ``privacy_``.
        """
        for name in refused:
            raise TypeError(
                f"PrivateGridSearch.fit() got an unexpected keyword argument {name!r}: it takes X and y, and its "
                "guarantee is for a row."
            )
        candidates = self._candidates()
        table = self._table(X, y)
        n = table.fitted.n
        budget, delta = promise(self.epsilon, self.delta, n, self.allow_large_delta)
        noise = noise_source(self.random_state)
        plan = self._plan(candidates, table, budget)
        report = PrivacyReport.from_events(
            plan.events,
            delta,
            noise=noise,
            method="PrivateGridSearch",
            parameters=self._facts(plan),
            n=n,
            relation="replace-one",
            budget=budget,
        )
        # Filed before the first run: the time at which a search ends would tell how many runs it had.
        report = charge(plan.events, rows=n, method="PrivateGridSearch", noise=noise).settle(report)
        measure = self._measure(plan, table, noise.at(0))
        best = self._best_run(plan, table, measure, noise)
        self._release(best, plan, measure, report)
        return self

    # ---------------------------------------------------------------- before a row is read

    def _candidates(self) -> list[dict[str, Any]]:
        if not isinstance(self.estimator, _PrivateLinearModel):
            raise TypeError(
                "estimator must be a private estimator of this package, such as tailguard.PrivateRidge(); got "
                f"{type(self.estimator).__name__}. A pipeline goes around the search, and its other steps must not be "
                "fitted to private rows."
            )
        candidates = list(ParameterGrid(self.param_grid))
        for name in sorted({name for candidate in candidates for name in candidate}):
            if name in _OURS:
                raise ValueError(
                    f"param_grid must not hold {name!r}: all candidates share one promise. Give it to the search"
                    + (", or to the estimator." if name == "classes" else ".")
                )
        return candidates

    def _table(self, X: Data, y: Any) -> _Table:
        """Check types and shapes, not values, and make the rows ready for many fits."""
        model = clone(self.estimator)
        labelled = isinstance(model, PrivateLogisticRegression)
        engine: Engine
        if elsewhere(X):
            engine = engine_for(X, y, model.threads, target="label" if labelled else "number")
            model._remember(engine)
            labels = engine.labels
        else:
            if y is None:
                raise ValueError("PrivateGridSearch requires y to be passed, but the target y is None")
            rows = model._rows(X, reset=True)
            values = column_or_1d(y, warn=True)
            if len(values) != len(rows):
                raise ValueError(f"y has {len(values)} values but X has {len(rows)} rows: give one value per row.")
            if not labelled:
                values = model._loss_and_target(values)[1]
            names = getattr(model, "feature_names_in_", None)
            engine = InMemory(rows, values, model.threads, None if names is None else tuple(names))
            labels = lambda: values  # noqa: E731
        if not labelled:
            return _Table(engine, engine, None)
        model._loss_and_values(labels)
        places = engine.encoded(model.classes_.tolist(), np.arange(len(model.classes_), dtype=np.float64))
        return _Table(engine, places, model.classes_)

    def _plan(self, candidates: list[dict[str, Any]], table: _Table, budget: Budget) -> _Plan:
        """Price the search; refuse what cannot be priced, in every candidate and not only in those that are drawn."""
        accepted = NUMBER_SCORES if table.classes is None else LABEL_SCORES
        scoring = accepted[0] if self.scoring is None else one_of("scoring", self.scoring, accepted)
        if self.error_bound is not None:
            if table.classes is not None:
                raise ValueError("error_bound is for numbers: the scores of a classifier are bounded already.")
            positive("error_bound", self.error_bound)
        share = within("score_share", self.score_share, 0.0, 1.0, open_low=True, open_high=True)
        runs = RUNS_PER_CANDIDATE * len(candidates) if self.repeats is None else self.repeats
        runs = within("repeats", runs, 1.0, 1e6, open_low=True)
        # In rho, which every method takes; how much it is does not change the number of draws.
        rehearsed = [self._rehearsed(candidate, table, Budget(rho=0.5)) for candidate in candidates]
        concentrated = any(isinstance(event, ZeroConcentrated) for events in rehearsed for event in events)
        draws = 1 + max(sum(event.draws for event in events) for events in rehearsed)
        beside = BESIDE if table.classes is None else 0.0
        before = _BESIDE_DRAWS if beside else 0
        heads = CONCENTRATED_HEADS if concentrated else HEADS
        stop = coin(runs, heads)
        mu = selection_mu(budget, stop, heads, draws, concentrated=concentrated, beside=beside, beside_samples=before)
        square = mu * mu * _ROUNDING
        fit = Budget(rho=0.5 * (1.0 - share) * square) if concentrated else Budget(mu=math.sqrt((1.0 - share) * square))
        score = Budget(mu=math.sqrt(share * square))
        asked = [self._rehearsed(candidate, table, fit) for candidate in candidates]
        for events in asked:
            fits_in = 2.0 * total_rho([*events, Gaussian(score.mu)]) <= mu * mu
            if not fits_in or 1 + sum(event.draws for event in events) > draws:
                raise OverBudgetError("a candidate asks for more than the budget of a run.")
        return _Plan(
            candidates,
            asked,
            scoring,
            Selection(mu, stop, heads, draws, concentrated, label="fits, scores and the choice"),
            fit,
            score,
            Gaussian(math.sqrt(beside) * mu, samples=before, label="centre and spread") if beside else None,
        )

    def _rehearsed(self, candidate: dict[str, Any], table: _Table, budget: Budget) -> tuple[Event, ...]:
        """What a candidate's fit asks for; it ends before it reads a row."""
        model = self._model(candidate, table, budget, None)
        if model.batch_size is not None:
            raise ValueError(
                f"batch_size={model.batch_size!r} is not accepted in a search, whose price is for full batches: "
                "leave it out."
            )
        with covered(rehearsal=True) as asked:
            model.fit(table.fitted)
        events = tuple(asked)
        if not events or any(isinstance(event, NotPrivate) for event in events):
            raise ValueError(f"a candidate with method={model.method!r} is not private: leave it out of the search.")
        if not all(isinstance(event, (Gaussian, ZeroConcentrated)) for event in events):
            raise ValueError(f"a candidate with method={model.method!r} has no price in a search: leave it out.")
        return events

    def _model(self, candidate: dict[str, Any], table: _Table, budget: Budget, noise: NoiseSource | None) -> Any:
        ours: dict[str, Any] = {"epsilon": budget, "delta": None, "random_state": noise}
        if table.classes is not None:
            ours["classes"] = table.classes
        return clone(self.estimator).set_params(**candidate, **ours)

    def _facts(self, plan: _Plan) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "estimator": type(self.estimator).__name__,
            "candidates": len(plan.candidates),
            "expected runs": plan.run.runs,
            "scoring": plan.scoring,
            "score_share": self.score_share,
        }
        if getattr(self.estimator, "classes", 0) is None:
            facts["classes"] = "those found in y, treated as public"
        return facts

    # ---------------------------------------------------------------- the runs

    def _measure(self, plan: _Plan, table: _Table, noise: NoiseSource) -> Measure:
        """What runs are judged by; for numbers with centre, bound and spread of the target, released once."""
        if plan.beside is None:
            assert table.classes is not None
            return Labels(plan.scoring, len(table.classes))
        budget = Budget(mu=plan.beside.mu * _ROUNDING)
        queries = Queries(table.scored, Account(budget, max_samples=plan.beside.samples), noise)
        column = locate(queries, "target", 1, *BESIDE_SHARES[:2])
        centre, scale = float(column.mean[0]), float(column.scale[0])
        if self.error_bound is None:
            # A row moves the sum of gains by at most 4 LARGEST_GAIN B^2, and the spread is about scale^2.
            widths = math.sqrt(SCORE_NOISE * table.scored.n * plan.score.mu / (4.0 * LARGEST_GAIN))
            bound = scale * min(max(widths, NARROWEST), WIDEST)
        else:
            bound = float(self.error_bound)
        measure = Numbers(plan.scoring != "r2", centre, min(max(bound, LEAST_BOUND), 1.0 / LEAST_BOUND))
        with np.errstate(all="ignore"):
            half = 0.5 * float(measure.size(np.array(math.sqrt(LARGEST_SPREAD) * scale)))
        half = min(max(half, LEAST_BOUND**2), LEAST_BOUND**-2)

        def spread(X: Any, y: Any) -> Array:
            with np.errstate(all="ignore"):
                found = measure.size(np.asarray(y, dtype=np.float64) - centre)
            return np.clip(np.nan_to_num(found, nan=0.0), 0.0, 2.0 * half)[:, None] - half

        mean, sd = queries.mean("spread", spread, 1, half, BESIDE_SHARES[2])
        return replace(measure, spread=max(float(mean[0]) + half, sd))

    def _best_run(self, plan: _Plan, table: _Table, measure: Measure, noise: NoiseSource) -> _Run:
        """Run as often as the coin says; only the best so far is kept."""
        best: _Run | None = None
        with warnings.catch_warnings():
            # What a fit warns of was said in its rehearsal; saying it again would count the runs.
            warnings.simplefilter("ignore")
            for number in range(secret_runs(plan.run, noise.at(1))):
                run = self._one_run(plan, table, measure, noise.at(2 + number))
                if best is None or run.score > best.score:
                    best = run
        assert best is not None
        return best

    def _one_run(self, plan: _Plan, table: _Table, measure: Measure, source: NoiseSource) -> _Run:
        """Draw a candidate, fit it and score it."""
        index = int(source.at(0).uniform53() * len(plan.candidates))
        model = self._model(plan.candidates[index], table, plan.fit, source.at(1))
        with covered() as asked:
            model.fit(table.fitted)
        if tuple(asked) != plan.asked[index]:
            raise OverBudgetError("a fit asked for something else than its rehearsal.")
        queries = Queries(table.scored, Account(plan.score, max_samples=1), source.at(2))
        mean, sd = queries.mean("score", RowGains(model, measure), 1, measure.top, 1.0)
        return _Run(index, model, float(mean[0]), sd)

    # ---------------------------------------------------------------- what leaves

    def _release(self, best: _Run, plan: _Plan, measure: Measure, report: PrivacyReport) -> None:
        model = best.model
        model.set_params(random_state=self.random_state)
        if hasattr(model, "classes"):
            model.set_params(classes=self.estimator.classes)
            self.classes_ = model.classes_
        model.privacy_ = report
        self.best_estimator_ = model
        self.best_params_ = dict(plan.candidates[best.index])
        self.best_index_ = best.index
        self.best_score_ = measure.reported(best.score)
        self.score_noise_ = measure.reported(best.noise) - measure.reported(0.0)
        self.error_bound_ = measure.bound if isinstance(measure, Numbers) else None
        self.privacy_ = report
        self.n_features_in_ = model.n_features_in_
        if hasattr(model, "feature_names_in_"):
            self.feature_names_in_ = model.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    @property
    def cv_results_(self) -> NoReturn:
        """Not there: the scores of the candidates that were not chosen were not paid for."""
        raise AttributeError(
            "cv_results_ does not exist: only the best run was paid for, and what the others scored would need a "
            "budget of its own for every one of them. See best_params_ and best_score_."
        )

    # ---------------------------------------------------------------- the chosen model

    def _chosen(self) -> Any:
        check_is_fitted(self)
        return self.best_estimator_

    def predict(self, X: Data) -> NDArray[Any]:
        """Predict with the released model.

        Parameters
        ----------
        X : array_like of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Numbers or labels.
        """
        return cast(NDArray[Any], self._chosen().predict(X))

    @_has("predict_proba")
    def predict_proba(self, X: Data) -> Array:
        """Probability of every class.

        Parameters
        ----------
        X : array_like of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows.

        Returns
        -------
        ndarray of shape (n, K)
            Rows sum to one.
        """
        return cast(Array, self._chosen().predict_proba(X))

    @_has("predict_log_proba")
    def predict_log_proba(self, X: Data) -> Array:
        """Logarithm of `predict_proba`.

        Parameters
        ----------
        X : array_like of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows.

        Returns
        -------
        ndarray of shape (n, K)
            Natural logarithms.
        """
        return cast(Array, self._chosen().predict_log_proba(X))

    @_has("decision_function")
    def decision_function(self, X: Data) -> Array:
        """Linear predictor of every row.

        Parameters
        ----------
        X : array_like of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows.

        Returns
        -------
        ndarray of shape (n,) or (n, K)
            Log-odds, or one predictor per class.
        """
        return cast(Array, self._chosen().decision_function(X))

    def score(self, X: Data, y: ArrayLike) -> float:
        """Exact score of the released model, R squared or accuracy: for public rows, since it is not private.

        Parameters
        ----------
        X : array_like of shape (n, d)
            Rows.
        y : array_like of shape (n,)
            Their targets or labels.

        Returns
        -------
        float
            At most 1.
        """
        return float(self._chosen().score(X, y))

    def _repr_html_(self) -> str:
        report = getattr(self, "privacy_", None)
        return str(self._html_repr()) + ("" if report is None else report._repr_html_())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags = inner.input_tags
        tags.target_tags = inner.target_tags
        tags.non_deterministic = self.random_state is None
        return tags


def coin(runs: float, heads: int) -> float:
    """Return the probability of heads, a multiple of 2^-32, with which about so many runs are expected."""
    least, most = 2.0**-31, 1.0 - 2.0**-31
    if Selection(0.0, most, heads).runs >= runs:
        return most
    return exact_rate(brentq(lambda stop: Selection(0.0, stop, heads).runs - runs, least, most, xtol=1e-12))


def secret_runs(run: Selection, noise: NoiseSource) -> int:
    """Draw the number of runs: tails before so many heads, tossed again if there are none. Coins are exact."""
    tails, heads, toss = 0, 0, 0
    while tails == 0:
        tails = heads = 0
        while heads < run.heads:
            toss += 1
            head = len(noise.at(toss).bernoulli(1, run.stop)) > 0
            heads, tails = heads + head, tails + (not head)
    return tails
