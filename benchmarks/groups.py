"""Several rows per person: what ``groups=`` is worth, at the same guarantee for a person with all their rows.

Three ways to promise (epsilon, delta) to a person:

* **groups=**: all rows, every person's contribution bounded once;
* **one row each**: of every person a row at random, the others thrown away;
* **noise times k**: all rows, with noise for one row times the largest number of rows that anybody has. (A release
  that is mu-GDP for a row is k mu-GDP for k rows, so the fit is given mu/k; group privacy knows nothing tighter.)

Tables are the RAND health insurance experiment (``randhie.csv.gz`` in ``--data`` or ``TAILGUARD_DATA``; 5912 persons
with 1 to 5 years each) and a synthetic one in which most persons have a few rows and some have 50. Three quarters of
the persons train and the others, counted alike however many rows they have, judge. Seeds decide the split, the row
that is kept of a person and the noise.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, LogisticRegression

import tailguard as tg
from tailguard.privacy import Budget, default_delta

Array = NDArray[np.float64]

FEATURES = ["logc", "idp", "lpi", "fmde", "linc", "lnum", "xage", "female", "child", "fchild", "black", "educdec"]
FEATURES += ["physlm", "disea", "hlthg", "hlthf", "hlthp"]
SLOPES = np.linspace(0.2, 1.0, 8)  # of the synthetic table
WAYS = ("groups=", "one row each", "noise times k", "not private")


@dataclass(frozen=True)
class Persons:
    """Rows with their persons, numbered from 0."""

    X: Array
    y: Array
    person: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of rows of every person."""
        return np.bincount(self.person)

    @property
    def weight(self) -> Array:
        """Of every row, so that persons count alike and all weights add up to one."""
        return 1.0 / (self.sizes[self.person] * len(self.sizes))

    def of(self, chosen: NDArray[np.bool_]) -> Persons:
        """The rows of some persons."""
        rows = chosen[self.person]
        return Persons(self.X[rows], self.y[rows], np.unique(self.person[rows], return_inverse=True)[1])

    def split(self, seed: int) -> tuple[Persons, Persons]:
        """Three quarters of the persons, and the others."""
        training = np.random.default_rng([seed, 1]).permutation(len(self.sizes)) < 0.75 * len(self.sizes)
        return self.of(training), self.of(~training)

    def one_each(self, seed: int) -> Persons:
        """A row of every person, at random."""
        order = np.random.default_rng([seed, 2]).permutation(len(self.person))
        kept = order[np.unique(self.person[order], return_index=True)[1]]
        return Persons(self.X[kept], self.y[kept], self.person[kept])


def randhie(folder: str) -> Callable[[str], Persons]:
    """The experiment's years with a given target."""
    import pandas as pd

    frame = pd.read_csv(Path(folder) / "randhie.csv.gz")
    person = np.unique(frame["zper"], return_inverse=True)[1]
    return lambda target: Persons(frame[FEATURES].to_numpy(float), frame[target].to_numpy(float), person)


def skewed(persons: int = 6000, seed: int = 0) -> Persons:
    """Persons with 1 to 50 rows, the more the sicker; costs have a person's own level and a long tail."""
    rng = np.random.default_rng([seed, 3])
    level = rng.standard_normal(persons)
    sizes = np.clip(np.rint(np.exp(0.8 + 0.5 * level + 0.7 * rng.standard_normal(persons))), 1, 50).astype(int)
    person = np.repeat(np.arange(persons), sizes)
    X = 0.7 * rng.standard_normal((persons, 8))[person] + 0.7 * rng.standard_normal((len(person), 8))
    noise = rng.lognormal(0.0, 1.0, len(person)) - np.exp(0.5)
    return Persons(X, X @ SLOPES + level[person] + noise, person)


def budgets(train: Persons, epsilon: float) -> tuple[Budget, Budget]:
    """The promise to a person, and what a row may be promised so that the person with most rows is kept it."""
    promise = Budget(epsilon, default_delta(len(train.sizes)))
    return promise, Budget(mu=promise.mu / int(train.sizes.max()))


def models(estimator: type, plain: Callable[[], object], train: Persons, epsilon: float, seed: int) -> Iterator[object]:
    """A fit in every way."""
    whole, part = budgets(train, epsilon)
    yield estimator(whole, random_state=seed).fit(train.X, train.y, groups=train.person)
    one = train.one_each(seed)
    yield estimator(whole, random_state=seed).fit(one.X, one.y)
    yield estimator(part, random_state=seed).fit(train.X, train.y)
    yield plain().fit(np.nan_to_num(train.X), train.y, sample_weight=train.weight)  # type: ignore[attr-defined]


def r_squared(model: object, test: Persons) -> float:
    """Held-out R^2, persons counted alike."""
    error = test.y - np.asarray(model.predict(np.nan_to_num(test.X)))  # type: ignore[attr-defined]
    spread = test.y - np.sum(test.weight * test.y)
    return 1.0 - float(np.sum(test.weight * error**2) / np.sum(test.weight * spread**2))


def log_loss(model: object, test: Persons) -> float:
    """Held-out log-loss, persons counted alike."""
    p = np.clip(np.asarray(model.predict_proba(np.nan_to_num(test.X)))[:, 1], 1e-12, 1.0 - 1e-12)  # type: ignore[attr-defined]
    return -float(np.sum(test.weight * np.where(test.y > 0, np.log(p), np.log1p(-p))))


def ridge(table: Persons, epsilon: float, seed: int) -> list[float]:
    """Held-out R^2 of linear regression."""
    train, test = table.split(seed)
    return [r_squared(model, test) for model in models(tg.PrivateRidge, LinearRegression, train, epsilon, seed)]


def slopes(table: Persons, epsilon: float, seed: int) -> list[float]:
    """Root mean square error of a slope of the synthetic table, from all persons; tables differ as well as noise."""
    drawn = skewed(len(table.sizes), seed)
    fits = models(tg.PrivateRidge, LinearRegression, drawn, epsilon, seed)
    return [float(np.sqrt(np.mean((np.asarray(fit.coef_) - SLOPES) ** 2))) for fit in fits]  # type: ignore[attr-defined]


def logistic(table: Persons, epsilon: float, seed: int) -> list[float]:
    """Held-out log-loss of logistic regression."""

    def estimator(budget: Budget, random_state: int) -> tg.PrivateLogisticRegression:
        return tg.PrivateLogisticRegression(budget, classes=(0, 1), random_state=random_state)

    def plain() -> object:
        return LogisticRegression(C=1e6, max_iter=5000)

    train, test = table.split(seed)
    return [log_loss(model, test) for model in models(estimator, plain, train, epsilon, seed)]  # type: ignore[arg-type]


def mean(table: Persons, epsilon: float, seed: int) -> list[float]:
    """Error of the mean over the target of its weighting, in per cent; of three quarters of the persons."""
    train, _ = table.split(seed)
    whole, part = budgets(train, epsilon)
    persons, rows = float(np.sum(table.weight * table.y)), float(table.y.mean())
    found = (
        (tg.private_mean(train.y, whole, groups=train.person, random_state=seed).value, persons),
        (tg.private_mean(train.one_each(seed).y, whole, random_state=seed).value, persons),
        (tg.private_mean(train.y, part, random_state=seed).value, rows),
        (float(np.sum(train.weight * train.y)), persons),
    )
    return [100.0 * abs(value / target - 1.0) for value, target in found]


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("TAILGUARD_DATA"), help="folder with randhie.csv.gz")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--persons", type=int, default=6000, help="of the synthetic table")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[4.0, 1.0])
    options = parser.parse_args(arguments)
    made = skewed(options.persons)
    tasks: dict[str, tuple[Callable[[Persons, float, int], list[float]], Persons, bool]] = {
        "1 to 50 rows, cost: error of a slope": (slopes, made, False),
        "1 to 50 rows, cost + 5: error of the mean, %": (mean, Persons(made.X, made.y + 5.0, made.person), False),
    }
    if options.data:
        years = randhie(options.data)
        tasks |= {
            "randhie, visits a year: held-out R^2": (ridge, years("mdvis"), True),
            "randhie, any expense: held-out log-loss": (logistic, years("binexp"), False),
            "randhie, dollars a year: error of the mean, %": (mean, years("meddol"), False),
        }
    print(f"| task | epsilon | {' | '.join(WAYS)} |")
    print(f"|---|---|{'---|' * len(WAYS)}")
    for name, (run, table, larger_is_better) in tasks.items():
        for epsilon in options.epsilon:
            found = np.array([run(table, epsilon, seed) for seed in range(options.seeds)])
            worst = np.quantile(found, 0.1 if larger_is_better else 0.9, axis=0)
            cells = [f"{m:.3g} / {w:.3g}" for m, w in zip(np.median(found, axis=0), worst, strict=True)]
            print(f"| {name} | {epsilon:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
