"""Figures as SVG and PNG: log axes, colours of Okabe and Ito, legend beside the axes.

Lines are medians over the seeds; bands reach from the best to the worst seed. In figures 1, 2 and 5 the axis is broken
where Algorithm 3 is many powers of ten above everything else: it then has the upper part to itself.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard._optional import import_optional
from tailguard.reproduce.claims import RATES, Evidence, bound_slope
from tailguard.reproduce.specs import Figure, Method, Panel

Array = NDArray[np.float64]

# Okabe and Ito (2008): told apart by colour-blind readers; dashes and markers tell the lines apart in grey as well.
_ORANGE, _SKY, _GREEN, _BLUE, _RED, _PURPLE = "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
_BLACK, _GREY = "#000000", "#767676"
_STYLE: dict[str, dict[str, Any]] = {
    "alg4": {"color": _RED, "marker": "o"},
    "alg4-stochastic": {"color": _RED, "marker": "s", "linestyle": (0, (4, 1.5))},
    "rgd": {"color": _BLACK, "marker": "o"},
    "rgd-stochastic": {"color": _BLACK, "marker": "s", "linestyle": (0, (4, 1.5))},
    "alg4-improved": {"color": _BLUE, "marker": "^"},
    "clipped": {"color": _SKY, "marker": "v"},
    "default": {"color": _GREEN, "marker": "D"},
    "exact": {"color": _GREY, "marker": "x", "linestyle": (0, (1, 1.2))},
    "theorem5": {"color": _PURPLE, "marker": "P"},
    "theorem5-printed": {"color": _ORANGE, "marker": "X"},
    "theorem7": {"color": _RED, "marker": "o"},
    "theorem7-improved": {"color": _BLUE, "marker": "^"},
    "theorem8": {"color": _RED, "marker": "o"},
    "theorem8-improved": {"color": _BLUE, "marker": "^"},
}
_FORMS = {"printed": (_ORANGE, "X"), "improved": (_PURPLE, "P")}
_DASHES: tuple[Any, ...] = ("solid", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (4, 1, 1, 1)))


def draw(figure: Figure, evidence: Evidence, folder: Path) -> list[Path]:
    """Draw a figure; figures against iteration also with bands, as in the paper's appendix.

    Parameters
    ----------
    figure : Figure
    evidence : Evidence
        With the results of the figure.
    folder : Path
        Where the files go; made if it is missing.

    Returns
    -------
    list of Path
        The SVG files; a PNG lies beside each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    against = figure.panels[0].x
    if against == "choice":
        return [_save(_draw_choices(figure, evidence), folder / f"figure-{figure.key}.svg")]
    if against != "iteration":
        return [_save(_draw_scaling(figure, evidence), folder / f"figure-{figure.key}.svg")]
    return [
        _save(_draw_iterations(figure, evidence, bands), folder / f"figure-{figure.key}{'-bands' if bands else ''}.svg")
        for bands in (False, True)
    ]


def _save(picture: Any, path: Path) -> Path:
    """Write SVG and PNG without dates or random names, so that the same results give the same files."""
    matplotlib = import_optional("matplotlib", "reproduce")
    picture.draw_without_rendering()
    picture.set_layout_engine("none")  # once is enough for both files
    with matplotlib.rc_context({"svg.hashsalt": "tailguard", "svg.fonttype": "path"}):
        picture.savefig(path, metadata={"Date": None})
        picture.savefig(path.with_suffix(".png"), dpi=130)
    return path


def _style(panel: Panel, method: Method) -> dict[str, Any]:
    """Colour, dashes and marker of a line; the kappas of Algorithm 3 differ by their dashes."""
    if not method.key.startswith("alg3-"):
        return _STYLE[method.key]
    form = method.key.split("-")[1]
    place = [other.key for other in panel.methods if other.key.startswith(f"alg3-{form}-")].index(method.key)
    color, marker = _FORMS[form]
    return {"color": color, "marker": marker, "linestyle": _DASHES[place % len(_DASHES)]}


def _figure(width: float, height: float) -> Any:
    return import_optional("matplotlib.figure", "reproduce").Figure(figsize=(width, height), layout="constrained")


def _finish(picture: Any, figure: Figure, handles: dict[str, tuple[Method, Any]], note: str) -> None:
    """Title, and a legend in two groups outside all axes; ``handles`` are by label."""
    picture.suptitle(f"Figure {figure.key}. {figure.title}\n{note}", fontsize=12, x=0.01, ha="left")
    ticker = import_optional("matplotlib.ticker", "reproduce")
    for axes in picture.get_axes():
        for axis, scale, limits in (
            (axes.yaxis, axes.get_yscale(), axes.get_ylim()),
            (axes.xaxis, axes.get_xscale(), axes.get_xlim()),
        ):
            if scale == "log" and not isinstance(axis.get_major_locator(), ticker.FixedLocator):
                _ticks(axis, *limits)
    lines = import_optional("matplotlib.lines", "reproduce")
    entries: list[tuple[str, Any]] = []
    for family, words in (("paper", "the paper's methods"), ("ours", "sound and improved")):
        group = [(method.label, handle) for method, handle in handles.values() if method.family == family]
        if group:
            heading = lines.Line2D([], [], linestyle="none")
            entries += [(words, heading), *group]
    legend = picture.legend(
        [handle for _, handle in entries],
        [label for label, _ in entries],
        loc="outside right upper",
        frameon=False,
        fontsize=9,
        handlelength=3.2,
        labelspacing=0.55,
    )
    for text in legend.get_texts():
        if text.get_text() in ("the paper's methods", "sound and improved"):
            text.set_weight("bold")


def _tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)


def _note(figure: Figure) -> str:
    return f"median of {figure.seeds} seed{'s' if figure.seeds > 1 else ''}"


def _draw_iterations(figure: Figure, evidence: Evidence, bands: bool) -> Any:
    """Two by two panels, each with a broken axis."""
    columns = min(2, len(figure.panels))
    rows = math.ceil(len(figure.panels) / columns)
    picture = _figure(6.0 * columns + 3.2, 4.9 * rows + 0.5)
    blocks = picture.subfigures(rows, columns, squeeze=False, hspace=0.03, wspace=0.03)
    handles: dict[str, tuple[Method, Any]] = {}
    for block, panel in zip(blocks.ravel(), figure.panels, strict=False):
        upper, lower = block.subplots(2, 1, sharex=True, height_ratios=[1.0, 2.6])
        _break(upper, lower)
        steps = max(int(dict(method.parameters).get("steps", 0)) for method in panel.methods)
        for method in panel.methods:
            axes = upper if _leaves(panel, method, evidence) else lower
            handles.setdefault(method.label, (method, _draw_line(axes, panel, method, evidence, steps, bands)))
        _limit(lower, panel, evidence, bands)
        upper.set_title(f"{panel.key[1:]}  {panel.title}", fontsize=11, loc="left")
        lower.set_xlabel("iteration")
        block.supylabel(panel.error, fontsize=10)
    _finish(picture, figure, handles, _note(figure) + ", bands from best to worst" * bands)
    return picture


def _draw_line(axes: Any, panel: Panel, method: Method, evidence: Evidence, steps: int, bands: bool) -> Any:
    """One method; those without steps are a level."""
    iterations, errors = evidence.results[panel.key[0]].path(panel.key, method.key)
    style = dict(_style(panel, method)) | {"linewidth": 1.6}
    if len(iterations) == 1:
        iterations, errors = np.array([0, steps]), np.repeat(errors, 2, axis=1)
    middle = np.median(errors, axis=0)
    every = max(1, len(iterations) // 5)
    offset = list(_STYLE).index(method.key) % every if method.key in _STYLE else every // 2
    marks: dict[str, Any] = (
        {"markersize": 4.0, "markevery": (offset, every)} if len(iterations) > 2 else {"markersize": 0.0}
    )
    if 2 < len(iterations) < steps:
        marks["markevery"] = [0, len(iterations) - 1]
        axes.plot(
            [iterations[-1], steps], [middle[-1]] * 2, color=style["color"], linewidth=0.8, linestyle=(0, (1, 2.5))
        )
    (line,) = axes.plot(iterations, middle, **style, **marks)
    if bands:
        axes.fill_between(
            iterations, errors.min(axis=0), errors.max(axis=0), color=style["color"], alpha=0.18, linewidth=0
        )
    return line


def _break(upper: Any, lower: Any) -> None:
    """Log axes with marks where the axis is cut."""
    for axes in (upper, lower):
        axes.set_yscale("log")
        _tidy(axes)
    upper.spines["bottom"].set_visible(False)
    upper.tick_params(axis="x", length=0)
    cut = {"marker": [(-1, -0.6), (1, 0.6)], "markersize": 9, "linestyle": "none", "color": "k", "clip_on": False}
    upper.plot([0], [0], transform=upper.transAxes, **cut)
    lower.plot([0], [1], transform=lower.transAxes, **cut)
    upper.text(
        0.99,
        0.04,
        "Algorithm 3; as printed it is NOT PRIVATE",
        transform=upper.transAxes,
        ha="right",
        fontsize=8.5,
        color="#8a5f00",
    )


def _leaves(panel: Panel, method: Method, evidence: Evidence) -> bool:
    """Whether a line of Algorithm 3 is too high for the lower part: above five times the error of the start."""
    if method.algorithm != "algorithm3":
        return False
    if panel.x != "iteration":
        return dict(method.parameters)["setting"] == "printed"
    errors = np.median(evidence.results[panel.key[0]].path(panel.key, method.key)[1], axis=0)
    return bool(errors.max() > 5.0 * errors[0])


def _limit(axes: Any, panel: Panel, evidence: Evidence, bands: bool) -> None:
    """Fit the lower part to its lines and their bands, and give a short range more ticks."""
    values = []
    for method in panel.methods:
        if not _leaves(panel, method, evidence):
            errors = evidence.results[panel.key[0]].path(panel.key, method.key)[1]
            values.append(errors if bands else np.median(errors, axis=0, keepdims=True))
    low, high = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    axes.set_ylim(max(low, 1e-9) / 1.15, high * 1.15)


def _ticks(axis: Any, low: float, high: float) -> None:
    """Label 1, 2, 3 and 5 where a log axis has less than one and a half powers of ten, else the powers alone."""
    ticker = import_optional("matplotlib.ticker", "reproduce")
    axis.set_minor_formatter(ticker.NullFormatter())
    if high / low < 30.0:
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))


def _draw_scaling(figure: Figure, evidence: Evidence) -> Any:
    """Final error against n or d, with the slope of the bound in figure 5."""
    ticker = import_optional("matplotlib.ticker", "reproduce")
    columns = min(2, len(figure.panels))
    rows = math.ceil(len(figure.panels) / columns)
    picture = _figure(5.6 * columns + 3.2, 4.2 * rows + 0.6)
    blocks = picture.subfigures(rows, columns, squeeze=False, hspace=0.03, wspace=0.03)
    handles: dict[str, tuple[Method, Any]] = {}
    for block, panel in zip(blocks.ravel(), figure.panels, strict=False):
        if any(_leaves(panel, method, evidence) for method in panel.methods):
            upper, lower = block.subplots(2, 1, sharex=True, height_ratios=[1.0, 2.6])
            _break(upper, lower)
        else:
            upper = lower = block.subplots()
            lower.set_yscale("log")
            _tidy(lower)
        lower.set_xscale("log")
        x = np.array([point.x for point in panel.points])
        for place, method in enumerate(panel.methods):
            axes = upper if _leaves(panel, method, evidence) else lower
            errors = np.array([evidence.final(panel, method.key, value) for value in x])
            # A little apart, so that the bars of the seeds do not hide each other.
            shifted = x * (1.0 + 0.008 * (place - len(panel.methods) / 2))
            style = _style(panel, method) | {"linewidth": 1.5, "markersize": 5.0}
            middle = np.median(errors, axis=1)
            (line,) = axes.plot(shifted, middle, **style)
            axes.vlines(shifted, errors.min(axis=1), errors.max(axis=1), color=style["color"], linewidth=1.0, alpha=0.6)
            handles.setdefault(method.label, (method, line))
            _draw_bound(axes, panel, method, x, middle)
        lower.set_xticks(x)
        lower.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
        lower.xaxis.set_minor_locator(ticker.NullLocator())
        if panel.x == "n":
            lower.tick_params(axis="x", labelsize=9)
        lower.set_xlabel("rows n" if panel.x == "n" else "columns d")
        block.supylabel(panel.error, fontsize=10)
        upper.set_title(f"{panel.key[1:]}  {panel.title}", fontsize=11, loc="left")
    _finish(picture, figure, handles, _note(figure) + ", bars from best to worst")
    return picture


def _draw_bound(axes: Any, panel: Panel, method: Method, x: Array, middle: Array) -> None:
    """The slope that the theorem promises, through the first point of its line."""
    for rate in RATES:
        if rate.method == method.key and panel.key in rate.panels:
            slope = bound_slope(rate, panel)
            level = middle[0] * (x / x[0]) ** slope
            axes.plot(x, level, color=_style(panel, method)["color"], linestyle=(0, (3, 2)), linewidth=1.0)
            place = {"xytext": (8, 0), "textcoords": "offset points", "ha": "left", "va": "center"}
            words = f"bound\n{slope:+.2f}"
            axes.annotate(words, (x[-1], level[-1]), fontsize=8, color=_style(panel, method)["color"], **place)
            axes.set_xlim(right=x[-1] * (x[-1] / x[0]) ** 0.14)


def _draw_choices(figure: Figure, evidence: Evidence) -> Any:
    """Final errors side by side, one row per choice."""
    picture = _figure(4.0 * len(figure.panels) + 3.2, 5.4)
    grid = picture.subplots(1, len(figure.panels), squeeze=False)
    handles: dict[str, tuple[Method, Any]] = {}
    for axes, panel in zip(grid.ravel(), figure.panels, strict=False):
        _tidy(axes)
        axes.set_xscale("log")
        axes.grid(axis="y", visible=False)
        for place, method in enumerate(panel.methods):
            shift = 0.16 * (place - (len(panel.methods) - 1) / 2)
            style = _style(panel, method) | {"linestyle": "none", "markersize": 6.0}
            for point in panel.points:
                errors = evidence.final(panel, method.key, point.x)
                row = -point.x - shift
                (mark,) = axes.plot([np.median(errors)], [row], **style)
                axes.hlines(row, errors.min(), errors.max(), color=style["color"], linewidth=1.2)
                handles.setdefault(method.label, (method, mark))
        axes.set_yticks([-point.x for point in panel.points], [point.label for point in panel.points], fontsize=8.5)
        for point in panel.points[1:]:
            axes.axhline(0.5 - point.x, color="#d0d0d0", linewidth=0.7)
        axes.set_xlabel(panel.error, fontsize=9)
        axes.set_title(f"{panel.key[1:]}  {panel.title}", fontsize=11, loc="left")
    _finish(picture, figure, handles, _note(figure) + ", bars from best to worst")
    return picture
