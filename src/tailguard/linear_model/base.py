"""What the estimators share: parameters, validation, dispatch and truncated prediction."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tailguard._checks import instance_of, one_of, yes_or_no
from tailguard.algorithms import METHOD_OF
from tailguard.constraints import Constraint
from tailguard.default import DefaultOptions, LinearModel, fit_default
from tailguard.engines import Data, Engine, elsewhere, engine_for
from tailguard.engines.grouped import in_words, split
from tailguard.hints import Hints
from tailguard.intervals import WithIntervals
from tailguard.linear_model.methods import METHODS, check_parameters, fit_method
from tailguard.linear_model.rows import checked_rows, checked_target, named_target, persons, remember
from tailguard.losses import Loss
from tailguard.privacy import Budget, PrivacyReport

Array = NDArray[np.float64]


class FewRowsWarning(UserWarning):
    """There are too few rows for slopes; public numbers decide that: rows, columns, budget and hints."""


class PrivateLinearModel(WithIntervals, BaseEstimator):
    """What the estimators share: parameters, validation, dispatch and truncated prediction."""

    coef_: Array
    intercept_: Any
    privacy_: PrivacyReport

    def __init_subclass__(cls, **options: Any) -> None:
        """A class with the parameters of all has them under its own name, which Python's errors then tell."""
        super().__init_subclass__(**options)
        if "__init__" not in vars(cls):
            cls.__init__ = _renamed(PrivateLinearModel.__init__, cls)  # type: ignore[method-assign]

    def __init__(
        self,
        epsilon: float | Budget = 1.0,
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
            Files are read a block at a time. Dask arrays and dataframes stay on their workers, CUDA tensors on their
            device.
        y : array_like of shape (n,) or str
            Targets or labels, or the name of their column in a frame, source, table or file.
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
        one_of("method", self.method, METHODS, METHOD_OF)
        self._check_parameters()
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
            remember(self, rows)
        else:
            if y is None:
                raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
            X, y = named_target(X, y)
            rows = checked_rows(self, X, reset=True)
            loss, target = self._loss_and_target(checked_target(y, len(rows), groups))
        if groups is not None:
            rows, target = persons(engine_for(rows, target, self.threads), groups, self.random_state), None
        model = self._fit_auto(loss, rows, target) if self.method == "auto" else fit_method(self, loss, rows, target)
        self.coef_, self.intercept_, self.privacy_ = model.coef, model.intercept, model.privacy
        self.lower_, self.upper_, self._missing = model.lower, model.upper, model.missing
        self._floor, self._ceiling = model.limits
        self.coef_noise_ = model.noise
        self._set_uncertainty(model.uncertainty)
        if str(self.privacy_.parameters.get("model", "")).startswith("level only"):
            budget = f"epsilon={self.epsilon:g}" if isinstance(self.epsilon, (int, float)) else str(self.epsilon)
            warnings.warn(
                f"{type(self).__name__} fitted a constant and no slopes: {self.privacy_.n_rows} "
                f"{self.privacy_.units} are too few for {self.n_features_in_} columns at {budget}. More rows, fewer "
                "columns, a larger epsilon or public hints would do; 'tailguard plan' says how many.",
                FewRowsWarning,
                stacklevel=2,
            )
        return self

    def _loss_and_target(self, y: NDArray[Any]) -> tuple[Loss, Array]:
        raise NotImplementedError

    def _loss_and_engine(self, X: Data, y: Any) -> tuple[Loss, Engine]:
        """The same for rows that are not an array here: the engine holds their targets."""
        raise NotImplementedError

    def _fit_auto(self, loss: Loss, X: NDArray[Any], y: Array) -> LinearModel:
        options = DefaultOptions(
            epsilon=self.epsilon,
            delta=self.delta,
            alpha=self.alpha,
            fit_intercept=self.fit_intercept,
            allow_large_delta=self.allow_large_delta,
            random_state=self.random_state,
            threads=self.threads,
            inference=self.inference,
            hints=self.hints,
            names=getattr(self, "feature_names_in_", None),
        )
        return fit_default(loss, X, y, options)

    def _check_parameters(self) -> None:
        """Refuse what the method would ignore."""
        check_parameters(self)

    def _check_hints(self) -> None:
        """Hints are for the default, and a classifier's targets have no range."""
        if self.hints is None:
            return
        instance_of("hints", self.hints, Hints, "tailguard.Hints(ranges={'age': (0, 120)})")
        if self.method != "auto":
            raise ValueError(f"hints are not accepted by method={self.method!r}: give method='auto'.")
        if self.hints.target_range is not None and hasattr(self, "predict_proba"):
            raise ValueError("target_range is not accepted by a classifier: its targets are labels. Leave it out.")

    def _predictor(self, X: Data, then: Callable[[Array], NDArray[Any]] = np.asarray) -> Any:
        """Linear predictor of the truncated features, (n,) or (n, classes), or a function of it, where the rows are."""
        check_is_fitted(self)
        if not elsewhere(X):
            return then(self._predictor_of(checked_rows(self, X, reset=False)))
        rows = engine_for(X, None, self.threads, target="none", names=getattr(self, "feature_names_in_", None))
        if rows.columns != self.n_features_in_:
            raise ValueError(f"X has {rows.columns} features, but {type(self).__name__} expects {self.n_features_in_}.")
        return rows.map_rows(lambda block: then(self._predictor_of(block)))

    def _predictor_of(self, rows: NDArray[Any]) -> Array:
        """Linear predictor of a block of rows; a missing value counts as in the fit."""
        rows = np.where(np.isnan(rows), self._missing, np.clip(rows, self.lower_, self.upper_))
        with np.errstate(over="ignore", invalid="ignore"):
            z = np.nan_to_num(_products(rows, self.coef_) + self.intercept_)
        return np.asarray(np.clip(z, self._floor, self._ceiling))

    def _repr_html_(self) -> str:
        report = getattr(self, "privacy_", None)
        return str(self._html_repr()) + ("" if report is None else report._repr_html_())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags


def _renamed(init: Any, owner: type) -> Any:
    """Return the same function as the ``__init__`` of another class."""
    own = FunctionType(init.__code__, init.__globals__, "__init__", init.__defaults__, init.__closure__)
    own.__kwdefaults__, own.__annotations__ = init.__kwdefaults__, init.__annotations__
    own.__module__, own.__qualname__ = owner.__module__, f"{owner.__name__}.__init__"
    return own


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
