"""How kernels are compiled: they take `njit` from here, so that their stamp and the announcement are in place."""

import hashlib
import logging
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import caching, event

__all__ = ["announcement", "fingerprint", "njit"]

_FOLDER = Path(__file__).resolve().parent
_PACKAGE = __name__.rpartition(".")[0]


@cache
def fingerprint() -> str:
    """Digest of all sources of this folder and those below."""
    digest = hashlib.sha256()
    for source in sorted(_FOLDER.rglob("*.py")):
        digest.update(source.relative_to(_FOLDER).as_posix().encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def _stamp_whole_folder() -> None:
    """Make a kernel on disk valid only as long as no source of this folder changes.

    numba looks at the file of a function, not at those of the functions that are compiled into it: after an
    update a kernel could go on bounding rows by an old rule.
    """
    locator: Any = caching._SourceFileBackedLocatorMixin
    stamp_of_file = locator.get_source_stamp

    def stamp(self: Any) -> Any:
        own = stamp_of_file(self)
        return (own, fingerprint()) if _FOLDER in Path(self._py_file).resolve().parents else own

    locator.get_source_stamp = stamp


_stamp_whole_folder()


class _Announcement(event.Listener):
    """Says once that kernels are being compiled: a first fit that is silent for ten seconds seems to hang.

    What is compiled depends on types, never on values. As a warning of the package's logger it
    is seen on standard error where nobody has set up logging, and can be turned off there.
    """

    said = False

    def on_start(self, event: event.Event) -> None:
        if not self.said and event.data["dispatcher"].py_func.__module__.startswith(_PACKAGE):
            self.said = True
            logging.getLogger("tailguard").warning(
                "compiling tailguard's kernels for this machine: about ten seconds, the first time only"
            )

    def on_end(self, event: event.Event) -> None:
        """Nothing to add."""


announcement = _Announcement()
event.register("numba:compile", announcement)
