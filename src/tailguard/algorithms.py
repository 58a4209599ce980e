r"""The named algorithms, each a composition of parts over the one loop of `tailguard.descent`.

====================  =============================================  =============  ================
function              mean of the per-row gradients                  noise          rows of a step
====================  =============================================  =============  ================
`algorithm4`          every coordinate through psi_beta              Gaussian       all, or Poisson
`robust_gd`           the same                                       none           all, or Poisson
`algorithm3`          trimmed, every coordinate by `algorithm2`      arsinh-normal  all
`clipped_gd`          L2 clipping (DP-GD; DP-SGD with a batch)       Gaussian       all, or Poisson
====================  =============================================  =============  ================

All take ``(loss, X, y)`` and return a `tailguard.descent.Result`. Everything else is keyword-only and public:
choosing any of it by looking at the data voids the guarantee.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal, Unpack, cast

from numpy.typing import ArrayLike

from tailguard._checks import count, instance_of, one_of, positive, within
from tailguard.blocks import block_minimisers
from tailguard.constraints import Constraint
from tailguard.descent import Result, progress_bar
from tailguard.engines import Data
from tailguard.engines.grouped import for_unit
from tailguard.engines.threads import thread_count
from tailguard.ledger import charge
from tailguard.losses import Loss, PerRow
from tailguard.mean import MeanResult, MeanTable
from tailguard.means.block_median import block_median, median_parameters
from tailguard.means.centre import CentreParameters, centre_of_attention, centre_parameters, check_blocks
from tailguard.means.gaussian import GaussianMean
from tailguard.means.trimmed import TrimmedMean
from tailguard.privacy import (
    GRID_PRICE,
    ApproximateDP,
    Budget,
    Event,
    OverBudgetError,
    PrivacyReport,
    ZeroConcentrated,
    noise_source,
)
from tailguard.privacy.arsinh_normal import arsinh_parameters, printed_parameters
from tailguard.problem import Problem, RunOptions
from tailguard.sampling import FullBatch, Sampler
from tailguard.schedules import StepSize, schedule
from tailguard.truncation import L2Clip, Smoothed

# The name by which `method=` knows each of them.
METHOD_OF = {
    "clipped_gd": "clipped",
    "algorithm4": "smoothed",
    "algorithm3": "trimmed",
    "algorithm2": "trimmed",
    "algorithm1": "aggregate",
    "robust_gd": "robust",
}


def algorithm4(
    loss: Loss,
    X: Data,
    y: ArrayLike | None,
    *,
    epsilon: float | Budget,
    delta: float | None = None,
    v: float | None = None,
    failure: float = 0.01,
    steps: int = 20,
    step_size: StepSize = 0.5,
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
    step_size : float, "1/sqrt(t)" or callable, default=0.5
        Step of t = 1, 2, ...; 0.5 suits features of variance about one. The paper steps by 0.1.
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
    problem = Problem.of(loss, X, y, epsilon, delta, steps, batch_size, options)
    sampler, n = problem.sampler, problem.n
    multiplier = problem.calibrate()
    if setting == "improved":
        truncation = best_smoothing(n, problem.coordinates, sampler, multiplier, v, failure, scale, beta)
    else:
        truncation = paper_smoothing(sampler.divisor(n), v, failure, scale, beta)
        if batch_size is None and v is not None:
            multiplier = _printed_multiplier(problem, truncation, v, failure)
    facts = {"setting": setting, "v": v, "failure": failure, "scale": truncation.scale, "beta": truncation.beta}
    return problem.run("algorithm4", GaussianMean(truncation, multiplier), schedule(step_size), facts)


def robust_gd(
    loss: Loss,
    X: Data,
    y: ArrayLike | None,
    *,
    v: float | None = None,
    failure: float = 0.01,
    steps: int = 20,
    step_size: StepSize = 0.5,
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
    problem = Problem.of(loss, X, y, None, None, steps, batch_size, options, private=False)
    truncation = paper_smoothing(problem.sampler.divisor(problem.n), v, failure, scale, beta)
    facts = {"v": v, "failure": failure, "scale": truncation.scale, "beta": truncation.beta}
    return problem.run("robust_gd", GaussianMean(truncation, 0.0), schedule(step_size), facts)


def clipped_gd(
    loss: Loss,
    X: Data,
    y: ArrayLike | None,
    *,
    epsilon: float | Budget,
    delta: float | None = None,
    clip: float,
    steps: int = 20,
    step_size: StepSize = 0.5,
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
    problem = Problem.of(loss, X, y, epsilon, delta, steps, batch_size, options)
    mean = GaussianMean(truncation, problem.calibrate())
    return problem.run("clipped_gd", mean, schedule(step_size), {"clip": clip})


def algorithm3(
    loss: Loss,
    X: Data,
    y: ArrayLike | None,
    *,
    epsilon: float | Budget,
    delta: float | None = None,
    a: float,
    b: float,
    m: int | None = None,
    steps: int = 20,
    step_size: StepSize = 0.01,
    setting: Literal["improved", "paper", "printed"] = "improved",
    spread: float | None = None,
    **options: Unpack[RunOptions],
) -> Result:
    r"""Algorithm 3 of the paper: heavy-tailed private descent with a known range of the mean.

    Every coordinate of the gradient is a trimmed mean with smooth sensitivity (`algorithm2`). Suits gradients that are
    near symmetric: see `tailguard.means.trimmed` for the bias of trimming.

    Parameters
    ----------
    loss, X, y, epsilon, delta, steps, step_size, **options
        As in `algorithm4`; mini-batches are not offered, smooth sensitivity needs every row. The paper steps by 0.01.
    a, b : float
        Public range of the mean of every coordinate of the gradient, the paper's kappa = b - a.
    m : int, optional
        Values trimmed at each end; default 5 % of the rows, as in the paper.
    setting : {"improved", "paper", "printed"}, default="improved"
        "improved" certifies the quietest noise for the budget. "paper" takes the printed ``t = eps^2/16``, ``s =
        eps/4`` with a valid smooth bound: private, but thousands of times noisier. "printed" also takes the printed
        noise scale and is
        **not private**; for the paper's experiments only.
    spread : float, optional
        Public guess of the spread of the gradient's coordinates, for accuracy only; default ``b - a``.

    Returns
    -------
    Result
        With ``w``, ``path`` and ``privacy``.
    """
    one_of("setting", setting, ("improved", "paper", "printed"))
    problem = Problem.of(loss, X, y, epsilon, delta, steps, None, options)
    if problem.sampler.relation != "replace-one":
        raise ValueError("relation='add-remove' is not accepted: give 'replace-one', as smooth sensitivity needs.")
    mean = _trimmed_mean(problem.budget, problem.n, steps * problem.coordinates, a, b, m, setting, spread)
    facts = {"setting": setting, "a": mean.lower, "b": mean.upper, "m": mean.trim, "spread": spread}
    if mean.printed:
        problem = replace(problem, budget=None)
    return problem.run("algorithm3", mean, schedule(step_size), facts)


def algorithm2(
    x: Data,
    *,
    epsilon: float | Budget | None = None,
    delta: float | None = None,
    rho: float | None = None,
    a: float,
    b: float,
    m: int | None = None,
    setting: Literal["improved", "paper", "printed"] = "improved",
    spread: float | None = None,
    groups: Any = None,
    allow_large_delta: bool = False,
    random_state: Any = None,
    threads: int | None = None,
) -> MeanResult:
    """Algorithm 2 of the paper: the private trimmed mean of a column, or of every column of a matrix.

    Parameters
    ----------
    x : array_like of shape (n,) or (n, d)
        Any values.
    epsilon, delta
        The promise; or ``rho`` for zero-concentrated differential privacy.
    rho : float, optional
        In place of epsilon and delta.
    a, b, m, setting, spread, groups, allow_large_delta, random_state, threads
        As in `algorithm3`.

    Returns
    -------
    MeanResult
        With ``value`` and ``privacy``.
    """
    one_of("setting", setting, ("improved", "paper", "printed"))
    if rho is not None and epsilon is not None:
        raise ValueError(f"rho={rho!r} is not accepted beside epsilon={epsilon!r}: give one of them.")
    noise = noise_source(random_state)
    promised = epsilon if rho is None else Budget(rho=rho)
    table = MeanTable.of(x, promised, delta, allow_large_delta, threads, groups, noise)
    mean = _trimmed_mean(table.budget, table.n, table.coordinates, a, b, m, setting, spread)
    facts = {"setting": setting, "a": mean.lower, "b": mean.upper, "m": mean.trim, "spread": spread}
    return table.release("algorithm2", mean, FullBatch(), noise, facts)


def _trimmed_mean(
    budget: Budget | None,
    n: int,
    releases: int,
    a: float,
    b: float,
    m: int | None,
    setting: str,
    spread: float | None,
) -> TrimmedMean:
    """Spend an equal share of the budget on each of ``releases`` coordinates."""
    assert budget is not None
    if budget.rho / releases > 50.0:
        raise ValueError(f"epsilon is too large for this mechanism ({budget.describe()}): give at most about 80.")
    a = within("a", a, -1e100, 1e100)
    b = within("b", b, a, 1e100, open_low=True, hint="It is the upper end of the range of the mean.")
    m = n // 20 if m is None else count("m", m, least=0)
    if 2 * m >= n:
        raise ValueError(f"m={m} is not accepted with n = {n}: give m < n/2.")
    spread = b - a if spread is None else positive("spread", spread)
    if setting == "improved":
        parameters = arsinh_parameters(budget.rho * (1.0 - 1e-12) / releases, m, n - 2 * m, b - a, spread)
        return TrimmedMean(a, b, m, parameters)
    if budget.epsilon is None or budget.delta is None:
        raise ValueError(f"setting={setting!r} is not accepted with a budget in rho or mu: give epsilon and delta.")
    log_delta = 2.0 * math.log(1.0 / budget.delta)
    concentrated = math.sqrt(log_delta + 2.0 * budget.epsilon) - math.sqrt(log_delta)
    parameters = printed_parameters(concentrated / math.sqrt(releases))
    if parameters.t * m > 700.0:
        raise ValueError(
            f"m={m} is not accepted with setting={setting!r} at this epsilon: give m below {700 / parameters.t:.0f}."
        )
    return TrimmedMean(a, b, m, parameters, printed=setting == "printed")


def algorithm1(
    loss: Loss,
    X: Data,
    y: ArrayLike | None,
    *,
    epsilon: float | Budget,
    delta: float | None = None,
    blocks: int | None = None,
    constraint: Constraint,
    aggregator: Literal["median", "center"] = "median",
    alpha: float = 0.0,
    fit_intercept: bool = False,
    groups: Any = None,
    allow_large_delta: bool = False,
    progress: bool = False,
    random_state: Any = None,
    threads: int | None = None,
) -> Result:
    r"""Algorithm 1 of the paper: sample and aggregate.

    The rows are split into disjoint blocks at random, every block is solved exactly, and the answers are aggregated
    privately.

    Parameters
    ----------
    loss : Loss
        Any but `PerRow`, which has no value to minimise.
    X, y, epsilon, delta
        As in `algorithm4`.
    blocks : int, optional
        Number of disjoint blocks, the paper's m. Default: as many as leave ``10 d`` rows in each, at most 1000, but
        no fewer than the centre of attention needs.
    constraint : Constraint
        The bounded set W: its diameter is public and every block's answer is projected onto it.
    aggregator : {"median", "center"}, default="median"
        "median", recommended: an exponential-mechanism median of every coordinate over the smallest box around W.
        "center": the paper's centre of attention (Nissim, Raskhodnikova and Smith 2007), which needs many blocks and
        adds much noise.
    alpha : float, default=0
        L2 penalty of every block, on all coefficients.
    fit_intercept : bool, default=False
        Add an intercept, one more coefficient under the constraint, returned apart.
    groups, allow_large_delta, progress, random_state, threads
        As in `RunOptions`; all rows of a person go to one block.

    Returns
    -------
    Result
        ``path`` holds the one released vector.

    Raises
    ------
    TooFewBlocksError
        If the centre of attention cannot work; names the smallest number of blocks and of rows, and the largest d,
        that would.
    """
    one_of("aggregator", aggregator, ("median", "center"))
    constraint = instance_of("constraint", constraint, Constraint, "tailguard.constraints.L2Ball(10.0)")
    options: RunOptions = {"allow_large_delta": allow_large_delta, "random_state": random_state, "threads": threads}
    options |= {"fit_intercept": fit_intercept, "groups": groups}
    problem = Problem.of(loss, X, y, epsilon, delta, 1, None, options)
    if isinstance(loss, PerRow):
        raise ValueError(
            "loss=PerRow(...) is not accepted: the blocks are minimised exactly and need the loss's value."
        )
    n, p, budget = problem.n, problem.coordinates, problem.budget
    assert budget is not None
    alpha = within("alpha", alpha, 0.0, 1e100)
    constraint.check(p)
    if not math.isfinite(constraint.diameter(p)):
        raise ValueError(
            f"constraint={constraint!r} is not accepted: Algorithm 1 needs a bounded set, such as L2Ball(10.0)."
        )
    center, median = None, None
    event: Event
    if aggregator == "median":
        median = median_parameters(budget.rho, p)
        event = ZeroConcentrated(median.rho, label="median of the blocks")
    elif budget.epsilon is None or budget.delta is None:
        raise ValueError("aggregator='center' is not accepted with a budget in rho or mu: give epsilon and delta.")
    else:
        # A millionth, and the price of every draw, is set aside for noise on a grid; see `centre_of_attention`.
        spare = 2.0 * p * GRID_PRICE
        center = centre_parameters(budget.epsilon * (1.0 - 1e-6) - spare, budget.delta * (1.0 - 1e-6 - spare), p)
        event = ApproximateDP(budget.epsilon, budget.delta, label="centre of the blocks")
    (event,) = for_unit(problem.engine, (event,))
    if not budget.allows([event]):
        raise OverBudgetError(f"the plan costs more than the budget {budget.describe()}.")
    if blocks is None and center is not None and n < center.smallest_m:
        check_blocks(n, center, rows_per_block=1, unit=event.unit)
    if blocks is None:
        blocks = max(1, min(1000, n // (10 * (p // loss.outputs))), center.smallest_m if center else 1)
    blocks = count("blocks", blocks, least=1)
    if blocks > n:
        raise ValueError(f"blocks={blocks} is not accepted with {n} {event.unit}s: give at most one per {event.unit}.")
    if center is not None:
        check_blocks(blocks, center, rows_per_block=n // blocks, unit=event.unit)

    noise = noise_source(random_state)
    bill = charge((event,), rows=n, method="algorithm1", noise=noise)
    with progress_bar(progress, "blocks", blocks) as advance:
        answers = block_minimisers(
            loss,
            problem.engine,
            noise.at(0).permutation(n),
            blocks,
            constraint,
            alpha,
            fit_intercept,
            thread_count(threads),
            advance,
        )
    lo, hi = constraint.bounds(p)
    if median is not None:
        w = block_median(answers, lo, hi, median.eps0, noise.at(1))
    else:
        anchor, radius = constraint.enclosing_ball(p)
        w = centre_of_attention(answers, 2.0 * radius, cast(CentreParameters, center), noise.at(1), anchor=anchor)
    w = constraint.project(w).reshape(loss.outputs, -1)
    w = w[0] if loss.outputs == 1 else w
    facts = {"aggregator": aggregator, "blocks": blocks, "constraint": repr(constraint), "loss": repr(loss)}
    report = PrivacyReport.from_events(
        (event,),
        problem.delta,
        noise=noise,
        method="algorithm1",
        parameters=facts,
        n=n,
        budget=budget,
    )
    report = bill.settle(report)
    if not fit_intercept:
        return Result(w, None, w[None], report)
    intercept = w[..., -1] if w.ndim > 1 else float(w[-1])
    return Result(w[..., :-1], intercept, w[None, ..., :-1], report)


def paper_smoothing(rows: float, v: float | None, failure: float, scale: float | None, beta: float | None) -> Smoothed:
    """Return the printed truncation, the scale and beta of Algorithm 4 as printed, or what is given."""
    log_failure = _log_failure(failure)
    moment = _moment(v, scale)
    return Smoothed(
        math.sqrt(rows * moment / (2.0 * log_failure)) if scale is None else scale,
        log_failure if beta is None else beta,
    )


def best_smoothing(
    n: int,
    coordinates: int,
    sampler: Sampler,
    multiplier: float,
    v: float | None,
    failure: float,
    scale: float | None,
    beta: float | None = None,
) -> Smoothed:
    r"""Return the truncation whose bound on the bias, ``c v / s``, equals the privacy noise, ``kappa K s``.

    With K the noise of a mean of rows in [-1, 1], the sum of the two is least at ``s = sqrt(c v / (kappa K))``; and
    ``beta = sqrt(2 log 1/delta')`` is where the paper's error bound is least. What is given is taken.
    """
    beta = math.sqrt(2.0 * _log_failure(failure)) if beta is None else beta
    moment = _moment(v, scale)
    if scale is None:
        one = Smoothed(1.0, beta)
        noise = GaussianMean(one, multiplier).noise_sd(n, coordinates, sampler)
        scale = math.sqrt(one.bias_constant() * moment / noise)
    return Smoothed(scale, beta)


def _log_failure(failure: float) -> float:
    return math.log(1.0 / within("failure", failure, 1e-300, 0.9))


def _moment(v: float | None, scale: float | None) -> float:
    if v is None and scale is None:
        raise ValueError(
            "v=None is not accepted without a scale: give v, a bound on the second moment of the values (of a "
            "gradient: the variance of y times that of a feature), for example v=5.0; or scale, its root times a few."
        )
    return math.nan if v is None else positive("v", v)


def _printed_multiplier(problem: Problem, truncation: Smoothed, v: float, failure: float) -> float:
    r"""Return the printed noise, ``sigma^2 = 8 v d T / (9 log(1/delta') n eps~)``, over the sensitivity of the mean.

    ``eps~ = (sqrt(log 1/delta + epsilon) - sqrt(log 1/delta))^2``. The printed sigma belongs to the printed s; for
    another scale it grows in proportion.
    """
    budget = problem.budget
    assert budget is not None
    if budget.epsilon is None or budget.delta is None:
        raise ValueError("setting='paper' is not accepted with a budget in rho or mu: give epsilon and delta.")
    log_delta, log_failure = math.log(1.0 / budget.delta), _log_failure(failure)
    concentrated = (math.sqrt(log_delta + budget.epsilon) - math.sqrt(log_delta)) ** 2
    n, d, steps = problem.n, problem.coordinates, problem.steps
    sigma = math.sqrt(8.0 * v * d * steps / (9.0 * log_failure * n * concentrated))
    printed_scale = math.sqrt(n * v / (2.0 * log_failure))
    sigma *= truncation.scale / printed_scale
    return sigma / GaussianMean(truncation, 0.0).sensitivity(n, d, problem.sampler.sensitivity_relation)
