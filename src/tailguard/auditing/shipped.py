"""Everything this package ships, by name, built to keep a claim, with the neighbours that try it hardest.

Claims default to (1, 0.05). A delta so large is for audits alone: there a bound from 1e5 runs comes within a tenth of
what is true, where at 1e-6 a mechanism with half its noise would pass. The code is the same for every delta.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard.algorithms import algorithm1, algorithm2, algorithm3, algorithm4, clipped_gd
from tailguard.api import private_mean
from tailguard.auditing.mechanisms import BlockMedian, Centre, MeanReleases, PureQuery, Query
from tailguard.auditing.neighbours import FAR, Kind, Pair, Table, neighbours
from tailguard.auditing.subjects import Estimator, Loaded, Mechanism, Released, Subject, as_subject
from tailguard.constraints import Box
from tailguard.hints import Hints
from tailguard.losses import Squared
from tailguard.means.centre import centre_parameters
from tailguard.means.gaussian import GaussianMean
from tailguard.means.trimmed import TrimmedMean
from tailguard.privacy import Budget, Relation
from tailguard.privacy.arsinh_normal import arsinh_parameters
from tailguard.sampling import FullBatch, PoissonSample, Sampler
from tailguard.truncation import CoordinateClip, L2Clip, Smoothed, Truncation

Array = NDArray[np.float64]
Make = Callable[[float, float], Subject]
EPSILON, DELTA = 1.0, 0.05


def _no_pairs(epsilon: float, delta: float) -> list[Pair]:
    """Return nothing: the built-in neighbours are enough."""
    return []


@dataclass(frozen=True)
class Case:
    """A subject with its claim, its table and its neighbours.

    Parameters
    ----------
    name : str
    make : callable
        ``make(epsilon, delta)`` returns a subject that keeps the claim.
    table : Table or callable
        The built-in neighbours differ from it in the last row; ``table(epsilon, delta)`` if its size depends on them.
    relation : {"replace-one", "add-remove"}
        Of the claim.
    worst : callable
        ``worst(epsilon, delta)`` returns further pairs, made for this subject.
    runs : int
        On each table in the full audit.
    epsilon, delta : float
        The claim.
    """

    name: str
    make: Make
    table: Table | Callable[[float, float], Table]
    relation: Relation = "replace-one"
    worst: Callable[[float, float], list[Pair]] = _no_pairs
    runs: int = 100_000
    epsilon: float = EPSILON
    delta: float = DELTA

    @property
    def base(self) -> Table:
        """The table for this claim."""
        return self.table if isinstance(self.table, Table) else self.table(self.epsilon, self.delta)

    @property
    def kind(self) -> Kind:
        """What the targets are."""
        return self.base.kind

    def pairs(self) -> list[Pair]:
        """All neighbours."""
        return neighbours(self.base, relation=self.relation) + self.worst(self.epsilon, self.delta)


def find(subject: Any, epsilon: float | None, delta: float | None) -> Case:
    """Return the case of a name, of an import path or of an object, with the claim put in."""
    claim: dict[str, Any] = {}
    if epsilon is not None:
        claim["epsilon"] = epsilon
    if delta is not None:
        claim["delta"] = delta
    if isinstance(subject, Case):
        return replace(subject, **claim)
    if isinstance(subject, str) and subject in CASES:
        return replace(CASES[subject], **claim)
    if isinstance(subject, str) and ":" not in subject:
        raise ValueError(
            f"subject={subject!r} is not accepted: give one of {', '.join(CASES)}; or module:factory, or "
            "file.py:factory, for your own."
        )
    if len(claim) < 2:
        raise ValueError("epsilon and delta must both be given: a claim of your own has no default.")
    if isinstance(subject, str):
        loaded = Loaded(subject, float(claim["epsilon"]), float(claim["delta"]))
        return Case(subject, lambda epsilon, delta: loaded, Table.example(_kind_of(loaded.subject)), **claim)
    target = as_subject(subject)
    name = getattr(subject, "__name__", type(subject).__name__)
    return Case(name, lambda epsilon, delta: target, Table.example(_kind_of(target)), **claim)


def _kind_of(subject: Subject) -> Kind:
    """Ordinary data for an estimator is a regression or a classification; for a function of X alone there is no y."""
    if isinstance(subject, Mechanism):
        return "regression" if "y" in inspect.signature(subject.function).parameters else "mean"
    if not isinstance(subject, Estimator):
        return "mean"
    tags = getattr(subject.estimator, "__sklearn_tags__", None)
    return "classification" if tags is not None and tags().estimator_type == "classifier" else "regression"


# Means of rows. Two columns, so that the direction of a row matters.

_COLUMNS = 2
_MEAN = Table.example("mean", 20, _COLUMNS)


def _gaussian(truncation: Truncation, sampler: Sampler, steps: int = 1) -> Make:
    def make(epsilon: float, delta: float) -> Subject:
        multiplier = sampler.calibrate(Budget(epsilon, delta), steps, steps * _COLUMNS)
        return MeanReleases(GaussianMean(truncation, multiplier), sampler, steps)

    return make


_ROWS, _TRIM = 60, 12


def _trimmed(epsilon: float, delta: float) -> Subject:
    parameters = arsinh_parameters(Budget(epsilon, delta).rho, _TRIM, _ROWS - 2 * _TRIM, 2.0, 1.0)
    return MeanReleases(TrimmedMean(-1.0, 1.0, _TRIM, parameters))


def _gram_pairs(epsilon: float, delta: float) -> list[Pair]:
    """Replace a row by one at right angles: the largest change of its outer product."""
    sides = [_MEAN.with_last(np.eye(_COLUMNS)[j] * FAR, 0.0) for j in range(2)]
    return [Pair("at right angles", *sides)]


def trimmed_pairs(epsilon: float = EPSILON, delta: float = DELTA) -> list[Pair]:
    """Pairs whose trimmed means, or whose noise scales, differ most."""
    kept = _ROWS - 2 * _TRIM
    sides = {
        "spread that grows": ([-1.0, 0.0, 1.0], [_TRIM, kept, _TRIM], [_TRIM - 1, kept, _TRIM + 1]),
        "one more far value than is trimmed": ([0.0, 1e9], [_ROWS - _TRIM, _TRIM], [_ROWS - _TRIM - 1, _TRIM + 1]),
        "a far value among zeros": ([0.0, 1e9], [_ROWS, 0], [_ROWS - 1, 1]),
    }
    return [
        Pair(name, *(Table(np.repeat(values, counts)[:, None]) for counts in (one, other)))
        for name, (values, one, other) in sides.items()
    ]


def _lone_pairs(epsilon: float, delta: float) -> list[Pair]:
    """Return a row among zeros, or no row: the others of a sample would hide it by chance, zeros do not."""
    zeros = Table(np.zeros_like(_MEAN.X))
    return [Pair("a row among zeros", zeros.with_last(np.nan, 0.0), zeros.with_last(FAR, 0.0))]


def _lone_line_pairs(epsilon: float, delta: float) -> list[Pair]:
    zeros = Table(np.zeros_like(_LINE.X), np.zeros(len(_LINE.X)), "regression")
    return [Pair("a row among zeros", zeros.with_last(np.nan, np.nan), zeros.with_last(FAR, FAR))]


# Aggregates of block answers. With one row to a block, and x = 1, the targets of a regression are its answers.


def _as_targets(pairs: Callable[[float, float], list[Pair]]) -> Callable[[float, float], list[Pair]]:
    def changed(epsilon: float, delta: float) -> list[Pair]:
        return [Pair(pair.name, _targets(pair.one), _targets(pair.other)) for pair in pairs(epsilon, delta)]

    return changed


def _targets(answers: Table) -> Table:
    return Table(np.ones_like(answers.X), answers.X[:, 0], "regression")


def _median_pairs(epsilon: float, delta: float) -> list[Pair]:
    """Make a short gap best or second best with one block: its odds change by e^epsilon."""
    one, other = [-1.0] * 4 + [-0.8] + [1.0] * 3, [-1.0] * 3 + [-0.8] + [1.0] * 4
    return [Pair("a short gap in the middle", *(Table(np.array(values)[:, None]) for values in (one, other)))]


def _choice_pairs(epsilon: float, delta: float) -> list[Pair]:
    """The median in one bin or in the next, by one row: the score of one falls as that of the other rises."""
    one, other = [-0.5] * 5 + [0.5] * 5, [-0.5] * 4 + [0.5] * 6
    return [Pair("the median in the next bin", *(Table(np.array(values)[:, None]) for values in (one, other)))]


def _centre(epsilon: float, delta: float) -> Subject:
    return Centre(centre_parameters(epsilon, delta, 1))


def _centre_pairs(epsilon: float, delta: float) -> list[Pair]:
    """Move the centre by its whole score, or the score by its whole smoothness."""
    p = centre_parameters(epsilon, delta, 1)
    m = p.smallest_m
    majority = (m + 1) // 2 + 1
    jump = np.zeros((m, 1))
    jump[: majority - p.q], jump[majority - p.q : m - p.q] = -1.0, 1.0
    jumped = jump.copy()
    jumped[majority - p.q - 1] = 1.0
    few = np.zeros((m, 1))
    few[: (m - majority) // 2] = 1.0
    more = few.copy()
    more[(m - majority) // 2] = 1.0
    return [
        Pair("the majority changes side", Table(jump), Table(jumped)),
        Pair("one more block far away", Table(few), Table(more)),
    ]


def _centre_table(epsilon: float, delta: float) -> Table:
    rows = centre_parameters(epsilon, delta, 1).smallest_m
    return Table(np.clip(Table.example("mean", rows, 1).X / 4.0, -1.0, 1.0))


# Algorithms, each a whole call: checks, calibration, all steps and the report.


def _everything(result: Any) -> Array:
    """Return path and final state, the intercept with it."""
    state = [] if result.state is None else [np.ravel(result.state.w)]
    return np.concatenate([np.ravel(result.path), *state])


def _value(result: Any) -> Any:
    return result.value


def _call(function: Any, before: tuple[Any, ...], read: Any, **arguments: Any) -> Make:
    def make(epsilon: float, delta: float) -> Subject:
        claim = {"epsilon": epsilon, "delta": delta, "allow_large_delta": True, "threads": 1}
        return Released(function, read, before, tuple((claim | arguments).items()))

    return make


def _default(name: str, **arguments: Any) -> Make:
    def make(epsilon: float, delta: float) -> Subject:
        from tailguard import linear_model

        kind = getattr(linear_model, name)
        return Estimator(kind(epsilon, delta, allow_large_delta=True, threads=1, **arguments))

    return make


def searched(X: Array, y: Array, *, random_state: Any, threads: int, **claim: Any) -> Any:
    """Return a fitted search with two candidates."""
    from tailguard.linear_model import PrivateRidge
    from tailguard.model_selection import PrivateGridSearch

    candidate = PrivateRidge(method="clipped", clip=1.0, steps=1, threads=threads)
    grid = {"step_size": [0.25, 0.5]}
    search = PrivateGridSearch(candidate, grid, error_bound=1.0, repeats=3.0, random_state=random_state, **claim)
    return search.fit(X, y)


def scaled(X: Array, **arguments: Any) -> Any:
    """Return a fitted scaler."""
    from tailguard.preprocessing import PrivateScaler

    return PrivateScaler(**arguments).fit(X)


def _columns(scaler: Any) -> Array:
    return np.concatenate([scaler.mean_, scaler.scale_, scaler.lower_, scaler.upper_])


def _chosen(search: Any) -> Array:
    best = search.best_estimator_
    return np.concatenate([best.coef_, [best.intercept_, search.best_score_, search.best_index_]])


# Persons. The last has 50 rows, some of the others two: what bounds rows one by one would let through 50 times as much.

_MANY = 50


def in_persons(table: Table) -> Table:
    """Return the table with its last fifty rows those of one person, and some of the others in pairs."""
    others = np.arange(len(table.X) - _MANY)
    others[1::3] = others[: len(others[1::3]) * 3 : 3]
    return replace(table, groups=np.append(others, np.full(_MANY, len(table.X))))


def _share_pairs(base: Table) -> Callable[[float, float], list[Pair]]:
    """One row more that is 1 and not 0: the largest change of a share, and no table of zeros, whose mean is shrunk."""

    def pairs(epsilon: float, delta: float) -> list[Pair]:
        more = base.X.copy()
        more[-1] = 1.0 - more[-1]
        return [Pair("one more", base, Table(more))]

    return pairs


def _person_pairs(table: Table) -> Callable[[float, float], list[Pair]]:
    """Replace a person with one row by a person with fifty."""

    def pairs(epsilon: float, delta: float) -> list[Pair]:
        assert table.groups is not None
        one = len(table.X) - _MANY + 1
        short = replace(table, X=table.X[:one], y=None if table.y is None else table.y[:one], groups=table.groups[:one])
        return [Pair("fifty rows for one", short.with_last(-FAR, FAR), table.with_last(FAR, FAR))]

    return pairs


_PERSONS = in_persons(Table.example("mean", 20 + _MANY, _COLUMNS))
_LINE_PERSONS = in_persons(Table.example("regression", 20 + _MANY, 1))
_LINE = Table.example("regression", 20, 1)
_LOSS = (Squared(),)
_ANSWERS = Table(Table.example("mean", 8, 1).X / 4.0)
# So few rows that hints decide whether slopes are fitted.
_FEW, _ONE_COLUMN = Table.example("regression", 120, 1), Table.example("mean", 60, 1)
_HINTS, _WRONG_HINTS = Hints(ranges=[(-4, 4)], target_range=(-9, 9)), Hints(moment=1e-6, target_range=(5, 6))
# As many rows as the default needs before it fits slopes and not the mean alone; and for lines that are not small fits.
_DEFAULT_ROWS, _MANY_ROWS = 300, 2000
_FEW_SHARES, _SHARES = (Table(np.resize([0.0, 1.0], (n, 1))) for n in (120, 2 * _DEFAULT_ROWS))
_FULL = 10_000
_FITS = 2_500

_CASES = (
    Case("gaussian-l2", _gaussian(L2Clip(1.0), FullBatch()), _MEAN),
    Case("gaussian-coordinate", _gaussian(CoordinateClip(1.0), FullBatch()), _MEAN),
    Case("gaussian-smoothed", _gaussian(Smoothed(1.0, 3.0), FullBatch()), _MEAN),
    Case("gaussian-l2-add-remove", _gaussian(L2Clip(1.0), FullBatch("add-remove")), _MEAN, "add-remove"),
    Case("poisson-step", _gaussian(L2Clip(1.0), PoissonSample(0.5)), _MEAN, "add-remove", _lone_pairs),
    Case("poisson-steps", _gaussian(L2Clip(1.0), PoissonSample(0.5), 2), _MEAN, "add-remove", _lone_pairs),
    Case("trimmed", _trimmed, Table.example("mean", _ROWS, 1), worst=trimmed_pairs),
    Case("centre", _centre, _centre_table, worst=_centre_pairs),
    Case(
        "block-median",
        lambda epsilon, delta: BlockMedian(epsilon),
        _ANSWERS,
        worst=_median_pairs,
        delta=0.0,
    ),
    Case("query-mean", lambda epsilon, delta: Query("mean", Budget(epsilon, delta).mu), _MEAN),
    Case("query-counts", lambda epsilon, delta: Query("counts", Budget(epsilon, delta).mu), _MEAN),
    Case("query-gram", lambda epsilon, delta: Query("gram", Budget(epsilon, delta).mu), _MEAN, worst=_gram_pairs),
    Case("pure-mean", lambda epsilon, delta: PureQuery("mean", epsilon), _ONE_COLUMN, delta=0.0),
    Case(
        "pure-choice",
        lambda epsilon, delta: PureQuery("choice", epsilon),
        _ONE_COLUMN,
        worst=_choice_pairs,
        delta=0.0,
    ),
    Case(
        "algorithm1",
        _call(algorithm1, _LOSS, _everything, blocks=8, constraint=Box(-1.0, 1.0)),
        _targets(_ANSWERS),
        worst=_as_targets(_median_pairs),
        runs=_FULL,
    ),
    Case(
        "algorithm1-center",
        _call(algorithm1, _LOSS, _everything, aggregator="center", constraint=Box(-1.0, 1.0)),
        lambda epsilon, delta: _targets(_centre_table(epsilon, delta)),
        worst=_as_targets(_centre_pairs),
        runs=_FULL,
    ),
    Case(
        "algorithm2",
        _call(algorithm2, (), _value, a=-1.0, b=1.0, m=_TRIM),
        Table.example("mean", _ROWS, 1),
        worst=trimmed_pairs,
        runs=_FULL,
    ),
    Case(
        "algorithm3",
        _call(algorithm3, _LOSS, _everything, a=-1.0, b=1.0, m=_TRIM, steps=2),
        Table.example("regression", _ROWS, 1),
        worst=_as_targets(trimmed_pairs),
        runs=_FULL,
    ),
    Case(
        "algorithm4",
        _call(algorithm4, _LOSS, _everything, scale=1.0, steps=2, fit_intercept=True),
        _LINE,
        runs=_FULL,
    ),
    Case(
        "clipped_gd",
        _call(clipped_gd, _LOSS, _everything, clip=1.0, steps=2, fit_intercept=True),
        _LINE,
        runs=_FULL,
    ),
    Case(
        "clipped_gd-sampled",
        _call(clipped_gd, _LOSS, _everything, clip=1.0, steps=2, batch_size=10.0),
        _LINE,
        "add-remove",
        _lone_line_pairs,
        runs=_FULL,
    ),
    Case("private_mean", _call(private_mean, (), _value), _SHARES, worst=_share_pairs(_SHARES), runs=_FULL),
    Case("private_mean-few", _call(private_mean, (), _value), _FEW_SHARES, worst=_share_pairs(_FEW_SHARES), runs=_FITS),
    Case(
        "private_mean-columns", _call(private_mean, (), _value), Table.example("mean", 2 * _DEFAULT_ROWS, 9), runs=_FITS
    ),
    Case(
        "private_mean-clipped",
        _call(private_mean, (), _value, method="clipped", clip=1.0),
        Table.example("mean", 20, 1),
        runs=_FULL,
    ),
    Case("PrivateRidge", _default("PrivateRidge"), Table.example("regression", _MANY_ROWS, 1), runs=_FITS),
    Case("PrivateRidge-small", _default("PrivateRidge"), Table.example("regression", _DEFAULT_ROWS, 1), runs=_FITS),
    Case("PrivateRidge-level", _default("PrivateRidge"), Table.example("regression", 120, 1), runs=_FITS),
    Case(
        "PrivateHuberRegressor",
        _default("PrivateHuberRegressor"),
        Table.example("regression", _MANY_ROWS, 1),
        runs=_FITS,
    ),
    Case(
        "PrivateLogisticRegression",
        _default("PrivateLogisticRegression", classes=(0, 1)),
        Table.example("classification", _DEFAULT_ROWS, 1),
        runs=_FITS,
    ),
    Case(
        "PrivateLogisticRegression-multinomial",
        _default("PrivateLogisticRegression", classes=(0, 1, 2)),
        Table.example("classification", _DEFAULT_ROWS, 1),
        runs=_FITS,
    ),
    Case(
        "PrivatePoissonRegressor",
        _default("PrivatePoissonRegressor"),
        Table.example("counts", _DEFAULT_ROWS, 1),
        runs=_FITS,
    ),
    Case("PrivateRidge-hints", _default("PrivateRidge", hints=_HINTS), _FEW, runs=_FITS),
    Case("PrivateRidge-wrong-hints", _default("PrivateRidge", hints=_WRONG_HINTS), _FEW, runs=_FITS),
    Case("private_mean-range", _call(private_mean, (), _value, hints=Hints(ranges=[(-1, 1)])), _ONE_COLUMN, runs=_FULL),
    Case("PrivateScaler", _call(scaled, (), _columns), Table.example("mean", _DEFAULT_ROWS, 1), runs=_FITS),
    Case("PrivateGridSearch", _call(searched, (), _chosen), _LINE, runs=_FULL),
    Case("persons-mean", _gaussian(L2Clip(1.0), FullBatch()), _PERSONS, worst=_person_pairs(_PERSONS)),
    Case(
        "persons-counts",
        lambda epsilon, delta: Query("counts", Budget(epsilon, delta).mu),
        _PERSONS,
        worst=_person_pairs(_PERSONS),
    ),
    Case(
        "persons-clipped_gd",
        _call(clipped_gd, _LOSS, _everything, clip=1.0, steps=2, fit_intercept=True),
        _LINE_PERSONS,
        worst=_person_pairs(_LINE_PERSONS),
        runs=_FULL,
    ),
    Case(
        "PrivateRidge-persons",
        _default("PrivateRidge"),
        in_persons(Table.example("regression", _DEFAULT_ROWS + _MANY, 1)),
        runs=_FITS,
    ),
)
CASES: dict[str, Case] = {case.name: case for case in _CASES}
