"""``tailguard plan``: what to expect of a private fit, before any data is touched."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from tailguard.planning import Need, Plan, Situation


class Model(StrEnum):
    """What is fitted."""

    ridge = "ridge"
    huber = "huber"
    logistic = "logistic"
    poisson = "poisson"
    mean = "mean"


class Tails(StrEnum):
    """What is assumed of the noise."""

    light = "light"
    heavy = "heavy"


def command(
    rows: Annotated[
        int | None, typer.Option(help="Number of rows; without it, how many a --target-error needs.")
    ] = None,
    features: Annotated[int | None, typer.Option(help="Number of features; not for --model mean.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy; without it, which a --target-error needs.")] = None,
    delta: Annotated[float | None, typer.Option(help="Default min(1e-6, rows^-1.5).")] = None,
    model: Annotated[Model, typer.Option(help="What is fitted; poisson has no formula, and is refused.")] = Model.ridge,
    target_error: Annotated[
        float | None, typer.Option(help="An error, in the unit of the model: which epsilon and how many rows it needs.")
    ] = None,
    r2: Annotated[float, typer.Option(help="Assumed: part of the target's variance that a line explains.")] = 0.5,
    log_odds_sd: Annotated[float, typer.Option(help="Assumed for logistic: 1 a weak signal, 3 a strong one.")] = 1.5,
    positive_rate: Annotated[float, typer.Option(help="Assumed for logistic: share of the rarer class.")] = 0.5,
    tails: Annotated[Tails, typer.Option(help="Assumed of the noise: normal, or log-normal.")] = Tails.heavy,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this file (.png, .svg, .pdf).")] = None,
    simulate: Annotated[
        int, typer.Option(help="Also fit this many synthetic tables of that size, and compare.", min=0)
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say what noise, how many steps and which accuracy to expect, and what a wanted accuracy needs.

    No data is read: everything follows from the numbers given and from what is assumed of the data. It is for a default
    fit without hints and with one row per person; for a fit with groups give the number of persons as rows.

    Example: tailguard plan --rows 30000 --features 20 --epsilon 1

    Example: tailguard plan --rows 30000 --features 20 --target-error 0.01

    Example: tailguard plan --model mean --epsilon 0.5 --target-error 0.001
    """
    from tailguard.planning import Situation, needed_epsilon, needed_rows
    from tailguard.planning import plan as predict

    if model is Model.poisson:
        raise ValueError(
            "--model poisson cannot be planned: the errors of its fits were not measured, and no formula is made up. "
            "Try fits on synthetic counts of that size."
        )
    if features is None and model is not Model.mean:
        raise ValueError(f"--features is needed for --model {model.value}: give the number of columns of X.")
    if target_error is None and (rows is None or epsilon is None):
        raise ValueError("give --rows and --epsilon, or --target-error in place of one of them.")
    if rows is None and epsilon is None:
        raise ValueError("give --rows or --epsilon beside --target-error; the other one is then found.")
    given = Situation(
        rows=1000 if rows is None else rows,
        features=0 if model is Model.mean else features or 0,
        epsilon=1.0 if epsilon is None else epsilon,
        delta=delta,
        model=cast(Any, model.value),
        r2=r2,
        log_odds_sd=log_odds_sd,
        positive_rate=positive_rate,
        tails=tails.value,
    )
    needs: dict[str, Need] = {}
    if target_error is not None:
        if rows is not None:
            needs["epsilon"] = needed_epsilon(given, target_error)
        if epsilon is not None:
            needs["rows"] = needed_rows(given, target_error)
    found = predict(given) if rows is not None and epsilon is not None else _of(needs)
    runs = _simulated(found.situation, simulate) if found is not None and simulate else []
    if plot is not None:
        from tailguard.planning.plot import draw

        if found is None:
            raise ValueError("there is nothing to draw: the error is out of reach.")
        draw(found, plot)
    if as_json:
        typer.echo(_as_json(found, needs, runs))
        return
    from tailguard.cli._shared import terminal

    console = terminal()
    for name, need in needs.items():
        console.print(_answer(name, need, target_error or 0.0), markup=False)
    if found is not None:
        if needs:
            console.print()
        for line in _words(found):
            console.print(line if console.soft_wrap else _hanging(line, console.width), markup=False)
        console.print(_moves(found))
    if runs:
        console.print(_comparison(found, runs), markup=False)
    if plot is not None:
        console.print(f"Picture: {plot}", markup=False)


def _of(needs: dict[str, Need]) -> Plan | None:
    return next((need.plan for need in needs.values() if need.plan is not None), None)


def _answer(name: str, need: Need, error: float) -> str:
    what = "epsilon" if name == "epsilon" else "rows"
    if need.value is None:
        return f"No {'epsilon' if name == 'epsilon' else 'number of rows'} gives an error of {error:g}: {need.reason}."
    return f"An error of {error:g} needs {what} = {need.value:,g}."


_REGIMES = {
    "close": "close to the fit without noise",
    "noisy": "slopes are found, but their noise costs accuracy: they are shrunk by it",
    "level only": "no slopes: too few rows for so many features at this epsilon, predictions are a private constant; "
    "public hints may find some, and are not in this formula",
    "nothing": "nothing: too few rows even to find the scale of the target",
}


def _words(found: Plan) -> list[str]:
    from tailguard.planning.formula import ERRORS

    s = found.situation
    size = f"{s.rows:,} rows" + (f", {s.features} features" if s.features else "")
    assumed = f"{s.tails} tails" + (f", R² = {s.r2:g}" if s.model in ("ridge", "huber") else "")
    if s.model == "logistic":
        assumed = f"log-odds of sd {s.log_odds_sd:g}, {100 * s.positive_rate:g} % in the rarer class"
    lines = [
        f"{s.model}: {size}, epsilon = {s.epsilon:g}, delta = {s.at_delta:.2g}",
        f"  assumed    {assumed}; no hints; one row per person (with groups, give their number as rows)",
        f"  noise      mu = {found.mu:.3g}: {1.0 / found.mu:.2g} rows in a count that had the whole budget"
        + (f"; {found.step_noise:.2g} of a row's largest score in each of {found.steps} steps" if found.steps else ""),
    ]
    if found.steps:
        lines.append(
            f"  ratio      K = 2 (features + 1)/(rows mu) = {found.ratio:.3g}; slopes are fitted up to "
            f"{found.largest_ratio:g}, from {found.rows_for_slopes:,} rows on"
        )
    noisy_mean = s.model == "mean" and found.regime == "noisy"
    lines.append(f"  expect     {'noise costs accuracy' if noisy_mean else _REGIMES[found.regime]}")
    if found.regime != "nothing":
        lines.append(f"  error      {found.error:.2g}; nine fits in ten are below {found.often:.2g}")
        lines.append(f"             without noise {found.without_privacy:.2g}; a constant {found.nothing_fitted:.2g}")
        if s.model in ("ridge", "huber"):
            lines.append(f"             so R² of about {max(0.0, s.r2 - found.error):.4f} in place of {s.r2:g}")
        if s.model == "mean":
            lines.append(f"             so the mean is off by about {found.error**0.5:.2g} standard deviations")
        if s.model == "ridge":
            lines.append(
                "             five to ten times more with rare 0/1 columns, or noise whose size depends on them"
            )
    lines.append(f"  (error: {ERRORS[s.model]})")
    return lines


def _hanging(line: str, width: int) -> str:
    """The line, broken between words, with what follows below what it says."""
    import textwrap

    return textwrap.fill(line, width, subsequent_indent=" " * 13)


def _moves(found: Plan) -> Table:
    """How the error moves with each number, the others as they are."""
    from rich.box import SIMPLE
    from rich.table import Table

    from tailguard.planning.plot import moved

    factors = (0.1, 0.3, 1.0, 3.0, 10.0)
    table = Table(title="Error to expect if one number changes", title_justify="left", box=SIMPLE)
    table.add_column("times", no_wrap=True)
    for factor in factors:
        table.add_column(f"{factor:g}", justify="right", no_wrap=True)
    for what in ("rows", "epsilon", "features"):
        here = float(getattr(found.situation, what))
        if here == 0.0:
            continue
        values = [here * factor for factor in factors]
        values = values if what == "epsilon" else [max(2.0 if what == "rows" else 1.0, round(v)) for v in values]
        table.add_row(what, *(f"{value:,g}" for value in values), style="dim")
        table.add_row("error", *(_error(p) for p in moved(found, what, values)))
    return table


def _error(found: Plan) -> str:
    return {"nothing": "-", "level only": "level only"}.get(found.regime, f"{found.error:.2g}")


def _simulated(situation: Situation, count: int) -> list[float]:
    from tailguard.planning.simulation import simulate

    return sorted(simulate(situation, seed, threads=None).total for seed in range(count))


def _comparison(found: Plan | None, runs: list[float]) -> str:
    assert found is not None
    middle = runs[len(runs) // 2]
    return (
        f"Simulated: median error {middle:.2g} of {len(runs)} fits ({runs[0]:.2g} to {runs[-1]:.2g}); "
        f"predicted {found.error:.2g}."
    )


def _as_json(found: Plan | None, needs: dict[str, Need], runs: list[float]) -> str:
    import json

    data: dict[str, Any] = {"plan": None if found is None else found.to_dict()}
    data |= {f"needed_{name}": {"value": need.value, "reason": need.reason} for name, need in needs.items()}
    if runs:
        data["simulated"] = runs
    return json.dumps(data, indent=2, allow_nan=False)
