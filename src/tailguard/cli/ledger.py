"""``tailguard ledger``: who spent what on which dataset."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from tailguard.ledger import Entry, Summary

app = typer.Typer(
    help="Keep account of what is spent on a dataset: show, add-dataset, export.",
    invoke_without_command=True,
    add_completion=False,
)


@app.callback()
def _main(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


Ledger_ = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger's file, such as budget.db.")]


class Relation(StrEnum):
    """Which tables are neighbours."""

    replace_one = "replace-one"
    add_remove = "add-remove"


class Accountant(StrEnum):
    """How runs add up."""

    gaussian = "gaussian"
    concentrated = "concentrated"
    basic = "basic"


class Format(StrEnum):
    """Of an export."""

    json = "json"
    csv = "csv"


@app.command("show")
def show(
    ledger: Ledger_,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show budgets, totals and every run.

    Example: tailguard ledger show budget.db --dataset patients-2026
    """
    found = _read(ledger, dataset)
    if as_json:
        typer.echo(_as_json(found))
        return
    from tailguard.cli._errors import printable
    from tailguard.cli._shared import terminal

    console = terminal()
    if not found:
        console.print("No dataset yet: add one with  tailguard ledger add-dataset", markup=False)
    for index, (summary, entries) in enumerate(found):
        if index:
            console.print()
        console.print(printable(summary.dataset.name), style="bold", markup=False)
        for line in _facts(summary):
            console.print(line, markup=False)
        if entries:
            console.print(_runs(entries))


@app.command("add-dataset")
def add_dataset(
    ledger: Ledger_,
    name: Annotated[str, typer.Argument(help="Name of the dataset, such as patients-2026.")],
    budget_epsilon: Annotated[
        float | None, typer.Option(help="The budget; without it the ledger keeps accounts and refuses nothing.")
    ] = None,
    budget_delta: Annotated[
        float | None, typer.Option(help="At which totals are stated: well below 1/rows; default 1e-6.")
    ] = None,
    relation: Annotated[
        Relation, typer.Option(help="Rows are replaced, or added and left out.")
    ] = Relation.replace_one,
    accountant: Annotated[
        Accountant | None,
        typer.Option(help="How runs add up; default the tightest that takes the first run."),
    ] = None,
    note: Annotated[str, typer.Option(help="Kept with the dataset.")] = "",
) -> None:
    """Add a dataset with its budget; makes the ledger if it is missing.

    Example: tailguard ledger add-dataset budget.db patients-2026 --budget-epsilon 3
    """
    from tailguard.ledger import Ledger

    added = Ledger.add_dataset(
        ledger,
        name,
        budget_epsilon,
        delta=budget_delta,
        relation=relation.value,
        accountant=None if accountant is None else accountant.value,
        note=note,
    )
    terms = added.terms
    promise = "accounts only, no budget" if terms.budget is None else terms.budget.describe()
    typer.echo(f"{name}: {promise}. These terms are never changed.")


@app.command("export")
def export(
    ledger: Ledger_,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File; default the terminal.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.")] = None,
    kind: Annotated[Format, typer.Option("--format", help="JSON has everything, CSV a line per run.")] = Format.json,
) -> None:
    """Write every run with its report as JSON, or a line per run as CSV.

    Example: tailguard ledger export budget.db -o audit.json
    """
    found = _read(ledger, dataset)
    text = _as_json(found) + "\n" if kind is Format.json else _as_csv(found)
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


def _read(ledger: Path, dataset: str | None) -> list[tuple[Summary, list[Entry]]]:
    from tailguard.ledger import LedgerError
    from tailguard.ledger.book import read

    found = read(ledger)
    if dataset is None:
        return found
    names = [summary.dataset.name for summary, _ in found]
    if dataset not in names:
        raise LedgerError(f"{dataset!r} is not in {ledger}, which has {', '.join(map(repr, names)) or 'none'}.")
    return [pair for pair in found if pair[0].dataset.name == dataset]


def _facts(summary: Summary) -> list[str]:
    from tailguard.ledger.book import rounded_down, rounded_up

    terms = summary.dataset
    spent = rounded_up(summary.epsilon)
    runs = f"{summary.runs} run{'s' if summary.runs != 1 else ''}"
    if summary.unconfirmed:
        runs += f", {summary.unconfirmed} of which did not come back (their charge stands)"
    lines = [f"  spent   epsilon = {spent} at delta = {terms.delta:g}, rows are {_NEIGHBOURS[terms.relation]}; {runs}"]
    if terms.budget is None:
        return [*lines, "  budget  none: accounts only, nothing is refused"]
    lines.append(f"  budget  {terms.budget.describe()}; {terms.accountant or 'no'} accountant")
    assert summary.room is not None
    lines.append(f"  room    for one more run of epsilon up to {rounded_down(summary.room)}")
    return lines


_NEIGHBOURS = {"replace-one": "replaced", "add-remove": "added or left out"}


def _runs(entries: list[Entry]) -> Table:
    from rich.box import SIMPLE
    from rich.table import Table

    from tailguard.cli._shared import plain
    from tailguard.ledger.book import rounded_up

    noted = any(entry.note for entry in entries)
    table = Table(box=SIMPLE)
    for title in ("run", "reserved, UTC", "by", "method", "rows", "epsilon", "state", *["note"] * noted):
        right = title in ("run", "rows", "epsilon")
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    for entry in entries:
        cells = [
            str(entry.id),
            entry.reserved[:16].replace("T", " "),
            entry.reserved_by,
            entry.method,
            "" if entry.n_rows is None else f"{entry.n_rows}{' persons' * (entry.unit == 'person')}",
            rounded_up(entry.price[0]),
            "reserved" if entry.confirmed is None else "done",
            *[entry.note] * noted,
        ]
        table.add_row(*map(plain, cells))
    return table


def _as_json(found: list[tuple[Summary, list[Entry]]]) -> str:
    import json

    data = {
        "schema": 1,
        "datasets": [summary.to_dict() | {"entries": [e.to_dict() for e in entries]} for summary, entries in found],
    }
    return json.dumps(data, indent=2, allow_nan=False)


def _as_csv(found: list[tuple[Summary, list[Entry]]]) -> str:
    import csv
    import io

    columns = ["dataset", "id", "reserved", "reserved_by", "process", "method", "n_rows", "epsilon", "delta"]
    columns += ["confirmed", "note"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for _, entries in found:
        for entry in entries:
            writer.writerow({name: _cell(value) for name, value in entry.to_dict().items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Keep a spreadsheet from taking a note for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
