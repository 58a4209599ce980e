"""The page of a report: one string of HTML."""

from __future__ import annotations

import html
from typing import Any

from tailguard.fit_report.content import KINDS, NEAR_ZERO, FitReport
from tailguard.fit_report.figures import number, up
from tailguard.fit_report.style import STYLE
from tailguard.tables.schema import CATEGORY, shown


def page(report: FitReport) -> str:
    """Return a page that needs nothing beside it."""
    title = f"Private fit of {report.target}"
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{_safe(title)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n{_body(report)}\n</body>\n</html>\n"
    )


def notebook(report: FitReport) -> str:
    """Return the same to stand among other things on a page."""
    return f"<style>{STYLE}</style>{_body(report)}"


def _body(report: FitReport) -> str:
    parts = (
        _head(report),
        _promise(report),
        _spent(report),
        _coefficients(report),
        _method(report),
        _cautions(report),
        _foot(report),
    )
    return f'<main class="tailguard">{"".join(parts)}</main>'


def _head(report: FitReport) -> str:
    facts = [
        KINDS.get(type(report.model).__name__, type(report.model).__name__),
        f"{len(report.feature_names)} features",
    ]
    if report.privacy.n_rows is not None:
        facts.append(f"{report.privacy.n_rows:,} {report.privacy.units}")
    if report.created:
        facts.append(report.created)
    subject = f"<code>{_safe(report.target)}</code>" if report.recipe is not None else "a target"
    return (
        f'<header><p class="kind">Privacy report</p><h1>Private fit of {subject}</h1>'
        f'<p class="facts">{" &middot; ".join(map(_safe, facts))}</p></header>'
    )


def _promise(report: FitReport) -> str:
    privacy = report.privacy
    numbers = (
        ("epsilon", up(privacy.epsilon), "smaller is more private"),
        ("delta", up(privacy.delta), "slack in the promise"),
        ("relation", privacy.relation, f"one {privacy.unit} differs"),
    )
    cells = "".join(
        f"<div><dt>{_safe(name)}</dt><dd>{_safe(value)}</dd><dd class='note'>{_safe(note)}</dd></div>"
        for name, value, note in numbers
    )
    badge = "private" if privacy.private else "not private"
    holds = ""
    if privacy.private:
        holds = " The promise holds for every table, whatever its rows: no assumption on ranges or tails is made."
    note = report.note()
    warning = f'<p class="warning">{_safe(note)}</p>' if note else ""
    return (
        f'<section class="promise {"yes" if privacy.private else "no"}"><span class="badge">{badge}</span>'
        f'<p class="sentence">{_unbroken(report.sentence())}</p><dl>{cells}</dl>'
        f"<p>{_safe(report.relation())}{holds}</p></section>{warning}"
    )


def _spent(report: FitReport) -> str:
    rows = []
    for item in report.spent():
        share = item["share"]
        bar = shown_share = ""
        if share is not None:
            bar = f'<span class="bar"><span style="width:{100.0 * share:.1f}%"></span></span>'
            shown_share = f"{100.0 * share:.1f} %"
        rows.append(
            f"<tr><td>{_safe(item['on'])}</td><td class='number'>{shown_share}</td><td class='wide'>{bar}</td>"
            f"<td class='number'>{item['releases']}</td><td>{_safe(item['mechanism'])}</td></tr>"
        )
    budget = f"<p>Budget: {_safe(report.privacy.budget)}. " if report.privacy.budget else "<p>"
    return (
        f"<section><h2>What was spent on what</h2>{budget}Every look at the rows is listed; shares are of "
        "rho, the unit in which looks of this kind add up.</p>"
        "<div class='scroll'><table><thead><tr><th>spent on</th><th class='number'>share</th><th></th>"
        "<th class='number'>releases</th><th>mechanism</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _coefficients(report: FitReport) -> str:
    table = report.coefficients()
    outputs = report.outputs()
    largest = [max((abs(row["values"][k]) for row in table[1:]), default=0.0) for k in range(len(outputs))]
    bounded = any(row["truncated_to"] for row in table)
    beside = report.beside()
    spread = "" if beside is None else f"<th class='number'>{beside[0]}</th>"
    head = "".join(f"<th class='number'>{_safe(name)}</th>{spread}" for name in outputs)
    rows = []
    for i, row in enumerate(table):
        label = f"<code>{_safe(row['name'])}</code>"
        if row["reference"] is not None:
            label += f" <span class='note'>against {_safe(row['reference'])}</span>"
        values = ""
        for k, value in enumerate(row["values"]):
            kind = "number zero" if largest[k] and abs(value) < largest[k] * 1e-12 else "number"
            values += f"<td class='{kind}'>{number(value)}</td>"
            if beside is not None:
                error = beside[1][i][k]
                values += f"<td class='number note'>{'' if error is None else number(error)}</td>"
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
        f"<p class='aside'>{_safe(report.about_beside())} {_safe(NEAR_ZERO)}</p></section>"
        + ("" if report.summary is None else f"<section><h2>Intervals</h2>{report.summary._repr_html_()}</section>")
    )


def _method(report: FitReport) -> str:
    facts: list[tuple[str, Any]] = [
        ("estimator", type(report.model).__name__),
        ("method", report.privacy.method),
        *((name, value) for name, value in report.privacy.parameters.items() if value is not None),
    ]
    if report.recipe is not None:
        for column in (*report.recipe.features, report.recipe.target):
            if column.kind == CATEGORY:
                facts.append((f"categories of {column.name}", ", ".join(map(shown, column.categories))))
    rows = "".join(f"<tr><td>{_safe(name)}</td><td>{_safe(_short(value))}</td></tr>" for name, value in facts)
    return (
        "<section><h2>Method and public parameters</h2><p>Taken as public: everything in this list, the number of "
        f"{report.privacy.units} and the names of the columns.</p>"
        f"<div class='scroll'><table><tbody>{rows}</tbody></table></div></section>"
    )


def _cautions(report: FitReport) -> str:
    items = "".join(f"<li>{_safe(text)}</li>" for text in report.cautions())
    return f"<section class='cautions'><h2>What you may not conclude</h2><ul>{items}</ul></section>"


def _foot(report: FitReport) -> str:
    versions = " &middot; ".join(f"{_safe(name)} {_safe(value)}" for name, value in report.versions().items())
    return f"<footer><p>{versions}</p></footer>"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _unbroken(text: str) -> str:
    """Escaped text in which no line ends inside a number."""
    return " ".join(f"<span>{_safe(word)}</span>" if "e-" in word else _safe(word) for word in text.split(" "))


def _safe(text: Any) -> str:
    return html.escape(str(text))
