"""Compute the missing cells of figures with all cores, and resume what was interrupted.

Cells run in processes of one thread each. A worker keeps every cell itself as soon as it is finished, so that whatever
stops the run, the next one starts from there; and it ends when the process that started it is gone.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

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
        for cell in cells:
            _work(store, cell, data)
            progress(cell.cost)
    else:
        _run_in_processes(cells, store, data, workers, progress)
    return {figure.key: store.gather(figure) for figure in figures}


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_in_processes(cells: list[Cell], store: Store, data: Path | None, workers: int, progress: Progress) -> None:
    # Fresh processes: forked ones would inherit the threads and locks of numerical libraries.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
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


def _start_worker() -> None:
    """One thread for linear algebra, as many workers as cores; and no worker outlives its parent."""
    import signal

    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the pool
    threadpool_limits(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> Any:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(store: Store, cell: Cell, data: Path | None) -> None:
    store.write(cell, *compute(cell, data))
