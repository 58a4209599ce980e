"""The threads that run kernels.

Ordinary Python threads: kernels release the interpreter lock, so nothing more is needed, and unlike a compiled
thread pool they survive `fork` and may be used from several threads at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from threading import Lock, current_thread
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from tailguard._checks import count

Task = TypeVar("Task")
Answer = TypeVar("Answer")

_NAME = "tailguard-kernels"
_pool: ThreadPoolExecutor | None = None
_lock, _users = Lock(), 0
_limit: Any = None


def thread_count(threads: int | None = None) -> int:
    """Threads to use: the argument, else TAILGUARD_NUM_THREADS, else the cores this process may use."""
    if threads is not None:
        return count("threads", threads)
    setting = os.environ.get("TAILGUARD_NUM_THREADS", "")
    if setting:
        if not setting.isdecimal() or int(setting) < 1:
            raise ValueError(f"TAILGUARD_NUM_THREADS={setting!r} is not accepted: give a whole number of at least 1.")
        return int(setting)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_map(
    function: Callable[[Task], Answer], tasks: Iterable[Task], threads: int, products: bool = True
) -> list[Answer]:
    """Apply the function to every task, in threads if there are several of both; answers in order.

    Without matrix products in it, a function need not wait for `plain_products`.
    """
    tasks = list(tasks)

    def run(share: list[Task]) -> list[Answer]:
        # Here, because the setting does not reach other threads: a warning would be a word about the data.
        with np.errstate(all="ignore"):
            return [function(task) for task in share]

    with plain_products() if products else nullcontext():
        # A thread of the pool works itself: waiting for others of the pool, all of them could wait for each other.
        if threads == 1 or len(tasks) < 2 or current_thread().name.startswith(_NAME):
            return run(tasks)
        return _run_in_pool(run, tasks, threads)


def _run_in_pool(run: Callable[[list[Task]], list[Answer]], tasks: list[Task], threads: int) -> list[Answer]:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max_workers=max(32, threads), thread_name_prefix=_NAME)
    # No more than `threads` tasks run at a time, each a share of the list. The first runs here: it takes a tenth of a
    # millisecond to wake a thread, and a step may take two.
    shares = [tasks[k::threads] for k in range(min(threads, len(tasks)))]
    others = [_pool.submit(run, share) for share in shares[1:]]
    answers = [run(shares[0]), *(future.result() for future in others)]
    return [answers[k % len(shares)][k // len(shares)] for k in range(len(tasks))]


@contextmanager
def plain_products() -> Iterator[None]:
    """Keep matrix products from starting threads of their own, which would also round some rows differently.

    The setting belongs to the process: the first to come makes it and the last to leave takes it back.
    """
    global _users, _limit
    with _lock:
        _users += 1
        if _users == 1:
            _limit = _blas().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.restore_original_limits()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def _start_anew() -> None:
    """Drop the pool in a forked child, which inherits the object but not its threads."""
    global _pool, _lock, _users
    _pool, _lock, _users = None, Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
