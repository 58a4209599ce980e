"""The command line: it does what the README says, and errors are one line without a traceback."""

import builtins
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import tailguard
from tailguard.cli import app

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILGUARD_TRACEBACK", raising=False)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_version(run):
    result = run("--version")
    assert result.exit_code == 0
    assert result.output == f"tailguard {tailguard.__version__}\n"


def test_help_lists_the_commands(run):
    for result in (run(), run("--help")):
        assert result.exit_code == 0
        assert "demo" in result.output


def test_demo_prints_coefficients_reports_and_writes_the_picture(run, tmp_path):
    result = run("demo", "--rows", "2000")
    assert result.exit_code == 0, result.output
    words = result.output
    assert words.index("Compiling kernels") < words.index("Coefficients against the truth")
    for expected in ("truth", "OLS", "PrivateRidge", "L2 clipping", "Algorithm 4", "w10", "excess", "seconds"):
        assert expected in words
    assert words.count("-differentially private when one of the 2000 rows is replaced") == 4
    assert "not private: seeded" not in words
    picture, drawing = tmp_path / "demo-output" / "demo.png", tmp_path / "demo-output" / "demo.svg"
    assert picture.read_bytes().startswith(PNG)
    assert picture.stat().st_size > 10_000
    assert "<svg" in drawing.read_text(encoding="utf-8")
    assert os.path.join("demo-output", "demo.png") in words
    assert str(tmp_path) not in words


def test_a_seeded_demo_repeats_and_says_that_it_is_not_private(run, tmp_path):
    def table(text):
        return [line for line in text.splitlines() if line.startswith("│ w")]

    first, second = (run("demo", "--rows", "500", "--seed", "7", "--output", "pictures/here") for _ in range(2))
    other = run("demo", "--rows", "500", "--seed", "8")
    assert first.exit_code == second.exit_code == other.exit_code == 0
    assert len(table(first.output)) == 10
    assert table(first.output) == table(second.output) != table(other.output)
    assert "not private: seeded" in first.output
    assert (tmp_path / "pictures" / "here" / "demo.png").exists()


def test_without_matplotlib_the_demo_says_what_to_install(run, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name, *arguments, **more):
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}", name="matplotlib")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("importlib.import_module", lambda name: without(name))
    result = run("demo", "--rows", "200", "--seed", "0")
    assert result.exit_code == 0, result.output
    assert "No picture: matplotlib is not installed: run  pip install 'tailguard[plot]'" in result.output
    assert "Algorithm 4" in result.output
    assert not list((tmp_path / "demo-output").iterdir())


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        (("demo", "--rows", "0"), "--rows", 2),
        (("demo", "--rows", "many"), "--rows", 2),
        (("demo", "--seed", "-1"), "--seed", 2),
        (("demo", "--sede", "1"), "--sede", 2),
        (("demo", "--output", "taken"), "taken", 2),
        (("demo", "--output", "taken/below"), "taken", 1),
        (("dmeo",), "dmeo", 2),
    ],
)
def test_wrong_arguments_are_one_line_and_no_traceback(run, tmp_path, arguments, words, status):
    (tmp_path / "taken").write_text("a file")
    result = run(*arguments)
    assert result.exit_code == status
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert words in lines[0]
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)


def test_a_refusal_of_the_library_is_one_line_unless_its_origin_is_asked_for(run, monkeypatch):
    def refuse():
        raise ValueError("epsilon=0 is not accepted:\n give a positive number.")

    monkeypatch.setattr("tailguard.demo.warm_up", refuse)
    result = run("demo", "--rows", "200")
    assert (result.exit_code, result.stderr) == (1, "error: epsilon=0 is not accepted: give a positive number.\n")
    monkeypatch.setenv("TAILGUARD_TRACEBACK", "1")
    assert isinstance(run("demo", "--rows", "200").exception, ValueError)


def test_a_bug_keeps_its_traceback(run, monkeypatch):
    monkeypatch.setattr("tailguard.demo.warm_up", lambda: 1 / 0)
    assert isinstance(run("demo", "--rows", "200").exception, ZeroDivisionError)


def test_the_command_line_loads_nothing_that_is_optional():
    # What scikit-learn loads by itself does not count.
    code = (
        "import sys, sklearn.base; had = set(sys.modules); import tailguard.cli; "
        "print([m for m in ('matplotlib', 'pandas', 'rich.table') if m in sys.modules and m not in had])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_package_is_the_command():
    done = subprocess.run([sys.executable, "-m", "tailguard", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"tailguard {tailguard.__version__}\n"
