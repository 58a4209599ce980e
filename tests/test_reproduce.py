"""The paper's experiments: every spec runs at tiny size, resumes, repeats, and fills the table of claims."""

import dataclasses
import gzip
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as parquet
import pytest
from rich.console import Console
from typer.testing import CliRunner

import tailguard.datasets
from tailguard.cli import app
from tailguard.datasets import load_adult, make_binary
from tailguard.reproduce import cells, command_line, runner, store
from tailguard.reproduce.claims import RATES, Evidence, Part, Slope, bound_slope, claims, short, verdict
from tailguard.reproduce.plots import draw
from tailguard.reproduce.specs import FULL, QUICK, SIZES, TINY, Cell, Source, figures, theorem_steps
from tailguard.reproduce.store import Results, Store

HEADER = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,capital-gain,"
    "capital-loss,hours-per-week,native-country,income,split"
)
ROWS = (
    "39,State-gov,77516,Bachelors,13,Never-married,Adm-clerical,Not-in-family,White,Male,2174,0,40,United-States,<=50K,train",
    "52,Self-emp-inc,287927,HS-grad,9,Married-civ-spouse,Exec-managerial,Wife,White,Female,15024,0,40,?,>50K,train",
    "25,?,226802,11th,7,Never-married,?,Own-child,Black,Male,0,1902,40,Mexico,<=50K,test",
)


@pytest.fixture(scope="module")
def adult(tmp_path_factory):
    """A small table of the same form as Adult."""
    rng = np.random.default_rng(0)
    lines = [HEADER]
    for _ in range(400):
        age, years, rich = rng.integers(17, 90), rng.integers(1, 17), rng.random() < 0.25
        rest = ROWS[int(rng.integers(3))].split(",")
        rest[0], rest[4], rest[14] = str(age), str(years), ">50K" if rich else "<=50K"
        lines.append(",".join(rest))
    folder = tmp_path_factory.mktemp("data")
    (folder / "adult.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return folder


@pytest.fixture(scope="module")
def whole(adult, tmp_path_factory):
    """Every figure at tiny size, computed once."""
    folder = tmp_path_factory.mktemp("whole")
    files = command_line.reproduce(Console(quiet=True), "tiny", [], folder, adult, workers=1)
    return folder, files


def snapshot(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# --- specs -----------------------------------------------------------------------------------------------------------


def test_the_specs_are_the_papers():
    one, two, three, four, *_ = figures(FULL)
    for figure in (one, two):
        assert [(p.points[0].source.model, p.epsilon) for p in figure.panels] == [
            ("ridge", 1.0),
            ("ridge", 0.5),
            ("logistic", 1.0),
            ("logistic", 0.5),
        ]
    assert {(p.points[0].source.n, p.points[0].source.d) for p in one.panels} == {(100_000, 10)}
    assert {(p.points[0].source.n, p.points[0].source.test) for p in two.panels} == {(28_000, 2_000)}
    for figure in (three, four):
        assert [p.epsilon for p in figure.panels] == [0.5, 0.1, 0.5, 0.1]
    assert [(p.source.n, p.source.d) for p in three.panels[0].points] == [(100_000, d) for d in (10, 20, 30, 40, 50)]
    assert [(p.source.n, p.source.d) for p in four.panels[0].points] == [
        (n, 20) for n in (20_000, 40_000, 60_000, 80_000, 100_000)
    ]
    lines = {method.key: dict(method.parameters) for method in one.panels[0].methods}
    assert lines["alg3-printed-2"]["step_size"] == 0.01
    assert lines["alg4"].items() >= {"v": 5.0, "failure": 0.01, "step_size": 0.1, "setting": "paper"}.items()
    stochastic = {"batch_size": 1000, "step_size": "1/sqrt(t)", "average": "mean"}
    assert lines["alg4-stochastic"].items() >= stochastic.items()
    assert lines["rgd-stochastic"].items() >= stochastic.items()
    printed = [method for method in one.panels[0].methods if dict(method.parameters).get("setting") == "printed"]
    assert len(printed) == 3
    assert all("NOT PRIVATE" in method.label and not method.private for method in printed)


@pytest.mark.parametrize("size", SIZES)
def test_keys_are_unique_and_shared_cells_are_counted_once(size):
    specs = figures(SIZES[size])
    assert len({panel.key for figure in specs for panel in figure.panels}) == sum(len(f.panels) for f in specs)
    for figure in specs:
        places = [(panel.key, point.x, method.key, seed) for panel, point, method, seed, _ in figure.entries()]
        assert len(places) == len(set(places))
        assert json.loads(figure.to_json())["key"] == figure.key


def test_a_cell_is_named_by_what_it_computes():
    cell = Cell("algorithm4", (("steps", 3),), Source("ridge"), 1.0, 0, True)
    others = [
        dataclasses.replace(cell, epsilon=0.5),
        dataclasses.replace(cell, seed=1),
        dataclasses.replace(cell, parameters=(("steps", 4),)),
        dataclasses.replace(cell, source=Source("ridge", n=10)),
    ]
    assert len({other.name() for other in [cell, *others]}) == 5
    assert len({other.noise_seed for other in [cell, *others]}) == 5
    assert cell.name() == dataclasses.replace(cell).name() != cell.name("another version")


def test_methods_without_a_promise_do_not_depend_on_epsilon():
    *entries, _ = figures(TINY)[0].entries()
    assert all((cell.epsilon is None) == (cell.algorithm in ("robust_gd", "exact")) for *_, cell in entries)


def test_quick_is_a_part_of_the_full_run():
    for quick, full in zip(figures(QUICK), figures(FULL), strict=True):
        assert {cell for *_, cell in quick.entries()} < {cell for *_, cell in full.entries()}
        assert quick.seeds < full.seeds
        assert [panel.key for panel in quick.panels] == [panel.key for panel in full.panels]


def test_the_number_of_steps_follows_the_theorem():
    assert theorem_steps(7, 100_000, 10, 1.0) == 12
    assert theorem_steps(8, 100_000, 10, 1.0) > theorem_steps(8, 20_000, 10, 1.0)
    assert theorem_steps(8, 100_000, 50, 1.0) < theorem_steps(8, 100_000, 10, 1.0)


# --- errors ----------------------------------------------------------------------------------------------------------


def test_the_chance_of_a_label_is_that_of_the_generator():
    w = np.array([1.0, -0.5])
    data = make_binary(200_000, 2, seed=1, w=w)
    chance = cells.positive_chance(data.X @ w)
    # Sum of independent labels: standard deviation at most sqrt(n)/2 = 224; 5 sd, p < 1e-6.
    for chosen in (chance < 0.5, chance >= 0.5, data.X[:, 0] > 1):
        expected, count = chance[chosen].sum(), np.sum(data.y[chosen] > 0)
        spread = np.sqrt(np.sum(chance[chosen] * (1 - chance[chosen])))
        assert abs(count - expected) < 5 * spread
    likely = chance >= 0.5
    assert abs(np.sum(data.y[likely] > 0) - np.sum(1 - chance[likely])) > 20 * np.sqrt(len(chance))  # the other sign


def test_excess_risks_are_zero_at_the_minimum_and_positive_elsewhere():
    for model in ("ridge", "logistic"):
        problem = cells.load_problem(Source(model, n=500, d=3, test=2_000), 0)
        best = cells._coefficients(Source(model, d=3), 0)
        if model == "logistic":
            fresh = cells._fresh_rows(Source(model, d=3, test=2_000))
            best = cells._minimise_logistic(fresh, cells.positive_chance(fresh @ best))
        errors = problem.errors(np.array([best, best + 0.1, np.zeros(3)]))
        assert abs(errors[0]) < 1e-12
        assert errors[1] > 1e-4
        assert errors[2] > 0.1


def test_the_trace_of_a_stochastic_method_is_that_of_the_mean_of_its_iterates():
    parameters = (("average", "mean"), ("batch_size", 50), ("step_size", "1/sqrt(t)"), ("steps", 6), ("v", 5.0))
    source = Source("ridge", n=300, d=2)
    trace = cells.compute(Cell("robust_gd", parameters, source, None, 0, True))
    assert list(trace[0]) == list(range(7))
    problem = cells.load_problem(source, 0)
    assert trace[1][0] == pytest.approx(problem.errors(np.zeros((1, 2)))[0])
    full = dict(parameters) | {"random_state": Cell("robust_gd", parameters, source, None, 0, True).noise_seed}
    result = cells.algorithms.robust_gd(problem.loss, problem.X, problem.y, threads=1, **full)
    assert trace[1][-1] == pytest.approx(problem.errors(result.w[None])[0])


# --- the whole run ---------------------------------------------------------------------------------------------------


def test_every_figure_is_computed_drawn_and_reported(whole):
    folder, (page, text) = whole
    for key in "123456":
        table = parquet.read_table(folder / "results" / f"figure-{key}.parquet")
        facts = {name.decode(): value.decode() for name, value in table.schema.metadata.items()}
        figure = figures(TINY)[int(key) - 1]
        assert facts["spec_digest"] == figure.digest
        assert json.loads(facts["spec"]) == json.loads(figure.to_json())
        assert json.loads(facts["versions"])["tailguard"] == tailguard.__version__
        assert json.loads(facts["seeds"]) == [0, 1]
        assert np.all(np.isfinite(table["error"].to_numpy()))
        assert set(table["panel"].to_pylist()) == {panel.key for panel in figure.panels}
    names = [*(f"figure-{key}" for key in "123456"), "figure-1-bands", "figure-2-bands"]
    for name in names:
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (folder / "figures" / f"{name}.svg").read_text(encoding="utf-8")
    html, markdown = page.read_text(encoding="utf-8"), text.read_text(encoding="utf-8")
    assert html.count("data:image/svg+xml;base64,") == len(names)
    assert 'src="http' not in html
    assert "href=" not in html
    for words in ("none of them is private", "Where the paper is silent", "NOT PRIVATE", "holds"):
        assert words in html
        assert words in markdown
    for name in names:
        assert f"figures/{name}.png" in markdown
    for file in (html, markdown):
        assert "not measured: its figure" not in file
        assert str(folder) not in file


def test_a_second_run_computes_nothing_and_changes_nothing(whole, adult, monkeypatch):
    folder, _ = whole
    before = snapshot(folder)
    monkeypatch.setattr(runner, "compute", lambda *_: pytest.fail("a finished cell was computed again"))
    specs = figures(TINY)
    results = runner.run(specs, Store(folder, runner.adult_digest(adult)), data=adult, workers=1)
    draw(specs[5], Evidence(specs, results), folder / "figures")
    after = snapshot(folder)
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] != before[name]] == []


def test_the_same_seeds_give_the_same_files_in_another_place_and_order(whole, adult, tmp_path):
    folder, _ = whole
    figure = figures(TINY)[1].with_panels(figures(TINY)[1].panels[:1])
    again = Store(tmp_path, runner.adult_digest(adult))
    cells.load_problem.cache_clear()
    for *_, cell in reversed(list(figure.entries())):
        if "batch_size" not in dict(cell.parameters):  # accounting of mini-batches is slow; panel 1a has them
            runner._work(again, cell, adult)
    copied = snapshot(tmp_path)
    assert len(copied) == 20
    for name, content in copied.items():
        assert (folder / name).read_bytes() == content


def test_only_the_missing_cell_is_computed(whole, adult, monkeypatch):
    folder, _ = whole
    digest = runner.adult_digest(adult)
    kept = Store(folder, digest)
    *_, cell = next(figures(TINY)[2].entries())
    content = kept.path(cell).read_bytes()
    kept.path(cell).unlink()
    computed = []
    real = runner.compute
    monkeypatch.setattr(runner, "compute", lambda cell, data: computed.append(cell) or real(cell, data))
    runner.run(figures(TINY), kept, data=adult, workers=1)
    assert computed == [cell]
    assert kept.path(cell).read_bytes() == content


def test_an_interrupted_write_leaves_nothing_that_looks_finished(tmp_path, monkeypatch):
    kept = Store(tmp_path)
    cell = Cell("exact", (), Source("ridge", n=10, d=2), None, 0, False)

    def cut_off(source, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store.os, "replace", cut_off)
        with pytest.raises(KeyboardInterrupt):
            kept.write(cell, np.array([0]), np.array([1.0]))
    assert not kept.has(cell)
    kept.write(cell, np.array([0]), np.array([1.0]))
    assert kept.has(cell)
    assert kept.read(cell)[1].tolist() == [1.0]


def test_another_version_or_table_is_not_taken_for_a_finished_cell(tmp_path, monkeypatch):
    synthetic = Cell("exact", (), Source("ridge"), None, 0, False)
    real = dataclasses.replace(synthetic, source=Source("ridge", "adult"))
    assert Store(tmp_path, "one").path(real) != Store(tmp_path, "two").path(real)
    assert Store(tmp_path, "one").path(synthetic) == Store(tmp_path, "two").path(synthetic)
    before = Store(tmp_path).path(synthetic)
    monkeypatch.setattr(store, "versions", lambda: {"tailguard": "another"})
    assert Store(tmp_path).path(synthetic) != before


def test_a_killed_run_resumes_with_several_processes(tmp_path):
    arguments = ["reproduce", "--output", "out", "--size", "tiny", "--figure", "1a", "--seeds", "4", "--workers", "2"]
    command = [sys.executable, "-c", "from tailguard.cli import app; app()", *arguments]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (found := list(tmp_path.glob("out/cells/*/*.parquet"))) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # workers notice that their parent is gone
    found = {file: file.stat().st_mtime_ns for file in tmp_path.glob("out/cells/*/[!.]*.parquet")}
    (figure,) = command_line.choose(figures(TINY.with_seeds(4)), ["1a"])
    everything = len({cell for *_, cell in figure.entries()})
    assert 0 < len(found) < everything
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert f"{everything} cells, {len(found)} of them finished before." in result.stdout
    assert {file: file.stat().st_mtime_ns for file in found} == found
    assert len(list(tmp_path.glob("out/cells/*/[!.]*.parquet"))) == everything
    assert (tmp_path / "out" / "report.html").exists()


# --- claims ----------------------------------------------------------------------------------------------------------


def parts(*answers):
    kinds = [("1a", {"ridge", "ε = 1"}), ("1b", {"ridge", "ε = 0.5"}), ("1c", {"logistic", "ε = 1"})]
    return [Part(key, "", holds, frozenset(traits)) for (key, traits), holds in zip(kinds, answers, strict=True)]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((True, True, True), "holds"),
        ((False, False, False), "does not hold"),
        ((True, True, False), "holds only with ridge (1a, 1b)"),
        ((True, False, False), "holds only with ridge and ε = 1 (1a)"),
        ((False, True, True), "holds only with all but 1a"),
    ],
)
def test_verdicts(answers, words):
    assert verdict(parts(*answers)) == words
    assert verdict([]).startswith("not measured")
    assert verdict(parts(None, None, None)).startswith("not measured")


def test_slopes_are_recovered_with_their_error():
    rng = np.random.default_rng(0)
    x = np.array([1e4, 2e4, 4e4, 8e4])
    errors = (3.0 * x**-1.0)[:, None] * np.exp(0.1 * rng.standard_normal((4, 200)))
    slope = Slope.of(x, errors)
    assert abs(slope.value + 1.0) < 5 * slope.error < 0.05
    assert Slope.of(x, 3.0 * x[:, None] ** -0.5).value == pytest.approx(-0.5)


def test_a_table_made_up_to_confirm_the_paper_does_and_the_contrary_does_not():
    specs = figures(TINY)

    def evidence(confirm):
        rng = np.random.default_rng(1)
        results = {figure.key: Results() for figure in specs}
        for figure in specs:
            for panel, point, method, seed, cell in figure.entries():
                level = point.source.d**0.5 / point.source.n * 1e4 / (cell.epsilon or 2.0)
                if method.algorithm == "algorithm3":
                    level *= 10.0 * dict(method.parameters)["b"]
                if not confirm:
                    level = 1.0 / (level * point.source.d**4)  # and growing in n, in epsilon and with smaller d
                    if panel.key in ("5b", "5d"):
                        level = point.source.d**3.0
                errors = level * np.exp(0.01 * rng.standard_normal(5 if cell.trace else 1))
                results[figure.key].add(panel.key, method.key, point.x, seed, np.arange(len(errors)), errors)
        return Evidence(specs, results)

    good, bad = claims(evidence(True)), claims(evidence(False))
    assert len(good) == len(bad) == 19
    names = ("Algorithm 3 performs worse", "Error falls", "Theorem 5", "Theorem 7", "Theorem 8")
    for row in good:
        if row.claim.startswith(names):
            assert row.verdict == "holds", row
    for row in bad:
        if row.claim.startswith(names):
            assert row.verdict != "holds", row
    assert all(row.verdict == "holds" for row in good + bad if "sensitive" in row.claim)


def test_the_slope_of_a_bound_has_its_logarithms():
    five, seven, eight = RATES
    rows, columns = figures(FULL)[4].panels[:2]
    assert bound_slope(five, rows) == bound_slope(seven, rows) == pytest.approx(-0.72, abs=0.01)
    assert bound_slope(five, columns) == pytest.approx(2.0)
    assert bound_slope(eight, columns) == pytest.approx(2 / 3)


def test_numbers_are_short():
    assert [short(v) for v in (0.0123, 170000.0, 1.6e-6, 12.0, 65.7)] == ["0.012", "1.7·10⁵", "1.6·10⁻⁶", "12", "66"]


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--figure", "9z"), "--figure 9z"),
        (("--figure", "2a", "--data", "nowhere"), "nowhere"),
        (("--size", "huge"), "huge"),
        (("--seeds", "0"), "--seeds"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert result.exit_code != 0
    assert len(result.stderr.strip().splitlines()) == 1
    assert words in result.stderr


def test_without_adult_the_rest_is_run_and_the_report_says_so(monkeypatch):
    def unreachable(data):
        raise OSError("no network")

    monkeypatch.setattr(runner, "adult_digest", unreachable)
    kept, skipped, digest = command_line._with_data(list(figures(TINY)), None, explicit=False)
    assert [figure.key for figure in kept] == ["1", "3", "4", "5", "6"]
    assert [panel.key for panel in kept[-1].panels] == ["6a", "6b"]
    assert "2a, 2b, 2c, 2d, 6c" in skipped[0]
    assert "no network" in skipped[0]
    assert digest == ""
    with pytest.raises(OSError, match="no network"):
        command_line._with_data(list(figures(TINY)), None, explicit=True)


def test_figures_and_panels_are_chosen_by_name():
    chosen = command_line.choose(figures(TINY), ["1a", "3"])
    assert [[panel.key for panel in figure.panels] for figure in chosen] == [["1a"], ["3a", "3b", "3c", "3d"]]


# --- Adult -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path):
    (tmp_path / "adult.csv").write_text("\n".join([HEADER, *ROWS]) + "\n")
    return tmp_path


def test_adult_is_encoded_with_public_constants(three):
    table = load_adult(three)
    assert table.X.shape == (3, 14)
    assert len(table.columns) == 14
    assert table.y.tolist() == [-1.0, 1.0, -1.0]
    row = dict(zip(table.columns, table.X[1], strict=True))
    assert row["age"] == pytest.approx(12 / 15)
    assert row["capital-gain"] == pytest.approx(1.5024)
    assert row["marital-status: married"] == row["sex: female"] == 1.0
    assert row["native-country: born elsewhere or unknown"] == 1.0
    # An encoding that looked at the rows would change with them.
    (three / "adult.csv").write_text("\n".join([HEADER, ROWS[1]]) + "\n")
    assert load_adult(three / "adult.csv").X[0].tolist() == table.X[1].tolist()


def test_one_column_per_category(three):
    table = load_adult(three, encoding="onehot")
    assert table.X.shape == (3, 108)
    assert np.all(table.X[:, 6:].sum(axis=1) == 8)
    assert figures(FULL)[5].panels[2].points[1].source.d == 109  # and the constant


def test_adult_from_the_environment_and_from_openml(three, monkeypatch):
    import pandas as pd

    monkeypatch.setenv("TAILGUARD_DATA", str(three))
    local = load_adult()
    monkeypatch.delenv("TAILGUARD_DATA")
    frame = pd.read_csv(three / "adult.csv", na_values="?").drop(columns="split").rename(columns={"income": "class"})

    class Answer:
        pass

    def fetch(name, version, as_frame):
        assert (name, version, as_frame) == ("adult", 2, True)
        answer = Answer()
        answer.frame = frame
        return answer

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    for encoding in ("compact", "onehot"):
        fetched, read = load_adult(encoding=encoding), load_adult(three, encoding=encoding)
        assert fetched.X.tolist() == read.X.tolist()
        assert fetched.y.tolist() == local.y.tolist()


def test_adult_that_is_not_there_or_not_adult_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"adult\.csv\.gz"):
        load_adult(tmp_path)
    with pytest.raises(FileNotFoundError):
        load_adult(tmp_path / "missing.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="no column"):
        load_adult(tmp_path / "other.csv")
    with pytest.raises(ValueError, match="encoding"):
        load_adult(tmp_path, encoding="fancy")
