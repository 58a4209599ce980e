"""The report of a fit: what it says is true, complete, escaped and needs nothing beside it."""

from __future__ import annotations

import html
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import tailguard as tg
from tailguard.fit_report import FitReport
from tailguard.fit_report.figures import number, up
from tailguard.model_file import read_model, save_model
from tailguard.tables import CATEGORY, Column, Recipe

rng = np.random.default_rng(0)
X = np.column_stack([rng.uniform(20, 80, 3000), rng.integers(0, 2, 3000)])
Y = 30.0 * X[:, 0] + 500.0 * X[:, 1] + rng.lognormal(5, 1, 3000)
EVIL = "<script>alert('x')</script>&\""
THREE = Recipe((Column("ward", CATEGORY, (1, 2, 3)),), Column("cost"))
RECIPE = Recipe((Column("age"), Column("smoker", CATEGORY, ("no", "yes"))), Column("cost"))

REPORTS = {
    "table": lambda: FitReport(tg.PrivateRidge().fit(X, Y), RECIPE),
    "array": lambda: FitReport(tg.PrivateHuberRegressor().fit(X, Y)),
    "seeded": lambda: FitReport(tg.PrivateRidge(random_state=1).fit(X, Y), RECIPE),
    "not private": lambda: FitReport(tg.PrivateRidge(method="robust", scale=10.0, steps=2).fit(X, Y)),
    "level only": lambda: FitReport(tg.PrivateRidge(epsilon=0.5).fit(np.tile(X, 60), Y)),
    "two labels": lambda: FitReport(tg.PrivateLogisticRegression(classes=[False, True]).fit(X, X[:, 0] > 50)),
    "four labels": lambda: FitReport(tg.PrivateLogisticRegression().fit(X, np.digitize(X[:, 0], [30, 50, 70]))),
    "zCDP": lambda: FitReport(tg.PrivateRidge(method="trimmed", bounds=(-1e4, 1e4), steps=3).fit(X, Y)),
    "poisson sample": lambda: FitReport(tg.PrivateRidge(method="clipped", clip=1.0, steps=3, batch_size=300).fit(X, Y)),
    "evil": lambda: FitReport(
        tg.PrivateRidge().fit(X, Y),
        Recipe((Column(EVIL), Column("b", CATEGORY, (EVIL, "x" + EVIL))), Column("t" + EVIL)),
        {EVIL: EVIL},
        EVIL,
    ),
}


@pytest.fixture(scope="module")
def reports():
    return {name: make() for name, make in REPORTS.items()}


class Page(HTMLParser):
    """Checks that tags are balanced and that nothing is loaded or run; collects the text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.rows = [], [], 0
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag not in {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
        assert not {name for name, _ in attrs} & {"src", "href", "action", "onload", "onclick"}
        self.rows += tag == "tr"
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)


@pytest.mark.parametrize("name", REPORTS)
def test_the_page_is_balanced_escaped_and_self_contained(reports, name):
    page = reports[name].to_html()
    assert page.startswith("<!DOCTYPE html>")
    words = " ".join("".join(Page(page).text).split())
    assert not re.search(r"url\(|@import|https?:", page)
    for heading in (
        "What was spent on what",
        "Coefficients",
        "Method and public parameters",
        "What you may not conclude",
    ):
        assert heading in words
    assert reports[name].sentence() in words
    assert "prefers-color-scheme:dark" in page
    assert ("not private" in words) == (name in ("seeded", "not private"))
    Page(reports[name]._repr_html_())


@pytest.mark.parametrize("name", REPORTS)
def test_json_has_the_same_content(reports, name):
    data = json.loads(reports[name].to_json(), parse_constant=pytest.fail)
    model = reports[name].model
    privacy = model.privacy_
    assert data["guarantee"] == privacy.guarantee
    assert data["private"] == privacy.private
    assert data["epsilon"] == (privacy.epsilon if math.isfinite(privacy.epsilon) else "inf")
    assert (data["delta"], data["relation"], data["rows"]) == (privacy.delta, privacy.relation, 3000)
    values = np.array([row["values"] for row in data["coefficients"]])
    np.testing.assert_array_equal(values[0], np.atleast_1d(model.intercept_))
    np.testing.assert_array_equal(values[1:].T, np.atleast_2d(model.coef_))
    assert len(data["outputs"]) == values.shape[1]
    assert sum(item["releases"] for item in data["spent"]) == sum(event.releases for event in privacy.events)
    shares = [item["share"] for item in data["spent"]]
    assert None in shares or math.isclose(math.fsum(shares), 1.0)
    assert data["coefficient_noise"]["known"] is (model.coef_noise_ is not None)
    if model.coef_noise_ is not None:
        noise = np.array([row["noise"] for row in data["coefficients"][1:]])
        np.testing.assert_array_equal(noise.T, np.atleast_2d(model.coef_noise_))
    assert data["software"]
    assert len(data["not_to_conclude"]) >= 6


def test_the_sentence_is_the_guarantee_roundedup(reports):
    report = reports["table"]
    factor, delta = re.search(r"a factor of ([\d.]+), plus ([\d.e-]+)\.$", report.sentence()).groups()
    assert float(factor) >= math.exp(report.privacy.epsilon) * (1 - 1e-8)
    assert float(factor) <= math.exp(report.privacy.epsilon) * 1.01
    assert report.privacy.delta * (1 - 1e-8) <= float(delta) <= report.privacy.delta * 1.01
    assert report.sentence().startswith("Replacing any one of the 3,000 rows by any other changes the probability")
    assert reports["poisson sample"].sentence().startswith("Adding a row to the 3,000 rows or leaving one out")


@pytest.mark.parametrize("value", [1.0, 2.0, 2.718281828, 0.999, 9.995, 1234.5, 1e-6, 8.945e-8, 1e300])
def test_rounding_up_never_rounds_down(value):
    assert float(up(value)) >= value * (1 - 1e-8)
    assert float(up(value)) <= value * 1.011


def test_numbers_for_people():
    values = [0.0, 1.0, 1644.2, -16_620_000.0, 0.001725, 3.8e-7, 1e20]
    assert [number(value) for value in values] == ["0", "1", "1,644", "-16,620,000", "0.001725", "3.8e-07", "1e+20"]


def test_seeded_and_unprotected_fits_say_so_first(reports):
    assert (
        reports["seeded"].sentence() == "This fit is not private: seeded: the noise can be computed again from seed 1."
    )
    for name in ("seeded", "not private"):
        assert reports[name].cautions()[0].startswith("The fit is not private")
        assert "The promise holds for every table" not in reports[name].to_html()
    assert "The promise holds for every table" in reports["table"].to_html()


def test_a_model_that_is_less_than_was_asked_for_says_so(reports):
    assert reports["level only"].note().startswith("Level only: too few rows")
    assert reports["level only"].note() in reports["level only"].to_html()
    assert reports["table"].note() == ""


@pytest.mark.parametrize("kind", ["PrivateRidge", "PrivateLogisticRegression", "PrivatePoissonRegressor"])
def test_slopes_that_are_all_shrunk_away_are_said_to_be(kind):
    """A label or count that has nothing to do with ten columns: the first seed whose slopes are lost in noise."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(900, 10)), rng.integers(0, 2, 900)
    public = {"classes": [0, 1]} if kind == "PrivateLogisticRegression" else {}
    found = [getattr(tg, kind)(1.0, random_state=seed, **public).fit(X, y) for seed in range(8)]
    lost, kept = ([model for model in found if bool(model.coef_.any()) is some] for some in (False, True))
    assert lost
    report = FitReport(lost[0])
    assert report.note().startswith("All slopes are 0: they were fitted, and shrunk away")
    for help in ("Fewer columns", "more rows", "larger epsilon", "public hints"):
        assert help in report.note()
    assert html.escape(report.note()) in report.to_html()
    assert report.to_dict()["note"] == report.note()
    assert len(set(lost[0].predict(X).tolist())) == 1
    assert all(FitReport(model).note() == "" for model in kept)


def test_a_penalty_or_a_start_at_zero_is_no_noise(reports):
    """Slopes that are 0 for another reason are not said to be lost in noise."""
    model = tg.PrivateRidge(method="clipped", clip=1.0, steps=1, constraint=tg.constraints.Box([0.0] * 2, [0.0] * 2))
    assert not model.fit(X, Y).coef_.any()
    assert FitReport(model).note() == ""


def test_what_stands_beside_coefficients_is_defined_there(reports):
    words = "".join(Page(reports["table"].to_html()).text)
    assert "± is the standard deviation of the privacy noise in a coefficient before slopes are shrunk" in words
    assert "sampling error is not in it" in words
    assert reports["table"].beside()[1][1:] == reports["table"].model.coef_noise_[:, None].tolist()
    assert "±" not in reports["zCDP"].to_html()
    for epsilon in (3.0, 0.01):
        model = tg.PrivateRidge(epsilon, inference=True, random_state=0).fit(X, Y)
        page = FitReport(model).to_html()
        assert "±" not in page
        assert "std err is the standard error of a coefficient" in page
        head, rows = FitReport(model).beside()
        known = [model.intercept_stderr_, *model.stderr_]
        assert head == "std err"
        assert rows == [[value] if np.isfinite(value) else [None] for value in known]
        assert np.isfinite(known[1]) == (epsilon == 3.0)


def test_persons_and_intervals_change_the_words_of_the_page():
    rng = np.random.default_rng(0)
    X, persons = rng.normal(size=(3000, 2)), np.repeat(np.arange(1500), 2)
    plain = FitReport(tg.PrivateRidge(random_state=0).fit(X, X[:, 0]))
    assert "one row differs" in plain.to_html()
    assert "no confidence intervals here" in " ".join(plain.cautions())
    model = tg.PrivateRidge(random_state=0, inference=True).fit(X, X[:, 0], groups=persons)
    report = FitReport(model)
    page = report.to_html()
    assert "one person differs" in page
    assert "the number of persons and the names of the columns" in page
    assert "no confidence intervals here" not in page
    assert "that is what the intervals are for" in " ".join(report.cautions())


def test_references_and_labels_are_named(reports):
    rows = {row["name"]: row["reference"] for row in reports["table"].coefficients()}
    assert rows == {"(intercept)": None, "age": None, "smoker=yes": "no"}
    assert FitReport(tg.PrivateRidge().fit(np.ones((99, 3)), np.ones(99)), THREE).coefficients()[1]["reference"] is None
    assert "against no" in "".join(Page(reports["table"].to_html()).text)
    assert reports["two labels"].outputs() == ["log-odds of true"]
    assert reports["four labels"].outputs() == [f"score of {k}" for k in range(4)]


def test_a_report_of_a_file_is_that_of_the_model(reports, tmp_path):
    save_model(reports["table"].model, tmp_path / "model.json", recipe=RECIPE)
    saved = FitReport.of(read_model(tmp_path / "model.json"))
    assert saved.to_dict() | {"created": ""} == reports["table"].to_dict()
    assert len(saved.created) == 10
