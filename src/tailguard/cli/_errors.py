"""Errors in one readable line: of options, of the library, of files; never a traceback for what a user can mend.

======  ==================================================================================
status  meaning
======  ==================================================================================
0       done
1       it could not be done: a file, a column, a value of a parameter, a missing package
2       the options are wrong
3       an audit refuted a claim (``tailguard audit`` only)
4       refused for the sake of privacy: no budget left, or nothing says who pays
130     stopped from the keyboard
======  ==================================================================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

FAILED, WRONG_OPTIONS, REFUSED, STOPPED = 1, 2, 4, 130


class Refused(ValueError):
    """A command that was not carried out for the sake of privacy; nothing was released."""


class OneLineErrors(TyperGroup):
    """A group of commands that prints errors as ``error: ...`` and exits with a status that says which kind.

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
            _fail("stopped.", STOPPED)
        except BrokenPipeError:  # the reader of our output, such as head, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(FAILED)
        except OSError as error:
            _explain(error, f"{error.filename}: {error.strerror}." if error.filename else str(error))
        except (ValueError, ImportError) as error:
            _explain(error, _without_cells(error))
        except Exception as error:
            # The parser's own errors, whose class has moved between versions of typer.
            message = getattr(error, "format_message", None)
            if message is None:
                raise
            context = getattr(error, "ctx", None)
            given = _given(error, sys.argv[1:] if args is None else args)
            told = message() if given is None or given in message() else f"{message()}; got {given!r}"
            _fail(told + (f" (see {context.command_path} --help)" if context else ""), WRONG_OPTIONS)
        if status == STOPPED:  # newer versions of typer do not raise for it
            _fail("stopped.", STOPPED)
        if not standalone_mode:
            return status
        sys.exit(status if isinstance(status, int) else 0)


def _given(error: Exception, args: Sequence[str]) -> str | None:
    """The value of the option that an error of the parser is about."""
    options = getattr(getattr(error, "param", None), "opts", ())
    for argument, following in zip(args, [*args[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        if name in options and (equals or following):
            return value if equals else following
    return None


def _without_cells(error: Exception) -> str:
    """The message, unless it is of Arrow, whose messages repeat cells of the table."""
    if type(error).__module__.partition(".")[0] == "pyarrow":
        return f"a table could not be read or written ({type(error).__name__}): check that it is what its name says."
    return str(error)


def _explain(error: Exception, message: str) -> NoReturn:
    if os.environ.get("TAILGUARD_TRACEBACK"):
        raise error
    from tailguard.privacy import OverBudgetError

    _fail(message, REFUSED if isinstance(error, (Refused, OverBudgetError)) else FAILED)


def printable(text: str) -> str:
    """The text without control characters: a file from elsewhere must not speak to the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _fail(message: str, status: int) -> NoReturn:
    typer.echo("error: " + printable(" ".join(message.split())), err=True)
    sys.exit(status)
