"""The commands on tables, as a new user tries them: schema, fit, predict, evaluate, inspect."""

from __future__ import annotations

import csv
import gzip
import inspect
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet
from typer.testing import CliRunner

import tailguard as tg
from tailguard.cli import app, evaluate, fit, ledger, predict, schema
from tailguard.cli import inspect as inspect_command
from tailguard.cli._errors import FAILED, REFUSED, STOPPED, WRONG_OPTIONS
from tailguard.model_file import read_model
from tailguard.tables import CATEGORY, Column, Recipe

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
ROWS = 3000


def patients(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    age, visits = rng.uniform(20, 80, ROWS).round(1), rng.poisson(2.0, ROWS)
    smoker = rng.random(ROWS) < 0.3
    cost = 40.0 * age + 200.0 * visits + 900.0 * smoker + rng.lognormal(6.0, 1.0, ROWS)
    return pa.table(
        {
            "id": [f"P{i:05}" for i in range(ROWS)],
            "age": age,
            "visits": visits,
            "smoker": np.where(smoker, "yes", "no").tolist(),
            "cost": cost.round(2),
        }
    )


SCHEMA = """
tailguard_schema = 1
[columns]
id = "ignore"
age = "number"
visits = "count"
smoker = ["no", "yes"]
cost = "number"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with tables of patients, and its name as the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILGUARD_TRACEBACK", raising=False)
    arrow_csv.write_csv(patients(0), "patients.csv")
    parquet.write_table(patients(0), "patients.parquet")
    arrow_csv.write_csv(patients(1).slice(0, 500), "public.csv")
    arrow_csv.write_csv(patients(2).slice(0, 400), "later.csv")
    Path("patients.toml").write_text(SCHEMA)
    return tmp_path


def run(*arguments, status=0):
    result = CliRunner().invoke(app, list(arguments), prog_name="tailguard")
    assert result.exit_code == status, result.output
    if status:
        (line,) = result.stderr.strip().splitlines()
        assert line.startswith("error: ")
    else:
        assert result.stderr == ""
    return result


# ---------------------------------------------------------------- help


def examples(command) -> list[str]:
    paragraphs = inspect.cleandoc(command.__doc__).split("\n\n")
    return [" ".join(p.split()).removeprefix("Example: ") for p in paragraphs if p.startswith("Example: ")]


def test_the_examples_in_the_help_work_in_their_order(folder):
    """Every command, as printed; the template of the schema is filled in between, as it asks for."""
    commands = [ledger.add_dataset, schema.command, fit.command, predict.command, evaluate.command]
    commands += [inspect_command.command, ledger.show, ledger.export]
    for command in commands:
        lines = examples(command)
        assert lines
        for line in lines:
            program, *arguments = shlex.split(line)
            assert program == "tailguard"
            run(*arguments)
        if command is schema.command:
            template = Path("schema.toml")
            filled = template.read_text().replace('"smoker" = "number"', '"smoker" = ["no", "yes"]')
            template.write_text(filled.replace('"id" = "number"', '"id" = "ignore"'))
    for made in ("cost.json", "smoker.html", "predicted.csv", "predicted.parquet", "cost.html", "audit.json"):
        assert (folder / made).stat().st_size > 100


@pytest.mark.parametrize("name", ["schema", "fit", "predict", "evaluate", "inspect"])
def test_help_shows_the_examples(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    output = " ".join(run(name, "--help").stdout.split())
    assert f"Example: tailguard {name} " in output


def test_shells_can_complete():
    environment = {"_TAILGUARD_COMPLETE": "complete_bash", "COMP_WORDS": "tailguard in", "COMP_CWORD": "1"}
    result = CliRunner().invoke(app, [], prog_name="tailguard", env=environment)
    assert result.stdout.split() == ["inspect"]
    environment |= {"COMP_WORDS": "tailguard fit --model p", "COMP_CWORD": "3"}
    assert CliRunner().invoke(app, [], prog_name="tailguard", env=environment).stdout.split() == ["poisson"]
    assert "--install-completion" in run("--help").stdout


# ---------------------------------------------------------------- schema


def test_a_schema_of_a_csv_proposes_numbers_and_says_why(folder):
    text = run("schema", "patients.csv").stdout
    assert text.count('= "number"') == 5
    assert "It does not look at values" in text
    assert "names alone" in text
    assert not re.search(r"P0|yes\b(?!\"\])", text.split("[columns]")[1])


def test_a_schema_of_parquet_knows_its_types(folder):
    columns = run("schema", "patients.parquet").stdout.split("[columns]")[1]
    assert '"smoker" = []  # text: list its public categories' in columns
    assert '"age" = "number"' in columns


# ---------------------------------------------------------------- fit


def test_fit_prints_promise_coefficients_and_what_was_spent(folder):
    result = run("fit", "patients.csv", "--schema", "patients.toml", "--target", "cost", "--report", "r.html")
    words = " ".join(result.stdout.split())
    assert "(1, 1e-6)-differentially private when one of the 3000 rows is replaced" in words
    assert "smoker=yes (against no)" in words
    assert "spent on" in words
    assert "Files: model.json, r.html" in words
    model = tg.load_model("model.json")
    assert model.feature_names_in_.tolist() == ["age", "visits", "smoker=yes"]
    # The least of 600 runs was 0.94; no slopes at all would have no correlation.
    table = patients(0)
    X = np.column_stack([table["age"], table["visits"], np.array(table["smoker"]) == "yes"]).astype(float)
    assert np.corrcoef(X @ model.coef_, X @ [40.0, 200.0, 900.0])[0, 1] > 0.5
    assert model.privacy_.private


def test_fit_and_inspect_define_what_stands_beside_coefficients_and_say_what_noise_took(folder):
    fitted = run("fit", "patients.csv", "--schema", "patients.toml", "--target", "cost", "--seed", "0")
    for words in (fitted.stdout, run("inspect", "model.json").stdout):
        assert "± is the standard deviation of the privacy noise in a coefficient before slopes are shrunk" in words
        assert "All slopes are 0" not in words
    columns = [f"x{j}" for j in range(10)]
    rng = np.random.default_rng(0)
    noise = pa.table(dict(zip([*columns, "y"], rng.lognormal(0.0, 1.5, (11, 600)), strict=True)))
    arrow_csv.write_csv(noise, "noise.csv")
    lost = [run("fit", "noise.csv", "--target", "y", "--force", "--seed", str(seed)).stdout for seed in range(3)]
    assert any("All slopes are 0: they were fitted, and shrunk away" in words for words in lost)


@pytest.mark.parametrize(
    ("options", "estimator"),
    [
        (("--target", "cost"), "PrivateRidge"),
        (("--target", "visits"), "PrivatePoissonRegressor"),
        (("--target", "smoker"), "PrivateLogisticRegression"),
        (("--target", "cost", "--model", "huber"), "PrivateHuberRegressor"),
        (("--target", "cost", "--model", "poisson", "--alpha", "0.1", "--no-intercept"), "PrivatePoissonRegressor"),
    ],
)
def test_the_declared_target_decides_the_model(folder, options, estimator):
    found = json.loads(run("fit", "patients.parquet", "--schema", "patients.toml", *options, "--json").stdout)
    assert found["estimator"] == estimator
    assert found["model_file"] == "model.json"
    assert found["private"]
    assert len(found["created"]) == len("2026-01-01")
    assert type(tg.load_model("model.json")).__name__ == estimator


def test_csv_gzip_and_parquet_give_the_same_model(folder):
    import gzip

    Path("patients.csv.gz").write_bytes(gzip.compress(Path("patients.csv").read_bytes()))
    found = []
    for name in ("patients.csv", "patients.csv.gz", "patients.parquet"):
        run("fit", name, "--schema", "patients.toml", "--target", "cost", "--seed", "1", "--force", "--quiet")
        found.append(json.loads(Path("model.json").read_text()))
    assert found[0] == found[1] == found[2]


def test_a_table_that_is_not_kept_in_memory_gives_the_same_model(folder):
    found = []
    for memory in ("0", "512"):
        run("fit", "patients.parquet", "--target", "cost", "--seed", "1", "--memory", memory, "--force", "--quiet")
        found.append(json.loads(Path("model.json").read_text()))
    assert found[0] == found[1]


def test_without_a_schema_numbers_are_used_and_it_says_so(folder):
    words = run("fit", "patients.parquet", "--target", "cost").stdout
    assert "columns that are not numbers are left out (id, smoker)" in words
    words = run("fit", "patients.csv", "--target", "cost", "--drop", "id,smoker", "--force").stdout
    assert "all columns of patients.csv are read as numbers" in words
    words = run("fit", "patients.csv", "--target", "cost", "--features", "age,visits", "--force").stdout
    assert "Note" not in words
    run("fit", "patients.parquet", "--target", "smoker", "--classes", "no,yes", "--features", "age", "--force")
    assert tg.load_model("model.json").classes_.tolist() == ["no", "yes"]


def test_coefficients_of_many_categories_add_up_to_zero_and_predictions_stay(folder):
    table = patients(0)
    ward = np.array(["a", "b", "c"])[np.arange(ROWS) % 3]
    parquet.write_table(table.append_column("ward", pa.array(ward)), "wards.parquet")
    Path("wards.toml").write_text(SCHEMA + 'ward = ["a", "b", "c"]\n')
    run("fit", "wards.parquet", "--schema", "wards.toml", "--target", "cost", "--seed", "1", "--quiet")
    model = tg.load_model("model.json")
    assert model.feature_names_in_.tolist()[-3:] == ["ward=a", "ward=b", "ward=c"]
    assert abs(model.coef_[-3:].sum()) <= 1e-9 * abs(model.intercept_)
    X = np.column_stack([table["age"], table["visits"], np.array(table["smoker"]) == "yes"])
    X = np.column_stack([X, ward[:, None] == ["a", "b", "c"]]).astype(float)
    del model.feature_names_in_
    plain = tg.PrivateRidge(random_state=1).fit(X, table["cost"].to_numpy())
    np.testing.assert_allclose(model.predict(X), plain.predict(X), rtol=1e-9)


def test_labels_that_are_numbers(folder):
    run("fit", "patients.csv", "--target", "visits", "--classes", "2,0,1", "--features", "age,cost", "--quiet")
    model = tg.load_model("model.json")
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.classes_.dtype == np.int64


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        (("fit", "none.csv", "--target", "cost"), "none.csv", WRONG_OPTIONS),
        (("fit", "patients.csv"), "--target", WRONG_OPTIONS),
        (("fit", "patients.csv", "--target", "cost", "--epsilon", "abc"), "'abc'", WRONG_OPTIONS),
        (("fit", "patients.csv", "--target", "cost", "--epsilon=abc"), "'abc'", WRONG_OPTIONS),
        (("fit", "patients.csv", "--target", "cost", "--model", "tree"), "--model", WRONG_OPTIONS),
        (("fit", "patients.toml", "--target", "cost"), "ends in .csv", FAILED),
        (("fit", "patients.csv", "--target", "Cost"), "did you mean 'cost'", FAILED),
        (("fit", "patients.csv", "--target", "cost", "--features", "agee"), "did you mean 'age'", FAILED),
        (("fit", "patients.csv", "--target", "cost", "--epsilon", "0"), "epsilon must be", FAILED),
        (("fit", "patients.csv", "--target", "cost", "--epsilon", "nan"), "epsilon must be", FAILED),
        (("fit", "patients.csv", "--target", "cost", "--delta", "0.5"), "delta must be below 1/n", FAILED),
        (("fit", "patients.csv", "--target", "smoker", "--model", "logistic"), "--classes no,yes", FAILED),
        (("fit", "patients.parquet", "--target", "smoker"), "--classes no,yes", FAILED),
        (("fit", "patients.parquet", "--target", "cost", "--features", "smoker"), "list its categories", FAILED),
        (("fit", "patients.csv", "--target", "cost", "-o", "no/m.json"), "no is not a folder", FAILED),
        (("fit", "patients.csv", "--target", "cost", "-o", "patients.toml"), "--force", FAILED),
        (("fit", "patients.csv", "--target", "cost", "--report", "r.pdf"), ".html or .json", FAILED),
        (("fit", "patients.csv", "--target", "cost", "--dataset", "d"), "without --ledger", FAILED),
        (("fit", "patients.csv", "--target", "cost", "--ledger", "b.db"), "--ledger needs --dataset", FAILED),
        (("fit", "patients.csv", "--target", "cost", "--schema", "patients.csv"), ".toml or .json", FAILED),
        (("fit", "patients.csv", "--target", "cost", "--schema", "typo.toml"), "did you mean 'visits'", FAILED),
        (("fit", "patients.csv", "--target", "cost", "--schema", "few.toml"), "'cost' of patients.csv is not", FAILED),
        (
            ("fit", "semi.csv", "--target", "cost", "--schema", "patients.toml"),
            "separated by ',', as the schema",
            FAILED,
        ),
        (("fit", "cut.csv.gz", "--target", "cost", "--features", "age"), "cut.csv.gz' could not be read", FAILED),
        (("schema", "index.csv"), "index=False", FAILED),
        (("inspect", "patients.toml"), "not a model file", FAILED),
        (("predict", "patients.toml", "patients.csv"), "not a model file", FAILED),
        (("schema", "patients.csv", "-o", "s.yaml"), ".toml or .json", FAILED),
    ],
)
def test_mistakes_are_one_line_with_a_remedy(folder, arguments, words, status):
    Path("few.toml").write_text('tailguard_schema = 1\n[columns]\nage = "number"\n')
    Path("semi.csv").write_text("age;visits;smoker;cost\n30;1;no;1,5\n")
    Path("index.csv").write_text(",age,cost\n0,30,1.5\n")
    Path("typo.toml").write_text(SCHEMA.replace("visits", "vists"))
    Path("cut.csv.gz").write_bytes(gzip.compress(Path("patients.csv").read_bytes())[:-1000])
    assert words in run(*arguments, status=status).stderr
    assert not (folder / "model.json").exists()


def test_a_promise_that_is_none_is_refused_before_anything_is_said(folder):
    assert run("fit", "patients.csv", "--target", "cost", "--epsilon", "0", status=FAILED).stdout == ""


def test_ctrl_c_has_its_own_status(folder, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tailguard.model_file.save_model", stop)
    line = run("fit", "patients.csv", "--target", "cost", "--features", "age", status=STOPPED).stderr
    assert line == "error: stopped.\n"


def test_an_error_of_arrow_does_not_repeat_cells(folder, monkeypatch):
    def fail(*_, **__):
        raise pa.ArrowInvalid("could not convert 'XENON' to double")

    monkeypatch.setattr("tailguard.tables.rows.encode_rows", fail)
    line = run("fit", "patients.csv", "--target", "cost", "--features", "age", status=FAILED).stderr
    assert "XENON" not in line
    assert "ArrowInvalid" in line


def test_quiet_prints_nothing(folder):
    for arguments in (
        ("fit", "patients.csv", "--schema", "patients.toml", "--target", "cost"),
        ("predict", "model.json", "later.csv", "-o", "p.csv"),
        ("inspect", "model.json"),
        ("evaluate", "model.json", "public.csv", "--public"),
    ):
        assert run(*arguments, "--quiet").output == ""


# ---------------------------------------------------------------- nothing about the rows


def test_no_cell_can_raise_warn_or_be_repeated(folder):
    """Wild cells in every column: the command does what it did, and prints nothing of them."""
    lines = Path("patients.csv").read_text().splitlines()
    wild = ["XENON", '"XENON', "XENON,XENON,1e308,XENON,inf", "a,-inf,nan,maybe,1e999", ",,,,", "", "\0,\xff,é,XENON,1"]
    Path("wild.csv").write_bytes("\n".join([*lines[: -len(wild)], *wild]).encode("latin-1"))
    options = ("--schema", "patients.toml", "--target", "cost", "--seed", "3", "--force")
    # The same lines of text but for numbers, which are of other rows.
    plain, odd = (re.sub(r"-?[\d.,]+(e[+-]?\d+)?", "#", run("fit", name, *options).output) for name in
                  ("patients.csv", "wild.csv"))  # fmt: skip
    assert re.sub(r"[ ─]+", " ", plain) == re.sub(r"[ ─]+", " ", odd)
    assert "XENON" not in odd
    run("predict", "model.json", "wild.csv", "-o", "p.csv")
    assert len(Path("p.csv").read_text().splitlines()) == len(lines)
    run("evaluate", "model.json", "wild.csv", "--pay-epsilon", "1")


# ---------------------------------------------------------------- predict, inspect


def test_predictions_are_those_of_python(folder):
    run("fit", "patients.csv", "--schema", "patients.toml", "--target", "smoker", "--quiet")
    model, table = tg.load_model("model.json"), patients(2).slice(0, 400)
    X = np.column_stack([table["age"], table["visits"], table["cost"]])
    del model.feature_names_in_
    run("predict", "model.json", "later.csv", "--proba", "--keep", "id", "-o", "p.parquet")
    found = parquet.read_table("p.parquet")
    assert found.column_names == ["id", "prediction", "probability_no", "probability_yes"]
    assert found["id"].to_pylist() == table["id"].to_pylist()
    assert found["prediction"].to_pylist() == model.predict(X).tolist()
    np.testing.assert_allclose(found["probability_yes"], model.predict_proba(X)[:, 1], rtol=1e-12)
    printed = list(csv.DictReader(io.StringIO(run("predict", "model.json", "later.csv").stdout)))
    assert [row["prediction"] for row in printed] == model.predict(X).tolist()


def test_predict_names_what_is_missing(folder):
    run("fit", "patients.csv", "--schema", "patients.toml", "--target", "cost", "--quiet")
    Path("short.csv").write_text("age,visits\n1,2\n")
    assert "short.csv has no column 'smoker'" in run("predict", "model.json", "short.csv", status=FAILED).stderr
    Path("short.csv").write_text("age,weight\n1,2\n")
    several = run("predict", "model.json", "short.csv", status=FAILED).stderr
    assert "no column 'visits', 'smoker', which the model names; it has 'age', 'weight'." in several
    Path("empty.csv").write_text("age,visits,smoker\n")
    assert "has no rows" in run("predict", "model.json", "empty.csv", "-o", "p.csv", status=FAILED).stderr
    assert not list(folder.glob("*p.csv*"))
    assert "have no rows" in run("fit", "empty.csv", "--target", "age", "--force", status=FAILED).stderr
    keep = run("predict", "model.json", "later.csv", "--keep", "Age", status=FAILED).stderr
    assert "no column 'Age', which --keep names; did you mean 'age'?" in keep
    assert "--proba is for classifiers" in run("predict", "model.json", "later.csv", "--proba", status=FAILED).stderr
    tg.save_model(tg.PrivateRidge().fit(np.ones((10, 1)), np.ones(10)), "array.json")
    assert "was not fitted to a table" in run("predict", "array.json", "later.csv", status=FAILED).stderr


def test_inspect_shows_and_reports(folder):
    run("fit", "patients.csv", "--schema", "patients.toml", "--target", "smoker", "--quiet")
    words = " ".join(run("inspect", "model.json", "--report", "r.json").stdout.split())
    assert "log-odds of yes" in words
    assert "smoker (target): no, yes" in words
    data = json.loads(run("inspect", "model.json", "--json").stdout)
    assert data["report_files"] == []
    assert {**data, "report_files": None} == {**json.loads(Path("r.json").read_text()), "report_files": None}


def test_lines_fit_a_terminal_and_stay_whole_in_a_pipe(folder, monkeypatch):
    run("fit", "patients.csv", "--schema", "patients.toml", "--target", "cost", "--quiet")
    monkeypatch.setenv("COLUMNS", "80")
    piped = run("inspect", "model.json").stdout.splitlines()
    assert any(line.startswith("Replacing any one of the") and line.endswith(".") for line in piped)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    shown = re.sub(r"\x1b\[[0-9;]*m", "", run("inspect", "model.json").stdout).splitlines()
    assert max(map(len, shown)) <= 80 < max(map(len, piped))
    assert " ".join(" ".join(shown).split()) == " ".join(" ".join(piped).split())
    planned = run("plan", "--rows", "30000", "--features", "20", "--epsilon", "1").stdout
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", planned).splitlines())) <= 80


def test_a_file_from_elsewhere_cannot_speak_to_the_terminal(folder):
    evil = "[bold]x[/bold]\x1b]0;title\x07\x1b[2J"
    recipe = Recipe((Column(evil), Column("b", CATEGORY, (evil, "y" + evil))), Column("t" + evil))
    tg.save_model(tg.PrivateRidge().fit(np.ones((99, 2)), np.ones(99)), "evil.json", recipe=recipe)
    output = run("inspect", "evil.json").output
    assert "[bold]x[/bold]" in output
    assert "\x1b" not in output
    assert "\x07" not in output
    assert "\x1b" not in run("predict", "evil.json", "later.csv", status=FAILED).output


def test_intervals_of_a_column_of_categories_are_against_its_first(tmp_path, monkeypatch):
    """With an indicator for each of three and an intercept nothing is pinned down, and intervals are infinite."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    ward = rng.choice(["east", "north", "south"], 20_000)
    cost = 5.0 + 2.0 * (ward == "north") - 1.0 * (ward == "south") + rng.standard_t(3, len(ward))
    pd.DataFrame({"ward": ward, "cost": cost}).to_csv("wards.csv", index=False)
    Path("wards.toml").write_text(
        'tailguard_schema = 1\n[columns]\nward = ["east", "north", "south"]\ncost = "number"\n', encoding="utf-8"
    )
    run("fit", "wards.csv", "--schema", "wards.toml", "--target", "cost", "--epsilon", "4", "--inference", "--quiet")
    saved = read_model("model.json")
    assert saved.recipe.feature_names == ("ward=north", "ward=south")
    assert np.all(np.isfinite(saved.model.stderr_))
    # Errors of about .03 from sampling and noise: a sixth of what is allowed.
    assert np.max(np.abs(saved.model.coef_ - [2.0, -1.0])) < 6.0 * saved.model.stderr_.max() < 0.6
    assert "ward=north (against east)" in " ".join(run("inspect", "model.json").stdout.split())
    run("predict", "model.json", "wards.csv", "-o", "out.csv")
    found = pd.read_csv("out.csv")["prediction"].groupby(ward).mean()
    assert found["north"] - found["east"] == pytest.approx(saved.model.coef_[0])


# ---------------------------------------------------------------- evaluate


def test_scores_are_refused_until_it_is_said_whose_rows_they_are(folder):
    run("fit", "patients.csv", "--schema", "patients.toml", "--target", "cost", "--quiet")
    line = run("evaluate", "model.json", "patients.csv", status=REFUSED).stderr
    assert all(word in line for word in ("--public", "--held-out", "--pay-epsilon"))
    line = run("evaluate", "model.json", "patients.csv", "--held-out", status=REFUSED).stderr
    assert "fitted to 3000 rows and this table has 3000" in line
    run("evaluate", "model.json", "patients.csv", "--held-out", "--public", status=FAILED)
    words = run("evaluate", "model.json", "later.csv", "--held-out").stdout
    assert "not private" in words
    assert "R squared" in words
    run("evaluate", "model.json", "patients.csv", "--held-out", "--same-size")
    assert "not private" not in run("evaluate", "model.json", "public.csv", "--public").stdout


def test_paid_scores_name_their_price_and_that_of_both(folder):
    run("fit", "patients.csv", "--schema", "patients.toml", "--target", "smoker", "--quiet")
    words = run("evaluate", "model.json", "patients.csv", "--pay-epsilon", "0.5").stdout
    assert "The scores are (0.5, 1e-6)-differentially private when one of the 3000 rows is replaced." in words
    assert "fit and scores together are (1." in words
    data = json.loads(run("evaluate", "model.json", "patients.csv", "--pay-epsilon", "0.5", "--json").stdout)
    assert data["private"]
    assert set(data["noise"]) == set(data["scores"]) == {"accuracy", "Brier score"}
    exact = json.loads(run("evaluate", "model.json", "patients.csv", "--public", "--json").stdout)["scores"]
    assert abs(data["scores"]["accuracy"] - exact["accuracy"]) < 7 * data["noise"]["accuracy"]


# ---------------------------------------------------------------- the ledger


def spent(path="budget.db"):
    data = json.loads(run("ledger", "show", path, "--json").stdout)
    (dataset,) = data["datasets"] if isinstance(data, dict) else data
    return dataset


def test_a_ledger_pays_for_fits_and_scores_until_it_is_empty(folder):
    paying = ("--ledger", "budget.db", "--dataset", "patients", "--budget-epsilon", "1.4")
    table = ("patients.csv", "--schema", "patients.toml", "--target", "cost", "--force")
    assert "Ledger: patients has spent epsilon" in run("fit", *table, *paying).stdout
    run("evaluate", "model.json", "patients.csv", "--pay-epsilon", "0.5", *paying[:4], "--quiet")
    before = Path("model.json").read_bytes()
    line = run("fit", *table, *paying[:4], status=REFUSED).stderr
    assert "Nothing was read" in line
    assert Path("model.json").read_bytes() == before
    run("evaluate", "model.json", "patients.csv", "--pay-epsilon", "3", *paying[:4], status=REFUSED)
    run("fit", *table, *paying[:4], "--epsilon", "0.3", "--seed", "1", status=REFUSED)  # a seed has no price
    summary = tg.Ledger("budget.db", "patients").summary()
    assert (summary.runs, summary.unconfirmed) == (2, 0)
    assert 1.0 < summary.epsilon <= 1.4


def test_what_cannot_be_paid_is_refused_before_the_table_is_opened_for_reading(folder, monkeypatch):
    from tailguard.engines.csv import CsvFile

    def fail(*_):
        raise AssertionError("the rows were read")

    monkeypatch.setattr(CsvFile, "_pieces", fail)
    options = ("--target", "cost", "--epsilon", "5", "--ledger", "b.db", "--dataset", "d", "--budget-epsilon", "1")
    run("fit", "patients.csv", *options, status=REFUSED)


KILLER = '''
"""Run a fit again and again in forked children, each killed at another point; print what each left behind."""
import json, os, random, signal, sys, time
from pathlib import Path
from tailguard import fit_report
from tailguard.cli import app
from tailguard.ledger import Ledger
from tailguard.means.queries import Queries

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def before(owner, name):
    setattr(owner, name, die)

def after(owner, name, of=None):
    original = getattr(owner, name)
    def then(*arguments, **options):
        answer = original(*arguments, **options)
        if of is None or str(arguments[-1]).endswith(of):
            die()
        return answer
    setattr(owner, name, then)

POINTS = {
    "before the reservation": lambda: before(Ledger, "reserve"),
    "after the reservation": lambda: after(Ledger, "reserve"),
    "before the first noise": lambda: before(Queries, "_draw"),
    "after the first noise": lambda: after(Queries, "_draw"),
    "before the confirmation": lambda: before(Ledger, "confirm"),
    "after the confirmation": lambda: after(Ledger, "confirm"),
    "before the model appears": lambda: before(os, "fsync"),
    "after the model appears": lambda: after(os, "replace", "model.json"),
    "before the summary": lambda: before(fit_report.FitReport, "sentence"),
    "never": lambda: None,
}

FIT = ["fit", sys.argv[1], "--target", "cost", "--features", "age,visits", "--report", "r.html"]

def child(folder, arm):
    os.chdir(folder)
    out = os.open("out.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    arm()
    app([*FIT, "--ledger", "budget.db", "--dataset", "d"])

def attempt(name, arm, wait=None):
    folder = Path(sys.argv[2]) / name.replace(" ", "-")
    folder.mkdir()
    Ledger(folder / "budget.db", "d", 3.0)
    start = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        try:
            child(folder, arm)
        finally:
            os._exit(99)
    if wait is not None:
        time.sleep(wait)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter() - start
    text = (folder / "out.txt").read_text() if (folder / "out.txt").exists() else ""
    released = (folder / "model.json").exists() or (folder / "r.html").exists() or "coefficient" in text
    runs = Ledger(folder / "budget.db", "d").summary().runs
    print(json.dumps({"point": name, "killed": os.WIFSIGNALED(status), "released": released, "runs": runs}), flush=True)
    return took

app([*FIT, "--quiet"], standalone_mode=False)  # kernels are loaded once, before the children
for name, arm in POINTS.items():
    attempt(name, arm)
chance = random.Random(0)
took = attempt("timed", lambda: None)
for k in range(8):
    attempt(f"at random {k}", lambda: None, wait=chance.random() * took)
'''


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children")
def test_kill_9_at_any_point_never_leaves_less_recorded_than_was_released(folder):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLER, str(folder / "patients.csv"), str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {entry["point"]: entry for entry in map(json.loads, done.stdout.splitlines())}
    for entry in found.values():
        assert entry["runs"] >= entry["released"], entry
    # The points are where they say they are: each was reached, and the charge came before everything else.
    for name, entry in found.items():
        if name in ("never", "timed"):
            assert (entry["killed"], entry["released"], entry["runs"]) == (False, True, 1)
        elif not name.startswith("at random"):
            assert entry["killed"], name
            assert entry["runs"] == (name != "before the reservation"), name
            assert entry["released"] == (name in ("after the model appears", "before the summary")), name


# ---------------------------------------------------------------- real tables


@pytest.mark.parametrize(
    ("name", "target", "options"),
    [
        ("credit_default.csv.gz", "PAY_AMT1", ("--drop", "ID,default,PAY_0,BILL_AMT1")),
        ("credit_default.csv.gz", "default", ("--drop", "ID", "--classes", "0,1")),
        ("randhie.csv.gz", "meddol", ("--features", "xage,female,educdec,physlm,disea,linc,lnum")),
    ],
)
def test_real_tables(folder, name, target, options):
    if not (DATA / name).is_file():
        pytest.skip(f"REAL DATA MISSING: {name} is not in ../shared/data, the commands were NOT run on it")
    run("fit", str(DATA / name), "--target", target, *options, "--quiet", "--report", "r.html")
    scores = json.loads(run("evaluate", "model.json", str(DATA / name), "--public", "--json").stdout)["scores"]
    assert scores["rows"] > 20_000
    if target == "default":
        assert scores["log-loss"] < scores["log-loss of the frequencies"]
    else:
        assert scores["R squared"] > 0.0
    run("predict", "model.json", str(DATA / name), "-o", "p.csv", "--quiet")
