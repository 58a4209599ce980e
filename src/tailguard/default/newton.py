r"""Damped Newton steps, their average, and the privacy noise that is known to be in both.

A step with curvature H moves the coefficients by ``-b H^-1 (g + P theta)``, g a released gradient and P the penalty of
H's floor. In a direction in which the rows have the curvature h it keeps a fraction ``1 - b h/H`` of an error and adds
``b/H`` times the noise of g. Where h is what H is, an iterate forgets the noise of all releases but its own, and an
average has that of so many independent ones. Where features hardly vary, as rare columns, H is raised for stability: h
is a fraction of it, noise adds up over the steps, and an average has several times what independent iterates had. So
each iterate carries what of every release's noise is in it, direction by direction. All of it is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tailguard.default.averaging import into_ball

Array = NDArray[np.float64]

DAMPING, LIMIT = 0.9, 2.0  # of a step, and the largest norm of coefficients
# Of secants: standard deviations of a change that is none of noise, what is kept of one for the next step, and the most
# by which a curvature is raised.
CLEAR, FORGOTTEN, STEEPEST = 6.0, 0.7, 30.0


@dataclass(frozen=True, eq=False)
class Curvature:
    """Curvature of a score: its directions, what is used along them, what was found, and what of the former is a floor.

    The floor amounts to a ridge penalty.
    """

    directions: Array
    used: Array
    found: Array
    floored: Array

    @classmethod
    def flat(cls, width: int, used: float, found: Array | None = None) -> Curvature:
        """The same in all directions; found may be less."""
        same = np.full(width, used)
        return cls(np.eye(width), same, same if found is None else found, np.zeros(width))

    def calm(self, least: float) -> Curvature:
        """For smaller steps where there is little curvature: used are at least so much of the mean."""
        return replace(self, used=np.maximum(self.used, least * float(np.mean(self.used))))

    def scaled(self, factor: float | Array) -> Curvature:
        """So many times as much, in all directions or in each."""
        return replace(self, used=factor * self.used, found=factor * self.found, floored=factor * self.floored)

    def beside(self, places: NDArray[np.intp], others: NDArray[np.intp], theirs: Curvature) -> Curvature:
        """Coordinates at some places with this curvature, and others with theirs."""
        p, k = len(places) + len(others), len(places)
        directions = np.zeros((p, p))
        directions[places, :k], directions[others, k:] = self.directions, theirs.directions
        both = (np.append(getattr(self, name), getattr(theirs, name)) for name in ("used", "found", "floored"))
        return Curvature(directions, *both)

    @cached_property
    def matrix(self) -> Array:
        """What is used, as a matrix."""
        return self._along(self.used)

    @cached_property
    def inverse(self) -> Array:
        """Inverse of what is used."""
        return self._along(1.0 / self.used)

    @cached_property
    def penalty(self) -> Array:
        """Ridge penalty that the floor amounts to."""
        return self._along(self.floored)

    def covariance(self, noise: Array, residual: float) -> Array:
        """Covariance of coefficients with the noise of releases in them and residuals of a variance over n rows."""
        return self._along(np.sum(noise * noise, axis=0) + residual / (self.found + self.floored))

    def _along(self, values: Array) -> Array:
        return np.asarray((self.directions * values) @ self.directions.T)


@dataclass(frozen=True, eq=False)
class Iterate:
    """Coefficients, and what of the noise of each release is in them: (releases, directions of the curvature)."""

    theta: Array
    noise: Array

    @classmethod
    def start(cls, width: int) -> Iterate:
        """Zero."""
        return cls(np.zeros(width), np.zeros((0, width)))

    def step(self, curved: Curvature, gradient: Array, sd: float, damping: float = DAMPING) -> Iterate:
        """The next one, by a gradient whose noise has a standard deviation."""
        theta = self.theta - damping * curved.inverse @ (gradient + curved.penalty @ self.theta)
        kept = 1.0 - damping * (curved.found + curved.floored) / curved.used
        return Iterate(into_ball(theta, LIMIT), np.vstack([kept * self.noise, damping * sd / curved.used]))


@dataclass
class Secants:
    """What two gradients say of the curvature between them, where a score bends.

    An exponential is steeper where it is large: a step that uses the mean curvature may be too long there by a
    multiple, and come back from the other side no nearer. Where a gradient changes by clearly more than the curvature
    says, the next steps use what it changed by, and later ones gradually less.
    """

    _last: tuple[Array, Array, float] | None = field(default=None, init=False)
    _times: float | Array = field(default=1.0, init=False)

    def after(self, theta: Array, gradient: Array, sd: float, curved: Curvature) -> Curvature:
        """The curvature for a step from theta, with a gradient whose noise has a standard deviation."""
        if self._last is not None:
            before, its, noise = self._last
            moved, change = (curved.directions.T @ now for now in (theta - before, gradient - its))
            clear = (np.abs(change) > CLEAR * np.hypot(sd, noise)) & (moved != 0.0)
            secant = np.where(clear, change / np.where(clear, moved, 1.0), 0.0) / curved.used
            self._times = np.clip(np.maximum(FORGOTTEN * self._times, secant), 1.0, STEEPEST)
        self._last = theta, gradient, sd
        return curved.scaled(self._times)


@dataclass
class Averaged:
    """Inverse-variance average of iterates, and of the noise that each carries."""

    iterate: Iterate
    _precision: float = field(default=0.0, init=False)

    @classmethod
    def empty(cls, width: int) -> Averaged:
        """Of none: zero."""
        return cls(Iterate.start(width))

    def add(self, iterate: Iterate, variance: float) -> None:
        """Add one with the variance of its own noise."""
        before, later = self.iterate, len(iterate.noise) - len(self.iterate.noise)
        noise = np.vstack([before.noise, np.zeros((later, len(before.theta)))])
        self._precision += 1.0 / variance
        part = 1.0 / (variance * self._precision)
        theta = before.theta + part * (iterate.theta - before.theta)
        self.iterate = Iterate(theta, noise + part * (iterate.noise - noise))

    @property
    def variance(self) -> float:
        """Variance of the average if the noise of each were its own."""
        return 1.0 / self._precision
