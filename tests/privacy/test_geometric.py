"""Geometric noise: its law, exactly, from whole random numbers alone."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tailguard.privacy import SeededNoise, SystemNoise
from tailguard.privacy.geometric import _coin, _draw, below_of, geometric

SOURCES = [SystemNoise(), SeededNoise(20)]
P_VALUE = 1e-9  # a false alarm once in 1e9 runs


class Every:
    """All that random numbers can do, one after the other, each with its probability."""

    def __init__(self, path):
        self.path, self.used, self.chance, self.limits = path, 0, Fraction(1), []

    def __call__(self, n):
        self.chance /= n
        self.limits.append(n)
        if self.used == len(self.path):
            raise _Longer(n)
        self.used += 1
        return self.path[self.used - 1]


class _Longer(Exception):
    """More random numbers are wanted."""


def law(run, depth):
    """Probabilities of outcomes that need at most so many random numbers."""
    found, paths = {}, [()]
    for _ in range(depth + 1):
        longer = []
        for path in paths:
            bits = Every(path)
            try:
                outcome = run(bits)
            except _Longer as more:
                longer += [(*path, value) for value in range(more.args[0])]
            else:
                found[outcome] = found.get(outcome, 0) + bits.chance
        paths = longer
    return found


@pytest.mark.parametrize(("u", "t"), [(0, 1), (1, 1), (1, 2), (2, 3), (3, 3)])
def test_a_coin_has_its_probability(u, t):
    """Up to k random numbers of the series 1 - x + x^2/2 - ...: the rest is less than its next term."""
    depth = 6
    found = law(lambda bits: _coin(u, t, bits), depth)
    rest = (u / t) ** depth / math.factorial(depth)
    assert abs(float(found.get(True, 0)) - math.exp(-u / t)) <= rest
    assert abs(float(found.get(False, 0)) - (1 - math.exp(-u / t))) <= rest


def test_a_draw_is_geometric():
    """With t = 1 all outcomes of few random numbers: each at most its probability, and together most of all."""
    found = law(lambda bits: _draw(1, bits), 9)
    for k, chance in found.items():
        assert 0 < float(chance) <= (1 - math.exp(-1)) * math.exp(-k) + 1e-15
    assert float(sum(found.values())) > 0.8


@pytest.mark.parametrize("source", SOURCES, ids=repr)
@pytest.mark.parametrize("scale", [1, 3, 2**21 + 1])
def test_draws_have_their_scale_and_no_other(source, scale):
    """Sums of geometric draws are negative binomial."""
    draws = source.geometric(scale, 3000)
    assert draws.dtype == np.int64
    assert draws.min() >= 0

    def p_value(t):
        total = stats.nbinom(len(draws), -math.expm1(-1 / t))
        return 2 * min(total.cdf(draws.sum()), total.sf(draws.sum() - 1))

    assert p_value(scale) > P_VALUE
    assert p_value(1.5 * scale) < P_VALUE
    assert p_value(scale / 1.5) < P_VALUE
    shares = np.bincount(np.minimum(draws // scale, 3), minlength=4)
    expected = len(draws) * np.exp(-np.arange(4.0)) * np.append(np.full(3, -math.expm1(-1)), 1.0)
    assert stats.chisquare(shares, expected).pvalue > P_VALUE


@pytest.mark.parametrize("source", SOURCES, ids=repr)
@pytest.mark.parametrize("scale", [0, 2**50 + 1, 1.5, "1"])
def test_a_scale_is_a_whole_number_in_range(source, scale):
    with pytest.raises((ValueError, TypeError), match="scale"):
        source.geometric(scale, 1)


def test_no_draws():
    assert geometric(5, 0, lambda n: 0) == []
    assert SystemNoise().geometric(5, 0).shape == (0,)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 2**20, 2**50 + 1, 2**64, 2**70])
def test_whole_numbers_below_another_are_uniform(n):
    """Words that are too large are drawn again; a chi-square of 8 cells is beyond 45 in one of 10 million runs."""
    words = np.random.default_rng(0)
    below = below_of(lambda count: words.integers(0, 2**64, count, dtype=np.uint64).tolist())
    draws = [below(n) for _ in range(4000)]
    assert min(draws) >= 0
    assert max(draws) < n
    cells = min(n, 8)
    found = np.bincount([draw * cells // n for draw in draws], minlength=cells)
    expected = np.array([4000 * (-(-(k + 1) * n // cells) - -(-k * n // cells)) / n for k in range(cells)])
    assert np.sum((found - expected) ** 2 / expected) < 45.0
    if n in (3, 7):  # power: the remainder of a word of as many bits is not uniform
        wrong = np.bincount(words.integers(0, 2 ** n.bit_length(), 4000) % n, minlength=cells)
        assert np.sum((wrong - expected) ** 2 / expected) > 45.0
