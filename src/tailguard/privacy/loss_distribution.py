r"""The privacy loss distribution of Poisson-sampled Gaussian releases, on a grid, always on the safe side.

A pair of output distributions (P, Q) is stood for by the law of the loss log P/Q under P.  Composition adds losses,
so it convolves their laws, and δ(ε) = E[(1 − e^{ε − loss})₊].

**On a grid.**  The law with masses on multiples of the grid, and at infinity, whose curve δ(ε) joins the true values at
the grid points by straight lines in e^ε dominates the true pair (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi
2022, "Connect the dots", Algorithm 1).  Domination is kept by composition.  So only the curve of one release is
needed, and it has a closed form: see `delta_removing` and `delta_adding`.

**Composed** by dp-accounting's convolution: an FFT over a range that a Chernoff bound proves to hold all mass but
1e-15, which is counted as infinite loss.  Rounding of the FFT is not covered here: see
:mod:`tailguard.privacy.subsampled`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr, ndtr

# Losses of outcomes beyond so many standard deviations are rounded up: their mass is below e^-50.
_FURTHEST = 9.9
# Mass that the convolution may lose, and is given back at infinity.
_LOST = 1e-15
# Room for the rounding of sums of masses.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Losses:
    """A law of losses: ``masses[k]`` at ``(lowest + k) * grid``, and ``infinite`` at infinity."""

    grid: float
    lowest: int
    masses: np.ndarray
    infinite: float

    def times(self, count: int) -> Losses:
        """Return the law of the sum of ``count`` independent losses."""
        from dp_accounting.pld.common import self_convolve

        if count == 1:
            return self
        start, masses = self_convolve(self.masses, count, _LOST)
        infinite = _LOST - math.expm1(count * math.log1p(-self.infinite))
        return Losses(self.grid, count * self.lowest + start, np.asarray(masses), infinite)

    def plus(self, other: Losses) -> Losses:
        """Return the law of the sum of two independent losses on the same grid."""
        from scipy.signal import fftconvolve  # which takes a fifth of the time of importing all of tailguard

        infinite = self.infinite + other.infinite - self.infinite * other.infinite
        return Losses(self.grid, self.lowest + other.lowest, fftconvolve(self.masses, other.masses), infinite)

    def delta(self, epsilon: float) -> float:
        """Return E[(1 − e^{ε − loss})₊], rounded up."""
        above, weighted = self._sums
        k = min(max(math.floor(epsilon / self.grid) + 1 - self.lowest, 0), len(self.masses))
        # Sums of e^{−loss} are kept in units of the first loss above ε, so that nothing overflows.
        finite = above[k] - math.exp(min(0.0, epsilon - (self.lowest + k) * self.grid)) * weighted[k]
        return min(1.0, self.infinite + max(0.0, float(finite)) + _ROUNDING * max(0.0, float(above[k])))

    @cached_property
    def _sums(self) -> tuple[np.ndarray, np.ndarray]:
        """For each k, the mass from k on, and the sum of mass times e^{−(loss − loss_k)} from k on."""
        from scipy.signal import lfilter

        backwards = np.append(0.0, self.masses[::-1])
        discounted = lfilter([1.0], [1.0, -math.exp(-self.grid)], backwards)
        return np.cumsum(backwards)[::-1], discounted[::-1]


def one_release(rate: float, multiplier: float, grid: float) -> tuple[Losses, Losses]:
    """Return laws that dominate one release, for a row that is removed and for one that is added.

    Parameters
    ----------
    rate : float
        Sampling probability in (0, 1].
    multiplier : float
        Standard deviation over sensitivity, above 0.
    grid : float
        Distance of the losses.
    """
    furthest = _FURTHEST * multiplier

    def loss(x: float) -> float:
        log_ratio = (x - 0.5) / multiplier**2
        return log_ratio if rate == 1.0 else float(np.logaddexp(math.log1p(-rate), math.log(rate) + log_ratio))

    low, high = loss(-furthest), loss(1.0 + furthest)
    removing = _connected(delta_removing, rate, multiplier, grid, low, high)
    if rate == 1.0:
        return removing, removing
    return removing, _connected(delta_adding, rate, multiplier, grid, -high, -low)


def _connected(
    curve: Callable[[np.ndarray, float, float], np.ndarray],
    rate: float,
    multiplier: float,
    grid: float,
    low: float,
    high: float,
) -> Losses:
    """Return the law whose curve connects the dots of the given one from ``low`` to ``high``."""
    lowest, highest = math.floor(low / grid), math.ceil(high / grid) + 1
    deltas = np.clip(curve(grid * np.arange(lowest, highest + 1), rate, multiplier), 0.0, 1.0)
    deltas = np.minimum.accumulate(deltas)  # it falls, but for rounding
    falls = np.diff(deltas)
    masses = np.empty_like(deltas)
    masses[0] = 1.0 - deltas[0] + falls[0] / math.expm1(grid)
    masses[1:-1] = (falls[1:] - math.exp(grid) * falls[:-1]) / math.expm1(grid)
    masses[-1] = falls[-1] / math.expm1(-grid)
    return Losses(grid, lowest, np.maximum(masses, 0.0), float(deltas[-1]))


def delta_removing(epsilon: np.ndarray, rate: float, multiplier: float) -> np.ndarray:
    r"""Return δ(ε) of the pair ((1 − q) N(0, z²) + q N(1, z²), N(0, z²)).

    It is q δ₁(ℓ) with e^ℓ = 1 + (e^ε − 1)/q, δ₁ the curve of a full batch (Balle, Barthe and Gaboardi 2018, Theorem
    2), and 1 − e^ε where there is no such ℓ.
    """
    loss = _of_full_batch(epsilon, rate)
    beyond = -np.expm1(np.minimum(epsilon, 0.0))
    return np.where(loss == -np.inf, beyond, rate * _delta_of_full_batch(loss, multiplier))


def delta_adding(epsilon: np.ndarray, rate: float, multiplier: float) -> np.ndarray:
    r"""Return δ(ε) of the same pair the other way round, for rates below 1.

    It is (1 − (1 − q) e^ε) δ₁(ℓ) with e^{−ℓ} = 1 + (e^{−ε} − 1)/q, and 0 where there is no such ℓ.
    """
    loss = -_of_full_batch(-epsilon, rate)
    there = np.isfinite(loss)
    weight = -np.expm1(np.minimum(epsilon + math.log1p(-rate), 0.0))
    return np.where(there, weight * _delta_of_full_batch(np.where(there, loss, 0.0), multiplier), 0.0)


def _of_full_batch(epsilon: np.ndarray, rate: float) -> np.ndarray:
    """Return log(1 + (e^ε − 1)/q), −inf where that is the logarithm of nothing; in two forms, for any ε."""
    inner = np.expm1(np.minimum(epsilon, 1.0)) / rate
    large = np.maximum(epsilon, 1.0)
    with np.errstate(divide="ignore"):
        near = np.log1p(np.maximum(inner, -1.0))
    return np.where(epsilon < 1.0, near, large - math.log(rate) + np.log1p((rate - 1.0) * np.exp(-large)))


def _delta_of_full_batch(epsilon: np.ndarray, multiplier: float) -> np.ndarray:
    """Return δ(ε) of the pair (N(1, z²), N(0, z²)), the same both ways round (Balle and Wang 2018, Theorem 8)."""
    half, shift = 0.5 / multiplier, epsilon * multiplier
    return np.asarray(ndtr(half - shift) - np.exp(epsilon + log_ndtr(-half - shift)))
