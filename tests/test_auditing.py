"""The auditor itself: bounds that hold, events that are found, neighbours, processes, results and the command."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression, SGDRegressor
from typer.testing import CliRunner

import tailguard as tg
from tailguard.auditing import (
    CASES,
    NEIGHBOURS,
    AuditResult,
    Mechanism,
    Pair,
    Runner,
    Table,
    audit_one_run,
    draw,
    epsilon_from_counts,
    epsilon_from_outputs,
    neighbours,
)
from tailguard.auditing.bounds import probability_bounds, quick_epsilon
from tailguard.auditing.events import best_event
from tailguard.auditing.one_run import one_run_epsilon, one_run_p_value
from tailguard.auditing.runs import pieces
from tailguard.cli import app
from tailguard.cli.audit import REFUTED
from tailguard.privacy import gdp_epsilon


def laplace(X, rng):
    """Pure differential privacy with epsilon 1: values in [0, 1] with noise of scale 1."""
    return np.clip(np.nan_to_num(X[:, 0]), 0.0, 1.0).sum() + rng.laplace()


def leaky(X, rng):
    return 3.0 * np.clip(np.nan_to_num(X[:, 0]), 0.0, 1.0).sum() + rng.laplace()


# Bounds.


@pytest.mark.parametrize("error", [0.005, 0.1])
@pytest.mark.parametrize("p", [0.0, 0.01, 0.3, 0.97, 1.0])
def test_probability_bounds_err_as_rarely_as_they_say_and_not_much_more_rarely(p, error):
    n = 60
    mass = stats.binom.pmf(np.arange(n + 1), n, p)
    bounds = np.array([probability_bounds(k, n, error) for k in range(n + 1)])
    for wrong in (bounds[:, 0] > p, bounds[:, 1] < p):
        assert mass[wrong].sum() <= error * (1 + 1e-9)
    # Not vacuous: a probability a little outside is excluded by the typical count.
    low, high = probability_bounds(30, n, error)
    assert 0.3 < low < 0.5 < high < 0.7


def test_epsilon_from_counts_is_the_formula_of_its_bounds():
    low, high = probability_bounds(300, 1000, 0.005)[0], probability_bounds(40, 1000, 0.005)[1]
    assert epsilon_from_counts(300, 40, 1000, 0.05, 0.99) == pytest.approx(math.log((low - 0.05) / high))
    assert epsilon_from_counts(40, 300, 1000, 0.0, 0.99) == 0.0
    assert epsilon_from_counts(40, 0, 1000, 0.05, 0.99) == 0.0  # rarer than delta: nothing can be said
    assert epsilon_from_counts(1000, 0, 1000, 0.0, 0.99) < math.log(1000)
    quick = quick_epsilon(np.array([300.0]), np.array([40.0]), 1000, 0.05, 0.99)[0]
    assert quick == pytest.approx(epsilon_from_counts(300, 40, 1000, 0.05, 0.99), abs=0.05)


def test_coverage_on_a_mechanism_whose_epsilon_is_known():
    """Unit normals one apart are exactly (epsilon, delta): at 90 % confidence at most 10 % of audits may exceed it.

    300 audits: more than 50 misses have a p-value below 1e-4. With twice the shift nearly all must exceed it.
    """
    delta = 0.05
    epsilon = gdp_epsilon(1.0, delta)
    rng = np.random.default_rng(0)

    def above(shift):
        return sum(
            epsilon_from_outputs(rng.standard_normal(2000), rng.standard_normal(2000) + shift, delta, 0.9) > epsilon
            for _ in range(300)
        )

    assert above(1.0) <= 50
    assert above(2.0) > 280


def test_outputs_are_checked():
    with pytest.raises(ValueError, match="equally many runs"):
        epsilon_from_outputs(np.zeros(10), np.zeros(9))
    with pytest.raises(ValueError, match="delta must be"):
        epsilon_from_outputs(np.zeros(10), np.zeros(10), delta=1.0)


# Events.


def shifted(rng, n):
    return rng.standard_normal((n, 1)), rng.standard_normal((n, 1)) + 3.0


def scaled(rng, n):
    return rng.standard_normal((n, 1)), 100.0 * rng.standard_normal((n, 1))


def cancelling(rng, n):
    """Neither coordinate tells anything, their difference tells all."""
    common = 100.0 * rng.standard_normal((2, n))
    return np.column_stack([common[0], common[0]]), np.column_stack([common[1], common[1] + 0.1])


def correlated(rng, n):
    one, other = rng.standard_normal((2, n, 2))
    return one, np.column_stack([other[:, 0], other[:, 0] + 0.05 * other[:, 1]])


def somewhere(rng, n):
    """One coordinate of many is large, and nobody knows which."""
    one, other = rng.standard_normal((2, n, 30))
    other[np.arange(n), rng.integers(30, size=n)] += 8.0
    return one, other


def broken(rng, n):
    one, other = rng.standard_normal((2, n, 1))
    other[: n // 2] = other[n // 2 :] = np.nan
    return one, other


def heavy(rng, n):
    return rng.standard_cauchy((n, 2)) * 1e100, rng.standard_cauchy((n, 2)) * 1e100 + [1e102, 0.0]


@pytest.mark.parametrize("example", [shifted, scaled, cancelling, correlated, somewhere, broken, heavy])
def test_events_that_tell_the_tables_apart_are_found(example):
    one, other = example(np.random.default_rng(0), 2000)
    assert epsilon_from_outputs(one, other) > 1.5
    assert epsilon_from_outputs(other, one) > 1.5
    # Outputs of one table only, in two heaps: nothing to find. The p-value of a bound above 0 is at most 1e-4.
    assert epsilon_from_outputs(one[::2], one[1::2], confidence=0.9999) == 0.0


def test_an_event_is_described_and_counts_what_it_describes():
    rng = np.random.default_rng(0)
    one, other = shifted(rng, 1000)
    event, gain = best_event(one, other, 0.0, 0.99)
    assert gain > 2.0
    assert event.description.startswith("output 0 ")
    first, second = (other, one) if event.swapped else (one, other)
    assert event.count(first) > 10 * event.count(second)


def test_constant_outputs_are_told_apart_or_not():
    assert epsilon_from_outputs(np.zeros(200), np.ones(200)) > 2.0
    assert epsilon_from_outputs(np.zeros(200), np.zeros(200)) == 0.0


# One run.


def paper_p_value(m, r, v, eps, delta):
    """The listing in the appendix of Steinke, Nasr and Jagielski (2023)."""
    q = 1 / (1 + math.exp(-eps))
    beta = stats.binom.sf(v - 1, r, q)
    alpha = total = 0.0
    for i in range(1, v + 1):
        total += stats.binom.pmf(v - i, r, q)
        alpha = max(alpha, total / i)
    return min(beta + alpha * delta * 2 * m, 1)


@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-3])
@pytest.mark.parametrize(("m", "r", "v"), [(100, 100, 80), (1000, 50, 48), (1000, 1000, 600), (50, 10, 10), (20, 8, 0)])
def test_one_run_p_value_is_the_published_one(m, r, v, delta):
    for eps in (0.0, 0.7, 3.0):
        assert one_run_p_value(m, r, v, eps, delta) == pytest.approx(paper_p_value(m, r, v, eps, delta), rel=1e-9)


def test_one_run_epsilon_is_the_largest_that_is_refuted():
    bound = one_run_epsilon(1000, 100, 90, 1e-6, 0.99)
    assert one_run_p_value(1000, 100, 90, bound, 1e-6) <= 0.01 < one_run_p_value(1000, 100, 90, bound + 1e-6, 1e-6)
    assert one_run_epsilon(1000, 100, 50, 1e-6, 0.99) == 0.0


def test_one_run_covers_randomised_response():
    """Every coin answered truly with odds e: epsilon = 1. 400 audits at 90 %: above 64 misses, p-value 1e-4."""
    rng = np.random.default_rng(0)

    def above(epsilon):
        right = rng.binomial(200, 1 / (1 + math.exp(-epsilon)), size=400).tolist()
        bound = {v: one_run_epsilon(200, 200, v, 0.0, 0.9) for v in set(right)}
        return sum(bound[v] > 1.0 for v in right)

    assert above(1.0) <= 64
    assert above(3.0) > 390


def test_one_run_needs_an_output_for_every_canary():
    with pytest.raises(ValueError, match="1 outputs for 20 columns"):
        audit_one_run(laplace, 1.0, 0.0, canaries=20)
    result = audit_one_run("gaussian-l2-add-remove", 1.0, 1e-6, canaries=100)
    assert result.method == "one run"
    assert result.hits + result.others == result.trials
    assert "guesses right" in str(result)


# Neighbours.


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
@pytest.mark.parametrize("kind", ["mean", "regression", "classification", "counts"])
def test_neighbours_differ_in_the_last_row_alone(kind, relation):
    table = Table.example(kind, 12, 3)
    pairs = neighbours(table, relation=relation)
    assert {pair.name for pair in pairs} == set(NEIGHBOURS) - ({"label flip"} if kind == "mean" else set())
    for pair in pairs:
        for side in (pair.one, pair.other):
            np.testing.assert_array_equal(side.X[:-1], table.X[:-1])
            if kind == "mean":
                assert side.y is None
                continue
            np.testing.assert_array_equal(side.y[:-1], table.y[:-1])
            if kind == "classification":
                assert side.y[-1] in (0.0, 1.0)
            if kind == "counts":
                assert not side.y[-1] < 0.0
        if relation == "add-remove":
            assert np.isnan(pair.one.X[-1]).all()
        rows = [np.append(side.X[-1], [] if side.y is None else side.y[-1]) for side in (pair.one, pair.other)]
        assert not np.array_equal(*rows, equal_nan=True), pair.name


def test_neighbours_are_chosen_by_name():
    table = Table.example("mean", 5)
    assert [pair.name for pair in neighbours(table, ["duplicate"])] == ["duplicate"]
    with pytest.raises(ValueError, match="far outlier"):
        neighbours(table, ["nothing"])
    with pytest.raises(ValueError, match="no labels"):
        neighbours(table, ["label flip"])


# The audit.


def test_a_function_of_ones_own():
    zero, one = np.zeros((5, 1)), np.append(np.zeros(4), 1.0)[:, None]
    assert not tg.audit(laplace, 1.0, 0.0, pair=(zero, one), runs=2000, confidence=0.9999, workers=1).refuted
    found = tg.audit(leaky, 1.0, 0.0, pair=(zero, one), runs=2000, workers=1)
    assert found.refuted
    assert 1.0 < found.lower < 3.0
    assert found.pair == "your own"
    assert found.subject == "leaky"


def with_targets(X, y, rng):
    return y.sum() + rng.laplace()


def test_a_function_that_takes_targets_gets_them():
    assert tg.audit(with_targets, 1.0, 0.0, neighbours=["label flip", "far outlier"], runs=400, workers=1).refuted


def test_the_scan_finds_the_pair_and_the_event():
    """Around zeros a copy of another row and a NaN change nothing; the other pairs change the sum by 1."""
    result = tg.audit(leaky, 1.0, 0.0, data=Table(np.zeros((5, 1))), runs=2000, workers=1)
    assert result.refuted
    assert result.pair not in ("duplicate", "not a number")
    assert {name for name, _ in result.scan} == set(NEIGHBOURS) - {"label flip"}
    assert dict(result.scan)[result.pair] == max(value for _, value in result.scan)


class Forgetful:
    """An estimator that publishes its first target."""

    random_state = None

    def fit(self, X, y):
        self.first_ = float(y[-1]) + np.random.default_rng(self.random_state).standard_normal() * 1e-3
        self.n_features_in_ = X.shape[1]
        return self


def test_estimators_release_their_fitted_numbers():
    assert tg.audit(Forgetful(), 1.0, 1e-6, neighbours=["label flip"], runs=400, workers=1).refuted
    for model, kind in ((SGDRegressor(max_iter=5, tol=None), "regression"), (LogisticRegression(), "classification")):
        result = tg.audit(model, 1.0, 1e-6, neighbours=["label flip"], runs=60, workers=1)
        assert result.refuted, kind  # neither is private
    with pytest.raises(ValueError, match="no numeric fitted attributes"):
        tg.audit(type("Empty", (), {"fit": lambda self, X, y: self})(), 1.0, 1e-6, runs=20, workers=1)


def test_the_same_seed_gives_the_same_result_with_any_number_of_processes():
    options = {"runs": 300, "neighbours": ["far outlier"]}
    one = tg.audit("block-median", 1.0, 0.0, seed=3, workers=1, **options)
    with Runner(2) as runner:
        assert tg.audit("block-median", 1.0, 0.0, seed=3, workers=runner, **options) == one
        with pytest.raises(ValueError, match="cannot be sent to other processes"):
            tg.audit(lambda X, rng: 0.0, 1.0, 0.0, runs=20, workers=runner)
    assert tg.audit("block-median", 1.0, 0.0, seed=4, workers=1, **options) != one


def test_streams_of_runs_sides_and_pieces_are_all_different():
    """Seeds that a mechanism is given: none twice, over both tables and all stages."""
    seen = []

    def spy(X, rng):
        seen.append(rng.random())
        return seen[-1]

    tg.audit(spy, 1.0, 0.0, neighbours=["far outlier", "duplicate"], runs=130, workers=1)
    assert len(set(seen)) == len(seen) == 2 * 130 + 2 * 2 * 200
    assert sum(pieces(130)) == 130
    assert max(pieces(10**6)) <= 2000


def test_noise_of_the_operating_system_is_not_repeated():
    a, b = (tg.audit("gaussian-l2", runs=100, neighbours=["opposite outliers"], seed=None, workers=1) for _ in range(2))
    assert a.seed is None
    assert (a.hits, a.others, a.event) != (b.hits, b.others, b.event)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "gaussian-l2.*module:factory"),
        (("no_such_module:f", 1.0, 0.0), "cannot be imported"),
        ((laplace,), "epsilon and delta must both be given"),
        (("gaussian-l2", -1.0), "epsilon must be"),
        (("gaussian-l2", 1.0, 2.0), "delta must be"),
    ],
)
def test_arguments_that_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tg.audit(*arguments, runs=20, workers=1)


def test_more_arguments_that_are_refused():
    with pytest.raises(TypeError, match="subject must be"):
        tg.audit(3.0, 1.0, 0.0, runs=20)
    with pytest.raises(ValueError, match="pair is not accepted beside"):
        tg.audit("gaussian-l2", pair=(np.zeros((3, 2)), np.ones((3, 2))), neighbours=["duplicate"])
    with pytest.raises(ValueError, match="returned shape"):
        tg.audit(type("Odd", (), {"outputs": lambda *_: np.zeros((1, 1))})(), 1.0, 0.0, runs=40, workers=1)


# Results.

RESULT = AuditResult(
    "thing", 1.0, 0.05, 1.5, 0.99, "two tables", "far outlier", "output 0 above 1", 50, 5, 100, 200, 0, (("a", 0.5),)
)


def test_a_result_says_what_it_found_and_survives_json(tmp_path):
    assert RESULT.refuted
    for words in ("thing: (1, 0.05)", "REFUTED", "at least 1.5", "99 % confidence", "far outlier", "50 and 5 of 100"):
        assert words in str(RESULT)
    assert AuditResult.from_json(RESULT.to_json()) == RESULT
    assert json.loads(RESULT.to_json())["refuted"] is True
    assert RESULT.plot(tmp_path / "folder" / "one.png").read_bytes().startswith(b"\x89PNG")
    text = draw([RESULT, RESULT], tmp_path / "two.svg", "title").read_text(encoding="utf-8")
    assert "<svg" in text
    with pytest.raises(ValueError, match="at least one"):
        draw([], tmp_path / "none.svg")


# The command.


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILGUARD_TRACEBACK", raising=False)
    return lambda *arguments: CliRunner().invoke(app, ["audit", *arguments])


def test_the_command_lists_what_it_knows(run):
    result = run("--list")
    assert result.exit_code == 0
    assert all(name in result.output for name in CASES)


def test_the_command_audits_what_is_shipped(run, tmp_path):
    result = run("gaussian-l2", "--runs", "400", "--workers", "1", "--neighbours", "opposite outliers")
    assert result.exit_code == 0, result.output
    assert "not refuted" in result.output
    folder = tmp_path / "audit-output"
    saved = AuditResult.from_json((folder / "audit.json").read_text(encoding="utf-8"))
    assert (saved.subject, saved.epsilon, saved.delta, saved.runs) == ("gaussian-l2", 1.0, 0.05, 400)
    assert (folder / "audit.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "audit.svg").read_text(encoding="utf-8")
    assert str(tmp_path) not in result.output
    wide = run("gaussian-l2", "--runs", "100", "--workers", "1", "--columns", "3", "--neighbours", "sparse canary")
    assert wide.exit_code == 0, wide.output
    one = run("gaussian-l2", "--canaries", "100", "--delta", "1e-6")
    assert one.exit_code == 0
    assert "100 canaries" in one.output


OWN = """
import numpy as np

def make(epsilon):
    def release(X, rng):
        return np.clip(np.nan_to_num(X[:, 0]), 0, 1).sum() + rng.laplace() / (3 * epsilon)
    return release

def plain(X, y, rng):
    return np.clip(y, 0, 1).sum() + rng.laplace()
"""


def test_the_command_refutes_a_claim_of_ones_own_in_processes_and_on_files(run, tmp_path):
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    claim = ("--epsilon", "1", "--delta", "0", "--runs", "400")
    result = run("own.py:make", *claim, "--neighbours", "opposite outliers", "--workers", "2")
    assert result.exit_code == REFUTED, result.output
    assert "REFUTED" in result.output
    (tmp_path / "a.csv").write_text("x,y\n1,0\n2,0\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("x,y\n1,0\n2,inf\n", encoding="utf-8")
    result = run("own.py:plain", *claim, "--pair", "a.csv", "b.csv", "--target", "y", "--workers", "1")
    assert result.exit_code == 0, result.output
    assert "your own" in result.output
    np.save(tmp_path / "a.npy", np.zeros((3, 1)))
    np.save(tmp_path / "b.npy", np.array([[0.0], [0.0], [1.0]]))
    result = run("own.py:make", *claim, "--pair", "a.npy", "b.npy", "--workers", "1")
    assert result.exit_code == REFUTED, result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give what to audit"),
        (("nothing",), "is not accepted"),
        (("missing.py:f", "--epsilon", "1", "--delta", "0"), "no file missing.py"),
        (("gaussian-l2", "--relation", "else"), "relation must be"),
        (("gaussian-l2", "--pair", "missing.csv", "missing.csv"), "missing.csv"),
        (("gaussian-l2", "--pair", "words.csv", "words.csv"), "must be a CSV file of numbers"),
        (("gaussian-l2", "--pair", "good.csv", "good.csv", "--target", "z"), "not a column"),
    ],
)
def test_errors_of_the_command_are_one_line(run, tmp_path, arguments, message):
    (tmp_path / "words.csv").write_text("x\nsecret\n", encoding="utf-8")
    (tmp_path / "good.csv").write_text("x\n1\n", encoding="utf-8")
    result = run(*arguments)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert "secret" not in result.stderr


def test_the_full_audit_writes_its_page_and_says_what_is_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    import audit as full

    options = ["--scale", "0.02", "--workers", "1", "--output", str(tmp_path)]
    assert full.main([*options, "--only", "no truncation"]) == 0
    text = (tmp_path / "audit.md").read_text(encoding="utf-8")
    assert "1 of 1 planted defects are caught" in text
    assert "| no truncation | 1 | 0.05 |" in text
    assert json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))["defects"][0]["refuted"]
    assert "<svg" in (tmp_path / "audit.svg").read_text(encoding="utf-8")
    (tmp_path / "audit.md").unlink()
    assert full.main([*options, "--again"]) == 0
    assert (tmp_path / "audit.md").read_text(encoding="utf-8") == text
    # A shipped subject that is refuted, and a defect that is not, are errors.
    monkeypatch.setitem(full.CASES, "bad", full.DEFECTS["no truncation"])
    monkeypatch.setitem(full.DEFECTS, "no truncation", full.CASES["block-median"])
    assert full.main([*options, "--only", "no truncation"]) == 1
    assert full.main([*options, "--only", "median"]) == 1
    text = (tmp_path / "audit.md").read_text(encoding="utf-8")
    assert "**MISSED**" in text
    assert "WRONG: block-median" in capsys.readouterr().out


def test_audits_are_loaded_when_they_are_asked_for():
    code = "import sys, tailguard as tg; print('tailguard.auditing' in sys.modules, tg.audit.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "audit"]
    assert "audit" in dir(tg)


def test_a_subject_as_it_is():
    table = Table(np.zeros((3, 1)))
    pair = Pair("shift", table, Table(np.full((3, 1), 9.0)))
    assert tg.audit(Mechanism(leaky), 0.1, 0.0, pair=pair, runs=200, workers=1).refuted
