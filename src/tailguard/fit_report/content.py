"""What a report says, as plain data."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tailguard.fit_report.figures import plain, up
from tailguard.intervals import IntervalTable
from tailguard.model_file import SavedModel, software
from tailguard.privacy import Event, Gaussian, PrivacyReport, ZeroConcentrated
from tailguard.tables.schema import Recipe, label_names, shown

VERSION = 1

KINDS = {
    "PrivateRidge": "Linear regression: slopes of the mean",
    "PrivateHuberRegressor": "Robust linear regression: slopes of the bulk of the rows",
    "PrivateLogisticRegression": "Logistic regression",
    "PrivatePoissonRegressor": "Poisson regression, log link",
}
RELATIONS = {
    "replace-one": "Neighbours are tables of the same public number of rows that differ in one row, in all of its "
    "columns, target included.",
    "add-remove": "Neighbours are tables of which one has one row more; the number of rows that the method divides "
    "by is public.",
}
_PER_ROW = (
    "The promise is per row, not per person: with k rows in the table a person's epsilon is k times as large, "
    "and delta grows faster still."
)
_PER_PERSON = (
    "The promise is per person, as the column of persons tells them apart: who stands in it under two names is two "
    "persons, with twice the epsilon. Persons count alike, however many rows they have."
)
_NO_INTERVALS = (
    "It says nothing about accuracy. Coefficients carry noise, are pulled towards zero where it is large, and have no "
    "confidence intervals here; differences between them need not be real."
)
_INTERVALS = (
    "It says nothing about accuracy: that is what the intervals are for. Each speaks of one coefficient by itself; the "
    "largest of many need not be the largest."
)
PERSONS = {
    "replace-one": "Neighbours are tables of the same public number of persons that differ in one person, in all "
    "rows of theirs; how many rows a person has is not public.",
    "add-remove": "Neighbours are tables of which one has one person more, with all their rows; the number of persons "
    "that the method divides by is public.",
}
NOISE = (
    "± is the standard deviation of the privacy noise in a coefficient before slopes are shrunk; sampling error is not "
    "in it, and the slopes of a small fit vary up to 3 times as much."
)
NEAR_ZERO = "A coefficient near zero may be a small effect or an effect lost in noise."
STANDARD_ERRORS = (
    "std err is the standard error of a coefficient, sampling error and privacy noise together; where there is none, "
    "the budget does not carry an honest one."
)
ALL_ZERO = (
    "All slopes are 0: they were fitted, and shrunk away because the privacy noise in them was too large. Every row "
    "has the same prediction. Fewer columns, more rows, a larger epsilon or public hints ([ranges] of a schema) would "
    "help."
)
UNKNOWN_NOISE = (
    "This method does not know the noise of a single coefficient, and none is stated. The noise of every release is in "
    "the list of what was spent."
)


@dataclass(frozen=True)
class FitReport:
    """What a fit promises, spent and found, for people and for machines.

    In Jupyter a report shows itself; ``to_html()`` is a page that needs nothing beside it, ``to_dict()`` plain data.

    Parameters
    ----------
    model : estimator
        Fitted.
    recipe : Recipe, optional
        How the rows of a table became features.
    software : dict, optional
        Versions of what fitted it; default those that are installed.
    created : str
        The day of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> import tailguard as tg
    >>> model = tg.PrivateRidge(epsilon=1.0).fit(np.ones((1000, 2)), np.ones(1000))
    >>> tg.FitReport(model).to_dict()["relation"]
    'replace-one'
    """

    model: Any
    recipe: Recipe | None = None
    software: dict[str, str] | None = None
    created: str = ""

    @staticmethod
    def of(saved: SavedModel) -> FitReport:
        """Return the report of a model file.

        Parameters
        ----------
        saved : SavedModel
            From `tailguard.model_file.read_model`.
        """
        return FitReport(saved.model, saved.recipe, saved.software, saved.created)

    @property
    def privacy(self) -> PrivacyReport:
        """What was spent."""
        report: PrivacyReport = self.model.privacy_
        return report

    @property
    def target(self) -> str:
        """Name of what is predicted."""
        return "the target" if self.recipe is None else self.recipe.target.name

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, made up where they have none."""
        if self.recipe is not None:
            return list(self.recipe.feature_names)
        names = getattr(self.model, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.model.n_features_in_)] if names is None else [str(name) for name in names]

    def sentence(self) -> str:
        """Return the guarantee in one plain sentence."""
        privacy = self.privacy
        if not privacy.private:
            return f"This fit is not private: {'; '.join(privacy.reasons)}."
        rows = privacy.units if privacy.n_rows is None else f"{privacy.n_rows:,} {privacy.units}"
        whole = ", with all their rows," if privacy.unit == "person" else ""
        change = {
            "replace-one": f"Replacing any one of the {rows}{whole} by any other",
            "add-remove": f"Adding a {privacy.unit}{whole} to the {rows} or leaving one out",
        }[privacy.relation]
        factor = math.exp(min(privacy.epsilon, 700.0))
        return (
            f"{change} changes the probability of any result of this fit by at most a factor of {up(factor)}, "
            f"plus {up(privacy.delta)}."
        )

    def outputs(self) -> list[str]:
        """What each row of coefficients is of: one for a number, one per class for three classes or more."""
        classes = getattr(self.model, "classes_", None)
        if classes is None:
            return ["log of the mean" if type(self.model).__name__ == "PrivatePoissonRegressor" else "coefficient"]
        labels = label_names(classes)
        return [f"log-odds of {labels[1]}"] if len(labels) == 2 else [f"score of {label}" for label in labels]

    @property
    def noise(self) -> Any:
        """Standard deviations of the privacy noise in the coefficients, or None where they are not known."""
        return getattr(self.model, "coef_noise_", None)

    @property
    def summary(self) -> IntervalTable | None:
        """Standard errors and intervals, of a fit with ``inference=True``."""
        if getattr(self.model, "stderr_", None) is None:
            return None
        found: IntervalTable = self.model._summary(self.feature_names)
        return found

    def beside(self) -> tuple[str, list[list[float | None]]] | None:
        """Return what stands beside the coefficients, by row and output, and its head: standard errors, or the noise.

        A standard error that is infinite is left out. None where nothing is known.
        """
        model = self.model
        if self.summary is not None:
            known = np.vstack([np.atleast_1d(model.intercept_stderr_), np.atleast_2d(model.stderr_).T]).tolist()
            return "std err", [[value if math.isfinite(value) else None for value in row] for row in known]
        if self.noise is None:
            return None
        noise = np.atleast_2d(self.noise)
        return "±", [[None] * len(noise), *noise.T.tolist()]

    def about_beside(self) -> str:
        """Return what that means, or that the noise is not known."""
        if self.summary is not None:
            return STANDARD_ERRORS
        return UNKNOWN_NOISE if self.noise is None else NOISE

    def coefficients(self) -> list[dict[str, Any]]:
        """Return a row for the intercept and for every feature: name, values, noise, truncation, reference."""
        coef = np.atleast_2d(self.model.coef_)
        intercept = np.atleast_1d(self.model.intercept_)
        references = self._references()
        rows: list[dict[str, Any]] = [
            {
                "name": "(intercept)",
                "values": intercept.tolist(),
                "noise": None,
                "truncated_to": None,
                "reference": None,
            }
        ]
        noise = None if self.noise is None else np.atleast_2d(self.noise)
        for j, name in enumerate(self.feature_names):
            bounds = [plain(self.model.lower_[j]), plain(self.model.upper_[j])]
            rows.append(
                {
                    "name": name,
                    "values": coef[:, j].tolist(),
                    "noise": None if noise is None else noise[:, j].tolist(),
                    "truncated_to": None if "inf" in bounds else bounds,
                    "reference": references[j],
                }
            )
        return rows

    def _references(self) -> list[str | None]:
        if self.recipe is None:
            return [None] * self.model.n_features_in_
        return [
            None if column.reference is None else shown(column.reference)
            for column in self.recipe.features
            for _ in range(column.width)
        ]

    def spent(self) -> list[dict[str, Any]]:
        """Return what the budget went into: label, share of it where shares can be compared, releases, mechanism."""
        events = self.privacy.events
        weights = [_rho(event) for event in events]
        known = [weight for weight in weights if weight is not None]
        total = math.fsum(known)
        comparable = len(known) == len(weights) and 0.0 < total < math.inf
        groups: dict[str, list[int]] = {}
        for index, event in enumerate(events):
            groups.setdefault(event.label or "-", []).append(index)
        rows = []
        for label, members in groups.items():
            part = math.fsum(weights[index] or 0.0 for index in members)
            rows.append(
                {
                    "on": label,
                    "share": part / total if comparable else None,
                    "releases": sum(events[index].releases for index in members),
                    "mechanism": _mechanism([events[index] for index in members]),
                }
            )
        return rows

    def cautions(self) -> list[str]:
        """Return what a reader may not conclude."""
        cautions = [
            _PER_PERSON if self.privacy.unit == "person" else _PER_ROW,
            "It covers this fit. Other releases from the same rows, an earlier fit or a plain average, add to it.",
            "It hides whether a row was there, not what is true of people like it: a strong pattern is published as "
            "what it is.",
            "Columns, categories, labels and epsilon are taken as chosen without a look at these rows. If they were "
            "not, the promise does not hold.",
            _NO_INTERVALS if self.summary is None else _INTERVALS,
            "Coefficients are associations in these rows, not effects of changing a column.",
            "Time and memory that the fit took are not covered: do not publish them with the report.",
        ]
        if self.privacy.private:
            return cautions
        return ["The fit is not private: treat the coefficients and this page like the rows themselves.", *cautions]

    def note(self) -> str:
        """Return what to know about a model that is less than was asked for, or nothing."""
        note = str(self.privacy.parameters.get("model", ""))
        slopes = np.asarray(self.model.coef_)
        if note.startswith("level and slopes") and slopes.size and not slopes.any():
            return ALL_ZERO
        if not note.startswith(("level only", "zero")):
            return ""
        text = "; a target that is text needs its labels declared" if note.startswith("zero") and self.recipe else ""
        return f"{note[:1].upper()}{note[1:]}. More rows, fewer columns or a larger epsilon would help{text}."

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, ready for JSON."""
        privacy = self.privacy
        recipe = self.recipe
        return {
            "report": "tailguard-fit",
            "version": VERSION,
            "created": self.created,
            "sentence": self.sentence(),
            "guarantee": privacy.guarantee,
            "private": privacy.private,
            "note": self.note(),
            "reasons": list(privacy.reasons),
            "epsilon": plain(privacy.epsilon),
            "delta": privacy.delta,
            "relation": privacy.relation,
            "relation_in_words": self.relation(),
            "unit": privacy.unit,
            "rows" if privacy.unit == "row" else "persons": privacy.n_rows,
            "budget": privacy.budget,
            "spent": self.spent(),
            "estimator": type(self.model).__name__,
            "target": None if recipe is None else recipe.target.name,
            "outputs": self.outputs(),
            "coefficients": self.coefficients(),
            "coefficient_noise": {
                "known": self.noise is not None,
                "what": UNKNOWN_NOISE if self.noise is None else NOISE,
            },
            "intervals": None if self.summary is None else self.summary.to_dict(),
            "method": privacy.method,
            "parameters": privacy.to_dict()["parameters"],
            "table": None if recipe is None else recipe.to_dict(),
            "software": self.versions(),
            "not_to_conclude": self.cautions(),
        }

    def relation(self) -> str:
        """Return which tables are neighbours, in words."""
        return (PERSONS if self.privacy.unit == "person" else RELATIONS)[self.privacy.relation]

    def versions(self) -> dict[str, str]:
        """Return the versions of what fitted it."""
        return software() if self.software is None else self.software

    def to_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    def to_html(self) -> str:
        """Return a page that needs nothing beside it: no script, no font, no picture from elsewhere."""
        from tailguard.fit_report.page import page

        return page(self)

    def _repr_html_(self) -> str:
        from tailguard.fit_report.page import notebook

        return notebook(self)


def _rho(event: Event) -> float | None:
    if isinstance(event, Gaussian):
        return event.count * 0.5 * event.mu * event.mu
    return event.count * event.rho if isinstance(event, ZeroConcentrated) else None


def _mechanism(events: list[Event]) -> str:
    """What the releases of one label are; several Gaussian ones as the one that they amount to."""
    if len(events) == 1:
        return events[0].describe()
    if all(isinstance(event, Gaussian) for event in events):
        return f"Gaussian, mu = {math.sqrt(2.0 * math.fsum(_rho(event) or 0.0 for event in events)):.6g} in all"
    return ", ".join(dict.fromkeys(type(event).__name__ for event in events))
