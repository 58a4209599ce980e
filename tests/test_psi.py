"""psi_beta against quadrature of its definition, its bound on every float64, and the printed formula failing."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import ndtr

from tailguard import psi, psi_bound
from tailguard.truncation import Smoothed

BETAS = (0.5, 1.0, math.sqrt(2 * math.log(100)), math.log(100), 10.0, 31.7, 100.0)
ANY_BETA = st.sampled_from((0.1, *BETAS, 1000.0))
SEAM = 2.0  # where the evaluation changes its formula


def definition(a: float, beta: float) -> mpmath.mpf:
    """E phi(a(1 + eta)), eta ~ N(0, 1/beta), by adaptive quadrature with 20 digits."""
    with mpmath.workdps(20):
        a, beta, end = mpmath.mpf(a), mpmath.mpf(beta), mpmath.sqrt(2)
        sd = a / mpmath.sqrt(beta)
        points = sorted({-end, end, *(p for p in (a - 9 * sd, a, a + 9 * sd) if -end < p < end)})
        middle = mpmath.quad(lambda x: (x - x**3 / 6) * mpmath.npdf(x, a, sd), points)
        ends = mpmath.ncdf((a - end) / sd) - mpmath.ncdf((-end - a) / sd)
        return middle + 2 * end / 3 * ends


def printed(a, beta: float):
    """The paper's a(1 - b^2/2) - a^3/6 + C(a, b), b = a/sqrt(beta), C = T1 + ... + T5 of its appendix, in float64."""
    a = np.asarray(a, dtype=np.float64)
    with np.errstate(all="ignore"):
        b = np.abs(a) / math.sqrt(beta)
        v_minus, v_plus = (math.sqrt(2) - a) / b, (math.sqrt(2) + a) / b
        f_minus, f_plus = ndtr(-v_minus), ndtr(-v_plus)
        e_minus, e_plus = np.exp(-(v_minus**2) / 2), np.exp(-(v_plus**2) / 2)
        root = math.sqrt(2 * math.pi)
        correction = (
            2 * math.sqrt(2) / 3 * (f_minus - f_plus)
            - (a - a**3 / 6) * (f_minus + f_plus)
            + b / root * (1 - a**2 / 2) * (e_plus - e_minus)
            + a * b**2 / 2 * (f_plus + f_minus + (v_plus * e_plus + v_minus * e_minus) / root)
            + b**3 / (6 * root) * ((2 + v_minus**2) * e_minus - (2 + v_plus**2) * e_plus)
        )
        return a * (1 - b**2 / 2) - a**3 / 6 + correction


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("a", [1e-9, 0.01, 0.3, 0.9, 1.3, 1.42, 1.9999999, 2.0, 2.0000001, 3.7, 12.0, 1e4, 1e12])
def test_error_is_at_most_1e_14(a, beta):
    with mpmath.workdps(30):
        assert abs(definition(a, beta) - mpmath.mpf(psi(a, beta))) <= 1e-14


@pytest.mark.parametrize("beta", BETAS)
def test_the_bound_is_the_limit_and_is_tight(beta):
    with mpmath.workdps(30):
        limit = 2 * mpmath.sqrt(2) / 3 * mpmath.erf(mpmath.sqrt(mpmath.mpf(beta) / 2))
        assert abs(limit - mpmath.mpf(psi_bound(beta))) <= 1e-15
    assert psi_bound(beta) - psi(math.inf, beta) <= 1e-14
    assert psi_bound(beta) - psi(1e9, beta) <= 1e-8


def test_the_bound_at_the_papers_beta():
    assert psi_bound(math.log(100)) / (2 * math.sqrt(2) / 3) == pytest.approx(0.9681, abs=5e-5)


@given(a=st.floats(), beta=ANY_BETA)
@example(a=0.0, beta=1.0)
@example(a=-0.0, beta=1.0)
@example(a=5e-324, beta=0.1)
@example(a=1.7976931348623157e308, beta=1000.0)
@example(a=math.inf, beta=0.1)
@example(a=math.nan, beta=0.1)
@example(a=-math.nan, beta=0.1)
def test_every_float_stays_inside_the_bound_and_psi_is_odd(a, beta):
    value = psi(a, beta)
    assert abs(value) <= psi_bound(beta)
    assert psi(-a, beta) == -value
    if math.isnan(a):
        assert value == 0.0
    else:
        assert math.copysign(1.0, value) == math.copysign(1.0, a)
        assert abs(value) <= abs(a)


@pytest.mark.parametrize("beta", [0.1, 1.0, math.log(100), 31.0, 100.0, 150.0, 300.0, 800.0, 1000.0])
def test_the_bound_holds_to_the_last_bit(beta):
    """From a few units on psi is within a rounding of the bound; from beta = 100 on its series ends on the far side."""
    a = np.concatenate([np.geomspace(2.0, 1e6, 3000), np.geomspace(1e6, 1e308, 300), [math.inf]])
    assert np.max(np.abs(psi(np.append(a, -a), beta))) <= psi_bound(beta)


@given(a=st.floats(allow_nan=False), b=st.floats(allow_nan=False), beta=ANY_BETA)
@example(a=math.nextafter(SEAM, 0.0), b=SEAM, beta=math.log(100))
@example(a=SEAM, b=math.nextafter(SEAM, 3.0), beta=math.log(100))
def test_psi_increases(a, b, beta):
    """To the rounding that is allowed: twice 1e-14."""
    low, high = sorted((a, b))
    assert psi(low, beta) <= psi(high, beta) + 2e-14


@pytest.mark.parametrize("beta", [0.1, *BETAS, 1000.0])
def test_psi_increases_across_the_seams_of_its_evaluation(beta):
    a = np.concatenate([np.linspace(0.0, 4.0, 40_001), np.geomspace(4.0, 1e18, 4001)])
    assert np.min(np.diff(psi(a, beta))) >= -2e-14


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
def test_the_result_has_the_shape_of_the_argument(shape):
    value = psi(np.ones(shape), 1.0)
    assert np.shape(value) == shape
    assert isinstance(value, np.ndarray) == (shape != ())


@pytest.mark.parametrize("beta", BETAS)
def test_the_bias_constant_bounds_the_bias_and_is_reached(beta):
    """The least c with |a - psi(a)| <= c a^2."""
    c = Smoothed(1.0, beta).bias_constant()
    a = np.random.default_rng(0).uniform(1e-3, 30.0, 20_000)
    ratio = (a - psi(a, beta)) / a**2
    assert np.max(ratio) <= c * (1 + 1e-5)
    assert np.max(ratio) >= c * (1 - 1e-3)
    assert c >= 0.25 / psi_bound(beta)  # no odd truncation beats c kappa = 1/4


# The formula as printed: right over the reals, and the reason why it is not used.


@pytest.mark.parametrize("beta", [1.0, math.log(100), 10.0])
@pytest.mark.parametrize("a", [0.2, 1.0, 1.5, 3.0, 10.0])
def test_the_printed_formula_is_right_for_ordinary_arguments(a, beta):
    assert printed(a, beta) == pytest.approx(psi(a, beta), abs=1e-11)


@pytest.mark.parametrize("a", [1e5, 1e6, 1e9, 1e12, -1e6])
def test_the_printed_formula_leaves_its_bound_where_psi_stays(a):
    """One outlier of 1e5 scales or so, and the sensitivity that the noise was made for is no longer true."""
    beta = math.log(100)
    around = a * np.linspace(0.9, 1.1, 2001)  # which digits are lost differs from one float to the next
    assert np.max(np.abs(printed(around, beta))) > 2 * math.sqrt(2) / 3
    assert np.max(np.abs(psi(around, beta))) <= psi_bound(beta) < 2 * math.sqrt(2) / 3


def test_the_printed_formula_reaches_1e18_at_1e12():
    assert abs(printed(1e12, math.log(100))) > 1e18


@pytest.mark.parametrize("a", [0.0, math.inf, -math.inf])
def test_the_printed_formula_is_not_a_number_at_zero_and_infinity(a):
    assert math.isnan(printed(a, math.log(100)))
    assert math.isfinite(psi(a, math.log(100)))
