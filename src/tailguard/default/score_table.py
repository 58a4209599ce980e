r"""Scores with every clip of a grid, from one pass over the rows.

A step first releases a clip, a quantile of ``|r|``, and then the mean of ``w a clip(r, -c, c)``. With the clip from a
grid ``g_0 < g_1 < ...`` both are in one table of sums. A row whose ``|r|`` lies in bin b, ``g_{b-1} < |r| <= g_b``,
adds to row b of the table

    1,    B = w a r  in units of u_b,    A = w a sign(r)  in units of R/2^30,

each coordinate rounded. The rows with ``|r| <= g_k`` are in the bins up to k, and the others are clipped to g_k, so

    sum of w a clip(r, -g_k, g_k)  =  sum of u_b B_b over b <= k  +  g_k R/2^30 * (sum of A_b over b > k).

It is computed in whole numbers, g_k rounded down, and the result rounded to the unit of the grid of the release. A clip
that is stretched (`tailguard.default.rows.Clip`) is ``1 + stretch`` times the sum with far, less stretch times that
with near: whole numbers as well, since stretch is a multiple of 1/1024.

**Formal guarantee.** One row adds either ``u_b B`` or ``g_k R/2^30 A`` to a sum with one clip. Both have norm at most
``R g_k (1 + s) + sqrt(p)/2 u_k``, as `tailguard.truncation.grid.Grid.sensitivity` has it: ``|w a| <= R`` is enforced
where A and B are made, and units do not fall along the grid. Rounding the sum itself moves it by half a unit in every
coordinate, on either of two tables: one unit, sqrt(p) in norm, which `Queries.mean` adds to the sensitivity.

With a stretch t a row adds what its clip has, of norm at most R times the bound, but for the roundings of two sums in
place of one. Those of B count 1 + t times; those of A, half a unit of 2^-30 R in every coordinate, t near times; and
near R, rounded down to a unit, adds t units at most in the direction of A. In units of the release, which are no
smaller, that is ``t sqrt(p)/2 + t sqrt(p)/2 + t`` more than one rounding: less than ``2 t sqrt(p)`` for one row, as
p >= 2, and ``4 t sqrt(p)`` for two, so `roundings` counts 1 + 4 t in all. (The relative error s of floats counts
1 + 2 t times in place of once, 2^31 t s = (p + 16) t 2^-21 units: less than the .4 t that are to spare.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tailguard import kernels
from tailguard.default.rows import Clip, Residual, Score, Sizes, Target
from tailguard.default.rows.clips import STEPS
from tailguard.kernels import codes
from tailguard.truncation import Grid
from tailguard.truncation.grid import ROW_BITS, SUM_BITS

if TYPE_CHECKING:
    from tailguard.default.whitening import Design

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Counts of ``|r|`` between the points of a grid, and what the scores with each of them as clip are made of.

    Parameters
    ----------
    design, theta, target, offset, largest
        As in `tailguard.default.rows.Score`.
    grid : ndarray
        Clips, increasing.
    n : int
        Public number of rows.
    """

    design: Design
    theta: Array
    target: Target
    grid: Array
    n: int
    offset: float = 0.0
    largest: float | None = None
    fused = True

    @property
    def shape(self) -> tuple[int, int]:
        """Bins, by B, A and counts."""
        return len(self.grid) + 1, 2 * self.design.width + 1

    @cached_property
    def residual(self) -> Residual:
        """What is counted."""
        return Residual(self.design.fitted(self.theta, self.offset, self.largest), self.target)

    def score(self, clip: Clip) -> Score:
        """The scores with one clip of the grid, or with one that is stretched between two of its points."""
        return Score(self.design, self.theta, self.target, clip, self.offset, self.largest, self)

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> Integers:
        """Add up a block of rows."""
        total = np.zeros(self.shape, np.int64)
        link, largest = (codes.RESIDUAL, 0.0) if self.largest is None else (codes.MEAN, self.largest)
        per_clip = np.append(1.0 / self._units, 0.0)
        at = self.theta, self.offset, link, largest, self.target.numbers, np.asarray(self.grid, np.float64)
        per_unit = 2.0**self._bits / self.design.radius
        kernels.default_sums.score_table(X, y, *self.design.numbers, *at, per_clip, per_unit, total)
        return total

    @property
    def _bits(self) -> int:
        """Of A, as in `Grid.of`."""
        return min(ROW_BITS, SUM_BITS - self.n.bit_length())

    @cached_property
    def _units(self) -> Array:
        """Units of B in every bin but the last, as in `Grid.of`."""
        exponents = [math.ceil(math.log2(self.design.radius * clip)) for clip in self.grid.tolist()]
        return np.array([2.0 ** (exponent - self._bits) for exponent in exponents])

    def readings(self, total: Integers) -> dict[Sizes, Integers]:
        """The counts alone."""
        return {Sizes(self.residual, tuple(self.grid)): total[:, -1]}

    def total_at(self, total: Integers, clip: Clip, grid: Grid) -> Integers:
        """The sum of the scores with a clip, in units of ``grid``, each coordinate rounded."""
        # Nothing is clipped here any more: a smaller bound would break the sensitivity.
        if self.design.radius * clip.bound > grid.truncation.largest:
            raise ValueError("a table has the scores within the radius times the bound of the clip.")
        finest = round(math.log2(grid.unit / self._units[0]))  # units are powers of two: from here on, whole numbers
        bits = max(finest, self._bits)
        sums = self._unrounded(total, clip.far, grid, bits)
        again = round(STEPS * clip.stretch)
        if again:
            sums = (STEPS + again) * sums - again * self._unrounded(total, clip.near, grid, bits)
            bits += STEPS.bit_length() - 1
        return np.array([(value + (1 << (bits - 1))) >> bits for value in sums], dtype=np.int64)

    def _unrounded(self, total: Integers, clip: float, grid: Grid, bits: int) -> NDArray[Any]:
        """2^bits times the sum of the scores with one clip of the grid, in units of ``grid``: whole numbers."""
        p, k = self.design.width, int(np.searchsorted(self.grid, clip))
        if k == len(self.grid) or self.grid[k] != clip:
            raise ValueError("a table has the scores of the clips of its grid only.")
        height = math.floor(self.design.radius * clip / grid.unit)
        sums = total[k + 1 :, p : 2 * p].sum(axis=0).astype(object) * (height << (bits - self._bits))
        for b in range(k + 1):
            sums = sums + total[b, :p].astype(object) * (1 << (bits - round(math.log2(grid.unit / self._units[b]))))
        return sums

    @staticmethod
    def roundings(clip: Clip) -> float:
        """Units, in every coordinate, by which roundings move the difference of the sums of two tables at most."""
        return 1.0 + 4.0 * clip.stretch
