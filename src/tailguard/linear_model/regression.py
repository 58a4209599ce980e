"""Estimators of numbers."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from tailguard._checks import complex_refused, kind_of, plain_numbers
from tailguard.constraints import Constraint
from tailguard.engines import Data, Engine, engine_for
from tailguard.hints import Hints
from tailguard.linear_model.base import Array, PrivateLinearModel
from tailguard.linear_model.methods import METHODS, refuse
from tailguard.losses import Huber, Loss, Poisson, Squared
from tailguard.privacy import Budget

_THRESHOLD = 1.345  # 95 % of the efficiency of least squares under normal noise of variance one


class _PrivateRegressor(RegressorMixin, PrivateLinearModel):
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
            Predictions; for rows of Dask, a Dask array on the workers. Lines of ``method="auto"``, without intervals,
            stay within twice the released range of the target.
        """
        return cast(Array, self._predictor(X, self._response))

    @staticmethod
    def _response(z: Array) -> Array:
        """Predicted targets, by the linear predictor."""
        return z

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # with the few rows of a check, noise is all there is
        return tags

    def _loss_and_target(self, y: NDArray[Any]) -> tuple[Loss, Array]:
        if y.dtype.kind == "O":
            y = plain_numbers(y)
        try:
            if y.dtype.kind in "fiubO":
                with np.errstate(all="ignore"), complex_refused():
                    return self._loss(), np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):  # whose message would repeat a value of the data
            pass
        raise ValueError(f"y has dtype {kind_of(y.dtype)} and holds values that are not numbers: give real numbers.")

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
    epsilon : float or Budget, default=1.0
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
        Public parameters of the other methods; see `tailguard.algorithms`. A method refuses those that it does not use.
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
        threshold at a central quantile of the residuals and takes none.

    Attributes
    ----------
    coef_, intercept_, coef_noise_, stderr_, intercept_stderr_, freedom_, privacy_, lower_, upper_, n_features_in_
        As in `PrivateRidge`.
    """

    def __init__(
        self,
        epsilon: float | Budget = 1.0,
        delta: float | None = None,
        *,
        threshold: float = _THRESHOLD,
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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.method == "auto" and Huber(self.threshold).threshold != _THRESHOLD:
            refuse("threshold", self.threshold, self.method, METHODS[1:])

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

        Nor is it beyond the released end of the target.

        Parameters
        ----------
        X : array_like of shape (n, d), `tailguard.Source`, path, or table of Arrow
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Positive numbers.
        """
        return cast(Array, self._predictor(X, self._response))

    @staticmethod
    def _response(z: Array) -> Array:
        with np.errstate(under="ignore"):
            return np.asarray(np.exp(np.minimum(z, 700.0)))
