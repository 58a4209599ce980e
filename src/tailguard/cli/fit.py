"""``tailguard fit``: a private model of a table."""

from __future__ import annotations

import warnings
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailguard.cli._shared import AsJson, BudgetEpsilon, DataFile, DatasetName, Force, LedgerFile, Quiet

if TYPE_CHECKING:
    from tailguard.tables import Recipe, TableFile, TableSchema


class Model(StrEnum):
    """Which estimator."""

    auto = "auto"
    ridge = "ridge"
    huber = "huber"
    poisson = "poisson"
    logistic = "logistic"


_ESTIMATORS = {
    Model.ridge: "PrivateRidge",
    Model.huber: "PrivateHuberRegressor",
    Model.poisson: "PrivatePoissonRegressor",
    Model.logistic: "PrivateLogisticRegression",
}


def command(
    data: DataFile,
    target: Annotated[str, typer.Option(help="Column to predict.")],
    model: Annotated[
        Model,
        typer.Option(help="auto: by the declared target, logistic for categories, poisson for counts, else ridge."),
    ] = Model.auto,
    epsilon: Annotated[float, typer.Option(help="The promise: smaller is more private.")] = 1.0,
    delta: Annotated[float | None, typer.Option(help="Default min(1e-6, rows**-1.5).", show_default=False)] = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="What the columns hold; tailguard schema writes a template.", exists=True, dir_okay=False),
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="Columns to predict from: a,b,c. Default all that are declared.")
    ] = None,
    drop: Annotated[str | None, typer.Option(help="Columns to leave out: a,b,c.")] = None,
    groups: Annotated[
        str | None,
        typer.Option(help="Column that says whose row it is: the promise is then for a person with all their rows."),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Labels of the target where no schema lists them: no,yes.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="L2 penalty on the coefficients.", min=0.0)] = 0.0,
    no_intercept: Annotated[bool, typer.Option("--no-intercept", help="A line through the origin.")] = False,
    inference: Annotated[
        bool, typer.Option("--inference", help="The same budget also buys standard errors and 95 % intervals.")
    ] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file.", dir_okay=False)] = Path(
        "model.json"
    ),
    report: Annotated[
        Path | None, typer.Option(help="Also write the privacy report, .html or .json.", dir_okay=False)
    ] = None,
    ledger: LedgerFile = None,
    dataset: DatasetName = None,
    budget_epsilon: BudgetEpsilon = None,
    memory: Annotated[
        int, typer.Option(help="MiB of rows to keep; a larger table is read again on every pass.", min=0)
    ] = 512,
    seed: Annotated[
        int | None, typer.Option(help="Repeat a run exactly; the report then says that it is not private.", min=0)
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit a private model to a table and write it to a file.

    Nothing but epsilon has to be chosen. Cells that are missing, not numbers or not among the declared categories
    count as missing; no message says how many, since that would be a fact about the rows.

    Example: tailguard fit patients.parquet --target cost --model ridge --epsilon 1 -o cost.json

    Example: tailguard fit patients.csv --schema schema.toml --target smoker --report smoker.html -o smoker.json

    Example: tailguard fit patients.parquet --target cost --groups id -o persons.json

    Example: tailguard fit patients.csv --target cost --features age,visits --ledger budget.db --dataset patients-2026
    --budget-epsilon 3
    """
    from tailguard.cli import _shared
    from tailguard.fit_report import FitReport
    from tailguard.linear_model import FewRowsWarning
    from tailguard.model_file import read_model, save_model
    from tailguard.privacy import Budget, default_delta
    from tailguard.tables import NUMBER, open_table, read_ids, training_rows

    console = _shared.terminal(quiet, as_json)
    Budget(epsilon, default_delta(2) if delta is None else delta)  # refuses what can be no promise, before all else
    _shared.check_report(report)
    _shared.check_outputs(force, output, report)
    declared = _shared.read_schema(schema)
    table = open_table(data, None if declared is None else declared.csv)
    left_out = _shared.listed(drop)
    if groups is not None:
        _check_groups(table, groups, target, _shared.listed(features))
        read = table.proposals if declared is None else declared.columns
        if groups in read and (declared is not None or not table.typed or read[groups] == NUMBER):
            left_out = [*(left_out or ()), groups]
    recipe, notes = _recipe(table, declared, target, _shared.listed(features), left_out, classes)
    recipe = replace(recipe if no_intercept or not inference else recipe.compared(), persons=groups)
    chosen = _chosen(model, recipe)
    estimator = _estimator(chosen, recipe, epsilon=epsilon, delta=delta, alpha=alpha, seed=seed)
    estimator.set_params(fit_intercept=not no_intercept, inference=inference)
    if declared is not None and not inference:  # intervals rest on nothing but the rows
        estimator.set_params(hints=declared.hints(recipe))
    # A CSV must be read to count its rows; what a ledger cannot pay whatever their number is refused before.
    # Nor is the number of rows looked at where persons are protected: it is private then.
    most = 10**12 if not table.typed or groups is not None else max(2, table.rows)
    for note in notes:
        console.print(f"Note: {note}", markup=False, style="dim")
    with _shared.paying(ledger, dataset, budget_epsilon, epsilon, delta or default_delta(most)) as book:
        with _shared.progress(console, table.rows, shown=groups is None) as advance:
            rows = training_rows(table, recipe, memory * 2**20, advance)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FewRowsWarning)  # the summary says so
                estimator.fit(rows, recipe.target.name, groups=None if groups is None else read_ids(table, groups))
        _name_classes(estimator, recipe)
        if not inference:  # standard errors are those of the coefficients as they were fitted
            _centre(estimator, recipe)
        save_model(estimator, output, recipe=recipe)
        found = FitReport.of(read_model(output))
        written = _shared.write_reports(found, report)
        if as_json:
            status = {} if book is None else {"ledger": book.summary().to_dict()}
            _shared.print_json(found.to_dict() | {"model_file": str(output), "report_files": written} | status)
            return
        _shared.print_fit(console, found)
        console.print("Files: " + ", ".join([str(output), *written]), markup=False)
        _shared.print_ledger(console, book)


def _check_groups(table: TableFile, groups: str, target: str, features: list[str] | None) -> None:
    """Refuse a column of persons that is not there, or that is something else as well."""
    from tailguard.cli._shared import check_columns

    check_columns(table, [groups], "--groups")
    if groups == target or groups in (features or ()):
        raise ValueError(f"--groups {groups!r} is the column that tells persons apart: it is no feature and no target.")


def _recipe(
    table: TableFile,
    schema: TableSchema | None,
    target: str,
    features: list[str] | None,
    drop: list[str] | None,
    classes: str | None,
) -> tuple[Recipe, list[str]]:
    """Which columns are used and how, and what to tell about it; from names and types alone."""
    from tailguard.cli._shared import check_columns, listed
    from tailguard.tables import CATEGORY, NUMBER, Column, TableSchema, choose

    notes = []
    if schema is None:
        numbers = [name for name, kind in table.proposals.items() if kind == NUMBER or not table.typed]
        if not table.typed and features is None:
            notes.append(
                f"no schema: all columns of {table.path.name} are read as numbers, and cells that are none count as "
                "missing. Name columns with --features, or declare them (tailguard schema)."
            )
        left_out = [name for name in table.names if name not in numbers and name != target]
        if left_out and features is None:
            notes.append(
                f"no schema: columns that are not numbers are left out ({', '.join(left_out[:5])}"
                f"{', ...' if len(left_out) > 5 else ''}). Declare their categories to use them (tailguard schema)."
            )
        named = [name for name in (target, *(features or ())) if name in table.names and name not in numbers]
        if [name for name in named if name != target]:
            raise ValueError(f"column {named[-1]!r} does not hold numbers: list its categories in a schema.")
        schema = TableSchema.of([Column(name) for name in table.names if name in {*numbers, target}], table.csv)
        if target in named and classes is None:
            raise ValueError(f"the target {target!r} does not hold numbers: name its labels with --classes no,yes.")
    if classes is not None:
        labels = listed(classes) or []
        column = Column(target, CATEGORY, _labels(labels))
        schema = TableSchema({**schema.columns, target: column}, schema.csv)
    for name in (target, *(features or ()), *(drop or ())):
        if name in table.names and name not in schema.columns:
            raise ValueError(f"column {name!r} of {table.path.name} is not declared: add it to the schema.")
    recipe = choose(schema, target, features, drop or ())
    check_columns(table, [*recipe.columns, target], "the schema")
    return recipe, notes


def _labels(labels: list[str]) -> tuple[Any, ...]:
    """Numbers if all are."""
    try:
        return tuple(float(label) for label in labels)
    except ValueError:
        return tuple(labels)


def _chosen(model: Model, recipe: Recipe) -> Model:
    """The model that the declared target asks for, or the one that was asked for if it can be fitted."""
    from tailguard.tables import CATEGORY, COUNT

    kind, name = recipe.target.kind, recipe.target.name
    if model is Model.auto:
        return Model.logistic if kind == CATEGORY else Model.poisson if kind == COUNT else Model.ridge
    if model is Model.logistic and kind != CATEGORY:
        raise ValueError(
            f"--model logistic needs the labels of {name!r}: list them in the schema, or give --classes no,yes. They "
            "are not read from the rows, where a rare one would give somebody away."
        )
    if model is not Model.logistic and kind == CATEGORY:
        raise ValueError(f"--model {model} needs a number, and {name!r} is declared with categories: use logistic.")
    return model


def _estimator(model: Model, recipe: Recipe, *, seed: int | None, **parameters: Any) -> Any:
    """The estimator; labels are their places among the classes while it is fitted."""
    import tailguard

    if model is Model.logistic:
        parameters["classes"] = tuple(range(len(recipe.classes)))
    return getattr(tailguard, _ESTIMATORS[model])(random_state=seed, **parameters)


def _centre(estimator: Any, recipe: Recipe) -> None:
    """Make the coefficients of a column with three categories or more add up to zero; the intercept takes their mean.

    Post-processing, for readers: a row is in one category, so its prediction stays what it was.
    """
    j = 0
    for column in recipe.features:
        group = slice(j, j + column.width)
        j = group.stop
        inside = (estimator.lower_[group] <= 0.0).all() and (estimator.upper_[group] >= 1.0).all()
        if column.width > 1 and inside and estimator.fit_intercept:
            mean = estimator.coef_[..., group].mean(axis=-1)
            estimator.coef_[..., group] -= mean[..., None]
            estimator.intercept_ = estimator.intercept_ + mean


def _name_classes(estimator: Any, recipe: Recipe) -> None:
    """Give the classes of a fitted classifier their labels in place of their places."""
    import numpy as np

    if not hasattr(estimator, "classes_"):
        return
    labels = np.array(recipe.classes)
    if labels.dtype.kind == "f" and np.all(labels == np.rint(labels)):
        labels = labels.astype(np.int64)
    estimator.classes_ = labels
    estimator.set_params(classes=tuple(labels.tolist()))
