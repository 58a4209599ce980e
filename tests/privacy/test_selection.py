"""The best of a secret number of runs costs what a public accountant, quadrature and brute force say, and no more."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy.special import ndtr, ndtri

from tailguard.privacy import (
    GRID_PRICE,
    ApproximateDP,
    Budget,
    Gaussian,
    OverBudgetError,
    PrivacyReport,
    Selection,
    ZeroConcentrated,
    epsilon_of,
    gdp_delta,
    gdp_epsilon,
    selection_mu,
    total_rho,
    zcdp_epsilon,
)
from tailguard.privacy.gaussian import log_deltas
from tailguard.privacy.selection import Chosen, hinges

DELTA = 1e-6
# mu of a run, probability of heads, heads that end the series
SETTINGS = [(0.1, 0.1, 1), (0.1, 0.2, 4), (0.3, 0.05, 2), (1.0, 0.3, 1), (2.0, 0.1, 4), (0.02, 0.01, 1)]


def chosen(mu: float, stop: float, heads: int) -> Chosen:
    return Chosen(mu, stop, heads, Selection(mu, stop, heads).runs)


def price(mu: float, stop: float, heads: int, delta: float = DELTA, **more: bool) -> float:
    return epsilon_of([Selection(mu, stop, heads, **more)], delta)


# ---------------------------------------------------------------- the law of the number of runs


def runs_law(stop: float, heads: int, most: int = 20_000) -> np.ndarray:
    """P(K = k), k = 1, 2, ...: tails before the last of the heads, given that there are any."""
    k = np.arange(1, most)
    logs = [math.lgamma(i + heads) - math.lgamma(i + 1) - math.lgamma(heads) for i in k]
    law = np.exp(np.array(logs) + k * math.log1p(-stop) + heads * math.log(stop))
    return law / -math.expm1(heads * math.log(stop))


@pytest.mark.parametrize(("stop", "heads"), [(0.1, 1), (0.2, 4), (0.9, 3)])
def test_the_expected_number_of_runs_and_the_generating_function(stop, heads):
    law = runs_law(stop, heads)
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    assert Selection(0.1, stop, heads).runs == pytest.approx(law @ np.arange(1, len(law) + 1), rel=1e-12)
    for x in (0.1, 0.7, 0.99):
        assert best_below(x, stop, heads) == pytest.approx(law @ x ** np.arange(1, len(law) + 1), rel=1e-10)


def best_below(x: np.ndarray | float, stop: float, heads: int) -> np.ndarray:
    """Probability that all runs are in a set of probability x."""
    return ((1.0 - (1.0 - stop) * np.asarray(x)) ** -heads - 1.0) / (stop**-heads - 1.0)


# ---------------------------------------------------------------- brute force on a discrete mechanism


def pair(mu: float, cells: int = 6000) -> tuple[np.ndarray, np.ndarray]:
    """Masses of N(mu, 1) and N(0, 1) in cells: a function of the Gaussian pair, so mu-GDP."""
    edges = np.concatenate([[-np.inf], np.linspace(-9.0, 9.0 + mu, cells - 1), [np.inf]])
    return normal_masses(edges - mu), normal_masses(edges)


def normal_masses(edges: np.ndarray) -> np.ndarray:
    """Masses between edges, each tail from its own end: they are accurate however small."""
    return np.where(edges[1:] <= 0.0, np.diff(ndtr(edges)), -np.diff(ndtr(-edges)))


def best_of(masses: np.ndarray, order: np.ndarray, stop: float, heads: int) -> np.ndarray:
    """Law of the best run, in the given order: the first cells are the best."""
    better = np.concatenate([[0.0], np.cumsum(masses[order])[:-1]])
    at = stop + (1.0 - stop) * better
    # The difference of `best_below` at both ends of a cell, without cancellation.
    parts = at**-heads * -np.expm1(-heads * np.log1p((1.0 - stop) * masses[order] / at)) / (stop**-heads - 1.0)
    law = np.empty_like(masses)
    law[order] = parts
    return law


def hockey_stick(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.sum(np.maximum(one - math.exp(epsilon) * other, 0.0)))


def worst_order(mu: float, stop: float, heads: int, epsilon: float) -> np.ndarray:
    """Cells of small likelihood ratio first; those of a large one where their hinge is highest."""
    one, other = pair(mu)
    ratio = np.log(np.maximum(one, 1e-300) / np.maximum(other, 1e-300)) - epsilon
    before = np.concatenate([[0.0], np.cumsum(one)[:-1]])  # the ratio grows from cell to cell
    before_other = np.concatenate([[0.0], np.cumsum(other)[:-1]])
    weight = (stop + (1.0 - stop) * before) ** -(heads + 1.0)
    fall = ((stop + (1.0 - stop) * before) / (stop + (1.0 - stop) * before_other)) ** (heads + 1.0)
    place = before.copy()
    for i in np.flatnonzero(ratio > np.log(fall.min())):
        place[i] = before[np.argmax(weight * (math.exp(min(ratio[i], 700.0)) - fall))]
    return np.argsort(place, kind="stable")


@pytest.mark.parametrize(("mu", "stop", "heads"), SETTINGS)
def test_no_order_of_the_outcomes_costs_more_and_the_worst_costs_nearly_as_much(mu, stop, heads):
    one, other = pair(mu)
    epsilon = price(mu, stop, heads)
    rng = np.random.default_rng(0)
    orders = {
        "up": np.arange(len(one)),
        "down": np.arange(len(one))[::-1],
        "from the middle": np.argsort(np.abs(np.arange(len(one)) - len(one) / 2)),
        "random": rng.permutation(len(one)),
        "worst": worst_order(mu, stop, heads, epsilon),
    }
    found = {}
    for name, order in orders.items():
        a, b = best_of(one, order, stop, heads), best_of(other, order, stop, heads)
        assert a.sum() == pytest.approx(1.0) == b.sum()
        found[name] = max(hockey_stick(a, b, epsilon), hockey_stick(b, a, epsilon))
    assert max(found.values()) <= DELTA
    assert found["worst"] >= 0.9 * DELTA, "the price is not sharp"


@pytest.mark.parametrize(("mu", "stop", "heads"), SETTINGS)
def test_the_price_of_one_run_would_be_refuted(mu, stop, heads):
    """Power: the price of a run alone, and that with half of the shift, are below what the worst order costs."""
    one, other = pair(mu)
    for epsilon in (gdp_epsilon(mu, DELTA), 0.5 * (gdp_epsilon(mu, DELTA) + price(mu, stop, heads))):
        order = worst_order(mu, stop, heads, epsilon)
        assert hockey_stick(best_of(one, order, stop, heads), best_of(other, order, stop, heads), epsilon) > 2 * DELTA


@pytest.mark.parametrize(("mu", "stop", "heads"), SETTINGS)
def test_the_hinges_are_above_the_supremum_and_close(mu, stop, heads):
    """Above it everywhere, and below 1.05 of what it is at a likelihood ratio larger by 0.01 mu."""
    mixture, runs = hinges(chosen(mu, stop, heads)), Selection(mu, stop, heads).runs
    u = np.concatenate([[0.0], np.geomspace(1e-12, 1.0, 20_000)])
    slope = runs * (stop / (stop + (1.0 - stop) * u)) ** (heads + 1.0)
    drop = runs * (stop / (stop + (1.0 - stop) * ndtr(ndtri(u) + mu))) ** (heads + 1.0)

    def supremum(log_ratio: float) -> float:
        return max(0.0, float(np.max(math.exp(log_ratio) * slope - drop)))

    def bound(log_ratio: float) -> float:
        heights = np.maximum(math.exp(log_ratio) - np.exp(mixture.shifts), 0.0)
        return float(np.array(mixture.weights) @ heights)

    for log_ratio in np.linspace(mixture.shifts[0] - mu, mixture.shifts[0] + 5.0 * mu, 13):
        assert supremum(log_ratio) <= bound(log_ratio) <= 1.05 * supremum(log_ratio + 0.01 * mu)
    assert math.fsum(mixture.weights) == pytest.approx(runs, rel=1e-6)


# ---------------------------------------------------------------- composition


def composed(first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray], epsilon: float) -> float:
    joint = [np.outer(a, b) for a, b in zip(first, second, strict=True)]
    return hockey_stick(*joint, epsilon)


def test_beside_gaussians_and_beside_another_selection():
    """Exact laws of small discrete mechanisms, in the orders that are worst alone."""
    mu, stop, heads, delta = 0.5, 0.2, 2, 1e-4
    coarse = [masses.reshape(-1, 10).sum(axis=1) for masses in pair(mu)]
    beside = [masses.reshape(-1, 10).sum(axis=1) for masses in pair(0.3)]
    order = worst_order(mu, stop, heads, 2.0)[::10] // 10
    order = np.array(list(dict.fromkeys(order.tolist() + list(range(len(coarse[0]))))))
    selected = tuple(best_of(masses, order, stop, heads) for masses in coarse)
    one = Selection(mu, stop, heads)
    together = epsilon_of([one, Gaussian(0.3)], delta)
    assert composed(selected, tuple(beside), together) <= delta
    twice = epsilon_of([one, one], delta)
    assert composed(selected, selected, twice) <= delta
    # And both are better than adding epsilons at half of delta each.
    assert together < epsilon_of([one], delta / 2) + gdp_epsilon(0.3, delta / 2)
    assert twice < 2.0 * epsilon_of([one], delta / 2)


def test_a_gaussian_beside_costs_what_the_integral_over_its_loss_says():
    mu, stop, heads, other = 0.2, 0.1, 3, 0.15
    epsilon = epsilon_of([Selection(mu, stop, heads), Gaussian(other)], DELTA)
    mixture = hinges(chosen(mu, stop, heads))
    z, weight = np.polynomial.hermite_e.hermegauss(120)
    losses = 0.5 * other**2 + other * z
    weights, shifts = np.array(mixture.weights), np.array(mixture.shifts)
    inner = [float(weights @ np.exp(log_deltas(mu, epsilon - loss + shifts))) for loss in losses]
    assert float(weight @ inner) / weight.sum() == pytest.approx(DELTA, rel=1e-6)


def test_zero_concentrated_releases_beside_it_add_their_rho():
    one = Selection(0.2, 0.1, concentrated=True)
    alone = epsilon_of([one], DELTA)
    with_rho = epsilon_of([one, ZeroConcentrated(0.01)], DELTA)
    assert with_rho - alone == pytest.approx(
        zcdp_epsilon(0.03, DELTA / one.runs) - zcdp_epsilon(0.02, DELTA / one.runs), rel=1e-9
    )
    assert epsilon_of([Selection(0.2, 0.1), ZeroConcentrated(0.01)], DELTA) == with_rho
    mixed = epsilon_of([one, ApproximateDP(0.5, DELTA / 2)], DELTA)
    assert mixed == pytest.approx(0.5 + epsilon_of([one], DELTA / 2))


# ---------------------------------------------------------------- a public accountant


@pytest.mark.parametrize(("mu", "stop", "heads"), SETTINGS)
def test_concentrated_runs_cost_what_dp_accounting_says_and_gaussian_ones_less(mu, stop, heads):
    event = Selection(mu, stop, heads)
    orders = 1.0 + np.geomspace(0.1, 3e3, 500)
    accountant = RdpAccountant(orders)
    accountant.compose(dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(1.0 / mu), event.runs, heads))
    public = accountant.get_epsilon(DELTA)
    assert price(mu, stop, heads, concentrated=True) == pytest.approx(public, rel=2e-3)
    assert price(mu, stop, heads) < 0.98 * public
    assert price(mu, stop, heads) > gdp_epsilon(mu, DELTA)


# ---------------------------------------------------------------- the accountant


def test_more_never_costs_less():
    base = price(0.2, 0.1, 2)
    assert price(0.21, 0.1, 2) > base
    assert price(0.2, 0.09, 2) > base
    assert price(0.2, 0.1, 3) > base
    assert price(0.2, 0.1, 2, delta=DELTA / 2) > base
    assert price(0.0, 0.1, 2) == 0.0
    assert price(math.inf, 0.1, 2) == math.inf
    # Hardly more than one run, and its price.
    assert price(0.2, 1.0 - 1e-9, 1) == pytest.approx(gdp_epsilon(0.2, DELTA), rel=1e-6)


@pytest.mark.parametrize("mu", [1e-320, 1e-12, 0.1, 29.9, 1e300])
@pytest.mark.parametrize(("stop", "heads"), [(1e-300, 1), (1e-9, 1000), (1.0 - 1e-16, 4)])
def test_absurd_numbers_have_a_price_at_once(mu, stop, heads):
    for delta in (1e-300, 0.5, 1.0 - 1e-12):
        assert price(mu, stop, heads, delta) >= 0.0
        assert price(mu, stop, heads, delta, concentrated=True) >= 0.0


def test_add_remove_runs_are_two_steps_from_replace_one():
    event = Selection(0.1, 0.2, 2, relation="add-remove")
    assert epsilon_of([event], DELTA, "replace-one") == pytest.approx(price(0.2, 0.2, 2), rel=1e-12)
    with pytest.raises(ValueError, match="replace-one"):
        epsilon_of([Selection(0.1, 0.2)], DELTA, "add-remove")


def test_draws_on_a_grid_cost_the_heads_and_two_times_theirs():
    plain, heads = price(0.1, 0.2, 4), 4
    draws = 1_000_000
    on_grid = epsilon_of([Selection(0.1, 0.2, heads, samples=draws)], DELTA)
    paid = 2 * (heads + 2) * draws * GRID_PRICE
    assert plain + paid <= on_grid < plain + 1.05 * paid
    # Where that is more than the theorem on discrete noise asks for, this one is taken.
    many = epsilon_of([Selection(0.1, 0.2, heads, samples=10**12)], DELTA)
    assert many == price(0.1, 0.2, heads, concentrated=True)


def test_a_selection_is_neither_zcdp_nor_gdp():
    with pytest.raises(ValueError, match="no rho-zCDP"):
        total_rho([Selection(0.1, 0.2)])
    with pytest.raises(ValueError, match="Gaussian releases only"):
        Budget(mu=1.0).allows([Selection(0.1, 0.2)])
    for budget in (Budget(rho=1.0), Budget(mu=1.0)):
        with pytest.raises(ValueError, match=r"\(epsilon, delta\)"):
            selection_mu(budget, 0.1)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("concentrated", [False, True])
def test_calibrated_runs_are_accepted_and_a_little_more_is_not(epsilon, concentrated):
    budget = Budget(epsilon, DELTA)
    mu = selection_mu(budget, 0.2, 2, 5000, concentrated=concentrated, beside=0.05, beside_samples=100)

    def events(mu: float) -> list:
        first = Gaussian(math.sqrt(0.05) * mu, samples=100)
        return [first, Selection(mu, 0.2, 2, 5000, concentrated)]

    assert budget.allows(events(mu))
    assert not budget.allows(events(1.0001 * mu))


def test_a_budget_below_all_resolution_is_refused():
    with pytest.raises(OverBudgetError, match="too small"):
        selection_mu(Budget(1e-16, 1e-6), 0.2, 4, concentrated=True)


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: Selection(-0.1, 0.5), ValueError, "mu.*-0.1"),
        (lambda: Selection(0.1, 0.0), ValueError, "stop"),
        (lambda: Selection(0.1, 1.0), ValueError, "stop"),
        (lambda: Selection(0.1, 0.5, 0), ValueError, "heads"),
        (lambda: Selection(0.1, 0.5, 1.5), TypeError, "heads"),
        (lambda: Selection(0.1, 0.5, concentrated="no"), TypeError, "concentrated"),
    ],
)
def test_errors_name_the_argument_and_the_value(build, error, words):
    with pytest.raises(error, match=words):
        build()


def test_a_report_says_what_was_selected_and_survives_json():
    report = PrivacyReport.from_events([Gaussian(0.02), Selection(0.1, 0.2, 4, label="search")], DELTA, n=1000)
    assert "best of a secret number of runs, 16.03 expected, mu = 0.1 each" in str(report)
    assert PrivacyReport.from_json(report.to_json()) == report
    assert (report + report).epsilon < 2.0 * report.epsilon


@pytest.mark.parametrize("mu", [1e-3, 0.1, 0.49, 0.5, 2.0, 20.0])
def test_the_curve_of_many_epsilons_is_that_of_each(mu):
    epsilons = np.array([0.0, 0.01, 0.5, 3.0, 12.0])
    exact = np.array([gdp_delta(mu, e) for e in epsilons])
    assert np.exp(log_deltas(mu, epsilons)) == pytest.approx(exact, rel=1e-10, abs=1e-300)
    turned = [1.0 - math.exp(-e) + math.exp(-e) * d for e, d in zip(epsilons, exact, strict=True)]
    assert np.exp(log_deltas(mu, -epsilons)) == pytest.approx(turned, rel=1e-9)
