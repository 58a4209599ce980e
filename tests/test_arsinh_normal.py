"""Certified Lipschitz constants, the zCDP price by quadrature, and the printed scale failing."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.stats import kstest, norm

from tailguard.kernels.smooth_sensitivity import private_trimmed_mean_inputs, smooth_sensitivity
from tailguard.privacy import arsinh_normal as an
from tailguard.privacy.concentrated import zcdp_delta, zcdp_rho

CASES = [
    (0.009, 0.003, 0.5),
    (1e-4, 2e-5, 0.3),
    (0.5, 0.3, 0.7),
    (1.0, 0.5, 1.0),
    (3.0, 1.0, 1.0),
    (6.0, 0.1, 0.2),
    (0.0, 0.1, 0.5),
    (0.2, 0.0, 0.1),
    (0.05, 0.4, 1.7),
]


def log_ratio(y: np.ndarray, s: float, t: float, sigma: float) -> np.ndarray:
    """Log density of Z over that of e^t Z + s, at z = sinh(sigma y)/sigma; written from the densities."""
    u = sigma * y
    u1 = np.arcsinh(math.exp(-t) * (np.sinh(u) - sigma * s))
    y1 = u1 / sigma
    return norm.logpdf(y) - np.logaddexp(u, -u) - norm.logpdf(y1) + np.logaddexp(u1, -u1) + t


def slope(y: np.ndarray, s: float, t: float, sigma: float) -> np.ndarray:
    u = sigma * y
    u1 = np.arcsinh(math.exp(-t) * (np.sinh(u) - sigma * s))
    stretch = math.exp(-t) * np.cosh(u) / np.cosh(u1)
    return -y - sigma * np.tanh(u) + (u1 / sigma + sigma * np.tanh(u1)) * stretch


def renyi(alpha: float, s: float, t: float, sigma: float) -> float:
    """Order-alpha divergence of Z from e^t Z + s by the trapezoidal rule, which is spectral here."""
    y = np.linspace(-45.0, 45.0, 60001)
    exponent = norm.logpdf(y) + (alpha - 1.0) * log_ratio(y, s, t, sigma)
    top = exponent.max()
    return (top + math.log(np.exp(exponent - top).sum() * (y[1] - y[0]))) / (alpha - 1.0)


@pytest.mark.parametrize(("s", "t", "sigma"), CASES)
def test_certified_constant_is_never_below_a_dense_sweep_of_the_box(s: float, t: float, sigma: float) -> None:
    certified = an.lipschitz_constant(s, t, sigma)
    y = np.linspace(-24.0, 24.0, 20001) / sigma
    inside = max(
        np.abs(slope(y, a * s, b * t, sigma)).max() for a in np.linspace(-1, 1, 9) for b in np.linspace(-1, 1, 5)
    )
    corners = max(np.abs(slope(y, a * s, b * t, sigma)).max() for a in (-1, 1) for b in (-1, 1))
    assert inside <= corners * (1 + 1e-9) + 1e-12
    assert inside <= certified
    assert t / sigma <= certified
    assert certified <= max(corners, t / sigma) * (1 + 5e-4) + 1e-10


def test_certified_constant_on_random_parameters() -> None:
    rng = np.random.default_rng(0)
    for _ in range(150):
        sigma = 10 ** rng.uniform(-1.3, 0.4)
        s, t = 10 ** rng.uniform(-5, 1), 10 ** rng.uniform(-5, 0.5)
        y = np.sort(rng.uniform(-15.0, 15.0, 2000)) / sigma
        a, b = rng.uniform(-1, 1, 2)
        assert np.abs(slope(y, a * s, b * t, sigma)).max() <= an.lipschitz_constant(s, t, sigma)


def test_certified_constant_in_high_precision_far_out() -> None:
    """Thirty digits, where the float formula cancels: the tails stay below K and tend to t / sigma."""
    s, t, sigma = 0.01, 0.004, 0.3
    certified = an.lipschitz_constant(s, t, sigma)
    with mpmath.workdps(60):
        for u in (-80, -30, -21, -12, -5, -1, 0.5, 3, 8, 15, 20.5, 40, 90):
            for a, b in ((s, t), (-s, t), (s, -t), (-s, -t)):
                u = mpmath.mpf(u)
                u1 = mpmath.asinh(mpmath.exp(-b) * (mpmath.sinh(u) - mpmath.mpf(sigma) * a))
                factor = mpmath.exp(-b) * mpmath.cosh(u) / mpmath.cosh(u1)
                value = (u1 / sigma + sigma * mpmath.tanh(u1)) * factor - u / sigma - sigma * mpmath.tanh(u)
                assert abs(value) <= certified
                if abs(u) >= 40:
                    assert float(abs(value)) == pytest.approx(t / sigma, rel=1e-9)


def test_constant_is_monotone_in_both_arguments() -> None:
    grid = [0.0, 1e-3, 0.03, 0.4, 2.0]
    table = np.array([[an.lipschitz_constant(s, t, 0.6) for t in grid] for s in grid])
    assert (np.diff(table, axis=0) >= -5e-4 * table[1:]).all()
    assert (np.diff(table, axis=1) >= -5e-4 * table[:, 1:]).all()


@pytest.mark.parametrize(("s", "t", "sigma"), [(0.3, 0.1, 0.4), (0.5, 0.3, 0.7), (0.02, 0.02, 1.0), (0.0, 0.2, 0.5)])
@pytest.mark.parametrize("alpha", [1.01, 2.0, 8.0, 40.0])
def test_zcdp_by_quadrature(s: float, t: float, sigma: float, alpha: float) -> None:
    price = an.lipschitz_constant(s, t, sigma) ** 2 / 2.0
    for a, b in ((1, 1), (-1, 1), (1, -1), (-1, -1), (0.3, 1), (1, 0.2)):
        assert renyi(alpha, a * s, b * t, sigma) <= alpha * price


def test_the_quadrature_has_power() -> None:
    """Near the normal law the price is attained, so nine tenths of it would be refused."""
    s, t, sigma = 0.3, 0.0, 0.05
    assert renyi(8.0, s, t, sigma) > 0.9 * 8.0 * an.lipschitz_constant(s, t, sigma) ** 2 / 2.0


@pytest.mark.parametrize("rho", [1e-8, 6e-5, 0.03, 0.5, 5.0, 50.0])
@pytest.mark.parametrize(("m", "kept", "width"), [(5000, 90000, 20.0), (50, 900, 2.0), (1, 3, 1.0), (0, 10, 1.0)])
def test_parameters_stay_in_budget(rho: float, m: int, kept: int, width: float) -> None:
    p = an.arsinh_parameters(rho, m, kept, width, 1.0)
    assert p.epsilon == math.sqrt(2 * rho)
    assert 0.0 <= p.t <= p.epsilon / 2
    assert p.s > 0.0
    assert 0.1 <= p.sigma <= 1.0
    assert an.lipschitz_constant(p.s, p.t, p.sigma) <= p.lipschitz * (1 + 5e-4)
    assert p.lipschitz <= 0.999 * p.epsilon
    assert p.rho <= rho
    assert p.lipschitz >= 0.99 * p.epsilon  # the budget is used


def test_large_budget_and_small_trim_has_parameters_where_half_epsilon_fits_no_shift() -> None:
    assert an.lipschitz_constant(1e-9, 0.5, 1.0) > 1.05
    assert an.arsinh_parameters(0.5, 5, 990, 2.0, 1.0).s > 0.01


def test_printed_parameters_are_sound() -> None:
    for epsilon in (1e-3, 0.01, 0.1, 0.5, 1.0):
        p = an.printed_parameters(epsilon)
        assert (p.t, p.s, p.sigma) == (epsilon**2 / 16, epsilon / 4, 1.0)
        assert p.lipschitz <= epsilon


def test_noise_has_its_law_and_its_standard_deviation() -> None:
    y = np.random.default_rng(5).standard_normal(200_000)
    for sigma in (0.1, 0.5, 1.0):
        z = np.sinh(sigma * y) / sigma
        assert kstest(np.arcsinh(sigma * z) / sigma, "norm").pvalue > 1e-3
        second = mpmath.quad(
            lambda v, c=sigma: (mpmath.sinh(c * v) / c) ** 2 * mpmath.npdf(v), [-mpmath.inf, 0, mpmath.inf]
        )
        assert an.arsinh_sd(sigma) == pytest.approx(float(mpmath.sqrt(second)), rel=1e-12)
    assert an.arsinh_sd(1e-6) == pytest.approx(1.0, rel=1e-9)


def within(bound: float, scale: float, sigma: float) -> float:
    """P(|scale Z| <= bound)."""
    return math.erf(math.asinh(sigma * bound / scale) / sigma / math.sqrt(2.0))


def test_counter_example_to_the_printed_scale() -> None:
    """One zero becomes 1e9: |output| <= 91.12 goes from likely to impossible under the printed scale."""
    n, m, epsilon, width = 1000, 50, 0.1, 2.0
    x = np.zeros(n)
    y = x.copy()
    y[-1] = 1e9
    p = an.printed_parameters(epsilon)
    delta = 1e-5
    eps_dp = brent_epsilon(epsilon**2 / 2, delta)

    def printed(v: np.ndarray) -> float:
        return max((v[-1] - v[0]) / (n - 2 * m), math.exp(-m * p.t) * width)

    there, here = within(91.12, printed(x) / p.s, 1.0), within(91.12, printed(y) / p.s, 1.0)
    assert there == pytest.approx(0.683, abs=1e-3)
    assert here == pytest.approx(1.6e-6, rel=0.03)
    assert there > math.exp(eps_dp) * here + delta  # the printed mechanism fails

    for q in (p, an.arsinh_parameters(epsilon**2 / 2, m, n - 2 * m, width, 1.0)):  # the shipped one passes
        scale = [smooth_sensitivity(v, m, q.t, width) / q.s for v in (x, y)]
        f = within(91.12, scale[0], q.sigma), within(91.12, scale[1], q.sigma)
        for a, b in (f, f[::-1], (1 - f[0], 1 - f[1]), (1 - f[1], 1 - f[0])):
            assert a <= math.exp(eps_dp) * b + delta
        # Every event at once: the exact divergence of the two outputs, both directions.
        shift = math.log(scale[1] / scale[0])
        v = np.linspace(-30.0, 30.0, 120001)
        for t in (shift, -shift):
            loss = log_ratio(v, 0.0, t, q.sigma)
            for eps in (0.0, 0.05, 0.2, eps_dp):
                exact = float((norm.pdf(v) * np.maximum(-np.expm1(eps - loss), 0.0)).sum() * (v[1] - v[0]))
                assert exact <= zcdp_delta(epsilon**2 / 2, eps) + 1e-12


def brent_epsilon(rho: float, delta: float) -> float:
    """The least epsilon (to 1e-6) with zcdp_delta(rho, epsilon) <= delta."""
    low, high = 0.0, 50.0
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if zcdp_delta(rho, middle) <= delta else (middle, high)
    return high


@pytest.mark.parametrize("seed", range(3))
def test_noise_at_the_papers_size(seed: int) -> None:
    n, m, d, steps, width = 100_000, 5_000, 10, 50, 20.0
    rho = zcdp_rho(1.0, 1e-5)
    x = np.random.default_rng(seed).standard_t(3, n)
    ours = an.arsinh_parameters(rho / (d * steps), m, n - 2 * m, width, 1.0)
    _, s = private_trimmed_mean_inputs(x, m, ours.t, -10.0, 10.0)
    assert s * an.arsinh_sd(ours.sigma) / ours.s <= 0.012
    epsilon = math.sqrt(2 * math.log(1e5) + 2) - math.sqrt(2 * math.log(1e5))  # the paper's split
    printed = an.printed_parameters(epsilon / math.sqrt(d * steps))
    _, s = private_trimmed_mean_inputs(x, m, printed.t, -10.0, 10.0)
    assert s * an.arsinh_sd(printed.sigma) / printed.s == pytest.approx(15_270, rel=0.01)


def test_release_is_on_a_public_grid_and_unbiased() -> None:
    m, kept, width = 50, 900, 2.0
    p = an.arsinh_parameters(0.5, m, kept, width, 1.0)
    grid = an.release_grid(p, m, width)
    assert math.frexp(grid)[0] == 0.5
    floor = math.exp(-m * p.t) * width / p.s
    assert 2.0**-12 < grid / floor < 2.0**-9
    y = np.random.default_rng(0).standard_normal(4000)
    out = np.array([an.release(0.3, 2.0 * floor * p.s, p, v, grid) for v in y])
    assert (out / grid == np.rint(out / grid)).all()
    np.testing.assert_allclose(out, 0.3 + 2.0 * floor * np.sinh(p.sigma * y) / p.sigma, rtol=0, atol=0.51 * grid)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: an.lipschitz_constant(-1.0, 0.1, 0.5), "s must be"),
        (lambda: an.lipschitz_constant(0.1, 60.0, 0.5), "t=60"),
        (lambda: an.lipschitz_constant(0.1, 0.1, 0.0), "sigma must be"),
        (lambda: an.arsinh_parameters(0.0, 5, 90, 2.0, 1.0), "rho must be"),
        (lambda: an.arsinh_parameters(51.0, 5, 90, 2.0, 1.0), "rho=51"),
        (lambda: an.arsinh_parameters(0.1, -1, 90, 2.0, 1.0), "m must be"),
        (lambda: an.arsinh_parameters(0.1, 5, 0, 2.0, 1.0), "kept must be"),
        (lambda: an.arsinh_parameters(0.1, 5, 90, -2.0, 1.0), "width must be"),
        (lambda: an.arsinh_parameters(0.1, 5, 90, 2.0, math.nan), "spread must be"),
        (lambda: an.printed_parameters(2.0), "epsilon=2.0"),
    ],
)
def test_refusals_name_the_argument(call, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        call()
