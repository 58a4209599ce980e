"""What the commands on tables share: options, tables in the terminal, progress, the ledger around a run."""

from __future__ import annotations

import contextlib
import inspect
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailguard.cli._errors import printable

if TYPE_CHECKING:
    from rich.console import Console

    from tailguard.fit_report import FitReport
    from tailguard.ledger import Ledger
    from tailguard.tables import Recipe, TableFile, TableSchema

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object in place of text, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that are already there.")]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file of tailguard fit.", exists=True, dir_okay=False)
]
DataFile = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="A table: .csv, .csv.gz, .tsv or .parquet.", exists=True, dir_okay=False),
]
LedgerFile = Annotated[
    Path | None, typer.Option("--ledger", help="Account of what is spent on a dataset; see tailguard ledger.")
]
DatasetName = Annotated[str | None, typer.Option("--dataset", help="Name of the dataset in the ledger.")]
BudgetEpsilon = Annotated[
    float | None,
    typer.Option(help="Budget of a dataset that is not in the ledger yet; of one that is, the same again or nothing."),
]


def unwrapped(command: Callable[..., Any]) -> str:
    """The help of a command: its docstring with every paragraph on one line, for terminals of any width."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def terminal(quiet: bool = False, as_json: bool = False) -> Console:
    """Where a command prints for people: nowhere if it is to be quiet or to speak JSON.

    Lines are broken between words on a terminal, and left whole in a pipe.
    """
    from rich.console import Console

    console = Console(highlight=False, quiet=quiet or as_json)
    console.soft_wrap = not console.is_terminal
    return console


def print_json(data: dict[str, Any]) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(data, indent=1, allow_nan=False))


def listed(names: str | None) -> list[str] | None:
    """Names separated by commas; in quotes where a name holds a comma."""
    import csv

    if names is None:
        return None
    return [name.strip() for name in next(csv.reader([names], skipinitialspace=True), []) if name.strip()]


def check_outputs(force: bool, *paths: Path | None) -> None:
    """Find out before anything is spent that the results can be written, and will not replace others."""
    for path in paths:
        if path is None:
            continue
        if path.exists() and not force:
            raise ValueError(f"{path} is already there: give another name, or --force to replace it.")
        if not path.parent.is_dir():
            raise ValueError(f"{path.parent} is not a folder: make it first.")
        with tempfile.TemporaryFile(dir=path.parent):
            pass


@contextlib.contextmanager
def paying(
    path: Path | None, dataset: str | None, budget_epsilon: float | None, epsilon: float, delta: float
) -> Iterator[Ledger | None]:
    """Charge all that runs inside to a ledger; refuse at once what it has no room for.

    ``delta`` may be smaller than that of the run, which is charged what it really asks for.
    """
    if path is None:
        for name, value in (("--dataset", dataset), ("--budget-epsilon", budget_epsilon)):
            if value is not None:
                raise ValueError(f"{name} is of no use without --ledger: name its file, such as --ledger budget.db.")
        yield None
        return
    if dataset is None:
        raise ValueError("--ledger needs --dataset: which of its datasets pays?")
    from tailguard.ledger import Ledger
    from tailguard.privacy import Budget

    with Ledger(path, dataset, budget_epsilon) as ledger:
        ledger.require(Budget(epsilon, delta))
        yield ledger


def print_ledger(console: Console, ledger: Ledger | None) -> None:
    """Print where the dataset stands."""
    if ledger is None:
        return
    from tailguard.ledger.book import rounded_down, rounded_up

    summary = ledger.summary()
    room = "" if summary.room is None else f"; room for one more run of epsilon up to {rounded_down(summary.room)}"
    console.print(
        f"\nLedger: {summary.dataset.name} has spent epsilon = {rounded_up(summary.epsilon)} at delta = "
        f"{summary.dataset.delta:g} in {summary.runs} run{'s' if summary.runs != 1 else ''}{room}.",
        markup=False,
    )


@contextlib.contextmanager
def progress(console: Console, rows: int | None, shown: bool = True) -> Iterator[Callable[[int], None] | None]:
    """Show how far each look at the rows is, on a terminal; yields what to call with rows that were read."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    err = Console(stderr=True)
    if console.quiet or not shown or not err.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rows]}"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("fitting", total=None, rows="")
        look = 0

        def advance(read: int) -> None:
            nonlocal look
            if read == 0:
                look += 1
                bar.update(task, total=rows, completed=0, description=f"look {look} at the rows")
            bar.update(task, advance=read)
            done = int(bar.tasks[0].completed)
            bar.update(task, rows=f"{done:,} rows")
            if rows is not None and done >= rows:
                bar.update(task, total=None, description="fitting", rows=f"{rows:,} rows")

        yield advance


def read_schema(path: Path | None) -> TableSchema | None:
    """Read a schema file, if one is given."""
    if path is None:
        return None
    from tailguard.tables import TableSchema

    return TableSchema.read(path)


def check_columns(table: TableFile, names: Iterable[str], who: str) -> None:
    """Refuse a table that lacks columns which ``who`` asks for, by name."""
    from tailguard.engines.files import listed as listed_names
    from tailguard.tables.schema import nearest

    missing = [name for name in names if name not in table.names]
    if missing and table.csv is not None and len(table.names) == 1:
        raise ValueError(
            f"{table.path.name} has a single column if its cells are separated by {table.csv.delimiter!r}, as {who} "
            "says: write it with that delimiter, or declare the right one in a schema."
        )
    if missing:
        named = ", ".join(map(repr, missing[:10])) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise ValueError(
            f"{table.path.name} has no column {named}, which {who} names"
            + (nearest(missing[0], table.names) if len(missing) == 1 else f"; it has {listed_names(table.names)}.")
        )


def table_recipe(recipe: Recipe | None, path: Path) -> Recipe:
    """Return the recipe of a model that can read tables."""
    if recipe is None:
        raise ValueError(
            f"{path.name} was not fitted to a table, so nothing says which columns it needs: predict from Python with "
            "tailguard.load_model."
        )
    return recipe


def bare(model: Any) -> Any:
    """The model without its names of features: blocks of a table are plain arrays, made in the right order."""
    if hasattr(model, "feature_names_in_"):
        del model.feature_names_in_
    return model


def print_fit(console: Console, report: FitReport) -> None:
    """Print a summary of a fit: promise, coefficients, what was spent."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from tailguard.fit_report.content import KINDS
    from tailguard.fit_report.figures import number

    privacy = report.privacy
    console.print(printable(f"{KINDS[type(report.model).__name__]}, of {report.target}"), style="bold", markup=False)
    console.print(printable(privacy.guarantee[:1].upper() + privacy.guarantee[1:] + "."), markup=False)
    console.print(printable(report.sentence()), markup=False)
    if report.note():
        console.print(printable(report.note()), style="yellow", markup=False)
    coefficients = Table(box=SIMPLE_HEAD, pad_edge=False)
    coefficients.add_column("feature", overflow="fold")
    beside = report.beside()
    for name in report.outputs():
        coefficients.add_column(plain(name), justify="right")
        if beside is not None:
            coefficients.add_column(beside[0], justify="right", style="dim")
    bounded = any(row["truncated_to"] for row in report.coefficients())
    if bounded:
        coefficients.add_column("truncated to", justify="right", style="dim")
    for i, row in enumerate(report.coefficients()):
        reference = "" if row["reference"] is None else f" (against {row['reference']})"
        limits = row["truncated_to"]
        cells = []
        for k, value in enumerate(row["values"]):
            cells.append(number(value))
            if beside is not None:
                error = beside[1][i][k]
                cells.append("" if error is None else number(error))
        cells += [f"{number(limits[0])} .. {number(limits[1])}" if limits else ""] if bounded else []
        coefficients.add_row(plain(row["name"] + reference), *map(plain, cells))
    console.print(coefficients)
    if beside is not None:
        console.print(report.about_beside(), markup=False, style="dim")
    if report.summary is not None:
        for line in str(report.summary).splitlines():
            console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
        console.print()
    spent = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title, side in (("spent on", "left"), ("share", "right"), ("releases", "right"), ("mechanism", "left")):
        spent.add_column(title, justify=side)  # type: ignore[arg-type]
    for item in report.spent():
        share = "" if item["share"] is None else f"{100.0 * item['share']:.1f} %"
        spent.add_row(plain(item["on"]), share, str(item["releases"]), plain(item["mechanism"]))
    console.print(spent)


def plain(text: str) -> Any:
    """Text for a table, without markup and control characters."""
    from rich.text import Text

    return Text(printable(text))


def write_reports(report: FitReport, *paths: Path | None) -> list[str]:
    """Write the report, HTML or JSON by the end of the name."""
    from tailguard.model_file import write_whole

    written = []
    for path in paths:
        if path is not None:
            write_whole(path, report.to_json() if path.suffix.lower() == ".json" else report.to_html())
            written.append(str(path))
    return written


def check_report(path: Path | None) -> None:
    """Refuse a report whose name says neither HTML nor JSON."""
    if path is not None and path.suffix.lower() not in (".html", ".htm", ".json"):
        raise ValueError(f"--report {path}: give a name that ends in .html or .json.")
