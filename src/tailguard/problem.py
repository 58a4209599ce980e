"""What the named algorithms share: their options, the checks of their arguments, and the way into the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from tailguard._checks import count, instance_of, one_of, within
from tailguard.constraints import Constraint, Unconstrained
from tailguard.descent import Average, Callback, Plan, Result, State, descend
from tailguard.engines import Data, Engine, engine_for
from tailguard.engines.grouped import grouped, in_words, split
from tailguard.losses import Loss, PerRow
from tailguard.mean import Mean, promise
from tailguard.means.gaussian import GaussianMean
from tailguard.privacy import Budget, Relation, default_delta, exact_rate, noise_source
from tailguard.sampling import FullBatch, PoissonSample, Sampler


class RunOptions(TypedDict, total=False):
    """Keyword arguments that every descending algorithm takes.

    Parameters
    ----------
    constraint : Constraint, default=Unconstrained()
        Set the coefficients are projected onto; an intercept is free.
    alpha : float, default=0
        L2 penalty ``alpha/2 |w|^2``; the intercept is not penalised.
    fit_intercept : bool, default=False
        Add an intercept, returned apart.
    average : {"last", "mean"}, default="last"
        Return the last iterate, or the mean of all.
    start : array_like, optional
        First iterate, public; default zero.
    groups : array_like of shape (n,) or str, optional
        Whose row it is, or the name of that column: the guarantee is then for a person with all their rows, and
        everything that is said of rows holds for persons, each with the average of their rows' gradients.
    relation : {"replace-one", "add-remove"}, optional
        Which tables are neighbours. Default replace-one for full batches and add-remove for Poisson batches, whose
        amplification is proved for that; asking for replace-one there costs about twice the noise.
    allow_large_delta : bool, default=False
        Accept ``delta >= 1/n``, with which a mechanism may publish a row at random.
    resume : State, optional
        Go on from ``result.state`` of an earlier run of the same plan without paying twice.
    callback : callable, optional
        Called with the released `State` after each step; a true answer stops.
    progress : bool, default=False
        Show a progress bar.
    random_state : None, int or numpy generator, default=None
        None draws from the operating system's generator. Anything else is for experiments: the report then says that
        the run is not private.
    threads : int, optional
        Threads for the kernels; default all cores. The result does not depend on it.
    """

    constraint: Constraint
    alpha: float
    fit_intercept: bool
    average: Average
    start: ArrayLike | None
    groups: Any
    relation: Relation | None
    allow_large_delta: bool
    resume: State | None
    callback: Callback | None
    progress: bool
    random_state: Any
    threads: int | None


@dataclass(frozen=True)
class Problem:
    """Checked arguments that all algorithms share."""

    loss: Loss
    engine: Engine
    budget: Budget | None
    delta: float
    sampler: Sampler
    steps: int
    coordinates: int
    options: RunOptions

    @property
    def n(self) -> int:
        """Public number of rows, or of persons."""
        return self.engine.n

    @staticmethod
    def of(
        loss: Loss,
        X: Data,
        y: Any,
        epsilon: float | Budget | None,
        delta: float | None,
        steps: int,
        batch_size: float | None,
        options: RunOptions,
        private: bool = True,
    ) -> Problem:
        """Check everything that can be checked without looking at values."""
        unknown = sorted(set(options) - set(RunOptions.__annotations__))
        if unknown:
            raise TypeError(f"unknown argument {unknown[0]!r}: options are {', '.join(RunOptions.__annotations__)}.")
        instance_of("loss", loss, Loss, "tailguard.losses.Squared()")
        instance_of(
            "constraint", options.get("constraint", Unconstrained()), Constraint, "tailguard.constraints.L2Ball(1.0)"
        )
        groups = options.get("groups")
        if groups is not None:
            X, groups = split(X, groups, y)
        with in_words(groups):
            engine = engine_for(X, y, options.get("threads"))
        if groups is not None:
            engine = grouped(engine, groups, noise_source(options.get("random_state")))
        budget = None
        if private:
            budget, delta = promise(epsilon, delta, engine.n, options.get("allow_large_delta", False))
        else:
            delta = default_delta(engine.n)
        _check_options(options)
        steps = count("steps", steps)
        outputs, start = loss.outputs, options.get("start")
        per_output = engine.columns + bool(options.get("fit_intercept", False))
        coordinates = np.size(start) if isinstance(loss, PerRow) and start is not None else outputs * per_output
        sampler = _sampler(batch_size, engine.n, options.get("relation"))
        return Problem(loss, engine, budget, delta, sampler, steps, int(coordinates), options)

    def calibrate(self) -> float:
        """Smallest noise multiplier that keeps the budget."""
        assert self.budget is not None
        return self.sampler.calibrate(self.budget, self.steps, self.steps * self.coordinates)

    def run(self, method: str, mean: Mean, step_size: Callable[[int], float], facts: dict[str, Any]) -> Result:
        """Compose the plan and run it."""
        options = self.options
        plan = Plan(
            self.loss,
            mean,
            self.steps,
            step_size,
            self.sampler,
            options.get("constraint", Unconstrained()),
            options.get("alpha", 0.0),
            options.get("average", "last"),
            bool(options.get("fit_intercept", False)),
        )
        facts = facts | {"steps": self.steps, "loss": repr(self.loss), "sampler": repr(self.sampler)}
        if isinstance(mean, GaussianMean):
            facts["noise_sd"] = mean.noise_sd(self.n, self.coordinates, self.sampler)
        return descend(
            plan,
            self.engine,
            noise_source(options.get("random_state")),
            self.budget,
            self.delta,
            method=method,
            parameters=facts,
            start=options.get("start"),
            resume=options.get("resume"),
            callback=options.get("callback"),
            progress=bool(options.get("progress", False)),
        )


def _check_options(options: RunOptions) -> None:
    """Refuse options of the wrong kind before anything is released."""
    for name in ("fit_intercept", "progress", "allow_large_delta"):
        value = options.get(name, False)
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{name} must be True or False; got {value!r}")
    callback = options.get("callback")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function of the released state, or None; got {callback!r}")


def _sampler(batch_size: float | None, n: int, relation: Relation | None) -> Sampler:
    """Full batch, or a Poisson sample of the given expected size."""
    if relation is not None:
        one_of("relation", relation, ("replace-one", "add-remove"))
    if batch_size is None:
        return FullBatch(relation or "replace-one")
    size = within("batch_size", batch_size, 0.0, n, open_low=True, hint="It is the expected size of a Poisson sample.")
    return PoissonSample(exact_rate(size / n), relation or "add-remove")
