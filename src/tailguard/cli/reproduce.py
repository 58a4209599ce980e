"""``tailguard reproduce``: the paper's experiments, and which of its claims hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    figure: Annotated[
        list[str] | None, typer.Option(help="Only this figure (1 to 6) or panel (such as 1a); may be given again.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A part of the full run: 3 minutes in place of half an hour.")
    ] = False,
    output: Annotated[
        Path,
        typer.Option(
            help="Folder for results, figures and report; a run resumes what it finds there.", file_okay=False
        ),
    ] = Path("reproduce-output"),
    data: Annotated[
        Path | None,
        typer.Option(help="Adult: a folder with adult.csv.gz, or the file. Default: TAILGUARD_DATA, or OpenML."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Seeds of every figure.", min=1)] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; default one per core.", min=1)] = None,
    size: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run the paper's experiments and say which of its claims hold."""
    import os

    from rich.console import Console

    from tailguard.reproduce import command_line

    console = Console(highlight=False, soft_wrap=True)
    name = size or ("quick" if quick else "full")
    files = command_line.reproduce(console, name, figure or [], output, data, seeds, workers)
    console.print("Report: " + ", ".join(os.path.relpath(file) for file in files), markup=False)
