r"""Arsinh-normal noise for a smooth sensitivity, with certified parameters.

The noise is ``Z = sinh(sigma Y) / sigma`` with standard normal Y: normal in the middle, log-normal in the
tails, so that it hides a shift *and* a change of scale. The release of a value f with a t-smooth bound S is
``f + (S/s) Z``.

Formal guarantee
----------------
Let ``|f(D) - f(D')| <= S(D)`` and ``S(D) <= e^t S(D')`` for all neighbours. Then ``f + (S/s) Z`` is
``K^2/2``-zCDP with ``K = lipschitz_constant(s, t, sigma)``.

Proof. Centred and scaled by f(D) and S(D)/s, the outputs on D and D' are Z and ``e^{t'} Z + s'`` for some
``|t'| <= t`` and ``|s'| <= s``. With ``u = sigma y`` and ``u1 = asinh(e^{-t'} (sinh u - sigma s'))`` the
logarithm L of the density of the first over that of the second, at ``z = sinh(u)/sigma``, is ``L =
A(u1)/sigma - A(u)/sigma + t'`` for ``A(u) = u^2/(2 sigma) + sigma log cosh u``, and

.. math:: L'(y) = F(u) = a(u_1) D - a(u), \quad a = A' = u/\sigma + \sigma \tanh u, \quad
          D = du_1/du = e^{-t'} \cosh u / \cosh u_1 .

If ``|F| <= K`` everywhere, L(Y) is a K-Lipschitz function of a normal, so
``log E e^{lambda (L - E L)} <= lambda^2 K^2 / 2``. At lambda = -1, where ``E e^{-L} = 1``, this is
``E L <= K^2/2``; at lambda = alpha - 1 it is ``D_alpha <= E L + (alpha - 1) K^2/2 <= alpha K^2/2``.

Corners suffice
---------------
K is the largest ``|F|`` over all u, ``|t'| <= t`` and ``|s'| <= s``. **It is attained at t' = +-t, s' =
+-s.** Put ``w = sinh u`` and ``g(w) = a(u)/cosh u``, odd, so that ``F = sqrt(1+w^2) (e^{-t'} g(e^{-t'}(w -
sigma s')) - g(w))``.

* *In t'.* With ``v = w - sigma s'`` and ``x = e^{-t'} v`` the first term is ``x g(x) / v`` and
  ``x g(x) = a(u) tanh(u)`` grows with \|x\|: F is monotone in t' at every (w, s').
* *In s'.* ``g'`` has the sign of ``a' - a tanh u``, a decreasing minus an increasing function: on w > 0, g
  rises to one maximum ``g(w*) = g*`` and falls. So at t' = +-t the maximum of F over s' is at s' = +-s or
  where x = w*, its minimum at s' = +-s or where x = -w*. By ``F(-w, -s') = -F(w, s')`` take w >= 0. If x =
  -w*, then ``-F = cosh(u) e^{-t'} g* + a(u)`` increases in u, from ``e^{-t'} g*`` at w = 0, so it is
  largest at the largest w that allows it, which has s' = s. If x = w*, then ``F = cosh(u) e^{-t'} g* -
  a(u)`` is convex in u >= 0, as ``a'' <= 0`` there: on the interval of w that allows it, F is largest at an
  end. An end has s' = +-s, or it is w = 0 with ``F = e^{-t'} g*``, the first case's least value (w = 0
  allows x = -w* too).

So K is monotone in s and in t, and four curves over u >= 0 have to be bounded.

Between grid points and in the tails
------------------------------------
On a cell ``[p, p + h]``, ``|F| <= max(|F(p)|, |F(p+h)|) + h^2/8 sup|F''|``. With ``E = tanh u - D tanh u1``,
``D' = D E`` and ``E' = sech^2 u - D^2 sech^2 u1 - D E tanh u1``,

.. math:: F'' = [a''(u_1) D^3 - a''(u)] + 3 a'(u_1) D^2 E + a(u_1) D (E^2 + E').

Every term is bounded on the cell by quantities that vanish with s and t: ``D^2 - 1 = (1 - e^{2t'} + 2 w
sigma s' - sigma^2 s'^2) / (e^{2t'} + (w - sigma s')^2)``, a linear function over a parabola; ``u1 - u``,
whose derivative is D - 1; and ``sech^2`` on the hull of the cell and of its image under the increasing map
u -> u1. Cells whose bound is not within a relative 2^-12 of the largest value seen are halved.

For ``w = sinh u > sigma s`` put ``eta = sigma s/(w - sigma s)``. Then ``|u1 - u| <= t + eta``, and
``|D - 1| <= (e^{2t} - 1 + 2 w sigma s + sigma^2 s^2) / (w - sigma s)^2``, so

.. math:: |F| \le (t + \eta)/\sigma + 4 \sigma (t + \eta) e^{-2(u - t - \eta)}
          + ((u + t + \eta)/\sigma + \sigma) |D - 1|,

which decreases in u >= 2: the bound at the last grid point holds for the whole tail, and its limit is the
exact one, ``|F| -> t/sigma`` as u -> +-inf. The rounding of F, below ``64 * 2^-53 (1 + D)^2 (|a(u)| +
|a(u1)| + a'(0))``, is added.

Numbers on a computer
---------------------
The guarantee is about real numbers, and a float normal would break it: where S is 2^40 times the smallest noise that
can occur, the values that 53 bits can take are far apart on the released grid, and their pattern tells S. So
:func:`release` works in decimal arithmetic of 100 digits on a Y of 209 bits: :func:`exact_normals` adds a uniform
fraction of 159 bits to an exact discrete Gaussian in steps of 2^-50. The density of that Y is the normal's up to a
factor e^{+-4e-14} within 40 standard deviations (beyond: e^-800).

The result is rounded to a public grid (:func:`release_grid`), which is post-processing. A cell of the grid is at least
2^-77 of the largest noise scale, so it holds more than 2^100 values of Y within 10 standard deviations and its
probability is that of the real mechanism up to e^{+-1e-13}: the 0.1 % of epsilon that K leaves unused covers
thousands of releases many times over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tailguard import _checks
from tailguard.privacy.noise import NoiseSource

__all__ = [
    "ArsinhParameters",
    "arsinh_parameters",
    "arsinh_sd",
    "exact_normals",
    "lipschitz_constant",
    "printed_parameters",
    "release",
    "release_grid",
]

# Gap between the certified K and the largest value seen on the grid.
_CERTIFICATE_GAP = 2.0**-12
# Room in s and t for a smooth bound computed in floating point: relative error in S, smoothness t + 2^-40.
_FLOAT_ROOM = 2.0**-38
# The share of the budget that K may use: room for the float effects that the docstring lists.
_BUDGET_SHARE = 0.999
# The floor of S is at least e^-45 of the width: finer would outrun the bits of the noise, see "Numbers on a computer".
_LARGEST_DECAY = 45.0
# Largest second and third derivative of tanh: 2 sech^2 |tanh| <= 4/(3 sqrt 3), |4 sech^2 - 6 sech^4| <= 2.
_TANH_SECOND = 4.0 / (3.0 * math.sqrt(3.0))
_TANH_THIRD = 2.0
_SIGMAS = np.geomspace(0.1, 1.0, 41)

# Decimal arithmetic of the release, with exponents beyond those of floats.
_DIGITS = Context(prec=100, Emin=-10_000, Emax=10_000)
_STEPS, _WORD = 2**50, 2**53

_Array = NDArray[np.float64]


def _slope(u: _Array, s: _Array, t: _Array, sigma: _Array | float) -> tuple[_Array, _Array, _Array]:
    """Return F(u), u1 and D of the module docstring at shift ``s`` and log scale ``t``, broadcast."""
    w = np.sinh(u)
    v = w - sigma * s
    u1 = np.arcsinh(np.exp(-t) * v)
    stretch = np.sqrt((1.0 + w * w) / (np.exp(2.0 * t) + v * v))
    a1 = u1 / sigma + sigma * np.tanh(u1)
    return a1 * stretch - (u / sigma + sigma * np.tanh(u)), u1, stretch


def _cell_bounds(p: _Array, q: _Array, s: _Array, t: _Array, sigma: float) -> tuple[float, _Array]:
    """Return the largest ``|F|`` at the ends of the cells [p, q], and a bound on ``|F|`` over each cell."""
    h = q - p
    f_p, u1_p, _ = _slope(p, s, t, sigma)
    f_q, u1_q, _ = _slope(q, s, t, sigma)
    seen = np.maximum(np.abs(f_p), np.abs(f_q))
    w_p, w_q = np.sinh(p), np.sinh(q)
    shift = sigma * s
    constant = 1.0 - np.exp(2.0 * t) - shift**2
    numerator = np.maximum(np.abs(constant + 2.0 * w_p * shift), np.abs(constant + 2.0 * w_q * shift))
    distance = np.maximum(np.maximum(w_p - shift, shift - w_q), 0.0)  # least |w - sigma s| in the cell
    d2 = numerator / (np.exp(2.0 * t) + distance**2)  # |D^2 - 1|
    stretch = np.sqrt(1.0 + d2)  # D
    d1 = np.minimum(d2, stretch + 1.0)  # |D - 1| <= |D^2 - 1| as D > 0
    delta = np.maximum(np.abs(u1_p - p), np.abs(u1_q - q)) + 0.5 * h * d1  # |u1 - u|
    nearest = np.maximum(np.maximum(np.minimum(p, u1_p), -np.maximum(q, u1_q)), 0.0)
    sech2 = 1.0 / np.cosh(nearest) ** 2
    e0 = delta * sech2 + d1  # |E|
    e1 = 2.0 * delta * sech2 + d2 * sech2 + stretch * e0  # |E'|
    a1 = np.maximum(np.abs(u1_p), np.abs(u1_q)) / sigma + sigma
    second = (
        sigma * (_TANH_SECOND * d1 * (stretch**2 + stretch + 1.0) + _TANH_THIRD * delta)
        + 3.0 * (1.0 / sigma + sigma) * stretch**2 * e0
        + a1 * stretch * (e0**2 + e1)
    )
    rounding = 64.0 * 2.0**-53 * (1.0 + stretch) ** 2 * (a1 + (q + 1.0) / sigma + sigma)
    bound = seen + h * h / 8.0 * second + rounding
    return float(seen.max()), bound.max(axis=0)


@lru_cache(maxsize=4096)
def lipschitz_constant(s: float, t: float, sigma: float) -> float:
    r"""Return a certified upper bound on K, within a relative 2^-12 of it.

    ``K = sup |L'(y)|`` over all y, all shifts ``|s'| <= s`` and all log scales ``|t'| <= t``; the module
    docstring defines L and proves the bound. K is at least ``t / sigma`` and nondecreasing in s and t.

    Parameters
    ----------
    s : float
        Largest shift, in units of the noise; finite, at least 0.
    t : float
        Largest log scale; finite, at least 0.
    sigma : float
        Shape of the noise, positive and finite.

    Returns
    -------
    float
        K, such that the release with these parameters is K^2/2-zCDP.
    """
    sigma = _checks.positive("sigma", sigma)
    for name, value in (("s", s), ("t", t)):
        if not 0.0 <= _checks.nonnegative(name, value) <= 50.0:
            raise ValueError(f"{name}={value!r} must be at most 50; a larger one has no privacy to speak of")
    last = 20.0 + math.asinh(sigma * s) + t
    w = math.sinh(last)
    eta = sigma * s / (w - sigma * s)
    stretch_error = (math.expm1(2.0 * t) + 2.0 * w * sigma * s + (sigma * s) ** 2) / (w - sigma * s) ** 2
    tail = (t + eta) / sigma + 4.0 * sigma * (t + eta) * math.exp(-2.0 * (last - t - eta))
    tail += ((last + t + eta) / sigma + sigma) * stretch_error
    shifts = np.array([[s], [-s], [s], [-s]])
    scales = np.array([[t], [t], [-t], [-t]])
    # Cells of width about 1/64 up to 8 and wider beyond, where F is flat.
    edges = np.concatenate([np.linspace(0.0, 8.0, 513), np.linspace(8.0, last, 65)[1:]])
    p, q = edges[:-1], edges[1:]
    best = tail
    settled = tail
    for _ in range(24):
        seen, bound = _cell_bounds(p, q, shifts, scales, sigma)
        best = max(best, seen)
        wide = bound > best * (1.0 + _CERTIFICATE_GAP)
        settled = max(settled, float(bound[~wide].max(initial=0.0)))
        if not wide.any() or p.size > 1 << 17:
            break
        p, q = p[wide], q[wide]
        middle = 0.5 * (p + q)
        p, q = np.concatenate([p, middle]), np.concatenate([middle, q])
    return max(settled, float(bound.max()))


def arsinh_sd(sigma: float) -> float:
    """Return the standard deviation of Z, ``sqrt((e^{2 sigma^2} - 1)/2) / sigma``; 1 at sigma -> 0."""
    sigma = _checks.positive("sigma", sigma)
    return math.sqrt(0.5 * math.expm1(2.0 * sigma**2)) / sigma


@dataclass(frozen=True)
class ArsinhParameters:
    """Public parameters of one release ``f + (S/s) Z``.

    Attributes
    ----------
    epsilon : float
        The target: the release is ``epsilon^2/2``-zCDP.
    t : float
        Smoothness to compute S with.
    s : float
        Divisor of S.
    sigma : float
        Shape of the noise.
    lipschitz : float
        Certified K at (s, t, sigma) with room for a float S; the release is ``K^2/2``-zCDP.
    """

    epsilon: float
    t: float
    s: float
    sigma: float
    lipschitz: float

    @property
    def rho(self) -> float:
        """The certified price, ``K^2/2``-zCDP."""
        return 0.5 * self.lipschitz**2


def _certified(s: float, t: float, sigma: float) -> float:
    """Return K with room for a smooth bound that was computed in floating point."""
    return lipschitz_constant(s * (1.0 + _FLOAT_ROOM), t + _FLOAT_ROOM, sigma)


def _largest_shifts(target: float, t: float, sigmas: _Array) -> _Array:
    """Return, for each sigma, about the largest s with K <= target (0 if none); not certified."""
    u = np.concatenate([np.linspace(0.0, 6.0, 97), np.linspace(6.0, 14.0 + t, 17)[1:]])
    scales = np.array([t, -t])[:, None]
    shape = sigmas[:, None, None]

    def fits(s: _Array) -> NDArray[np.bool_]:
        shift = s[:, None, None]
        largest = np.maximum(
            np.abs(_slope(u, shift, scales, shape)[0]).max(axis=(1, 2)),
            np.abs(_slope(u, -shift, scales, shape)[0]).max(axis=(1, 2)),
        )
        return np.maximum(largest, t / sigmas) <= target

    # A bracket found by doubling, then bisection: K is nondecreasing in s.
    low, high = np.zeros_like(sigmas), np.full_like(sigmas, 1.5 * target)
    for _ in range(12):
        inside = fits(high)
        if not inside.any():
            break
        low, high = np.where(inside, high, low), np.where(inside, 2.0 * high, high)
    for _ in range(14):
        middle = 0.5 * (low + high)
        inside = fits(middle)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return low


def _quietest(target: float, t: float) -> tuple[float, float, float]:
    """Return ``(sd(Z)/s, sigma, s)`` with the least sd(Z)/s over sigma; inf where no s fits."""
    sigmas = _SIGMAS[_SIGMAS * target > t]
    best = (math.inf, 1.0, 0.0)
    for _ in range(2):  # the best of a grid, then of a finer one around it
        if sigmas.size == 0:
            break
        shifts = _largest_shifts(target, t, sigmas)
        with np.errstate(divide="ignore"):
            factors = np.sqrt(0.5 * np.expm1(2.0 * sigmas**2)) / sigmas / shifts
        i = int(np.argmin(factors))
        best = min(best, (float(factors[i]), float(sigmas[i]), float(shifts[i])))
        sigmas = np.linspace(sigmas[max(i - 1, 0)], sigmas[min(i + 1, sigmas.size - 1)], 9)
    return best


@lru_cache(maxsize=1024)
def arsinh_parameters(rho: float, m: int, kept: int, width: float, spread: float) -> ArsinhParameters:
    r"""Choose the parameters of a rho-zCDP release of a trimmed mean with the least noise per unit of S.

    With ``eps = sqrt(2 rho)`` and ``B N / r0`` the width times the kept rows over the guess of the spread,
    start from ``t = min(log(max(B N / r0, e)) / m, eps / 2)``: the floor ``e^{-mt} B`` of S then is about
    ``r0 / N``, what S is on data of spread r0. Sigma in [0.1, 1] and the largest s with certified ``K(s, t,
    sigma) <= 0.999 eps`` minimise ``sd(Z)/s``. Where that t leaves little or no room for s (t = eps / 2
    fits no s > 0 from eps of about 0.5), lower it in steps of 5 % while the predicted noise ``max(e^{-mt}
    B, r0 / N) sd(Z)/s`` falls.

    Parameters
    ----------
    rho : float
        Price of the release, zCDP; positive, at most 50.
    m : int
        Rows trimmed from each end; at 0 the sensitivity is the width.
    kept : int
        N = n - 2m, at least 1.
    width : float
        B = b - a, the public width of the range of the mean.
    spread : float
        A **public** guess r0 of the spread of the rows. A wrong guess costs accuracy, never privacy.

    Returns
    -------
    ArsinhParameters
        With ``lipschitz <= eps``: the price holds for whatever data.
    """
    rho = _checks.positive("rho", rho)
    if rho > 50.0:
        raise ValueError(f"rho={rho!r} must be at most 50 in one release; a larger one has no privacy to speak of")
    m = _checks.count("m", m, least=0)
    kept = _checks.count("kept", kept)
    ratio = min(_checks.positive("width", width) / _checks.positive("spread", spread), 1e300) * kept
    epsilon = math.sqrt(2.0 * rho)
    target = _BUDGET_SHARE * epsilon
    log_ratio = min(math.log(max(ratio, math.e)), _LARGEST_DECAY)
    best = (math.inf, 0.0, 1.0, 0.0)
    for t in [0.0] if m == 0 else min(log_ratio / m, 0.5 * epsilon) * np.linspace(1.0, 0.05, 20):
        factor, sigma, s = _quietest(target, float(t))
        noise = factor * max(math.exp(-m * t), math.exp(-log_ratio))
        if noise > best[0]:
            break
        if noise < best[0]:
            best = (noise, float(t), sigma, s)
    _, t, sigma, s = best
    # The sweep picked t and sigma; the certificate decides s.
    low, high = 0.0, 1.02 * s
    if _certified(high, t, sigma) <= target:
        low = high
    else:
        step = 0.02 * s
        while low == 0.0:
            trial = max(high - step, 0.0)
            if trial == 0.0 or _certified(trial, t, sigma) <= target:
                low = trial
            else:
                high, step = trial, 2.0 * step
        for _ in range(8):
            middle = 0.5 * (low + high)
            if _certified(middle, t, sigma) <= target:
                low = middle
            else:
                high = middle
    return ArsinhParameters(epsilon, t, low, sigma, _certified(low, t, sigma))


def printed_parameters(epsilon: float) -> ArsinhParameters:
    """Return the parameters that the paper prints: t = epsilon^2/16, s = epsilon/4, sigma = 1.

    They are sound with a valid S (K is certified here as for any others), and add far more noise than
    needed: the smoothness is so small that the floor ``e^{-mt} B`` of S stays near B.

    Parameters
    ----------
    epsilon : float
        The release is ``epsilon^2/2``-zCDP; positive, at most 1 as in the paper's theorem.
    """
    epsilon = _checks.positive("epsilon", epsilon)
    if epsilon > 1.0:
        raise ValueError(f"epsilon={epsilon!r} must be at most 1 for the printed rule; use arsinh_parameters")
    t, s = epsilon**2 / 16.0, epsilon / 4.0
    return ArsinhParameters(epsilon, t, s, 1.0, _certified(s, t, 1.0))


def release_grid(parameters: ArsinhParameters, m: int, width: float) -> float:
    """Return the public grid of :func:`release`: a power of two near 2^-10 of the smallest possible noise.

    S is at least ``e^{-mt} B`` on all data, so ``e^{-mt} B / s`` is a public lower bound of the scale of
    the noise; it is not taken below ``e^-45 B / s``.
    """
    decay = min(_checks.count("m", m, least=0) * parameters.t, _LARGEST_DECAY)
    floor = math.exp(-decay) * _checks.positive("width", width)
    return math.ldexp(1.0, math.frexp(floor / parameters.s)[1] - 11)


def exact_normals(noise: NoiseSource, size: int) -> list[Decimal]:
    """Return standard normals of 209 bits: a discrete Gaussian in steps of 2^-50 and a uniform fraction of a step."""
    whole = noise.discrete_gaussian(float(_STEPS), size)
    parts = (noise.uniform(3 * size) * 2.0**53).astype(np.int64).reshape(size, 3)
    with localcontext(_DIGITS):
        normals = []
        for k, (first, second, third) in zip(whole.tolist(), parts.tolist(), strict=True):
            fraction = (Decimal(third) / _WORD + second) / _WORD + first
            normals.append((k + fraction / _WORD - Decimal("0.5")) / _STEPS)
        return normals


def release(
    value: float, sensitivity: float, parameters: ArsinhParameters, normal: Decimal | float, grid: float
) -> float:
    """Return ``value + (sensitivity / s) Z``, rounded to a multiple of the public ``grid``.

    Parameters
    ----------
    value, sensitivity : float
        f and its t-smooth bound S, with t that of ``parameters``.
    parameters : ArsinhParameters
        From :func:`arsinh_parameters` or :func:`printed_parameters`.
    normal : Decimal
        One standard normal from :func:`exact_normals`, used here and nowhere else.
    grid : float
        A public power of two, from :func:`release_grid`.

    Returns
    -------
    float
        ``parameters.rho``-zCDP; the module docstring has the arithmetic.
    """
    with localcontext(_DIGITS):
        sigma, step = Decimal(parameters.sigma), Decimal(grid)
        power = (sigma * Decimal(normal)).exp()
        z = (power - 1 / power) / (2 * sigma)
        noisy = Decimal(value) + Decimal(sensitivity) / Decimal(parameters.s) * z
        return float((noisy / step).to_integral_value() * step)
