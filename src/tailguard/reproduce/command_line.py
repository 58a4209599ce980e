"""From a command's arguments to a report: choose figures, find the data, compute, write, say what was found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tailguard._optional import import_optional
from tailguard.reproduce import report, runner
from tailguard.reproduce.claims import Evidence, claims
from tailguard.reproduce.specs import SIZES, Figure, figures
from tailguard.reproduce.store import Store

if TYPE_CHECKING:
    from rich.console import Console


def reproduce(
    console: Console,
    size: str,
    wanted: Sequence[str],
    output: Path,
    data: Path | None = None,
    seeds: int | None = None,
    workers: int | None = None,
) -> list[Path]:
    """Run the experiments and write the report.

    Parameters
    ----------
    console : rich Console
        For progress and the table of claims.
    size : {"full", "quick", "tiny"}
    wanted : sequence of str
        Figures and panels; none means all.
    output : Path
        Output folder.
    data : Path, optional
        Where Adult is; see `tailguard.datasets.load_adult`.
    seeds : int, optional
        Seeds of every figure.
    workers : int, optional
        Processes.

    Returns
    -------
    list of Path
        The report's files.
    """
    for module in ("pyarrow.parquet", "matplotlib.figure"):
        import_optional(module, "reproduce")
    if size not in SIZES:
        raise ValueError(f"size={size!r} is not accepted: give one of {', '.join(SIZES)}.")
    chosen_size = SIZES[size] if seeds is None else SIZES[size].with_seeds(seeds)
    chosen = choose(figures(chosen_size), wanted)
    chosen, skipped, digest = _with_data(chosen, data, explicit=bool(wanted) or data is not None)
    for sentence in skipped:
        console.print(sentence, markup=False)
    output.mkdir(parents=True, exist_ok=True)
    store = Store(output, digest)
    results = _compute(console, chosen, store, data, workers)
    evidence = Evidence(chosen, results)
    files = report.write(chosen, evidence, output, chosen_size, skipped)
    _summarise(console, evidence)
    return files


def choose(specs: Sequence[Figure], wanted: Sequence[str]) -> list[Figure]:
    """Keep the figures and panels that were asked for.

    Parameters
    ----------
    specs : sequence of Figure
    wanted : sequence of str
        Such as "1", "1a"; none means all.
    """
    if not wanted:
        return list(specs)
    keys = {key.strip().lower() for key in wanted}
    known = {figure.key for figure in specs} | {panel.key for figure in specs for panel in figure.panels}
    for key in sorted(keys - known):
        raise ValueError(f"--figure {key} is not accepted: give one of {', '.join(sorted(known))}.")
    kept = []
    for figure in specs:
        panels = tuple(panel for panel in figure.panels if figure.key in keys or panel.key in keys)
        if panels:
            kept.append(figure.with_panels(panels))
    return kept


def _with_data(chosen: list[Figure], data: Path | None, explicit: bool) -> tuple[list[Figure], list[str], str]:
    """Find Adult if it is needed; leave its panels out if it cannot be had and nobody asked for them by name."""
    if not any(runner.needs_adult(figure) for figure in chosen):
        return chosen, [], ""
    try:
        return chosen, [], runner.adult_digest(data)
    except (OSError, ImportError) as error:
        if explicit:
            raise
        reason = " ".join(str(error).split())
    kept = [figure.without_adult() for figure in chosen]
    left = ", ".join(p.key for figure in chosen for p in figure.panels if p.points[0].source.data == "adult")
    sentence = (
        f"Panels {left} were left out: the Adult table could not be had ({reason}). Give --data or "
        "TAILGUARD_DATA, a folder with adult.csv.gz."
    )
    return [figure for figure in kept if figure.panels], [sentence], ""


def _compute(
    console: Console, chosen: list[Figure], store: Store, data: Path | None, workers: int | None
) -> dict[str, runner.Results]:
    """Show how far it is and how long it takes."""
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    cells = {store.path(cell): cell for figure in chosen for *_, cell in figure.entries()}
    missing = runner.missing_cells(chosen, store)
    total, left = sum(cell.cost for cell in cells.values()), sum(cell.cost for cell in missing)
    console.print(f"{len(cells)} cells, {len(cells) - len(missing)} of them finished before.")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("cells", total=total)
        bar.advance(task, total - left)
        try:
            return runner.run(chosen, store, data=data, workers=workers, progress=lambda cost: bar.advance(task, cost))
        except KeyboardInterrupt:
            bar.stop()
            console.print("Stopped; every finished cell is kept. The same command continues.")
            raise


def _summarise(console: Console, evidence: Evidence) -> None:
    from rich.table import Table

    table = Table(title="The paper's claims", title_justify="left", show_lines=True)
    for column in ("claim", "verdict"):
        table.add_column(column)
    for row in claims(evidence):
        table.add_row(row.claim, row.verdict)
    console.print(table)
