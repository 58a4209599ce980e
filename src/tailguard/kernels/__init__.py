"""The compiled loops: plain numba functions, arrays and scalars in, nothing else.

Every kernel releases the interpreter lock, so engines run them on ordinary threads, and is
cached on disk, so only the first call on a machine compiles. That takes seconds, and says so.
"""

import logging

from numba.core import event


class _Announcement(event.Listener):
    """Says once that kernels are being compiled: a first fit that is silent for ten seconds seems to hang.

    What is compiled depends on types, never on values. As a warning of the package's logger it
    is seen on standard error where nobody has set up logging, and can be turned off there.
    """

    said = False

    def on_start(self, event: event.Event) -> None:
        if not self.said and event.data["dispatcher"].py_func.__module__.startswith(__name__):
            self.said = True
            logging.getLogger("tailguard").warning(
                "compiling tailguard's kernels for this machine: about ten seconds, the first time only"
            )

    def on_end(self, event: event.Event) -> None:
        """Nothing to add."""


announcement = _Announcement()
event.register("numba:compile", announcement)
