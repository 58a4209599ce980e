r"""Convex losses, as functions of the linear predictor.

A loss of a generalised linear model sees one row ``x`` only through ``z = <w, x>`` (and an intercept), so it is two
functions, ``value(z, y)`` and its derivative ``dz(z, y)``; the gradient of the row is ``dz(z, y) x`` and no n x d
array is ever formed:

=============  ==================================================  =============================
loss           value                                               dz
=============  ==================================================  =============================
`Squared`      (z - y)^2 / 2                                       z - y
`Logistic`     log(1 + exp(-s z)), s = +1 if y > 0 else -1         -s / (1 + exp(s z))
`Huber`        r^2/2 if abs(r) <= k else k abs(r) - k^2/2          max(-k, min(k, r)), r = z - y
`Poisson`      exp(z) - y z                                        exp(z) - y
`Multinomial`  logsumexp(z) - z_y, z in R^K                        softmax(z) - onehot(y)
`Custom`       the user's, of (z, y)                               the user's
`PerRow`       -                                                   per-row gradients of (w, X, y)
=============  ==================================================  =============================

Labels never raise: `Logistic` takes the sign of a label (so 0/1 works like -1/+1), `Multinomial` rounds it and
clamps it into 0..K-1; a NaN label makes the row contribute nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from tailguard._checks import count, positive
from tailguard.kernels import codes

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Loss:
    """What every loss has: how many predictors it sees, and the code and parameter of its kernel."""

    kernel_code: ClassVar[int] = codes.GIVEN
    kernel_parameter: ClassVar[float] = 0.0
    outputs: ClassVar[int] = 1

    def value(self, z: Array, y: Array) -> Array:
        """Loss of every row, shape (n,)."""
        raise NotImplementedError

    def dz(self, z: Array, y: Array) -> Array:
        """Derivative in the predictor, of the shape of ``z``."""
        raise NotImplementedError


@dataclass(frozen=True)
class Squared(Loss):
    """Half the squared residual, ``(z - y)^2 / 2``."""

    kernel_code = codes.SQUARED

    def value(self, z: Array, y: Array) -> Array:
        """Loss of every row, shape (n,)."""
        return (z - y) ** 2 / 2.0

    def dz(self, z: Array, y: Array) -> Array:
        """Derivative in the predictor."""
        return z - y


@dataclass(frozen=True)
class Logistic(Loss):
    """Logistic loss; a label counts as +1 if it is positive and as -1 otherwise."""

    kernel_code = codes.LOGISTIC

    @staticmethod
    def _sign(y: Array) -> Array:
        return np.where(np.isnan(y), np.nan, np.where(y > 0, 1.0, -1.0))

    def value(self, z: Array, y: Array) -> Array:
        """Loss of every row, shape (n,)."""
        return np.logaddexp(0.0, -self._sign(y) * z)

    def dz(self, z: Array, y: Array) -> Array:
        """Derivative in the predictor."""
        s = self._sign(y)
        return -s * expit(-s * z)


@dataclass(frozen=True)
class Huber(Loss):
    """Huber's loss: squared up to ``threshold``, linear beyond.

    Parameters
    ----------
    threshold : float, default=1.345
        Residual, in the units of y, from which the loss is linear. 1.345 noise standard deviations lose 5 % of
        efficiency under normal noise.
    """

    threshold: float = 1.345
    kernel_code = codes.HUBER

    def __post_init__(self) -> None:
        positive("threshold", self.threshold)

    @property
    def kernel_parameter(self) -> float:  # type: ignore[override]
        """The threshold."""
        return float(self.threshold)

    def value(self, z: Array, y: Array) -> Array:
        """Loss of every row, shape (n,)."""
        r, k = np.abs(z - y), self.threshold
        return np.where(r <= k, r * r / 2.0, k * r - k * k / 2.0)

    def dz(self, z: Array, y: Array) -> Array:
        """Derivative in the predictor."""
        return np.clip(z - y, -self.threshold, self.threshold)


@dataclass(frozen=True)
class Poisson(Loss):
    """Poisson deviance with the log link, up to terms without w: ``exp(z) - y z``."""

    kernel_code = codes.POISSON

    def value(self, z: Array, y: Array) -> Array:
        """Loss of every row, shape (n,)."""
        return np.exp(z) - y * z

    def dz(self, z: Array, y: Array) -> Array:
        """Derivative in the predictor."""
        return np.exp(z) - y


@dataclass(frozen=True)
class Multinomial(Loss):
    """Multinomial logistic loss over classes 0..K-1.

    Parameters
    ----------
    classes : int
        Number of classes K, at least 2; public.
    """

    classes: int

    def __post_init__(self) -> None:
        count("classes", self.classes, least=2)

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """One predictor per class."""
        return self.classes

    def _onehot(self, y: Array) -> Array:
        label = np.clip(np.rint(np.nan_to_num(y)), 0, self.classes - 1).astype(np.intp)
        hot = np.zeros((len(y), self.classes))
        hot[np.arange(len(y)), label] = 1.0
        hot[np.isnan(y)] = np.nan
        return hot

    def value(self, z: Array, y: Array) -> Array:
        """Loss of every row; z is (n, K)."""
        return logsumexp(z, axis=1) - np.sum(np.where(self._onehot(y) > 0, z, 0.0), axis=1)

    def dz(self, z: Array, y: Array) -> Array:
        """Derivative in the predictors, (n, K)."""
        return softmax(np.clip(z, -1e300, 1e300), axis=1) - self._onehot(y)


@dataclass(frozen=True)
class Custom(Loss):
    """Any convex loss of a linear predictor, from two functions.

    Parameters
    ----------
    value : callable
        ``value(z, y) -> (n,)``, the loss of every row. NumPy or numba, on arrays. Private fits never call it.
    dz : callable
        ``dz(z, y) -> (n,)``, its derivative in z. Called on blocks of rows: row i of the result may depend on row i
        of the arguments only (this is part of the privacy guarantee and cannot be checked for you). It must not print,
        log or raise on data values.

    Examples
    --------
    >>> import numpy as np
    >>> import tailguard as tg
    >>> log_cosh = tg.losses.Custom(value=lambda z, y: np.log(np.cosh(z - y)), dz=lambda z, y: np.tanh(z - y))
    """

    value: Callable[[Array, Array], Array] = field(repr=False)  # type: ignore[assignment]
    dz: Callable[[Array, Array], Array] = field(repr=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        for name in ("value", "dz"):
            _check_callable(name, getattr(self, name), "(z, y)")


@dataclass(frozen=True)
class PerRow(Loss):
    """Any convex loss at all, from a function that returns the gradient of every row.

    Parameters
    ----------
    gradient : callable
        ``gradient(w, X, y) -> (n, len(w))``. Called on blocks of rows, with the same rule as in `Custom`: row i of the
        result depends on row i of X and y only.
    """

    gradient: Callable[[Array, Array, Array], Array] = field(repr=False)

    def __post_init__(self) -> None:
        _check_callable("gradient", self.gradient, "(w, X, y)")


def _check_callable(name: str, value: Any, arguments: str) -> None:
    if not callable(value):
        raise TypeError(f"{name}={value!r} is not accepted: give a function of {arguments}.")
