r"""The demonstration: what privacy costs on the paper's heavy-tailed linear data.

One table, four linear models: ordinary least squares, which promises nothing; `PrivateRidge`, the default, which is
told nothing but epsilon; L2-clipped descent and Algorithm 4. The bounds, steps and step size of the last two are
constants, never computed from the rows of a run. They flatter the private fits all the same: they were picked among
18 settings of each method, on 12 other tables of this distribution at 100,000 rows, by the error against the true
coefficients, which nobody has in practice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard._optional import import_optional
from tailguard.algorithms import algorithm4, clipped_gd
from tailguard.datasets import Dataset, make_linear
from tailguard.descent import Result
from tailguard.linear_model import PrivateRidge
from tailguard.losses import Squared
from tailguard.privacy import PrivacyReport

Array = NDArray[np.float64]

COLUMNS = 10
EPSILON = 1.0
STEPS = 15
STEP_SIZE = 0.5
CLIP = 20.0
SCALE = 10.0

# Colours of Okabe and Ito, told apart by colour-blind readers, each with a marker of its own.
_STYLE: dict[str, dict[str, Any]] = {
    "OLS": {"color": "#6b6b6b", "marker": "s"},
    "PrivateRidge": {"color": "#009E73", "marker": "D"},
    "L2 clipping": {"color": "#0072B2", "marker": "o"},
    "Algorithm 4": {"color": "#D55E00", "marker": "^"},
}


@dataclass(frozen=True)
class Fit:
    """One model.

    Attributes
    ----------
    name : str
    w : ndarray of shape (d,)
        Coefficients.
    path : ndarray of shape (steps, d)
        Released iterates; none for the model that has no steps.
    seconds : float
        How long the fit took.
    privacy : PrivacyReport or None
        None if nothing is promised.
    """

    name: str
    w: Array
    path: Array
    seconds: float
    privacy: PrivacyReport | None = None

    @property
    def promise(self) -> str:
        """What the model promises, in two words at most."""
        if self.privacy is None:
            return "not private"
        return "private" if self.privacy.private else "seeded"


@dataclass(frozen=True)
class Demonstration:
    """The data and the models fitted to it."""

    data: Dataset
    fits: tuple[Fit, ...]

    @property
    def total(self) -> PrivacyReport:
        """What all fits together spent: they saw the same rows, so their prices compose."""
        return PrivacyReport.combine(*(fit.privacy for fit in self.fits if fit.privacy is not None))


def warm_up() -> None:
    """Compile the kernels, or load them if an earlier run on this machine has; touches no data."""
    X = np.random.default_rng(0).standard_normal((2000, COLUMNS))
    algorithm4(Squared(), X, X[:, 0], epsilon=EPSILON, scale=SCALE, steps=1)
    PrivateRidge(epsilon=10.0).fit(X, X[:, 0])


def run(rows: int = 100_000, seed: int | None = None) -> Demonstration:
    """Make the data and fit the models.

    Parameters
    ----------
    rows : int
        Number of rows.
    seed : int, optional
        Makes data and noise repeatable, and the run therefore not private.
    """
    data = make_linear(rows, COLUMNS, seed=seed)
    # Seeds of their own, or the fits would share their noise.
    seeds = (None, None, None) if seed is None else (3 * seed, 3 * seed + 1, 3 * seed + 2)
    loss, X, y = Squared(), data.X, data.y
    plan: dict[str, Any] = {"epsilon": EPSILON, "steps": STEPS, "step_size": STEP_SIZE}
    return Demonstration(
        data,
        (
            _ols(data),
            _default(data, seeds[2]),
            _private("L2 clipping", lambda: clipped_gd(loss, X, y, clip=CLIP, random_state=seeds[0], **plan)),
            _private("Algorithm 4", lambda: algorithm4(loss, X, y, scale=SCALE, random_state=seeds[1], **plan)),
        ),
    )


def _ols(data: Dataset) -> Fit:
    start = time.perf_counter()
    w = np.asarray(np.linalg.lstsq(data.X, data.y)[0], dtype=np.float64)
    return Fit("OLS", w, np.empty((0, COLUMNS)), time.perf_counter() - start)


def _default(data: Dataset, seed: int | None) -> Fit:
    start = time.perf_counter()
    model = PrivateRidge(epsilon=EPSILON, random_state=seed).fit(data.X, data.y)
    return Fit("PrivateRidge", model.coef_, np.empty((0, COLUMNS)), time.perf_counter() - start, model.privacy_)


def _private(name: str, fit: Callable[[], Result]) -> Fit:
    start = time.perf_counter()
    result = fit()
    return Fit(name, result.w, result.path, time.perf_counter() - start, result.privacy)


def draw(demonstration: Demonstration, folder: Path) -> list[Path]:
    """Write the picture as PNG and SVG.

    Parameters
    ----------
    demonstration : Demonstration
        What `run` returned.
    folder : Path
        An existing folder.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    figure_class = import_optional("matplotlib.figure", "plot").Figure
    figure = figure_class(figsize=(10.0, 4.8), layout="constrained")
    panels = figure.subplot_mosaic([["path", "coefficients"], ["path", "errors"]], width_ratios=[1.0, 1.25])
    _draw_path(panels["path"], demonstration)
    _draw_coefficients(panels["coefficients"], panels["errors"], demonstration)
    for axes in panels.values():
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e3e3e3", linewidth=0.8)
        axes.set_axisbelow(True)
    figure.align_ylabels([panels["coefficients"], panels["errors"]])
    handles, labels = panels["coefficients"].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    data = demonstration.data
    figure.suptitle(
        f"Linear regression with log-normal noise, {len(data.X):,} rows, {len(data.w)} columns, "
        f"\N{GREEK SMALL LETTER EPSILON} = {EPSILON:g} for each private fit",
        fontsize=12,
    )
    files = [folder / f"demo.{kind}" for kind in ("png", "svg")]
    for file in files:
        figure.savefig(file, dpi=150)
    return files


def _label(fit: Fit) -> str:
    return f"{fit.name}, {fit.promise}"


def _draw_path(axes: Any, demonstration: Demonstration) -> None:
    """Excess risk after every released step; the model without steps is a level."""
    risk = demonstration.data.excess_risk
    for fit in demonstration.fits:
        style = _STYLE[fit.name]
        if len(fit.path):
            risks = [risk(w) for w in (np.zeros_like(fit.w), *fit.path)]
            axes.plot(range(len(risks)), risks, markersize=4.5, linewidth=1.5, **style)
        else:
            axes.axhline(risk(fit.w), color=style["color"], linestyle="--", linewidth=1.5)
            # On the left, where the descents are far above.
            place = {"xytext": (0, 4), "textcoords": "offset points", "color": style["color"]}
            axes.annotate(_label(fit), (0, risk(fit.w)), fontsize=9, **place)
    axes.set_yscale("log")
    axes.set_xlabel("step (each sees all rows)")
    axes.set_ylabel("excess risk  ½|w − w*|²  (squared units of y)")
    axes.set_title("error after every step", fontsize=10, loc="left")
    axes.xaxis.get_major_locator().set_params(integer=True)


def _draw_coefficients(values: Any, errors: Any, demonstration: Demonstration) -> None:
    """Coefficients beside the truth, and below them how far off they are."""
    truth = demonstration.data.w
    index = np.arange(1, len(truth) + 1)
    values.hlines(truth, index - 0.4, index + 0.4, color="black", linewidth=2.0, label="truth w*")
    errors.axhline(0.0, color="black", linewidth=2.0)
    offsets = np.linspace(-0.25, 0.25, len(demonstration.fits))
    for fit, offset in zip(demonstration.fits, offsets, strict=True):
        style = _STYLE[fit.name] | {"linestyle": "none", "markersize": 5.5}
        values.plot(index + offset, fit.w, label=_label(fit), **style)
        errors.plot(index + offset, fit.w - truth, **style)
        errors.vlines(index + offset, 0.0, fit.w - truth, color=style["color"], linewidth=1.0)
    for axes in (values, errors):
        axes.set_xticks(index)
        axes.set_xlim(0.4, len(truth) + 0.6)
        axes.tick_params(axis="x", length=0)
    values.tick_params(axis="x", labelbottom=False)
    values.set_ylabel("w")
    values.set_title("coefficients (units of y per unit of x)", fontsize=10, loc="left")
    errors.margins(y=0.12)
    errors.set_ylabel("w − w*")
    errors.set_title("their distance from the truth", fontsize=10, loc="left")
    errors.set_xlabel("coefficient")
