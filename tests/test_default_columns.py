"""Stage A: what noisy histograms say, and columns wherever they lie."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tailguard.default import readings
from tailguard.default.columns import Columns, Looks, Tails, locate
from tailguard.default.readings import NEAR, read_first, read_later, read_near
from tailguard.default.rows import TOPS, first_look, later_look, near_look
from tailguard.engines.memory import InMemory
from tailguard.means.queries import Queries
from tailguard.privacy import Account, Budget, SeededNoise

N = 4000


def found(X: np.ndarray, seed: int, mu: float = 1.0, **tails) -> Columns:
    """Columns as located with a tenth of a budget, as in a fit."""
    queries = Queries(InMemory(X, np.zeros(len(X)), 1), Account(Budget(mu=mu)), SeededNoise(seed))
    with np.errstate(all="ignore"):
        return locate(queries, "features", X.shape[1], Looks(0.07, 0.04), tails=Tails(**{"wide": 16.0} | tails))


def shapes(seed: int) -> np.ndarray:
    """Columns of variance 1 about 0: normal, heavy-tailed, bounded, of few values, half of them one value."""
    rng = np.random.default_rng(seed)
    atom = np.where(rng.random(N) < 0.5, 0.0, math.sqrt(2.0) * rng.standard_normal(N))
    columns = [rng.standard_normal(N), rng.standard_t(3, N) / math.sqrt(3.0), rng.uniform(-1.73, 1.73, N)]
    return np.column_stack([*columns, rng.integers(0, 5, N) / math.sqrt(2.0) - math.sqrt(2.0), atom])


# Noise of a mean is at most .06 bounds at this budget, .25 sd if the bound is 4 sd: .9 is beyond any luck.
@pytest.mark.parametrize("shift", [0.0, 3.0, -30.0, 1e3, -1e5, 1e7])
def test_columns_are_found_wherever_they_lie(shift):
    for seed in range(3):
        X = shift + shapes(seed)
        columns = found(X, seed, mu=2.0)
        assert columns.seen.all()
        assert np.all(np.abs(columns.mean - shift) < 0.9)
        assert np.all((columns.scale > 0.35) & (columns.scale < 2.5))
        inside = np.abs(X - columns.centre) <= columns.reach
        assert np.all(inside.mean(axis=0) > 0.95)


def test_far_columns_are_found_with_a_small_budget():
    """At n mu = 1600: if they were given up as constants their scales would be hundreds."""
    scale = np.concatenate([found(1000.0 + shapes(seed), seed, mu=0.4).scale for seed in range(6)])
    assert np.mean((scale > 0.3) & (scale < 4.0)) > 0.7


@pytest.mark.parametrize("scale", [1e-290, 1e-30, 1e40, 1e280])
def test_columns_beyond_the_fine_bins_are_found_too(scale):
    columns = found(scale * (20.0 + shapes(0)), 1, mu=2.0)
    assert columns.seen.all()
    assert np.all(np.abs(columns.mean / scale - 20.0) < 0.9)
    assert np.all((columns.scale / scale > 0.35) & (columns.scale / scale < 2.5))


@pytest.mark.parametrize("rest", [0.0, 0.02])
def test_one_value_and_little_else_has_no_scale_of_its_own(rest):
    """Closer and closer looks at a constant must not end in a scale of rounding errors, with all else far beyond."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = 500.0 + np.where(rng.random((N, 2)) < rest, rng.lognormal(0.0, 2.0, (N, 2)), 0.0)
        columns = found(X, seed)
        assert np.all(columns.scale > 0.5)
        assert np.all(np.abs(columns.standardise(X)) < 100.0)


def test_one_value_and_others_have_the_scale_of_all():
    """Four of five rows are 20, the others 10 to 200: with little budget a closer look at 20 was all that was seen.

    Of 300 tables 66 had a column with a scale below .3, all of them below .01; now 1 has.
    """
    lost = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.choice([20.0, 10.0, 50.0, 100.0, 200.0], (N, 2), p=[0.82, 0.07, 0.04, 0.04, 0.03])
        lost += bool(np.any(found(X, seed, mu=0.25).scale < 0.3))
    assert lost <= 3


def test_codes_one_and_two_are_as_good_as_zero_and_one():
    rng = np.random.default_rng(0)
    X = 1.0 + (rng.random((N, 1)) < 0.2)
    columns = found(X, 0, mu=2.0)
    assert 0.25 < columns.scale[0] < 0.8
    assert columns.lower[0] <= 1.0
    assert columns.upper[0] >= 2.0


def counts(Z: np.ndarray, sd: float, rng: np.random.Generator) -> np.ndarray:
    exact = first_look(Z[:, None])[0] / len(Z)
    return exact + sd * rng.standard_normal(len(exact))


def test_signs_and_shares_have_the_scale_of_their_values():
    """A bound of 1 with a sharp end is not only that of 0/1 columns: their variance would be that of noise."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        signs, more = rng.choice([-1.0, 1.0], (N, 2)), np.where(rng.random(N) < 0.8, 1.0, -1.0)
        share, wide = rng.random(N), rng.uniform(-1.0, 1.0, N)
        narrow, full = rng.uniform(0.9, 1.0, N), np.minimum(rng.normal(0.97, 0.01, N), 1.0)
        X = np.column_stack([signs[:, 0], more, share, wide, rng.beta(2.0, 2.0, N), narrow, full])
        ratio = found(X, seed, mu=4.0).scale / X.std(axis=0)
        assert np.all((ratio > 0.8) & (ratio < 1.4))


def test_rare_columns_are_told_however_they_are_coded():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        seldom = rng.random((N, 3)) < 0.05
        X = np.column_stack([seldom * [1.0, 3.0, -100.0], rng.choice([-1.0, 1.0], N), rng.normal(size=(N, 2))])
        rare = found(X, seed, mu=4.0).rare
        assert rare is not None
        assert rare.tolist() == [True, True, True, True, False, False]


def test_the_spread_of_a_heavy_tail_is_asked_for_again():
    """Log-normal amounts, a fifth of them 0: without a second look their scale is that of the bulk."""
    without, again = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = np.where(rng.random((5 * N, 12)) < 0.2, 0.0, rng.lognormal(8.0, 2.0, (5 * N, 12)))
        without.append(found(X, seed, mu=0.22).scale / X.std(axis=0))
        again.append(found(X, seed, mu=0.22, octaves=(-1.0, 2.0), spread=True).scale / X.std(axis=0))
    assert np.all(np.array(again) >= np.array(without))
    assert np.median(again) > 1.5 * np.median(without)
    assert np.max(again) < 2.0


def test_the_power_of_a_tail_tells_the_heavy_from_the_light():
    """Means over noise: normal above Student's t with 3 degrees above log-normal payments."""
    rng = np.random.default_rng(1)
    draws = {
        "normal": rng.standard_normal(20_000),
        "t3": rng.standard_t(3, 20_000),
        "payments": rng.lognormal(7.0, 1.8, 20_000),
    }
    power = {
        name: np.mean([read_first(counts(draw, 0.007, rng), 0.007).power for _ in range(50)])
        for name, draw in draws.items()
    }
    assert power["normal"] > power["t3"] + 0.05
    assert power["t3"] > power["payments"] + 0.2
    assert power["payments"] < 1.35 < power["t3"]


def test_noise_makes_a_tail_look_heavier_not_lighter():
    rng, draw = np.random.default_rng(2), np.random.default_rng(3).standard_normal(20_000)
    known, noisy = (
        np.median([read_first(counts(draw, sd, rng), sd).power for _ in range(100)]) for sd in (0.002, 0.03)
    )
    assert noisy < known


def test_where_asked_for_a_light_tail_is_truncated_further_out():
    """Than one in which a size t is exceeded with a probability like 1/t."""
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.standard_t(3, 20_000), rng.standard_cauchy(20_000)])
    ratio = found(X, 0, octaves=(0.0, 2.0)).reach / found(X, 0).reach
    assert ratio[0] > 2.0
    assert ratio[1] == 1.0


def test_an_end_is_sharp_only_if_it_surely_is():
    """Four zeros of five and a log-normal: cut at its last bin it loses .58 of its variance, once in 200 columns."""
    rng = np.random.default_rng(6)
    Z = np.where(rng.random(20_000) < 0.8, 0.0, rng.lognormal(0.0, 1.0, 20_000))
    ends = [read_first(counts(Z, 0.014, rng), 0.014) for _ in range(4000)]
    # Expected are 3 of 4000, and were 21; 12 or more happen once in 20,000.
    assert sum(reading.seen and not reading.soft for reading in ends) < 12


@pytest.mark.parametrize("prevalence", [0.05, 0.14, 0.5, 0.95])
def test_zeros_and_ones_end_at_one(prevalence):
    """Whatever noise puts into the next bin, which the rule for tails alone takes for one in a third of the cases."""
    rng = np.random.default_rng(5)
    Z = np.where(np.arange(10_000) < 10_000 * prevalence, 1.0, 0.0)
    ends = [read_first(counts(Z, 0.012, rng), 0.012) for _ in range(300)]
    seen = [reading for reading in ends if reading.seen and reading.top == 0.0]
    # Zeros and ones together have the noise of two bins: they lack four standard deviations once in four hundred.
    assert np.mean([not reading.soft for reading in seen]) > 0.97


def test_a_later_look_is_not_fooled_by_noise():
    """Forty bins, most of them empty: 3.5 standard deviations are exceeded in one look in a hundred."""
    rng, sd = np.random.default_rng(6), 0.02
    exact = later_look(np.random.default_rng(7).standard_normal((10_000, 1)), np.array([12.0]))[0] / 10_000
    tops = [read_later(exact + sd * rng.standard_normal(len(exact)), 12.0, sd).top for _ in range(2000)]
    assert max(tops) <= 3.0
    assert min(tops) >= 0.0


@pytest.mark.parametrize("unit", [0.05, 0.25, 1.0, 50.0])
def test_most_rows_are_found_in_bins_of_any_width(unit):
    rng, sd = np.random.default_rng(8), 0.005
    Z = 9.3 * unit + np.random.default_rng(9).standard_normal((10_000, 1))
    exact = near_look(Z, np.array([unit]))[0] / 10_000
    for _ in range(50):
        place = read_near(exact + sd * rng.standard_normal(NEAR + 1), sd)
        assert place.width > 0
        assert abs(place.offset - 9.3) * unit < max(1.0, unit)
        assert place.apart == (unit < 2.0)


def test_nothing_is_found_in_noise_or_where_most_rows_are_not():
    rng = np.random.default_rng(10)
    empty = np.zeros(NEAR + 1)
    for sd in (0.001, 0.05, 0.2, 1.0):
        assert not any(read_near(empty + sd * rng.standard_normal(NEAR + 1), sd).width for _ in range(200))
    half = empty.copy()
    half[10] = 0.5
    assert read_near(half, 0.001) == (0.0, 0, True)
    assert read_near(half, 0.3) == (0.0, 0, False)  # who knows


def test_the_prior_is_public_and_sums_to_one():
    assert np.sum(np.exp(readings._LOG_PRIOR)) == pytest.approx(1.0)
    assert len(readings._LOG_PRIOR) == len(TOPS)
