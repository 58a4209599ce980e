r"""THE loop: projected gradient descent over an interchangeable private mean.

    w_t = project_W( w_{t-1} - eta_t (private mean of the per-row gradients at w_{t-1} + alpha w_{t-1}) ),   t = 1 .. T

Everything in the paper that descends is this loop with a `Plan`: a loss, a mean (what bounds a row and what noise
hides it), a sampler (which rows a step sees), and public numbers. A plan prices itself before it touches data
(`Plan.events`), and `descend` refuses to run one that costs more than its budget.

Only what a mean has released enters an iterate, so iterates, their average, projections, penalties, step sizes,
callbacks and stopping are post-processing and cost nothing. A run is priced for all T steps whether or not a
callback stops it: a price that depended on where a released iterate made it stop would not be a guarantee. So a run
that was stopped can be resumed from its `State` and costs nothing more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailguard._checks import count, exactly, json_object, one_of, within
from tailguard.constraints import Constraint, Unconstrained
from tailguard.engines import Engine
from tailguard.engines.grouped import for_unit
from tailguard.engines.vectors import Gradients
from tailguard.ledger import charge
from tailguard.losses import Loss, PerRow
from tailguard.mean import Mean
from tailguard.privacy import Budget, Event, NoiseSource, NotPrivate, OverBudgetError, PrivacyReport
from tailguard.privacy.events import Unit, common_unit
from tailguard.sampling import FullBatch, Sampler

Array = NDArray[np.float64]
Average = Literal["last", "mean"]
SEEDED_BEFORE = "seeded: an earlier part of the run drew its noise from a source that is not private"


@dataclass(frozen=True)
class Plan:
    """Everything public about a run: what is minimised, how a step is made private, how many steps.

    Parameters
    ----------
    loss : Loss
    mean : Mean
        The private mean of the per-row gradients.
    steps : int
        T; all of them are accounted for.
    step_size : callable
        Step size of step t = 1, 2, ...
    sampler : Sampler
        Rows of a step.
    constraint : Constraint
        Where the coefficients live; an intercept is free.
    alpha : float
        L2 penalty ``alpha/2 |w|^2``, added after the release; an intercept is not penalised.
    average : {"last", "mean"}
        Return the last iterate or the mean of w_1 .. w_T.
    fit_intercept : bool
    """

    loss: Loss
    mean: Mean
    steps: int
    step_size: Callable[[int], float]
    sampler: Sampler = field(default_factory=FullBatch)
    constraint: Constraint = field(default_factory=Unconstrained)
    alpha: float = 0.0
    average: Average = "last"
    fit_intercept: bool = False

    def __post_init__(self) -> None:
        count("steps", self.steps)
        within("alpha", self.alpha, 0.0, 1e100)
        one_of("average", self.average, ("last", "mean"))

    def events(self, coordinates: int) -> tuple[Event, ...]:
        """What all steps of the plan spend with so many coefficients."""
        return self.mean.events(self.sampler, self.steps, coordinates, "gradient steps")

    def events_from(self, done: int, coordinates: int) -> tuple[Event, ...]:
        """What the steps after the first ``done`` spend: a ledger cannot know that a state is continued only once."""
        left = self.steps - done
        return self.mean.events(self.sampler, left, coordinates, "gradient steps") if left else ()

    def digest(self, n: int, shape: tuple[int, ...], unit: Unit = "row") -> str:
        """Fingerprint of the public plan, to match a saved state with the run it belongs to."""
        text = f"{_describe(self)} {n} {shape}" + ("" if unit == "row" else f" {unit}")
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class State:
    """A released state of a run: enough to go on from, and safe to save or publish.

    Go on from it once. Two continuations of one state are two releases of the remaining steps: the second must be
    paid for like a run of its own, by adding both reports.

    Attributes
    ----------
    step : int
        Steps taken.
    w : ndarray
        Iterate after that step, (outputs, d + fit_intercept), the intercept last.
    total : ndarray
        Sum of the iterates so far.
    plan : str
        Fingerprint of the plan.
    private : bool
        Whether all noise so far was unpredictable; a state that does not say is not private.
    """

    step: int
    w: Array
    total: Array
    plan: str
    private: bool = False

    def to_json(self) -> str:
        """Write as JSON; floats keep every bit."""
        data = {"step": self.step, "w": self.w.tolist(), "total": self.total.tolist(), "plan": self.plan}
        return json.dumps(data | {"private": self.private})

    @staticmethod
    def from_json(text: str) -> State:
        """Read what `to_json` wrote; a state that does not say that it is private is not."""
        data = exactly("state", {"private": False} | json_object("state", text), {item.name for item in fields(State)})
        w, total = _matrix("w", data["w"]), _matrix("total", data["total"])
        if w.shape != total.shape:
            raise ValueError(f"state must have w and total of one shape; got {w.shape} and {total.shape}")
        return State(count("step", data["step"], least=0), w, total, str(data["plan"]), data["private"] is True)


def _matrix(name: str, rows: Any) -> Array:
    """A matrix of finite numbers from JSON."""
    try:
        found = np.array(rows)
    except ValueError:
        found = np.array(None)
    if found.ndim != 2 or found.dtype.kind not in "fi" or not np.all(np.isfinite(found)):
        raise ValueError(f"state must have finite numbers in {name}, rows of equal length")
    return found.astype(np.float64)


@dataclass(frozen=True)
class Result:
    """What a run releases.

    Attributes
    ----------
    w : ndarray
        Coefficients, (d,) or (outputs, d), in the units of the data.
    intercept : float, ndarray or None
        None if no intercept was asked for.
    path : ndarray
        Coefficients after each step, (steps, ...); a released quantity.
    privacy : PrivacyReport
        What was spent.
    state : State or None
        Pass it as ``resume=`` to go on from here without paying twice.
    """

    w: Array
    intercept: Any
    path: Array = field(repr=False)
    privacy: PrivacyReport = field(repr=False)
    state: State | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        intercept = "" if self.intercept is None else f", intercept={self.intercept!r}"
        return f"Result(w={self.w!r}{intercept})\n{self.privacy.guarantee}"


def _describe(part: Any) -> str:
    """What a part of a plan is, the same in another process: functions by name and code, not by address."""
    if is_dataclass(part) and not isinstance(part, type):
        inner = ", ".join(f"{item.name}={_describe(getattr(part, item.name))}" for item in fields(part))
        return f"{type(part).__qualname__}({inner})"
    if isinstance(part, np.ndarray):
        return f"array({part.shape}, {part.dtype}, {hashlib.sha256(part.tobytes()).hexdigest()[:16]})"
    code = getattr(part, "__code__", None)
    if code is not None:
        body = hashlib.sha256(code.co_code + repr(code.co_names).encode()).hexdigest()[:16]
        constants = [value for value in code.co_consts if not hasattr(value, "co_code")]
        cells = [_describe(cell.cell_contents) for cell in part.__closure__ or ()]
        return f"{part.__module__}.{part.__qualname__}:{body}:{constants!r}:{cells}:{part.__defaults__!r}"
    return repr(part)


Callback = Callable[[State], Any]


def descend(
    plan: Plan,
    engine: Engine,
    noise: NoiseSource,
    budget: Budget | None,
    delta: float,
    *,
    method: str,
    parameters: dict[str, Any],
    start: ArrayLike | None = None,
    resume: State | None = None,
    callback: Callback | None = None,
    progress: bool = False,
) -> Result:
    """Run a plan.

    Parameters
    ----------
    plan : Plan
    engine : Engine
        The data.
    noise : NoiseSource
    budget : Budget or None
        The promise; None only for plans that are not private.
    delta : float
        At which the report states epsilon.
    method, parameters
        For the report.
    start : array_like, optional
        First iterate, public; default zero. With an intercept it has the intercept last.
    resume : State, optional
        Go on from a saved state of the same plan.
    callback : callable, optional
        Called with the `State` after each step; a true answer stops the run.
    progress : bool
        Show a progress bar.

    Raises
    ------
    OverBudgetError
        If the plan costs more than the budget; before any data is read.
    """
    shape = _coefficient_shape(plan, engine, start)
    size = shape[0] * shape[1]
    plan.constraint.check(size - shape[0] * plan.fit_intercept)
    events = for_unit(engine, plan.events(size))
    if budget is not None and not budget.allows(events, plan.sampler.relation):
        raise OverBudgetError(
            f"the plan costs more than the budget {budget.describe()}: give more noise or fewer steps."
        )
    if budget is None and not any(isinstance(event, NotPrivate) for event in events):
        raise OverBudgetError("a private plan needs a budget: give epsilon.")

    digest = plan.digest(engine.n, shape, common_unit(events))
    state = (
        _first_state(plan, shape, start, digest)
        if resume is None
        else _checked_state(resume, digest, shape, plan.steps)
    )
    left = for_unit(engine, plan.events_from(state.step, size))
    bill = charge(left, rows=engine.n, method=method, noise=noise)
    path = []
    with progress_bar(progress, "private steps", plan.steps, state.step) as advance:
        while state.step < plan.steps:
            state = _step(plan, engine, noise.at(state.step + 1), state)
            path.append(state.w)
            advance()
            if callback is not None and callback(state):
                break

    report = PrivacyReport.from_events(
        events,
        delta,
        noise=noise,
        reasons=() if state.private or not noise.private else (SEEDED_BEFORE,),
        method=method,
        parameters=parameters,
        n=engine.n,
        relation=plan.sampler.relation,
        budget=budget,
    )
    final = state.w if plan.average == "last" or state.step == 0 else state.total / state.step
    iterates = np.array(path).reshape(len(path), *shape)
    w, intercept = _split(final, plan.fit_intercept)
    return Result(w, intercept, _split(iterates, plan.fit_intercept)[0], bill.settle(report), state)


def _step(plan: Plan, engine: Engine, noise: NoiseSource, state: State) -> State:
    """One step from a released state to the next."""
    t, w = state.step + 1, state.w
    size = within(f"step_size({t})", plan.step_size(t), -1e308, 1e308)  # before anything is released
    gradient = plan.mean.release(engine, Gradients(plan.loss, w, plan.fit_intercept), plan.sampler, noise)
    penalised = w.copy()
    if plan.fit_intercept:
        penalised[:, -1] = 0.0
    with np.errstate(over="ignore"):  # what runs away is cut by the projection
        w = _project(plan, w - size * (gradient + plan.alpha * penalised))
    return State(t, w, state.total + w, state.plan, state.private and noise.private)


def _project(plan: Plan, w: Array) -> Array:
    """Project the coefficients, all outputs as one vector; the intercept is free. Overflow stays finite."""
    w = np.clip(w, -1e150, 1e150)
    coefficients = w[:, :-1] if plan.fit_intercept else w
    projected = plan.constraint.project(coefficients.ravel()).reshape(coefficients.shape)
    return np.hstack([projected, w[:, -1:]]) if plan.fit_intercept else projected


def _coefficient_shape(plan: Plan, engine: Engine, start: ArrayLike | None) -> tuple[int, int]:
    """(outputs, d + fit_intercept); a per-row gradient takes its dimension from ``start`` if there is one."""
    if isinstance(plan.loss, PerRow):
        if plan.fit_intercept:
            raise ValueError(
                "fit_intercept=True is not accepted with PerRow, whose function owns every coefficient: leave it out."
            )
        return 1, engine.columns if start is None else int(np.size(start))
    return plan.loss.outputs, engine.columns + plan.fit_intercept


def _first_state(plan: Plan, shape: tuple[int, int], start: ArrayLike | None, digest: str) -> State:
    if start is None:
        w = np.zeros(shape)
    else:
        try:
            w = np.array(start, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"start must be an array of {shape[0] * shape[1]} numbers; got {start!r}") from None
        if w.size != shape[0] * shape[1] or not np.all(np.isfinite(w)):
            raise ValueError(f"start has shape {w.shape}: give {shape[0] * shape[1]} finite numbers, {shape}.")
        w = w.reshape(shape)
    return State(0, _project(plan, w), np.zeros(shape), digest, private=True)


def _checked_state(state: State, digest: str, shape: tuple[int, int], steps: int) -> State:
    if not isinstance(state, State):
        raise TypeError(f"resume={state!r} is not accepted: give the state of an earlier result, result.state.")
    if state.plan != digest or state.w.shape != shape:
        raise ValueError(
            "resume belongs to another run: give the same loss, parameters, epsilon and data size as before "
            "(a state may only be continued by its own plan, or its price would be wrong)."
        )
    if not (np.all(np.isfinite(state.w)) and np.all(np.isfinite(state.total))):
        raise ValueError("resume holds numbers that are not finite: give the state as it was released.")
    if not 0 <= state.step <= steps:
        raise ValueError(f"resume.step={state.step!r} is not accepted: give a state of 0 to {steps} steps.")
    return state


def _split(w: Array, fit_intercept: bool) -> tuple[Array, Any]:
    """Separate coefficients and intercepts; a single output loses its axis."""
    if w.shape[-2] == 1:
        w = w[..., 0, :]
    if not fit_intercept:
        return w, None
    intercept = w[..., -1]
    return w[..., :-1], intercept if np.ndim(intercept) else float(intercept)


@contextmanager
def progress_bar(show: bool, what: str, total: int, done: int = 0) -> Iterator[Callable[[], None]]:
    """Yield a function that advances a progress bar, or does nothing."""
    if not show:
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda: bar.advance(task)
