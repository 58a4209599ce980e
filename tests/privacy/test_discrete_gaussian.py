"""The exact sampler, piece by piece: what is proved in its module, on bits that a test chooses.

Its law, on the bits of the operating system, is in test_exact_noise.py.
"""

import math
from decimal import localcontext
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tailguard.privacy import discrete_gaussian as sampler
from tailguard.privacy.discrete_gaussian import MARGIN, Law, discrete_gaussian

SCALES = [1.0, 1.3, 1.5, 1.625, 3.0, 10.0, 2.0**20, 2.0**30 / 3, 2.0**40 * 0.8125, 2.0**55]
scales = st.floats(1.0, 2.0**55) | st.sampled_from(SCALES)
words = st.integers(0, 2**64 - 1)
ALL = 2**64 - 1


def stream(seed):
    """A source of bits like os.urandom, with a seed."""
    return np.random.Generator(np.random.PCG64DXSM(seed)).bytes


class Chosen:
    """A source that gives one chosen trial, then trials that end with 0; what is asked for singly is chosen, too."""

    def __init__(self, trial, more=()):
        self.trial, self.more = list(trial), list(more)

    def __call__(self, size):
        if size == 8:
            found = [self.more.pop(0)]
        else:
            found, self.trial = self.trial + [0, 1, 0] * ((size // 8 - len(self.trial)) // 3), []
        return np.array(found, dtype="<u8").tobytes()


def p_of(law, k, block):
    """The probability of acceptance, in 60 digits and more."""
    return mp.mpf(law.height) * mp.mpf(2) ** block * mp.exp(-(mp.mpf(k) ** 2) / (2 * mp.mpf(law.scale) ** 2))


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(2000):
        yield


# The proposal.


@given(scales)
def test_the_width_of_a_block_is_near_the_scale(scale):
    ratio = Fraction(2 ** Law.of(scale).shift) / Fraction(scale)
    assert Fraction(8, 13) <= ratio < Fraction(16, 13)


@pytest.mark.parametrize("scale", [1.0, 1.3, 1.7, 3.0, 10.0, 100.0])
def test_every_integer_comes_from_one_block_one_place_and_one_sign(scale):
    law, blocks = Law.of(scale), 12
    width = 2**law.shift
    found = []
    for block in range(blocks):
        for u in range(width):
            for sign in (0, 1 << 63):
                unused = (ALL >> 1) ^ (width - 1)  # bits between u and the sign do not matter
                k = law.candidate(sign | u, block)
                assert k == law.candidate(sign | unused | u, block)
                assert block * width <= abs(k) <= (block + 1) * width
                found.append(k)
    assert sorted(found) == list(range(-blocks * width, blocks * width))


@given(scales, st.integers(0, 200), words)
def test_no_candidate_is_accepted_with_more_than_certainty(scale, block, place):
    law = Law.of(scale)
    assert law.chance(law.candidate(place, block), block, 40)[1] < 1


@given(scales)
def test_at_least_half_of_all_trials_are_kept(scale):
    assert 0.508 < Law.of(scale).kept < 0.585


def test_the_part_that_is_kept_is_the_one_that_is_stated():
    """At a scale where all integers can be added up."""
    law = Law.of(7.3)
    kept = mp.fsum(p_of(law, k, 0) for k in range(-100, 101)) / 2 ** (law.shift + 2)
    assert float(kept) == pytest.approx(law.kept, rel=1e-12)


# The comparison.


@given(scales, st.integers(0, 70), words, st.sampled_from([30, 50, 120]))
def test_the_interval_holds_the_probability_and_is_narrow(scale, block, place, digits):
    law = Law.of(scale)
    k = law.candidate(place, block)
    with localcontext() as context:
        context.prec = 3  # what the user's own decimals do is no matter
        low, high = law.chance(k, block, digits)
    p = p_of(law, k, block)
    assert mp.mpf(low.numerator) / low.denominator < p < mp.mpf(high.numerator) / high.denominator
    assert (high - low) / high <= Fraction(4 * 10**4, 10 ** (digits - 1))


WAYS = {
    "few": (sampler._few, MARGIN),
    "many": (sampler._many, MARGIN),
    "few, exact": (sampler._few, 1.0),
    "many, exact": (sampler._many, 1.0),
}


def outcome(way, law, trial, more=()):
    """The draw that a trial ends with, or 0 where it is refused; all chosen words have been used."""
    draw, margin = WAYS[way]
    bits = Chosen(trial, more)
    found = int(draw(law, 1, bits, margin)[0])
    assert bits.trial == bits.more == []
    return found


def near(p, offset):
    """The first word of a U that is about 2^-64 offset above p."""
    return min(ALL, max(0, int(mp.floor(p * 2**64)) + offset))


@given(
    scales,
    st.integers(0, 63),
    words,
    st.sampled_from([1, 2, 2**10, 2**23, 2**24, 2**24 + 2**12, 2**25, 2**30, 2**50]),
    st.sampled_from([-1, 1]),
)
def test_every_way_decides_as_the_real_numbers_do(scale, block, place, distance, side):
    """U as near p as 2^-64, and just inside and outside of what is left to floats, 2^24 units."""
    law = Law.of(scale)
    k = law.candidate(place, block)
    p = p_of(law, k, block)
    first = near(p, side * distance)
    kept = first < p * 2**64
    if k == 0 or first == int(mp.floor(p * 2**64)):
        return  # 0 is what a refusal ends with; and where the word is that of p, more words are needed: see below
    for way in WAYS:
        assert outcome(way, law, (place, 1 << block, first)) == (k if kept else 0), way


@pytest.mark.parametrize("way", WAYS)
@given(scales, st.integers(0, 8), words, st.integers(0, 3), st.booleans())
def test_as_many_bits_are_drawn_as_it_takes(way, scale, block, place, equal, kept):
    """The words of U are those of p up to one, which is smaller or larger; no more are asked for."""
    law = Law.of(scale)
    k = law.candidate(place, block)
    digits_of_p = int(mp.floor(p_of(law, k, block) * mp.mpf(2) ** (64 * (equal + 2))))
    shared = [digits_of_p >> 64 * (equal + 1 - i) & ALL for i in range(equal + 1)]
    last = digits_of_p & ALL
    if k == 0 or last in (0, ALL):
        return
    # Where the last word differs by one only, the interval around p may need another round.
    last = last // 2 if kept else last + (ALL - last + 1) // 2
    assert outcome(way, law, (place, 1 << block, shared[0]), [*shared[1:], last]) == (k if kept else 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sign", [0, 1])
def test_a_word_of_zeros_goes_on_in_the_next(way, sign):
    """Block 66: p is about 2^-1200, so U has that many zeros first."""
    law = Law.of(1.625 * 2.0**40)
    zeros = 66
    k = law.candidate(5 + (sign << 63), zeros)
    p = p_of(law, k, zeros)
    empty = int(-mp.log(p, 2)) // 64
    assert empty > 15
    assert abs(k) == zeros * 2**40 + 5 + sign
    bits_of_p = int(mp.floor(p * mp.mpf(2) ** (64 * (empty + 1)))) & ALL
    trial, more = (5 + (sign << 63), 0, 0), [4, *[0] * (empty - 1)]
    assert outcome(way, law, trial, [*more, bits_of_p // 2]) == k
    assert outcome(way, law, trial, [*more, bits_of_p + (ALL - bits_of_p) // 2 + 1]) == 0
    if "exact" not in way:
        assert outcome(way, law, (5, 0, 2**25)) == 0  # no more words are needed to see that U is above p


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("sign", "end"), [(0, 2**63 - 1), (1 << 63, -(2**63))])
def test_a_draw_beyond_64_bits_is_moved_to_their_end(way, sign, end, monkeypatch):
    """256 standard deviations: accepted here by force, since p is e^-32768."""
    monkeypatch.setattr(Law, "chance", lambda self, k, block, digits: (Fraction(1), Fraction(1)))
    assert outcome(way, Law.of(2.0**55), (sign, 0, 7), [0, 0, 0, 1]) == end


# All of it together.


@pytest.mark.parametrize("scale", SCALES)
def test_the_same_bits_are_the_same_draws_with_and_without_floats(scale):
    """Far more than the float could get right by luck, had its margin been too small by much."""
    law, size = Law.of(scale), 600
    found = discrete_gaussian(scale, size, stream(1))
    assert found.dtype == np.int64
    assert found.shape == (size,)
    assert np.array_equal(found, sampler._few(law, size, stream(1), MARGIN))
    assert np.array_equal(found, discrete_gaussian(scale, size, stream(1), margin=1.0))


def test_the_number_of_draws_changes_none_of_them():
    """One draw, some, and more than one array of trials."""
    many = discrete_gaussian(2.0**33, 40_000, stream(2))
    for size in (0, 1, 2, 12, 13, 300, 20_000):
        assert np.array_equal(discrete_gaussian(2.0**33, size, stream(2)), many[:size])


def mass_of_integers(scale, reach):
    weight = [mp.exp(-(mp.mpf(k) ** 2) / (2 * mp.mpf(scale) ** 2)) for k in range(-reach, reach + 1)]
    return np.array([float(w / mp.fsum(weight)) for w in weight])


def law_p_value(draws, scale):
    """Chi-square of all single integers, those with fewer than ten expected put together."""
    reach = math.ceil(12 * scale)
    counts, expected = np.bincount(draws + reach, minlength=2 * reach + 1), mass_of_integers(scale, reach) * len(draws)
    rare = expected < 10
    counts, expected = np.append(counts[~rare], counts[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    return stats.chisquare(counts, expected * (counts.sum() / expected.sum())).pvalue


@pytest.mark.parametrize("scale", [1.0, 1.5, 3.0, 10.0])
def test_every_integer_has_its_probability(scale):
    with mp.workdps(40):
        draws = discrete_gaussian(scale, 100_000, stream(3))
        assert law_p_value(draws, scale) > 1e-9
        assert law_p_value(draws, scale * 1.04) < 1e-9
        assert law_p_value(draws, scale / 1.04) < 1e-9


def opendp_draws(scale, size):
    """The discrete Gaussian of OpenDP, an implementation that shares nothing with this one."""
    measurements = pytest.importorskip("opendp.measurements")
    from opendp.domains import atom_domain, vector_domain
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    space = vector_domain(atom_domain(T="i64")), l2_distance(T=float)
    return np.asarray(measurements.make_gaussian(*space, scale=scale)(np.zeros(size, np.int64)), dtype=np.int64)


def same_law_p_value(one, other, scale):
    """Chi-square of two samples: equal cells of the integers near 0 and of those beyond."""
    edges = np.unique(np.ceil(scale * stats.norm.ppf(np.linspace(0, 1, 41)[1:-1])))
    table = np.array([np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1) for x in (one, other)])
    return stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue


@pytest.mark.parametrize("scale", [1.5, 10.0, 2.0**30 / 3])
def test_opendp_draws_from_the_same_law(scale):
    """OpenDP cannot be seeded: a right sampler fails with probability 1e-9."""
    theirs = opendp_draws(scale, 20_000)
    assert same_law_p_value(discrete_gaussian(scale, 20_000, stream(4)), theirs, scale) > 1e-9
    assert same_law_p_value(discrete_gaussian(scale * 1.15, 20_000, stream(4)), theirs, scale) < 1e-9


@pytest.mark.parametrize("scale", [0.99, 0.0, -1.0, 2.0**55 * 1.01, math.inf, math.nan])
def test_other_scales_are_refused(scale):
    with pytest.raises(ValueError, match=r"scale must be in \[1, 2\*\*55\]"):
        discrete_gaussian(scale, 1, stream(5))
