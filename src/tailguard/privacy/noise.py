r"""Noise: where randomness enters, and nowhere else.

A mechanism asks a :class:`NoiseSource`.  There are two: :class:`SystemNoise` draws from the
operating system's cryptographic generator and is the only private one; :class:`SeededNoise` draws
the same distributions from a seed, for experiments, and says ``private = False``.

Gaussian noise lives on integers.  A value in grid units plus an exact *discrete* Gaussian
(Canonne, Kamath and Steinke 2020) has no ragged floating-point tails (Mironov 2012), and
with a standard deviation of at least 2^20 units it is priced as continuous noise (see
:mod:`tailguard.privacy.accounting`).
"""

from __future__ import annotations

import math
import os
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy.special import ndtri

from tailguard import _checks
from tailguard.privacy.discrete_gaussian import discrete_gaussian
from tailguard.privacy.geometric import below_of, geometric

# Below this sd in grid units the discrete Gaussian may not be priced as a continuous one.
MIN_GRID_SCALE = 2.0**20
# Above it, 40 sd leave no room for the value within 64-bit integers.
MAX_GRID_SCALE = 2.0**55
# The same for geometric noise, whose tail is longer.
MAX_GEOMETRIC_SCALE = 2**50
# Rates of Poisson samples are multiples of 2^-32, so that comparing 32 random bits is exact.
_RATE_STEPS = 2**32
_CHUNK = 1 << 22


@runtime_checkable
class NoiseSource(Protocol):
    """What a mechanism may ask of randomness."""

    @property
    def private(self) -> bool:
        """Whether the draws are unpredictable to an adversary."""

    @property
    def seed(self) -> int | None:
        """The seed, for the record; None where there is none."""

    def at(self, step: int) -> NoiseSource:
        """Return the source of one step: the same draws whatever happened in other steps."""

    def discrete_gaussian(self, scale: float, size: int) -> np.ndarray:
        """Return int64 draws with P(k) ∝ e^{−k²/(2 scale²)}, for scale in [2^20, 2^55]."""

    def geometric(self, scale: int, size: int) -> np.ndarray:
        """Return int64 draws with P(k) ∝ e^{−k/scale} on 0, 1, …, for a whole scale in [1, 2^50]."""

    def bernoulli(self, n: int, rate: float) -> np.ndarray:
        """Return the sorted int64 indices of a Poisson sample of ``range(n)``."""

    def uniform53(self) -> float:
        """Return one uniform multiple of 2^-53 in [0, 1)."""

    def uniform(self, size: int) -> np.ndarray:
        """Return uniform multiples of 2^-53 in [0, 1)."""

    def normal(self, size: int) -> np.ndarray:
        """Return float64 standard normals: **not** safe on a grid, see :class:`SystemNoise`."""

    def permutation(self, n: int) -> np.ndarray:
        """Return a random order of ``range(n)``, independent of the data."""


class _FromBits:
    """Draws that need random bits only; subclasses say where the bits come from."""

    def _bits(self, size: int, width: int) -> np.ndarray:
        """Return ``size`` uniform unsigned integers of 32 or 64 bits."""
        raise NotImplementedError

    def bernoulli(self, n: int, rate: float) -> np.ndarray:
        """Return the sorted indices of a Poisson sample of ``range(n)``.

        Parameters
        ----------
        n : int
            Number of rows.
        rate : float
            A multiple of 2^-32 in (0, 1]; :func:`exact_rate` rounds to one.

        Returns
        -------
        ndarray of int64
            Each index is there with probability exactly ``rate``, independently.
        """
        n = _checks.count("n", n, least=0)
        rate = _checks.probability("rate", rate, one=True)
        threshold = rate * _RATE_STEPS
        if threshold != math.floor(threshold):
            raise ValueError(f"rate must be a multiple of 2**-32 (exact_rate gives one); got {rate!r}")
        if rate == 1.0:
            return np.arange(n, dtype=np.int64)
        limit = np.uint32(int(threshold))
        found = [
            start + np.flatnonzero(self._bits(min(_CHUNK, n - start), 32) < limit) for start in range(0, n, _CHUNK)
        ]
        return np.concatenate(found).astype(np.int64) if found else np.empty(0, dtype=np.int64)

    def uniform53(self) -> float:
        """Return one uniform multiple of 2^-53 in [0, 1)."""
        return float(self.uniform(1)[0])

    def uniform(self, size: int) -> np.ndarray:
        """Return ``size`` uniform multiples of 2^-53 in [0, 1)."""
        bits = self._bits(_checks.count("size", size, least=0), 64)
        return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, size: int) -> np.ndarray:
        """Return ``size`` float64 standard normals.

        By inversion of 63 random bits and a sign, so up to 9 standard deviations.  Floats
        of real-valued noise have a data-dependent grid: use this only for mechanisms
        that have no form on integers, and :meth:`discrete_gaussian` for all others.
        """
        bits = self._bits(_checks.count("size", size, least=0), 64)
        tail = ((bits >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64
        magnitude = -ndtri(np.minimum(tail, 0.5))
        return np.where(bits & np.uint64(1), magnitude, -magnitude)


class SystemNoise(_FromBits):
    """Noise from the operating system's cryptographic generator: the private source.

    It holds no state, so copies, pickles and forked processes never share a stream.

    Notes
    -----
    **Formal guarantee.**  :meth:`discrete_gaussian` is exact: floats decide nothing that they could decide wrongly
    (:mod:`tailguard.privacy.discrete_gaussian` has the proof).  :meth:`geometric` is exact and knows no floats.
    :meth:`bernoulli` is exact for multiples of 2^-32.  :meth:`permutation` is uniform, but for a probability of
    n² 2^-129.  :meth:`normal` carries no guarantee beyond double precision.
    """

    private = True
    seed: int | None = None

    def at(self, step: int) -> SystemNoise:
        """Return the source itself: there is no stream to divide."""
        _checks.count("step", step, least=0)
        return self

    def discrete_gaussian(self, scale: float, size: int) -> np.ndarray:
        """Return exact discrete Gaussian draws.

        Parameters
        ----------
        scale : float
            Standard deviation parameter in grid units, in [2^20, 2^55].
        size : int
            Number of independent draws.

        Returns
        -------
        ndarray of int64, shape (size,)
            P(k) ∝ e^{−k²/(2 scale²)}.
        """
        scale, size = _grid_scale(scale), _checks.count("size", size, least=0)
        return discrete_gaussian(scale, size, os.urandom)

    def geometric(self, scale: int, size: int) -> np.ndarray:
        """Return exact geometric draws.

        Parameters
        ----------
        scale : int
            In [1, 2^50].
        size : int
            Number of independent draws.

        Returns
        -------
        ndarray of int64, shape (size,)
            P(k) ∝ e^{−k/scale} on 0, 1, …; one beyond 2^62 (probability below e^{−4096}) is moved to it.
        """
        below = below_of(lambda count: self._bits(count, 64).tolist())
        draws = geometric(_geometric_scale(scale), _checks.count("size", size, least=0), below)
        return np.array([min(draw, 2**62) for draw in draws], dtype=np.int64)

    def permutation(self, n: int) -> np.ndarray:
        """Return a random order of ``range(n)``: that of 128 random bits each, which are never equal in practice."""
        n = _checks.count("n", n, least=0)
        return np.lexsort((self._bits(n, 64), self._bits(n, 64)))

    def _bits(self, size: int, width: int) -> np.ndarray:
        return np.frombuffer(os.urandom(size * width // 8), dtype=f"<u{width // 8}")

    def __eq__(self, other: object) -> bool:
        return type(other) is SystemNoise

    def __hash__(self) -> int:
        return hash(SystemNoise)

    def __repr__(self) -> str:
        return "SystemNoise()"


class SeededNoise(_FromBits):
    """The same distributions from a seed: for experiments, never private.

    Parameters
    ----------
    seed : int
        At least 0.
    path : tuple of int
        Steps that led here, outermost first; see :meth:`at`.

    Notes
    -----
    The stream depends on (seed, path) alone.  ``SeededNoise(7).at(3)`` starts the same stream
    whenever and wherever it is made, so a run can be cut, resumed and distributed.
    """

    private = False

    def __init__(self, seed: int, path: tuple[int, ...] = ()) -> None:
        self.seed: int | None = _checks.count("seed", seed, least=0)
        self.path = tuple(_checks.count("step", step, least=0) for step in path)
        self._generator = np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(seed, spawn_key=self.path)))

    def at(self, step: int) -> SeededNoise:
        """Return the source of one step: a fresh stream for (seed, path, step)."""
        assert self.seed is not None
        return SeededNoise(self.seed, (*self.path, step))

    def discrete_gaussian(self, scale: float, size: int) -> np.ndarray:
        """Return rounded normals, which differ from the discrete Gaussian by a factor within e^{±7e-11}."""
        scale = _grid_scale(scale)
        draws = self._generator.standard_normal(_checks.count("size", size, least=0))
        return np.rint(scale * draws).astype(np.int64)

    def geometric(self, scale: int, size: int) -> np.ndarray:
        """Return exponential draws, rounded down: geometric, but for the rounding of floats."""
        draws = self._generator.standard_exponential(_checks.count("size", size, least=0))
        return np.floor(_geometric_scale(scale) * draws).astype(np.int64)

    def permutation(self, n: int) -> np.ndarray:
        """Return a random order of ``range(n)``."""
        return self._generator.permutation(_checks.count("n", n, least=0))

    def _bits(self, size: int, width: int) -> np.ndarray:
        return self._generator.integers(0, 2**width, size=size, dtype=f"u{width // 8}")

    def __repr__(self) -> str:
        return f"SeededNoise({self.seed}{f', path={self.path}' if self.path else ''})"


def exact_rate(rate: float) -> float:
    """Return the multiple of 2^-32 nearest to ``rate``, at least 2^-32.

    Parameters
    ----------
    rate : float
        In (0, 1].

    Notes
    -----
    Sample **and** account with the returned rate.
    """
    rate = _checks.probability("rate", rate, one=True)
    return max(1, round(rate * _RATE_STEPS)) / _RATE_STEPS


def noise_source(random_state: Any = None) -> NoiseSource:
    """Return the source that a ``random_state`` argument asks for.

    Parameters
    ----------
    random_state : None, int, numpy Generator, numpy RandomState or NoiseSource
        None, the default, is :class:`SystemNoise`.  An integer is a :class:`SeededNoise`; a
        generator is asked for one seed, which is recorded, and is not private either.

    Raises
    ------
    TypeError
        For anything else.
    """
    if random_state is None:
        return SystemNoise()
    if isinstance(random_state, np.random.Generator):
        return SeededNoise(int(random_state.integers(0, 2**63)))
    if isinstance(random_state, np.random.RandomState):
        return SeededNoise(int(random_state.randint(0, 2**63 - 1, dtype=np.int64)))
    if isinstance(random_state, NoiseSource):
        return random_state
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        return SeededNoise(int(random_state))
    raise TypeError(
        "random_state must be None, an integer >= 0, a numpy Generator or RandomState, or a NoiseSource; "
        f"got {random_state!r}"
    )


def _grid_scale(scale: float) -> float:
    scale = _checks.positive("scale", scale)
    if not MIN_GRID_SCALE <= scale <= MAX_GRID_SCALE:
        raise ValueError(
            f"scale must be in [2**20, 2**55] grid units; got {scale!r} (a grid that is "
            f"{'finer' if scale < MIN_GRID_SCALE else 'coarser'} brings it into range)"
        )
    return scale


def _geometric_scale(scale: int) -> int:
    scale = _checks.count("scale", scale)
    if scale > MAX_GEOMETRIC_SCALE:
        raise ValueError(f"scale must be a whole number in [1, 2**50]; got {scale!r}")
    return scale
