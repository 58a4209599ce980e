"""Private model selection: what it chooses, what it pays, what it refuses, and that nothing else leaves."""

import importlib
import math
import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import huber
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

import tailguard as tg
from tailguard.auditing import CASES, Pair, Table
from tailguard.constraints import L2Ball
from tailguard.ledger import BudgetExceeded, charge
from tailguard.ledger.active import covered
from tailguard.model_selection import measures
from tailguard.model_selection import search as searching
from tailguard.model_selection.runs import coin, secret_runs
from tailguard.privacy import Budget, Gaussian, SeededNoise, Selection, epsilon_of, gdp_mu
from test_nothing_leaks import Fixed, assert_nothing_leaks, labels, neighbours, show_model, table

N = 4000
GRID = {"clip": [1e-3, 1.0, 1e4]}


def data(n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, X @ [1.0, -1.0] + 0.3 * rng.standard_normal(n)


def ridge(**parameters: Any) -> tg.PrivateRidge:
    return tg.PrivateRidge(**{"method": "clipped", "steps": 5, "clip": 1.0, "threads": 1} | parameters)


def search(grid: Any = None, epsilon: float = 3.0, **parameters: Any) -> tg.PrivateGridSearch:
    return tg.PrivateGridSearch(ridge(), GRID if grid is None else grid, epsilon, **parameters)


# ---------------------------------------------------------------- what it chooses


def test_it_finds_the_only_clip_that_works():
    """1e-3 hardly moves, 1e4 is noise: with six runs expected it misses the third one time in five."""
    X, y = data()
    found = [search(random_state=seed).fit(X, y) for seed in range(12)]
    right = [model for model in found if model.best_params_ == {"clip": 1.0}]
    # Binomial(12, .78): fewer than 4 have a probability of 1e-4.
    assert len(right) >= 4
    for model in right:
        assert np.max(np.abs(model.best_estimator_.coef_ - [1.0, -1.0])) < 0.5
        assert 0.7 < model.best_score_ < 1.2
        assert model.best_params_ == list(ParameterGrid(GRID))[model.best_index_]
    assert np.array_equal(found[0].predict(X[:9]), found[0].best_estimator_.predict(X[:9]))


@pytest.mark.parametrize("scoring", measures.NUMBER_SCORES)
@pytest.mark.parametrize("bound", [None, 1.0, 10.0])
def test_scores_of_numbers_are_those_of_the_model_up_to_noise_and_bound(scoring, bound):
    """Against the textbook: Huber's loss of the residuals over that of the distance from the centre."""
    X, y = data()
    model = search({"clip": [1.0]}, 20.0, scoring=scoring, error_bound=bound, repeats=1.5, random_state=1).fit(X, y)
    B = model.error_bound_
    assert bound in (None, B)
    assert 0.5 <= B / np.std(y) <= 12.0

    def size(e: np.ndarray) -> np.ndarray:
        return np.abs(e) if scoring != "r2" else 2.0 * huber(B, e)

    top = 0.75 * B * (2.0 * B if scoring == "r2" else 1.0)
    spread = np.mean(size(y - np.mean(y)))
    explained = np.mean(np.clip(size(y - np.mean(y)) - size(y - model.predict(X)), -top, top)) / spread
    # Centre and spread are released as well, with some noise of their own.
    assert model.best_score_ == pytest.approx(explained, abs=6.0 * model.score_noise_ + 0.05)
    sd = 2.0 * top / (N * model.privacy_.events[-1].mu * math.sqrt(0.3))
    assert model.score_noise_ == pytest.approx(sd / spread, rel=0.1)


@pytest.mark.parametrize("scoring", measures.LABEL_SCORES)
@pytest.mark.parametrize("count", [2, 3])
def test_scores_of_labels(scoring, count):
    X, y = data()
    words = np.array(["no", "perhaps", "yes"])[labels(y, "two" if count == 2 else "three").astype(int) % count]
    grid = tg.PrivateGridSearch(
        tg.PrivateLogisticRegression(method="clipped", clip=2.0, steps=20),
        {"alpha": [0.0, 0.01]},
        20.0,
        scoring=scoring,
        random_state=0,
    )
    model = grid.fit(X, words)
    p = model.predict_proba(X)
    place = np.searchsorted(model.classes_, words)
    own = p[np.arange(N), place]
    exact = {
        "accuracy": np.mean(model.predict(X) == words),
        "neg_log_loss": -np.mean(np.minimum(-np.log(own), math.log(count) + 2.0)),
        "neg_brier_score": -np.mean(np.sum((p - np.eye(count)[place]) ** 2, axis=1) / 2.0),
    }[scoring]
    assert model.best_score_ == pytest.approx(exact, abs=6.0 * model.score_noise_)
    assert list(model.classes_) == sorted(set(words))
    assert model.error_bound_ is None
    assert "treated as public" in model.privacy_.parameters["classes"]
    assert model.best_estimator_.classes is None
    assert np.allclose(model.predict_log_proba(X[:5]), np.log(p[:5]))
    assert len(model.decision_function(X[:5])) == 5


@pytest.mark.parametrize("absolute", [False, True])
def test_a_gain_is_bounded_and_right_whatever_the_row(absolute):
    X, y = data()
    model = search(random_state=3).fit(X, y).best_estimator_
    model.coef_, model.intercept_ = np.array([1.0, 1.0]), 0.0
    measure = measures.Numbers(absolute, centre=0.5, bound=2.0)
    rows = np.array([[0.0, 0.0], [1.0, 0.0], [1e300, 1.0], [np.inf, -np.inf], [np.nan, 1.0], [0.5, 0.5], [1.0, 0.0]])
    targets = np.array([0.5, np.inf, 0.0, 1e308, -np.inf, np.nan, -1e9])
    gains = measures.RowGains(model, measure)(rows, targets)[:, 0]
    assert np.all(np.abs(gains) <= measure.top)
    # Right where the centre is; half a unit nearer to infinity; wild; nothing known of the target; further away.
    slope = 1.0 if absolute else 2.0 * measure.bound
    assert gains[0] == pytest.approx(-0.5 if absolute else -0.25)
    assert gains[1] == pytest.approx(0.5 * slope)
    assert gains[2] == -measure.top
    assert gains[5] == 0.0
    assert gains[6] == pytest.approx(-0.5 * slope)


@pytest.mark.parametrize("scoring", measures.LABEL_SCORES)
def test_a_missing_or_foreign_label_is_the_worst(scoring):
    X, y = data(500)
    fitted = tg.PrivateLogisticRegression(20.0, classes=[0, 1], method="clipped", clip=1.0, random_state=0).fit(
        X, y > 0
    )
    measure = measures.Labels(scoring, 2)
    gains = measures.RowGains(fitted, measure)(np.array([[9.0, -9.0], [np.inf, np.nan]]), np.array([np.nan] * 2))
    assert np.all(gains == -measure.top)
    assert measure.reported(measure.top) == (1.0 if scoring == "accuracy" else 0.0)


# ---------------------------------------------------------------- what it pays


@pytest.mark.parametrize("value", [0.0, 5e-324, 1e-200, 1e60, 1e308, np.inf, np.nan])
@pytest.mark.parametrize("bound", [None, 1e-300, 1e300])
def test_targets_of_any_size_have_a_score(value, bound):
    """Bounds follow the released scale of y; none may be refused, or warned of, after the budget is spent."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(400, 2)), np.where(rng.random(400) < 0.5, value, -value)
    model = tg.PrivateRidge(method="clipped", clip=1.0, steps=1)
    for scoring in ("r2", "d2_absolute_error_score"):
        options = {"scoring": scoring, "error_bound": bound, "repeats": 1.1, "random_state": 0}
        search = tg.PrivateGridSearch(model, {"alpha": [0.0, 1.0]}, 50.0, 1e-6, **options).fit(X, y)
        assert np.isfinite([search.best_score_, search.score_noise_, search.error_bound_]).all()


def test_the_report_is_the_price_of_the_whole_search():
    X, y = data()
    model = search(epsilon=1.0).fit(X, y)
    report = model.privacy_
    before, selection = report.events
    assert isinstance(before, Gaussian)
    assert isinstance(selection, Selection)
    assert report.private
    assert 0.999 < report.epsilon <= 1.0
    assert epsilon_of(report.events, report.delta) == report.epsilon
    assert selection.runs == pytest.approx(6.0, rel=1e-6)
    assert model.best_estimator_.privacy_ is report
    # What a run has is more than a third of the candidates would have each, and less than one fit.
    whole = Budget(1.0, report.delta).mu
    assert whole / math.sqrt(3.0) < selection.mu < whole


def test_a_seed_is_not_private_and_repeats_itself():
    X, y = data()
    one, two = (search(random_state=5).fit(X, y) for _ in range(2))
    assert not one.privacy_.private
    assert "seeded" in one.privacy_.reasons[0]
    assert np.array_equal(one.best_estimator_.coef_, two.best_estimator_.coef_)
    assert one.best_score_ == two.best_score_


def test_runs_together_spend_their_budget_and_no_more(monkeypatch):
    """Every fit and every score of a run asks an account that was given a part of the run's mu."""
    X, y = data()
    asked: list[float] = []
    honest = tg.PrivateGridSearch._one_run

    def watched(self: Any, plan: Any, table: Any, measure: Any, source: Any) -> Any:
        run = honest(self, plan, table, measure, source)
        fit = run.model.privacy_.events
        asked.append(sum(e.count * e.mu**2 for e in fit) + plan.score.mu**2)
        return run

    monkeypatch.setattr(tg.PrivateGridSearch, "_one_run", watched)
    steps = {"steps": [5]}
    mixed = [{"method": ["auto"]}, {"clip": [1.0], **steps}, {"method": ["smoothed"], "scale": [1.0], **steps}]
    model = tg.PrivateGridSearch(ridge(clip=None, steps=None), mixed, 1.0, random_state=3).fit(X, y)
    mu = model.privacy_.events[-1].mu
    assert len(asked) > 1
    assert all(0.9 * mu**2 < square <= mu**2 for square in asked)


def test_methods_that_are_only_concentrated_are_priced_so():
    X, y = data(300)
    grid = [
        {"method": ["trimmed"], "bounds": [(-3.0, 3.0)], "steps": [2]},
        {"method": ["aggregate"], "blocks": [3]},
        {"method": ["clipped"], "clip": [1.0], "steps": [2]},
    ]
    estimator = ridge(constraint=L2Ball(3.0), clip=None, steps=None)
    model = tg.PrivateGridSearch(estimator, grid, 5.0, repeats=2.0, random_state=0).fit(X, y)
    assert model.privacy_.events[-1].concentrated
    assert model.privacy_.epsilon <= 5.0


def test_a_ledger_is_charged_once_and_before_the_first_run(tmp_path, monkeypatch):
    X, y = data(500)
    with tg.Ledger(tmp_path / "b.db", "claims", budget=Budget(3.0, 1e-5)) as ledger:
        model = search(epsilon=1.0, delta=1e-6).fit(X, y)
        assert len(ledger.entries) == 1
        (entry,) = ledger.entries
        assert entry.events == model.privacy_.events
        assert entry.confirmed is not None

        def stopped(*_: Any) -> None:
            raise RuntimeError("the first run")

        monkeypatch.setattr(tg.PrivateGridSearch, "_one_run", stopped)
        with pytest.raises(RuntimeError, match="the first run"):
            search(epsilon=1.0, delta=1e-6).fit(X, y)
        assert len(ledger.entries) == 2, "a crash keeps the charge"
        with pytest.raises(BudgetExceeded):
            search(epsilon=1.5, delta=1e-6).fit(X, y)
        assert len(ledger.entries) == 2


def test_a_cover_charges_nobody_and_ends():
    event = Gaussian(0.1)
    with covered() as asked:
        assert charge([event], rows=10, method="fit").reservations == ()
    with covered(rehearsal=True) as rehearsed:
        charge([event], rows=10, method="fit")
        raise AssertionError("a rehearsal ends where it would read rows")
    assert asked == rehearsed == [event]
    assert charge([event], rows=10, method="fit").reservations == ()  # no ledger is active


def test_a_fit_that_asks_for_more_than_it_rehearsed_is_refused(monkeypatch):
    X, y = data(500)
    honest = tg.PrivateGridSearch._model

    def richer(self: Any, candidate: Any, table: Any, budget: Any, noise: Any) -> Any:
        return honest(self, candidate, table, budget if noise is None else Budget(mu=10.0), noise)

    monkeypatch.setattr(tg.PrivateGridSearch, "_model", richer)
    with pytest.raises(tg.OverBudgetError, match="rehearsal"):
        search().fit(X, y)


# ---------------------------------------------------------------- the number of runs


def runs_law(stop: float, heads: int) -> np.ndarray:
    """P(K = k), k = 1, 2, ...: tails before the last of the heads, given that there are any."""
    k = np.arange(1, 2000)
    logs = np.array([math.lgamma(i + heads) - math.lgamma(i + 1) - math.lgamma(heads) for i in k])
    law = np.exp(logs + k * math.log1p(-stop))
    return law / law.sum()


def test_the_number_of_runs_has_its_law_and_another_would_be_noticed():
    """Chi-square with 11 degrees of freedom: above 37 with a probability of 1e-4; with half the heads, hundreds."""
    event = Selection(0.1, coin(6.0, 4), 4)
    drawn = [secret_runs(event, SeededNoise(0).at(i)) for i in range(4000)]
    counts = np.bincount(np.minimum(drawn, 12), minlength=13)[1:]
    assert min(drawn) >= 1

    def distance(stop: float, heads: int) -> float:
        law = runs_law(stop, heads)
        cells = np.append(law[:11], law[11:].sum()) * len(drawn)
        return float(np.sum((counts - cells) ** 2 / cells))

    assert distance(event.stop, 4) < 37.0
    assert distance(coin(6.0, 2), 2) > 74.0
    assert distance(coin(7.0, 4), 4) > 74.0


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("runs", [1.0001, 2.0, 1000.0])
def test_the_coin_gives_the_expected_number_of_runs_and_can_be_tossed_exactly(runs, heads):
    stop = coin(runs, heads)
    assert (stop * 2**32).is_integer()
    assert Selection(0.0, stop, heads).runs == pytest.approx(runs, rel=1e-5)


def test_how_many_runs_there_were_cannot_be_seen(monkeypatch):
    """With the first run the best, one run and nine leave the same object, warning for warning."""
    X, y = data(500)
    seen = []
    for runs in (1, 9):
        tried: list[int] = []
        honest = tg.PrivateGridSearch._one_run

        def first_wins(self: Any, *arguments: Any, tried: list[int] = tried, honest: Any = honest) -> Any:
            run = honest(self, *arguments)
            tried.append(1)
            return replace(run, score=-float(len(tried)))

        with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            patch.setattr(searching, "secret_runs", lambda *_, runs=runs: runs)
            patch.setattr(tg.PrivateGridSearch, "_one_run", first_wins)
            model = search(random_state=2).fit(X, y[:, None])  # a column: scikit-learn warns, once
        assert len(tried) == runs
        seen.append((pickle.dumps(model), [str(w.message) for w in caught], model.privacy_.to_json()))
    assert seen[0] == seen[1]
    assert len(seen[0][1]) == 1


# ---------------------------------------------------------------- what it refuses


def test_scores_that_were_not_paid_for_are_refused():
    X, y = data(500)
    model = search().fit(X, y)
    with pytest.raises(AttributeError, match="only the best run was paid for"):
        _ = model.cv_results_
    assert not hasattr(model, "cv_results_")
    numbers = [name for name, value in vars(model).items() if name.endswith("_") and isinstance(value, (int, float))]
    assert sorted(numbers) == ["best_index_", "best_score_", "error_bound_", "n_features_in_", "score_noise_"]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: search({"epsilon": [1.0, 2.0]}), ValueError, "must not hold 'epsilon'"),
        (lambda: search({"random_state": [1]}), ValueError, "must not hold 'random_state'"),
        (lambda: search({"delta": [1e-9]}), ValueError, "must not hold 'delta'"),
        (lambda: search({"clips": [1.0]}), ValueError, "Invalid parameter 'clips'"),
        (lambda: search({"clip": 1.0}), TypeError, "Parameter grid"),
        (lambda: search({"clip": [1.0, None]}), ValueError, "clip=None is not accepted"),
        (lambda: search({"clip": [1.0, -1.0]}), ValueError, "clip"),
        (lambda: search({"method": ["auto"]}), TypeError, "clip=1.0 is not a parameter of method='auto'"),
        (lambda: search({"batch_size": [None, 50]}), ValueError, "batch_size=50 is not accepted in a search"),
        (lambda: search({"method": ["robust"], "scale": [1.0], "clip": [None]}), ValueError, "'robust' is not private"),
        (lambda: search(scoring="neg_log_loss"), ValueError, "scoring must be one of 'r2', 'd2_absolute_error_score'"),
        (lambda: search(scoring="accuracy"), ValueError, "scoring"),
        (lambda: search(repeats=1.0), ValueError, "repeats"),
        (lambda: search(score_share=1.0), ValueError, "score_share"),
        (lambda: search(error_bound=0.0), ValueError, "error_bound"),
        (lambda: search(epsilon=Budget(mu=1.0)), ValueError, r"\(epsilon, delta\)"),
        (lambda: search(epsilon=-1.0), ValueError, "epsilon"),
        (lambda: search(delta=0.5), ValueError, "delta must be below 1/n"),
        (lambda: tg.PrivateGridSearch(make_pipeline(ridge()), GRID), TypeError, "A pipeline goes around"),
        (lambda: tg.PrivateGridSearch(1, GRID), TypeError, "tailguard.PrivateRidge"),
    ],
)
def test_what_cannot_be_priced_is_refused_before_a_row_is_read(make, error, words, monkeypatch):
    """In every candidate, and not only in those that would be drawn; and before anything is charged."""
    X, y = data(500)
    monkeypatch.setattr(searching, "charge", lambda *_, **__: pytest.fail("it was charged"))
    with pytest.raises(error, match=words):
        make().fit(X, y)


def test_other_arguments_of_fit_are_refused():
    X, y = data(50)
    with pytest.raises(TypeError, match="sample_weight"):
        search().fit(X, y, sample_weight=y)
    with pytest.raises(ValueError, match="y is None"):
        search().fit(X)
    with pytest.raises(ValueError, match="49 values but X has 50 rows"):
        search().fit(X, y[:-1])
    with pytest.raises(ValueError, match="error_bound is for numbers"):
        tg.PrivateGridSearch(tg.PrivateLogisticRegression(), {"alpha": [0.0]}, error_bound=1.0).fit(X, y > 0)


# ---------------------------------------------------------------- scikit-learn


def test_the_protocol_of_scikit_learn():
    X, y = data(500)
    model = search(random_state=0, scoring="d2_absolute_error_score")
    copy = clone(model)
    assert copy.get_params()["estimator__clip"] == 1.0
    assert is_regressor(model)
    assert not is_classifier(model)
    assert is_classifier(tg.PrivateGridSearch(tg.PrivateLogisticRegression(), {"alpha": [0.0]}))
    assert not hasattr(model, "predict_proba")
    with pytest.raises(Exception, match="not fitted"):
        model.predict(X)
    frame = pd.DataFrame(X, columns=["age", "cost"])
    model.fit(frame, pd.Series(y))
    check_is_fitted(model)
    assert list(model.feature_names_in_) == list(model.best_estimator_.feature_names_in_) == ["age", "cost"]
    assert np.array_equal(model.predict(frame), copy.fit(X, y).predict(X))
    assert not hasattr(copy, "feature_names_in_")
    assert model.score(frame, y) <= 1.0
    assert "best of a secret number of runs" in model._repr_html_()
    assert pickle.loads(pickle.dumps(model)).best_score_ == model.best_score_
    assert model.fit(X, y).n_features_in_ == 2
    assert not hasattr(model, "feature_names_in_")


def test_inside_a_pipeline_and_saved(tmp_path):
    X, y = data(500)
    model = make_pipeline(FunctionTransformer(lambda X: X / 2.0), search(epsilon=1.0)).fit(X, y)
    assert model.predict(X).shape == y.shape
    best = model[-1].best_estimator_
    tg.save_model(best, tmp_path / "model.json")
    loaded = tg.load_model(tmp_path / "model.json")
    assert np.array_equal(loaded.coef_, best.coef_)
    assert loaded.privacy_ == model[-1].privacy_


def test_rows_in_files_give_the_same_bits(tmp_path):
    X, y = data(800)
    path = tmp_path / "claims.csv"
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "cost": y}).to_csv(path, index=False)
    streamed = search(random_state=4).fit(tg.Source(path, target="cost", memory=0))
    assert np.array_equal(streamed.best_estimator_.coef_, search(random_state=4).fit(X, y).best_estimator_.coef_)
    smoker = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "smoker": (y > 0).astype(int)})
    smoker.to_csv(path, index=False)
    grid = tg.PrivateGridSearch(tg.PrivateLogisticRegression(), {"alpha": [0.0, 1.0]}, random_state=4)
    from_file = clone(grid).fit(str(path), "smoker")
    in_memory = clone(grid).fit(X, smoker["smoker"])
    assert np.array_equal(from_file.best_estimator_.coef_, in_memory.best_estimator_.coef_)


# ---------------------------------------------------------------- nothing else leaves


@pytest.mark.parametrize("kind", ["numbers", "numbers, default", "labels"])
def test_nothing_leaks(monkeypatch, kind):
    X, y = table()
    first = X, labels(y, "two" if kind == "labels" else "")
    if kind == "labels":
        estimator: Any = tg.PrivateLogisticRegression(classes=[0, 1], method="clipped", steps=2, threads=1)
        grid: Any = {"clip": [0.5, 2.0]}
    else:
        numbers = kind == "numbers"
        estimator = ridge(steps=2) if numbers else tg.PrivateRidge(threads=1)
        grid = GRID if numbers else {"alpha": [0.0, 1.0]}

    def fit(X: Any, y: Any, noise: Fixed) -> Any:
        model = tg.PrivateGridSearch(estimator, grid, 5.0, repeats=3.0, random_state=noise).fit(X, y)
        return model

    def look(model: Any) -> dict[str, Any]:
        best = {f"best {name}": value for name, value in show_model(model.best_estimator_).items()}
        del model.best_estimator_
        seen = {name: repr(np.asarray(value).tolist()) for name, value in vars(model).items() if name != "privacy_"}
        seen.pop("estimator", None)
        return best | seen | {"names": sorted(vars(model)), "report": model.privacy_.to_json()}

    assert_nothing_leaks(monkeypatch, fit, first, neighbours(*first), look)


def test_an_exact_score_would_be_seen(monkeypatch):
    """Power: the same, with a score that goes around the mechanism."""
    X, y = table()
    honest = tg.PrivateGridSearch._one_run

    def exact(self: Any, plan: Any, rows: Any, measure: Any, source: Any) -> Any:
        run = honest(self, plan, rows, measure, source)
        gains = measures.RowGains(run.model, measure)(rows.scored.X, rows.scored.y)
        return replace(run, score=float(np.mean(gains)))

    monkeypatch.setattr(tg.PrivateGridSearch, "_one_run", exact)

    def fit(X: Any, y: Any, noise: Fixed) -> Any:
        return tg.PrivateGridSearch(ridge(steps=2), GRID, 5.0, repeats=3.0, random_state=noise).fit(X, y)

    with pytest.raises(AssertionError):
        assert_nothing_leaks(monkeypatch, fit, (X, y), neighbours(X, y), lambda model: {"score": model.best_score_})


# ---------------------------------------------------------------- audit


def audited(case: Any, runs: int, confidence: float) -> Any:
    pair = next(pair for pair in case.pairs() if pair.name == "opposite outliers")
    return tg.audit(case, pair=pair, runs=runs, confidence=confidence, workers=1)


def test_the_audit_keeps_to_the_claim_and_catches_one_that_is_fifty_times_larger():
    case = CASES["PrivateGridSearch"]
    assert not audited(case, 80, 0.9999).refuted
    assert audited(replace(case, make=lambda epsilon, delta: case.make(50.0 * epsilon, delta)), 80, 0.99).refuted


def score_of_a_model_that_stands_still(X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> float:
    """Its log-loss is log 2 for every label, and the largest for a label that is none."""
    still = tg.PrivateLogisticRegression(classes=[0, 1], method="clipped", clip=1.0, steps=1, step_size=1e-9, threads=1)
    model = tg.PrivateGridSearch(
        still, {"alpha": [0.0, 1.0]}, 1.0, 0.05, repeats=2.0, allow_large_delta=True, random_state=rng
    )
    return model.fit(X, y).best_score_


def test_the_audit_catches_a_score_without_noise(monkeypatch):
    base = Table.example("classification", 20, 1)
    pair = Pair("a label or none", base.with_last(0.0, 1.0), base.with_last(0.0, 7.0))

    def refuted(confidence: float) -> bool:
        return tg.audit(
            score_of_a_model_that_stands_still, 1.0, 0.05, pair=pair, runs=80, confidence=confidence, workers=1
        ).refuted

    assert not refuted(0.9999)
    honest = searching.Queries.mean

    def almost_exact(self: Any, label: str, *arguments: Any) -> Any:
        if label == "score":
            self.account = searching.Account(Budget(mu=200.0))
        return honest(self, label, *arguments)

    monkeypatch.setattr(searching.Queries, "mean", almost_exact)
    assert refuted(0.99)


# ---------------------------------------------------------------- benchmark


def test_the_benchmark_runs_and_prices_what_it_compares(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
    benchmark = importlib.import_module("model_selection")
    case = benchmark.Case("tiny", "nn", 400, 2, {"clip": [0.1, 1.0]}, {"steps": 3})
    monkeypatch.setitem(benchmark.CASES, "clip", case)
    benchmark.main(["--seeds", "2", "--epsilon", "3", "--only", "clip", "--output", str(tmp_path / "page.md")])
    assert "of 2 |" in (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "nan" not in capsys.readouterr().out
    # All fits and noisy scores of the split together are what one Gaussian of the budget is.
    mu = gdp_mu(3.0, 1e-6)
    parts = [Gaussian(mu * math.sqrt((1.0 - benchmark.SHARE) / 8)), Gaussian(mu * math.sqrt(benchmark.SHARE / 8))] * 8
    assert epsilon_of(parts, 1e-6) == pytest.approx(3.0, rel=1e-6)
