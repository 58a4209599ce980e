"""Every example runs, small: on its synthetic twin, and on the real table where there is one beside the checkout."""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
# Example and the table it reads.
EXAMPLES = {
    "medical_cost": "randhie.csv.gz",
    "credit_payments": "credit_default.csv.gz",
    "income_classification": "adult.csv.gz",
    "private_mean": "randhie.csv.gz",
    "custom_loss": None,
    "choose_a_model": None,
}


def run(name: str, monkeypatch, capsys, folder: Path, *options: str) -> str:
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.delenv("TAILGUARD_DATA", raising=False)
    plot = folder / "plot.png"
    monkeypatch.setattr(sys, "argv", [name, "--output", str(plot), "--repeats", "2", *options])
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert plot.stat().st_size > 20_000
    printed = capsys.readouterr().out
    assert "epsilon 0.1" in printed
    assert "epsilon 3" in printed
    assert "-differentially private when one of the" in printed
    assert "not private: seeded" not in printed
    return printed


def test_there_is_no_example_without_a_test():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {*EXAMPLES, "common"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_without_data_and_says_so(name, monkeypatch, capsys, tmp_path):
    printed = run(name, monkeypatch, capsys, tmp_path, "--rows", "400")
    assert "SYNTHETIC" in printed


@pytest.mark.parametrize("name", [name for name, table in EXAMPLES.items() if table])
def test_an_example_runs_on_its_table(name, monkeypatch, capsys, tmp_path):
    if not (DATA / EXAMPLES[name]).is_file():
        pytest.skip(f"REAL DATA MISSING: {EXAMPLES[name]} is not in ../shared/data, the example was NOT run on it")
    printed = run(name, monkeypatch, capsys, tmp_path, "--rows", "400", "--data", str(DATA))
    assert "SYNTHETIC" not in printed


def test_a_plot_has_the_name_of_its_example(monkeypatch):
    """In the folder that the example is run in, where git does not see it."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.setattr(sys, "argv", [str(ROOT / "examples" / "private_mean.py")])
    plot = importlib.import_module("common").arguments("An example.").output
    assert plot == Path("private_mean.png")
    assert "/*.png" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_a_folder_without_the_table_is_said(monkeypatch, capsys, tmp_path):
    printed = run("private_mean", monkeypatch, capsys, tmp_path, "--rows", "300", "--data", str(tmp_path))
    assert "randhie.csv.gz is not in the folder given" in printed


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_hold_no_machine_paths(path):
    text = path.read_text()
    assert "/work" not in text
    assert "/home" not in text
