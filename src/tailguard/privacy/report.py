"""The report: what the user is told, in one sentence, one table and one JSON object.

A report holds public facts only: parameters, events and their price.  A run whose noise came
from a seed keeps its numbers, as what *would be* promised, and says that it is not private.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

import numpy as np

from tailguard import _checks
from tailguard.privacy.accounting import epsilon_of, known_events
from tailguard.privacy.events import (
    ApproximateDP,
    Event,
    Gaussian,
    NotPrivate,
    Relation,
    Unit,
    ZeroConcentrated,
    check_relation,
    check_unit,
    common_relation,
    common_unit,
)
from tailguard.privacy.noise import NoiseSource

# n enters the released values as a divisor, so a row that is "removed" is one that contributes nothing.
_NEIGHBOURS = {"replace-one": "is replaced", "add-remove": "is added or left out (their number is public)"}
_UNITS = {"row": ("rows", ""), "person": ("persons", ", with all their rows,")}


@dataclass(frozen=True)
class PrivacyReport:
    """What was released about the data, and what that costs.

    Build one with :meth:`from_events`; add reports on the same data with ``+``.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee; epsilon is inf where there is none.
    relation : {"replace-one", "add-remove"}
        The neighbours that it speaks of.
    events : tuple of Event
        Everything that was released.
    private : bool
        Whether the guarantee holds: finite epsilon and noise that nobody can predict.
    reasons : tuple of str
        Why not, where it does not.
    method : str
        Name of the algorithm.
    parameters : dict
        Its public parameters.
    n_rows : int or None
        Public number of rows; of persons, where the unit is a person: the number of their rows is not public.
    budget : str
        The promise that was made beforehand, in words.
    """

    epsilon: float
    delta: float
    relation: Relation
    events: tuple[Event, ...]
    private: bool
    reasons: tuple[str, ...] = ()
    method: str = ""
    parameters: dict[str, Any] = field(default_factory=dict, hash=False)
    n_rows: int | None = None
    budget: str = ""

    @classmethod
    def from_events(
        cls,
        events: Iterable[Event],
        delta: float,
        *,
        seed: int | None = None,
        noise: NoiseSource | None = None,
        reasons: Iterable[str] = (),
        method: str = "",
        parameters: Mapping[str, Any] | None = None,
        n: int | None = None,
        relation: Relation | None = None,
        budget: object = None,
    ) -> PrivacyReport:
        """Price events and say what follows.

        Parameters
        ----------
        events : iterable of Event
            Everything that was released.
        delta : float
            In (0, 1).
        seed : int, optional
            The seed of the noise; any seed makes the run not private.
        noise : NoiseSource, optional
            In place of the seed: a source that is not private makes the run not private, seed or none.
        reasons : iterable of str
            Further reasons why the run is not private.
        method : str
            Name of the algorithm.
        parameters : mapping, optional
            Public parameters; kept as JSON-ready data.
        n : int, optional
            Public number of rows.
        relation : {"replace-one", "add-remove"}, optional
            As in :func:`epsilon_of`.
        budget : Budget or str, optional
            The promise that was made beforehand.
        """
        known = tuple(known_events(events))
        relation = common_relation(known) if relation is None else relation
        epsilon = epsilon_of(known, delta, relation)
        found = [event.reason for event in known if isinstance(event, NotPrivate)] + list(reasons)
        if noise is not None and not noise.private:
            seed = noise.seed
            if seed is None:
                found.append("seeded: the noise comes from a source that is not private")
        if seed is not None:
            found.append(f"seeded: the noise can be computed again from seed {seed}")
        if math.isinf(epsilon) and not found:
            found.append("no finite epsilon is known for these events at this delta")
        describe = getattr(budget, "describe", None)
        return cls(
            epsilon=epsilon,
            delta=float(delta),
            relation=relation,
            events=known,
            private=not found,
            reasons=tuple(dict.fromkeys(found)),
            method=method,
            parameters={str(key): _plain(value) for key, value in (parameters or {}).items()},
            n_rows=None if n is None else int(n),
            budget=describe() if callable(describe) else str(budget or ""),
        )

    @staticmethod
    def combine(*reports: PrivacyReport) -> PrivacyReport:
        """Return the total over several fits on the same data.

        The events are put together and priced at the sum of the deltas; epsilon is never
        more than the sum of the epsilons (basic composition), where all speak of one relation.

        Raises
        ------
        ValueError
            For no reports, for different numbers of rows, if the deltas add up to 1 or more, or if some speak of
            rows and some of persons: what holds for each row says nothing about a person with many.
        """
        if not reports:
            raise ValueError("reports must have at least one entry; got none")
        if len(reports) == 1:
            return reports[0]
        if len({report.unit for report in reports}) > 1:
            raise ValueError(
                "reports must all speak of rows or all of persons; got both: what holds for each row says nothing "
                "about a person with many rows. Give groups= to every fit."
            )
        rows = {report.n_rows for report in reports if report.n_rows is not None}
        if len(rows) > 1:
            raise ValueError(f"reports must be on the same data; got numbers of rows {sorted(rows)}")
        delta = math.fsum(report.delta for report in reports)
        if delta >= 1.0:
            raise ValueError(f"the deltas of the reports must add up to less than 1; got {delta!r}")
        events = tuple(event for report in reports for event in report.events)
        relations = {report.relation for report in reports}
        relation: Relation = relations.pop() if len(relations) == 1 else "replace-one"
        epsilon = epsilon_of(events, delta, relation)
        if all(report.relation == relation for report in reports):
            epsilon = min(epsilon, math.fsum(report.epsilon for report in reports))
        reasons = tuple(dict.fromkeys(reason for report in reports for reason in report.reasons))
        if math.isinf(epsilon) and not reasons:
            reasons = ("no finite epsilon is known for these events at this delta",)
        return PrivacyReport(
            epsilon=epsilon,
            delta=delta,
            relation=relation,
            events=events,
            private=not reasons,
            reasons=reasons,
            method=" + ".join(dict.fromkeys(part for report in reports for part in report.method.split(" + ") if part)),
            n_rows=rows.pop() if rows else None,
            budget=" + ".join(report.budget for report in reports if report.budget),
        )

    def __add__(self, other: PrivacyReport) -> PrivacyReport:
        if not isinstance(other, PrivacyReport):
            return NotImplemented
        return PrivacyReport.combine(self, other)

    @property
    def unit(self) -> Unit:
        """What neighbours differ in one of: a "row", or a "person" with all their rows, where ``groups=`` was given."""
        return common_unit(self.events)

    @property
    def units(self) -> str:
        """The unit in the plural, for sentences about `n_rows` of them."""
        return _UNITS[self.unit][0]

    @property
    def guarantee(self) -> str:
        """The guarantee in one plain sentence."""
        rows, whole = _UNITS[self.unit]
        rows = rows if self.n_rows is None else f"{self.n_rows} {rows}"
        would = "" if self.private else "would be "
        text = (
            f"{would}({_up(self.epsilon)}, {_up(self.delta)})-differentially private "
            f"when one of the {rows}{whole} {_NEIGHBOURS[self.relation]}"
        )
        if self.private:
            return text
        reasons = "; ".join(self.reasons)
        if math.isinf(self.epsilon):
            return f"not private: {reasons}"
        return f"not private: {reasons} ({text} with unpredictable noise)"

    def __str__(self) -> str:
        lines = [self.guarantee]
        lines += [f"{name}: {value}" for name, value in self._facts()]
        table = self._table()
        if len(table) > 1:
            widths = [max(len(row[i]) for row in table) for i in range(3)]
            lines.append("")
            lines += [
                "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return a self-contained HTML fragment; everything in it is escaped."""

        def cells(row: tuple[str, ...], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

        facts = "".join(cells(row, "td") for row in self._facts())
        head, *rows = self._table()
        events = cells(head, "th") + "".join(cells(row, "td") for row in rows)
        return (
            f'<div class="tailguard-report"><p><strong>{html.escape(self.guarantee)}</strong></p>'
            f"<table>{facts}</table><table>{events}</table></div>"
        )

    @property
    def _is_pure(self) -> bool:
        """Whether epsilon holds with delta = 0, but for draws of a probability below e^-4096."""
        pure = all(isinstance(event, ApproximateDP) and event.delta == 0.0 for event in self.events)
        return bool(self.events) and pure and math.fsum(map(_epsilon, self.events)) <= self.epsilon * (1.0 + 1e-9)

    def _facts(self) -> list[tuple[str, str]]:
        facts = [("method", self.method), ("budget", self.budget)]
        facts += [("noise", "pure: epsilon holds with delta = 0")] if self._is_pure else []
        facts += [(name, _short(value)) for name, value in self.parameters.items() if value is not None]
        return [(name, value) for name, value in facts if value]

    def _table(self) -> list[tuple[str, str, str]]:
        """Return the events as rows: label, share of the budget, mechanism."""
        weights = [_weight(event) for event in self.events]
        if None in weights:
            weights = [_epsilon(event) if isinstance(event, ApproximateDP) else None for event in self.events]
        total = math.fsum(weight for weight in weights if weight is not None)
        comparable = None not in weights and 0.0 < total < math.inf
        groups: dict[str, list[int]] = {}
        for index, event in enumerate(self.events):
            groups.setdefault(event.label or "-", []).append(index)
        table = [("spent on", "share", "mechanism")]
        for label, members in groups.items():
            part = math.fsum(weights[index] or 0.0 for index in members)
            share = f"{100.0 * part / total:.1f} %" if comparable else "-"
            kinds = {_kind(self.events[index]) for index in members}
            one = len(members) == 1
            mechanism = self.events[members[0]].describe() if one else f"{len(members)} releases, {', '.join(kinds)}"
            table.append((label, share, mechanism))
        return table

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain, JSON-ready data; infinities become ``"inf"``.

        ``"unit": "person"`` is there where the guarantee is for persons; without it, it is for rows.
        """
        unit = {} if self.unit == "row" else {"unit": self.unit}
        return unit | {
            "epsilon": _plain(self.epsilon),
            "delta": self.delta,
            "relation": self.relation,
            "events": [event.to_dict() for event in self.events],
            "private": self.private,
            "reasons": list(self.reasons),
            "method": self.method,
            "parameters": {name: _plain(value) for name, value in self.parameters.items()},
            "n_rows": self.n_rows,
            "budget": self.budget,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PrivacyReport:
        """Rebuild a report from :meth:`to_dict`.

        It is read as a statement, not as a proof: whoever writes the file can write any numbers.

        Raises
        ------
        TypeError, ValueError
            If a field is missing, unknown or not what it should be.
        """
        names = {field.name for field in dataclass_fields(cls)}
        fields = _checks.exactly(
            "report", {"unit": "row"} | dict(data) if isinstance(data, Mapping) else data, names | {"unit"}
        )
        epsilon, events, reasons = (fields[name] for name in ("epsilon", "events", "reasons"))
        if not isinstance(events, (list, tuple)) or not isinstance(reasons, (list, tuple)):
            raise TypeError("events and reasons of a report must be lists")
        if not isinstance(fields["parameters"], Mapping) or not isinstance(fields["private"], bool):
            raise TypeError("parameters of a report must be a mapping, and private must be true or false")
        n_rows = fields["n_rows"]
        report = cls(
            epsilon=_checks.nonnegative("epsilon", math.inf if epsilon == "inf" else epsilon),
            delta=_checks.probability("delta", fields["delta"]),
            relation=check_relation(fields["relation"]),
            events=tuple(Event.from_dict(event) for event in events),
            private=fields["private"],
            reasons=tuple(map(str, reasons)),
            method=str(fields["method"]),
            parameters=dict(fields["parameters"]),
            n_rows=None if n_rows is None else _checks.count("n_rows", n_rows),
            budget=str(fields["budget"]),
        )
        if check_unit(fields["unit"]) != report.unit:
            raise ValueError("unit must be that of the events of a report")
        if report.private and (report.reasons or math.isinf(report.epsilon)):
            raise ValueError("private must be false in a report with reasons against it, or with an infinite epsilon")
        return report

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the report as valid JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> PrivacyReport:
        """Rebuild a report from :meth:`to_json`."""
        return cls.from_dict(_checks.json_object("report", text))


def _kind(event: Event) -> str:
    """Return what kind of mechanism it is."""
    if isinstance(event, ApproximateDP):
        return "pure" if event.delta == 0.0 else "(epsilon, delta)"
    return type(event).__name__


def _epsilon(event: Event) -> float:
    """What a pure release adds to epsilon."""
    return float(event.releases * getattr(event, "epsilon", 0.0))


def _weight(event: Event) -> float | None:
    """Return what events of one family can be compared by: rho."""
    if isinstance(event, Gaussian):
        return event.count * 0.5 * event.mu * event.mu
    if isinstance(event, ZeroConcentrated):
        return event.count * event.rho
    return None


def _up(value: float) -> str:
    """Return a number to four digits, rounded up: a printed guarantee must hold."""
    if math.isinf(value):
        return "inf"
    # A last digit beyond 1e-9 relative is the rounding of the accountant, not a loss.
    rounded = Context(prec=4, rounding=ROUND_CEILING).create_decimal(Decimal(value) * (1 - Decimal("1e-9")))
    mantissa, _, exponent = f"{float(rounded):g}".partition("e")
    return mantissa if not exponent else f"{mantissa}e{int(exponent)}"


def _short(value: Any) -> str:
    """Return a parameter for people: six digits of a float."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """Return a parameter as JSON-ready data."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return repr(value)
