"""Centre of attention: sensitivity, smoothness, calibration, refusal, audit."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from tailguard.auditing import epsilon_from_outputs
from tailguard.means import centre as module
from tailguard.means.centre import (
    TooFewBlocksError,
    centre_of_attention,
    centre_parameters,
    check_blocks,
)

AWKWARD = [0.0, 1e-320, 1.0, -3.0, 1e6, 1e308, -1e308, np.inf, -np.inf, np.nan]


class Source:
    """Stand-in for the noise source of the package."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def discrete_gaussian(self, scale, size):
        assert 2.0**20 <= scale <= 2.0**55
        return np.rint(scale * self._rng.standard_normal(size)).astype(np.int64)


class Silent:
    def discrete_gaussian(self, scale, size):
        return np.zeros(size, np.int64)


def score_by_definition(points, diameter, q, decay, largest=False):
    """Centre and score from the definition, with every k up to 3m written out."""
    m = len(points)
    t0 = (m + 1) // 2 + 1
    radius = [sorted(math.dist(a, b) for b in points) for a in points]

    def rho(t):
        values = sorted((r[t - 1] if t <= m else diameter for r in radius), reverse=largest)
        return math.fsum(values[:q]) / q

    index = min(range(m), key=lambda i: radius[i][t0 - 1])
    return index, 2 * max(math.exp(-decay * k) * rho(t0 + k + 1) for k in range(3 * m))


def neighbours(rng, m, d, diameter):
    """Two clamped arrays that differ in one block: lumps, ties, tails and awkward values."""
    lumps = rng.normal(size=(4, d)) * diameter / 4
    one = lumps[rng.integers(4, size=m)]
    kind = rng.integers(4)
    if kind == 1:
        one = rng.standard_t(1.5, size=(m, d)) * diameter / 20
    elif kind == 2:
        one = rng.choice([*AWKWARD, 0.0, 0.0, diameter / 2], size=(m, d))
    elif kind == 3:
        one = one + rng.normal(size=(m, d)) * diameter / 100
    other = one.copy()
    candidates = [rng.choice(AWKWARD, size=d), lumps[rng.integers(4)], -one[rng.integers(m)], np.full(d, np.nan)]
    other[rng.integers(m)] = candidates[rng.integers(4)]
    return tuple(module._clamp_rows(z, diameter, np.zeros(d)) for z in (one, other))


@pytest.mark.parametrize("d", [1, 3])
def test_centre_and_score_equal_their_definition(d):
    rng = np.random.default_rng(0)
    for m in (5, 6, 11, 20):
        for _ in range(10):
            points = neighbours(rng, m, d, 2.0)[0]
            q, decay = int(rng.integers(2, (m + 1) // 2 + 1)), float(rng.uniform(0.01, 0.5))
            index, score = module._centre_and_score(points, 2.0, q, decay)
            wanted_index, wanted = score_by_definition(points, 2.0, q, decay)
            assert score == pytest.approx(max(wanted, 2 * module._FLOOR * 2.0), rel=1e-8)
            t0 = (m + 1) // 2 + 1
            radii = np.sort(np.linalg.norm(points[:, None] - points[None], axis=2), axis=1)[:, t0 - 1]
            assert radii[index] == pytest.approx(radii[wanted_index], rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("d", [1, 2, 6])
def test_shift_and_smoothness_over_random_and_awkward_neighbours(d):
    rng = np.random.default_rng(d)
    beyond_decay = 0
    for _ in range(1500):
        m = int(rng.integers(5, 30))
        q, decay = int(rng.integers(2, (m + 1) // 2 + 1)), float(rng.choice([0.02, 0.2, 0.5]))
        one, other = neighbours(rng, m, d, 2.0)
        i, s = module._centre_and_score(one, 2.0, q, decay)
        k, t = module._centre_and_score(other, 2.0, q, decay)
        assert np.linalg.norm(one[i] - other[k]) <= min(s, t)
        assert abs(math.log(s / t)) <= decay + math.log1p(1 / q) + 1e-9
        beyond_decay += abs(math.log(s / t)) > decay * 1.01
    assert d > 1 or beyond_decay > 0


def test_score_is_not_decay_smooth():
    """q = ceil(1/decay): the log of the ratio is 1.36 decay, between decay and 2 decay."""
    decay = 0.3
    one = np.array([-10.0, 10, -10, 10, 3, 3, 10])[:, None]
    other = np.array([0.0, 10, -10, 10, 3, 3, 10])[:, None]
    ratio = math.log(
        module._centre_and_score(one, 20.0, 4, decay)[1] / module._centre_and_score(other, 20.0, 4, decay)[1]
    )
    assert 1.3 * decay < abs(ratio) < 2 * decay


def test_largest_radii_would_not_be_smooth():
    one, other = np.zeros((41, 1)), np.zeros((41, 1))
    other[0] = 1.0
    pair = [score_by_definition(z, 1.0, 4, 0.5, largest=True)[1] for z in (one, other)]
    assert math.log(pair[1] / pair[0]) > 5
    pair = [score_by_definition(z, 1.0, 4, 0.5)[1] for z in (one, other)]
    assert math.log(pair[1] / pair[0]) == pytest.approx(0.5)


def test_two_lumps_flip_and_shift_stays_within_the_score():
    """The worst shift: the majority changes side with one block."""
    for m in (10, 11, 30, 31):
        q = (m + 1) // 2
        for left in range(m + 1):
            one = np.where(np.arange(m) < left, -0.5, 0.5)[:, None]
            for j in range(m):
                other = one.copy()
                other[j] *= -1
                i, s = module._centre_and_score(one, 1.0, q, 0.1)
                k, t = module._centre_and_score(other, 1.0, q, 0.1)
                assert abs(one[i, 0] - other[k, 0]) <= min(s, t)
                assert abs(math.log(s / t)) <= 0.1 + math.log1p(1 / q)


def two_ends_and_a_middle(m, q, d):
    """Neighbours whose centre jumps from one end to the other, over the q answers in the middle."""
    t0 = (m + 1) // 2 + 1
    one = np.zeros((m, d))
    one[: t0 - q, 0] = -1.0
    one[t0 - q : m - q, 0] = 1.0
    other = one.copy()
    other[t0 - q - 1, 0] = 1.0
    return one, other


def test_shift_bound_is_reached():
    p = centre_parameters(1.0, 1e-5, 10)
    one, other = two_ends_and_a_middle(p.smallest_m, p.q, 10)
    i, s = module._centre_and_score(one, 2.0, p.q, p.decay)
    k, t = module._centre_and_score(other, 2.0, p.q, p.decay)
    assert np.linalg.norm(one[i] - other[k]) == pytest.approx(s, rel=1e-8) == pytest.approx(t, rel=1e-8)


def hockey_stick_by_quadrature(epsilon, d, gamma, beta, wide_first):
    """Independent oracle: integrate over x1; the other coordinates give a central chi-square (d >= 2)."""
    mp = mpmath.mp.clone()
    mp.dps = 20
    w = mp.exp(2 * beta)
    sign = 1 if wide_first else -1

    def inner(x):
        # log(wide/narrow) = -d beta + (|x|^2 - |x - gamma|^2/w)/2 >= sign * epsilon, solved for y = |rest|^2
        y = 2 * (sign * epsilon + d * beta - (x**2 - (x - gamma) ** 2 / w) / 2) / (1 - 1 / w)
        y = max(y, mp.mpf(0))
        half = mp.mpf(d - 1) / 2
        low = (0, y / 2, 0, y / (2 * w)) if not wide_first else (y / 2, mp.inf, y / (2 * w), mp.inf)
        narrow = mp.npdf(x) * mp.gammainc(half, low[0], low[1], regularized=True)
        wide = mp.npdf(x, gamma, mp.sqrt(w)) * mp.gammainc(half, low[2], low[3], regularized=True)
        first, second = (wide, narrow) if wide_first else (narrow, wide)
        return first - mp.exp(epsilon) * second

    return float(mp.quad(inner, mp.linspace(-14, 14, 29)))


@pytest.mark.parametrize(
    ("epsilon", "d", "gamma", "beta"), [(1.0, 10, 0.178, 0.02), (0.5, 2, 0.3, 0.2), (0.2, 60, 0.03, 0.02)]
)
@pytest.mark.parametrize("wide_first", [True, False])
def test_hockey_stick_agrees_with_quadrature_from_above(epsilon, d, gamma, beta, wide_first):
    got = module._hockey_stick(epsilon, d, gamma, beta, wide_first=wide_first)
    wanted = hockey_stick_by_quadrature(epsilon, d, gamma, beta, wide_first)
    assert wanted - 1e-15 <= got <= wanted * (1 + 1e-3) + 1e-14


@pytest.mark.parametrize(("x", "noncentrality", "d"), [(30.0, 5.0, 3), (480.0, 400.0, 10), (2400.0, 2000.0, 51)])
def test_chi_square_series_against_mpmath(x, noncentrality, d):
    mp = mpmath.mp.clone()
    mp.dps = 30
    h = mp.mpf(noncentrality) / 2
    centre, reach = int(noncentrality / 2), int(8 * math.sqrt(noncentrality)) + 60
    terms = range(max(0, centre - reach), centre + reach, 1)

    def total(low, high):
        return mp.fsum(
            mp.exp(j * mp.log(h) - h - mp.loggamma(j + 1)) * mp.gammainc(mp.mpf(d) / 2 + j, low, high, regularized=True)
            for j in terms
        )

    half = mp.mpf(x) / 2
    assert module._chi_square(x, noncentrality, d, above=True) == pytest.approx(float(total(half, mp.inf)), rel=1e-10)
    below = 0.8 * half
    got = module._chi_square(float(2 * below), noncentrality, d, above=False)
    assert got == pytest.approx(float(total(0, below)), rel=1e-10)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("d", [1, 10, 100])
def test_certificate_covers_every_smaller_shift_and_scale_in_both_orders(epsilon, d):
    """Lemma 3 on a grid, and the certificate is not slack: 1.02 beta fails."""
    delta = 1e-5
    p = centre_parameters(epsilon, delta, d)
    assert p.gamma**2 <= 2 * epsilon
    for gamma in p.gamma * np.array([0.1, 0.5, 0.9, 1.0]):
        for beta in p.beta * np.array([0.05, 0.2, 0.5, 0.8, 1.0]):
            for wide_first in (True, False):
                assert module._hockey_stick(epsilon, d, gamma, beta, wide_first=wide_first) <= delta
    assert not module._certified(epsilon, delta, d, p.gamma, 1.02 * p.beta)
    assert p.decay + math.log1p(1 / p.q) < p.beta <= 0.5


def test_better_constants_than_the_published_ones():
    for epsilon in (0.5, 1.0):
        for d in (2, 5, 10, 100):
            p = centre_parameters(epsilon, 1e-5, d)
            log = math.log(2 / 1e-5)
            assert p.gamma > 4 * epsilon / (5 * math.sqrt(2 * log))
            assert p.beta > 1.3 * epsilon / (4 * (d + log))


def test_smallest_m_is_the_first_that_satisfies_the_conditions():
    for epsilon, d, resolution in ((1.0, 10, 0.01), (1.0, 2, 0.2), (4.0, 3, 1e-4), (0.5, 5, 0.05)):
        p = centre_parameters(epsilon, 1e-5, d, resolution=resolution)

        def works(m, p=p):
            t0 = (m + 1) // 2 + 1
            return t0 >= p.q + 1 and math.exp(-p.decay * (m - t0)) <= p.resolution

        assert next(m for m in range(2, 10_000) if works(m)) == p.smallest_m
        assert all(works(m) for m in range(p.smallest_m, p.smallest_m + 50))
        assert p.floor(p.smallest_m) <= 2 * resolution / p.gamma


def test_refusal_names_smallest_m_n_and_largest_d():
    p = centre_parameters(1.0, 1e-5, 10)
    with pytest.raises(TooFewBlocksError, match=f"m=560 .*m >= {p.smallest_m} .*n >= {50 * p.smallest_m} rows") as info:
        check_blocks(560, p, rows_per_block=50)
    error = info.value
    assert error.smallest_m == p.smallest_m
    assert error.smallest_n == 50 * p.smallest_m
    assert f"at most d={error.largest_d} " in str(error)
    assert centre_parameters(1.0, 1e-5, error.largest_d).smallest_m <= 560
    assert centre_parameters(1.0, 1e-5, error.largest_d + 1).smallest_m > 560
    check_blocks(p.smallest_m, p)
    with pytest.raises(TooFewBlocksError, match="no d works") as info:
        centre_of_attention(np.zeros((20, 10)), 1.0, p, Source(0))
    assert info.value.largest_d == 0
    assert isinstance(info.value, ValueError)


def test_two_thousand_blocks_in_ten_dimensions():
    """Answers N(w, 0.3^2 I): noise sd per coordinate is near 2 radius/gamma, radius about 0.3 sqrt(1.4 d)."""
    p = centre_parameters(1.0, 1e-5, 10)
    rng = np.random.default_rng(0)
    w = rng.normal(size=10) / 2
    Z = w + 0.3 * rng.standard_normal((2000, 10))
    points = module._clamp_rows(Z, 100.0, np.zeros(10))
    index, score = module._centre_and_score(points, 100.0, p.q, p.decay)
    assert np.linalg.norm(points[index] - w) < 0.6
    assert score / 2 == pytest.approx(0.3 * math.sqrt(1.4 * 10), rel=0.15)
    out = centre_of_attention(Z, 100.0, p, Source(1))
    again = points[index] + score / p.gamma * np.random.default_rng(1).standard_normal(10)
    np.testing.assert_allclose(out, again, atol=100 * 2.0**-44)
    # The error is that of the noise, and of nothing else.
    assert np.linalg.norm(out - w) < 6 * score / p.gamma * math.sqrt(10)


def test_noise_has_the_sd_score_over_gamma_and_the_test_would_notice():
    """Sum of 20,000 squares, two-sided p-value 1e-4; 2/3 and 3/2 of the sd are rejected."""
    p = centre_parameters(1.0, 1e-5, 10)
    noise = Source(0)
    x = np.concatenate([module._release(np.ones(10), 0.3, 4.0, p.gamma, noise) for _ in range(2000)]) - 1
    for factor, accepted in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        square = float(((x * factor / (0.3 / p.gamma)) ** 2).sum())
        tail = min(stats.chi2.sf(square, x.size), stats.chi2.cdf(square, x.size))
        assert (tail > 0.5e-4) == accepted


def test_outliers_below_a_minority_do_not_move_the_result():
    p = centre_parameters(4.0, 1e-3, 2)
    m = 2 * p.smallest_m
    Z = np.random.default_rng(0).normal(scale=1e-3, size=(m, 2))
    Z[: m // 10] = np.resize(AWKWARD, (m // 10, 2))
    assert np.abs(centre_of_attention(Z, 10.0, p, Silent())).max() < 0.01


def log_likelihood_ratios(one, other, diameter, parameters, runs, inflate=1.0):
    """Draw outputs on both sides and reduce each to the log-likelihood ratio, the strongest statistic."""
    pairs = []
    for z in (one, other):
        i, s = module._centre_and_score(z, diameter, parameters.q, parameters.decay)
        pairs.append((z[i], s))
    d = one.shape[1]
    (c, s), (e, t) = pairs
    result = []
    for seed, (centre, score) in enumerate(pairs):
        noise = Source(seed)
        x = np.array([module._release(centre, score, diameter, parameters.gamma * inflate, noise) for _ in range(runs)])
        ratio = ((x - e) ** 2).sum(axis=1) / t**2 - ((x - c) ** 2).sum(axis=1) / s**2
        result.append(d * math.log(t / s) + ratio * (parameters.gamma * inflate) ** 2 / 2)
    return result


def test_audit_on_worst_case_neighbours():
    """20,000 runs a side: 99 % lower bound below epsilon, and a release with a sixth of the noise is caught."""
    p = centre_parameters(1.0, 1e-5, 10)
    m = p.smallest_m
    t0 = (m + 1) // 2 + 1
    jump = two_ends_and_a_middle(m, p.q, 10)
    few = np.zeros((m, 10))
    few[: (m - t0) // 2, 0] = 1.0  # the score is 2 diameter e^{-decay k}: one more outlier scales it by e^decay
    more = few.copy()
    more[(m - t0) // 2, 0] = 1.0
    for one, other in (jump, (few, more)):
        assert epsilon_from_outputs(*log_likelihood_ratios(one, other, 2.0, p, 20_000), p.delta) < p.epsilon
    wrong = log_likelihood_ratios(*jump, 2.0, p, 20_000, inflate=6.0)
    assert epsilon_from_outputs(*wrong, p.delta) > p.epsilon


def test_clamp_maps_each_row_by_itself_into_the_ball():
    rng = np.random.default_rng(0)
    anchor = np.array([1.0, -2.0, 0.5])
    Z = np.concatenate([rng.choice(AWKWARD, size=(500, 3)), anchor + rng.normal(size=(500, 3)) / 3])
    points = module._clamp_rows(Z, 2.0, anchor)
    assert np.isfinite(points).all()
    norm = np.linalg.norm(points, axis=1)
    assert norm.max() <= 1 + 1e-15
    inside = np.linalg.norm(Z[500:] - anchor, axis=1) < 1
    np.testing.assert_allclose(points[500:][inside], (Z[500:] - anchor)[inside], rtol=1e-12, atol=1e-15)
    assert np.all(points[~np.isfinite(Z).all(axis=1)] == 0)
    single = np.concatenate([module._clamp_rows(row[None], 2.0, anchor) for row in Z])
    np.testing.assert_array_equal(points, single)


def test_equal_answers_get_noise_and_results_lie_on_the_grid():
    p = centre_parameters(4.0, 1e-3, 3)
    Z = np.full((p.smallest_m * 20, 3), 0.125)
    out = np.array([centre_of_attention(Z, 1.0, p, Source(seed)) for seed in range(3)])
    assert np.unique(out).size == 9
    grid = out * 2.0 ** (50 + math.frexp(p.gamma)[1])
    np.testing.assert_array_equal(grid, np.rint(grid))
    shifted = centre_of_attention(Z + 5.0, 1.0, p, Silent(), anchor=[5.0, 5.0, 5.0])
    np.testing.assert_allclose(shifted, 5.125, rtol=1e-12)


def test_memory_is_not_m_m_d():
    import tracemalloc

    Z = np.random.default_rng(0).normal(size=(1500, 50))
    tracemalloc.start()
    module._centre_and_score(Z, 100.0, 200, 0.01)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * 8 * 1500**2  # a (m, m, d) temporary would be 50 * 8 * m^2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Z": np.zeros((900, 2))}, "Z has shape"),
        ({"Z": np.zeros(900)}, "Z has shape"),
        ({"diameter": 0.0}, "diameter=0.0"),
        ({"diameter": math.nan}, "diameter=nan"),
        ({"anchor": [0.0]}, "anchor="),
        ({"anchor": [math.nan] * 10}, "anchor="),
    ],
)
def test_public_errors_name_argument_and_value(change, message):
    parameters = centre_parameters(1.0, 1e-5, 10)
    arguments = {"Z": np.zeros((900, 10)), "diameter": 1.0, "parameters": parameters, "noise": Source(0)} | change
    with pytest.raises(ValueError, match=message):
        centre_of_attention(**arguments)


@pytest.mark.parametrize(
    "change", [{"epsilon": 0.0}, {"epsilon": math.nan}, {"delta": 1.0}, {"d": 0}, {"d": 2.5}, {"share": 1.0}]
)
def test_parameters_refuse(change):
    with pytest.raises(ValueError, match=f"{next(iter(change))}="):
        centre_parameters(**({"epsilon": 1.0, "delta": 1e-5, "d": 2} | change))
