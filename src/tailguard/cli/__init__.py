"""The command line, ``tailguard COMMAND``.

One file per command: it has a function ``command`` whose arguments are the options and whose docstring is the help,
and is registered here with one line. Files import typer at the top and all that is slow inside the function. A command
raises ordinary errors; `tailguard.cli._errors` prints them in one line.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tailguard.cli import demo, reproduce
from tailguard.cli._errors import OneLineErrors

app = typer.Typer(
    cls=OneLineErrors,
    help="Differentially private learning on data with heavy tails.",
    add_completion=False,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
)

app.command("demo")(demo.command)
app.command("reproduce")(reproduce.command)


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
