"""``tailguard inspect``: what is in a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailguard.cli._shared import AsJson, Force, ModelFile, Quiet


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
    found = FitReport.of(saved)
    written = _shared.write_reports(found, report)
    if as_json:
        _shared.print_json(found.to_dict() | {"report_files": written})
        return
    console = _shared.terminal(quiet, as_json)
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
