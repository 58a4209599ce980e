"""The smooth bound against its definition, and both of its properties by brute force."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tailguard.kernels import smooth_sensitivity as ss

INF = math.inf
HARD = np.array([-INF, -1.7e308, -1e300, -1.0, 0.0, 0.0, 0.5, 1.0, 1e300, 1.7e308, INF])


def difference(p: float, q: float) -> float:
    return 0.0 if p == q else p - q  # inf - inf is 0, as for two equal values


def definition(x: np.ndarray, m: int, t: float, width: float) -> float:
    """S = max_k e^{-kt} min{B, max_{0<=l<=k+1} (x_(n-m+1+k-l) - x_(m+1-l))/N}, over all k that can matter."""
    n = len(x)

    def order(i: int) -> float:
        return -INF if i < 1 else INF if i > n else float(x[i - 1])

    best = 0.0
    for k in range(m + 2):
        gap = max(difference(order(n - m + 1 + k - l), order(m + 1 - l)) for l in range(k + 2))  # noqa: E741
        best = max(best, math.exp(-k * t) * min(width, gap / (n - 2 * m)))
    return best


def clamped_trimmed_mean(x: tuple[float, ...], m: int, lower: float, upper: float) -> float:
    kept = sorted(x)[m : len(x) - m]
    return float(min(max(sum(map(Fraction, kept)) / len(kept), Fraction(lower)), Fraction(upper)))


def random_column(rng: np.random.Generator, kind: int, n: int) -> np.ndarray:
    if kind == 0:
        return rng.choice(HARD, n)
    if kind == 1:
        return rng.standard_cauchy(n) * 10 ** rng.uniform(-2, 3)
    return np.round(rng.standard_t(1, n))  # ties


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_equals_the_definition(kind: int) -> None:
    rng = np.random.default_rng(kind)
    for _ in range(1200):
        m = int(rng.integers(0, 14))
        n = 2 * m + int(rng.integers(1, 10))
        x = np.sort(random_column(rng, kind, n))
        t, width = 10 ** rng.uniform(-3, 1), 10 ** rng.uniform(-3, 2)
        expected = definition(x, m, t, width)
        assert ss.smooth_sensitivity(x, m, t, width) == pytest.approx(expected, rel=1e-12, abs=0)
        tails = ss.smooth_sensitivity_tails(x[: m + 1], x[n - m - 1 :], n, t, width)
        assert tails == ss.smooth_sensitivity(x, m, t, width)


@pytest.mark.parametrize("width", [0.02, 1.0, 1e3])
@pytest.mark.parametrize("t", [0.0, 0.001, 0.03, 0.5])
def test_equals_the_definition_on_a_larger_trim(t: float, width: float) -> None:
    rng = np.random.default_rng(7)
    for scale in (0.01, 1.0, 100.0):
        x = np.sort(rng.standard_t(2, 260) * scale)
        assert ss.smooth_sensitivity(x, 90, t, width) == pytest.approx(definition(x, 90, t, width), rel=1e-12, abs=0)


def test_edge_cases() -> None:
    assert ss.smooth_sensitivity(np.array([3.0]), 0, 0.1, 2.0) == 2.0  # nothing trimmed: the whole width
    zeros = np.zeros(7)
    assert ss.smooth_sensitivity(zeros, 2, 0.1, 2.0) == pytest.approx(2.0 * math.exp(-0.2), rel=1e-15)
    assert ss.smooth_sensitivity(np.full(7, INF), 2, 0.1, 2.0) == pytest.approx(2.0 * math.exp(-0.2), rel=1e-15)
    ends = np.array([-INF] * 3 + [0.0] + [INF] * 3)
    assert ss.smooth_sensitivity(ends, 2, 0.1, 2.0) == 2.0
    assert ss.smooth_sensitivity(ends, 3, 0.1, 2.0) == 2.0


@pytest.mark.parametrize(("n", "m"), [(3, 1), (4, 1), (5, 1), (5, 2), (6, 2)])
def test_smooth_and_dominating_on_every_pair_of_a_grid(n: int, m: int) -> None:
    values = (-1e300, -1.0, 0.0, 0.4, 1e300) if n < 6 else (-1e300, 0.0, 0.4, 1e300)
    lower, upper = -1.0, 1.5
    columns = list(itertools.combinations_with_replacement(values, n))  # f and S depend on the sorted column only
    for t in (0.05, 0.7):
        f = {x: clamped_trimmed_mean(x, m, lower, upper) for x in columns}
        s = {x: ss.smooth_sensitivity(np.array(x), m, t, upper - lower) for x in columns}
        for x in columns:
            for i, y in itertools.product(range(n), values):
                other = tuple(sorted((*x[:i], y, *x[i + 1 :])))
                assert s[x] <= math.exp(t) * s[other] * (1 + 1e-12)
                assert abs(f[x] - f[other]) <= s[x] * (1 + 1e-12)


def test_the_printed_scale_is_not_smooth_and_this_one_is() -> None:
    """The pair of the counter-example: all zeros against one entry of 1e9."""
    n, m, t, width = 1000, 50, 0.1**2 / 16, 2.0
    x = np.zeros(n)
    y = x.copy()
    y[-1] = 1e9

    def printed(v: np.ndarray) -> float:
        return max((v[-1] - v[0]) / (n - 2 * m), math.exp(-m * t) * width)

    assert printed(y) > 1e5 * printed(x)
    ours = [ss.smooth_sensitivity(v, m, t, width) for v in (x, y)]
    assert max(ours) <= math.exp(t) * min(ours) * (1 + 1e-12)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_guarded_pair_holds_for_computed_means(kind: int) -> None:
    """|f - f'| <= S and S <= e^(t + 2^-40) S' for the float outputs, with NaN, inf, 1e300 and far centres."""
    rng = np.random.default_rng(10 + kind)
    hard = np.append(HARD, math.nan)
    for _ in range(1500):
        m = int(rng.integers(0, 6))
        n = 2 * m + int(rng.integers(1, 9))
        t = 10 ** rng.uniform(-3, 0)
        lower = float(rng.choice([-1.0, 0.0, 1e6, -1e12]))
        upper = lower + float(rng.choice([1e-3, 1.0, 50.0]))
        x = random_column(rng, kind, n) + (lower if kind else 0.0)
        y = x.copy()
        y[rng.integers(n)] = rng.choice(hard) if rng.random() < 0.5 else rng.standard_cauchy() + lower
        (f, s), (g, r) = (ss.private_trimmed_mean_inputs(v, m, t, lower, upper) for v in (x, y))
        assert lower <= f <= upper
        assert abs(f - g) <= min(s, r)
        assert abs(math.log(s / r)) <= t + 2.0**-40 + 1e-15


def test_every_kept_value_huge_is_still_defined() -> None:
    for x in (
        [INF, -INF, INF, -INF, 0.0],
        [math.nan] * 5,
        [1.7e308] * 5,
        [-INF] * 5,
        [1e300, -1e300, 1.0, 1.0, 1.0],
    ):
        f, s = ss.private_trimmed_mean_inputs(np.array(x), 1, 0.3, -1.0, 1.0)
        assert -1.0 <= f <= 1.0
        assert 2.0 * math.exp(-0.3) <= s <= 2.0 + 1e-10
    assert ss.trimmed_mean([INF] * 5, 1, -1.0, 1.0).value == 1.0
    assert ss.trimmed_mean([math.nan] * 5, 1, -1.0, 1.0).value == 0.0


@pytest.mark.parametrize(("n", "m"), [(1, 0), (9, 4), (1000, 0), (1000, 50), (20000, 1000), (20000, 9000)])
def test_trimmed_mean_is_the_trimmed_mean(n: int, m: int) -> None:
    x = np.random.default_rng(n + m).standard_t(3, n)
    mean = ss.trimmed_mean(x, m, -10.0, 10.0)
    ordered = np.sort(x)
    assert mean.value == pytest.approx(math.fsum(ordered[m : n - m]) / (n - 2 * m), abs=20 * (n + 1) * 2.0**-62 + 1e-14)
    step = 20 * (n + 1) * 2.0**-61
    np.testing.assert_allclose(mean.low, ordered[: m + 1], rtol=0, atol=step)
    np.testing.assert_allclose(mean.high, ordered[n - m - 1 :], rtol=0, atol=step)


@pytest.mark.parametrize("arrangement", ["sorted", "reversed", "shuffled", "periodic"])
@pytest.mark.parametrize("ties", [False, True])
def test_the_order_of_the_rows_does_not_matter(arrangement: str, ties: bool) -> None:
    rng = np.random.default_rng(3)
    x = np.round(rng.standard_t(2, 20000), 0 if ties else 12)
    expected = ss.trimmed_mean(x, 700, -5.0, 5.0)
    y = {"sorted": np.sort(x), "reversed": np.sort(x)[::-1], "shuffled": rng.permutation(x)}.get(arrangement)
    if y is None:  # every value that a strided sample sees is large
        y = np.sort(x).reshape(-1, 20, order="F")[:, ::-1].ravel()
    mean = ss.trimmed_mean(y, 700, -5.0, 5.0)
    assert mean.value == expected.value
    np.testing.assert_array_equal(mean.low, expected.low)
    np.testing.assert_array_equal(mean.high, expected.high)


def test_limbs_of_blocks_add_up_exactly() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_cauchy(1001)
    out = np.empty_like(x)
    unit, reach = 2.0**-30, 2.0**20
    whole = ss.snap_column(x, 0.25, reach, unit, out)
    total = sum(Fraction(v) for v in out) / Fraction(unit)
    assert (whole[0] << 31) + whole[1] == total
    parts = [ss.snap_column(b, 0.25, reach, unit, np.empty_like(b)) for b in np.array_split(x, 7)]
    assert (sum(p[0] for p in parts) << 31) + sum(p[1] for p in parts) == total


def test_input_is_not_modified() -> None:
    x = np.random.default_rng(0).standard_normal(50)
    before = x.copy()
    ss.private_trimmed_mean_inputs(x, 5, 0.1, -1.0, 1.0)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((np.zeros(4), 2, 0.1, -1.0, 1.0), "m=2"),
        ((np.zeros(4), -1, 0.1, -1.0, 1.0), "m=-1"),
        ((np.zeros((2, 2)), 0, 0.1, -1.0, 1.0), "shape"),
        ((np.zeros(0), 0, 0.1, -1.0, 1.0), "0 rows"),
        ((np.zeros(4), 1, -0.1, -1.0, 1.0), "t=-0.1"),
        ((np.zeros(4), 1, math.nan, -1.0, 1.0), "t=nan"),
        ((np.zeros(4), 1, 701.0, -1.0, 1.0), "t=701"),
        ((np.zeros(4), 1, 0.1, 1.0, 1.0), "lower=1.0"),
        ((np.zeros(4), 1, 0.1, -INF, 1.0), "lower=-inf"),
        ((np.zeros(4), 1, 0.1, -1e200, 1e200), "1e200"),
    ],
)
def test_refusals_name_the_argument(arguments: tuple, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        ss.private_trimmed_mean_inputs(*arguments)
