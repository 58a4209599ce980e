r"""The named algorithms, each a composition of parts over the one loop of `tailguard.descent`.

====================  ==========================================  ===========  ================
function              mean of the per-row gradients               noise        rows of a step
====================  ==========================================  ===========  ================
`algorithm4`          every coordinate through psi_beta           Gaussian     all, or Poisson
`robust_gd`           the same                                    none         all, or Poisson
`clipped_gd`          L2 clipping (DP-GD; DP-SGD with a batch)    Gaussian     all, or Poisson
====================  ==========================================  ===========  ================

All take ``(loss, X, y)`` and return a `tailguard.descent.Result`. Everything else is keyword-only and public:
choosing any of it by looking at the data voids the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from tailguard._checks import data_matrix, data_vector, instance_of, one_of, positive, real_number, whole_number
from tailguard.constraints import Constraint, Unconstrained
from tailguard.descent import Average, Callback, Mean, Plan, Result, State, descend
from tailguard.engines.memory import InMemory
from tailguard.losses import Loss, PerRow
from tailguard.means.gaussian import GaussianMean
from tailguard.privacy import Budget, Relation, check_delta, default_delta, exact_rate, noise_source
from tailguard.sampling import FullBatch, PoissonSample, Sampler
from tailguard.schedules import StepSize, schedule
from tailguard.truncation import L2Clip, Smoothed
from tailguard.truncation.smoothing import BETA_RANGE


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
    relation: Relation | None
    allow_large_delta: bool
    resume: State | None
    callback: Callback | None
    progress: bool
    random_state: Any
    threads: int | None


def algorithm4(
    loss: Loss,
    X: ArrayLike,
    y: ArrayLike,
    *,
    epsilon: float | Budget,
    delta: float | None = None,
    v: float | None = None,
    failure: float = 0.01,
    steps: int = 20,
    step_size: StepSize = 0.1,
    setting: Literal["improved", "paper"] = "improved",
    scale: float | None = None,
    beta: float | None = None,
    batch_size: float | None = None,
    **options: Unpack[RunOptions],
) -> Result:
    r"""Algorithm 4 of the paper: heavy-tailed private descent with a known second moment.

    Every coordinate of every per-row gradient goes through ``s psi_beta(. / s)``; the mean gets Gaussian noise.

    Parameters
    ----------
    loss : Loss
        See `tailguard.losses`.
    X : array_like of shape (n, d)
        Rows; float32 and float64 are not copied.
    y : array_like of shape (n,)
        Targets or labels.
    epsilon : float or Budget
        The promise; or a whole `Budget`, and then no delta.
    delta : float, optional
        Default ``min(1e-6, n**-1.5)``.
    v : float, optional
        Bound on the second moment of every coordinate of the gradient. It sets the scale and so the accuracy; the
        guarantee does not depend on its being true. Needed unless ``scale`` is given.
    failure : float, default=0.01
        The paper's delta', the probability that its error bound fails.
    steps : int, default=20
        T.
    step_size : float, "1/sqrt(t)" or callable, default=0.1
        Step of t = 1, 2, ...
    setting : {"improved", "paper"}, default="improved"
        "paper" takes ``s = sqrt(n v / (2 log 1/delta'))``, ``beta = log 1/delta'`` and the printed sigma, which is
        correct but 1.3 to 1.6 times what exact accounting asks for. "improved" calibrates exactly and takes the s
        that balances clipping bias against privacy noise, and ``beta = sqrt(2 log 1/delta')``, where the error bound
        is least.
    scale : float, optional
        The scale s, in the units of the gradient, in place of the rule.
    beta : float, optional
        The precision of the smoothing, in place of the rule.
    batch_size : float, optional
        Expected size of a Poisson mini-batch: stochastic Algorithm 4. Default all rows. The noise is then always
        calibrated by exact accounting; the paper does not state one.
    **options
        See `RunOptions`.

    Returns
    -------
    Result
        With ``w``, ``path`` and ``privacy``.
    """
    one_of("setting", setting, ("improved", "paper"))
    log_failure = math.log(1.0 / real_number("failure", failure, 1e-300, 0.9))
    problem = _Problem.of(loss, X, y, epsilon, delta, steps, batch_size, options)
    if v is None and scale is None:
        raise ValueError("v=None is not accepted without a scale: give v, a bound on the second moment, or scale.")
    moment = None if v is None else positive("v", v)
    rows = problem.sampler.divisor(problem.n)
    if beta is None:
        beta = log_failure if setting == "paper" else math.sqrt(2.0 * log_failure)
        beta = min(max(beta, BETA_RANGE[0]), BETA_RANGE[1])
    multiplier = problem.calibrate()
    if scale is None:
        assert moment is not None
        if setting == "paper":
            scale = math.sqrt(rows * moment / (2.0 * log_failure))
        else:
            scale = _best_scale(problem, moment, beta, multiplier)
    truncation = Smoothed(scale, beta)
    if setting == "paper" and batch_size is None and moment is not None:
        multiplier = _printed_multiplier(problem, truncation, moment, log_failure)
    mean = GaussianMean(truncation, multiplier)
    facts = {"setting": setting, "v": v, "failure": failure, "scale": scale, "beta": beta}
    return problem.run("algorithm4", mean, schedule(step_size), facts)


def robust_gd(
    loss: Loss,
    X: ArrayLike,
    y: ArrayLike,
    *,
    v: float | None = None,
    failure: float = 0.01,
    steps: int = 20,
    step_size: StepSize = 0.1,
    scale: float | None = None,
    beta: float | None = None,
    batch_size: float | None = None,
    **options: Unpack[RunOptions],
) -> Result:
    """Robust gradient descent of Holland (2019), the paper's baseline: Algorithm 4 without noise, **not private**.

    Parameters
    ----------
    loss, X, y, v, failure, steps, step_size, scale, beta, batch_size, **options
        As in `algorithm4`; ``s = sqrt(n v / (2 log 1/delta'))`` and ``beta = log 1/delta'`` unless given.

    Returns
    -------
    Result
        Its report says that nothing is promised.
    """
    log_failure = math.log(1.0 / real_number("failure", failure, 1e-300, 0.9))
    problem = _Problem.of(loss, X, y, None, None, steps, batch_size, options)
    if scale is None:
        if v is None:
            raise ValueError("v=None is not accepted without a scale: give v, a bound on the second moment, or scale.")
        scale = math.sqrt(problem.sampler.divisor(problem.n) * positive("v", v) / (2.0 * log_failure))
    if beta is None:
        beta = min(max(log_failure, BETA_RANGE[0]), BETA_RANGE[1])
    facts = {"v": v, "failure": failure, "scale": scale, "beta": beta}
    return problem.run("robust_gd", GaussianMean(Smoothed(scale, beta), 0.0), schedule(step_size), facts)


def clipped_gd(
    loss: Loss,
    X: ArrayLike,
    y: ArrayLike,
    *,
    epsilon: float | Budget,
    delta: float | None = None,
    clip: float,
    steps: int = 20,
    step_size: StepSize = 0.1,
    batch_size: float | None = None,
    **options: Unpack[RunOptions],
) -> Result:
    """DP-GD, and DP-SGD with a batch size: per-row gradients clipped in L2 norm, Gaussian noise.

    Parameters
    ----------
    loss, X, y, epsilon, delta, steps, step_size, batch_size, **options
        As in `algorithm4`.
    clip : float
        Largest L2 norm of one row's gradient; public.

    Returns
    -------
    Result
        With ``w``, ``path`` and ``privacy``.
    """
    truncation = L2Clip(clip)
    problem = _Problem.of(loss, X, y, epsilon, delta, steps, batch_size, options)
    mean = GaussianMean(truncation, problem.calibrate())
    return problem.run("clipped_gd", mean, schedule(step_size), {"clip": clip})


@dataclass(frozen=True)
class _Problem:
    """Checked arguments that all algorithms share."""

    loss: Loss
    engine: InMemory
    budget: Budget | None
    delta: float
    sampler: Sampler
    steps: int
    coordinates: int
    options: RunOptions

    @property
    def n(self) -> int:
        return self.engine.n

    @staticmethod
    def of(
        loss: Loss,
        X: ArrayLike,
        y: ArrayLike,
        epsilon: float | Budget | None,
        delta: float | None,
        steps: int,
        batch_size: float | None,
        options: RunOptions,
    ) -> _Problem:
        unknown = sorted(set(options) - set(RunOptions.__annotations__))
        if unknown:
            raise TypeError(f"unknown argument {unknown[0]!r}: options are {', '.join(RunOptions.__annotations__)}.")
        instance_of("loss", loss, Loss, "tailguard.losses.Squared()")
        instance_of(
            "constraint", options.get("constraint", Unconstrained()), Constraint, "tailguard.constraints.L2Ball(1.0)"
        )
        X = data_matrix("X", X)
        y = data_vector("y", y, len(X))
        budget, delta = promise(epsilon, delta, len(X), options.get("allow_large_delta", False))
        steps = whole_number("steps", steps)
        outputs, start = loss.outputs, options.get("start")
        per_output = X.shape[1] + bool(options.get("fit_intercept", False))
        coordinates = np.size(start) if isinstance(loss, PerRow) and start is not None else outputs * per_output
        sampler = _sampler(batch_size, len(X), options.get("relation"))
        engine = InMemory(X, y, options.get("threads"))
        return _Problem(loss, engine, budget, delta, sampler, steps, int(coordinates), options)

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


def promise(
    epsilon: float | Budget | None, delta: float | None, n: int, allow_large_delta: bool
) -> tuple[Budget | None, float]:
    """Return the budget that the arguments mean and the delta at which it is reported."""
    if isinstance(epsilon, Budget):
        if delta is not None:
            raise ValueError(f"delta={delta!r} is not accepted beside a Budget: put it into the Budget.")
        if epsilon.delta is not None:
            check_delta(epsilon.delta, n, allow_large_delta)
        return epsilon, default_delta(n) if epsilon.delta is None else epsilon.delta
    delta = default_delta(n) if delta is None else check_delta(delta, n, allow_large_delta)
    return (None if epsilon is None else Budget(epsilon, delta)), delta


def _sampler(batch_size: float | None, n: int, relation: Relation | None) -> Sampler:
    """Full batch, or a Poisson sample of the given expected size."""
    if relation is not None:
        one_of("relation", relation, ("replace-one", "add-remove"))
    if batch_size is None:
        return FullBatch(relation or "replace-one")
    size = real_number(
        "batch_size", batch_size, 0.0, n, open_low=True, hint="It is the expected size of a Poisson sample."
    )
    return PoissonSample(exact_rate(size / n), relation or "add-remove")


def _best_scale(problem: _Problem, v: float, beta: float, multiplier: float) -> float:
    r"""Return the scale at which the bound on the bias, ``c v / s``, equals the privacy noise, ``kappa K s``.

    With K the noise of a mean of rows in [-1, 1], the sum of the two is least at ``s = sqrt(c v / (kappa K))``.
    """
    one = Smoothed(1.0, beta)
    noise = GaussianMean(one, multiplier).noise_sd(problem.n, problem.coordinates, problem.sampler)
    return math.sqrt(one.bias_constant() * v / noise)


def _printed_multiplier(problem: _Problem, truncation: Smoothed, v: float, log_failure: float) -> float:
    r"""Return the printed noise, ``sigma^2 = 8 v d T / (9 log(1/delta') n eps~)``, over the sensitivity of the mean.

    ``eps~ = (sqrt(log 1/delta + epsilon) - sqrt(log 1/delta))^2``. The printed sigma belongs to the printed s; for
    another scale it grows in proportion.
    """
    budget = problem.budget
    assert budget is not None
    if budget.epsilon is None or budget.delta is None:
        raise ValueError("setting='paper' is not accepted with a budget in rho or mu: give epsilon and delta.")
    log_delta = math.log(1.0 / budget.delta)
    concentrated = (math.sqrt(log_delta + budget.epsilon) - math.sqrt(log_delta)) ** 2
    n, d, steps = problem.n, problem.coordinates, problem.steps
    sigma = math.sqrt(8.0 * v * d * steps / (9.0 * log_failure * n * concentrated))
    printed_scale = math.sqrt(n * v / (2.0 * log_failure))
    sigma *= truncation.scale / printed_scale
    return sigma / GaussianMean(truncation, 0.0).sensitivity(n, d, problem.sampler.sensitivity_relation)
