r"""One cell: draw the data, fit the method, measure the error.

=========================  ==========================================================================================
error                      how it is measured
=========================  ==========================================================================================
ridge, synthetic           excess population risk ``(w - w*)' E[x x'] (w - w*) / 2``, in closed form
logistic, synthetic        excess population risk ``E[softplus(<w, x>) - p(x) <w, x>]`` over its minimum, where
                           ``p(x) = P(y = 1 | x)`` is known in closed form; the expectation over x is the mean over a
                           fixed fresh sample, the same for all methods, epsilons and seeds, and its minimum is found by
                           Newton's method. With p in place of drawn labels the sample has no label noise.
Adult                      mean loss on the test rows
=========================  ==========================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from tailguard import algorithms, linear_model
from tailguard.constraints import L2Ball
from tailguard.datasets import load_adult, make_binary, make_linear
from tailguard.losses import Logistic, Loss, Squared
from tailguard.reproduce.specs import Cell, Source

Array = NDArray[np.float64]

# Seeds of the fresh sample and of the choice of Adult's rows, apart from those of the training data (0, 1, ...).
FRESH_SEED, SPLIT_SEED = 2**32, 2**33


@dataclass(frozen=True)
class Problem:
    """Rows to fit and the error to measure.

    Attributes
    ----------
    loss : Loss
    X, y : ndarray
        Rows for training.
    errors : callable
        Errors of a stack of coefficients, (k, d) -> (k,).
    model_error : callable
        Error of a fitted estimator.
    intercept : bool
        The last column of X is the constant; an estimator gets X without it and fits an intercept.
    """

    loss: Loss
    X: Array
    y: Array
    errors: Callable[[Array], Array]
    model_error: Callable[[Any], float]
    intercept: bool


def compute(cell: Cell, data: Path | None = None) -> tuple[NDArray[Any], Array]:
    """Run a cell.

    Parameters
    ----------
    cell : Cell
    data : Path, optional
        Where Adult is; see `tailguard.datasets.load_adult`.

    Returns
    -------
    iterations, errors : ndarray
        Number of steps taken and the error after them; one pair unless the cell keeps a trace.
    """
    problem = load_problem(cell.source, cell.seed, data)
    parameters: dict[str, Any] = dict(cell.parameters)
    if cell.algorithm == "exact":
        return np.array([0]), problem.errors(_exact(problem)[None])
    promise: dict[str, Any] = {"random_state": cell.noise_seed, "threads": 1, "allow_large_delta": True}
    if cell.epsilon is not None:
        promise |= {"epsilon": cell.epsilon, "delta": 1.0 / len(problem.X)}
    if cell.algorithm == "default":
        return np.array([0]), np.array([problem.model_error(_fit_default(cell.source, problem, parameters, promise))])
    radius = parameters.pop("radius", None)
    if radius is not None:
        parameters["constraint"] = L2Ball(radius)
    result = getattr(algorithms, cell.algorithm)(problem.loss, problem.X, problem.y, **parameters, **promise)
    if not cell.trace:
        return np.array([len(result.path)]), problem.errors(result.w[None])
    path = np.vstack([np.zeros(problem.X.shape[1]), result.path])
    if parameters.get("average") == "mean":
        path[1:] = np.cumsum(path[1:], axis=0) / np.arange(1, len(path))[:, None]
    return np.arange(len(path)), problem.errors(path)


def _fit_default(source: Source, problem: Problem, parameters: dict[str, Any], promise: dict[str, Any]) -> Any:
    """Fit the estimator of the model; it has no parameter but the promise and a penalty."""
    kind: Any = linear_model.PrivateRidge
    labels: dict[str, Any] = {}
    if source.model == "logistic":
        kind, labels = linear_model.PrivateLogisticRegression, {"classes": [-1.0, 1.0]}
    X = problem.X[:, :-1] if problem.intercept else problem.X
    penalty = {"alpha": parameters.get("alpha", 0.0)}
    return kind(fit_intercept=problem.intercept, **penalty, **labels, **promise).fit(X, problem.y)


def _exact(problem: Problem) -> Array:
    """Minimise the empirical risk; not private, not robust."""
    if isinstance(problem.loss, Squared):
        return np.asarray(np.linalg.lstsq(problem.X, problem.y)[0])
    return _minimise_logistic(problem.X, (problem.y > 0).astype(np.float64))


@lru_cache(maxsize=2)
def load_problem(source: Source, seed: int, data: Path | None = None) -> Problem:
    """Draw or load the rows of a seed.

    Parameters
    ----------
    source : Source
    seed : int
    data : Path, optional
        As in `compute`.
    """
    if source.data == "adult":
        return _adult(source, seed, data)
    return _linear(source, seed) if source.model == "ridge" else _binary(source, seed)


def _coefficients(source: Source, seed: int) -> Array:
    """A random direction of the given length."""
    w = np.random.default_rng([seed, source.d]).standard_normal(source.d)
    return np.asarray(source.length * w / np.linalg.norm(w))


def _linear(source: Source, seed: int) -> Problem:
    sample = make_linear(source.n, source.d, seed=seed, features=source.features, w=_coefficients(source, seed))

    def errors(w: Array) -> Array:
        offset = w - sample.w
        with np.errstate(over="ignore"):
            return np.asarray(np.einsum("ki,ij,kj->k", offset, sample.second_moment, offset) / 2.0)

    return Problem(Squared(), sample.X, sample.y, errors, lambda model: float(errors(model.coef_[None])[0]), False)


def _binary(source: Source, seed: int) -> Problem:
    w = _coefficients(source, seed)
    sample = make_binary(source.n, source.d, seed=seed, features=source.features, w=w)
    fresh = _fresh_rows(source)
    chance = positive_chance(fresh @ w)
    slope = fresh.T @ chance / len(fresh)

    def risks(w: Array) -> Array:
        return np.array([float(np.mean(_softplus(fresh @ one))) - float(slope @ one) for one in w])

    least = risks(_minimise_logistic(fresh, chance)[None])[0]

    def errors(w: Array) -> Array:
        return risks(w) - least

    return Problem(Logistic(), sample.X, sample.y, errors, lambda model: float(errors(model.coef_)[0]), False)


@lru_cache(maxsize=2)
def _fresh_rows_of(features: str, test: int, d: int) -> Array:
    kind: Any = features
    return make_binary(test, d, seed=FRESH_SEED, features=kind, w=np.zeros(d)).X


def _fresh_rows(source: Source) -> Array:
    return _fresh_rows_of(source.features, source.test, source.d)


def positive_chance(predictor: Array, mu: float = 0.2, sigma: float = 0.2) -> Array:
    """Chance that y is +1 given ``<w*, x>``: that a log-logistic D is below ``E[D] - <w*, x>``.

    Parameters
    ----------
    predictor : ndarray
        ``<w*, x>``.
    mu, sigma : float
        Of the log-logistic distribution, as in `tailguard.datasets.make_binary`.
    """
    below = math.exp(mu) * math.pi * sigma / math.sin(math.pi * sigma) - predictor
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0.0, expit((np.log(np.maximum(below, 0.0)) - mu) / sigma), 0.0)


def _softplus(z: Array) -> Array:
    """``log(1 + exp(z))`` without overflow."""
    return np.asarray(np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z))))


def _minimise_logistic(X: Array, chance: Array) -> Array:
    """Minimise ``mean(softplus(Xw) - chance Xw)`` by Newton's method; a ridge of 1e-9 for columns that are zero."""
    d = X.shape[1]
    w, slope = np.zeros(d), X.T @ chance / len(X)

    def risk(w: Array) -> float:
        return float(np.mean(_softplus(X @ w)) - slope @ w)

    value = risk(w)
    for _ in range(50):
        p = expit(X @ w)
        gradient = X.T @ p / len(X) - slope
        curvature = (X * (p * (1.0 - p))[:, None]).T @ X / len(X) + 1e-9 * np.eye(d)
        step, size = np.linalg.solve(curvature, gradient), 1.0
        while size > 1e-6 and risk(w - size * step) > value:
            size /= 2.0
        w, new = w - size * step, risk(w - size * step)
        if value - new < 1e-14:
            break
        value = new
    return w


def _adult(source: Source, seed: int, data: Path | None) -> Problem:
    table = adult_table(source.encoding, data)
    chosen = np.random.default_rng([SPLIT_SEED, seed]).permutation(len(table.y))[: source.n + source.test]
    X = np.column_stack([table.X, np.ones(len(table.X))])[chosen]
    y = table.y[chosen]
    loss: Loss = Squared() if source.model == "ridge" else Logistic()
    train, test = slice(None, source.n), slice(source.n, None)
    held, labels = np.ascontiguousarray(X[test]), y[test]

    def errors(w: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.array([float(np.mean(loss.value(held @ one, labels))) for one in w])

    def model_error(model: Any) -> float:
        predict = model.predict if source.model == "ridge" else model.decision_function
        return float(np.mean(loss.value(predict(held[:, :-1]), labels)))

    return Problem(loss, np.ascontiguousarray(X[train]), y[train], errors, model_error, True)


@lru_cache(maxsize=2)
def adult_table(encoding: str, data: Path | None) -> Any:
    """Return Adult encoded, once per process."""
    kind: Any = encoding
    return load_adult(data, encoding=kind)
