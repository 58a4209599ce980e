r"""Lower bounds on epsilon from counts.

If a mechanism is (epsilon, delta)-differentially private then for every event E and neighbours D, D',

    P(E | D) <= e^epsilon P(E | D') + delta,    hence    epsilon >= log((P(E | D) - delta) / P(E | D')).

Both probabilities are unknown; from ``trials`` independent runs on each side come exact (Clopper-Pearson) bounds, each
wrong with probability at most (1 - confidence)/2. So the number returned here exceeds the true epsilon (that at the
given delta) with probability at most 1 - confidence, whatever the mechanism, provided that the event was chosen without
looking at these runs.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]


def probability_bounds(hits: int, trials: int, error: float) -> tuple[float, float]:
    """Return exact lower and upper bounds on a probability, each wrong with probability at most ``error``.

    Parameters
    ----------
    hits, trials : int
        How often it happened, and could have.
    error : float
        In (0, 1).
    """
    low = float(special.betaincinv(hits, trials - hits + 1, error)) if hits else 0.0
    high = float(special.betaincinv(hits + 1, trials - hits, 1.0 - error)) if hits < trials else 1.0
    return low, high


def epsilon_from_counts(hits: int, others: int, trials: int, delta: float, confidence: float) -> float:
    """Return a lower bound on epsilon at ``delta``, 0 if there is none.

    Parameters
    ----------
    hits : int
        Runs on one table in which the event happened.
    others : int
        Runs on the neighbour in which it did.
    trials : int
        Runs on each.
    delta : float
        In [0, 1).
    confidence : float
        In (0, 1).
    """
    error = (1.0 - confidence) / 2.0
    low = probability_bounds(hits, trials, error)[0]
    high = probability_bounds(others, trials, error)[1]
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def quick_epsilon(hits: Array, others: Array, trials: int, delta: float, confidence: float) -> Array:
    """Return about the same with Wilson's intervals, for many events at once: to choose one, not to report."""
    z = float(special.ndtri(1.0 - (1.0 - confidence) / 2.0))
    low = _wilson(hits / trials, trials, -z)
    high = np.maximum(_wilson(others / trials, trials, z), 1e-12)
    return np.log(np.maximum(low - delta, 1e-12) / high)


def _wilson(p: Array, trials: int, z: float) -> Array:
    middle = p + z * z / (2.0 * trials)
    spread = z * np.sqrt(p * (1.0 - p) / trials + z * z / (4.0 * trials * trials))
    return np.clip((middle + spread) / (1.0 + z * z / trials), 0.0, 1.0)
