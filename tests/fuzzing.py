"""Fuzzing of the public entry points: a clear error or a defined result; never a crash, a hang or a silent NaN.

Each target draws arguments, most of them right and some of them absurd, and calls one entry point. What may happen:

* a ``TypeError``, ``ValueError`` or ``OSError`` that the package (or scikit-learn, about shapes) raises on purpose,
  with a sentence. An error from deep inside NumPy is a failure: nobody could act on it;
* a result whose every number is finite, within its promise.

``make fuzz`` runs all targets for ``FUZZ_SECONDS`` (60), on examples that are new every time; `test_fuzz.py` runs a
few, the same ones, with the tests. A failure prints the smallest example found and the seed:
``make fuzz FUZZ_TARGET=means FUZZ_SEED=123`` repeats it. Whoever writes a reader of files adds it to `READERS`.
"""

from __future__ import annotations

import faulthandler
import json
import linecache
import math
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import tailguard as tg
from tailguard import algorithms, constraints, datasets, losses
from tailguard.descent import State
from tailguard.privacy import (
    Account,
    ApproximateDP,
    Event,
    Gaussian,
    NotPrivate,
    PoissonGaussian,
    ZeroConcentrated,
    epsilon_of,
)

Draw = Callable[..., Any]
OUTCOMES: Counter[str] = Counter()
LONGEST = 60.0  # seconds for one call: what takes longer hangs

# Deliberate complaints come from here; the second is scikit-learn about shapes, names and sparse formats.
OURS = (f"{os.sep}tailguard{os.sep}", f"{os.sep}sklearn{os.sep}")
ABSURD = (
    None,
    True,
    "",
    "x",
    b"x",
    math.nan,
    math.inf,
    -math.inf,
    0,
    -1,
    -1.5,
    1e308,
    -1e308,
    5e-324,
    10**400,
    -(10**400),
    1j,
    [],
    [1.0],
    (1.0, 2.0),
    {},
    {"a": 1},
    object(),
    Decimal(1),
    np.float32(0.5),
    np.int64(3),
    np.array([1.0, 2.0]),
    np.array(math.nan),
)
AWKWARD = (
    0.0,
    -0.0,
    5e-324,
    1e-200,
    1e-154,
    1.0,
    -3.0,
    1e6,
    1e38,
    1e154,
    -1e300,
    1.797e308,
    math.inf,
    -math.inf,
    math.nan,
)


# Whether what happened is allowed.


def is_clear(error: BaseException) -> bool:
    """A sentence, raised on purpose by the package; or the system's that a file is not there."""
    if isinstance(error, FileNotFoundError):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    on_purpose = line.startswith("raise ") or "raise " in line or _in_raise(last)
    return any(place in last.filename for place in OURS) and on_purpose and len(str(error)) >= 10


def _in_raise(frame: traceback.FrameSummary) -> bool:
    """Whether a statement of several lines begins with ``raise``."""
    start = frame.lineno or 0
    return any(linecache.getline(frame.filename, start - back).strip().startswith("raise ") for back in range(4))


def attempt(call: Callable[[], Any]) -> Any:
    """Return the result, or None after a clear error; anything else is a failure."""
    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*column-vector y was passed.*")
        warnings.filterwarnings("ignore", message=".*number of unique classes is greater.*")
        warnings.filterwarnings("ignore", message=".*feature names, but.*")
        warnings.filterwarnings("ignore", message=".*are too few for .* columns at.*")
        try:
            result = call()
        except (TypeError, ValueError, OSError) as error:
            if not is_clear(error):
                raise AssertionError(f"not a clear error: {type(error).__name__}: {error}") from error
            OUTCOMES[type(error).__name__] += 1
            result = None
        else:
            OUTCOMES["result"] += 1
    assert time.monotonic() - began < LONGEST, "took too long"
    return result


def assert_finite(*values: Any) -> None:
    for value in values:
        assert np.all(np.isfinite(np.asarray(value, dtype=np.float64))), "a number that is not finite"


def assert_promise(report: tg.PrivacyReport, epsilon: Any) -> None:
    """The report keeps the promise or says why there is none; it can be written and read."""
    if not report.reasons and isinstance(epsilon, (int, float)):
        assert report.epsilon <= epsilon * (1.0 + 1e-12)
    assert report.private or report.reasons
    assert tg.PrivacyReport.from_json(report.to_json()) == report
    assert str(report)


# Arguments.


def mostly(right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The right kind of argument, one time in eight an absurd one."""
    return st.integers(0, 7).flatmap(lambda k: st.sampled_from(ABSURD) if k == 7 else right)


def some_of(draw: Draw, options: dict[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    """Some of the keyword arguments."""
    return {name: draw(mostly(values), label=name) for name, values in options.items() if draw(st.booleans())}


NUMBERS = st.sampled_from(AWKWARD) | st.floats(-5.0, 5.0) | st.floats()
SIZES = st.sampled_from([30, 30, 30, 7, 2, 1, 0])
WIDTHS = st.sampled_from([1, 2, 3, 0])
EPSILON = st.sampled_from([1.0, 0.1, 8.0, 60.0, 1e-3, 1e3]) | st.floats(1e-9, 1e9)


def draw_table(draw: Draw, n: int, d: int) -> Any:
    """Rows of any values in one of many containers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32), label="table"))
    X = rng.standard_t(2, (n, d))
    for value in draw(st.lists(NUMBERS, max_size=6), label="values"):
        if X.size:
            X[rng.integers(n), rng.integers(d)] = value
    kind = draw(st.integers(0, 14), label="container")
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == 0:
            return X.astype(np.float32)
        if kind == 1:
            return np.nan_to_num(X, nan=0.0, posinf=9.0, neginf=-9.0).astype(np.int64)
        if kind == 2:
            return X.tolist()
        if kind == 3:
            return pd.DataFrame(X, columns=[f"c{j}" for j in range(d)])
        if kind == 4:
            return scipy.sparse.csr_array(X) if X.size else X
        if kind == 5:
            cells = X.astype(object)
            if X.size:
                cells[0, 0] = draw(st.sampled_from(["text", None, 10**400, pd.NA, 1j, [1]]), label="cell")
            return cells
        if kind == 6:
            return np.asfortranarray(X)
        if kind == 7:
            return draw(
                st.sampled_from(
                    [X.astype(str), X + 1j, X.astype("datetime64[s]"), X[0] if n else X, X[None], None, 3.0, "rows"]
                )
            )
        if kind == 8:
            return np.ma.masked_invalid(X)
    return X


def draw_target(draw: Draw, n: int, kind: str) -> Any:
    rng = np.random.default_rng(draw(st.integers(0, 2**32), label="target"))
    y: Any = rng.integers(0, 3, n).astype(float) if kind == "labels" else rng.standard_t(2, n)
    for value in draw(st.lists(NUMBERS, max_size=3), label="values of y"):
        if n:
            y[rng.integers(n)] = value
    shape = draw(st.integers(0, 9), label="shape of y")
    if shape == 0:
        return y[:, None]
    if shape == 1:
        return y.tolist()
    if shape == 2:
        return draw(
            st.sampled_from(
                [y[:-1], np.append(y, 1.0), None, "y", 1.0, y.astype(object), y.astype(str), y[:, None] + [0, 1]]
            )
        )
    if shape == 3 and kind == "labels":
        return np.array(["a", "b", "c"])[rng.integers(0, 3, n)]
    return y


CONSTRAINTS = st.sampled_from(
    [constraints.L2Ball(5.0), constraints.Box(-1.0, 1.0), constraints.Simplex(), constraints.Unconstrained()]
)
COMMON: dict[str, st.SearchStrategy[Any]] = {
    "delta": st.sampled_from([1e-6, 1e-9, 0.5]),
    "alpha": st.sampled_from([0.0, 0.1, 1e3]),
    "fit_intercept": st.booleans(),
    "constraint": CONSTRAINTS,
    "steps": st.integers(1, 3),
    "step_size": st.sampled_from([0.1, 1.0, 1e6]),
    "batch_size": st.sampled_from([1, 5, 30, 2.5]),
    "allow_large_delta": st.booleans(),
    "threads": st.integers(1, 3),
    "random_state": st.sampled_from([0, 7]),
}


# Targets: each takes ``draw``.


def estimators(draw: Draw) -> None:
    kind = draw(
        st.sampled_from(
            [tg.PrivateRidge, tg.PrivateHuberRegressor, tg.PrivateLogisticRegression, tg.PrivatePoissonRegressor]
        )
    )
    n, d = draw(SIZES), draw(WIDTHS)
    X = draw_table(draw, n, d)
    y = draw_target(draw, n, "labels" if kind is tg.PrivateLogisticRegression else "numbers")
    method = draw(st.sampled_from(["auto", "auto", "clipped", "smoothed", "trimmed", "aggregate", "robust"]))
    needed: dict[str, st.SearchStrategy[Any]] = {
        "auto": {},
        "clipped": {"clip": st.sampled_from([1.0, 1e-3])},
        "smoothed": {"v": st.sampled_from([1.0, 1e6])},
        "robust": {"scale": st.sampled_from([1.0, 1e6])},
        "trimmed": {"bounds": st.just((-2.0, 2.0))},
        "aggregate": {"constraint": CONSTRAINTS, "blocks": st.integers(1, 4)},
    }[method]
    parameters = {name: draw(mostly(values), label=name) for name, values in needed.items()}
    parameters |= {k: v for k, v in some_of(draw, COMMON).items() if k not in parameters}
    if kind is tg.PrivateLogisticRegression and draw(st.booleans()):
        parameters["classes"] = draw(mostly(st.sampled_from([[0, 1, 2], [0.0, 1.0], ["a", "b"], [0]])), label="classes")
    if kind is tg.PrivateHuberRegressor and method != "auto" and draw(st.booleans()):
        parameters["threshold"] = draw(mostly(st.just(1.0)), label="threshold")
    epsilon = draw(mostly(EPSILON), label="epsilon")
    model = attempt(lambda: kind(epsilon, method=draw(mostly(st.just(method))), **parameters).fit(X, y))
    if model is None:
        return
    assert_finite(model.coef_, model.intercept_)
    assert_promise(model.privacy_, epsilon)
    assert not np.any(np.isnan(np.concatenate([model.lower_, model.upper_])))
    rows = draw_table(draw, draw(st.sampled_from([3, 1, 0])), draw(st.sampled_from([d, d, d + 1])))
    if kind is not tg.PrivateLogisticRegression:
        found = attempt(lambda: model.predict(rows))
        if found is not None:
            assert_finite(found)
        return
    found = attempt(lambda: (model.predict(rows), model.predict_proba(rows), model.predict_log_proba(rows)))
    if found is not None:
        assert set(np.unique(found[0]).tolist()) <= set(model.classes_.tolist())
        assert_finite(*found[1:])


def means(draw: Draw) -> None:
    n, d = draw(SIZES), draw(WIDTHS)
    x = draw_table(draw, n, d)
    if isinstance(x, np.ndarray) and x.ndim == 2 and x.shape[1] and draw(st.booleans()):
        x = x[:, 0]
    method = draw(st.sampled_from(["auto", "smoothed", "clipped", "clamped", "trimmed"]))
    needed: dict[str, Any] = {
        "auto": {},
        "smoothed": {"v": st.sampled_from([1.0, 1e10])},
        "clipped": {"clip": st.sampled_from([1.0, 1e-6])},
        "clamped": {"clip": st.sampled_from([1.0, 1e50])},
        "trimmed": {"bounds": st.just((-2.0, 2.0)), "trim": st.integers(0, 3)},
    }[method]
    parameters = {name: draw(mostly(values), label=name) for name, values in needed.items()}
    parameters |= some_of(
        draw,
        {
            "delta": st.sampled_from([1e-6, 0.5]),
            "relation": st.sampled_from(["replace-one", "add-remove"]),
            "failure": st.sampled_from([0.01, 0.5]),
            "allow_large_delta": st.booleans(),
            "random_state": st.just(0),
            "threads": st.integers(1, 3),
        },
    )
    epsilon = draw(mostly(EPSILON | st.just(tg.Budget(rho=0.1)) | st.just(tg.Budget(mu=0.3))), label="epsilon")
    result = attempt(lambda: tg.private_mean(x, epsilon, method=draw(mostly(st.just(method))), **parameters))
    if result is not None:
        assert_finite(result.value)
        assert_promise(result.privacy, epsilon)


LOSSES = (
    losses.Squared(),
    losses.Logistic(),
    losses.Huber(1.0),
    losses.Poisson(),
    losses.Multinomial(3),
    losses.Custom(value=lambda z, y: np.abs(z - y), dz=lambda z, y: np.tanh(z - y)),
    losses.PerRow(lambda w, X, y: (np.sum(X * w[: X.shape[1]], axis=1) - y)[:, None] * np.ones(len(w))),
)


def minimisers(draw: Draw) -> None:
    n, d = draw(SIZES), draw(WIDTHS)
    X, y = draw_table(draw, n, d), draw_target(draw, n, "numbers")
    name = draw(st.sampled_from(["clipped_gd", "algorithm4", "algorithm3", "robust_gd", "algorithm1"]))
    needed: dict[str, Any] = {
        "clipped_gd": {"clip": st.sampled_from([1.0, 1e-3])},
        "algorithm4": {"v": st.sampled_from([1.0, 1e6])},
        "robust_gd": {"v": st.sampled_from([1.0, 1e6])},
        "algorithm3": {"a": st.just(-1.0), "b": st.just(1.0)},
        "algorithm1": {"constraint": CONSTRAINTS, "blocks": st.integers(1, 4)},
    }[name]
    parameters = {key: draw(mostly(values), label=key) for key, values in needed.items()}
    options = COMMON | {
        "average": st.sampled_from(["last", "mean"]),
        "relation": st.sampled_from(["replace-one", "add-remove"]),
        "start": st.sampled_from([[0.0] * d, [1e300] * d]),
        "setting": st.sampled_from(["improved", "paper"]),
        "beta": st.sampled_from([0.5, 500.0]),
        "m": st.integers(0, 4),
        "resume": st.sampled_from([State(0, np.zeros((1, d)), np.zeros((1, d)), "x")]),
    }
    if name == "algorithm1":
        options = {key: options[key] for key in ("delta", "alpha", "allow_large_delta", "random_state", "threads")}
    parameters |= {k: v for k, v in some_of(draw, options).items() if k not in parameters}
    if name != "algorithm1":
        parameters.setdefault("steps", 2)
    if "resume" in parameters and parameters["resume"] is None:
        del parameters["resume"]
    loss = draw(mostly(st.sampled_from(LOSSES)))
    epsilon = draw(mostly(EPSILON), label="epsilon")
    if name != "robust_gd":
        parameters["epsilon"] = epsilon
    # A keyword that a function does not have is Python's own error, and clear.
    known = set(COMMON) | {"average", "relation", "start", "resume", "epsilon", *needed}
    extra = {"algorithm4": {"setting", "beta"}, "algorithm3": {"setting", "m"}, "robust_gd": {"beta"}}.get(name, set())
    parameters = {key: value for key, value in parameters.items() if key in known | extra}
    if name == "algorithm3":
        parameters.pop("batch_size", None)
    result = attempt(lambda: getattr(algorithms, name)(loss, X, y, **parameters))
    if result is not None:
        assert_finite(result.w, result.path, *([] if result.intercept is None else [result.intercept]))
        assert_promise(result.privacy, epsilon if name != "robust_gd" else math.inf)
        if result.state is not None:
            assert State.from_json(result.state.to_json()).w.tobytes() == result.state.w.tobytes()


def functions(draw: Draw) -> None:
    """`psi`, constraints, losses, budgets, events, accounts, synthetic data."""
    absurd = mostly(st.floats())
    choice = draw(st.integers(0, 6))
    if choice == 0:
        a = draw(st.lists(NUMBERS, max_size=5) | NUMBERS)
        beta = draw(mostly(st.floats(0.1, 1000.0)))
        found = attempt(lambda: tg.psi(a, beta))
        if found is not None:
            assert_finite(found)
            assert np.all(np.abs(found) <= tg.psi_bound(beta))
    elif choice == 1:
        names = draw(st.sets(st.sampled_from(["epsilon", "delta", "rho", "mu"])))
        budget = attempt(
            lambda: tg.Budget(**{name: draw(mostly(st.floats(0.0, 2.0)), label=name) for name in sorted(names)})
        )
        if budget is not None:
            assert tg.Budget.from_dict(budget.to_dict()) == budget
            attempt(lambda: (budget.mu, budget.rho, budget.describe()))
            account = attempt(lambda: Account(budget, max_samples=draw(mostly(st.integers(0, 100)))))
            if account is not None:
                attempt(lambda: account.spend(share=draw(absurd), samples=draw(mostly(st.integers(0, 200)))))
                attempt(lambda: budget.allows(account.events))
    elif choice == 2:
        kind = draw(st.sampled_from([Gaussian, ZeroConcentrated, ApproximateDP, PoissonGaussian]))
        numbers = [draw(absurd) for _ in range(1 + (kind in (ApproximateDP, PoissonGaussian)))]
        event = attempt(lambda: kind(*numbers, count=draw(mostly(st.integers(1, 10)))))
        if event is not None:
            assert Event.from_dict(json.loads(json.dumps(event.to_dict()))) == event
            if kind is not PoissonGaussian:
                price = attempt(
                    lambda: epsilon_of(
                        [event, NotPrivate("x")][: draw(st.integers(1, 2))], draw(mostly(st.floats(1e-9, 0.1)))
                    )
                )
                assert price is None or price >= 0.0
    elif choice == 3:
        kind = draw(st.sampled_from([constraints.L2Ball, constraints.Box, constraints.Simplex]))
        inside = attempt(lambda: kind(*[draw(absurd) for _ in range(1 + (kind is constraints.Box))]))
        if inside is not None:
            point = np.array(draw(st.lists(st.floats(-1e150, 1e150), min_size=2, max_size=2)))
            found = attempt(lambda: inside.check(2) or inside.project(point))
            assert found is None or np.all(np.isfinite(found))
    elif choice == 4:
        kind = draw(st.sampled_from([losses.Huber, losses.Multinomial]))
        attempt(lambda: kind(draw(absurd)))
        attempt(lambda: losses.PerRow(draw(absurd)))
        attempt(lambda: losses.Custom(value=np.tanh, dz=draw(absurd)))
    elif choice == 5:
        make = draw(st.sampled_from([datasets.make_linear, datasets.make_binary]))
        options = {
            "n": st.integers(1, 9),
            "d": st.integers(1, 3),
            "seed": st.just(0),
            "mu": st.floats(-100, 100),
            "sigma": st.floats(0, 10),
            "features": st.sampled_from(["normal", "t3", "lognormal"]),
            "w": st.just([1.0]),
        }
        chosen = {"n": 5, "d": 1, "seed": 0} | some_of(draw, options)
        data = attempt(lambda: make(**chosen))
        if data is not None:
            assert_finite(data.X, data.w, data.second_moment)
            assert not np.any(np.isnan(data.y))
    else:
        header = draw(
            st.sampled_from(
                ["", "age,fnlwgt\n1,2\n", "income\n", "\x00", ADULT_HEADER + "\n", ADULT_HEADER + "\n1,2\n"]
            )
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, draw(st.sampled_from(["adult.csv", "adult.csv.gz", "other.csv"])))
            path.write_bytes(header.encode() + draw(st.binary(max_size=20)))
            attempt(lambda: datasets.load_adult(draw(st.sampled_from([path, folder, f"{folder}/nothing"]))))


ADULT_HEADER = ",".join([*datasets._ADULT_NUMBERS, *datasets._ADULT_GROUPS, "income"])


# Files: a valid text, changed somewhere.


def _fitted() -> list[Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    frame = pd.DataFrame(X, columns=["age", "cost"])
    return [
        tg.PrivateRidge(20.0, random_state=0).fit(frame, X[:, 0]),
        tg.PrivateLogisticRegression(20.0, random_state=0, classes=["no", "yes"]).fit(
            X, np.where(X[:, 0] > 0, "yes", "no")
        ),
        tg.PrivatePoissonRegressor(method="clipped", clip=1.0, constraint=constraints.L2Ball(1.0)).fit(
            X, np.abs(X[:, 0])
        ),
        tg.PrivateScaler(20.0, random_state=0).fit(X),
    ]


def _read_model(document: Any) -> Any:
    """Through the checksum, which would refuse all that follows it."""
    from tailguard.model_file.layout import checksum

    if isinstance(document, dict) and "checksum" in document:
        try:
            content = {key: value for key, value in document.items() if key != "checksum"}
            document = document | {"checksum": checksum(content)}
        except ValueError:  # NaN
            pass
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        path.write_text(json.dumps(document) if not isinstance(document, str) else document, encoding="utf-8")
        model = tg.load_model(path)
    rows = np.array([[0.0, math.nan], [1e308, -math.inf]])
    if model.n_features_in_ == 2 and not hasattr(model, "feature_names_in_"):
        (model.transform if hasattr(model, "transform") else model.predict)(rows)
        assert_finite(model.mean_ if hasattr(model, "transform") else model.coef_)
    return model


def _documents() -> dict[str, tuple[list[Any], Callable[[Any], Any]]]:
    """Readers of files: valid documents, and the reader of a text or document."""
    from tailguard.model_file import to_document

    models = _fitted()
    reports = [json.loads(model.privacy_.to_json()) for model in models]
    run = algorithms.clipped_gd(losses.Squared(), np.ones((9, 2)), np.ones(9), epsilon=1.0, clip=1.0, steps=2)
    assert run.state is not None
    as_text = lambda document: document if isinstance(document, str) else json.dumps(document)  # noqa: E731
    return {
        "report": (reports, lambda document: tg.PrivacyReport.from_json(as_text(document)).guarantee),
        "state": ([json.loads(run.state.to_json())], lambda document: State.from_json(as_text(document))),
        "budget": ([{"epsilon": 1.0, "delta": 1e-6}, {"mu": 1.0}], lambda document: tg.Budget.from_dict(document)),
        "event": ([event for report in reports for event in report["events"][:2]], lambda doc: Event.from_dict(doc)),
        "model": ([to_document(model) for model in models], _read_model),
    }


READERS: dict[str, tuple[list[Any], Callable[[Any], Any]]] = {}


def changed(draw: Draw, document: Any) -> Any:
    """One to three changes: a leaf or a branch replaced, removed, renamed or doubled."""
    document = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 3))):
        at, key, here = None, None, document
        while isinstance(here, (dict, list)) and here and draw(st.integers(0, 5)):
            at, key = here, draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
            here = at[key]
        new = draw(
            st.sampled_from(
                [None, True, -1, 0, 1, 1.5, 1e308, -1e308, math.nan, math.inf, 10**30, "", "inf", "nan", "x", [], {}]
            )
            | st.recursive(st.floats() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3), max_leaves=5)
        )
        if at is None:
            return new
        action = draw(st.integers(0, 3))
        if action == 0 and isinstance(at, dict):
            del at[key]
        elif action == 1 and isinstance(at, dict):
            at["unknown"] = at.pop(key)
        elif action == 2 and isinstance(at, list):
            at.append(new)
        else:
            at[key] = new
    return document


def files(draw: Draw) -> None:
    if not READERS:
        READERS.update(_documents())
    documents, read = READERS[draw(st.sampled_from(sorted(READERS)))]
    document = draw(st.sampled_from(documents))
    how = draw(st.integers(0, 5))
    if how == 0 and read is not READERS["budget"][1] and read is not READERS["event"][1]:
        text = json.dumps(document)
        cut = draw(st.integers(0, len(text)))
        text = draw(
            st.sampled_from([text[:cut], text[:cut] + draw(st.text(max_size=4)) + text[cut:], "[" * 100_000, ""])
        )
        attempt(lambda: read(text))
    else:
        attempt(lambda: read(changed(draw, document)))


TARGETS: dict[str, Callable[[Draw], None]] = {
    "estimators": estimators,
    "means": means,
    "minimisers": minimisers,
    "functions": functions,
    "files": files,
}


def as_test(target: Callable[[Draw], None], examples: int, **options: Any) -> Callable[[], None]:
    """The target as a test of hypothesis."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        print_blob=False,
        **options,
    )
    @given(data=st.data())
    def test(data: Any) -> None:
        target(data.draw)

    return test


def main() -> int:
    """Run the targets in turn until the time is over; 1 after a failure."""
    budget = float(os.environ.get("FUZZ_SECONDS") or 60)
    names = [os.environ["FUZZ_TARGET"]] if os.environ.get("FUZZ_TARGET") else list(TARGETS)
    fixed = os.environ.get("FUZZ_SEED")
    end, rounds, failed = time.monotonic() + budget, Counter[str](), False
    while time.monotonic() < end and not failed:
        for name in names:
            number = int(fixed) if fixed else random.SystemRandom().randrange(2**32)
            faulthandler.dump_traceback_later(10 * LONGEST, exit=True)  # a hang in compiled code
            try:
                seed(number)(as_test(TARGETS[name], 50))()
            except BaseException:
                traceback.print_exc()
                print(f"\n{name} failed: repeat with  make fuzz FUZZ_TARGET={name} FUZZ_SEED={number}", file=sys.stderr)
                failed = True
                break
            finally:
                faulthandler.cancel_dump_traceback_later()
            rounds[name] += 50
            if time.monotonic() > end or fixed:
                break
        if fixed:
            break
    print(f"examples: {dict(rounds)}; outcomes: {dict(OUTCOMES)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
