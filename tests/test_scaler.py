"""PrivateScaler: a scikit-learn transformer whose every number was paid for."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from typer.testing import CliRunner

import tailguard as tg
from tailguard import default
from tailguard.cli import app
from taped import Replayed, Taped


def table(n: int = 20_000, seed: int = 0) -> np.ndarray:
    """A normal column far from zero, a log-normal one, a rare dummy and a tiny t."""
    rng = np.random.default_rng(seed)
    return np.column_stack(
        [
            rng.normal(1000.0, 10.0, n),
            rng.lognormal(8.0, 1.0, n),
            (rng.random(n) < 0.1).astype(float),
            1e-6 * rng.standard_t(3.0, n),
        ]
    )


@parametrize_with_checks([tg.PrivateScaler(random_state=0), tg.PrivateScaler(0.1, random_state=1)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_centres_and_scales_are_found():
    """With n mu at about 4,000 means are known to some hundredths of a scale, and scales up to what is truncated."""
    X = table()
    scaler = tg.PrivateScaler(1.0, random_state=0).fit(X)
    Z = scaler.transform(X)
    assert np.all(np.abs(Z.mean(axis=0)) < 0.25)
    assert np.all((Z.std(axis=0) > 0.6) & (Z.std(axis=0) < 1.7))
    assert np.all((scaler.lower_ < scaler.mean_) & (scaler.mean_ < scaler.upper_))


def test_what_is_scaled_is_bounded_whatever_it_is():
    scaler = tg.PrivateScaler(1.0, random_state=0).fit(table())
    hostile = np.array([[np.inf] * 4, [-np.inf] * 4, [1e308] * 4, [-1e308] * 4, [np.nan] * 4])
    Z = scaler.transform(hostile)
    assert np.all(np.isfinite(Z[:4]))
    assert np.all(np.isnan(Z[4]))  # a missing value stays missing
    np.testing.assert_array_equal(Z[0], Z[2])


def test_no_value_can_stretch_or_stop_a_fit():
    X = table()
    X[:5] = [[np.inf] * 4, [-np.inf] * 4, [1e308] * 4, [np.nan] * 4, [-1e308] * 4]
    quiet, loud = (tg.PrivateScaler(1.0, random_state=0).fit(Z) for Z in (table(), X))
    np.testing.assert_allclose(loud.scale_, quiet.scale_, rtol=0.2)
    for Z in (np.full((50, 2), np.nan), np.zeros((50, 2)), np.full((50, 2), 1e308)):
        scaler = tg.PrivateScaler(1.0).fit(Z)
        assert np.all(np.isfinite([scaler.mean_, scaler.scale_]))
        assert np.all(scaler.scale_ > 0.0)


def test_a_hint_that_is_wrong_by_any_factor_leaves_numbers():
    X = np.full((200, 1), 1e308) * np.random.default_rng(0).choice([-1.0, 1.0], (200, 1))
    scaler = tg.PrivateScaler(1.0, hints=tg.Hints(moment=1e-200), random_state=0).fit(X)
    assert np.all(np.isfinite(scaler.transform(X)))
    assert np.isnan(scaler.transform([[np.nan]])).all()


def test_scaling_is_undone():
    X = table(2000)
    scaler = tg.PrivateScaler(1.0, random_state=0).fit(X)
    inside = np.clip(X, scaler.lower_, scaler.upper_)
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(X)), inside, rtol=1e-9)


def test_the_report_tells_what_was_spent():
    X = table(2000)
    a, b = (tg.PrivateScaler(epsilon).fit(X) for epsilon in (0.5, 0.25))
    assert 0.0 < a.privacy_.epsilon <= 0.5
    assert a.privacy_.private
    assert a.privacy_.method == "scaler"
    assert (a.privacy_ + b.privacy_).epsilon > 0.5
    assert not tg.PrivateScaler(random_state=0).fit(X).privacy_.private
    assert "differentially private" in a._repr_html_()


def test_a_ledger_is_charged_before_the_rows_are_seen(tmp_path):
    X = table(500)
    with tg.Ledger(tmp_path / "budget.db", "claims", budget=0.6, delta=1e-6):
        tg.PrivateScaler(0.5, 1e-6).fit(X)
        with pytest.raises(tg.BudgetExceeded):
            tg.PrivateScaler(0.5, 1e-6).fit(X)


def test_names_frames_and_pipelines():
    frame = pd.DataFrame(table(2000), columns=["income", "cost", "smoker", "tiny"])
    scaler = tg.PrivateScaler(random_state=0).set_output(transform="pandas")
    out = scaler.fit_transform(frame)
    assert list(out.columns) == list(scaler.get_feature_names_out()) == list(frame.columns)
    polars = clone(scaler).set_output(transform="polars").fit_transform(pl.DataFrame(frame.to_dict("list")))
    np.testing.assert_array_equal(polars.to_numpy(), out.to_numpy())
    with pytest.raises(ValueError, match="feature names"):
        scaler.transform(frame.rename(columns={"tiny": "other"}))
    y = frame["cost"].to_numpy()
    mixed = ColumnTransformer([("scaled", tg.PrivateScaler(random_state=0), ["income", "cost"])], remainder="drop")
    model = make_pipeline(mixed, LinearRegression()).fit(frame, y)
    assert model.predict(frame).shape == (2000,)
    private = make_pipeline(tg.PrivateScaler(0.2), tg.PrivateRidge(0.8)).fit(frame, y)
    total = private[0].privacy_ + private[1].privacy_
    assert total.epsilon <= 1.0 + 1e-9


@pytest.mark.parametrize("form", ["arrow", "source", "sparse", "float32"])
def test_rows_elsewhere_give_the_same(form, tmp_path):
    X = table(2000)
    plain = tg.PrivateScaler(random_state=0).fit(X)
    if form == "sparse":
        rows, tolerance = scipy.sparse.csr_array(X), 0.0
    elif form == "float32":
        rows, tolerance = X.astype(np.float32), 1e-3
    else:
        rows, tolerance = pa.table({f"x{j}": X[:, j] for j in range(4)}), 0.0
        if form == "source":
            import pyarrow.parquet as pq

            pq.write_table(rows, tmp_path / "rows.parquet")
            rows = tg.Source(tmp_path / "rows.parquet")
    scaler = tg.PrivateScaler(random_state=0).fit(rows)
    np.testing.assert_allclose(scaler.mean_, plain.mean_, rtol=tolerance)
    np.testing.assert_allclose(scaler.scale_, plain.scale_, rtol=tolerance)
    np.testing.assert_allclose(scaler.transform(rows), plain.transform(X), rtol=1e-2 if tolerance else 0.0, atol=1e-2)


def test_hints_help_and_are_told():
    """n = 300: a pooled look finds the common scale of ten columns, which looks at each of them do not."""
    X = np.random.default_rng(0).normal(0.0, 3.0, (300, 10))
    off = {}
    for name, hints in (("none", None), ("alike", tg.Hints(exchangeable=True)), ("moment", tg.Hints(moment=9.0))):
        fits = [tg.PrivateScaler(1.0, hints=hints, random_state=seed).fit(X) for seed in range(9)]
        off[name] = np.median([np.abs(np.log(fit.scale_ / 3.0)).max() for fit in fits])
    assert off["alike"] < off["none"]
    assert off["moment"] < off["none"]
    assert fits[0].privacy_.parameters["hints"] == "mean of x^2 at most 9"
    with pytest.raises(ValueError, match="target_range is not accepted by PrivateScaler"):
        tg.PrivateScaler(hints=tg.Hints(target_range=(0, 1))).fit(X)
    with pytest.raises(TypeError, match="hints must be a Hints"):
        tg.PrivateScaler(hints=3).fit(X)
    ranges = tg.PrivateScaler(5.0, hints=tg.Hints(ranges=[(-2, 2)] * 10), random_state=0).fit(X)
    assert np.all((ranges.lower_ >= -2.0) & (ranges.upper_ <= 2.0))


@pytest.mark.parametrize("hints", [None, tg.Hints(exchangeable=True)], ids=["no hints", "hints"])
def test_a_scaler_is_a_function_of_what_was_released(monkeypatch, hints):
    X = table(400)
    monkeypatch.setattr(default, "Queries", Taped)
    Taped.tape = []
    scaler = tg.PrivateScaler(1.0, hints=hints, random_state=0).fit(X)
    monkeypatch.setattr(default, "Queries", Replayed)
    twin = tg.PrivateScaler(1.0, hints=hints, random_state=0).fit(np.full_like(X, np.nan))
    assert not Taped.tape
    for attribute in ("mean_", "scale_", "lower_", "upper_"):
        np.testing.assert_array_equal(getattr(twin, attribute), getattr(scaler, attribute))
    assert twin.privacy_ == scaler.privacy_
    assert len(pickle.dumps(scaler)) < 20_000  # no rows


def test_the_command_shows_a_saved_scaler(tmp_path):
    X = pd.DataFrame(table(2000), columns=["weight", "\x1b[31mcost", "rare", "tiny"])
    scaler = tg.PrivateScaler(1.0).fit(X)
    path = tmp_path / "scaler.json"
    tg.save_model(scaler, path)
    shown = CliRunner().invoke(app, ["inspect", str(path)])
    assert shown.exit_code == 0, shown.output
    assert "when one of the 2000 rows is replaced" in shown.output
    assert "weight" in shown.output
    assert "\x1b" not in shown.output
    told = json.loads(CliRunner().invoke(app, ["inspect", str(path), "--json"]).stdout)
    assert [column["scale"] for column in told["columns"]] == scaler.scale_.tolist()
    assert told["privacy"] == scaler.privacy_.to_dict()
    refused = CliRunner().invoke(app, ["inspect", str(path), "--report", str(tmp_path / "page.html")])
    assert "a report is for a model" in " ".join(refused.output.split())
    assert not (tmp_path / "page.html").exists()
