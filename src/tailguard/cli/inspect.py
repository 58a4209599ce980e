"""``tailguard inspect``: what is in a model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailguard.cli._shared import AsJson, Force, ModelFile, Quiet

if TYPE_CHECKING:
    from rich.console import Console


def command(
    model: ModelFile,
    report: Annotated[Path | None, typer.Option(help="Write the report, .html or .json.", dir_okay=False)] = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show a model: its promise, coefficients, columns and what was spent.

    The file may come from anywhere: it is read as data, checked, and cannot run anything.

    Example: tailguard inspect cost.json

    Example: tailguard inspect cost.json --report cost.html
    """
    from tailguard.cli import _shared
    from tailguard.cli._errors import printable
    from tailguard.fit_report import FitReport
    from tailguard.model_file import read_model
    from tailguard.tables.schema import shown

    _shared.check_report(report)
    _shared.check_outputs(force, report)
    saved = read_model(model)
    console = _shared.terminal(quiet, as_json)
    if not hasattr(saved.model, "coef_"):
        if report is not None:
            raise ValueError(f"{model.name} holds a scaler: a report is for a model. Leave --report out.")
        _show_scaler(console, saved.model, as_json)
        return
    found = FitReport.of(saved)
    written = _shared.write_reports(found, report)
    if as_json:
        _shared.print_json(found.to_dict() | {"report_files": written})
        return
    _shared.print_fit(console, found)
    if saved.recipe is not None:
        console.print("Columns of the table", style="bold")
        for column in (*saved.recipe.features, saved.recipe.target):
            what = ", ".join(map(shown, column.categories)) or column.kind
            role = " (target)" if column is saved.recipe.target else ""
            console.print(printable(f"  {column.name}{role}: {what}"), markup=False)
    versions = ", ".join(f"{name} {version}" for name, version in saved.software.items())
    console.print("\n" + printable(f"Fitted on {saved.created} with {versions}"), markup=False, style="dim")
    if written:
        console.print("Report: " + ", ".join(written), markup=False)


def _show_scaler(console: Console, scaler: Any, as_json: bool) -> None:
    """Print what a scaler learnt of every column, and what was spent on it."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from tailguard.cli import _shared
    from tailguard.cli._errors import printable
    from tailguard.fit_report.figures import number, plain

    names = getattr(scaler, "feature_names_in_", [f"x{j}" for j in range(scaler.n_features_in_)])
    learnt = (scaler.mean_, scaler.scale_, scaler.lower_, scaler.upper_)
    columns = list(zip(map(str, names), *(part.tolist() for part in learnt), strict=True))
    if as_json:
        told = [
            {"name": name, "mean": mean, "scale": scale, "truncated_to": [plain(low), plain(high)]}
            for name, mean, scale, low, high in columns
        ]
        _shared.print_json({"estimator": "PrivateScaler", "columns": told, "privacy": scaler.privacy_.to_dict()})
        return
    console.print("Scaler: centre, scale and truncation of columns", style="bold", markup=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("column", overflow="fold")
    for title in ("mean", "scale", "truncated to"):
        table.add_column(title, justify="right")
    for name, mean, scale, low, high in columns:
        table.add_row(_shared.plain(name), number(mean), number(scale), f"{number(low)} to {number(high)}")
    console.print(table)
    for line in str(scaler.privacy_).splitlines():
        console.print(printable(line), markup=False)
