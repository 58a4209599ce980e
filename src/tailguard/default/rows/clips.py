r"""Clips of residuals, and clips that make up for what they cut off.

``clip(r, -far, far)`` loses what lies beyond ``far``. Where tails fall like a power, what lies beyond is a known
multiple of what lies between ``near`` and ``far``: with P(|r| > t) = (t/far)^-a P(|r| > far) beyond near,

    E (|r| - far)+  /  E min((|r| - near)+, far - near)  =  1/((far/near)^(a - 1) - 1).

So that part counts again, so many times (``stretch``): the score is as steep as before up to near, steeper from there
to far, and level beyond. Its bound is less than twice far, where a plain clip would have to be several times as far out
to lose as little. The multiple is a guess about a mean; privacy rests on `Clip.bound` alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEPS = 2**10  # a stretch is a multiple of 1/STEPS, so that sums of whole numbers stay whole
MOST = 1.0  # stretch: what a tail without a mean would ask for has no end
LEAST = 1.2  # power of a tail that is believed


@dataclass(frozen=True)
class Clip:
    """``c(r) + stretch (c(r) - clip(r, -near, near))`` with ``c(r) = clip(r, -far, far)``, and near at most far."""

    far: float
    near: float = 0.0
    stretch: float = 0.0

    @classmethod
    def stretched(cls, far: float, near: float, power: float) -> Clip:
        """The clip for tails that fall with a power between near and far, and beyond."""
        if not 0.0 < near < far:
            return cls(far)
        rise = math.expm1(min(99.0, (max(power, LEAST) - 1.0) * math.log(far / near)))
        return cls(far, near, math.floor(STEPS * min(MOST, 1.0 / rise)) / STEPS)

    @property
    def bound(self) -> float:
        """The largest value."""
        return self.far + self.stretch * (self.far - self.near)

    @property
    def numbers(self) -> tuple[float, float, float]:
        """For kernels."""
        return self.far, self.near, self.stretch

    def __call__(self, r: Array) -> Array:
        """Clip residuals; a missing one is 0."""
        r = np.clip(np.nan_to_num(r, nan=0.0, posinf=np.inf, neginf=-np.inf), -self.far, self.far)
        return np.asarray(r + self.stretch * (r - np.clip(r, -self.near, self.near)))
