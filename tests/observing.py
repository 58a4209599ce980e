"""Everything about a run that somebody could look at, with the releases themselves held fixed.

A private run has a few doors through which anything about the data leaves: the place where noise is added to a sum,
the noisy trimmed mean, the two aggregates of block answers. `Tape` stands in the doors. It writes down what the first
run releases and gives the same values to every later run, whatever its data. Then two runs may differ in nothing at
all: what differs got out around the mechanism.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tailguard.engines.memory import InMemory
from tailguard.engines.streamed import Streamed
from tailguard.privacy import SeededNoise

# Each is looked up where it is used. A door that is missing here makes runs on different data differ.
DOORS = (
    "tailguard.means.gaussian.saturating_add",
    "tailguard.means.queries.saturating_add",
    "tailguard.means.pure.saturating_add",
    "tailguard.means.pure.largest",
    "tailguard.means.trimmed.release",
    "tailguard.algorithms.block_median",
    "tailguard.algorithms.centre_of_attention",
)
PASSES = ("truncated_sum", "integer_sum", "columns_of")


@dataclass
class Tape:
    """Releases of the first run, played back to all others; and what a run asked for on its way."""

    released: list[Any] = field(default_factory=list)
    at: int | None = None  # None while the first run is written down
    inside: int = 0
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def door(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its result replaced by what the first run released. It runs all the same: it may raise."""

        def release(*arguments: Any, **named: Any) -> Any:
            self.inside += 1
            try:
                value = function(*arguments, **named)
            finally:
                self.inside -= 1
            if self.inside:
                return value
            if self.at is None:
                self.released.append(value)
                return value
            self.at += 1
            return self.released[self.at - 1]

        return release

    def ask(self, *what: Any) -> None:
        """Write down what a run asked of noise or data. The size of noise inside a door is the mechanism's secret."""
        self.asked.append(what[:2] if self.inside else what)

    def install(self, patch: Any) -> None:
        """Stand in every door, and count the passes over the data."""
        for name in DOORS:
            module, _, attribute = name.rpartition(".")
            patch.setattr(name, self.door(getattr(__import__(module, fromlist=[attribute]), attribute)))
        for engine in (InMemory, Streamed):
            for name in PASSES:
                patch.setattr(engine, name, self.counted(name, getattr(engine, name)))

    def counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def one_pass(*arguments: Any, **named: Any) -> Any:
            self.ask(name)
            return method(*arguments, **named)

        return one_pass

    def rewind(self) -> None:
        """Play from the start."""
        self.at, self.asked = 0, []


class Fixed:
    """The same draws in every run, from a source that says it is private; each request is written down.

    A pickle of it holds nothing: it is an argument of the fit, and not what the fit left behind.
    """

    private, seed = True, None

    def __init__(self, tape: Tape | None = None, inner: SeededNoise | None = None) -> None:
        self.tape, self.inner = tape or Tape(), inner or SeededNoise(11)

    def at(self, step: int) -> Fixed:
        return Fixed(self.tape, self.inner.at(step))

    def discrete_gaussian(self, scale: float, size: int) -> np.ndarray:
        self.tape.ask("discrete_gaussian", size, scale)
        return self.inner.discrete_gaussian(scale, size)

    def geometric(self, scale: int, size: int) -> np.ndarray:
        self.tape.ask("geometric", size, scale)
        return self.inner.geometric(scale, size)

    def bernoulli(self, n: int, rate: float) -> np.ndarray:
        self.tape.ask("bernoulli", n, rate)
        return self.inner.bernoulli(n, rate)

    def uniform53(self) -> float:
        self.tape.ask("uniform53", 1)
        return self.inner.uniform53()

    def uniform(self, size: int) -> np.ndarray:
        self.tape.ask("uniform", size)
        return self.inner.uniform(size)

    def normal(self, size: int) -> np.ndarray:
        self.tape.ask("normal", size)
        return self.inner.normal(size)

    def permutation(self, n: int) -> np.ndarray:
        self.tape.ask("permutation", n)
        return self.inner.permutation(n)

    def __reduce__(self) -> tuple[Any, ...]:
        return Fixed, ()

    def __repr__(self) -> str:
        return "Fixed()"


class _Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__(level=1)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("numba"):  # what it compiles depends on types, and on whether it has before
            return
        self.lines.append(f"{record.name} {record.levelname} {record.getMessage()}")


@contextlib.contextmanager
def _all_logs() -> Iterator[list[str]]:
    """Every record of every logger, down to the lowest level."""
    handler, root = _Records(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(1)
    try:
        yield handler.lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def _process() -> str:
    """State of the process that a run might leave its traces in."""
    state = (np.random.get_state(), random.getstate(), sorted(os.environ.items()), os.getcwd())
    return f"{np.geterr()} {hashlib.sha256(pickle.dumps(state)).hexdigest()}"


def _told(error: BaseException | None) -> list[str]:
    """An exception and those that it carries along."""
    told = []
    while error is not None:
        told.append(f"{type(error).__name__}: {error} {error.args!r} {getattr(error, '__notes__', '')}")
        error = error.__cause__ or error.__context__
    return told


def observe(run: Callable[[], Any], tape: Tape, look: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """What can be seen of a run, channel by channel; ``look`` says what its result shows."""
    out, err = io.StringIO(), io.StringIO()
    seen: dict[str, Any] = {}
    with (
        warnings.catch_warnings(record=True) as warned,
        _all_logs() as logged,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        warnings.simplefilter("always")
        try:
            result = run()
        except BaseException as error:  # whatever it is, somebody sees it
            seen["exception"] = _told(error)
        else:
            seen |= look(result)
    seen["warnings"] = [f"{w.category.__name__}: {w.message}" for w in warned]
    seen["logs"] = list(logged)
    seen["output"] = out.getvalue() + err.getvalue()
    seen["process"] = _process()
    seen["requests and passes"] = list(tape.asked)
    return seen


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Channels in which two runs can be told apart."""
    return [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
