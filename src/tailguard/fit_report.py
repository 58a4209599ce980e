"""The report of a fit: one page for people, one JSON object for machines, with the same content.

It is made from the model alone, so it can be made again at any time, and says nothing that the model does not. Numbers
that the fit does not know are not made up: errors of prediction, goodness of fit.
"""

from __future__ import annotations

import html
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tailguard.intervals import IntervalTable
from tailguard.model_file import SavedModel, software
from tailguard.privacy import Event, Gaussian, PrivacyReport, ZeroConcentrated
from tailguard.tables.schema import CATEGORY, Recipe, label_names, shown

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
PERSONS = {
    "replace-one": "Neighbours are tables of the same public number of persons that differ in one person, in all "
    "rows of theirs; how many rows a person has is not public.",
    "add-remove": "Neighbours are tables of which one has one person more, with all their rows; the number of persons "
    "that the method divides by is public.",
}
NOISE = (
    "The column ± is the standard deviation of the privacy noise in a coefficient before it was pulled towards zero, "
    "known from the noise levels. Sampling error is not in it, nor are choices that the noise decides: coefficients of "
    "repeated fits spread 1 to 3 times as much. One near zero may be a small effect or an effect lost in noise."
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
            f"{change} changes the probability of any result of this fit by at most a factor of {_up(factor)}, "
            f"plus {_up(privacy.delta)}."
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

    def about_noise(self) -> str:
        """Return what the noise of a coefficient means, or that it is not known."""
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
            bounds = [_plain(self.model.lower_[j]), _plain(self.model.upper_[j])]
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
            "It says nothing about accuracy. Coefficients carry noise, are pulled towards zero where it is large, and "
            "have no confidence intervals here; differences between them need not be real.",
            "Coefficients are associations in these rows, not effects of changing a column.",
            "Time and memory that the fit took are not covered: do not publish them with the report.",
        ]
        if self.privacy.private:
            return cautions
        return ["The fit is not private: treat the coefficients and this page like the rows themselves.", *cautions]

    def note(self) -> str:
        """Return what to know about a model that is less than was asked for, or nothing."""
        note = str(self.privacy.parameters.get("model", ""))
        if not note.startswith(("level only", "zero")):
            return ""
        return f"{note[:1].upper()}{note[1:]}. More rows, fewer columns or a larger epsilon would help."

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
            "reasons": list(privacy.reasons),
            "epsilon": _plain(privacy.epsilon),
            "delta": privacy.delta,
            "relation": privacy.relation,
            "relation_in_words": self._relation(),
            "unit": privacy.unit,
            "rows" if privacy.unit == "row" else "persons": privacy.n_rows,
            "budget": privacy.budget,
            "spent": self.spent(),
            "estimator": type(self.model).__name__,
            "target": None if recipe is None else recipe.target.name,
            "outputs": self.outputs(),
            "coefficients": self.coefficients(),
            "coefficient_noise": {"known": self.noise is not None, "what": self.about_noise()},
            "intervals": None if self.summary is None else self.summary.to_dict(),
            "method": privacy.method,
            "parameters": privacy.to_dict()["parameters"],
            "table": None if recipe is None else recipe.to_dict(),
            "software": self._software(),
            "not_to_conclude": self.cautions(),
        }

    def _relation(self) -> str:
        """Which tables are neighbours, in words."""
        return (PERSONS if self.privacy.unit == "person" else RELATIONS)[self.privacy.relation]

    def _software(self) -> dict[str, str]:
        return software() if self.software is None else self.software

    def to_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    def to_html(self) -> str:
        """Return a page that needs nothing beside it: no script, no font, no picture from elsewhere."""
        title = f"Private fit of {self.target}"
        return (
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta name="color-scheme" content="light dark">\n<title>{_safe(title)}</title>\n'
            f"<style>{_STYLE}</style>\n</head>\n<body>\n{self._body()}\n</body>\n</html>\n"
        )

    def _repr_html_(self) -> str:
        return f"<style>{_STYLE}</style>{self._body()}"

    # ---------------------------------------------------------------- the page

    def _body(self) -> str:
        parts = (
            self._head(),
            self._promise(),
            self._spent_html(),
            self._coefficients_html(),
            self._method_html(),
            self._cautions_html(),
            self._foot(),
        )
        return f'<main class="tailguard">{"".join(parts)}</main>'

    def _head(self) -> str:
        facts = [KINDS.get(type(self.model).__name__, type(self.model).__name__), f"{len(self.feature_names)} features"]
        if self.privacy.n_rows is not None:
            facts.append(f"{self.privacy.n_rows:,} {self.privacy.units}")
        if self.created:
            facts.append(self.created)
        subject = f"<code>{_safe(self.target)}</code>" if self.recipe is not None else "a target"
        return (
            f'<header><p class="kind">Privacy report</p><h1>Private fit of {subject}</h1>'
            f'<p class="facts">{" &middot; ".join(map(_safe, facts))}</p></header>'
        )

    def _promise(self) -> str:
        privacy = self.privacy
        numbers = (
            ("epsilon", _up(privacy.epsilon), "smaller is more private"),
            ("delta", _up(privacy.delta), "slack in the promise"),
            ("relation", privacy.relation, "one row differs"),
        )
        cells = "".join(
            f"<div><dt>{_safe(name)}</dt><dd>{_safe(value)}</dd><dd class='note'>{_safe(note)}</dd></div>"
            for name, value, note in numbers
        )
        badge = "private" if privacy.private else "not private"
        holds = ""
        if privacy.private:
            holds = " The promise holds for every table, whatever its rows: no assumption on ranges or tails is made."
        note = self.note()
        warning = f'<p class="warning">{_safe(note)}</p>' if note else ""
        return (
            f'<section class="promise {"yes" if privacy.private else "no"}"><span class="badge">{badge}</span>'
            f'<p class="sentence">{_unbroken(self.sentence())}</p><dl>{cells}</dl>'
            f"<p>{_safe(self._relation())}{holds}</p></section>{warning}"
        )

    def _spent_html(self) -> str:
        rows = []
        for item in self.spent():
            share = item["share"]
            bar = shown_share = ""
            if share is not None:
                bar = f'<span class="bar"><span style="width:{100.0 * share:.1f}%"></span></span>'
                shown_share = f"{100.0 * share:.1f} %"
            rows.append(
                f"<tr><td>{_safe(item['on'])}</td><td class='number'>{shown_share}</td><td class='wide'>{bar}</td>"
                f"<td class='number'>{item['releases']}</td><td>{_safe(item['mechanism'])}</td></tr>"
            )
        budget = f"<p>Budget: {_safe(self.privacy.budget)}. " if self.privacy.budget else "<p>"
        return (
            f"<section><h2>What was spent on what</h2>{budget}Every look at the rows is listed; shares are of "
            "rho, the unit in which looks of this kind add up.</p>"
            "<div class='scroll'><table><thead><tr><th>spent on</th><th class='number'>share</th><th></th>"
            "<th class='number'>releases</th><th>mechanism</th></tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table></div></section>"
        )

    def _coefficients_html(self) -> str:
        table = self.coefficients()
        outputs = self.outputs()
        largest = [max((abs(row["values"][k]) for row in table[1:]), default=0.0) for k in range(len(outputs))]
        bounded = any(row["truncated_to"] for row in table)
        spread = "" if self.noise is None else "<th class='number'>±</th>"
        head = "".join(f"<th class='number'>{_safe(name)}</th>{spread}" for name in outputs)
        rows = []
        for row in table:
            label = f"<code>{_safe(row['name'])}</code>"
            if row["reference"] is not None:
                label += f" <span class='note'>against {_safe(row['reference'])}</span>"
            values = ""
            for k, value in enumerate(row["values"]):
                kind = "number zero" if largest[k] and abs(value) < largest[k] * 1e-12 else "number"
                values += f"<td class='{kind}'>{number(value)}</td>"
                if self.noise is not None:
                    values += f"<td class='number note'>{'' if row['noise'] is None else number(row['noise'][k])}</td>"
            limits = row["truncated_to"]
            cut = f"{number(limits[0])} to {number(limits[1])}" if limits else ""
            last = f"<td class='number note'>{cut}</td>" if bounded else ""
            rows.append(f"<tr><td>{label}</td>{values}{last}</tr>")
        truncated = "<th class='number'>truncated to</th>" if bounded else ""
        units = "Per unit of the column as it stands in the table"
        if bounded:
            units += "; a value beyond the truncation counts as its end, in predictions too"
        return (
            f"<section><h2>Coefficients</h2><p>{units}.</p><div class='scroll'><table><thead><tr><th>feature</th>{head}"
            f"{truncated}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
            f"<p class='aside'><strong>Noise of a coefficient.</strong> {_safe(self.about_noise())}</p></section>"
            + ("" if self.summary is None else f"<section><h2>Intervals</h2>{self.summary._repr_html_()}</section>")
        )

    def _method_html(self) -> str:
        facts: list[tuple[str, Any]] = [
            ("estimator", type(self.model).__name__),
            ("method", self.privacy.method),
            *((name, value) for name, value in self.privacy.parameters.items() if value is not None),
        ]
        if self.recipe is not None:
            for column in (*self.recipe.features, self.recipe.target):
                if column.kind == CATEGORY:
                    facts.append((f"categories of {column.name}", ", ".join(map(shown, column.categories))))
        rows = "".join(f"<tr><td>{_safe(name)}</td><td>{_safe(_short(value))}</td></tr>" for name, value in facts)
        return (
            "<section><h2>Method and public parameters</h2><p>Taken as public: everything in this list, the number of "
            "rows and the names of the columns.</p>"
            f"<div class='scroll'><table><tbody>{rows}</tbody></table></div></section>"
        )

    def _cautions_html(self) -> str:
        items = "".join(f"<li>{_safe(text)}</li>" for text in self.cautions())
        return f"<section class='cautions'><h2>What you may not conclude</h2><ul>{items}</ul></section>"

    def _foot(self) -> str:
        versions = " &middot; ".join(f"{_safe(name)} {_safe(value)}" for name, value in self._software().items())
        return f"<footer><p>{versions}</p></footer>"


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


def _up(value: float) -> str:
    """Three digits, rounded up: a printed promise must hold."""
    if math.isinf(value):
        return "inf"
    exponent = math.floor(math.log10(value)) if value > 0.0 else 0
    unit = 10.0 ** (exponent - 2)
    mantissa, _, power = f"{math.ceil(value * (1.0 - 1e-9) / unit) * unit:.3g}".partition("e")
    return f"{mantissa}e{int(power)}" if power else mantissa


def _plain(value: Any) -> Any:
    number = float(value)
    return number if math.isfinite(number) else "inf"


def number(value: float) -> str:
    """Four digits, with thousands set apart."""
    if value == 0.0 or not 1e-4 <= abs(value) < 1e12:
        return f"{value:.4g}"
    if abs(value) < 1000.0:
        return f"{value:.4g}"
    return f"{float(f'{value:.4g}'):,.0f}"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _unbroken(text: str) -> str:
    """Escaped text in which no line ends inside a number."""
    return " ".join(f"<span>{_safe(word)}</span>" if "e-" in word else _safe(word) for word in text.split(" "))


def _safe(text: Any) -> str:
    return html.escape(str(text))


_STYLE = """
.tailguard{--ink:#1b1f24;--soft:#59636e;--line:#d8dee4;--paper:#fff;--card:#f6f8fa;--accent:#0b63ce;--bar:#cfe0f7;
--good:#116329;--goodbg:#eaf7ee;--goodline:#a7d8b5;--bad:#a40e26;--badbg:#fff0f0;--badline:#f3b5b5;--warn:#7a4b00;
--warnbg:#fff8e6;--warnline:#ecd08a;color:var(--ink);background:var(--paper);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
max-width:56rem;margin:0 auto;padding:2.5rem 1.5rem 3rem;box-sizing:border-box}
@media (prefers-color-scheme:dark){.tailguard{--ink:#e6edf3;--soft:#9aa6b2;--line:#333b45;--paper:#0f141a;
--card:#171d25;--accent:#7ab4ff;--bar:#1d3a5f;--good:#7ee2a0;--goodbg:#10261a;--goodline:#24553a;--bad:#ff9c9c;--badbg:#2d1417;
--badline:#6a2a2f;--warn:#f2cc74;--warnbg:#2a2110;--warnline:#5f4b1c}html:has(>body>.tailguard){background:#0f141a}}
html:has(>body>.tailguard)>body{margin:0}
.tailguard *{box-sizing:border-box}
.tailguard h1{font-size:1.9rem;line-height:1.2;margin:.1rem 0 .4rem;font-weight:650;letter-spacing:-.01em}
.tailguard h1 code{font-size:.9em;background:none;padding:0;color:var(--accent)}
.tailguard h2{font-size:1.15rem;margin:2.4rem 0 .5rem;font-weight:650}
.tailguard p{margin:.5rem 0}.tailguard .kind{color:var(--accent);font-weight:600;font-size:.8rem;margin:0;
text-transform:uppercase;letter-spacing:.08em}
.tailguard .facts,.tailguard .note{color:var(--soft)}.tailguard .note{font-size:.85em;font-weight:400}
.tailguard code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.9em;overflow-wrap:anywhere}
.tailguard .promise{border:1px solid var(--goodline);background:var(--goodbg);border-radius:12px;
padding:1.1rem 1.4rem 1rem;margin:1.4rem 0}
.tailguard .promise.no{border-color:var(--badline);background:var(--badbg)}
.tailguard .badge{display:inline-block;font-size:.78rem;font-weight:650;color:var(--good);
border:1px solid var(--goodline);border-radius:99px;padding:.1rem .7rem}
.tailguard .no .badge{color:var(--bad);border-color:var(--badline)}
.tailguard .sentence{font-size:1.2rem;line-height:1.45;font-weight:550;margin:.7rem 0 1rem}
.tailguard .sentence span{white-space:nowrap}
.tailguard dl{display:flex;flex-wrap:wrap;gap:.8rem 3rem;margin:0 0 .8rem}
.tailguard dt{color:var(--soft);font-size:.85rem}
.tailguard dd{margin:0;font-size:1.25rem;font-weight:600;font-variant-numeric:tabular-nums}
.tailguard dd.note{font-size:.8rem}
.tailguard .warning{border:1px solid var(--warnline);background:var(--warnbg);color:var(--warn);border-radius:8px;
padding:.7rem 1rem;font-weight:550}
.tailguard .aside{border-left:3px solid var(--line);padding:.1rem 0 .1rem .9rem;color:var(--soft);font-size:.93em;
margin-top:.9rem}
.tailguard .scroll{overflow-x:auto;border:1px solid var(--line);border-radius:10px;margin:.7rem 0}
.tailguard table{border-collapse:collapse;width:100%;font-size:.92rem;margin:0;background:none}
.tailguard th,.tailguard td{text-align:left;padding:.42rem .9rem;border:0;border-bottom:1px solid var(--line);
vertical-align:baseline;color:inherit;background:none}
.tailguard th{background:var(--card);color:var(--soft);font-weight:600;font-size:.85em;white-space:nowrap}
.tailguard tbody tr:last-child td{border-bottom:0}
.tailguard .number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.tailguard td.wide{width:28%;min-width:7rem}
.tailguard .bar{display:block;height:.6rem;border-radius:3px;background:var(--card)}
.tailguard .bar span{display:block;height:100%;min-width:2px;border-radius:3px;background:var(--accent)}
.tailguard .cautions ul{margin:.4rem 0;padding-left:1.2rem}.tailguard .cautions li{margin:.35rem 0}
.tailguard footer{margin-top:2.5rem;border-top:1px solid var(--line);color:var(--soft);font-size:.82rem}
@media print{.tailguard{padding:0;max-width:none}.tailguard section{break-inside:avoid}}
"""
