"""The released model of a search, and how it is used."""

from __future__ import annotations

from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tailguard.engines import Data

Array = NDArray[np.float64]


def _has(name: str) -> Any:
    """Whether the estimator has a method, fitted or not."""

    def check(search: Any) -> bool:
        return hasattr(getattr(search, "best_estimator_", search.estimator), name)

    return available_if(check)


class ChosenModel(MetaEstimatorMixin, BaseEstimator):
    """What a search does once it is fitted: what its best estimator does."""

    estimator: Any
    best_estimator_: Any
    random_state: Any

    @property
    def cv_results_(self) -> NoReturn:
        """Not there: the scores of the candidates that were not chosen were not paid for."""
        raise AttributeError(
            "cv_results_ does not exist: only the best run was paid for, and what the others scored would need a "
            "budget of its own for every one of them. See best_params_ and best_score_."
        )

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
