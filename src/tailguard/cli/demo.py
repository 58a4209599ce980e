"""``tailguard demo``: private models on heavy-tailed data, against the truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from tailguard.demo import Demonstration


def command(
    output: Annotated[
        Path, typer.Option(help="Folder for the picture; made if it is missing.", file_okay=False)
    ] = Path("demo-output"),
    rows: Annotated[int, typer.Option(help="Rows of synthetic data.", min=100)] = 100_000,
    seed: Annotated[
        int | None,
        typer.Option(help="Repeat a run exactly, data and noise; the report then says that it is not private.", min=0),
    ] = None,
) -> None:
    """Fit private models to heavy-tailed data and compare them with the truth."""
    import os
    import time

    from rich.console import Console

    from tailguard import demo

    console = Console(highlight=False, soft_wrap=True)
    output.mkdir(parents=True, exist_ok=True)

    console.print("Compiling kernels, once per machine: about 10 s the first time ...", end=" ")
    start = time.perf_counter()
    demo.warm_up()
    console.print(f"ready after {time.perf_counter() - start:.1f} s.")

    console.print(
        f"\nData: {rows:,} rows, {demo.COLUMNS} columns, y = <w, x> + noise; the noise is centred log-normal(1, 1), "
        "skewed,\nwith a standard deviation of 5.9 against a signal of 1."
        "\nPrivateRidge is told nothing but epsilon = 1."
        f"\nPublic bounds of the others: clip {demo.CLIP:g} for L2 clipping, scale {demo.SCALE:g} for Algorithm 4. "
        "Like the steps they are\nconstants, tuned on other tables of this kind with the truth known: expect less "
        "where you have to guess.\n"
    )
    demonstration = demo.run(rows, seed)
    console.print(_coefficients(demonstration))
    for fit in demonstration.fits:
        if fit.privacy is not None:
            console.print(f"\n[bold]{fit.name}[/bold]")
            console.print(str(fit.privacy), markup=False)
    console.print("\n[bold]All private fits together[/bold], since they saw the same rows")
    console.print(demonstration.total.guarantee, markup=False)

    try:
        files = demo.draw(demonstration, output)
    except ImportError as error:
        console.print(f"\nNo picture: {error}", markup=False)
        return
    console.print("\nPicture: " + ", ".join(os.path.relpath(file) for file in files), markup=False)


def _coefficients(demonstration: Demonstration) -> Table:
    from rich.table import Table

    truth, fits = demonstration.data.w, demonstration.fits
    table = Table(title="Coefficients against the truth", title_justify="left")
    table.add_column("")
    table.add_column("truth", justify="right")
    for fit in fits:
        table.add_column(f"{fit.name}\n{fit.promise}", justify="right", no_wrap=True)
    for j, value in enumerate(truth):
        table.add_row(
            f"w{j + 1}", f"{value:.3f}", *(f"{fit.w[j]:.3f}" for fit in fits), end_section=j + 1 == len(truth)
        )
    risk = demonstration.data.excess_risk
    table.add_row("excess risk", "0", *(f"{risk(fit.w):.5f}" for fit in fits))
    table.add_row("seconds", "", *(f"{fit.seconds:.2f}" for fit in fits))
    return table
