"""Pictures of the benchmarks: lines over logarithmic axes, as SVG whose bytes do not change when the numbers do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Ours first and dark; then colours that people with any colour vision tell apart (Okabe and Ito 2008).
COLOURS = ("#000000", "#999999", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKS = "oDs^vPX*"


@dataclass(frozen=True)
class Curve:
    """Points of a line; ``high`` is the upper end of a band over it."""

    x: Sequence[float]
    y: Sequence[float]
    high: Sequence[float] | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of logarithmic axes."""

    title: str
    x: str
    y: str
    curves: Mapping[str, Curve] = field(default_factory=dict)
    limits: tuple[float, float] | None = None
    level: tuple[float, str] | None = None  # a horizontal line, and what it stands for


def draw(panels: Sequence[Panel], path: Path, columns: int = 2) -> None:
    """Write the panels side by side; a name has one colour in all of them."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    rows = -(-len(panels) // columns)
    settings = {"svg.hashsalt": "tailguard", "svg.fonttype": "none", "font.size": 9.0, "axes.titlesize": 9.0}
    with plt.rc_context(settings):
        figure, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 3.1 * rows), squeeze=False)
        for ax, panel in zip(axes.flat, panels, strict=False):
            for name, curve in panel.curves.items():
                k = names.index(name)
                colour, mark = COLOURS[k % len(COLOURS)], MARKS[k % len(MARKS)]
                ax.plot(curve.x, curve.y, color=colour, marker=mark, ms=4.0, lw=2.0 if k == 0 else 1.2, label=name)
                if curve.high is not None:
                    ax.fill_between(curve.x, curve.y, curve.high, color=colour, alpha=0.12, lw=0.0)
            if panel.level is not None:
                ax.axhline(panel.level[0], color="#bbbbbb", lw=1.0, ls="--")
                place = {"xycoords": ("axes fraction", "data"), "va": "bottom", "ha": "right"}
                ax.annotate(panel.level[1], (0.98, panel.level[0]), color="#777777", **place)
            ax.set(xscale="log", yscale="log", title=panel.title, xlabel=panel.x, ylabel=panel.y)
            if panel.limits is not None:
                ax.set_ylim(*panel.limits)
            ax.grid(color="#eeeeee")
            ax.set_axisbelow(True)
        for ax in list(axes.flat)[len(panels) :]:
            ax.set_axis_off()
        labels = {label: line for ax in axes.flat for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        figure.legend(list(labels.values()), list(labels), loc="lower center", ncols=min(4, len(labels)), frameon=False)
        figure.tight_layout(rect=(0.0, 0.04 + 0.05 * (1 + len(labels) // 5) / rows, 1.0, 1.0))
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        plt.close(figure)
