"""The ledger between processes: races, kills and workers.

Children are forked from one process that has imported the package and started no thread, a *nursery*, because an
import for each of them would take longer than all the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tailguard as tg
from tailguard.ledger import Ledger
from tailguard.privacy import Budget, Gaussian, gdp_mu

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")

NURSERY = """
import json, os, random, signal, sys, time
import numpy as np
import tailguard as tg
from tailguard.ledger import BudgetExceeded, Ledger
from tailguard.ledger.store import Transaction
from tailguard.privacy import Budget, gdp_mu

path = sys.argv[1]

def child(work):
    pid = os.fork()
    if pid:
        return pid
    status = 99
    try:
        status = work()
    finally:
        os._exit(status)

def statuses(pids):
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]

def mean(epsilon=0.1):
    return tg.private_mean(np.ones(200), epsilon, 1e-6, threads=1)
"""


def nursery(body: str, path, **environment) -> object:
    """Run a script in a process of its own; it prints one line of JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", NURSERY + textwrap.dedent(body), str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_eight_processes_race_for_room_for_three(tmp_path):
    """The file, the dataset and the charges: all made at once, by whoever comes first; and all wait for one start."""
    path = tmp_path / "race.db"
    found = nursery(
        """
        from tailguard.ledger import book

        third = Budget(mu=gdp_mu(3.0, 1e-6) / 3**0.5 * (1 - 1e-6))
        admits = book.admits

        def slowly(*arguments):
            answer = admits(*arguments)
            time.sleep(0.1)  # between the check and the charge: long enough for everybody to check
            return answer

        book.admits = slowly
        gate, open_gate = os.pipe()

        def spend():
            os.close(open_gate)
            os.read(gate, 1)  # returns when the parent closes its end
            ledger = Ledger(path, "patients", Budget(3.0, 1e-6))
            try:
                with ledger:
                    tg.private_mean(np.ones(200), third, threads=1)
            except BudgetExceeded:
                return 7
            return 0

        pids = [child(spend) for _ in range(8)]
        os.close(open_gate)
        print(json.dumps(statuses(pids)))
        """,
        path,
    )
    assert sorted(found) == [0] * 3 + [7] * 5
    summary = Ledger(path, "patients").summary()
    assert (summary.runs, summary.unconfirmed) == (3, 0)
    assert 2.99 < summary.epsilon <= 3.0


def test_a_kill_at_any_moment_never_leaves_less_recorded_than_was_released(tmp_path):
    """Forty children that fit until they are killed, at random moments; each writes a byte after each release."""
    path = tmp_path / "kill.db"
    Ledger(path, "d", 1e6, delta=1e-6)
    released, recorded, killed = nursery(
        """
        released = killed = 0
        rng = random.Random(0)
        ledger = Ledger(path, "d")
        mean()  # loads what children would each load

        def spend(out):
            with ledger:
                while True:
                    mean()
                    os.write(out, b"x")

        for trial in range(40):
            read_end, write_end = os.pipe()
            pid = child(lambda: spend(write_end))
            os.close(write_end)
            if trial % 2:
                os.read(read_end, 1) and (released := released + 1)
            time.sleep(rng.random() * 0.02)
            os.kill(pid, signal.SIGKILL)
            killed += statuses([pid]) == [-signal.SIGKILL]
            while chunk := os.read(read_end, 4096):
                released += len(chunk)
            os.close(read_end)
        summary = ledger.summary()
        print(json.dumps([released, summary.runs, killed]))
        """,
        path,
    )
    assert killed == 40
    assert released >= 20  # half of the children were waited for
    assert recorded >= released
    assert recorded <= released + 40  # at most one charge without a release for each kill


def test_a_kill_at_a_chosen_moment(tmp_path):
    """Before the charge is committed no row is read; from then on the charge stands."""
    places = {
        "tailguard.ledger.store.Transaction.add_entry": 0,
        "tailguard.engines.memory.InMemory.integer_sum": 1,  # the first look at the rows
        "tailguard.privacy.noise.SystemNoise.discrete_gaussian": 1,
        "tailguard.ledger.book.Ledger.confirm": 1,  # released, not confirmed
        "tailguard.ledger.store.Transaction.confirm": 1,
    }
    path = tmp_path / "kill.db"
    for place in places:
        Ledger(path, place, 1.0)
    done = nursery(
        """
        import pkgutil
        from tailguard.ledger.book import read

        def spend(place):
            owner, name = pkgutil.resolve_name(place.rpartition(".")[0]), place.rpartition(".")[2]
            real = getattr(owner, name)

            def fatal(*arguments, **more):
                if "Transaction" in place:
                    real(*arguments, **more)  # inside the transaction, after the change
                os.kill(os.getpid(), signal.SIGKILL)

            setattr(owner, name, fatal)
            with Ledger(path, place):
                mean()
            return 0

        mean()
        places = [summary.dataset.name for summary, _ in read(path)]
        print(json.dumps(statuses([child(lambda: spend(place)) for place in places])))
        """,
        path,
    )
    assert done == [-9] * len(places)
    for place, recorded in places.items():
        summary = Ledger(path, place).summary()
        assert (place, summary.runs, summary.unconfirmed) == (place, recorded, recorded)


def test_forked_workers_pay_whatever_block_they_were_forked_in(tmp_path):
    """A pool from before the block, from within it, and one from another block, which pays both."""
    path = tmp_path / "fork.db"
    for name in ("first", "second"):
        Ledger(path, name, 5.0)
    found = nursery(
        """
        import multiprocessing
        fork = multiprocessing.get_context("fork")

        def runs():
            return [Ledger(path, name).summary().runs for name in ("first", "second")]

        def fit(_):
            return mean().privacy.private

        answers = []
        old = fork.Pool(1)
        with Ledger(path, "first"):
            old.map(fit, range(1))
            answers.append(runs())
            new = fork.Pool(1)
            new.map(fit, range(1))
            answers.append(runs())
        old.map(fit, range(1))
        answers.append(runs())
        with Ledger(path, "second"):
            new.map(fit, range(1))
            answers.append(runs())
            old.map(fit, range(1))
            answers.append(runs())
        for pool in (old, new):
            pool.close()
            pool.join()
        print(json.dumps(answers))
        """,
        path,
    )
    assert found == [[1, 0], [2, 0], [2, 0], [3, 1], [3, 2]]


def test_a_worker_that_cannot_reach_the_ledger_is_refused(tmp_path):
    path = tmp_path / "gone.db"
    Ledger(path, "d", 5.0)
    found = nursery(
        """
        import multiprocessing

        def fit(_):
            try:
                mean()
            except tg.LedgerError as error:
                return str(error)

        pool = multiprocessing.get_context("fork").Pool(1)
        with Ledger(path, "d"):
            os.rename(path, path + ".away")
            answer = pool.apply(fit, (0,))
        pool.close()
        pool.join()
        print(json.dumps(answer))
        """,
        path,
    )
    assert "there is no ledger at" in found


def test_a_killed_process_leaves_no_trap_for_a_later_one_with_its_number(tmp_path):
    """Its note stays behind, and says when it began."""
    path = tmp_path / "stale.db"
    Ledger(path, "d", 5.0)
    found = nursery(
        """
        from tailguard.ledger import active
        with Ledger(path, "d"):
            kept = (active._folder() / f"{os.getpid()}.json").read_text()
        note = json.loads(kept)
        answers = []
        for born in (note["born"], "1"):
            (active._folder() / f"{os.getpid()}.json").write_text(json.dumps(note | {"born": born}))
            answers += statuses([child(lambda: len(active.active()))])
        (active._folder() / f"{os.getpid()}.json").unlink()
        print(json.dumps(answers))
        """,
        path,
        TMPDIR=str(tmp_path),
    )
    assert found == ([1, 0] if os.path.exists("/proc/self/stat") else [1, 1])


def test_cross_validation_with_workers_from_before_the_block(tmp_path):
    """What joblib starts by itself, new interpreters that do not inherit the block, is charged fit by fit."""
    from joblib import Parallel, delayed
    from sklearn.model_selection import cross_val_score

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 1)), rng.normal(size=600)
    Parallel(n_jobs=2)(delayed(abs)(k) for k in range(2))
    ledger = Ledger(tmp_path / "cv.db", "d", 10.0)
    with ledger:
        cross_val_score(tg.PrivateRidge(0.5, threads=1), X, y, cv=3, n_jobs=2)
    assert (ledger.summary().runs, ledger.summary().unconfirmed) == (3, 0)
    assert len({entry.process for entry in ledger.entries} - {f"{os.uname().nodename}:{os.getpid()}"}) >= 1
    full = Ledger(tmp_path / "cv.db", "full", Budget(0.6, 1e-6))
    full.reserve([Gaussian(gdp_mu(0.5, 1e-6))])
    with full, pytest.raises(ValueError, match="fits failed"):
        cross_val_score(tg.PrivateRidge(0.5, threads=1), X, y, cv=3, n_jobs=2)
    assert full.summary().runs == 1


def test_a_folder_of_somebody_else_is_not_believed(tmp_path, monkeypatch):
    """Under a shared temporary folder anybody could leave notes that send charges elsewhere."""
    from tailguard.ledger import active

    monkeypatch.setattr(active.tempfile, "gettempdir", lambda: str(tmp_path))
    ledger = Ledger(tmp_path / "b.db", "d", 1.0)
    active._folder().mkdir()
    real = os.getuid()
    folder = active._folder()
    monkeypatch.setattr(active.os, "getuid", lambda: real + 1)
    monkeypatch.setattr(active, "_folder", lambda: folder)
    with pytest.raises(tg.LedgerError, match="belongs to another user"), ledger:
        pass
    with pytest.raises(tg.LedgerError, match="belongs to another user"):
        tg.private_mean(np.ones(500), 0.5)
    assert ledger.summary().runs == 0
