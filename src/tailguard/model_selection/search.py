"""The search: candidates, price, runs and release."""

from __future__ import annotations

import math
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from tailguard._checks import one_of, positive, within
from tailguard.engines import Data, Engine, elsewhere, engine_for
from tailguard.engines.grouped import for_unit, in_words, split
from tailguard.engines.memory import InMemory
from tailguard.ledger import charge
from tailguard.ledger.active import covered
from tailguard.linear_model import PrivateLogisticRegression
from tailguard.linear_model.base import PrivateLinearModel
from tailguard.linear_model.rows import checked_rows, checked_target, named_target, persons, remember
from tailguard.mean import promise
from tailguard.means.queries import Queries
from tailguard.model_selection.chosen import ChosenModel
from tailguard.model_selection.measures import (
    LABEL_SCORES,
    NUMBER_SCORES,
    ROUNDING,
    Labels,
    Measure,
    Numbers,
    RowGains,
    numbers,
)
from tailguard.model_selection.runs import Plan, Run, Table, coin, secret_runs
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
    noise_source,
    selection_mu,
    total_rho,
)

# The search owns the promise, the noise and the public labels: in a grid each would change what is paid for.
_OURS = ("epsilon", "delta", "random_state", "allow_large_delta", "classes")

RUNS_PER_CANDIDATE = 2.0  # expected; more find the best candidate more surely, and leave less for each run
# Heads that end the series. One makes few runs likely, many cost more; the price of zCDP runs grows faster with it.
HEADS, CONCENTRATED_HEADS = 4, 1
BESIDE = 0.05  # of mu^2 of a run, for centre and spread of the target, once
_BESIDE_DRAWS = 10_000  # more than the histograms, means and counts of one column ever draw


class PrivateGridSearch(ChosenModel):
    """The best candidate of a grid with differential privacy, for little more than the price of one fit.

    Runs are repeated a random number of times: each draws a candidate, fits it and scores it with noise; the best run
    is released, and nothing about the others. At the same epsilon a run has about twice the budget that each of ten
    candidates would have if they shared it.

    Parameters
    ----------
    estimator : PrivateRidge, PrivateHuberRegressor, PrivatePoissonRegressor or PrivateLogisticRegression
        Its own epsilon, delta and random_state are not used.
    param_grid : dict of str to list, or list of such dicts
        Candidates, as in scikit-learn's ``GridSearchCV``; methods that take different parameters go into dicts of their
        own. They must not be chosen by looking at the data.
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

    def fit(self, X: Data, y: ArrayLike | None = None, *, groups: Any = None, **refused: Any) -> Self:
        """Choose and fit a model; everything that leaves is differentially private, the choice included.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows, as in `PrivateRidge.fit`.
        y : array_like of shape (n,) or str
            Targets or labels, or the name of their column.
        groups : array_like of shape (n,) or str, optional
            Whose row it is, or the name of that column of X: the guarantee is then for a person with all their rows,
            and persons count alike, in fits and in scores.
        **refused
            ``sample_weight`` is refused: a weight multiplies what one row can change.

        Returns
        -------
        self
            With ``best_estimator_``, ``best_params_``, ``best_score_`` and ``privacy_``.
        """
        for name in refused:
            raise TypeError(
                f"PrivateGridSearch.fit() got an unexpected keyword argument {name!r}: it takes X, y and groups."
            )
        candidates = self._candidates()
        table = self._table(X, y, groups)
        n = table.fitted.n
        budget, delta = promise(self.epsilon, self.delta, n, self.allow_large_delta)
        noise = noise_source(self.random_state)
        plan = self._plan(candidates, table, budget)
        events = for_unit(table.fitted, plan.events)
        report = PrivacyReport.from_events(
            events,
            delta,
            noise=noise,
            method="PrivateGridSearch",
            parameters=self._facts(plan),
            n=n,
            relation="replace-one",
            budget=budget,
        )
        # Filed before the first run: the time at which a search ends would tell how many runs it had.
        report = charge(events, rows=n, method="PrivateGridSearch", noise=noise).settle(report)
        measure = self._measure(plan, table, noise.at(0))
        best = self._best_run(plan, table, measure, noise)
        self._release(best, plan, measure, report)
        return self

    # ---------------------------------------------------------------- before a row is read

    def _candidates(self) -> list[dict[str, Any]]:
        if not isinstance(self.estimator, PrivateLinearModel):
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

    def _table(self, X: Data, y: Any, groups: Any) -> Table:
        """Check types and shapes, not values, and make the rows ready for many fits."""
        model = clone(self.estimator)
        labelled = isinstance(model, PrivateLogisticRegression)
        engine: Engine
        values: Any = None
        if groups is not None:
            X, groups = split(X, groups, y)
        if elsewhere(X):
            with in_words(groups):
                engine = engine_for(X, y, model.threads, target="label" if labelled else "number")
            remember(model, engine)
        else:
            if y is None:
                raise ValueError("PrivateGridSearch requires y to be passed, but the target y is None")
            X, y = named_target(X, y)
            rows = checked_rows(model, X, reset=True)
            values = checked_target(y, len(rows), groups)
            if not labelled:
                values = model._loss_and_target(values)[1]
            names = getattr(model, "feature_names_in_", None)
            engine = InMemory(rows, values, model.threads, None if names is None else tuple(names))
        if groups is not None:
            # One row of each person is drawn here for all runs: given these rows a run is what it is without groups.
            engine = persons(engine, groups, self.random_state)
        if not labelled:
            return Table(engine, engine, None)
        model._loss_and_values(engine.labels if values is None else lambda: values)
        places = engine.encoded(model.classes_.tolist(), np.arange(len(model.classes_), dtype=np.float64))
        return Table(engine, places, model.classes_)

    def _plan(self, candidates: list[dict[str, Any]], table: Table, budget: Budget) -> Plan:
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
        square = mu * mu * ROUNDING
        fit = Budget(rho=0.5 * (1.0 - share) * square) if concentrated else Budget(mu=math.sqrt((1.0 - share) * square))
        score = Budget(mu=math.sqrt(share * square))
        asked = [self._rehearsed(candidate, table, fit) for candidate in candidates]
        for events in asked:
            run = for_unit(table.fitted, [*events, Gaussian(score.mu)])
            fits_in = 2.0 * total_rho(run) <= mu * mu
            if not fits_in or 1 + sum(event.draws for event in events) > draws:
                raise OverBudgetError("a candidate asks for more than the budget of a run.")
        return Plan(
            candidates,
            asked,
            scoring,
            Selection(mu, stop, heads, draws, concentrated, label="fits, scores and the choice"),
            fit,
            score,
            Gaussian(math.sqrt(beside) * mu, samples=before, label="centre and spread") if beside else None,
        )

    def _rehearsed(self, candidate: dict[str, Any], table: Table, budget: Budget) -> tuple[Event, ...]:
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

    def _model(self, candidate: dict[str, Any], table: Table, budget: Budget, noise: NoiseSource | None) -> Any:
        ours: dict[str, Any] = {"epsilon": budget, "delta": None, "random_state": noise}
        if table.classes is not None:
            ours["classes"] = table.classes
        return clone(self.estimator).set_params(**candidate, **ours)

    def _facts(self, plan: Plan) -> dict[str, Any]:
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

    def _measure(self, plan: Plan, table: Table, noise: NoiseSource) -> Measure:
        """What runs are judged by; for numbers with centre, bound and spread of the target, released once."""
        if plan.beside is None:
            assert table.classes is not None
            return Labels(plan.scoring, len(table.classes))
        return numbers(table.scored, plan.scoring, self.error_bound, plan.beside, plan.score, noise)

    def _best_run(self, plan: Plan, table: Table, measure: Measure, noise: NoiseSource) -> Run:
        """Run as often as the coin says; only the best so far is kept."""
        best: Run | None = None
        with warnings.catch_warnings():
            # What a fit warns of was said in its rehearsal; saying it again would count the runs.
            warnings.simplefilter("ignore")
            for number in range(secret_runs(plan.run, noise.at(1))):
                run = self._one_run(plan, table, measure, noise.at(2 + number))
                if best is None or run.score > best.score:
                    best = run
        assert best is not None
        return best

    def _one_run(self, plan: Plan, table: Table, measure: Measure, source: NoiseSource) -> Run:
        """Draw a candidate, fit it and score it."""
        index = int(source.at(0).uniform53() * len(plan.candidates))
        model = self._model(plan.candidates[index], table, plan.fit, source.at(1))
        with covered() as asked:
            model.fit(table.fitted)
        if tuple(asked) != plan.asked[index]:
            raise OverBudgetError("a fit asked for something else than its rehearsal.")
        queries = Queries(table.scored, Account(plan.score, max_samples=1), source.at(2))
        mean, sd = queries.mean("score", RowGains(model, measure), 1, measure.top, 1.0)
        return Run(index, model, float(mean[0]), sd)

    # ---------------------------------------------------------------- what leaves

    def _release(self, best: Run, plan: Plan, measure: Measure, report: PrivacyReport) -> None:
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
