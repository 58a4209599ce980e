"""Many runs of a subject, over all cores and the same for any number of them.

Runs are cut into pieces whose size does not depend on the number of processes, and each piece has a noise stream of its
own, named by (seed, subject, stage, pair, side, piece). So the outputs depend on the auditor's seed alone.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tailguard._checks import count
from tailguard._processes import stay_with_parent
from tailguard.auditing.neighbours import Table
from tailguard.auditing.subjects import Subject
from tailguard.engines.threads import thread_count
from tailguard.privacy import NoiseSource, SeededNoise, SystemNoise

Array = NDArray[np.float64]
Where = tuple[int, ...]

_PIECES = 64
_LARGEST_PIECE = 2000


def pieces(runs: int) -> list[int]:
    """Return the sizes of the pieces that so many runs are cut into."""
    size = min(_LARGEST_PIECE, -(-runs // _PIECES))
    return [min(size, runs - start) for start in range(0, runs, size)]


class Runner:
    """Runs a subject in processes; a context manager, so that several audits can share them.

    Parameters
    ----------
    workers : int, optional
        Processes; default one per core. 1 runs here.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = thread_count(workers) if workers is None else count("workers", workers)
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def outputs(
        self,
        subject: Subject,
        table: Table,
        runs: int,
        where: Where,
        *,
        seed: int | None,
        advance: Callable[[], None] = lambda: None,
    ) -> Array:
        """Return the outputs of ``runs`` runs, (runs, k).

        Parameters
        ----------
        subject : Subject
        table : Table
        runs : int
        where : tuple of int
            Names the streams of these runs.
        seed : int or None
            Of the auditor; None draws noise from the operating system.
        advance : callable
            Called after each of the `pieces`.
        """
        sizes = pieces(runs)
        found = []
        if self.workers == 1:
            for piece, size in enumerate(sizes):
                found.append(_piece(subject, table, seed, (*where, piece), size))
                advance()
            return np.concatenate(found)
        try:
            pickle.dumps(subject)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                "the subject cannot be sent to other processes: define it at the top of a module, or give workers=1."
            ) from error
        pool = self._start()
        waiting = [pool.submit(_piece, subject, table, seed, (*where, piece), n) for piece, n in enumerate(sizes)]
        try:
            for future in waiting:
                found.append(future.result())
                advance()
        finally:
            for future in waiting:
                future.cancel()
        return np.concatenate(found)

    def _start(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Fresh processes: forked ones would inherit the threads and locks of numerical libraries.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.workers, mp_context=context, initializer=_start_worker)
        return self._pool


def _start_worker() -> None:
    """One thread each, interrupts to the parent, and no life without it."""
    os.environ["TAILGUARD_NUM_THREADS"] = "1"
    threadpool_limits(1)
    stay_with_parent()


class Stream(SeededNoise):
    """One stream for everything: asked for the source of a step or of a run it goes on where it was.

    So do the operating system's generator and `SystemNoise`. A stream of its own for every step, which makes runs
    resumable, costs as much as a small release itself.
    """

    def at(self, step: int) -> Stream:
        """Return the stream itself."""
        return self


def _piece(subject: Subject, table: Table, seed: int | None, path: Where, runs: int) -> Array:
    noise: NoiseSource = SystemNoise() if seed is None else Stream(seed, path)
    outputs = np.asarray(subject.outputs(table, noise, runs), dtype=np.float64)
    if outputs.ndim != 2 or len(outputs) != runs:
        raise ValueError(f"the subject returned shape {outputs.shape} for {runs} runs: return ({runs}, outputs).")
    return outputs
