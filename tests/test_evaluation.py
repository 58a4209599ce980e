"""Scores: exact ones agree with scikit-learn, private ones are bounded in every row and have the noise they state."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy.stats import chi2
from sklearn import metrics

import tailguard as tg
from tailguard.evaluation import _row_losses, exact_scores, private_scores
from tailguard.tables import CATEGORY, Column, Recipe, open_table

rng = np.random.default_rng(0)
N = 4000
X = np.column_stack([rng.normal(50.0, 10.0, N), rng.normal(size=N)])
COST = 1e6 + 10.0 * X[:, 0] + 100.0 * X[:, 1] + 50.0 * rng.standard_t(2.5, N)
COUNT = rng.poisson(np.exp(0.02 * X[:, 0])).astype(float)
LABEL = np.where(X[:, 1] + rng.normal(size=N) > 0, "yes", "no")
FEATURES = (Column("a"), Column("b"))
NUMBER = Recipe(FEATURES, Column("cost"))
CLASS = Recipe(FEATURES, Column("label", CATEGORY, ("yes", "no")))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "t.parquet"
    columns = {"a": X[:, 0], "b": X[:, 1], "cost": COST, "count": COUNT, "label": LABEL}
    parquet.write_table(pa.table(columns), path)
    return open_table(path)


@pytest.fixture(scope="module")
def models():
    return {
        "cost": tg.PrivateRidge().fit(X, COST),
        "count": tg.PrivatePoissonRegressor().fit(X, COUNT),
        "label": tg.PrivateLogisticRegression(classes=["no", "yes"]).fit(X, LABEL),
    }


class TestExact:
    def test_a_number(self, table, models):
        scores, predicted = exact_scores(models["cost"], NUMBER, table), models["cost"].predict(X)
        assert (scores["rows"], scores["rows without a target"]) == (N, 0)
        assert scores["R squared"] == pytest.approx(metrics.r2_score(COST, predicted), abs=1e-9)
        assert scores["root mean squared error"] == pytest.approx(metrics.root_mean_squared_error(COST, predicted))
        assert scores["mean absolute error"] == pytest.approx(metrics.mean_absolute_error(COST, predicted))
        assert scores["mean error (prediction - target)"] == pytest.approx(np.mean(predicted - COST), abs=1e-6)

    def test_counts(self, table, models):
        scores = exact_scores(models["count"], Recipe(FEATURES, Column("count")), table)
        expected = metrics.mean_poisson_deviance(COUNT, models["count"].predict(X))
        assert scores["mean Poisson deviance"] == pytest.approx(expected)

    def test_labels(self, table, models):
        scores, p = exact_scores(models["label"], CLASS, table), models["label"].predict_proba(X)
        assert scores["accuracy"] == pytest.approx(np.mean(models["label"].predict(X) == LABEL))
        assert scores["log-loss"] == pytest.approx(metrics.log_loss(LABEL, p))
        assert scores["Brier score"] == pytest.approx(metrics.brier_score_loss(LABEL == "yes", p[:, 1]))
        share = np.mean(LABEL == "yes")
        assert scores["accuracy of the most frequent label"] == pytest.approx(max(share, 1 - share))
        assert scores["log-loss of the frequencies"] == pytest.approx(
            -share * np.log(share) - (1 - share) * np.log1p(-share)
        )

    def test_rows_without_a_target_are_counted_and_not_scored(self, tmp_path, models):
        path = tmp_path / "t.csv"
        rows = np.column_stack([X[:9], COST[:9]]).tolist()
        path.write_text("a,b,cost\n" + "".join(f"{a!r},{b!r},{c!r}\n" for a, b, c in rows))
        exact = exact_scores(models["cost"], NUMBER, open_table(path))
        path.write_text(path.read_text() + "1,2,\n3,4,inf\n5,6,x\n7,8\n")
        more = exact_scores(models["cost"], NUMBER, open_table(path))
        assert (more["rows"], more["rows without a target"]) == (13, 4)
        assert {**more, "rows": 9, "rows without a target": 0} == exact
        path.write_text("a,b,cost\n1,2,x\n")
        assert exact_scores(models["cost"], NUMBER, open_table(path)) == {"rows": 1, "rows without a target": 1}


ODD = np.array([[0, 0], [np.nan, np.nan], [np.inf, -np.inf], [1e308, -1e308]])


class TestPrivate:
    @pytest.mark.parametrize("target", [0.0, 1.0, np.nan])
    def test_a_classifiers_losses_are_in_the_unit_interval_for_every_row(self, models, target):
        losses = _row_losses(models["label"], ODD, np.full(4, target), 1.0)
        assert losses.shape == (4, 2)
        assert np.all(np.abs(losses) <= 0.5)
        if np.isnan(target):
            assert np.all(losses == 0.5)

    @pytest.mark.parametrize("target", [0.0, 1e308, -np.inf, np.inf, np.nan])
    def test_errors_are_bounded_for_every_row(self, models, target):
        assert np.all(np.abs(_row_losses(models["cost"], ODD, np.full(4, target), 7.0)) <= 3.5)
        assert not np.any(np.isnan(_row_losses(models["cost"], ODD, np.full(4, target), None)))

    def test_the_stated_noise_is_that_of_the_scores(self, models, tmp_path):
        path = tmp_path / "t.parquet"
        parquet.write_table(pa.table({"a": X[:400, 0], "b": X[:400, 1], "label": LABEL[:400]}), path)
        table = open_table(path)
        exact = exact_scores(models["label"], CLASS, table)
        drawn = [private_scores(models["label"], CLASS, table, 1.0) for _ in range(300)]
        noise = drawn[0].noise["accuracy"]
        errors = [run.scores[name] - exact[name] for run in drawn for name in ("accuracy", "Brier score")]
        # 600 squares of normals: outside with probability 1e-9 on each side, and so is not two thirds or three halves
        # of the noise, with a probability of more than 1 - 1e-9.
        statistic = float(np.sum(np.square(errors))) / noise**2
        low, high = chi2.ppf([1e-9, 1 - 1e-9], 600)
        assert low < statistic < high
        assert not low < statistic * 4 / 9 < high
        assert not low < statistic * 9 / 4 < high
        assert drawn[0].privacy.epsilon <= 1.0
        assert drawn[0].privacy.private

    def test_an_error_bound_gives_known_noise(self, table, models):
        found = private_scores(models["cost"], NUMBER, table, 1.0, error_bound=500.0)
        error = np.minimum(np.abs(COST - models["cost"].predict(X)), 500.0).mean()
        noise = found.noise["mean absolute error"]
        (event,) = found.privacy.events
        assert noise == pytest.approx(math.sqrt(2) * 500.0 / (N * event.mu))
        assert abs(found.scores["mean absolute error"] - error) < 7 * noise

    def test_without_a_bound_nothing_but_epsilon_is_needed(self, table, models):
        found = private_scores(models["cost"], NUMBER, table, 1.0)
        exact = exact_scores(models["cost"], NUMBER, table)["mean absolute error"]
        assert found.scores["mean absolute error"] == pytest.approx(exact, rel=0.5)
        assert found.noise == {}
        assert found.privacy.epsilon <= 1.0

    def test_a_bound_for_labels_is_refused(self, table, models):
        with pytest.raises(ValueError, match="bounded already"):
            private_scores(models["label"], CLASS, table, 1.0, error_bound=2.0)
