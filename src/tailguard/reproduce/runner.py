"""Compute the missing cells of figures with all cores, and resume what was interrupted.

Cells run in processes of one thread each. A worker keeps every cell itself as soon as it is finished, so that whatever
stops the run, the next one starts from there; and it ends when the process that started it is gone.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from threadpoolctl import threadpool_limits

from tailguard._processes import stay_with_parent
from tailguard.reproduce.cells import adult_table, compute
from tailguard.reproduce.specs import Cell, Figure
from tailguard.reproduce.store import Results, Store

Progress = Callable[[float], None]


def needs_adult(figure: Figure) -> bool:
    """Whether any cell of a figure reads the Adult table."""
    return any(point.source.data == "adult" for panel in figure.panels for point in panel.points)


def adult_digest(data: Path | None) -> str:
    """Fingerprint of the Adult table; loads it."""
    table = adult_table("onehot", data)
    return hashlib.sha256(table.X.tobytes() + table.y.tobytes()).hexdigest()[:20]


def missing_cells(figures: Sequence[Figure], store: Store) -> list[Cell]:
    """Cells without a result, each once, in an order that keeps those of the same rows together."""
    cells = {store.path(cell): cell for figure in figures for *_, cell in figure.entries()}
    return [cell for path, cell in cells.items() if not path.is_file()]


def run(
    figures: Sequence[Figure],
    store: Store,
    *,
    data: Path | None = None,
    workers: int | None = None,
    progress: Progress = lambda done: None,
) -> dict[str, Results]:
    """Compute what is missing and collect every figure.

    Parameters
    ----------
    figures : sequence of Figure
    store : Store
    data : Path, optional
        Where Adult is; see `tailguard.datasets.load_adult`.
    workers : int, optional
        Processes; default one per core that this process may use. 1 computes here, without processes.
    progress : callable, optional
        Called with the cost of every finished cell.

    Returns
    -------
    dict of str to Results
        Results by the key of the figure.
    """
    cells = missing_cells(figures, store)
    workers = min(usable_cores() if workers is None else workers, max(1, len(cells)))
    if workers == 1:
        with threadpool_limits(1):
            for cell in cells:
                _work(store, cell, data)
                progress(cell.cost)
    else:
        with _single_threads():
            _run_in_processes(cells, store, data, workers, progress)
    return {figure.key: store.gather(figure) for figure in figures}


@contextmanager
def _single_threads() -> Iterator[None]:
    """Start processes with one thread for linear algebra: as many workers as cores would otherwise wait for each other.

    The variables are read when a library is loaded, which may be long after a process has started; limits set by a
    call would miss those.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "BLIS_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_in_processes(cells: list[Cell], store: Store, data: Path | None, workers: int, progress: Progress) -> None:
    # Fresh processes: forked ones would inherit the threads and locks of numerical libraries.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=stay_with_parent)
    waiting: dict[Future[None], Cell] = {}
    queue = iter(cells)
    try:
        while True:
            # A short queue, so that an interrupt has little to wait for.
            while len(waiting) < 2 * workers and (cell := next(queue, None)) is not None:
                waiting[pool.submit(_work, store, cell, data)] = cell
            if not waiting:
                break
            finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                future.result()
                progress(waiting.pop(future).cost)
    finally:
        pool.shutdown(cancel_futures=True)


def _work(store: Store, cell: Cell, data: Path | None) -> None:
    store.write(cell, *compute(cell, data))
