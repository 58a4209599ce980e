r"""Which ledger a run must pay: the one whose ``with`` block it is in, wherever it runs.

Every private run of the package calls `charge` after its price is known and before it reads a row. What is active is
looked for in three places, the first of which that has something decides:

1. **this context** (a `contextvars` variable): the ``with`` blocks around the call; nested ones are all charged, and in
   a forked child those around the fork together with what 3 finds;
2. **this process**: threads, such as joblib's, do not inherit the context of the thread that started them;
3. **the parents of this process**: workers of joblib, multiprocessing and the like, which may be older than the
   ``with`` block. A process with an active ledger leaves a note in a private folder under the temporary folder, by
   process number; workers look up their parents' notes and charge the file themselves.

A release that is made of whole runs, such as a search, charges for itself and then opens a `covered` block, in which
the runs are charged to nobody: what they ask for is written down for their owner to check.

In 2 and 3 several ledgers may be active, in blocks that do not enclose one another. Nothing says then which of them the
rows belong to, and the run is refused. A worker whose ledger cannot be opened is refused too: never uncharged.
Out of reach: processes on other machines, which must open a ledger of their own.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tailguard.ledger.store import LedgerError
from tailguard.privacy import Event, NoiseSource, NotPrivate, PrivacyReport

if TYPE_CHECKING:
    from tailguard.ledger.book import Ledger, Reservation

Key = tuple[str, str]  # path and dataset
Stack = tuple["Ledger", ...]  # from the outermost block to the innermost, each ledger once


@dataclass(frozen=True)
class Frame:
    """The ledgers of one ``with`` block and of those around it, and the process that opened it."""

    ledgers: Stack
    process: int
    before: Frame | None


@dataclass(frozen=True)
class Cover:
    """What the runs of a covered block asked for, and whether they are only rehearsed."""

    asked: list[Event]
    rehearsal: bool


class Rehearsed(BaseException):
    """Ends a rehearsed run where it would begin to read rows."""


SEEDED = "seeded: the noise can be computed again"

_context: ContextVar[Frame | None] = ContextVar("tailguard_ledgers", default=None)
_cover: ContextVar[Cover | None] = ContextVar("tailguard_cover", default=None)
_process: list[Frame] = []
_lock = threading.Lock()


@dataclass(frozen=True)
class Bill:
    """What a run has reserved; settle it with the report of the run.

    Parameters
    ----------
    reservations : tuple of (Ledger, Reservation)
        Empty where no ledger was active.
    """

    reservations: tuple[tuple[Ledger, Reservation], ...] = ()

    def settle(self, report: PrivacyReport) -> PrivacyReport:
        """Record the report in every ledger that was charged, and return it."""
        for ledger, reservation in self.reservations:
            try:
                ledger.confirm(reservation, report)
            except LedgerError as error:
                # The run is paid for: losing its result because its report cannot be kept would help nobody.
                warnings.warn(f"the run is charged, but its report is not in the ledger: {error}", stacklevel=2)
        return report


def is_watched() -> bool:
    """Whether anything adds up what runs release: a ledger, or a run of several runs."""
    return _cover.get() is not None or bool(active())


def charge(events: Iterable[Event], *, rows: int, method: str, noise: NoiseSource | None = None) -> Bill:
    """Reserve what a run may release in every active ledger; call it before the first row is read.

    Parameters
    ----------
    events : iterable of Event
        The most that the run may release.
    rows : int
        Public number of rows.
    method : str
        Name of the algorithm.
    noise : NoiseSource, optional
        A source that is not private makes the run unbounded.

    Returns
    -------
    Bill
        Empty where no ledger is active.

    Raises
    ------
    BudgetExceeded
        If a budget has no room.
    LedgerError
        If a ledger cannot be used, or nothing says which of several is meant.
    """
    cover = _cover.get()
    if cover is not None:
        cover.asked.extend(events)
        if cover.rehearsal:
            raise Rehearsed
        return Bill()
    ledgers = active()
    if not ledgers:
        return Bill()
    events = tuple(events)
    if not events:
        return Bill()  # nothing is left to release
    if noise is not None and not noise.private:
        events = (*events, NotPrivate(SEEDED, label="noise"))
    return Bill(tuple((ledger, ledger.reserve(events, rows=rows, method=method)) for ledger in ledgers))


@contextmanager
def covered(*, rehearsal: bool = False) -> Iterator[list[Event]]:
    """Let runs in this block pay nothing, because a release that they are parts of was charged before.

    Parameters
    ----------
    rehearsal : bool, default=False
        End the block where the first run would begin to read rows: its arguments are checked and its price is known.

    Yields
    ------
    list of Event
        What the runs asked for; whoever opens the block must check that it is what was charged.
    """
    cover = Cover([], rehearsal)
    token = _cover.set(cover)
    try:
        yield cover.asked
    except Rehearsed:
        if not rehearsal:
            raise
    finally:
        _cover.reset(token)


def active() -> Stack:
    """Return the ledgers that a run here and now must pay."""
    frame = _context.get()
    if frame is not None and frame.process == os.getpid():
        return frame.ledgers
    with _lock:
        stacks = [other.ledgers for other in _process]
    if stacks and frame is None:
        return _the_one(stacks, "this process")
    notes = [_opened(note) for note in _notes_of_parents()]
    inherited = () if frame is None else frame.ledgers
    return _joined(inherited, _the_one(notes, "the parent processes") if notes else ())


def enter(ledger: Ledger) -> None:
    """Make a ledger active in this context."""
    before = _context.get()
    frame = Frame(_joined(() if before is None else before.ledgers, (ledger,)), os.getpid(), before)
    with _lock:
        _process.append(frame)
        try:
            _write_note()
        except BaseException:
            _process.remove(frame)
            raise
    _context.set(frame)


def leave() -> None:
    """End the innermost block of this context."""
    frame = _context.get()
    assert frame is not None, "leave without enter"
    _context.set(frame.before)
    with _lock:
        # By identity: two threads may hold equal frames. A forked child does not hold those of its parent.
        _process[:] = [other for other in _process if other is not frame]
        _write_note()


def _joined(first: Stack, second: Stack) -> Stack:
    """Return both stacks as one, each ledger once."""
    keys = {ledger.key for ledger in first}
    return first + tuple(ledger for ledger in second if ledger.key not in keys)


def _the_one(stacks: list[Stack], where: str) -> Stack:
    """Return the stack that contains all others, or refuse."""
    largest = max(stacks, key=len)
    keys = {ledger.key for ledger in largest}
    if all(ledger.key in keys for stack in stacks for ledger in stack):
        return largest
    names = ", ".join(sorted({repr(ledger.dataset) for stack in stacks for ledger in stack}))
    raise LedgerError(
        f"several ledgers are active in {where} ({names}) and nothing says which of them this run belongs to: "
        "open the ledger inside the thread or worker that fits."
    )


# Notes: one small file per process with an active ledger.


def _folder() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"tailguard-ledgers-{user}"


def _write_note() -> None:
    """Say in the folder what is active in this process; call it under the lock."""
    folder, name = _folder(), f"{os.getpid()}.json"
    try:
        if not _process:
            (folder / name).unlink(missing_ok=True)
            return
        folder.mkdir(mode=0o700, exist_ok=True)
        _check_owner(folder)
        stacks = [[list(ledger.key) for ledger in frame.ledgers] for frame in _process]
        partial = folder / f".{name}.{threading.get_ident()}"
        partial.write_text(json.dumps({"born": _born(os.getpid()), "stacks": stacks}), encoding="utf-8")
        os.replace(partial, folder / name)  # in one step: a reader sees the old note or the new one
    except OSError as error:
        raise LedgerError(f"worker processes cannot be told of the ledger: {folder}: {error.strerror}.") from None


def _check_owner(folder: Path) -> None:
    """Refuse a folder that somebody else made: its notes could send charges elsewhere."""
    if hasattr(os, "getuid") and folder.lstat().st_uid != os.getuid():  # a link counts as who made the link
        raise LedgerError(f"{folder} belongs to another user: remove it, or set TMPDIR to a folder of your own.")


def _notes_of_parents() -> Iterator[list[Key]]:
    """Yield the stacks of the nearest parent process that has any."""
    folder = _folder()
    if not folder.is_dir():
        return
    _check_owner(folder)
    for pid in _parents():
        try:
            note = json.loads((folder / f"{pid}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise LedgerError(f"the note of an active ledger in {folder} cannot be read: {error}.") from None
        if note["born"] != _born(pid):
            continue  # of an earlier process with the same number, which was killed
        for stack in note["stacks"]:
            yield [(path, dataset) for path, dataset in stack]
        return


def _parents() -> Iterator[int]:
    """Yield the process numbers of the parents, nearest first; only the nearest where the system does not tell."""
    pid = os.getppid()
    while pid > 1:
        yield pid
        fields = _stat(pid)
        if fields is None:
            return
        pid = int(fields[1])


def _born(pid: int) -> str:
    """Return when a process began, to tell it from a later one with the same number; "" where it cannot be known."""
    fields = _stat(pid)
    return "" if fields is None else fields[19]


def _stat(pid: int) -> list[str] | None:
    """Return Linux's facts on a process, from its state on; the name before them may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _opened(note: list[Key]) -> Stack:
    from tailguard.ledger.book import Ledger

    return tuple(Ledger(path, dataset) for path, dataset in note)


def _forget_threads() -> None:
    """In a forked child: other threads are gone, and with them their blocks and any hold on the lock."""
    global _lock
    _lock = threading.Lock()
    _process.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
