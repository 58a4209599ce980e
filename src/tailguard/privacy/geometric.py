r"""Geometric noise, exactly: P(k) = (1 − e^{−1/t}) e^{−k/t} on k = 0, 1, 2, …, for a whole number t ≥ 1.

It is what pure ε-differential privacy is made of: the difference of two draws has P(k) ∝ e^{−|k|/t} on all integers
(the discrete Laplace distribution), and the largest of several numbers, each with a draw of its own added, is the
exponential mechanism's safer twin (:mod:`tailguard.means.pure`).

Canonne, Kamath and Steinke 2020 (arXiv:2004.00010), Algorithms 1 and 2, with whole random numbers only:

* *A coin of probability e^{−u/t}*, 0 ≤ u ≤ t: of coins with probabilities u/t, u/(2t), u/(3t), …, the first that fails
  has an odd number with probability Σ_k (−u/t)^k/k! = e^{−u/t}.
* *A draw.*  u uniform in 0 … t − 1 is kept with probability e^{−u/t}, or drawn again; v counts successes of coins of
  probability e^{−1} until one fails.  Then u + t v has probability ∝ e^{−u/t} e^{−v} = e^{−(u + t v)/t}, and every
  k is u + t v for one pair.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

# ``below(n)`` returns a uniform whole number in 0 ... n - 1, like secrets.randbelow.
Below = Callable[[int], int]


def below_of(words: Callable[[int], list[int]]) -> Below:
    """Return uniform whole numbers, of random 64-bit words that ``words(count)`` returns.

    A word has as many bits as the largest number needs and is drawn again if it is larger: exact. Asking the operating
    system for many words at once takes a fifth of the time of asking for each.
    """
    pool: list[int] = []

    def below(n: int) -> int:
        bits = (n - 1).bit_length()
        if bits > 64:
            return secrets.randbelow(n)
        mask = (1 << bits) - 1
        while True:
            if not pool:
                pool.extend(words(256))
            value = pool.pop() & mask
            if value < n:
                return value

    return below


def geometric(scale: int, size: int, below: Below) -> list[int]:
    """Return independent draws with parameter t = ``scale``."""
    return [_draw(scale, below) for _ in range(size)]


def _draw(t: int, below: Below) -> int:
    u = below(t)
    while not _coin(u, t, below):
        u = below(t)
    v = 0
    while _coin(1, 1, below):
        v += 1
    return u + t * v


def _coin(u: int, t: int, below: Below) -> bool:
    """Return True with probability e^(-u/t), for 0 <= u <= t."""
    k = 1
    while below(k * t) < u:
        k += 1
    return k % 2 == 1
