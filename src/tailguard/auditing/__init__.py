"""Audits: try to refute a claim of differential privacy by running what makes it.

* `audit` runs a mechanism or an estimator many times on two tables that differ in one row, and bounds epsilon from
  below by how well the outputs tell them apart (`tailguard.auditing.two_tables`).
* `audit_one_run` hides many canaries in one table and bounds epsilon by how many are found
  (`tailguard.auditing.one_run`).

An audit can refute a claim; it cannot establish one. The proofs are in docs/guarantees.md, and the audits of everything
this package ships in docs/audit.md.
"""

from tailguard.auditing.bounds import epsilon_from_counts
from tailguard.auditing.neighbours import NEIGHBOURS, Pair, Table, neighbours
from tailguard.auditing.one_run import audit_one_run
from tailguard.auditing.plots import draw
from tailguard.auditing.result import AuditResult
from tailguard.auditing.runs import Runner
from tailguard.auditing.shipped import CASES, Case
from tailguard.auditing.subjects import Estimator, Mechanism, Subject
from tailguard.auditing.two_tables import audit, epsilon_from_outputs

__all__ = [
    "CASES",
    "NEIGHBOURS",
    "AuditResult",
    "Case",
    "Estimator",
    "Mechanism",
    "Pair",
    "Runner",
    "Subject",
    "Table",
    "audit",
    "audit_one_run",
    "draw",
    "epsilon_from_counts",
    "epsilon_from_outputs",
    "neighbours",
]
