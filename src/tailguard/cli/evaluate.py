"""``tailguard evaluate``: how good a model is, on rows that may be looked at or that are paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailguard.cli._shared import AsJson, BudgetEpsilon, DataFile, DatasetName, LedgerFile, ModelFile, Quiet

if TYPE_CHECKING:
    from rich.console import Console

    from tailguard.privacy import PrivacyReport
    from tailguard.tables import TableFile

_NOT_PRIVATE = "Exact scores of held-out rows are not private: keep them, or pay for others with --pay-epsilon."


def command(
    model: ModelFile,
    data: DataFile,
    public: Annotated[
        bool, typer.Option("--public", help="The rows are public: scores are exact and may be published.")
    ] = False,
    held_out: Annotated[
        bool,
        typer.Option("--held-out", help="The model was not fitted to these rows: scores are exact and stay with you."),
    ] = False,
    pay_epsilon: Annotated[
        float | None, typer.Option(help="Pay for the scores, of training rows or others: they are noisy and private.")
    ] = None,
    error_bound: Annotated[
        float | None,
        typer.Option(help="With --pay-epsilon: larger errors count as this public number; the noise is then known."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help="Column that says whose row it is. With --pay-epsilon the price is then for a person; with --held-out "
            "persons are compared with those of the fit, in number."
        ),
    ] = None,
    same_size: Annotated[
        bool, typer.Option("--same-size", help="Held-out rows, or persons, that are as many as in the fit by chance.")
    ] = False,
    ledger: LedgerFile = None,
    dataset: DatasetName = None,
    budget_epsilon: BudgetEpsilon = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Score a model on public rows, on held-out rows, or privately on any rows.

    A score is a statistic of the rows, and an exact one of training rows takes back what the fit promised. Nothing in a
    model file can tell training rows from others (a fingerprint of them would itself be a leak), so you say which:
    --public, --held-out or --pay-epsilon.

    Example: tailguard evaluate cost.json public.csv --public

    Example: tailguard evaluate cost.json later.csv --held-out

    Example: tailguard evaluate cost.json patients.csv --pay-epsilon 0.5 --ledger budget.db --dataset patients-2026
    """
    from tailguard.cli import _shared
    from tailguard.evaluation import exact_scores, private_scores
    from tailguard.model_file import read_model
    from tailguard.tables import open_table, read_ids

    _check_choice(public, held_out, pay_epsilon)
    if error_bound is not None and pay_epsilon is None:
        raise ValueError("--error-bound is for private scores: give it with --pay-epsilon.")
    if groups is not None and public:
        raise ValueError("--groups is for private scores and held-out rows: give it with --pay-epsilon or --held-out.")
    saved = read_model(model)
    recipe = _shared.table_recipe(saved.recipe, model)
    table = open_table(data, recipe.csv)
    _shared.check_columns(table, [*recipe.columns, recipe.target.name], "the model")
    _shared.check_columns(table, [] if groups is None else [groups], "--groups")
    estimator = _shared.bare(saved.model)
    console = _shared.terminal(quiet, as_json)
    if pay_epsilon is None:
        if ledger is not None or dataset is not None:
            raise ValueError("--ledger is for private scores: give it with --pay-epsilon.")
        if held_out and not same_size:
            _check_size(table, estimator.privacy_, recipe.persons if groups is None else groups)
        scores = exact_scores(estimator, recipe, table)
        warning = "" if public else _NOT_PRIVATE
        if as_json:
            _shared.print_json(
                {"rows": "public" if public else "held-out", "scores": scores, "private": False, "note": warning}
            )
            return
        _print_scores(console, scores, {})
        if warning:
            console.print(warning, style="yellow", markup=False)
        return
    # Whatever the number of rows, the price is at least that at the smallest delta.
    with _shared.paying(ledger, dataset, budget_epsilon, pay_epsilon, 1e-18) as book:
        ids = None if groups is None else read_ids(table, groups)
        result = private_scores(estimator, recipe, table, pay_epsilon, error_bound, ids)
        both = None
        same = (estimator.privacy_.n_rows, estimator.privacy_.unit) == (result.privacy.n_rows, result.privacy.unit)
        if same and estimator.privacy_.private:
            both = (estimator.privacy_ + result.privacy).guarantee
        if as_json:
            status = {} if book is None else {"ledger": book.summary().to_dict()}
            _shared.print_json(
                {
                    "rows": "paid for",
                    "scores": result.scores,
                    "noise": result.noise,
                    "notes": list(result.notes),
                    "private": result.privacy.private,
                    "privacy": result.privacy.to_dict(),
                    "with_the_fit": both,
                }
                | status
            )
            return
        _print_scores(console, result.scores, result.noise)
        for note in result.notes:
            console.print(note, markup=False)
        console.print(f"The scores are {result.privacy.guarantee}.", markup=False)
        if both is not None:
            console.print(f"If these are the rows of the fit, fit and scores together are {both}.", markup=False)
        _shared.print_ledger(console, book)


def _check_choice(public: bool, held_out: bool, pay_epsilon: float | None) -> None:
    from tailguard.cli._errors import Refused

    chosen = public + held_out + (pay_epsilon is not None)
    if chosen > 1:
        raise ValueError("give only one of --public, --held-out and --pay-epsilon.")
    if not chosen:
        raise Refused(
            "say whose rows these are: --public, --held-out (the model was not fitted to them), or --pay-epsilon 0.5 "
            "for private scores. Exact scores of training rows would take back what the fit promised."
        )


def _check_size(table: TableFile, fit: PrivacyReport, persons: str | None) -> None:
    """Refuse as many rows, or persons, as the fit had: both numbers are public, and equal ones are seldom chance."""
    from tailguard.cli._errors import Refused
    from tailguard.evaluation import count_persons

    if fit.unit == "row":
        found = table.rows
    elif persons is None or persons not in table.names:
        named = "no column" if persons is None else f"no column {persons!r}"
        raise Refused(
            f"the model was fitted to {fit.n_rows} persons, and {named} says who is who in this table: name it with "
            "--groups, or add --same-size if none of them was in the fit."
        )
    else:
        found = count_persons(table, persons)
    if found == fit.n_rows:
        raise Refused(
            f"the model was fitted to {found} {fit.units} and this table has {found}: if it is the training table, use "
            "--pay-epsilon; if it is another of the same size, add --same-size."
        )


def _print_scores(console: Console, scores: dict[str, float], noise: dict[str, float]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("score")
    table.add_column("value", justify="right")
    if noise:
        table.add_column("noise, sd", justify="right")
    for name, value in scores.items():
        cells: list[Any] = [name, f"{value:,.5g}" if isinstance(value, float) else f"{value:,}"]
        if noise:
            cells.append(f"{noise[name]:,.3g}" if name in noise else "")
        table.add_row(*cells)
    console.print(table)
