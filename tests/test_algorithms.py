"""The named algorithms: the paper's numbers, exact prices, no row that stops them, and that they learn."""

from __future__ import annotations

import itertools
import json
import math
from functools import partial

import numpy as np
import pytest

from tailguard import PrivacyReport, algorithms, losses, minimize, psi_bound
from tailguard.algorithms import algorithm1, algorithm2, algorithm3, algorithm4, clipped_gd, robust_gd
from tailguard.blocks import block_minimisers
from tailguard.constraints import Box, L2Ball, Simplex
from tailguard.engines.memory import InMemory
from tailguard.means.centre import TooFewBlocksError
from tailguard.privacy import (
    ApproximateDP,
    Budget,
    Gaussian,
    NotPrivate,
    PoissonGaussian,
    SeededNoise,
    ZeroConcentrated,
    default_delta,
    epsilon_of,
    gaussian_mu,
)
from tailguard.truncation import Smoothed

SQUARED = losses.Squared()
N, D = 400, 3


def table(n: int = N, d: int = D, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X @ np.linspace(-1.0, 1.0, d) + rng.standard_t(3, n)


X, Y = table()

# Every algorithm with the least it needs, as functions of (loss, X, y, **more).
PRIVATE = {
    "algorithm4": partial(algorithm4, epsilon=1.0, v=5.0, steps=5),
    "algorithm4, the paper's setting": partial(algorithm4, epsilon=1.0, v=5.0, steps=5, setting="paper"),
    "algorithm4 with a scale": partial(algorithm4, epsilon=1.0, scale=3.0, steps=5),
    "algorithm4, stochastic": partial(algorithm4, epsilon=1.0, v=5.0, steps=5, batch_size=100),
    "clipped_gd": partial(clipped_gd, epsilon=1.0, clip=3.0, steps=5),
    "clipped_gd, stochastic": partial(clipped_gd, epsilon=1.0, clip=3.0, steps=5, batch_size=100),
    "algorithm3": partial(algorithm3, epsilon=1.0, a=-3.0, b=3.0, steps=5),
    "algorithm3, the paper's setting": partial(algorithm3, epsilon=1.0, a=-3.0, b=3.0, steps=5, setting="paper"),
    "algorithm1": partial(algorithm1, epsilon=1.0, constraint=L2Ball(5.0), blocks=20),
}
NOT_PRIVATE = {
    "robust_gd": partial(robust_gd, v=5.0, steps=5),
    "robust_gd, stochastic": partial(robust_gd, v=5.0, steps=5, batch_size=100),
    "algorithm3, printed": partial(algorithm3, epsilon=1.0, a=-3.0, b=3.0, steps=5, setting="printed"),
}
ALL = PRIVATE | NOT_PRIVATE
LOSSES = {
    "Squared": losses.Squared(),
    "Logistic": losses.Logistic(),
    "Huber": losses.Huber(),
    "Poisson": losses.Poisson(),
    "Multinomial": losses.Multinomial(3),
    "Custom": losses.Custom(value=lambda z, y: np.logaddexp(z - y, y - z), dz=lambda z, y: np.tanh(z - y)),
    "PerRow": losses.PerRow(lambda w, X, y: (X @ w - y)[:, None] * X),
}


# Promises.


@pytest.mark.parametrize("name", PRIVATE)
def test_the_price_is_at_most_the_promise_and_a_private_run_says_so(name):
    report = PRIVATE[name](SQUARED, X, Y).privacy
    assert 0.0 < report.epsilon <= 1.0
    assert report.delta == default_delta(N) == 1e-6
    assert report.private
    assert report.reasons == ()
    assert report.n_rows == N
    assert epsilon_of(report.events, report.delta, report.relation) == report.epsilon
    assert PrivacyReport.from_json(report.to_json()) == report
    # "improved" spends what it may; the paper's settings leave some of it on the table.
    if "paper" not in name:
        assert report.epsilon > 0.97


@pytest.mark.parametrize("name", PRIVATE)
def test_a_seeded_run_repeats_itself_and_is_not_private(name):
    one, two = (PRIVATE[name](SQUARED, X, Y, random_state=7) for _ in range(2))
    np.testing.assert_array_equal(one.w, two.w)
    assert not one.privacy.private
    assert "seeded" in str(one.privacy)
    assert "seed 7" in str(one.privacy)
    assert one.privacy.epsilon <= 1.0  # what it would be
    assert not np.array_equal(one.w, PRIVATE[name](SQUARED, X, Y, random_state=8).w)


@pytest.mark.parametrize("name", NOT_PRIVATE)
def test_an_algorithm_without_a_guarantee_is_priced_infinite(name):
    report = NOT_PRIVATE[name](SQUARED, X, Y).privacy
    assert report.epsilon == math.inf
    assert not report.private
    assert any(isinstance(event, NotPrivate) for event in report.events)
    assert str(report).startswith("not private: ")
    assert json.loads(report.to_json())["epsilon"] == "inf"


def test_the_printed_algorithms_say_why_they_are_not_private():
    for report in (
        algorithm3(SQUARED, X, Y, epsilon=1.0, a=-3.0, b=3.0, steps=2, setting="printed").privacy,
        algorithm2(X, epsilon=1.0, a=-3.0, b=3.0, setting="printed").privacy,
    ):
        assert "not a smooth bound on the sensitivity" in report.guarantee
        assert report.epsilon == math.inf


def test_robust_gd_has_no_noise():
    one, two = (robust_gd(SQUARED, X, Y, v=5.0) for _ in range(2))
    np.testing.assert_array_equal(one.w, two.w)
    assert one.privacy.parameters["noise_sd"] == 0.0


@pytest.mark.parametrize("name", ["algorithm4, stochastic", "clipped_gd, stochastic"])
def test_poisson_batches_promise_add_remove_and_replace_one_if_asked(name):
    default = PRIVATE[name](SQUARED, X, Y).privacy
    assert default.relation == "add-remove"
    (event,) = default.events
    assert isinstance(event, PoissonGaussian)
    assert event.rate == 0.25
    asked = PRIVATE[name](SQUARED, X, Y, relation="replace-one").privacy
    assert asked.relation == "replace-one"
    assert asked.epsilon <= 1.0
    assert asked.events[0].noise_multiplier > 1.5 * event.noise_multiplier


@pytest.mark.parametrize("name", ["algorithm4", "clipped_gd"])
def test_full_batches_promise_replace_one_and_add_remove_if_asked(name):
    default = PRIVATE[name](SQUARED, X, Y).privacy
    assert default.relation == "replace-one"
    assert isinstance(default.events[0], Gaussian)
    asked = PRIVATE[name](SQUARED, X, Y, relation="add-remove").privacy
    assert asked.relation == "add-remove"
    assert asked.epsilon <= 1.0


def test_a_budget_may_be_given_in_rho_or_mu():
    for budget in (Budget(rho=0.1), Budget(mu=0.5), Budget(1.0, 1e-7)):
        report = clipped_gd(SQUARED, X, Y, epsilon=budget, clip=3.0, steps=5).privacy
        assert budget.allows(report.events)
        (event,) = report.events
        assert event.count * event.mu**2 == pytest.approx(budget.mu**2, rel=1e-6)
    for fit in (PRIVATE["algorithm3"], PRIVATE["algorithm1"]):
        report = fit(SQUARED, X, Y, epsilon=Budget(rho=0.1)).privacy
        assert Budget(rho=0.1).allows(report.events)


def test_the_experiments_may_ask_for_delta_of_1_over_n_by_name():
    with pytest.raises(ValueError, match=r"delta must be below 1/n = 0.0025"):
        clipped_gd(SQUARED, X, Y, epsilon=1.0, delta=1 / N, clip=3.0)
    report = clipped_gd(SQUARED, X, Y, epsilon=1.0, delta=1 / N, clip=3.0, steps=2, allow_large_delta=True).privacy
    assert report.delta == 1 / N


# Algorithm 4: the printed numbers and the better ones.


@pytest.mark.parametrize(("epsilon", "v", "failure", "steps"), [(1.0, 5.0, 0.01, 50), (0.3, 2.0, 0.1, 7)])
def test_the_papers_setting_has_the_printed_scale_beta_and_sigma(epsilon, v, failure, steps):
    delta = 1e-5
    result = algorithm4(
        SQUARED, X, Y, epsilon=epsilon, delta=delta, v=v, failure=failure, steps=steps, setting="paper", random_state=0
    )
    log_failure = math.log(1 / failure)
    split = (math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))) ** 2
    facts = result.privacy.parameters
    assert facts["scale"] == pytest.approx(math.sqrt(N * v / (2 * log_failure)), rel=1e-12)
    assert facts["beta"] == pytest.approx(log_failure, rel=1e-12)
    assert facts["noise_sd"] == pytest.approx(math.sqrt(8 * v * D * steps / (9 * log_failure * N * split)), rel=1e-9)
    assert result.privacy.epsilon < epsilon


@pytest.mark.parametrize(("epsilon", "excess"), [(1.0, 1.31), (0.5, 1.38), (0.1, 1.56)])
def test_the_printed_sigma_is_what_exact_accounting_needs_times_1_31_to_1_56(epsilon, excess):
    """At delta = 1e-5; the printed plateau 2 sqrt2/3 stands for kappa, which is 3 % less."""
    facts = [
        algorithm4(
            SQUARED, X, Y, epsilon=epsilon, delta=1e-5, v=5.0, steps=3, setting=setting, scale=10.0, random_state=0
        ).privacy.parameters
        for setting in ("paper", "improved")
    ]
    plateau = 2 * math.sqrt(2) / 3
    ratio = facts[0]["noise_sd"] / facts[1]["noise_sd"] * psi_bound(facts[1]["beta"]) / plateau
    assert ratio == pytest.approx(excess, abs=0.01)


def test_the_improved_setting_balances_bias_and_noise():
    """s* = sqrt(c v / (kappa K)), K = 2 sqrt(d T)/(n mu), and beta = sqrt(2 log 1/delta')."""
    v, steps, failure = 5.0, 12, 0.02
    result = algorithm4(SQUARED, X, Y, epsilon=1.0, v=v, failure=failure, steps=steps, random_state=0)
    facts = result.privacy.parameters
    beta = math.sqrt(2 * math.log(1 / failure))
    mu = gaussian_mu(Budget(1.0, 1e-6), 1, steps * D)
    K, kappa, c = 2 * math.sqrt(D * steps) / (N * mu), psi_bound(beta), Smoothed(1.0, beta).bias_constant()
    assert facts["beta"] == pytest.approx(beta, rel=1e-12)
    assert facts["scale"] == pytest.approx(math.sqrt(c * v / (kappa * K)), rel=1e-6)
    # At s* the bound on the bias equals the noise.
    assert c * v / facts["scale"] == pytest.approx(facts["noise_sd"], rel=1e-6)
    assert facts["noise_sd"] == pytest.approx(kappa * K * facts["scale"], rel=1e-6)


def test_an_intercept_is_one_more_coordinate_to_hide():
    sd = [
        clipped_gd(SQUARED, X, Y, epsilon=1.0, clip=3.0, fit_intercept=b).privacy.parameters["noise_sd"]
        for b in (False, True)
    ]
    assert sd[0] == pytest.approx(sd[1], rel=1e-6)  # one norm for all coordinates
    smooth = [
        algorithm4(SQUARED, X, Y, epsilon=1.0, scale=3.0, fit_intercept=b).privacy.parameters["noise_sd"]
        for b in (False, True)
    ]
    assert smooth[1] / smooth[0] == pytest.approx(math.sqrt((D + 1) / D), rel=1e-6)


def test_several_outputs_are_as_many_coordinates_to_hide():
    one, three = (
        algorithm4(loss, X, Y, epsilon=1.0, scale=3.0).privacy.parameters["noise_sd"]
        for loss in (SQUARED, losses.Multinomial(3))
    )
    assert three / one == pytest.approx(math.sqrt(3), rel=1e-6)


def test_what_is_given_is_taken():
    for setting in ("improved", "paper"):
        facts = algorithm4(
            SQUARED, X, Y, epsilon=1.0, v=5.0, scale=7.0, beta=2.0, setting=setting, steps=2
        ).privacy.parameters
        assert (facts["scale"], facts["beta"]) == (7.0, 2.0)
    facts = robust_gd(SQUARED, X, Y, scale=7.0, beta=2.0, steps=2).privacy.parameters
    assert (facts["scale"], facts["beta"]) == (7.0, 2.0)


def test_a_guarantee_does_not_depend_on_v_being_true():
    for v in (1e-12, 1e12):
        result = algorithm4(SQUARED, X, Y, epsilon=1.0, v=v, steps=3)
        assert result.privacy.epsilon <= 1.0
        assert np.all(np.isfinite(result.w))


# Algorithms 2 and 3.


@pytest.mark.parametrize("setting", ["improved", "paper"])
def test_algorithm3_spends_rho_over_d_and_t(setting):
    budget = Budget(1.0, 1e-6)
    report = algorithm3(SQUARED, X, Y, epsilon=budget, a=-3.0, b=3.0, steps=4, setting=setting, random_state=0).privacy
    (event,) = report.events
    assert isinstance(event, ZeroConcentrated)
    assert event.count == 4 * D
    assert event.rho * event.count <= budget.rho
    assert report.parameters["m"] == N // 20
    assert (report.parameters["a"], report.parameters["b"]) == (-3.0, 3.0)
    if setting == "improved":
        assert event.rho * event.count >= 0.99 * budget.rho


def test_the_papers_noise_parameters_are_the_printed_ones():
    """t = e^2/16, s = e/4, e the share of one of dT releases in sqrt(2 log 1/delta + 2 eps) - sqrt(2 log 1/delta)."""
    budget, releases = Budget(1.0, 1e-5), 4 * D
    mean = algorithms._trimmed_mean(budget, N, releases, -3.0, 3.0, None, "paper", None)
    log = 2 * math.log(1e5)
    share = (math.sqrt(log + 2.0) - math.sqrt(log)) / math.sqrt(releases)
    assert mean.parameters.t == pytest.approx(share**2 / 16, rel=1e-12)
    assert mean.parameters.s == pytest.approx(share / 4, rel=1e-12)
    assert mean.parameters.sigma == 1.0
    assert not mean.printed


@pytest.mark.parametrize("setting", ["improved", "paper", "printed"])
def test_algorithm2_works_on_a_column_and_on_columns(setting):
    column = algorithm2(X[:, 0], epsilon=1.0, a=-1.0, b=1.0, setting=setting, random_state=0)
    columns = algorithm2(X, epsilon=1.0, a=-1.0, b=1.0, setting=setting, random_state=0)
    assert isinstance(column.value, float)
    assert columns.value.shape == (D,)
    assert columns.privacy.method == "algorithm2"


def test_the_certified_noise_is_much_quieter_than_the_printed_one():
    """Their medians over twenty runs; at n = 10,000 they differ by a factor of thousands."""
    x = np.random.default_rng(0).standard_t(3, 10_000)
    certified, printed = (
        [algorithm2(x, epsilon=1.0, a=-1.0, b=1.0, setting=setting).value for _ in range(20)]
        for setting in ("improved", "paper")
    )
    assert np.median(np.abs(certified)) < 0.01 * np.median(np.abs(printed))


# Algorithm 1.


def test_algorithm1_with_the_median_spends_all_of_rho_on_one_release():
    budget = Budget(1.0, 1e-6)
    result = algorithm1(SQUARED, X, Y, epsilon=budget, constraint=L2Ball(5.0), blocks=20)
    (event,) = result.privacy.events
    assert event == ZeroConcentrated(budget.rho, label="median of the blocks")
    assert result.w.shape == (D,)
    np.testing.assert_array_equal(result.path, result.w[None])
    assert result.intercept is None
    assert result.privacy.parameters["blocks"] == 20


def test_algorithm1_with_the_center_has_its_own_event():
    big, target = table(8000, 1)
    result = algorithm1(SQUARED, big, target, epsilon=2.0, constraint=L2Ball(5.0), aggregator="center")
    (event,) = result.privacy.events
    assert isinstance(event, ApproximateDP)
    assert (event.epsilon, event.delta) == (2.0, 1e-6)
    assert result.privacy.private


@pytest.mark.parametrize(
    "constraint", [L2Ball(0.3), Box(-0.2, 0.1), Simplex(0.5), L2Ball(0.2, [1.0, 1.0, 1.0])], ids=repr
)
def test_algorithm1_answers_inside_its_set(constraint):
    w = algorithm1(SQUARED, X, Y, epsilon=1.0, constraint=constraint, blocks=20).w
    np.testing.assert_allclose(constraint.project(w), w, atol=1e-9)


def test_algorithm1_has_one_row_per_class():
    result = algorithm1(losses.Multinomial(3), X, np.abs(Y), epsilon=1.0, constraint=L2Ball(5.0), blocks=5)
    assert result.w.shape == (3, D)


def test_the_default_number_of_blocks_leaves_ten_rows_per_column():
    facts = algorithm1(SQUARED, X, Y, epsilon=1.0, constraint=L2Ball(5.0)).privacy.parameters
    assert facts["blocks"] == N // (10 * D)


def test_too_few_blocks_for_the_center_are_refused_with_what_would_do():
    with pytest.raises(TooFewBlocksError) as error:
        algorithm1(SQUARED, X, Y, epsilon=1.0, constraint=L2Ball(5.0), aggregator="center", blocks=50)
    message = str(error.value)
    assert error.value.m == 50
    assert error.value.smallest_m > 50
    assert f"m >= {error.value.smallest_m}" in message
    assert f"n >= {error.value.smallest_n}" in message
    assert f"d={error.value.largest_d}" in message or "no d works" in message


def test_too_few_rows_for_the_center_are_refused_with_the_smallest_n():
    with pytest.raises(TooFewBlocksError, match="n >= "):
        algorithm1(SQUARED, X, Y, epsilon=1.0, constraint=L2Ball(5.0), aggregator="center")


def test_the_center_finds_a_point_of_the_simplex():
    d, n = 8, 40_000
    rng = np.random.default_rng(0)
    features = rng.standard_normal((n, d))
    truth = np.append(0.72, np.full(d - 1, 0.04))
    target = features @ truth + 0.01 * rng.standard_normal(n)
    w = algorithm1(
        SQUARED, features, target, epsilon=50.0, constraint=Simplex(), aggregator="center", blocks=2000, random_state=0
    ).w
    np.testing.assert_allclose(w, truth, atol=0.02)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"loss": LOSSES["PerRow"]}, "PerRow"),
        ({"blocks": N + 1}, f"blocks={N + 1}"),
        ({"epsilon": Budget(rho=0.1), "aggregator": "center"}, "aggregator='center'"),
        ({"epsilon": Budget(mu=0.5)}, "rho is not defined"),
    ],
    ids=["PerRow", "more blocks than rows", "the center in rho", "the median in mu"],
)
def test_algorithm1_refuses_what_cannot_work(arguments, words):
    arguments = {"loss": SQUARED, "epsilon": 1.0, "constraint": L2Ball(5.0)} | arguments
    with pytest.raises(ValueError, match=words):
        algorithm1(X=X, y=Y, **arguments)


def test_a_row_changes_the_answer_of_its_own_block_only():
    order = SeededNoise(0).permutation(N)
    spoiled, target = X.copy(), Y.copy()
    spoiled[17], target[17] = 1e308, -np.inf
    answers = [
        block_minimisers(SQUARED, InMemory(features, y), order, 20, L2Ball(5.0), 0.0, False, 2, lambda: None)
        for features, y in ((X, Y), (spoiled, target))
    ]
    changed = np.any(answers[0] != answers[1], axis=1)
    assert changed.sum() == 1
    block = int(np.flatnonzero(changed)[0])
    assert 17 in order[np.linspace(0, N, 21).astype(int)[block] : np.linspace(0, N, 21).astype(int)[block + 1]]


@pytest.mark.parametrize("constraint", [L2Ball(0.3), Box(-0.2, 0.1), Simplex(0.5)], ids=repr)
def test_the_answer_of_every_block_is_in_the_set(constraint):
    """Blocks of two rows for three coefficients have wild answers, and some none."""
    features = X.copy()
    features[::7] = np.nan
    features[1::7] *= 1e-200
    engine = InMemory(features, Y)
    answers = block_minimisers(SQUARED, engine, np.arange(N), N // 2, constraint, 0.0, False, 2, lambda: None)
    assert answers.shape == (N // 2, D)
    for answer in answers:
        np.testing.assert_allclose(constraint.project(answer), answer, atol=1e-12)


def test_blocks_are_solved_exactly():
    order = np.arange(N)
    for name in ("Squared", "Logistic", "Huber", "Poisson", "Multinomial", "Custom"):
        loss = LOSSES[name]
        target = np.abs(np.rint(Y)).clip(0, 2)
        answers = block_minimisers(loss, InMemory(X, target), order, 4, L2Ball(100.0), 0.1, False, 1, lambda: None)
        for i, w in enumerate(answers):
            rows = slice(i * N // 4, (i + 1) * N // 4)
            z = X[rows] @ w.reshape(loss.outputs, D).T
            slope = loss.dz(z if loss.outputs > 1 else z[:, 0], target[rows]).reshape(N // 4, -1)
            gradient = slope.T @ X[rows] / (N // 4) + 0.1 * w.reshape(loss.outputs, D)
            np.testing.assert_allclose(gradient, 0.0, atol=2e-5)


# A row of any values changes no guarantee and stops no fit.

BAD = {
    "1e308": 1e308,
    "-1e308": -1e308,
    "inf": np.inf,
    "-inf": -np.inf,
    "nan": np.nan,
    "5e-324": 5e-324,
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ALL)
def test_no_row_stops_a_fit_or_changes_its_guarantee(name, loss):
    """No exception, no warning (warnings are errors), finite coefficients, the same report."""
    if name == "algorithm1" and loss == "PerRow":
        pytest.skip("Algorithm 1 takes no PerRow")
    rows = X[:120]  # as many as a batch needs
    labels = np.abs(np.rint(Y[:120])).clip(0, 2)
    more = {"blocks": 4, "alpha": 0.1} if name == "algorithm1" else {}
    clean = ALL[name](LOSSES[loss], rows, labels, random_state=0, **more)
    for where, value in itertools.product(("x", "y", "both", "one entry"), BAD.values()):
        features, target = rows.copy(), labels.copy()
        if where in ("x", "both"):
            features[5] = value
        if where in ("y", "both"):
            target[5] = value
        if where == "one entry":
            features[5, 1] = value
        result = ALL[name](LOSSES[loss], features, target, random_state=0, **more)
        assert np.all(np.isfinite(result.w)), (where, value)
        assert np.all(np.isfinite(result.path)), (where, value)
        assert result.privacy == clean.privacy, (where, value)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss != "PerRow"])
@pytest.mark.parametrize("blocks", [1, 40])
def test_no_table_stops_algorithm1(loss, blocks):
    """Every value awkward at once, in float64 and float32."""
    rng = np.random.default_rng(0)
    values = [0.0, 5e-324, 1e-200, 1.0, -1e6, 1e154, 1e200, 1e308, np.inf, -np.inf, np.nan]
    features, target = rng.choice(values, (80, 2)), rng.choice(values, 80)
    for constraint in (L2Ball(5.0), Box(-1.0, 2.0), Simplex()):
        result = algorithm1(LOSSES[loss], features, target, epsilon=1.0, constraint=constraint, blocks=blocks)
        np.testing.assert_allclose(constraint.project(result.w.ravel()), result.w.ravel(), atol=1e-9)


def test_a_bad_row_moves_a_private_fit_no_further_than_any_other_row():
    """Same noise, one row replaced, one step: the iterates differ by at most the sensitivity times the step."""
    n, step = N, 0.5
    for value in BAD.values():
        features, target = X.copy(), Y.copy()
        features[5], target[5] = value, value
        for fit in (
            partial(clipped_gd, epsilon=1.0, clip=3.0, steps=1, step_size=step, random_state=0),
            partial(algorithm4, epsilon=1.0, scale=3.0, steps=1, step_size=step, random_state=0),
        ):
            moved = fit(SQUARED, X, Y).w - fit(SQUARED, features, target).w
            bound = 3.0 if fit.func is clipped_gd else 3.0 * math.sqrt(D)
            assert np.linalg.norm(moved) <= step * 2 * bound / n * (1 + 1e-6)


# Data of any numeric kind.


@pytest.mark.parametrize("name", ["clipped_gd", "algorithm4", "algorithm3", "algorithm1"])
def test_any_layout_and_number_type_gives_the_same_fit(name, tmp_path):
    features, target = X.astype(np.float32), np.rint(Y)
    np.save(tmp_path / "X.npy", features)
    expected = PRIVATE[name](SQUARED, features.astype(np.float64), target, random_state=0).w
    for A, b in (
        (features, target),
        (np.asfortranarray(features), target.astype(np.int64)),
        (np.load(tmp_path / "X.npy", mmap_mode="r"), target.astype(np.float32)),
        (features.tolist(), list(map(int, target))),
        (features, target[:, None]),
    ):
        np.testing.assert_array_equal(PRIVATE[name](SQUARED, A, b, random_state=0).w, expected)


def test_the_data_is_not_changed():
    features, target = X.copy(), Y.copy()
    for fit in ALL.values():
        fit(SQUARED, features, target)
    np.testing.assert_array_equal(features, X)
    np.testing.assert_array_equal(target, Y)


def test_minimize_chooses_among_the_algorithms_and_adds_nothing():
    for method, function, arguments in (
        ("clipped", clipped_gd, {"epsilon": 1.0, "clip": 3.0, "steps": 3}),
        ("smoothed", algorithm4, {"epsilon": 1.0, "v": 5.0, "steps": 3}),
        ("trimmed", algorithm3, {"epsilon": 1.0, "a": -3.0, "b": 3.0, "steps": 3}),
        ("aggregate", algorithm1, {"epsilon": 1.0, "constraint": L2Ball(5.0), "blocks": 10}),
        ("robust", robust_gd, {"v": 5.0, "steps": 3}),
    ):
        one = minimize(SQUARED, X, Y, method=method, random_state=0, **arguments)
        two = function(SQUARED, X, Y, random_state=0, **arguments)
        np.testing.assert_array_equal(one.w, two.w)
        assert one.privacy == two.privacy


# Smoke: every algorithm learns. The excess risk at the start, w = 0, is 1.25 (0.31 for Poisson).

LEARN = {
    # name: (fit, bound on the excess risk); the bound is at least three times the largest of seeds 0 to 99.
    "algorithm4": (partial(algorithm4, epsilon=1.0, v=5.0), 0.06),
    "algorithm4, the paper's setting": (
        partial(algorithm4, epsilon=1.0, v=5.0, setting="paper", steps=20, step_size=0.1),
        0.6,
    ),
    "algorithm4, stochastic": (
        partial(algorithm4, epsilon=1.0, v=5.0, batch_size=2000, steps=50, step_size="1/sqrt(t)", average="mean"),
        0.01,
    ),
    "robust_gd": (partial(robust_gd, v=5.0), 0.01),
    "clipped_gd": (partial(clipped_gd, epsilon=1.0, clip=5.0), 0.01),
    "clipped_gd, stochastic": (partial(clipped_gd, epsilon=1.0, clip=5.0, batch_size=2000, steps=50), 0.02),
    "algorithm3": (partial(algorithm3, epsilon=1.0, a=-3.0, b=3.0, step_size=0.5), 0.6),
    "algorithm1": (partial(algorithm1, epsilon=1.0, constraint=L2Ball(5.0)), 0.06),
}


@pytest.mark.parametrize("name", LEARN)
def test_the_algorithm_learns_a_linear_model_with_heavy_tailed_noise(name):
    n, d = 20_000, 5
    features, target = table(n, d, seed=1)
    fit, bound = LEARN[name]
    w = fit(SQUARED, features, target, random_state=1).w
    assert 0.5 * np.sum((w - np.linspace(-1.0, 1.0, d)) ** 2) < bound


@pytest.mark.parametrize("name", ["Logistic", "Huber", "Poisson", "Multinomial", "PerRow"])
def test_every_loss_learns_its_own_model(name):
    """Excess risk below 0.05; the largest of seeds 0 to 99 is below 0.015."""
    n, d = 20_000, 5
    rng = np.random.default_rng(2)
    truth = np.linspace(-1.0, 1.0, d) * (0.5 if name == "Poisson" else 1.0)
    features = rng.standard_normal((n, d))
    z = features @ truth
    target = {
        "Logistic": (rng.random(n) < 1 / (1 + np.exp(-z))).astype(float),
        "Multinomial": (rng.random(n) < 1 / (1 + np.exp(-z))).astype(float),
        "Poisson": rng.poisson(np.exp(z)).astype(float),
    }.get(name, z + rng.standard_t(3, n))
    loss = losses.Multinomial(2) if name == "Multinomial" else LOSSES[name]
    step = 1.0 if name in ("Logistic", "Multinomial") else 0.3
    w = clipped_gd(loss, features, target, epsilon=1.0, clip=3.0, steps=40, step_size=step, random_state=2).w
    w = w[1] - w[0] if name == "Multinomial" else w
    assert 0.5 * np.sum((w - truth) ** 2) < 0.05
