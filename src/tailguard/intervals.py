"""Standard errors and intervals of estimates, and the table that shows them."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

from tailguard._checks import within

Array = NDArray[np.float64]

INFINITE = "inf: the budget does not carry an honest interval; use more rows, fewer columns or a larger epsilon"
INCLUDED = "std err: sampling error and privacy noise together; intervals allow for the noise in it."


@dataclass(frozen=True)
class Uncertainty:
    """Standard errors of some estimates, with their degrees of freedom; infinite where nothing is known."""

    stderr: Array
    freedom: Array

    def __post_init__(self) -> None:
        # Where nothing is known a ratio of variances may not be a number either.
        known = np.isfinite(self.stderr) & ~np.isnan(self.freedom)
        object.__setattr__(self, "stderr", np.where(known, self.stderr, np.inf))
        object.__setattr__(self, "freedom", np.where(known, self.freedom, np.inf))

    @staticmethod
    def none(count: int) -> Uncertainty:
        """Nothing is known."""
        return Uncertainty(np.full(count, np.inf), np.full(count, np.inf))

    def intervals(self, values: ArrayLike, level: float) -> Array:
        """Intervals of a level about estimates, (count, 2): quantiles of t distributions."""
        tail = (1.0 - within("level", level, 0.0, 1.0, open_low=True, open_high=True)) / 2.0
        with np.errstate(all="ignore"):
            t = np.where(self.freedom > 1e6, -ndtri(tail), -stdtrit(np.minimum(self.freedom, 1e6), tail))
            half = np.where(np.isfinite(self.stderr), t * self.stderr, np.inf)
        middle = np.asarray(values, np.float64)
        return np.column_stack([middle - half, middle + half])


@dataclass(frozen=True)
class IntervalTable:
    """Estimates with standard errors and intervals, as a table.

    ``print(summary)`` shows it in a terminal; in Jupyter it shows itself.

    Attributes
    ----------
    title : str
    facts : dict of str to str
        What stands above the table.
    names : tuple of str
    values, stderr : tuple of float
    intervals : tuple of (float, float)
    level : float
        Of the intervals.
    """

    title: str
    facts: dict[str, str]
    names: tuple[str, ...]
    values: tuple[float, ...]
    stderr: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]
    level: float

    @staticmethod
    def of(
        title: str, facts: dict[str, str], names: Sequence[str], values: Array, known: Uncertainty, level: float
    ) -> IntervalTable:
        """Make the table of estimates with known uncertainty."""
        ends = known.intervals(values, level)
        return IntervalTable(
            title,
            facts,
            tuple(names),
            tuple(np.asarray(values, np.float64).tolist()),
            tuple(known.stderr.tolist()),
            tuple((low, high) for low, high in ends.tolist()),
            level,
        )

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of the columns."""
        tail = (1.0 - self.level) / 2.0
        return "coef", "std err", f"[{tail:.4g}", f"{1.0 - tail:.4g}]"

    @property
    def notes(self) -> list[str]:
        """What the numbers mean."""
        return [INCLUDED] + ([INFINITE] if math.inf in self.stderr else [])

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain data; infinite numbers as texts."""
        rows = zip(self.names, self.values, self.stderr, self.intervals, strict=True)
        return {
            "level": self.level,
            "rows": [
                {"name": name, "coef": value, "stderr": _plain(stderr), "interval": [_plain(end) for end in ends]}
                for name, value, stderr, ends in rows
            ],
        }

    def __str__(self) -> str:
        """Return the table as text."""
        cells = self._cells()
        first = max(len(name) for name in self.names)
        widths = [max(len(row[k]) for row in [self.heads, *cells]) + 2 for k in range(4)]
        total = max(first + sum(widths), len(self.title))
        lines = [self.title.center(total).rstrip(), "=" * total]
        lines += [f"{name}: {value}" for name, value in self.facts.items()]
        lines += ["=" * total, " " * first + "".join(f"{h:>{w}}" for h, w in zip(self.heads, widths, strict=True))]
        lines.append("-" * total)
        for name, row in zip(self.names, cells, strict=True):
            lines.append(f"{name:<{first}}" + "".join(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=True)))
        return "\n".join([*lines, "=" * total, *self.notes])

    def _repr_html_(self) -> str:
        facts = "".join(f"<br>{html.escape(name)}: {html.escape(value)}" for name, value in self.facts.items())
        head = "".join(f"<th>{html.escape(text)}</th>" for text in ("", *self.heads))
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
            for name, row in zip(self.names, self._cells(), strict=True)
        )
        notes = "<br>".join(html.escape(note) for note in self.notes)
        return (
            f"<div><p><b>{html.escape(self.title)}</b>{facts}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><p><small>{notes}</small></p></div>"
        )

    def _cells(self) -> list[tuple[str, ...]]:
        rows = zip(self.values, self.stderr, self.intervals, strict=True)
        return [(_shown(value), _shown(stderr), *(_shown(end) for end in ends)) for value, stderr, ends in rows]


class WithIntervals:
    """What a fitted estimator says about the errors of its coefficients."""

    coef_: Array
    intercept_: Any
    n_features_in_: int
    stderr_: Array | None
    intercept_stderr_: Any
    freedom_: Array | None

    def _set_uncertainty(self, known: Uncertainty | None) -> None:
        """Standard errors in the shapes of coefficients and intercept, or None without them."""
        self.stderr_ = self.intercept_stderr_ = self.freedom_ = None
        if known is not None:
            self.stderr_, self.freedom_ = known.stderr[:-1].reshape(np.shape(self.coef_)), known.freedom
            last = known.stderr[-1:]
            self.intercept_stderr_ = last if np.ndim(self.intercept_) else float(last[0])

    def _known(self) -> Uncertainty:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        stderr = getattr(self, "stderr_", None)
        if stderr is None or self.freedom_ is None:
            name = type(self).__name__
            raise ValueError(f"{name} has no standard errors: fit it with {name}(inference=True)")
        return Uncertainty(np.append(np.ravel(stderr), self.intercept_stderr_), self.freedom_)

    def conf_int(self, level: float = 0.95, *, intercept: bool = False) -> Array:
        """Confidence intervals of the coefficients; after a fit with ``inference=True``.

        Parameters
        ----------
        level : float, default=0.95
            Probability with which an interval covers what it is of.
        intercept : bool, default=False
            Whether a last row is that of the intercept.

        Returns
        -------
        ndarray of shape (d, 2) or (d + 1, 2)
            Lower and upper ends; infinite where the budget does not carry an honest interval.
        """
        found = self._known().intervals(np.append(np.ravel(self.coef_), self.intercept_), level)
        return found if intercept else found[:-1]

    def summary(self, level: float = 0.95) -> IntervalTable:
        """Coefficients, standard errors and intervals as a table; after a fit with ``inference=True``.

        Parameters
        ----------
        level : float, default=0.95
            Of the intervals.

        Returns
        -------
        IntervalTable
            To be printed, or shown by Jupyter.
        """
        return self._summary(None, level)

    def _summary(self, names: Iterable[Any] | None, level: float = 0.95) -> IntervalTable:
        known = self._known()
        names = getattr(self, "feature_names_in_", None) if names is None else names
        names = [f"x{j}" for j in range(self.n_features_in_)] if names is None else [str(name) for name in names]
        report: Any = getattr(self, "privacy_", None)
        facts = {report.units: f"{report.n_rows:,}", "privacy": report.guarantee}
        classes = getattr(self, "classes_", None)
        if classes is not None and len(classes) == 2:
            facts["coefficients"] = f"log-odds of {classes[1]}"
        values = np.append(np.ravel(self.coef_), self.intercept_)
        if getattr(self, "fit_intercept", True):
            order = np.roll(np.arange(len(values)), 1)
            names = ["(intercept)", *names]
        else:
            order = np.arange(len(values) - 1)
        known = Uncertainty(known.stderr[order], known.freedom[order])
        return IntervalTable.of(type(self).__name__, facts, names, values[order], known, level)


def _shown(number: float) -> str:
    return f"{number:.5g}"


def _plain(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)
