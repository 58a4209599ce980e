"""Subjects: how what is audited is run.

A subject answers one question, "your outputs of so many independent runs on this table, with this noise". What it
returns is everything that an adversary sees, as numbers.

* `Mechanism` wraps a function ``f(X, rng)``, or ``f(X, y, rng)`` for tables with targets.
* `Estimator` wraps an object with ``fit`` in the manner of scikit-learn: its numeric fitted attributes are the output.
* Anything with a method ``outputs(table, noise, runs)`` is a subject as it is.

`load` finds one by import path, ``module:factory`` or ``file.py:factory``; a factory may take ``epsilon`` and
``delta``.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tailguard.auditing.neighbours import Table
from tailguard.privacy import NoiseSource

Array = NDArray[np.float64]

# Fitted attributes that are public: shapes and the labels that the user gave.
_PUBLIC = {"n_features_in_", "feature_names_in_", "classes_", "n_iter_"}


@runtime_checkable
class Subject(Protocol):
    """What an auditor asks."""

    def outputs(self, table: Table, noise: NoiseSource, runs: int) -> Array:
        """Return everything released in ``runs`` independent runs, (runs, k), with all randomness from ``noise``."""


@dataclass(frozen=True)
class Mechanism:
    """A randomised function of a table.

    Parameters
    ----------
    function : callable
        ``function(X, rng)``, or ``function(X, y, rng)`` where the table has targets, with a numpy Generator; returns a
        number or an array.
    """

    function: Callable[..., Any]

    def outputs(self, table: Table, noise: NoiseSource, runs: int) -> Array:
        """Call the function once per run, with a generator of its own."""
        data = (table.X,) if table.y is None else (table.X, table.y)
        found = [self.function(*data, np.random.default_rng(_seed(noise, run))) for run in range(runs)]
        return np.array([np.ravel(np.asarray(value, dtype=np.float64)) for value in found])


@dataclass(frozen=True)
class Estimator:
    """An object with ``fit(X, y)``, copied for every run.

    Parameters
    ----------
    estimator : object
        If it has a ``random_state``, each run sets it from the auditor's seed, if there is one; else it brings its own
        randomness.
    attributes : sequence of str, optional
        What is released; default all numeric attributes whose names end in "_", but shapes and labels.
    """

    estimator: Any
    attributes: Sequence[str] | None = None

    def outputs(self, table: Table, noise: NoiseSource, runs: int) -> Array:
        """Fit once per run."""
        found = []
        for run in range(runs):
            model = copy.deepcopy(self.estimator)
            if hasattr(model, "random_state") and not noise.private:
                model.random_state = _seed(noise, run)
            data = (table.X,) if table.y is None else (table.X, table.y)
            model.fit(*data, **table.people)
            found.append(np.concatenate([np.ravel(value) for value in self._released(model)]))
        return np.array(found, dtype=np.float64)

    def _released(self, model: Any) -> list[Array]:
        names = self.attributes
        if names is None:
            names = sorted(name for name in vars(model) if name.endswith("_") and name not in _PUBLIC)
        values = [np.asarray(getattr(model, name)) for name in names if not name.startswith("_")]
        numbers = [value.astype(np.float64) for value in values if value.dtype.kind in "fiub"]
        if not numbers:
            raise ValueError("the estimator has no numeric fitted attributes: name what it releases in attributes=.")
        return numbers


@dataclass(frozen=True)
class Released:
    """A function of this package that returns a result with a report, such as `tailguard.private_mean`.

    Parameters
    ----------
    function : callable
        Called with the table and ``random_state``.
    read : callable
        Result to what it releases.
    before : tuple
        Arguments before the table, such as a loss.
    arguments : tuple of (str, object)
        Keyword arguments.
    """

    function: Callable[..., Any]
    read: Callable[[Any], Any]
    before: tuple[Any, ...] = ()
    arguments: tuple[tuple[str, Any], ...] = ()

    def outputs(self, table: Table, noise: NoiseSource, runs: int) -> Array:
        """Call the function once per run."""
        data = (*self.before, table.X) if table.y is None else (*self.before, table.X, table.y)
        named = dict(self.arguments) | table.people
        found = [self.function(*data, random_state=noise.at(run), **named) for run in range(runs)]
        return np.array([np.ravel(np.asarray(self.read(result), dtype=np.float64)) for result in found])


@dataclass(frozen=True)
class Loaded:
    """A subject named by import path; other processes import it themselves."""

    path: str
    epsilon: float
    delta: float

    @property
    def subject(self) -> Subject:
        """What the path names, imported once per process."""
        return load(self.path, self.epsilon, self.delta)

    def outputs(self, table: Table, noise: NoiseSource, runs: int) -> Array:
        """Run it."""
        return self.subject.outputs(table, noise, runs)


def as_subject(thing: Any) -> Subject:
    """Return a subject for an estimator or a function; a subject is returned as it is."""
    if isinstance(thing, Subject):
        return thing
    if callable(getattr(thing, "fit", None)):
        return Estimator(thing)
    if callable(thing):
        return Mechanism(thing)
    raise TypeError(
        f"subject must be a name, an estimator with fit, a function of (X, y, rng), or have outputs; got {thing!r}"
    )


@cache
def load(path: str, epsilon: float, delta: float) -> Subject:
    """Return the subject that an import path names.

    Parameters
    ----------
    path : str
        ``package.module:name`` or ``folder/file.py:name``. The name is a factory, called with ``epsilon`` and ``delta``
        if it takes arguments of these names; or a function of ``(X, rng)`` or ``(X, y, rng)``, which is used as it is.
    epsilon, delta : float
        The claim.
    """
    where, _, name = path.rpartition(":")
    if not where or not name:
        raise ValueError(f"subject={path!r} is not accepted: give a name, module:factory or file.py:factory.")
    try:
        module = _module_of_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
        factory = getattr(module, name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"subject={path!r} cannot be imported: {error}.") from error
    parameters = inspect.signature(factory).parameters if callable(factory) else {}
    if "rng" in parameters or not callable(factory):
        return as_subject(factory)
    claim = {"epsilon": epsilon, "delta": delta}
    return as_subject(factory(**{key: value for key, value in claim.items() if key in parameters}))


def _module_of_file(file: Path) -> Any:
    if not file.is_file():
        raise ImportError(f"there is no file {file}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _seed(noise: NoiseSource, run: int) -> int:
    """Return a seed of 32 bits, which every random_state accepts."""
    return int(noise.at(run).uniform53() * 2.0**32)
