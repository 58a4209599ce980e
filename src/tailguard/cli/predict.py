"""``tailguard predict``: predictions for the rows of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tailguard.cli._shared import DataFile, Force, ModelFile, Quiet


def command(
    model: ModelFile,
    data: DataFile,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=".csv, .csv.gz or .parquet; default the terminal, as CSV.", dir_okay=False),
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="Columns of the table to write beside the predictions: id,date.")
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Probabilities of a classifier's labels as well.")] = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Predict the target of every row of a table.

    A prediction is made from the model and from that row alone, so it costs no privacy. It tells as much about the row
    as a person who knows the row and the model could work out.

    Example: tailguard predict cost.json patients.csv -o predicted.csv

    Example: tailguard predict smoker.json patients.csv --proba --keep age -o predicted.parquet
    """
    import sys

    from tailguard.cli import _shared
    from tailguard.model_file import read_model
    from tailguard.tables import RowWriter, encode_features, kept_cells, open_table

    saved = read_model(model)
    recipe = _shared.table_recipe(saved.recipe, model)
    writer = RowWriter(output, sys.stdout)
    _shared.check_outputs(force, output)
    table = open_table(data, recipe.csv)
    kept = _shared.listed(keep) or []
    _shared.check_columns(table, recipe.columns, "the model")
    _shared.check_columns(table, kept, "--keep")
    estimator = _shared.bare(saved.model)
    if proba and not hasattr(estimator, "classes_"):
        raise ValueError(f"--proba is for classifiers; {model.name} predicts a number: leave it out.")
    with writer:
        for block in table.blocks(list(dict.fromkeys([*recipe.columns, *kept]))):
            columns: dict[str, Any] = {name: kept_cells(block, name) for name in kept}
            writer.write(columns | _predictions(estimator, encode_features(recipe, block), proba))
        if writer.rows == 0:
            raise ValueError(f"{data.name} has no rows: there is nothing to predict.")
    if output is not None and not quiet:
        typer.echo(f"{output}: predictions of {recipe.target.name} for {writer.rows:,} rows.")


def _predictions(estimator: Any, X: Any, proba: bool) -> dict[str, Any]:
    from tailguard.tables.schema import label_names

    found = {"prediction": estimator.predict(X)}
    if proba:
        columns = zip(label_names(estimator.classes_), estimator.predict_proba(X).T, strict=True)
        found |= {f"probability_{label}": p for label, p in columns}
    return found
