r"""The paper's synthetic data: two linear models with heavy-tailed, skewed, centred noise.

==============  ========================================================  =========================================
function        model                                                     noise ``e = D - E[D]``
==============  ========================================================  =========================================
`make_linear`   ``y = <w, x> + e``                                        D log-normal(mu, sigma)
`make_binary`   ``y = sign(1 / (1 + exp(<w, x> + e)) - 1/2)``             D log-logistic(mu, sigma)
==============  ========================================================  =========================================

``x`` has d independent coordinates of one distribution, taken as it is, neither centred nor scaled:

=============  ===================================  =================
features       coordinates of x                     E[x_j], E[x_j^2]
=============  ===================================  =================
"normal"       standard normal, as in the paper     0, 1
"t3"           Student's t, 3 degrees of freedom    0, 3
"lognormal"    log-normal(0, 1)                     e^(1/2), e^2
=============  ===================================  =================

These are experiments, so everything here may be seeded; seeds of data have nothing to do with the noise that hides it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailguard._checks import count, one_of, within

Array = NDArray[np.float64]
Features = Literal["normal", "t3", "lognormal"]

# First and second moments of one coordinate of x.
_MOMENTS: dict[str, tuple[float, float]] = {
    "normal": (0.0, 1.0),
    "t3": (0.0, 3.0),
    "lognormal": (math.exp(0.5), math.exp(2.0)),
}


@dataclass(frozen=True)
class Dataset:
    """Rows, targets and the truth behind them.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        Rows.
    y : ndarray of shape (n,)
        Targets, or labels -1 and +1.
    w : ndarray of shape (d,)
        The true coefficients w*.
    second_moment : ndarray of shape (d, d)
        E[x x'] of the distribution that the rows were drawn from.
    """

    X: Array
    y: Array
    w: Array
    second_moment: Array

    def excess_risk(self, w: ArrayLike) -> float:
        r"""Population excess risk of coefficients in the linear model, :math:`\frac12 (w - w^*)' E[x x'] (w - w^*)`.

        Parameters
        ----------
        w : array_like of shape (d,)
            Estimated coefficients of a model without an intercept.

        Returns
        -------
        float
            Half the expected squared error of prediction in excess of that of w*, in squared units of y.
        """
        error = np.asarray(w, dtype=np.float64) - self.w
        return float(error @ self.second_moment @ error) / 2.0


def make_linear(
    n: int = 100_000,
    d: int = 10,
    *,
    seed: int | np.random.Generator | None = None,
    mu: float = 1.0,
    sigma: float = 1.0,
    features: Features = "normal",
    w: ArrayLike | None = None,
) -> Dataset:
    r"""Linear model with centred log-normal noise: ``y = <w, x> + D - exp(mu + sigma^2 / 2)``.

    Parameters
    ----------
    n, d : int
        Rows and columns; the defaults are the paper's.
    seed : int or numpy Generator, optional
        Default fresh entropy.
    mu, sigma : float, default=1
        Mean and standard deviation of log D. At the default the noise has mean 0, standard deviation 5.9 and
        skewness 6.2.
    features : {"normal", "t3", "lognormal"}, default="normal"
        Distribution of the coordinates of x.
    w : array_like of shape (d,), optional
        True coefficients; default a random direction, of length 1.

    Returns
    -------
    Dataset
        With real ``y``.

    Examples
    --------
    >>> from tailguard.datasets import make_linear
    >>> data = make_linear(1000, 3, seed=0)
    >>> data.X.shape, data.y.shape, data.w.shape
    ((1000, 3), (1000,), (3,))
    >>> data.excess_risk(data.w)
    0.0
    """
    mu = within("mu", mu, -100.0, 100.0)
    sigma = within("sigma", sigma, 0.0, 10.0, open_low=True)
    rng, X, w = _rows(n, d, seed, features, w)
    noise = rng.lognormal(mu, sigma, len(X)) - math.exp(mu + sigma**2 / 2.0)
    return Dataset(X, X @ w + noise, w, _second_moment(features, len(w)))


def make_binary(
    n: int = 100_000,
    d: int = 10,
    *,
    seed: int | np.random.Generator | None = None,
    mu: float = 0.2,
    sigma: float = 0.2,
    features: Features = "normal",
    w: ArrayLike | None = None,
) -> Dataset:
    r"""Binary model with centred log-logistic noise: ``y = sign(1/(1 + exp(<w, x> + D - E[D])) - 1/2)``.

    The mean of D is ``exp(mu) pi sigma / sin(pi sigma)``. As printed, y is +1 where ``<w, x> + e`` is *negative*, so
    a fitted logistic model points along ``-w``.

    Parameters
    ----------
    n, d, seed, features, w
        As in `make_linear`.
    mu : float, default=0.2
        Median of log D.
    sigma : float, default=0.2
        Scale of log D, below 1: from there on D has no mean.

    Returns
    -------
    Dataset
        With ``y`` in {-1, +1}.
    """
    mu = within("mu", mu, -100.0, 100.0)
    sigma = within("sigma", sigma, 0.0, 1.0, open_low=True, open_high=True, hint="From 1 on the noise has no mean.")
    rng, X, w = _rows(n, d, seed, features, w)
    mean = math.exp(mu) * math.pi * sigma / math.sin(math.pi * sigma)
    with np.errstate(over="ignore"):  # a draw beyond 1e308 is inf, and its label is still right
        noise = np.exp(rng.logistic(mu, sigma, len(X))) - mean
    # 1/(1 + e^z) > 1/2 exactly where z < 0; comparing z does not lose the sign of small z.
    y = np.where(X @ w + noise < 0.0, 1.0, -1.0)
    return Dataset(X, y, w, _second_moment(features, len(w)))


def _rows(
    n: int, d: int, seed: int | np.random.Generator | None, features: str, w: ArrayLike | None
) -> tuple[np.random.Generator, Array, Array]:
    """Check what both models share and draw the coefficients, then the rows."""
    n, d = count("n", n), count("d", d)
    one_of("features", features, _MOMENTS)
    rng = np.random.default_rng(seed)
    coefficients = _direction(rng, d) if w is None else _given(w, d)
    if features == "normal":
        X = rng.standard_normal((n, d))
    elif features == "t3":
        X = rng.standard_t(3.0, (n, d))
    else:
        X = rng.lognormal(0.0, 1.0, (n, d))
    return rng, X, coefficients


def _direction(rng: np.random.Generator, d: int) -> Array:
    """Return a uniformly random unit vector."""
    w = rng.standard_normal(d)
    return np.asarray(w / np.linalg.norm(w))


def _given(w: Any, d: int) -> Array:
    try:
        coefficients = np.array(w, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"w must be {d} numbers; got {w!r}") from None
    if coefficients.shape != (d,) or not np.all(np.isfinite(coefficients)):
        raise ValueError(f"w must be {d} finite numbers, or d another number; got shape {coefficients.shape}")
    return coefficients


def _second_moment(features: str, d: int) -> Array:
    mean, square = _MOMENTS[features]
    moment = np.full((d, d), mean * mean)
    np.fill_diagonal(moment, square)
    return moment
