r"""Queries with geometric noise: few answers, each differentially private with delta = 0.

Gaussian noise composes well: k answers cost the root of k. One answer it does not make cheap: at epsilon = 1 and
delta = 1e-6 a number has three times the noise that e^{-|x|} has. So an algorithm that asks for one number, and a few
choices before it, asks here.

==========  =======================================================  ================================
query       what is released                                         epsilon
==========  =======================================================  ================================
`choose`    the place of the largest of several noisy whole numbers  2/t, if a row changes each by at
                                                                     most 1 and noise has scale t
`fraction`  a count with discrete Laplace noise, over n              1/t, if a row changes it by at
                                                                     most 1
`mean`      a clipped mean with discrete Laplace noise               sensitivity/t
==========  =======================================================  ================================

**Formal guarantee of `choose`.** Let u_j be whole numbers of which replacing a row changes each by at most D, o_j
public ones, and Z_j geometric noise of scale t (:mod:`tailguard.privacy.geometric`), P(Z >= k) = e^{-max(k, 0)/t}.
Released is the first j at which u_j + o_j + Z_j is largest. Fix a place i and the noise of all others. Then i is
released if and only if Z_i >= T, where T, a whole number, is the largest u_j + o_j + Z_j, one more for j < i, less
u_i + o_i. On a neighbour it is some T' <= T + 2D, and max(T', 0) <= max(T, 0) + 2D, so

    P(Z_i >= T') >= e^{-2D/t} P(Z_i >= T).

Average over the noise of the others: probabilities of i differ by a factor of e^{2D/t} at most. (Exponential noise
added so is the permute-and-flip mechanism of McKenna and Sheldon 2020, which never does worse than the exponential
mechanism; whole numbers make it exact.)

**Of `fraction` and `mean`.** The exact sum S, in units of the grid, changes by at most s, its rounded sensitivity, and
the difference of two geometric draws has P(k) proportional to e^{-|k|/t}: probabilities of any value of S + k differ by
e^{s/t} at most. Where all rows are within one interval of length b, whatever they are, a replaced one moves the sum by
at most b, and not by 2 b; rounded, by one unit more.

All of it holds exactly, but for draws beyond 2^62 (probability below e^{-4096}, for which delta is there).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tailguard.engines import BlockFunction
from tailguard.means.gaussian import saturating_add
from tailguard.means.queries import Noisy, Sums
from tailguard.privacy import NoiseSource, PureAccount

_STEPS = 2**20  # of noise to a count: the noise is as good as continuous


@dataclass
class PureQueries(Sums):
    """The data of one fit, behind one account of epsilon alone."""

    account: PureAccount
    noise: NoiseSource
    _asked: int = field(default=0, init=False)

    @property
    def epsilon(self) -> float:
        """What the whole account amounts to; public."""
        assert self.account.budget.epsilon is not None
        return self.account.budget.epsilon

    def choose(self, label: str, scores: NDArray[np.int64], share: float, prior: NDArray[np.float64]) -> int:
        """Release the place of the largest score; each changes by at most 1 when a row is replaced.

        ``prior`` is public: logarithms of how likely the places are. Where the scores say nothing they decide.
        """
        scale = math.ceil(2 * _STEPS / self.account.spend(share=share, label=label))
        offsets = np.rint(scale * prior).astype(np.int64)
        return largest(scores * _STEPS + offsets, self._source().geometric(scale, len(scores)))

    def fraction(self, label: str, count: int, share: float) -> float:
        """Release a count of rows, over their number; it changes by at most 1 when a row is replaced."""
        scale = math.ceil(_STEPS / self.account.spend(share=share, label=label))
        return float(self._laplace(np.array([count * _STEPS]), scale)[0]) / (_STEPS * self.n)

    def mean(self, label: str, function: BlockFunction, bound: float, share: float, narrow: bool = False) -> Noisy:
        """Release the mean over rows of ``function(X, y)``, (rows, 1), each clipped to the size ``bound``.

        A ``narrow`` function has no two values further apart than the bound, whatever the rows are.
        """
        grid = self.grid(bound)
        total, roundings = self.vector_sum(function, 1, grid)
        row = grid.sensitivity(1, "add-remove")
        sensitivity = roundings + (row + 1.0 if narrow else 2.0 * row)
        scale = math.ceil(sensitivity / self.account.spend(share=share, label=label))
        step = grid.unit / self.n
        return Noisy(np.asarray(self._laplace(total, scale) * step, np.float64), math.sqrt(2.0) * scale * step)

    def _laplace(self, total: NDArray[np.int64], scale: int) -> NDArray[np.int64]:
        """Add the difference of two geometric draws to a whole number."""
        draws = self._source().geometric(scale, 2)
        return saturating_add(total, np.array([draws[0] - draws[1]]))

    def _source(self) -> NoiseSource:
        self._asked += 1
        return self.noise.at(self._asked)


def largest(scores: NDArray[np.int64], noise: NDArray[np.int64]) -> int:
    """Place of the largest noisy score, the first of equal ones."""
    return int(np.argmax(scores + noise))
