r"""Scores of a model on a table: exact ones, for rows that may be looked at, and private ones.

**Exact scores** are for public rows and, inside the house, for held-out ones. They are sums over blocks of rows.

**Private scores** are means of a loss of every row, released by `tailguard.private_mean`:

=============  =====================================================  ========================================
target         a row's losses                                         how their means are released
=============  =====================================================  ========================================
categories     1{wrong}, and the Brier loss                           clamped to [0, 1]: the noise is known
               (1/2) sum_k (p_k - 1{y = k})^2
a number       |y - prediction|, and |y - constant| with the          ``method="auto"``, which finds a clip
               prediction for a row that is missing in every cell     privately; or clamped to a public bound
=============  =====================================================  ========================================

The mean absolute error is used because its mean exists for heavy tails; squares would need so wide a clip that noise
is all there is. A constant prediction has a score too, since an error is good or bad only against another one; the
constant belongs to the model, so no row is needed to find it.

No row is left out, which would make the divisor private: a row whose target is missing counts as wrong in the
classifier's scores, and as predicted without error in a regression's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard._checks import positive
from tailguard.api import private_mean
from tailguard.engines.grouped import numbered
from tailguard.privacy import Gaussian, PrivacyReport
from tailguard.tables import DerivedRows, Recipe, TableFile, derived_source, encode_features, encode_target, read_ids

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PrivateScores:
    """Noisy scores.

    Attributes
    ----------
    scores : dict of str to float
        Released means, and what follows from them.
    noise : dict of str to float
        Standard deviation of the noise in those whose noise is known.
    notes : tuple of str
        How to read them.
    privacy : PrivacyReport
        What was spent.
    """

    scores: dict[str, float]
    noise: dict[str, float]
    notes: tuple[str, ...]
    privacy: PrivacyReport


def count_persons(table: TableFile, column: str) -> int:
    """Return the number of persons in a table, as a fit counts them: rows without an id are one.

    Parameters
    ----------
    table : TableFile
        Rows.
    column : str
        Whose row it is.
    """
    return int(numbered(read_ids(table, column)).max(initial=-1)) + 1


# ---------------------------------------------------------------- exact


def exact_scores(model: Any, recipe: Recipe, table: TableFile) -> dict[str, Any]:
    """Return exact scores, in one pass over the rows. They are not private.

    Parameters
    ----------
    model : estimator
        Fitted.
    recipe : Recipe
        How rows become features.
    table : TableFile
        Rows with their target; those whose target is missing are counted, not scored.

    Returns
    -------
    dict
        Scores by name; ``rows`` and ``rows without a target`` among them.
    """
    losses = _class_sums if hasattr(model, "classes_") else _number_sums
    total: dict[str, Any] = {}
    rows = 0
    for block in table.blocks([*recipe.columns, recipe.target.name]):
        y = encode_target(recipe, block)
        known = np.isfinite(y)
        rows += len(y)
        for name, value in losses(model, encode_features(recipe, block)[known], y[known]).items():
            total[name] = total.get(name, 0) + value
    n = int(total.pop("rows", 0))
    scores: dict[str, Any] = {"rows": rows, "rows without a target": rows - n}
    if n == 0:
        return scores
    if hasattr(model, "classes_"):
        shares = total.pop("labels") / n
        base = -math.fsum(p * math.log(p) for p in shares if p > 0.0)
        scores |= {"accuracy": 1.0 - total["wrong"] / n, "accuracy of the most frequent label": float(shares.max())}
        scores |= {"log-loss": total["log"] / n, "log-loss of the frequencies": base, "Brier score": total["brier"] / n}
        return {name: value if isinstance(value, int) else float(value) for name, value in scores.items()}
    # Sums are of values shifted by the first block's mean, so that a large mean does not cancel.
    spread = total["squares"] - total["shifted"] ** 2 / n
    scores |= {"R squared": 1.0 - total["squared"] / spread if spread > 0.0 else math.nan}
    scores |= {"root mean squared error": math.sqrt(total["squared"] / n), "mean absolute error": total["absolute"] / n}
    scores |= {"mean error (prediction - target)": total["signed"] / n}
    if type(model).__name__ == "PrivatePoissonRegressor":
        scores["mean Poisson deviance"] = total["deviance"] / n
    return {
        name: value if isinstance(value, int) else float(value)
        for name, value in scores.items()
        if isinstance(value, int) or math.isfinite(value)
    }


def _class_sums(model: Any, X: Array, y: Array) -> dict[str, Any]:
    count = len(model.classes_)
    if not len(y):
        return {"rows": 0, "labels": np.zeros(count)}
    p = model.predict_proba(X)
    own = p[np.arange(len(y)), y.astype(np.intp)]
    return {
        "rows": len(y),
        "labels": np.bincount(y.astype(np.intp), minlength=count).astype(float),
        "wrong": float(np.sum(_wrong(model, X, y))),
        "log": float(-np.sum(np.log(np.maximum(own, 1e-300)))),
        "brier": float(np.sum(_brier(p, y))),
    }


def _number_sums(model: Any, X: Array, y: Array) -> dict[str, Any]:
    if not len(y):
        return {"rows": 0}
    with np.errstate(all="ignore"):
        prediction = model.predict(X)
        error = prediction - y
        shifted = y - _constant(model)
        sums: dict[str, Any] = {
            "rows": len(y),
            "shifted": float(np.sum(shifted)),
            "squares": float(np.sum(shifted * shifted)),
            "squared": float(np.sum(error * error)),
            "absolute": float(np.sum(np.abs(error))),
            "signed": float(np.sum(error)),
        }
        if type(model).__name__ == "PrivatePoissonRegressor":
            logs = np.where(y > 0.0, y * np.log(np.where(y > 0.0, y, 1.0) / np.maximum(prediction, 1e-300)), 0.0)
            sums["deviance"] = float(2.0 * np.sum(logs - y + prediction))
        return sums


# ---------------------------------------------------------------- private


def private_scores(
    model: Any,
    recipe: Recipe,
    table: TableFile,
    epsilon: float,
    error_bound: float | None = None,
    groups: Any = None,
) -> PrivateScores:
    """Return noisy scores that are (epsilon, delta)-differentially private.

    Parameters
    ----------
    model : estimator
        Fitted, to these rows or to others.
    recipe : Recipe
        How rows become features.
    table : TableFile
        Rows with their target.
    epsilon : float
        The promise; delta is the default for so many rows.
    error_bound : float, optional
        For numbers: larger errors count as this, and the noise is known. Public.
    groups : array_like, optional
        Whose row it is: the promise is then for a person with all their rows, and persons count alike.
    """
    bound: float | None
    if hasattr(model, "classes_"):
        if error_bound is not None:
            raise ValueError("an error bound is for numbers: the scores of a classifier are bounded already.")
        names, bound = ("share of wrong predictions", "Brier score"), 1.0
    else:
        names = ("mean absolute error", "mean absolute error of a constant")
        bound = None if error_bound is None else positive("error_bound", error_bound)

    def losses(block: Any) -> Array:
        return _row_losses(model, encode_features(recipe, block), encode_target(recipe, block), bound)

    rows = derived_source(DerivedRows(table, [*recipe.columns, recipe.target.name], names, losses), names)
    if bound is None:
        result = private_mean(rows, epsilon, groups=groups)
        means, noise = np.maximum(np.asarray(result.value), 0.0), {}
        notes = ["The noise of these means is not known; rows without a target count as predicted without error."]
    else:
        # Centred, so that the clamp to +-bound/2 is exactly the range of a loss.
        result = private_mean(rows, epsilon, method="clamped", clip=bound / 2.0, groups=groups)
        means = np.clip(np.asarray(result.value) + bound / 2.0, 0.0, bound)
        noise = dict.fromkeys(names, _noise(result.privacy, len(names), bound))
        notes = [
            "Rows without a label count as wrong."
            if hasattr(model, "classes_")
            else f"Errors above {bound:g} count as {bound:g}; rows without a target count as predicted without error."
        ]
    scores = {name: float(value) for name, value in zip(names, means, strict=True)}
    if "Brier score" in scores:
        scores = {"accuracy": 1.0 - scores[names[0]], "Brier score": scores["Brier score"]}
        noise = {"accuracy": noise[names[0]], "Brier score": noise["Brier score"]}
    return PrivateScores(scores, noise, tuple(notes), result.privacy)


def _row_losses(model: Any, X: Array, y: Array, bound: float | None) -> Array:
    """Losses of every row, finite whatever is in it."""
    with np.errstate(all="ignore"):
        if hasattr(model, "classes_"):
            known = np.isfinite(y)
            labels = np.where(known, y, 0.0)
            wrong, brier = _wrong(model, X, labels), _brier(model.predict_proba(X), labels)
            found = np.where(known[:, None], np.column_stack([wrong, brier]), 1.0)
        else:
            error = np.column_stack([np.abs(y - model.predict(X)), np.abs(y - _constant(model))])
            found = np.where(np.isnan(error), 0.0, error)
    return found if bound is None else np.clip(found, 0.0, bound) - bound / 2.0


def _noise(report: PrivacyReport, columns: int, bound: float) -> float:
    """Noise of each mean: one loss moves by at most its bound, so a row moves the sums by sqrt(columns) bound."""
    (event,) = report.events
    assert isinstance(event, Gaussian)
    assert report.n_rows is not None
    return math.sqrt(columns) * bound / (report.n_rows * event.mu)


# ---------------------------------------------------------------- losses of rows


def _wrong(model: Any, X: Array, y: Array) -> Array:
    return np.asarray(model.predict(X) != model.classes_[y.astype(np.intp)], dtype=np.float64)


def _brier(p: Array, y: Array) -> Array:
    hot = y[:, None] == np.arange(p.shape[1])
    return np.asarray(np.sum((p - hot) ** 2, axis=1) / 2.0)


def _constant(model: Any) -> float:
    """What the model says of a row of which nothing is known; released with it."""
    return float(model.predict(np.full((1, model.n_features_in_), np.nan))[0])
