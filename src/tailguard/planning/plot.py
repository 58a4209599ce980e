"""The picture of a plan: how the error moves with rows, epsilon and features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tailguard._optional import import_optional
from tailguard.planning.formula import ERRORS, Plan, plan

# Okabe and Ito (2008): told apart by colour-blind readers.
_BLUE, _GREY, _RED = "#0072B2", "#767676", "#D55E00"
_POINTS = 60


def moved(base: Plan, what: str, values: list[float]) -> list[Plan]:
    """Return the plans with rows, epsilon or features moved to these values."""
    changes: list[dict[str, Any]] = [{what: value if what == "epsilon" else round(value)} for value in values]
    return [plan(replace(base.situation, **change)) for change in changes]


def around(base: Plan, what: str) -> list[float]:
    """Return values from a tenth to ten times that of the plan, within what makes sense."""
    here = float(getattr(base.situation, what))
    values = here * np.geomspace(0.1, 10.0, _POINTS)
    if what == "epsilon":
        return [float(value) for value in values]
    least = 20 if what == "rows" else 1
    return [float(value) for value in sorted({max(least, round(value)) for value in values})]


def draw(base: Plan, file: Path) -> Path:
    """Draw the plan; the suffix of the file says how: .png, .svg or .pdf.

    Parameters
    ----------
    base : Plan
        What is marked in the picture.
    file : Path
        Where it goes.
    """
    figures = import_optional("matplotlib.figure", "plot")
    import_optional("matplotlib.backends.backend_agg", "plot")
    panels = ["rows", "epsilon"] + (["features"] if base.situation.features else [])
    figure = figures.Figure(figsize=(4.2 * len(panels), 4.0), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, what in zip(axes, panels, strict=True):
        _panel(axis, base, what)
    axes[0].set_ylabel("error to expect")
    axes[-1].legend(loc="best", fontsize=8, frameon=False)
    s = base.situation
    features = f", {s.features} features" if s.features else ""
    figure.suptitle(f"{s.model}: {s.rows:,} rows{features}, epsilon = {s.epsilon:g}", fontsize=11)
    figure.supxlabel("Error: " + ERRORS[s.model], fontsize=8)
    figure.savefig(file, dpi=150)
    return file


def _panel(axis: Any, base: Plan, what: str) -> None:
    values = around(base, what)
    plans = moved(base, what, values)
    found = [(value, p) for value, p in zip(values, plans, strict=True) if p.regime != "nothing"]
    places = [value for value, _ in found]
    axis.loglog(places, [p.error for _, p in found], color=_BLUE, label="private: half of all fits are better")
    axis.loglog(places, [p.often for _, p in found], color=_BLUE, ls=":", label="nine in ten are better")
    axis.loglog(places, [p.without_privacy for _, p in found], color=_GREY, ls="--", label="without noise")
    axis.plot([getattr(base.situation, what)], [base.error], "o", color=_RED, label="the plan")
    axis.set_xlabel(what)
    axis.grid(True, which="major", alpha=0.3)
