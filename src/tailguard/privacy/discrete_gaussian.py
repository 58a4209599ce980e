r"""The discrete Gaussian, exactly: P(k) ∝ f(k) = e^{−k²/(2s²)} on all integers k, for any float s ≥ 1.

Rejection from a proposal that random bits make exact, and a comparison that is exact because it is lazy.

**Proposal.** t = 2^m is the power of two with r = t/s in [8/13, 16/13).  A block v, P(v) = 2^{−v−1}, is the number
of zeros at the end of a random word, and of further words where a word is all zeros: v has no largest value.  u is
uniform in [0, t), m bits; a sign is one bit more.  The candidate is k = vt + u or, with the sign, k = −(vt + u + 1):
each integer from exactly one (v, u, sign), so with probability 2^{−v−m−2}, and vt ≤ |k| ≤ (v + 1) t.

**Acceptance.** k is kept with probability p = c 2^v f(k), so a trial yields k with probability c 2^{−m−2} f(k):
proportional to f(k), whatever the number c.  It remains that p ≤ 1.  As |k| ≥ vt, 2^v f(k) ≤ 2^v e^{−v²r²/2} = a_v.
From v = 2 on a_{v+1}/a_v = 2 e^{−(2v+1)r²/2} ≤ 2 e^{−0.94} < 1, so all a_v ≤ max(a_0, a_1, a_2), and

    c = (1 − 2^−40) min(1, e^{r²/2}/2, e^{2r²}/4)

is small enough: a float of it has a relative error below 2^−48, and that float **is** c.  Of all trials
c √(2π)/(4r) are kept: 51 to 58 %.

**Comparison.** k is kept if U < p, for a U uniform in [0, 1) and independent of k.  The first 64 bits of U are a word
w, so U is in [w, w + 1) 2^−64.  Write ε = 2^−53, q = k²/(2s²), p̂ for p in floats and η for the relative error of the
library's exp.  For v < 64, |k| ≤ 2^61 is rounded once, k/s once more, the square once: q has a relative error below
5.01 ε, and p̂ one below 5.1 qε + 2ε + 1.001 η.  Now p ≤ 1, and pq < 3: for v = 0 since q ≤ r²/2 < 0.76; for v ≥ 1
since v ≤ √(2q)/r ≤ 2.3 √q, so pq ≤ q e^{1.6 √q − q} < 3.  Hence |p̂ − p| < 18 ε + 1.001 η.  (Where e^{−q} is below
all normal floats both are below 2^−900; so they are from v = 64 on, which a word of zeros stands for.)  The float of
w 2^−64 is within ε + 2^−64 of U.  So for η < 2^−41, two thousand units in the last place where NumPy's and C's exp
may err by four, the sign of w 2^−64 − p̂ is that of U − p wherever its size is above 2^−40.  The other trials, one in
2^39, are decided by :func:`_exactly`: an interval around p in decimals, whose exp is correctly rounded, and ever more
digits of it and bits of U, until the two are apart.

So the law is exact but for one thing: a draw beyond 64-bit integers is moved to the nearest of them.  For s ≤ 2^55
that is 256 standard deviations out, and :mod:`tailguard.privacy.accounting` pays for all mass beyond 40.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Where float arithmetic may be wrong about an acceptance; see the module's proof.
MARGIN = 2.0**-40
# Up to so many draws plain numbers are quicker than arrays.
_FEW = 12
# Trials at once: their words stay in a core's cache.
_TRIALS = 2**14
_LARGEST = 2**63 - 1

# ``bits(size)`` returns that many random bytes, like os.urandom.
Bits = Callable[[int], bytes]


class Law(NamedTuple):
    """The numbers of one scale: s, m and c of the module's proof."""

    scale: float
    shift: int
    height: float

    @classmethod
    def of(cls, scale: float) -> Law:
        """Return the law of a scale in [1, 2^55]."""
        if not 1.0 <= scale <= 2.0**55:
            raise ValueError(f"scale must be in [1, 2**55]; got {scale!r}")
        fraction, exponent = math.frexp(scale)  # fraction in [1/2, 1)
        shift = exponent if fraction > 13 / 16 else exponent - 1
        square = (2.0**shift / scale) ** 2
        height = min(1.0, math.exp(square / 2.0) / 2.0, math.exp(2.0 * square) / 4.0)
        return cls(scale, shift, (1.0 - 2.0**-40) * height)

    @property
    def kept(self) -> float:
        """The part of all trials that is kept, but for the difference of a sum and an integral."""
        return self.height * math.sqrt(2.0 * math.pi) * self.scale / 2.0 ** (self.shift + 2)

    def candidate(self, place: int, block: int) -> int:
        """Return the integer of a word, whose low bits are u and whose high bit is the sign, and of a block."""
        k = (place & ((1 << self.shift) - 1)) + (block << self.shift)
        return ~k if place >> 63 else k

    def chance(self, k: int, block: int, digits: int) -> tuple[Fraction, Fraction]:
        """Return numbers on both sides of p, computed with so many digits.

        Let δ = 10^{1−digits}/2, which bounds the relative error of a rounding.  The quotient is q (1 + δ₁), so the
        power is e^{−q} e^{−q δ₁} (1 + δ₂): for q δ ≤ 1/4, which 30 digits ensure up to q = 10^28, within a factor
        1 ± 2 (q + 1) δ of e^{−q}.  Twice that is allowed for.
        """
        context = Context(prec=digits, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
        over, under = self.scale.as_integer_ratio()
        quotient = context.divide(Decimal((k * under) ** 2), Decimal(2 * over**2))
        # copy_negate: a minus sign would round to the digits of the thread's own context.
        power = Fraction(context.exp(quotient.copy_negate())) * Fraction(self.height) * 2**block
        error = (Fraction(quotient) + 1) * Fraction(2, 10 ** (digits - 1))
        return power * (1 - error), power * (1 + error)


def discrete_gaussian(scale: float, size: int, bits: Bits, margin: float = MARGIN) -> NDArray[np.int64]:
    """Return independent draws with P(k) ∝ e^{−k²/(2 scale²)}.

    Parameters
    ----------
    scale : float
        In [1, 2^55].
    size : int
        Number of draws.
    bits : callable
        Returns so many random bytes; every bit is used once.
    margin : float
        At least :data:`MARGIN`.  With 1 every acceptance is decided in exact arithmetic; the draws are the same.

    Returns
    -------
    ndarray of int64, shape (size,)
    """
    law, parts, missing = Law.of(scale), [], size
    while missing > _FEW:
        parts.append(_many(law, missing, bits, margin))
        missing -= len(parts[-1])
    if missing or not parts:
        parts.append(np.array(_few(law, missing, bits, margin), dtype=np.int64))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _words(bits: Bits, trials: int) -> NDArray[np.uint64]:
    """Return three words a trial: place, block, and the first bits of U."""
    return np.frombuffer(bits(24 * trials), dtype="<u8").reshape(trials, 3)


def _few(law: Law, size: int, bits: Bits, margin: float) -> list[int]:
    """Return ``size`` draws, one trial after the other."""
    scale, _, height = law
    found: list[int] = []
    while len(found) < size:
        for place, block, first in _words(bits, 2 * (size - len(found)) + 1).tolist():
            zeros = (block & -block).bit_length() - 1 if block else 64
            k = law.candidate(place, zeros)
            z = k / scale
            gap = first * 2.0**-64 - math.ldexp(height * math.exp(-0.5 * z * z), zeros)
            if gap < -margin:
                found.append(k)
            elif gap <= margin:
                kept = _exactly(law, place, block, first, bits)
                if kept is not None:
                    found.append(kept)
    return found[:size]


def _many(law: Law, size: int, bits: Bits, margin: float) -> NDArray[np.int64]:
    """Return at most ``size`` draws, and seldom fewer: those of one array of trials."""
    scale, shift, height = law
    # Four standard deviations of their number more than needed.
    trials = min(_TRIALS, math.ceil((size + 4.0 * math.sqrt(size)) / law.kept))
    words = _words(bits, trials)
    place, block, first = words[:, 0], words[:, 1], words[:, 2]
    zeros = np.bitwise_count(~block & (block - np.uint64(1))).astype(np.int64)  # 64 for a word of zeros
    k = (place & np.uint64((1 << shift) - 1)).astype(np.int64) + (zeros << shift)
    k ^= place.view("<i8") >> 63  # the sign: all ones, which makes it ~k
    z = k / scale
    with np.errstate(under="ignore"):
        gap = first * 2.0**-64 - np.ldexp(height * np.exp(-0.5 * z * z), zeros)
    keep = gap < 0.0
    for i in np.flatnonzero(np.abs(gap) <= margin).tolist():
        kept = _exactly(law, int(place[i]), int(block[i]), int(first[i]), bits)
        keep[i] = kept is not None
        k[i] = 0 if kept is None else kept
    return k[keep][:size]


def _exactly(law: Law, place: int, block: int, first: int, bits: Bits) -> int | None:
    """Return the candidate of three words if it is kept, None if it is not: no floats, and as many bits as it takes."""

    def word() -> int:
        return int.from_bytes(bits(8), "little")

    whole = 0  # of words that are all zeros
    while block == 0:
        whole, block = whole + 64, word()
    zeros = whole + (block & -block).bit_length() - 1
    k = law.candidate(place, zeros)
    drawn, digits = 64, 30
    while True:
        low, high = law.chance(k, zeros, digits)
        if first + 1 <= low * 2**drawn:
            return max(-_LARGEST - 1, min(_LARGEST, k))
        if first >= high * 2**drawn:
            return None
        first, drawn, digits = (first << 64) + word(), drawn + 64, digits + 20
