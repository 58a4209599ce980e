"""The one way to import what is not installed by default: it says what to install."""

from __future__ import annotations

import importlib
from typing import Any


def import_optional(module: str, extra: str) -> Any:
    """Import a module of an optional dependency.

    Parameters
    ----------
    module : str
        Its full name, such as ``"matplotlib.figure"``.
    extra : str
        Extra of this package that installs it.

    Raises
    ------
    ImportError
        With the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        raise ImportError(f"{missing} is not installed: run  pip install 'tailguard[{extra}]'") from error
