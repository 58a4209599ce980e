r"""The Catoni-Giulini smoothed truncation psi_beta (equations 7-10 of the paper), stable for every float64.

phi is the influence function ``phi(x) = x - x^3/6`` for ``|x| <= sqrt 2``, ``+-2 sqrt 2 / 3`` beyond. Multiplying
the data by ``1 + eta``, ``eta ~ N(0, 1/beta)``, and averaging the noise out gives one odd, increasing function of
one variable,

.. math::
    \psi_\beta(a) = E\,\phi(a(1+\eta))
        = \int_0^{\sqrt2} (1 - x^2/2)\,[\Phi(c(1 - x/a)) - \Phi(-c(1 + x/a))]\,dx, \quad a > 0,\ c = \sqrt\beta,

whose supremum is its limit :math:`\kappa_\beta = \frac{2\sqrt2}{3}\,\mathrm{erf}\sqrt{\beta/2}`. The paper prints
``a(1 - b^2/2) - a^3/6 + C(a, b)`` with ``b = a/c``: right over the reals, but it cancels catastrophically. In float64
it leaves ``+-2 sqrt2/3`` from ``|a| ~ 3e4`` and reaches 1e19 at ``|a| = 1e12``, so a single outlier would undo the
privacy guarantee. Here instead:

* ``|a| <= 2``: ``a - a^3 (1/6 + 1/(2 beta))`` and, where it matters, the printed correction ``C`` (no cancellation
  here);
* ``|a| > 2``: a Chebyshev series in ``u = 1/|a|`` on [0, 1/2], built once per beta from the integral;
* always clamped to ``[0, kappa_beta]``, with the sign restored.

The compiled kernels use a third form, one polynomial on the whole line (`SmoothedTruncation.kernel`). It is less
accurate and clamped in the same way: any evaluation inside ``+-kappa_beta`` is private.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial
from numpy.polynomial import chebyshev as cheb
from numpy.polynomial.legendre import leggauss
from numpy.typing import ArrayLike, NDArray
from scipy.special import erf, ndtr

from tailguard._checks import within

_SQRT2 = math.sqrt(2.0)
_LIMIT = 2.0 * _SQRT2 / 3.0  # the plateau of phi
_SPLIT = 2.0
BETA_RANGE = (0.1, 1000.0)
# The kernel's polynomial serves where its error, relative to the scale, is at most this; else a table with 1e-9. The
# rounding of float32 adds up to 1e-6.
_KERNEL_ERROR = 4e-6
_CELLS = 512
_NODES = 400
NO_TABLE = np.zeros((0, 4))


@dataclass(frozen=True)
class SmoothedTruncation:
    """psi for one beta, with the constants of its evaluations; build with `smoothed_truncation`."""

    beta: float
    bound: float
    tail: NDArray[np.float64]  # Chebyshev coefficients in 1/|a|, |a| > 2
    kernel: tuple[float, ...]  # root, kappa and 13 coefficients: see kernels.rule.psi
    table: NDArray[np.float64]  # empty, or cubics on cells where the polynomial is too coarse
    cubic: float  # psi(a) = a - cubic a^3 to 2e-6 for |a| <= core
    core: float

    def __call__(self, a: ArrayLike) -> NDArray[np.float64]:
        """Evaluate psi at every entry of ``a``; NaN gives 0."""
        a = np.asarray(a, dtype=np.float64)
        size = np.abs(np.nan_to_num(a, nan=0.0, posinf=np.inf, neginf=-np.inf))
        out = np.empty_like(size)
        large = size > _SPLIT
        out[large] = cheb.chebval(2.0 * _SPLIT / size[large] - 1.0, self.tail)
        out[~large] = _small(size[~large], self.beta)
        return np.copysign(np.clip(out, 0.0, self.bound), np.where(np.isnan(a), 0.0, a))


def _small(a: NDArray[np.float64], beta: float) -> NDArray[np.float64]:
    """Psi for 0 <= a <= 2: the cubic plus the paper's T1..T5, dropped where they are below 1e-18."""
    c = math.sqrt(beta)
    out = a - a**3 * (1.0 / 6.0 + 1.0 / (2.0 * beta))
    near = c * (_SQRT2 / np.maximum(a, 1e-300) - 1.0) < 9.0
    x = a[near]
    b = x / c
    v_minus, v_plus = (_SQRT2 - x) / b, (_SQRT2 + x) / b
    f_minus, f_plus = ndtr(-v_minus), ndtr(-v_plus)
    e_minus, e_plus = (np.exp(-(v**2) / 2.0) / math.sqrt(2.0 * math.pi) for v in (v_minus, v_plus))
    out[near] += (
        _LIMIT * (f_minus - f_plus)
        - (x - x**3 / 6.0) * (f_minus + f_plus)
        + b * (1.0 - x**2 / 2.0) * (e_plus - e_minus)
        + x * b**2 / 2.0 * (f_plus + f_minus + v_plus * e_plus + v_minus * e_minus)
        + b**3 / 6.0 * ((2.0 + v_minus**2) * e_minus - (2.0 + v_plus**2) * e_plus)
    )
    return out


def _tail_series(beta: float) -> NDArray[np.float64]:
    """Chebyshev coefficients of u -> psi(1/u) on [0, 1/2] by Gauss-Legendre quadrature of the integral."""
    c, degree = math.sqrt(beta), 48
    x, weight = leggauss(64)
    x = (x + 1.0) * _SQRT2 / 2.0
    weight = weight * (1.0 - x * x / 2.0)
    weight *= _LIMIT / math.fsum(weight)  # the total mass is exactly the plateau of phi
    k = np.arange(degree + 1)
    u = (np.cos(np.pi * (k + 0.5) / (degree + 1)) + 1.0) / (2.0 * _SPLIT)
    integrand = (ndtr(c * (1.0 - np.outer(u, x))) - ndtr(-c * (1.0 + np.outer(u, x)))) * weight
    values = np.array([math.fsum(row) for row in integrand])
    angles = np.pi * ((np.outer(k, 2 * k + 1) % (4 * (degree + 1))) / (2 * (degree + 1)))
    series = np.array([2.0 / (degree + 1) * math.fsum(values * row) for row in np.cos(angles)])
    series[0] /= 2.0
    significant = np.nonzero(np.abs(series) > 1e-16)[0]
    return np.asarray(series[: significant[-1] + 1])


def _kernel_polynomial(psi: SmoothedTruncation) -> tuple[float, tuple[float, ...]]:
    """The best of a few roots for ``psi(a) = v P(v^2 - 1/2)``, v = x/sqrt(1 + x^2), x = root a; and its error."""
    check = np.concatenate([np.linspace(1e-3, 4.0, 2000), np.geomspace(4.0, 1e8, 1000)])
    truth = psi(check)
    nodes = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    v = np.sqrt((1.0 + nodes) / 2.0)
    angles = np.pi * ((np.outer(np.arange(13), 2 * np.arange(_NODES) + 1) % (4 * _NODES)) / (2 * _NODES))
    best: tuple[float, tuple[float, ...]] = (math.inf, ())
    for root in (0.75, 0.875, 1.0, 1.125, 1.25, 1.375, 1.5):
        values = psi(v / np.sqrt((1.0 - nodes) / 2.0) / root) / v
        # Sums that are rounded once: no library's order of additions shows in the coefficients.
        series = np.array([2.0 / _NODES * math.fsum(values * row) for row in np.cos(angles)])
        series[0] /= 2.0
        series = cheb.cheb2poly(series)
        # At infinity the bound is reached, and a little more, for the rounding of the kernel; it is clamped there.
        series[-1] += psi.bound * (1.0 + 7e-7) - math.fsum(series)
        coefficients = series * 2.0 ** np.arange(13)  # the series is in 2 v^2 - 1
        x = root * check
        w = x / np.sqrt(1.0 + x * x)
        rounded = Polynomial(coefficients.astype(np.float32).astype(np.float64))
        error = float(np.max(np.abs(w * rounded(w * w - 0.5) - truth)))
        best = min(best, (error, (root, psi.bound, *map(float, coefficients))))
    return best


def _kernel_table(psi: SmoothedTruncation) -> NDArray[np.float64]:
    """Cubics through psi at four Chebyshev points of every cell of u = 1/(1 + a)."""
    points = (np.cos(np.pi * (np.arange(4) + 0.5) / 4) + 1.0) / 2.0
    u = (np.arange(_CELLS)[:, None] + points) / _CELLS
    return np.ascontiguousarray(np.linalg.solve(np.vander(points, 4, increasing=True), psi(1.0 / u - 1.0).T).T)


@lru_cache(maxsize=128)
def smoothed_truncation(beta: float) -> SmoothedTruncation:
    """Return psi for one beta, with its constants computed once."""
    bare: dict[str, Any] = {
        "beta": beta,
        "bound": psi_bound(beta),
        "tail": _tail_series(beta),
        "cubic": 1.0 / 6.0 + 1.0 / (2.0 * beta),
        "core": _SQRT2 / (1.0 + 3.6 / math.sqrt(beta)),
    }
    exact = SmoothedTruncation(kernel=(), table=NO_TABLE, **bare)
    error, kernel = _kernel_polynomial(exact)
    table = NO_TABLE if error <= _KERNEL_ERROR else _kernel_table(exact)
    return SmoothedTruncation(kernel=kernel, table=table, **bare)


def psi_bound(beta: float) -> float:
    r"""Return the supremum of psi_beta, :math:`\kappa_\beta = \frac{2\sqrt2}{3}\,\mathrm{erf}\sqrt{\beta/2}`.

    Parameters
    ----------
    beta : float
        Precision of the smoothing noise.

    Returns
    -------
    float
        0.9681 of 2 sqrt(2)/3 at beta = log 100.
    """
    beta = within("beta", beta, *BETA_RANGE)
    return float(_LIMIT * erf(math.sqrt(beta / 2.0)))


def psi(a: ArrayLike, beta: float) -> NDArray[np.float64] | float:
    r"""Evaluate the smoothed truncation :math:`\psi_\beta(a) = E\,\phi(a(1+\eta))`, :math:`\eta \sim N(0, 1/\beta)`.

    Parameters
    ----------
    a : array_like
        Any float64 values.
    beta : float
        Precision of the smoothing noise, in [0.1, 1000].

    Returns
    -------
    ndarray or float
        Of the shape of ``a``, always inside ``+-psi_bound(beta)``.

    Notes
    -----
    ======  ====================
    a       psi_beta(a)
    ======  ====================
    0       0, of the same sign
    +-inf   +-psi_bound(beta)
    NaN     0
    ======  ====================

    The error is at most 1e-14 for beta in [0.5, 100].
    """
    beta = within("beta", beta, *BETA_RANGE)
    values = smoothed_truncation(beta)(a)
    return values if values.ndim else float(values)
