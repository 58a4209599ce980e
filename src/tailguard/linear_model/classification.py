"""Estimators of labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from tailguard.constraints import Constraint
from tailguard.engines import Data, Engine, engine_for
from tailguard.engines.labels import as_labels, distinct, encode
from tailguard.hints import Hints
from tailguard.linear_model.base import Array, PrivateLinearModel
from tailguard.losses import Logistic, Loss, Multinomial
from tailguard.privacy import Budget


class PrivateLogisticRegression(ClassifierMixin, PrivateLinearModel):
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
        epsilon: float | Budget = 1.0,
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
            Labels, or the name of their column in a frame, source, table or file.
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
            found = distinct(labels())
            with np.errstate(invalid="ignore"):  # an infinite label is refused below, without a warning before
                check_classification_targets(found)
            self.classes_ = found
        else:
            if np.ndim(self.classes) == 0:
                raise TypeError(
                    f"classes must be a sequence of labels, for example classes=['no', 'yes']; got {self.classes!r}"
                )
            self.classes_ = distinct(as_labels(self.classes), "classes")
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
