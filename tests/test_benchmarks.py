"""The accuracy benchmark runs at tiny size, and what it compares with is what it says."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module", autouse=True)
def _importable():
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def accuracy(monkeypatch):
    import accuracy
    import peers

    monkeypatch.setattr(peers, "WHITENED", peers.WHITENED[::10])
    monkeypatch.setattr(peers, "STANDARDISED", peers.STANDARDISED[::10])
    monkeypatch.setattr(peers, "environment", lambda name: None)
    return accuracy


@pytest.mark.parametrize(
    "section", ["clean", "oracle", "small", "tables", "logistic", "safety", "equivariance", "time"]
)
@pytest.mark.filterwarnings("ignore")
def test_every_section_prints_and_writes_its_tables(section, accuracy, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("TAILGUARD_DATA", raising=False)
    page = tmp_path / "accuracy.md"
    accuracy.main(["--quick", "--seeds", "1", "--only", section, "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"### {section}")
    assert "nan" not in text
    title = text.split("**")[1]
    assert title[:30] in capsys.readouterr().out


def test_every_section_is_tested(accuracy):
    assert list(accuracy.SECTIONS) == [
        "clean",
        "oracle",
        "small",
        "tables",
        "logistic",
        "safety",
        "equivariance",
        "time",
    ]
    with pytest.raises(SystemExit):
        accuracy.main(["--only", "nothing"])


def test_numbers_and_verdicts(accuracy):
    assert [accuracy.number(x) for x in (0.00123, 0.5, 1.0, 23.4, 3e-7, -0.011, 0.0)] == [
        ".0012",
        ".50",
        "1.0",
        "23",
        "3.0e-07",
        "-.011",
        ".00",
    ]
    assert accuracy.verdict(1.0, 1.0) == "met"
    assert accuracy.verdict(1.5, 1.0) == "**not met**, 1.50 x"


def test_designs_have_a_signal_of_variance_one_and_comparable_variants():
    import designs

    for name in designs.LINEAR:
        task = designs.linear_task(name, 500, 4, 1)
        # The dummies and the heavy tails have large fourth moments: the bounds are wide.
        assert 0.5 < np.var(task.truth) < 2.0
        assert task.risks(task.truth) == (0.0, 0.0)
    plain, moved = designs.linear_task("nl", 500, 4, 1), designs.linear_task("shift", 500, 4, 1)
    np.testing.assert_array_equal(plain.y, moved.y)
    np.testing.assert_allclose(np.abs(moved.X - plain.X), 1000.0, rtol=1e-12)


def test_labels_score_the_truth_best():
    import designs

    for task in (designs.logistic_task("dummies", 300, 4, 2), designs.multinomial_task(5, 300, 4, 2)):
        assert task.excess(task.probabilities) == 0.0
        assert task.excess(task.constant()) > 0.05
        assert task.accuracy(task.probabilities) > task.accuracy(task.constant())


def test_peers_reach_the_truth_with_a_large_budget_and_not_with_a_small_one():
    """At epsilon = 1000 noise is negligible: what remains is the idea. At .05, and 20,000 rows, it is not."""
    import designs
    import peers

    task = designs.linear_task("nn", 20_000, 3, 3)
    rng, setting = np.random.default_rng(0), (4.0, 8, 0.6)
    fits = {
        "ada": lambda epsilon: peers.ada_ssp(task.X, task.y, epsilon, rng),
        "tukey": lambda epsilon: peers.tukey_em(task.X, task.y, epsilon, rng, 1000),
        "descent": lambda epsilon: dict(peers.descents(task.X, task.y, epsilon, 0, [setting], whiten=True))[setting],
    }
    for name, fit in fits.items():
        assert task.full_risk(fit(1000.0)(task.fresh)) < 0.01, name
        low = fit(0.05)
        assert low is None or task.full_risk(low(task.fresh)) > 0.002, name
    assert task.full_risk(peers.ols(task.X, task.y)(task.fresh)) < 0.001
    assert task.full_risk(peers.huber(task.X, task.y)(task.fresh)) < 0.001


def test_twins_are_hard_in_the_ways_of_real_tables():
    import real_tables

    for name in real_tables.TWINS:
        part = real_tables.twin(name, 4, 4000)
        assert part.X.shape[0] == 3000
        assert np.all(np.isfinite(part.X))
        assert np.mean((part.y - part.y.mean()) ** 4) > 8.0 * np.var(part.y) ** 2, name
    zeros = np.mean(real_tables.twin("twin: survey score", 4).X == 0.0, axis=0)
    assert np.any(np.abs(zeros - 0.93) < 0.02)
