"""The ledger: charged before a row is read, composed soundly, never smaller, and clear when it cannot be used."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tailguard as tg
from tailguard.cli import app
from tailguard.constraints import L2Ball
from tailguard.ledger import BudgetExceeded, Ledger, LedgerError, Reservation
from tailguard.ledger import store as store_module
from tailguard.ledger.active import active
from tailguard.ledger.book import read, rounded_down, rounded_up
from tailguard.losses import Squared
from tailguard.privacy import (
    ApproximateDP,
    Budget,
    Gaussian,
    NotPrivate,
    PoissonGaussian,
    PrivacyReport,
    ZeroConcentrated,
    epsilon_of,
    gdp_mu,
)

DELTA = 1e-6
X = np.random.default_rng(0).normal(size=(2000, 2))
Y = X @ [1.0, -1.0] + np.random.default_rng(1).normal(size=2000)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


def report(*events):
    return PrivacyReport.from_events(events, DELTA)


# Reserving, confirming, refusing.


def test_a_run_is_charged_until_the_budget_is_full(path):
    ledger = Ledger(path, "patients", Budget(3.0, DELTA))
    third = Budget(mu=gdp_mu(3.0, DELTA) / math.sqrt(3.0) * (1 - 1e-9))
    for k in range(3):
        ledger.confirm(ledger.reserve(third, rows=1000, method="m"), report(Gaussian(third.mu)))
        assert ledger.summary().runs == k + 1
    summary = ledger.summary()
    assert summary.epsilon <= 3.0
    assert summary.epsilon == pytest.approx(3.0, abs=1e-6)
    with pytest.raises(BudgetExceeded, match=r"'patients' has \(3, 1e-06\)-differential privacy, of which 3 runs"):
        ledger.reserve(Budget(0.01, DELTA), rows=1000)
    with pytest.raises(BudgetExceeded):
        ledger.require(Budget(0.01, DELTA))
    assert ledger.summary() == summary


def test_what_is_said_to_fit_fits_and_a_little_more_does_not(path):
    ledger = Ledger(path, "d", Budget(2.0, DELTA))
    ledger.reserve(Budget(1.3, DELTA))
    room = ledger.summary().room
    assert room is not None
    with pytest.raises(BudgetExceeded):
        ledger.require(Budget(room * 1.001, DELTA))
    ledger.require(Budget(float(rounded_down(room)), DELTA))


def test_a_run_as_large_as_the_budget_fits(path):
    with Ledger(path, "d", Budget(1.0, DELTA)):
        assert tg.private_mean(np.ones(500), 1.0, DELTA).privacy.private
        with pytest.raises(BudgetExceeded):
            tg.private_mean(np.ones(500), 0.01, DELTA)


def test_reservation_counts_without_confirmation_and_is_confirmed_once(path):
    ledger = Ledger(path, "d", 1.0)
    reservation = ledger.reserve([Gaussian(0.1)])
    assert (ledger.summary().runs, ledger.summary().unconfirmed) == (1, 1)
    before = ledger.summary().epsilon
    ledger.confirm(reservation, report(Gaussian(0.05)))
    assert (ledger.summary().unconfirmed, ledger.summary().epsilon) == (0, before)
    assert ledger.entries[0].report == report(Gaussian(0.05)).to_dict()
    for wrong in (reservation, Reservation(99, "d", ()), Reservation(1, "other", ())):
        with pytest.raises(LedgerError, match="not open"):
            ledger.confirm(wrong, report(Gaussian(0.05)))


def test_a_run_that_raises_stays_charged(path, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("after the reservation")

    monkeypatch.setattr("tailguard.default.fit_level", broken)
    ledger = Ledger(path, "d", 1.0)
    with ledger, pytest.raises(RuntimeError):
        tg.private_mean(np.ones(500), 0.5)
    assert (ledger.summary().runs, ledger.summary().unconfirmed) == (1, 1)


def test_a_report_that_cannot_be_kept_is_a_warning_and_the_charge_stands(path, monkeypatch):
    def full(*_):
        raise LedgerError("disk full")

    ledger = Ledger(path, "d", 1.0)
    with ledger, monkeypatch.context() as patch:
        patch.setattr(Ledger, "confirm", full)
        with pytest.warns(UserWarning, match="charged, but its report"):
            assert tg.private_mean(np.ones(500), 0.5).privacy.private
    assert ledger.summary().unconfirmed == 1


# Every private run of the package, in one list: a new one must be added here.

RUNS = {
    "ridge": lambda **k: tg.PrivateRidge(1.0, **k).fit(X, Y).privacy_,
    "huber": lambda **k: tg.PrivateHuberRegressor(1.0, **k).fit(X, Y).privacy_,
    "poisson": lambda **k: tg.PrivatePoissonRegressor(1.0, **k).fit(X, np.abs(Y)).privacy_,
    "logistic": lambda **k: tg.PrivateLogisticRegression(1.0, classes=[0, 1], **k).fit(X, Y > 0).privacy_,
    "multinomial": lambda **k: tg.PrivateLogisticRegression(1.0, classes=[0, 1, 2], **k).fit(X, Y > 0).privacy_,
    "search": lambda **k: tg.PrivateGridSearch(tg.PrivateRidge(**k), {"alpha": [0.0, 1.0]}, 1.0).fit(X, Y).privacy_,
    "scaler": lambda **k: tg.PrivateScaler(1.0, **k).fit(X).privacy_,
    "mean": lambda **k: tg.private_mean(X, 1.0, **k).privacy,
    "mean, smoothed": lambda **k: tg.private_mean(X, 1.0, method="smoothed", v=2.0, **k).privacy,
    "mean, clipped": lambda **k: tg.private_mean(X, 1.0, method="clipped", clip=2.0, **k).privacy,
    "mean, trimmed": lambda **k: tg.private_mean(X, 1.0, method="trimmed", bounds=(-1, 1), **k).privacy,
    "clipped_gd": lambda **k: tg.algorithms.clipped_gd(Squared(), X, Y, epsilon=1.0, clip=2.0, **k).privacy,
    "batches": lambda **k: (
        tg.algorithms.clipped_gd(Squared(), X, Y, epsilon=1.0, clip=2.0, steps=3, batch_size=100, **k).privacy
    ),
    "algorithm4": lambda **k: tg.minimize(Squared(), X, Y, method="smoothed", epsilon=1.0, v=9.0, **k).privacy,
    "algorithm3": lambda **k: tg.algorithms.algorithm3(Squared(), X, Y, epsilon=1.0, a=-9, b=9, steps=2, **k).privacy,
    "algorithm1": lambda **k: (
        tg.algorithms.algorithm1(Squared(), X, Y, epsilon=1.0, constraint=L2Ball(5.0), **k).privacy
    ),
    "centre": lambda **k: (
        tg.algorithms.algorithm1(
            Squared(), X[:, :1], Y, epsilon=20.0, delta=1e-4, constraint=L2Ball(5.0), aggregator="center", **k
        ).privacy
    ),
}


def test_the_list_of_runs_names_every_estimator_and_method():
    from tailguard.api import METHODS

    estimators = {
        "PrivateGridSearch",
        "PrivateRidge",
        "PrivateHuberRegressor",
        "PrivatePoissonRegressor",
        "PrivateLogisticRegression",
        "PrivateScaler",
    }
    assert {name for name in tg.__all__ if name.startswith("Private")} == estimators
    assert set(METHODS) == {"clipped", "smoothed", "trimmed", "aggregate", "robust"}


def test_every_file_that_reports_a_run_charges_it():
    """For code to come: what builds a report from events has released something, and must have paid before."""
    root = Path(tg.__file__).parent
    apart = ("privacy", "auditing")  # the accountant itself, and audits of tables that are made up
    reporting = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        if file.relative_to(root).parts[0] not in apart and "PrivacyReport.from_events(" in file.read_text("utf-8")
    }
    assert {"descent.py", "mean.py", "algorithms.py", os.path.join("default", "__init__.py")} <= reporting
    for file in reporting:
        assert " = charge(" in (root / file).read_text("utf-8"), f"{file} releases without charging the ledger"


@pytest.mark.parametrize("name", RUNS)
def test_every_run_is_charged_at_least_what_it_reports(path, name):
    ledger = Ledger(path, "d", Budget(30.0, 3e-4))
    with ledger:
        found = RUNS[name](threads=1)
    (entry,) = ledger.entries
    assert entry.report == found.to_dict()
    assert entry.n_rows == len(X)
    charged = epsilon_of(entry.events, found.delta, found.relation)
    assert charged >= found.epsilon * (1 - 1e-9)
    assert ledger.summary().epsilon >= epsilon_of(found.events, 3e-4, "replace-one") * (1 - 1e-9)


@pytest.mark.parametrize("name", RUNS)
def test_a_refused_run_reads_no_row(path, name, monkeypatch):
    """The engine and the blocks of Algorithm 1 are the ways to the rows; neither is taken."""

    def read_rows(*_, **__):
        raise AssertionError("rows were read")

    from tailguard.engines.memory import InMemory

    for way in ("truncated_sum", "integer_sum", "columns_of"):
        monkeypatch.setattr(InMemory, way, read_rows)
    monkeypatch.setattr("tailguard.algorithms.block_minimisers", read_rows)
    with Ledger(path, "d", Budget(0.01, 1e-6), accountant="basic") as ledger:
        with pytest.raises(BudgetExceeded):
            RUNS[name](threads=1)
        assert ledger.summary().runs == 0
    with pytest.raises(AssertionError, match="rows were read"):
        RUNS[name](threads=1)


@pytest.mark.parametrize(
    "run", [lambda: RUNS["ridge"](random_state=0), lambda: RUNS["mean"](random_state=0), lambda: robust()]
)
def test_runs_without_a_price_are_refused_by_a_budget_and_unbounded_without_one(path, run):
    with Ledger(path, "limited", 100.0) as ledger, pytest.raises(BudgetExceeded, match="no finite price"):
        run()
    assert ledger.summary().runs == 0
    with Ledger.add_dataset(path, "open") as accounts:
        run()
    assert accounts.summary().epsilon == math.inf
    assert accounts.summary().runs == 1


def robust():
    return tg.minimize(Squared(), X, Y, method="robust", v=9.0, steps=2)


def test_resuming_is_charged_for_the_steps_that_are_left(path):
    """Nothing tells a ledger that a state is continued only once."""
    options = {"epsilon": 1.0, "clip": 2.0, "steps": 4, "threads": 1}
    with Ledger(path, "d", 30.0) as ledger:
        stopped = tg.algorithms.clipped_gd(Squared(), X, Y, callback=lambda state: state.step == 3, **options)
        tg.algorithms.clipped_gd(Squared(), X, Y, resume=stopped.state, **options)
        done = tg.algorithms.clipped_gd(Squared(), X, Y, **options)
        tg.algorithms.clipped_gd(Squared(), X, Y, resume=done.state, **options)
    assert [entry.events[0].count for entry in ledger.entries] == [4, 1, 4]


# Blocks, threads.


def test_outside_of_the_block_nothing_is_charged(path):
    ledger = Ledger(path, "d", 1.0)
    tg.private_mean(np.ones(500), 0.5)
    with pytest.raises(KeyError), ledger:
        raise KeyError
    tg.private_mean(np.ones(500), 0.5)
    assert active() == ()
    assert ledger.summary().runs == 0


def test_nested_ledgers_are_all_charged_and_one_only_once(path):
    outer, inner = Ledger(path, "outer", 3.0), Ledger(path, "inner", 3.0)
    with outer, inner, Ledger(path, "outer"):
        tg.private_mean(np.ones(500), 0.5)
    with outer:
        tg.private_mean(np.ones(500), 0.5)
    assert (outer.summary().runs, inner.summary().runs) == (2, 1)


def test_threads_without_a_block_use_the_one_of_the_process(path):
    ledger = Ledger(path, "d", 3.0)
    with ledger, ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: tg.private_mean(np.ones(500), 0.3), range(4)))
    assert ledger.summary().runs == 4


def test_a_thread_between_two_ledgers_is_refused_and_one_with_its_own_is_not(path):
    first, second = Ledger(path, "first", 3.0), Ledger(path, "second", 3.0)
    inside, done, answers = threading.Event(), threading.Event(), []

    def other():
        with second:
            tg.private_mean(np.ones(500), 0.3)
            inside.set()
            done.wait(60)

    def stray():
        try:
            tg.private_mean(np.ones(500), 0.3)
        except LedgerError as error:
            answers.append(str(error))

    thread = threading.Thread(target=other)
    with first:
        thread.start()
        assert inside.wait(60)
        helper = threading.Thread(target=stray)
        helper.start()
        helper.join()
        done.set()
        thread.join()
    assert "several ledgers are active" in answers[0]
    assert (first.summary().runs, second.summary().runs) == (0, 1)


# Composition.


def test_a_gaussian_dataset_adds_up_exactly(path):
    ledger = Ledger(path, "d", Budget(3.0, DELTA))
    for _ in range(5):
        ledger.reserve([Gaussian(0.2)])
    assert ledger.terms.accountant == "gaussian"
    assert ledger.summary().epsilon == pytest.approx(epsilon_of([Gaussian(0.2, count=5)], DELTA), rel=1e-12)
    with pytest.raises(BudgetExceeded, match=r"gaussian accountant .* cannot add up zero-concentrated releases"):
        ledger.reserve([ZeroConcentrated(0.001)])


def test_a_concentrated_dataset_takes_both(path):
    ledger = Ledger(path, "d", Budget(3.0, DELTA))
    ledger.reserve([ZeroConcentrated(0.01)])
    ledger.reserve([Gaussian(0.1)])
    assert ledger.terms.accountant == "concentrated"
    assert ledger.summary().epsilon == pytest.approx(epsilon_of([ZeroConcentrated(0.015)], DELTA), rel=1e-12)
    with pytest.raises(BudgetExceeded, match="mini-batches"):
        ledger.reserve([PoissonGaussian(0.1, 2.0)])


def test_a_basic_dataset_takes_everything_and_never_overspends_delta(path):
    ledger = Ledger(path, "d", Budget(4.0, DELTA), relation="add-remove")
    ledger.reserve([PoissonGaussian(0.05, 3.0, count=10)])
    assert ledger.terms.accountant == "basic"
    ledger.reserve([ApproximateDP(0.5, 2e-7, relation="add-remove")])
    ledger.reserve([Gaussian(0.1, relation="add-remove")])
    ledger.reserve([ApproximateDP(0.1, 0.0, relation="add-remove")])
    prices = [entry.price for entry in ledger.entries]
    assert sum(delta for _, delta in prices) <= DELTA
    assert ledger.summary().epsilon == pytest.approx(sum(epsilon for epsilon, _ in prices))
    for entry in ledger.entries[:3]:
        assert entry.price[0] == epsilon_of(entry.events, entry.price[1])
    assert prices[3] == (pytest.approx(0.1), 0.0)
    with pytest.raises(BudgetExceeded):
        ledger.reserve([ApproximateDP(0.1, 5e-7, relation="add-remove")])


def test_the_first_run_of_a_basic_dataset_may_take_the_whole_budget(path):
    Ledger(path, "d", Budget(1.0, DELTA)).reserve([ApproximateDP(1.0, DELTA * (1 - 1e-9))])


def test_relations(path):
    """Replace-one prices an add-remove release as two steps; add-remove refuses what only speaks of replaced rows."""
    ledger = Ledger(path, "replace", Budget(3.0, DELTA))
    ledger.reserve([Gaussian(0.1, relation="add-remove")])
    assert ledger.summary().epsilon == epsilon_of([Gaussian(0.2)], DELTA)
    other = Ledger(path, "add", Budget(3.0, DELTA), relation="add-remove")
    with pytest.raises(BudgetExceeded, match="relation='add-remove'"):
        other.reserve([Gaussian(0.1)])
    other.reserve([Gaussian(0.1, relation="add-remove")])
    assert other.summary().epsilon == epsilon_of([Gaussian(0.1)], DELTA)


@pytest.mark.parametrize("budget", [Budget(rho=0.1), Budget(mu=0.5)])
def test_budgets_in_rho_and_mu(path, budget):
    ledger = Ledger(path, "d", budget)
    half = Gaussian(budget.mu / math.sqrt(2.0) * (1 - 1e-9))
    ledger.reserve([half])
    ledger.reserve([half])
    with pytest.raises(BudgetExceeded):
        ledger.reserve([Gaussian(0.01)])
    assert ledger.summary().epsilon <= epsilon_of([Gaussian(budget.mu)], DELTA) * 1.1
    with pytest.raises(ValueError, match="accountant='basic' is not accepted"):
        Ledger(path, "other", budget, accountant="basic")


def test_a_delta_too_large_for_the_rows_is_refused(path):
    ledger = Ledger(path, "d", Budget(1.0, 1e-3))
    with pytest.raises(LedgerError, match="promises little to 5000 rows"):
        ledger.reserve([Gaussian(0.1)], rows=5000)
    ledger.reserve([Gaussian(0.1)], rows=500)


# Terms, files.


def test_terms_are_never_changed(path):
    Ledger(path, "d", Budget(3.0, 1e-7))
    assert Ledger(path, "d").terms.budget == Budget(3.0, 1e-7)
    assert not Ledger(path, "d", 3.0).added
    for wrong in (4.0, Budget(3.0, 1e-6), Budget(rho=1.0)):
        with pytest.raises(LedgerError, match="a budget is never changed"):
            Ledger(path, "d", wrong)
    with pytest.raises(LedgerError, match="which are never changed"):
        Ledger(path, "d", relation="add-remove")
    with pytest.raises(LedgerError, match=r"'e' is not in .*, which has 'd'"):
        Ledger(path, "e")
    with pytest.raises(LedgerError, match="already"):
        Ledger.add_dataset(path, "d", 3.0)


def test_the_file_refuses_to_forget(path):
    ledger = Ledger(path, "d", 3.0)
    ledger.confirm(ledger.reserve([Gaussian(0.1)]), report(Gaussian(0.1)))
    connection = sqlite3.connect(path)
    for change in (
        "DELETE FROM entry",
        "UPDATE entry SET events = '[]'",
        "UPDATE entry SET report = ''",
        "DELETE FROM dataset",
        "UPDATE dataset SET budget = NULL",
        "UPDATE dataset SET accountant = 'basic'",
    ):
        with pytest.raises(sqlite3.IntegrityError, match=r"never|once"):
            connection.execute(change)
    connection.close()
    assert ledger.summary().runs == 1


def test_the_file_is_for_its_owner_only(path):
    old = os.umask(0)
    try:
        Ledger(path, "d", 1.0)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_missing_damaged_foreign_and_newer_files_say_so(path, tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger at"):
        Ledger(path, "d")
    assert not path.exists()
    with pytest.raises(LedgerError, match="cannot be made"):
        Ledger(tmp_path / "no" / "folder.db", "d", 1.0)

    text = tmp_path / "text.db"
    text.write_text("name,spent\npatients,0\n" * 100)
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE mine (a)")
    connection.close()
    Ledger(path, "d", 1.0)
    for name, words in (("text", "damaged or no ledger"), ("foreign", "not a ledger of tailguard")):
        with pytest.raises(LedgerError, match=words):
            Ledger(tmp_path / f"{name}.db", "d", 1.0)

    newer = tmp_path / "newer.db"
    newer.write_bytes(path.read_bytes())
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(LedgerError, match="newer tailguard"):
        Ledger(newer, "d")

    whole = path.read_bytes()
    half = tmp_path / "half.db"
    half.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LedgerError, match=r"damaged|cannot be used"):
        Ledger(half, "d")


@pytest.mark.parametrize(
    "events", ["{}", "[]", "not json", '[{"event": "Magic"}]', '[{"event": "Gaussian", "mu": -1}]', "[1]"]
)
def test_a_record_that_cannot_be_read_is_never_counted_as_nothing(path, events):
    ledger = Ledger(path, "d", 1.0)
    ledger.reserve([Gaussian(0.1)])
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER entry_fixed")
    connection.execute("UPDATE entry SET events = ?", (events,))
    connection.commit()
    connection.close()
    with pytest.raises(LedgerError, match="cannot be read"):
        ledger.reserve([Gaussian(0.1)])


def test_an_empty_file_left_by_a_kill_is_taken_over(path):
    path.touch()
    assert Ledger(path, "d", 1.0).summary().runs == 0


def test_a_lock_that_is_held_too_long_is_an_error_in_words(path, monkeypatch):
    ledger = Ledger(path, "d", 1.0)
    monkeypatch.setattr(store_module, "_PATIENCE_S", 0.05)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="in use by another process"):
        ledger.reserve([Gaussian(0.1)])
    connection.close()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"dataset": ""}, "dataset must be a name"),
        ({"dataset": "a\nb"}, "dataset must be a name"),
        ({"budget": 0.0}, "budget must be"),
        ({"budget": None, "delta": 1e-6}, "without a budget"),
        ({"budget": Budget(1.0, 1e-6), "delta": 1e-6}, "beside a Budget"),
        ({"relation": "both"}, "relation must be"),
        ({"accountant": "mine"}, "accountant must be"),
    ],
)
def test_wrong_arguments(path, arguments, error):
    with pytest.raises((ValueError, TypeError), match=error):
        Ledger(path, **{"dataset": "d", "budget": 1.0} | arguments)
    assert not path.exists()


def test_a_run_must_release_something_known(path):
    ledger = Ledger(path, "d", 1.0)
    for wrong in ((), (object(),)):
        with pytest.raises((ValueError, TypeError)):
            ledger.reserve(wrong)
    with pytest.raises(BudgetExceeded):
        ledger.reserve([Gaussian(0.1), NotPrivate("published")])


def test_rounding_is_on_the_safe_side():
    assert (rounded_up(0.123401), rounded_down(0.123999)) == ("0.124", "0.123")
    assert (rounded_up(0.9999999999), rounded_down(1.0)) == ("1", "1")
    assert (rounded_up(math.inf), rounded_down(0.0)) == ("inf", "0")


# The command line.


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(app, ["ledger", *arguments])


def test_command_line(run, tmp_path):
    added = run("add-dataset", "b.db", "patients", "--budget-epsilon", "3", "--note", "ward 7")
    assert (added.exit_code, added.output) == (
        0,
        "patients: (3, 1e-06)-differential privacy. These terms are never changed.\n",
    )
    assert "accounts only" in run("add-dataset", "b.db", "open").output
    with Ledger(tmp_path / "b.db", "patients", by="ada", note="=1+1") as ledger:
        tg.PrivateLogisticRegression(1.0, classes=[0, 1]).fit(X, Y > 0)
    ledger.reserve(Budget(0.5, DELTA), method="lost")
    shown = run("show", "b.db").output
    for words in ("patients", "open", "ada", "default", "lost", "1 of which did not come back", "room", "gaussian"):
        assert words in shown
    data = json.loads(run("show", "b.db", "--json", "--dataset", "patients").output)
    (patients,) = data["datasets"]
    assert (patients["runs"], patients["unconfirmed"], len(patients["entries"])) == (2, 1, 2)
    assert patients["entries"][0]["report"]["private"] is True
    assert run("export", "b.db", "-o", "all.json").exit_code == 0
    assert len(json.loads((tmp_path / "all.json").read_text())["datasets"]) == 2
    lines = run("export", "b.db", "--format", "csv").output.splitlines()
    assert len(lines) == 3
    assert lines[1].endswith(",'=1+1")


def test_runs_are_shown_whole_in_80_columns(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with Ledger(tmp_path / "b.db", "patients", 3.0, by="ada") as ledger:
        tg.PrivateLogisticRegression(1.0, classes=[0, 1]).fit(X, Y > 0)
        shown = run("show", "b.db").output
        assert "note" not in shown
        ledger.reserve(Budget(0.5, DELTA), method="lost", note="[bold]of ward 7[/bold]\x1b[2J and of all the others")
    noted = run("show", "b.db").output
    assert "\u2026" not in shown + noted
    assert "\x1b" not in noted
    assert "[bold]" in noted


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        (("show", "no.db"), "there is no ledger at", 1),
        (("show", "b.db", "--dataset", "x"), "'x' is not in b.db", 1),
        (("add-dataset", "b.db", "d", "--budget-epsilon", "3"), "never changed", 1),
        (("add-dataset", "b.db", "e", "--budget-epsilon", "-3"), "budget must be", 1),
        (("add-dataset", "b.db", "e", "--accountant", "mine"), "--accountant", 2),
        (("shwo", "b.db"), "shwo", 2),
    ],
)
def test_command_line_errors_are_one_line(run, tmp_path, arguments, words, status):
    Ledger(tmp_path / "b.db", "d", 1.0)
    result = run(*arguments)
    assert result.exit_code == status
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stderr.startswith("error: ")
    assert words in result.stderr


def test_the_examples_of_the_help_work(run):
    from tailguard.cli import ledger

    for command in (ledger.add_dataset, ledger.show, ledger.export):
        examples = re.findall(r"Example: tailguard ledger (.*)", command.__doc__ or "")
        assert examples
        for example in examples:
            result = run(*shlex.split(example))
            assert result.exit_code == 0, (example, result.output)


def test_help_without_a_command(run):
    assert "add-dataset" in run().output


def test_reading_a_whole_ledger(path):
    Ledger(path, "b", 1.0)
    Ledger(path, "a", 1.0).reserve([Gaussian(0.1)])
    assert [(summary.dataset.name, len(entries)) for summary, entries in read(path)] == [("a", 1), ("b", 0)]
