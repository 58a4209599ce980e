"""scikit-learn estimators with differential privacy.

Each is thin: it checks its arguments, chooses a loss, and hands the rows to the default (`tailguard.default`) or to a
named algorithm (`tailguard.algorithms`). The data is never looked at in any other way, so no value in it can make
``fit`` raise, warn or leave a trace; only shapes, types and parameters can.

=============================  ==========================================================
estimator                      what it promises to approach
=============================  ==========================================================
`PrivateRidge`                 the minimiser of the squared risk: the slopes of the mean
`PrivateHuberRegressor`        the minimiser of the Huber risk: slopes of the bulk
`PrivateLogisticRegression`    the minimiser of the (multinomial) log-loss
`PrivatePoissonRegressor`      the minimiser of the Poisson deviance, log link
=============================  ==========================================================

Under noise that is skewed *and* whose size depends on x, as in medical costs, the slopes of the mean and of the bulk
differ: choose `PrivateRidge` to predict totals, `PrivateHuberRegressor` to describe the typical row; the latter
needs less budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from tailguard._checks import instance_of, one_of, plain_numbers, yes_or_no
from tailguard.algorithms import algorithm1, algorithm3, algorithm4, clipped_gd, robust_gd
from tailguard.constraints import Constraint
from tailguard.default import DefaultOptions, LinearModel, fit_default
from tailguard.engines import Data, Engine, elsewhere, engine_for
from tailguard.engines.grouped import grouped, in_words, split
from tailguard.engines.labels import encode
from tailguard.hints import Hints
from tailguard.intervals import WithIntervals
from tailguard.losses import Huber, Logistic, Loss, Multinomial, Poisson, Squared
from tailguard.privacy import PrivacyReport, noise_source

Array = NDArray[np.float64]
# How scikit-learn's complaints about shapes, column names and sparse formats begin.
_ABOUT_SHAPES = (
    "Found array with",
    "X has ",
    "X does not contain",
    "The feature names",
    "Feature names",
    "Sparse",
    "A sparse",
    "Only sparse",
    "Expected unique column names",
)
METHODS = ("auto", "clipped", "smoothed", "trimmed", "aggregate", "robust")


class _PrivateLinearModel(WithIntervals, BaseEstimator):
    """What the estimators share: parameters, validation, dispatch and truncated prediction."""

    coef_: Array
    intercept_: Any
    privacy_: PrivacyReport

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        alpha: float = 0.0,
        method: str = "auto",
        fit_intercept: bool = True,
        inference: bool = False,
        hints: Hints | None = None,
        clip: float | None = None,
        v: float | None = None,
        scale: float | None = None,
        bounds: tuple[float, float] | None = None,
        constraint: Constraint | None = None,
        blocks: int | None = None,
        steps: int | None = None,
        step_size: float | None = None,
        batch_size: float | None = None,
        allow_large_delta: bool = False,
        random_state: Any = None,
        threads: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.alpha = alpha
        self.method = method
        self.fit_intercept = fit_intercept
        self.inference = inference
        self.hints = hints
        self.clip = clip
        self.v = v
        self.scale = scale
        self.bounds = bounds
        self.constraint = constraint
        self.blocks = blocks
        self.steps = steps
        self.step_size = step_size
        self.batch_size = batch_size
        self.allow_large_delta = allow_large_delta
        self.random_state = random_state
        self.threads = threads

    def fit(self, X: Data, y: ArrayLike | None = None, *, groups: Any = None, **refused: Any) -> Self:
        """Fit the model; everything that leaves is differentially private.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows; any values, missing and infinite ones included. pandas and polars frames keep their column names.
            Files are read a block at a time.
        y : array_like of shape (n,) or str
            Targets or labels, or the name of their column in a source, table or file.
        groups : array_like of shape (n,) or str, optional
            Whose row it is, or the name of that column of X: the guarantee is then for a person with all their rows,
            and every person counts once, whatever the number of their rows. Their rows must fit into memory.
        **refused
            ``sample_weight`` is refused: a weight multiplies what one row can change.

        Returns
        -------
        self
            With ``coef_``, ``intercept_`` and ``privacy_``.
        """
        if refused.get("sample_weight") is not None:
            raise ValueError(
                "sample_weight is not accepted: the guarantee is per row, and a weight would multiply what one row can "
                "change. Leave it out, or repeat the fit on the rows you want."
            )
        for name in set(refused) - {"sample_weight"}:
            raise TypeError(f"{type(self).__name__}.fit() got an unexpected keyword argument {name!r}")
        one_of("method", self.method, METHODS)
        yes_or_no("fit_intercept", self.fit_intercept)
        if yes_or_no("inference", self.inference) and self.method != "auto":
            raise ValueError(f"inference=True is not accepted by method={self.method!r}: give method='auto'.")
        self._check_hints()
        rows: Any
        target: Any
        if groups is not None:
            X, groups = split(X, groups, y)
        if elsewhere(X):
            with in_words(groups):
                loss, rows = self._loss_and_engine(X, y)
            target = None
            self._remember(rows)
        else:
            if y is None:
                raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
            rows = self._rows(X, reset=True)
            if groups is not None and np.shape(y)[1:] not in ((), (1,)):
                raise ValueError("y should be a 1d array: give one value per row.")  # its shape is not told
            labels = column_or_1d(y, warn=True)
            if len(labels) != len(rows):
                found = f"y has {len(labels)} values but X has {len(rows)} rows"
                raise ValueError(f"{found if groups is None else 'y and X differ in length'}: give one value per row.")
            loss, target = self._loss_and_target(labels)
        if groups is not None:
            rows = grouped(engine_for(rows, target, self.threads), groups, noise_source(self.random_state))
            target = None
            if rows.n < 2:
                raise ValueError(f"groups has {rows.n} person: a minimum of 2 is required.")
        model = self._fit_auto(loss, rows, target) if self.method == "auto" else self._fit_method(loss, rows, target)
        self.coef_, self.intercept_, self.privacy_ = model.coef, model.intercept, model.privacy
        self.lower_, self.upper_, self._missing = model.lower, model.upper, model.missing
        self._floor, self._ceiling = model.limits
        self.coef_noise_ = model.noise
        self._set_uncertainty(model.uncertainty)
        return self

    def _loss_and_target(self, y: NDArray[Any]) -> tuple[Loss, Array]:
        raise NotImplementedError

    def _loss_and_engine(self, X: Data, y: Any) -> tuple[Loss, Engine]:
        """The same for rows that are not an array here: the engine holds their targets."""
        raise NotImplementedError

    def _fit_auto(self, loss: Loss, X: NDArray[Any], y: Array) -> LinearModel:
        options = DefaultOptions(
            self.epsilon,
            self.delta,
            self.alpha,
            self.fit_intercept,
            self.allow_large_delta,
            self.random_state,
            self.threads,
            self.inference,
            self.hints,
            getattr(self, "feature_names_in_", None),
        )
        return fit_default(loss, X, y, options)

    def _check_hints(self) -> None:
        """Hints are for the default, and a classifier's targets have no range."""
        if self.hints is None:
            return
        instance_of("hints", self.hints, Hints, "tailguard.Hints(ranges={'age': (0, 120)})")
        if self.method != "auto":
            raise ValueError(f"hints are not accepted by method={self.method!r}: give method='auto'.")
        if self.hints.target_range is not None and hasattr(self, "predict_proba"):
            raise ValueError("target_range is not accepted by a classifier: its targets are labels. Leave it out.")

    def _fit_method(self, loss: Loss, X: NDArray[Any], y: Array) -> LinearModel:
        """Hand the rows to a named algorithm, with the parameters that the user gave and its defaults for the rest."""
        promise: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta}
        common = {"alpha": self.alpha, "random_state": self.random_state, "threads": self.threads}
        common |= {"allow_large_delta": self.allow_large_delta}
        if self.method == "aggregate":
            return self._fit_aggregate(loss, X, y, promise | common)
        common |= {"fit_intercept": bool(self.fit_intercept)}
        common |= _given(constraint=self.constraint, steps=self.steps, step_size=self.step_size)
        if self.method == "clipped":
            result = clipped_gd(
                loss,
                X,
                y,
                clip=_needed("clip", self.clip, self.method),
                batch_size=self.batch_size,
                **promise,
                **common,
            )
        elif self.method == "trimmed":
            bounds = _needed("bounds", self.bounds, self.method)
            if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
                raise TypeError(f"bounds must be a pair of numbers, for example (-10.0, 10.0); got {bounds!r}")
            a, b = bounds
            result = algorithm3(loss, X, y, a=a, b=b, **promise, **common)
        elif self.method == "smoothed":
            result = algorithm4(loss, X, y, v=self.v, scale=self.scale, batch_size=self.batch_size, **promise, **common)
        else:
            result = robust_gd(loss, X, y, v=self.v, scale=self.scale, batch_size=self.batch_size, **common)
        intercept = result.intercept if self.fit_intercept else np.zeros(loss.outputs) if loss.outputs > 1 else 0.0
        return LinearModel.plain(result.w, intercept, result.privacy)

    def _fit_aggregate(self, loss: Loss, X: NDArray[Any], y: Array, arguments: dict[str, Any]) -> LinearModel:
        """Algorithm 1; the intercept is one more coefficient, on a column of ones."""
        arguments |= {"constraint": _needed("constraint", self.constraint, self.method)}
        result = algorithm1(loss, X, y, blocks=self.blocks, fit_intercept=bool(self.fit_intercept), **arguments)
        intercept = result.intercept if self.fit_intercept else np.zeros(loss.outputs) if loss.outputs > 1 else 0.0
        return LinearModel.plain(result.w, intercept, result.privacy)

    def _predictor(self, X: Data, then: Callable[[Array], NDArray[Any]] = np.asarray) -> Any:
        """Linear predictor of the truncated features, (n,) or (n, classes), or a function of it, where the rows are."""
        check_is_fitted(self)
        if not elsewhere(X):
            return then(self._predictor_of(self._rows(X, reset=False)))
        rows = engine_for(X, None, self.threads, target="none", names=getattr(self, "feature_names_in_", None))
        if rows.columns != self.n_features_in_:
            raise ValueError(f"X has {rows.columns} features, but {type(self).__name__} expects {self.n_features_in_}.")
        return rows.map_rows(lambda block: then(self._predictor_of(block)))

    def _predictor_of(self, rows: NDArray[Any]) -> Array:
        """Linear predictor of a block of rows; a missing value counts as in the fit."""
        rows = np.clip(np.where(np.isnan(rows), self._missing, rows), self.lower_, self.upper_)
        with np.errstate(over="ignore", invalid="ignore"):
            z = np.nan_to_num(_products(rows, self.coef_) + self.intercept_)
        return np.asarray(np.clip(z, self._floor, self._ceiling))

    def _remember(self, rows: Engine) -> None:
        remember(self, rows)

    def _rows(self, X: ArrayLike, reset: bool) -> NDArray[Any]:
        return checked_rows(self, X, reset)

    def _repr_html_(self) -> str:
        report = getattr(self, "privacy_", None)
        return str(self._html_repr()) + ("" if report is None else report._repr_html_())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags


def _products(rows: Array, coef: Array) -> Array:
    """Each row times the coefficients, or those of each class; a row has the same bits wherever it stands.

    A BLAS product has not: it rounds the last rows of a block differently, and in private scores for persons, who may
    have any number of rows, somebody's rows would then change what others add.
    """
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    if coef.ndim == 2:
        return np.stack([_products(rows, one) for one in coef], axis=1)
    z = np.zeros(len(rows))
    for start in range(0, len(coef), 4096):  # longer rows may be cut by NumPy's buffers
        piece = slice(start, start + 4096)
        z += np.einsum("ij,j->i", rows[:, piece], coef[piece])
    return z


class _PrivateRegressor(RegressorMixin, _PrivateLinearModel):
    """A regressor predicts a number."""

    def predict(self, X: Data) -> Array:
        """Predict the target of every row.

        Parameters
        ----------
        X : array_like of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows; each feature is first truncated to ``[lower_, upper_]``.

        Returns
        -------
        ndarray of shape (n,)
            Predictions.
        """
        return self._predictor(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # with the few rows of a check, noise is all there is
        return tags

    def _loss_and_target(self, y: NDArray[Any]) -> tuple[Loss, Array]:
        if y.dtype.kind == "O":
            y = plain_numbers(y)
        try:
            if y.dtype.kind in "fiubO":
                with np.errstate(all="ignore"):
                    return self._loss(), np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):  # whose message would repeat a value of the data
            pass
        raise ValueError(f"y has dtype {y.dtype} and holds values that are not numbers: give real numbers.")

    def _loss_and_engine(self, X: Data, y: Any) -> tuple[Loss, Engine]:
        return self._loss(), engine_for(X, y, self.threads)

    def _loss(self) -> Loss:
        raise NotImplementedError


class PrivateRidge(_PrivateRegressor):
    """Linear regression with differential privacy: slopes of the conditional mean.

    With the default method it needs nothing but epsilon: no bounds, no scaling, no clip norm, no moments. It
    approaches the minimiser of the squared population risk; the clip of its residuals widens as n grows, until
    clipping bias, sampling error and privacy noise balance.

    Parameters
    ----------
    epsilon : float, default=1.0
        The promise: smaller is more private.
    delta : float, optional
        Default ``min(1e-6, n**-1.5)``.
    alpha : float, default=0.0
        L2 penalty ``alpha/2 |w|^2`` on the coefficients beside the mean loss; the intercept is not penalised.
    method : {"auto", "clipped", "smoothed", "trimmed", "aggregate", "robust"}, default="auto"
        "auto" needs nothing but epsilon. "clipped": DP-GD, needs ``clip``. "smoothed": Algorithm 4, needs ``v`` or
        ``scale``. "trimmed": Algorithm 3, needs ``bounds``. "aggregate": Algorithm 1, needs ``constraint``.
        "robust": not private, needs ``v`` or ``scale``. All but "auto" work in the units of the data: scale the
        columns by public constants first.
    fit_intercept : bool, default=True
    inference : bool, default=False
        The same budget also buys standard errors and intervals: ``stderr_``, `conf_int` and `summary`; for "auto" with
        ``alpha=0``. The coefficients are then those of an estimate that is not shrunk, so that intervals can be centred
        on it; for prediction alone the default is better.
    hints : Hints, optional
        Public knowledge about columns and target, for method "auto": with few rows it decides whether slopes can be
        fitted. A wrong hint costs accuracy, never privacy. Not with ``inference=True``.
    clip, v, scale, bounds, constraint, blocks, steps, step_size, batch_size : optional
        Public parameters of the other methods; see `tailguard.algorithms`.
    allow_large_delta : bool, default=False
        Accept ``delta >= 1/n``.
    random_state : None, int or numpy generator, default=None
        None draws noise from the operating system. A seed is for experiments; the report then says "not private".
    threads : int, optional
        Threads of the kernels; the result does not depend on it.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
    intercept_ : float
    coef_noise_ : ndarray of shape (d,) or None
        Standard deviation of the privacy noise in each coefficient before it was shrunk, known from the released noise
        levels; None for other methods. Choices that the noise decides are not in it: the spread of repeated fits is 1
        to 3 times as large.
    stderr_ : ndarray of shape (d,) or None
        Standard errors of the coefficients with ``inference=True``, sampling error and privacy noise together; infinite
        where the budget does not carry an honest one.
    intercept_stderr_ : float or None
        That of the intercept.
    freedom_ : ndarray of shape (d + 1,) or None
        Degrees of freedom of the intervals of coefficients and intercept: how well the standard errors are known.
    privacy_ : PrivacyReport
        What this fit spent. Reports of several fits on the same rows add up: ``a.privacy_ + b.privacy_``.
    lower_, upper_ : ndarray of shape (d,)
        Truncation of the features, released with the model; `predict` applies it.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> import tailguard as tg
    >>> rng = np.random.default_rng(0)
    >>> X = rng.lognormal(size=(5000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + rng.standard_t(2.5, 5000)
    >>> model = tg.PrivateRidge(epsilon=1.0).fit(X, y)
    >>> model.privacy_.epsilon <= 1.0
    True
    """

    def _loss(self) -> Loss:
        return Squared()


class PrivateHuberRegressor(_PrivateRegressor):
    """Robust linear regression with differential privacy: slopes of the bulk of the rows.

    It approaches the minimiser of the Huber risk, whose slopes are those of the mean if the noise is symmetric or
    does not depend on x. Rows far from the bulk count little, so it needs less budget than `PrivateRidge`. Its
    intercept is that of the mean residual, so that predictions are right on average.

    Parameters
    ----------
    epsilon, delta, alpha, method, fit_intercept, inference, hints, clip, v, scale, bounds, constraint, blocks, steps
        As in `PrivateRidge`.
    step_size, batch_size, allow_large_delta, random_state, threads
        As in `PrivateRidge`.
    threshold : float, default=1.345
        Residual, in the units of y, from which the loss is linear; for all methods but "auto", which finds a
        threshold at a central quantile of the residuals.

    Attributes
    ----------
    coef_, intercept_, coef_noise_, stderr_, intercept_stderr_, freedom_, privacy_, lower_, upper_, n_features_in_
        As in `PrivateRidge`.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        threshold: float = 1.345,
        alpha: float = 0.0,
        method: str = "auto",
        fit_intercept: bool = True,
        inference: bool = False,
        hints: Hints | None = None,
        clip: float | None = None,
        v: float | None = None,
        scale: float | None = None,
        bounds: tuple[float, float] | None = None,
        constraint: Constraint | None = None,
        blocks: int | None = None,
        steps: int | None = None,
        step_size: float | None = None,
        batch_size: float | None = None,
        allow_large_delta: bool = False,
        random_state: Any = None,
        threads: int | None = None,
    ) -> None:
        parameters = {name: value for name, value in locals().items() if name not in ("self", "threshold", "__class__")}
        super().__init__(**parameters)
        self.threshold = threshold

    def _loss(self) -> Loss:
        return Huber(self.threshold)


class PrivatePoissonRegressor(_PrivateRegressor):
    """Poisson regression with a log link and differential privacy: counts, and positive amounts.

    Parameters
    ----------
    epsilon, delta, alpha, method, fit_intercept, inference, hints, clip, v, scale, bounds, constraint, blocks, steps
        As in `PrivateRidge`.
    step_size, batch_size, allow_large_delta, random_state, threads
        As in `PrivateRidge`.

    Attributes
    ----------
    coef_, intercept_, coef_noise_, stderr_, intercept_stderr_, freedom_, privacy_, lower_, upper_, n_features_in_
        As in `PrivateRidge`.
    """

    def _loss(self) -> Loss:
        return Poisson()

    def predict(self, X: Data) -> Array:
        """Predict the mean of every row, ``exp`` of the linear predictor, at most 150 times the average by default.

        Parameters
        ----------
        X : array_like of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Positive numbers.
        """
        return cast(Array, self._predictor(X, lambda z: np.exp(np.minimum(z, 700.0))))


class PrivateLogisticRegression(ClassifierMixin, _PrivateLinearModel):
    """Logistic regression with differential privacy, for two or more classes.

    Parameters
    ----------
    epsilon, delta, alpha, method, fit_intercept, inference, hints, clip, v, scale, bounds, constraint, blocks, steps
        As in `PrivateRidge`.
    step_size, batch_size, allow_large_delta, random_state, threads
        As in `PrivateRidge`.
    classes : array_like, optional
        The public set of labels. A row with another label contributes nothing. Without it the set of labels in ``y`` is
        treated as public, and labels that are no labels (fractions, NaN) are refused: give it whenever the presence of
        a rare label is itself sensitive.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
    coef_ : ndarray of shape (1, d) or (K, d)
    intercept_ : ndarray of shape (1,) or (K,)
    stderr_ : ndarray of shape (1, d) or None
        As in `PrivateRidge`; for two classes only.
    intercept_stderr_ : ndarray of shape (1,) or None
    coef_noise_, freedom_, privacy_, lower_, upper_, n_features_in_
        As in `PrivateRidge`.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        classes: ArrayLike | None = None,
        alpha: float = 0.0,
        method: str = "auto",
        fit_intercept: bool = True,
        inference: bool = False,
        hints: Hints | None = None,
        clip: float | None = None,
        v: float | None = None,
        scale: float | None = None,
        bounds: tuple[float, float] | None = None,
        constraint: Constraint | None = None,
        blocks: int | None = None,
        steps: int | None = None,
        step_size: float | None = None,
        batch_size: float | None = None,
        allow_large_delta: bool = False,
        random_state: Any = None,
        threads: int | None = None,
    ) -> None:
        parameters = {name: value for name, value in locals().items() if name not in ("self", "classes", "__class__")}
        super().__init__(**parameters)
        self.classes = classes

    def fit(self, X: Data, y: ArrayLike | None = None, *, groups: Any = None, **refused: Any) -> Self:
        """Fit the model; see `PrivateRidge.fit`.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows.
        y : array_like of shape (n,) or str
            Labels, or the name of their column in a source, table or file.
        groups : array_like of shape (n,) or str, optional
            Whose row it is, or the name of that column of X.
        **refused
            ``sample_weight`` is refused.

        Returns
        -------
        self
            With ``classes_``, ``coef_``, ``intercept_`` and ``privacy_``.
        """
        super().fit(X, y, groups=groups, **refused)
        if self.classes is None:
            told = self.privacy_.parameters | {"classes": "those found in y, treated as public"}
            self.privacy_ = replace(self.privacy_, parameters=told)
        if len(self.classes_) == 2:
            self.coef_, self.intercept_ = self.coef_[None], np.array([self.intercept_])
            self.coef_noise_ = None if self.coef_noise_ is None else self.coef_noise_[None]
            self._set_uncertainty(None if self.stderr_ is None else self._known())
        return self

    def _loss_and_target(self, y: NDArray[Any]) -> tuple[Loss, Array]:
        loss, values = self._loss_and_values(lambda: y)
        return loss, encode(y, self.classes_.tolist(), values)

    def _loss_and_engine(self, X: Data, y: Any) -> tuple[Loss, Engine]:
        rows = engine_for(X, y, self.threads, target="label")
        loss, values = self._loss_and_values(rows.labels)
        return loss, rows.encoded(self.classes_.tolist(), values)

    def _loss_and_values(self, labels: Callable[[], NDArray[Any]]) -> tuple[Loss, Array]:
        """The classes, the loss for so many, and what stands for each of them."""
        if self.classes is None:
            found = labels()
            with np.errstate(invalid="ignore"):  # an infinite label is refused below, without a warning before
                check_classification_targets(found)
            self.classes_ = np.unique(found)
        else:
            self.classes_ = np.unique(np.asarray(self.classes))
        if len(self.classes_) < 2:
            raise ValueError(
                f"classes holds {len(self.classes_)} class: give at least two labels "
                "(a classifier cannot be fitted to one class)."
            )
        if len(self.classes_) > 2:
            return Multinomial(len(self.classes_)), np.arange(len(self.classes_), dtype=np.float64)
        return Logistic(), np.array([-1.0, 1.0])

    def decision_function(self, X: Data) -> Array:
        """Linear predictor of every row.

        Parameters
        ----------
        X : array_like of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows.

        Returns
        -------
        ndarray of shape (n,) or (n, K)
            Log-odds of the second class, or one predictor per class.
        """
        return cast(Array, self._predictor(X, self._log_odds))

    def _log_odds(self, z: Array) -> Array:
        return z[:, 0] if len(self.classes_) == 2 else z

    def _probabilities(self, z: Array) -> Array:
        z = self._log_odds(z)
        return np.column_stack([expit(-z), expit(z)]) if z.ndim == 1 else np.asarray(softmax(z, axis=1))

    def _labels(self, z: Array) -> NDArray[Any]:
        z = self._log_odds(z)
        return np.asarray(self.classes_[(z > 0).astype(int) if z.ndim == 1 else np.argmax(z, axis=1)])

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
        return cast(Array, self._predictor(X, self._probabilities))

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
        return cast(Array, self._predictor(X, lambda z: np.log(np.maximum(self._probabilities(z), 1e-300))))

    def predict(self, X: Data) -> NDArray[Any]:
        """Most probable class of every row.

        Parameters
        ----------
        X : array_like of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Labels.
        """
        return cast(NDArray[Any], self._predictor(X, self._labels))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # with the few rows of a check, noise is all there is
        return tags


def checked_rows(estimator: BaseEstimator, X: ArrayLike, reset: bool) -> NDArray[Any]:
    """Check the shape and type of X, not its values; sparse matrices become dense."""
    complaint = ""
    try:
        # A number that is too large for float64 becomes infinite; a warning would be a word about the data.
        with np.errstate(all="ignore"):
            checked: Any = validate_data(
                estimator,
                _numbers_in(X),
                reset=reset,
                accept_sparse=True,
                dtype=[np.float64, np.float32],
                ensure_all_finite=False,
                ensure_min_samples=2 if reset else 1,
            )
    except (ValueError, OverflowError, TypeError) as error:
        complaint = str(error)
        kind = type(error)
    if complaint:
        raise _without_data(kind, complaint)  # here, so that the original is not kept as its context
    return checked.toarray() if hasattr(checked, "toarray") else checked


def remember(estimator: Any, rows: Engine) -> None:
    """What scikit-learn notes about the columns of an array, for rows that are not one."""
    if rows.n < 2:
        raise ValueError(f"X has {rows.n} row: a minimum of 2 is required.")
    estimator.n_features_in_ = rows.columns
    if rows.names is not None:
        estimator.feature_names_in_ = np.array(rows.names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def _numbers_in(X: Any) -> Any:
    """X with its object columns as floats where they hold nothing but numbers: the size of a number must not raise."""
    if hasattr(X, "isetitem"):  # a frame of pandas
        objects = [j for j, dtype in enumerate(X.dtypes) if dtype == np.dtype(object)]
        if objects:
            X = X.copy()
        for j in objects:
            X.isetitem(j, plain_numbers(X.iloc[:, j].to_numpy()))
        return X
    if isinstance(X, (list, tuple)):
        try:
            X = np.asarray(X)
        except ValueError:  # ragged: scikit-learn says so
            return X
    return plain_numbers(X) if isinstance(X, np.ndarray) and X.dtype == object else X


def _without_data(kind: type[Exception], complaint: str) -> Exception:
    """What scikit-learn says about shapes and names; nothing of what it says about values."""
    if "Reshape your data" in complaint:
        return ValueError(
            "Expected 2D array, got another dimension. Reshape your data: X.reshape(-1, 1) for one column."
        )
    if "Complex data" in complaint:
        return ValueError("Complex data not supported: give real numbers.")
    # By their beginnings: anything else may quote a value, and a value may hold any words.
    if complaint.startswith(_ABOUT_SHAPES):
        return (TypeError if issubclass(kind, TypeError) else ValueError)(complaint)
    if kind is TypeError:
        return TypeError("X holds values that are not numbers: a float() argument must be a string or a real number.")
    return ValueError("X holds values that are not numbers: encode such columns first.")


def _given(**values: Any) -> dict[str, Any]:
    """Keep the arguments that the user gave."""
    return {name: value for name, value in values.items() if value is not None}


def _needed(name: str, value: Any, method: str) -> Any:
    if value is None:
        example = {"clip": "10.0", "bounds": "(-10.0, 10.0)", "constraint": "tailguard.constraints.L2Ball(10.0)"}[name]
        raise ValueError(
            f"{name}=None is not accepted by method={method!r}: give for example {name}={example}, "
            "chosen without looking at the data."
        )
    return value
