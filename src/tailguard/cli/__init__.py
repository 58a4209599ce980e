"""The command line, ``tailguard COMMAND``.

One file per command: it has a function ``command`` whose arguments are the options and whose docstring is the help,
and is registered here with one line. Files import typer at the top and all that is slow inside the function. A command
raises ordinary errors; `tailguard.cli._errors` prints them in one line.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tailguard.cli import audit, demo, evaluate, fit, inspect, ledger, plan, predict, reproduce, schema
from tailguard.cli._errors import OneLineErrors
from tailguard.cli._shared import unwrapped

app = typer.Typer(
    cls=OneLineErrors,
    help="Differentially private learning on data with heavy tails.",
    pretty_exceptions_enable=False,
    invoke_without_command=True,
)

app.command("schema", help=unwrapped(schema.command))(schema.command)
app.command("fit", help=unwrapped(fit.command))(fit.command)
app.command("predict", help=unwrapped(predict.command))(predict.command)
app.command("evaluate", help=unwrapped(evaluate.command))(evaluate.command)
app.command("inspect", help=unwrapped(inspect.command))(inspect.command)
app.command("audit")(audit.command)
app.command("demo")(demo.command)
app.command("reproduce")(reproduce.command)
app.command("plan", help=unwrapped(plan.command))(plan.command)
app.add_typer(ledger.app, name="ledger")


def _print_version(wanted: bool) -> None:
    if wanted:
        from tailguard import __version__

        typer.echo(f"tailguard {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
