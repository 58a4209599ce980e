"""Claimed against observed: one line per audit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tailguard._optional import import_optional
from tailguard.auditing.result import AuditResult

# Colours of Okabe and Ito, told apart by colour-blind readers, each with a marker of its own.
_CLAIM = {"color": "black", "marker": "|", "s": 160, "linewidths": 2.0, "zorder": 3}
_BELOW = {"color": "#0072B2", "marker": "o", "s": 36, "zorder": 4}
_ABOVE = {"color": "#D55E00", "marker": "X", "s": 56, "zorder": 4}


def draw(results: Sequence[AuditResult], path: str | Path, title: str = "") -> Path:
    """Draw claims and lower bounds.

    Parameters
    ----------
    results : sequence of AuditResult
        From the top down.
    path : str or Path
        A picture file; its folder is made if it is missing.
    title : str
        Above the picture.

    Returns
    -------
    Path
    """
    if not results:
        raise ValueError("results must have at least one entry; got none")
    figure_class = import_optional("matplotlib.figure", "plot").Figure
    figure: Any = figure_class(figsize=(8.0, 1.6 + 0.28 * len(results)), layout="constrained")
    axes = figure.add_subplot()
    for place, result in enumerate(results):
        axes.plot([0.0, result.lower], [place, place], color="#cccccc", linewidth=2.0, zorder=1)
    below = [(r.lower, k) for k, r in enumerate(results) if not r.refuted]
    above = [(r.lower, k) for k, r in enumerate(results) if r.refuted]
    axes.scatter([r.epsilon for r in results], range(len(results)), label="claimed epsilon", **_CLAIM)
    confidence = {f"{100.0 * r.confidence:g}" for r in results}
    words = f"lower bound on epsilon, {' or '.join(sorted(confidence))} % confidence"
    for points, style, label in ((below, _BELOW, words), (above, _ABOVE, "the same, claim refuted")):
        if points:
            axes.scatter(*zip(*points, strict=True), label=label, **style)
    axes.set_yticks(range(len(results)), [f"{r.subject}  (delta {r.delta:.3g})" for r in results])
    axes.invert_yaxis()
    axes.set_xlim(left=0.0)
    axes.set_xlabel("epsilon")
    axes.grid(axis="x", color="#eeeeee", zorder=0)
    figure.suptitle(title or "Claimed against observed", x=0.01, ha="left")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Words as words, and names that do not change from run to run: pictures in a repository then differ little.
    with import_optional("matplotlib", "plot").rc_context({"svg.fonttype": "none", "svg.hashsalt": "tailguard"}):
        figure.savefig(path, **({"metadata": {"Date": None}} if path.suffix == ".svg" else {"dpi": 130}))
    return path
