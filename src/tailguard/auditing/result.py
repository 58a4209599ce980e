"""What an audit found: a claim, a lower bound, and where the bound came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class AuditResult:
    """A lower bound on epsilon against a claimed one.

    A bound below the claim is no proof: an audit can refute a claim, never establish it.

    Attributes
    ----------
    subject : str
        What was audited.
    epsilon, delta : float
        The claim.
    lower : float
        Lower bound on epsilon at this delta; 0 says nothing.
    confidence : float
        With which the true epsilon is at least ``lower``.
    method : {"two tables", "one run"}
        How it was found.
    pair : str
        The neighbours that gave it.
    event : str
        The event, in words.
    hits, others, trials : int
        How often it happened on the one table and on the other, among so many runs on each. In one run: right guesses,
        wrong guesses, guesses.
    runs : int
        Runs on each of the two tables, those that chose the event included.
    seed : int or None
        The auditor's.
    scan : tuple of (str, float)
        First look at every pair, which chose among them: estimates, not bounds.
    """

    subject: str
    epsilon: float
    delta: float
    lower: float
    confidence: float
    method: str
    pair: str
    event: str
    hits: int
    others: int
    trials: int
    runs: int
    seed: int | None
    scan: tuple[tuple[str, float], ...] = ()

    @property
    def refuted(self) -> bool:
        """Whether the bound exceeds the claim."""
        return self.lower > self.epsilon

    def __str__(self) -> str:
        verdict = "REFUTED" if self.refuted else "not refuted"
        lines = [
            f"{self.subject}: ({self.epsilon:.4g}, {self.delta:.3g})-differential privacy is {verdict}",
            f"epsilon is at least {self.lower:.4g} at this delta, with {100.0 * self.confidence:g} % confidence",
            f"neighbours: {self.pair}",
            f"event: {self.event}",
        ]
        if self.method == "two tables":
            lines.append(f"it happened in {self.hits} and {self.others} of {self.trials} runs")
        lines += [f"first look: {name} {value:.2f}" for name, value in self.scan]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain, JSON-ready data."""
        data = asdict(self) | {"refuted": self.refuted}
        return data | {"scan": [[name, value] for name, value in self.scan]}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> AuditResult:
        """Rebuild a result from `to_dict`."""
        fields = {name: value for name, value in data.items() if name != "refuted"}
        fields["scan"] = tuple((str(name), float(value)) for name, value in fields.get("scan", ()))
        return AuditResult(**fields)

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return the result as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> AuditResult:
        """Rebuild a result from `to_json`."""
        return AuditResult.from_dict(json.loads(text))

    def plot(self, path: str | Path) -> Path:
        """Draw the claim against what was observed.

        Parameters
        ----------
        path : str or Path
            A picture file, such as ``audit.svg`` or ``audit.png``.

        Returns
        -------
        Path
        """
        from tailguard.auditing.plots import draw

        return draw([self], path)
