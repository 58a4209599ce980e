"""Methods by name: rows and parameters of an estimator to a named algorithm (`tailguard.algorithms`).

A parameter that a method would ignore is refused: who gives a clip expects it to be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tailguard.algorithms import algorithm1, algorithm3, algorithm4, clipped_gd, robust_gd
from tailguard.default import LinearModel
from tailguard.losses import Loss

Array = NDArray[np.float64]

_LOOP = ("constraint", "steps", "step_size")
# What each method takes beside the promise and what all of them share.
TAKES: dict[str, tuple[str, ...]] = {
    "auto": (),
    "clipped": ("clip", *_LOOP, "batch_size"),
    "smoothed": ("v", "scale", *_LOOP, "batch_size"),
    "trimmed": ("bounds", *_LOOP),
    "aggregate": ("constraint", "blocks"),
    "robust": ("v", "scale", *_LOOP, "batch_size"),
}
METHODS = tuple(TAKES)


def check_parameters(model: Any) -> None:
    """Refuse a parameter of another method, which would be ignored."""
    for name in dict.fromkeys(name for names in TAKES.values() for name in names):
        value = getattr(model, name)
        if value is not None and name not in TAKES[model.method]:
            refuse(name, value, model.method, [method for method, names in TAKES.items() if name in names])


def refuse(name: str, value: Any, method: str, takers: Sequence[str]) -> NoReturn:
    """Say that a method does not take a parameter, and which methods do."""
    raise TypeError(
        f"{name}={value!r} is not a parameter of method={method!r}: leave it out, or give the method that takes it, "
        f"{', '.join(map(repr, takers))}."
    )


def fit_method(model: Any, loss: Loss, X: NDArray[Any], y: Array) -> LinearModel:
    """Hand the rows to a named algorithm, with the parameters that the user gave and its defaults for the rest."""
    promise: dict[str, Any] = {"epsilon": model.epsilon, "delta": model.delta}
    common = {"alpha": model.alpha, "random_state": model.random_state, "threads": model.threads}
    common |= {"allow_large_delta": model.allow_large_delta}
    if model.method == "aggregate":
        return _fit_aggregate(model, loss, X, y, promise | common)
    common |= {"fit_intercept": bool(model.fit_intercept)}
    common |= _given(constraint=model.constraint, steps=model.steps, step_size=model.step_size)
    if model.method == "clipped":
        result = clipped_gd(
            loss,
            X,
            y,
            clip=_needed("clip", model.clip, model.method),
            batch_size=model.batch_size,
            **promise,
            **common,
        )
    elif model.method == "trimmed":
        bounds = _needed("bounds", model.bounds, model.method)
        if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
            raise TypeError(f"bounds must be a pair of numbers, for example (-10.0, 10.0); got {bounds!r}")
        a, b = bounds
        result = algorithm3(loss, X, y, a=a, b=b, **promise, **common)
    elif model.method == "smoothed":
        result = algorithm4(loss, X, y, v=model.v, scale=model.scale, batch_size=model.batch_size, **promise, **common)
    else:
        result = robust_gd(loss, X, y, v=model.v, scale=model.scale, batch_size=model.batch_size, **common)
    return _model_of(result, loss, model.fit_intercept)


def _fit_aggregate(model: Any, loss: Loss, X: NDArray[Any], y: Array, arguments: dict[str, Any]) -> LinearModel:
    """Algorithm 1; the intercept is one more coefficient, on a column of ones."""
    arguments |= {"constraint": _needed("constraint", model.constraint, model.method)}
    result = algorithm1(loss, X, y, blocks=model.blocks, fit_intercept=bool(model.fit_intercept), **arguments)
    return _model_of(result, loss, model.fit_intercept)


def _model_of(result: Any, loss: Loss, fit_intercept: bool) -> LinearModel:
    intercept = result.intercept if fit_intercept else np.zeros(loss.outputs) if loss.outputs > 1 else 0.0
    return LinearModel.plain(result.w, intercept, result.privacy)


def _given(**values: Any) -> dict[str, Any]:
    """Keep the arguments that the user gave."""
    return {name: value for name, value in values.items() if value is not None}


def _needed(name: str, value: Any, method: str) -> Any:
    if value is None:
        example = {"clip": "10.0", "bounds": "(-10.0, 10.0)", "constraint": "tailguard.constraints.L2Ball(10.0)"}[name]
        raise ValueError(
            f"{name}=None is not accepted by method={method!r}: give for example {name}={example}, "
            "chosen without looking at the data."
        )
    return value
