"""The file of a ledger: SQLite, append-only, durable before anything is read.

**Formal guarantee.** Once `Transaction` has committed an entry, no crash of the process or of the machine and no later
call of this package makes the recorded total smaller:

* one writer at a time: every change is inside ``BEGIN IMMEDIATE``; a check and the entry that it admits are one step;
* ``synchronous=EXTRA`` with a rollback journal: a commit returns after the data, the file and the folder's entry are
  on disk, so a power cut cannot roll it back;
* triggers refuse to delete an entry, to change what it spent or the terms of its dataset, and to confirm it twice.

The file is made with mode 0600 and marked with SQLite's ``application_id`` and a schema version. Connections live as
long as one operation: nothing is shared between threads or inherited by a fork.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from tailguard.ledger.accountants import ACCOUNTANTS, Accountant, Price
from tailguard.privacy import Budget, Event, Relation
from tailguard.privacy.events import Unit, check_relation, common_unit

APPLICATION_ID = 0x7467_6C64  # "tgld"
SCHEMA_VERSION = 1
# A reservation may wait for others, each of which may price mini-batches for some seconds.
_PATIENCE_S = 120.0

_SCHEMA = """
CREATE TABLE dataset (
    name TEXT PRIMARY KEY,
    budget TEXT,               -- JSON of Budget.to_dict, NULL: accounts only
    delta REAL NOT NULL,       -- at which totals are stated
    relation TEXT NOT NULL,
    accountant TEXT,           -- NULL until the first run
    added TEXT NOT NULL,
    added_by TEXT NOT NULL,
    note TEXT NOT NULL
);
CREATE TABLE entry (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    dataset TEXT NOT NULL REFERENCES dataset (name),
    events TEXT NOT NULL,      -- JSON of what the run may release
    epsilon REAL,              -- price of the run by itself; NULL stands for infinity
    delta REAL NOT NULL,
    method TEXT NOT NULL,
    n_rows INTEGER,
    reserved TEXT NOT NULL,
    reserved_by TEXT NOT NULL,
    process TEXT NOT NULL,
    note TEXT NOT NULL,
    confirmed TEXT,            -- NULL: the run did not come back; its charge stands
    report TEXT
);
CREATE INDEX entry_dataset ON entry (dataset);
CREATE TRIGGER entry_stays BEFORE DELETE ON entry
    BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never deleted'); END;
CREATE TRIGGER entry_fixed BEFORE UPDATE OF id, dataset, events, epsilon, delta, method, n_rows, reserved ON entry
    BEGIN SELECT RAISE(ABORT, 'what an entry spent is never changed'); END;
CREATE TRIGGER entry_once BEFORE UPDATE OF confirmed, report ON entry WHEN OLD.confirmed IS NOT NULL
    BEGIN SELECT RAISE(ABORT, 'an entry is confirmed once'); END;
CREATE TRIGGER dataset_stays BEFORE DELETE ON dataset
    BEGIN SELECT RAISE(ABORT, 'datasets of a ledger are never deleted'); END;
CREATE TRIGGER dataset_fixed BEFORE UPDATE OF name, budget, delta, relation ON dataset
    BEGIN SELECT RAISE(ABORT, 'the terms of a dataset are never changed'); END;
CREATE TRIGGER dataset_accountant BEFORE UPDATE OF accountant ON dataset WHEN OLD.accountant IS NOT NULL
    BEGIN SELECT RAISE(ABORT, 'the accountant of a dataset is never changed'); END;
"""


class LedgerError(ValueError):
    """A ledger that cannot be used as asked: missing, damaged, newer, locked, or on other terms."""


@dataclass(frozen=True)
class Dataset:
    """The terms of a dataset, fixed when it is added.

    Parameters
    ----------
    name : str
    budget : Budget or None
        None keeps accounts without a limit.
    delta : float
        At which totals are stated.
    relation : {"replace-one", "add-remove"}
        The neighbours that totals speak of.
    accountant : {"gaussian", "concentrated", "basic"} or None
        How runs add up; None until the first run.
    added, added_by, note : str
        When, by whom, what for.
    """

    name: str
    budget: Budget | None
    delta: float
    relation: Relation
    accountant: Accountant | None
    added: str
    added_by: str
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain, JSON-ready data."""
        budget = None if self.budget is None else self.budget.to_dict()
        return vars(self) | {"budget": budget}


@dataclass(frozen=True)
class Entry:
    """One run.

    Parameters
    ----------
    id : int
        Number of the entry.
    dataset : str
    events : tuple of Event
        What the run may release; this is what counts.
    price : tuple of float
        Epsilon and delta of the run by itself.
    method : str
    n_rows : int or None
    reserved, reserved_by, process, note : str
        When, by whom and where it was reserved, and what for.
    confirmed : str or None
        When it came back; None if it did not. It is charged either way.
    report : dict or None
        Its privacy report.
    """

    id: int
    dataset: str
    events: tuple[Event, ...]
    price: Price
    method: str
    n_rows: int | None
    reserved: str
    reserved_by: str
    process: str
    note: str
    confirmed: str | None
    report: dict[str, Any] | None

    @property
    def unit(self) -> Unit:
        """What the run speaks of, and ``n_rows`` counts: rows, or persons with all their rows."""
        return common_unit(self.events)

    def to_dict(self) -> dict[str, Any]:
        """Return plain, JSON-ready data; an infinite epsilon becomes ``"inf"``."""
        fields = {name: value for name, value in vars(self).items() if name not in ("events", "price", "report")}
        epsilon = self.price[0] if self.price[0] < float("inf") else "inf"
        fields |= {"epsilon": epsilon, "delta": self.price[1]}
        fields |= {"unit": self.unit, "events": [event.to_dict() for event in self.events]}
        return fields | {"report": self.report}


class Transaction:
    """What may be done inside one transaction."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def datasets(self) -> list[Dataset]:
        """All datasets, by name."""
        rows = self._connection.execute(
            "SELECT name, budget, delta, relation, accountant, added, added_by, note FROM dataset ORDER BY name"
        )
        return [self._dataset(row) for row in rows]

    def dataset(self, name: str) -> Dataset | None:
        """The dataset of that name, if there is one."""
        return next((dataset for dataset in self.datasets() if dataset.name == name), None)

    def entries(self, dataset: str) -> list[Entry]:
        """All runs on a dataset, in order."""
        rows = self._connection.execute(
            "SELECT id, dataset, events, epsilon, delta, method, n_rows, reserved, reserved_by, process, note, "
            "confirmed, report FROM entry WHERE dataset = ? ORDER BY id",
            (dataset,),
        )
        return [self._entry(row) for row in rows]

    def add_dataset(self, dataset: Dataset) -> None:
        """Add a dataset."""
        fields = dataset.to_dict()
        fields["budget"] = None if dataset.budget is None else json.dumps(fields["budget"])
        self._connection.execute(
            "INSERT INTO dataset VALUES (:name, :budget, :delta, :relation, :accountant, :added, :added_by, :note)",
            fields,
        )

    def fix_accountant(self, dataset: str, accountant: Accountant) -> None:
        """Fix how runs add up, before the first."""
        self._connection.execute("UPDATE dataset SET accountant = ? WHERE name = ?", (accountant, dataset))

    def add_entry(
        self,
        dataset: str,
        events: tuple[Event, ...],
        price: Price,
        method: str,
        n_rows: int | None,
        who: str,
        process: str,
        note: str,
    ) -> int:
        """Charge a run; returns the number of its entry."""
        epsilon = price[0] if price[0] < float("inf") else None
        booked = json.dumps([event.to_dict() for event in events])
        cursor = self._connection.execute(
            "INSERT INTO entry (dataset, events, epsilon, delta, method, n_rows, reserved, reserved_by, process, note) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (dataset, booked, epsilon, price[1], method, n_rows, now(), who, process, note),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def confirm(self, dataset: str, entry: int, report: str) -> None:
        """Record the report of a run that came back."""
        done = self._connection.execute(
            "UPDATE entry SET confirmed = ?, report = ? WHERE id = ? AND dataset = ? AND confirmed IS NULL",
            (now(), report, entry, dataset),
        )
        if done.rowcount != 1:
            raise LedgerError(f"entry {entry} of {dataset!r} is not open in {self._path}: confirm a reservation once.")

    def _dataset(self, row: tuple[Any, ...]) -> Dataset:
        name, budget, delta, relation, accountant, added, added_by, note = row
        with _reading(self._path):
            if accountant is not None and accountant not in ACCOUNTANTS:
                raise ValueError(accountant)
            terms = None if budget is None else Budget.from_dict(json.loads(budget))
            known = cast("Accountant | None", accountant)
            return Dataset(name, terms, float(delta), check_relation(relation), known, added, added_by, note)

    def _entry(self, row: tuple[Any, ...]) -> Entry:
        number, dataset, events, epsilon, delta, method, n_rows, reserved, by, process, note, confirmed, report = row
        with _reading(self._path):
            booked = tuple(Event.from_dict(_mapping(event)) for event in json.loads(events))
            if not booked:
                raise ValueError("no events")
            price = (float("inf") if epsilon is None else float(epsilon), float(delta))
            told = None if report is None else json.loads(report)
            return Entry(number, dataset, booked, price, method, n_rows, reserved, by, process, note, confirmed, told)


@contextmanager
def transaction(path: Path, *, create: bool = False) -> Iterator[Transaction]:
    """Open the ledger, hold its write lock, and commit if nothing is raised.

    Raises
    ------
    LedgerError
        If the file is missing and not to be created, is no ledger, is damaged, newer or locked.
    """
    if create:
        _create(path)
    if not path.is_file():
        raise LedgerError(f"there is no ledger at {path}: make one with  tailguard ledger add-dataset.")
    with _as_ledger_errors(path):
        connection = sqlite3.connect(path.resolve().as_uri() + "?mode=rw", timeout=_PATIENCE_S, uri=True)
        try:
            connection.isolation_level = None  # transactions are written out below, not guessed by the driver
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("BEGIN IMMEDIATE")
            _check(connection, path)
            yield Transaction(connection, path)
            connection.execute("COMMIT")
        finally:
            connection.close()  # rolls back what was not committed


def _create(path: Path) -> None:
    """Make an empty file that only its owner can read; whoever comes first writes the schema."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise LedgerError(f"the ledger {path} cannot be made: {error.strerror}.") from None


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse what is no ledger, or not one of this version; write the schema into an empty file."""
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if empty and mark == 0 and version == 0:
        for statement in _statements():
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return
    if mark != APPLICATION_ID:
        raise LedgerError(f"{path} is a database, but not a ledger of tailguard: give another file.")
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"{path} was written by a newer tailguard (schema {version}, this one reads {SCHEMA_VERSION}): upgrade."
        )
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(found)


def _statements() -> Iterator[str]:
    """Split the schema: ``executescript`` would commit the transaction first."""
    statement = ""
    for line in _SCHEMA.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


@contextmanager
def _as_ledger_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise LedgerError(f"{path} is in use by another process for more than {_PATIENCE_S:.0f} s.") from error
        raise LedgerError(f"{path} cannot be used: {text}.") from error
    except sqlite3.DatabaseError as error:
        raise LedgerError(f"{path} is damaged or no ledger ({error}): restore it from a copy.") from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What cannot be read is never counted as nothing."""
    try:
        yield
    except (ValueError, TypeError, KeyError) as error:
        raise LedgerError(f"{path} holds a record that cannot be read: restore it from a copy, or upgrade.") from error


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("an event must be an object")
    return value


def now() -> str:
    """Return the time for people, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
