"""Standard errors and intervals: that they cover, what they are made of, and that nothing else leaves."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, chi2
from typer.testing import CliRunner

import tailguard as tg
from tailguard import default
from tailguard.default import inference
from tailguard.default.columns import Columns
from tailguard.default.inference import Estimate, Tail, in_data_units
from tailguard.default.rows import Target
from tailguard.default.scores import CountScore, LevelRows, OddsScore, ResidualScore, ScoreRows, SignRows, SlopeRows
from tailguard.default.scores import TailScore as Tails
from tailguard.default.whitening import Design
from tailguard.intervals import IntervalTable, Uncertainty
from taped import Replayed, Taped

SLOPES = np.array([1.0, -0.5])
MODELS = {
    "mean": (tg.PrivateRidge, lambda z, rng: 1.0 + z + rng.standard_t(4, len(z))),
    "bulk": (tg.PrivateHuberRegressor, lambda z, rng: 1.0 + z + rng.lognormal(0.0, 1.0, len(z)) - math.exp(0.5)),
    "log-odds": (tg.PrivateLogisticRegression, lambda z, rng: rng.random(len(z)) < 1.0 / (1.0 + np.exp(-1.0 - z))),
    "counts": (tg.PrivatePoissonRegressor, lambda z, rng: rng.poisson(np.exp(1.0 + z)).astype(float)),
}
every_model = pytest.mark.parametrize("name", MODELS)


def table(name: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, n])
    X = rng.normal([0.0, 3.0], 1.0, (n, 2))
    scale = 0.5 if name == "counts" else 1.0
    return X, MODELS[name][1]((X - [0.0, 3.0]) @ (scale * SLOPES), rng)


def fitted(name: str, n: int, seed: int, epsilon: float = 3.0, **options):
    X, y = table(name, n, seed)
    return MODELS[name][0](epsilon, inference=True, random_state=seed, threads=1, **options).fit(X, y)


# ---------------------------------------------------------------- they cover


def accepted(covered: np.ndarray) -> bool:
    """Whether a coverage of .95 is credible: right intervals fail with probability 1e-5."""
    return int(covered.sum()) >= binom.ppf(1e-5, covered.size, 0.95)


@every_model
def test_intervals_cover_and_half_of_them_do_not(name):
    """With power: intervals of half the width cover .67, and are refused."""
    truth = SLOPES * (0.5 if name == "counts" else 1.0)
    models = [fitted(name, 4000, seed) for seed in range(60)]
    error = np.array([np.ravel(model.coef_) - truth for model in models])
    half = np.array([np.diff(model.conf_int(), axis=1)[:, 0] / 2.0 for model in models])
    assert np.isfinite(half).all()
    assert accepted(np.abs(error) <= half)
    assert not accepted(np.abs(error) <= half / 2.0)


def test_intervals_of_a_mean_cover_and_half_of_them_do_not():
    covered = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        result = tg.private_mean(7.0 + rng.standard_t(4, 3000), 2.0, inference=True, random_state=seed, threads=1)
        half = np.diff(result.conf_int()) / 2.0
        covered.append([abs(result.value - 7.0) <= half, abs(result.value - 7.0) <= half / 2.0])
    whole, narrow = np.array(covered).squeeze().T
    assert accepted(whole)
    assert not accepted(narrow)


@pytest.mark.parametrize("name", ["bulk", "log-odds"])
def test_privacy_noise_is_as_large_as_it_is_said_to_be(name):
    """The spread of fits of one table is that of the stated noise, and not of 2/3 or 3/2 of it."""
    X, y = table(name, 6000, 0)
    models = [MODELS[name][0](1.5, inference=True, random_state=seed, threads=1).fit(X, y) for seed in range(100)]
    coef = np.array([np.ravel(model.coef_) for model in models])
    # Scales, clips and weights move with the noise too, so the stated noise of every fit is another.
    z = (coef - coef.mean(axis=0)) / np.array([np.ravel(model.coef_noise_) for model in models])

    def credible(factor: float) -> bool:
        statistic = float(np.sum((z / factor) ** 2))
        return chi2.ppf(1e-7, z.size - 2) < statistic < chi2.isf(1e-7, z.size - 2)

    assert credible(1.0)
    assert not credible(2.0 / 3.0)
    assert not credible(1.5)


# ---------------------------------------------------------------- what they are made of


def test_noise_of_a_symmetric_matrix_is_isotropic():
    """Cov(E x) = e^2/2 (|x|^2 I + x x') and Var(l'El) = e^2 |l|^4: what the module's formulas rest on."""
    rng = np.random.default_rng(0)
    A = np.triu(rng.standard_normal((200_000, 3, 3)), 1) / math.sqrt(2.0)
    E = A + A.transpose(0, 2, 1) + np.eye(3) * rng.standard_normal((200_000, 1, 3))
    x = np.array([1.0, -2.0, 0.5])
    expected = (x @ x * np.eye(3) + np.outer(x, x)) / 2.0
    np.testing.assert_allclose(np.cov((E @ x).T), expected, atol=0.08)
    assert np.var(x @ E @ x) == pytest.approx((x @ x) ** 2, rel=0.03)


def estimate(middle: np.ndarray, noise: float = 0.0, unknown: int = 0) -> Estimate:
    V = np.eye(3)
    return Estimate(
        np.zeros(3), np.diag([1.0] * (3 - unknown) + [0.0] * unknown), middle, noise, 0.0, V[:, 3 - unknown :]
    )


def test_uncertainty_is_the_sandwich_with_satterthwaites_degrees_of_freedom():
    middle = np.diag([1.0, 4.0, 9.0])
    found = estimate(middle, noise=0.5).uncertainty(np.eye(3))
    np.testing.assert_allclose(found.stderr, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(found.freedom, 2.0 * np.array([1.0, 4.0, 9.0]) ** 2 / 0.25)


def test_a_direction_of_which_nothing_is_known_has_no_interval():
    found = estimate(np.eye(3), unknown=1).uncertainty(np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.2], [0.0, 0.0, 1.0]]))
    np.testing.assert_array_equal(np.isfinite(found.stderr), [True, False, False])


def test_an_eigenvalue_within_its_noise_is_not_inverted():
    inverse, unknown = inference._inverse(np.diag([2.0, 0.1, 0.4]), sd=0.1)
    np.testing.assert_allclose(inverse, np.diag([0.5, 0.0, 2.5]))
    np.testing.assert_allclose(np.abs(unknown), [[0.0], [1.0], [0.0]])


def test_units_of_the_data_and_the_intercept():
    """The intercept's error is that of the line at the origin."""
    columns = Columns(np.zeros(2), np.ones(2), np.array([10.0, 0.0]), np.array([2.0, 4.0]), np.array([True, False]))
    design = Design(columns, np.zeros(2), np.eye(2), np.eye(2), True, 1.0, 2.0)
    found = in_data_units(design, estimate(np.eye(3)), unit=6.0)
    np.testing.assert_allclose(found.stderr, [3.0, np.inf, 6.0 * math.sqrt(1.0 + 5.0**2)])


def test_the_tail_law_is_exact_for_a_power_law_and_balances():
    """Beyond its start a Pareto tail of index 3 has mean excess c (start/c)^3 / 2."""
    tail = Tail(2.0, 1.0 / 3.0, 0.1)
    assert tail.reach(4.0) == pytest.approx(4.0 * 0.5**3 / 2.0)
    clips = [tail.cut(np.array([skew]), 1e-8, 1e-3, 1.0).clip for skew in (0.0, 0.001, 0.01, 0.1)]
    assert clips == sorted(clips)
    assert clips[0] < clips[-1]


@pytest.mark.parametrize("skewed", [False, True])
def test_a_mean_with_a_tail_is_not_biased_by_its_clip(skewed):
    """Over fits of a Pareto column the mean of errors is within its standard error; what is cut off is put back."""
    errors = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        tail = rng.pareto(3.0, 20_000) - 0.5
        y = tail if skewed else tail * rng.choice([-1.0, 1.0], 20_000)
        result = tg.private_mean(y, 1.0, inference=True, random_state=seed, threads=1)
        errors.append(result.value / result.stderr)
    assert abs(np.mean(errors)) < 1.0
    assert 0.4 < np.std(errors) < 1.5


# ---------------------------------------------------------------- sensitivity of the new rows

AWKWARD = [0.0, 1.0, -3.0, 1e6, -1e308, 1e308, np.inf, -np.inf, np.nan, 5e-324]


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_within_their_bounds_whatever_they_are(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.choice(AWKWARD, size=(200, 3)), rng.choice(AWKWARD, size=200)
    scale = 10.0 ** rng.integers(-5, 5, 3)
    columns = Columns(scale * rng.normal(size=3), 4.0 * scale, scale * rng.normal(size=3), scale, np.ones(3, bool))
    design = Design(columns, rng.normal(size=3), rng.normal(size=(3, 3)), np.eye(3), True, 1.5, 2.5)
    theta, target = rng.normal(size=4), Target(0.5, 2.0, 0.0, furthest=1e7)
    line = design.fitted(theta)
    residual = ResidualScore(target, 0.7)
    with np.errstate(all="ignore"):
        for score in (residual, CountScore(target, 0.3, 5.0, 0.7), OddsScore(), Tails(residual, 0.4)):
            for rows in (ScoreRows(design, theta, score), SlopeRows(design, theta, score)):
                size = np.linalg.norm(rows(X, y), axis=1)
                assert np.all(size <= rows.bound * (1.0 + 1e-9))
                missing = ~np.all((columns.lower <= X) & (columns.upper >= X), axis=1) | np.isnan(y)
                np.testing.assert_array_equal(size[missing], 0.0)
        assert np.all(np.linalg.norm(LevelRows(line, target, 0.7)(X, y), axis=1) <= 1.0 + 1e-12)
        assert np.all(np.abs(SignRows(line, target, 0.7)(X, y)) <= 1.0)


# ---------------------------------------------------------------- nothing but releases leaves


@every_model
@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
def test_all_that_is_told_is_a_function_of_what_was_released(monkeypatch, name, intercept):
    monkeypatch.setattr(default, "Queries", Taped)
    Taped.tape = []
    model = fitted(name, 2000, 0, fit_intercept=intercept)
    monkeypatch.setattr(default, "Queries", Replayed)
    X, y = np.full((2000, 2), np.nan), np.tile([0.0, 1.0], 1000)
    twin = MODELS[name][0](3.0, inference=True, random_state=0, threads=1, fit_intercept=intercept).fit(X, y)
    assert not Taped.tape
    for attribute in ("coef_", "intercept_", "stderr_", "intercept_stderr_", "freedom_", "coef_noise_"):
        np.testing.assert_array_equal(getattr(twin, attribute), getattr(model, attribute))
    assert twin.privacy_ == model.privacy_
    assert np.isfinite(model.stderr_).all()
    assert (np.ravel(model.intercept_stderr_)[0] == 0.0) == (not intercept)


@every_model
def test_the_budget_is_kept(name):
    report = fitted(name, 1000, 1).privacy_
    assert report.epsilon <= 3.0
    assert report.parameters["inference"] is True


@every_model
def test_hostile_tables_have_intervals_that_say_nothing_or_something_finite(name):
    """No exception, no NaN, whatever the rows hold."""
    rng = np.random.default_rng(0)
    for X, y in (
        (np.full((500, 2), np.inf), np.zeros(500)),
        (rng.choice(AWKWARD, size=(500, 2)), rng.choice(AWKWARD, size=500)),
        (np.ones((500, 2)), np.ones(500)),
        (rng.normal(size=(500, 2)) * [1e-280, 1e280], rng.normal(size=500) * 1e150),
    ):
        if name == "log-odds":
            y = (np.arange(500) % 2).astype(float)
        model = MODELS[name][0](20.0, inference=True, random_state=0).fit(X, y)
        assert not np.isnan(model.conf_int(intercept=True)).any()
        str(model.summary())


# ---------------------------------------------------------------- what a user sees


def test_too_little_budget_is_told_in_the_table():
    X, y = table("mean", 300, 0)
    model = tg.PrivateRidge(0.1, inference=True).fit(X, y)
    assert np.isinf(model.stderr_).all()
    assert np.isinf(model.conf_int()).all()
    assert "does not carry an honest interval" in str(model.summary())
    assert "does not carry an honest interval" in model.summary()._repr_html_()
    small = tg.private_mean(y[:5], 0.1, inference=True)
    assert small.stderr == np.inf
    np.testing.assert_array_equal(small.conf_int(), [-np.inf, np.inf])


def test_a_column_without_a_scale_in_sight_has_no_interval_and_others_do():
    X, y = table("bulk", 20_000, 0)
    model = tg.PrivateHuberRegressor(3.0, inference=True, random_state=0).fit(np.column_stack([X, np.zeros(len(X))]), y)
    np.testing.assert_array_equal(np.isfinite(model.stderr_), [True, True, False])


def test_shapes_and_levels():
    model = fitted("log-odds", 4000, 0)
    assert model.stderr_.shape == model.coef_.shape == (1, 2)
    assert model.intercept_stderr_.shape == (1,)
    assert model.freedom_.shape == (3,)
    assert model.conf_int().shape == (2, 2)
    wide, narrow = model.conf_int(0.99, intercept=True), model.conf_int(0.5, intercept=True)
    assert np.all((wide[:, 0] < narrow[:, 0]) & (narrow[:, 1] < wide[:, 1]))
    np.testing.assert_allclose(wide.mean(axis=1), np.append(model.coef_, model.intercept_))
    two = tg.private_mean(table("mean", 4000, 0)[0], 2.0, inference=True)
    assert two.stderr.shape == (2,)
    assert two.conf_int().shape == (2, 2)
    assert "x1" in str(two.summary())
    ridge = fitted("mean", 4000, 0)
    assert isinstance(ridge.intercept_stderr_, float)
    assert ridge.stderr_.shape == (2,)


def test_quantiles_are_those_of_t_and_of_the_normal():
    known = Uncertainty(np.array([1.0, 1.0, np.inf, 0.0]), np.array([5.0, np.inf, 3.0, np.inf]))
    half = np.diff(known.intervals(np.zeros(4), 0.95), axis=1)[:, 0] / 2.0
    np.testing.assert_allclose(half, [2.570582, 1.959964, np.inf, 0.0], rtol=1e-6)


def test_the_summary_is_readable_and_safe():
    summary = IntervalTable.of(
        "A", {"rows": "10"}, ["(intercept)", "<b>"], np.array([1.0, 2.0]), Uncertainty(np.ones(2), np.full(2, 1e9)), 0.9
    )
    lines = str(summary).splitlines()
    assert lines[4].split() == ["coef", "std", "err", "[0.05", "0.95]"]
    assert lines[7].split() == ["<b>", "2", "1", "0.35515", "3.6449"]
    page = summary._repr_html_()
    assert "&lt;b&gt;" in page
    assert "<b>2" not in page
    assert summary.to_dict()["rows"][0]["interval"][1] == pytest.approx(2.644854)


@pytest.mark.parametrize(
    ("estimator", "y", "message"),
    [
        (tg.PrivateRidge(inference=True, alpha=0.1), np.arange(9.0), "alpha=0.1 is not accepted with inference=True"),
        (
            tg.PrivateRidge(inference=True, method="clipped", clip=1.0),
            np.arange(9.0),
            "not accepted by method='clipped'",
        ),
        (tg.PrivateLogisticRegression(inference=True), np.arange(9) % 3, "three classes or more"),
    ],
)
def test_what_has_no_honest_interval_is_refused(estimator, y, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(np.ones((9, 2)), y)


def test_without_inference_there_are_no_intervals():
    X, y = table("mean", 500, 0)
    model = tg.PrivateRidge().fit(X, y)
    assert model.stderr_ is None
    for call in (model.conf_int, model.summary):
        with pytest.raises(ValueError, match="inference=True"):
            call()
    with pytest.raises(TypeError, match="inference must be True or False"):
        tg.PrivateRidge(inference="yes").fit(X, y)
    with pytest.raises(ValueError, match="inference=True"):
        tg.private_mean(y).conf_int()
    with pytest.raises(ValueError, match="method='clipped'"):
        tg.private_mean(y, method="clipped", clip=1.0, inference=True)
    with pytest.raises(ValueError, match="level must be"):
        fitted("mean", 500, 0).conf_int(1.0)


@every_model
def test_a_saved_model_keeps_its_intervals(name, tmp_path):
    model = fitted(name, 2000, 0)
    tg.save_model(model, tmp_path / "model.json")
    again = tg.load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(again.conf_int(intercept=True), model.conf_int(intercept=True))
    assert again.stderr_.shape == model.stderr_.shape
    assert str(again.summary()) == str(model.summary())
    report = tg.FitReport(again)
    assert report.to_dict()["intervals"]["level"] == 0.95
    assert "std err" in report.to_html()
    json.dumps(report.to_dict(), allow_nan=False)


def test_the_command_line_fits_and_shows_intervals(tmp_path):
    from tailguard.cli import app

    X, y = table("mean", 3000, 0)
    np.savetxt(tmp_path / "t.csv", np.column_stack([X, y]), delimiter=",", header="a,b,y", comments="")
    arguments = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--epsilon", "3", "--inference", "--seed", "1"]
    done = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "m.json")])
    assert done.exit_code == 0, done.output
    assert "std err is the standard error of a coefficient" in " ".join(done.output.split())
    assert "±" not in done.output
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "m.json")])
    assert "[0.025" in shown.output
    told = CliRunner().invoke(app, ["inspect", str(tmp_path / "m.json"), "--json"])
    assert len(json.loads(told.output)["intervals"]["rows"]) == 3


def test_intervals_of_persons_are_not_too_narrow():
    """Ten rows a person, all alike: a person is one draw, and standard errors know it."""
    rng = np.random.default_rng(0)
    X, e = np.repeat(rng.normal(size=(3000, 2)), 10, axis=0), np.repeat(rng.normal(size=3000), 10)
    y = X @ SLOPES + e
    persons = tg.PrivateHuberRegressor(5.0, inference=True, random_state=0).fit(
        X, y, groups=np.repeat(np.arange(3000), 10)
    )
    assert np.all(persons.stderr_ > 0.9 / math.sqrt(3000))
    assert np.all(persons.stderr_ < 3.0 / math.sqrt(3000))


def test_the_study_of_coverage_runs_and_writes_its_page(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    import interval_coverage as study

    page, figures = tmp_path / "page.md", tmp_path / "figures.json"
    page.write_text("before\n<!-- intervals: begin -->\nold\n<!-- intervals: end -->\nafter\n", encoding="utf-8")
    study.main(["--runs", "1", "--rows", "3000", "--json", str(figures), "--page", str(page)])
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    cells = json.loads(figures.read_text(encoding="utf-8"))
    assert {cell["model"] for cell in cells} == set(study.TITLES)
    twice = study.pooled(cells + cells)
    assert [cell["runs"] for cell in twice] == [2] * len(cells)
    assert all(new["coverage"] == pytest.approx(old["coverage"]) for new, old in zip(twice, cells, strict=True))
    study.main(["--from", str(figures)])
    assert capsys.readouterr().out.rstrip().endswith(study.tables(cells).rstrip())


def test_the_correlated_design_has_its_condition_number(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    import interval_coverage as study

    assert np.linalg.cond(study.covariance()) == pytest.approx(study.CONDITION)


def test_what_is_not_known_is_infinite_and_never_not_a_number():
    known = Uncertainty(np.array([1.0, np.inf, np.nan, 2.0]), np.array([5.0, np.nan, 3.0, np.nan]))
    assert np.array_equal(known.stderr, [1.0, np.inf, np.inf, np.inf])
    assert np.array_equal(known.freedom, [5.0, np.inf, np.inf, np.inf])
    assert np.array_equal(np.isfinite(known.intervals(np.zeros(4), 0.95)).all(axis=1), [True, False, False, False])
