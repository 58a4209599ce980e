"""Nothing about the data leaves but the releases: with these held fixed, two runs look the same in every way.

Every estimator with every private method, every private mean and every named algorithm runs on a table and then on
its neighbours (and on tables that share nothing with it but their shape). Noise is the same, and `observing.Tape`
gives every run the releases of the first. Exceptions, warnings, logs, output, attributes, pickles, reports,
representations, predictions, callbacks, requests for noise, passes over the data and the state of the process must
then be equal. The last tests plant leaks, and each is seen.

What is not here is time: the number of passes is fixed, what a pass takes is not (docs/guarantees.md).
"""

from __future__ import annotations

import logging
import math
import pickle
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

import tailguard as tg
from observing import Fixed, Tape, differences, observe
from tailguard import algorithms, losses
from tailguard.constraints import Box, L2Ball
from tailguard.privacy import PrivacyReport

N, D = 240, 3
Table = tuple[Any, Any]


def table(dtype: Any = np.float64) -> Table:
    rng = np.random.default_rng(3)
    X = rng.standard_t(3, (N, D)).astype(dtype)
    return X, (X @ [1.0, -0.5, 0.0] + rng.standard_normal(N)).astype(dtype)


def labels(y: np.ndarray, kind: str) -> np.ndarray:
    """Targets that suit a loss."""
    if kind == "two":
        return (y > 0).astype(float)
    if kind == "three":
        return np.digitize(y, [-0.5, 0.5]).astype(float)
    return np.abs(np.rint(y)) if kind == "counts" else y


# Rows that stand in the place of row 5; the target takes the same value.
HOSTILE = {"zero": 0.0, "inf": np.inf, "nan": np.nan, "1e308": 1e308, "denormal": -5e-324}


def neighbours(X: np.ndarray, y: np.ndarray) -> dict[str, Table]:
    found: dict[str, Table] = {}
    with np.errstate(all="ignore"):
        for name, value in HOSTILE.items():
            row, target = X.copy(), y.copy()
            row[5], target[5] = value, value
            found[f"row of {name}"] = row, target
        entry, target = X.copy(), y.copy()
        entry[5, 1], target[9] = np.inf, np.nan
        found["an entry of inf"] = entry, y.copy()
        found["a target of nan"] = X.copy(), target
        # No neighbours, but what is a function of the releases cannot tell them either.
        rng = np.random.default_rng(4)
        found["another table"] = (1e6 * rng.standard_cauchy(X.shape)).astype(X.dtype), rng.permutation(y)
        found["nothing but nan and -inf"] = np.full_like(X, np.nan), np.full_like(y, -np.inf)
    return found


def show_report(report: PrivacyReport) -> dict[str, Any]:
    return {
        "report": report.to_json(),
        "report in words": str(report),
        "report as HTML": report._repr_html_(),
        "report added to itself": (report + report).to_json(),
    }


def show_model(model: Any) -> dict[str, Any]:
    rows = np.array([[0.0, 1.0, -1.0], [np.nan, np.inf, 1e308], [3.0, 3.0, 3.0]])
    seen = {
        "attributes": sorted(vars(model)),
        "values": {name: np.asarray(value).tolist() for name, value in vars(model).items() if name.endswith("_")},
        "pickle": pickle.dumps(model),
        "repr": repr(model),
        "HTML": _stable(model._repr_html_()),
        "predictions": model.predict(rows).tolist(),
        "tags": repr(model.__sklearn_tags__()),
    }
    seen["values"].pop("privacy_")
    seen["values"] = repr(seen["values"])
    if hasattr(model, "predict_proba"):
        seen["probabilities"] = model.predict_proba(rows).tolist()
    return seen | show_report(model.privacy_)


def _stable(page: str) -> str:
    """The HTML of scikit-learn numbers its diagrams."""
    return re.sub(r"sk-container-id-\d+|sk-estimator-id-\d+", "sk", page)


def show_result(result: Any) -> dict[str, Any]:
    seen = {"pickle": pickle.dumps((result.w, result.intercept, result.path)), "repr": repr(result)}
    if result.state is not None:
        seen["state"] = result.state.to_json()
    return seen | show_report(result.privacy)


def show_mean(result: Any) -> dict[str, Any]:
    return {"pickle": pickle.dumps(result), "repr": repr(result)} | show_report(result.privacy)


def cells(data: Any) -> str:
    """All values, whatever holds them."""
    dense = data.toarray() if scipy.sparse.issparse(data) else data
    return repr(np.asarray(dense, dtype=object).tolist())


def compare(
    patch: Any, run: Callable[[Any, Any, Fixed], Any], first: Table, others: dict[str, Table], look: Callable
) -> dict[str, list[str]]:
    """In which channels the run on each other table differs from the run on the first, the releases being equal."""
    tape = Tape()
    tape.install(patch)

    def seen(X: Any, y: Any) -> dict[str, Any]:
        before = [cells(part) for part in (X, y)]
        view = observe(lambda: run(X, y, Fixed(tape)), tape, look)
        view["data unchanged"] = [cells(part) for part in (X, y)] == before
        return view

    reference = seen(*first)
    assert "exception" not in reference, reference["exception"]
    assert reference["data unchanged"]
    assert tape.released, "nothing was released"
    found = {}
    for name, (X, y) in others.items():
        tape.rewind()
        found[name] = differences(reference, seen(X, y))
        if not found[name] and tape.at != len(tape.released):
            found[name] = ["number of releases"]
    return found


def assert_nothing_leaks(patch: Any, run: Callable, first: Table, others: dict[str, Table], look: Callable) -> None:
    leaks = {name: channels for name, channels in compare(patch, run, first, others, look).items() if channels}
    assert not leaks


# Estimators: the default, with and without slopes, and every private method.

METHODS: dict[str, dict[str, Any]] = {
    "auto": {"epsilon": 60.0},
    "auto, through the origin": {"epsilon": 60.0, "fit_intercept": False, "alpha": 0.1},
    "auto, level only": {"epsilon": 0.5},
    "clipped": {"method": "clipped", "clip": 2.0, "steps": 3},
    "clipped, batches": {"method": "clipped", "clip": 2.0, "steps": 3, "batch_size": 30},
    "smoothed": {"method": "smoothed", "v": 2.0, "steps": 3, "fit_intercept": False},
    "smoothed, batches": {"method": "smoothed", "scale": 2.0, "steps": 3, "batch_size": 30},
    "trimmed": {"method": "trimmed", "bounds": (-2.0, 2.0), "steps": 2, "threads": 1},
    "aggregate": {"method": "aggregate", "constraint": L2Ball(5.0), "blocks": 3, "alpha": 0.1},
}
ESTIMATORS: dict[str, tuple[type, str, dict[str, Any]]] = {
    "ridge": (tg.PrivateRidge, "", {}),
    "huber": (tg.PrivateHuberRegressor, "", {}),
    "poisson": (tg.PrivatePoissonRegressor, "counts", {}),
    "logistic": (tg.PrivateLogisticRegression, "two", {"classes": [0, 1]}),
    "multinomial": (tg.PrivateLogisticRegression, "three", {"classes": [0, 1, 2]}),
}


def test_every_private_method_of_the_estimators_is_here():
    from tailguard.linear_model.methods import METHODS as THEIRS

    assert {parameters.get("method", "auto") for parameters in METHODS.values()} == set(THEIRS) - {"robust"}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(monkeypatch, name, method):
    estimator, kind, extra = ESTIMATORS[name]
    X, y = table()
    first = X, labels(y, kind)

    def fit(X: Any, y: Any, noise: Fixed) -> Any:
        return estimator(random_state=noise, **({"threads": 2} | METHODS[method] | extra)).fit(X, y)

    others = neighbours(*first)
    if method == "aggregate":  # every block is solved anew, which takes its time
        others = {name: others[name] for name in ("row of inf", "row of nan", "row of 1e308", "another table")}
    assert_nothing_leaks(monkeypatch, fit, first, others, show_model)


@pytest.mark.parametrize("name", ["ridge", "huber", "poisson", "logistic"])
def test_estimators_with_intervals(monkeypatch, name):
    estimator, kind, extra = ESTIMATORS[name]
    X, y = table()
    first = X, labels(y, kind)

    def fit(X: Any, y: Any, noise: Fixed) -> Any:
        return estimator(epsilon=60.0, inference=True, random_state=noise, threads=2, **extra).fit(X, y)

    assert_nothing_leaks(monkeypatch, fit, first, neighbours(*first), show_model)


@pytest.mark.parametrize("name", ["ridge", "logistic"])
@pytest.mark.parametrize("method", ["auto", "clipped"])
def test_estimators_on_single_precision(monkeypatch, name, method):
    estimator, kind, extra = ESTIMATORS[name]
    X, y = table(np.float32)
    first = X, labels(y, kind).astype(np.float32)

    def fit(X: Any, y: Any, noise: Fixed) -> Any:
        return estimator(random_state=noise, **METHODS[method], **extra).fit(X, y)

    assert_nothing_leaks(monkeypatch, fit, first, neighbours(*first), show_model)


# The named algorithms and `minimize`, with a callback that looks at every state.

LOSSES: dict[str, tuple[Any, str]] = {
    "Squared": (losses.Squared(), ""),
    "Huber": (losses.Huber(1.0), ""),
    "Logistic": (losses.Logistic(), "two"),
    "Poisson": (losses.Poisson(), "counts"),
    "Multinomial": (losses.Multinomial(3), "three"),
    "Custom": (losses.Custom(value=lambda z, y: np.abs(z - y), dz=lambda z, y: np.tanh(z - y)), ""),
    "PerRow": (losses.PerRow(lambda w, X, y: (np.sum(X * w, axis=1) - y)[:, None] * X), ""),
}
ALGORITHMS: dict[str, Callable[..., Any]] = {
    "clipped_gd": partial(algorithms.clipped_gd, clip=2.0, steps=3),
    "clipped_gd, batches": partial(algorithms.clipped_gd, clip=2.0, steps=3, batch_size=25, average="mean"),
    "clipped_gd, batches, replace-one": partial(
        algorithms.clipped_gd, clip=2.0, steps=2, batch_size=25, relation="replace-one"
    ),
    "clipped_gd, add-remove": partial(algorithms.clipped_gd, clip=2.0, steps=2, relation="add-remove", alpha=0.1),
    "algorithm4": partial(algorithms.algorithm4, v=2.0, steps=3, constraint=Box(-1.0, 1.0)),
    "algorithm4, paper": partial(algorithms.algorithm4, v=2.0, steps=3, setting="paper", step_size="1/sqrt(t)"),
    "algorithm3": partial(algorithms.algorithm3, a=-2.0, b=2.0, steps=2, threads=1),
    "algorithm3, paper": partial(algorithms.algorithm3, a=-2.0, b=2.0, steps=2, setting="paper", threads=1),
    "minimize": partial(tg.minimize, method="clipped", clip=2.0, steps=3),
}
EVERY = [(name, "Squared") for name in ALGORITHMS] + [
    (name, loss) for name in ("clipped_gd", "algorithm4", "algorithm3") for loss in LOSSES if loss != "Squared"
]


@pytest.mark.parametrize(("name", "loss"), EVERY)
def test_descending_algorithms(monkeypatch, name, loss):
    part, kind = LOSSES[loss]
    X, y = table()
    first = X, labels(y, kind)

    def run(X: Any, y: Any, noise: Fixed) -> Any:
        states: list[str] = []
        result = ALGORITHMS[name](
            part, X, y, epsilon=1.0, random_state=noise, callback=lambda state: states.append(state.to_json())
        )
        return result, states

    def look(found: Any) -> dict[str, Any]:
        return show_result(found[0]) | {"states that a callback saw": found[1]}

    assert_nothing_leaks(monkeypatch, run, first, neighbours(*first), look)


@pytest.mark.parametrize("loss", ["Squared", "Custom"])
def test_the_block_median(monkeypatch, loss):
    """The other losses are those of the estimators with method="aggregate"."""
    part, kind = LOSSES[loss]
    X, y = table()
    first = X, labels(y, kind)

    def run(X: Any, y: Any, noise: Fixed) -> Any:
        return algorithms.algorithm1(
            part, X, y, epsilon=2.0, constraint=L2Ball(5.0), blocks=3, alpha=0.1, random_state=noise, threads=2
        )

    assert_nothing_leaks(monkeypatch, run, first, neighbours(*first), show_result)


def test_the_centre_of_the_blocks(monkeypatch):
    """With so large an epsilon that some hundred blocks are enough."""
    X, y = table()

    def run(X: Any, y: Any, noise: Fixed) -> Any:
        return algorithms.algorithm1(
            losses.Squared(),
            X,
            y,
            epsilon=50.0,
            constraint=Box(-3.0, 4.0),
            aggregator="center",
            blocks=120,
            random_state=noise,
            threads=2,
        )

    assert_nothing_leaks(monkeypatch, run, (X, y), neighbours(X, y), show_result)


# Means.

MEANS: dict[str, Callable[..., Any]] = {
    "auto": partial(tg.private_mean, epsilon=20.0),
    "auto, small budget": partial(tg.private_mean, epsilon=0.1),
    "smoothed": partial(tg.private_mean, epsilon=1.0, method="smoothed", v=2.0),
    "smoothed, add-remove": partial(tg.private_mean, epsilon=1.0, method="smoothed", scale=2.0, relation="add-remove"),
    "clipped": partial(tg.private_mean, epsilon=1.0, method="clipped", clip=2.0),
    "clamped": partial(tg.private_mean, epsilon=1.0, method="clamped", clip=2.0),
    "trimmed": partial(tg.private_mean, epsilon=1.0, method="trimmed", bounds=(-2.0, 2.0), threads=1),
    "algorithm2, rho": partial(algorithms.algorithm2, rho=0.1, a=-2.0, b=2.0, m=3, threads=1),
    "algorithm2, paper": partial(algorithms.algorithm2, epsilon=1.0, a=-2.0, b=2.0, setting="paper", threads=1),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", MEANS)
def test_means(monkeypatch, name, dtype):
    X, y = table(dtype)

    def run(X: Any, y: Any, noise: Fixed) -> Any:
        return MEANS[name](X, random_state=noise)

    assert_nothing_leaks(monkeypatch, run, (X, y), neighbours(X, y), show_mean)


# What rows come in: a missing or huge value must not decide whether a container is accepted.


def carriers() -> dict[str, tuple[Table, dict[str, Table]]]:
    X, y = table()
    whole = np.rint(10 * X).astype(np.int64)

    def replaced(value: Any, make: Callable[[list[list[Any]]], Any], rows: np.ndarray) -> Table:
        cells = rows.tolist()
        cells[5] = [value, cells[5][1], value]
        return make(cells), y

    def nullable(cells: list[list[Any]]) -> pd.DataFrame:
        return pd.DataFrame(cells, columns=list("abc"), dtype="Int64")

    def polar(cells: list[list[Any]]) -> pl.DataFrame:
        return pl.DataFrame(cells, schema=dict.fromkeys("abc", pl.Float64), orient="row")

    def objects(cells: list[list[Any]]) -> np.ndarray:
        return np.array(cells, dtype=object)

    large = [10**400, -(10**400), 2**64, -(2**63), None]
    return {
        "list": ((whole.tolist(), y), {str(v)[:9]: replaced(v, list, whole) for v in large}),
        "object array": ((X.astype(object), y), {str(v)[:9]: replaced(v, objects, X) for v in [*large, pd.NA]}),
        "integers": (
            (whole, y),
            {str(v): replaced(v, np.array, whole) for v in (2**63 - 1, -(2**63), 0)},
        ),
        "long doubles": (
            (X.astype(np.longdouble), y),
            {v: replaced(np.longdouble(v), partial(np.array, dtype=np.longdouble), X) for v in ("1e4000", "-1e-4900")},
        ),
        "frame with missing whole numbers": (
            (nullable(whole.tolist()), y),
            {"NA": replaced(pd.NA, nullable, whole), "large": replaced(2**62, nullable, whole)},
        ),
        "frame of objects": (
            (pd.DataFrame(X.astype(object), columns=list("abc")), y),
            {str(v)[:9]: replaced(v, lambda c: pd.DataFrame(objects(c), columns=list("abc")), X) for v in large},
        ),
        "polars": (
            (polar(X.tolist()), y),
            {str(v): replaced(v, polar, X) for v in (None, math.nan, math.inf, 1e308)},
        ),
        "sparse": (
            (scipy.sparse.csr_array(X), y),
            {str(v): replaced(v, lambda c: scipy.sparse.csr_array(np.array(c)), X) for v in (0.0, 1e308, np.nan)},
        ),
        "masked": (
            (np.ma.masked_array(X, np.zeros_like(X)), y),
            {"a masked row": (np.ma.masked_array(X, np.arange(N)[:, None] == np.full(D, 5)), y)},
        ),
    }


@pytest.mark.parametrize("carrier", carriers())
@pytest.mark.parametrize("method", ["auto", "clipped"])
def test_estimators_take_any_value_in_any_container(monkeypatch, carrier, method):
    first, others = carriers()[carrier]

    def fit(X: Any, y: Any, noise: Fixed) -> Any:
        return tg.PrivateRidge(random_state=noise, **METHODS[method]).fit(X, y)

    assert_nothing_leaks(monkeypatch, fit, first, others, show_model)


@pytest.mark.parametrize("carrier", [name for name in carriers() if name not in ("object array", "sparse")])
def test_means_take_any_value_in_any_container(monkeypatch, carrier):
    """Arrays of objects and sparse matrices are refused, whatever is in them."""
    first, others = carriers()[carrier]
    assert_nothing_leaks(
        monkeypatch, lambda X, y, noise: MEANS["clipped"](X, random_state=noise), first, others, show_mean
    )


@pytest.mark.parametrize("carrier", [name for name in carriers() if name not in ("object array", "sparse", "masked")])
def test_a_target_in_any_container(monkeypatch, carrier):
    """One column of the same containers, as y of an estimator."""
    (X, _), others = carriers()[carrier]

    def target(cells: Any) -> Any:
        if isinstance(cells, list):
            return [row[0] for row in cells]
        return cells[:, 0] if isinstance(cells, np.ndarray) else cells["a"]

    rows = table()[0]
    tables = {name: (rows, target(cells)) for name, (cells, _) in others.items()}

    def fit(X: Any, y: Any, noise: Fixed) -> Any:
        return tg.PrivateRidge(random_state=noise, **METHODS["auto"]).fit(X, y)

    assert_nothing_leaks(monkeypatch, fit, (rows, target(X)), tables, show_model)


# Rows in files: a cell that is not a number is missing, and a line that is not a row is a row of nothing.

CELLS = {
    "empty": "",
    "text": "Alice",
    "nan": "nan",
    "inf": "inf",
    "beyond floats": "1e400",
    "quoted": '"1"',
    "a long number": "9" * 400,
}


@pytest.mark.parametrize("estimator", [tg.PrivateRidge, tg.PrivateLogisticRegression])
@pytest.mark.parametrize("memory", [0, 2**20], ids=["streamed", "kept"])
def test_files(monkeypatch, tmp_path, estimator, memory):
    X, y = table()
    classes = {"classes": [0, 1]} if estimator is tg.PrivateLogisticRegression else {}
    lines = [f"{a},{b},{c},{int(target > 0)}" for (a, b, c), target in zip(X.tolist(), y.tolist(), strict=True)]

    def written(name: str, line: str) -> Table:
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(["a,b,c,cost", *lines[:5], line, *lines[6:]]) + "\n")
        return str(path), None

    others = {name: written(name, f"{cell},1.0,{cell},{cell}") for name, cell in CELLS.items()}
    others["too few cells"], others["too many cells"] = written("few", "1.0,2.0"), written("many", "1,2,3,4,5,6")

    def fit(path: Any, _: Any, noise: Fixed) -> Any:
        rows = tg.Source(path, target="cost", memory=memory)
        return estimator(random_state=noise, **METHODS["clipped"], **classes).fit(rows)

    assert_nothing_leaks(monkeypatch, fit, written("first", lines[5]), others, show_model)


# Labels.


@pytest.mark.parametrize("method", ["auto", "clipped"])
@pytest.mark.parametrize("count", [2, 3])
def test_labels_outside_the_public_classes(monkeypatch, method, count):
    """Words, numbers, nothing at all and things that cannot be labels: none of them is told from another."""
    X, y = table()
    words = np.array(["no", "yes", "maybe"][:count])
    known = words[labels(y, "two" if count == 2 else "three").astype(int)].astype(object)
    others = {}
    for strange in (
        "never seen",
        "",
        7,
        3.5,
        True,
        None,
        math.nan,
        math.inf,
        pd.NA,
        ("no",),
        ["no"],
        {"no": 1},
        b"no",
        2j,
    ):
        column = known.copy()
        column[5] = strange
        others[repr(strange)] = X, column
    others["one class"] = X, np.full(N, "no", dtype=object)
    others["no class"] = X, np.full(N, "never seen", dtype=object)
    # A column of words with a longer word in it has another type of words, and counts for the same.
    longer = known.astype(str).astype("<U40")
    longer[5] = "a word that is longer than all others"
    others["longer words"] = X, longer

    def fit(X: Any, y: Any, noise: Fixed) -> Any:
        return tg.PrivateLogisticRegression(random_state=noise, classes=words, **METHODS[method]).fit(X, y)

    assert_nothing_leaks(monkeypatch, fit, (X, known), others, show_model)


# Refusals: of a type, in the same words whatever the values are.


@pytest.mark.parametrize(
    "call",
    [
        lambda X, y: tg.PrivateRidge().fit(X, y),
        lambda X, y: tg.PrivateLogisticRegression(classes=[0, 1]).fit(X, y),
        lambda X, y: algorithms.clipped_gd(losses.Squared(), X, y, epsilon=1.0, clip=1.0),
        lambda X, y: tg.private_mean(X, 1.0),
        lambda X, y: tg.PrivateRidge().fit(y, X[:, 0]),
    ],
    ids=["ridge", "logistic", "clipped_gd", "private_mean", "target"],
)
def test_a_column_of_words_is_refused_in_the_same_words(call):
    """That there is a text in a column is its type and said; what it says, where it stands and how often is not."""
    X, y = table()
    told = set()
    for row, text in ((0, "Alice"), (7, "a sample of features: HIV"), (N - 1, "Found array with"), (3, "1e5x")):
        words = X.astype(object)
        words[row, 0] = text
        view = observe(lambda words=words: call(words, y[:, None] if y.ndim == 1 else y), Tape(), lambda result: {})
        told.add(repr({name: view[name] for name in ("exception", "warnings", "logs", "output")}))
    assert len(told) == 1
    assert not any(word in told.copy().pop() for word in ("Alice", "HIV", "1e5x"))


# Power: what gets out around the mechanism is seen.


def leak_nothing(X: Any, y: Any, model: Any) -> None:
    """The control."""


def leak_an_attribute(X: Any, y: Any, model: Any) -> None:
    model.largest_ = float(np.nanmax(X))


def leak_a_hidden_attribute(X: Any, y: Any, model: Any) -> None:
    model._rows_seen = int(np.isfinite(X).all(axis=1).sum())


def leak_a_warning(X: Any, y: Any, model: Any) -> None:
    if not np.isfinite(X).all():
        warnings.warn("rows were skipped", stacklevel=2)


def leak_a_numpy_warning(X: Any, y: Any, model: Any) -> None:
    with np.errstate(all="warn"):
        X * 1e10


def leak_an_exception(X: Any, y: Any, model: Any) -> None:
    if np.isnan(X).any():
        raise ValueError("Input X contains NaN.")


def leak_a_log_line(X: Any, y: Any, model: Any) -> None:
    logging.getLogger("tailguard.somewhere").debug("mean of y: %.3f", np.mean(y))


def leak_a_print(X: Any, y: Any, model: Any) -> None:
    print(f"clipped {np.mean(np.abs(X) > 1):.0%}", file=sys.stderr)


def leak_a_draw(X: Any, y: Any, model: Any) -> None:
    if np.abs(X[5]).max() > 100:  # "retry"
        model.random_state.discrete_gaussian(2.0**30, 1)


def leak_a_pass(X: Any, y: Any, model: Any) -> None:
    from tailguard.engines.memory import InMemory

    if np.abs(X[5]).max() > 100:
        InMemory(X).integer_sum(lambda X, y: np.zeros(1, np.int64), (1,))


def leak_by_the_process(X: Any, y: Any, model: Any) -> None:
    np.seterr(under="warn" if np.abs(X[5]).max() > 100 else "ignore")


def leak_by_the_data(X: Any, y: Any, model: Any) -> None:
    if np.abs(X[5]).max() > 100:
        X[5] = 0.0


LEAKS = {
    leak_nothing: set(),
    leak_an_attribute: {"attributes", "pickle", "values"},
    leak_a_hidden_attribute: {"pickle"},
    leak_a_warning: {"warnings"},
    leak_a_numpy_warning: {"warnings"},
    leak_an_exception: {"exception"},
    leak_a_log_line: {"logs"},
    leak_a_print: {"output"},
    leak_a_draw: {"requests and passes"},
    leak_a_pass: {"requests and passes"},
    leak_by_the_process: {"process"},
    leak_by_the_data: {"data unchanged"},
}


@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.__name__)
def test_a_planted_leak_is_seen(monkeypatch, leak):
    X, y = table()
    # Row 5 is within the bulk, so that only the neighbours are far out.
    X[5] = 0.5

    def fit(X: Any, y: Any, noise: Fixed) -> Any:
        model = tg.PrivateRidge(random_state=noise, **METHODS["clipped"]).fit(X, y)
        leak(X, y, model)
        return model

    with np.errstate():
        seen = compare(monkeypatch, fit, (X, y), neighbours(X, y), show_model)
    channels = set().union(*seen.values())
    if leak is leak_nothing:
        assert not channels
    else:
        assert LEAKS[leak] & channels


def test_a_release_that_depends_on_the_data_in_another_way_is_seen(monkeypatch):
    """Noise whose size follows the data, and a step that is left out where the gradient is large."""
    X, y = table()

    def by_scale(X: Any, y: Any, noise: Fixed) -> Any:
        return tg.private_mean(X, 1.0, method="clipped", clip=float(np.nanmax(np.abs(X[:, 0]))), random_state=noise)

    def by_steps(X: Any, y: Any, noise: Fixed) -> Any:
        steps = 2 if np.isfinite(X).all() else 3
        return algorithms.clipped_gd(losses.Squared(), X, y, epsilon=1.0, clip=1.0, steps=steps, random_state=noise)

    far = {"far": neighbours(X, y)["another table"], "inf": neighbours(X, y)["row of inf"]}
    with monkeypatch.context() as patch:
        assert any(compare(patch, by_scale, (X, y), {"far": far["far"]}, show_mean).values())
    with monkeypatch.context() as patch:
        assert any(compare(patch, by_steps, (X, y), {"inf": far["inf"]}, show_result).values())
