"""``tailguard audit``: try to refute a claim of differential privacy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tailguard.auditing import Table

# Told apart from errors of options (2) and of all else (1).
REFUTED = 3


def command(
    subject: Annotated[
        str | None,
        typer.Argument(
            help="A name of --list; or module:factory, or file.py:factory, for your own.", show_default=False
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="The claim; default 1 for what is in --list.", min=0.0, show_default=False)
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="The claim; default 0.05 for what is in --list.", min=0.0, show_default=False)
    ] = None,
    neighbours: Annotated[
        list[str] | None,
        typer.Option(
            help="Built-in neighbours: far outlier, opposite outliers, infinite, not a number, duplicate, label flip, "
            "sparse canary; may be given again. Default all.",
            show_default=False,
        ),
    ] = None,
    pair: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Your own neighbours: two CSV files with a header, or two .npy files.", show_default=False),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column of the files that is the target; default none.", show_default=False)
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="Rows to try: mean, regression, classification or counts.", show_default=False),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(help="Rows of the table around which neighbours are made.", min=2, show_default=False),
    ] = None,
    columns: Annotated[int | None, typer.Option(help="Its columns.", min=1, show_default=False)] = None,
    relation: Annotated[
        str | None, typer.Option(help="replace-one or add-remove; default that of the subject.", show_default=False)
    ] = None,
    runs: Annotated[int, typer.Option(help="Runs on each of the two tables.", min=20)] = 10_000,
    canaries: Annotated[
        int | None,
        typer.Option(
            help="Audit in one run, with so many canaries, in place of two tables.", min=10, show_default=False
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the bound.", min=0.5, max=1.0 - 1e-9)] = 0.99,
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.", min=0)] = 0,
    system_noise: Annotated[
        bool, typer.Option("--system-noise", help="Noise from the operating system, as in real use, and no seed.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(help="Processes; default one per core.", min=1, show_default=False)
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Folder for audit.json and the plot; made if it is missing.", file_okay=False)
    ] = Path("audit-output"),
    names: Annotated[bool, typer.Option("--list", help="List what can be named, and end.")] = False,
) -> None:
    """Run a mechanism or an estimator on neighbouring tables and bound its epsilon from below.

    Exits with 3 if the bound exceeds the claim.
    """
    import os

    from rich.console import Console

    from tailguard._checks import one_of
    from tailguard.auditing import CASES, Table, audit, audit_one_run
    from tailguard.auditing.neighbours import KINDS
    from tailguard.auditing.shipped import find

    console = Console(highlight=False, soft_wrap=True)
    if names:
        for name, case in CASES.items():
            console.print(f"{name:40} {case.relation:12} claim ({case.epsilon:g}, {case.delta:g})", markup=False)
        return
    if subject is None:
        raise ValueError("give what to audit: a name of --list, module:factory or file.py:factory.")
    if relation is not None:
        one_of("relation", relation, ("replace-one", "add-remove"))
    chosen: Any = None if system_noise else seed
    if canaries is not None:
        result = audit_one_run(subject, epsilon, delta, canaries=canaries, confidence=confidence, seed=chosen)
    else:
        data = None
        if pair is None and (kind, rows, columns) != (None, None, None):
            kind = find(subject, epsilon, delta).kind if kind is None else one_of("kind", kind, KINDS)
            data = Table.example(kind, rows or 20, columns or 1)
        result = audit(
            subject,
            epsilon,
            delta,
            pair=None if pair is None else (_read(pair[0], target, kind), _read(pair[1], target, kind)),
            data=data,
            neighbours=neighbours or None,
            relation=relation,  # type: ignore[arg-type]
            runs=runs,
            confidence=confidence,
            seed=chosen,
            workers=workers,
            progress=console.is_terminal,
        )
    console.print(str(result), markup=False)
    output.mkdir(parents=True, exist_ok=True)
    files = [output / "audit.json"]
    files[0].write_text(result.to_json() + "\n", encoding="utf-8")
    try:
        files += [result.plot(output / "audit.svg"), result.plot(output / "audit.png")]
    except ImportError as error:
        console.print(f"No plot: {error}", markup=False)
    console.print("Written: " + ", ".join(os.path.relpath(file) for file in files), markup=False)
    if result.refuted:
        raise typer.Exit(REFUTED)


def _read(file: Path, target: str | None, kind: str | None) -> Table:
    """Read a table of numbers; "nan" and "inf" are numbers."""
    import numpy as np

    from tailguard.auditing import Table

    if file.suffix == ".npy":
        values, names = np.load(file, allow_pickle=False), []
    else:
        with file.open(encoding="utf-8") as lines:
            names = [name.strip() for name in lines.readline().split(",")]
        try:
            values = np.loadtxt(file, delimiter=",", skiprows=1, ndmin=2)
        except ValueError:
            raise ValueError(f"{file} must be a CSV file of numbers below one line of column names.") from None
    values = np.asarray(values, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if target is None:
        return Table(values)
    columns = names or [str(k) for k in range(values.shape[1])]
    if target not in columns:
        raise ValueError(f"target={target!r} is not a column of {file}, which has {', '.join(columns)}.")
    at = columns.index(target)
    labels: Any = kind if kind not in (None, "mean") else "regression"
    return Table(np.delete(values, at, axis=1), values[:, at], labels)
