r"""The experiments as data: what is drawn, from which cells.

A `Figure` has panels, a `Panel` has points on its x axis (a `Source` of data each), methods and one epsilon. A `Cell`
is one method on one source with one seed; `Figure.cells` lists them, and a cell that two figures share is computed
once, because a cell is named by what it computes (`Cell.name`).

=========  ==============================================================================  ==========
figure     what                                                                            x axis
=========  ==============================================================================  ==========
1 a-d      synthetic data: ridge at epsilon 1 and 0.5, logistic at epsilon 1 and 0.5       iteration
2 a-d      the same on Adult, empirical risk on the test rows                              iteration
3 a-d      stochastic Algorithm 4 and RGD: ridge and logistic at epsilon 0.5 and 0.1       d
4 a-d      the same                                                                        n
5 a-d      the rates of theorems 5, 7 and 8, each with the step and T of its theorem       n and d
6 a-c      how much the choices matter about which the paper is silent                     choice
=========  ==============================================================================  ==========

Figures 5 and 6 are not in the paper; the table of claims needs them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Model = Literal["ridge", "logistic"]
Scalar = float | int | str | bool
MODELS: tuple[Model, Model] = ("ridge", "logistic")

# Raised when the same cell would give other numbers, so that results of older code are not taken for new ones.
SCHEMA = 1

# The paper's numbers: v, delta', trimmed share, batch and step sizes.
V, FAILURE = 5.0, 0.01
KAPPAS = (2.0, 10.0, 50.0)


@dataclass(frozen=True)
class Source:
    """Where rows come from.

    Attributes
    ----------
    model : {"ridge", "logistic"}
        Which loss is minimised, and for synthetic data which model makes the targets.
    data : {"synthetic", "adult"}
    n, d : int
        Rows for training and columns; for Adult d follows from the encoding.
    test : int
        Rows on which the error is measured: the fixed fresh sample, or the test rows of Adult.
    features : {"normal", "t3", "lognormal"}
        Distribution of a coordinate of x.
    length : float
        Length of w*, whose direction is random.
    encoding : {"compact", "onehot"}
        How the attributes of Adult become columns.
    """

    model: Model
    data: Literal["synthetic", "adult"] = "synthetic"
    n: int = 100_000
    d: int = 10
    test: int = 100_000
    features: Literal["normal", "t3", "lognormal"] = "normal"
    length: float = 1.0
    encoding: Literal["compact", "onehot"] = "compact"


@dataclass(frozen=True)
class Method:
    """One line of a figure.

    Attributes
    ----------
    key : str
        Short name, unique in a panel.
    label : str
        For the legend.
    algorithm : str
        A function of `tailguard.algorithms`, or "default" (the estimators) or "exact" (no privacy, no robustness).
    family : {"paper", "ours"}
        Line set.
    private : bool
        Whether the method promises anything at all (a seeded run never does).
    parameters : tuple of (name, value)
        Arguments of the function.
    """

    key: str
    label: str
    algorithm: str
    family: Literal["paper", "ours"]
    private: bool = True
    parameters: tuple[tuple[str, Scalar], ...] = ()

    def with_parameters(self, **parameters: Scalar) -> Method:
        """Return the same line with other arguments."""
        return replace(self, parameters=tuple(sorted((dict(self.parameters) | parameters).items())))


@dataclass(frozen=True)
class Cell:
    """One method, one source, one seed.

    Attributes
    ----------
    algorithm, parameters
        As in `Method`.
    source : Source
    epsilon : float or None
        None for methods without a promise, which do not depend on it.
    seed : int
        Of the data; the noise has a seed of its own, made from the name.
    trace : bool
        Keep the error after every step, not only the last.
    """

    algorithm: str
    parameters: tuple[tuple[str, Scalar], ...]
    source: Source
    epsilon: float | None
    seed: int
    trace: bool

    def name(self, salt: str = "") -> str:
        """Fingerprint of everything that decides the result; ``salt`` adds versions and the data's own."""
        return _digest({"schema": SCHEMA, "salt": salt, **dataclasses.asdict(self)})

    @property
    def noise_seed(self) -> int:
        """Seed of the noise: differs between cells, depends on nothing but the cell."""
        return int(self.name()[:8], 16)

    @property
    def cost(self) -> float:
        """Rough seconds, for the time left and nothing else."""
        parameters, source = dict(self.parameters), self.source
        steps = float(parameters.get("steps", 20))
        size = source.n * source.d / 1e6
        evaluated = (steps if self.trace else 1.0) * source.test / 1e6 * (source.model == "logistic")
        if self.algorithm == "algorithm3":
            return 0.03 + 0.011 * size * steps + 0.012 * evaluated
        if self.algorithm == "default":
            return 0.05 + 0.2 * size
        if "batch_size" in parameters:
            return 0.2 + 0.012 * evaluated
        return 0.03 + 0.0015 * size * steps + 0.012 * evaluated


@dataclass(frozen=True)
class Point:
    """A place on the x axis of a panel.

    Attributes
    ----------
    x : float
        Position; for figures against iteration it is unused.
    source : Source
    methods : tuple of Method
        Lines at this point; a method may take other arguments at another point.
    label : str
        Name of the place where it is not a number.
    """

    x: float
    source: Source
    methods: tuple[Method, ...]
    label: str = ""


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    key : str
        Such as "1a".
    title : str
    epsilon : float
    points : tuple of Point
        One for figures against iteration.
    x : {"iteration", "n", "d", "choice"}
    error : str
        Label of the y axis.
    """

    key: str
    title: str
    epsilon: float
    points: tuple[Point, ...]
    x: Literal["iteration", "n", "d", "choice"]
    error: str

    @property
    def methods(self) -> tuple[Method, ...]:
        """Lines of the panel, in the order of the legend."""
        seen = {method.key: method for point in self.points for method in point.methods}
        return tuple(seen.values())


@dataclass(frozen=True)
class Figure:
    """A figure: panels and the number of seeds.

    Attributes
    ----------
    key : str
        "1" to "6".
    title, caption : str
    panels : tuple of Panel
    seeds : int
        Seeds 0, 1, ... of data and noise.
    """

    key: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    seeds: int

    def entries(self) -> Iterator[tuple[Panel, Point, Method, int, Cell]]:
        """Every place of the figure with the cell that fills it."""
        for seed in range(self.seeds):
            for panel in self.panels:
                for point in panel.points:
                    for method in point.methods:
                        yield panel, point, method, seed, self._cell(panel, point, method, seed)

    def _cell(self, panel: Panel, point: Point, method: Method, seed: int) -> Cell:
        epsilon = panel.epsilon if method.algorithm not in ("robust_gd", "exact") else None
        trace = panel.x == "iteration"
        return Cell(method.algorithm, method.parameters, point.source, epsilon, seed, trace)

    def to_json(self) -> str:
        """Write the whole spec as JSON."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @property
    def digest(self) -> str:
        """Fingerprint of the spec."""
        return _digest(dataclasses.asdict(self))

    def with_panels(self, panels: tuple[Panel, ...]) -> Figure:
        """Return the figure with some of its panels."""
        return replace(self, panels=panels)

    def without_adult(self) -> Figure:
        """Return the figure without the panels that need the Adult table."""
        return self.with_panels(tuple(p for p in self.panels if p.points[0].source.data != "adult"))


def _digest(value: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Size:
    """How large a run is; everything that is not named here is the same in all sizes.

    Attributes
    ----------
    seeds, wide_seeds, rate_seeds, choice_seeds : int
        Seeds of figures 1 and 2, of 3 and 4, of 5, and of 6.
    n, test : int
        Rows of synthetic data, and of the fresh sample on which logistic risk is measured.
    adult, adult_test : int
        Rows of Adult for training and for the test.
    steps : int
        T of figures 1 to 4.
    batch : int
        Expected rows of a mini-batch.
    kappas : tuple of float
        Values of kappa = b - a.
    dimensions, rows : tuple of int
        Of figure 3 and 5, and of figures 4 and 5.
    """

    seeds: int
    wide_seeds: int
    rate_seeds: int
    choice_seeds: int
    n: int = 100_000
    test: int = 100_000
    adult: int = 28_000
    adult_test: int = 2_000
    steps: int = 100
    batch: int = 1_000
    kappas: tuple[float, ...] = KAPPAS
    dimensions: tuple[int, ...] = (10, 20, 30, 40, 50)
    rows: tuple[int, ...] = (20_000, 40_000, 60_000, 80_000, 100_000)
    widest: int = field(default=20)

    def with_seeds(self, seeds: int) -> Size:
        """Return the same size with another number of seeds everywhere."""
        return replace(self, seeds=seeds, wide_seeds=seeds, rate_seeds=seeds, choice_seeds=seeds)


FULL = Size(seeds=20, wide_seeds=12, rate_seeds=12, choice_seeds=12)
# A part of the full run, so that its cells are not computed again: fewer seeds, kappas and places.
QUICK = Size(
    seeds=3,
    wide_seeds=2,
    rate_seeds=2,
    choice_seeds=2,
    kappas=(KAPPAS[0], KAPPAS[-1]),
    dimensions=(10, 30, 50),
    rows=(20_000, 60_000, 100_000),
)
TINY = Size(
    seeds=2,
    wide_seeds=2,
    rate_seeds=2,
    choice_seeds=2,
    n=2_000,
    test=1_000,
    adult=280,
    adult_test=20,
    steps=4,
    batch=100,
    kappas=(2.0, 50.0),
    dimensions=(3, 6),
    rows=(1_000, 2_000),
    widest=4,
)
SIZES = {"full": FULL, "quick": QUICK, "tiny": TINY}

RIDGE_ERROR = "excess risk  ½|w − w*|²  (squared units of y)"
LOGISTIC_ERROR = "excess logistic risk  (nats)"
ADULT_ERROR = {"ridge": "test risk  ½(z − y)²,  y = ±1", "logistic": "test logistic risk  (nats)"}


def figures(size: Size = FULL) -> tuple[Figure, ...]:
    """Return the specs of all figures at a size."""
    return (
        _against_iteration("1", size),
        _against_iteration("2", size),
        _scaling("3", size),
        _scaling("4", size),
        _rates(size),
        _choices(size),
    )


def _paper_methods(steps: int, batch: int, kappas: tuple[float, ...]) -> tuple[Method, ...]:
    """Lines of the paper's figures 1 and 2, with Algorithm 3 as printed and in its sound form."""
    lines = []
    for setting, words in (("printed", "as printed, NOT PRIVATE"), ("improved", "sound form")):
        for kappa in kappas:
            lines.append(
                Method(
                    f"alg3-{setting}-{kappa:g}",
                    f"Algorithm 3, {words}, κ = {kappa:g}",
                    "algorithm3",
                    "paper",
                    private=setting != "printed",
                ).with_parameters(a=-kappa / 2, b=kappa / 2, setting=setting, steps=steps, step_size=0.01)
            )
    return (*lines, *_smoothed(steps), *_stochastic(steps, batch))


def _smoothed(steps: int) -> tuple[Method, Method]:
    """Algorithm 4 and its baseline without noise."""
    shared: dict[str, Scalar] = {"v": V, "failure": FAILURE, "steps": steps, "step_size": 0.1}
    return (
        Method("alg4", "Algorithm 4", "algorithm4", "paper").with_parameters(setting="paper", **shared),
        Method("rgd", "RGD, no privacy", "robust_gd", "paper", private=False).with_parameters(**shared),
    )


def _stochastic(steps: int, batch: int) -> tuple[Method, Method]:
    """Both with mini-batches, steps 1/sqrt(t) and the mean of the iterates."""
    shared: dict[str, Scalar] = {
        "v": V,
        "failure": FAILURE,
        "steps": steps,
        "step_size": "1/sqrt(t)",
        "batch_size": batch,
        "average": "mean",
    }
    return (
        Method("alg4-stochastic", "stochastic Algorithm 4", "algorithm4", "paper").with_parameters(
            setting="paper", **shared
        ),
        Method("rgd-stochastic", "stochastic RGD, no privacy", "robust_gd", "paper", private=False).with_parameters(
            **shared
        ),
    )


# Public constants of the second line set, per model and data: scale of psi, L2 clip, step. They flatter these lines:
# the ridge ones are the demonstration's, tuned with the truth known, the logistic ones the best of a few on one table.
_CONSTANTS: dict[tuple[str, str], tuple[float, float, float]] = {
    ("synthetic", "ridge"): (10.0, 20.0, 0.5),
    ("synthetic", "logistic"): (1.0, 3.0, 4.0),
    ("adult", "ridge"): (2.0, 4.0, 0.2),
    ("adult", "logistic"): (1.0, 3.0, 0.8),
}


def _our_methods(source: Source) -> tuple[Method, ...]:
    """The second line set: sound and improved algorithms at a public scale, and the default estimator."""
    scale, clip, step = _CONSTANTS[source.data, source.model]
    return (
        Method("alg4-improved", "Algorithm 4 improved, public scale", "algorithm4", "ours").with_parameters(
            scale=scale, steps=20, step_size=step, setting="improved"
        ),
        Method("clipped", "L2 clipping (DP-GD), public clip", "clipped_gd", "ours").with_parameters(
            clip=clip, steps=20, step_size=step
        ),
        Method("default", "default estimator, asks for nothing", "default", "ours"),
        Method(
            "exact",
            "empirical minimiser, no privacy",
            "exact",
            "ours",
            private=False,
        ),
    )


def _grid(*values: Any) -> tuple[tuple[Model, Any], ...]:
    """Both models with every value."""
    return tuple((model, value) for model in MODELS for value in values)


def _against_iteration(key: str, size: Size) -> Figure:
    adult = key == "2"
    panels = []
    for letter, (model, epsilon) in zip("abcd", _grid(1.0, 0.5), strict=True):
        if adult:
            source = Source(model, "adult", n=size.adult, d=15, test=size.adult_test)
            error = ADULT_ERROR[model]
        else:
            source = Source(model, n=size.n, test=size.test)
            error = RIDGE_ERROR if model == "ridge" else LOGISTIC_ERROR
        methods = _paper_methods(size.steps, size.batch, size.kappas) + _our_methods(source)
        panels.append(
            Panel(
                key + letter, f"{model}, ε = {epsilon:g}", epsilon, (Point(0.0, source, methods),), "iteration", error
            )
        )
    if adult:
        title = f"Adult, {size.adult:,} rows for training, {size.adult_test:,} for the test"
        caption = (
            "Empirical risk on the test rows against iteration; a and b ridge regression on the labels ±1, c and d "
            "logistic regression."
        )
    else:
        title = f"Synthetic data, n = {size.n:,}, d = 10"
        caption = (
            "Excess population risk against iteration; a and b ridge regression with log-normal noise, c and d "
            "logistic regression with log-logistic noise."
        )
    return Figure(key, title, caption, tuple(panels), size.seeds)


def _scaling(key: str, size: Size) -> Figure:
    """Figures 3 (against d) and 4 (against n)."""
    panels = []
    for letter, (model, epsilon) in zip("abcd", _grid(0.5, 0.1), strict=True):
        points = []
        for x in size.dimensions if key == "3" else size.rows:
            n, d = (size.n, x) if key == "3" else (x, size.widest)
            source = Source(model, n=n, d=d, test=size.test)
            stochastic = _stochastic(size.steps, size.batch)
            methods = (*stochastic, _smoothed(size.steps)[1], *_our_methods(source))
            points.append(Point(float(x), source, methods))
        error = RIDGE_ERROR if model == "ridge" else LOGISTIC_ERROR
        axis: Literal["d", "n"] = "d" if key == "3" else "n"
        panels.append(Panel(key + letter, f"{model}, ε = {epsilon:g}", epsilon, tuple(points), axis, error))
    if key == "3":
        title, caption = f"Error against the dimension, n = {size.n:,}", "Final excess population risk against d."
    else:
        title, caption = (
            f"Error against the number of rows, d = {size.widest}",
            "Final excess population risk against n.",
        )
    return Figure(key, title, caption, tuple(panels), size.wide_seeds)


def theorem_steps(theorem: int, n: int, d: int, epsilon: float) -> int:
    """Return T as the theorem sets it, with constant 1 in place of O(.).

    Theorems 5 and 7: ``(beta/alpha) log n`` with beta/alpha = 1, the condition number of the synthetic ridge task.
    Theorem 8: ``(|w0 - w*| sqrt(n eps~) / d)^(2/3)``, with |w0 - w*| = 4, about the length of the minimiser, and
    ``eps~ = (sqrt(log 1/delta + epsilon) - sqrt(log 1/delta))^2``, delta = 1/n.
    """
    if theorem in (5, 7):
        return math.ceil(math.log(n))
    log_delta = math.log(n)
    concentrated = (math.sqrt(log_delta + epsilon) - math.sqrt(log_delta)) ** 2
    return max(2, math.ceil((4.0 * math.sqrt(n * concentrated) / d) ** (2.0 / 3.0)))


def _rates(size: Size) -> Figure:
    """Every theorem with the step and the T it asks for, at epsilon = 1."""
    panels = []
    epsilon = 1.0
    for letter, (model, axis) in zip("abcd", _grid("n", "d"), strict=True):
        points = []
        for x in size.rows if axis == "n" else size.dimensions:
            n, d = (x, size.dimensions[0]) if axis == "n" else (size.n, x)
            source = Source(model, n=n, d=d, test=size.test)
            points.append(Point(float(x), source, _theorem_methods(source, epsilon)))
        error = RIDGE_ERROR if model == "ridge" else LOGISTIC_ERROR
        fixed = f"d = {size.dimensions[0]}" if axis == "n" else f"n = {size.n:,}"
        panels.append(Panel(f"5{letter}", f"{model}, ε = {epsilon:g}, {fixed}", epsilon, tuple(points), axis, error))
    caption = (
        "Not in the paper: each algorithm with the step and the number of steps of its theorem; a and b ridge "
        "(theorems 5 and 7), c and d logistic (theorem 8). Dashed: the slope of the bound, its printed logarithms "
        "included."
    )
    return Figure("5", "Rates of theorems 5, 7 and 8", caption, tuple(panels), size.rate_seeds)


def _theorem_methods(source: Source, epsilon: float) -> tuple[Method, ...]:
    """Lines of figure 5 at one n and d; the step is 1/beta: 1 for ridge, 4 for the logistic loss."""
    n, d = source.n, source.d
    smoothed: dict[str, Scalar] = {"v": V, "failure": FAILURE}
    if source.model == "ridge":
        steps, step = theorem_steps(7, n, d, epsilon), 1.0
        trimmed: dict[str, Scalar] = {"a": -1.0, "b": 1.0, "steps": steps, "step_size": step}
        return (
            Method("theorem5", "Algorithm 3, sound form (theorem 5)", "algorithm3", "paper").with_parameters(
                setting="improved", **trimmed
            ),
            Method(
                "theorem5-printed", "Algorithm 3, as printed, NOT PRIVATE", "algorithm3", "paper", private=False
            ).with_parameters(setting="printed", **trimmed),
            Method("theorem7", "Algorithm 4 (theorems 7 and 8)", "algorithm4", "paper").with_parameters(
                setting="paper", steps=steps, step_size=step, **smoothed
            ),
            Method("theorem7-improved", "Algorithm 4 improved, same v and T", "algorithm4", "ours").with_parameters(
                setting="improved", steps=steps, step_size=step, **smoothed
            ),
            *_our_methods(source)[2:3],
        )
    steps, step = theorem_steps(8, n, d, epsilon), 4.0
    return (
        Method("theorem8", "Algorithm 4 (theorems 7 and 8)", "algorithm4", "paper").with_parameters(
            setting="paper", steps=steps, step_size=step, **smoothed
        ),
        Method("theorem8-improved", "Algorithm 4 improved, same v and T", "algorithm4", "ours").with_parameters(
            setting="improved", steps=steps, step_size=step, **smoothed
        ),
        *_our_methods(source)[2:3],
    )


def _choices(size: Size) -> Figure:
    """What the paper does not say: one alternative to each choice, everything else as in figures 1 and 2."""
    panels = []
    epsilon = 1.0
    for letter, model in zip("ab", MODELS, strict=True):
        base = Source(model, n=size.n, test=size.test)
        variants: list[tuple[str, Source, dict[str, Scalar]]] = [
            (f"as chosen: T = {size.steps}, x normal,\n|w*| = 1, no penalty, no W", base, {}),
            (f"T = {size.steps // 2}", base, {"steps": size.steps // 2}),
            (f"T = {size.steps * 2}", base, {"steps": size.steps * 2}),
            ("x Student t, 3 d.f.", replace(base, features="t3"), {}),
            ("|w*| = √10", replace(base, length=math.sqrt(10.0)), {}),
            ("penalty α = 0.01", base, {"alpha": 0.01}),
            ("W a ball of radius 2", base, {"radius": 2.0}),
        ]
        error = RIDGE_ERROR if model == "ridge" else LOGISTIC_ERROR
        panels.append(
            _choice_panel(f"6{letter}", f"{model}, synthetic, ε = {epsilon:g}", epsilon, variants, error, size)
        )
    adult = Source("logistic", "adult", n=size.adult, d=15, test=size.adult_test)
    variants = [
        ("as chosen: 14 attributes,\none column each", adult, {}),
        ("one column per category", replace(adult, encoding="onehot", d=109), {}),
        (f"T = {size.steps // 2}", adult, {"steps": size.steps // 2}),
        ("penalty α = 0.01", adult, {"alpha": 0.01}),
    ]
    panels.append(
        _choice_panel("6c", f"logistic, Adult, ε = {epsilon:g}", epsilon, variants, ADULT_ERROR["logistic"], size)
    )
    caption = "Not in the paper: final error with one choice changed at a time; what the paper leaves open."
    return Figure("6", "Choices that the paper leaves open", caption, tuple(panels), size.choice_seeds)


def _choice_panel(
    key: str, title: str, epsilon: float, variants: list[tuple[str, Source, dict[str, Scalar]]], error: str, size: Size
) -> Panel:
    points = []
    for place, (label, source, changes) in enumerate(variants):
        smoothed, rgd = _smoothed(size.steps)
        lines = (smoothed, _stochastic(size.steps, size.batch)[0], rgd)
        methods = tuple(method.with_parameters(**changes) for method in lines)
        default = _our_methods(source)[2]
        if "alpha" in changes:
            default = default.with_parameters(alpha=changes["alpha"])
        points.append(Point(float(place), source, (*methods, default), label))
    return Panel(key, title, epsilon, tuple(points), "choice", error)
