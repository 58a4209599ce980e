"""Scaling with differential privacy, in front of any other model.

The estimators of `tailguard.linear_model` need no scaling. Others do: a network, a method of `tailguard.minimize` that
works in the units of the data, a model of another library that is fitted privately. `PrivateScaler` learns centre,
scale and truncation of every column within a budget of its own; what comes out is bounded, whatever went in.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tailguard._checks import instance_of
from tailguard.default import fit_columns
from tailguard.engines import Data, elsewhere, engine_for
from tailguard.engines.grouped import split
from tailguard.hints import Hints
from tailguard.linear_model.rows import checked_rows, persons, remember
from tailguard.privacy import Budget, PrivacyReport

_LARGEST = 1e150  # scaled value

Array = NDArray[np.float64]


class PrivateScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Truncate, centre and scale columns, with what is learnt about them differentially private.

    ``(clip(x, lower_, upper_) - mean_) / scale_``, where the mean and the standard deviation are those of the truncated
    column. A fit spends epsilon; a model that is fitted to the result spends its own, and both reports add up.

    Parameters
    ----------
    epsilon : float or Budget, default=1.0
        The promise: smaller is more private.
    delta : float, optional
        Default ``min(1e-6, n**-1.5)``.
    hints : Hints, optional
        Public knowledge about the columns; for accuracy only.
    allow_large_delta : bool, default=False
        Accept ``delta >= 1/n``.
    random_state : None, int or numpy generator, default=None
        None draws noise from the operating system. A seed is for experiments; the report then says "not private".
    threads : int, optional
        Threads of the kernels; the result does not depend on it.

    Attributes
    ----------
    mean_, scale_ : ndarray of shape (d,)
        Centre and scale, released.
    lower_, upper_ : ndarray of shape (d,)
        Truncation, released.
    privacy_ : PrivacyReport
        What this fit spent.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (d,)
        If the columns have names.

    Examples
    --------
    >>> import numpy as np
    >>> import tailguard as tg
    >>> X = np.random.default_rng(0).lognormal(8.0, 1.0, (5000, 3))
    >>> scaler = tg.PrivateScaler(epsilon=0.5).fit(X)
    >>> scaler.privacy_.epsilon <= 0.5
    True
    """

    mean_: Array
    scale_: Array
    lower_: Array
    upper_: Array
    privacy_: PrivacyReport

    def __init__(
        self,
        epsilon: float | Budget = 1.0,
        delta: float | None = None,
        *,
        hints: Hints | None = None,
        allow_large_delta: bool = False,
        random_state: Any = None,
        threads: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.hints = hints
        self.allow_large_delta = allow_large_delta
        self.random_state = random_state
        self.threads = threads

    def fit(self, X: Data, y: Any = None, *, groups: Any = None) -> Self:
        """Learn centre, scale and truncation; everything that leaves is differentially private.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows; any values, missing and infinite ones included.
        y : None
            Not used.
        groups : array_like of shape (n,) or str, optional
            Whose row it is, or the name of that column of X: the guarantee is then for a person with all their rows,
            who count once. Their rows must fit into memory.

        Returns
        -------
        self
            With ``mean_``, ``scale_``, ``lower_``, ``upper_`` and ``privacy_``.
        """
        if self.hints is not None:
            instance_of("hints", self.hints, Hints, "tailguard.Hints(ranges={'age': (0, 120)})")
            if self.hints.target_range is not None:
                raise ValueError("target_range is not accepted by PrivateScaler, which has no target: leave it out.")
        if groups is not None:
            X, groups = split(X, groups)
        rows: Any = engine_for(X, None, self.threads, target="none") if elsewhere(X) else checked_rows(self, X, True)
        if elsewhere(X):
            remember(self, rows)
        if groups is not None:
            rows = persons(engine_for(rows, None, self.threads, target="none"), groups, self.random_state)
        columns, self.privacy_ = fit_columns(
            rows,
            self.epsilon,
            self.delta,
            hints=self.hints,
            names=getattr(self, "feature_names_in_", None),
            allow_large_delta=self.allow_large_delta,
            random_state=self.random_state,
            threads=self.threads,
        )
        self.mean_, self.scale_ = columns.mean, columns.scale
        self.lower_, self.upper_ = columns.lower, columns.upper
        return self

    def transform(self, X: Data) -> Any:
        """Truncate, centre and scale rows.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows; a missing value stays missing.

        Returns
        -------
        ndarray of shape (n, d)
            Or a frame, if `set_output` asks for one.
        """
        check_is_fitted(self)
        if not elsewhere(X):
            return self._scaled(checked_rows(self, X, False))
        rows = engine_for(X, None, self.threads, target="none", names=getattr(self, "feature_names_in_", None))
        if rows.columns != self.n_features_in_:
            raise ValueError(f"X has {rows.columns} features, but PrivateScaler expects {self.n_features_in_}.")
        return rows.map_rows(self._scaled)

    def _scaled(self, rows: NDArray[Any]) -> Array:
        with np.errstate(all="ignore"):
            inside = np.clip(np.asarray(rows, np.float64), self.lower_, self.upper_)
            # A hint may be wrong by any factor; what is missing stays so.
            return np.clip((inside - self.mean_) / self.scale_, -_LARGEST, _LARGEST)

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Return scaled rows to the units of the data; what was truncated stays so.

        Parameters
        ----------
        X : array_like of shape (n, d)
            Scaled rows.

        Returns
        -------
        ndarray of shape (n, d)
            ``X * scale_ + mean_``.
        """
        check_is_fitted(self)
        with np.errstate(all="ignore"):
            return np.asarray(checked_rows(self, X, False) * self.scale_ + self.mean_)

    def _repr_html_(self) -> str:
        report = getattr(self, "privacy_", None)
        return str(self._html_repr()) + ("" if report is None else report._repr_html_())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags
