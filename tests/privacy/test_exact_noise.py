"""The noise sampler has exactly the law that is priced, and its randomness is the operating system's.

Each test of a law has a power half: samplers that are wrong by a little, in ways that real ones have been wrong, are
refused by the same statistic. The private source cannot be seeded, so a right one fails with probability 1e-9 or less.
"""

import math
import multiprocessing
import os
import pickle
import random
from functools import partial

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr, ndtri

import tailguard as tg
from tailguard.privacy import SystemNoise
from tailguard.privacy.arsinh_normal import exact_normals
from tailguard.privacy.discrete_gaussian import discrete_gaussian

P_VALUE = 1e-9
SIZE = 40_000
SCALE = 2.0**30 / 3


def chi_square(counts, mass):
    """p-value of counts against a law, cells with fewer than ten expected put together."""
    counts, expected = np.asarray(counts, float), np.asarray(mass, float) * np.sum(counts)
    small = expected < 10
    if small.any():
        counts = np.append(counts[~small], counts[small].sum())
        expected = np.append(expected[~small], expected[small].sum())
    return stats.chisquare(counts, expected * (counts.sum() / expected.sum())).pvalue


# On few integers, where every single probability can be seen.


def mass_of_integers(scale, reach=60):
    """P(k) proportional to e^(-k^2 / (2 scale^2)), k = -reach .. reach, in 40 digits."""
    with mp.workdps(40):
        weight = [mp.e ** (-(mp.mpf(k) ** 2) / (2 * mp.mpf(scale) ** 2)) for k in range(-reach, reach + 1)]
        return np.array([float(w / mp.fsum(weight)) for w in weight])


def counts_of_integers(draws, reach=60):
    return np.bincount(np.asarray(draws) + reach, minlength=2 * reach + 1)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_the_sampler_has_every_probability_of_the_discrete_gaussian(scale):
    """The same code that draws on the grid, at scales where each integer is drawn often."""
    draws = discrete_gaussian(scale, SIZE, os.urandom)
    assert chi_square(counts_of_integers(draws), mass_of_integers(scale)) > P_VALUE
    assert chi_square(counts_of_integers(draws), mass_of_integers(scale * 1.08)) < P_VALUE
    assert chi_square(counts_of_integers(draws), mass_of_integers(scale / 1.08)) < P_VALUE


def test_a_rounded_normal_is_not_a_discrete_gaussian_and_is_refused():
    """Where the grid is coarse the two laws differ: this is the difference that the price of the grid pays for."""
    draws = np.rint(0.8 * np.random.default_rng(0).standard_normal(SIZE)).astype(int)
    assert chi_square(counts_of_integers(draws), mass_of_integers(0.8)) < P_VALUE


# On the grid, where single integers are never seen twice: the shape, and the last bits.


def shape_p_value(draws, scale):
    """Chi-square on 62 cells: sixty equal ones and two tails beyond 3 sd."""
    edges = np.concatenate([[-3.0], ndtri(np.linspace(ndtr(-3.0), ndtr(3.0), 61))[1:-1], [3.0]])
    mass = np.diff(np.concatenate([[0.0], ndtr(edges), [1.0]]))
    return chi_square(np.bincount(np.searchsorted(edges, draws / scale), minlength=62), mass)


def last_bits_p_value(draws):
    """Chi-square of the residues modulo 16: the masses of neighbours differ by 1e-8, so they are equal."""
    return chi_square(np.bincount(np.asarray(draws) % 16, minlength=16), np.full(16, 1 / 16))


def p_value(draws, scale=SCALE):
    """Shape, last bits, mean, variance and how many lie beyond 3 sd: the smallest, with Bonferroni's factor."""
    z = draws / scale
    square = stats.chi2(len(z))
    found = (
        shape_p_value(draws, scale),
        last_bits_p_value(draws),
        2 * stats.norm.sf(abs(z.mean()) * math.sqrt(len(z))),
        2 * min(square.cdf(np.sum(z**2)), square.sf(np.sum(z**2))),
        stats.binomtest(int(np.sum(np.abs(z) > 3.0)), len(z), 2 * ndtr(-3.0)).pvalue,
    )
    return len(found) * min(found)


def test_noise_on_the_grid_has_the_shape_and_the_last_bits():
    assert p_value(SystemNoise().discrete_gaussian(SCALE, SIZE)) > P_VALUE


def test_single_draws_have_the_same_law_and_are_independent():
    """Two scales in turn, as a fit asks for them; neighbours are uncorrelated to six standard deviations."""
    source = SystemNoise()
    draws = [source.discrete_gaussian(scale, 1)[0] for _ in range(SIZE // 2) for scale in (SCALE, 4 * SCALE)]
    small, large = np.array(draws[::2]), np.array(draws[1::2])
    assert p_value(small) > P_VALUE
    assert p_value(large, 4 * SCALE) > P_VALUE
    assert p_value(large) < P_VALUE
    for one, other in ((small, large), (small[1:], small[:-1])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 6 / math.sqrt(len(one))


def wrong_samplers():
    rng = np.random.default_rng(1)
    normal = rng.standard_normal(SIZE)
    single = (SCALE * normal).astype(np.float32).astype(np.int64)  # 24 bits
    return {
        "5 % too little": np.rint(0.95 * SCALE * normal),
        "5 % too much": np.rint(1.05 * SCALE * normal),
        "single precision": single.astype(float),
        "a grid of two units": 2 * np.rint(SCALE * normal / 2),
        "truncated at 3 sd": np.rint(SCALE * np.clip(normal, -3.0, 3.0)),
        "no tails beyond 3 sd": np.rint(SCALE * stats.truncnorm(-3, 3).rvs(SIZE, random_state=rng)),
        "logistic": np.rint(SCALE * rng.logistic(scale=math.sqrt(3) / math.pi, size=SIZE)),
        "a sum of four uniforms": np.rint(SCALE * math.sqrt(3) * (rng.random((SIZE, 4)).sum(axis=1) - 2.0)),
        "off centre": np.rint(SCALE * (normal + 0.05)),
        "always odd": (np.rint(SCALE * normal).astype(np.int64) | 1).astype(float),
    }


@pytest.mark.parametrize("name", wrong_samplers())
def test_samplers_that_are_a_little_wrong_are_refused(name):
    assert p_value(wrong_samplers()[name].astype(np.int64)) < P_VALUE


def bit_p_value(words, bits):
    """Smallest p-value of all bits being fair, and of neighbouring bits being independent; Bonferroni."""
    table = (words[:, None] >> np.arange(bits, dtype=np.uint64)) & np.uint64(1)
    fair = np.concatenate([table.sum(axis=0), (table[:, 1:] ^ table[:, :-1]).sum(axis=0)]).astype(int)
    z = np.abs(fair - len(words) / 2) / math.sqrt(len(words) / 4)
    return float(np.min(stats.norm.sf(z)) * 2 * len(fair))


def test_every_bit_of_a_uniform_is_fair():
    words = (SystemNoise().uniform(SIZE) * 2.0**53).astype(np.uint64)
    assert bit_p_value(words, 53) > P_VALUE
    rng = np.random.default_rng(2)
    for wrong in (rng.random(SIZE, dtype=np.float32).astype(float), np.sqrt(rng.random(SIZE))):
        assert bit_p_value((wrong * 2.0**53).astype(np.uint64), 53) < P_VALUE


def order_p_value(orders):
    code = np.array(orders) @ 4 ** np.arange(4)
    return chi_square(np.unique(code, return_counts=True)[1], np.full(24, 1 / 24))


def test_every_order_of_the_rows_is_equally_likely():
    source, rng = SystemNoise(), np.random.default_rng(3)
    assert order_p_value([source.permutation(4) for _ in range(6000)]) > P_VALUE

    def naive():  # the well-known wrong shuffle: every place is swapped with any
        order = list(range(4))
        for i in range(4):
            j = int(rng.integers(4))
            order[i], order[j] = order[j], order[i]
        return order

    assert order_p_value([naive() for _ in range(6000)]) < P_VALUE


def test_exact_normals_are_normal_and_use_all_their_bits():
    draws = exact_normals(SystemNoise(), 20_000)
    normal = np.array([float(draw) for draw in draws])
    assert shape_p_value(normal, 1.0) > P_VALUE
    assert shape_p_value(1.15 * normal, 1.0) < P_VALUE
    # The fraction of a step of 2^-50, which a float would not hold, is uniform.
    fraction = np.array([float((draw * 2**50 + 2**60) % 1) for draw in draws[:4000]])
    assert stats.kstest(fraction, "uniform").pvalue > P_VALUE
    assert stats.kstest(fraction**1.2, "uniform").pvalue < P_VALUE


# Where randomness comes from.


def draw_everything(source):
    return (
        source.discrete_gaussian(2.0**40, 2).tolist(),
        source.uniform(2).tolist(),
        source.normal(2).tolist(),
        source.bernoulli(200, 0.5).tolist(),
        source.permutation(60).tolist(),
    )


def test_no_seed_of_the_process_reaches_the_private_source():
    """p < 2^-39 for the first, less for the others."""
    runs = []
    for _ in range(2):
        random.seed(0)
        np.random.seed(0)
        runs.append(draw_everything(SystemNoise()))
    assert all(one != other for one, other in zip(*runs, strict=True))


def test_bits_are_those_of_the_operating_system(monkeypatch):
    """All that is drawn is a function of os.urandom: the same bytes, the same draws."""
    runs = []
    for seed in (0, 0, 1):
        monkeypatch.setattr(os, "urandom", np.random.default_rng(seed).bytes)
        runs.append(draw_everything(SystemNoise()))
    assert runs[0] == runs[1]
    assert all(one != other for one, other in zip(runs[1], runs[2], strict=True))


def test_no_more_bits_are_drawn_than_are_looked_at(monkeypatch):
    asked = []

    def zeros(size):
        asked.append(size)
        return bytes(size)

    monkeypatch.setattr(os, "urandom", zeros)
    source = SystemNoise()
    assert source.uniform(3).tolist() == [0.0, 0.0, 0.0]
    assert len(source.bernoulli(100, 0.25)) == 100
    assert np.array_equal(source.permutation(9), source.permutation(9))
    assert asked == [24, 400] + 4 * [72]  # an order is that of 128 bits for each, in two words


TABLE = np.random.default_rng(4).standard_normal((300, 2))


def fit_once(_=None, method="clipped"):
    """What a worker of a grid search does, without a seed."""
    clip = {"clip": 1.0} if method == "clipped" else {}
    model = tg.PrivateRidge(method=method, epsilon=20.0, **clip).fit(TABLE, TABLE[:, 0])
    return tuple(model.coef_), tg.private_mean(TABLE[:, 0], 1.0, method="clipped", clip=1.0).value


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["clipped", "auto"])
def test_forked_workers_never_share_a_stream(method):
    """Estimators in the workers of a pool that was forked after the parent had drawn."""
    here = [fit_once(method=method) for _ in range(2)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        there = pool.map_async(partial(fit_once, method=method), range(6), chunksize=1).get(120)
    found = here + there
    assert len({coef for coef, _ in found}) == len(found)
    assert len({mean for _, mean in found}) == len(found)


@pytest.mark.parametrize("method", ["auto", "clipped"])
def test_a_pickled_estimator_carries_no_noise(method):
    """Neither before a fit nor after: copies draw anew, and there is no generator in the bytes."""
    clip = {"clip": 1.0} if method == "clipped" else {}
    model = tg.PrivateRidge(method=method, epsilon=20.0, **clip)
    copies = [pickle.loads(pickle.dumps(model)).fit(TABLE, TABLE[:, 0]) for _ in range(3)]
    assert len({tuple(copy.coef_) for copy in copies}) == 3
    for fitted in copies:
        text = pickle.dumps(fitted)
        for word in (b"Noise", b"enerator", b"andomState", b"PCG64", b"SeedSequence"):
            assert word not in text
        again = [pickle.loads(text).fit(TABLE, TABLE[:, 0]) for _ in range(2)]
        assert not np.array_equal(again[0].coef_, again[1].coef_)
    seeded = pickle.dumps(tg.PrivateRidge(random_state=np.random.default_rng(0)))
    assert b"PCG64" in seeded  # power: a generator that the user put there is found
