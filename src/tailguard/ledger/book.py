"""`Ledger`: one dataset's account in a ledger file."""

from __future__ import annotations

import getpass
import math
import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

from tailguard import _checks
from tailguard.ledger import active
from tailguard.ledger.accountants import (
    ACCOUNTANTS,
    Accountant,
    BudgetExceeded,
    Price,
    accountant_for,
    admits,
    kinds_in_words,
    room,
    run_price,
    takes,
    total,
)
from tailguard.ledger.store import Dataset, Entry, LedgerError, Transaction, now, transaction
from tailguard.privacy import (
    Budget,
    Event,
    Gaussian,
    NotPrivate,
    PrivacyReport,
    Relation,
    check_delta,
    epsilon_of,
)
from tailguard.privacy.accounting import known_events
from tailguard.privacy.events import Unit, check_relation, common_unit, in_units

# At which a dataset's totals are stated unless it is added with another one.
DEFAULT_DELTA = 1e-6


@dataclass(frozen=True)
class Reservation:
    """A charge that stands, whatever becomes of the run.

    Parameters
    ----------
    id : int
        Number of the entry.
    dataset : str
    events : tuple of Event
        What was charged.
    """

    id: int
    dataset: str
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Summary:
    """Where a dataset stands.

    Parameters
    ----------
    dataset : Dataset
        Its terms.
    runs, unconfirmed : int
        Runs that were charged, and those of them that did not come back.
    epsilon : float
        Total at the dataset's delta; inf if a run had no price.
    room : float or None
        Largest epsilon, at the dataset's delta, of one more run with the default methods; None without a budget.
    """

    dataset: Dataset
    runs: int
    unconfirmed: int
    epsilon: float
    room: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain, JSON-ready data; an infinite epsilon becomes ``"inf"``."""
        facts: dict[str, Any] = {name: value for name, value in vars(self).items() if name != "dataset"}
        facts["epsilon"] = self.epsilon if math.isfinite(self.epsilon) else "inf"
        return self.dataset.to_dict() | facts


class Ledger:
    """A durable account of everything that is spent on a dataset.

    Inside its ``with`` block every private run of the package is charged before it reads a row, or refused: in this
    thread, in threads and processes that it starts, and in worker processes that it already had. A charge stands
    whatever becomes of the run.

    Parameters
    ----------
    path : str or path
        The ledger's file.
    dataset : str
        Name of the dataset.
    budget : Budget or float, optional
        A dataset that is not in the ledger is added with this budget; a number is an epsilon at ``delta``. For one
        that is, it may be left out, and else must be the same.
    delta : float, optional
        With a number as the budget; default 1e-6.
    relation : {"replace-one", "add-remove"}, optional
        The neighbours that totals speak of; default replace-one, which every run can be priced under.
    accountant : {"gaussian", "concentrated", "basic"}, optional
        How runs add up; by default the tightest that takes the first run. See `tailguard.ledger.accountants`.
    by : str, optional
        Who spends; default the name of the user.
    note : str
        What for; kept with the entries, and with a dataset that is added.

    Raises
    ------
    LedgerError
        If the file is no ledger, damaged or newer; if the dataset is not in it and no budget is given, or is there on
        other terms.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import tailguard as tg
    >>> folder = tempfile.TemporaryDirectory()
    >>> with tg.Ledger(f"{folder.name}/budget.db", "patients", budget=tg.Budget(3.0, 1e-6)) as ledger:
    ...     result = tg.private_mean(np.ones(1000), epsilon=1.0)
    >>> ledger.summary().runs
    1
    >>> ledger.summary().epsilon <= 1.0
    True
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | PathLike[str],
        dataset: str,
        budget: Budget | float | None = None,
        *,
        delta: float | None = None,
        relation: Relation | None = None,
        accountant: Accountant | None = None,
        by: str | None = None,
        note: str = "",
    ) -> None:
        # Absolute, so that a worker in another folder finds the same file.
        self.path = Path(os.path.abspath(path))
        self.dataset = _name(dataset)
        self.by = _user() if by is None else str(by)
        self.note = str(note)
        terms = _terms(budget, delta)
        if relation is not None:
            check_relation(relation)
        if accountant is not None:
            _checks.one_of("accountant", accountant, ACCOUNTANTS)
        with transaction(self.path, create=terms is not None) as book:
            known = book.dataset(self.dataset)
            self.added = known is None
            if known is None:
                if terms is None:
                    raise LedgerError(_unknown(self.path, self.dataset, book))
                at = delta if terms.delta is None else terms.delta
                book.add_dataset(_checked(self._dataset(terms, at, relation, accountant)))
                return
        if terms is not None and isinstance(budget, (int, float)) and delta is None and known.budget is not None:
            same = known.budget.epsilon == terms.epsilon  # a bare epsilon says nothing about delta
        else:
            same = terms is None or known.budget == terms
        if not same:
            promise = "accounts without a budget" if known.budget is None else known.budget.describe()
            raise LedgerError(
                f"{self.dataset!r} is in {self.path} with {promise}, and a budget is never changed: leave the budget "
                "out, or give the same one."
            )
        if relation not in (None, known.relation) or accountant not in (None, known.accountant):
            raise LedgerError(
                f"{self.dataset!r} is in {self.path} with relation={known.relation!r} and accountant="
                f"{known.accountant!r}, which are never changed: leave them out."
            )

    @classmethod
    def add_dataset(
        cls,
        path: str | PathLike[str],
        dataset: str,
        budget: Budget | float | None = None,
        *,
        delta: float | None = None,
        relation: Relation = "replace-one",
        accountant: Accountant | None = None,
        by: str | None = None,
        note: str = "",
    ) -> Ledger:
        """Add a dataset, and make the file if it is missing; without a budget it keeps accounts only.

        Parameters
        ----------
        path, dataset, budget, delta, relation, accountant, by, note
            As for the class; ``delta`` may also be given without a budget.

        Raises
        ------
        LedgerError
            If the dataset is already there.
        """
        if budget is not None:
            ledger = cls(path, dataset, budget, delta=delta, relation=relation, accountant=accountant, by=by, note=note)
            if not ledger.added:
                raise LedgerError(f"{dataset!r} is already in {ledger.path}.")
            return ledger
        place, who = Path(os.path.abspath(path)), _user() if by is None else str(by)
        at = DEFAULT_DELTA if delta is None else _checks.probability("delta", delta)
        if accountant is not None:
            raise ValueError(f"accountant={accountant!r} is not accepted without a budget: leave it out.")
        with transaction(place, create=True) as book:
            if book.dataset(_name(dataset)) is not None:
                raise LedgerError(f"{dataset!r} is already in {place}.")
            book.add_dataset(Dataset(dataset, None, at, check_relation(relation), None, now(), who, str(note)))
        return cls(place, dataset, by=by, note=note)

    @property
    def key(self) -> tuple[str, str]:
        """What tells two ledgers apart: file and dataset."""
        return str(self.path), self.dataset

    @property
    def terms(self) -> Dataset:
        """The terms of the dataset: budget, delta, relation, accountant."""
        with transaction(self.path) as book:
            return self._known(book)

    @property
    def entries(self) -> list[Entry]:
        """All runs, in order."""
        with transaction(self.path) as book:
            self._known(book)
            return book.entries(self.dataset)

    def summary(self) -> Summary:
        """Return where the dataset stands."""
        with transaction(self.path) as book:
            return _summary(self._known(book), book.entries(self.dataset))

    def require(self, run: Budget | Iterable[Event], *, rows: int | None = None) -> None:
        """Refuse now a run that `reserve` would refuse: before a file is opened, say. Nothing is charged.

        Parameters
        ----------
        run : Budget or iterable of Event
            A budget stands for a run of the default methods that keeps it.
        rows : int, optional
            Public number of rows, if it is known.

        Raises
        ------
        BudgetExceeded
            If there is no room. Somebody else may be faster: only a reservation holds.
        """
        with transaction(self.path) as book:
            events = _events(run)
            if isinstance(run, Budget):  # it says nothing about the unit
                events = in_units(events, _unit_of(book.entries(self.dataset), "row"))
            self._admit(book, events, rows)

    def reserve(
        self, run: Budget | Iterable[Event], *, rows: int | None = None, method: str = "", note: str | None = None
    ) -> Reservation:
        """Charge a run, durably, before it reads a row.

        Parameters
        ----------
        run : Budget or iterable of Event
            The most that the run may release; a budget stands for Gaussian releases on all rows that use it up.
        rows : int, optional
            Public number of rows.
        method : str
            Name of the algorithm.
        note : str, optional
            What for; default the ledger's note.

        Returns
        -------
        Reservation
            For `confirm`.

        Raises
        ------
        BudgetExceeded
            If there is no room; nothing is charged.
        """
        events = _events(run)
        if rows is not None:
            _checks.count("rows", rows)
        where = f"{platform.node()}:{os.getpid()}"
        with transaction(self.path) as book:
            known, accountant, price = self._admit(book, events, rows)
            if known.accountant is None and accountant is not None:
                book.fix_accountant(self.dataset, accountant)
            text = self.note if note is None else str(note)
            number = book.add_entry(self.dataset, events, price, str(method), rows, self.by, where, text)
        return Reservation(number, self.dataset, events)

    def confirm(self, reservation: Reservation, report: PrivacyReport) -> None:
        """Record the report of a run that came back. What was charged does not change.

        Parameters
        ----------
        reservation : Reservation
        report : PrivacyReport

        Raises
        ------
        LedgerError
            If the reservation is not open in this ledger.
        """
        with transaction(self.path) as book:
            book.confirm(reservation.dataset, reservation.id, report.to_json())

    def __enter__(self) -> Self:
        with transaction(self.path) as book:
            self._known(book)
        active.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        active.leave()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, {self.dataset!r})"

    def _dataset(
        self, budget: Budget, delta: float | None, relation: Relation | None, accountant: Accountant | None
    ) -> Dataset:
        at = DEFAULT_DELTA if delta is None else delta
        if accountant is None and budget.form != "approximate":
            accountant = accountant_for((), budget)
        return Dataset(self.dataset, budget, at, relation or "replace-one", accountant, now(), self.by, self.note)

    def _known(self, book: Transaction) -> Dataset:
        known = book.dataset(self.dataset)
        if known is None:
            raise LedgerError(_unknown(self.path, self.dataset, book))
        return known

    def _admit(
        self, book: Transaction, events: tuple[Event, ...], rows: int | None
    ) -> tuple[Dataset, Accountant | None, Price]:
        """Return the terms, the accountant and the price of a run, or refuse it."""
        known = self._known(book)
        budget, relation = known.budget, known.relation
        booked = book.entries(self.dataset)
        if (run_unit := common_unit(events)) != (unit := _unit_of(booked, run_unit)):
            raise BudgetExceeded(
                f"{self.dataset!r} keeps its account for {unit}s, and this run speaks of {run_unit}s: what holds for "
                "each row says nothing about a person with many. "
                + ("Give groups= to the run." if unit == "person" else "Give such runs a dataset of their own.")
            )
        if relation == "add-remove" and any(getattr(event, "relation", relation) != relation for event in events):
            raise BudgetExceeded(
                f"{self.dataset!r} keeps its account for rows that are added or left out, and this run speaks of "
                "replaced rows only: give relation='add-remove' to the run."
            )
        if budget is None:
            return known, None, (epsilon_of(events, known.delta, relation), known.delta)
        if any(isinstance(event, NotPrivate) for event in events):
            reasons = "; ".join(event.reason for event in events if isinstance(event, NotPrivate))
            raise BudgetExceeded(
                f"the run has no finite price ({reasons}) and {self.dataset!r} has a budget: run it with "
                "random_state=None and a private method, or outside of the ledger on data that is not private."
            )
        if rows is not None:
            try:
                check_delta(known.delta, rows)
            except ValueError:
                raise LedgerError(
                    f"{self.dataset!r} states its totals at delta={known.delta:g}, which promises little to {rows} "
                    f"{unit}s: add the dataset anew with a delta well below {1.0 / rows:.2g}."
                ) from None
        accountant = known.accountant or accountant_for(events, budget)
        if not takes(accountant, events):
            raise BudgetExceeded(
                f"the {accountant} accountant of {self.dataset!r} cannot add up {kinds_in_words(events)}: use a method "
                "that it takes (method='auto' always is one), or give such runs a dataset and a budget of their own "
                "(tailguard ledger add-dataset --accountant basic); the two budgets then add up."
            )
        spent, prices = _spent(booked)
        left = known.delta - math.fsum(price[1] for price in prices)
        price = run_price(events, left, relation) if accountant == "basic" else self._alone(events, known)
        if not admits(accountant, budget, (*spent, *events), (*prices, price), relation):
            used = rounded_up(total(accountant, spent, prices, known.delta, relation))
            free = rounded_down(room(accountant, budget, spent, prices, known.delta, relation))
            raise BudgetExceeded(
                f"{self.dataset!r} has {budget.describe()}, of which {_runs(len(booked))} spent epsilon = {used}; "
                f"one more run may have epsilon up to {free} (at delta={known.delta:g}), and this one asks for "
                f"at least {rounded_up(price[0])}. Nothing was read for it, and nothing released."
            )
        return known, accountant, price

    @staticmethod
    def _alone(events: tuple[Event, ...], known: Dataset) -> Price:
        return epsilon_of(events, known.delta, known.relation), known.delta


def read(path: str | PathLike[str]) -> list[tuple[Summary, list[Entry]]]:
    """Return every dataset of a ledger with its entries."""
    with transaction(Path(os.path.abspath(path))) as book:
        found = [(dataset, book.entries(dataset.name)) for dataset in book.datasets()]
    return [(_summary(dataset, entries), entries) for dataset, entries in found]


def _summary(known: Dataset, entries: list[Entry]) -> Summary:
    events, prices = _spent(entries)
    spent = total(known.accountant, events, prices, known.delta, known.relation)
    free = None
    if known.budget is not None:
        free = room(known.accountant, known.budget, events, prices, known.delta, known.relation)
    unconfirmed = sum(entry.confirmed is None for entry in entries)
    return Summary(known, len(entries), unconfirmed, spent, free)


def _unit_of(entries: list[Entry], otherwise: Unit) -> Unit:
    """Return what the runs so far speak of: the first of them decides."""
    return entries[0].unit if entries else otherwise


def _spent(entries: list[Entry]) -> tuple[list[Event], list[Price]]:
    return [event for entry in entries for event in entry.events], [entry.price for entry in entries]


def _events(run: Budget | Iterable[Event]) -> tuple[Event, ...]:
    if isinstance(run, Budget):
        return (Gaussian(run.mu, label="run"),)
    events = tuple(known_events(run))
    if not events:
        raise ValueError("a run must have at least one event; got none")
    return events


def _terms(budget: Budget | float | None, delta: float | None) -> Budget | None:
    if isinstance(budget, Budget):
        if delta is not None and budget.form == "approximate":
            raise ValueError(f"delta={delta!r} is not accepted beside a Budget: put it into the Budget.")
        return budget
    if budget is None:
        if delta is not None:
            raise ValueError(f"delta={delta!r} is not accepted without a budget: leave it out.")
        return None
    return Budget(_checks.positive("budget", budget), DEFAULT_DELTA if delta is None else delta)


def _checked(dataset: Dataset) -> Dataset:
    """Refuse an accountant that does not fit the form of the budget."""
    budget, accountant = dataset.budget, dataset.accountant
    assert budget is not None
    fitting = {"concentrated": ("concentrated",), "gaussian": ("gaussian",)}.get(budget.form, ACCOUNTANTS)
    if accountant is not None and accountant not in fitting:
        raise ValueError(
            f"accountant={accountant!r} is not accepted with {budget!r}: give {fitting[0]!r}, or a budget in epsilon."
        )
    return dataset


def _name(dataset: str) -> str:
    if not isinstance(dataset, str) or not dataset.strip() or not dataset.isprintable() or len(dataset) > 200:
        raise ValueError(f"dataset must be a name of 1 to 200 printable characters; got {dataset!r}")
    return dataset


def _unknown(path: Path, dataset: str, book: Transaction) -> str:
    there = ", ".join(repr(known.name) for known in book.datasets()) or "none"
    return (
        f"{dataset!r} is not in {path}, which has {there}: add it with a budget, or with  tailguard ledger add-dataset."
    )


def rounded_down(value: float) -> str:
    """Return a number to three digits, rounded down: what is said to fit must fit."""
    return _digits(value, math.floor)


def rounded_up(value: float) -> str:
    """Return a number to three digits, rounded up: what is said to be spent is spent at most."""
    return _digits(value, math.ceil)


def _digits(value: float, rounding: Callable[[float], int]) -> str:
    if value <= 0.0 or not math.isfinite(value):
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    # A last digit beyond 1e-9 relative is the rounding of the accountant.
    steps = value / unit
    nearest = round(steps)
    return f"{(nearest if abs(steps - nearest) < 1e-9 * steps else rounding(steps)) * unit:.3g}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no name for this number
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


def _runs(count: int) -> str:
    return "1 run has" if count == 1 else f"{count} runs have"
