r"""Truncations: what bounds the influence of one row.

A truncation maps the vector ``g`` of one row (a gradient, or the row itself) to a bounded one. All that privacy
needs of it is the largest L2 norm of its result, `row_norm`; all that accuracy needs is that it leaves most rows alone:

===================  ==========================================  =======================  ==========================
truncation           T(g)                                        row_norm, p coordinates  used by
===================  ==========================================  =======================  ==========================
`L2Clip`             g min(1, clip/norm(g))                      clip                     DP-GD, DP-SGD, the default
`CoordinateClip`     max(-clip, min(clip, g_j))                  clip sqrt(p)             -
`Smoothed`           scale psi_beta(g_j / scale)                 kappa scale sqrt(p)      Algorithm 4, robust GD
===================  ==========================================  =======================  ==========================

One row enters a sum of truncated rows through ``T`` alone, so the L2 sensitivity of the sum is ``2 row_norm`` when a
row is replaced and ``row_norm`` when one is added or removed, whatever the row is: 0, 1e308, inf or NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tailguard._checks import within
from tailguard.kernels import codes
from tailguard.truncation.smoothing import BETA_RANGE, NO_TABLE, psi_bound, smoothed_truncation

# Bounds outside this range would under- or overflow the grid of `tailguard.truncation.grid`.
_BOUND_RANGE = (1e-100, 1e100)

KernelArguments = tuple[float, tuple[float, ...], NDArray[np.float64], float, float]


@dataclass(frozen=True)
class Truncation:
    """What every truncation has."""

    kind: ClassVar[int]

    @property
    def largest(self) -> float:
        """Largest absolute value of one coordinate of the result."""
        raise NotImplementedError

    def row_norm(self, coordinates: int) -> float:
        """Largest L2 norm of the result."""
        return self.largest * math.sqrt(coordinates)

    def kernel_arguments(self) -> KernelArguments:
        """Bound and, for psi, its polynomial, table, cubic and core: what `kernels.rows.truncated_sum` takes."""
        return self.largest, (0.0,) * 15, NO_TABLE, 0.0, 0.0


@dataclass(frozen=True)
class L2Clip(Truncation):
    """Scale the row down to L2 norm ``clip`` if it is longer.

    Parameters
    ----------
    clip : float
        In the units of the row.
    """

    clip: float
    kind = codes.L2

    def __post_init__(self) -> None:
        within("clip", self.clip, *_BOUND_RANGE)

    @property
    def largest(self) -> float:
        """A row along one axis keeps its full norm."""
        return float(self.clip)

    def row_norm(self, coordinates: int) -> float:
        """The clip, in any number of dimensions."""
        return float(self.clip)


@dataclass(frozen=True)
class CoordinateClip(Truncation):
    """Clamp every coordinate of the row to ``[-clip, clip]``.

    Parameters
    ----------
    clip : float
        In the units of the row.
    """

    clip: float
    kind = codes.COORDINATE

    def __post_init__(self) -> None:
        within("clip", self.clip, *_BOUND_RANGE)

    @property
    def largest(self) -> float:
        """The clip."""
        return float(self.clip)


@dataclass(frozen=True)
class Smoothed(Truncation):
    """Send every coordinate through ``scale * psi_beta(. / scale)``, the estimator of Algorithm 4.

    Parameters
    ----------
    scale : float
        In the units of the row.
    beta : float
        Precision of the smoothing noise.
    """

    scale: float
    beta: float
    kind = codes.SMOOTH

    def __post_init__(self) -> None:
        within("scale", self.scale, *_BOUND_RANGE)
        within("beta", self.beta, *BETA_RANGE)

    @property
    def largest(self) -> float:
        """The supremum ``kappa_beta * scale``."""
        return psi_bound(self.beta) * self.scale

    def kernel_arguments(self) -> KernelArguments:
        """Scale and the constants of psi."""
        constants = smoothed_truncation(float(self.beta))
        return float(self.scale), constants.kernel, constants.table, constants.cubic, constants.core

    def bias_constant(self) -> float:
        r"""Return the least c with :math:`|a - \psi_\beta(a)| \le c a^2`, so the bias is at most ``c v/scale``."""
        a = np.geomspace(1e-3, 1e3, 4001)
        return float(np.max((a - smoothed_truncation(float(self.beta))(a)) / a**2))
