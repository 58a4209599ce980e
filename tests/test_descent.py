"""THE loop: plain gradient descent in the limit, priced before it reads, stopped and resumed without paying twice."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from tailguard import losses as L
from tailguard.algorithms import algorithm3, algorithm4, clipped_gd, robust_gd
from tailguard.constraints import Box, Constraint, L2Ball, Simplex, Unconstrained
from tailguard.descent import Plan, State, descend
from tailguard.engines.memory import InMemory
from tailguard.means.gaussian import GaussianMean
from tailguard.privacy import Budget, Gaussian, OverBudgetError, SeededNoise, SystemNoise
from tailguard.sampling import FullBatch, PoissonSample
from tailguard.schedules import Constant, InverseSqrt, schedule
from tailguard.truncation import CoordinateClip, L2Clip, Smoothed, grid

N, D, STEPS = 60, 3, 6
LOSSES = {
    "Squared": L.Squared(),
    "Logistic": L.Logistic(),
    "Huber": L.Huber(0.5),
    "Poisson": L.Poisson(),
    "Multinomial": L.Multinomial(3),
    "Custom": L.Custom(value=lambda z, y: np.logaddexp(z - y, y - z), dz=lambda z, y: np.tanh(z - y)),
}
FAR = 1e5  # no gradient here comes near this: a truncation at FAR leaves all of them alone
TRUNCATIONS = {"L2Clip": L2Clip(FAR), "CoordinateClip": CoordinateClip(FAR), "Smoothed": Smoothed(FAR, 3.0)}


def table(n: int = N, d: int = D) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return X, rng.poisson(np.exp(0.5 * X[:, 0])).astype(np.float64)


def plain_descent(
    loss: L.Loss,
    X: np.ndarray,
    y: np.ndarray,
    *,
    steps: int = STEPS,
    step_size=lambda t: 0.1,
    alpha: float = 0.0,
    constraint: Constraint | None = None,
    fit_intercept: bool = False,
) -> np.ndarray:
    """Projected gradient descent in plain NumPy: all iterates, (steps, outputs, d + fit_intercept)."""
    d = X.shape[1]
    design = np.hstack([X, np.ones((len(X), 1))]) if fit_intercept else X
    constraint = constraint or Unconstrained()
    w, path = np.zeros((loss.outputs, design.shape[1])), []
    w[:, :d] = constraint.project(w[:, :d].ravel()).reshape(loss.outputs, d)
    for t in range(1, steps + 1):
        z = design @ w.T
        slope = loss.dz(z if loss.outputs > 1 else z[:, 0], y).reshape(len(X), -1)
        gradient = slope.T @ design / len(X)
        gradient[:, :d] += alpha * w[:, :d]
        w = w - step_size(t) * gradient
        w[:, :d] = constraint.project(w[:, :d].ravel()).reshape(loss.outputs, d)
        path.append(w)
    return np.array(path)


def exact(plan: Plan, X, y, **arguments):
    """Run a plan without noise."""
    return descend(plan, InMemory(X, y), SystemNoise(), None, 1e-6, method="test", parameters={}, **arguments)


def quiet_plan(loss: L.Loss, truncation=TRUNCATIONS["L2Clip"], **parts) -> Plan:
    return Plan(loss, GaussianMean(truncation, 0.0), STEPS, parts.pop("step_size", Constant(0.1)), **parts)


@pytest.fixture
def fine_grid(monkeypatch):
    """2**45 units in a row: rounding to the grid is then below 1e-8 even where the bound is far away."""
    monkeypatch.setattr(grid, "ROW_BITS", 45)


# Limits: a bound beyond all gradients and no noise is plain gradient descent.


@pytest.mark.usefixtures("fine_grid")
@pytest.mark.parametrize("truncation", TRUNCATIONS)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_without_truncation_and_noise_it_is_plain_gradient_descent(name, truncation, fit_intercept):
    X, y = table()
    loss = LOSSES[name]
    result = exact(quiet_plan(loss, TRUNCATIONS[truncation], fit_intercept=fit_intercept), X, y)
    path = plain_descent(loss, X, y, fit_intercept=fit_intercept)
    np.testing.assert_allclose(result.path.reshape(STEPS, loss.outputs, D), path[:, :, :D], rtol=0, atol=1e-7)
    np.testing.assert_allclose(result.w, result.path[-1], rtol=0)
    if fit_intercept:
        np.testing.assert_allclose(np.ravel(result.intercept), path[-1, :, D], rtol=0, atol=1e-7)
    else:
        assert result.intercept is None
    assert np.max(np.abs(path[-1])) > 0.01


@pytest.mark.usefixtures("fine_grid")
def test_the_penalty_spares_the_intercept():
    X, y = table()
    plan = quiet_plan(L.Squared(), alpha=2.0, fit_intercept=True)
    path = plain_descent(L.Squared(), X, y, alpha=2.0, fit_intercept=True)
    result = exact(plan, X, y)
    np.testing.assert_allclose([*result.w, result.intercept], path[-1, 0], rtol=0, atol=1e-7)
    # Nothing in X: the intercept goes to the mean of y whatever the penalty, the coefficients stay at zero.
    alone = exact(replace(plan, steps=200, alpha=5.0), np.zeros((N, D)), y)
    assert alone.intercept == pytest.approx(y.mean(), abs=1e-6)
    np.testing.assert_array_equal(alone.w, 0.0)


@pytest.mark.usefixtures("fine_grid")
def test_the_average_is_the_mean_of_the_iterates():
    X, y = table()
    for fit_intercept in (False, True):
        plan = quiet_plan(L.Logistic(), average="mean", fit_intercept=fit_intercept)
        path = plain_descent(L.Logistic(), X, y, fit_intercept=fit_intercept)[:, 0]
        result = exact(plan, X, y)
        np.testing.assert_allclose(result.w, path[:, :D].mean(axis=0), rtol=0, atol=1e-7)
        np.testing.assert_allclose(result.path[-1], path[-1, :D], rtol=0, atol=1e-7)
        if fit_intercept:
            assert result.intercept == pytest.approx(path[:, D].mean(), abs=1e-7)


@pytest.mark.usefixtures("fine_grid")
@pytest.mark.parametrize(
    ("argument", "size"),
    [(0.05, lambda t: 0.05), ("1/sqrt(t)", lambda t: t**-0.5), (lambda t: 0.3 / t, lambda t: 0.3 / t)],
    ids=["constant", "1/sqrt(t)", "a function"],
)
def test_step_sizes_are_functions_of_t_from_one(argument, size):
    X, y = table()
    result = exact(quiet_plan(L.Huber(0.5), step_size=schedule(argument)), X, y)
    expected = plain_descent(L.Huber(0.5), X, y, step_size=size)[:, 0]
    np.testing.assert_allclose(result.path, expected, rtol=0, atol=1e-7)


def test_schedules_by_hand():
    assert [Constant(0.3)(t) for t in (1, 9)] == [0.3, 0.3]
    assert [InverseSqrt(2.0)(t) for t in (1, 4, 16)] == [2.0, 1.0, 0.5]
    assert schedule("1/sqrt(t)")(4) == 0.5
    assert schedule(0.25)(7) == 0.25


@pytest.mark.usefixtures("fine_grid")
@pytest.mark.parametrize(
    "constraint", [L2Ball(0.05), L2Ball(0.1, [0.3, 0.0, 0.0]), Box(-0.02, 0.03), Simplex(0.2)], ids=repr
)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_every_iterate_is_projected_and_the_intercept_is_free(constraint, fit_intercept):
    X, y = table()
    result = exact(quiet_plan(L.Squared(), constraint=constraint, fit_intercept=fit_intercept), X, y)
    path = plain_descent(L.Squared(), X, y, constraint=constraint, fit_intercept=fit_intercept)[:, 0]
    np.testing.assert_allclose(result.path, path[:, :D], rtol=0, atol=1e-7)
    for w in result.path:
        np.testing.assert_allclose(constraint.project(w), w, rtol=0, atol=1e-12)
    if fit_intercept:
        assert result.intercept == pytest.approx(path[-1, D], abs=1e-7)
        assert result.intercept > 0.3


@pytest.mark.usefixtures("fine_grid")
def test_the_start_is_projected_and_is_not_in_the_path():
    X, y = table()
    plan = quiet_plan(L.Squared(), constraint=L2Ball(1.0))
    seen = []
    result = exact(plan, X, y, start=[300.0, 400.0, 0.0], callback=seen.append)
    first = np.array([0.6, 0.8, 0.0])
    step = first - 0.1 * X.T @ (X @ first - y) / N
    np.testing.assert_allclose(result.path[0], L2Ball(1.0).project(step), rtol=0, atol=1e-7)
    assert len(result.path) == STEPS
    assert [state.step for state in seen] == list(range(1, STEPS + 1))


@pytest.mark.usefixtures("fine_grid")
def test_several_outputs_are_projected_as_one_vector():
    X, y = table()
    result = exact(quiet_plan(L.Multinomial(3), constraint=L2Ball(0.01)), X, y)
    assert np.linalg.norm(result.w) == pytest.approx(0.01, rel=1e-9)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("average", ["last", "mean"])
def test_results_of_several_outputs_have_one_row_per_class(fit_intercept, average):
    X, y = table()
    result = exact(quiet_plan(L.Multinomial(4), fit_intercept=fit_intercept, average=average), X, y)
    assert result.w.shape == (4, D)
    assert result.path.shape == (STEPS, 4, D)
    assert result.state.w.shape == (4, D + fit_intercept)
    if fit_intercept:
        assert result.intercept.shape == (4,)
    one = exact(quiet_plan(L.Squared(), fit_intercept=fit_intercept, average=average), X, y)
    assert one.w.shape == (D,)
    assert one.path.shape == (STEPS, D)
    assert isinstance(one.intercept, float) == fit_intercept


# A loss that a user writes is as good as a built-in one, with noise and all.

WRITTEN = {
    "Squared": (
        L.Custom(value=lambda z, y: (z - y) ** 2 / 2, dz=lambda z, y: z - y),
        L.PerRow(lambda w, X, y: (X @ w - y)[:, None] * X),
    ),
    "Logistic": (
        L.Custom(value=lambda z, y: np.logaddexp(0, -y * z), dz=lambda z, y: -y * expit(-y * z)),
        L.PerRow(lambda w, X, y: (-y * expit(-y * (X @ w)))[:, None] * X),
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("kind", [0, 1], ids=["Custom", "PerRow"])
@pytest.mark.parametrize("batch_size", [None, 20])
def test_a_written_loss_equals_the_built_in_one(name, kind, batch_size):
    X, y = table()
    y = np.where(y > 0, 1.0, -1.0)
    run = {"epsilon": 1.0, "clip": 1.0, "steps": STEPS, "batch_size": batch_size, "random_state": 5}
    built_in = clipped_gd(LOSSES[name], X, y, **run)
    written = clipped_gd(WRITTEN[name][kind], X, y, **run)
    np.testing.assert_allclose(written.path, built_in.path, rtol=0, atol=1e-8)
    assert written.privacy.epsilon == built_in.privacy.epsilon


def test_a_per_row_gradient_may_have_its_own_number_of_coefficients():
    """A quadratic in one column: three coefficients from (1, x, x^2), none of them a column of X."""
    x = np.linspace(-1.0, 1.0, 400)[:, None]
    y = 1.0 - x[:, 0] + 0.5 * x[:, 0] ** 2

    def gradient(w, X, target):
        features = np.hstack([np.ones_like(X), X, X**2])
        return (features @ w - target)[:, None] * features

    result = robust_gd(L.PerRow(gradient), x, y, scale=100.0, steps=300, step_size=0.5, start=np.zeros(3))
    np.testing.assert_allclose(result.w, [1.0, -1.0, 0.5], atol=0.02)


# Prices: before, during and after.


class Untouchable:
    """A table whose shape is public and whose values are not to be read."""

    shape = (N, D)

    def __getattr__(self, name):
        raise AssertionError(f"the data was read: {name}")

    def __getitem__(self, index):
        raise AssertionError("the data was read")


def private_plan(multiplier: float, **parts) -> Plan:
    mean = GaussianMean(L2Clip(1.0), multiplier)
    return Plan(L.Squared(), mean, STEPS, Constant(0.1), **parts)


@pytest.mark.parametrize("sampler", [FullBatch(), PoissonSample(0.25), PoissonSample(0.25, "replace-one")], ids=repr)
def test_a_plan_over_budget_is_refused_before_the_data_is_touched(sampler):
    budget = Budget(1.0, 1e-6)
    least = sampler.calibrate(budget, STEPS, STEPS * D)
    engine = InMemory(Untouchable(), Untouchable())
    with pytest.raises(OverBudgetError, match="costs more than the budget"):
        descend(
            private_plan(0.98 * least, sampler=sampler), engine, SystemNoise(), budget, 1e-6, method="", parameters={}
        )
    # The same plan with the noise it needs goes on to the data: the trap works.
    with pytest.raises(AssertionError, match="the data was read"):
        descend(private_plan(least, sampler=sampler), engine, SystemNoise(), budget, 1e-6, method="", parameters={})


def test_a_private_plan_without_a_budget_is_refused():
    engine = InMemory(Untouchable(), Untouchable())
    with pytest.raises(OverBudgetError, match="needs a budget"):
        descend(private_plan(5.0), engine, SystemNoise(), None, 1e-6, method="", parameters={})


def test_a_plan_that_is_not_private_keeps_no_budget():
    engine = InMemory(Untouchable(), Untouchable())
    with pytest.raises(OverBudgetError):
        descend(private_plan(0.0), engine, SystemNoise(), Budget(100.0, 0.1), 1e-6, method="", parameters={})


def test_a_constraint_of_the_wrong_dimension_is_refused_before_the_data_is_touched():
    engine = InMemory(Untouchable(), Untouchable())
    with pytest.raises(ValueError, match=r"constraint: center has shape \(2,\) but there are 3 coefficients"):
        descend(
            private_plan(50.0, constraint=L2Ball(1.0, [0.0, 0.0])),
            engine,
            SystemNoise(),
            Budget(1.0, 1e-6),
            1e-6,
            method="",
            parameters={},
        )


def test_a_plan_states_what_all_its_steps_cost():
    assert private_plan(4.0).events(3) == (Gaussian(0.25, STEPS, 3 * STEPS, label="gradient steps"),)


FITS = {
    "clipped_gd": lambda X, y, **run: clipped_gd(L.Squared(), X, y, epsilon=1.0, clip=2.0, **run),
    "clipped_gd on batches": lambda X, y, **run: clipped_gd(
        L.Squared(), X, y, epsilon=1.0, clip=2.0, batch_size=20, **run
    ),
    "algorithm4": lambda X, y, **run: algorithm4(L.Squared(), X, y, epsilon=1.0, v=2.0, **run),
    "algorithm3": lambda X, y, **run: algorithm3(L.Squared(), X, y, epsilon=1.0, a=-5.0, b=5.0, **run),
}
every_fit = pytest.mark.parametrize("name", FITS)


@every_fit
def test_a_callback_sees_released_states_and_stops_the_run(name):
    """All six steps are charged, as planned: where a run stops depends on what it saw, its price may not."""
    X, y = table()
    seen = []

    def stop_after_two(state):
        seen.append(state)
        return state.step == 2

    whole = FITS[name](X, y, steps=STEPS, random_state=1)
    stopped = FITS[name](X, y, steps=STEPS, random_state=1, callback=stop_after_two)
    assert [state.step for state in seen] == [1, 2]
    assert stopped.state.step == 2
    assert stopped.path.shape == (2, D)
    np.testing.assert_array_equal(stopped.path, whole.path[:2])
    np.testing.assert_array_equal(seen[1].w[0], stopped.w)
    assert stopped.privacy == whole.privacy


@every_fit
@pytest.mark.parametrize("average", ["last", "mean"])
@pytest.mark.parametrize("through_json", [False, True])
def test_a_resumed_run_is_the_whole_run_at_the_price_of_one(name, average, through_json):
    X, y = table()
    run = {"steps": STEPS, "average": average, "random_state": 2, "fit_intercept": True}
    whole = FITS[name](X, y, **run)
    first = FITS[name](X, y, **run, callback=lambda state: state.step == 4)
    state = State.from_json(first.state.to_json()) if through_json else first.state
    rest = FITS[name](X, y, **run, resume=state)
    np.testing.assert_array_equal(rest.w, whole.w)
    assert rest.intercept == whole.intercept
    np.testing.assert_array_equal(np.vstack([first.path, rest.path]), whole.path)
    assert rest.privacy.events == whole.privacy.events
    assert rest.privacy.epsilon == whole.privacy.epsilon
    # A run that is over has nothing left to do, and nothing more to pay.
    again = FITS[name](X, y, **run, resume=rest.state)
    np.testing.assert_array_equal(again.w, whole.w)
    assert len(again.path) == 0
    assert again.privacy.events == whole.privacy.events


@pytest.mark.parametrize(
    "change",
    [
        {"steps": STEPS + 1},
        {"epsilon": 1.5},
        {"clip": 3.0},
        {"step_size": 0.2},
        {"alpha": 0.1},
        {"fit_intercept": True},
        {"constraint": L2Ball(1.0)},
        {"batch_size": 20},
        {"relation": "add-remove"},
        {"average": "mean"},
        {"loss": L.Huber(0.5)},
        {"rows": N - 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_state_is_not_continued_by_another_plan(change):
    X, y = table()
    arguments = {"loss": L.Squared(), "epsilon": 1.0, "clip": 2.0, "steps": STEPS, "step_size": 0.1, "rows": N}

    def fit(given, **run):
        given = dict(given)
        loss, rows = given.pop("loss"), given.pop("rows")
        return clipped_gd(loss, X[:rows], y[:rows], **given, **run, random_state=0)

    state = fit(arguments, callback=lambda state: True).state
    with pytest.raises(ValueError, match="resume belongs to another run"):
        fit(arguments | change, resume=state)


def test_a_run_with_its_own_step_size_can_be_resumed_after_a_restart():
    X, y = table()
    run = {"epsilon": 1.0, "clip": 2.0, "steps": STEPS, "random_state": 0}
    whole = clipped_gd(L.Squared(), X, y, **run, step_size=lambda t: 0.1 / t)
    first = clipped_gd(L.Squared(), X, y, **run, step_size=lambda t: 0.1 / t, callback=lambda state: state.step == 2)
    rest = clipped_gd(L.Squared(), X, y, **run, step_size=lambda t: 0.1 / t, resume=first.state)
    np.testing.assert_array_equal(rest.w, whole.w)


@pytest.mark.parametrize("step", [-1, STEPS + 1])
def test_a_state_of_a_step_that_the_plan_does_not_have_is_refused(step):
    """A state of step -1 would buy one release more than is paid for."""
    X, y = table()
    run = {"epsilon": 1.0, "clip": 2.0, "steps": STEPS, "random_state": 0}
    state = clipped_gd(L.Squared(), X, y, **run, callback=lambda state: True).state
    with pytest.raises(ValueError, match=r"resume\.step"):
        clipped_gd(L.Squared(), X, y, **run, resume=replace(state, step=step))


def test_only_a_state_can_be_resumed():
    X, y = table()
    for wrong in ("state", 3, {"step": 1}):
        with pytest.raises(TypeError, match="resume="):
            clipped_gd(L.Squared(), X, y, epsilon=1.0, clip=1.0, resume=wrong)


def test_a_state_survives_json_with_every_bit():
    state = State(3, np.array([[math.pi, 1e-300, -0.0]]), np.array([[1 / 3, 2.0, 5e-324]]), "abc")
    copy = State.from_json(state.to_json())
    assert (copy.step, copy.plan) == (3, "abc")
    np.testing.assert_array_equal(copy.w, state.w)
    np.testing.assert_array_equal(copy.total, state.total)
    assert np.signbit(copy.w[0, 2])


def test_the_same_seed_gives_the_same_run_for_any_threads(busy_threads):
    X, y = table()
    runs = [
        clipped_gd(L.Logistic(), X, y, epsilon=1.0, clip=1.0, random_state=3, threads=threads) for threads in (1, 2, 4)
    ]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.path, runs[0].path)
    other = clipped_gd(L.Logistic(), X, y, epsilon=1.0, clip=1.0, random_state=4)
    assert not np.array_equal(other.path, runs[0].path)


def test_steps_use_fresh_noise():
    """No data, a step of one: increments are the noise of each step, and no two are alike."""
    result = clipped_gd(
        L.Squared(), np.zeros((N, 1)), np.zeros(N), epsilon=1.0, clip=1.0, steps=30, step_size=1.0, random_state=0
    )
    increments = np.diff(np.concatenate([[0.0], result.path[:, 0]]))
    assert len(np.unique(increments)) == 30
    assert abs(np.corrcoef(increments[:-1], increments[1:])[0, 1]) < 0.9


def test_an_iterate_that_runs_away_stays_finite():
    """A step of 1e200 is a bad idea, not an error."""
    X, y = table()
    result = clipped_gd(L.Squared(), X, y, epsilon=1.0, clip=1.0, step_size=1e200, steps=4, random_state=0)
    assert np.all(np.isfinite(result.w))
    bounded = clipped_gd(
        L.Squared(), X, y, epsilon=1.0, clip=1.0, step_size=1e200, steps=4, random_state=0, constraint=Simplex()
    )
    assert bounded.w.sum() == pytest.approx(1.0, rel=1e-9)


def test_a_progress_bar_changes_nothing(capsys):
    X, y = table()
    run = {"epsilon": 1.0, "clip": 1.0, "steps": 3, "random_state": 0}
    quiet = clipped_gd(L.Squared(), X, y, **run)
    assert capsys.readouterr().out == ""
    shown = clipped_gd(L.Squared(), X, y, **run, progress=True)
    np.testing.assert_array_equal(shown.path, quiet.path)
    assert "3/3" in capsys.readouterr().out


def test_a_report_has_the_public_facts_of_the_run():
    X, y = table()
    result = clipped_gd(L.Squared(), X, y, epsilon=1.0, clip=2.0, steps=STEPS)
    report = result.privacy
    assert report.private
    assert report.n_rows == N
    assert report.method == "clipped_gd"
    assert report.parameters["clip"] == 2.0
    assert report.parameters["steps"] == STEPS
    assert 0.999 < report.epsilon <= 1.0
    assert report.relation == "replace-one"
    assert "(1, 1e-6)-differentially private when one of the 60 rows is replaced" in str(report)


def test_a_source_that_is_not_private_makes_a_run_that_is_not_private():
    """A source may be predictable without having a seed to its name."""

    class Forgetful(SeededNoise):
        def __init__(self):
            super().__init__(7)
            self.seed = None

        def at(self, step):
            return SeededNoise(7).at(step)

    X, y = table()
    result = clipped_gd(L.Squared(), X, y, epsilon=1.0, clip=2.0, steps=2, random_state=Forgetful())
    assert not result.privacy.private


def test_unconstrained_is_the_default():
    assert quiet_plan(L.Squared()).constraint == Unconstrained()
    assert quiet_plan(L.Squared()).sampler == FullBatch()


def test_a_seeded_state_cannot_be_laundered_by_resuming_without_a_seed():
    X, y = table()
    run = {"epsilon": 1.0, "clip": 2.0, "steps": STEPS}
    for stop in (STEPS, STEPS - 1):
        seeded = clipped_gd(
            L.Squared(), X, y, **run, random_state=0, callback=lambda state, stop=stop: state.step == stop
        )
        resumed = clipped_gd(L.Squared(), X, y, **run, resume=State.from_json(seeded.state.to_json()))
        assert not resumed.privacy.private
        assert "seeded" in resumed.privacy.guarantee
    private = clipped_gd(L.Squared(), X, y, **run, callback=lambda state: True)
    assert clipped_gd(L.Squared(), X, y, **run, resume=State.from_json(private.state.to_json())).privacy.private
