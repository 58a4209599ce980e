"""Planted defects: real parts of the package, each with one mistake that is easy to make. Audits must catch them all.

A defect is a `Case`: what it claims, and neighbours inside the relation that it claims. ``make audit`` and the tests
run the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tailguard.algorithms import algorithm2, clipped_gd
from tailguard.auditing import Case, Pair, Table, neighbours
from tailguard.auditing.mechanisms import MeanReleases
from tailguard.auditing.shipped import in_persons, trimmed_pairs
from tailguard.auditing.subjects import Released
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import Gradients, RowValues
from tailguard.losses import Squared
from tailguard.means.gaussian import GaussianMean, saturating_add
from tailguard.privacy import Budget, SeededNoise
from tailguard.sampling import FullBatch, PoissonSample
from tailguard.truncation import Grid, L2Clip, Smoothed

TABLE = Table.example("mean", 20, 2)
RATE = 0.5


def only(*names):
    """Some of the built-in pairs around the table, as further pairs of a case."""

    def pairs(epsilon, delta):
        return neighbours(TABLE, names)

    return pairs


@dataclass(frozen=True)
class Defect(Case):
    """A case with pairs of its own and no others: the scan has its own tests."""

    runs: int = 20_000

    def pairs(self):
        return self.worst(self.epsilon, self.delta)


def multiplier(epsilon, delta, sampler, coordinates=2, steps=1):
    return sampler.calibrate(Budget(epsilon, delta), steps, steps * coordinates)


# 1. Noise of 0.7 times what the budget asks for.


def quiet(epsilon, delta):
    return MeanReleases(GaussianMean(L2Clip(1.0), 0.7 * multiplier(epsilon, delta, FullBatch())))


# 2. Rows are added as they are; noise as if they had been clipped.


@dataclass(frozen=True)
class Untruncated(GaussianMean):
    def release(self, engine, vectors, sampler, noise):
        grid = Grid.of(self.truncation, engine.n)
        total = np.rint(engine.X / grid.unit).astype(np.int64).sum(axis=0)[None]
        scale = self.noise_multiplier * grid.sensitivity(total.size, sampler.sensitivity_relation)
        total = saturating_add(total, noise.at(1).discrete_gaussian(scale, total.size)[None])
        return total * (grid.unit / sampler.divisor(engine.n))


def untruncated(epsilon, delta):
    return MeanReleases(Untruncated(L2Clip(1.0), multiplier(epsilon, delta, FullBatch())))


# 3. Algorithm 2 with the noise scale that the paper prints. The package prices it infinite; the paper claims epsilon.


def value(result):
    return result.value


def far_value_pairs(epsilon, delta):
    return [pair for pair in trimmed_pairs() if pair.name == "a far value among zeros"]


def printed_algorithm2(epsilon, delta):
    claim = {"epsilon": epsilon, "delta": delta, "allow_large_delta": True, "threads": 1}
    arguments = claim | {"a": -1.0, "b": 1.0, "m": 12, "setting": "printed"}
    return Released(algorithm2, value, (), tuple(arguments.items()))


# 4. psi by the formula that the paper prints, which leaves its bound in float64; noise for the true bound.


@dataclass(frozen=True)
class NaivePsi(GaussianMean):
    def release(self, engine, vectors, sampler, noise):
        from test_psi import printed

        grid = Grid.of(self.truncation, engine.n)
        rows = np.nan_to_num(printed(engine.X / self.truncation.scale, self.truncation.beta)) * self.truncation.scale
        total = np.rint(np.clip(rows / grid.unit, -(2.0**61), 2.0**61)).sum(axis=0)[None].astype(np.int64)
        scale = self.noise_multiplier * grid.sensitivity(total.size, sampler.sensitivity_relation)
        total = saturating_add(total, noise.at(1).discrete_gaussian(scale, total.size)[None])
        return total * (grid.unit / sampler.divisor(engine.n))


def naive_pairs(epsilon, delta):
    # Where the formula is worst for this beta; farther out all its digits cancel, and it is 0.
    return [Pair("a far row", TABLE, TABLE.with_last(1e6, 0.0))]


def naive_psi(epsilon, delta):
    return MeanReleases(NaivePsi(Smoothed(1.0, 3.0), multiplier(epsilon, delta, FullBatch())))


# 5. One shuffle, then pass after pass in that order; priced as a Poisson sample of the same rate.

BATCHES, PASSES = 5, 3


class Shuffle:
    """Deals the rows of a random order, batch after batch."""

    relation = sensitivity_relation = "add-remove"

    def __init__(self, n, noise):
        self._batches = np.split(noise.permutation(n), BATCHES)
        self._dealt = 0

    def divisor(self, n):
        return n / BATCHES

    def rows(self, n, noise):
        self._dealt += 1
        return np.sort(self._batches[(self._dealt - 1) % BATCHES])


@dataclass(frozen=True)
class Shuffled:
    mean: GaussianMean

    def outputs(self, table, noise, runs):
        """Sum over the passes of what every batch released: all that an adversary needs."""
        engine, found = InMemory(table.X, threads=1), []
        for own in (noise.at(run) for run in range(runs)):
            sampler = Shuffle(engine.n, own.at(0))
            steps = [self.mean.release(engine, RowValues(), sampler, own.at(t + 1)) for t in range(BATCHES * PASSES)]
            found.append(np.reshape(steps, (PASSES, BATCHES)).sum(axis=0))
        return np.array(found)


def shuffled(epsilon, delta):
    sampler = PoissonSample(1.0 / BATCHES)
    return Shuffled(GaussianMean(L2Clip(1.0), multiplier(epsilon, delta, sampler, 1, BATCHES * PASSES)))


def shuffle_pairs(epsilon, delta):
    zeros = Table(np.zeros((2 * BATCHES, 1)))
    return [Pair("a canary among zeros", zeros.with_last(np.nan, 0.0), zeros.with_last(1e9, 0.0))]


# 6. A Poisson sample whose sum is divided by the number of rows that it happened to have.


@dataclass(frozen=True)
class RealisedSize(GaussianMean):
    def release(self, engine, vectors, sampler, noise):
        rows = sampler.rows(engine.n, noise.at(0))
        present = np.sum(~np.isnan(engine.X[rows, 0]))  # a row that was removed is not counted
        grid = Grid.of(self.truncation, engine.n)
        mean = engine.truncated_sum(vectors, grid, rows) * grid.unit / max(1, present)
        scale = self.noise_multiplier * grid.sensitivity(mean.size, sampler.sensitivity_relation)
        noisy = noise.at(1).discrete_gaussian(scale, mean.size) * (grid.unit / sampler.divisor(engine.n))
        return mean + noisy.reshape(mean.shape)


def realised_size(epsilon, delta):
    sampler = PoissonSample(RATE)
    return MeanReleases(RealisedSize(L2Clip(1.0), multiplier(epsilon, delta, sampler, 1)), sampler)


def realised_pairs(epsilon, delta):
    ones = Table(np.ones((20, 1)))
    return [Pair("against the others", ones.with_last(np.nan, 0.0), ones.with_last(-1.0, 0.0))]


# 7. Every step of a descent draws from the same stream.


class SameStream(SeededNoise):
    def at(self, step):
        return SameStream(self.seed, self.path)


@dataclass(frozen=True)
class SeedReuse:
    epsilon: float
    delta: float

    def outputs(self, table, noise, runs):
        arguments = {"epsilon": self.epsilon, "delta": self.delta, "clip": 1.0, "steps": 2, "start": [0.5]}
        found = []
        for run in range(runs):
            stream = SameStream(noise.seed, (*noise.path, run))
            result = clipped_gd(
                Squared(), table.X, table.y, **arguments, random_state=stream, threads=1, allow_large_delta=True
            )
            found.append(result.path[:, 0])
        return np.array(found)


def reuse_pairs(epsilon, delta):
    zeros = Table(np.zeros((20, 1)), np.zeros(20), "regression")
    return [Pair("a row among zeros", zeros, zeros.with_last(1.0, 0.0))]


# 8. The sensitivity of d coordinates where an intercept makes them d + 1.


@dataclass(frozen=True)
class OneTooFew(GaussianMean):
    def release(self, engine, vectors, sampler, noise):
        grid = Grid.of(self.truncation, engine.n)
        total = engine.truncated_sum(vectors, grid)
        scale = self.noise_multiplier * grid.sensitivity(total.size - 1, sampler.sensitivity_relation)
        total = saturating_add(total, noise.at(1).discrete_gaussian(scale, total.size).reshape(total.shape))
        return total * (grid.unit / sampler.divisor(engine.n))


def one_too_few(epsilon, delta):
    mean = OneTooFew(Smoothed(1.0, 3.0), multiplier(epsilon, delta, FullBatch()))
    return MeanReleases(mean, vectors=Gradients(Squared(), np.zeros((1, 2)), True))


def intercept_pairs(epsilon, delta):
    return neighbours(Table.example("regression", 20, 1), ["opposite outliers"])


# 9. A promise to persons from a mean that bounds their rows one by one. The last person has 50.

PERSONS = in_persons(Table.example("mean", 70, 2))


@dataclass(frozen=True)
class RowByRow(MeanReleases):
    def outputs(self, table, noise, runs):
        return super().outputs(replace(table, groups=None), noise, runs)


def row_by_row(epsilon, delta):
    return RowByRow(GaussianMean(L2Clip(1.0), multiplier(epsilon, delta, FullBatch())))


def person_pairs(epsilon, delta):
    return neighbours(PERSONS, ["opposite outliers"])


FAR_PAIR, OPPOSITE = only("far outlier"), only("opposite outliers")

_DEFECTS = (
    Defect("noise x 0.7", quiet, TABLE, worst=OPPOSITE),
    Defect("no truncation", untruncated, TABLE, worst=FAR_PAIR),
    Defect("printed Algorithm 2", printed_algorithm2, TABLE, worst=far_value_pairs, runs=10_000),
    Defect("naive psi", naive_psi, TABLE, worst=naive_pairs),
    # At a large delta, since what a shuffle never does and a Poisson sample often does is leave a row out of all steps.
    Defect("shuffle priced as Poisson", shuffled, TABLE, "add-remove", shuffle_pairs, 10_000, 1.0, 0.3),
    Defect("realised batch size as divisor", realised_size, TABLE, "add-remove", realised_pairs),
    Defect("seed reuse", SeedReuse, TABLE, worst=reuse_pairs, runs=10_000),
    Defect("off by one in d with an intercept", one_too_few, TABLE, worst=intercept_pairs),
    Defect("rows bounded one by one for persons", row_by_row, PERSONS, worst=person_pairs),
)
DEFECTS = {defect.name: defect for defect in _DEFECTS}


def with_noise(name, factor):
    """A shipped mean with its noise multiplied: how far an audit must be from the truth before it says so."""
    from tailguard.auditing import CASES

    case = CASES[name]

    def make(epsilon, delta):
        subject = case.make(epsilon, delta)
        return replace(subject, mean=replace(subject.mean, noise_multiplier=factor * subject.mean.noise_multiplier))

    return replace(case, name=f"{name}, noise x {factor:g}", make=make)
