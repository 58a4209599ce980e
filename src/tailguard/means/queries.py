r"""Queries: how an algorithm of many different looks at the data takes each of them.

A `Queries` object holds the data, one `Account` and one source of noise; it is the only way its owner sees the data.
Every query is a sum over rows of something bounded, exact on integers, plus a discrete Gaussian whose size the
account decides:

==============  =====================================  ===========================================
query           one row adds                           L2 sensitivity of the sum, replace-one
==============  =====================================  ===========================================
`mean`          a vector clipped to norm R             2 R
`counts`        a declared change of integer counts    as declared: sqrt(2 c) for c histograms
`gram`          u u', the vector u clipped to norm R   sqrt(2) R^2 in Frobenius norm
==============  =====================================  ===========================================

**Formal guarantee.** `mean` and `gram` clip inside the query, on the integers that are summed, so their sensitivity
holds whatever the function of the row returns. `counts` rests on the function's adding one to one bin of each
histogram. With noise sd ``sensitivity / mu`` each is mu-GDP; the account's filter composes them adaptively.

`gram` is isotropic in the Frobenius norm: a pair of equal off-diagonal entries gets noise of variance sd^2/2.
With rows rounded to b bits, products take 2b bits and sums over a piece of rows stay below 2^53: the matrix product
is exact in float64 in any order. For unit vectors u, v: |uu' - vv'|_F^2 = 2 - 2<u, v>^2 <= 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tailguard.engines import BlockFunction, Engine
from tailguard.engines.vectors import RowFunction
from tailguard.kernels.apart import Apart
from tailguard.means.gaussian import on_grid, saturating_add
from tailguard.privacy import MIN_GRID_SCALE, Account, NoiseSource
from tailguard.truncation import Grid, L2Clip

Array = NDArray[np.float64]

# Rows of a Gram matrix are rounded to 19 bits; noise on counts spans about 2**31 steps.
_GRAM_BITS = 19
_NOISE_BITS = 31
# Values of rows that several sums share while they are in a core's cache.
_CACHED = 2**16
# Smallest bound of a mean: a fit may ask for less, down to 0, where a hint and what was released are far apart.
_LEAST = 1e-100


class Noisy(NamedTuple):
    """A released value and the standard deviation of its noise, which is public."""

    value: Array
    sd: float


@dataclass
class Sums:
    """The data of one fit, as sums over its rows: what is released is up to those that add noise to them."""

    engine: Engine
    _held: dict[Any, NDArray[np.int64]] = field(default_factory=dict, init=False)

    @property
    def n(self) -> int:
        """Public number of rows."""
        return self.engine.n

    def grid(self, bound: float) -> Grid:
        """The grid of a `mean` of rows of norm ``bound``; public. A tiny bound is raised, which only adds noise."""
        return Grid.of(L2Clip(bound if bound > _LEAST else _LEAST), self.n)

    @property
    def gram_bits(self) -> int:
        """Bits that rows of a `gram` are rounded to; public."""
        return min(_GRAM_BITS, (62 - self.n.bit_length()) // 2)

    def together(self, *sums: Sum) -> None:
        """Add up several sums in one pass over the rows, for queries that will ask for them.

        Nothing leaves, and nothing is paid: the sums stay here until a query releases them. Where passes are not
        shared (`tailguard.engines.engine.Engine`) every query takes its own, and nothing is done here.
        """
        if not getattr(self.engine, "shares_passes", False):
            return
        both = Together(sums)
        found = self.engine.integer_sum(both, both.shape)
        for one, total in zip(sums, both.cut(found), strict=True):
            self._held[one] = total
            if hasattr(one, "readings"):
                self._held.update(one.readings(total))

    def total(self, function: BlockFunction, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """The sum of integers over rows, from an earlier pass or from one of its own: **not released**."""
        held = self._held.pop(function, None) if getattr(function, "fused", False) else None
        return self.engine.integer_sum(function, shape) if held is None else held

    def vector_sum(self, function: BlockFunction, width: int, grid: Grid) -> tuple[NDArray[np.int64], float]:
        """The sum of clipped vectors, and the roundings of the sum itself, by up to half a unit in each coordinate."""
        rows: Any = function
        if not hasattr(rows, "clipped"):
            return self.engine.truncated_sum(RowFunction(function, width), grid)[0], 0.0
        table = getattr(rows, "table", None)
        if table is not None and table in self._held:
            return table.total_at(self._held.pop(table), rows.clip, grid), table.roundings(rows.clip)
        held = self._held.pop(rows.clipped(grid), None)
        return self.engine.truncated_sum(rows, grid)[0] if held is None else held, 0.0


@dataclass
class Queries(Sums):
    """The data of one fit, behind one account."""

    account: Account
    noise: NoiseSource
    _asked: int = field(default=0, init=False)

    @property
    def mu(self) -> float:
        """What the whole account amounts to; public."""
        return self.account.budget.mu

    def sd(self, sensitivity: float, share: float) -> float:
        """Noise of a mean whose sum has the given sensitivity, for a share; public, and nothing is spent."""
        return sensitivity / (self.mu * math.sqrt(share) * self.n)

    def share_for(self, sensitivity: float, sd: float, most: float) -> float:
        """Share that buys the noise ``sd`` in a mean, between most/10 and most; public."""
        return max(most / 10.0, self.bought(sensitivity, sd, most))

    def bought(self, sensitivity: float, sd: float, most: float) -> float:
        """The same, however little it is."""
        return min(most, (sensitivity / (sd * self.mu * self.n)) ** 2)

    def mean(self, label: str, function: BlockFunction, width: int, bound: float, share: float) -> Noisy:
        """Release the mean over rows of ``function(X, y)``, (rows, width), each row clipped to L2 norm ``bound``."""
        grid = self.grid(bound)
        total, roundings = self.vector_sum(function, width, grid)
        sensitivity = grid.sensitivity(width, "replace-one") + roundings * math.sqrt(width)
        scale = on_grid(sensitivity / self._spend(label, share, width))
        noisy = saturating_add(total, self._draw(scale, width))
        return Noisy(np.asarray(noisy * (grid.unit / self.n), np.float64), scale * grid.unit / self.n)

    def counts(
        self, label: str, function: BlockFunction, shape: tuple[int, ...], sensitivity: float, share: float
    ) -> Noisy:
        """Release integer counts, divided by n; ``sensitivity`` is the L2 change that replacing one row can make."""
        return self.noisy_counts(label, self.total(function, shape), sensitivity, share)

    def noisy_counts(self, label: str, total: Any, sensitivity: float, share: float) -> Noisy:
        """Release counts that were added up before, as in a bisection of one histogram."""
        counts = np.asarray(total, dtype=np.int64)
        sd = sensitivity / self._spend(label, share, counts.size)
        # Finer steps for less noise, as long as all counts fit a 64-bit integer; public. Where columns are pooled a row
        # adds more than one to a count, though never more than the sensitivity.
        most = (self.n * math.ceil(sensitivity)).bit_length()
        bits = max(0, min(62 - most, _NOISE_BITS - math.floor(math.log2(sd))))
        scale = on_grid(sd * 2.0**bits)
        noisy = saturating_add(counts << bits, self._draw(scale, counts.size).reshape(counts.shape))
        step = 2.0**-bits / self.n
        return Noisy(np.asarray(noisy * step), scale * step)

    def gram(self, label: str, function: BlockFunction, width: int, bound: float, share: float) -> Noisy:
        """Release the mean of u u' over rows, u the rows of ``function(X, y)`` clipped to L2 norm ``bound``.

        Released again, with a share and noise of its own, it takes no further pass over the rows.
        """
        bits = self.gram_bits
        gram = function.gram(bound, bits) if hasattr(function, "gram") else _Gram(function, bound, bits)
        total = self.total(gram, (width, width))
        if getattr(gram, "fused", False):
            self._held[gram] = total
        # Rounding adds at most half a unit to each coordinate of a row of norm 2**bits.
        row = 2.0**bits * (1.0 + 2.0**-40) + math.sqrt(width) / 2.0
        scale = math.sqrt(2.0) * row**2 / self._spend(label, share, width * (width + 1) // 2)
        scale = max(scale, 2.0 * MIN_GRID_SCALE)  # off the diagonal it is smaller by sqrt(2), and still on the grid
        upper = np.triu_indices(width, 1)
        noise = np.zeros((width, width), dtype=np.int64)
        noise[upper] = self._draw(scale / math.sqrt(2.0), len(upper[0]))
        noise += noise.T
        noise[np.diag_indices(width)] = self._draw(scale, width)
        unit = (bound * 2.0**-bits) ** 2 / self.n
        return Noisy(np.asarray(saturating_add(total, noise) * unit, np.float64), scale * unit)

    def _spend(self, label: str, share: float, samples: int) -> float:
        return self.account.spend(share=share, label=label, samples=samples)

    def _draw(self, scale: float, size: int) -> NDArray[np.int64]:
        self._asked += 1
        return self.noise.at(self._asked).discrete_gaussian(on_grid(scale), size)


class Sum(Protocol):
    """A sum of integers over rows, one compiled pass; hashable, so that it can be found again."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the sum."""

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> NDArray[np.int64]:
        """Sum over a block of rows."""


@dataclass(frozen=True)
class Together:
    """Several sums in one pass: each takes a few rows while they are in a core's cache, then the next rows."""

    sums: tuple[Sum, ...]
    fused = True

    @property
    def shape(self) -> tuple[int]:
        """All of them, one after the other."""
        return (sum(math.prod(one.shape) for one in self.sums),)

    def __call__(self, X: Any, y: NDArray[Any]) -> NDArray[np.int64]:
        """Add up a block of rows."""
        if len(self.sums) == 1:  # nobody to share the cache with
            return self.sums[0](X, y).ravel()
        total, step = np.zeros(self.shape, np.int64), max(64, _CACHED // max(1, X.shape[1]))
        for start in range(0, X.shape[0], step):
            rows = slice(start, start + step)
            some: Any = X.rows(rows) if isinstance(X, Apart) else X[rows]
            total += np.concatenate([one(some, y[rows]).ravel() for one in self.sums])
        return total

    def cut(self, total: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the sums apart."""
        ends = np.cumsum([math.prod(one.shape) for one in self.sums])[:-1]
        return [part.reshape(one.shape) for part, one in zip(np.split(total, ends), self.sums, strict=True)]


@dataclass(frozen=True)
class _Gram:
    """The Gram matrix of any function of rows."""

    function: BlockFunction
    bound: float
    bits: int

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> NDArray[np.int64]:
        return _exact_gram(self.function(X, y), self.bound, self.bits)


def _exact_gram(rows: Array, bound: float, bits: int) -> NDArray[np.int64]:
    """Integer Gram matrix of rows clipped to the bound and rounded to multiples of ``bound * 2**-bits``."""
    with np.errstate(all="ignore"):
        # In double precision whatever the data is: sums of products of integers would not be exact in single.
        rows = np.nan_to_num(np.asarray(rows, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        # In two steps, so that the squares of large entries do not overflow.
        largest = np.max(np.abs(rows), axis=1, keepdims=True, initial=0.0)
        rows = rows / np.maximum(largest, bound)
        norm = np.sqrt(np.sum(rows * rows, axis=1, keepdims=True)) * (np.maximum(largest, bound) / bound)
        rows = rows * (np.maximum(largest, bound) / bound) / np.maximum(norm, 1.0)
    units = np.rint(np.nan_to_num(rows, nan=0.0) * 2.0**bits)
    # Pieces have at most 2**14 rows, so sums of products of 19 + 19 bits stay exact.
    total = np.zeros((rows.shape[1], rows.shape[1]), dtype=np.int64)
    for start in range(0, len(units), 2**14):
        piece = units[start : start + 2**14]
        total += (piece.T @ piece).astype(np.int64)
    return total
