"""``tailguard schema``: a template to declare what is public about a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailguard.cli._shared import DataFile, Force


def command(
    data: DataFile,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File, .toml or .json; default the terminal.")
    ] = None,
    force: Force = False,
) -> None:
    """Write a schema to fill in: what each column of a table holds.

    It is made from the names of the columns alone and, for Parquet, from the types that the file declares. Values are
    not looked at: which categories occur in a table is a fact about the people in it. A CSV declares no types and
    guessing them would be a look at its values, so every column is proposed as a number, for you to correct.

    Example: tailguard schema patients.csv -o schema.toml

    Example: tailguard schema patients.parquet
    """
    import shlex

    from tailguard.cli._shared import check_outputs
    from tailguard.model_file import write_whole
    from tailguard.tables import open_table
    from tailguard.tables.schema import template

    if output is not None and output.suffix.lower() not in (".toml", ".json"):
        raise ValueError(f"--output {output}: give a name that ends in .toml or .json.")
    check_outputs(force, output)
    table = open_table(data)
    as_json = output is not None and output.suffix.lower() == ".json"
    text = template(table.proposals, table.csv, types=table.typed, as_json=as_json)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_whole(output, text)
    known = "names and types" if table.typed else "names"
    typer.echo(f"{output}: {len(table.names)} columns, from their {known}. Edit it, then fit:")
    typer.echo(f"tailguard fit {shlex.quote(str(data))} --schema {shlex.quote(str(output))} --target COLUMN")
