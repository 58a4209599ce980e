"""The ledger: a durable account of everything spent on a dataset, across runs, people and processes.

Read in this order: :mod:`.accountants` (how runs add up, and why that is sound for people who look at one result
before they ask for the next), :mod:`.store` (the SQLite file: what a transaction holds, what a crash leaves),
:mod:`.book` (:class:`Ledger`), :mod:`.active` (how every private run of the package finds the ledger it must pay).
"""

from tailguard.ledger.accountants import BudgetExceeded
from tailguard.ledger.active import Bill, charge
from tailguard.ledger.book import Ledger, Reservation, Summary
from tailguard.ledger.store import Dataset, Entry, LedgerError

__all__ = ["Bill", "BudgetExceeded", "Dataset", "Entry", "Ledger", "LedgerError", "Reservation", "Summary", "charge"]
