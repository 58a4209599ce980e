"""Two functions for everything: a private minimum of any convex loss, and a private mean.

Both only choose among the named algorithms: the parameters of a method are those of its function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from tailguard import algorithms
from tailguard._checks import as_numbers, count, instance_of, one_of, positive, within, yes_or_no
from tailguard.descent import Result
from tailguard.engines import Data, elsewhere, engine_for
from tailguard.engines.grouped import split
from tailguard.hints import Hints
from tailguard.losses import Loss
from tailguard.mean import MeanResult, MeanTable
from tailguard.means.gaussian import GaussianMean
from tailguard.privacy import Budget, Relation, noise_source
from tailguard.problem import RunOptions
from tailguard.sampling import FullBatch
from tailguard.truncation import CoordinateClip, L2Clip, Smoothed, Truncation

METHODS: dict[str, Callable[..., Result]] = {
    "clipped": algorithms.clipped_gd,
    "smoothed": algorithms.algorithm4,
    "trimmed": algorithms.algorithm3,
    "aggregate": algorithms.algorithm1,
    "robust": algorithms.robust_gd,
}


def minimize(
    loss: Loss,
    X: Data,
    y: ArrayLike | None = None,
    *,
    method: str,
    epsilon: float | Budget | None = None,
    delta: float | None = None,
    **parameters: Any,
) -> Result:
    """Minimise a convex loss privately.

    Parameters
    ----------
    loss : Loss
        See `tailguard.losses`; any convex loss can be written as `Custom` or `PerRow`.
    X : array_like of shape (n, d), `Source`, path, or table of Arrow
        Rows. Dask arrays and dataframes stay on their workers, CUDA tensors on their device.
    y : array_like of shape (n,) or str
        Targets or labels, or the name of their column in a source, table or file.
    method : {"clipped", "smoothed", "trimmed", "aggregate", "robust"}
        `clipped_gd`, `algorithm4`, `algorithm3`, `algorithm1` or the non-private `robust_gd` of `tailguard.algorithms`.
    epsilon : float or Budget
        The promise; not taken by "robust".
    delta : float, optional
        Default ``min(1e-6, n**-1.5)``.
    **parameters
        Those of the method's function, such as ``clip`` for "clipped" or ``v`` for "smoothed"; ``groups`` for all.

    Returns
    -------
    Result
        With ``w``, ``intercept``, ``path`` and ``privacy``.

    Examples
    --------
    >>> import numpy as np
    >>> import tailguard as tg
    >>> X, y = np.ones((1000, 1)), np.full(1000, 3.0)
    >>> result = tg.minimize(tg.losses.Squared(), X, y, method="clipped", epsilon=1.0, clip=5.0, step_size=0.5)
    >>> result.privacy.relation
    'replace-one'
    """
    function = METHODS[one_of("method", method, METHODS, algorithms.METHOD_OF)]
    if method == "robust":
        for name, value in (("epsilon", epsilon), ("delta", delta)):
            if value is not None:
                raise ValueError(
                    f"{name}={value!r} is not accepted by method='robust', which is not private: leave it out."
                )
        _check_parameters(method, function, parameters)
        return function(loss, X, y, **parameters)
    _check_parameters(method, function, parameters)
    return function(loss, X, y, epsilon=epsilon, delta=delta, **parameters)


def _check_parameters(method: str, function: Callable[..., Result], parameters: dict[str, Any]) -> None:
    """Say which parameters a method needs and takes, rather than leave it to Python."""
    signature = inspect.signature(function).parameters.values()
    named = [item for item in signature if item.kind is item.KEYWORD_ONLY and item.name not in ("epsilon", "delta")]
    takes = [item.name for item in named]
    if any(item.kind is item.VAR_KEYWORD for item in signature):
        takes += list(RunOptions.__annotations__)
    for name in parameters:
        if name not in takes:
            raise TypeError(f"{name} is not a parameter of method={method!r}, which takes {', '.join(takes)}.")
    for item in named:
        if item.default is item.empty and item.name not in parameters:
            raise TypeError(
                f"method={method!r} needs {item.name}, a public number; see tailguard.algorithms.{function.__name__}."
            )


_USED = {
    "auto": (),
    "smoothed": ("v", "scale"),
    "clipped": ("clip",),
    "clamped": ("clip",),
    "trimmed": ("bounds", "trim"),
}


def _check_unused(method: str, given: dict[str, Any]) -> None:
    """Refuse a parameter of another method, which would be ignored."""
    for name, value in given.items():
        if value is not None and name not in _USED[method]:
            takes = ", ".join(_USED[method]) or "no parameter but epsilon"
            raise TypeError(f"{name}={value!r} is not a parameter of method={method!r}, which takes {takes}.")


def _check_hints(hints: Hints, method: str, inference: bool) -> None:
    """Refuse hints that would not be used."""
    instance_of("hints", hints, Hints, "tailguard.Hints(ranges=[(0, 120)])")
    if method != "auto":
        raise ValueError(f"hints are not accepted by method={method!r}: give method='auto'.")
    if inference:
        raise ValueError("hints are not accepted with inference=True: intervals rest on nothing but the rows.")
    if hints.target_range is not None or hints.exchangeable:
        raise ValueError("a mean takes ranges, categories and moments: leave target_range and exchangeable out.")


def _names_of(x: Any) -> list[str] | None:
    """Names of the columns of a frame."""
    names = getattr(x, "columns", None)
    return None if names is None or isinstance(names, int) else [str(name) for name in names]


def _range(name: str, value: Any) -> tuple[float, float]:
    """Return a pair of increasing numbers."""
    try:
        low, high = value
        if within(name, low, -1e100, 1e100) < within(name, high, -1e100, 1e100):
            return float(low), float(high)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name}={value!r} is not accepted by method='trimmed': give (a, b) with a < b, the mean's range.")


def private_mean(
    x: Data,
    epsilon: float | Budget = 1.0,
    delta: float | None = None,
    *,
    method: str = "auto",
    v: float | None = None,
    failure: float = 0.01,
    scale: float | None = None,
    clip: float | None = None,
    bounds: tuple[float, float] | None = None,
    trim: int | None = None,
    groups: Any = None,
    inference: bool = False,
    hints: Hints | None = None,
    relation: Relation = "replace-one",
    allow_large_delta: bool = False,
    random_state: Any = None,
    threads: int | None = None,
) -> MeanResult:
    r"""Mean of a column, or of every column of a matrix, with differential privacy.

    Parameters
    ----------
    x : array_like of shape (n,) or (n, d), `Source`, path, or table of Arrow
        Any values. With "auto" NaN, infinite values and what is far beyond all others are left out; where epsilon times
        the number of rows is below 500 (2000 in a column far from 0) they count as 0, or as the middle of a column that
        is far from 0. Other methods take NaN for 0 and truncate infinite values. Dask arrays, dataframes and series
        stay on their workers, CUDA tensors on their device.
    epsilon, delta
        The promise; or a `Budget` as ``epsilon``.
    method : {"auto", "smoothed", "clipped", "clamped", "trimmed"}, default="auto"
        "auto" needs nothing but epsilon: scale and clip of every column are found privately. "smoothed": equation (14)
        of the paper, needs ``v`` or ``scale``. "clipped": rows clipped to L2 norm ``clip``. "clamped": every coordinate
        clamped to ``[-clip, clip]``. "trimmed": Algorithm 2, needs ``bounds``.
    v : float, optional
        Bound on the second moment of every column; for accuracy only.
    failure : float, default=0.01
        The paper's delta'.
    scale : float, optional
        Scale of the smoothed truncation, in the units of x.
    clip : float, optional
        For "clipped" and "clamped".
    bounds : (float, float), optional
        Public range of the mean, for "trimmed".
    trim : int, optional
        Values trimmed at each end; default 5 %.
    groups : array_like of shape (n,) or str, optional
        Whose row it is, or the name of that column of x: the guarantee is then for a person with all their rows, and
        the mean is that over persons of the average of their rows.
    inference : bool, default=False
        The same budget also buys a standard error and intervals of the mean, for "auto": ``result.stderr``,
        ``result.conf_int()`` and ``result.summary()``.
    relation : {"replace-one", "add-remove"}, default="replace-one"
        Which tables are neighbours; "trimmed" offers replace-one only.
    hints : Hints, optional
        Public ranges and moments of the columns, for "auto": a wrong one costs accuracy, never privacy. For yes and no
        ``ranges=[(0, 1)]``.
    allow_large_delta, random_state, threads
        As in `tailguard.problem.RunOptions`.

    Returns
    -------
    MeanResult
        With ``value``, a float for a column, ``privacy``, and a ``note`` where nothing was seen.

    Examples
    --------
    >>> import numpy as np
    >>> import tailguard as tg
    >>> income = np.random.default_rng(0).pareto(2.5, 10_000)
    >>> tg.private_mean(income, epsilon=1.0).privacy.epsilon <= 1.0
    True
    """
    one_of("method", method, ("auto", "smoothed", "clipped", "clamped", "trimmed"), algorithms.METHOD_OF)
    one_of("relation", relation, ("replace-one", "add-remove"))
    _check_unused(method, {"v": v, "scale": scale, "clip": clip, "bounds": bounds, "trim": trim})
    if yes_or_no("inference", inference) and method != "auto":
        raise ValueError(f"inference=True is not accepted by method={method!r}: give method='auto'.")
    if hints is not None:
        _check_hints(hints, method, inference)
    if groups is not None:
        x, groups = split(x, groups)  # hints are for the columns that are left
    if method == "trimmed":
        a, b = _range("bounds", bounds)
        if trim is not None and groups is None:
            n = (engine_for(x, target="none").n,) if elsewhere(x) else as_numbers("x", x).shape[:1]
            if n and 2 * count("trim", trim, least=0) >= n[0]:
                raise ValueError(f"trim={trim!r} is not accepted with {n[0]} rows: give less than half of them.")
        if relation != "replace-one":
            raise ValueError("relation='add-remove' is not accepted: give 'replace-one', as smooth sensitivity needs.")
        common: dict[str, Any] = {
            "groups": groups,
            "allow_large_delta": allow_large_delta,
            "random_state": random_state,
            "threads": threads,
        }
        return algorithms.algorithm2(x, epsilon=epsilon, delta=delta, a=a, b=b, m=trim, **common)
    noise = noise_source(random_state)
    table = MeanTable.of(x, epsilon, delta, allow_large_delta, threads, groups, noise)
    if method == "auto":
        if relation != "replace-one":
            raise ValueError("relation='add-remove' is not accepted by method='auto': give 'replace-one'; n is public.")
        from tailguard.default import default_mean  # the code of all fits, a sixth of the time of importing tailguard

        return default_mean(table, noise, inference, hints, _names_of(x))
    sampler = FullBatch(relation)
    multiplier = sampler.calibrate(table.budget, 1, table.coordinates)
    truncation: Truncation
    if method == "smoothed":
        truncation = algorithms.best_smoothing(table.n, table.coordinates, sampler, multiplier, v, failure, scale)
    else:
        if clip is None:
            raise ValueError(f"clip=None is not accepted by method={method!r}: give the largest size of a row, public.")
        truncation = L2Clip(positive("clip", clip)) if method == "clipped" else CoordinateClip(positive("clip", clip))
    facts: dict[str, Any] = {"truncation": repr(truncation)}
    if isinstance(truncation, Smoothed):
        facts |= {"v": v, "failure": failure}
    return table.release("private_mean", GaussianMean(truncation, multiplier), sampler, noise, facts)
