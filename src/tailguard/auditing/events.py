"""Events: the best question to ask of an output, learnt from one half of the runs.

An output is a vector. Scores turn it into a number: each coordinate, its distance from the middle, linear and quadratic
discriminants, the largest and smallest coordinate, the length. An event is "the score is above (or below) a cut".
Whatever is learnt here, however badly, the bound that the other half gives is valid; a better choice only makes it
larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailguard.auditing.bounds import quick_epsilon

Array = NDArray[np.float64]
Score = Callable[[Array], Array]

# Coordinates that are looked at one by one; all of them enter the discriminants.
_SINGLE = 16
_CUTS = 400
# Standardised outputs are clipped here, so that heavy tails leave the covariances usable.
_FARTHEST = 10.0


@dataclass(frozen=True)
class Event:
    """A set of outputs that is more probable on one table than on its neighbour.

    Attributes
    ----------
    description : str
        In words.
    score : callable
        Outputs (runs, k) to numbers (runs,).
    cut : float
        Where the event begins.
    above : bool
        Whether it is the scores above the cut, or those below.
    swapped : bool
        Whether it is more probable on the second table.
    """

    description: str
    score: Score
    cut: float
    above: bool
    swapped: bool

    def count(self, outputs: Array) -> int:
        """Return the number of outputs in the event."""
        score = self.score(outputs)
        return int(np.sum(score > self.cut if self.above else score < self.cut))


def best_event(one: Array, other: Array, delta: float, confidence: float) -> tuple[Event, float]:
    """Return the event that promises the largest lower bound, and about that bound, which may be below 0.

    The number says which of several pairs to look at more closely; it is no bound, for the event was chosen by the same
    outputs.

    Parameters
    ----------
    one, other : ndarray of shape (runs, k)
        Outputs on the two tables.
    delta, confidence : float
        Of the bound.
    """
    best: tuple[float, Event] | None = None
    trials = len(one)
    for name, score in _scores(one, other):
        a, b = np.sort(score(one)), np.sort(score(other))
        cuts = _cuts(np.sort(np.concatenate((a, b))))
        for above in (True, False):
            counts = [_counts(values, cuts, above) for values in (a, b)]
            for swapped in (False, True):
                gain = quick_epsilon(counts[swapped], counts[not swapped], trials, delta, confidence)
                k = int(np.argmax(gain))
                if best is None or gain[k] > best[0]:
                    words = f"{name} {'above' if above else 'below'} {cuts[k]:.4g}"
                    best = float(gain[k]), Event(words, score, float(cuts[k]), above, swapped)
    assert best is not None
    return best[1], best[0]


def _cuts(values: Array) -> Array:
    """Return places between sorted values, spread over them; ties give the value itself."""
    before = np.unique(np.linspace(0, len(values) - 2, _CUTS).astype(np.int64))
    return np.unique(0.5 * (values[before] + values[before + 1]))


def _counts(values: Array, cuts: Array, above: bool) -> Array:
    if above:
        return (len(values) - np.searchsorted(values, cuts, side="right")).astype(np.float64)
    return np.searchsorted(values, cuts, side="left").astype(np.float64)


def _scores(one: Array, other: Array) -> Iterator[tuple[str, Score]]:
    """Names and scores; discriminants are fitted to the given outputs."""
    standard = _Standard.of(np.concatenate((one, other)))
    a, b = standard(one), standard(other)
    k = a.shape[1]
    for j in range(min(k, _SINGLE)):
        yield f"output {j}", lambda x, j=j: standard(x)[:, j]  # type: ignore[misc]
        yield f"size of output {j}", lambda x, j=j: np.abs(standard(x)[:, j])  # type: ignore[misc]
    if k == 1:
        return
    yield "largest output", lambda x: standard(x).max(axis=1)
    yield "smallest output", lambda x: standard(x).min(axis=1)
    yield "length of the output", lambda x: np.linalg.norm(standard(x), axis=1)
    inverse = np.linalg.pinv(_covariance(a) + _covariance(b), hermitian=True, rcond=1e-13)
    direction = inverse @ (a.mean(axis=0) - b.mean(axis=0))
    yield "linear discriminant", lambda x: standard(x) @ direction
    first, second = _Normal.of(a), _Normal.of(b)
    yield "quadratic discriminant", lambda x: first(standard(x)) - second(standard(x))


@dataclass(frozen=True)
class _Standard:
    """Outputs in units of their spread around their middle; values that are not finite get a column of their own."""

    middle: Array
    spread: Array
    bad: bool

    @staticmethod
    def of(outputs: Array) -> _Standard:
        bad = not bool(np.isfinite(outputs).all())
        x = _finite(outputs)
        low, middle, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
        spread = (high - low) / 1.35
        spread = np.where(spread > 0.0, spread, np.std(x, axis=0))
        return _Standard(middle, np.where(spread > 0.0, spread, 1.0), bad)

    def __call__(self, outputs: Array) -> Array:
        with np.errstate(over="ignore"):
            u = np.clip((_finite(outputs) - self.middle) / self.spread, -_FARTHEST, _FARTHEST)
        if self.bad:
            u = np.column_stack([u, np.sum(~np.isfinite(outputs), axis=1)])
        return np.asarray(u)


def _finite(outputs: Array) -> Array:
    return np.clip(np.nan_to_num(outputs, nan=0.0, posinf=1e150, neginf=-1e150), -1e150, 1e150)


def _covariance(u: Array) -> Array:
    return np.atleast_2d(np.cov(u, rowvar=False))


@dataclass(frozen=True)
class _Normal:
    """Log density of a normal, up to a constant."""

    mean: Array
    precision: Array
    half_log_determinant: float

    @staticmethod
    def of(u: Array) -> _Normal:
        covariance = _covariance(u)
        covariance += 1e-9 * max(float(np.trace(covariance)), 1e-12) * np.eye(len(covariance))
        precision = np.asarray(np.linalg.inv(covariance), np.float64)
        return _Normal(u.mean(axis=0), precision, 0.5 * float(np.linalg.slogdet(covariance)[1]))

    def __call__(self, u: Array) -> Array:
        x = u - self.mean
        return np.asarray(-0.5 * np.einsum("ij,jk,ik->i", x, self.precision, x) - self.half_log_determinant)
