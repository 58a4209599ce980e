"""The compiled loops: plain numba functions, arrays and scalars in, nothing else.

Every kernel releases the interpreter lock, so engines run them on ordinary threads, and is
cached on disk, so only the first call on a machine compiles. That takes seconds, and says so.

numba takes as long to import as all the rest, and whoever plans, reads a ledger or loads a model does without. So
`rows` and the others are imported when something first asks this package for them; `codes` are plain numbers.
"""

from importlib import import_module
from typing import Any

_COMPILED = ("default_sums", "features", "persons", "reading", "rows", "smooth_sensitivity")


def __getattr__(name: str) -> Any:
    """Import the kernels of one kind."""
    if name in _COMPILED:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
