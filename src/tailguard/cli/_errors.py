"""Errors in one readable line: of options, of the library, of files; never a traceback for what a user can mend."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup


class OneLineErrors(TyperGroup):
    """A group of commands that prints errors as ``error: ...`` and exits with 2 (options) or 1 (everything else).

    Set ``TAILGUARD_TRACEBACK=1`` to see where an error came from.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line."""
        try:
            # A command's answer is not an exit status; `typer.Exit` comes back as one.
            status = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except typer.Abort:
            _fail("stopped.", 1)
        except OSError as error:
            _explain(error, f"{error.filename}: {error.strerror}." if error.filename else str(error))
        except (ValueError, ImportError) as error:
            _explain(error, str(error))
        except Exception as error:
            # The parser's own errors, whose class has moved between versions of typer.
            message = getattr(error, "format_message", None)
            if message is None:
                raise
            context = getattr(error, "ctx", None)
            _fail(message() + (f" (see {context.command_path} --help)" if context else ""), 2)
        if not standalone_mode:
            return status
        sys.exit(status if isinstance(status, int) else 0)


def _explain(error: Exception, message: str) -> NoReturn:
    if os.environ.get("TAILGUARD_TRACEBACK"):
        raise error
    _fail(message, 1)


def _fail(message: str, status: int) -> NoReturn:
    typer.echo("error: " + " ".join(message.split()), err=True)
    sys.exit(status)
